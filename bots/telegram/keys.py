"""Where a message belongs: session keys from Telegram's ids, and the way back. Pure.

The only place where a Telegram key is made. Not who may speak there, and not what was said.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal

import msgspec

from core.keys import SessionKey

Scope = Literal["chat", "user"]

GENERAL: Final = 1  # the topic that every forum has; as an address it is the chat itself

_CHAT: Final = "telegram-chat"
_TOPIC: Final = "telegram-topic"
_USER: Final = "telegram-user"
_CHAT_ID: Final = re.compile(r"-?[1-9][0-9]{0,18}")
_OTHER_ID: Final = re.compile(r"[1-9][0-9]{0,18}")


class Address(msgspec.Struct, frozen=True):
    """Where to send to."""

    chat_id: int
    thread_id: int | None = None


def key_of(
    chat_id: int,
    *,
    private: bool,
    thread: int | None,
    user: int,
    account: str | None,
    scope: Scope,
) -> str:
    """The session key of what this user says there.

    :param thread: of a topic; None for the General one and where there are none
    """
    parts = [str(chat_id)] if thread is None else [str(chat_id), str(thread)]
    if scope == "user" and not private:
        return str(SessionKey(_USER, (*parts, str(user)), account))
    return str(SessionKey(_CHAT if thread is None else _TOPIC, tuple(parts), account))


def prefix_of(chat_id: int, *, account: str | None, scope: Scope) -> str:
    """What the keys of a group begin with. With `scope="chat"` it is the group's own key."""
    return str(SessionKey(_USER if scope == "user" else _CHAT, (str(chat_id),), account))


def moved_prefixes(key: str, new_chat_id: int) -> tuple[str, str]:
    """For a key of ours whose chat has become another: its beginning, and the new one."""
    old = SessionKey.parse(key)
    if old is None:
        raise ValueError("no adapter built this key")
    new = SessionKey(old.scope, (str(new_chat_id),), old.account)
    return str(SessionKey(old.scope, old.parts[:1], old.account)), str(new)


@lru_cache(maxsize=1_000)
def address(key: str, account: str | None) -> Address | None:
    """Where replies of this key go; None when it is not one of this account's.

    Either scope is understood: what was accepted under the other setting is still answered.
    """
    parsed = SessionKey.parse(key)
    if parsed is None or parsed.account != account or not _CHAT_ID.fullmatch(parsed.parts[0]):
        return None
    if not all(_OTHER_ID.fullmatch(part) for part in parsed.parts[1:]):
        return None
    match parsed.scope, tuple(int(part) for part in parsed.parts):
        case ("telegram-chat", (chat,)) | ("telegram-user", (chat, _)):
            return Address(chat)
        case ("telegram-topic", (chat, thread)) | ("telegram-user", (chat, thread, _)):
            return Address(chat, thread)
    return None


def is_theirs(key: str) -> bool:
    """Whether a key of ours is of one person's history in a group."""
    parsed = SessionKey.parse(key)
    return parsed is not None and parsed.scope == _USER


def private_key(sender: str, account: str | None) -> str | None:
    """Of the chat of a person alone with the bot; its id is the person's."""
    platform, _, id = sender.partition(":")
    if platform != "telegram" or not _OTHER_ID.fullmatch(id):
        return None
    return str(SessionKey(_CHAT, (id,), account))
