"""OpenTelemetry: turns, model calls and tools as spans and metrics, by its conventions for models.
The only file that imports opentelemetry.

It listens to `core.events` and adds nothing to them; it sets up no exporter, and holds no text
unless it is told to. A span is made when its event comes, with a beginning that lies as far back as
the event took, so nothing is open while the work runs but the turn itself. Names: the semantic
conventions "GenAI", of semantic-conventions 1.41.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from core.messages import Message, decode_blocks

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

MOST_OPEN: Final = 10_000
MOST_CHARACTERS: Final = 100_000

# What the conventions call the platforms; a name without one is Anthropic's.
_PROVIDERS: Final = {
    "": "anthropic",
    "bedrock": "aws.bedrock",
    "vertex": "gcp.vertex_ai",
    "foundry": "azure.ai.inference",
}


class Spans:
    """
    :param content: whether the spans of model calls hold what was said
    """

    def __init__(
        self, tracers: TracerProvider, meters: MeterProvider, *, content: bool = False
    ) -> None:
        self.wants_content = content
        self._tracer = tracers.get_tracer("chinwag")
        meter = meters.get_meter("chinwag")
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage", "{token}", "Tokens of a model call."
        )
        self._duration = meter.create_histogram(
            "gen_ai.client.operation.duration", "s", "How long a model call took."
        )
        self._first = meter.create_histogram(
            "gen_ai.client.operation.time_to_first_chunk", "s", "Until the first text of an answer."
        )
        self._turns = meter.create_counter(
            "chinwag.turns", "{turn}", "Turns that have ended, by their outcome."
        )
        self._deliveries = meter.create_histogram(
            "chinwag.delivery.duration", "s", "How long it took to send a part of a reply."
        )
        # Open turns. One that never ends (the process lost its way) is forgotten in the end.
        self._open: OrderedDict[str, tuple[Span, str]] = OrderedDict()
        self._said: dict[str, dict[str, str]] = {}

    def heard(self, name: str, key: str | None, fields: Mapping[str, object]) -> None:
        handle = getattr(self, f"_on_{name}", None)
        if handle is not None:
            handle(key or "", fields)

    def said(self, execution: str, asked: Sequence[Message], answered: Raw) -> None:
        self._said[execution] = {
            "gen_ai.input.messages": _dump(
                [_message(each.role, each.blocks) for each in asked],
            ),
            "gen_ai.output.messages": _dump([_message("assistant", answered)]),
        }

    # ------------------------------------------------------------------ events

    def _on_started(self, key: str, fields: Mapping[str, Any]) -> None:
        agent = str(fields.get("agent", ""))
        span = self._tracer.start_span(
            f"invoke_agent {agent}",
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": agent,
                "gen_ai.conversation.id": key,
                "chinwag.execution": str(fields["execution"]),
                "chinwag.attempt": int(fields["attempt"]),
            },
        )
        self._open[str(fields["execution"])] = (span, "abandoned")
        if len(self._open) > MOST_OPEN:
            self._end(next(iter(self._open)))

    def _on_committed(self, key: str, fields: Mapping[str, Any]) -> None:
        self._outcome(fields, str(fields.get("outcome", "answered")))

    def _on_apologised(self, key: str, fields: Mapping[str, Any]) -> None:
        self._outcome(fields, "apologised")

    def _on_fenced(self, key: str, fields: Mapping[str, Any]) -> None:
        self._outcome(fields, "fenced")

    def _on_ended(self, key: str, fields: Mapping[str, Any]) -> None:
        self._end(str(fields["execution"]))

    def _on_answered(self, key: str, fields: Mapping[str, Any]) -> None:
        execution = str(fields["execution"])
        provider, slash, model = str(fields["model"]).partition("/")
        if not slash:
            provider, model = "", provider
        common = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _PROVIDERS.get(provider, provider),
            "gen_ai.request.model": model,
        }
        read, written = int(fields["cached"]), int(fields["cache_written"])
        attributes: dict[str, Any] = {
            **common,
            "gen_ai.agent.name": str(fields.get("agent", "")),
            "gen_ai.conversation.id": key,
            "gen_ai.response.finish_reasons": [str(fields["stop"])],
            # All that went in, by the conventions; ours counts what no cache served.
            "gen_ai.usage.input_tokens": int(fields["input"]) + read + written,
            "gen_ai.usage.output_tokens": int(fields["output"]),
            "gen_ai.usage.cache_read.input_tokens": read,
            "gen_ai.usage.cache_creation.input_tokens": written,
            **self._said.pop(execution, {}),
        }
        seconds = float(fields["ms"]) / 1000
        if fields.get("first_ms") is not None:
            first = float(fields["first_ms"]) / 1000
            attributes["gen_ai.response.time_to_first_chunk"] = first
            self._first.record(first, common)
        self._span(f"chat {model}", "CLIENT", execution, seconds, attributes)
        self._duration.record(seconds, common)
        for kind in ("input", "output"):
            count = attributes[f"gen_ai.usage.{kind}_tokens"]
            self._tokens.record(count, {**common, "gen_ai.token.type": kind})

    def _on_tool(self, key: str, fields: Mapping[str, Any]) -> None:
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": str(fields["tool"]),
            "gen_ai.tool.call.id": str(fields["call"]),
            "gen_ai.conversation.id": key,
            **({} if fields["ok"] else {"error.type": "tool_error"}),
        }
        name = f"execute_tool {fields['tool']}"
        self._span(
            name, "INTERNAL", str(fields["execution"]), float(fields["ms"]) / 1000, attributes
        )

    def _on_delivered(self, key: str, fields: Mapping[str, Any]) -> None:
        self._deliveries.record(float(fields["ms"]) / 1000)

    # ------------------------------------------------------------------ spans

    def _outcome(self, fields: Mapping[str, Any], outcome: str) -> None:
        found = self._open.get(str(fields["execution"]))
        if found is not None:
            self._open[str(fields["execution"])] = (found[0], outcome)

    def _end(self, execution: str) -> None:
        self._said.pop(execution, None)
        found = self._open.pop(execution, None)
        if found is None:
            return
        span, outcome = found
        span.set_attribute("chinwag.outcome", outcome)
        if outcome == "apologised":
            from opentelemetry.trace import Status, StatusCode

            span.set_status(Status(StatusCode.ERROR))
        span.end()
        self._turns.add(1, {"chinwag.outcome": outcome})

    def _span(
        self, name: str, kind: str, execution: str, seconds: float, attributes: Mapping[str, Any]
    ) -> None:
        from opentelemetry.trace import SpanKind

        now = time.time_ns()
        span = self._tracer.start_span(
            name,
            context=self._within(execution),
            kind=SpanKind[kind],
            attributes=dict(attributes),
            start_time=now - round(seconds * 1e9),
        )
        span.end(now)

    def _within(self, execution: str) -> Context | None:
        from opentelemetry.trace import set_span_in_context

        found = self._open.get(execution)
        return set_span_in_context(found[0]) if found else None


def _message(role: str, blocks: Raw) -> dict[str, Any]:
    return {"role": role, "parts": list(_parts(decode_blocks(blocks)))}


def _parts(blocks: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            yield {"type": "text", "content": block.get("text")}
        elif kind == "tool_use":
            yield {
                "type": "tool_call",
                "id": block.get("id"),
                "name": block.get("name"),
                "arguments": block.get("input"),
            }
        elif kind == "tool_result":
            content = block.get("content")
            yield {
                "type": "tool_call_response",
                "id": block.get("tool_use_id"),
                "response": content,
            }
        else:
            yield {"type": str(kind)}


def _dump(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + "…"
