"""The local Slack by Socket Mode, driven by the unmodified slack-bolt: events, acks, sockets."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_bolt.response import BoltResponse
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from playground.slack import (
    Answer,
    Delay,
    DeliverTwice,
    Delivery,
    Lost,
    ResetAfter,
    ResetBefore,
    Slack,
)

Json = dict[str, Any]


class Heard:
    """A bot that notes each event, and says yes to it."""

    def __init__(self, slack: Slack) -> None:
        client = AsyncWebClient(slack.token, base_url=f"{slack.url}/api/", retry_handlers=[])
        self.slack = slack
        self.app = AsyncApp(token=slack.token, client=client, ignoring_self_events_enabled=False)
        self.bodies: list[Json] = []
        self.headers: list[dict[str, Any]] = []
        self.refusing = 0

        @self.app.middleware
        async def note(
            body: Json, req: Any, next: Callable[[], Awaitable[BoltResponse]]
        ) -> BoltResponse:
            self.bodies.append(body)
            self.headers.append(dict(req.headers))
            if self.refusing:
                self.refusing -= 1
                return BoltResponse(status=500, body="")
            return await next()

        @self.app.event(re.compile(".*"))
        async def anything() -> None:
            pass

    @property
    def events(self) -> list[Json]:
        return [body["event"] for body in self.bodies]

    def kinds(self) -> list[str]:
        return [event["type"] for event in self.events]

    async def hears(self, count: int) -> list[Json]:
        await self.slack.until(lambda: len(self.bodies) >= count)
        await self.slack.settle()
        return self.events


@pytest.fixture
async def slack() -> AsyncIterator[Slack]:
    async with Slack(ack_seconds=1.0, retry_seconds=(0, 0.05, 0.05)) as running:
        yield running


@asynccontextmanager
async def socket(bot: Heard, **more: Any) -> AsyncIterator[AsyncSocketModeHandler]:
    more.setdefault("ping_interval", 0.2)
    handler = AsyncSocketModeHandler(bot.app, bot.slack.app_token, **more)
    await handler.connect_async()  # type: ignore[no-untyped-call]
    await bot.slack.until(lambda: bot.slack.connected)
    try:
        yield handler
    finally:
        await handler.close_async()  # type: ignore[no-untyped-call]


@pytest.fixture
async def bot(slack: Slack) -> AsyncIterator[Heard]:
    bot = Heard(slack)
    async with socket(bot):
        yield bot


async def open_url(slack: Slack, app_token: str | None = None) -> str:
    client = AsyncWebClient(base_url=f"{slack.url}/api/", retry_handlers=[])
    answer = await client.apps_connections_open(app_token=app_token or slack.app_token)
    return str(answer["url"])


# What is told


async def test_a_direct_message(slack: Slack, bot: Heard) -> None:
    alice = slack.person("Alice")
    (delivery,) = slack.write(alice, "a & <b>".replace("&", "&amp;").replace("<b>", "&lt;b&gt;"))
    (event,) = await bot.hears(1)
    direct = slack.chat(alice)
    assert (event["channel"], event["channel_type"]) == (direct.id, "im")
    assert (event["user"], event["team"]) == (alice.id, slack.team.id)
    assert event["text"] == "a &amp; &lt;b&gt;"
    assert event["blocks"][0]["elements"][0]["elements"] == [{"type": "text", "text": "a & <b>"}]
    assert event["ts"] == event["event_ts"] and "thread_ts" not in event
    body = bot.bodies[0]
    assert (body["team_id"], body["api_app_id"]) == (slack.team.id, slack.application.id)
    assert body["authorizations"][0]["user_id"] == slack.bot.id
    assert (body["event_id"], delivery.state) == (delivery.id, "acknowledged")


async def test_a_mention_is_two_events_of_one_post(slack: Slack, bot: Heard) -> None:
    alice, general = slack.person("Alice"), slack.channel("general")
    slack.write(alice, "hello", general, mention=True)
    message, mention = await bot.hears(2)
    assert (message["type"], mention["type"]) == ("message", "app_mention")
    assert "channel_type" not in mention
    for name in ("channel", "ts", "user", "text", "client_msg_id"):
        assert message[name] == mention[name]
    assert message["text"] == f"<@{slack.bot.id}> hello"
    ids = [body["event_id"] for body in bot.bodies]
    assert len(set(ids)) == 2


async def test_threads_say_their_root_and_whose_it_is(slack: Slack, bot: Heard) -> None:
    alice, bob, general = slack.person("Alice"), slack.person("Bob"), slack.channel("general")
    slack.write(alice, "hello", general)
    (root,) = general.messages
    slack.write(bob, "hi", general, thread=root, mention=True)
    _, reply, mention = await bot.hears(3)
    for event in (reply, mention):
        assert (event["thread_ts"], event["parent_user_id"]) == (root, alice.id)
    slack.write(bob, "aloud", general, thread=root, broadcast=True)
    event = (await bot.hears(4))[-1]
    assert (event["subtype"], event["root"]["ts"]) == ("thread_broadcast", root)
    with pytest.raises(ValueError, match="no message"):
        slack.write(bob, "?", general, thread="1.000000")


async def test_the_bot_hears_itself_and_other_bots(slack: Slack, bot: Heard) -> None:
    ci, general = slack.other_bot("CI"), slack.channel("general")
    posted = await bot.app.client.chat_postMessage(
        channel=general.id, text="mine", metadata={"event_type": "x", "event_payload": {}}
    )
    slack.write(ci, "built", general)
    slack.write(ci, "built again", general, classic=True, username="CI", user=None)
    mine, theirs, classic = await bot.hears(3)
    assert (mine["bot_id"], mine["ts"]) == (slack.bot.bot_id, posted["ts"])
    assert "metadata" not in mine
    assert (theirs["bot_id"], theirs["user"]) == (ci.bot_id, ci.id)
    assert (classic["subtype"], classic["username"]) == ("bot_message", "CI")


async def test_changes_and_deletions_are_hidden_messages(slack: Slack, bot: Heard) -> None:
    alice = slack.person("Alice")
    slack.write(alice, "frist")
    (ts,) = slack.chat(alice).messages
    slack.edit(alice, ts, "first")
    slack.delete(alice, ts)
    _, changed, gone = await bot.hears(3)
    assert (changed["subtype"], changed["hidden"]) == ("message_changed", True)
    assert changed["message"]["text"] == "first"
    assert changed["message"]["edited"]["user"] == alice.id
    assert changed["previous_message"]["text"] == "frist"
    assert changed["message"]["ts"] == changed["previous_message"]["ts"] == ts
    assert changed["ts"] != ts
    assert (gone["subtype"], gone["deleted_ts"]) == ("message_deleted", ts)
    assert gone["previous_message"]["text"] == "first"

    posted = await bot.app.client.chat_postMessage(channel=slack.chat(alice).id, text="one")
    await bot.app.client.chat_update(channel=posted["channel"], ts=posted["ts"], text="two")
    event = (await bot.hears(5))[-1]
    assert event["message"]["edited"]["user"] == slack.bot.bot_id
    with pytest.raises(ValueError, match="not from Alice"):
        slack.edit(alice, posted["ts"], "x")


async def test_an_edited_mention_is_a_mention_once_more(slack: Slack, bot: Heard) -> None:
    alice, general = slack.person("Alice"), slack.channel("general")
    slack.write(alice, "frist", general, mention=True)
    (ts,) = general.messages
    slack.edit(alice, ts, f"<@{slack.bot.id}> first", general)
    _, mention, changed, again = await bot.hears(4)
    assert (changed["subtype"], again["type"]) == ("message_changed", "app_mention")
    assert again["ts"] == mention["ts"] == ts
    assert again["edited"]["user"] == alice.id and "edited" not in mention
    slack.edit(alice, ts, "never mind", general)
    slack.write(alice, f"<@{slack.bot.id}> in private")
    assert [event["type"] for event in (await bot.hears(6))[4:]] == ["message", "message"]


async def test_the_bot_does_not_mention_itself(slack: Slack, bot: Heard) -> None:
    general = slack.channel("general")
    await bot.app.client.chat_postMessage(channel=general.id, text=f"I am <@{slack.bot.id}>")
    slack.write(slack.other_bot("CI"), "built", general, mention=True)
    assert [event["type"] for event in await bot.hears(3)] == ["message", "message", "app_mention"]


async def test_an_app_as_its_manifest_says(slack: Slack, bot: Heard) -> None:
    slack.configure(
        {
            "display_information": {"name": "Sums"},
            "features": {"slash_commands": [{"command": "/sum", "description": "x"}]},
            "oauth_config": {"scopes": {"bot": ["chat:write", "app_mentions:read"]}},
            "settings": {
                "socket_mode_enabled": True,
                "event_subscriptions": {"bot_events": ["app_mention", "message.im"]},
            },
        }
    )
    alice, general = slack.person("Alice"), slack.channel("general")
    (mention,) = slack.write(alice, "hello", general, mention=True)
    assert mention.name == "app_mention"
    assert slack.write(alice, "hello") == []  # subscribed to, without the scope im:history
    with pytest.raises(SlackApiError, match="missing_scope"):
        await bot.app.client.users_info(user=alice.id)
    with pytest.raises(ValueError, match="no command of Sums"):
        slack.command(alice, "/other")
    slack.configure(
        {"settings": {"event_subscriptions": {"request_url": "http://127.0.0.1:1/slack"}}}
    )
    delivery = slack.inject({"type": "anything"})
    await slack.until(lambda: bool(delivery.reasons))
    assert delivery.reasons[0] == "connection_failed"


async def test_a_deleted_root_is_a_change_to_a_tombstone(slack: Slack, bot: Heard) -> None:
    alice, general = slack.person("Alice"), slack.channel("general")
    slack.write(alice, "root", general)
    (root,) = general.messages
    slack.write(alice, "reply", general, thread=root)
    slack.delete(alice, root, general)
    event = (await bot.hears(3))[-1]
    assert (event["subtype"], event["message"]["subtype"]) == ("message_changed", "tombstone")


async def test_slack_itself_and_strangers(slack: Slack, bot: Heard) -> None:
    alice, other = slack.person("Alice"), slack.workspace("Partner")
    zoe = slack.person("Zoe", other)
    shared = slack.channel("shared", shared_with=[other])
    slack.system("You archived a channel", alice)
    slack.write(zoe, "hello", shared, mention=True)
    system, message, mention = await bot.hears(3)
    assert (system["user"], system["channel_type"]) == ("USLACK", "im")
    for event in (message, mention):
        assert (event["team"], event["user_team"]) == (other.id, other.id)
    assert bot.bodies[1]["is_ext_shared_channel"] is True
    assert bot.bodies[1]["authorizations"][0]["team_id"] == slack.team.id
    user = (await bot.app.client.users_info(user=zoe.id))["user"]
    assert user["team_id"] == other.id


async def test_where_the_bot_is_not_it_hears_nothing(slack: Slack, bot: Heard) -> None:
    alice = slack.person("Alice")
    general = slack.channel("general", [alice], with_bot=False)
    assert slack.write(alice, "hello", general, mention=True) == []
    slack.invite(general)
    slack.write(alice, "hello", general)
    slack.kick(general)
    joined, hello, left = await bot.hears(3)
    assert (joined["type"], joined["inviter"]) == ("member_joined_channel", alice.id)
    assert (hello["type"], left["type"]) == ("message", "member_left_channel")
    with pytest.raises(ValueError, match="not in"):
        slack.kick(general)


async def test_only_what_the_app_subscribes_to() -> None:
    async with Slack(events=frozenset({"app_mention", "message.im"})) as slack:
        bot = Heard(slack)
        async with socket(bot):
            alice, general = slack.person("Alice"), slack.channel("general")
            group = slack.group([alice])
            assert slack.write(alice, "no", general) == []
            assert slack.write(alice, "no", group) == []
            (mention,) = slack.write(alice, "yes", general, mention=True)
            (direct,) = slack.write(alice, "yes")
            await bot.hears(2)
            assert [mention.name, direct.name] == ["app_mention", "message"]


async def test_anything_can_be_told(slack: Slack, bot: Heard) -> None:
    slack.inject({"type": "something_new", "odd": [1]}, is_ext_shared_channel=True)
    (event,) = await bot.hears(1)
    assert event == {"type": "something_new", "odd": [1]}
    assert bot.bodies[0]["is_ext_shared_channel"] is True


# Acknowledgements


async def test_what_is_not_acknowledged_comes_again(slack: Slack, bot: Heard) -> None:
    bot.refusing = 2
    (delivery,) = slack.write(slack.person("Alice"), "hello")
    await bot.hears(3)
    assert [body["event_id"] for body in bot.bodies] == [delivery.id] * 3
    assert (delivery.attempts, delivery.reasons) == (3, ["timeout", "timeout"])
    retries = [headers.get("x-slack-retry-num") for headers in bot.headers]
    assert retries == [["0"], ["1"], ["2"]]
    assert bot.headers[2]["x-slack-retry-reason"] == ["timeout"]


async def test_after_three_retries_slack_gives_up(slack: Slack, bot: Heard) -> None:
    bot.refusing = 99
    (delivery,) = slack.write(slack.person("Alice"), "hello")
    await slack.until(lambda: delivery.settled, 10)
    assert (delivery.attempts, delivery.state) == (4, "given up")


async def test_faults_of_deliveries(slack: Slack, bot: Heard) -> None:
    alice = slack.person("Alice")
    slack.fault("events/message", DeliverTwice())
    slack.write(alice, "twice")
    await bot.hears(2)
    slack.fault("events/*", Lost())
    (lost,) = slack.write(alice, "lost")
    (told,) = slack.write(alice, "told")
    events = await bot.hears(3)
    assert [event["text"] for event in events] == ["twice", "twice", "told"]
    assert (lost.state, told.state) == ("given up", "acknowledged")
    slack.redeliver(told)
    assert (await bot.hears(4))[-1]["text"] == "told"


async def test_what_happens_while_nobody_listens_waits(slack: Slack) -> None:
    bot = Heard(slack)
    slack.write(slack.person("Alice"), "early")
    assert slack.unacknowledged() and not slack.connected
    async with socket(bot):
        (event,) = await bot.hears(1)
    assert event["text"] == "early"


async def test_fifty_at_once_in_order(slack: Slack, bot: Heard) -> None:
    slack.ack_seconds = 10
    alice, general = slack.person("Alice"), slack.channel("general")
    deliveries: list[Delivery] = []
    for number in range(50):
        deliveries += slack.write(alice, str(number), general)
    events = await bot.hears(50)
    assert [event["text"] for event in events] == [str(n) for n in range(50)]
    assert len({event["ts"] for event in events}) == 50
    assert [event["ts"] for event in events] == sorted(event["ts"] for event in events)


# Sockets


async def test_a_bad_app_token(slack: Slack) -> None:
    with pytest.raises(SlackApiError) as caught:
        await open_url(slack, "xapp-other")
    assert caught.value.response["error"] == "invalid_auth"


async def test_a_ticket_opens_one_connection(slack: Slack) -> None:
    url = await open_url(slack)
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(url) as ws:
            hello = await ws.receive_json()
            assert (hello["type"], hello["num_connections"]) == ("hello", 1)
            assert hello["connection_info"] == {"app_id": slack.application.id}
            with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                await session.ws_connect(url)
            assert caught.value.status == 403
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await session.ws_connect(f"{slack.sockets.url}?ticket=invented")
    assert slack.sockets.refused == 2


async def test_the_eleventh_connection_is_one_too_many(slack: Slack) -> None:
    async with aiohttp.ClientSession() as session:
        open_ones = [await session.ws_connect(await open_url(slack)) for _ in range(10)]
        eleventh = await session.ws_connect(await open_url(slack))
        said = await eleventh.receive_json()
        assert (said["type"], said["reason"]) == ("disconnect", "too_many_websockets")
        assert len(slack.sockets.connections) == 10
        for ws in (*open_ones, eleventh):
            await ws.close()


async def test_a_refresh_and_bolt_comes_back(slack: Slack, bot: Heard) -> None:
    await slack.sockets.farewell("refresh_requested")
    await slack.until(lambda: slack.sockets.opened >= 2 and slack.connected)
    slack.write(slack.person("Alice"), "still there?")
    # More than once when the client opens two sockets and drops one: it hears of the refresh twice.
    events = await bot.hears(1)
    assert {event["text"] for event in events} == {"still there?"}


async def test_a_warning_leaves_the_socket_open(slack: Slack) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(await open_url(slack)) as ws:
            await ws.receive_json()
            await slack.sockets.farewell("warning")
            assert (await ws.receive_json())["reason"] == "warning"
            slack.write(slack.person("Alice"), "over it")
            envelope = await ws.receive_json()
            assert (envelope["type"], envelope["retry_attempt"]) == ("events_api", 0)
            assert envelope["accepts_response_payload"] is False
            await ws.send_json({"envelope_id": envelope["envelope_id"]})
            await slack.settle()


async def test_a_cut_socket_and_its_envelopes_go_elsewhere(slack: Slack) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(await open_url(slack)) as first:
            await first.receive_json()
            (delivery,) = slack.write(slack.person("Alice"), "hello")
            await first.receive_json()
            async with session.ws_connect(await open_url(slack)) as second:
                assert (await second.receive_json())["num_connections"] == 2
                slack.sockets.connections[0].transport.abort()  # type: ignore[union-attr]
                again = await second.receive_json()
                assert again["payload"]["event_id"] == delivery.id
                assert (again["retry_attempt"], again["retry_reason"]) == (1, "timeout")
                await second.send_json({"envelope_id": again["envelope_id"]})
                await slack.settle()


async def test_a_connection_that_sleeps(slack: Slack) -> None:
    """As behind a router that has forgotten it: bolt finds out by its pings."""
    bot = Heard(slack)
    async with socket(bot, ping_interval=0.1):
        slack.sockets.sleep()
        await slack.until(lambda: slack.sockets.opened >= 2)
        slack.write(slack.person("Alice"), "hello")
        events = await bot.hears(1)
        assert events[-1]["text"] == "hello"


async def test_bolt_wedges_when_its_ticket_is_burnt(slack: Slack) -> None:
    """Why an adapter has to supervise: the client tries the same ticket for ever."""
    bot = Heard(slack)
    async with socket(bot, ping_interval=0.05) as handler:
        slack.fault("socket", Answer(503))
        await slack.sockets.farewell("refresh_requested")
        await slack.until(lambda: slack.sockets.refused >= 4)
        assert not await handler.client.is_connected()
        assert len(slack.called("apps.connections.open")) == 2


async def test_a_handshake_that_is_refused_cut_or_slow(slack: Slack) -> None:
    async with aiohttp.ClientSession() as session:
        url = await open_url(slack)
        slack.fault("socket", ResetBefore(), times=2)  # the client itself tries once more
        with pytest.raises(aiohttp.ClientError):
            await session.ws_connect(url)
        slack.fault("socket", Delay(0.01))
        async with session.ws_connect(url) as ws:  # the ticket was still good
            assert (await ws.receive_json())["type"] == "hello"
        slack.fault("socket", Answer(409))
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect(await open_url(slack))
        assert caught.value.status == 409


async def test_the_sockets_are_cut(slack: Slack, bot: Heard) -> None:
    slack.sockets.cut()
    await slack.until(lambda: slack.sockets.opened >= 2 and slack.connected)
    slack.write(slack.person("Alice"), "back?")
    assert {event["text"] for event in await bot.hears(1)} == {"back?"}


async def test_a_handshake_that_ends_in_silence(slack: Slack) -> None:
    slack.fault("socket", ResetAfter())
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(await open_url(slack)) as ws:
            assert (await ws.receive()).type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
    assert not slack.connected


async def test_listeners_hear_of_everything(slack: Slack) -> None:
    told: list[str] = []
    slack.listeners.append(lambda event, details: told.append(event))
    bot = Heard(slack)
    async with socket(bot):
        slack.write(slack.person("Alice"), "hello")
        await bot.hears(1)
    for event in ("called", "connected", "written", "queued", "delivered", "acknowledged"):
        assert event in told
