"""What a failed request means: what slack_sdk or aiohttp raised -> the core's SendError. Pure.

Slack answers with a code, and 200; those here are in its reference of the methods. What it does not
answer comes as aiohttp's own errors. Nothing is repeated here.
"""

from __future__ import annotations

from typing import Final

import aiohttp
from slack_sdk.errors import SlackApiError

from core.errors import Gone, OutcomeUnknown, SendError, TryLater, Undeliverable

# The token is no good, or not any more. Whether that is for good, `auth.test` finds out.
BAD_TOKEN: Final = frozenset(
    {"invalid_auth", "not_authed", "token_revoked", "token_expired", "account_inactive"}
)
NOTHING_THERE: Final = frozenset({"message_not_found", "channel_not_found"})
NOTHING_TO_EDIT: Final = frozenset(
    {"message_not_found", "cant_update_message", "edit_window_closed", "cannot_update_message"}
)
MISSING_SCOPE: Final = frozenset({"missing_scope", "not_allowed_token_type", "no_permission"})
STREAMING: Final = frozenset({"streaming_state_conflict", "message_in_streaming_state"})
NO_STREAM: Final = frozenset({"message_not_in_streaming_state", "message_not_found"})
_NOBODY: Final = frozenset(
    {
        "account_inactive",
        "channel_not_found",
        "is_archived",
        "not_in_channel",
        "cannot_dm_bot",
        "user_not_found",
        "user_disabled",
        "user_not_visible",
        "user_not_in_channel",
        "users_not_found",
        "team_not_found",
        "team_access_not_granted",
        "restricted_action",
        "restricted_action_read_only_channel",
        "restricted_action_thread_only_channel",
        "restricted_action_non_threadable_channel",
        "restricted_action_thread_locked",
        "thread_not_found",
        "cannot_reply_to_message",
        "ekm_access_denied",
        "is_inactive",
        "messages_tab_disabled",
    }
)
_LATER: Final = frozenset({"ratelimited", "rate_limited", "rate_limit_exceeded"})
# Slack says so itself: it is possible that some of it has been done.
_UNKNOWN: Final = frozenset(
    {"internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org"}
)
# The request has not left: there was no connection to send it on.
_UNSENT: Final = (
    aiohttp.ConnectionTimeoutError,
    aiohttp.ClientConnectorError,
    aiohttp.ClientHttpProxyError,
)


def code_of(error: BaseException) -> str | None:
    """Slack's word for it; None: what came back was none of Slack's answers."""
    if not isinstance(error, SlackApiError):
        return None
    try:
        code = error.response["error"]
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return code if isinstance(code, str) and len(code) <= 100 else None


def says(error: BaseException, codes: frozenset[str]) -> bool:
    return code_of(error) in codes


def retry_after(error: BaseException, default: float = 5.0) -> float | None:
    """Seconds that Slack asks us to wait; None: it does not."""
    if not isinstance(error, SlackApiError):
        return None
    if _status(error) != 429 and code_of(error) not in _LATER:
        return None
    headers = getattr(error.response, "headers", None) or {}
    said = next((headers[name] for name in headers if name.lower() == "retry-after"), None)
    said = said[0] if isinstance(said, list) and said else said
    try:
        return max(0.0, float(str(said)))
    except ValueError:
        return default


def why(error: BaseException) -> str:
    """For logs: an answer may quote what was said, an address may hold a token."""
    code = code_of(error)
    if code is not None:
        return code
    status = _status(error)
    return type(error).__name__ + (f" ({status})" if status else "")


def failure(error: Exception) -> SendError:
    """:param error: what was raised for a request that should have changed a conversation"""
    seconds = retry_after(error)
    if seconds is not None:
        # A little more, for it is in whole seconds.
        return TryLater(seconds + 0.5, why(error))
    code = code_of(error)
    if code in _NOBODY:
        return Gone(why(error))
    if code in BAD_TOKEN:
        return TryLater(30.0, why(error))
    if code in _UNKNOWN or (isinstance(error, SlackApiError) and _status(error) >= 500):
        return OutcomeUnknown(why(error))
    if code is not None:
        return Undeliverable(why(error))
    if isinstance(error, _UNSENT):
        return TryLater(1.0, why(error))
    if isinstance(error, UnicodeError):
        return Undeliverable("text that cannot be encoded")
    return OutcomeUnknown(why(error))


def _status(error: BaseException) -> int:
    status = getattr(getattr(error, "response", None), "status_code", 0)
    return status if isinstance(status, int) else 0
