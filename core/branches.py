"""Going back: the last exchange taken back, or asked once more. Pure functions on a Snapshot.

What is taken back leaves the spans, so it is history no more: it is neither sent nor exported. Its
rows stay stored, unchanged, until a reset or a forget deletes them.
"""

from __future__ import annotations

from msgspec.structs import replace

from core import history
from core.changes import abandoned, stop
from core.messages import Inbound, Message, Sender, decode_blocks, encode_blocks
from core.outbox import taken_back
from core.quoted import is_overheard
from core.snapshot import Snapshot, Span


def undo(snapshot: Snapshot) -> Snapshot:
    """Takes back what was said last, and its answer: what is being answered or waits to be, else
    what could not be answered, else the last exchange. The snapshot itself: there is nothing.

    Only what requests still see is taken back.
    """
    if snapshot.turn or snapshot.inbox:
        # What was said before it is what was said last again.
        answer = "" if snapshot.unanswered else snapshot.answer
        return replace(stop(snapshot), unanswered=(), edited=None, answer=answer)
    if snapshot.unanswered:
        return taken_back(replace(snapshot, unanswered=(), edited=None))
    left, _ = _without_last(snapshot)
    return left if left is snapshot else taken_back(replace(left, edited=None))


def ask_again(snapshot: Snapshot, asked: Inbound) -> Snapshot:
    """What was said last is to be answered anew, as if it had not been. The snapshot itself: there
    is nothing, or it waits for its first answer already.

    :param asked: who asks for it, and where
    """
    if snapshot.turn:
        # Its messages are in the inbox still; what it has done so far was not right.
        return replace(abandoned(snapshot, snapshot.turn), inbox=snapshot.inbox, unanswered=())
    if snapshot.inbox:
        return snapshot
    if snapshot.unanswered:
        return replace(snapshot, inbox=snapshot.unanswered, unanswered=(), answer="")
    left, exchange = _without_last(snapshot)
    if left is snapshot:
        return snapshot
    return replace(left, inbox=tuple(_said_in(exchange, asked)), answer="")


def _without_last(snapshot: Snapshot) -> tuple[Snapshot, tuple[Message, ...]]:
    """Without the last exchange; and that."""
    index = history.last_exchange(snapshot.messages)
    if index is None:
        return snapshot, ()
    kept, exchange = snapshot.messages[:index], snapshot.messages[index:]
    spans = _cut(snapshot.spans, exchange[0].seq)
    return replace(snapshot, messages=kept, spans=spans), exchange


def _cut(spans: tuple[Span, ...], seq: int) -> tuple[Span, ...]:
    """Without the rows from this one on, which are at the end of what is read."""
    first, last = spans[-1]
    return spans[:-1] if seq <= first else (*spans[:-1], (first, min(last, seq - 1)))


def _said_in(exchange: tuple[Message, ...], asked: Inbound) -> list[Inbound]:
    """What people said in it, to be asked again: more than one message when some joined later.

    The blocks stay as they are: a name that stands before a text stands there already.
    """
    said: list[Inbound] = []
    for row in exchange:
        if row.role != "user" or row.sender is None:
            continue
        parts = _by_sender(row)
        for number, (sender, blocks) in enumerate(parts, 1):
            last = number == len(parts)
            name = f"{asked.id}.{row.seq}"
            said.append(
                Inbound(
                    id=name if last else f"{name}.{number}",
                    key=asked.key,
                    kind="message",
                    sender=Sender(sender),
                    text="",
                    blocks=encode_blocks(blocks),
                    message_id=row.message_ids[-1] if last and row.message_ids else None,
                    group=asked.group,
                    at=row.at,
                    addressed=last or not is_overheard(str(blocks[-1].get("text"))),
                )
            )
    return said


def _by_sender(row: Message) -> list[tuple[str, list[history.Block]]]:
    """Its blocks, without results of tools, in runs of one person's; what is of ours goes with what
    it stands before. So whose words they are is known of the next row, too."""
    runs: list[tuple[str, list[history.Block]]] = []
    ours: list[history.Block] = []
    blocks = decode_blocks(row.blocks)
    for who, block in zip(row.senders or (row.sender or "",) * len(blocks), blocks, strict=True):
        if block.get("type") == "tool_result":
            continue
        if not who:
            ours.append(block)
        elif runs and runs[-1][0] == who and not ours:
            runs[-1][1].append(block)
        else:
            runs.append((who, [*ours, block]))
            ours = []
    return runs
