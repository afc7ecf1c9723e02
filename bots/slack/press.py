"""What stands in a button: what the core wants to hear, and whose conversation it belongs to. Pure.

Slack says who pressed, in which channel and at which message; not whose conversation that is, when
each person has their own.
"""

from __future__ import annotations

from typing import Final

MAX_VALUE: Final = 2_000  # characters; Slack's limit


def value_for(key: str, data: str) -> str:
    return f"{data}@{key}"


def key_and_data(value: str) -> tuple[str, str] | None:
    """The conversation, and what the button says there; None when it is none of ours."""
    data, at, key = value.partition("@")
    return (key, data) if at and len(value) <= MAX_VALUE else None
