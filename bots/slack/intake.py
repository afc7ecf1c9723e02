"""The way in: what arrives is accepted in the order of its conversation, and only then confirmed.

Slack's transports bring events side by side, and bring one again when its confirmation is late. So
each conversation has a line here, sorted by time stamp while it waits, and what is in it already is
not put there twice. What cannot be accepted is tried again here: Slack does so for a few minutes
only. Nothing here outlives the process; what was not confirmed Slack has still.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import Final

from bots.slack.backoff import Backoff
from core.adapter import Accept, Acceptance
from core.clock import Clock
from core.messages import Inbound

# More that cannot be accepted is left to Slack.
MAX_WAITING: Final = 2_000

Taken = asyncio.Future[Acceptance]


class Full(Exception):
    """Too much waits already: not to be confirmed."""


class Intake:
    """
    :param accept: makes it durable
    """

    def __init__(self, accept: Accept, clock: Clock) -> None:
        self._accept = accept
        self._clock = clock
        self._waiting: dict[str, tuple[Inbound, Taken]] = {}
        self._lines: dict[str, list[str]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._refused = Backoff("slack.not_accepted", clock)

    def take(self, inbound: Inbound) -> Taken:
        """Stands in line from now on. Done when it was accepted; cancelled when we stop before.

        :raises Full: it does not
        """
        known = self._waiting.get(inbound.id)
        if known is not None:
            return known[1]
        if len(self._waiting) >= MAX_WAITING:
            raise Full
        taken: Taken = asyncio.get_running_loop().create_future()
        self._waiting[inbound.id] = (inbound, taken)
        heapq.heappush(self._lines.setdefault(inbound.key, []), inbound.id)
        if inbound.key not in self._tasks:
            task = asyncio.create_task(self._go_on(inbound.key), name=f"intake {inbound.key}")
            self._tasks[inbound.key] = task
        return taken

    async def close(self) -> None:
        """What still waits is not accepted."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _, taken in self._waiting.values():
            taken.cancel()
        self._waiting.clear()
        self._lines.clear()

    async def _go_on(self, key: str) -> None:
        try:
            line = self._lines[key]
            while line:
                await self._one(heapq.heappop(line))
        finally:
            del self._lines[key], self._tasks[key]

    async def _one(self, inbound_id: str) -> None:
        inbound, taken = self._waiting[inbound_id]
        while True:
            try:
                acceptance = await self._accept(inbound)
            except Exception as error:
                # What comes behind it waits too, or it would be answered first.
                await self._refused.wait(type(error).__name__)
            else:
                break
        self._refused.over()
        del self._waiting[inbound_id]
        if not taken.done():
            taken.set_result(acceptance)
