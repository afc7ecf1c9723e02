"""What every engine must do. A new one proves itself by inheriting this class:

class TestMine(EngineContract):
    def engine(self, concurrency): ...
    async def pass_time(self, seconds): ...

An engine that is not all in this process says besides when it has nothing to do (`settle`), and
how it counts (`depth`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from core.engine import Again, Done, Engine, Work
from core.errors import Fatal
from tests.core.fakes import settle

Outcome = Done | Again


@asynccontextmanager
async def running(
    engine: Engine, work: Work, settled: Callable[[], Awaitable[None]] = settle
) -> AsyncIterator[asyncio.Task[None]]:
    """The engine runs while the block does."""
    task = asyncio.create_task(engine.run(work))
    await settled()
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Recorder:
    """Work that writes down what it is called for, and then does `then`.

    :param most: how many calls were under way at the same time, at most
    """

    def __init__(self, then: Callable[[str], Awaitable[Outcome]] | None = None) -> None:
        self.keys: list[str] = []
        self.busy: list[str] = []
        self.ended: list[str] = []
        self.most = 0
        self._then = then

    async def __call__(self, key: str) -> Outcome:
        assert key not in self.busy, "two at once for one key"
        self.keys.append(key)
        self.busy.append(key)
        self.most = max(self.most, len(self.busy))
        try:
            outcome = await self._then(key) if self._then else Done()
            self.ended.append(key)
            return outcome
        finally:
            self.busy.remove(key)


class Held(Recorder):
    """Work that goes on only when it is let go."""

    def __init__(self, outcome: Outcome = Done()) -> None:  # noqa: B008 (frozen)
        super().__init__(self._wait)
        self.go_on = asyncio.Event()
        self.outcome = outcome

    async def _wait(self, _: str) -> Outcome:
        await self.go_on.wait()
        return self.outcome


def outcomes(*given: Outcome) -> Callable[[str], Awaitable[Outcome]]:
    """One after the other, then Done."""
    left = list(given)

    async def next_one(_: str) -> Outcome:
        return left.pop(0) if left else Done()

    return next_one


class EngineContract:
    def engine(self, concurrency: int = 256) -> Engine:
        """A new one."""
        raise NotImplementedError

    async def pass_time(self, seconds: float) -> None:
        """For the engine made last; who is due after that has begun."""
        raise NotImplementedError

    async def settle(self) -> None:
        """Everything that can go on without time has gone on."""
        await settle(200)

    async def depth(self, engine: Engine) -> int:
        return engine.depth()

    async def until(self, true: Callable[[], bool]) -> None:
        """For work that never comes to rest."""
        async with asyncio.timeout(20):
            while not true():
                await settle(1)

    def running(
        self, engine: Engine, work: Work
    ) -> AbstractAsyncContextManager[asyncio.Task[None]]:
        return running(engine, work, self.settle)

    def test_it_is_an_engine(self) -> None:
        assert isinstance(self.engine(), Engine)

    # ------------------------------------------------------------------ submit

    async def test_what_is_submitted_is_worked_on(self) -> None:
        engine, work = self.engine(), Recorder()
        async with self.running(engine, work):
            for key in ("a", "b", "c"):
                await engine.submit(key, "1")
            await self.settle()
            assert sorted(work.keys) == ["a", "b", "c"]
            await engine.submit("b", "2")
            await self.settle()
            assert sorted(work.keys[:3]) == ["a", "b", "c"]
            assert work.keys[3:] == ["b"]

    async def test_what_is_submitted_before_it_runs_is_not_lost(self) -> None:
        engine, work = self.engine(), Recorder()
        await engine.submit("a", "1")
        await engine.submit("b", "1")
        await self.settle()
        assert work.keys == []
        async with self.running(engine, work):
            assert sorted(work.keys) == ["a", "b"]

    async def test_a_repeat_is_harmless(self) -> None:
        engine, work = self.engine(), Recorder()
        for _ in range(5):
            await engine.submit("a", "1")
        async with self.running(engine, work):
            await engine.submit("a", "1")
            await self.settle()
            assert 1 <= len(work.keys) <= 2

    async def test_submitted_while_busy_it_runs_once_more(self) -> None:
        engine, work = self.engine(), Held()
        async with self.running(engine, work):
            await engine.submit("a", "1")
            await self.settle()
            for number in range(5):
                await engine.submit("a", f"{number}")
            await self.settle()
            assert work.keys == ["a"]
            work.go_on.set()
            await self.settle()
            assert work.keys == ["a", "a"]

    async def test_submitted_while_it_waits_it_runs_now(self) -> None:
        engine, work = self.engine(), Recorder(outcomes(Again(300)))
        async with self.running(engine, work):
            await engine.submit("a", "1")
            await self.settle()
            assert work.keys == ["a"]
            await engine.submit("a", "2")
            await self.settle()
            assert work.keys == ["a", "a"]
            # The time it waited for does not come any more.
            await self.pass_time(1000)
            assert work.keys == ["a", "a"]

    async def test_submitted_while_busy_it_does_not_wait_afterwards(self) -> None:
        engine, work = self.engine(), Held(Again(300))
        async with self.running(engine, work):
            await engine.submit("a", "1")
            await self.settle()
            await engine.submit("a", "2")
            work.go_on.set()
            await self.settle()
            assert work.keys == ["a", "a"]

    # ------------------------------------------------------------------ one at a time, many at once

    async def test_keys_are_worked_on_at_once_up_to_a_bound(self) -> None:
        engine, work = self.engine(3), Held()
        async with self.running(engine, work):
            for number in range(10):
                await engine.submit(f"{number}", "1")
            await self.settle()
            assert len(work.busy) == 3
            assert await self.depth(engine) == 10
            work.go_on.set()
            await self.settle()
            assert sorted(work.ended) == sorted(f"{number}" for number in range(10))
            assert work.most == 3
            assert await self.depth(engine) == 0

    async def test_a_slow_key_does_not_hold_up_the_others(self) -> None:
        slow = asyncio.Event()

        async def then(key: str) -> Outcome:
            if key == "slow":
                await slow.wait()
            return Done()

        engine, work = self.engine(2), Recorder(then)
        async with self.running(engine, work):
            await engine.submit("slow", "1")
            for number in range(20):
                await engine.submit(f"{number}", "1")
            await self.settle()
            assert len(work.ended) == 20
            slow.set()
            await self.settle()
            assert work.ended[-1] == "slow"

    async def test_a_key_that_is_never_done_does_not_hold_up_the_others(self) -> None:
        async def then(key: str) -> Outcome:
            return Again(0) if key == "busy" else Done()

        engine, work = self.engine(1), Recorder(then)
        async with self.running(engine, work):
            await engine.submit("busy", "1")
            await engine.submit("other", "1")
            await self.until(lambda: "other" in work.keys and work.keys.count("busy") > 1)

    # ------------------------------------------------------------------ again

    async def test_again_after_a_time(self) -> None:
        engine, work = self.engine(), Recorder(outcomes(Again(10), Again(20)))
        async with self.running(engine, work):
            await engine.submit("a", "1")
            await self.settle()
            await self.pass_time(9)
            assert work.keys == ["a"]
            assert await self.depth(engine) == 0
            await self.pass_time(2)
            assert work.keys == ["a", "a"]
            await self.pass_time(18)
            assert work.keys == ["a", "a"]
            await self.pass_time(3)
            assert work.keys == ["a", "a", "a"]
            await self.pass_time(1000)
            assert work.keys == ["a", "a", "a"]

    async def test_again_at_once(self) -> None:
        engine, work = self.engine(), Recorder(outcomes(Again(), Again(-1)))
        async with self.running(engine, work):
            await engine.submit("a", "1")
            await self.settle()
            assert work.keys == ["a", "a", "a"]

    async def test_each_key_waits_for_its_own_time(self) -> None:
        waits = {"a": 30.0, "b": 10.0, "c": 20.0}
        first: set[str] = set()

        async def then(key: str) -> Outcome:
            if key in first:
                return Done()
            first.add(key)
            return Again(waits[key])

        engine, work = self.engine(), Recorder(then)
        async with self.running(engine, work):
            for key in waits:
                await engine.submit(key, "1")
            await self.settle()
            seen = []
            for _ in range(4):
                await self.pass_time(9)
                seen.append(work.keys[3:])
        assert seen == [[], ["b"], ["b", "c"], ["b", "c", "a"]]

    async def test_a_key_that_waits_anew_waits_for_the_new_time(self) -> None:
        engine, work = self.engine(), Recorder(outcomes(Again(10), Again(100)))
        async with self.running(engine, work):
            await engine.submit("a", "1")
            await self.settle()
            await engine.submit("a", "2")
            await self.settle()
            await self.pass_time(50)
            assert work.keys == ["a", "a"]
            await self.pass_time(60)
            assert work.keys == ["a", "a", "a"]

    # ------------------------------------------------------------------ its end

    async def test_drain_lets_what_runs_finish_and_begins_nothing(self) -> None:
        engine, work = self.engine(1), Held(Again(0))
        async with self.running(engine, work) as task:
            await engine.submit("a", "1")
            await self.settle()
            await engine.submit("b", "1")
            await self.settle()
            draining = asyncio.create_task(engine.drain(60))
            await self.settle()
            await engine.submit("a", "2")
            await engine.submit("c", "1")
            await self.settle()
            assert not draining.done()
            work.go_on.set()
            await draining
            await task
            assert work.ended == work.keys == ["a"]
            assert await self.depth(engine) == 0

    async def test_drain_cancels_what_does_not_finish(self) -> None:
        engine, work = self.engine(), Held()
        async with self.running(engine, work) as task:
            await engine.submit("a", "1")
            await self.settle()
            await engine.drain(0.01)
            await task
            assert (work.keys, work.ended, work.busy) == (["a"], [], [])

    async def test_drain_drops_what_waits(self) -> None:
        engine, work = self.engine(), Recorder(outcomes(Again(10)))
        async with self.running(engine, work) as task:
            await engine.submit("a", "1")
            await self.settle()
            await engine.drain(60)
            await task
            await self.pass_time(100)
            assert work.keys == ["a"]

    async def test_drained_before_it_ran_it_does_not_run(self) -> None:
        engine, work = self.engine(), Recorder()
        await engine.submit("a", "1")
        await engine.drain(1)
        async with asyncio.timeout(5):
            await engine.run(work)
        assert work.keys == []

    @pytest.mark.parametrize("error", [Fatal(3, "corrupt"), ZeroDivisionError("a bug")])
    async def test_an_error_ends_it(self, error: Exception) -> None:
        others = Held()

        async def work(key: str) -> Outcome:
            if key == "bad":
                raise error
            return await others(key)

        engine = self.engine()
        async with self.running(engine, work) as task:
            await engine.submit("other", "1")
            await self.settle()
            await engine.submit("bad", "1")
            with pytest.raises(type(error)) as raised:
                await task
            assert raised.value is error
            assert others.busy == []

    async def test_the_first_of_two_errors_counts(self) -> None:
        raised_by: list[int] = []

        async def work(key: str) -> Outcome:
            raised_by.append(int(key))
            raise Fatal(int(key), key)

        engine = self.engine()
        await engine.submit("3", "1")
        await engine.submit("4", "1")
        with pytest.raises(Fatal) as raised:
            await engine.run(work)
        assert raised.value.exit_code == raised_by[0]

    async def test_work_that_is_cancelled_from_within_ends_it(self) -> None:
        """The key would be forgotten, and nobody would know."""

        async def work(_: str) -> Outcome:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting.cancel()
            await waiting
            return Done()

        engine = self.engine()
        await engine.submit("a", "1")
        with pytest.raises(RuntimeError, match="cancelled by nobody"):
            async with asyncio.timeout(5):
                await engine.run(work)

    async def test_cancelled_it_cancels_its_work(self) -> None:
        engine, work = self.engine(), Held()
        async with self.running(engine, work) as task:
            await engine.submit("a", "1")
            await self.settle()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (work.keys, work.busy, work.ended) == (["a"], [], [])
