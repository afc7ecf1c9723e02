"""Trimming: the change that makes room in the window before a turn. A pure function.

Rows are neither changed nor deleted: the window moves past them. With a summary they get a row
that stands for them, which is read where they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from core.memory import ConversationMemory
from core.messages import NO_BLOCKS, Message, encode_blocks, text_block
from core.snapshot import Snapshot, Span, Usage

PATIENCE: Final = 2  # bounds so many times as wide hold while no summary can be had


class NewSummary(msgspec.Struct, frozen=True):
    """What was made of the oldest messages of a window, before a turn starts.

    :param epoch: of the conversation that was read
    :param covers: seq of each message that it stands for
    :param text: None: it could not be had
    :param usage: what it cost, in either case
    """

    epoch: str
    covers: tuple[int, ...]
    text: str | None
    usage: Usage = Usage()


def leaving(
    snapshot: Snapshot, memory: ConversationMemory, newest: Sequence[Message] = ()
) -> tuple[Message, ...]:
    """The messages, an older summary among them, for which there is no room beside `newest` and
    a summary; none while all fit without one."""
    messages = snapshot.messages
    kept, _ = memory.kept(messages, newest, snapshot.fit)
    if len(kept) == len(messages) or memory.max_messages == 1:
        return ()
    if not _told(messages):
        messages = (Message(seq=0, role="summary", blocks=NO_BLOCKS, at=0), *messages)
        kept, _ = memory.kept(messages, newest, snapshot.fit)
    return snapshot.messages[: len(snapshot.messages) - (len(kept) - 1)]


def summarised(snapshot: Snapshot, summary: NewSummary | None, now: int) -> Snapshot:
    """The summary stands for what it covers. No change but its cost, when there is none or what
    it was made of is not there any more."""
    if summary is None:
        return snapshot
    paid = replace(snapshot, usage=snapshot.usage + summary.usage)
    if summary.text is None or not summary.covers or not _covers(summary, snapshot):
        return paid
    seq = snapshot.next_seq
    row = Message(seq=seq, role="summary", blocks=encode_blocks([text_block(summary.text)]), at=now)
    kept = snapshot.messages[len(summary.covers) :]
    return replace(
        paid,
        spans=read_from((*snapshot.spans, (seq, seq)), (row, *kept)),
        window=seq,
        messages=(row, *kept),
        next_seq=seq + 1,
    )


def trimmed(
    snapshot: Snapshot,
    memory: ConversationMemory,
    newest: Sequence[Message],
    summary: NewSummary | None = None,
) -> Snapshot:
    """As much of the history as fits beside `newest`.

    :param newest: rows that follow, the person's message the last of them
    :param summary: when it was tried and failed, what it was for stays a while, to be tried again
    """
    failed = summary is not None and summary.text is None
    kept, fit = memory.kept(
        snapshot.messages, newest, snapshot.fit, times=PATIENCE if failed else 1
    )
    if len(kept) == len(snapshot.messages):
        return snapshot if fit == snapshot.fit else replace(snapshot, fit=fit)
    return replace(
        snapshot,
        fit=fit,
        spans=read_from(snapshot.spans, kept) if _told(kept) else snapshot.spans,
        window=kept[0].seq if kept else newest[0].seq,
        messages=kept,
    )


def from_row(messages: Sequence[Message], seq: int) -> tuple[Message, ...]:
    """The messages from that one on, in reading order."""
    for index, message in enumerate(messages):
        if message.seq == seq:
            return tuple(messages[index:])
    # Somebody else has spoken meanwhile, and the number is another one's or nobody's.
    return tuple(message for message in messages if message.seq > seq)


def read_from(spans: Sequence[Span], messages: Sequence[Message]) -> tuple[Span, ...]:
    """The same rows, read so that a summary comes just before those that it does not stand for.

    What is behind the window is put in order of writing: so there are never more spans for more
    summaries.

    :param messages: the window: a summary, and the rows that are read after it
    """
    told = messages[0].seq
    first = messages[1].seq if len(messages) > 1 else max(last for _, last in spans) + 1
    before: list[Span] = []
    behind: list[Span] = []
    for low, high in _without(sorted(spans), told):
        if low < first:
            before.append((low, min(high, first - 1)))
        if high >= first:
            behind.append((max(low, first), high))
    return (*_merged(before), (told, told), *_merged(behind))


def _without(spans: Sequence[Span], seq: int) -> list[Span]:
    parts: list[Span] = []
    for low, high in spans:
        if low <= seq <= high:
            parts += [(low, seq - 1)] if low < seq else []
            parts += [(seq + 1, high)] if seq < high else []
        else:
            parts.append((low, high))
    return parts


def _merged(spans: Sequence[Span]) -> list[Span]:
    merged: list[Span] = []
    for low, high in spans:
        if merged and merged[-1][1] + 1 >= low:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged


def _covers(summary: NewSummary, snapshot: Snapshot) -> bool:
    there = tuple(message.seq for message in snapshot.messages[: len(summary.covers)])
    return summary.epoch == snapshot.epoch and there == summary.covers


def _told(messages: Sequence[Message]) -> bool:
    return bool(messages) and messages[0].role == "summary"
