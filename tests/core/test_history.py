"""Whatever was stored, what is sent is a history that the model's service takes."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from core import history
from core.history import Block
from core.messages import Message, Role, decode_blocks, encode_blocks, text_block

IDS = st.sampled_from(["c1", "c2", "c3", ""])


def use(call: str) -> Block:
    return {"type": "tool_use", "id": call, "name": "tool_result", "input": {"type": "tool_use"}}


# The last ones hold the names of block types where they mean nothing.
SPOKEN: list[Block] = [
    text_block("hello"),
    text_block('"tool_use" "tool_result"'),
    text_block("tool_result"),
    {"type": "image", "source": {"type": "tool_result", "kind": "tool_use"}},
    {"type": "thinking", "thinking": "tool_use", "signature": "s="},
]

BLOCKS = st.one_of(
    st.sampled_from(SPOKEN),
    IDS.map(use),
    st.builds(
        lambda call, error: history.result(call, "4 \u00b0C", error=error), IDS, st.booleans()
    ),
)


def message(role: Role, *blocks: Block, seq: int = 1) -> Message:
    return Message(
        seq=seq,
        role=role,
        blocks=encode_blocks(blocks),
        at=seq,
        sender="t:1" if role == "user" else None,
        message_ids=("m",) if role == "user" else (),
    )


def no_call_twice(blocks: Sequence[Block]) -> bool:
    called = [block["id"] for block in blocks if block["type"] == "tool_use"]
    return len(called) == len(set(called))


MESSAGES = st.lists(
    st.builds(
        lambda role, blocks: message(role, *blocks),
        st.sampled_from(["user", "assistant"]),
        st.lists(BLOCKS, max_size=5).filter(no_call_twice),
    ),
    max_size=9,
).map(lambda rows: tuple(replace(row, seq=seq) for seq, row in enumerate(rows, 1)))


@st.composite
def valid_histories(draw: st.DrawFn) -> tuple[Message, ...]:
    rows: list[Message] = []
    for _ in range(draw(st.integers(0, 4))):
        rows.append(message("user", *draw(st.lists(st.sampled_from(SPOKEN), min_size=1))))
        for _ in range(draw(st.integers(0, 3))):
            called = draw(st.lists(IDS, min_size=1, unique=True))
            rows.append(
                message("assistant", draw(st.sampled_from(SPOKEN)), *(use(call) for call in called))
            )
            results = [history.result(call, "x") for call in draw(st.permutations(called))]
            joined = draw(st.lists(st.sampled_from(SPOKEN), max_size=1))
            rows.append(message("user", *results, *joined))
        if draw(st.booleans()):
            rows.append(message("assistant", draw(st.sampled_from(SPOKEN))))
    return tuple(replace(row, seq=seq) for seq, row in enumerate(rows, 1))


def faults(messages: Sequence[Message]) -> list[str]:
    """What a service would refuse; written without a look at how it is repaired."""
    found: list[str] = []
    asked: set[str] = set()
    for index, each in enumerate(messages):
        blocks = decode_blocks(each.blocks)
        kinds = [block["type"] for block in blocks]
        if not blocks:
            found.append(f"{index} is empty")
        if index == 0 and (each.role != "user" or "tool_result" in kinds):
            found.append("it does not begin with a person")
        given = [
            str(block["tool_use_id"])
            for block in blocks
            if each.role == "user" and block["type"] == "tool_result"
        ]
        if sorted(given) != sorted(asked):
            found.append(f"{index} has results for {given}, asked for was {asked}")
        if given and kinds[: len(given)] != ["tool_result"] * len(given):
            found.append(f"the results of {index} are not its beginning")
        asked = {
            str(block["id"])
            for block in blocks
            if each.role == "assistant" and block["type"] == "tool_use"
        }
    if asked:
        found.append("the last calls are not answered")
    return found


@given(MESSAGES)
@example(())
@example((message("user", text_block("a")), message("assistant", use("c1"))))
@example((message("user", history.result("c1", "x")),))
def test_whatever_comes_in_what_goes_out_is_valid(messages: tuple[Message, ...]) -> None:
    assert faults(history.repair(messages)) == []


@given(MESSAGES)
def test_repair_is_pure_and_idempotent(messages: tuple[Message, ...]) -> None:
    before = copy.deepcopy([(row.role, bytes(row.blocks)) for row in messages])
    repaired = history.repair(messages)
    assert history.repair(messages) == repaired
    assert history.repair(repaired) == repaired
    assert [(row.role, bytes(row.blocks)) for row in messages] == before


@given(MESSAGES | valid_histories())
def test_what_is_valid_stays_as_it_is(messages: tuple[Message, ...]) -> None:
    if not faults(messages):
        repaired = history.repair(messages)
        assert len(repaired) == len(messages)
        assert all(mine is theirs for mine, theirs in zip(repaired, messages, strict=True))


@given(valid_histories())
def test_histories_as_we_write_them_are_valid(messages: tuple[Message, ...]) -> None:
    """Else the test before this one would say nothing."""
    assert faults(messages) == []


@given(valid_histories())
def test_a_history_that_was_cut_off_anywhere_loses_nothing_that_was_said(
    messages: tuple[Message, ...],
) -> None:
    """As a crash between a call and its result leaves it."""
    for end in range(len(messages)):
        repaired = history.repair(messages[:end])
        assert repaired[:end] == messages[:end]
        assert len(repaired) <= end + 1


def test_an_unanswered_call_is_reported_as_interrupted() -> None:
    asked = message("user", text_block("Weather?"), seq=1)
    called = message("assistant", use("c1"), use("c2"), seq=2)
    next_asked = message("user", text_block("And?"), history.result("c2", "4"), seq=3)
    repaired = history.repair((asked, called, next_asked))
    assert repaired[:2] == (asked, called)
    assert decode_blocks(repaired[2].blocks) == [
        history.result("c2", "4"),
        history.result("c1", history.INTERRUPTED, error=True),
        text_block("And?"),
    ]
    assert (repaired[2].seq, repaired[2].sender) == (3, "t:1")


@pytest.mark.parametrize("after", [(), (message("assistant", text_block("So."), seq=3),)])
def test_results_that_are_missing_altogether_are_a_message_of_nobody(
    after: tuple[Message, ...],
) -> None:
    asked = message("user", text_block("Weather?"), seq=1)
    called = message("assistant", use("c1"), seq=2)
    repaired = history.repair((asked, called, *after))
    assert repaired[3:] == after
    added = repaired[2]
    assert decode_blocks(added.blocks) == [history.result("c1", history.INTERRUPTED, error=True)]
    assert (added.role, added.sender, added.message_ids) == ("user", None, ())


def test_an_orphan_result_is_removed_and_what_was_said_beside_it_stays() -> None:
    both = message("user", history.result("c9", "x"), text_block("Hi"))
    alone = message("user", history.result("c9", "x"))
    first = message("user", text_block("Hi"))
    assert history.repair((both,)) == (replace(both, blocks=first.blocks),)
    assert history.repair((first, alone)) == (first,)
    assert history.repair((alone, first)) == (first,)


def test_the_first_of_two_results_for_one_call_counts() -> None:
    asked = message("user", text_block("Weather?"))
    called = message("assistant", use("c1"))
    twice = message("user", history.result("c1", "4"), history.result("c1", "5"))
    repaired = history.repair((asked, called, twice))
    assert decode_blocks(repaired[2].blocks) == [history.result("c1", "4")]


@pytest.mark.parametrize("blocks", [b"[]", b"[ ]", b" [\n] "])
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_an_empty_message_is_removed(role: Role, blocks: bytes) -> None:
    first = message("user", text_block("Hi"))
    empty = Message(seq=2, role=role, blocks=Raw(blocks), at=0)
    assert history.repair((first, empty, first)) == (first, first)


def test_what_precedes_the_first_message_of_a_person_is_removed() -> None:
    first = message("user", text_block("Hi"))
    before = (message("assistant", use("c1")), message("user", history.result("c1", "x")))
    assert history.repair((*before, first)) == (first,)
    assert history.repair(before) == ()


def test_a_call_without_an_id_does_not_break_it() -> None:
    first = message("user", text_block("Hi"))
    broken = message("assistant", {"type": "tool_use"})
    assert len(history.repair((first, broken))) == 3


def test_calls_of_an_answer() -> None:
    assert history.calls(message("assistant", text_block("a"), use("c1"), use("c2"))) == [
        use("c1"),
        use("c2"),
    ]
    assert history.calls(message("assistant", text_block('"tool_use"'))) == []
    assert history.calls(message("assistant", {"type": "image", "kind": "tool_use"})) == []
    assert history.calls(message("user", use("c1"))) == []


def test_an_exchange_begins_where_a_person_speaks() -> None:
    rows = [
        message("user", text_block("a")),
        message("assistant", use("c1")),
        message("user", history.result("c1", "x")),
        message("user", {"type": "image", "kind": "tool_result"}),
        message("assistant", text_block("b")),
        message("user", history.result("c1", "x"), text_block("joined")),
    ]
    assert list(history.exchanges(rows)) == [0, 3]
    assert list(history.exchanges([])) == []


def test_a_result_is_an_error_only_when_it_says_so() -> None:
    assert history.result("c1", "x") == {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": "x",
    }
    assert history.result("c1", [], error=True)["is_error"] is True
