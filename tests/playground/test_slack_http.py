"""The local Slack over HTTP: signed requests to the unmodified slack-bolt; commands and buttons."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.adapter.starlette.async_handler import AsyncSlackRequestHandler
from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncRespond
from slack_bolt.response import BoltResponse
from slack_sdk.signature import SignatureVerifier
from slack_sdk.web.async_client import AsyncWebClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from playground.serve import serving
from playground.slack import Answer, Person, ResetAfter, Slack

Json = dict[str, Any]
BUTTONS: list[Json] = [
    {"type": "section", "text": {"type": "mrkdwn", "text": "May I?"}},
    {
        "type": "actions",
        "block_id": "card",
        "elements": [
            {
                "type": "button",
                "action_id": "yes",
                "value": "a1",
                "text": {"type": "plain_text", "text": "Yes"},
            },
            {"type": "button", "action_id": "no", "text": {"type": "plain_text", "text": "No"}},
        ],
    },
]


class Bot:
    """A bot on HTTP that answers commands and buttons, and notes what reaches it."""

    def __init__(self, slack: Slack) -> None:
        client = AsyncWebClient(slack.token, base_url=f"{slack.url}/api/", retry_handlers=[])
        self.slack = slack
        self.app = AsyncApp(client=client, signing_secret=slack.signing_secret)
        self.bodies: list[Json] = []
        self.headers: list[Json] = []
        self.answers: list[Response] = []
        handler = AsyncSlackRequestHandler(self.app)

        async def handle(request: Request) -> Response:
            if self.answers:
                self.headers.append(dict(request.headers))
                return self.answers.pop(0)
            return await handler.handle(request)

        self.web = Starlette(routes=[Route("/slack/events", handle, methods=["POST"])])

        @self.app.middleware
        async def note(
            body: Json, req: Any, next: Callable[[], Awaitable[BoltResponse]]
        ) -> BoltResponse:
            self.bodies.append(body)
            self.headers.append({name: values[0] for name, values in req.headers.items()})
            return await next()

        @self.app.event(re.compile(".*"))
        async def anything() -> None:
            pass

        @self.app.command("/hello")
        async def hello(ack: AsyncAck, respond: AsyncRespond, command: Json) -> None:
            await ack("one moment")
            await respond(f"hello {command['text']}", response_type="in_channel")

        @self.app.action("yes")
        async def yes(ack: AsyncAck, respond: AsyncRespond) -> None:
            await ack()
            await respond("Done.", replace_original=True)

        @self.app.shortcut("reset")
        async def reset(ack: AsyncAck, respond: AsyncRespond) -> None:
            await ack()
            await respond("Forgotten.")


@pytest.fixture
async def slack() -> AsyncIterator[Slack]:
    async with Slack(ack_seconds=1.0, retry_seconds=(0, 0.02, 0.02)) as running:
        yield running


@pytest.fixture
async def bot(slack: Slack) -> AsyncIterator[Bot]:
    bot = Bot(slack)
    async with serving(bot.web) as url:
        slack.deliver_to(f"{url}/slack/events")
        yield bot


@pytest.fixture
def alice(slack: Slack) -> Person:
    return slack.person("Alice")


@asynccontextmanager
async def socket(bot: Bot) -> AsyncIterator[None]:
    bot.slack.deliver_to(None)
    handler = AsyncSocketModeHandler(bot.app, bot.slack.app_token, ping_interval=0.2)
    await handler.connect_async()  # type: ignore[no-untyped-call]
    try:
        await bot.slack.until(lambda: bot.slack.connected)
        yield
    finally:
        await handler.close_async()  # type: ignore[no-untyped-call]


# Events


async def test_events_are_signed_json(slack: Slack, bot: Bot, alice: Person) -> None:
    (delivery,) = slack.write(alice, "héllo")
    await slack.settle()
    assert (delivery.state, delivery.attempts) == ("acknowledged", 1)
    assert bot.bodies == [delivery.payload]
    headers = bot.headers[0]
    assert headers["content-type"] == "application/json"
    assert "x-slack-retry-num" not in headers
    verifier = SignatureVerifier(slack.signing_secret)
    body = json.dumps(delivery.payload)
    assert verifier.is_valid(
        body, headers["x-slack-request-timestamp"], headers["x-slack-signature"]
    )


async def test_a_wrong_secret_is_refused(slack: Slack, bot: Bot, alice: Person) -> None:
    slack.application.signing_secret = "another"
    (delivery,) = slack.write(alice, "hello")
    await slack.until(lambda: delivery.settled)
    assert (delivery.state, delivery.reasons) == ("given up", ["http_error"] * 4)
    assert bot.bodies == []


async def test_forged_and_old_requests(slack: Slack, bot: Bot) -> None:
    body = json.dumps({"type": "event_callback", "event": {"type": "x"}}).encode()
    assert (await slack.knock(body))[0] == 200
    assert (await slack.knock(body, timestamp=int(time.time()) - 301))[0] == 401
    assert (await slack.knock(body, headers={}))[0] == 401
    bad = {"X-Slack-Signature": "v0=0", "X-Slack-Request-Timestamp": str(int(time.time()))}
    assert (await slack.knock(body, headers=bad))[0] == 401


async def test_retries_say_which_and_why(slack: Slack, bot: Bot, alice: Person) -> None:
    bot.answers += [PlainTextResponse("", 500), PlainTextResponse("", 302)]
    (delivery,) = slack.write(alice, "hello")
    await slack.settle()
    assert delivery.reasons == ["http_error", "too_many_redirects"]
    numbers = [headers.get("x-slack-retry-num") for headers in bot.headers]
    assert numbers == [None, "1", "2"]
    assert bot.headers[2]["x-slack-retry-reason"] == "too_many_redirects"


async def test_no_retry_when_the_app_says_so(slack: Slack, bot: Bot, alice: Person) -> None:
    bot.answers.append(PlainTextResponse("", 503, {"X-Slack-No-Retry": "1"}))
    (delivery,) = slack.write(alice, "hello")
    await slack.until(lambda: delivery.settled)
    assert (delivery.state, delivery.attempts) == ("given up", 1)


async def test_an_app_that_is_slow_or_away(slack: Slack, alice: Person) -> None:
    slow = asyncio.Event()

    async def handle(request: Request) -> Response:
        await slow.wait()
        return PlainTextResponse("")

    async with serving(Starlette(routes=[Route("/", handle, methods=["POST"])])) as url:
        slack.deliver_to(url)
        (delivery,) = slack.write(alice, "hello")
        await slack.until(lambda: bool(delivery.reasons))
        assert delivery.reasons == ["http_timeout"]
        slow.set()
        await slack.settle()
    (delivery,) = slack.write(alice, "anybody?")
    await slack.until(lambda: delivery.settled)
    assert delivery.reasons == ["connection_failed"] * 4


async def test_the_address_is_verified(slack: Slack, bot: Bot) -> None:
    assert await slack.verify()
    assert await slack.check_ssl() == 200
    bot.answers.append(PlainTextResponse("what?"))
    assert not await slack.verify()
    slack.deliver_to(None)
    with pytest.raises(ValueError, match="no address"):
        await slack.verify()


async def test_two_hundred_at_once(slack: Slack, bot: Bot, alice: Person) -> None:
    slack.ack_seconds = 10
    for number in range(200):
        slack.write(alice, str(number))
    await slack.settle(20)
    assert len(bot.bodies) == 200
    assert all(delivery.attempts == 1 for delivery in slack.deliveries)


# Slash commands


@pytest.mark.parametrize("by", ["http", "socket"])
async def test_a_command_and_its_answers(slack: Slack, bot: Bot, alice: Person, by: str) -> None:
    general = slack.channel("general")
    if by == "http":
        delivery = slack.command(alice, "/hello  big  world ", general)
        await slack.wait_for(1, general)
        await slack.settle()
    else:
        async with socket(bot):
            delivery = slack.command(alice, "/hello  big  world ", general)
            await slack.wait_for(1, general)
            await slack.settle()
    assert delivery.answer == {"text": "one moment"}
    assert [whisper.text for whisper in slack.whispers(general, alice)] == ["one moment"]
    assert slack.texts(general) == ["hello big  world"]
    body = bot.bodies[0]
    assert (body["command"], body["text"]) == ("/hello", "big  world")
    assert (body["channel_id"], body["channel_name"]) == (general.id, "general")
    assert body["is_enterprise_install"] == "false"
    assert body["response_url"].startswith(slack.url)


async def test_a_command_that_nobody_answers(slack: Slack, alice: Person) -> None:
    slack.deliver_to("http://127.0.0.1:1/")
    delivery = slack.command(alice, "/hello")
    await slack.until(lambda: delivery.settled)
    assert (delivery.state, delivery.attempts) == ("given up", 1)
    slack.application.commands = frozenset({"/hello"})
    with pytest.raises(ValueError, match="no command"):
        slack.command(alice, "/other")


async def post(url: str, **said: Any) -> tuple[int, str]:
    async with httpx.AsyncClient() as http:
        answer = await http.post(url, json=said)
        return answer.status_code, answer.text


async def test_a_response_url_takes_five_within_half_an_hour(alice: Person) -> None:
    now = [1_790_000_000.0]
    async with Slack(clock=lambda: now[0]) as slack:
        bob = slack.person("Bob")
        url = slack.command(bob, "/x").payload["response_url"]
        for number in range(5):
            assert await post(url, text=str(number)) == (200, "ok")
        assert await post(url, text="6") == (404, "used_url")
        assert [w.text for w in slack.whispers(bob)] == list("01234")
        late = slack.command(bob, "/x").payload["response_url"]
        now[0] += 1801
        assert await post(late, text="x") == (404, "expired_url")
        assert await post(f"{slack.url}/commands/a/b/c", text="x") == (404, "invalid_url")


async def test_faults_of_response_urls(slack: Slack, alice: Person) -> None:
    url = slack.command(alice, "/x").payload["response_url"]
    slack.fault("response_url", Answer(503, html=True))
    assert (await post(url, text="x"))[0] == 503
    slack.fault("response_url", ResetAfter())
    with pytest.raises(httpx.TransportError):
        await post(url, text="said")
    assert [whisper.text for whisper in slack.whispers(alice)] == ["said"]
    assert [call.status for call in slack.called("response_url")] == [503, 0]


# Buttons and shortcuts


async def test_a_button_and_the_message_it_changes(slack: Slack, bot: Bot, alice: Person) -> None:
    general = slack.channel("general")
    slack.write(alice, "question", general)
    root = next(iter(general.messages))
    posted = await bot.app.client.chat_postMessage(
        channel=general.id, thread_ts=root, text="May I?", blocks=BUTTONS
    )
    assert slack.buttons(general) == [(posted["ts"], ["Yes", "No"])]
    delivery = slack.choose(alice, "Yes", general)
    await slack.wait_for(lambda sent: sent[0].text == "Done.", general)
    payload = delivery.payload
    assert payload["actions"][0]["action_id"] == "yes"
    assert (payload["actions"][0]["value"], payload["actions"][0]["block_id"]) == ("a1", "card")
    assert payload["container"] == {
        "type": "message",
        "message_ts": posted["ts"],
        "channel_id": general.id,
        "is_ephemeral": False,
        "thread_ts": root,
    }
    assert payload["message"]["text"] == "May I?"
    assert slack.buttons(general) == []
    with pytest.raises(ValueError, match="no button"):
        slack.choose(alice, "Yes", general)
    stale = slack.press(alice, slack.sent(general)[0], "yes", "a1")
    assert stale.payload["actions"][0]["value"] == "a1"


async def test_a_button_that_only_one_person_sees(slack: Slack, bot: Bot, alice: Person) -> None:
    general = slack.channel("general", [alice])
    await bot.app.client.chat_postEphemeral(
        channel=general.id, user=alice.id, text="May I?", blocks=BUTTONS
    )
    delivery = slack.choose(alice, "Yes", general)
    assert delivery.payload["container"]["is_ephemeral"] is True
    assert "message" not in delivery.payload
    await slack.until(lambda: slack.whispers(general)[0].text == "Done.")
    url = delivery.payload["response_url"]
    assert await post(url, delete_original=True) == (200, "ok")
    assert slack.whispers(general) == []


async def test_feedback_buttons(slack: Slack, bot: Bot, alice: Person) -> None:
    def one(text: str, value: str) -> Json:
        return {"text": {"type": "plain_text", "text": text}, "value": value}

    element = {
        "type": "feedback_buttons",
        "action_id": "feedback",
        "positive_button": one("Good", "good"),
        "negative_button": one("Bad", "bad"),
    }
    blocks = [{"type": "context_actions", "elements": [element]}]
    await bot.app.client.chat_postMessage(
        channel=slack.chat(alice).id, text="x", blocks=[*BUTTONS, *blocks]
    )
    delivery = slack.choose(alice, "Bad")
    action = delivery.payload["actions"][0]
    assert (action["type"], action["value"]) == ("feedback_buttons", "bad")
    assert delivery.payload["channel"]["name"] == "directmessage"


async def test_a_button_at_home(slack: Slack, bot: Bot, alice: Person) -> None:
    with pytest.raises(ValueError, match="on the home of Alice"):
        slack.choose_at_home(alice, "Yes")
    view = {"type": "home", "blocks": BUTTONS}
    await bot.app.client.views_publish(user_id=alice.id, view=view)
    delivery = slack.choose_at_home(alice, "Yes")
    assert delivery.payload["container"]["type"] == "view"
    assert delivery.payload["view"]["app_installed_team_id"] == slack.team.id
    assert "response_url" not in delivery.payload
    await slack.until(lambda: delivery.settled)


async def test_shortcuts(slack: Slack, bot: Bot, alice: Person) -> None:
    general = slack.channel("general")
    slack.write(alice, "long ago", general)
    ts = next(iter(general.messages))
    delivery = slack.shortcut(alice, "reset", ts, general)
    await slack.until(lambda: bool(slack.whispers(general, alice)))
    assert (delivery.name, delivery.payload["message_ts"]) == ("message_action", ts)
    assert delivery.payload["message"]["text"] == "long ago"
    assert slack.whispers(general, alice)[0].text == "Forgotten."
    everywhere = slack.shortcut(alice, "reset")
    assert everywhere.payload["type"] == "shortcut"
    assert "response_url" not in everywhere.payload
    await slack.settle()
