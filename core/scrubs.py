"""When the free space of a store may be overwritten: it holds up everybody's saves, so whoever asks
for it again and again waits. Not the overwriting itself, which is the store's.
"""

from __future__ import annotations

from typing import Final

from core.clock import Clock
from core.store import BotStore

# At most one part in so many of all time.
SHARE: Final = 20


class Scrubs:
    """When free space may be overwritten again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next = clock.monotonic()

    def wait(self) -> float:
        """Seconds."""
        return max(0.0, self._next - self._clock.monotonic())

    async def scrub(self, store: BotStore) -> None:
        began = self._clock.monotonic()
        await store.scrub()
        now = self._clock.monotonic()
        self._next = now + (now - began) * SHARE
