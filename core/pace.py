"""Pace: when something may leave for a chat. In memory, and only what a platform told us.

A penalty is kept per chat until it is over, so that nobody asks again before. It is lost with the
process: the platform then tells us once more.
"""

from __future__ import annotations

from core.clock import Clock


class Pace:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        self._failures: dict[str, int] = {}

    def wait(self, key: str) -> float:
        """Seconds until something may leave for this chat; 0: now."""
        until = self._until.get(key)
        if until is None:
            return 0.0
        seconds = until - self._clock.monotonic()
        if seconds <= 0:
            del self._until[key]
        return max(0.0, seconds)

    def later(self, key: str, seconds: float) -> None:
        """The platform asks us to wait."""
        self._until[key] = self._clock.monotonic() + seconds

    def failed(self, key: str) -> None:
        """A request failed in a way that says nothing: wait 1, 2, 4, ... 300 seconds."""
        count = self._failures[key] = self._failures.get(key, 0) + 1
        self.later(key, min(2.0 ** (count - 1), 300.0))

    def succeeded(self, key: str) -> None:
        self._until.pop(key, None)
        self._failures.pop(key, None)
