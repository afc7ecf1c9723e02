"""What a message brings besides its text: files to be fetched, and what can be said in words.

Pure, and for any JSON at all. Each kind is read by itself: one that Telegram has changed since is
an honest word, and hides neither the text beside it nor the message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from bots.telegram.received import Count
from core.messages import Attachment, Within, clean

MAX_NAME: Final = 200
MAX_LINE: Final = 400
MAX_ID: Final = 512

T = TypeVar("T")


class Brought(msgspec.Struct, frozen=True):
    """
    :param words: what is no file, in brackets
    :param idle: in a group, without words beside it, it says nothing to us
    """

    attachments: tuple[Attachment, ...] = ()
    words: str = ""
    idle: bool = False


class _File(msgspec.Struct):
    file_id: str
    file_name: str = ""
    mime_type: str = ""
    file_size: Count = 0
    duration: Count = 0


class _Sticker(msgspec.Struct):
    emoji: str = ""


class _Location(msgspec.Struct):
    latitude: float
    longitude: float
    live_period: Count = 0


class _Venue(msgspec.Struct):
    title: str
    address: str
    location: _Location


class _Contact(msgspec.Struct):
    phone_number: str
    first_name: str = ""
    last_name: str = ""


class _Option(msgspec.Struct):
    text: str
    voter_count: Count = 0


class _Poll(msgspec.Struct):
    question: str
    options: list[_Option] = []
    is_closed: bool = False


class _Task(msgspec.Struct):
    text: str
    completion_date: Count = 0


class _Checklist(msgspec.Struct):
    title: str
    tasks: list[_Task] = []


class _Dice(msgspec.Struct):
    emoji: str
    value: Count


class _Game(msgspec.Struct):
    title: str


def brought(message: Mapping[str, object], within: Within = "", author: str = "") -> Brought:
    """
    :param message: as Telegram sent it, or what it tells of one that was quoted
    :param within: whether it is quoted or forwarded, and whose it is
    """
    for kind in _FILES:
        if kind in message:
            attachment = _attachment(kind, message[kind], within, author)
            if attachment is not None:
                return Brought((attachment,))
            return Brought(words=f"[{_FILES[kind]}: it cannot be read]")
    for kind, (name, words, idle) in _WORDS.items():
        if kind in message:
            said = words(message[kind])
            return Brought(words=f"[{name}: {said}]" if said else f"[{name}]", idle=idle)
    return Brought()


def converted(value: object, to: type[T]) -> T | None:
    """None: Telegram means something else by it now."""
    try:
        return msgspec.convert(value, to)
    except msgspec.ValidationError:
        return None


def line(text: str, limit: int = MAX_LINE) -> str:
    """One short line of what may be anything."""
    return " ".join(clean(text[: 4 * limit]).split())[:limit]


def _attachment(kind: str, value: object, within: Within, author: str) -> Attachment | None:
    if kind == "photo":
        # The same picture in several sizes, the largest last.
        value = value[-1] if isinstance(value, list) and value else None
    file = converted(value, _File)
    if file is None or not file.file_id or len(file.file_id) > MAX_ID:
        return None
    return Attachment(
        kind=kind,
        id=clean(file.file_id),
        name=line(file.file_name, MAX_NAME),
        media_type=line(file.mime_type, 100).lower() or _TYPES.get(kind, ""),
        size=file.file_size,
        seconds=file.duration,
        within=within,
        author=author,
    )


def _sticker(value: object) -> str:
    sticker = converted(value, _Sticker)
    return line(sticker.emoji, 16) if sticker else ""


def _location(value: object) -> str:
    place = converted(value, _Location)
    if place is None:
        return "it cannot be read"
    return f"{_where(place)}, shared live" if place.live_period else _where(place)


def _where(place: _Location) -> str:
    return ", ".join(
        f"{number:.6f}".rstrip("0").rstrip(".") for number in (place.latitude, place.longitude)
    )


def _venue(value: object) -> str:
    venue = converted(value, _Venue)
    if venue is None:
        return "it cannot be read"
    return f"{line(venue.title)}, {line(venue.address)} ({_where(venue.location)})"


def _contact(value: object) -> str:
    contact = converted(value, _Contact)
    if contact is None:
        return "it cannot be read"
    name = line(f"{contact.first_name} {contact.last_name}", MAX_NAME)
    return ", ".join(part for part in (name, line(contact.phone_number, 40)) if part)


def _poll(value: object) -> str:
    poll = converted(value, _Poll)
    if poll is None:
        return "it cannot be read"
    options = [
        f"- {line(each.text)}" + (f" ({each.voter_count})" if each.voter_count else "")
        for each in poll.options[:20]
    ]
    closed = " (closed)" if poll.is_closed else ""
    return "\n".join((f"{line(poll.question)}{closed}", *options))


def _checklist(value: object) -> str:
    checklist = converted(value, _Checklist)
    if checklist is None:
        return "it cannot be read"
    tasks = [
        f"- {'(done) ' if task.completion_date else ''}{line(task.text)}"
        for task in checklist.tasks[:50]
    ]
    return "\n".join((line(checklist.title), *tasks))


def _dice(value: object) -> str:
    dice = converted(value, _Dice)
    return f"{line(dice.emoji, 16)} {dice.value}" if dice else ""


def _game(value: object) -> str:
    game = converted(value, _Game)
    return line(game.title) if game else ""


def _unseen(value: object) -> str:
    return "this bot cannot see it"


# In this order: an animation comes with a copy of itself as a document, a venue with its location.
_FILES: Final[dict[str, str]] = {
    "animation": "animation",
    "photo": "photo",
    "video": "video",
    "video_note": "video message",
    "voice": "voice message",
    "audio": "audio file",
    "document": "file",
}
_TYPES: Final = {
    "animation": "video/mp4",
    "photo": "image/jpeg",
    "video": "video/mp4",
    "video_note": "video/mp4",
    "voice": "audio/ogg",
}
# What it is called, what is in it, and whether it is idle.
_WORDS: Final[dict[str, tuple[str, Callable[[Any], str], bool]]] = {
    "sticker": ("sticker", _sticker, True),
    "paid_media": ("paid media", _unseen, True),
    "story": ("story", _unseen, True),
    "contact": ("contact", _contact, False),
    "venue": ("place", _venue, False),
    "location": ("location", _location, False),
    "poll": ("poll", _poll, False),
    "checklist": ("checklist", _checklist, False),
    "dice": ("dice", _dice, True),
    "game": ("game", _game, True),
}
