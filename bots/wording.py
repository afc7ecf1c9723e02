"""The bot's fixed sentences in other words: a TOML file, ``NAME = "text"``, of those to differ.

Their names, and what each says in English, are in `core/phrases.py`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from bots.settings import Settings
from core.errors import ConfigError
from core.phrases import ENGLISH, Wording


def load_wording(file: Path) -> Wording:
    """
    :raises ConfigError: it is not there, not TOML, or names what does not exist
    """
    try:
        own = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: is not TOML: {error}") from None
    for name, text in own.items():
        if not isinstance(text, str) or not text.strip():
            raise ConfigError(f"{file}: {name}: want a text in quotes")
    try:
        return Wording(own)
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from None


def build_wording(settings: Settings) -> Wording:
    """
    :raises ConfigError: the file is not there, or not right
    """
    file = settings.agent.phrases
    return load_wording(settings.folder / file) if file else ENGLISH
