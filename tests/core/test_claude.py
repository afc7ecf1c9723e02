"""Claude: the unmodified SDK below, over a real socket, against the stand-in of the playground.

The oracle at the end: whatever a stream holds, core.sse reads out of it what the SDK's own
`messages.stream` does.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anthropic
import httpx2
import msgspec
import pytest
from hypothesis import given, settings

from core.claude import Claude, encode_request
from core.errors import ModelError, ModelRefusedKey, ModelRejected, ModelUnavailable
from core.messages import decode_blocks
from core.model import Answer, Request, ToolCall
from core.snapshot import Usage
from playground.claude import Claude as StandIn
from playground.claude_answers import (
    Answer as Played,
)
from playground.claude_answers import (
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
    sign,
)
from tests.core.model_contract import Failure, FarEnd, ModelClientContract, spoken, weather
from tests.core.open_connections import OpenConnections
from tests.core.streams import (
    CITATION,
    FOREIGN,
    SEARCH_RESULT,
    block,
    cut_up,
    message,
    streams,
    text,
    thinking,
    tool_use,
    wire,
)

MODEL = "claude-opus-5-5"
KEY = "sk-ant-a-very-secret-key"
FAILURES: dict[Failure, Played] = {
    "overloaded": Fail(529, "overloaded_error"),
    "broken": Fail(500, "api_error"),
    "rate_limit": Fail(429, "rate_limit_error"),
    "rate_limit_for_2s": Fail(429, "rate_limit_error", retry_after=2),
    "wrong_key": Fail(401, "authentication_error", "invalid x-api-key"),
    "no_permission": Fail(403, "permission_error"),
    "no_money": Fail(402, "billing_error"),
    "no_credit": Fail(
        400, "invalid_request_error", "Your credit balance is too low to access the API."
    ),
    "no_model": Fail(404, "not_found_error", "model: claude-1"),
    "rejected": Fail(400, "invalid_request_error", "prompt is too long"),
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

    def client(self) -> Claude:
        return Claude(KEY, self.stand_in.url)

    def impatient(self) -> Claude:
        return Claude(KEY, self.stand_in.url, silence=0.1)

    def lost(self) -> Claude:
        return Claude(KEY, "http://127.0.0.1:1")

    def keyless(self) -> Claude:
        return Claude(None, self.stand_in.url)

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


@pytest.fixture
async def far_end() -> AsyncIterator[StandInFarEnd]:
    stand_in = StandIn()
    far_end = StandInFarEnd(stand_in)
    async with stand_in:
        yield far_end


@pytest.fixture
async def claude(far_end: StandInFarEnd) -> AsyncIterator[Claude]:
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


def ask(said: str = "Hello", **more: Any) -> Request:
    return Request(**{"model": MODEL, "system": (), "messages": (spoken("user", said),), **more})


# ---------------------------------------------------------------------- what is sent


def marked(text: str) -> dict[str, object]:
    return {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}


async def test_what_a_request_is(far_end: StandInFarEnd, claude: Claude) -> None:
    await claude.answer(
        ask(
            system=("Be brief.", "Be kind."),
            messages=(spoken("user", "Hi"), spoken("assistant", "Yes?"), spoken("user", "How?")),
            tools=(weather.json,),
            max_tokens=77,
            thinking="adaptive",
            effort="low",
            container="container_1",
        )
    )
    (sent,) = far_end.stand_in.requests
    assert sent == {
        "model": MODEL,
        "max_tokens": 77,
        "stream": True,
        "system": [{"type": "text", "text": "Be brief."}, marked("Be kind.")],
        "tools": [json.loads(bytes(weather.json))],
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "low"},
        "container": "container_1",
        "messages": [
            {"role": "user", "content": [marked("Hi")]},
            {"role": "assistant", "content": [{"type": "text", "text": "Yes?"}]},
            {"role": "user", "content": [marked("How?")]},
        ],
    }


async def test_what_is_not_wanted_is_not_sent(far_end: StandInFarEnd, claude: Claude) -> None:
    await claude.answer(ask())
    assert set(far_end.stand_in.requests[0]) == {
        "model",
        "max_tokens",
        "stream",
        "messages",
    }


async def test_tools_that_must_not_be_used_stay_in_the_prompt(
    far_end: StandInFarEnd, claude: Claude
) -> None:
    answer = await claude.answer(
        ask('Use weather with {"city": "Kiel"}', tools=(weather.json,), use_tools=False)
    )
    (sent,) = far_end.stand_in.requests
    assert sent["tool_choice"] == {"type": "none"}
    assert len(sent["tools"]) == 1
    assert answer.calls == ()


async def test_stored_blocks_go_out_byte_for_byte() -> None:
    odd = msgspec.Raw(b'[ {"type":"text",  "text":"\\u00fc", "n": 1.0} ]')
    row = msgspec.structs.replace(spoken("user", ""), blocks=odd)
    sent = encode_request(ask(messages=(row, *[spoken("user", "x")] * 3)))
    assert bytes(odd) in sent
    # Under a mark, all but its place.
    sent = encode_request(ask(messages=(row,)))
    assert bytes(odd)[:-3] + b',"cache_control":{"type":"ephemeral"}}]' in sent


async def test_the_key_is_a_bearer_token_and_its_line_end_is_not_sent(
    far_end: StandInFarEnd,
) -> None:
    client = Claude(f" {KEY}\n", far_end.stand_in.url)
    await client.answer(ask())
    await client.close()
    assert far_end.stand_in.headers[0]["authorization"] == f"Bearer {KEY}"


async def test_the_key_of_the_environment(
    far_end: StandInFarEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "from-outside")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", far_end.stand_in.url)
    client = Claude()
    await client.answer(ask())
    await client.close()
    assert far_end.stand_in.headers[0]["authorization"] == "Bearer from-outside"


@pytest.mark.parametrize("key", [None, "", " \n"])
async def test_without_a_key_nothing_is_sent(far_end: StandInFarEnd, key: str | None) -> None:
    client = Claude(key, far_end.stand_in.url)
    with pytest.raises(ModelRefusedKey, match="ANTHROPIC_API_KEY"):
        await client.answer(ask())
    assert far_end.asked() == 0


async def test_the_cache_is_read_by_the_next_request(
    far_end: StandInFarEnd, claude: Claude
) -> None:
    long = "I have much to say. " * 1000
    far_end.says("Go on.")
    first = await claude.answer(ask(long))
    history = (spoken("user", long), spoken("assistant", first.text), spoken("user", "Go on"))
    second = await claude.answer(ask(messages=history))
    assert first.usage.cache_creation_input_tokens > 1000
    assert second.usage.cache_read_input_tokens > 1000
    assert second.usage.cache_creation_input_tokens < 100


async def test_a_thought_goes_back_with_its_signature(
    far_end: StandInFarEnd, claude: Claude
) -> None:
    far_end.thinks("Hm, let me see…", "Yes.")
    thought = await claude.answer(ask(thinking="adaptive"))
    assert decode_blocks(thought.blocks)[0] == {
        "type": "thinking",
        "thinking": "Hm, let me see…",
        "signature": sign("Hm, let me see…"),
    }
    back = msgspec.structs.replace(spoken("assistant", ""), blocks=thought.blocks)
    await claude.answer(ask(messages=(spoken("user", "Hi"), back, spoken("user", "Sure?"))))
    assert far_end.stand_in.requests[1]["messages"][1]["content"] == decode_blocks(thought.blocks)


# ---------------------------------------------------------------------- errors


async def test_what_the_service_says_of_a_rejected_request_is_kept(
    far_end: StandInFarEnd, claude: Claude
) -> None:
    with pytest.raises(ModelRejected) as raised:
        await claude.answer(ask(messages=(spoken("assistant", "I begin."),)))
    assert str(raised.value).startswith("400 invalid_request_error: ")
    assert 'must use the "user" role' in str(raised.value)


async def test_a_long_explanation_is_cut(far_end: StandInFarEnd, claude: Claude) -> None:
    far_end.stand_in.script(Fail(400, "invalid_request_error", "no " * 1000))
    with pytest.raises(ModelRejected) as raised:
        await claude.answer(ask())
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize(
    ("header", "wait"),
    [("3", 3.0), ("0.5", 0.5), ("-1", 0.0), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("", None)],
)
async def test_how_long_to_wait(header: str, wait: float | None) -> None:
    body = json.dumps({"type": "error", "error": {"type": "overloaded_error", "message": "no"}})
    head = f"HTTP/1.1 529 Overloaded\r\nretry-after: {header}\r\ncontent-type: application/json"
    with pytest.raises(ModelUnavailable) as raised:
        await answer_to(f"{head}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
    assert raised.value.retry_after == wait
    assert str(raised.value) == "529 overloaded_error"


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n<html></html>\n",
        b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 3\r\n\r\nno\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 9\r\n\r\nnot gzip!",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nno number\r\n",
        b"I speak no HTTP\r\n\r\n",
        b"",
    ],
    ids=range(6),
)
async def test_what_is_no_answer_of_the_service(response: bytes) -> None:
    with pytest.raises(ModelUnavailable):
        await answer_to(response)


async def answer_to(response: bytes) -> Answer:
    """What a client makes of these bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(response)

    return (await answers(serve, 1))[0]


async def read_request(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    await reader.readexactly(int(head.partition("content-length:")[2].partition("\r\n")[0]))


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def answers(serve: Serve, count: int) -> list[Answer]:
    """What a client is told by `serve`, which is called for each of its connections."""
    handlers = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.append(asyncio.current_task())
        try:
            await serve(reader, writer)
        finally:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    client = Claude(KEY, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        return [await client.answer(ask()) for _ in range(count)]
    finally:
        await client.close()
        server.close()
        await asyncio.gather(*(task for task in handlers if task), return_exceptions=True)


# ---------------------------------------------------------------------- the connection


async def test_an_answer_may_be_compressed() -> None:
    body = gzip.compress(wire(message(text(0, "Hello."))))
    head = f"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {len(body)}\r\n\r\n"
    assert (await answer_to(head.encode() + body)).text == "Hello."


async def test_a_connection_is_used_again_although_its_end_comes_late() -> None:
    connections = 0
    body = wire(message(text(0, "Hello.")))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for _ in range(3):
            await read_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            writer.write(b"%x\r\n%b\r\n" % (len(body), body))
            await writer.drain()
            await asyncio.sleep(0.005)
            writer.write(b"7\r\n: bye\n\n\r\n0\r\n\r\n")

    said = await answers(serve, 3)
    assert [answer.text for answer in said] == ["Hello."] * 3
    assert connections == 1


@pytest.mark.parametrize("ends", ["never", "badly"])
async def test_an_answer_is_complete_whatever_comes_after_it(ends: str) -> None:
    body = wire(message(text(0, "Hello.")))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.write(b"%x\r\n%b\r\n" % (len(body), body))
        await writer.drain()
        if ends == "never":
            await reader.read()

    assert (await answers(serve, 1))[0].text == "Hello."


async def test_two_first_questions_share_one_client(
    far_end: StandInFarEnd, claude: Claude, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    original = anthropic.AsyncAnthropic

    def count(**options: Any) -> anthropic.AsyncAnthropic:
        made.append(options)
        return original(**options)

    monkeypatch.setattr(anthropic, "AsyncAnthropic", count)
    await asyncio.gather(*(claude.answer(ask()) for _ in range(5)))
    assert len(made) == 1
    assert made[0]["max_retries"] == 0


async def test_it_can_be_warmed(claude: Claude) -> None:
    await asyncio.gather(claude.warm(), claude.warm())


async def test_silence_after_a_beginning_is_given_up(far_end: StandInFarEnd) -> None:
    client = far_end.impatient()
    far_end.stand_in.script(Say("Hello there", deltas=("Hello", " there"), pause=5))
    with pytest.raises(ModelUnavailable, match="silence"):
        await client.answer(ask())
    assert await far_end.nobody_listens()
    await client.close()


async def test_what_a_listener_raises_is_not_the_models_fault(
    far_end: StandInFarEnd, claude: Claude
) -> None:
    def broken(_: str) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await claude.answer(ask(), broken)
    assert await far_end.nobody_listens()


# ---------------------------------------------------------------------- the oracle


def plain(value: Any) -> Any:
    """Without what is unset: the SDK adds fields that did not come."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if each is not None}
    return [plain(each) for each in value] if isinstance(value, list) else value


async def compare(
    claude: Claude, sdk: anthropic.AsyncAnthropic, *, same_usage: bool = True
) -> None:
    """The next two answers of the stand-in are the same; so is what is made of them."""
    shown: list[str] = []
    ours = await claude.answer(ask(), shown.append)
    async with sdk.messages.stream(
        model=MODEL, max_tokens=100, messages=[{"role": "user", "content": "Hello"}]
    ) as events:
        pieces = [piece async for piece in events.text_stream]
        theirs = await events.get_final_message()
    blocks: list[Any] = [
        plain(each.model_dump(mode="json", warnings=False, exclude={"parsed_output"}))
        for each in theirs.content
    ]
    spoken = [each for each in blocks if each["type"] == "text"]
    kept = [each for each in blocks if each["type"] != "text" or each["text"].strip()]
    kept = [{k: v for k, v in each.items() if (k, v) != ("citations", [])} for each in kept]
    mine = [
        {k: v for k, v in plain(each).items() if (k, v) != ("citations", [])}
        for each in decode_blocks(ours.blocks)
    ]
    assert mine == kept
    assert ours.text == "".join(each["text"] for each in spoken if each["text"].strip())
    assert "".join(shown) == "".join(pieces) == "".join(each["text"] for each in spoken)
    assert ours.stop_reason == theirs.stop_reason
    assert ours.calls == tuple(
        ToolCall(id=each["id"], name=each["name"], input=each["input"])
        for each in json.loads(bytes(ours.blocks))
        if each["type"] == "tool_use"
    )
    assert not same_usage or ours.usage == Usage(
        theirs.usage.input_tokens,
        theirs.usage.output_tokens,
        theirs.usage.cache_creation_input_tokens or 0,
        theirs.usage.cache_read_input_tokens or 0,
    )


@pytest.fixture
async def sdk(far_end: StandInFarEnd) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with official(far_end.stand_in) as client:
        yield client


def official(stand_in: StandIn) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(
        base_url=stand_in.url, api_key=KEY, max_retries=0, timeout=httpx2.Timeout(5)
    )


CITED = block(
    0,
    {"type": "text", "text": "", "citations": []},
    {"type": "text_delta", "text": "The grass "},
    {"type": "citations_delta", "citation": CITATION},
    {"type": "text_delta", "text": "is green."},
)
STREAMS: dict[str, list[Any]] = {
    "text": message(text(0, "Hel", "", "lo, ", "wörld 👋")),
    "nothing": message(),
    "several texts": message(text(0, "One. "), text(1, "Two.")),
    "blank texts": message(text(0, " \n"), text(1, "Two."), text(2)),
    "thinking": message(thinking(0, "sig==", "Let ", "me see"), text(1, "Yes.")),
    "only a signature": message(thinking(0, "sig=="), text(1, "Yes.")),
    "redacted": message(block(0, {"type": "redacted_thinking", "data": "xyz"}), text(1, "Yes.")),
    "tools": message(
        text(0, "I will look."),
        tool_use(
            1, "toolu_1", "weather", "", '{"city": "L\\u00fc', 'beck", "days": [1, 2.5, ', "null]}"
        ),
        tool_use(2, "toolu_2", "clock", ""),
        tool_use(3, "toolu_3", "clock"),
        stop_reason="tool_use",
    ),
    "server tools": message(
        tool_use(0, "srvtoolu_1", "web_search", '{"query": "grass"}', kind="server_tool_use"),
        block(1, SEARCH_RESULT),
        text(2, "It is green."),
        stop_reason="pause_turn",
    ),
    "citations": message(CITED, text(1, " Trust me.")),
    "foreign events": [
        *message(text(0, "Hi."))[:3],
        *FOREIGN,
        *message(text(0, "Hi."))[3:],
    ],
    "an unknown block": message(
        block(0, {"type": "hologram", "payload": {"depth": [1, 2]}}), text(1, "See?")
    ),
    "an unknown stop reason": message(text(0, "Hi."), stop_reason="tired"),
}


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("name", STREAMS)
async def test_the_sdk_reads_the_same(
    far_end: StandInFarEnd,
    claude: Claude,
    sdk: anthropic.AsyncAnthropic,
    name: str,
    line_end: bytes,
) -> None:
    data = wire(STREAMS[name], line_end=line_end)
    for step in (len(data), 7, 61):
        chunks = Raw(cut_up(data, range(0, len(data), step)))
        far_end.stand_in.script(chunks, chunks)
        await compare(claude, sdk)


@pytest.mark.parametrize(
    "answer",
    [
        Say("Hello there,\nhow are you?"),
        Think("Hm…", "Yes."),
        UseTools((ToolUse("weather", {"city": "Lübeck"}, "toolu_1"),), "I look.", "Hm…"),
        Refuse(partial="First you"),
        Say("Once upon a", stop_reason="max_tokens"),
    ],
    ids=lambda answer: type(answer).__name__,
)
async def test_the_sdk_reads_the_same_from_the_stand_in(
    far_end: StandInFarEnd, claude: Claude, sdk: anthropic.AsyncAnthropic, answer: Played
) -> None:
    far_end.stand_in.script(answer, answer)
    # Only one of the two asks for the cache.
    await compare(claude, sdk, same_usage=False)


def test_the_sdk_reads_the_same_out_of_any_stream() -> None:
    with asyncio.Runner() as runner:
        stand_in = StandIn()
        runner.run(stand_in.__aenter__())
        claude, sdk = Claude(KEY, stand_in.url), official(stand_in)

        @settings(max_examples=50, deadline=None)
        @given(streams())
        def check(stream: tuple[bytes, tuple[bytes, ...]]) -> None:
            stand_in.requests.clear()
            stand_in.scripted.clear()
            stand_in.script(Raw(stream[1]), Raw(stream[1]))
            runner.run(compare(claude, sdk))

        try:
            check()
        finally:
            runner.run(claude.close())
            runner.run(sdk.close())
            runner.run(stand_in.__aexit__(None, None, None))


@pytest.mark.parametrize("failure", ["cut", "ends_early", "fails_in_the_middle"])
async def test_where_the_sdk_gives_no_answer_neither_do_we(
    far_end: StandInFarEnd, claude: Claude, sdk: anthropic.AsyncAnthropic, failure: Failure
) -> None:
    """A stream without its end is, to the SDK, an answer without a stop reason."""
    far_end.fails(failure)
    far_end.fails(failure)
    with pytest.raises(ModelError):
        await claude.answer(ask())
    stop_reason: str | None = None
    try:
        async with sdk.messages.stream(
            model=MODEL, max_tokens=100, messages=[{"role": "user", "content": "Hello"}]
        ) as events:
            stop_reason = (await events.get_final_message()).stop_reason
    except (anthropic.APIError, httpx2.HTTPError):
        pass
    assert stop_reason is None


# ---------------------------------------------------------------------- what a failure costs


async def failed(answer: Played | None) -> ModelError:
    asking = Request(model=MODEL, system=(), messages=(spoken("user", "Hello"),))
    async with StandIn() as stand_in:
        url = stand_in.url
        if answer is not None:
            stand_in.script(answer)
            client = Claude(KEY, url, silence=0.2)
            with pytest.raises(ModelError) as caught:
                await client.answer(asking)
            await client.close()
            return caught.value
    client = Claude(KEY, url)
    with pytest.raises(ModelError) as caught:
        await client.answer(asking)
    await client.close()
    return caught.value


@pytest.mark.parametrize(
    "failure", ["overloaded", "rate_limit", "wrong_key", "no_credit", "no_model", "rejected"]
)
async def test_what_the_service_refuses_costs_nothing(failure: Failure) -> None:
    assert (await failed(FAILURES[failure])).usage == Usage()


async def test_what_never_left_costs_nothing() -> None:
    error = await failed(None)
    assert isinstance(error, ModelUnavailable)
    assert error.usage == Usage()


async def test_what_was_never_answered_may_cost_all_of_it() -> None:
    assert (await failed(FAILURES["no_answer"])).usage is None
    assert (await failed(FAILURES["silent"])).usage is None


@pytest.mark.parametrize("failure", ["cut", "ends_early", "fails_in_the_middle"])
async def test_what_broke_off_costs_what_had_come(failure: Failure) -> None:
    usage = (await failed(FAILURES[failure])).usage
    assert usage is not None
    assert usage.prompt > 0
    assert usage.output_tokens > 1
