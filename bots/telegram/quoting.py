"""Whose words a message repeats: what it replies to, what it forwards. Pure, for any JSON.

Its sender has chosen them, but has not said them: they become data between marks, with their
author (`core.quoted`). Of what the bot itself has said only a beginning is taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from bots.telegram.brought import brought, converted
from bots.telegram.received import Id, Me, User
from core.messages import Attachment, clean
from core.quoted import quoted

MAX_NAME: Final = 128

# Signs that turn the direction of what follows: a name must not rearrange the line it stands in.
_TURNS: Final = dict.fromkeys([0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])


class Others(msgspec.Struct, frozen=True):
    """What is somebody else's in a message.

    :param blocks: their words, between marks
    :param attachments: what came with those
    """

    blocks: tuple[dict[str, Any], ...] = ()
    attachments: tuple[Attachment, ...] = ()


class _Titled(msgspec.Struct):
    title: str = ""


class _Origin(msgspec.Struct):
    """Of a forwarded message: a person, one who does not want to be named, a group or a channel."""

    sender_user: User | None = None
    sender_user_name: str = ""
    sender_chat: _Titled | None = None
    chat: _Titled | None = None


class _Replied(msgspec.Struct):
    message_id: Id = 0
    sender: User | None = msgspec.field(default=None, name="from")
    sender_chat: _Titled | None = None
    origin: _Origin | None = None
    text: str | None = None
    caption: str | None = None


class _Quote(msgspec.Struct):
    text: str


def name_of(user: User) -> str:
    return _name(f"{user.first_name} {user.last_name}")


def is_forwarded(message: Mapping[str, object]) -> bool:
    return message.get("forward_origin") is not None


def forwarded(message: Mapping[str, object], text: str, bot: Me) -> Others:
    """All of the message.

    :param text: what is written in it
    """
    origin = converted(message.get("forward_origin"), _Origin) or _Origin()
    ours = origin.sender_user is not None and origin.sender_user.id == bot.id
    return _others("forwarded", message, text, _author(origin), ours)


def replied_to(message: Mapping[str, object], bot: Me) -> Others:
    """What it answers: of that what the sender has picked, else all of it."""
    here, elsewhere = message.get("reply_to_message"), message.get("external_reply")
    raw = here if isinstance(here, dict) else elsewhere
    replied = converted(raw, _Replied)
    if not isinstance(raw, dict) or replied is None or _is_beginning(message, replied):
        return Others()
    quote = converted(message.get("quote"), _Quote)
    text = quote.text if quote else replied.text or replied.caption or ""
    if replied.origin is not None:
        author = _author(replied.origin)
    elif replied.sender_chat is not None and replied.sender_chat.title:
        author = _name(replied.sender_chat.title)
    else:
        author = name_of(replied.sender) if replied.sender else ""
    ours = replied.sender is not None and replied.sender.id == bot.id
    return _others("quoted", raw, text, author, ours)


def _others(
    kind: Literal["quoted", "forwarded"],
    message: Mapping[str, object],
    text: str,
    author: str,
    ours: bool,
) -> Others:
    # What we have sent is of our making, and its place in the history is known to the model.
    came = brought(message, kind, author)
    words = "\n".join(part for part in (clean(text).strip(), came.words) if part)
    blocks = (quoted(words, author, kind, ours=ours),) if words else ()
    return Others(blocks, () if ours else came.attachments)


def _is_beginning(message: Mapping[str, object], replied: _Replied) -> bool:
    """In a topic whatever answers nothing else "answers" the topic's first message."""
    if message.get("is_topic_message") is not True:
        return False
    return replied.message_id == message.get("message_thread_id")


def _author(origin: _Origin) -> str:
    if origin.sender_user is not None:
        return name_of(origin.sender_user)
    place = origin.chat or origin.sender_chat
    return _name(origin.sender_user_name or (place.title if place else ""))


def _name(name: str) -> str:
    return " ".join(clean(name).translate(_TURNS).split())[:MAX_NAME]
