"""Every change of a conversation: pure functions from a Snapshot to the next one. Those that only
concern what waits to be sent are in `outbox.py`.

Nothing here waits, saves or asks the clock: what a change needs is passed in, so that a change can
be applied again to a newer snapshot when somebody else saved first. A change that does not apply
(a fenced turn, a part already delivered, a message already seen) returns the snapshot itself.
`revision` and `updated_at` are not set here: whoever saves does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from core import approvals, history, overheard
from core.albums import first_of, late_of
from core.memory import ConversationMemory
from core.messages import (
    File,
    Inbound,
    Message,
    Role,
    decode_blocks,
    encode_blocks,
    text_block,
    time_block,
)
from core.outbox import SENT_LIMIT, gone, newest, on_screen, parts_of, queue, retractions
from core.outgoing import files_of
from core.quoted import is_quoted, unmarked
from core.snapshot import Fit, Overheard, Snapshot, Span, Suspension, Turn, Usage
from core.trimming import NewSummary, from_row, summarised, trimmed
from core.window import learned

INBOX_LIMIT: Final = 20
SEEN_LIMIT: Final = 200

# What messages bring besides their text, by their ids.
Contents = Mapping[str, Sequence[history.Block]]


class Fence(NamedTuple):
    """Which run of which conversation a change belongs to."""

    epoch: str
    execution: str


def holds(snapshot: Snapshot | None, fence: Fence) -> bool:
    """Whether this run is still the one under way."""
    return snapshot is not None and _current(snapshot, fence) is not None


def begin(*, revision: int, epoch: str, now: int, cwd: str | None = None) -> Snapshot:
    """An empty conversation."""
    return Snapshot(revision=revision, epoch=epoch, created_at=now, updated_at=now, cwd=cwd)


# ---------------------------------------------------------------------- what comes in


def knows(snapshot: Snapshot, inbound_id: str) -> bool:
    """Whether this message was accepted before: what waits is known, however much came since."""
    return inbound_id in snapshot.seen or any(each.id == inbound_id for each in snapshot.inbox)


def hear(snapshot: Snapshot, inbound: Inbound, most: int) -> Snapshot:
    """It was said in the room, but not to the bot: seen, and remembered until the next turn.

    :param most: how many such messages are remembered
    """
    if knows(snapshot, inbound.id):
        return snapshot
    after = overheard.hear(snapshot, inbound, most)
    if after is snapshot:
        return snapshot
    return replace(after, seen=(*snapshot.seen, inbound.id)[-SEEN_LIMIT:])


def accept(snapshot: Snapshot, inbound: Inbound) -> Snapshot:
    """The message waits in the inbox. No change: it was seen before, or the inbox is full."""
    if knows(snapshot, inbound.id) or len(snapshot.inbox) >= INBOX_LIMIT:
        return snapshot
    return replace(_saw(snapshot, inbound.id), inbox=(*snapshot.inbox, inbound))


def reply(
    snapshot: Snapshot, inbound: Inbound, bodies: Sequence[str], files: Sequence[File] = ()
) -> Snapshot:
    """A command is answered: seen, and its reply waits in the outbox."""
    if inbound.id in snapshot.seen:
        return snapshot
    parts = parts_of(f"{snapshot.epoch}.{inbound.id}", bodies, inbound, files)
    return queue(_saw(snapshot, inbound.id), parts)


def notice(snapshot: Snapshot, bodies: Sequence[str]) -> Snapshot:
    """The first thing a conversation says, without being asked."""
    return queue(snapshot, parts_of(f"{snapshot.epoch}.notice", bodies, None))


def reset(snapshot: Snapshot, epoch: str) -> Snapshot:
    """Everything said is forgotten; what was seen and what the chat chose is not."""
    last = snapshot.next_seq - 1
    return replace(
        snapshot,
        epoch=epoch,
        spans=(),
        window=snapshot.next_seq,
        messages=(),
        inbox=(),
        unanswered=(),
        edited=None,
        heard=(),
        turn=None,
        outbox=retractions(snapshot.turn, epoch),
        answer="",
        sent=(),
        erase=((1, last),) if last else (),
    )


def stop(snapshot: Snapshot) -> Snapshot:
    """What is being answered is not answered any more; when nothing is, what waits to be. History
    unchanged."""
    if snapshot.turn is None:
        waiting = snapshot.inbox
        return replace(snapshot, inbox=(), unanswered=waiting) if waiting else snapshot
    return abandoned(snapshot, snapshot.turn)


def left(snapshot: Snapshot) -> Snapshot:
    """The bot was taken out of the chat: nobody waits for an answer any more, and none can be sent.
    What was said stays."""
    stopped = stop(stop(snapshot))  # the turn, then what waits behind it
    return gone(stopped)


# ---------------------------------------------------------------------- the turn


def next_ones(snapshot: Snapshot, *, one_by_one: bool, join: bool) -> tuple[Inbound, ...]:
    """The messages that a run beginning now would take, those aside that its turn has taken.

    :param one_by_one: the oldest only, with what is of one album with it
    :param join: during a turn all that wait join it, not only what is of one album with those
        that it answers
    """
    turn = snapshot.turn
    if turn is None:
        return first_of(snapshot.inbox) if one_by_one and snapshot.inbox else snapshot.inbox
    joined = turn.suspended.joined if turn.suspended else ()
    waiting = tuple(each for each in snapshot.inbox if each.id not in turn.taken)
    if turn.suspended is not None:
        return tuple(each for each in waiting if join or each.id in joined)
    taken = [each for each in snapshot.inbox if each.id in turn.taken]
    return waiting if join else late_of(waiting, taken)


def brought(snapshot: Snapshot, contents: Contents) -> Snapshot:
    """What waits has its files as blocks, as far as they are at hand."""
    if not contents:
        return snapshot
    inbox = tuple(_brought(inbound, contents) for inbound in snapshot.inbox)
    return snapshot if inbox == snapshot.inbox else replace(snapshot, inbox=inbox)


def named(snapshot: Snapshot, names: Mapping[str, str]) -> Snapshot:
    """Who waits without a name has one, as far as it is known.

    :param names: by `Sender.id`
    """
    if not names:
        return snapshot
    inbox = tuple(_named(inbound, names) for inbound in snapshot.inbox)
    return snapshot if inbox == snapshot.inbox else replace(snapshot, inbox=inbox)


def _named(inbound: Inbound, names: Mapping[str, str]) -> Inbound:
    name = names.get(inbound.sender.id)
    if inbound.sender.name or not name:
        return inbound
    return replace(inbound, sender=replace(inbound.sender, name=name))


def _brought(inbound: Inbound, contents: Contents) -> Inbound:
    blocks = contents.get(inbound.id)
    if blocks is None or not inbound.attachments:
        return inbound
    return replace(inbound, blocks=encode_blocks(blocks), attachments=())


def start(
    snapshot: Snapshot,
    *,
    execution: str,
    now: int,
    memory: ConversationMemory,
    one_by_one: bool = False,
    join: bool = False,
    summary: NewSummary | None = None,
    tell_time: bool = False,
) -> Snapshot:
    """A run of the turn begins: of the one under way, else of what waits in the inbox.

    Completed steps of an earlier attempt are kept.

    :param one_by_one: take the oldest message only, not all that wait
    :param join: messages that came meanwhile join the turn under way; see `next_ones`
    :param summary: of what has no room in the window any more; for a turn that has yet to begin
    :param tell_time: its first message says what time it is
    """
    turn = snapshot.turn
    if turn is None:
        return _first_attempt(snapshot, execution, now, memory, one_by_one, summary, tell_time)
    if turn.suspended is not None:
        return _resumed(snapshot, turn, turn.suspended, execution, join)
    waiting = next_ones(snapshot, one_by_one=one_by_one, join=join)
    again = replace(turn, execution=execution, attempt=turn.attempt + 1)
    if not waiting:
        return replace(snapshot, turn=again)
    again = replace(again, taken=turn.taken + tuple(inbound.id for inbound in waiting))
    message = _spoken(waiting, snapshot.next_seq, now, _interrupted(turn))
    again = replace(again, attempt=1, steps=(*turn.steps, message), started=())
    return replace(snapshot, turn=again, next_seq=snapshot.next_seq + 1)


def _resumed(
    snapshot: Snapshot, turn: Turn, suspended: Suspension, execution: str, join: bool
) -> Snapshot:
    """No change while people have still to decide. What joins is said behind the step's results."""
    if approvals.undecided(suspended):
        return snapshot
    joined = suspended.joined
    if join:
        joined += tuple(
            inbound.id for inbound in snapshot.inbox if inbound.id not in (*turn.taken, *joined)
        )
    again = replace(
        turn,
        execution=execution,
        attempt=turn.attempt + 1,
        taken=turn.taken + tuple(each for each in joined if each not in turn.taken),
        suspended=replace(suspended, joined=joined),
    )
    return replace(snapshot, turn=again)


def joining(snapshot: Snapshot) -> list[history.Block]:
    """What people said that a suspended step goes on with, as blocks behind its results."""
    return _said(_joined_messages(snapshot))


def _joined_messages(snapshot: Snapshot) -> list[Inbound]:
    turn = snapshot.turn
    joined = turn.suspended.joined if turn and turn.suspended else ()
    return [inbound for inbound in snapshot.inbox if inbound.id in joined]


def _first_attempt(
    snapshot: Snapshot,
    execution: str,
    now: int,
    memory: ConversationMemory,
    one_by_one: bool,
    summary: NewSummary | None,
    tell_time: bool,
) -> Snapshot:
    waiting = next_ones(snapshot, one_by_one=one_by_one, join=False)
    if not waiting:
        return snapshot
    snapshot = summarised(snapshot, summary, now)
    seq = first = snapshot.next_seq
    steps: list[Message] = []
    if not snapshot.spans:
        for seed in memory.spoken:
            blocks = encode_blocks([text_block(seed.message)])
            steps.append(Message(seq=seq, role=seed.role, blocks=blocks, at=now))
            seq += 1
    before = [time_block(now)] if tell_time else []
    steps.append(_spoken(waiting, seq, now, before, snapshot.heard))
    return replace(
        trimmed(snapshot, memory, steps, summary),
        next_seq=seq + 1,
        edited=None,
        heard=(),
        turn=Turn(
            execution=execution,
            attempt=1,
            first=first,
            taken=tuple(inbound.id for inbound in waiting),
            steps=tuple(steps),
        ),
    )


def answered(
    snapshot: Snapshot,
    fence: Fence,
    blocks: Sequence[msgspec.Raw],
    started: tuple[str, ...],
    now: int,
) -> Snapshot:
    """A step, first half: the model's answer, and the calls that are about to run."""
    turn = _current(snapshot, fence)
    if turn is None:
        return snapshot
    rows = _rows(snapshot.next_seq, "assistant", blocks, now)
    turn = replace(turn, steps=turn.steps + rows, started=started, attempt=1)
    return replace(snapshot, turn=turn, next_seq=snapshot.next_seq + len(rows))


def results(snapshot: Snapshot, fence: Fence, blocks: msgspec.Raw, now: int) -> Snapshot:
    """A step, second half: what the calls gave."""
    turn = _current(snapshot, fence)
    if turn is None:
        return snapshot
    (row,) = _rows(snapshot.next_seq, "user", [blocks], now)
    if joined := _joined_messages(snapshot):
        row = _from(row, joined)
    turn = replace(turn, steps=(*turn.steps, row), started=(), attempt=1, suspended=None)
    return replace(snapshot, turn=turn, next_seq=snapshot.next_seq + 1)


def shown(snapshot: Snapshot, fence: Fence, message_ids: tuple[str, ...]) -> Snapshot:
    """These platform messages show a part of the answer already."""
    turn = _current(snapshot, fence)
    if turn is None or turn.shown == message_ids:
        return snapshot
    return replace(snapshot, turn=replace(turn, shown=message_ids))


def commit(
    snapshot: Snapshot,
    fence: Fence,
    blocks: Sequence[msgspec.Raw],
    bodies: Sequence[str],
    usage: Usage,
    now: int,
    window: int | None = None,
    bytes_per_token: float | None = None,
    standing: Mapping[str, str] = {},
) -> Snapshot:
    """The turn becomes history; its reply waits in the outbox; what it answered is done.

    :param blocks: the assistant messages that are not steps yet
    :param window: where requests read from, when the turn had to shorten what it sent
    :param bytes_per_token: of its last request; None: not known
    :param standing: what messages that are on the screen already say, by id
    """
    turn = _current(snapshot, fence)
    if turn is None:
        return snapshot
    rows = turn.steps + _rows(snapshot.next_seq, "assistant", blocks, now)
    reply_to = _last_taken(snapshot, turn)
    files = files_of(turn.steps)
    said = parts_of(turn.execution, bodies, reply_to, files)
    parts, sent = on_screen(said, turn, standing)
    messages = snapshot.messages + rows
    if window is not None:
        messages = from_row(messages, window)
    return queue(
        replace(
            snapshot,
            spans=_joined((*snapshot.spans, (turn.first, rows[-1].seq))),
            window=snapshot.window if window is None else window,
            messages=messages,
            next_seq=snapshot.next_seq + len(blocks),
            inbox=_untaken(snapshot, turn),
            unanswered=(),
            turn=None,
            answer=turn.execution,
            usage=snapshot.usage + usage,
            fit=learned(snapshot.fit, bytes_per_token),
            sent=newest((*snapshot.sent, *sent), turn.execution),
        ),
        parts,
    )


def apologise(snapshot: Snapshot, fence: Fence, bodies: Sequence[str]) -> Snapshot:
    """The turn is given up: its rows go, its messages are done, the apology waits."""
    turn = _current(snapshot, fence)
    if turn is None:
        return snapshot
    parts = parts_of(turn.execution, bodies, _last_taken(snapshot, turn))
    return queue(replace(abandoned(snapshot, turn), answer=turn.execution), parts)


def append(
    snapshot: Snapshot,
    said: Sequence[tuple[Role, msgspec.Raw]],
    usage: Usage,
    now: int,
    memory: ConversationMemory,
    sender: str | None = None,
    summary: NewSummary | None = None,
) -> Snapshot:
    """A whole turn at once, role and blocks a message: what a Session's run adds.

    :param sender: the person who speaks in it; seeds before that nobody said
    :param summary: of what had no room in the window any more when it began
    """
    snapshot = summarised(snapshot, summary, now)
    first = snapshot.next_seq
    rows: tuple[Message, ...] = ()
    for role, blocks in said:
        rows += _rows(first + len(rows), role, [blocks], now)
    if sender is not None:
        spoken = max(history.exchanges(rows))
        rows = (*rows[:spoken], replace(rows[spoken], sender=sender), *rows[spoken + 1 :])
    asked = rows[: max(history.exchanges(rows), default=-1) + 1]
    snapshot = trimmed(snapshot, memory, asked, summary)
    return replace(
        snapshot,
        spans=_joined((*snapshot.spans, (first, first + len(rows) - 1))),
        messages=snapshot.messages + rows,
        next_seq=first + len(rows),
        answer="",
        usage=snapshot.usage + usage,
    )


def postpone(snapshot: Snapshot, fence: Fence, bodies: Sequence[str]) -> Snapshot:
    """The turn waits for the operator (no key, no credit): this was not an attempt."""
    turn = _current(snapshot, fence)
    if turn is None:
        return snapshot
    parts = parts_of(turn.execution, bodies, _last_taken(snapshot, turn))
    return queue(replace(snapshot, turn=replace(turn, attempt=turn.attempt - 1)), parts)


# ---------------------------------------------------------------------- a chat with a new id


def move(old: Snapshot, new: Snapshot | None, key: str) -> Snapshot:
    """`old` goes on under `key`; what was already said there follows it, renumbered.

    A turn under way goes on at the end of both; the newer one of two begins again. No message is
    refused for a full inbox: both were accepted. Each of two parts that were leaving may be on the
    screen, and still says so. Nothing names a message of the old chat any more: the new one counts
    its messages anew, and another would be meant.
    """
    old = _without_places(old)
    if new is None:
        return replace(
            old,
            inbox=_addressed(old.inbox, key),
            unanswered=_addressed(old.unanswered, key),
        )
    offset = old.next_seq - 1
    turn = old.turn or new.turn
    next_seq = offset + new.next_seq
    erase = old.erase
    outbox = old.outbox + new.outbox
    spans = old.spans
    if old.turn:
        erase += (_rows_of(old.turn),)
        spans = _run_on(spans, erase[-1])
        outbox += retractions(new.turn, new.turn.execution) if new.turn else ()
    for first, last in new.spans:
        spans = _joined((*spans, (first + offset, last + offset)))
    if new.turn:
        first, last = _rows_of(new.turn)
        erase += ((first + offset, last + offset),)
        spans = _run_on(spans, erase[-1])
    if turn:
        steps = tuple(replace(step, seq=next_seq + index) for index, step in enumerate(turn.steps))
        turn = replace(turn, first=next_seq, steps=steps)
        next_seq += len(steps)
    later = tuple(replace(row, seq=row.seq + offset) for row in new.messages)
    moved_on = bool(new.spans) and new.window > new.spans[0][0]
    unseen = tuple(inbound_id for inbound_id in new.seen if inbound_id not in old.seen)
    return replace(
        old,
        chosen={**old.chosen, **new.chosen},
        spans=spans,
        window=new.window + offset if moved_on else old.window,
        messages=later if moved_on else old.messages + later,
        fit=_moved(new.fit, offset) if moved_on else old.fit,
        next_seq=next_seq,
        inbox=_addressed(old.inbox + new.inbox, key),
        unanswered=_addressed(new.unanswered or old.unanswered, key),
        turn=turn,
        heard=old.heard + new.heard,
        outbox=outbox,
        sent=(old.sent + new.sent)[-SENT_LIMIT:],
        seen=(old.seen + unseen)[-SEEN_LIMIT:],
        usage=old.usage + new.usage,
        erase=erase,
    )


# ---------------------------------------------------------------------- the small print


def _saw(snapshot: Snapshot, inbound_id: str) -> Snapshot:
    """Who writes is there."""
    return replace(snapshot, seen=(*snapshot.seen, inbound_id)[-SEEN_LIMIT:], gone=False)


def _current(snapshot: Snapshot, fence: Fence) -> Turn | None:
    turn = snapshot.turn
    if turn is None or snapshot.epoch != fence.epoch or turn.execution != fence.execution:
        return None
    return turn


def _rows(seq: int, role: Role, many: Sequence[msgspec.Raw], now: int) -> tuple[Message, ...]:
    return tuple(
        Message(
            seq=seq + index,
            role=role,
            blocks=blocks,
            at=now,
        )
        for index, blocks in enumerate(many)
    )


def _spoken(
    waiting: Sequence[Inbound],
    seq: int,
    now: int,
    before: list[history.Block],
    heard: Sequence[Overheard] = (),
) -> Message:
    """The user message made of what people said."""
    blocks = encode_blocks([*before, *overheard.blocks(heard), *_said(waiting)])
    row = _from(Message(seq=seq, role="user", blocks=blocks, at=now), waiting)
    if not heard:
        return row
    around = [""] * len(before) + [one.sender.id for one in heard]
    return replace(row, senders=(*around, *_senders(waiting)))


def _said(waiting: Sequence[Inbound]) -> list[history.Block]:
    blocks: list[history.Block] = []
    for inbound in waiting:
        brings = decode_blocks(inbound.blocks)
        if inbound.text.strip():
            blocks.append(text_block(said_by(inbound)))
        elif inbound.group and brings and is_quoted(str(brings[0].get("text"))):
            # Only what others have said: it must be known who has brought it here.
            blocks.append(text_block(wordless(inbound)))
        blocks.extend(brings)
    return blocks


def _from(row: Message, said: Sequence[Inbound]) -> Message:
    """The row, with whose words it holds."""
    return replace(
        row,
        sender=said[-1].sender.id,
        message_ids=tuple(inbound.message_id for inbound in said if inbound.message_id),
        senders=_each_from(row, said),
    )


def _each_from(row: Message, said: Sequence[Inbound]) -> tuple[str, ...]:
    """Whose each block is, when they are several people's; in front stand those of ours."""
    if len({inbound.sender.id for inbound in said}) == 1:
        return ()
    senders = _senders(said)
    ahead = len(decode_blocks(row.blocks)) - len(senders)
    return (*[""] * ahead, *senders)


def _senders(said: Sequence[Inbound]) -> list[str]:
    return [inbound.sender.id for inbound in said for _ in _said([inbound])]


def said_by(inbound: Inbound) -> str:
    """The text for the model. In a group its first line names the speaker, as data: neither the
    name nor the text can pretend to be another such line."""
    text = unmarked(inbound.text)
    if not inbound.group:
        return text
    text = text.replace("<from>", "‹from›").replace("</from>", "‹/from›")
    return f"{from_line(inbound)}{text}"


def wordless(inbound: Inbound) -> str:
    """Who has sent something without a word of their own, in a group."""
    return f"{from_line(inbound)}[sent without words]"


def from_line(inbound: Inbound) -> str:
    """Who speaks, for the model, as data."""
    name = "".join(char for char in inbound.sender.name if char.isprintable() and char not in "<>")
    return f"<from>{name.strip() or inbound.sender.id}</from>\n"


def _interrupted(turn: Turn) -> list[history.Block]:
    """Results for the calls of the last answer, when nobody will run them any more."""
    return [
        history.result(str(call["id"]), history.INTERRUPTED, error=True)
        for call in history.calls(turn.steps[-1])
    ]


def _untaken(snapshot: Snapshot, turn: Turn) -> tuple[Inbound, ...]:
    return tuple(inbound for inbound in snapshot.inbox if inbound.id not in turn.taken)


def _last_taken(snapshot: Snapshot, turn: Turn) -> Inbound | None:
    taken = [inbound for inbound in snapshot.inbox if inbound.id in turn.taken]
    return taken[-1] if taken else None


def _rows_of(turn: Turn) -> Span:
    return turn.first, turn.steps[-1].seq


def abandoned(snapshot: Snapshot, turn: Turn) -> Snapshot:
    """The turn is no more: its rows go, and what it was to answer is not answered."""
    rows = _rows_of(turn)
    outbox = snapshot.outbox + retractions(turn, turn.execution)
    return replace(
        snapshot,
        spans=_run_on(snapshot.spans, rows),
        inbox=_untaken(snapshot, turn),
        unanswered=tuple(each for each in snapshot.inbox if each.id in turn.taken),
        turn=None,
        answer="",
        outbox=outbox,
        erase=(*snapshot.erase, rows),
    )


def _run_on(spans: tuple[Span, ...], erased: Span) -> tuple[Span, ...]:
    """Numbers of erased rows are never used again: the span before them runs on over them, so
    that spans parted only by erased rows stay one."""
    if spans and spans[-1][1] + 1 == erased[0]:
        return (*spans[:-1], (spans[-1][0], erased[1]))
    return spans


def _joined(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """The last two are one when no number is between them."""
    if len(spans) > 1 and spans[-2][1] + 1 == spans[-1][0]:
        return (*spans[:-2], (spans[-2][0], spans[-1][1]))
    return spans


def _moved(fit: Fit, offset: int) -> Fit:
    return replace(
        fit,
        images=fit.images and fit.images + offset,
        results=fit.results and fit.results + offset,
    )


def _without_places(snapshot: Snapshot) -> Snapshot:
    """The same, without the platform's ids of messages that it could refer to."""
    leaving = {part.id for part in snapshot.outbox}
    turn = snapshot.turn
    if turn is not None:
        asking = turn.suspended and replace(
            turn.suspended,
            calls=tuple(replace(call, card=None) for call in turn.suspended.calls),
        )
        turn = replace(turn, shown=(), suspended=asking)
    return replace(
        snapshot,
        inbox=tuple(replace(each, message_id=None, reply_to=None) for each in snapshot.inbox),
        unanswered=tuple(
            replace(each, message_id=None, reply_to=None) for each in snapshot.unanswered
        ),
        turn=turn,
        outbox=tuple(
            replace(
                part,
                replaces=part.replaces if part.replaces in leaving else None,
                reply_to=None,
            )
            for part in snapshot.outbox
            if part.body is not None
        ),
        edited=None,
        heard=tuple(replace(one, message_id=None) for one in snapshot.heard),
        answer="",
        sent=(),
    )


def _addressed(inbox: tuple[Inbound, ...], key: str) -> tuple[Inbound, ...]:
    return tuple(replace(inbound, key=key) for inbound in inbox)
