"""An update as Telegram sent it -> Inbound, or None when nothing was said to us.

Pure, and for any JSON at all: what does not look like an update is None, never an exception. Who
may speak is not decided here, only whether the bot is meant. What a message brings besides its own
words is read in `brought.py`, whose other words it repeats in `quoting.py`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final

import msgspec

from bots.telegram.brought import Brought, brought
from bots.telegram.keys import GENERAL, Scope, address, key_of, prefix_of
from bots.telegram.press import key_and_data
from bots.telegram.quoting import forwarded, is_forwarded, name_of, replied_to
from bots.telegram.received import Me, Message, Press, Stopped, Update, User
from bots.telegram.writing import BY_NAME_ONLY, Called, Writing, for_us, is_called, own_words
from core.messages import NO_BLOCKS, Inbound, Sender, clean, encode_blocks

MAX_ALBUM: Final = 64

# An album in a chat, by their ids.
AlbumId = tuple[int, str]


def parse(
    update: object,
    bot: Me,
    account: str | None,
    scope: Scope,
    albums: Container[AlbumId] = (),
    called: Called = BY_NAME_ONLY,
) -> Inbound | None:
    """
    :param update: decoded JSON, whatever it may be
    :param account: which of several bots of ours this is
    :param scope: whether a group has one history, or each person in it their own
    :param albums: of which a part was meant for us, so that all of it is
    :param called: what else is for us in a group
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
        inbound = _said(update_id, message, update["message"], bot, account, scope, albums, called)
    elif (edited := read.edited_message) is not None:
        raw = update["edited_message"]
        inbound = _said(update_id, edited, raw, bot, account, scope, albums, called, edited=True)
    # Where no answer could go (an id of 0, say), nothing is taken in.
    return inbound if inbound is not None and address(inbound.key, account) is not None else None


def album_of(update: object, inbound: Inbound) -> AlbumId | None:
    """Of a message in a group: the others of its album bear no mention of us."""
    told = inbound.group and inbound.addressed and inbound.kind == "message"
    if not told or inbound.album is None or not isinstance(update, dict):
        return None
    return update["message"]["chat"]["id"], inbound.album


def _said(
    update_id: str,
    message: Message,
    raw: Mapping[str, object],
    bot: Me,
    account: str | None,
    scope: Scope,
    albums: Container[AlbumId],
    called: Called,
    *,
    edited: bool = False,
) -> Inbound | None:
    """
    :param raw: the message as it came
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
    writing, album = Writing.of(message), _album(message)
    # Who forwards a message has not said what stands in it, neither to us nor as a command.
    repeats = is_forwarded(raw)
    meant = edited or (album is not None and (chat.id, album) in albums)
    if not repeats and not meant:
        meant = _meant(message, writing, bot, called.names)
    if group and not meant and (not called.everything or _of_another_bot(writing, bot)):
        return None
    if repeats:
        own, came, others = "", Brought(), forwarded(raw, writing.part(), bot)
    else:
        own = clean(own_words(writing, bot)).strip()
        came, others = brought(raw), replied_to(raw, bot)
    attachments = others.attachments + came.attachments
    told = own or attachments or (repeats and others.blocks)
    if group and not told and (came.idle or not came.words):
        return None
    text = "\n".join(part for part in (own, came.words) if part)
    if not (text or told):
        return None
    command = message.text is not None and not repeats and for_us(writing, bot)
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
        sender=Sender(f"telegram:{sender.id}", name_of(sender)),
        text=text,
        blocks=encode_blocks(others.blocks) if others.blocks else NO_BLOCKS,
        message_id=str(message.message_id),
        group=group,
        at=message.date * 1000,
        attachments=attachments,
        addressed=meant or not group,
        album=album if came.attachments or repeats else None,
    )


def _is_the_group(message: Message) -> bool:
    speaker = message.sender_chat
    return isinstance(speaker, dict) and speaker.get("id") == message.chat.id


def _album(message: Message) -> str | None:
    album = message.media_group_id
    return album if isinstance(album, str) and 0 < len(album) <= MAX_ALBUM else None


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
        sender=Sender(f"telegram:{press.sender.id}", name_of(press.sender)),
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


def _of_another_bot(writing: Writing, bot: Me) -> bool:
    return writing.command() is not None and not for_us(writing, bot)


def _meant(message: Message, writing: Writing, bot: Me, names: tuple[str, ...]) -> bool:
    """Whether the bot is addressed, in a group."""
    if writing.command() is not None:
        return for_us(writing, bot)
    if writing.mentions(bot) or is_called(writing, names):
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
