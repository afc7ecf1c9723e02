"""What the inspector says of what happened."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from playground import hops
from playground.claude import Asked
from playground.claude_answers import Fail, Say

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


def test_a_line_of_the_log() -> None:
    hop = hops.of_bot(
        {"at": 5.0, "time": "…", "level": "info", "event": "accepted", "key": "k", "ms": 1.5}
    )
    assert hop == {
        "at": 5.0,
        "by": "bot",
        "name": "accepted",
        "key": "k",
        "fields": {"ms": 1.5},
        "bad": False,
    }
    assert hops.of_bot({"at": 5.0, "event": "send.later", "level": "warning"})["bad"]
    assert hops.of_bot({"at": 5.0, "event": "bot.killed", "code": -9})["bad"]


def test_a_request_to_the_model_tells_its_window_and_its_marks() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    body = {
        "model": "claude-sonnet-5-5",
        "system": [{"type": "text", "text": "be kind"} | mark],
        "tools": [{"name": "look"}],
        "messages": [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": [{"type": "text", "text": "hi"}]},
            {"role": "user", "content": [{"type": "text", "text": "more"} | mark]},
        ],
    }
    usage = {"input_tokens": 3, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 5}
    hop = hops.of_model({"at": 1.0, "asked": Asked(7, body, usage, Say("yes"))})
    assert hop["fields"] == {
        "request": 7,
        "model": "claude-sonnet-5-5",
        "window": 3,
        "marks": ["system.0", "messages.2"],
        "tools": 1,
        "input": 3,
        "cached": 40,
        "cache_written": 5,
        "answer": "Say",
    }
    failed = hops.of_model({"at": 1.0, "asked": Asked(8, body, usage, Fail(529, "x"))})
    assert failed["bad"] and not hop["bad"]


def test_a_call_of_the_bot_and_its_answer() -> None:
    def returned(method: str, status: int = 200) -> object:
        return hops.of_platform(
            {
                "at": 1.0,
                "event": "returned",
                "method": method,
                "params": {"chat_id": 5, "text": "x" * 1000, "other": 1},
                "status": status,
            }
        )

    hop = returned("sendMessage", 429)
    assert isinstance(hop, dict)
    assert hop["name"] == "sendMessage" and hop["bad"]
    assert list(hop["fields"]) == ["status", "chat_id", "text"]
    assert len(hop["fields"]["text"]) == 301
    assert returned("getUpdates") is None, "it is asked all the time"
    assert hops.of_platform({"at": 1.0, "event": "queued", "update_id": 5}) is None
    upload = hops.of_platform(
        {"at": 1.0, "event": "returned", "method": "files.upload", "status": 200}
    )
    assert upload is not None and upload["fields"] == {"status": 200}
    fault = hops.of_platform({"at": 1.0, "event": "fault", "method": "sendmessage", "fault": "cut"})
    assert fault is not None and fault["bad"]


def test_what_changed() -> None:
    before = {"revision": 1, "inbox": ["a"], "messages": [1, 2], "turn": {"attempt": 1}, "x": [1]}
    after = {"revision": 2, "inbox": [], "messages": [2, 3], "usage": 5, "turn": {"attempt": 2}}
    assert hops.changes(before, after) == [
        {"path": "revision", "was": 1, "is": 2},
        {"path": "inbox[0]", "was": "a"},
        {"path": "messages[0]", "was": 1},
        {"path": "messages[1]", "is": 3},
        {"path": "turn.attempt", "was": 1, "is": 2},
        {"path": "x", "was": [1]},
        {"path": "usage", "is": 5},
    ]


@given(VALUES, VALUES)
def test_nothing_changed_only_when_they_are_the_same(one: object, other: object) -> None:
    assert (hops.changes(one, other) == []) == (one == other)
