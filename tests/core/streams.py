"""Streams of the Messages API as bytes, to read them back: scripted ones, and any that could be."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]


def wire(
    events: Iterable[Json | bytes], *, line_end: bytes = b"\n", ascii_only: bool = False
) -> bytes:
    """Events as they are sent; bytes stand for themselves, with an empty line after them."""
    sent = b""
    for event in events:
        if isinstance(event, bytes):
            sent += event + b"\n\n"
            continue
        data = json.dumps(event, ensure_ascii=ascii_only)
        sent += f"event: {event['type']}\ndata: {data}\n\n".encode()
    return sent.replace(b"\n", line_end)


def cut_up(data: bytes, borders: Sequence[int]) -> tuple[bytes, ...]:
    """The same bytes in chunks."""
    ends = [*sorted({border % (len(data) + 1) for border in borders}), len(data)]
    starts = [0, *ends[:-1]]
    return tuple(data[a:b] for a, b in zip(starts, ends, strict=True) if b > a)


def start(**usage: int | None) -> Json:
    return {
        "type": "message_start",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-opus-5-5",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 3, "output_tokens": 1, **usage},
        },
    }


def end(stop_reason: str = "end_turn", **usage: int) -> list[Json]:
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    return [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7, **usage}},
        {"type": "message_stop"},
    ]


def block(index: int, begins: Json, *deltas: Json) -> list[Json]:
    return [
        {"type": "content_block_start", "index": index, "content_block": begins},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text(index: int, *pieces: str) -> list[Json]:
    deltas = ({"type": "text_delta", "text": piece} for piece in pieces)
    return block(index, {"type": "text", "text": ""}, *deltas)


def tool_use(
    index: int, call_id: str, name: str, *pieces: str, kind: str = "tool_use"
) -> list[Json]:
    deltas = ({"type": "input_json_delta", "partial_json": piece} for piece in pieces)
    return block(index, {"type": kind, "id": call_id, "name": name, "input": {}}, *deltas)


def thinking(index: int, signature: str, *pieces: str) -> list[Json]:
    return block(
        index,
        {"type": "thinking", "thinking": "", "signature": ""},
        *({"type": "thinking_delta", "thinking": piece} for piece in pieces),
        {"type": "signature_delta", "signature": signature},
    )


def message(*blocks: list[Json], stop_reason: str = "end_turn") -> list[Json]:
    return [start(), *(event for each in blocks for event in each), *end(stop_reason)]


CITATION: Json = {
    "type": "char_location",
    "cited_text": "grass is green",
    "document_index": 0,
    "document_title": "Facts",
    "start_char_index": 0,
    "end_char_index": 14,
}
SEARCH_RESULT: Json = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {
            "type": "web_search_result",
            "title": "Grass",
            "url": "https://example.org",
            "encrypted_content": "abc",
            "page_age": "May 1",
        }
    ],
}
# What a client of today does not know: other kinds, whose fields may have other shapes.
FOREIGN: list[Json | bytes] = [
    {"type": "ping"},
    b": keep-alive",
    b"id: 7\nretry: 10",
    {"type": "weather", "index": "north", "delta": 1, "message": "rain", "usage": [], "error": 5},
    {"type": "weather", "content_block": "none"},
]

_texts = st.text(st.characters(codec="utf-8"), max_size=12)
_names = st.from_regex(r"[a-zA-Z0-9_-]{1,12}", fullmatch=True)
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**25), 10**25) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def _block(draw: st.DrawFn, index: int) -> list[Json]:
    kind = draw(st.sampled_from(["text", "cited", "thinking", "redacted", "tool", "server", "new"]))
    pieces = draw(st.lists(_texts, max_size=4))
    if kind == "text":
        return text(index, *pieces)
    if kind == "cited":
        cited: list[Json] = [{"type": "citations_delta", "citation": CITATION}] * draw(
            st.integers(1, 2)
        )
        deltas: list[Json] = [{"type": "text_delta", "text": piece} for piece in pieces]
        begins: Json = {"type": "text", "text": "", "citations": draw(st.sampled_from([None, []]))}
        return block(index, begins, *draw(st.permutations(deltas + cited)))
    if kind == "thinking":
        return thinking(index, draw(_names), *pieces)
    if kind == "redacted":
        return block(index, {"type": "redacted_thinking", "data": draw(_names)})
    if kind in ("tool", "server"):
        given = draw(st.dictionaries(_texts, _values, max_size=3))
        written = json.dumps(given, ensure_ascii=draw(st.booleans())).encode()
        # Cut between characters: a piece is text itself.
        whole = written.decode()
        at = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=4)))
        parts = [whole[a:b] for a, b in zip([0, *at], [*at, len(whole)], strict=True)]
        name = "server_tool_use" if kind == "server" else "tool_use"
        parts = ["", *parts] if bool(given) or draw(st.booleans()) else []
        return tool_use(index, f"toolu_{index}", draw(_names), *parts, kind=name)
    return block(index, SEARCH_RESULT)


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, tuple[bytes, ...]]:
    """A whole stream, and the same in chunks."""
    count = draw(st.integers(0, 4))
    events: list[Json | bytes] = [
        start(
            cache_creation_input_tokens=draw(st.sampled_from([None, 0, 11])),
            cache_read_input_tokens=draw(st.sampled_from([None, 0, 13])),
        )
    ]
    for index in range(count):
        events += draw(_block(index))
    reason = draw(st.sampled_from(["end_turn", "tool_use", "max_tokens", "pause_turn", "novel"]))
    more: dict[str, int] = draw(
        st.sampled_from([{}, {"input_tokens": 5}, {"cache_read_input_tokens": 17}])
    )
    events += end(reason, **more)
    for foreign in draw(st.lists(st.sampled_from(FOREIGN), max_size=3)):
        events.insert(draw(st.integers(1, len(events) - 1)), foreign)
    data = wire(
        events,
        line_end=draw(st.sampled_from([b"\n", b"\r\n", b"\r"])),
        ascii_only=draw(st.booleans()),
    )
    return data, cut_up(data, draw(st.lists(st.integers(0, len(data)), max_size=8)))
