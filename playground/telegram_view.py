"""The stand-in for Telegram as a page shows it: chats, messages, drafts, as plain JSON.

Reads the stand-in and changes nothing. The shapes here are the page's, not the Bot API's, and the
same for every platform.
"""

from __future__ import annotations

import time
from typing import Any, Final

from playground.telegram import Chat, Telegram

Json = dict[str, Any]

DRAFT_SECONDS: Final = 30.0
# What a message may carry besides text, and what a person calls it.
_MEDIA: Final = (
    "photo",
    "document",
    "voice",
    "audio",
    "video",
    "video_note",
    "animation",
    "sticker",
)


def chat_json(chat: Chat, thread: int | None = None) -> Json:
    """One conversation of the list: a chat, or a topic of one."""
    title = chat.title if thread is None else chat.topics[thread]
    return {
        "platform": "telegram",
        "id": place(chat.id, thread),
        "chat": chat.id,
        "thread": thread,
        "title": title,
        "of": None if thread is None else chat.title,
        "kind": "topic" if thread is not None else chat.kind,
        "person": None if chat.person is None else chat.person.id,
        "key": f"telegram-topic:{chat.id}/{thread}"
        if thread is not None
        else f"telegram-chat:{chat.id}",
    }


def place(chat: int, thread: int | None) -> str:
    """The page's name of a conversation."""
    return f"telegram:{chat}" if thread is None else f"telegram:{chat}/{thread}"


def message_json(telegram: Telegram, chat: Chat, message_id: int) -> Json | None:
    """One message as it stands; None: it is not to be seen (a service message)."""
    raw = chat.messages.get(message_id)
    if raw is None:
        return None
    media = next((name for name in _MEDIA if name in raw), None)
    text = raw.get("text") or raw.get("caption") or ""
    if not text and media is None:
        return None
    thread = raw.get("message_thread_id") if raw.get("is_topic_message") else None
    sender = raw.get("from") or {}
    sent = chat.sent.get(message_id)
    shown: Json = {
        "place": place(chat.id, thread),
        "id": message_id,
        "from": sender.get("id"),
        "name": sender.get("first_name", ""),
        "bot": bool(sender.get("is_bot")),
        "at": raw.get("date", 0),
        "text": text,
        "entities": raw.get("entities") or raw.get("caption_entities") or [],
        "edited": "edit_date" in raw,
        "edits": len(sent.edits) if sent is not None else 0,
    }
    reply = raw.get("reply_to_message")
    if reply and "forum_topic_created" not in reply:
        shown["reply"] = {
            "id": reply["message_id"],
            "name": (reply.get("from") or {}).get("first_name", ""),
            "text": (reply.get("text") or reply.get("caption") or "")[:120],
        }
    rows = (raw.get("reply_markup") or {}).get("inline_keyboard")
    if rows:
        shown["buttons"] = [
            [{"label": each["text"], "data": each.get("callback_data")} for each in row]
            for row in rows
        ]
    if media is not None:
        shown["file"] = _file(chat, message_id, media, raw[media])
        shown["file"]["there"] = file_of(telegram, chat, message_id) is not None
    return shown


def _file(chat: Chat, message_id: int, kind: str, raw: Any) -> Json:
    about = raw[-1] if isinstance(raw, list) else raw  # of a photo the largest size
    upload = chat.files.get(message_id)
    name = about.get("file_name") or (upload.name if upload is not None else kind)
    return {
        "kind": kind,
        "name": name,
        "size": about.get("file_size", 0),
    }


def file_of(telegram: Telegram, chat: Chat, message_id: int) -> bytes | None:
    """The bytes that a message carries, whoever sent it."""
    upload = chat.files.get(message_id)
    if upload is not None:
        return upload.data
    raw = chat.messages.get(message_id, {})
    media: Any = next((raw[name] for name in _MEDIA if name in raw), {})
    about = media[-1] if isinstance(media, list) else media
    stored = telegram.stored.files.get(str(about.get("file_id")))
    return None if stored is None else stored.data


def messages_json(
    telegram: Telegram, chat: Chat, thread: int | None, *, before: int | None = None, limit: int
) -> list[Json]:
    """The newest messages of a conversation, oldest first.

    :param before: only those with a lower id
    """
    found: list[Json] = []
    wanted = place(chat.id, thread)
    for message_id in reversed(chat.messages):
        if before is not None and message_id >= before:
            continue
        shown = message_json(telegram, chat, message_id)
        if shown is not None and shown["place"] == wanted:
            found.append(shown)
            if len(found) == limit:
                break
    return found[::-1]


def drafts_json(chat: Chat) -> list[Json]:
    """What grows there now, for as long as Telegram shows it."""
    now = time.monotonic()
    return [
        {
            "place": place(chat.id, thread),
            "text": draft.text,
            "entities": list(draft.entities),
            "can_stop": draft.can_stop,
            "seconds": round(DRAFT_SECONDS - (now - draft.at), 1),
        }
        for thread, draft in chat.drafts.items()
        if now - draft.at < DRAFT_SECONDS
    ]


def state(telegram: Telegram, limit: int) -> Json:
    """All of it, to begin with: every conversation and its last messages."""
    chats: list[Json] = []
    messages: list[Json] = []
    drafts: list[Json] = []
    people: list[Json] = []
    for chat in telegram.chats:
        if chat.person is not None:
            people.append({"id": chat.person.id, "name": chat.person.name})
        if chat.moved_to is not None:
            continue
        for thread in (None, *chat.topics) if not chat.forum else (*chat.topics,):
            chats.append(chat_json(chat, thread))
            messages += messages_json(telegram, chat, thread, limit=limit)
        drafts += drafts_json(chat)
    return {
        "chats": chats,
        "people": people,
        "messages": messages,
        "drafts": drafts,
        "bot": telegram.username,
    }
