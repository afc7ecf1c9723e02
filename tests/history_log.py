"""What is written down of one run: events, findings, and how words can be followed through it.

Values only; who writes them down is `tests/crash/record.py`, what they must come to is in
`history_checker.py`.

Each message of a person holds a token of its own (``#k3f9``). Each answer of the model begins with
all tokens of what it answers and is strewn with marks, ``!a17.2/5``: the second of five of the
model's answer a17.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

TOKEN: Final = re.compile(r"#[a-z0-9]+")
MARK: Final = re.compile(r"!([a-z0-9]+)\.([0-9]+)/([0-9]+)")

WrittenKind = Literal["message", "reset", "stop", "command"]


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Something that happened, at a wall-clock time that only people read."""

    at: float = 0.0


class Written(Event, frozen=True):
    """A person wrote. `command` is any other command than /reset and /stop."""

    chat: str
    update: int
    text: str
    kind: WrittenKind = "message"
    stranger: bool = False


class Delivered(Event, frozen=True):
    """The update reached the program's poll."""

    update: int


class Confirmed(Event, frozen=True):
    """The platform was told that it was received."""

    update: int


class Accepted(Event, frozen=True):
    """The program says that it is durable."""

    chat: str
    update: int


class Refused(Event, frozen=True):
    """The program says that it did not take it."""

    chat: str
    update: int


class Asked(Event, frozen=True):
    """The model was called by process number `life`: with the tokens of the last exchange, and
    those of all before it."""

    life: int
    now: tuple[str, ...]
    before: tuple[str, ...] = ()


class Answered(Event, frozen=True):
    """What the model said to these tokens has this name in its marks. `grows`: it fits one message
    and comes in pieces, so that the message may be read before it is whole."""

    answer: str
    tokens: tuple[str, ...]
    grows: bool = False


class Committed(Event, frozen=True):
    """The program says that this run of a turn is history."""

    chat: str
    execution: str


class Sent(Event, frozen=True):
    """The platform shows a message that process number `life` has asked it to."""

    life: int
    chat: str
    message: int
    text: str


class Edited(Event, frozen=True):
    """A message of process number `life` says something else from now on."""

    life: int
    chat: str
    message: int
    text: str


class Deleted(Event, frozen=True):
    """A message is gone, because process number `life` wanted that."""

    life: int
    chat: str
    message: int


class Drafted(Event, frozen=True):
    """People see what process number `life` is about to say; it fades by itself."""

    life: int
    chat: str
    text: str


class Noted(Event, frozen=True):
    """A process is dead, and its snapshot names this message as one that shows a part."""

    chat: str
    message: int


class Unknown(Event, frozen=True):
    """The process was not told that this message was sent."""

    chat: str
    message: int


class Marked(Event, frozen=True):
    """The program says that it has noted this message as sent."""

    chat: str
    message: int
    part: str = ""


class Killed(Event, frozen=True):
    """Process number `life` is dead, unasked; `point` says where it was, if anybody knows."""

    life: int
    point: str = ""


class Errored(Event, frozen=True):
    """Something failed in this chat so that nobody knows whether it took effect."""

    chat: str


class Undelivered(Event, frozen=True):
    """The program says that something will not be sent here: held, failed, or the chat is gone."""

    chat: str


class Moved(Event, frozen=True):
    """What was said in chat `old` goes on in `new`."""

    old: str
    new: str


class Effect(Event, frozen=True):
    """A tool changed the world for this token."""

    token: str


class Said(msgspec.Struct, frozen=True):
    """One stored message. `calls` and `results` are the ids of tool calls."""

    role: str
    text: str
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


class Stored(Event, frozen=True):
    """The whole history of a chat at the end, and whether anything was left to do."""

    chat: str
    messages: tuple[Said, ...]
    unfinished: bool = False


class Damaged(Event, frozen=True):
    """The database does not hold together."""

    what: str


LogEvent: TypeAlias = (
    Written
    | Delivered
    | Confirmed
    | Accepted
    | Refused
    | Asked
    | Answered
    | Committed
    | Sent
    | Edited
    | Deleted
    | Drafted
    | Noted
    | Unknown
    | Marked
    | Killed
    | Errored
    | Undelivered
    | Moved
    | Effect
    | Stored
    | Damaged
)

FindingKind = Literal[
    "lost",
    "duplicated",
    "reordered",
    "invented",
    "foreign",
    "half",
    "stranger",
    "after reset",
    "after stop",
    "damaged",
]


class Finding(NamedTuple):
    """One broken promise, and the events that show it."""

    kind: FindingKind
    chat: str
    what: str
    events: tuple[Event, ...] = ()


def tokens_of(text: str) -> tuple[str, ...]:
    """The tokens in a text, each once, in order."""
    return tuple(dict.fromkeys(TOKEN.findall(text)))


class Mark(NamedTuple):
    """Piece `number` of so many of an answer."""

    answer: str
    number: int
    pieces: int


def marks_of(text: str) -> tuple[Mark, ...]:
    return tuple(Mark(name, int(number), int(count)) for name, number, count in MARK.findall(text))
