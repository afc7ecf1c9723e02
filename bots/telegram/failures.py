"""What a failed request means: PTB's exception -> the core's SendError, by type, cause and text.

The texts are those of Telegram's Bot API server (tdlib/telegram-bot-api). PTB's `BadRequest`
is a `NetworkError`. Nothing is repeated here.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import aiohttp
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
)

from bots.telegram.keys import moved_prefixes
from core.errors import Gone, Moved, OutcomeUnknown, SendError, TryLater, Undeliverable

# In lower case, for PTB changes the case of what Telegram said.
NOT_MODIFIED: Final = ("message is not modified",)
NOTHING_TO_EDIT: Final = ("message to edit not found", "can't be edited", "message_id_invalid")
# One that is too old to be deleted stays.
NOTHING_TO_DELETE: Final = (
    "message to delete not found",
    "message can't be deleted",
    "message_id_invalid",
)
NO_THREAD: Final = ("message thread not found", "topic_deleted", "topic_id_invalid")
BAD_ENTITIES: Final = ("can't parse entities", "entity_", "entities_", "messageentity")
_NOBODY: Final = (
    "chat not found",
    "user is deactivated",
    "input_user_deactivated",
    "user_is_blocked",
    "peer_id_invalid",
    "chat_write_forbidden",
    "chat_restricted",
    "chat_send_plain_forbidden",
    "topic_closed",
    "not enough rights",
    "have no rights",
    "need administrator rights",
    "bot was kicked",
    "bot is not a member",
    "group chat was deactivated",
    "group chat was deleted",
)
# The request has not left: there was no connection to send it on.
_UNSENT: Final = (
    aiohttp.ConnectionTimeoutError,
    aiohttp.ClientConnectorError,
    aiohttp.ClientHttpProxyError,
)


def says(error: Exception, texts: tuple[str, ...]) -> bool:
    """Whether Telegram refused the request with one of these texts."""
    said = str(error).lower()
    return isinstance(error, BadRequest) and any(text in said for text in texts)


class Lacks(Exception):
    """The server does not know a method that we can do without; nothing was sent to it."""


def unknown(error: BaseException) -> bool:
    """Whether the server does not know the method. What PTB makes of that is the same as of a
    token that nobody knows; but who has answered getMe knows ours."""
    said = str(error).lower()
    plain = said.startswith("not found") and "parsing" not in said  # a proxy's page says so, too
    return isinstance(error, InvalidToken) and plain


def seconds_of(error: RetryAfter) -> float:
    asked = error.retry_after
    return asked.total_seconds() if isinstance(asked, timedelta) else float(asked)


def why(error: BaseException) -> str:
    """For logs: PTB puts whole answers, and even texts to be sent, into some of its messages."""
    cause = error.__cause__
    if cause is not None:
        return f"{type(error).__name__} ({type(cause).__name__})"
    return str(error)[:200] or type(error).__name__


def failure(error: Exception, key: str) -> SendError:
    """
    :param error: what PTB raised for a request that should have changed the chat
    :param key: of the session that was sent to
    """
    match error:
        case RetryAfter():
            # A little more, for it is in whole seconds.
            return TryLater(seconds_of(error) + 0.5, why(error))
        case ChatMigrated():
            return Moved(*moved_prefixes(key, error.new_chat_id))
        case Forbidden():
            return Gone(why(error))
        case BadRequest():
            gone = says(error, _NOBODY + NO_THREAD)
            return Gone(why(error)) if gone else Undeliverable(why(error))
        case InvalidToken() | Conflict():
            # Whether our token is still good is for getMe and getUpdates to find out.
            return TryLater(30.0, why(error))
        case NetworkError():
            return _network_failure(error)
    return OutcomeUnknown(why(error))


def _network_failure(error: NetworkError) -> SendError:
    cause = error.__cause__
    if isinstance(cause, _UNSENT):
        return TryLater(1.0, why(error))
    if isinstance(cause, UnicodeError):
        return Undeliverable("text that cannot be encoded")
    said = str(error).lower()
    if said.startswith("too many requests"):
        return TryLater(5.0, "too many requests")
    if said.startswith("request entity too large"):
        return Undeliverable("request entity too large")
    # No answer, or a 5xx, which may come from a proxy after Telegram has done it.
    return OutcomeUnknown(why(error))
