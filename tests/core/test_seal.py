"""A seal opens for its keys and at its place only."""

from __future__ import annotations

import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import CannotUnseal
from core.seal import KEY_BYTES, Seal, is_sealed, keys_of, new_key

OLD, NEW = bytes(range(KEY_BYTES)), secrets.token_bytes(KEY_BYTES)


@given(st.binary(max_size=300), st.text(max_size=50))
def test_what_was_sealed_opens(plain: bytes, place: str) -> None:
    seal = Seal([OLD])
    sealed = seal.seal(plain, place)
    assert is_sealed(sealed)
    assert seal.open(sealed, place) == plain
    assert len(plain) < 4 or plain not in sealed


def test_the_same_twice_looks_different() -> None:
    seal = Seal([OLD])
    assert seal.seal(b"hello", "a") != seal.seal(b"hello", "a")


def test_it_opens_in_no_other_place() -> None:
    sealed = Seal([OLD]).seal(b"hello", "install T1")
    with pytest.raises(CannotUnseal, match="install T2: it was changed, or moved"):
        Seal([OLD]).open(sealed, "install T2")


@given(st.integers(min_value=0), st.integers(min_value=1, max_value=255))
def test_one_changed_bit_is_noticed(where: int, change: int) -> None:
    sealed = bytearray(Seal([OLD]).seal(b"hello there", "a"))
    sealed[where % len(sealed)] ^= change
    with pytest.raises(CannotUnseal):
        Seal([OLD]).open(bytes(sealed), "a")


@pytest.mark.parametrize("damaged", [b"", b"{}", b"\x01cw", b"\x01cw12345678"])
def test_what_is_not_sealed_is_an_error(damaged: bytes) -> None:
    with pytest.raises(CannotUnseal, match="a: it is"):
        Seal([OLD]).open(damaged, "a")


def test_keys_are_changed_one_after_the_other() -> None:
    sealed = Seal([OLD]).seal(b"hello", "a")
    both = Seal([NEW, OLD])
    assert both.open(sealed, "a") == b"hello"
    assert not both.is_newest(sealed)
    anew = both.seal(b"hello", "a")
    assert both.is_newest(anew)
    assert Seal([NEW]).open(anew, "a") == b"hello"
    with pytest.raises(CannotUnseal, match="a key that CHINWAG_ENCRYPTION_KEYS does not hold"):
        Seal([NEW]).open(sealed, "a")


def test_no_keys_no_seal() -> None:
    with pytest.raises(ValueError, match="needs a key"):
        Seal([])


def test_keys_are_read_from_one_line() -> None:
    first, second = new_key(), new_key()
    assert first != second
    keys = keys_of(f"{first}, {second}")
    assert [len(key) for key in keys] == [KEY_BYTES, KEY_BYTES]
    assert keys_of(first) == keys[:1]


@pytest.mark.parametrize("text", ["", "secret", "c2hvcnQ=", f"{'A' * 43}=,"])
def test_what_is_no_key_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ValueError, match="want 32 random bytes in base64") as error:
        keys_of(text)
    assert not text or text not in str(error.value)


def test_nothing_shows_the_key() -> None:
    assert repr(Seal([OLD])) == "Seal(1 keys)"
