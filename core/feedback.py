"""Feedback: what a person thinks of an answer, by a button. Kept beside the conversations.

One note a person, with the newest of theirs; it names messages and holds no words. It is read by
people and never by a model, and begins no turn.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import msgspec

from core.store import Notes

# Of one person; what is older goes.
KEPT: Final = 200

_PREFIX: Final = "feedback."


class Opinion(msgspec.Struct, frozen=True):
    """
    :param sender: `Sender.id`
    :param key: of the conversation
    :param message_id: of the answer
    :param good: or bad
    :param at: ms since 1970
    """

    sender: str
    key: str
    message_id: str
    good: bool
    at: int = 0


_decode: Final = msgspec.json.Decoder(tuple[Opinion, ...]).decode


async def keep(notes: Notes, opinion: Opinion) -> None:
    """Durable when it returns. One person has one opinion of an answer: the last."""
    name = f"{_PREFIX}{opinion.sender}"
    about = (opinion.key, opinion.message_id)
    while True:
        was = await notes.get(name)
        others = [each for each in _decode(was or b"[]") if (each.key, each.message_id) != about]
        after = msgspec.json.encode([*others, opinion][-KEPT:])
        if await notes.put(name, after, was=was):
            return


async def forget(notes: Notes, sender: str) -> None:
    """All of one person's. Twice is harmless."""
    await _remove(notes, f"{_PREFIX}{sender}")


async def forget_all(notes: Notes, beginning: str) -> None:
    """All of everybody's whose id begins so. Twice is harmless."""
    for name in [name async for name in notes.names()]:
        if name.startswith(f"{_PREFIX}{beginning}"):
            await _remove(notes, name)


async def opinions(notes: Notes) -> AsyncIterator[Opinion]:
    """All of them: person by person, the oldest first."""
    for name in [name async for name in notes.names()]:
        if name.startswith(_PREFIX):
            for each in _decode(await notes.get(name) or b"[]"):
                yield each


async def _remove(notes: Notes, name: str) -> None:
    was = await notes.get(name)
    while was is not None and not await notes.put(name, None, was=was):
        was = await notes.get(name)
