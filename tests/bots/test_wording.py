"""The bot's sentences in other words, from a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from bots.wording import load_wording
from core import phrases
from core.errors import ConfigError


def test_a_file_says_it_in_other_words(tmp_path: Path) -> None:
    file = tmp_path / "phrases.toml"
    file.write_text('RESET = "Vergessen; wir fangen neu an."', encoding="utf-8")
    assert load_wording(file)(phrases.RESET) == "Vergessen; wir fangen neu an."


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"RESET", "is not TOML"),
        (b"\xff", "is not TOML"),
        (b"RESET = 5", "RESET: want a text in quotes"),
        (b'RESET = " "', "RESET: want a text in quotes"),
        (b'RESTE = "x"', "RESTE: there is no such sentence"),
        (b'STRANGER = "x"', "STRANGER: want {id} in braces"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(content: bytes, why: str, tmp_path: Path) -> None:
    file = tmp_path / "phrases.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as raised:
        load_wording(file)
    assert str(file) in str(raised.value) and why in str(raised.value)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_wording(tmp_path / "phrases.toml")
