"""What the tests of Slack share: an adapter at the playground, and what people see there."""

from __future__ import annotations

from typing import Any

from bots.slack.adapter import SlackAdapter
from bots.slack.plain import plain
from bots.slack.rules import Rules
from core.commands import BUILT_IN
from playground.slack import Channel, Person, Slack
from playground.slack_text import unescaped
from tests.core.fakes import FakeClock

RULES = Rules(words=frozenset(each.name for each in BUILT_IN))
Place = Person | Channel


def make(slack: Slack, rules: Rules = RULES, **more: Any) -> SlackAdapter:
    settings: dict[str, Any] = {
        "base_url": f"{slack.url}/api/",
        "rules": rules,
        "clock": FakeClock(),
        "connect_seconds": 2.0,
    }
    token = more.pop("bot_token", slack.token)
    return SlackAdapter(token, slack.app_token, **settings | more)


def seen(slack: Slack, place: Place) -> list[str]:
    """The bot's messages as a person reads them: the looks of Markdown are not there."""
    return [unescaped(plain(text)) for text in slack.texts(place)]


def labels(slack: Slack, place: Place) -> list[str]:
    """What the buttons say that can be pressed there now."""
    return [label for _, labels in slack.buttons(place) for label in labels]
