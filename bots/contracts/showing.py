"""What a Live is given in tests: leave as the test wants it, and a record of what was noted."""

from __future__ import annotations

from collections.abc import Callable

from core.adapter import Decoration


class Leave:
    """
    :param may: whether something may leave; by default everything may
    :param noting: what noting raises, by turns; then nothing
    """

    def __init__(
        self, may: Callable[[Decoration], bool] = lambda leaving: True, *noting: Exception
    ) -> None:
        self._may = may
        self._noting = list(noting)
        self.noted: list[tuple[str, ...]] = []
        self.waits: list[float] = []
        self.lefts: list[Decoration] = []

    def may(self, leaving: Decoration) -> bool:
        return self._may(leaving)

    def left(self, leaving: Decoration) -> None:
        self.lefts.append(leaving)

    async def note(self, message_ids: tuple[str, ...]) -> None:
        self.noted.append(message_ids)
        if self._noting:
            raise self._noting.pop(0)

    async def later(self, seconds: float) -> None:
        self.waits.append(seconds)
