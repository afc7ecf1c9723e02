"""Pace: when something may leave for a chat, and what first.

Everything that leaves for one chat draws on one budget: finals, approvals, edits, signs of typing.
Finals wait for it; what only decorates them is left out when little remains. A penalty that a
platform has named is kept until it is over, also over a restart, so that nobody asks again before.
Whether a person may write is no affair of this file: that is `gate.py`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from core.adapter import Leaving, Rate
from core.clock import Clock
from core.store import Notes

NOTE: Final = "pace.penalties"
# A shorter penalty is over before a restart is.
KEPT_FROM: Final = 5.0
LONGEST_PENALTY: Final = 86_400.0

# 1, 2, 4, ... seconds after the first failure; the ninth doubling is beyond the longest wait, and
# an outage of days must not overflow a float.
LONGEST_WAIT: Final = 300.0
_DOUBLINGS: Final = 9
_BUCKETS: Final = 1_000

# How much must be left for what matters more.
_RESERVED: Final[dict[Leaving, int]] = {
    "final": 0,
    "approval": 0,
    "edit": 1,
    "draft": 1,
    "typing": 2,
}
# What stays on the screen, and is therefore held to the spacing.
_KEPT: Final = frozenset[Leaving]({"final", "approval", "edit"})
_NEVER: Final = float("-inf")


class _Penalty(NamedTuple):
    """
    :param at: when it was noted, in ms since 1970
    :param until: when it is over
    """

    at: int
    until: int

    def left(self, wall: int) -> float:
        """Seconds. A wall clock that was set back makes it no longer than it was."""
        left = min(self.until - wall, self.until - self.at) / 1000
        return max(0.0, min(left, LONGEST_PENALTY))


class _Bucket(msgspec.Struct):
    tokens: float
    at: float
    last: float = _NEVER  # when something that is held to the spacing left, or was over


class Pace:
    """
    :param notes: where penalties outlive the process; None: nowhere
    :param shared: other processes send as well, and are told there
    """

    def __init__(self, clock: Clock, notes: Notes | None = None, *, shared: bool = False) -> None:
        self._clock = clock
        self._notes = notes
        self._shared = shared
        self._until: dict[str, float] = {}
        self._known: dict[str, _Penalty] = {}
        self._failures: dict[str, int] = {}
        self._buckets: dict[str, _Bucket] = {}

    async def open(self) -> None:
        """Remember what platforms told an earlier process.

        :raises StoreError: what the store raises
        """
        kept = _decoded(await self._notes.get(NOTE)) if self._notes else {}
        wall = self._clock.now()
        for key, penalty in kept.items():
            # Once: while the wall clock stands before it, it would begin again each time.
            if self._known.get(key) != penalty and (seconds := penalty.left(wall)) > 0:
                self._wait_for(key, seconds)
        self._known = kept

    async def refresh(self) -> None:
        """What other processes were told until now is known.

        :raises StoreError: what the store raises
        """
        if self._shared:
            await self.open()

    def wait(self, key: str, rate: Rate | None = None, leaving: Leaving = "final") -> float:
        """Seconds until this may leave for this chat; 0: now."""
        penalty = self._penalty(key)
        if rate and rate.place:
            penalty = max(penalty, self._penalty(rate.place))
        return max(penalty, self._shortage(key, rate, leaving))

    def take(self, key: str, rate: Rate | None, leaving: Leaving = "final") -> None:
        """Something leaves."""
        if rate is None:
            return
        bucket = self._bucket(key, rate)
        bucket.tokens -= 1
        if leaving in _KEPT:
            bucket.last = bucket.at
        if len(self._buckets) > _BUCKETS:
            self._drop_full(rate)

    def left(self, key: str, rate: Rate | None, leaving: Leaving = "final") -> None:
        """What was taken is over. How long it was on its way nobody knows, so that only from here
        on the next one surely arrives late enough."""
        if rate is not None and rate.spacing and leaving in _KEPT:
            bucket = self._bucket(key, rate)
            bucket.last = bucket.at

    def may(self, key: str, rate: Rate | None, leaving: Leaving) -> bool:
        """Whether it may leave now; if so, it counts."""
        if self.wait(key, rate, leaving) > 0:
            return False
        self.take(key, rate, leaving)
        return True

    async def later(self, key: str, seconds: float, rate: Rate | None = None) -> None:
        """The platform asks us to wait. A longer penalty that is not over yet stays. It holds for
        all that share the rate.

        :raises StoreError: it is not remembered over a restart
        """
        self._wait_for(_place(key, rate), seconds)
        if self._notes is not None and (self._shared or seconds > KEPT_FROM):
            await self._keep(self._notes)

    def failed(self, key: str) -> None:
        """A request failed in a way that says nothing: wait 1, 2, 4, ... 300 seconds."""
        count = self._failures[key] = self._failures.get(key, 0) + 1
        self._wait_for(key, min(2.0 ** min(count - 1, _DOUBLINGS), LONGEST_WAIT))

    def succeeded(self, key: str) -> None:
        """A request went through. A penalty that another one met meanwhile is not over by that."""
        self._failures.pop(key, None)

    # ------------------------------------------------------------------ penalties

    def _wait_for(self, key: str, seconds: float) -> None:
        until = self._clock.monotonic() + seconds
        self._until[key] = max(until, self._until.get(key, until))

    def _penalty(self, key: str) -> float:
        until = self._until.get(key)
        if until is None:
            return 0.0
        seconds = until - self._clock.monotonic()
        if seconds <= 0:
            del self._until[key]
        return max(0.0, seconds)

    async def _keep(self, notes: Notes) -> None:
        """All that are not over; those of another process on the same database stay."""
        while True:
            was = await notes.get(NOTE)
            wall, now = self._clock.now(), self._clock.monotonic()
            kept = {key: each for key, each in _decoded(was).items() if each.left(wall) > 0}
            for key, until in self._until.items():
                ours = _Penalty(wall, wall + round((until - now) * 1000))
                theirs = kept.get(key)
                if ours.left(wall) > (theirs.left(wall) if theirs else 0.0):
                    kept[key] = ours
            if await notes.put(NOTE, msgspec.json.encode(kept), was=was):
                return

    # ------------------------------------------------------------------ the budget

    def _shortage(self, key: str, rate: Rate | None, leaving: Leaving) -> float:
        if rate is None:
            return 0.0
        wanted = 1 + min(_RESERVED[leaving], rate.burst - 1)
        bucket = self._bucket(key, rate)
        short = (wanted - bucket.tokens) / rate.per_second
        near = bucket.last + rate.spacing - bucket.at if leaving in _KEPT else 0.0
        return max(0.0, short, near)

    def _bucket(self, key: str, rate: Rate) -> _Bucket:
        key = _place(key, rate)
        now = self._clock.monotonic()
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(rate.burst, now)
        gained = (now - bucket.at) * rate.per_second
        bucket.tokens = min(float(rate.burst), bucket.tokens + gained)
        bucket.at = now
        return bucket

    def _drop_full(self, rate: Rate) -> None:
        """A full bucket is as good as none: chats that are silent cost nothing."""
        now = self._clock.monotonic()
        slowest = max(rate.burst / rate.per_second, rate.spacing)
        self._buckets = {
            key: bucket for key, bucket in self._buckets.items() if now - bucket.at < slowest
        }


def _place(key: str, rate: Rate | None) -> str:
    return rate.place or key if rate else key


def _decoded(note: bytes | None) -> dict[str, _Penalty]:
    """What cannot be read is nothing: at worst a platform tells us once more."""
    if note is None:
        return {}
    try:
        return msgspec.json.decode(note, type=dict[str, _Penalty])
    except msgspec.MsgspecError:
        return {}
