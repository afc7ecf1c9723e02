"""The seam that decides when a session is worked on, and the embedded engine: asyncio lanes.

An engine holds no truth: what is to be done stands in the snapshots, and safety comes from
compare-and-set and fencing, so an engine that forgets everything loses nothing.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable

import msgspec

from core.clock import Clock


class Done(msgspec.Struct, frozen=True):
    """Nothing is left to do for this key."""


class Again(msgspec.Struct, frozen=True):
    """Something is, in so many seconds."""

    seconds: float = 0.0


Work = Callable[[str], Awaitable[Done | Again]]


@runtime_checkable
class Engine(Protocol):
    """Calls `work(key)` for each session that has something to do: one at a time per key."""

    async def run(self, work: Work) -> None:
        """Until cancelled, drained, or until `work` raises: that ends the engine.

        :raises Fatal: from `work`
        """
        ...

    async def submit(self, key: str, inbound_id: str) -> None:
        """Returns once it is sure that `work(key)` will run after this. Repeats are harmless."""
        ...

    def depth(self) -> int:
        """How many keys wait or are worked on now; those waiting for a time are not counted."""
        ...

    async def drain(self, timeout: float) -> None:
        """Begin nothing more; let what runs finish, for so many seconds, then cancel it."""
        ...


class EmbeddedEngine:
    """One process. A lane is a task that exists only while its key is worked on.

    :param concurrency: how many keys are worked on at the same time, at most
    """

    def __init__(self, clock: Clock, *, concurrency: int = 256) -> None:
        self._clock = clock
        self._concurrency = concurrency
        self._ready: deque[str] = deque()
        self._waiting: set[str] = set()
        self._lanes: dict[str, asyncio.Task[None]] = {}
        self._once_more: set[str] = set()
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._timer: asyncio.Task[None] | None = None
        self._work: Work | None = None
        self._draining = False
        self._ended: asyncio.Future[None] | None = None

    async def run(self, work: Work) -> None:
        if self._draining:
            return
        self._work = work
        self._ended = asyncio.get_running_loop().create_future()
        self._fill()
        try:
            await self._ended
        finally:
            self._work = None
            await self._cancel_all()

    async def submit(self, key: str, inbound_id: str) -> None:
        if self._due.pop(key, None) is not None:
            self._sweep()
        self._enqueue(key)

    def depth(self) -> int:
        return len(self._ready) + len(self._lanes)

    async def drain(self, timeout: float) -> None:
        self._draining = True
        self._due.clear()
        self._heap.clear()
        self._ready.clear()
        self._waiting.clear()
        if self._lanes:
            await asyncio.wait(tuple(self._lanes.values()), timeout=timeout)
        await self._cancel_all()
        if self._ended and not self._ended.done():
            self._ended.set_result(None)

    def _enqueue(self, key: str) -> None:
        if key in self._lanes:
            self._once_more.add(key)
        elif key not in self._waiting and not self._draining:
            self._waiting.add(key)
            self._ready.append(key)
            self._fill()

    def _fill(self) -> None:
        while self._work and self._ready and len(self._lanes) < self._concurrency:
            key = self._ready.popleft()
            self._waiting.discard(key)
            self._lanes[key] = asyncio.create_task(self._lane(key, self._work), name=f"lane {key}")
        if not self._ready:
            # It is empty, but only so it becomes small again.
            self._waiting.clear()

    async def _lane(self, key: str, work: Work) -> None:
        try:
            outcome = await work(key)
        except asyncio.CancelledError as error:
            if not is_cancelled():
                # Something inside gave up: the key would be forgotten, and nobody would know.
                self._fail(RuntimeError(f"work on {key} was cancelled by nobody"), error)
            raise
        except BaseException as error:
            # Whatever work raises is Fatal or a bug: either way the program must not go on as if
            # nothing had happened.
            self._fail(error)
            return
        finally:
            del self._lanes[key]
            again = key in self._once_more
            self._once_more.discard(key)
        if again or (isinstance(outcome, Again) and outcome.seconds <= 0):
            self._enqueue(key)
        elif isinstance(outcome, Again) and self._work and not self._draining:
            self._wait(key, outcome.seconds)
        self._fill()

    def _fail(self, error: BaseException, cause: BaseException | None = None) -> None:
        if self._ended and not self._ended.done():
            error.__cause__ = cause or error.__cause__
            self._ended.set_exception(error)

    def _wait(self, key: str, seconds: float) -> None:
        due = self._clock.monotonic() + seconds
        self._due[key] = due
        heapq.heappush(self._heap, (due, key))
        if self._heap[0] == (due, key):
            if self._timer:
                self._timer.cancel()
            self._timer = asyncio.create_task(self._wake_when_due(), name="engine timer")

    def _sweep(self) -> None:
        """Of times that are not in force any more no more are kept than of those that are."""
        if len(self._heap) > 2 * len(self._due) + 64:
            self._due = dict(self._due)
            self._heap = [(due, key) for key, due in self._due.items()]
            heapq.heapify(self._heap)

    async def _wake_when_due(self) -> None:
        while self._heap:
            due, key = self._heap[0]
            wait = due - self._clock.monotonic()
            if wait > 0:
                await self._clock.sleep(wait)
                continue
            heapq.heappop(self._heap)
            # Submitted meanwhile, or waiting anew: then this entry is not the one in force.
            if self._due.get(key) == due:
                del self._due[key]
                self._enqueue(key)

    async def _cancel_all(self) -> None:
        tasks = [*self._lanes.values(), *([self._timer] if self._timer else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._timer = None


def is_cancelled() -> bool:
    """Whether somebody has asked for the current task to be cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
