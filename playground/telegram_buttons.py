"""Inline keyboards: what may be one, and which button it was.

Only what a bot sends under its messages; not the keyboards that replace a person's own.
"""

from __future__ import annotations

from typing import Any

from playground.telegram_chats import Json, Refused

MAX_DATA = 64  # bytes
MAX_BUTTONS = 100


def keyboard(markup: Any) -> Json:
    """The markup as it is kept. Raises `Refused` for what Telegram would not show."""
    rows = markup.get("inline_keyboard") if isinstance(markup, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise Refused(400, "Bad Request: can't parse reply keyboard markup JSON object")
    buttons = [button for row in rows for button in row]
    if len(buttons) > MAX_BUTTONS:
        raise Refused(400, "Bad Request: REPLY_MARKUP_TOO_LONG")
    for button in buttons:
        if not isinstance(button, dict) or not button.get("text"):
            raise Refused(400, "Bad Request: text buttons are unallowed in the inline keyboard")
        data = button.get("callback_data")
        if data is not None and not 0 < len(str(data).encode()) <= MAX_DATA:
            raise Refused(400, "Bad Request: BUTTON_DATA_INVALID")
    return {"inline_keyboard": rows}


def buttons_of(markup: Json | None) -> dict[str, str]:
    """What each button says when pressed, by its label."""
    rows = (markup or {}).get("inline_keyboard", [])
    return {
        button["text"]: button["callback_data"]
        for row in rows
        for button in row
        if "callback_data" in button
    }
