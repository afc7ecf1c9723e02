"""Two conversations never share a key, and a key says exactly which conversation it is."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from core.errors import InvalidKey
from core.keys import MAX_LENGTH, SessionKey, check_key

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,39}", fullmatch=True)
# What platforms use as ids, and what would be confused if it were not escaped.
PARTS = st.text(
    st.one_of(
        st.sampled_from("/:@%._-~ 0aA\0\n\u00e9\U0001f642"),
        st.characters(exclude_categories=["Cs"]),
    ),
    min_size=1,
    max_size=12,
)


def fits(scope: str, parts: tuple[str, ...], account: str | None) -> bool:
    encoded = sum(len(part.encode()) * 3 + 1 for part in parts)
    return len(scope) + len(account or "") + 1 + encoded <= MAX_LENGTH


@st.composite
def keys(draw: st.DrawFn) -> SessionKey:
    scope = draw(NAMES)
    account = draw(st.none() | NAMES)
    parts = tuple(draw(st.lists(PARTS, min_size=1, max_size=4)))
    assume(fits(scope, parts, account))
    return SessionKey(scope, parts, account)


@given(keys())
@example(SessionKey("slack-thread", ("T1", "C1", "1700000000.000100")))
@example(SessionKey("a", ("/",)))
@example(SessionKey("a", ("%2F",)))
def test_the_text_of_a_key_is_read_back_as_the_key(key: SessionKey) -> None:
    assert SessionKey.parse(str(key)) == key


@given(keys(), keys())
@example(SessionKey("a", ("b", "c")), SessionKey("a", ("b/c",)))
@example(SessionKey("a", ("b",), "c"), SessionKey("a", ("c", "b")))
@example(SessionKey("a", ("A",)), SessionKey("a", ("a",)))
@example(SessionKey("a", ("\u00e9",)), SessionKey("a", ("e\u0301",)))
def test_different_keys_have_different_texts(one: SessionKey, other: SessionKey) -> None:
    assert (one == other) == (str(one) == str(other))
    assert one != other or hash(one) == hash(other)


@given(keys())
def test_the_text_of_a_key_can_be_stored_and_logged(key: SessionKey) -> None:
    assert check_key(str(key)) == str(key)
    assert str(key).isascii()
    assert str(key).isprintable()
    assert " " not in str(key)


@given(st.text())
@example("")
@example(":")
@example("a:")
@example("a:b//c")
@example("a:%zz")
@example("a:%ff")
@example("a@:b")
@example("a:%41")
@example("a:b%2fc")
@example("A:b")
@example("agent:assistant/cwd/0123 4567")
@example("telegram-chat:\ud800")
def test_a_text_is_a_key_only_in_its_one_form(text: str) -> None:
    key = SessionKey.parse(text)
    assert key is None or str(key) == text


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("telegram-chat:123", SessionKey("telegram-chat", ("123",))),
        ("telegram-chat:-1001234", SessionKey("telegram-chat", ("-1001234",))),
        ("telegram-topic:-1001234/7", SessionKey("telegram-topic", ("-1001234", "7"))),
        ("telegram-user:-100/7/42", SessionKey("telegram-user", ("-100", "7", "42"))),
        ("slack-dm:T1/D1", SessionKey("slack-dm", ("T1", "D1"))),
        ("telegram-chat@support:123", SessionKey("telegram-chat", ("123",), "support")),
        ("console:default", SessionKey("console", ("default",))),
        ("a:%2F/%3A%40%25", SessionKey("a", ("/", ":@%"))),
    ],
)
def test_the_keys_that_the_documentation_shows(text: str, key: SessionKey) -> None:
    assert str(key) == text
    assert SessionKey.parse(text) == key


@pytest.mark.parametrize(
    ("scope", "parts", "account"),
    [
        ("", ("1",), None),
        ("Telegram", ("1",), None),
        ("1a", ("1",), None),
        ("a_b", ("1",), None),
        ("a\n", ("1",), None),
        ("a" * 41, ("1",), None),
        ("a", (), None),
        ("a", ("",), None),
        ("a", ("1", ""), None),
        ("a", ("\ud800",), None),
        ("a", ("1" * 254,), None),
        ("a", ("\u00e9" * 50,), None),
        ("a", ("1",), ""),
        ("a", ("1",), "Support"),
        ("a", ("1",), "b:c"),
    ],
)
def test_what_cannot_be_a_key_is_refused(
    scope: str, parts: tuple[str, ...], account: str | None
) -> None:
    with pytest.raises(InvalidKey):
        SessionKey(scope, parts, account)


def test_a_key_of_exactly_the_greatest_length() -> None:
    key = SessionKey("a", ("1" * 253,))
    assert len(str(key)) == MAX_LENGTH
    assert SessionKey.parse(str(key)) == key
    assert SessionKey.parse(str(key) + "1") is None


@pytest.mark.parametrize("text", ["a", "user-42", "agent:x", "\u00e9 \n", "x" * MAX_LENGTH])
def test_a_free_key_may_be_any_text_that_can_be_stored(text: str) -> None:
    assert check_key(text) == text


@pytest.mark.parametrize("text", ["", "x" * (MAX_LENGTH + 1), "a\0b", "\ud800"])
def test_what_no_store_can_keep_is_refused(text: str) -> None:
    with pytest.raises(InvalidKey):
        check_key(text)
