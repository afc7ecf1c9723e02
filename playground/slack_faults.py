"""What may go wrong between a bot and Slack; the rules that say when are Telegram's.

A fault strikes one call at a time. It changes what the client gets to see, never what the server
knows. What it may strike, by name:

    chat.postMessage, chat.*, ...   a method of the Web API
    socket                          the handshake of a Socket Mode connection
    events/app_mention, events/*    the delivery of an event; commands/NAME, interactive/TYPE too
    response_url                    an answer by the address that came with a command or a press
    files.upload, files.download    the two that are no methods
"""

from dataclasses import dataclass

from playground.telegram_faults import (
    Answer,
    Delay,
    DeliverTwice,
    Faults,
    GarbageBody,
    ResetAfter,
    ResetBefore,
    Rule,
)
from playground.telegram_faults import Fault as SharedFault

__all__ = [
    "Answer",
    "Delay",
    "DeliverTwice",
    "Error",
    "Fault",
    "Faults",
    "GarbageBody",
    "Lost",
    "Redirect",
    "ResetAfter",
    "ResetBefore",
    "Rule",
]


@dataclass(frozen=True, slots=True)
class Error:
    """`{"ok": false, "error": error}` with status 200, and it was not done."""

    error: str


@dataclass(frozen=True, slots=True)
class Lost:
    """For a delivery: it never arrives, nor any retry of it."""


@dataclass(frozen=True, slots=True)
class Redirect:
    """For files.download: 302 to this address instead of the file."""

    to: str


Fault = SharedFault | Error | Lost | Redirect
