"""Whole bots on the local Slack, as the documents of the unmodified slack-bolt write them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.adapter.starlette.async_handler import AsyncSlackRequestHandler
from slack_bolt.async_app import (
    AsyncApp,
    AsyncAssistant,
    AsyncSay,
    AsyncSayStream,
    AsyncSetStatus,
    AsyncSetSuggestedPrompts,
)
from slack_bolt.authorization import AuthorizeResult
from slack_sdk.web.async_client import AsyncWebClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from playground.serve import serving
from playground.slack import Slack

Json = dict[str, Any]


def web(slack: Slack, token: str | None) -> AsyncWebClient:
    return AsyncWebClient(token, base_url=f"{slack.url}/api/", retry_handlers=[])


@asynccontextmanager
async def by_socket(slack: Slack, app: AsyncApp) -> AsyncIterator[None]:
    handler = AsyncSocketModeHandler(app, slack.app_token, ping_interval=0.5)
    await handler.connect_async()  # type: ignore[no-untyped-call]
    try:
        await slack.until(lambda: slack.connected)
        yield
    finally:
        await handler.close_async()  # type: ignore[no-untyped-call]


@asynccontextmanager
async def by_http(slack: Slack, app: AsyncApp) -> AsyncIterator[None]:
    handler = AsyncSlackRequestHandler(app)

    async def handle(request: Request) -> Response:
        return await handler.handle(request)

    bot = Starlette(routes=[Route("/slack/events", handle, methods=["POST"])])
    async with serving(bot) as url:
        slack.deliver_to(f"{url}/slack/events")
        yield


async def test_an_assistant() -> None:
    async with Slack() as slack:
        app, assistant = AsyncApp(client=web(slack, slack.token)), AsyncAssistant()

        @assistant.thread_started
        async def started(say: AsyncSay, set_suggested_prompts: AsyncSetSuggestedPrompts) -> None:
            await say("What is it?")
            await set_suggested_prompts(prompts=["One", "Two"])

        @assistant.user_message
        async def said(payload: Json, say: AsyncSay, set_status: AsyncSetStatus) -> None:
            await set_status("is thinking")
            await say(f"You said {payload['text']}")

        app.use(assistant)
        async with by_socket(slack, app):
            alice, general = slack.person("Alice"), slack.channel("general")
            root, _ = slack.open_assistant(alice, beside=general)
            thread = root.event["ts"]
            await slack.until(lambda: bool(slack.prompts(alice, thread)))
            slack.write(alice, "hello", thread=thread)
            await slack.until(lambda: "You said hello" in slack.texts(alice))
            await slack.settle()
        assert slack.texts(alice) == ["What is it?", "You said hello"]
        assert {sent.thread for sent in slack.sent(alice)} == {thread}
        assert [prompt["title"] for prompt in slack.prompts(alice, thread)] == ["One", "Two"]
        assert slack.called("assistant.threads.setStatus")[0].params["status"] == "is thinking"
        assert slack.status(alice, thread) == ""


async def test_an_answer_that_streams() -> None:
    async with Slack() as slack:
        app = AsyncApp(client=web(slack, slack.token))

        @app.event("app_mention")
        async def mentioned(say_stream: AsyncSayStream) -> None:
            stream = await say_stream(buffer_size=1)
            for word in ("one ", "two ", "three"):
                await stream.append(markdown_text=word)
            await stream.stop()

        @app.event("message")
        async def anything() -> None:
            pass

        async with by_socket(slack, app):
            alice, general = slack.person("Alice"), slack.channel("general")
            slack.write(alice, "count", general, mention=True)
            root = next(iter(general.messages))
            done: Callable[[], bool] = lambda: any(  # noqa: E731
                stream.state == "completed" for stream in slack.streams(general)
            )
            await slack.until(done)
            await slack.settle()
        (sent,) = slack.sent(general)
        assert (sent.text, sent.thread) == ("one two three", root)
        assert slack.streams(general)[0].recipient == alice.id


async def test_one_bot_in_two_workspaces_with_the_same_channel() -> None:
    async with Slack() as slack:
        other = slack.workspace("Other", token="xoxb-other")
        tokens = {slack.team.id: slack.token, other.id: "xoxb-other"}

        async def authorize(team_id: str, **_: Any) -> AuthorizeResult:
            token = tokens[team_id]
            auth = await web(slack, token).auth_test()
            return AuthorizeResult.from_auth_test_response(auth_test_response=auth, bot_token=token)

        app = AsyncApp(
            client=web(slack, None), signing_secret=slack.signing_secret, authorize=authorize
        )

        @app.event("message")
        async def said(event: Json, say: AsyncSay) -> None:
            await say(f"you said {event['text']}")

        async with by_http(slack, app):
            here = slack.channel("general")
            there = slack.channel("general", team=other, channel_id=here.id)
            slack.write(slack.person("Alice"), "here", here)
            slack.write(slack.person("Bob", other), "there", there)
            await slack.wait_for(1, here)
            await slack.wait_for(1, there)
            await slack.settle()
        assert slack.texts(here) == ["you said here"]
        assert slack.texts(there) == ["you said there"]
