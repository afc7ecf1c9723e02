"""Troubles by name: what may go wrong between the bot and the world, and what is to come of it.

A trouble is set on the stand-ins and strikes as often as it says, or until it is taken back. The
promise beside it is what a person sees all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from playground.claude import Claude
from playground.claude_answers import Cut, Fail
from playground.slack import Slack
from playground.telegram import Answer, Delay, DeliverTwice, Fault, ResetAfter, Rule, Telegram

Json = dict[str, Any]
Left = Callable[[], int | None]


@dataclass(frozen=True, slots=True)
class Trouble:
    """
    :param times: how often it strikes; None: until it is taken back
    """

    name: str
    title: str
    says: str
    promise: str
    times: int | None


TROUBLES: Final = (
    Trouble(
        "slow",
        "Slow network",
        "Whatever the bot tells the platform takes 1.5 seconds.",
        "Everything comes, later; other chats do not wait.",
        None,
    ),
    Trouble(
        "429",
        "429, too many",
        "The next two sends are refused, with a second to wait.",
        "The answer comes once, after the wait; the model is not asked again.",
        2,
    ),
    Trouble(
        "5xx",
        "502, bad gateway",
        "The next two sends meet a proxy's error page; nothing was done.",
        "The answer comes, by itself, at the next try.",
        2,
    ),
    Trouble(
        "cut",
        "Cut after accept",
        "The next send is done, but the line breaks before the bot hears of it.",
        "The answer comes: once on Slack; on Telegram maybe twice, the one window left there.",
        1,
    ),
    Trouble(
        "twice",
        "Delivered twice",
        "The next message from a person reaches the bot twice.",
        "It is answered once.",
        1,
    ),
    Trouble(
        "overloaded",
        "Model overloaded",
        "The next two requests to the model get 529.",
        "The bot waits, asks again, and answers.",
        2,
    ),
    Trouble(
        "stream",
        "Stream cut",
        "The model's next answer breaks off after three words.",
        "The bot asks again; nobody is left with half an answer.",
        1,
    ),
)
NAMES: Final = tuple(trouble.name for trouble in TROUBLES)

SLOW_SECONDS: Final = 1.5
RETRY_AFTER: Final = 1
# By method: of Telegram all but getMe and getUpdates, which are not of any chat.
_DONE: Final = ("[!g]*", "chat.*")
_SENDS: Final = ("sendmessage", "chat.postMessage")
_HEARS: Final = ("getupdates", "events/*")


@dataclass(frozen=True, slots=True)
class _Set:
    left: Left
    cancel: Callable[[], None]


class Troubles:
    """Those that are set now.

    :param changed: is told after each change that was made here
    """

    def __init__(
        self,
        telegram: Telegram,
        slack: Slack,
        claude: Claude,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._telegram = telegram
        self._slack = slack
        self._claude = claude
        self._changed = changed
        self._set: dict[str, list[_Set]] = {}

    def set(self, name: str) -> None:
        """It strikes from now on; one that is set already is set anew.

        :raises KeyError: there is no such trouble
        """
        trouble = next((each for each in TROUBLES if each.name == name), None)
        if trouble is None:
            raise KeyError(f"no trouble {name!r}; there are {', '.join(NAMES)}")
        self.clear(name)
        self._set[name] = self._start(trouble)
        self._changed()

    def clear(self, name: str) -> None:
        """It strikes no more; harmless when it is not set."""
        for each in self._set.pop(name, ()):
            each.cancel()
        self._changed()

    def left(self, name: str) -> int | None:
        """How often it will strike still: 0 when it is not set or used up; None: always."""
        lefts = [each.left() for each in self._set.get(name, ())]
        return None if None in lefts else min((left or 0 for left in lefts), default=0)

    def settle(self) -> None:
        """What has struck on one platform does not strike on the other as well."""
        for name in [name for name in self._set if self.left(name) == 0]:
            for each in self._set.pop(name):
                each.cancel()

    def json(self) -> list[Json]:
        """All there are, for the page."""
        return [
            {
                "name": each.name,
                "title": each.title,
                "says": each.says,
                "promise": each.promise,
                "on": each.name in self._set and self.left(each.name) != 0,
                "left": self.left(each.name),
            }
            for each in TROUBLES
        ]

    def _start(self, trouble: Trouble) -> list[_Set]:
        times = trouble.times
        match trouble.name:
            case "slow":
                return self._on_platforms(_DONE, Delay(SLOW_SECONDS), times)
            case "429":
                fault = Answer(429, f"Too Many Requests: retry after {RETRY_AFTER}", RETRY_AFTER)
                return self._on_platforms(_SENDS, fault, times)
            case "5xx":
                return self._on_platforms(_SENDS, Answer(502, html=True), times)
            case "cut":
                return self._on_platforms(_SENDS, ResetAfter(), times)
            case "twice":
                return self._on_platforms(_HEARS, DeliverTwice(), times)
            case "overloaded":
                fail = Fail(529, "overloaded_error", "Overloaded", retry_after=1)
                return self._of_the_model([fail] * (times or 1))
            case _:
                return self._of_the_model([Cut(after_deltas=3)] * (times or 1))

    def _on_platforms(
        self, methods: tuple[str, str], fault: Fault, times: int | None
    ) -> list[_Set]:
        rules = (
            self._telegram.fault(methods[0], fault, times=times),
            self._slack.fault(methods[1], fault, times=times),
        )
        return [_Set(partial(_left, rule), rule.cancel) for rule in rules]

    def _of_the_model(self, answers: list[Fail] | list[Cut]) -> list[_Set]:
        scripted = self._claude.scripted
        scripted.extendleft(reversed(answers))

        def left() -> int:
            return sum(any(each is mine for mine in answers) for each in scripted)

        def cancel() -> None:
            kept = [each for each in scripted if not any(each is mine for mine in answers)]
            scripted.clear()
            scripted.extend(kept)

        return [_Set(left, cancel)]


def _left(rule: Rule) -> int | None:
    return None if rule.times is None else rule.times - rule.hits
