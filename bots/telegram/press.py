"""A pressed button: what stands in its data, and the Inbound that it becomes. Pure.

Telegram says who pressed, in which chat and under which message, but not whose conversation the
button belongs to, and of an old message not even the topic. So that stands in the data, behind
what the core wants to hear; the chat is always Telegram's word.
"""

from __future__ import annotations

import re
from typing import Final

from core.keys import SessionKey

MAX_DATA: Final = 64  # bytes; Telegram's limit

_TAIL: Final = re.compile(r"([tu])([1-9][0-9]{0,18})(?:/([1-9][0-9]{0,18}))?")
_SCOPES: Final = {"t": "telegram-topic", "u": "telegram-user"}


def data_for(key: str, data: str) -> str | None:
    """What a button in this conversation says; None when it does not fit."""
    parsed = SessionKey.parse(key)
    assert parsed is not None, "an address has been made of it"
    rest = "/".join(parsed.parts[1:])
    if rest:
        letter = next(sign for sign, scope in _SCOPES.items() if scope == parsed.scope)
        data = f"{data}@{letter}{rest}"
    return data if len(data.encode()) <= MAX_DATA else None


def key_and_data(pressed: str, chat_id: int, account: str | None) -> tuple[str, str] | None:
    """The conversation that a pressed button belongs to, and what it says there; None when no
    button of ours says that."""
    data, at, tail = pressed.partition("@")
    if not at:
        return str(SessionKey("telegram-chat", (str(chat_id),), account)), data
    found = _TAIL.fullmatch(tail)
    if found is None:
        return None
    letter, *rest = found.groups()
    parts = (str(chat_id), *(part for part in rest if part is not None))
    if letter == "t" and len(parts) != 2:
        return None
    return str(SessionKey(_SCOPES[letter], parts, account)), data
