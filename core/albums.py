"""Albums: several messages that are one. How long a turn waits for those that are still to come.

No platform says which member is the last, so a turn begins when none has come for a while. Only a
memory of when they came is kept here, and losing it costs nothing but the same wait once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from core.clock import Clock
from core.messages import Inbound

QUIET: Final = 1.0  # seconds without another member
MOST: Final = 10  # members that an album has


class Albums:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By key: which albums with how many members were there, and since when.
        self._since: dict[str, tuple[Counter[str], float]] = {}

    def wait(self, key: str, next_ones: Sequence[Inbound], quiet: float = 0.0) -> float | None:
        """
        :param next_ones: what a turn would answer if it began now
        :param quiet: for how many seconds surely none has come, when they are new to us
        :returns: seconds until it may; None: at once
        """
        members = Counter(each.album for each in next_ones if each.album is not None)
        if all(count >= MOST for count in members.values()):
            self._since.pop(key, None)
            return None
        now = self._clock.monotonic()
        known, since = self._since.get(key, (None, now))
        if known != members:
            since = now - (quiet if known is None else 0.0)
            self._since[key] = (members, since)
        left = since + QUIET - now
        if left > 0:
            return left
        del self._since[key]
        return None


def first_of(waiting: Sequence[Inbound]) -> tuple[Inbound, ...]:
    """The oldest message, what is of one album with it, and what was said around it before."""
    oldest = next((each for each in waiting if each.addressed), waiting[0])
    around = tuple(waiting[: waiting.index(oldest)])
    if oldest.album is None:
        return (*around, oldest)
    return around + tuple(each for each in waiting if each.album == oldest.album)


def late_of(waiting: Sequence[Inbound], taken: Sequence[Inbound]) -> tuple[Inbound, ...]:
    """Those that waited too long to be taken with the rest of their album."""
    albums = {each.album for each in taken if each.album is not None}
    return tuple(each for each in waiting if each.album in albums)
