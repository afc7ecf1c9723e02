"""Session keys of Slack, and the address that each of them is. Pure.

Every key begins with the team that the app is installed in: two workspaces may have the same
channel id, and a channel shared between them is another conversation in each.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, TypeGuard

import msgspec

from core.keys import SessionKey

DM: Final = "slack-dm"
THREAD: Final = "slack-thread"
CHANNEL: Final = "slack-channel"
USER: Final = "slack-user"

_ID: Final = re.compile(r"[A-Z][A-Z0-9]{1,30}")
_TS: Final = re.compile(r"[0-9]{1,12}\.[0-9]{1,6}")


class Address(msgspec.Struct, frozen=True):
    """Where to send to.

    :param thread: ts of the message that the thread hangs on
    """

    team: str
    channel: str
    thread: str | None = None


def is_id(text: object) -> TypeGuard[str]:
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def is_ts(text: object) -> TypeGuard[str]:
    """Whether this is a time stamp of Slack's, which is also what it calls a message by."""
    return isinstance(text, str) and _TS.fullmatch(text) is not None


def padded(ts: str) -> str:
    """The same, so that texts sort as the times do."""
    seconds, _, micros = ts.partition(".")
    return f"{seconds:0>12}.{micros:0<6}"


def dm_key(team: str, channel: str, account: str | None) -> str:
    return str(SessionKey(DM, (team, channel), account))


def thread_key(team: str, channel: str, thread: str, account: str | None) -> str:
    return str(SessionKey(THREAD, (team, channel, thread), account))


def channel_key(team: str, channel: str, account: str | None) -> str:
    return str(SessionKey(CHANNEL, (team, channel), account))


def user_key(team: str, channel: str, user: str, account: str | None) -> str:
    return str(SessionKey(USER, (team, channel, user), account))


@lru_cache(maxsize=1_000)
def address(key: str, account: str | None) -> Address | None:
    """Where replies of this key go; None when it is not one of this account's.

    Every scope is understood: what was accepted under another setting is still answered.
    """
    parsed = SessionKey.parse(key)
    if parsed is None or parsed.account != account:
        return None
    match parsed.scope, parsed.parts:
        case ("slack-dm" | "slack-channel", (team, channel)) if is_id(team) and is_id(channel):
            return Address(team, channel)
        case ("slack-thread", (team, channel, thread)) if is_id(team) and is_id(channel):
            return Address(team, channel, thread) if is_ts(thread) else None
        case ("slack-user", (team, channel, user)) if is_id(team) and is_id(channel):
            return Address(team, channel) if is_id(user) else None
    return None


def is_theirs(key: str) -> bool:
    """Whether the history is one person's alone: in direct messages, and with a scope of their
    own."""
    parsed = SessionKey.parse(key)
    if parsed is None:
        return False
    return parsed.scope in (DM, USER) or parsed.parts[1].startswith("D")


def person_of(sender_id: str) -> tuple[str, str] | None:
    """Team and user of a `Sender.id` of Slack's."""
    platform, _, rest = sender_id.partition(":")
    team, _, user = rest.partition("/")
    return (team, user) if platform == "slack" and is_id(team) and is_id(user) else None
