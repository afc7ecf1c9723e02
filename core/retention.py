"""Retention: what goes by its age, or because there is no room, without anybody asking for it.

Conversations in which nothing has been said for long are removed as a whole; of those that go on,
the exchanges that left the window and are old. Rows that stay are never changed, and a window is
never touched. What has still to be answered or sent stays, however old; what could not be sent
goes only a week after that was said in the log. Rows of usage have an age of their own.

Not `/forget`, which goes by the person. It works beside the turns, in small steps with pauses
between them, and each step is a compare-and-set: whoever speaks meanwhile wins. Of many processes
one does it, by a note that is compared and set; after a crash another goes on where it was.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from heapq import heappush, heappushpop
from typing import Final, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from core import history
from core.blobs import named_in
from core.clock import Clock
from core.errors import (
    SnapshotTooNew,
    SnapshotUnreadable,
    StaleSnapshot,
    StoreError,
)
from core.events import emit, trouble
from core.messages import Message
from core.snapshot import Snapshot, stored
from core.store import BotStore, SessionRef, Summary

SECOND: Final = 1_000
DAY: Final = 24 * 3600 * SECOND
HOUR_SECONDS: Final = 3600.0
# After a start, which has enough to do.
START_SECONDS: Final = 60.0
# How long what could not be sent stays after it was said that it goes.
GRACE: Final = 7 * DAY
# For want of room nothing goes that is newer: a platform may bring its messages once more, and
# they must be known.
RECENT: Final = 2 * DAY
# Without a sign of life for so long, another process goes on.
LEASE: Final = 10 * 60 * SECOND

PAGE: Final = 100  # conversations listed at once
ROWS: Final = 100  # messages that go at once
BLOBS: Final = 1  # and images: each may be much to overwrite
OLDEST: Final = 1_000  # conversations that are kept in mind, to begin with the oldest
# A pause after each step, so many times as long: others have the store for most of the time.
PAUSE: Final = 9
# Free space is overwritten up to this size, in bytes: above it, saves would wait too long.
SCRUBBED: Final = 4 << 20

NOTE: Final = "retention"
SAID: Final = "retention.said."

Fate = Literal["goes", "unfinished", "undelivered", "unreadable"]

T = TypeVar("T")


class Rules(msgspec.Struct, frozen=True):
    """None: nothing goes by it.

    :param days: without a word, after which a conversation goes, and in others what has left the
        window
    :param megabytes: millions of bytes that all may take
    :param usage_days: the age at which rows of usage go
    """

    days: int | None = None
    megabytes: int | None = None
    usage_days: int | None = None


class Gone(msgspec.Struct):
    """What one pass did.

    :param messages: rows of history, those of the conversations included
    :param aside: what could not be read and was set aside
    :param blobs: images and files that were put and never said
    :param usage: rows of what model calls used
    :param unfinished: conversations that stay though they are old
    :param undelivered: of those, whose parts could not be sent, and that go later
    :param unreadable: of those, that cannot be read
    :param longest: seconds that its longest step took
    """

    conversations: int = 0
    messages: int = 0
    aside: int = 0
    blobs: int = 0
    usage: int = 0
    unfinished: int = 0
    undelivered: int = 0
    unreadable: int = 0
    longest: float = 0.0


class _State(msgspec.Struct, frozen=True, omit_defaults=True):
    """The note.

    :param by: which run of the program is at it
    :param until: ms; from then on it is anybody's
    :param after: the key up to which all were looked at
    :param done: when all were, in ms
    """

    by: str = ""
    until: int = 0
    after: str = ""
    done: int = 0


class _Cut(msgspec.Struct, frozen=True):
    """Whole exchanges at the beginning of a history: all rows with a lower seq.

    :param size: bytes
    """

    upto: int
    rows: int
    size: int


class _Taken(Exception):
    """Somebody else does it now."""


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_State).decode


class Retention:
    """
    :param ref: what the store is told about a key
    :param forget: told of each conversation that was changed: what is in memory is old
    :param dry: changes nothing, and finds what would go
    :param see: told what becomes of a conversation as a whole
    """

    def __init__(
        self,
        store: BotStore,
        ref: Callable[[str], SessionRef],
        clock: Clock,
        rules: Rules,
        *,
        forget: Callable[[str], None] = lambda key: None,
        dry: bool = False,
        see: Callable[[Fate, Summary], None] = lambda fate, summary: None,
    ) -> None:
        self._store = store
        self._ref = ref
        self._clock = clock
        self._rules = rules
        self._forget = forget
        self._dry = dry
        self._see = see
        self._id = secrets.token_hex(8)
        self._note: bytes | None = None
        self._gone = Gone()
        # Of a dry run: what is gone already, and its bytes.
        self._ended: set[str] = set()
        self._lighter = 0

    # ------------------------------------------------------------------ when

    async def run(self) -> None:
        """Once a day, until cancelled."""
        await self._clock.sleep(START_SECONDS)
        while True:
            try:
                wait = await self.look()
            except StoreError as error:
                # Whoever speaks meets the same store, and hears of it; this can wait.
                trouble("retention.failed", why=type(error).__name__)
                wait = HOUR_SECONDS
            await self._clock.sleep(wait)

    async def look(self) -> float:
        """Do it, when it is due and nobody else does. Seconds until it should be asked again."""
        now = self._clock.now()
        was = await self._store.notes.get(NOTE)
        state = _decode(was) if was else _State()
        # The wall clock may jump: then we have waited for an hour at most.
        if now - DAY < state.done <= now:
            return min(HOUR_SECONDS, (state.done + DAY - now) / SECOND)
        if state.by and now < state.until <= now + LEASE:
            return min(HOUR_SECONDS, (state.until - now) / SECOND)
        self._note = was
        try:
            await self._hold(state.after)
            await self.once(after=state.after)
            await self._set(_State(done=now))
        except _Taken:
            return LEASE / SECOND
        return HOUR_SECONDS

    async def _hold(self, after: str) -> None:
        """A sign of life, and how far it is.

        :raises _Taken: somebody took us for dead
        """
        until = self._clock.now() + LEASE
        await self._set(_State(by=self._id, until=until, after=after))

    async def _set(self, state: _State) -> None:
        after = _encode(state)
        if not await self._store.notes.put(NOTE, after, was=self._note):
            raise _Taken
        self._note = after

    # ------------------------------------------------------------------ one pass

    async def once(self, after: str = "") -> Gone:
        """All of it.

        :param after: of those up to this key, all were looked at before
        :raises StoreError: what the store raises; the next pass goes on
        """
        gone = self._gone = Gone()
        self._ended, self._lighter = set(), 0
        now = self._clock.now()
        try:
            if self._rules.days is not None:
                await self._by_age(now - self._rules.days * DAY, after)
            if not self._dry:
                await self._strays(now)
            if self._rules.megabytes is not None:
                await self._by_size(now, self._rules.megabytes * 1_000_000)
            if not self._dry:
                await self._unsay()
                await self._scrub()
        finally:
            if not self._dry:
                went = {name: getattr(gone, name) for name in Gone.__struct_fields__[:-1]}
                emit("retention", **went, longest_ms=round(gone.longest * 1000))
        return gone

    async def _by_age(self, before: int, after: str) -> None:
        while True:
            page = await self._step(self._listed(after))
            for each in page:
                if each.updated_at < before:
                    await self._end(each, before)
                elif each.messages and not each.unfinished:
                    await self._shorten(each.key, before)
            if len(page) < PAGE:
                return
            after = page[-1].key
            await self._alive(after)

    async def _strays(self, now: int) -> None:
        """What no conversation holds."""
        if self._rules.days is not None:
            before = now - self._rules.days * DAY
            self._gone.aside = await self._step(self._store.clear_aside(before=before))
        self._gone.blobs = await self._step(self._store.blobs.sweep(now - DAY))
        if self._rules.usage_days is not None:
            before = now - self._rules.usage_days * DAY
            self._gone.usage = await self._step(self._store.usage.erase(before))

    async def _by_size(self, now: int, limit: int) -> None:
        """The oldest first, until there is room: conversations, then what has left a window."""
        size = over = await self._size()
        asked: set[str] = set()
        while size > limit and (oldest := await self._oldest(now - RECENT, asked)):
            for each in oldest:
                if size <= limit:
                    break
                asked.add(each.key)
                weight = await self._step(self._store.size(each.key))
                if await self._end(each, now - RECENT):
                    size -= weight
            size = await self._size()
        asked.clear()
        while size > limit and (oldest := await self._oldest(now + DAY, asked)):
            for each in oldest:
                if size <= limit:
                    break
                asked.add(each.key)
                size -= await self._shorten(each.key, None)
            if not self._dry:
                size = await self._size()
        if self._dry:
            return
        if size > limit:
            # What is left: windows, what is unfinished or new, and what was used.
            trouble("retention.full", bytes=size, limit=limit, before=over)
        else:
            emit("retention.room", bytes=size, limit=limit, before=over)

    async def _unsay(self) -> None:
        """What was said of conversations that are gone, or that went on."""
        notes = self._store.notes
        for name in [name async for name in notes.names() if name.startswith(SAID)]:
            said = await notes.get(name)
            snapshot = await self._load(name.removeprefix(SAID))
            if said and (snapshot is None or not snapshot.undelivered):
                await notes.put(name, None, was=said)

    async def _scrub(self) -> None:
        """So that what went is in no file any more. Of a large store that would take long: there it
        happens with the next `/forget`, or by `chinwag sessions expire`."""
        if self._gone.conversations or self._gone.messages or self._gone.aside:
            if await self._store.size() <= SCRUBBED:
                await self._step(self._store.scrub())

    # ------------------------------------------------------------------ one conversation

    async def _end(self, each: Summary, before: int) -> bool:
        """Whether it went, or would have."""
        snapshot = None if each.unfinished else await self._load(each.key, each)
        if each.unfinished or (snapshot and snapshot.unfinished):
            self._gone.unfinished += 1
            self._see("unfinished", each)
            return False
        if snapshot is None or snapshot.updated_at >= before:
            return False
        if snapshot.undelivered and not await self._said_before(each.key, snapshot):
            self._gone.undelivered += 1
            self._see("undelivered", each)
            return False
        if self._dry:
            self._lighter += await self._store.size(each.key)
            self._ended.add(each.key)
        else:
            # What has left the window first, in steps: all at once would hold others up.
            left, _ = await self._cut(snapshot, each.key, None)
            if left is None or not await self._remove(each.key, left):
                return False
        self._gone.conversations += 1
        self._gone.messages += each.messages
        self._see("goes", each)
        return True

    async def _remove(self, key: str, snapshot: Snapshot) -> bool:
        try:
            await self._step(self._store.remove(self._ref(key), replaces=snapshot.revision))
        except StaleSnapshot:
            return False  # somebody has spoken
        finally:
            self._forget(key)
        return True

    async def _shorten(self, key: str, before: int | None) -> int:
        """Of a conversation that goes on: what has left its window and is older. Bytes."""
        snapshot = None if key in self._ended else await self._load(key)
        if snapshot is None or snapshot.unfinished:
            return 0
        _, cuts = await self._cut(snapshot, key, before)
        self._gone.messages += sum(cut.rows for cut in cuts)
        size = sum(cut.size for cut in cuts)
        if self._dry:
            self._lighter += size
        return size

    async def _cut(
        self, snapshot: Snapshot, key: str, before: int | None
    ) -> tuple[Snapshot | None, list[_Cut]]:
        """
        :returns: the conversation afterwards, None when somebody else saved it; and what went
        """
        cuts: list[_Cut] = []
        held = {row.seq for row in snapshot.messages}
        # A summary stands in front of what it does not stand for, and was written later.
        top = min((row.seq for row in snapshot.messages if row.role != "summary"), default=1)
        ref = self._ref(key)
        start = await self._step(self._first(ref, top))
        while start is not None:
            cut = await self._step(self._exchanges(ref, start, top, held, before))
            if cut is None:
                break
            if not self._dry:
                after = shortened(snapshot, cut.upto)
                try:
                    await self._step(self._store.save(ref, after, replaces=snapshot.revision))
                except StaleSnapshot:
                    return None, cuts
                finally:
                    self._forget(key)
                snapshot = stored(after)
            cuts.append(cut)
            start = cut.upto if cut.upto < top else None
        return snapshot, cuts

    async def _first(self, ref: SessionRef, top: int) -> int | None:
        """The lowest seq below `top` that is there: what went before has left a gap."""
        low, high = 1, top
        middle = 1
        while low < high:
            found = [row async for row in self._store.archive(ref, middle + 1, 1)]
            if found:
                high = min(high, found[0].seq)
            else:
                low = middle + 1
            middle = (low + high) // 2
        return low if low < top else None

    async def _exchanges(
        self, ref: SessionRef, start: int, top: int, held: set[int], before: int | None
    ) -> _Cut | None:
        """Whole exchanges from `start` on, all of them older, as many as go at once."""
        most = ROWS
        while True:
            end = min(start + most, top)
            page = [row async for row in self._store.archive(ref, end, most)]
            rows = [row for row in reversed(page) if row.seq not in held]
            cut, all_older = _cut_in(rows, before, top if end == top else None)
            if cut or not all_older or end == top:
                return cut
            most *= 2  # one exchange is longer

    # ------------------------------------------------------------------ what could not be sent

    async def _said_before(self, key: str, snapshot: Snapshot) -> bool:
        """Whether it was said long enough ago that parts which nobody got will go; it is said now
        when it was not."""
        name, now = f"{SAID}{key}", self._clock.now()
        was = await self._store.notes.get(name)
        at = int(was) if was and was.isdigit() else None
        if at is not None and snapshot.updated_at < at <= now - GRACE:
            return True
        if at is None or not snapshot.updated_at < at <= now:
            at = now
            if not self._dry:
                await self._store.notes.put(name, b"%d" % now, was=was)
        if not self._dry:
            days = -(-(at + GRACE - now) // DAY)
            trouble("retention.undelivered", key, parts=len(snapshot.undelivered), days=days)
        return False

    # ------------------------------------------------------------------ the small print

    async def _size(self) -> int:
        return await self._step(self._store.size()) - self._lighter

    async def _listed(self, after: str) -> list[Summary]:
        return [each async for each in self._store.summaries("", after or None, PAGE)]

    async def _oldest(self, before: int, asked: set[str]) -> list[Summary]:
        """Of those whose last word is older, but for those asked already."""
        # The newest of them on top, to be left out first.
        heap: list[tuple[int, str, Summary]] = []
        after = ""
        while page := await self._step(self._listed(after)):
            for each in page:
                if each.unfinished or each.updated_at >= before or each.key in asked | self._ended:
                    continue
                item = (-each.updated_at, each.key, each)
                if len(heap) < OLDEST:
                    heappush(heap, item)
                else:
                    heappushpop(heap, item)
            after = page[-1].key
            await self._alive(after=None)
        return [each for *_, each in sorted(heap, reverse=True)]

    async def _alive(self, after: str | None) -> None:
        """Only where the note is ours: nobody else asks for it beside a dry run, or one by hand."""
        if self._note is not None:
            await self._hold(_decode(self._note).after if after is None else after)

    async def _load(self, key: str, each: Summary | None = None) -> Snapshot | None:
        try:
            return await self._step(self._store.load(self._ref(key)))
        except (SnapshotUnreadable, SnapshotTooNew):
            # It stays: another version may read it, or a person.
            if each is not None:
                self._gone.unreadable += 1
                self._see("unreadable", each)
            return None

    async def _step(self, work: Awaitable[T]) -> T:
        began = self._clock.monotonic()
        done = await work
        took = self._clock.monotonic() - began
        self._gone.longest = max(self._gone.longest, took)
        if not self._dry:
            await self._clock.sleep(took * PAUSE)
        return done


def shortened(snapshot: Snapshot, upto: int) -> Snapshot:
    """The same without the rows below this number, as the next save has it. Nothing was said, so
    its time stays; spans run on over what is gone, for a number is never used again."""
    return replace(snapshot, revision=snapshot.revision + 1, erase=((1, upto - 1),))


def _cut_in(
    rows: Sequence[Message], before: int | None, end: int | None
) -> tuple[_Cut | None, bool]:
    """The last place where these rows may be cut, and whether all of them may go.

    :param before: rows from this time on stay, with all of their exchange
    :param end: the seq behind the last row, when an exchange ends there for sure
    """
    found: _Cut | None = None
    count = size = blobs = 0
    for index, row in enumerate(rows):
        if index and history.begins_after(rows[index - 1], row):
            found = _Cut(row.seq, count, size)
            if blobs >= BLOBS:
                return found, False
        if before is not None and row.at >= before:
            return found, False
        count += 1
        size += len(bytes(row.blocks))
        blobs += len(named_in(bytes(row.blocks)))
    if count and end is not None:
        found = _Cut(end, count, size)
    return found, True
