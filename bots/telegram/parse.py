"""An update as Telegram sent it -> Inbound, or None when nothing was said to us.

Pure, and for any JSON at all: what does not look like an update is None, never an exception. Who
may speak is not decided here, only whether the bot is meant. Of other people's words nothing is
taken over: no quote, no text of the message replied to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Final, Literal

import msgspec

from bots.telegram.press import key_and_data
from core.keys import SessionKey
from core.messages import Inbound, Sender, clean

Scope = Literal["chat", "user"]

GENERAL: Final = 1  # the topic that every forum has; as an address it is the chat itself
MAX_NAME: Final = 128

_CHAT: Final = "telegram-chat"
_TOPIC: Final = "telegram-topic"
_USER: Final = "telegram-user"
_CHAT_ID: Final = re.compile(r"-?[1-9][0-9]{0,18}")
_OTHER_ID: Final = re.compile(r"[1-9][0-9]{0,18}")

# Signs that turn the direction of what follows: a name must not rearrange the line it stands in.
_TURNS: Final = dict.fromkeys([0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])

# In this order: an animation comes with a copy of itself as a document, a venue with its location.
_UNSEEN: Final = {
    "animation": "animation: this bot cannot see it yet",
    "photo": "photo: this bot cannot see it yet",
    "video": "video: this bot cannot see it yet",
    "video_note": "video message: this bot cannot see it yet",
    "sticker": "sticker: this bot cannot see it yet",
    "paid_media": "paid media: this bot cannot see it yet",
    "story": "story: this bot cannot see it yet",
    "voice": "voice message: this bot cannot hear it yet",
    "audio": "audio file: this bot cannot hear it yet",
    "document": "file: this bot cannot open it yet",
    "contact": "contact: this bot cannot read it yet",
    "venue": "place: this bot cannot read it yet",
    "location": "location: this bot cannot read it yet",
    "poll": "poll: this bot cannot read it yet",
    "checklist": "checklist: this bot cannot read it yet",
    "dice": "dice: this bot cannot see it yet",
    "game": "game: this bot cannot see it yet",
}


class Me(msgspec.Struct, frozen=True):
    """The bot itself. `username` is without the @."""

    id: int
    username: str


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
    """The session key of what this user says there. The only place where one is made.

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


def parse(update: object, bot: Me, account: str | None, scope: Scope) -> Inbound | None:
    """
    :param update: decoded JSON, whatever it may be
    :param account: which of several bots of ours this is
    :param scope: whether a group has one history, or each person in it their own
    """
    if not isinstance(update, dict):
        return None
    try:
        read = msgspec.convert(update, _Update)
    except msgspec.ValidationError:
        return None
    update_id = f"{read.update_id:020}"
    message = read.message
    if message and (message.migrate_to_chat_id or message.migrate_from_chat_id):
        return _moved(update_id, message, account, scope)
    inbound: Inbound | None = None
    if read.callback_query is not None:
        inbound = _pressed(update_id, read.callback_query, account)
    elif read.stopped_message_generation is not None:
        inbound = _stopped(update_id, read.stopped_message_generation, account)
    elif message is not None:
        inbound = _said(update_id, message, _note(update["message"]), bot, account, scope)
    # Where no answer could go (an id of 0, say), nothing is taken in.
    return inbound if inbound is not None and address(inbound.key, account) is not None else None


_Id = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Seconds = Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class _User(msgspec.Struct):
    id: _Id
    is_bot: bool = False
    first_name: str = ""
    last_name: str = ""


class _Chat(msgspec.Struct):
    id: _Id
    type: str
    is_forum: bool = False
    is_direct_messages: bool = False


class _Entity(msgspec.Struct):
    type: str
    offset: _Count
    length: _Count
    user: _User | None = None


class _Replied(msgspec.Struct):
    message_id: _Id
    sender: _User | None = msgspec.field(default=None, name="from")


class _Message(msgspec.Struct):
    message_id: _Id
    chat: _Chat
    date: _Seconds = 0
    sender: _User | None = msgspec.field(default=None, name="from")
    sender_chat: object = None
    is_topic_message: bool = False
    message_thread_id: _Id | None = None
    text: str | None = None
    entities: list[_Entity] = []
    caption: str | None = None
    caption_entities: list[_Entity] = []
    reply_to_message: _Replied | None = None
    migrate_to_chat_id: _Id | None = None
    migrate_from_chat_id: _Id | None = None


class _Card(msgspec.Struct):
    """The message under which a button was; of an old one Telegram says nothing more."""

    message_id: _Id
    chat: _Chat


class _Press(msgspec.Struct):
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    sender: _User = msgspec.field(name="from")
    message: _Card | None = None
    data: Annotated[str, msgspec.Meta(max_length=256)] | None = None


class _Stopped(msgspec.Struct):
    """The button under a draft. Telegram does not say who pressed: it is a private chat."""

    chat: _Chat
    message_thread_id: _Id | None = None


class _Update(msgspec.Struct):
    update_id: _Count
    message: _Message | None = None
    callback_query: _Press | None = None
    stopped_message_generation: _Stopped | None = None


class _Writing(msgspec.Struct):
    """What was written, in UTF-16 units: entities count in those."""

    units: bytes
    entities: Sequence[_Entity]

    @staticmethod
    def of(message: _Message) -> _Writing:
        text, entities = message.text, message.entities
        if text is None:
            text, entities = message.caption or "", message.caption_entities
        return _Writing(text.encode("utf-16-le", "surrogatepass"), entities)

    def part(self, start: int = 0, end: int | None = None) -> str:
        units = self.units[2 * start : None if end is None else 2 * end]
        return units.decode("utf-16-le", "surrogatepass")

    def command(self) -> _Entity | None:
        """The command that it begins with."""
        for entity in self.entities:
            if entity.type == "bot_command" and entity.offset == 0:
                return entity if self.part(0, entity.length).startswith("/") else None
        return None

    def mentions(self, bot: Me) -> list[tuple[int, int]]:
        """Where the bot is named, in order."""
        return sorted(
            (entity.offset, entity.offset + entity.length)
            for entity in self.entities
            if self._names(entity, bot)
        )

    def _names(self, entity: _Entity, bot: Me) -> bool:
        if entity.type == "text_mention":
            return entity.user is not None and entity.user.id == bot.id
        name = self.part(entity.offset, entity.offset + entity.length)
        return entity.type == "mention" and name.lower() == f"@{bot.username.lower()}"


def _said(
    update_id: str,
    message: _Message,
    note: str | None,
    bot: Me,
    account: str | None,
    scope: Scope,
) -> Inbound | None:
    sender, chat = message.sender, message.chat
    group = chat.type in ("group", "supergroup") and not chat.is_direct_messages
    if not group and chat.type != "private":
        return None
    if sender is None or sender.is_bot or sender.id == bot.id or message.sender_chat is not None:
        return None
    writing = _Writing.of(message)
    if group and not _meant(message, writing, bot):
        return None
    own = clean(_own_words(writing, bot)).strip()
    if not own and group:
        return None
    text = "\n".join(part for part in (own, note) if part)
    if not text:
        return None
    command = message.text is not None and _for_us(writing, bot)
    return Inbound(
        id=update_id,
        key=key_of(
            chat.id,
            private=not group,
            thread=_topic(message),
            user=sender.id,
            account=account,
            scope=scope,
        ),
        kind="command" if command else "message",
        sender=Sender(f"telegram:{sender.id}", _name(sender)),
        text=text,
        message_id=str(message.message_id),
        group=group,
        at=message.date * 1000,
    )


def _pressed(update_id: str, press: _Press, account: str | None) -> Inbound | None:
    """Of a game, or under a message sent by way of us into a chat that we are not in: not ours."""
    if press.message is None or press.data is None or press.sender.is_bot:
        return None
    chat = press.message.chat
    if chat.type not in ("private", "group", "supergroup") or chat.id == 0:
        return None
    found = key_and_data(press.data, chat.id, account)
    if found is None:
        return None
    key, data = found
    return Inbound(
        id=update_id,
        key=key,
        kind="decision",
        sender=Sender(f"telegram:{press.sender.id}", _name(press.sender)),
        text=clean(data),
        message_id=str(press.message.message_id),
        reply_to=press.id,
        group=chat.type != "private",
    )


def _stopped(update_id: str, stopped: _Stopped, account: str | None) -> Inbound | None:
    """Pressing it is saying /stop."""
    chat = stopped.chat
    if chat.type != "private":
        return None
    thread = stopped.message_thread_id
    return Inbound(
        id=update_id,
        key=key_of(
            chat.id,
            private=True,
            thread=thread if thread and thread > GENERAL else None,
            user=chat.id,
            account=account,
            scope="chat",
        ),
        kind="command",
        sender=Sender(f"telegram:{chat.id}"),
        text="/stop",
    )


def _moved(update_id: str, message: _Message, account: str | None, scope: Scope) -> Inbound:
    here = message.chat.id
    old = message.migrate_from_chat_id or here
    new = message.migrate_to_chat_id or here
    return Inbound(
        id=update_id,
        key=prefix_of(old, account=account, scope=scope),
        kind="moved",
        # Who did it does not matter, and the second of the two messages does not say it.
        sender=Sender(f"telegram:{old}"),
        text=prefix_of(new, account=account, scope=scope),
        group=True,
        at=message.date * 1000,
    )


def _meant(message: _Message, writing: _Writing, bot: Me) -> bool:
    """Whether the bot is addressed, in a group."""
    if writing.command() is not None:
        return _for_us(writing, bot)
    if writing.mentions(bot):
        return True
    replied = message.reply_to_message
    if replied is None or replied.sender is None or replied.sender.id != bot.id:
        return False
    # In a topic whatever answers nothing else carries the topic's first message, perhaps ours.
    return not (message.is_topic_message and replied.message_id == message.message_thread_id)


def _for_us(writing: _Writing, bot: Me) -> bool:
    command = writing.command()
    if command is None:
        return False
    _, at, whose = writing.part(0, command.length).partition("@")
    return not at or whose.lower() == bot.username.lower()


def _own_words(writing: _Writing, bot: Me) -> str:
    """The text without the bot's name where it only addresses the bot: in front and at the end."""
    command = writing.command() if _for_us(writing, bot) else None
    start = 0 if command is None else command.length
    end = len(writing.units) // 2
    mentions = writing.mentions(bot)
    for first, last in mentions:
        if not writing.part(start, first).strip():
            start = max(start, last)
    for first, last in reversed(mentions):
        if first >= start and not writing.part(last, end).strip():
            end = min(end, first)
    rest = writing.part(start, end)
    if command is not None:
        name, _, _ = writing.part(0, command.length).partition("@")
        return f"{name} {rest.strip()}"
    if start:
        rest = re.sub(r"\A[,:](?=\s)", "", rest)
    # Who says nothing but our name still wants an answer.
    return rest if rest.strip() else writing.part()


def _topic(message: _Message) -> int | None:
    thread = message.message_thread_id
    # A chain of replies in an ordinary group has a thread too, which is no topic.
    if not message.is_topic_message or thread is None or thread <= GENERAL:
        return None
    return thread if message.chat.is_forum or message.chat.type == "private" else None


def _note(message: Mapping[str, object]) -> str | None:
    """An honest word about what came besides text."""
    for kind, words in _UNSEEN.items():
        if kind in message:
            return f"[{words}]"
    return None


def _name(user: _User) -> str:
    name = clean(f"{user.first_name} {user.last_name}").translate(_TURNS)
    return " ".join(name.split())[:MAX_NAME]
