"""Pace: when something may leave for a chat. In memory, and only what a platform told us.

A penalty is kept per chat until it is over, so that nobody asks again before. It is lost with the
process: the platform then tells us once more.
"""

from __future__ import annotations

from typing import Final

from core.clock import Clock

# 1, 2, 4, ... seconds after the first failure; the ninth doubling is beyond the longest wait, and
# an outage of days must not overflow a float.
LONGEST_WAIT: Final = 300.0
_DOUBLINGS: Final = 9


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
        """The platform asks us to wait. A longer penalty that is not over yet stays."""
        until = self._clock.monotonic() + seconds
        self._until[key] = max(until, self._until.get(key, until))

    def failed(self, key: str) -> None:
        """A request failed in a way that says nothing: wait 1, 2, 4, ... 300 seconds."""
        count = self._failures[key] = self._failures.get(key, 0) + 1
        self.later(key, min(2.0 ** min(count - 1, _DOUBLINGS), LONGEST_WAIT))

    def succeeded(self, key: str) -> None:
        """A request went through. A penalty that another one met meanwhile is not over by that."""
        self._failures.pop(key, None)
