"""FaultyStore: a BotStore around another one whose calls fail as told, before or after they did it.

It stores nothing itself and never waits for real: a call takes a few rounds of the event loop, so
that others get in between. What it does is done by a task of its own, as a database's thread would
do it: a caller that is cancelled meanwhile does not undo it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from enum import Enum
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from core.errors import SnapshotUnreadable, StoreCorrupt, StoreUnavailable
from core.messages import Message
from core.snapshot import Snapshot
from core.store import (
    Blob,
    Blobs,
    BotStore,
    Notes,
    SessionRef,
    Summary,
    TellsRevision,
    UsageRows,
)
from core.usage import By, Spent, Sum

T = TypeVar("T")


class Kind(Enum):
    """How a call fails."""

    FULL = "full"  # busy, full, I/O: one word for the core
    CANCELLED = "cancelled"
    CORRUPT = "corrupt"
    UNREADABLE = "unreadable"


class Moment(Enum):
    """When a call fails: before or after it took effect, or so that it takes effect later."""

    BEFORE = "before"
    AFTER = "after"
    LATER = "later"


class Fault(NamedTuple):
    kind: Kind
    moment: Moment = Moment.BEFORE


class Call(NamedTuple):
    """What a plan is asked about.

    :param number: counted from 1
    :param name: ``load``, ``save``, ``notes.put`` ...
    :param about: a key, or a note's name
    """

    number: int
    name: str
    about: str

    def can(self, kind: Kind) -> bool:
        """One conversation is unreadable only where it is read."""
        return kind is not Kind.UNREADABLE or self.name == "load"


Plan = Callable[[Call], Fault | None]


class Dead(asyncio.CancelledError):
    """Asked by a process that was killed: nothing may go on after it."""


class FaultyStore:
    """
    :param plan: asked once a call which fault it meets, if any
    :param rounds: how many rounds of the event loop a call waits, before and after its effect
    :param struck: told of each fault when it happens
    :param damaged: keys of what cannot be read, by anybody, until it is set aside or cleared: as
        the disk, it outlives this
    :param aside: told of each conversation in the moment in which it is set aside
    """

    def __init__(
        self,
        store: BotStore,
        plan: Plan = lambda call: None,
        *,
        rounds: Callable[[], int] = lambda: 1,
        struck: Callable[[Call, Fault], None] = lambda call, fault: None,
        damaged: set[str] | None = None,
        aside: Callable[[str], None] = lambda key: None,
    ) -> None:
        self.plan = plan
        self.calls = 0
        self.dead = False
        self._store = store
        self._rounds = rounds
        self._struck = struck
        self._damaged = set[str]() if damaged is None else damaged
        self._aside = aside

    @property
    def notes(self) -> Notes:
        return _FaultyNotes(self)

    @property
    def usage(self) -> UsageRows:
        return _FaultyUsage(self)

    @property
    def blobs(self) -> Blobs:
        return _FaultyBlobs(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The store inside is whoever made it's to close."""

    async def load(self, ref: SessionRef) -> Snapshot | None:
        async def read() -> Snapshot | None:
            if ref.key in self._damaged:
                raise SnapshotUnreadable("damaged")
            return await self._store.load(ref)

        return await self._call("load", ref.key, read)

    async def save(self, ref: SessionRef, snapshot: Snapshot, *, replaces: int | None) -> None:
        await self._call(
            "save", ref.key, lambda: self._store.save(ref, snapshot, replaces=replaces)
        )

    async def revision(self, ref: SessionRef) -> int | None:
        store = self._store
        assert isinstance(store, TellsRevision)
        return await self._call("revision", ref.key, lambda: store.revision(ref))

    async def clear(self, ref: SessionRef) -> None:
        async def clear() -> None:
            await self._store.clear(ref)
            self._damaged.discard(ref.key)

        await self._call("clear", ref.key, clear)

    async def move(self, old: str, new: str) -> None:
        async def move() -> None:
            await self._store.move(old, new)
            if old in self._damaged:
                self._damaged.remove(old)
                self._damaged.add(new)

        await self._call("move", old, move)

    async def remove(self, ref: SessionRef, *, replaces: int) -> None:
        await self._call("remove", ref.key, lambda: self._store.remove(ref, replaces=replaces))

    async def size(self, key: str | None = None) -> int:
        return await self._call("size", key or "", lambda: self._store.size(key))

    async def clear_aside(
        self, *, key: str | None = None, sender: str | None = None, before: int | None = None
    ) -> int:
        return await self._call(
            "clear_aside",
            key or "",
            lambda: self._store.clear_aside(key=key, sender=sender, before=before),
        )

    async def scrub(self) -> None:
        await self._call("scrub", "", self._store.scrub)

    async def spoken_by(self, sender: str) -> AsyncIterator[str]:
        async def listed() -> list[str]:
            return [key async for key in self._store.spoken_by(sender)]

        for key in await self._call("spoken_by", "", listed):
            yield key

    async def set_aside(self, ref: SessionRef) -> None:
        async def set_aside() -> None:
            self._aside(ref.key)
            await self._store.set_aside(ref)
            self._damaged.discard(ref.key)

        await self._call("set_aside", ref.key, set_aside)

    async def unfinished(self) -> AsyncIterator[str]:
        async def listed() -> list[str]:
            return [key async for key in self._store.unfinished()]

        for key in await self._call("unfinished", "", listed):
            yield key

    async def summaries(
        self, prefix: str = "", after: str | None = None, limit: int = 100
    ) -> AsyncIterator[Summary]:
        async def listed() -> list[Summary]:
            return [each async for each in self._store.summaries(prefix, after, limit)]

        for summary in await self._call("summaries", prefix, listed):
            yield summary

    async def archive(
        self, ref: SessionRef, before: int | None = None, limit: int = 100
    ) -> AsyncIterator[Message]:
        async def listed() -> list[Message]:
            return [each async for each in self._store.archive(ref, before, limit)]

        for message in await self._call("archive", ref.key, listed):
            yield message

    async def _call(self, name: str, about: str, effect: Callable[[], Awaitable[T]]) -> T:
        self.calls += 1
        call = Call(self.calls, name, about)
        fault = None if self.dead else self.plan(call)
        if fault is not None and fault.kind is Kind.UNREADABLE:
            if about in self._damaged or await effect() is None:
                fault = None  # it is already, or there is nothing that could be
            else:
                self._damaged.add(about)
        if fault is not None and fault.moment is Moment.BEFORE:
            await self._pause()
            await self._fail(call, fault)
        late = fault is not None and fault.moment is Moment.LATER
        done = asyncio.ensure_future(self._take_effect(effect, 20 if late else self._rounds()))
        done.add_done_callback(_heard)
        if late and fault is not None:
            await self._fail(call, fault)
        outcome = await asyncio.shield(done)
        if fault is not None:
            await self._fail(call, fault)
        await self._pause()
        return outcome

    async def _take_effect(self, effect: Callable[[], Awaitable[T]], rounds: int) -> T:
        for _ in range(rounds):
            await asyncio.sleep(0)
        if self.dead:
            raise Dead
        return await effect()

    async def _pause(self) -> None:
        for _ in range(self._rounds()):
            await asyncio.sleep(0)
        if self.dead:
            raise Dead

    async def _fail(self, call: Call, fault: Fault) -> None:
        self._struck(call, fault)
        if fault.kind is Kind.CANCELLED:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        raise _ERRORS[fault.kind](f"fault in call {call.number}")


_ERRORS = {
    Kind.FULL: StoreUnavailable,
    Kind.CANCELLED: AssertionError,  # the task was cancelled a line above
    Kind.CORRUPT: StoreCorrupt,
    Kind.UNREADABLE: SnapshotUnreadable,
}


class _FaultyNotes:
    def __init__(self, store: FaultyStore) -> None:
        self._outer = store
        self._notes = store._store.notes

    async def get(self, name: str) -> bytes | None:
        return await self._outer._call("notes.get", name, lambda: self._notes.get(name))

    async def put(self, name: str, value: bytes | None, *, was: bytes | None) -> bool:
        return await self._outer._call(
            "notes.put", name, lambda: self._notes.put(name, value, was=was)
        )

    def names(self) -> AsyncIterator[str]:
        return self._notes.names()


class _FaultyBlobs:
    def __init__(self, store: FaultyStore) -> None:
        self._outer = store
        self._blobs = store._store.blobs

    async def put(self, key: str, data: bytes, media_type: str) -> str:
        return await self._outer._call(
            "blobs.put", key, lambda: self._blobs.put(key, data, media_type)
        )

    async def get(self, id: str) -> Blob | None:
        return await self._outer._call("blobs.get", id, lambda: self._blobs.get(id))

    async def sweep(self, before: int) -> int:
        return await self._outer._call("blobs.sweep", "", lambda: self._blobs.sweep(before))


class _FaultyUsage:
    def __init__(self, store: FaultyStore) -> None:
        self._outer = store
        self._usage = store._store.usage

    async def sums(
        self,
        by: Sequence[By] = (),
        *,
        since: int = 0,
        until: int | None = None,
        key: str | None = None,
        sender: str | None = None,
    ) -> list[Sum]:
        return await self._outer._call(
            "usage.sums",
            key or "",
            lambda: self._usage.sums(by, since=since, until=until, key=key, sender=sender),
        )

    async def forget(self, sender: str) -> int:
        return await self._outer._call("usage.forget", sender, lambda: self._usage.forget(sender))

    async def erase(self, before: int) -> int:
        return await self._outer._call("usage.erase", "", lambda: self._usage.erase(before))

    def rows(self) -> AsyncIterator[tuple[str, Spent]]:
        return self._usage.rows()

    async def add(self, rows: Sequence[tuple[str, Spent]]) -> None:
        await self._outer._call("usage.add", "", lambda: self._usage.add(rows))


def _heard(done: asyncio.Future[T]) -> None:
    """Whoever asked may be gone; asyncio need not complain that nobody heard the error."""
    if not done.cancelled():
        done.exception()
