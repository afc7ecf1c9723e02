"""Rooms: who may use a command where several people share one conversation. Pure.

Alone with the bot, and in a history that is theirs alone, everybody may. In a room that is shared
an administrator may, and so may the bot's owner and those on its access list. Who is one, only the
platform knows; who may say anything at all is the gate's affair.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from core import history, phrases
from core.overheard import spoke_to_us
from core.snapshot import Snapshot

# `last`: also who said everything that it would take back. `setting`: to change it; everybody sees.
Room = Literal["everyone", "last", "admins", "setting"]


def concerns(room: Room, argument: str) -> bool:
    """Whether it must be known who uses a command of this kind."""
    return room in ("last", "admins") or (room == "setting" and argument != "")


def refusal(
    room: Room, argument: str, admin: bool | None, snapshot: Snapshot, sender: str
) -> str | None:
    """What is said instead of doing it; None: they may.

    :param admin: whether the sender is one, or need not be; None: nobody knows
    """
    if admin or not concerns(room, argument):
        return None
    if room == "last" and spoke_last(snapshot, sender):
        return None
    if admin is None:
        return phrases.ADMIN_UNKNOWN
    return phrases.ADMIN_OR_LAST if room == "last" else phrases.ADMIN_ONLY


def spoke_last(snapshot: Snapshot | None, sender: str) -> bool:
    """Whether all that `/undo` would take back was said by this person, or there is nothing."""
    return snapshot is None or set(_last_speakers(snapshot)) <= {sender}


def _last_speakers(snapshot: Snapshot) -> Iterable[str]:
    turn = snapshot.turn
    waiting = [
        each
        for each in snapshot.inbox
        if each.addressed and (turn is None or each.id in turn.taken)
    ]
    if waiting or snapshot.unanswered:
        return [each.sender.id for each in waiting or snapshot.unanswered]
    first = history.last_exchange(snapshot.messages)
    if first is None:
        return []
    rows = [row for row in snapshot.messages[first:] if row.role == "user"]
    return [who for row in rows for who in spoke_to_us(row)]
