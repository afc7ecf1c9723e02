"""What a secret looks like, and taking it out of a text before somebody reads it.

Two nets: the values we know (`redacting`), and the shapes of tokens we were never told about. It
keeps no secret for later and finds none in a picture or an archive: it looks at plain text only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import quote

SECRET: Final = "[secret]"

# Where a token of this shape belongs. The text around it is never looked at.
_VARIABLES: Final = (
    ("TELEGRAM_BOT_TOKEN", re.compile(r"(?<!\d)\d{6,}:[A-Za-z0-9_-]{30,}")),
    ("ANTHROPIC_API_KEY", re.compile(r"sk-ant-[A-Za-z0-9_-]{6,}")),
    ("OPENAI_API_KEY", re.compile(r"sk-(?!ant-)[A-Za-z0-9_-]{20,}")),
    ("SLACK_BOT_TOKEN", re.compile(r"xox[a-z]-[A-Za-z0-9-]{6,}")),
    ("SLACK_APP_TOKEN", re.compile(r"xapp-[A-Za-z0-9-]{6,}")),
)
_SHAPES: Final = re.compile(
    "|".join(
        (
            *(shape.pattern for _, shape in _VARIABLES),
            r"(?<=bot)\d+(?::|%3[Aa])[^/\s\"'\\?#]+",  # a Telegram token in a URL, of any length
            r"(?<=://)[^/@\s\"'\\]*:[^/@\s\"'\\]*(?=@)",  # name:password@host
        )
    )
)
# What no shape can do without: found many times faster than the shapes themselves, in texts most of
# which hold none.
_SIGNS: Final = ("sk-", "xox", "xapp-", "bot", "://")
_SECRET_HALF: Final = re.compile(r":[A-Za-z0-9_-]{30}")
# Shorter ones keep nothing secret, and taking "any" out of every log line would hide the log.
_SHORTEST: Final = 6


def variable_for(text: str) -> str | None:
    """The variable that should hold what looks like a token in this text; None: nothing does."""
    return next((name for name, shape in _VARIABLES if shape.search(text)), None)


def redacting(secrets: Iterable[str] = ()) -> Callable[[str], str]:
    """A function that puts ``[secret]`` in the place of these values and of all token shapes."""
    known = sorted({spelling for value in secrets for spelling in _spellings(value)}, key=len)
    values = re.compile("|".join(re.escape(value) for value in reversed(known)) or r"(?!)")

    def redact(text: str) -> str:
        text = values.sub(SECRET, text)
        return _SHAPES.sub(SECRET, text) if _may_hold_one(text) else text

    return redact


def _may_hold_one(text: str) -> bool:
    return any([sign in text for sign in _SIGNS]) or _SECRET_HALF.search(text) is not None


def _spellings(value: str) -> Iterable[str]:
    """The ways in which one value turns up in URLs, JSON and `repr`, and in one inside another."""
    bare = value.strip()
    # What follows the bot id is the secret half of a Telegram token, and is one without it too.
    number, colon, half = bare.partition(":")
    found = {bare, half} if colon and number.isdecimal() else {bare}
    for _ in range(2):
        found |= {write(text) for text in found for write in _WRITINGS}
    return (text for text in found if len(text) >= _SHORTEST)


_WRITINGS: Final[tuple[Callable[[str], str], ...]] = (
    lambda text: quote(text, safe="", errors="replace"),
    lambda text: json.dumps(text)[1:-1],
    lambda text: repr(text)[1:-1],
    lambda text: text.replace('"', '\\"'),
)
