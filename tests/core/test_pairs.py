"""Calls that the provider runs itself keep their results."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import ToolError
from core.history import repair, result
from core.messages import Message, Role, decode_blocks, encode_blocks, text_block
from core.server_tools import name_of, server_tool

Block = dict[str, Any]


def use(id: str) -> Block:
    return {"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "q"}}


def found(id: str) -> Block:
    content = [
        {"type": "web_search_result", "url": "https://example.org", "encrypted_content": "E"}
    ]
    return {"type": "web_search_tool_result", "tool_use_id": id, "content": content}


def call(id: str) -> Block:
    return {"type": "tool_use", "id": id, "name": "echo", "input": {}}


HELLO = text_block("hello")


def history(*parts: tuple[Role, list[Block]]) -> tuple[Message, ...]:
    return tuple(
        Message(seq=seq, role=role, blocks=encode_blocks(blocks), at=0)
        for seq, (role, blocks) in enumerate(parts)
    )


def repaired(*parts: tuple[Role, list[Block]]) -> list[tuple[Role, list[Block]]]:
    once = repair(history(*parts))
    assert repair(once) == once
    return [(message.role, decode_blocks(message.blocks)) for message in once]


@pytest.mark.parametrize(
    "parts",
    [
        [("user", [HELLO]), ("assistant", [use("s1"), found("s1"), HELLO]), ("user", [HELLO])],
        # A pause parts the call from its result.
        [
            ("user", [HELLO]),
            ("assistant", [HELLO, use("s1")]),
            ("assistant", [found("s1"), HELLO]),
            ("user", [HELLO]),
        ],
        # The answer is still being made.
        [("user", [HELLO]), ("assistant", [HELLO, use("s1")])],
        # With calls of ours beside it.
        [
            ("user", [HELLO]),
            ("assistant", [use("s1"), found("s1"), call("c1")]),
            ("user", [result("c1", "done")]),
            ("assistant", [HELLO]),
        ],
        [
            ("user", [HELLO]),
            ("assistant", [use("s1"), call("c1")]),
            ("user", [result("c1", "done")]),
        ],
    ],
)
def test_what_is_whole_stays(parts: list[tuple[Role, list[Block]]]) -> None:
    assert repaired(*parts) == parts


def test_a_call_that_was_cut_off_goes() -> None:
    assert repaired(
        ("user", [HELLO]),
        ("assistant", [HELLO, use("s1"), found("s1"), use("s2")]),
        ("user", [HELLO]),
    ) == [
        ("user", [HELLO]),
        ("assistant", [HELLO, use("s1"), found("s1")]),
        ("user", [HELLO]),
    ]


def test_a_message_of_nothing_else_goes_with_it() -> None:
    assert repaired(("user", [HELLO]), ("assistant", [use("s1")]), ("user", [HELLO])) == [
        ("user", [HELLO]),
        ("user", [HELLO]),
    ]


def test_a_result_without_its_call_goes() -> None:
    for goes_on in ([], [("user", [HELLO])]):
        parts: list[tuple[Role, list[Block]]] = [
            ("user", [HELLO]),
            ("assistant", [found("s1"), HELLO, use("s2"), found("s2")]),
            *goes_on,  # type: ignore[list-item]
        ]
        assert repaired(*parts)[1] == ("assistant", [HELLO, use("s2"), found("s2")])


IDS = st.sampled_from(["s1", "s2", "s3"])
PARTS = st.lists(
    st.tuples(
        st.sampled_from(("user", "assistant")),
        st.lists(st.one_of(st.just(HELLO), IDS.map(use), IDS.map(found)), max_size=4),
    ),
    max_size=8,
)


@given(PARTS)
def test_whatever_is_stored_what_is_sent_has_its_pairs(
    parts: list[tuple[Role, list[Block]]],
) -> None:
    parts = [
        (role, blocks if role == "assistant" else [HELLO] * bool(blocks)) for role, blocks in parts
    ]
    sent = repaired(*parts)
    last = max((i for i, (role, b) in enumerate(sent) if role == "user" and HELLO in b), default=0)
    open_calls: set[str] = set()
    for index, (role, blocks) in enumerate(sent):
        assert blocks
        if role == "user" and HELLO in blocks:
            assert not open_calls
        for block in blocks:
            if block["type"] == "server_tool_use" and index < last:
                open_calls.add(block["id"])
            elif block["type"] == "web_search_tool_result":
                open_calls.discard(block["tool_use_id"])


# ---------------------------------------------------------------------- what there is


def test_the_newest_version_unless_another_is_named() -> None:
    search = server_tool("web_search", {"max_uses": 3, "allowed_domains": ["example.org"]})
    assert (search.name, search.server, search.stateful) == ("web_search", True, False)
    assert bytes(search.json) == (
        b'{"type":"web_search_20260318","name":"web_search",'
        b'"max_uses":3,"allowed_domains":["example.org"]}'
    )
    assert b'"type":"web_search_20250305"' in bytes(server_tool("web_search_20250305").json)
    assert name_of("web_fetch_20250910") == "web_fetch"
    assert name_of("code_execution") == "code_execution"
    assert name_of("weather") is None
    with pytest.raises(ToolError):
        search.function({})


def test_the_versions_are_those_of_the_sdk() -> None:
    from typing import get_args, get_type_hints

    from anthropic.types import ToolUnionParam

    from core import server_tools

    known = {
        get_args(get_args(hints["type"])[0])[0]: set(hints)
        for each in get_args(ToolUnionParam)
        if "type" in (hints := get_type_hints(each, include_extras=True))
        and get_args(get_args(hints["type"])[0])
    }
    for newest, others, options in server_tools._ALL.values():
        for version in (newest, *others):
            assert version in known
        assert options <= known[newest]


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("web_serch", {}, "no such server tool; there are web_search, web_fetch, code_execution"),
        ("web_search", {"max_use": 1}, "web_search: no such option: max_use; there are allowed_"),
        ("web_fetch", {"allowed_domains": ["a"], "blocked_domains": ["b"]}, "not both"),
    ],
)
def test_what_there_is_not(name: str, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        server_tool(name, options)
