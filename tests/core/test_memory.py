"""What a conversation begins with, and how much of it is sent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import history
from core.memory import BOT_MEMORY, ConversationMemory, Seed
from core.messages import Message, encode_blocks, text_block

# How many messages each exchange has; 1 is a message that a stop left without an answer.
EXCHANGES = st.lists(st.sampled_from([1, 2, 2, 2, 3, 4, 6, 12]), max_size=30)
BOUNDS = st.integers(1, 30).flatmap(
    lambda most: st.tuples(st.just(most), st.none() | st.integers(1, most))
)


def exchange(length: int, seq: int) -> list[Message]:
    """A person asks, tools run, the last message is an answer."""
    rows = [Message(seq=seq, role="user", blocks=encode_blocks([text_block("?")]), at=0)]
    for index in range(1, length):
        call = f"c{seq + index - index % 2}"
        if index % 2 == 0:
            rows.append(
                Message(
                    seq=seq + index,
                    role="user",
                    blocks=encode_blocks([history.result(f"c{seq + index - 2}", "x")]),
                    at=0,
                )
            )
        elif index + 1 < length:
            use: history.Block = {"type": "tool_use", "id": call, "name": "n", "input": {}}
            rows.append(
                Message(seq=seq + index, role="assistant", blocks=encode_blocks([use]), at=0)
            )
        else:
            rows.append(
                Message(
                    seq=seq + index,
                    role="assistant",
                    blocks=encode_blocks([text_block("!")]),
                    at=0,
                )
            )
    return rows


def conversation(lengths: Sequence[int]) -> list[Message]:
    rows: list[Message] = []
    for length in lengths:
        rows += exchange(length, len(rows) + 1)
    return rows


@given(EXCHANGES, BOUNDS)
def test_a_window_is_whole_exchanges_within_the_bound(
    lengths: list[int], bounds: tuple[int, int | None]
) -> None:
    most, trim_to = bounds
    memory = ConversationMemory(most, trim_to)
    rows = conversation(lengths)
    first = memory.first_kept(rows)
    kept = rows[first:]
    assert len(kept) + 1 <= most
    assert first in [*history.exchanges(rows), len(rows)] or first == 0
    assert not kept or history.begins_exchange(kept[0])


@given(EXCHANGES, BOUNDS)
def test_nothing_goes_that_need_not(lengths: list[int], bounds: tuple[int, int | None]) -> None:
    most, trim_to = bounds
    memory = ConversationMemory(most, trim_to)
    rows = conversation(lengths)
    first = memory.first_kept(rows)
    if len(rows) + 1 <= most:
        assert first == 0
        return
    # One exchange more would be too much: for `trim_to`, or when even the newest exchange is
    # longer than that, for the bound itself.
    bound = memory.trim_to if len(rows) - first + 1 <= memory.trim_to else most
    before = [index for index in history.exchanges(rows) if index < first]
    assert before, "something had to go"
    if len(rows) > first:
        assert len(rows) - before[-1] + 1 > bound
    else:
        assert len(rows) - before[-1] + 1 > most


@given(st.lists(st.sampled_from([2, 2, 2, 4, 6]), min_size=60, max_size=60))
def test_the_beginning_of_a_prompt_is_the_same_for_many_turns(lengths: list[int]) -> None:
    kept: list[Message] = []
    beginnings: list[int] = []
    said = 0
    for length in lengths:
        kept = kept[BOT_MEMORY.first_kept(kept) :]
        assert len(kept) + 1 <= 40
        beginnings.append(kept[0].seq if kept else 1)
        kept += exchange(length, said + 1)
        said += length
    assert beginnings == sorted(beginnings)
    # A block is at least twenty messages.
    assert len(set(beginnings)) <= 1 + said // 20


def test_ten_turns_a_block() -> None:
    """Plain questions and answers: the window moves at every tenth turn."""
    kept: list[Message] = []
    sizes: list[int] = []
    for turn in range(41):
        kept = kept[BOT_MEMORY.first_kept(kept) :]
        sizes.append(len(kept))
        kept += exchange(2, 2 * turn + 1)
    assert sizes[:21] == [*range(0, 40, 2), 18]
    assert sizes[21:] == [*range(20, 40, 2), 18, *range(20, 38, 2)]


def test_without_a_bound_everything_stays() -> None:
    assert ConversationMemory().first_kept(conversation([2] * 500)) == 0


def test_a_bound_of_one_is_the_newest_message_alone() -> None:
    memory = ConversationMemory(1)
    rows = conversation([2, 2])
    assert memory.first_kept([]) == 0
    assert memory.first_kept(rows) == len(rows)


def test_an_exchange_longer_than_the_bound_goes_as_a_whole() -> None:
    rows = conversation([2, 12])
    assert ConversationMemory(12).first_kept(rows) == len(rows)
    assert ConversationMemory(13).first_kept(rows) == 2


@pytest.mark.parametrize(("most", "trim_to"), [(0, None), (-1, None), (5, 0), (5, 6), (None, 0)])
def test_bounds_that_cannot_be(most: int | None, trim_to: int | None) -> None:
    with pytest.raises(ValueError, match="must be"):
        ConversationMemory(most, trim_to)


@pytest.mark.parametrize(
    ("most", "trim_to", "expected"), [(40, 20, 20), (40, None, 20), (1, None, 1), (5, None, 2)]
)
def test_trim_to_is_half_of_the_bound_when_not_given(
    most: int, trim_to: int | None, expected: int
) -> None:
    assert ConversationMemory(most, trim_to).trim_to == expected


def test_adds_chain_and_each_is_where_it_belongs() -> None:
    memory = (
        ConversationMemory(20)
        .add_system("You are concise.")
        .add_user("My name is Alice.")
        .add_assistant("Nice to meet you, Alice.")
        .add_system("Be kind.")
    )
    assert memory.system == ("You are concise.", "Be kind.")
    assert memory.spoken == (
        Seed("user", "My name is Alice."),
        Seed("assistant", "Nice to meet you, Alice."),
    )


def test_as_a_dictionary() -> None:
    memory = ConversationMemory(2).add_system("a").add_user("b").add_user("c").add_assistant("d")
    assert memory.to_dict() == {
        "messages": [
            {"role": "system", "message": "a"},
            {"role": "user", "message": "b"},
            {"role": "user", "message": "c"},
            {"role": "assistant", "message": "d"},
        ],
        "max_messages": 2,
    }
    assert ConversationMemory().to_dict() == {"messages": []}


def test_seeds_beyond_the_bound_go_oldest_first_and_system_entries_stay() -> None:
    memory = ConversationMemory(4, 4).add_system("s")
    for index in range(4):
        memory.add_user(f"q{index}").add_assistant(f"a{index}")
    assert memory.spoken == (Seed("user", "q3"), Seed("assistant", "a3"))
    assert memory.system == ("s",)


def test_seeds_that_fit_are_all_there() -> None:
    memory = ConversationMemory(3).add_assistant("Hello.").add_user("Hi.")
    assert [seed.message for seed in memory.spoken] == ["Hello.", "Hi."]


@pytest.mark.parametrize(
    "memory",
    [
        ConversationMemory(),
        ConversationMemory(20).add_system("Be brief.").add_user("I am Ada.").add_assistant("Hi."),
        ConversationMemory(20, 3).add_user("a").add_user("b").add_system("c"),
    ],
)
def test_what_was_serialised_is_read_again(memory: ConversationMemory) -> None:
    again = ConversationMemory.from_dict(json.loads(json.dumps(memory.to_dict())))
    assert again.to_dict() == memory.to_dict()
    assert (again.max_messages, again.trim_to) == (memory.max_messages, memory.trim_to)
    assert (again.system, again.spoken) == (memory.system, memory.spoken)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"messages": [{"role": "tool", "message": "x"}]},
        {"messages": [{"role": "user", "content": "x"}]},
        {"messages": [], "max_messages": "20"},
        {"messages": [], "max_messages": 0},
        {"messages": [], "maxMessages": 20},
    ],
)
def test_what_is_no_memory_is_not_read(value: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"memory|max_messages"):
        ConversationMemory.from_dict(value)
