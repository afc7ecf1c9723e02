"""The value that is stored: all of it comes back, and what is not one is never taken for one."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from core import snapshot as snapshots
from core.errors import SnapshotTooNew, SnapshotUnreadable
from core.messages import Inbound, Message, Outbound, Sender, encode_blocks, text_block
from core.snapshot import (
    VERSION,
    Overheard,
    Pending,
    Sent,
    Snapshot,
    Suspension,
    Turn,
    Usage,
    decode,
    encode,
)

STORED = Path(__file__).parent / "snapshots"

EMPTY = Snapshot(revision=1, epoch="e1", created_at=5, updated_at=6)

RICH = Snapshot(
    version=1,
    revision=2**48 + 7,
    epoch="0f1e2d3c4b5a6978",
    id="user-42",
    created_at=1_795_000_000_000,
    updated_at=1_795_000_123_456,
    model="anthropic/claude-sonnet-5-5",
    system_prompt='You are "helpful".\nBe brief.',
    thinking="adaptive",
    effort="high",
    cwd="/srv/bot",
    chosen={"model": "anthropic/claude-haiku-5-5", "effort": "low"},
    spans=((1, 4), (7, 10)),
    window=7,
    messages=(
        Message(
            seq=7,
            role="user",
            blocks=Raw(b'[{"type":"text","text":"Gr\xc3\xbc\xc3\x9fe \xf0\x9f\x99\x82"}]'),
            at=1_795_000_100_000,
            sender="telegram:42",
            message_ids=("901", "902"),
        ),
        Message(
            seq=8,
            role="assistant",
            blocks=Raw(
                b'[ {"type": "thinking", "thinking": "hm\\u2026", "signature": "Ab+/="},'
                b'{"type":"tool_use","id":"toolu_1","name":"weather","input":{"city":"Oslo"}}]'
            ),
            at=1_795_000_101_000,
        ),
        Message(
            seq=9,
            role="user",
            blocks=Raw(b'[{"type":"tool_result","tool_use_id":"toolu_1","content":"-4.0"}]'),
            at=1_795_000_102_000,
        ),
        Message(
            seq=10,
            role="assistant",
            blocks=Raw(b'[{"type":"text","text":"Four below."}]'),
            at=1_795_000_103_000,
        ),
    ),
    next_seq=15,
    inbox=(
        Inbound(
            id="00000000000000000017",
            key="telegram-topic:-1001234/7",
            kind="message",
            sender=Sender("telegram:42", "Ann"),
            text="And tomorrow?",
            message_id="903",
            group=True,
            at=1_795_000_110_000,
        ),
        Inbound(
            id="00000000000000000018",
            key="telegram-topic:-1001234/7",
            kind="edit",
            sender=Sender("telegram:43"),
            text="",
            blocks=Raw(b'[{"type":"image","source":{"type":"blob","id":"ab12"}}]'),
            message_id="904",
            reply_to="903",
            group=True,
            at=1_795_000_111_000,
        ),
    ),
    turn=Turn(
        execution="8877665544332211",
        attempt=2,
        first=13,
        taken=("00000000000000000017",),
        steps=(
            Message(
                seq=13,
                role="user",
                blocks=Raw(b'[{"type":"text","text":"<from>Ann</from>\\nAnd tomorrow?"}]'),
                at=1_795_000_112_000,
                sender="telegram:42",
                message_ids=("903",),
            ),
            Message(
                seq=14,
                role="assistant",
                blocks=Raw(
                    b'[{"type":"tool_use","id":"toolu_2","name":"weather","input":{"day":1}}]'
                ),
                at=1_795_000_113_000,
            ),
        ),
        started=("toolu_2",),
        shown=("905",),
    ),
    outbox=(
        Outbound(id="1122.0", body='{"text":"sent?"}', state="held", reply_to="800"),
        Outbound(id="1122.1", body='{"text":"never"}', state="failed"),
        Outbound(id="3344.0", body='{"text":"now"}', state="sending", replaces="880"),
        Outbound(id="3344.-881", body=None, replaces="881"),
    ),
    sent=(Sent("0011.0", ("870",)), Sent("0011.1", ())),
    seen=("00000000000000000016", "00000000000000000017", "00000000000000000018"),
    usage=Usage(1000, 200, 30, 4),
)


# ---------------------------------------------------------------------- what stores hold already


def test_the_stored_sample_of_version_1_is_read() -> None:
    assert decode((STORED / "v1.json").read_bytes()) == RICH


def test_stored_samples_are_never_changed() -> None:
    """People have such files. When a version is added, so is a sample; no other line changes."""
    found = {
        path.name: sha256(path.read_bytes()).hexdigest()[:16] for path in STORED.glob("*.json")
    }
    assert found == {"v1.json": "9998e3ffb537825c"}
    assert set(found) == {f"v{version}.json" for version in range(1, VERSION + 1)}


# ---------------------------------------------------------------------- round trips

TEXT = st.text(max_size=20)
BLOCKS = st.lists(TEXT.map(text_block), max_size=3).map(encode_blocks)
SMALL = st.integers(0, 2**53)
OPTIONAL = st.none() | TEXT


def some(value: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(value, max_size=3).map(tuple)


MESSAGES = some(
    st.builds(Message, SMALL, st.sampled_from(["user", "assistant"]), BLOCKS, SMALL, OPTIONAL)
)
PENDING = st.builds(
    Pending, TEXT, TEXT, st.none() | st.sampled_from(["approved", "declined"]), OPTIONAL, OPTIONAL
)
SUSPENSIONS = st.builds(
    Suspension, TEXT, some(PENDING), BLOCKS, OPTIONAL, some(TEXT), SMALL, some(TEXT)
)
TURNS = st.builds(
    Turn,
    TEXT,
    SMALL,
    SMALL,
    some(TEXT),
    steps=MESSAGES,
    started=some(TEXT),
    shown=some(TEXT),
    suspended=st.none() | SUSPENSIONS,
)
INBOUNDS = st.builds(
    Inbound,
    TEXT,
    TEXT,
    st.sampled_from(["message", "command", "edit", "decision", "moved"]),
    st.builds(Sender, TEXT, TEXT),
    TEXT,
    BLOCKS,
    OPTIONAL,
    OPTIONAL,
    st.booleans(),
    SMALL,
)
OUTBOUNDS = st.builds(
    Outbound,
    TEXT,
    OPTIONAL,
    st.sampled_from(["waiting", "sending", "held", "failed"]),
    OPTIONAL,
    OPTIONAL,
)
SNAPSHOTS = st.builds(
    Snapshot,
    revision=SMALL,
    epoch=TEXT,
    created_at=SMALL,
    updated_at=SMALL,
    id=OPTIONAL,
    model=OPTIONAL,
    system_prompt=OPTIONAL,
    thinking=OPTIONAL,
    effort=OPTIONAL,
    cwd=OPTIONAL,
    chosen=st.dictionaries(TEXT, TEXT, max_size=3),
    spans=some(st.tuples(SMALL, SMALL)),
    window=SMALL,
    messages=MESSAGES,
    next_seq=SMALL,
    inbox=some(INBOUNDS),
    unanswered=some(INBOUNDS),
    edited=st.none() | INBOUNDS,
    turn=st.none() | TURNS,
    outbox=some(OUTBOUNDS),
    heard=some(st.builds(Overheard, st.builds(Sender, TEXT, TEXT), TEXT, OPTIONAL)),
    answer=TEXT,
    sent=some(st.builds(Sent, TEXT, some(TEXT))),
    seen=some(TEXT),
    usage=st.builds(Usage, SMALL, SMALL, SMALL, SMALL),
    erase=some(st.tuples(SMALL, SMALL)),
)


@given(SNAPSHOTS)
@example(EMPTY)
@example(RICH)
def test_all_of_it_comes_back_but_what_is_to_be_erased(snapshot: Snapshot) -> None:
    data = encode(snapshot)
    assert decode(data) == replace(snapshot, erase=())
    assert encode(decode(data)) == data


def test_erase_is_not_stored() -> None:
    assert encode(replace(RICH, erase=((1, 4),))) == encode(RICH)


def test_blocks_are_stored_byte_for_byte() -> None:
    again = decode(encode(RICH))
    assert [bytes(row.blocks) for row in again.rows] == [bytes(row.blocks) for row in RICH.rows]
    assert bytes(RICH.messages[1].blocks) in encode(RICH)


# ---------------------------------------------------------------------- what it holds


def test_the_fields_are_those_of_the_contract_and_no_others() -> None:
    """Never keys, tokens, tool state or in-flight calls: there is no place for them. The calls of
    a turn under way are known by their ids only, in `Turn.started` and `Turn.suspended`."""
    assert Snapshot.__struct_fields__ == (
        *("version", "revision", "epoch", "created_at", "updated_at", "id"),
        *("model", "system_prompt", "thinking", "effort", "cwd", "chosen"),
        *("spans", "window", "messages", "fit", "next_seq"),
        *("inbox", "unanswered", "edited", "turn", "outbox", "heard", "answer"),
        *("sent", "seen", "usage", "gone", "erase", "spent", "rewritten"),
    )
    assert Turn.__struct_fields__ == (
        *("execution", "attempt", "first", "taken", "steps", "started", "shown", "suspended"),
    )
    assert Suspension.__struct_fields__ == (
        *("id", "calls", "results", "sender", "approvers", "expires", "joined"),
    )
    assert Pending.__struct_fields__ == ("id", "digest", "verdict", "reason", "card")


@pytest.mark.parametrize("value", [EMPTY, RICH.turn, RICH.usage, RICH.sent[0]])
def test_values_are_frozen(value: msgspec.Struct) -> None:
    with pytest.raises(AttributeError):
        setattr(value, value.__struct_fields__[0], None)


def test_rows_are_the_history_and_then_the_turn() -> None:
    assert [row.seq for row in RICH.rows] == [7, 8, 9, 10, 13, 14]
    assert replace(RICH, turn=None).rows == RICH.messages


def test_the_next_part_is_the_first_that_is_still_to_leave() -> None:
    part = RICH.next_part
    assert part is not None
    assert part.id == "3344.0"
    assert replace(RICH, outbox=RICH.outbox[:2]).next_part is None
    assert EMPTY.next_part is None


@pytest.mark.parametrize(
    ("changed", "unfinished"),
    [
        ({"inbox": RICH.inbox}, True),
        ({"turn": RICH.turn}, True),
        ({"outbox": RICH.outbox}, True),
        ({"outbox": RICH.outbox[:2]}, False),
        ({"messages": RICH.messages, "seen": RICH.seen, "sent": RICH.sent}, False),
    ],
)
def test_what_makes_a_session_unfinished(changed: dict[str, Any], unfinished: bool) -> None:
    assert replace(EMPTY, **changed).unfinished is unfinished


def test_usage_adds_up() -> None:
    assert Usage(1, 2, 3, 4) + Usage(10, 20, 30, 40) == Usage(11, 22, 33, 44)
    assert Usage() + Usage(1, 2, 3, 4) == Usage(1, 2, 3, 4)


# ---------------------------------------------------------------------- what is not one


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    value = json.loads(encode(RICH))
    change(value)
    return json.dumps(value).encode()


@pytest.mark.parametrize("version", [VERSION + 1, 99, 10**30])
def test_a_newer_version_is_refused_and_told_apart(version: int) -> None:
    data = changed(lambda value: value.update(version=version, revision="not a number any more"))
    with pytest.raises(SnapshotTooNew, match=f"version {version}.*update chinwag"):
        decode(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"{}",
        b'{"version":1}',
        b"[" * 100_000,
        b'{"version":1,"messages":' + b"[" * 100_000,
        encode(RICH)[:-1],
        encode(RICH) + b"}",
        encode(RICH).replace(b"Four below", b"Four \xff below"),
        encode(RICH).replace(b"Four below", b"Four \\ud800 below"),
        changed(lambda value: value.pop("version")),
        changed(lambda value: value.update(version=0)),
        changed(lambda value: value.update(version=-1)),
        changed(lambda value: value.update(version="1")),
        changed(lambda value: value.update(version=True)),
        changed(lambda value: value.update(version=1.0)),
        changed(lambda value: value.update(revision=None)),
        changed(lambda value: value.update(revision=1.5)),
        changed(lambda value: value.pop("epoch")),
        changed(lambda value: value.update(spans=[[1, 2, 3]])),
        changed(lambda value: value.update(chosen={"model": 1})),
        changed(lambda value: value.update(colour="blue")),
        changed(lambda value: value["turn"].update(suspended={})),
        changed(lambda value: value["usage"].update(money=1)),
        changed(lambda value: value["messages"][0].update(role="system")),
        changed(lambda value: value["messages"][0].update(blocks="hello")),
        changed(lambda value: value["messages"][0].update(blocks={})),
        changed(lambda value: value["turn"]["steps"][0].update(blocks=None)),
        changed(lambda value: value["inbox"][0].update(blocks=1)),
        changed(
            lambda value: value["turn"].update(suspended={"id": "", "calls": [], "results": {}})
        ),
        changed(lambda value: value["inbox"][0].update(kind="spell")),
        changed(lambda value: value["inbox"][0]["sender"].update(admin=True)),
        changed(lambda value: value["outbox"][0].update(state="lost")),
    ],
)
def test_anything_else_is_unreadable(data: bytes) -> None:
    with pytest.raises(SnapshotUnreadable):
        decode(data)


@given(st.binary(max_size=200))
def test_no_bytes_break_it(data: bytes) -> None:
    with pytest.raises(SnapshotUnreadable):
        decode(data)


@given(st.integers(0, 10_000), st.binary(max_size=3), st.integers(0, 8))
def test_no_damage_breaks_it(place: int, inserted: bytes, removed: int) -> None:
    """It is read or it is refused; which, only a store's checksum can say."""
    data = encode(RICH)
    place %= len(data)
    damaged = data[:place] + inserted + data[place + removed :]
    try:
        snapshot = decode(damaged)
    except (SnapshotUnreadable, SnapshotTooNew):
        return
    assert isinstance(snapshot, Snapshot)


def test_an_older_value_is_brought_up_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this were version 3, and had another name for a field of version 1."""

    def renamed(fields: dict[str, Raw]) -> dict[str, Raw]:
        rest = {name: value for name, value in fields.items() if name != "kept_rows"}
        return rest | {"messages": fields["kept_rows"]}

    def chose(fields: dict[str, Raw]) -> dict[str, Raw]:
        return fields | {"chosen": Raw(b'{"model": "m"}')}

    monkeypatch.setattr(snapshots, "STEPS", (renamed, chose))
    monkeypatch.setattr(snapshots, "VERSION", 3)
    blocks = b'[ {"type" : "text",  "text":"caf\\u00e9"} ]'
    row = b'{"seq":1,"role":"user","at":7,"blocks":%b}' % blocks
    fixed = b'"revision":1,"epoch":"e","created_at":1,"updated_at":2,"next_seq":2,"spans":[[1,1]]'
    old = b'{"version":1,%b,"kept_rows":[%b]}' % (fixed, row)
    middle = b'{"version":2,%b,"messages":[%b]}' % (fixed, row)
    for data in (old, middle):
        value = snapshots.decode(data)
        assert bytes(value.messages[0].blocks) == blocks, "byte for byte"
        assert (value.version, value.chosen) == (3, {"model": "m"})
        assert snapshots.decode(snapshots.encode(value)) == value
    with pytest.raises(SnapshotTooNew):
        snapshots.decode(old.replace(b'"version":1', b'"version":4'))
    with pytest.raises(SnapshotUnreadable):
        snapshots.decode(old.replace(b"kept_rows", b"lost_rows"))
