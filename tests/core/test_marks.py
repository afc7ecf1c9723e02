"""The marks of the prompt cache: four at most, and where the next request finds them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from core.agent import Agent
from core.claude import encode_request
from core.marks import marked, marked_rows, marked_tools
from core.memory import ConversationMemory
from core.messages import Message, Role, decode_blocks, encode_blocks, text_block
from core.model import Request
from core.session import Session
from playground.claude_usage import Cache, blocks_of, prompt_of
from tests.core.fakes import FakeClock, ScriptedModel
from tests.core.test_conversations import House

SYSTEM = "You are the patient clerk of a small harbour. " * 100  # more than 1,024 tokens
TOOL = msgspec.Raw(b'{"name":"look","description":"","input_schema":{"type":"object"}}')


def row(role: Role, *blocks: dict[str, Any]) -> Message:
    return Message(seq=1, role=role, blocks=encode_blocks(blocks), at=0)


def said(role: Role, text: str) -> Message:
    return row(role, text_block(text))


def body(messages: list[Message], **options: Any) -> dict[str, Any]:
    given = {"system": (SYSTEM,), "tools": (TOOL,), **options}
    request = Request(model="claude-sonnet-5-5", messages=messages, **given)
    decoded: dict[str, Any] = msgspec.json.decode(encode_request(request))
    return decoded


def use(id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "look", "input": {}}


def calls(count: int, round: int) -> list[Message]:
    """An answer with so many calls, and their results."""
    ids = [f"call_{round}_{index}" for index in range(count)]
    return [
        row(
            "assistant", *({"type": "tool_use", "id": i, "name": "look", "input": {}} for i in ids)
        ),
        row("user", *({"type": "tool_result", "tool_use_id": i, "content": "so"} for i in ids)),
    ]


def test_the_last_three_messages_of_the_users_side_bear_one() -> None:
    roles: list[Role] = ["user", "assistant", "user", "user", "assistant", "user", "assistant"]
    assert marked_rows([said(role, "x") for role in roles]) == {2, 3, 5}
    assert marked_rows([said("user", "x")]) == {0}
    assert marked_rows([]) == frozenset()


def test_four_marks_at_most_whatever_is_sent() -> None:
    messages = [said("user", "?"), *calls(3, 1), *calls(30, 2), *calls(1, 3)]
    for options in ({}, {"system": ()}, {"tools": ()}, {"system": (), "tools": ()}):
        marks = [block for block in blocks_of(body(messages, **options)) if block.marked]
        assert len(marks) == (3 if options == {"system": (), "tools": ()} else 4)


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        (b'[{"type":"text","text":"]}"}]', b'[{"type":"text","text":"]}",MARK}]'),
        (b'[ {"a": [{"b": 1} ] } \n] ', b'[ {"a": [{"b": 1} ] ,MARK}]'),
        (b'[{"a":1},{"b":2}]', b'[{"a":1},{"b":2,MARK}]'),
        (b'[{"a":1,"cache_control":null}]', b'[{"a":1,"cache_control":null}]'),
        (b"[]", b"[]"),
    ],
)
def test_the_last_block_bears_the_mark(blocks: bytes, expected: bytes) -> None:
    mark = b'"cache_control":{"type":"ephemeral"}'
    found = bytes(marked(msgspec.Raw(blocks)))
    assert found == expected.replace(b"MARK", mark)
    msgspec.json.decode(found)


def test_without_a_system_text_the_last_tool_bears_it() -> None:
    other = msgspec.Raw(b'{"name": "other", "input_schema": {"type":"object"} } ')
    first, last = (msgspec.json.decode(tool) for tool in marked_tools([TOOL, other]))
    assert "cache_control" not in first
    assert last == {**msgspec.json.decode(other), "cache_control": {"type": "ephemeral"}}


@pytest.mark.parametrize("count", [1, 5, 40])
def test_each_request_of_a_turn_reads_the_one_before(count: int) -> None:
    """Also when an answer and its results are more blocks than the service looks back."""
    cache = Cache()
    messages = [said("user", "Look at them all.")]
    kept = 0
    for round in range(4):
        request = body(messages)
        usage = cache.usage(request, prompt_of(request))
        # A few tokens behind the last mark are never kept.
        assert kept <= usage["cache_read_input_tokens"] <= kept + 3
        kept = usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]
        assert usage["input_tokens"] <= 30
        messages += calls(count, round)


def test_the_next_turn_reads_this_one_whatever_was_said_without_an_answer() -> None:
    cache = Cache()
    first = [said("user", "Hello")]
    for messages in (
        first,
        [*first, said("assistant", "Hi"), said("user", "One")],
        # A turn that was given up has left nothing; two messages came in its place.
        [*first, said("assistant", "Hi"), said("user", "Two"), said("user", "Three")],
    ):
        request = body(messages)
        usage = cache.usage(request, prompt_of(request))
        assert (usage["cache_read_input_tokens"] > 1_000) is (messages is not first)


async def test_the_time_stands_in_the_newest_message_and_in_nothing_before_it() -> None:
    agent = Agent(tell_time=True, memory=ConversationMemory().add_user("Hi").add_assistant("Yes?"))
    async with House("one", "two", agent=agent) as house:
        await house.says("a")
        house.clock.jump(90_000)
        await house.says("b")
        first, second = house.model.requests
    assert first.system == second.system
    # What was sent is the beginning of what is sent next, byte for byte.
    assert encode_request(second).startswith(encode_request(first).split(b',"cache_control"')[0])
    sent = [decode_blocks(message.blocks) for message in second.messages]
    assert sent[0] == [text_block("Hi")]
    assert sent[2] == [
        text_block("<time>Friday, 15 January 2027, 08:00 UTC</time>"),
        text_block("a"),
    ]
    assert sent[4] == [
        text_block("<time>Friday, 15 January 2027, 08:01 UTC</time>"),
        text_block("b"),
    ]

    model = ScriptedModel("one")
    session = await Session.start(agent, client=model, clock=FakeClock())
    await session.run("a")
    assert [decode_blocks(row.blocks) for row in model.requests[0].messages] == sent[:3]
