"""What people see of a call that waits, whatever a model puts into its arguments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.telegram.dialect import tokens_of
from core import cards, phrases
from core.messages import Sender
from core.model import ToolCall


def test_a_call_without_arguments() -> None:
    assert cards.question(ToolCall("c1", "reboot", {})) == "May I use **reboot**?"


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.text())))
def test_arguments_stay_within_their_fence(arguments: dict[str, object]) -> None:
    """However many backticks, headings or links are in them."""
    kinds = [token.type for token in tokens_of(cards.question(ToolCall("c1", "send", arguments)))]
    paragraph = ["paragraph_open", "inline", "paragraph_close"]
    assert kinds == ([*paragraph, "fence"] if arguments else paragraph)


def test_a_fence_is_longer_than_any_in_the_arguments() -> None:
    text = cards.question(ToolCall("c1", "send", {"text": "```` and ``` and `"}))
    assert "\n`````\n" in text and text.endswith("\n`````")


def test_long_arguments_show_both_their_ends_and_say_so() -> None:
    text = cards.question(ToolCall("c1", "send", {"text": "a" * 5_000 + "the end"}))
    assert phrases.LONGER in text and "the end" in text
    assert len(text) < 2_000


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Ada Lovelace", "Ada Lovelace"),
        ("**[Ada](https://evil.example)**", "Adahttpsevil.example"),
        ("\u202e  \n", "`test:1`"),
        ("x" * 500, "x" * 64),
    ],
)
def test_a_name_is_without_markup(name: str, shown: str) -> None:
    assert cards.name_of(Sender("test:1", name)) == shown


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(3600, "1 hour"), (7300, "2 hours"), (60, "1 minute"), (1800, "30 minutes"), (5, "5 seconds")],
)
def test_the_time_is_said_roughly(seconds: float, said: str) -> None:
    assert cards._time(seconds) == said
