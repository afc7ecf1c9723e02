"""From bytes to an Answer: nothing here but bytes. The comparison with the SDK's own reader, over a
real socket, is in test_claude.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import ModelUnavailable
from core.messages import decode_blocks
from core.model import Answer, ToolCall
from core.snapshot import Usage
from core.sse import Assembly, Lines
from tests.core.streams import (
    CITATION,
    FOREIGN,
    block,
    cut_up,
    end,
    message,
    start,
    streams,
    text,
    thinking,
    tool_use,
    wire,
)

HELLO = message(text(0, "Hel", "lo, ", "wörld 👋"))


def read(*chunks: bytes) -> Answer:
    assembly = Assembly()
    for chunk in chunks:
        assembly.feed(chunk)
    return assembly.answer()


def read_events(events: Sequence[Any]) -> Answer:
    return read(wire(events))


def lines(*chunks: bytes) -> list[bytes]:
    cutter = Lines()
    return [data for chunk in chunks for data in cutter.feed(chunk)]


# ---------------------------------------------------------------------- lines


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_an_event_is_its_data_lines(line_end: bytes) -> None:
    sent = b": a comment\nevent: x\ndata: one\ndata:two\ndata\nid: 3\n\n\n\ndata: three\n\n"
    assert lines(sent.replace(b"\n", line_end)) == [b"one\ntwo", b"three"]


def test_only_one_space_belongs_to_the_format() -> None:
    assert lines(b"data:  two\n\n") == [b" two"]


def test_an_event_without_its_empty_line_has_not_come_yet() -> None:
    assert lines(b"data: one\n") == []
    assert lines(b"data: one\n", b"", b"\n") == [b"one"]


def test_a_line_end_may_be_cut_in_two() -> None:
    assert lines(b"data: one\r", b"", b"\n\r", b"\ndata: two\r", b"\r") == [b"one", b"two"]


@given(st.lists(st.integers(0, 10_000), max_size=12), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_it_does_not_matter_where_the_chunks_end(borders: list[int], line_end: bytes) -> None:
    data = wire(HELLO, line_end=line_end)
    assert lines(*cut_up(data, borders)) == lines(wire(HELLO))


def test_every_byte_may_be_a_chunk() -> None:
    data = wire(HELLO, line_end=b"\r\n")
    assert read(*(data[i : i + 1] for i in range(len(data)))) == read(wire(HELLO))


# ---------------------------------------------------------------------- an answer


def test_text() -> None:
    answer = read_events(HELLO)
    assert answer.text == "Hello, wörld 👋"
    assert decode_blocks(answer.blocks) == [{"type": "text", "text": "Hello, wörld 👋"}]
    assert answer.calls == ()
    assert answer.stop_reason == "end_turn"


def test_each_piece_of_text_is_shown_as_it_comes() -> None:
    shown: list[str] = []
    assembly = Assembly(shown.append)
    for event in message(thinking(0, "s", "hm"), text(1, "Hel", "", "lo")):
        assembly.feed(wire([event]))
        if event["type"] == "content_block_delta":
            shown.append("|")
    assert shown == ["|", "|", "Hel", "|", "|", "lo", "|"]


def test_what_comes_in_one_chunk_is_shown_at_once() -> None:
    shown: list[str] = []
    assembly = Assembly(shown.append)
    sent = wire(HELLO)
    assembly.feed(sent[:-1])
    assembly.feed(sent[-1:])
    assert shown == ["Hello, wörld 👋"]


def test_texts_are_joined_and_blank_ones_dropped() -> None:
    answer = read_events(message(text(0, " \n"), text(1, "One. "), text(2), text(3, "Two.")))
    assert answer.text == "One. Two."
    assert decode_blocks(answer.blocks) == [
        {"type": "text", "text": "One. "},
        {"type": "text", "text": "Two."},
    ]


def test_nothing_at_all() -> None:
    answer = read_events(message())
    assert (answer.text, bytes(answer.blocks), answer.calls) == ("", b"[]", ())


def test_tool_use() -> None:
    answer = read_events(
        message(
            text(0, "Let me see."),
            tool_use(1, "toolu_1", "weather", "", '{"city": "Lü', 'beck", "n": 1', "}"),
            tool_use(2, "toolu_2", "clock"),
            stop_reason="tool_use",
        )
    )
    assert answer.calls == (
        ToolCall(id="toolu_1", name="weather", input={"city": "Lübeck", "n": 1}),
        ToolCall(id="toolu_2", name="clock", input={}),
    )
    assert decode_blocks(answer.blocks)[1] == {
        "type": "tool_use",
        "id": "toolu_1",
        "name": "weather",
        "input": {"city": "Lübeck", "n": 1},
    }
    assert answer.text == "Let me see."
    assert answer.stop_reason == "tool_use"


def test_a_number_of_any_size_is_kept() -> None:
    answer = read_events(message(tool_use(0, "a", "n", '{"n": 1' + "0" * 30 + "}")))
    assert answer.calls[0].input == {"n": 10**30}
    assert decode_blocks(answer.blocks)[0]["input"] == {"n": 10**30}


def test_thinking_keeps_its_signature() -> None:
    answer = read_events(
        message(thinking(0, "sig==", "Let ", "me think"), thinking(1, "only"), text(2, "Yes."))
    )
    assert decode_blocks(answer.blocks)[:2] == [
        {"type": "thinking", "thinking": "Let me think", "signature": "sig=="},
        {"type": "thinking", "thinking": "", "signature": "only"},
    ]
    assert answer.text == "Yes."


def test_citations_are_kept_with_their_text() -> None:
    cites = {"type": "citations_delta", "citation": CITATION}
    answer = read_events(
        message(
            block(0, {"type": "text", "text": "", "citations": None}, cites, cites, _t("Green"))
        )
    )
    assert decode_blocks(answer.blocks) == [
        {"type": "text", "text": "Green", "citations": [CITATION, CITATION]}
    ]


def _t(piece: str) -> dict[str, Any]:
    return {"type": "text_delta", "text": piece}


def test_a_block_may_begin_with_something() -> None:
    answer = read_events(message(block(0, {"type": "text", "text": "One "}, _t("two"))))
    assert answer.text == "One two"


def test_blocks_are_in_the_order_of_their_index() -> None:
    answer = read_events(message(text(1, "world"), text(0, "Hello ")))
    assert answer.text == "Hello world"


def test_usage_is_cumulative_and_what_comes_later_counts() -> None:
    first = start(input_tokens=20, cache_creation_input_tokens=5, cache_read_input_tokens=None)
    last = end("end_turn", input_tokens=25, output_tokens=9, cache_read_input_tokens=4)
    assert read_events([first, *last]).usage == Usage(25, 9, 5, 4)


def test_without_usage_nothing_was_used() -> None:
    bare = [{"type": "message_start", "message": {}}, {"type": "message_stop"}]
    answer = read_events(bare)
    assert answer.usage == Usage()
    assert answer.stop_reason == "unknown"


def test_a_stop_reason_that_nobody_knows_is_kept() -> None:
    assert read_events([start(), *end("tired")]).stop_reason == "tired"


# ---------------------------------------------------------------------- what is not for us


@pytest.mark.parametrize("foreign", FOREIGN)
def test_events_that_nobody_knows_are_passed_over(foreign: Any) -> None:
    events: list[Any] = [*HELLO]
    for place in range(len(events), -1, -1):
        events.insert(place, foreign)
    assert read_events(events) == read_events(HELLO)


def test_deltas_that_nobody_knows_are_passed_over() -> None:
    novel = {"type": "smell_delta", "text": 5, "citation": "x", "smell": "rose"}
    plain = {"type": "smell_delta", "smell": "rose"}
    answer = read_events(message(block(0, {"type": "text", "text": ""}, novel, _t("Hi"), plain)))
    assert decode_blocks(answer.blocks) == [{"type": "text", "text": "Hi"}]


def test_blocks_that_nobody_knows_are_kept_as_they_are() -> None:
    hologram = {"type": "hologram", "payload": {"depth": [1, 2.5, None]}, "text": ""}
    answer = read_events(message(block(0, hologram), text(1, "See?")))
    assert decode_blocks(answer.blocks)[0] == hologram
    assert answer.text == "See?"


# ---------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("count", range(len(HELLO)))
def test_a_stream_that_just_ends_is_no_answer(count: int) -> None:
    with pytest.raises(ModelUnavailable, match="ended before"):
        read_events(HELLO[:count])


def test_an_error_event() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "secret text"}}
    with pytest.raises(ModelUnavailable) as raised:
        read_events([*HELLO[:4], error])
    assert str(raised.value) == "overloaded_error in the middle of the answer"


@pytest.mark.parametrize("error", [{"type": "error"}, {"type": "error", "error": "so"}])
def test_an_error_event_without_a_word(error: Any) -> None:
    with pytest.raises(ModelUnavailable):
        read_events([*HELLO[:4], error])


@pytest.mark.parametrize(
    "data",
    [
        b"data: no json",
        b"data: []",
        b"data: {}",
        b'data: {"type": "content_block_delta", "index": "x"}',
        b'data: {"type": "content_block_delta", "delta": 1}',
        b'data: {"type": "content_block_delta", "delta": {"type": "text_delta", "text": 1}}',
        b'data: {"type": "message_stop", "index": "x"}',
        b'data: {"type": "content_block_start", "content_block": []}',
        b'data: {"type": "\xff"}',
        b'data: {"type": "x", "delta": ' + b"[" * 100_000,
    ],
    ids=range(10),
)
def test_what_is_no_event_is_no_answer(data: bytes) -> None:
    with pytest.raises(ModelUnavailable, match="no event"):
        read(wire([*HELLO[:4], data, *HELLO[4:]]))


def test_a_block_that_never_began() -> None:
    with pytest.raises(ModelUnavailable, match="never began"):
        read_events([start(), *text(0, "Hi")[1:], *end()])


@pytest.mark.parametrize(
    "begins",
    [
        {},
        {"type": None},
        {"type": "text", "text": 5},
        {"type": "tool_use", "id": "a", "name": "n"},
        {"type": "tool_use", "id": "a", "name": 5, "input": {}},
        {"type": "tool_use", "id": "a", "name": "n", "input": []},
    ],
)
def test_what_is_no_block_is_no_answer(begins: Any) -> None:
    with pytest.raises(ModelUnavailable, match="no block"):
        read_events(message(block(0, begins)))


@pytest.mark.parametrize("written", ['{"a": 1', "[1]", "nonsense", '{"a": 1e999}', "[" * 100_000])
def test_a_call_whose_arguments_nobody_can_read_is_never_run(written: str) -> None:
    """Not even without them: a tool may have defaults for all."""
    call = tool_use(0, "a", "delete_files", written)
    with pytest.raises(ModelUnavailable, match="arguments"):
        read_events(message(call, stop_reason="tool_use"))
    cut = read_events(message(text(1, "I will"), call, stop_reason="max_tokens"))
    assert cut.stop_reason == "max_tokens"
    assert cut.calls[0].input == {}
    assert cut.text == "I will"


# ---------------------------------------------------------------------- any stream


@given(streams())
def test_chunks_never_matter(stream: tuple[bytes, tuple[bytes, ...]]) -> None:
    data, chunks = stream
    assert b"".join(chunks) == data
    whole, pieces = read(data), read(*chunks)
    assert whole == pieces
    assert whole.text == "".join(
        str(block["text"]) for block in decode_blocks(whole.blocks) if block["type"] == "text"
    )


@given(streams(), st.binary(max_size=6), st.integers(0, 10_000))
def test_it_raises_what_it_says_and_nothing_else(
    stream: tuple[bytes, tuple[bytes, ...]], noise: bytes, place: int
) -> None:
    data, _ = stream
    place %= len(data)
    try:
        answer = read(data[:place] + noise + data[place + len(noise) :])
    except ModelUnavailable:
        return
    assert isinstance(msgspec.json.decode(answer.blocks), list)


# ---------------------------------------------------------------------- what is billed


def billed(events: Sequence[Any]) -> Usage | None:
    assembly = Assembly()
    assembly.feed(wire(events))
    return assembly.billed()


def test_what_has_not_begun_has_said_nothing() -> None:
    assert billed([]) is None
    assert billed([{"type": "message_start", "message": {}}]) is None


def test_what_broke_off_is_billed_as_far_as_it_came() -> None:
    begun = [start(input_tokens=25, output_tokens=1, cache_read_input_tokens=4)]
    assert billed(begun) == Usage(25, 1, 0, 4)
    spoken = [*thinking(0, "sig", "hm, "), *text(1, "é", "tude")]
    assert billed([*begun, *spoken]) == Usage(25, len("hm, ") + 2 + 4, 0, 4)


def test_what_came_to_its_end_is_billed_as_it_was_counted() -> None:
    assert billed(HELLO) == read_events(HELLO).usage


def test_hours_in_the_cache_and_searches_are_counted() -> None:
    first = start()
    first["message"]["usage"]["cache_creation_input_tokens"] = 9
    first["message"]["usage"]["cache_creation"] = {"ephemeral_1h_input_tokens": 7}
    last = end()
    last[0]["usage"]["server_tool_use"] = {"web_search_requests": 2}
    assert read_events([first, *last]).usage == Usage(3, 7, 9, 0, 7, 2)


def test_where_code_has_run() -> None:
    begun = start()
    begun["message"]["container"] = {"id": "container_1", "expires_at": "2026-12-01T00:00:00Z"}
    assert read_events([start(), *end()]).container is None
    assert read_events([begun, *end()]).container == "container_1"
    first, last = end()
    first["delta"]["container"] = {"id": "container_2", "expires_at": "2026-12-01T00:00:00Z"}
    assert read_events([begun, first, last]).container == "container_2"
