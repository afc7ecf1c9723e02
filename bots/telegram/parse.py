"""An update as Telegram sent it -> Inbound, or None when nothing was said to us.

Pure, and for any JSON at all: what does not look like an update is None, never an exception. Who
may speak is not decided here, only whether the bot is meant. Of other people's words nothing is
taken over: no quote, no text of the message replied to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from bots.telegram.keys import GENERAL, Scope, address, key_of, prefix_of
from bots.telegram.press import key_and_data
from bots.telegram.received import Me, Message, Press, Stopped, Update, User
from bots.telegram.writing import Writing, for_us, own_words
from core.messages import Inbound, Sender, clean

MAX_NAME: Final = 128

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


def parse(update: object, bot: Me, account: str | None, scope: Scope) -> Inbound | None:
    """
    :param update: decoded JSON, whatever it may be
    :param account: which of several bots of ours this is
    :param scope: whether a group has one history, or each person in it their own
    """
    if not isinstance(update, dict):
        return None
    try:
        read = msgspec.convert(update, Update)
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
    elif (edited := read.edited_message) is not None:
        note = _note(update["edited_message"])
        inbound = _said(update_id, edited, note, bot, account, scope, edited=True)
    # Where no answer could go (an id of 0, say), nothing is taken in.
    return inbound if inbound is not None and address(inbound.key, account) is not None else None


def _said(
    update_id: str,
    message: Message,
    note: str | None,
    bot: Me,
    account: str | None,
    scope: Scope,
    *,
    edited: bool = False,
) -> Inbound | None:
    """
    :param edited: of a group then each, for it may have been meant for us before it was edited
    """
    sender, chat = message.sender, message.chat
    group = chat.type in ("group", "supergroup") and not chat.is_direct_messages
    if not group and chat.type != "private":
        return None
    if sender is None or sender.id == bot.id:
        return None
    if group and _is_the_group(message):
        # An administrator who does not say which: who decides in its name speaks in its name.
        sender = User(chat.id, first_name=chat.title)
    elif sender.is_bot or message.sender_chat is not None:
        return None
    writing = Writing.of(message)
    if group and not edited and not _meant(message, writing, bot):
        return None
    own = clean(own_words(writing, bot)).strip()
    if not own and group:
        return None
    text = "\n".join(part for part in (own, note) if part)
    if not text:
        return None
    command = message.text is not None and for_us(writing, bot)
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
        kind="edit" if edited else "command" if command else "message",
        sender=Sender(f"telegram:{sender.id}", _name(sender)),
        text=text,
        message_id=str(message.message_id),
        group=group,
        at=message.date * 1000,
    )


def _is_the_group(message: Message) -> bool:
    speaker = message.sender_chat
    return isinstance(speaker, dict) and speaker.get("id") == message.chat.id


def _pressed(update_id: str, press: Press, account: str | None) -> Inbound | None:
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


def _stopped(update_id: str, stopped: Stopped, account: str | None) -> Inbound | None:
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


def _moved(update_id: str, message: Message, account: str | None, scope: Scope) -> Inbound:
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


def _meant(message: Message, writing: Writing, bot: Me) -> bool:
    """Whether the bot is addressed, in a group."""
    if writing.command() is not None:
        return for_us(writing, bot)
    if writing.mentions(bot):
        return True
    replied = message.reply_to_message
    if replied is None or replied.sender is None or replied.sender.id != bot.id:
        return False
    # In a topic whatever answers nothing else carries the topic's first message, perhaps ours.
    return not (message.is_topic_message and replied.message_id == message.message_thread_id)


def _topic(message: Message) -> int | None:
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


def _name(user: User) -> str:
    name = clean(f"{user.first_name} {user.last_name}").translate(_TURNS)
    return " ".join(name.split())[:MAX_NAME]
