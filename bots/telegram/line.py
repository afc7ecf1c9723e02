"""What we know of the line to Telegram: for who asks whether we still hear. Decides nothing."""

from __future__ import annotations

from core.adapter import Pulse
from core.clock import Clock


class Line:
    """
    :ivar state: in a word or two, for people
    :ivar refusing: what came last was not accepted: it comes again, and again in vain
    :ivar unreached: Telegram says that it has updates and cannot bring them
    :ivar event: when the last update came, by the monotonic clock
    """

    def __init__(self, clock: Clock) -> None:
        self.state = "starting"
        self.refusing = False
        self.unreached = False
        self.event: float | None = None
        self._contact: float | None = None
        self._clock = clock

    def answered(self) -> None:
        """Telegram has answered us."""
        self._contact = self._clock.monotonic()

    def brought(self) -> None:
        """Telegram has brought us something."""
        self.event = self._contact = self._clock.monotonic()
        self.unreached = False

    def pulse(self) -> Pulse:
        state = self.state
        if self.unreached:
            state = "not reached by Telegram"
        if self.refusing:
            state = "not accepting"
        return Pulse(
            state, self._ago(self._contact), self._ago(self.event), self.refusing or self.unreached
        )

    def _ago(self, at: float | None) -> float | None:
        return None if at is None else self._clock.monotonic() - at
