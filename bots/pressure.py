"""Intake slows before the database suffers: while more waits than can be answered soon, each
message is taken in a little later.

Not a refusal: what a platform brought is kept, in any case, for not every platform brings it again.
But a platform that is asked for messages is asked less often, and one that brings them brings fewer
at a time, for it waits for our word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from core.clock import Clock
from core.events import trouble

# Slack wants to hear within three seconds, and what is durable costs some of it.
MOST_SECONDS: Final = 1.5
SAID_SECONDS: Final = 60.0  # between two lines in the log


class Pressure:
    """
    :param depth: how many conversations wait or are worked on
    :param most: up to so many nothing slows down; at twice as many it is as slow as it gets
    """

    def __init__(self, depth: Callable[[], int], most: int, clock: Clock) -> None:
        self._depth = depth
        self._most = most
        self._clock = clock
        self._said = float("-inf")

    def seconds(self) -> float:
        """By which the next message shall be late."""
        over = (self._depth() - self._most) / self._most
        return MOST_SECONDS * min(1.0, max(0.0, over))

    async def ease(self) -> None:
        seconds = self.seconds()
        if not seconds:
            return
        now = self._clock.monotonic()
        if now - self._said > SAID_SECONDS:
            self._said = now
            trouble("pressure", depth=self._depth(), seconds=round(seconds, 2))
        await self._clock.sleep(seconds)
