"""Edits: what becomes of a conversation when somebody changes what they wrote. Pure.

A message that still waits is replaced where it waits. One that is being answered, or was answered
last, is not: its author is asked once whether it shall be answered again, by a button or by /retry.
All older ones stay as they were said. An edit is never answered as a new message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from msgspec.structs import replace

from core import branches, cards, changes, history, overheard, phrases
from core.adapter import Adapter, Card, Cards, Choice, Refused
from core.messages import Inbound, Message, Outbound, decode_blocks, encode_blocks, text_block
from core.outbox import queue
from core.phrases import Wording
from core.quoted import is_quoted
from core.snapshot import Snapshot

_DATA: Final = re.compile(r"~[0-9a-f]{16}")
# What stands before the words of people; see `core.messages.time_block`.
_TIME: Final = re.compile(r"<time>[^<]{1,64}</time>")


def is_press(data: str) -> bool:
    """Whether a button of ours, below the question about an edit, says that."""
    return _DATA.fullmatch(data) is not None


def edit(snapshot: Snapshot, edit: Inbound, adapter: Adapter, say: Wording) -> Snapshot:
    """The snapshot itself: it was seen before, or concerns nothing that can still change.

    :param edit: the message as it is now; with nothing in it, it was deleted
    """
    if changes.knows(snapshot, edit.id):
        return snapshot
    around = overheard.edited(snapshot, edit)
    if around is not None:
        return changes.reply(around, edit, ())
    for inbound in _waiting(snapshot):
        if _same(inbound, edit):
            return _in_place(changes.reply(snapshot, edit, ()), inbound, edit)
    after = _changed(snapshot, edit)
    if after is None:
        return snapshot
    seen = changes.reply(snapshot, edit, ())
    asked = snapshot.edited is not None and snapshot.edited.message_id == edit.message_id
    if after is snapshot or not edit.text.strip():
        # Nobody sees a difference, or it is as it was again.
        return replace(seen, edited=None) if asked else seen
    if asked:
        return replace(seen, edited=edit)
    return replace(
        changes.reply(snapshot, edit, _question(snapshot, edit, adapter, say)), edited=edit
    )


def again(snapshot: Snapshot, asked: Inbound) -> Snapshot:
    """What was said last is to be answered anew, as it was changed since. The snapshot itself:
    there is nothing, or it waits for its first answer already.

    :param asked: who asks for it, and where
    """
    changed = _changed(snapshot, snapshot.edited) if snapshot.edited else None
    before = changed or snapshot
    after = branches.ask_again(before, asked)
    return snapshot if after is before else replace(after, edited=None)


def press(
    snapshot: Snapshot, pressed: Inbound, adapter: Adapter, say: Wording
) -> Snapshot | Refused:
    """The button: the conversation goes on from the changed message. Pressed twice, or when
    something was said since, it changes nothing."""
    edited = snapshot.edited
    if edited is None or pressed.text != _data(snapshot, edited):
        return Refused(say(phrases.EDIT_OVER), private=True, over=True)
    if pressed.sender.id != edited.sender.id:
        return Refused(say(phrases.EDIT_NOT_YOURS), private=True)
    if _waiting(snapshot) or _changed(snapshot, edited) is None:
        return Refused(say(phrases.EDIT_OVER), private=True, over=True)
    after = cards.withdrawn(snapshot, again(snapshot, pressed), adapter, say)
    after = changes.reply(after, pressed, ())
    if pressed.message_id is None or not isinstance(adapter, Cards):
        return after
    body = adapter.render_card(Card(say(phrases.EDIT_ANSWERED)))
    part = Outbound(f"{snapshot.epoch}.{pressed.id}.0", body, replaces=pressed.message_id)
    return queue(after, (part,))


def _question(snapshot: Snapshot, edit: Inbound, adapter: Adapter, say: Wording) -> tuple[str, ...]:
    if not isinstance(adapter, Cards):
        return adapter.render(say(phrases.EDITED_TEXT))
    choices = (Choice(say(phrases.ANSWER_AGAIN), _data(snapshot, edit)),)
    return (adapter.render_card(Card(say(phrases.EDITED), choices)),)


def _data(snapshot: Snapshot, edit: Inbound) -> str:
    """What the button says. It names the message, not the text: a second edit needs no second
    question."""
    named = f"{snapshot.epoch} {edit.message_id}"
    return f"~{sha256(named.encode()).hexdigest()[:16]}"


# ---------------------------------------------------------------------- which message, and where


def _same(inbound: Inbound, edit: Inbound) -> bool:
    return inbound.message_id == edit.message_id and inbound.sender.id == edit.sender.id


def _waiting(snapshot: Snapshot) -> tuple[Inbound, ...]:
    """What nobody answers yet."""
    turn = snapshot.turn
    if turn is None:
        return snapshot.inbox
    joined = turn.suspended.joined if turn.suspended else ()
    return tuple(each for each in snapshot.inbox if each.id not in (*turn.taken, *joined))


def _in_place(snapshot: Snapshot, inbound: Inbound, edit: Inbound) -> Snapshot:
    inbox = list(snapshot.inbox)
    at = inbox.index(inbound)
    if _is_deleted(edit):
        del inbox[at]
    else:
        # Of one that is asked again nobody can tell which of its blocks is meant.
        inbox[at] = _with_text(inbound, edit) or inbound
    return replace(snapshot, inbox=tuple(inbox))


def _is_deleted(edit: Inbound) -> bool:
    return not (edit.text.strip() or edit.attachments) and bytes(edit.blocks) == b"[]"


def _changed(snapshot: Snapshot, edit: Inbound) -> Snapshot | None:
    """With the new text in what was said last; None: the message is not part of that."""
    if snapshot.turn is not None:
        return _with_inbounds(snapshot, "inbox", edit)
    if snapshot.inbox:
        return None
    if snapshot.unanswered:
        return _with_inbounds(snapshot, "unanswered", edit)
    first = history.last_exchange(snapshot.messages)
    for index in range(len(snapshot.messages) if first is None else first, len(snapshot.messages)):
        row = snapshot.messages[index]
        if edit.message_id in row.message_ids and edit.sender.id in (row.sender, *row.senders):
            changed = _with_words(row, edit)
            rows = (*snapshot.messages[:index], changed, *snapshot.messages[index + 1 :])
            return snapshot if changed is row else replace(snapshot, messages=rows)
    return None


def _with_inbounds(snapshot: Snapshot, place: str, edit: Inbound) -> Snapshot | None:
    inbounds: tuple[Inbound, ...] = getattr(snapshot, place)
    for inbound in inbounds:
        if _same(inbound, edit):
            changed = _with_text(inbound, edit) or inbound
            others = tuple(changed if each is inbound else each for each in inbounds)
            return snapshot if changed == inbound else replace(snapshot, **{place: others})
    return None


def _with_text(inbound: Inbound, edit: Inbound) -> Inbound | None:
    """None: nobody can tell where its text stands."""
    if inbound.text.strip():
        return replace(inbound, text=edit.text)
    # What is asked again has its words among its blocks.
    blocks = decode_blocks(inbound.blocks)
    at = _place(blocks, 0, 1)
    if at is None:
        return None
    if at == len(blocks):
        return replace(inbound, text=edit.text)
    blocks[at] = text_block(changes.said_by(edit))
    return replace(inbound, blocks=encode_blocks(blocks))


def _with_words(row: Message, edit: Inbound) -> Message:
    """The row with the new text; itself when it says that already, or nobody can tell where."""
    blocks = decode_blocks(row.blocks)
    which = row.message_ids.index(str(edit.message_id))
    at = _place(blocks, which, len(row.message_ids))
    said = text_block(changes.said_by(edit))
    if at is None or (at < len(blocks) and blocks[at] == said):
        return row
    if at < len(blocks):
        blocks[at] = said
        return replace(row, blocks=encode_blocks(blocks))
    speakers = row.senders and (*row.senders, edit.sender.id)
    return replace(row, blocks=encode_blocks([*blocks, said]), senders=speakers)


def _place(blocks: Sequence[history.Block], which: int, count: int) -> int | None:
    """Where the words of the message of this number stand among the blocks of so many; behind them
    when it had none; None: its words cannot be told from those of the others."""
    texts = [
        index
        for index, block in enumerate(blocks)
        if block.get("type") == "text" and _is_own(str(block.get("text")))
    ]
    if len(texts) == count:
        return texts[which]
    return len(blocks) if not texts and count == 1 else None


def _is_own(text: str) -> bool:
    """Whether it can be the words of whoever sent it."""
    return not (_TIME.fullmatch(text) or is_quoted(text))
