"""RedisStore: conversations on a Redis server (or Valkey), for one process or for many.

Not a cache, and not a queue. A save is one script, and all or nothing; what it sends and what a
load reads does not depend on how long the conversation is.

::

    async with RedisStore("redis://localhost/0") as store:
        snapshot = await store.load(SessionRef("telegram-chat:123"))

What a save that has returned promises is up to the server's settings, and is said at the start and
by `chinwag check`:

* ``appendonly yes`` and ``appendfsync always``: it survives a power cut, as with our other stores.
* ``appendfsync everysec``, Redis' own default: a power cut, or a crash of the server while its disk
  is slow (it then holds back what it would write), loses what was said in the last two seconds.
* ``appendonly no``: a crash of the server loses what was said since its last snapshot.

A replica that takes over has what had reached it by then. That something is missing is noticed by
whoever was running before and after: what is stored counts its saves, and has a name; a server that
comes back empty is an error, not an empty history. Who starts anew on an empty server cannot know.

`scripts.py` has the keys; `rows.py`, `save.py` and `load.py` how a snapshot lies in them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Final, Self

import msgspec

from core import events
from core.clock import Clock, SystemClock
from core.errors import StaleSnapshot, StoreError
from core.messages import Message
from core.snapshot import Snapshot
from core.store import SessionRef, Summary
from stores.redis import files, load, lock, move, save, scripts, size
from stores.redis.blobs import RedisBlobs
from stores.redis.place import place_of
from stores.redis.save import Known
from stores.redis.server import Server
from stores.redis.usage import RedisUsage

PAGE: Final = 100  # rows that a listing reads at once
CONNECTIONS: Final = 8
KNOWN: Final = 10_000  # conversations of which a save need not ask how much is stored

_CLOCK: Final = SystemClock()
_encode: Final = msgspec.json.Encoder().encode


class RedisStore:
    """
    :param url: see `place.place_of`
    :param read_only: writes nothing; something must be stored there
    :param shared: other processes may write as well; if not, a second one is refused
    """

    def __init__(
        self,
        url: str,
        *,
        read_only: bool = False,
        shared: bool = False,
        connections: int = CONNECTIONS,
        clock: Clock = _CLOCK,
    ) -> None:
        """
        :raises ConfigError: the URL is none
        """
        self._server = Server(place_of(url), connections)
        self.where = self._server.where
        self.notes = RedisNotes(self._server)
        self.usage = RedisUsage(self._server)
        self.blobs = RedisBlobs(self._server, clock)
        self._read_only = read_only
        self._shared = shared
        self._clock = clock
        self._closing = AsyncExitStack()
        self._known: OrderedDict[str, Known] = OrderedDict()

    async def __aenter__(self) -> Self:
        """
        :raises ConfigError: the server must not be used, for it deletes what it likes; or a cluster
        :raises StoreInUse: another process writes to it
        :raises StoreCorrupt: of a newer chinwag; untouched
        :raises StoreUnavailable: it cannot be reached
        """
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._server.close)
            new = await self._server.open(read_only=self._read_only)
            if not (self._read_only or self._shared):
                await lock.take(self._server, self._clock)
                stack.push_async_callback(_ended, asyncio.create_task(self._keep_the_lock()))
            if not self._read_only:
                for weakness in await self._server.weaknesses():
                    events.trouble("store.weak", where=self.where, why=weakness)
            if new:
                # Also what is left of one that has lost everything: nobody else can tell.
                events.trouble("store.new", where=self.where)
            self._closing = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._known.clear()
        await self._closing.aclose()

    async def _keep_the_lock(self) -> None:
        while True:
            await self._clock.sleep(lock.TERM_SECONDS / 3)
            # That it is lost, or the server is, is said by whoever wants to write.
            with suppress(StoreError):
                await lock.renew(self._server)

    # ------------------------------------------------------------------ what a Session needs

    async def load(self, ref: SessionRef) -> Snapshot | None:
        loaded = await load.load(self._server, ref.key)
        if loaded is None:
            return None
        self._remember(ref.key, save.known_from(loaded.stored, loaded.snapshot))
        return loaded.snapshot

    async def revision(self, ref: SessionRef) -> int | None:
        return await load.revision(self._server, ref.key)

    async def save(self, ref: SessionRef, snapshot: Snapshot, *, replaces: int | None) -> None:
        known = self._known.pop(ref.key, None)
        if known is not None and known.revision != replaces:
            known = None
        known = await save.save(self._server, ref.key, snapshot, replaces, known)
        self._remember(ref.key, known)

    async def clear(self, ref: SessionRef) -> None:
        await self._server.run(scripts.CLEAR, key=ref.key)

    # ------------------------------------------------------------------ what a bot needs besides

    async def unfinished(self) -> AsyncIterator[str]:
        start = b"-"
        while True:
            (page,) = await self._server.run(scripts.UNFINISHED, start=start, limit=PAGE)
            for key in page:
                yield key.decode()
            if len(page) < PAGE:
                return
            start = b"(" + page[-1]

    async def summaries(
        self, prefix: str = "", after: str | None = None, limit: int = 100
    ) -> AsyncIterator[Summary]:
        first = prefix.encode()
        start = b"[" + first if first else b"-"
        if after is not None and after.encode() >= first:
            start = b"(" + after.encode()
        # No text has such a byte.
        stop = b"(" + first + b"\xff" if first else b"+"
        while limit > 0:
            size = min(limit, PAGE)
            (page,) = await self._server.run(scripts.SUMMARIES, start=start, stop=stop, limit=size)
            for key, messages, unfinished, updated_at in page:
                # What is damaged is listed all the same.
                at = int(updated_at) if updated_at.isdigit() else 0
                yield Summary(key.decode(), messages, unfinished == b"1", at)
            if len(page) < size:
                return
            limit -= size
            start = b"(" + page[-1][0]

    async def archive(
        self, ref: SessionRef, before: int | None = None, limit: int = 100
    ) -> AsyncIterator[Message]:
        while limit > 0:
            size = min(limit, PAGE)
            page = await load.archive(self._server, ref.key, before, size)
            for message in page:
                yield message
            if len(page) < size:
                return
            limit -= size
            before = page[-1].seq

    async def move(self, old: str, new: str) -> None:
        await move.move(self._server, old, new, self._clock.now())

    async def set_aside(self, ref: SessionRef) -> None:
        await self._server.run(scripts.SET_ASIDE, key=ref.key, now=str(self._clock.now()))

    async def spoken_by(self, sender: str) -> AsyncIterator[str]:
        start = b"-"
        while True:
            last, found = await self._server.run(
                scripts.SPOKEN_BY, start=start, name=_encode(sender)
            )
            for key in found:
                yield key.decode()
            if last is None:
                return
            start = b"(" + last

    async def remove(self, ref: SessionRef, *, replaces: int) -> None:
        try:
            await self._server.run(scripts.REMOVE, key=ref.key, replaces=str(replaces))
        except StaleSnapshot:
            why = f"{ref.key}: what is stored is not revision {replaces}"
            raise StaleSnapshot(why) from None

    async def size(self, key: str | None = None) -> int:
        """Of all it looks at every row: once in a while."""
        return await size.of(self._server, key)

    async def clear_aside(
        self, *, key: str | None = None, sender: str | None = None, before: int | None = None
    ) -> int:
        count = 0
        (ids,) = await self._server.run(scripts.ASIDE)
        name = b"" if sender is None else _encode(sender)
        for id in ids:
            (gone,) = await self._server.run(
                scripts.CLEAR_ASIDE, id=id, key=key or "", name=name, before=max(before or 0, 0)
            )
            count += gone
        return count

    async def scrub(self) -> None:
        """Has the server write its files anew. Its replicas do that by themselves, at their time;
        backups are for whoever runs it."""
        await files.rewrite(self._server, self._clock)

    async def check(self) -> list[str]:
        """What the server has failed to do. Empty: nothing."""
        return await self._server.failures()

    async def weaknesses(self) -> list[str]:
        """What a save that has returned does not survive, as the server is set up. Empty: it
        survives whatever it does elsewhere."""
        return await self._server.weaknesses()

    def _remember(self, key: str, known: Known) -> None:
        self._known[key] = known
        self._known.move_to_end(key)
        if len(self._known) > KNOWN:
            self._known.popitem(last=False)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class RedisNotes:
    """Small things that are no session."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def get(self, name: str) -> bytes | None:
        (value,) = await self._server.run(scripts.NOTE, name=name)
        return None if value is None else bytes(value)

    async def put(self, name: str, value: bytes | None, *, was: bytes | None) -> bool:
        if value == was:
            return await self.get(name) == was
        # Lua has no other word for what is not there.
        given = [False if each is None else each for each in (value, was)]
        (changed,) = await self._server.run(
            scripts.PUT_NOTE, name=name, value=given[0], was=given[1]
        )
        return bool(changed)

    async def names(self) -> AsyncIterator[str]:
        start = b"-"
        while True:
            (page,) = await self._server.run(scripts.NOTE_NAMES, start=start, limit=PAGE)
            for name in page:
                yield name.decode()
            if len(page) < PAGE:
                return
            start = b"(" + page[-1]
