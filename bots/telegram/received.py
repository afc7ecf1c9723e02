"""What Telegram sends, as far as it is read here: the fields, their types and bounds.

Shapes only, for `msgspec.convert`; what is not named here is passed over. What it means to us is
decided in `parse.py`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

Id = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Seconds = Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class Me(msgspec.Struct, frozen=True):
    """The bot itself. `username` is without the @."""

    id: int
    username: str


class User(msgspec.Struct):
    id: Id
    is_bot: bool = False
    first_name: str = ""
    last_name: str = ""


class Chat(msgspec.Struct):
    id: Id
    type: str
    title: str = ""
    is_forum: bool = False
    is_direct_messages: bool = False


class Entity(msgspec.Struct):
    type: str
    offset: Count
    length: Count
    user: User | None = None


class Replied(msgspec.Struct):
    message_id: Id
    sender: User | None = msgspec.field(default=None, name="from")


class Message(msgspec.Struct):
    message_id: Id
    chat: Chat
    date: Seconds = 0
    sender: User | None = msgspec.field(default=None, name="from")
    sender_chat: object = None
    is_topic_message: bool = False
    message_thread_id: Id | None = None
    text: str | None = None
    entities: list[Entity] = []
    caption: str | None = None
    caption_entities: list[Entity] = []
    reply_to_message: Replied | None = None
    media_group_id: object = None
    migrate_to_chat_id: Id | None = None
    migrate_from_chat_id: Id | None = None


class Card(msgspec.Struct):
    """The message under which a button was; of an old one Telegram says nothing more."""

    message_id: Id
    chat: Chat


class Press(msgspec.Struct):
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    sender: User = msgspec.field(name="from")
    message: Card | None = None
    data: Annotated[str, msgspec.Meta(max_length=256)] | None = None


class Stopped(msgspec.Struct):
    """The button under a draft. Telegram does not say who pressed: it is a private chat."""

    chat: Chat
    message_thread_id: Id | None = None


class Update(msgspec.Struct):
    update_id: Count
    message: Message | None = None
    edited_message: Message | None = None
    callback_query: Press | None = None
    stopped_message_generation: Stopped | None = None
