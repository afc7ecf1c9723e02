"""MemoryStore: conversations in a dictionary, gone with the process.

For tests, for trying things out, and for agents that need not remember. Not a cache, and not for
several processes. Nothing here ever waits, so each method is one step that nobody can interrupt.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

from msgspec.structs import replace

from core import blobs, changes
from core.clock import Clock, SystemClock
from core.errors import StaleSnapshot
from core.keys import check_key
from core.messages import Message
from core.snapshot import Snapshot, encode, stored
from core.store import Blob, SessionRef, Summary
from core.usage import By, Spent, Sum, add_up, newer


class _Kept(NamedTuple):
    """A conversation: its value, and by seq all rows of it, those behind the window included."""

    snapshot: Snapshot
    rows: dict[int, Message]

    def has_spoken(self, sender: str) -> bool:
        inbounds = self.snapshot.inbox + self.snapshot.unanswered
        senders = [
            *(each.sender for each in inbounds),
            *(one.sender for one in self.snapshot.heard),
        ]
        return any(each.id == sender for each in senders) or any(
            sender == row.sender or sender in row.senders for row in self.rows.values()
        )

    def size(self) -> int:
        bare = replace(self.snapshot, messages=(), turn=None)
        return len(encode(bare)) + sum(len(bytes(row.blocks)) for row in self.rows.values())

    def history(self) -> list[Message]:
        """In order of seq."""
        return sorted(
            (
                row
                for seq, row in self.rows.items()
                if any(first <= seq <= last for first, last in self.snapshot.spans)
            ),
            key=lambda row: row.seq,
        )


_NOTHING: Final = _Kept(Snapshot(revision=0, epoch="", created_at=0, updated_at=0), {})


class Table:
    """What a MemoryStore stores into."""

    def __init__(self) -> None:
        self.sessions: dict[str, _Kept] = {}
        self.unfinished: set[str] = set()
        # The key, what it held, and when it was set aside, in ms.
        self.aside: list[tuple[str, _Kept, int]] = []
        self.notes: dict[str, bytes] = {}
        # By execution and call, with the key of the conversation.
        self.usage: dict[tuple[str, int], tuple[str, Spent]] = {}
        self.blobs: dict[str, Blob] = {}
        # When each conversation has put each of its blobs, in ms.
        self.uses: dict[str, dict[str, int]] = {}

    def size(self, key: str, kept: _Kept) -> int:
        """Of a conversation and the blobs that it alone uses."""
        alone = [
            id
            for id in self.uses.get(key, {})
            if not any(id in ids for other, ids in self.uses.items() if other != key)
        ]
        return kept.size() + sum(len(self.blobs[id].data) for id in alone)

    def end_uses(self, key: str, ids: set[str]) -> None:
        uses = self.uses.get(key, {})
        for id in ids:
            del uses[id]
            if not any(id in others for others in self.uses.values()):
                del self.blobs[id]
        if not uses:
            self.uses.pop(key, None)


_SHARED = Table()
_CLOCK: Final = SystemClock()


class MemoryStore:
    """
    ::

        store = MemoryStore()           a table of its own
        store = MemoryStore.shared()    the one table of this process

    `Session` takes the shared one when it is given the class itself, ``store=MemoryStore``: so what
    one session stored, the next one finds.
    """

    def __init__(self, table: Table | None = None, *, clock: Clock = _CLOCK) -> None:
        self._table = table or Table()
        self._clock = clock
        self.notes = MemoryNotes(self._table.notes)
        self.usage = MemoryUsage(self._table.usage)
        self.blobs = MemoryBlobs(self._table, clock)

    @classmethod
    def shared(cls) -> Self:
        """A store on the one table of this process."""
        return cls(_SHARED)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """What is stored stays, for as long as this object or the process lives."""

    async def load(self, ref: SessionRef) -> Snapshot | None:
        kept = self._table.sessions.get(ref.key)
        return kept.snapshot if kept else None

    async def revision(self, ref: SessionRef) -> int | None:
        kept = self._table.sessions.get(ref.key)
        return kept.snapshot.revision if kept else None

    async def save(self, ref: SessionRef, snapshot: Snapshot, *, replaces: int | None) -> None:
        kept = self._table.sessions.get(ref.key)
        revision = kept.snapshot.revision if kept else None
        if revision != replaces:
            raise StaleSnapshot(f"{ref.key}: revision {revision} is stored, not {replaces}")
        if kept and (snapshot.erase or snapshot.rewritten) and ref.key in self._table.uses:
            self._end_uses(ref.key, kept, snapshot)
        self._put(ref.key, snapshot, kept.rows if kept else {})

    async def clear(self, ref: SessionRef) -> None:
        self._take(ref.key)
        self._table.end_uses(ref.key, set(self._table.uses.get(ref.key, ())))

    async def unfinished(self) -> AsyncIterator[str]:
        for key in sorted(self._table.unfinished):
            yield key

    async def summaries(
        self, prefix: str = "", after: str | None = None, limit: int = 100
    ) -> AsyncIterator[Summary]:
        keys = (
            key for key in self._table.sessions if key.startswith(prefix) and key > (after or "")
        )
        for key in heapq.nsmallest(limit, keys):
            if kept := self._table.sessions.get(key):
                snapshot = kept.snapshot
                yield Summary(key, len(kept.history()), snapshot.unfinished, snapshot.updated_at)

    async def archive(
        self, ref: SessionRef, before: int | None = None, limit: int = 100
    ) -> AsyncIterator[Message]:
        kept = self._table.sessions.get(ref.key)
        history = kept.history() if kept else []
        found = [row for row in reversed(history) if before is None or row.seq < before]
        for row in found[:limit]:
            yield row

    async def move(self, old: str, new: str) -> None:
        if old == new:
            return
        inside = f"{old}/"
        # The longest first, so that none lands on one still to move.
        keys = {
            key
            for key in (*self._table.sessions, *self._table.uses)
            if key == old or key.startswith(inside)
        }
        targets = {key: check_key(new + key[len(old) :]) for key in sorted(keys, reverse=True)}
        for key, target in targets.items():
            if key in self._table.sessions:
                self._move_one(key, target)
            # A message's image may be there before its conversation is.
            if uses := self._table.uses.pop(key, None):
                self._table.uses[target] = self._table.uses.get(target, {}) | uses
        self.usage.move(old, new)

    async def spoken_by(self, sender: str) -> AsyncIterator[str]:
        for key in sorted(self._table.sessions):
            if (kept := self._table.sessions.get(key)) and kept.has_spoken(sender):
                yield key

    async def remove(self, ref: SessionRef, *, replaces: int) -> None:
        kept = self._table.sessions.get(ref.key)
        revision = kept.snapshot.revision if kept else None
        if revision != replaces:
            raise StaleSnapshot(f"{ref.key}: revision {revision} is stored, not {replaces}")
        await self.clear(ref)

    async def size(self, key: str | None = None) -> int:
        table = self._table
        if key is not None:
            kept = table.sessions.get(key)
            return table.size(key, kept) if kept else 0
        blobs_size = sum(len(blob.data) for blob in table.blobs.values())
        aside = sum(kept.size() for _, kept, _ in table.aside)
        return blobs_size + aside + sum(kept.size() for kept in table.sessions.values())

    async def clear_aside(
        self, *, key: str | None = None, sender: str | None = None, before: int | None = None
    ) -> int:
        going = [
            (number, was_at)
            for number, (was_at, kept, at) in enumerate(self._table.aside, 1)
            if was_at
            and (
                was_at == key
                or (sender is not None and kept.has_spoken(sender))
                or (before is not None and at < before)
            )
        ]
        for number, was_at in going:
            name = f"{was_at}\0{number}"
            self._table.end_uses(name, set(self._table.uses.get(name, {})))
            # The others keep their numbers.
            self._table.aside[number - 1] = ("", _NOTHING, 0)
        return len(going)

    async def scrub(self) -> None:
        """What is deleted from a dictionary is nowhere any more."""

    async def set_aside(self, ref: SessionRef) -> None:
        if kept := self._take(ref.key):
            self._table.aside.append((ref.key, kept, self._clock.now()))
            if uses := self._table.uses.get(ref.key):
                # Under a name that is no key: what was set aside keeps its own.
                self._table.uses[f"{ref.key}\0{len(self._table.aside)}"] = dict(uses)

    def _end_uses(self, key: str, kept: _Kept, snapshot: Snapshot) -> None:
        """Of the blobs that only what is erased has named."""
        going, named = blobs.named_by(kept.snapshot), blobs.named_by(snapshot)
        replaced = {row.seq for row in snapshot.rewritten}
        for row in snapshot.rewritten:
            named.update(blobs.named_in(bytes(row.blocks)))
        for seq, row in kept.rows.items():
            erased = seq in replaced or any(first <= seq <= last for first, last in snapshot.erase)
            (going if erased else named).update(blobs.named_in(bytes(row.blocks)))
        uses = self._table.uses[key]
        self._table.end_uses(key, blobs.unused(uses, going, named, snapshot.updated_at))

    def _move_one(self, old_key: str, new_key: str) -> None:
        old, new = self._take(old_key), self._take(new_key)
        assert old is not None
        there = None
        if new:
            there, offset = new.snapshot, old.snapshot.next_seq - 1
            old.rows.update(
                (seq + offset, replace(row, seq=seq + offset)) for seq, row in new.rows.items()
            )
        self._put(new_key, changes.move(old.snapshot, there, new_key), old.rows)

    def _put(self, key: str, snapshot: Snapshot, rows: dict[int, Message]) -> None:
        for first, last in snapshot.erase:
            for seq in [seq for seq in rows if first <= seq <= last]:
                del rows[seq]
        kept = self._table.sessions.get(key)
        # What the value holds is never erased, whatever ranges it names.
        known = kept.snapshot.next_seq if kept and not snapshot.erase else 0
        new = snapshot.since(known)
        rows.update((row.seq, row) for row in (*snapshot.rewritten, *new))
        self._table.sessions[key] = _Kept(stored(snapshot), rows)
        self.usage.settle(key, snapshot.spent)
        if snapshot.unfinished:
            self._table.unfinished.add(key)
        else:
            self._table.unfinished.discard(key)

    def _take(self, key: str) -> _Kept | None:
        self._table.unfinished.discard(key)
        return self._table.sessions.pop(key, None)


class MemoryNotes:
    """Small things that are no session."""

    def __init__(self, notes: dict[str, bytes]) -> None:
        self._notes = notes

    async def get(self, name: str) -> bytes | None:
        return self._notes.get(name)

    async def put(self, name: str, value: bytes | None, *, was: bytes | None) -> bool:
        if self._notes.get(name) != was:
            return False
        if value is None:
            self._notes.pop(name, None)
        else:
            self._notes[name] = value
        return True

    async def names(self) -> AsyncIterator[str]:
        for name in sorted(self._notes):
            yield name


class MemoryBlobs:
    """Bytes beside the histories."""

    def __init__(self, table: Table, clock: Clock) -> None:
        self._table = table
        self._clock = clock

    async def put(self, key: str, data: bytes, media_type: str) -> str:
        check_key(key)
        id = blobs.id_of(data)
        self._table.blobs.setdefault(id, Blob(media_type, data))
        self._table.uses.setdefault(key, {})[id] = self._clock.now()
        return id

    async def get(self, id: str) -> Blob | None:
        return self._table.blobs.get(id)

    async def sweep(self, before: int) -> int:
        ended = 0
        # What was set aside has a NUL in its name.
        gone = [key for key in self._table.uses if key not in self._table.sessions]
        for key in [key for key in gone if "\0" not in key]:
            ids = {id for id, at in self._table.uses[key].items() if at < before}
            self._table.end_uses(key, ids)
            ended += len(ids)
        return ended


class MemoryUsage:
    """What model calls used. All of it, for as long as the table lives."""

    def __init__(self, rows: dict[tuple[str, int], tuple[str, Spent]]) -> None:
        self._rows = rows

    async def sums(
        self,
        by: Sequence[By] = (),
        *,
        since: int = 0,
        until: int | None = None,
        key: str | None = None,
        sender: str | None = None,
    ) -> list[Sum]:
        return add_up(
            (
                (of, row)
                for of, row in self._rows.values()
                if since <= row.at
                and (until is None or row.at < until)
                and key in (None, of)
                and sender in (None, row.sender)
            ),
            by,
        )

    async def forget(self, sender: str) -> int:
        rows = {name: row for name, (_, row) in self._rows.items() if row.sender == sender}
        self._rows.update((name, ("", replace(row, sender=None))) for name, row in rows.items())
        return len(rows)

    async def erase(self, before: int) -> int:
        going = [name for name, (_, row) in self._rows.items() if row.at < before]
        for name in going:
            del self._rows[name]
        return len(going)

    async def rows(self) -> AsyncIterator[tuple[str, Spent]]:
        for row in list(self._rows.values()):
            yield row

    async def add(self, rows: Sequence[tuple[str, Spent]]) -> None:
        for key, row in rows:
            self._rows.setdefault((row.execution, row.call), (key, row))

    def settle(self, key: str, spent: Sequence[Spent]) -> None:
        """What a save brings."""
        for row in spent:
            name = (row.execution, row.call)
            there, old = self._rows.get(name, (key, None))
            self._rows[name] = (there, newer(old, row))

    def move(self, old: str, new: str) -> None:
        for name, (key, row) in self._rows.items():
            if key == old or key.startswith(f"{old}/"):
                self._rows[name] = (new + key[len(old) :], row)
