"""The lease: one of several holds it, and whoever lost it knows before anybody else has it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from core.errors import StoreUnavailable
from core.lease import Lease
from tests.core.fakes import FakeClock, MemoryNotes, settle

TERM = 12.0


class Polling:
    """Something that only one may do.

    :ivar now: who does it
    :ivar never_two: whether it was never more than one
    """

    def __init__(self) -> None:
        self.now: list[str] = []
        self.never_two = True

    def by(self, who: str) -> Callable[[], Awaitable[None]]:
        async def poll() -> None:
            self.now.append(who)
            self.never_two = self.never_two and len(self.now) == 1
            try:
                await asyncio.Event().wait()
            finally:
                self.now.remove(who)

        return poll


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(manual=True)


@pytest.fixture
def notes() -> MemoryNotes:
    return MemoryNotes()


@pytest.fixture
def polling() -> Polling:
    return Polling()


@asynccontextmanager
async def holding(lease: Lease, work: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    task = asyncio.create_task(lease.hold(work))
    await settle()
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def passes(clock: FakeClock, seconds: float) -> None:
    for _ in range(round(seconds)):
        clock.advance(1.0)
        await settle()


async def test_one_has_it_and_the_other_stands_by(
    clock: FakeClock, notes: MemoryNotes, polling: Polling
) -> None:
    one, two = (Lease(notes, clock, "lease.x", who, term=TERM) for who in "ab")
    async with holding(one, polling.by("a")), holding(two, polling.by("b")):
        await passes(clock, 100)
        assert polling.now == ["a"] and polling.never_two
        assert one.held and not two.held
        one.check()
        with pytest.raises(StoreUnavailable, match="another process"):
            two.check()


async def test_who_is_stopped_gives_it_back_at_once(
    clock: FakeClock, notes: MemoryNotes, polling: Polling
) -> None:
    one, two = (Lease(notes, clock, "lease.x", who, term=TERM) for who in "ab")
    async with holding(one, polling.by("a")):
        assert polling.now == ["a"]
    async with holding(two, polling.by("b")):
        assert polling.now == ["b"]


async def test_a_store_that_does_not_answer_keeps_nobody_from_ending(
    clock: FakeClock, notes: MemoryNotes, polling: Polling, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Lease(notes, clock, "lease.x", "a", term=0.4)
    holds = asyncio.create_task(one.hold(polling.by("a")))
    await settle()
    assert one.held

    async def never(name: str) -> bytes | None:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(notes, "get", never)
    holds.cancel()
    async with asyncio.timeout(5):
        await asyncio.gather(holds, return_exceptions=True)
    assert holds.cancelled() and polling.now == []


async def test_of_a_dead_one_it_is_taken_after_a_term(
    clock: FakeClock, notes: MemoryNotes, polling: Polling
) -> None:
    dead = Lease(notes, clock, "lease.x", "dead", term=TERM)
    assert await dead._taken()
    async with holding(Lease(notes, clock, "lease.x", "b", term=TERM), polling.by("b")):
        await passes(clock, TERM - 1)
        assert polling.now == []
        await passes(clock, TERM / 4 + 1)
        assert polling.now == ["b"]


async def test_who_slept_for_long_does_nothing_more_when_they_wake(
    clock: FakeClock, notes: MemoryNotes, polling: Polling
) -> None:
    """A process that was stopped: time has passed, and none of its own code has run."""
    asleep = Lease(notes, clock, "lease.x", "asleep", term=TERM)
    assert await asleep._taken() and asleep.held
    async with holding(Lease(notes, clock, "lease.x", "b", term=TERM), polling.by("b")):
        await passes(clock, 60)
        assert polling.now == ["b"]
        with pytest.raises(StoreUnavailable):
            asleep.check()
        assert not await asleep._taken()


async def test_a_store_that_does_not_answer_ends_it_before_another_may_have_it(
    clock: FakeClock, notes: MemoryNotes, polling: Polling, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Lease(notes, clock, "lease.x", "a", term=TERM)

    async def broken(*_: object, **__: object) -> bool:
        raise StoreUnavailable("away")

    async with holding(lease, polling.by("a")):
        with monkeypatch.context() as patch:
            patch.setattr(notes, "put", broken)
            await passes(clock, TERM - 2)
            assert polling.now == [] and not lease.held
        await passes(clock, TERM)
        assert polling.now == ["a"]


async def test_one_hiccup_of_the_store_is_nothing(
    clock: FakeClock, notes: MemoryNotes, polling: Polling, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, failed = notes.put, 0

    async def sometimes(name: str, value: bytes | None, *, was: bytes | None) -> bool:
        nonlocal failed
        failed += 1
        if failed % 2:
            raise StoreUnavailable("busy")
        return await put(name, value, was=was)

    async with holding(Lease(notes, clock, "lease.x", "a", term=TERM), polling.by("a")):
        monkeypatch.setattr(notes, "put", sometimes)
        await passes(clock, 100)
        assert polling.now == ["a"] and polling.never_two


async def test_what_the_work_raises_is_the_end(clock: FakeClock, notes: MemoryNotes) -> None:
    async def refused() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await Lease(notes, clock, "lease.x", "a", term=TERM).hold(refused)
    assert b'"holder":""' in notes.kept["lease.x"]


async def test_a_note_that_nobody_can_read_is_nobodys(
    clock: FakeClock, notes: MemoryNotes, polling: Polling
) -> None:
    notes.kept["lease.x"] = b"\xff"
    async with holding(Lease(notes, clock, "lease.x", "a", term=TERM), polling.by("a")):
        assert polling.now == ["a"]


@pytest.mark.parametrize("holders", [2, 5])
async def test_never_two_whatever_the_order(
    clock: FakeClock, notes: MemoryNotes, polling: Polling, holders: int
) -> None:
    """Each dies in turn, without a word."""
    tasks = [
        asyncio.create_task(
            Lease(notes, clock, "lease.x", str(n), term=TERM).hold(polling.by(str(n)))
        )
        for n in range(holders)
    ]
    await settle()
    for _ in range(holders - 1):
        (now,) = polling.now
        tasks[int(now)].cancel()
        await passes(clock, 2 * TERM)
        assert len(polling.now) == 1 and polling.now != [now]
    assert polling.never_two
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
