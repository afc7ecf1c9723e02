"""Overheard: what people said in a room since the last turn, but not to the bot. Pure.

Remembered only where the owner wants it, and little of it: the newest few messages, cut. It begins
no turn and no answer; the next turn has it in front of what it answers, each message between marks
that name who said it, as data. `/reset` forgets it, and an edit or a deletion reaches it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from core.messages import Inbound, Message, decode_blocks
from core.quoted import is_overheard, quoted
from core.snapshot import Overheard, Snapshot

# In characters: of one message, and of all together.
MAX_ONE: Final = 500
MAX_ALL: Final = 3_000


def hear(snapshot: Snapshot, inbound: Inbound, most: int) -> Snapshot:
    """
    :param inbound: whose id is known not to have been seen
    :param most: how many messages are remembered
    """
    said = _cut(inbound)
    if not said:
        return snapshot
    one = Overheard(inbound.sender, said, inbound.message_id)
    return replace(snapshot, heard=_bounded((*snapshot.heard, one), most))


def edited(snapshot: Snapshot, edit: Inbound) -> Snapshot | None:
    """With the new text, or without the message when it was deleted; None: it is not among them."""
    for index, one in enumerate(snapshot.heard):
        if one.message_id == edit.message_id and one.sender.id == edit.sender.id:
            said = _cut(edit)
            rest = snapshot.heard[:index], snapshot.heard[index + 1 :]
            changed = (replace(one, text=said),) if said else ()
            return replace(snapshot, heard=(*rest[0], *changed, *rest[1]))
    return None


def blocks(heard: Iterable[Overheard]) -> list[dict[str, object]]:
    """A block each, for the model."""
    return [quoted(one.text, one.sender.name or one.sender.id, "overheard") for one in heard]


def spoke_to_us(row: Message) -> tuple[str, ...]:
    """Whose words of a row were meant for the bot."""
    if not row.senders:
        return (row.sender,) if row.sender else ()
    said = zip(row.senders, decode_blocks(row.blocks), strict=True)
    return tuple(who for who, block in said if who and not is_overheard(str(block.get("text"))))


def _cut(inbound: Inbound) -> str:
    files = [f"[{each.kind.replace('_', ' ')}]" for each in inbound.attachments]
    text = " ".join([*([inbound.text.strip()] if inbound.text.strip() else []), *files])
    return text if len(text) <= MAX_ONE else f"{text[:MAX_ONE]}…"


def _bounded(heard: tuple[Overheard, ...], most: int) -> tuple[Overheard, ...]:
    kept: list[Overheard] = []
    room = MAX_ALL
    for one in reversed(heard[-most:]):
        room -= len(one.text)
        if room < 0:
            break
        kept.append(one)
    return tuple(reversed(kept))
