"""The embedded engine, and the clock it goes by."""

from __future__ import annotations

import asyncio
import random
import sys
import time

from core.clock import Clock, SystemClock
from core.engine import Again, Done, EmbeddedEngine
from tests.core.engine_contract import (
    EngineContract,
    Outcome,
    Recorder,
    outcomes,
    running,
)
from tests.core.fakes import FakeClock, settle


class TestEmbedded(EngineContract):
    clock: FakeClock

    def engine(self, concurrency: int = 256) -> EmbeddedEngine:
        self.clock = FakeClock(manual=True)
        return EmbeddedEngine(self.clock, concurrency=concurrency)

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await settle()


async def test_keys_are_worked_on_in_the_order_in_which_they_came() -> None:
    engine, work = EmbeddedEngine(FakeClock(manual=True)), Recorder()
    await engine.submit("b", "1")
    async with running(engine, work):
        for key in ("c", "a"):
            await engine.submit(key, "1")
        await settle()
        assert work.keys == ["b", "c", "a"]


def held_by(engine: EmbeddedEngine) -> int:
    """How many things an engine keeps of its keys."""
    return (
        len(engine._ready)
        + len(engine._waiting)
        + len(engine._lanes)
        + len(engine._once_more)
        + len(engine._due)
        + len(engine._heap)
    )


def size_of(engine: EmbeddedEngine) -> int:
    """The bytes of its tables, what is in them aside."""
    return sum(sys.getsizeof(value) for value in vars(engine).values())


def tasks() -> int:
    return len(asyncio.all_tasks())


async def test_an_idle_key_leaves_nothing() -> None:
    clock = FakeClock(manual=True)
    engine = EmbeddedEngine(clock)
    async with running(engine, Recorder(outcomes(Again(), Again(5)))):
        before = tasks()
        await engine.submit("a", "1")
        await settle()
        assert held_by(engine) == 2
        assert tasks() == before + 1
        clock.advance(6)
        await settle()
        assert held_by(engine) == 0
        assert tasks() == before


async def test_a_hundred_thousand_keys_cost_nothing_afterwards() -> None:
    engine, count = EmbeddedEngine(FakeClock(manual=True)), 0

    async def work(_: str) -> Outcome:
        nonlocal count
        count += 1
        return Done()

    async def wave(size: int) -> None:
        for number in range(size):
            await engine.submit(f"key {number}", "1")
        assert engine.depth() == size
        while engine.depth():
            await settle()

    async with running(engine, work):
        before, running_before = size_of(engine), tasks()
        await wave(100_000)
        assert count == 100_000
        assert (held_by(engine), tasks()) == (0, running_before)
        assert size_of(engine) < before + 50_000  # one table of as many lanes as there may be


async def test_keys_that_wait_for_a_day_and_are_done_before_leave_nothing() -> None:
    engine, first = EmbeddedEngine(FakeClock(manual=True)), set[str]()

    async def work(key: str) -> Outcome:
        if key in first:
            return Done()
        first.add(key)
        return Again(86_400)

    async with running(engine, work):
        keys = [f"key {number}" for number in range(2_000)]
        for key in keys:
            await engine.submit(key, "1")
        await settle(100)
        assert len(engine._heap) == len(engine._due) == 2_000
        for key in keys:
            await engine.submit(key, "2")
        await settle(100)
        assert engine.depth() == 0
        assert held_by(engine) <= 64
        assert size_of(engine) < 50_000


async def test_a_key_that_is_always_asked_before_its_time_leaves_one_trace() -> None:
    clock = FakeClock(manual=True)
    engine, work = EmbeddedEngine(clock), Recorder(outcomes(*[Again(3600)] * 1000))
    async with running(engine, work):
        for _ in range(1000):
            await engine.submit("a", "1")
            await settle(5)
            clock.advance(0.5)
        assert len(work.keys) == 1000
        assert held_by(engine) < 70
        clock.advance(3700)
        await settle(200)
        assert len(work.keys) == 1001
        assert held_by(engine) == 0


async def test_times_come_in_order_whatever_is_swept_away() -> None:
    """A model of the engine: of each key the latest time counts, and it comes once."""
    chance = random.Random(11)
    clock = FakeClock(manual=True)
    engine = EmbeddedEngine(clock)
    due: dict[str, float] = {}
    wait: float | None = None
    came: list[str] = []

    async def work(key: str) -> Outcome:
        came.append(key)
        due.pop(key, None)
        if wait is None:
            return Done()
        due[key] = clock.monotonic() + wait
        return Again(wait)

    async with running(engine, work):
        for _ in range(2000):
            key, wait = f"key {chance.randrange(30)}", chance.uniform(0.1, 50)
            await engine.submit(key, "1")
            await settle(3)
            if chance.random() < 0.2:
                wait = None
                before = len(came)
                now = clock.monotonic() + 5
                expected = sorted(key for key, time in due.items() if time <= now)
                clock.advance(5)
                await settle(10)
                assert sorted(came[before:]) == expected
        assert len(engine._heap) <= 2 * len(engine._due) + 64


async def test_work_that_will_not_be_cancelled_starts_no_timer_any_more() -> None:
    engine = EmbeddedEngine(FakeClock(manual=True))
    begun = asyncio.Event()

    async def work(_: str) -> Outcome:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return Again(5)
        raise AssertionError

    before = tasks()
    async with running(engine, work):
        await engine.submit("a", "1")
        await begun.wait()
    assert tasks() == before
    assert engine._timer is None


async def test_the_real_clock() -> None:
    clock: Clock = SystemClock()
    wall, began = clock.now(), clock.monotonic()
    work = Recorder(outcomes(Again(0.02)))
    async with running(EmbeddedEngine(clock), work):
        pass
    engine = EmbeddedEngine(clock)
    async with running(engine, work), asyncio.timeout(5):
        await engine.submit("a", "1")
        while len(work.keys) < 2:
            await clock.sleep(0.005)
    assert 0.02 <= clock.monotonic() - began < 5
    assert 15 <= clock.now() - wall < 60_000
    assert abs(clock.now() / 1000 - time.time()) < 5


async def test_the_fake_clock() -> None:
    at_once = FakeClock()
    began = at_once.monotonic()
    await at_once.sleep(5)
    assert at_once.monotonic() - began == 5
    assert at_once.slept == [5]
    at_once.jump(-3_600_000)
    assert at_once.monotonic() - began == 5

    manual = FakeClock(manual=True)
    wall = manual.now()
    sleepers = [asyncio.create_task(manual.sleep(seconds)) for seconds in (3, 1, 2)]
    await settle()
    sleepers[1].cancel()
    manual.advance(2)
    await settle()
    assert [sleeper.done() for sleeper in sleepers] == [False, True, True]
    manual.advance(1)
    await asyncio.gather(*sleepers, return_exceptions=True)
    assert manual.now() - wall == 3000
