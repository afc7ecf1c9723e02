"""Waiting between tries that fail: longer each time, and said once a minute."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from core.clock import Clock
from core.events import emit, trouble

MOST_SECONDS: Final = 60.0
LOG_SECONDS: Final = 60.0


class Backoff:
    """1, 2, 4 ... seconds, up to a quarter more.

    :param event: under which it is told
    """

    def __init__(
        self,
        event: str,
        clock: Clock,
        chance: Callable[[], float] = random.random,
        *,
        most: float = MOST_SECONDS,
    ) -> None:
        self._event = event
        self._clock = clock
        self._chance = chance
        self._most = most
        self._failures = 0
        self._quiet_until = float("-inf")

    async def wait(self, reason: str, at_least: float = 0.0) -> None:
        self._failures += 1
        if self._clock.monotonic() >= self._quiet_until:
            self._quiet_until = self._clock.monotonic() + LOG_SECONDS
            trouble(self._event, why=reason, failures=self._failures)
        jitter = 1 + self._chance() / 4
        seconds = min(2.0 ** min(self._failures - 1, 10) * jitter, self._most)
        await self._clock.sleep(max(seconds, at_least * jitter))

    def over(self) -> None:
        if self._failures:
            emit(f"{self._event}.over", failures=self._failures)
        self._failures = 0
        self._quiet_until = float("-inf")
