"""How answers look on the wire of Chat Completions: the bytes of its stream.

Pure functions from the values of `claude_answers` to bytes. Shapes follow the public API reference
("Chat Completions", "Streaming", "Errors"). Nothing in here sends, waits or decides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from playground.claude_answers import (
    Answer,
    Cut,
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
)
from playground.claude_wire import Play, tokens

Json = dict[str, Any]

_HEADERS = {"content-type": "text/event-stream; charset=utf-8"}
_STOPS = {"max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"}
_DONE = b"data: [DONE]\n\n"


def error_body(fail: Fail) -> Json:
    """The code is what programs go by; the sentence is for people."""
    return {
        "error": {
            "message": fail.message or fail.type,
            "type": "invalid_request_error" if fail.status < 429 else "server_error",
            "param": None,
            "code": fail.type,
        }
    }


def streamed(answer: Answer, request: Json, number: int, pace: float) -> Play:
    """The answer to a request with `stream: true`."""
    match answer:
        case Fail():
            body = _dump(error_body(answer))
            headers = {"content-type": "application/json", "content-length": str(len(body))}
            if answer.retry_after is not None:
                headers["retry-after"] = f"{answer.retry_after:g}"
            return Play(answer.status, ((0.0, body),), headers)
        case Silence():
            status = 200 if answer.headers else None
            return Play(status, (), _HEADERS, wait=answer.seconds, cut=True)
        case Cut(after_deltas=None):
            return Play(None, (), cut=True)
        case Raw():
            return Play(200, tuple((0.0, chunk) for chunk in answer.chunks), _HEADERS)
        case Cut() | EndEarly() | ErrorEvent():
            pieces = _words(answer.text)[: answer.after_deltas or 0]
            chunks = [_chunk(number, request, {"content": piece}) for piece in pieces]
            if isinstance(answer, ErrorEvent):
                chunks.append(b"data: " + _dump(error_body(Fail(500, answer.type))) + b"\n\n")
            cut = isinstance(answer, Cut)
            return Play(200, tuple((pace, chunk) for chunk in chunks), _HEADERS, cut=cut)
        case _:
            return Play(200, tuple(_whole(answer, request, number, pace)), _HEADERS)


def _whole(
    answer: Answer, request: Json, number: int, pace: float
) -> Iterator[tuple[float, bytes]]:
    pause = (answer.pause if isinstance(answer, Say) else 0.0) or pace
    said = 0
    yield 0.0, _chunk(number, request, {"role": "assistant", "content": ""})
    for delta in _deltas(answer, number):
        said += tokens(_dump(delta).decode())
        yield pause, _chunk(number, request, delta)
    yield 0.0, _chunk(number, request, {}, _STOPS.get(_stop(answer), "stop"))
    if (request.get("stream_options") or {}).get("include_usage"):
        yield 0.0, _usage(number, request, max(1, said))
    yield 0.0, _DONE


def _stop(answer: Answer) -> str:
    match answer:
        case Say():
            return answer.stop_reason
        case UseTools():
            return "tool_use"
        case Refuse():
            return "refusal"
        case _:
            return "end_turn"


def _deltas(answer: Answer, number: int) -> Iterator[Json]:
    match answer:
        case Say(deltas=tuple() as deltas):
            yield from ({"content": piece} for piece in deltas)
        case Say() | Think() | Pause() | Whitespace():
            yield from ({"content": piece} for piece in _words(answer.text))
        case Refuse():
            yield from ({"content": piece} for piece in _words(answer.partial))
            yield {"refusal": "I cannot help with that."}
        case UseTools():
            yield from ({"content": piece} for piece in _words(answer.text))
            for index, use in enumerate(answer.calls):
                made = f"call_{number}_{index}"
                yield _call(index, {"name": use.name, "arguments": ""}, use.id or made)
                text = json.dumps(dict(use.input), ensure_ascii=False)
                yield from (
                    _call(index, {"arguments": p}) for p in re.findall(r"(?s).{1,12}", text)
                )


def _call(index: int, function: Mapping[str, str], id: str | None = None) -> Json:
    named = {"id": id, "type": "function"} if id else {}
    return {"tool_calls": [{"index": index, **named, "function": dict(function)}]}


def _chunk(number: int, request: Json, delta: Json, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _event({**_head(number, request), "choices": [choice]})


def _usage(number: int, request: Json, said: int) -> bytes:
    asked = tokens(_dump(request["messages"]).decode()) + 1
    usage = {
        "prompt_tokens": asked,
        "completion_tokens": said,
        "total_tokens": asked + said,
        "prompt_tokens_details": {"cached_tokens": asked // 2},
    }
    return _event({**_head(number, request), "choices": [], "usage": usage})


def _head(number: int, request: Json) -> Json:
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion.chunk",
        "created": 1_790_000_000,
        "model": request["model"],
    }


def _words(text: str) -> list[str]:
    return re.findall(r"\S+\s*|\s+", text)


def _event(data: Json) -> bytes:
    return b"data: " + _dump(data) + b"\n\n"


def _dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
