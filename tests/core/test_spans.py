"""Spans and metrics of turns that really run, read back from the SDK's own memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from core import spans
from core.agent import Agent
from core.errors import ModelRejected
from core.events import emit, listening
from core.messages import encode_blocks
from core.spans import Spans
from core.tools import tool
from tests.core.fakes import calls
from tests.core.test_conversations import KEY, House
from tests.core.test_turn import call


class Observed:
    def __init__(self, *, content: bool = False) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.spans = Spans(tracers, MeterProvider([self.reader]), content=content)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def only(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        assert data is not None
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


def house(*script: Any) -> House:
    return House(*script, agent=Agent(tools=(echo,)))


@pytest.fixture
def observed() -> Iterator[Observed]:
    observed = Observed()
    with listening(observed.spans):
        yield observed


@tool
def echo(text: str) -> str:
    """The text again."""
    return text


def given(span: ReadableSpan) -> Mapping[str, Any]:
    assert span.attributes is not None
    return span.attributes


async def test_a_turn_with_a_tool(observed: Observed) -> None:
    async with house(calls(call("echo", text="x")), "Done.") as bot:
        await bot.says("secret words")
    turn = observed.only("invoke_agent assistant")
    first, second = observed.named("chat claude-sonnet-5-5")
    used = observed.only("execute_tool echo")
    for span in (first, used, second):
        assert span.parent is not None and turn.context is not None
        assert span.parent.span_id == turn.context.span_id
        assert given(span)["gen_ai.conversation.id"] == KEY
    assert (first.kind, used.kind) == (SpanKind.CLIENT, SpanKind.INTERNAL)
    assert given(turn)["chinwag.outcome"] == "answered"
    assert given(first)["gen_ai.provider.name"] == "anthropic"
    assert given(first)["gen_ai.response.finish_reasons"] == ("tool_use",)
    assert given(used)["gen_ai.tool.name"] == "echo"
    assert "error.type" not in given(used)
    (turns,) = observed.points("chinwag.turns")
    assert (turns.value, turns.attributes) == (1, {"chinwag.outcome": "answered"})
    assert observed.points("chinwag.delivery.duration")[0].count == 1


async def test_never_what_was_said(observed: Observed) -> None:
    async with house(calls(call("echo", text="tulips")), "roses") as bot:
        await bot.says("violets")
    everything = "".join(span.to_json() for span in observed.exporter.get_finished_spans())
    for word in ("violets", "roses", "tulips"):
        assert word not in everything


async def test_unless_it_is_switched_on() -> None:
    observed = Observed(content=True)
    with listening(observed.spans):
        async with house(calls(call("echo", text="tulips")), "roses") as bot:
            await bot.says("violets")
    _, last = observed.named("chat claude-sonnet-5-5")
    asked = json.loads(given(last)["gen_ai.input.messages"])
    assert [message["role"] for message in asked] == ["user", "assistant", "user"]
    assert "violets" in asked[0]["parts"][0]["content"]
    assert asked[1]["parts"][-1]["arguments"] == {"text": "tulips"}
    assert asked[2]["parts"][0]["type"] == "tool_call_response"
    assert json.loads(given(last)["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "roses"}]}
    ]


async def test_an_apology_is_an_error(observed: Observed) -> None:
    async with house(ModelRejected("400"), ModelRejected("400")) as bot:
        await bot.says("Hello")
    turn = observed.only("invoke_agent assistant")
    assert given(turn)["chinwag.outcome"] == "apologised"
    assert turn.status.status_code is StatusCode.ERROR


def answered(execution: str = "e", **more: object) -> dict[str, object]:
    tokens = {"input": 10, "cached": 30, "cache_written": 2, "output": 5}
    return {
        "execution": execution,
        "model": "openai/gpt",
        "ms": 2_000.0,
        "first_ms": 500.0,
        "stop": "end_turn",
        **tokens,
        **more,
    }


def test_tokens_and_times(observed: Observed) -> None:
    observed.spans.heard("answered", KEY, answered())
    span = observed.only("chat gpt")
    assert span.parent is None
    assert span.end_time is not None and span.start_time is not None
    assert span.end_time - span.start_time == 2_000_000_000
    assert given(span)["gen_ai.usage.input_tokens"] == 42
    assert given(span)["gen_ai.usage.cache_read.input_tokens"] == 30
    assert given(span)["gen_ai.response.time_to_first_chunk"] == 0.5
    counted = observed.points("gen_ai.client.token.usage")
    assert {point.attributes["gen_ai.token.type"]: point.sum for point in counted} == {
        "input": 42,
        "output": 5,
    }
    assert observed.points("gen_ai.client.operation.duration")[0].sum == 2
    assert observed.points("gen_ai.client.operation.time_to_first_chunk")[0].sum == 0.5


@pytest.mark.parametrize(
    ("model", "provider"),
    [("claude-x", "anthropic"), ("bedrock/claude-x", "aws.bedrock"), ("openai/x", "openai")],
)
def test_the_names_of_providers(observed: Observed, model: str, provider: str) -> None:
    observed.spans.heard("answered", KEY, answered(model=model, first_ms=None))
    span = observed.only(f"chat {model.rpartition('/')[2]}")
    assert given(span)["gen_ai.provider.name"] == provider
    assert "gen_ai.response.time_to_first_chunk" not in given(span)


def test_a_tool_that_failed(observed: Observed) -> None:
    emit("tool", KEY, execution="e", tool="echo", call="c", ms=1.0, ok=False)
    assert given(observed.only("execute_tool echo"))["error.type"] == "tool_error"


def test_turns_that_end_otherwise(observed: Observed) -> None:
    for execution, event in (("1", "fenced"), ("2", "model.later")):
        emit("started", KEY, execution=execution, agent="a", attempt=1, messages=1)
        emit(event, KEY, execution=execution)
        emit("ended", KEY, execution=execution)
    outcomes = [given(span)["chinwag.outcome"] for span in observed.named("invoke_agent a")]
    assert outcomes == ["fenced", "abandoned"]


def test_what_ended_before_we_listened_is_nothing(observed: Observed) -> None:
    emit("committed", KEY, execution="unknown", outcome="answered")
    emit("ended", KEY, execution="unknown")
    assert observed.exporter.get_finished_spans() == ()


def test_turns_that_never_end_are_forgotten(
    observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "MOST_OPEN", 2)
    for execution in "123":
        emit("started", KEY, execution=execution, agent="a", attempt=1, messages=1)
    assert [given(span)["chinwag.execution"] for span in observed.named("invoke_agent a")] == ["1"]


def test_long_texts_are_cut_and_pictures_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "MOST_CHARACTERS", 100)
    observed = Observed(content=True)
    image: dict[str, object] = {"type": "image", "source": {"type": "base64", "data": "QUFB"}}
    text: dict[str, object] = {"type": "text", "text": "a" * 200}
    observed.spans.said("e", (), encode_blocks([image, text]))
    emitted = answered()
    observed.spans.heard("answered", KEY, emitted)
    told = str(given(observed.only("chat gpt"))["gen_ai.output.messages"])
    assert len(told) == 101
    assert "QUFB" not in told
