"""The fixed sentences, and other words for them."""

from __future__ import annotations

import pytest

from core import phrases
from core.phrases import ENGLISH, Wording


def test_no_two_sentences_are_the_same() -> None:
    """A sentence is found by what it says in English."""
    texts = list(phrases.names().values())
    assert len(texts) == len(set(texts)) > 20


def test_every_sentence_has_only_names_in_braces() -> None:
    for name, text in phrases.names().items():
        assert all(field.isidentifier() for field in phrases.fields(text)), name


def test_english_is_said_as_it_stands() -> None:
    assert ENGLISH(phrases.RESET) == phrases.RESET
    assert ENGLISH(phrases.STRANGER, id="{key} 1") == phrases.STRANGER.format(id="{key} 1")
    assert ENGLISH("of somebody's own {}") == "of somebody's own {}"


def test_other_words_replace_only_what_they_name() -> None:
    german = Wording({"RESET": "Vergessen.", "STRANGER": "Privat, {id}."})
    assert german(phrases.RESET) == "Vergessen."
    assert german(phrases.STRANGER, id="t:1") == "Privat, t:1."
    assert german(phrases.STOPPED) == phrases.STOPPED


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"RESTE": "x"}, "RESTE: there is no such sentence"),
        ({"STRANGER": "Privat."}, "STRANGER: want {id} in braces, and nothing else"),
        ({"RESET": "Bye {id}"}, "RESET: want nothing in braces, and nothing else"),
        ({"RESET": "Bye {"}, "RESET: Single '{'"),
        ({"STRANGER": "{id!r}"}, "want a name alone in braces"),
        ({"STRANGER": "{id:>9999999}"}, "want a name alone in braces"),
        ({"STRANGER": "{}"}, "want a name alone in braces"),
    ],
)
def test_a_wrong_file_is_refused(own: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError) as raised:
        Wording(own)
    assert why in str(raised.value)
