"""The stand-in for Claude, driven by the unmodified SDK over a real socket.

What is shown here is what the tests of the bot rely on: that the SDK takes it for the real service,
faults included, and that it refuses what the real service refuses.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from io import BytesIO
from typing import Any

import anthropic
import httpx2
import pytest
from PIL import Image

from playground.claude import Claude
from playground.claude_answers import (
    Answer,
    Cut,
    Empty,
    EndEarly,
    ErrorEvent,
    Fail,
    Pause,
    Raw,
    Refuse,
    Say,
    Silence,
    Think,
    ToolUse,
    UseTools,
    Whitespace,
    sign,
)
from playground.serve import serving

MODEL = "claude-opus-5-5"
CLOCK: Any = {"name": "clock", "description": "Tells the time.", "input_schema": {"type": "object"}}
ADD: Any = {"name": "add", "input_schema": {"type": "object"}}


@pytest.fixture
async def claude() -> AsyncIterator[Claude]:
    async with Claude() as stand_in:
        yield stand_in


@pytest.fixture
async def client(claude: Claude) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(
        base_url=claude.url, api_key="any", max_retries=0, timeout=5
    ) as sdk:
        yield sdk


def user(content: Any) -> Any:
    return {"role": "user", "content": content}


def bot(content: Any) -> Any:
    return {"role": "assistant", "content": content}


def text_of(message: anthropic.types.Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def stored(message: anthropic.types.Message) -> Any:
    """The content as a bot keeps it, and sends it back."""
    return [block.model_dump(mode="json", exclude_none=True) for block in message.content]


async def say(client: anthropic.AsyncAnthropic, *messages: Any, **more: Any) -> str:
    answer = await client.messages.create(
        model=MODEL, max_tokens=1000, messages=list(messages), **more
    )
    return text_of(answer)


async def stream(
    client: anthropic.AsyncAnthropic, *messages: Any, **more: Any
) -> anthropic.types.Message:
    sent = list(messages or [user("Hello")])
    async with client.messages.stream(
        model=MODEL, max_tokens=1000, messages=sent, **more
    ) as events:
        return await events.get_final_message()


# How answers arrive


async def test_streams_the_events_of_the_real_service(
    claude: Claude, client: anthropic.AsyncAnthropic
) -> None:
    claude.script(Say("One two\nthree."))
    async with client.messages.stream(model=MODEL, max_tokens=10, messages=[user("Hi")]) as events:
        kinds = [event.type async for event in events]
        message = await events.get_final_message()
    assert kinds == [
        "message_start",
        "content_block_start",
        *["content_block_delta", "text"] * 3,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert text_of(message) == "One two\nthree."
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens > 1
    assert message.model == MODEL


async def test_puts_names_and_a_ping_into_the_raw_stream(claude: Claude) -> None:
    claude.script(Say("Hi"))
    async with httpx2.AsyncClient() as http:
        answer = await http.post(
            f"{claude.url}/v1/messages",
            headers={"authorization": "Bearer k", "anthropic-version": "2026-10-21"},
            json={"model": MODEL, "max_tokens": 9, "messages": [user("Hi")], "stream": True},
        )
    events = [part.split("\n") for part in answer.text.removesuffix("\n\n").split("\n\n")]
    assert [name for name, _ in events] == [
        "event: message_start",
        "event: content_block_start",
        "event: ping",
        "event: content_block_delta",
        "event: content_block_stop",
        "event: message_delta",
        "event: message_stop",
    ]
    for name, data in events:
        assert json.loads(data.removeprefix("data: "))["type"] == name.removeprefix("event: ")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["request-id"].startswith("req_")


async def test_says_the_same_streamed_and_whole(
    claude: Claude, client: anthropic.AsyncAnthropic
) -> None:
    for answer in (
        Say("Long enough? No.", stop_reason="max_tokens"),
        Say("", deltas=("Héllo", " ", "wörld 🙂")),
        UseTools((ToolUse("clock", {"zone": "ü" * 40}, id="toolu_1"), ToolUse("b", id="toolu_2"))),
        UseTools((ToolUse("clock", id="toolu_1"),), text="Let me look.", thinking="Hm. Time?"),
        Think("Let me see.", "Forty-two."),
        Refuse("bio", "First you"),
        Pause("I am still searching."),
        Whitespace(),
        Empty(),
    ):
        claude.script(answer, answer)
        streamed = await stream(client)
        whole = await client.messages.create(model=MODEL, max_tokens=9, messages=[user("Hello")])
        assert stored(streamed) == stored(whole)
        assert streamed.stop_reason == whole.stop_reason
        assert streamed.stop_details == whole.stop_details
        assert streamed.usage.output_tokens == whole.usage.output_tokens


async def test_refuses_with_a_category(claude: Claude, client: anthropic.AsyncAnthropic) -> None:
    claude.script(Refuse("cyber"))
    message = await stream(client)
    assert message.stop_reason == "refusal"
    assert message.content == []
    assert message.stop_details is not None
    assert message.stop_details.category == "cyber"


async def test_sends_raw_bytes_in_the_given_chunks(
    claude: Claude, client: anthropic.AsyncAnthropic
) -> None:
    claude.script(Say("Grüße"))
    async with client.messages.with_streaming_response.create(
        model=MODEL, max_tokens=9, messages=[user("Hi")], stream=True
    ) as response:
        recorded = await response.read()
    odd = b": a comment\r\n\r\nevent: brand_new\r\ndata: {}\r\n\r\n" + recorded
    claude.script(Raw(tuple(odd[i : i + 1] for i in range(len(odd)))))
    assert text_of(await stream(client)) == "Grüße"


async def test_paces_the_pieces(claude: Claude, client: anthropic.AsyncAnthropic) -> None:
    claude.script(Say("a b c", pause=0.02))
    before = time.monotonic()
    await stream(client)
    assert time.monotonic() - before >= 0.06


async def test_takes_scripted_answers_in_order_then_thinks_for_itself(
    claude: Claude, client: anthropic.AsyncAnthropic
) -> None:
    claude.script(Say("first"), Say("second"))
    assert await say(client, user("x")) == "first"
    assert await say(client, user("x")) == "second"
    assert "“x”" in await say(client, user("x"))
    claude.brain = lambda request: Say(f"{len(request['messages'])} here")
    assert await say(client, user("x")) == "1 here"


async def test_records_what_it_received(claude: Claude, client: anthropic.AsyncAnthropic) -> None:
    await say(client, user("one"), system="Be kind.")
    await stream(client, user("two"))
    assert [request["messages"][0]["content"] for request in claude.requests] == ["one", "two"]
    assert claude.requests[0]["system"] == "Be kind."
    assert claude.requests[1]["stream"] is True
    assert [headers["authorization"] for headers in claude.headers] == ["Bearer any"] * 2


# What goes wrong


@pytest.mark.parametrize(
    ("status", "type", "error"),
    [
        (400, "invalid_request_error", anthropic.BadRequestError),
        (401, "authentication_error", anthropic.AuthenticationError),
        (403, "permission_error", anthropic.PermissionDeniedError),
        (429, "rate_limit_error", anthropic.RateLimitError),
        (500, "api_error", anthropic.InternalServerError),
        (529, "overloaded_error", anthropic.InternalServerError),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
async def test_fails_with_the_class_of_the_error(
    claude: Claude,
    client: anthropic.AsyncAnthropic,
    status: int,
    type: str,
    error: type[anthropic.APIStatusError],
    streaming: bool,
) -> None:
    claude.script(Fail(status, type, "Because.", retry_after=2))
    with pytest.raises(error, match=r"Because\.") as caught:
        await (stream(client) if streaming else say(client, user("Hi")))
    assert caught.value.status_code == status
    assert caught.value.type == type
    assert caught.value.response.headers["retry-after"] == "2"
    body: Any = caught.value.body
    assert caught.value.request_id == body["request_id"]


async def test_is_retried_by_the_sdk(claude: Claude, client: anthropic.AsyncAnthropic) -> None:
    claude.script(Fail(529, "overloaded_error", retry_after=0.01), Say("At last."))
    assert await say(client.with_options(max_retries=1), user("Hi")) == "At last."
    assert len(claude.requests) == 2


async def test_sends_an_error_in_the_stream(
    claude: Claude, client: anthropic.AsyncAnthropic
) -> None:
    claude.script(ErrorEvent(after_deltas=2), ErrorEvent())
    seen = ""
    with pytest.raises(anthropic.APIStatusError) as caught:
        async with client.messages.stream(
            model=MODEL, max_tokens=9, messages=[user("Hi")]
        ) as events:
            async for piece in events.text_stream:
                seen += piece
    assert seen == "This is"
    assert (caught.value.status_code, caught.value.type) == (200, "overloaded_error")
    with pytest.raises(anthropic.APIStatusError) as caught:
        await say(client, user("Hi"))
    assert caught.value.status_code == 529


async def test_cuts_the_line(claude: Claude, client: anthropic.AsyncAnthropic) -> None:
    claude.script(Cut(after_deltas=2), Cut(after_deltas=0), Cut(after_deltas=None), Cut())
    seen = ""
    with pytest.raises(httpx2.RemoteProtocolError):
        async with client.messages.stream(
            model=MODEL, max_tokens=9, messages=[user("Hi")]
        ) as events:
            async for piece in events.text_stream:
                seen += piece
    assert seen == "This is"
    with pytest.raises(httpx2.RemoteProtocolError):
        await stream(client)
    with pytest.raises(anthropic.APIConnectionError):
        await stream(client)
    with pytest.raises((anthropic.APIConnectionError, httpx2.RemoteProtocolError)):
        await say(client, user("Hi"))


async def test_ends_early(claude: Claude, client: anthropic.AsyncAnthropic) -> None:
    claude.script(EndEarly(after_deltas=3))
    message = await stream(client)
    assert text_of(message) == "This is an"
    assert message.stop_reason is None


@pytest.mark.parametrize("headers", [False, True])
async def test_keeps_silent_until_the_client_gives_up(
    claude: Claude, client: anthropic.AsyncAnthropic, headers: bool
) -> None:
    claude.script(Silence(60, headers=headers))
    with pytest.raises((anthropic.APITimeoutError, httpx2.ReadTimeout)):
        await stream(client.with_options(timeout=0.05))
    assert "Hello" in text_of(await stream(client))


async def test_hangs_up_after_a_silence(claude: Claude, client: anthropic.AsyncAnthropic) -> None:
    claude.script(Silence(0.02))
    with pytest.raises(anthropic.APIConnectionError):
        await stream(client)


async def test_stops_at_once_and_quietly_with_streams_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        Claude() as claude,
        anthropic.AsyncAnthropic(base_url=claude.url, api_key="k", max_retries=0) as client,
    ):
        all_open = asyncio.Event()
        answers: list[Answer] = [Silence(60), Silence(60, headers=True), Say("a b", pause=60)]

        def brain(_: Any) -> Answer:
            answer = answers.pop()
            if not answers:
                all_open.set()
            return answer

        claude.brain = brain
        open_calls = [asyncio.create_task(stream(client)) for _ in range(3)]
        await all_open.wait()
        ended = time.monotonic()
        await claude.__aexit__(None, None, None)
        errors = await asyncio.gather(*open_calls, return_exceptions=True)
    assert time.monotonic() - ended < 1
    assert all(isinstance(error, Exception) for error in errors)
    assert [record for record in caplog.records if record.name.startswith("uvicorn")] == []
    assert asyncio.all_tasks() == {asyncio.current_task()}
    with pytest.raises(RuntimeError, match="async with"):
        _ = claude.url


# What it refuses


async def test_wants_a_key(claude: Claude, client: anthropic.AsyncAnthropic) -> None:
    with pytest.raises(anthropic.AuthenticationError, match="invalid API key"):
        await say(client.with_options(api_key="wrong"), user("Hi"))
    with pytest.raises(anthropic.AuthenticationError):
        await client.with_options(api_key="wrong").models.list()
    async with httpx2.AsyncClient() as http:
        answer = await http.post(f"{claude.url}/v1/messages", json={})
    assert answer.status_code == 401
    assert answer.json()["error"]["type"] == "authentication_error"


async def test_knows_models(client: anthropic.AsyncAnthropic) -> None:
    assert MODEL in [model.id async for model in client.models.list()]
    assert (await client.models.retrieve(MODEL)).lifecycle == "active"
    with pytest.raises(anthropic.NotFoundError, match="claude-retired"):
        await client.models.retrieve("claude-retired")
    with pytest.raises(anthropic.NotFoundError) as caught:
        await client.messages.create(model="claude-retired", max_tokens=9, messages=[user("Hi")])
    assert caught.value.type == "not_found_error"


async def test_counts_tokens(client: anthropic.AsyncAnthropic) -> None:
    counted = await client.messages.count_tokens(model=MODEL, messages=[user("Hello" * 100)])
    answer = await client.messages.create(model=MODEL, max_tokens=9, messages=[user("Hello" * 100)])
    assert counted.input_tokens == answer.usage.input_tokens > 100


CALL = {"type": "tool_use", "id": "t1", "name": "gone", "input": {}}
OTHER_CALL = {**CALL, "id": "t2"}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
OTHER_RESULT = {**RESULT, "tool_use_id": "t2"}
TEXT = {"type": "text", "text": "Hi"}
MARKED = {**TEXT, "cache_control": {"type": "ephemeral"}}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": sign("Hm.")}
PICTURE = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}


@pytest.mark.parametrize(
    "messages",
    [
        [user("Hi"), user("again")],
        [user("Hi"), bot("a"), bot("b"), user("c")],
        [user([TEXT]), bot([CALL]), user([RESULT, TEXT])],
        [user([TEXT]), bot([TEXT, CALL, OTHER_CALL]), user([OTHER_RESULT, RESULT])],
        [user("Hi"), bot([THOUGHT, CALL]), user([{**RESULT, "content": [TEXT]}])],
        [user("Hi"), bot([CALL]), user([{"type": "tool_result", "tool_use_id": "t1"}])],
        [user([{"type": "image", "source": PICTURE}])],
        [user([MARKED] * 4)],
    ],
)
async def test_takes_what_is_in_order(
    client: anthropic.AsyncAnthropic, messages: list[Any]
) -> None:
    assert await say(client, *messages)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "at least one message"),
        ([bot("Hi"), user("Hi")], "first message must use"),
        ([{"role": "system", "content": "Hi"}], "'user' or 'assistant'"),
        ([user("Hi"), bot("Hello")], "prefill"),
        ([user("")], "non-empty content"),
        ([user([])], "non-empty content"),
        ([user("Hi"), bot(""), user("Hi")], "non-empty content"),
        ([user(" \n")], "non-whitespace"),
        ([user([{"type": "text", "text": ""}])], "must be non-empty"),
        ([user([{"type": "text", "text": " \n"}])], "non-whitespace"),
        ([user([{**TEXT, "parsed": 1}])], r"parsed: Extra inputs"),
        ([{**user("Hi"), "id": 1}], "messages.0.id: Extra inputs"),
        ([user([CALL])], "only be in `assistant`"),
        ([user("Hi"), bot([CALL]), user("Hi")], "without `tool_result` blocks"),
        ([user("Hi"), bot([CALL]), user([TEXT, RESULT])], "without `tool_result` blocks"),
        ([user("Hi"), bot([CALL, OTHER_CALL]), user([RESULT])], "t2"),
        ([user("Hi"), bot([CALL]), user([RESULT]), user([RESULT])], "unexpected `tool_use_id`"),
        ([user("Hi"), bot([CALL]), user([RESULT, RESULT])], "single result"),
        ([user([RESULT])], "unexpected `tool_use_id`"),
        ([user("Hi"), bot([CALL, CALL]), user([RESULT])], "unique"),
        ([user("Hi"), bot([{**CALL, "name": "a b"}]), user([RESULT])], "pattern"),
        ([user("Hi"), bot([CALL]), user([{**RESULT, "content": "", "is_error": True}])], "empty"),
        ([user("Hi"), bot([{**THOUGHT, "signature": "x"}, TEXT]), user("Hi")], "signature"),
        ([user("Hi"), bot([{**THOUGHT, "thinking": "Ha."}, TEXT]), user("Hi")], "signature"),
        ([user([{"type": "image", "source": {**PICTURE, "data": "R0lGODlh"}}])], "media type"),
        ([user([MARKED] * 5)], "maximum of 4"),
    ],
)
async def test_refuses_messages_out_of_order(
    claude: Claude, client: anthropic.AsyncAnthropic, messages: list[Any], reason: str
) -> None:
    claude.script(Say("for the next request"))
    with pytest.raises(anthropic.BadRequestError, match=reason) as caught:
        await say(client, *messages)
    assert caught.value.type == "invalid_request_error"
    assert len(claude.scripted) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": None}, "model: Field required"),
        ({"max_tokens": None}, "max_tokens: Field required"),
        ({"messages": None}, "messages: Field required"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_token": 1}, "max_token: Extra inputs"),
        ({"temperature": 0.5}, "temperature"),
        ({"system": [{"type": "text", "text": ""}]}, "system: text content blocks"),
        ({"tools": [CLOCK, CLOCK]}, "unique"),
        ({"tools": [{"name": "clock"}]}, "input_schema: Field required"),
        ({"tools": [CLOCK], "tool_choice": {"type": "tool", "name": "x"}}, "not found"),
        ({"tool_choice": {"type": "auto"}}, "while providing tools"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "not supported"),
        ({"metadata": {"user": "x"}}, "metadata.user"),
    ],
)
async def test_refuses_bad_fields(
    client: anthropic.AsyncAnthropic, change: dict[str, Any], reason: str
) -> None:
    body = {"model": MODEL, "max_tokens": 9, "messages": [user("Hi")], **change}
    body = {name: value for name, value in body.items() if value is not None}
    with pytest.raises(anthropic.BadRequestError, match=reason):
        await client.post("/v1/messages", body=body, cast_to=object)


async def test_refuses_what_is_no_request(claude: Claude) -> None:
    good = {"authorization": "Bearer k", "anthropic-version": "2026-10-21"}
    async with httpx2.AsyncClient(base_url=claude.url) as http:
        for body in (b"{", b"[]", b"\xff", b'"x"'):
            answer = await http.post("/v1/messages", headers=good, content=body)
            assert answer.status_code == 400
        answer = await http.post("/v1/messages", headers={"authorization": "Bearer k"}, json={})
        assert "anthropic-version" in answer.json()["error"]["message"]
        lone = (
            '{"model":"claude-x","max_tokens":1,"messages":[{"role":"user","content":"\\ud800"}]}'
        )
        answer = await http.post("/v1/messages", headers=good, content=lone)
        assert answer.status_code == 400
        answer = await http.get("/v1/nothing", headers=good)
        assert answer.json()["error"]["type"] == "not_found_error"
        answer = await http.post("/v1/messages", headers=good, content=b" " * (32 * 2**20 + 1))
        assert answer.status_code == 413


async def test_refuses_a_prompt_longer_than_its_context() -> None:
    async with (
        Claude(context_tokens=100) as claude,
        anthropic.AsyncAnthropic(base_url=claude.url, api_key="k") as client,
    ):
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
            await say(client, user("word " * 100))


async def test_takes_thirty_megabytes(claude: Claude, client: anthropic.AsyncAnthropic) -> None:
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "A" * (30 * 2**20)}
    answer = await stream(client, user([{"type": "document", "source": pdf}, TEXT]))
    assert "1 attachment" in text_of(answer)
    assert answer.usage.input_tokens < 100


def picture(width: int, height: int, form: str = "PNG", **options: Any) -> dict[str, Any]:
    into = BytesIO()
    Image.new("L", (width, height)).save(into, form, **options)
    data = base64.b64encode(into.getvalue()).decode()
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": f"image/{form.lower()}", "data": data},
    }


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF"])
async def test_refuses_pictures_that_are_too_large(
    client: anthropic.AsyncAnthropic, form: str
) -> None:
    assert await say(client, user([picture(8000, 3, form)]))
    with pytest.raises(anthropic.BadRequestError, match="exceed max allowed size: 8000 pixels"):
        await say(client, user([picture(3, 8001, form)]))
    several = [picture(2001, 3, form)] * 20
    assert await say(client, user(several))
    with pytest.raises(anthropic.BadRequestError, match="many-image requests: 2000 pixels"):
        await say(client, user([*several, picture(3, 3, form)]))


async def test_refuses_a_picture_of_too_many_bytes(client: anthropic.AsyncAnthropic) -> None:
    source = {**PICTURE, "data": "iVBORw0KGgo" + "A" * (5 << 20) + "="}
    with pytest.raises(anthropic.BadRequestError, match="image exceeds 5 MB maximum"):
        await say(client, user([{"type": "image", "source": source}]))


async def test_takes_a_paused_turn_back(claude: Claude, client: anthropic.AsyncAnthropic) -> None:
    claude.script(Pause("Searching"), Say(" and found."))
    first = await stream(client)
    assert first.stop_reason == "pause_turn"
    second = await stream(client, user("Hello"), bot(stored(first)))
    assert text_of(second) == " and found."


async def test_takes_its_own_thinking_back(
    claude: Claude, client: anthropic.AsyncAnthropic
) -> None:
    claude.script(Think("Hm, hm.", "Yes."), Think("Hm, hm.", "Yes."))
    shown = await stream(client)
    hidden = await stream(client, thinking={"type": "adaptive", "display": "omitted"})
    assert stored(shown)[0] == {
        "type": "thinking",
        "thinking": "Hm, hm.",
        "signature": sign("Hm, hm."),
    }
    assert stored(hidden)[0]["thinking"] == ""
    for message in (shown, hidden):
        assert await say(client, user("Hello"), bot(stored(message)), user("Sure?"))


# What it thinks


async def test_knows_a_name_only_from_the_request(client: anthropic.AsyncAnthropic) -> None:
    told = user("Hi! My name is Ada, and I am tired.")
    assert await say(client, told) == "Nice to meet you, Ada."
    assert await say(client, user("What is my name?")) == "I do not know your name yet."
    assert await say(client, told, bot("Hello"), user("what IS my name")) == "Your name is Ada."
    later = [told, bot("Hello"), user("Call me Zoë."), bot("Well"), user("What's my name?")]
    assert await say(client, *later) == "Your name is Zoë."
    waited = user([{"type": "text", "text": "I'm Bo"}, {"type": "text", "text": "What's my name?"}])
    assert await say(client, waited) == "Your name is Bo."


async def test_leaves_out_the_sender_of_a_group(client: anthropic.AsyncAnthropic) -> None:
    asked = user([{"type": "text", "text": "<from>Alice</from>\nHello there"}])
    assert (await say(client, asked)).startswith("You said: “Hello there” ")


async def test_counts_and_quotes(client: anthropic.AsyncAnthropic) -> None:
    past = [user("apples"), bot("ok"), user("pears"), bot("ok")]
    assert "5 messages" in await say(client, *past, user("How many messages do you see?"))
    assert "“apples”" in await say(client, *past, user("What did I say first?"))
    assert "“pears”" in await say(client, *past, user("What did I say last?"))
    assert "first thing" in await say(client, user("What did I say first?"))


async def test_says_many_words_within_max_tokens(client: anthropic.AsyncAnthropic) -> None:
    assert len((await say(client, user("Say 300 words"))).split()) == 300
    short = await client.messages.create(
        model=MODEL, max_tokens=10, messages=[user("Say 300 words")]
    )
    assert short.stop_reason == "max_tokens"
    assert short.usage.output_tokens < 25


async def test_uses_a_tool_and_reads_its_result(client: anthropic.AsyncAnthropic) -> None:
    asked = user('Use add with {"a": 1, "b": {"c": 2}} and use clock.')
    call = await stream(client, asked, tools=[CLOCK, ADD])
    assert call.stop_reason == "tool_use"
    uses = [block for block in call.content if block.type == "tool_use"]
    assert [(use.name, use.input) for use in uses] == [
        ("add", {"a": 1, "b": {"c": 2}}),
        ("clock", {}),
    ]
    results = user(
        [
            {"type": "tool_result", "tool_use_id": uses[0].id, "content": "3"},
            {
                "type": "tool_result",
                "tool_use_id": uses[1].id,
                "content": [{"type": "text", "text": "broken"}],
                "is_error": True,
            },
        ]
    )
    answer = await say(client, asked, bot(stored(call)), results, tools=[CLOCK, ADD])
    assert answer == "The tool says: 3\nThe tool failed: broken"


async def test_tells_the_time_only_by_a_clock(client: anthropic.AsyncAnthropic) -> None:
    asked = user("What time is it?")
    assert (await stream(client, asked, tools=[CLOCK])).stop_reason == "tool_use"
    assert (await stream(client, asked, tools=[ADD])).stop_reason == "end_turn"
    none = {"type": "none"}
    assert (await stream(client, asked, tools=[CLOCK], tool_choice=none)).stop_reason == "end_turn"


async def test_ids_of_calls_differ_in_one_conversation(client: anthropic.AsyncAnthropic) -> None:
    asked = user("use clock")
    first = await stream(client, asked, tools=[CLOCK])
    (use,) = [block for block in first.content if block.type == "tool_use"]
    result = user([{"type": "tool_result", "tool_use_id": use.id, "content": "noon"}])
    history = [asked, bot(stored(first)), result, bot("Noon."), asked]
    second = await stream(client, *history, tools=[CLOCK])
    (other,) = [block for block in second.content if block.type == "tool_use"]
    assert other.id != use.id


# What the cache saves, by the rules of the documentation

LONG = "Be kind. " * 600  # 1,350 tokens; less than 1,024 are not kept


def marked(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]


async def read_from_cache(client: anthropic.AsyncAnthropic, *messages: Any, **options: Any) -> int:
    usage = (await stream(client, *messages, **options)).usage
    return usage.cache_read_input_tokens or 0


async def test_counts_what_the_cache_saved(client: anthropic.AsyncAnthropic) -> None:
    cache: Any = {"type": "ephemeral"}
    asked = [user("Hello"), bot("Hi"), user("One")]
    later = [*asked, bot("Two"), user("Three")]
    first = await stream(client, *asked, system=LONG, cache_control=cache)
    second = await stream(client, *later, system=LONG, cache_control=cache)
    other = await stream(client, user("New"), system=LONG, cache_control=cache)
    unmarked = await stream(client, *later, system=LONG)
    assert first.usage.cache_read_input_tokens == other.usage.cache_read_input_tokens == 0
    assert (first.usage.cache_creation_input_tokens or 0) > 1_300
    assert (second.usage.cache_read_input_tokens or 0) > 1_300
    assert second.usage.cache_creation_input_tokens == pytest.approx(12, abs=12)
    assert unmarked.usage.cache_read_input_tokens == 0
    assert unmarked.usage.input_tokens > 1_300


async def test_what_is_kept_is_kept_at_marks_only(client: anthropic.AsyncAnthropic) -> None:
    system: Any = marked(LONG)
    assert await read_from_cache(client, user("One"), system=LONG) == 0
    assert await read_from_cache(client, user("One"), system=system) == 0
    # Another question: the same up to the mark.
    assert await read_from_cache(client, user("Two"), system=system) > 1_300
    assert await read_from_cache(client, user("Two"), system=marked("!" + LONG)) == 0


async def test_what_is_short_is_not_kept(client: anthropic.AsyncAnthropic) -> None:
    for _ in range(2):
        assert await read_from_cache(client, user("One"), system=marked("Be kind. " * 400)) == 0


@pytest.mark.parametrize(("behind", "found"), [(1, True), (19, True), (20, False)])
async def test_from_a_mark_it_looks_at_twenty_blocks(
    client: anthropic.AsyncAnthropic, behind: int, found: bool
) -> None:
    """The marked block is the first of the twenty.

    :param behind: how many blocks there are behind the one that was kept
    """
    await stream(client, user(marked(LONG)))
    kept = {"type": "text", "text": LONG}
    more = [{"type": "text", "text": str(index)} for index in range(behind - 1)]
    read = await read_from_cache(client, user([kept, *more, *marked("So?")]))
    assert (read > 1_300) is found


async def test_another_choice_of_tools_is_another_conversation(
    client: anthropic.AsyncAnthropic,
) -> None:
    tools: Any = [{**CLOCK, "description": LONG, "cache_control": {"type": "ephemeral"}}]
    asked = user(marked("Hello " * 1_000))
    await stream(client, asked, tools=tools)
    assert await read_from_cache(client, asked, tools=tools) > 2_500
    none: Any = {"type": "none"}
    assert 1_300 < await read_from_cache(client, asked, tools=tools, tool_choice=none) < 1_600


# How it is served


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.com", "", "192.168.1.4"])
async def test_serves_this_machine_only(host: str) -> None:
    with pytest.raises(ValueError, match="serves only this machine"):
        async with Claude(host=host):
            pass


async def test_leaves_signal_handlers_alone(claude: Claude) -> None:
    before = signal.getsignal(signal.SIGTERM)
    async with serving(claude.app, host="localhost") as url:
        assert signal.getsignal(signal.SIGTERM) is before
        assert url.startswith("http://127.0.0.1:")


async def test_says_when_the_port_is_taken(claude: Claude) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(OSError, match="in use"),
    ):
        async with serving(claude.app, port=taken.getsockname()[1]):
            pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_runs_alone_until_it_is_told_to_stop(number: signal.Signals) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-W", "error", "-m", "playground.claude", "--pace", "0"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().strip()
    async with anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as client:
        assert "Hi" in await say(client, user("Hi"))
        process.send_signal(number)
        output, errors = await process.communicate()
    assert (process.returncode, output, errors) == (0, b"", b"")
