"""What the stand-in tells an app has the fields of the recorded payloads, kind by kind."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from playground.slack import Delivery, Slack

Json = dict[str, Any]
RECORDED = Path(__file__).parents[1] / "payloads" / "slack"
NAMES = sorted(path.stem for path in RECORDED.glob("*.json"))


def recorded(name: str) -> Json:
    payload: Json = json.loads((RECORDED / f"{name}.json").read_text("utf-8"))
    return payload


@pytest.fixture
async def slack() -> AsyncIterator[Slack]:
    async with Slack() as running:
        yield running


def direct(slack: Slack) -> list[Delivery]:
    return slack.write(slack.person("Alice"), "hello")


def channel(slack: Slack) -> list[Delivery]:
    return slack.write(slack.person("Alice"), "hello", slack.channel("general"))


def mention(slack: Slack) -> list[Delivery]:
    return slack.write(slack.person("Alice"), "hi", slack.channel("general"), mention=True)


def thread(slack: Slack, **how: Any) -> list[Delivery]:
    alice, general = slack.person("Alice"), slack.channel("general")
    slack.write(alice, "root", general)
    (root,) = general.messages
    return slack.write(alice, "reply", general, thread=root, **how)


def other_bot(slack: Slack) -> list[Delivery]:
    return slack.write(slack.other_bot("CI"), "built", slack.channel("general"))


def changed(slack: Slack) -> list[Delivery]:
    alice = slack.person("Alice")
    slack.write(alice, "frist")
    (ts,) = slack.chat(alice).messages
    return slack.edit(alice, ts, "first")


def gone(slack: Slack) -> list[Delivery]:
    alice = slack.person("Alice")
    slack.write(alice, "mistake")
    (ts,) = slack.chat(alice).messages
    return slack.delete(alice, ts)


def stranger(slack: Slack) -> list[Delivery]:
    other = slack.workspace("Partner")
    shared = slack.channel("shared", shared_with=[other])
    return slack.write(slack.person("Zoe", other), "hello", shared, mention=True)


def joined(slack: Slack) -> list[Delivery]:
    return slack.invite(slack.channel("general", [slack.person("Alice")], with_bot=False))


MADE: dict[str, Callable[[Slack], list[Delivery]]] = {
    "message_im": direct,
    "message_channel": channel,
    "message_channel_mention": mention,
    "app_mention": lambda slack: mention(slack)[1:],
    "message_thread": thread,
    "app_mention_thread": lambda slack: thread(slack, mention=True)[1:],
    "thread_broadcast": lambda slack: thread(slack, broadcast=True),
    "message_other_bot": other_bot,
    "message_changed": changed,
    "message_deleted": gone,
    "message_uslack": lambda slack: slack.system("x", slack.person("Alice")),
    "message_connect_stranger": stranger,
    "app_mention_connect_stranger": lambda slack: stranger(slack)[1:],
    "member_joined_channel": joined,
    "member_left_channel": lambda slack: slack.kick(slack.channel("general")),
}


@pytest.mark.parametrize("name", sorted(MADE))
async def test_the_stand_in_tells_it_with_the_recorded_fields(slack: Slack, name: str) -> None:
    (delivery, *_) = MADE[name](slack)
    true, made = recorded(name), delivery.payload
    assert set(made) == set(true)
    assert set(made["event"]) == set(true["event"])
    assert made["event"]["type"] == true["event"]["type"]
    assert made["event"].get("subtype") == true["event"].get("subtype")
    for inner in ("message", "previous_message", "bot_profile", "user_profile"):
        if inner in true["event"]:
            assert set(made["event"][inner]) == set(true["event"][inner])


@pytest.mark.parametrize("name", NAMES)
def test_what_is_recorded_is_whole(name: str) -> None:
    payload = recorded(name)
    assert json.dumps(payload, indent=2, ensure_ascii=False) + "\n" == (
        RECORDED / f"{name}.json"
    ).read_text("utf-8")
    assert payload.get("type") or payload.get("command")
    if payload.get("type") == "event_callback":
        assert payload["event_id"] and payload["event"]["type"] and payload["event"]["event_ts"]


def test_twins_have_one_time_stamp_and_two_ids() -> None:
    for message, twin in (
        ("message_channel_mention", "app_mention"),
        ("file_share_mention", "app_mention_file"),
        ("message_connect_stranger", "app_mention_connect_stranger"),
    ):
        one, two = recorded(message), recorded(twin)
        assert one["event"]["ts"] == two["event"]["ts"]
        assert one["event"]["channel"] == two["event"]["channel"]
        assert one["event_id"] != two["event_id"]
