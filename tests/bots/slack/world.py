"""What the tests of Slack share: an adapter at the playground, and what people see there."""

from __future__ import annotations

from typing import Any

from bots.slack.adapter import SlackAdapter
from bots.slack.plain import plain
from bots.slack.rules import Rules
from core.commands import BUILT_IN
from playground.slack import Channel, Person, Slack
from playground.slack_deliveries import Delivery
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
    return SlackAdapter(slack.token, slack.app_token, **settings | more)


def seen(slack: Slack, place: Place) -> list[str]:
    """The bot's messages as a person reads them: the looks of Markdown are not there."""
    return [unescaped(plain(text)) for text in slack.texts(place)]


def buttons(slack: Slack, place: Place) -> list[tuple[str, dict[str, Any]]]:
    """The messages that have buttons, and those, oldest first."""
    return [
        (message.ts, element)
        for message in slack.sent(place)
        if not message.deleted
        for block in message.blocks
        if block["type"] == "actions"
        for element in block["elements"]
    ]


def press(slack: Slack, who: Person, label: str, place: Place) -> Delivery:
    """They press the newest button with this label."""
    channel = slack.chat(place)
    ts, element = [(ts, one) for ts, one in buttons(slack, place) if one["text"]["text"] == label][
        -1
    ]
    message = channel.sent[ts].raw
    payload = {
        "type": "block_actions",
        "user": {"id": who.id, "username": who.name.lower(), "team_id": who.team},
        "api_app_id": slack.application.id,
        "container": {
            "type": "message",
            "message_ts": ts,
            "channel_id": channel.id,
            "is_ephemeral": False,
        },
        "trigger_id": f"{ts}.trigger",
        "team": {"id": channel.team, "domain": "acme"},
        "channel": {"id": channel.id, "name": channel.name},
        "message": message,
        "response_url": f"{slack.url}/actions/x",
        "actions": [{**element, "action_ts": slack._world.ts()}],
    }
    return slack._deliveries.add(
        Delivery(slack._world.name("Iv"), "interactive", "block_actions", payload)
    )
