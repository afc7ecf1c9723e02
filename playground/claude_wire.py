"""How the answers look on the wire: the bytes of the Messages API, streamed and whole.

Pure functions from values to bytes. The order of events and the shape of each follow the public
documentation of the API ("Streaming messages", "Errors"). Nothing in here sends, waits or decides.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from playground.claude_answers import (
    Answer,
    Compacted,
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
    UseTools,
    Whitespace,
    sign,
)

Json = dict[str, Any]

STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_MESSAGES = {
    "overloaded_error": "Overloaded",
    "api_error": "Internal server error",
    "rate_limit_error": "This request would exceed your rate limit of 50 requests per minute.",
    "request_too_large": "Request exceeds the maximum allowed number of bytes.",
}


@dataclass(frozen=True)
class Head:
    """What an answer needs to know of its request. `usage` counts the input, in tokens."""

    message_id: str
    request_id: str
    model: str
    usage: Mapping[str, int]
    hide_thinking: bool = False


@dataclass(frozen=True)
class Play:
    """What goes over the line: a status, then chunks, each after a pause in seconds.

    After the last chunk, and `wait` more seconds, the body ends, or the connection is `cut`. With
    status None there is not even a status line.
    """

    status: int | None
    chunks: tuple[tuple[float, bytes], ...]
    headers: Mapping[str, str] = field(default_factory=dict)
    wait: float = 0.0
    cut: bool = False


@dataclass(frozen=True)
class _Block:
    start: Json
    deltas: tuple[Json, ...]
    whole: Json
    pause: float = 0.0


@dataclass(frozen=True)
class _Message:
    blocks: tuple[_Block, ...]
    stop_reason: str
    stop_details: Json | None = None
    compacted: bool = False

    @property
    def output_tokens(self) -> int:
        return max(1, sum(tokens(_dump(block.whole)) for block in self.blocks))


def tokens(text: str) -> int:
    """Roughly what a text costs; the same text always costs the same."""
    return len(text) // 4


def error_body(type: str, message: str, request_id: str) -> Json:
    error = {"type": type, "message": message or _MESSAGES.get(type, type)}
    return {"type": "error", "error": error, "request_id": request_id}


def streamed(answer: Answer, head: Head, pace: float) -> Play:
    """The answer to a request with `stream: true`."""
    headers = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
    match answer:
        case Fail():
            return _failed(answer, head)
        case Silence():
            return _silent(answer, headers)
        case Cut(after_deltas=None):
            return Play(None, (), cut=True)
        case Raw():
            return Play(200, tuple((0.0, chunk) for chunk in answer.chunks), headers)
        case Cut() | EndEarly() | ErrorEvent():
            events = _events(_message(Say(answer.text), head), head, pace)
            chunks = _until(answer.after_deltas or 0, events)
            if isinstance(answer, ErrorEvent):
                chunks.append((pace, _sse("error", error_body(answer.type, "", head.request_id))))
            return Play(200, tuple(chunks), headers, cut=isinstance(answer, Cut))
        case _:
            events = _events(_message(answer, head), head, pace)
            return Play(200, tuple((pause, chunk) for pause, chunk, _ in events), headers)


def whole(answer: Answer, head: Head) -> Play:
    """The answer to a request without `stream`."""
    headers = {"content-type": "application/json"}
    match answer:
        case Fail():
            return _failed(answer, head)
        case ErrorEvent():
            return _failed(Fail(STATUS.get(answer.type, 500), answer.type), head)
        case Silence():
            return _silent(answer, headers)
        case Cut(after_deltas=None):
            return Play(None, (), cut=True)
        case Raw():
            return Play(200, tuple((0.0, chunk) for chunk in answer.chunks), headers)
        case Cut() | EndEarly():
            body = _dump(_body(_message(Say(answer.text), head), head)).encode()
            half = body[: len(body) // 2]
            return Play(200, ((0.0, half),), headers, cut=isinstance(answer, Cut))
        case _:
            body = _dump(_body(_message(answer, head), head)).encode()
            return Play(200, ((0.0, body),), {**headers, "content-length": str(len(body))})


def _failed(answer: Fail, head: Head) -> Play:
    body = _dump(error_body(answer.type, answer.message, head.request_id)).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    if answer.retry_after is not None:
        headers["retry-after"] = f"{answer.retry_after:g}"
    return Play(answer.status, ((0.0, body),), headers)


def _silent(answer: Silence, headers: Mapping[str, str]) -> Play:
    return Play(200 if answer.headers else None, (), headers, wait=answer.seconds, cut=True)


def _message(answer: Answer, head: Head) -> _Message:
    match answer:
        case Say():
            deltas = _words(answer.text) if answer.deltas is None else answer.deltas
            return _Message((_text(deltas, answer.pause),), answer.stop_reason)
        case Think():
            blocks = (_thinking(answer.thinking, head), _text(_words(answer.text)))
            return _Message(blocks, "end_turn")
        case UseTools():
            spoken = []
            if answer.thinking:
                spoken.append(_thinking(answer.thinking, head))
            if answer.text:
                spoken.append(_text(_words(answer.text)))
            calls = (
                _tool_use(call.id or _tool_id(head, number), call.name, call.input)
                for number, call in enumerate(answer.calls)
            )
            return _Message((*spoken, *calls), "tool_use")
        case Pause():
            return _Message((_text(_words(answer.text)),), "pause_turn")
        case Compacted():
            after = _message(answer.answer, head)
            both = (_compaction(answer.text), *after.blocks)
            return _Message(both, after.stop_reason, compacted=True)
        case Refuse():
            partial = (_text(_words(answer.partial)),) if answer.partial else ()
            details = {"type": "refusal", "category": answer.category, "explanation": None}
            return _Message(partial, "refusal", details)
        case Whitespace():
            return _Message((_text((answer.text,)),), "end_turn")
        case Empty():
            return _Message((), "end_turn")
        case _:
            raise TypeError(f"not an answer with a message in it: {answer!r}")


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\s*\S+\s*$|\s*\S+|\s+", text))


def _text(deltas: tuple[str, ...], pause: float = 0.0) -> _Block:
    return _Block(
        {"type": "text", "text": ""},
        tuple({"type": "text_delta", "text": delta} for delta in deltas),
        {"type": "text", "text": "".join(deltas)},
        pause,
    )


def _thinking(thinking: str, head: Head) -> _Block:
    shown = "" if head.hide_thinking else thinking
    signature = sign(shown)
    pieces = tuple({"type": "thinking_delta", "thinking": word} for word in _words(shown))
    return _Block(
        {"type": "thinking", "thinking": "", "signature": ""},
        (*pieces, {"type": "signature_delta", "signature": signature}),
        {"type": "thinking", "thinking": shown, "signature": signature},
    )


def _compaction(text: str | None) -> _Block:
    return _Block(
        {"type": "compaction", "content": None},
        ({"type": "compaction_delta", "content": text},),
        {"type": "compaction", "content": text},
    )


def _tool_use(id: str, name: str, arguments: Mapping[str, Any]) -> _Block:
    text = _dump(arguments) if arguments else ""
    # The first piece is empty, as from the real service, and a call without arguments has no other.
    pieces = ("", *re.findall(r"(?s).{1,12}", text))
    return _Block(
        {"type": "tool_use", "id": id, "name": name, "input": {}},
        tuple({"type": "input_json_delta", "partial_json": piece} for piece in pieces),
        {"type": "tool_use", "id": id, "name": name, "input": dict(arguments)},
    )


def _tool_id(head: Head, number: int) -> str:
    # Not a counter: a conversation outlives the server, and may not hold the same id twice.
    return "toolu_" + hashlib.sha256(f"{head.message_id}/{number}".encode()).hexdigest()[:24]


def _body(message: _Message, head: Head) -> Json:
    return {
        "id": head.message_id,
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": [block.whole for block in message.blocks],
        "stop_reason": message.stop_reason,
        "stop_sequence": None,
        "stop_details": message.stop_details,
        "usage": _usage(head, message),
    }


def _iterations(head: Head, message: _Message) -> Json:
    """What it cost to compact, which is in no other number."""
    if not message.compacted:
        return {}
    whole = sum(head.usage.values())
    summary = tokens(_dump(message.blocks[0].whole))
    no_cache = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    return {
        "iterations": [
            {"type": "compaction", "input_tokens": whole, "output_tokens": summary, **no_cache},
            {"type": "message", **head.usage, "output_tokens": message.output_tokens},
        ]
    }


def _usage(head: Head, message: _Message, output_tokens: int | None = None) -> Json:
    written = head.usage["cache_creation_input_tokens"]
    if output_tokens is None:
        output_tokens = message.output_tokens
    return {
        **head.usage,
        "cache_creation": {
            "ephemeral_5m_input_tokens": written,
            "ephemeral_1h_input_tokens": 0,
        },
        "output_tokens": output_tokens,
        "service_tier": "standard",
        **_iterations(head, message),
    }


def _events(message: _Message, head: Head, pace: float) -> list[tuple[float, bytes, bool]]:
    """(pause before it, the event, is it a delta of a block), in the order of the real service."""
    events: list[tuple[float, bytes, bool]] = []

    def add(data: Json, pause: float = 0.0) -> None:
        events.append((pause, _sse(data["type"], data), data["type"] == "content_block_delta"))

    opening = {
        **_body(message, head),
        "content": [],
        "stop_reason": None,
        "stop_details": None,
        "usage": _usage(head, message, 1),
    }
    add({"type": "message_start", "message": opening})
    if not message.blocks:
        add({"type": "ping"})
    for index, block in enumerate(message.blocks):
        add({"type": "content_block_start", "index": index, "content_block": block.start})
        if index == 0:
            add({"type": "ping"})
        for delta in block.deltas:
            pause = block.pause or pace
            add({"type": "content_block_delta", "index": index, "delta": delta}, pause)
        add({"type": "content_block_stop", "index": index})
    ending = {
        "stop_reason": message.stop_reason,
        "stop_sequence": None,
        "stop_details": message.stop_details,
    }
    usage = {
        **head.usage,
        "output_tokens": message.output_tokens,
        **_iterations(head, message),
    }
    add({"type": "message_delta", "delta": ending, "usage": usage})
    add({"type": "message_stop"})
    return events


def _until(deltas: int, events: list[tuple[float, bytes, bool]]) -> list[tuple[float, bytes]]:
    kept: list[tuple[float, bytes]] = []
    seen = 0
    for pause, chunk, is_delta in events:
        seen += is_delta
        if seen > deltas or chunk.startswith(b"event: content_block_stop"):
            break
        kept.append((pause, chunk))
    return kept


def _sse(event: str, data: Json) -> bytes:
    return f"event: {event}\ndata: {_dump(data)}\n\n".encode()


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
