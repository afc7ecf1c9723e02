"""Taking a batch apart: every update for itself, whatever its neighbours are."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.telegram.updates import Unreadable, Update, read

GOOD = b'{"update_id":8,"message":{"text":"]},[{\\"update_id\\":1}"}}'
DEEP = b'{"update_id":7,"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def body(*elements: bytes) -> bytes:
    return b'{"ok":true,"result":[' + b",".join(elements) + b"]}"


@pytest.mark.parametrize(
    ("bad", "update_id"),
    [
        (b'{"update_id":7,"a":"\\ud800"}', 7),
        (b'{"update_id":7,"a":"\xff"}', 7),
        (b'{"update_id":7,"a":NaN}', 7),
        (b'{"update_id":7,"a":1e999}', 7),
        (DEEP, 7),
        (b'{"update_id":7}', 7),
        (b'{"update_id":true}', None),
        (b'{"update_id":-7}', None),
        (b'{"update_id":7.5}', None),
        (b'{"update_id":' + b"9" * 30 + b"}", None),
        (b'{"a":{"update_id":7}}', None),
        (b"null", None),
        (b'"{}"', None),
        (b"[[],[1]]", None),
        (b"1e99999", None),
        (b"{}", None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_one_beside_a_good_one(bad: bytes, update_id: int | None) -> None:
    for elements in ((bad, GOOD), (GOOD, bad), (GOOD, bad, GOOD)):
        updates = read(body(*elements))
        assert [update.id for update in updates] == [
            8 if element == GOOD else update_id for element in elements
        ]
        assert all(
            update.value == json.loads(GOOD)
            for update, element in zip(updates, elements, strict=True)
            if element == GOOD
        )


def test_half_a_pair_is_kept() -> None:
    (update,) = read(body(b'{"update_id":7,"a":"\\ud83d"}'))
    assert update == Update(7, {"update_id": 7, "a": "\ud83d"})


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"<html>",
        b"null",
        b"[]",
        b'{"ok":true}',
        b'{"ok":true,"result":{}}',
        b'{"ok":true,"result":[{"update_id":1}',
        b'{"ok":true,"result":["\\ud800',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
    ids=lambda value: str(value)[:40],
)
def test_no_answer_of_telegrams(raw: bytes) -> None:
    with pytest.raises(Unreadable):
        read(raw)


def test_nothing_came() -> None:
    assert read(b'{"ok":true,"result":[]}') == []
    assert read(b'{"ok":true,"result":[ ],"note":"\\ud800"}') == []


@given(st.binary())
def test_any_bytes(raw: bytes) -> None:
    for given_body in (raw, body(raw), body(GOOD, raw)):
        try:
            updates = read(given_body)
        except Unreadable:
            continue
        assert all(isinstance(update, Update) for update in updates)


VALUES = st.recursive(
    st.none() | st.integers() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(VALUES))
def test_all_come_through(values: list[object]) -> None:
    elements = [json.dumps({"update_id": n, "x": value}) for n, value in enumerate(values)]
    # With half a pair somewhere the first decoder refuses the whole.
    for more in ("", ',"note":"\\ud800"'):
        raw = f'{{"ok":true,"result":[{",".join(elements)}]{more}}}'.encode()
        assert read(raw) == [Update(n, json.loads(text)) for n, text in enumerate(elements)]
