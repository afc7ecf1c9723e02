"""What the stand-in tells an app has the fields of the recorded payloads, kind by kind."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

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


def mentioned_by_an_edit(slack: Slack) -> list[Delivery]:
    alice, general = slack.person("Alice"), slack.channel("general")
    slack.write(alice, "hello", general)
    (ts,) = general.messages
    return slack.edit(alice, ts, f"<@{slack.bot.id}> hello", general)[1:]


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


async def client(slack: Slack) -> AsyncWebClient:
    return AsyncWebClient(slack.token, base_url=f"{slack.url}/api/", retry_handlers=[])


async def of_the_bot(slack: Slack) -> list[Delivery]:
    alice, general = slack.person("Alice"), slack.channel("general")
    slack.write(alice, "root", general)
    (root,) = general.messages
    bot = await client(slack)
    posted = await bot.chat_postMessage(channel=general.id, thread_ts=root, text="one")
    await bot.chat_update(channel=general.id, ts=posted["ts"], text="two")
    return slack.deliveries[1:]


async def of_a_stream(slack: Slack) -> list[Delivery]:
    alice = slack.person("Alice")
    slack.write(alice, "root")
    (root,) = slack.chat(alice).messages
    bot, where = await client(slack), slack.chat(alice).id
    stream = await bot.chat_startStream(channel=where, thread_ts=root, markdown_text="one")
    slack.press_stop(alice, root)
    slack.streams(alice)[0].state = "in_progress"
    await bot.chat_stopStream(channel=where, ts=stream["ts"])
    return slack.deliveries[1:]


async def of_a_home(slack: Slack) -> list[Delivery]:
    alice = slack.person("Alice")
    view = {"type": "home", "blocks": [{"type": "divider"}]}
    await (await client(slack)).views_publish(user_id=alice.id, view=view)
    return [*slack.open_home(alice), *slack.open_home(alice, "messages")]


async def of_an_assistant(slack: Slack) -> list[Delivery]:
    return slack.open_assistant(slack.person("Alice"), beside=slack.channel("general"))


async def of_buttons(slack: Slack) -> list[Delivery]:
    alice, general = slack.person("Alice"), slack.channel("general")
    slack.write(alice, "root", general)
    (root,) = general.messages
    text = {"type": "plain_text", "text": "Yes", "emoji": True}
    button = {"type": "button", "action_id": "yes", "value": "1", "text": text}
    blocks = [{"type": "actions", "block_id": "card", "elements": [button]}]
    bot = await client(slack)
    given: Json = {"text": "May I?", "blocks": blocks}
    await bot.chat_postMessage(channel=general.id, thread_ts=root, **given)
    one = slack.choose(alice, "Yes", general)
    await bot.chat_postMessage(channel=slack.chat(alice).id, **given)
    two = slack.choose(alice, "Yes")
    await bot.chat_postEphemeral(channel=general.id, user=alice.id, thread_ts=root, **given)
    three = slack.choose(alice, "Yes", general)
    await bot.views_publish(user_id=alice.id, view={"type": "home", "blocks": blocks})
    return [one, two, three, slack.choose_at_home(alice, "Yes")]


async def of_shortcuts(slack: Slack) -> list[Delivery]:
    alice, general = slack.person("Alice"), slack.channel("general")
    slack.write(alice, "root", general)
    (root,) = general.messages
    slack.write(alice, "reply", general, thread=root)
    ts = list(general.messages)[-1]
    return [slack.shortcut(alice, "reset", ts, general), slack.shortcut(alice, "about")]


# Of what takes a call of the bot: which of the deliveries it is.
CALLED: dict[str, tuple[Callable[[Slack], Awaitable[list[Delivery]]], int]] = {
    "message_own": (of_the_bot, 0),
    "message_changed_own": (of_the_bot, 1),
    "message_stream_started": (of_a_stream, 0),
    "message_changed_session": (of_a_stream, 1),
    "agent_session_stopped": (of_a_stream, 2),
    "message_changed_stream_done": (of_a_stream, 3),
    "app_home_opened_home": (of_a_home, 0),
    "app_home_opened": (of_a_home, 1),
    "message_assistant_app_thread": (of_an_assistant, 0),
    "assistant_thread_started": (of_an_assistant, 1),
    "block_actions": (of_buttons, 0),
    "block_actions_im": (of_buttons, 1),
    "block_actions_ephemeral": (of_buttons, 2),
    "block_actions_home": (of_buttons, 3),
    "message_shortcut": (of_shortcuts, 0),
    "global_shortcut": (of_shortcuts, 1),
}


def shared(slack: Slack, text: str = "", **how: Any) -> list[Delivery]:
    return slack.share(slack.person("Alice"), "a.pdf", b"x", "application/pdf", text=text, **how)


def uninstalled(slack: Slack) -> list[Delivery]:
    slack.uninstall(slack.team)
    return slack.deliveries


MADE: dict[str, Callable[[Slack], list[Delivery]]] = {
    "message_im": direct,
    "message_channel": channel,
    "message_channel_mention": mention,
    "app_mention": lambda slack: mention(slack)[1:],
    "app_mention_edited": mentioned_by_an_edit,
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
    "file_share": lambda slack: shared(slack, "what is this?"),
    "file_share_without_text": shared,
    "file_share_connect": lambda slack: shared(slack, stub=True),
    "tokens_revoked": uninstalled,
    "app_uninstalled": lambda slack: uninstalled(slack)[1:],
    "slash_command": lambda slack: [slack.command(slack.person("Alice"), "/chinwag reset")],
    "member_left_channel": lambda slack: slack.kick(slack.channel("general")),
}


@pytest.mark.parametrize("name", sorted({*MADE, *CALLED}))
async def test_the_stand_in_tells_it_with_the_recorded_fields(slack: Slack, name: str) -> None:
    if name in MADE:
        delivery = MADE[name](slack)[0]
    else:
        make, number = CALLED[name]
        delivery = (await make(slack))[number]
    true, made = recorded(name), delivery.payload
    assert set(made) == set(true)
    true, made = true.get("event", true), made.get("event", made)
    for field in ("type", "subtype"):
        assert made.get(field) == true.get(field)
    for field, inner in true.items():
        if isinstance(inner, dict):
            assert set(made[field]) == set(inner), field
        else:
            assert field in made
    assert set(made) == set(true)


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
