"""The calls of tools that an answer shows: which of them a stream has still to be told of.

Pure but for the time that it is told. How they look is Slack's affair (task cards), and that they
leave `live`'s.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from core.adapter import Doing

CARD_SECONDS: Final = 1.0  # what is done sooner begins no stream
MOST: Final = 20  # cards of one message; Slack takes 50 blocks
_ENDED: Final = ("done", "failed")


class Tasks:
    """
    :ivar calls: all of them, as they stand
    """

    def __init__(self) -> None:
        self.calls: tuple[Doing, ...] = ()
        self._began: dict[str, float] = {}
        self._settled: set[str] = set()

    def told(self, calls: tuple[Doing, ...], now: float) -> None:
        self.calls = calls
        for each in calls:
            if each.state == "running":
                self._began.setdefault(each.id, now)

    @property
    def running(self) -> Doing | None:
        """One that runs."""
        return next((each for each in self.calls if each.state == "running"), None)

    def take_long(self, now: float) -> bool:
        """Whether one of them is worth a message before there is anything to read."""
        return any(
            each.state == "running" and now - self._began[each.id] >= CARD_SECONDS
            for each in self.calls
        )

    def news(self, shown: dict[str, Doing]) -> list[Doing]:
        """What a message that shows these has still to be told.

        :param shown: by their ids
        """
        room = MOST - len(shown)
        found = []
        for each in self.calls:
            if each.id in self._settled or shown.get(each.id) == each:
                continue
            if each.id not in shown:
                room -= 1
            if each.id in shown or room >= 0:
                found.append(each)
        return found

    def said(self, tasks: list[Doing]) -> None:
        """They were shown, and those that have ended are not shown again."""
        self._settled.update(each.id for each in tasks if each.state in _ENDED)

    def ended(self, shown: dict[str, Doing]) -> list[Doing]:
        """The turn is over: what a message shows as running has come to nothing."""
        after = {each.id: each for each in self.calls}
        return [
            replace(each, state="failed") if each.state == "running" else each
            for each in (after.get(id, old) for id, old in shown.items())
            if each.state == "running" or shown[each.id] != each
        ]
