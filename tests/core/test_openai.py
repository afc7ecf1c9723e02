"""OpenAI: the unmodified SDK below, over a real socket, against the stand-in of the playground.

The oracle at the end: what a stream holds, `core.openai_chat` reads out of it as the SDK does.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from core.errors import ModelRefusedKey, ModelUnavailable
from core.messages import Message, decode_blocks, encode_blocks, text_block
from core.model import Request, ToolCall
from core.openai import OpenAI
from core.openai_chat import Assembly, encode_request
from core.snapshot import Usage
from playground.claude_answers import (
    Answer,
    Cut,
    EndEarly,
    ErrorEvent,
    Fail,
    Raw,
    Refuse,
    Say,
    Silence,
    Think,
    ToolUse,
    UseTools,
)
from playground.openai import OpenAI as StandIn
from tests.core.model_contract import Failure, FarEnd, ModelClientContract, spoken, weather
from tests.core.open_connections import OpenConnections

MODEL = "gpt-playground"
KEY = "sk-proj-a-very-secret-key"
FAILURES: dict[Failure, Answer] = {
    "overloaded": Fail(503, "server_overloaded"),
    "broken": Fail(500, "server_error"),
    "rate_limit": Fail(429, "rate_limit_exceeded"),
    "rate_limit_for_2s": Fail(429, "rate_limit_exceeded", retry_after=2),
    "wrong_key": Fail(401, "invalid_api_key", f"Incorrect API key provided: {KEY}."),
    "no_permission": Fail(403, "unsupported_country"),
    "no_money": Fail(402, "billing_not_active"),
    "no_credit": Fail(429, "insufficient_quota", "You exceeded your current quota."),
    "no_model": Fail(404, "model_not_found"),
    "rejected": Fail(400, "context_length_exceeded", "This model's maximum context length is ..."),
    "too_large": Fail(413, "request_too_large"),
    "no_answer": Cut(None),
    "cut": Cut(),
    "ends_early": EndEarly(),
    "fails_in_the_middle": ErrorEvent(),
    "silent": Silence(5),
    "silent_in_the_middle": Silence(5, headers=True),
}


class StandInFarEnd:
    model = MODEL
    secret = KEY

    def __init__(self, stand_in: StandIn) -> None:
        self.stand_in = stand_in
        self.connections = OpenConnections()
        stand_in.app.add_middleware(self.connections.middleware)

    def client(self) -> OpenAI:
        return OpenAI(KEY, self.stand_in.url)

    def impatient(self) -> OpenAI:
        return OpenAI(KEY, self.stand_in.url, silence=0.1)

    def lost(self) -> OpenAI:
        return OpenAI(KEY, "http://127.0.0.1:1")

    def keyless(self) -> OpenAI:
        return OpenAI(None)

    def says(self, text: str) -> None:
        self.stand_in.script(Say(text))

    def is_cut_short(self, text: str) -> None:
        self.stand_in.script(Say(text, stop_reason="max_tokens"))

    def calls(self, *wanted: ToolCall, text: str = "") -> None:
        uses = tuple(ToolUse(call.name, call.input, call.id) for call in wanted)
        self.stand_in.script(UseTools(uses, text=text))

    def thinks(self, thinking: str, text: str) -> None:
        self.stand_in.script(Think(thinking, text))

    def fails(self, failure: Failure) -> None:
        self.stand_in.script(FAILURES[failure])

    def answers_slowly(self) -> None:
        self.stand_in.script(Say("so " * 1000, pause=0.05))

    def asked(self) -> int:
        return len(self.stand_in.requests)

    async def nobody_listens(self) -> bool:
        return await self.connections.all_closed()


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def far_end() -> AsyncIterator[StandInFarEnd]:
    stand_in = StandIn()
    far_end = StandInFarEnd(stand_in)
    async with stand_in:
        yield far_end


@pytest.fixture
async def client(far_end: StandInFarEnd) -> AsyncIterator[OpenAI]:
    client = far_end.client()
    yield client
    await client.close()


class TestContract(ModelClientContract):
    @pytest.fixture
    async def far_end(self) -> AsyncIterator[FarEnd]:
        stand_in = StandIn()
        far_end = StandInFarEnd(stand_in)
        async with stand_in:
            yield far_end


def ask(*messages: Message, **more: Any) -> Request:
    said = messages or (spoken("user", "Hello"),)
    return Request(**{"model": MODEL, "system": (), "messages": said, **more})


def row(role: str, *blocks: dict[str, object]) -> Message:
    return Message(
        seq=1,
        role="user" if role == "user" else "assistant",
        blocks=encode_blocks(blocks),
        at=0,
    )


# ---------------------------------------------------------------------- what is sent


async def test_what_a_request_is(far_end: StandInFarEnd, client: OpenAI) -> None:
    await client.answer(
        ask(
            spoken("user", "Hi"),
            spoken("assistant", "Yes?"),
            spoken("user", "How?"),
            system=("Be brief.", "Be kind."),
            tools=(weather.json,),
            max_tokens=77,
            thinking="adaptive",
            effort="max",
        )
    )
    (sent,) = far_end.stand_in.requests
    schema = json.loads(bytes(weather.json))
    assert sent == {
        "model": MODEL,
        "max_tokens": 77,
        "stream": True,
        "stream_options": {"include_usage": True},
        "reasoning_effort": "high",
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "weather",
                    "description": "The weather in a city.",
                    "parameters": schema["input_schema"],
                },
            }
        ],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {"role": "assistant", "content": "Yes?"},
            {"role": "user", "content": [{"type": "text", "text": "How?"}]},
        ],
    }
    assert far_end.stand_in.headers[0]["authorization"] == f"Bearer {KEY}"


def sent(*messages: Message, **more: Any) -> list[dict[str, Any]]:
    body: dict[str, Any] = json.loads(encode_request(ask(*messages, **more)))
    assert body["max_completion_tokens"] == 4096
    messages_sent: list[dict[str, Any]] = body["messages"]
    return messages_sent


def test_calls_and_results() -> None:
    assert sent(
        spoken("user", "And?"),
        row(
            "assistant",
            {"type": "thinking", "thinking": "Hm.", "signature": "x"},
            text_block("I look."),
            {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Kiel"}},
            {"type": "tool_use", "id": "b", "name": "weather", "input": {}},
        ),
        row(
            "user",
            {"type": "tool_result", "tool_use_id": "a", "content": "rain"},
            {
                "type": "tool_result",
                "tool_use_id": "b",
                "content": [
                    text_block("sun"),
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": "QQ=="},
                    },
                ],
            },
            text_block("Well?"),
        ),
    )[1:] == [
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city":"Kiel"}'},
                },
                {"id": "b", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "rain"},
        {"role": "tool", "tool_call_id": "b", "content": "sun"},
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}},
                {"type": "text", "text": "Well?"},
            ],
        },
    ]


def test_files() -> None:
    (message,) = sent(
        row(
            "user",
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
            {
                "type": "document",
                "title": "a.pdf",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "QQ=="},
            },
            {"type": "document", "source": {"type": "text", "data": "Once upon a time"}},
            {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
        )
    )
    assert message["content"] == [
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {
            "type": "file",
            "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="},
        },
        {"type": "text", "text": "document:\nOnce upon a time"},
        {"type": "text", "text": "[a document that cannot be shown here]"},
    ]


def test_what_has_no_place_here_is_left_out() -> None:
    search: dict[str, object] = {"type": "server_tool_use", "id": "s", "name": "web_search"}
    server_tool = msgspec.Raw(b'{"type":"web_search_20260209","name":"web_search"}')
    request = ask(spoken("user", "Hi"), row("assistant", search), tools=(server_tool,))
    body = json.loads(encode_request(request))
    assert len(body["messages"]) == 1
    assert "tools" not in body


# ---------------------------------------------------------------------- what is answered


async def test_what_is_kept_of_an_answer(far_end: StandInFarEnd, client: OpenAI) -> None:
    use = ToolUse("weather", {"city": "Kiel"}, "call_7")
    far_end.stand_in.script(UseTools((use,), text="I look."))
    answer = await client.answer(ask(tools=(weather.json,)))
    assert decode_blocks(answer.blocks) == [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "call_7", "name": "weather", "input": {"city": "Kiel"}},
    ]
    assert answer.usage.cache_read_input_tokens > 0
    assert answer.usage.input_tokens > 0


async def test_a_refusal(far_end: StandInFarEnd, client: OpenAI) -> None:
    far_end.stand_in.script(Refuse(partial="Well, "))
    assert (await client.answer(ask())).stop_reason == "refusal"


def chunks(*deltas: dict[str, Any], finish: str | None = "stop") -> bytes:
    said = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    said.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in said)


def assembled(data: bytes, size: int = 7) -> Any:
    assembly = Assembly()
    for start in range(0, len(data), size):
        assembly.feed(data[start : start + size])
    return assembly.answer()


def call(index: int, arguments: str, **more: Any) -> dict[str, Any]:
    function = {"name": "weather", "arguments": arguments}
    return {"tool_calls": [{"index": index, "function": function, **more}]}


def test_a_server_that_says_stop_after_a_call() -> None:
    answer = assembled(chunks(call(0, "{}", id="a")))
    assert (answer.stop_reason, answer.calls) == ("tool_use", (ToolCall("a", "weather", {}),))


def test_calls_without_an_id_get_one_each() -> None:
    answer = assembled(chunks(call(0, ""), call(1, "{}"), finish="tool_calls"))
    first, second = answer.calls
    assert first.id.startswith("call_") and first.id != second.id


def test_a_call_that_was_cut_off_is_none() -> None:
    answer = assembled(chunks({"content": "I"}, call(0, '{"ci', id="a"), finish="length"))
    assert (answer.stop_reason, answer.calls, answer.text) == ("max_tokens", (), "I")


def test_a_call_whose_arguments_are_no_json() -> None:
    with pytest.raises(ModelUnavailable, match="no JSON object"):
        assembled(chunks(call(0, "[1]", id="a"), finish="tool_calls"))


def test_a_reason_that_we_do_not_know_is_passed_on() -> None:
    assert assembled(chunks({"content": "Hm."}, finish="tired")).stop_reason == "tired"


def test_white_space_is_no_answer() -> None:
    answer = assembled(chunks({"content": " \n"}) + b"data: [DONE]\n\n")
    assert (answer.text, bytes(answer.blocks)) == ("", b"[]")


def test_a_server_that_counts_nothing() -> None:
    assert assembled(chunks({"content": "Hi"})).usage == Usage()


@pytest.mark.parametrize("data", [b"data: {\n\n", b'data: {"choices": 1}\n\n', b"data: \xff\n\n"])
def test_what_is_no_chunk(data: bytes) -> None:
    with pytest.raises(ModelUnavailable, match="no chunk"):
        Assembly().feed(data)


async def test_a_stream_that_is_none_at_all(far_end: StandInFarEnd, client: OpenAI) -> None:
    far_end.stand_in.script(Raw((b"<html>nice to meet you</html>",)))
    with pytest.raises(ModelUnavailable, match="ended before"):
        await client.answer(ask())


async def test_the_sdk_reads_the_same(far_end: StandInFarEnd) -> None:
    use = UseTools((ToolUse("weather", {"city": 'Lübeck, "Nord"'}, "call_1"),), text="I look.")
    far_end.stand_in.script(use, use)
    client = far_end.client()
    ours = await client.answer(ask(tools=(weather.json,)))
    await client.close()
    texts: list[str] = []
    arguments = ""
    async with openai.AsyncOpenAI(api_key=KEY, base_url=far_end.stand_in.url) as theirs:
        stream = await theirs.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Hello"}],
            max_completion_tokens=77,
            stream=True,
        )
        async for chunk in stream:
            assert isinstance(chunk, ChatCompletionChunk)
            for choice in chunk.choices:
                texts.append(choice.delta.content or "")
                for each in choice.delta.tool_calls or ():
                    assert each.function is not None
                    arguments += each.function.arguments or ""
    assert ours.text == "".join(texts)
    assert ours.calls[0].input == json.loads(arguments)


# ---------------------------------------------------------------------- its beginning


async def test_key_and_address_of_the_environment(
    far_end: StandInFarEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-outside")
    monkeypatch.setenv("OPENAI_BASE_URL", far_end.stand_in.url)
    client = OpenAI()
    await client.answer(ask())
    await client.close()
    assert far_end.stand_in.headers[0]["authorization"] == "Bearer from-outside"


async def test_a_server_of_ones_own_may_want_no_key(far_end: StandInFarEnd) -> None:
    client = OpenAI(None, far_end.stand_in.url)
    assert (await client.answer(ask())).text
    await client.close()


async def test_its_own_service_wants_one() -> None:
    with pytest.raises(ModelRefusedKey, match="OPENAI_API_KEY"):
        await OpenAI().answer(ask())


async def test_without_the_package_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ModelRefusedKey, match=r"install chinwag\[openai\]"):
        await OpenAI(KEY).warm()


async def test_two_first_questions_share_one_client(far_end: StandInFarEnd) -> None:
    client = far_end.client()
    await asyncio.gather(client.answer(ask()), client.answer(ask()))
    assert client._client is not None
    await client.close()
