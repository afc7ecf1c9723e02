"""Words of others that a message brings along: what it quotes, what it forwards, and what was said
around it. Pure.

They are data: each stands between marks that name its author, and nothing inside, nor the words of
whoever sends them, can look like such a mark. That the model heeds the difference cannot be
promised; that it can see it, can.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from core.messages import clean, cut, text_block

MAX_CHARACTERS: Final = 8_000
MAX_NAME: Final = 128
# Of what the bot itself has said it has the whole, so a beginning tells which is meant.
MAX_OURS: Final = 200

OURS: Final = "you"
UNKNOWN: Final = "somebody"

Block = dict[str, Any]
Kind = Literal["quoted", "forwarded", "overheard"]

_NAMES: Final = "quoted|forwarded|overheard"
_MARK: Final = re.compile(rf"<(?=\s*/?\s*(?:{_NAMES})\b)", re.IGNORECASE)
_ANY_MARK: Final = re.compile(rf"<(?=\s*/?\s*(?:{_NAMES}|from)\b)", re.IGNORECASE)
_BEGINS: Final = re.compile(rf'<(?:{_NAMES}) from="[^"<>\n]*">\n')


def quoted(text: str, author: str, kind: Kind = "quoted", *, ours: bool = False) -> Block:
    """A text block with somebody's words between marks.

    :param author: a name, as data; "" when it is not known
    :param ours: they are the bot's own
    """
    text = clean(text).strip()
    if ours:
        text = text if len(text) <= MAX_OURS else f"{text[:MAX_OURS]}…"
        begin = f'<{kind} from="{OURS}">\n'
    else:
        begin, text = opening(kind, author), cut(text, MAX_CHARACTERS)
    return text_block(f"{begin}{inert(text)}{closing(kind)}")


def opening(kind: Kind, author: str) -> str:
    name = "".join(char for char in clean(author) if char.isprintable() and char not in '<>"')
    name = " ".join(name.split())[:MAX_NAME]
    if name.casefold() == OURS:
        name = f"{UNKNOWN} called {name}"
    return f'<{kind} from="{name or UNKNOWN}">\n'


def closing(kind: Kind) -> str:
    return f"\n</{kind}>"


def unmarked(text: str) -> str:
    """Somebody's own words, with nothing in them that looks like a mark of this file."""
    return _MARK.sub("‹", text)


def inert(text: str) -> str:
    """What nobody here has said, with nothing in it that looks like any mark: neither like the
    end of a quote, nor like the line that says who speaks."""
    return _ANY_MARK.sub("‹", text)


def is_quoted(text: str) -> bool:
    """Whether a block's text stands between marks: it is not its sender's own."""
    return _BEGINS.match(text) is not None


def is_overheard(text: str) -> bool:
    """Whether it was said in the room, but not to the bot."""
    return text.startswith("<overheard ") and is_quoted(text)


def inside(text: str) -> str:
    """What stands between the marks of such a block."""
    return text.partition("\n")[2].rpartition("\n")[0]
