"""Whatever was said, and whatever bounds there are: every request is one that the service takes.

The judge is `playground.claude_rules`, written from the API's documentation and its error messages;
it shares no line with the product, and import-linter sees to that.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from core import changes, history
from core.claude import encode_request
from core.memory import ConversationMemory
from core.messages import Message, decode_blocks, encode_blocks, text_block
from core.model import Request
from core.snapshot import Fit, Snapshot
from core.trimming import NewSummary, leaving, summarised, trimmed
from core.usage import Usage
from core.window import sent, total
from playground.claude_rules import check
from tests.core.histories import Rows, conversations, damaged

TOOL = msgspec.Raw(b'{"name":"look","description":"","input_schema":{"type":"object"}}')
NEWEST = Message(seq=10_000, role="user", blocks=encode_blocks([text_block("And now?")]), at=0)

BOUNDS = st.fixed_dictionaries(
    {
        "max_messages": st.none() | st.integers(1, 50),
        "max_tokens": st.none() | st.integers(1, 20_000),
        "max_bytes": st.none() | st.integers(1, 100_000),
        "max_images": st.none() | st.integers(0, 8),
        "strategy": st.sampled_from(("window", "summary", "server")),
    }
)


def body(messages: tuple[Message, ...]) -> dict[str, Any]:
    request = Request(model="claude-sonnet-5-5", system=("Be kind.",), messages=messages)
    request = replace(request, tools=(TOOL,))
    decoded: dict[str, Any] = msgspec.json.decode(encode_request(request))
    return decoded


def checked(messages: tuple[Message, ...]) -> dict[str, Any]:
    """The request that is made of them, which the service would take."""
    repaired = history.repair(messages)
    assert history.repair(repaired) == repaired
    request = body(repaired)
    check(request)
    return request


def snapshot(messages: tuple[Message, ...]) -> Snapshot:
    last = max((row.seq for row in messages), default=0)
    return Snapshot(
        revision=1,
        epoch="e",
        created_at=0,
        updated_at=0,
        spans=((1, last),) if last else (),
        window=messages[0].seq if messages else 0,
        messages=messages,
        next_seq=last + 1,
    )


def pairs(messages: tuple[Message, ...]) -> tuple[set[str], set[str]]:
    """Ids of all calls, and of all results."""
    called: set[str] = set()
    given: set[str] = set()
    for message in messages:
        for block in decode_blocks(message.blocks):
            if block["type"] == "tool_use":
                called.add(str(block["id"]))
            elif block["type"] == "tool_result":
                given.add(str(block["tool_use_id"]))
    return called, given


@settings(max_examples=300, deadline=None)
@given(conversations(), BOUNDS)
def test_every_request_is_valid_and_no_pair_is_parted(
    rows: tuple[Message, ...], bounds: dict[str, Any]
) -> None:
    memory = ConversationMemory(**bounds)
    after = trimmed(snapshot(rows), memory, [NEWEST])
    called, given_back = pairs(after.messages)
    assert called == given_back
    assert after.messages == rows[len(rows) - len(after.messages) :]
    assert not after.messages or history.begins_exchange(after.messages[0])
    if memory.max_messages is not None:
        assert len(after.messages) + 1 <= memory.max_messages
    shown = (*sent(after.messages, after.fit), NEWEST)
    checked(shown)
    if after.messages:
        assert memory.bounds.hold(total(shown), after.fit.bytes_per_token)
    # What was kept once is kept again, and shown again, byte for byte.
    assert trimmed(after, memory, [NEWEST]) == after
    assert memory.kept(after.messages, (), after.fit) == (after.messages, after.fit)


@settings(max_examples=200, deadline=None)
@given(conversations(12), BOUNDS, st.lists(st.booleans(), min_size=12, max_size=12))
def test_a_story_of_turns_with_summaries(
    rows: tuple[Message, ...], bounds: dict[str, Any], works: list[bool]
) -> None:
    """Turn after turn: a window with summaries, some of which cannot be had."""
    memory = ConversationMemory(**{**bounds, "strategy": "summary"})
    value = snapshot(())
    written: list[int] = []
    starts = [*history.exchanges(rows), len(rows)]
    for number, (start, end) in enumerate(pairwise(starts)):
        turn = rows[start:end]
        leave = leaving(value, memory, turn[:1])
        summary = None
        if leave:
            covers = tuple(row.seq for row in leave)
            text = f"so far {number}" if works[number % 12] else None
            summary = NewSummary("e", covers, text)
        told = summarised(value, summary, 0)
        numbered = tuple(replace(row, seq=told.next_seq + at) for at, row in enumerate(turn))
        kept, fit = memory.kept(told.messages, numbered[:1], told.fit)
        shown = (*sent(kept, fit), numbered[0])
        checked(shown)
        if memory.max_messages is not None:
            assert len(shown) <= memory.max_messages
        said = [(row.role, row.blocks) for row in turn]
        value = changes.append(value, said, Usage(), 0, memory, None, summary)
        assert value.messages[-len(turn) :] == numbered
        written += [row.seq for row in numbered]
        _check_order(value, written)


def _check_order(value: Snapshot, written: list[int]) -> None:
    """Nothing is deleted; what is read is the end of the history, a summary in front of it."""
    read = [seq for first, last in value.spans for seq in range(first, last + 1)]
    assert len(read) == len(set(read))
    assert set(written) <= set(read)
    seqs = [row.seq for row in value.messages]
    assert read[len(read) - len(seqs) :] == seqs
    assert value.window in (0, seqs[0])
    told = [row for row in value.messages if row.role == "summary"]
    assert told in ([], [value.messages[0]])
    # However many summaries there were.
    assert len(value.spans) <= 4


@settings(max_examples=300, deadline=None)
@given(damaged(), BOUNDS)
@example((), {"max_messages": 1, "max_tokens": 1, "max_bytes": 1, "max_images": 0})
def test_what_is_damaged_is_repaired_in_any_window(
    rows: tuple[Message, ...], bounds: dict[str, Any]
) -> None:
    memory = ConversationMemory(**bounds)
    kept, fit = memory.kept(rows, [NEWEST])
    checked((*sent(kept, fit), NEWEST))


@settings(max_examples=100, deadline=None)
@given(conversations(10), st.integers(0, 60), st.integers(0, 60))
def test_what_is_cleared_is_a_marker_and_all_else_is_as_it_was(
    rows: tuple[Message, ...], images: int, results: int
) -> None:
    fit = Fit(images=images, results=results)
    shown = sent(rows, fit)
    checked((*shown, NEWEST))
    for row, light in zip(rows, shown, strict=True):
        if row.seq >= max(images, results) or row.role == "assistant":
            assert light is row
        held = total([light])
        if row.seq < images:
            assert (held.images, held.held) == (0, 0)
        assert held.text <= total([row]).text + 200


def test_a_summary_is_told_by_the_users_side() -> None:
    rows = Rows()
    rows.add("summary", text_block("so far"))
    rows.add("user", text_block("a"))
    rows.add("assistant", text_block("b"))
    request = checked((*sent(tuple(rows.rows), Fit()), NEWEST))
    assert [message["role"] for message in request["messages"]] == [
        *("user", "user", "assistant", "user")
    ]
