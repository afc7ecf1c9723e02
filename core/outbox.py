"""What waits to be sent: how parts of a reply join an outbox, and what becomes of them.

Pure functions from a Snapshot to the next one, as in `changes.py`, which has all other changes.
Nothing here sends: `delivery.py` does, and notes it by these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from core import approvals
from core.messages import File, Inbound, Outbound
from core.snapshot import Sent, Snapshot, Turn

SENT_LIMIT: Final = 5
ANSWER_LIMIT: Final = 40
KEPT_PARTS_LIMIT: Final = 20

GONE: Final = "nobody is there any more"
OUTCOME_UNKNOWN: Final = "it may have been sent already"

# ---------------------------------------------------------------------- what is to be said


def parts_of(
    name: str, bodies: Sequence[str], asked: Inbound | None, files: Sequence[File] = ()
) -> tuple[Outbound, ...]:
    """Texts, then files; the first answers what was asked."""
    reply_to = asked.message_id if asked is not None else None
    parts = [Outbound(id=f"{name}.{index}", body=body) for index, body in enumerate(bodies)]
    for file in files:
        parts.append(Outbound(id=f"{name}.{len(parts)}", body="", file=file))
    return (replace(parts[0], reply_to=reply_to), *parts[1:]) if parts else ()


def on_screen(
    parts: tuple[Outbound, ...], turn: Turn, standing: Mapping[str, str]
) -> tuple[tuple[Outbound, ...], tuple[Sent, ...]]:
    """Part i becomes the message that shows it already; surplus messages are deleted.

    :param standing: what messages say, by id
    :return: what is left to send, and what need not be: it stands there as it is
    """
    if not turn.shown:
        return parts, ()
    texts = [part for part in parts if part.file is None]
    paired = tuple(
        replace(part, replaces=turn.shown[index]) if index < len(turn.shown) else part
        for index, part in enumerate(texts)
    )
    sent = tuple(
        Sent(part.id, (part.replaces,))
        for part in paired
        if part.replaces and standing.get(part.replaces) == part.body
    )
    done = {each.part for each in sent}
    left = tuple(part for part in paired if part.id not in done)
    surplus = replace(turn, shown=turn.shown[len(texts) :])
    files = tuple(part for part in parts if part.file is not None)
    return left + files + retractions(surplus, turn.execution), sent


def retractions(turn: Turn | None, name: str) -> tuple[Outbound, ...]:
    if turn is None:
        return ()
    return tuple(
        Outbound(id=f"{name}.-{message_id}", body=None, replaces=message_id)
        for message_id in turn.shown
    )


def taken_back(snapshot: Snapshot) -> Snapshot:
    """The last reply is to go from the screen: what is there of it is deleted, what is about to
    leave then as well, and the rest is not sent."""
    if not snapshot.answer:
        return snapshot
    mine = f"{snapshot.answer}."
    going = [id for sent in snapshot.sent if sent.part.startswith(mine) for id in sent.message_ids]
    leaving = [
        part
        for part in snapshot.outbox
        if part.id.startswith(mine) and part.state == "sending" and part.body is not None
    ]
    kept = tuple(
        part for part in snapshot.outbox if not part.id.startswith(mine) or part in leaving
    )
    shown = [part.replaces or part.id for part in leaving] + going
    deletions = tuple(
        Outbound(id=f"{mine}-{message_id}", body=None, replaces=message_id)
        for message_id in dict.fromkeys(shown)
    )
    return queue(replace(snapshot, outbox=kept, answer=""), deletions)


def queue(snapshot: Snapshot, parts: tuple[Outbound, ...]) -> Snapshot:
    """The parts join the outbox; when nothing is before it, the first is about to leave."""
    if snapshot.gone:
        parts = tuple(replace(part, state="failed", why=GONE) for part in parts)
    idle = snapshot.next_part is None
    queued = replace(snapshot, outbox=_bounded(snapshot.outbox + parts))
    return _next_sending(queued) if idle else queued


# ---------------------------------------------------------------------- what becomes of it


def sending(snapshot: Snapshot, part_id: str) -> Snapshot:
    """The part's request is about to leave; only that of the next part ever is."""
    part = snapshot.next_part
    return _next_sending(snapshot) if part and part.id == part_id else snapshot


def claimed(snapshot: Snapshot, part_id: str, by: str) -> Snapshot:
    """The part is about to leave, by this process and by no other. Only the next part ever is."""
    part = snapshot.next_part
    if part is None or part.id != part_id or (part.state, part.by) == ("sending", by):
        return snapshot
    return _replaced(snapshot, replace(part, state="sending", by=by))


def unmarked(snapshot: Snapshot, part_id: str) -> Snapshot:
    """The part waits for somebody who sends."""
    part = snapshot.next_part
    if part is None or part.id != part_id or part.state != "sending":
        return snapshot
    return _replaced(snapshot, replace(part, state="waiting", by=""))


def put_back(snapshot: Snapshot, part_id: str) -> Snapshot:
    """The part was certainly not sent; it waits again."""
    return _with_state(snapshot, part_id, "waiting")


def hold(snapshot: Snapshot, part_id: str, why: str = OUTCOME_UNKNOWN) -> Snapshot:
    """Nobody knows whether the part was sent, and it must not come twice."""
    return _put_away(snapshot, part_id, "held", why)


def fail(snapshot: Snapshot, part_id: str, why: str = "refused") -> Snapshot:
    """The platform will never take this part."""
    after = _put_away(snapshot, part_id, "failed", why)
    return after if after is snapshot else approvals.not_shown(after, part_id)


def instead(snapshot: Snapshot, part_id: str, body: str) -> Snapshot:
    """A file cannot be sent: its part says so."""
    outbox = tuple(
        replace(part, body=body, file=None, state="waiting") if part.id == part_id else part
        for part in snapshot.outbox
    )
    after = replace(snapshot, outbox=outbox)
    return snapshot if outbox == snapshot.outbox else _next_sending(after)


def gone(snapshot: Snapshot) -> Snapshot:
    """The chat is gone: nothing can be sent, and nothing more is tried until somebody writes."""
    outbox = tuple(
        replace(part, state="failed", why=GONE) if part.state in ("waiting", "sending") else part
        for part in snapshot.outbox
    )
    if snapshot.gone and outbox == snapshot.outbox:
        return snapshot
    return replace(snapshot, gone=True, outbox=_bounded(outbox))


def retry(snapshot: Snapshot) -> Snapshot:
    """What was held or has failed is to be sent after all."""
    outbox = tuple(
        replace(part, state="waiting", why=None) if part.state in ("held", "failed") else part
        for part in snapshot.outbox
    )
    return snapshot if outbox == snapshot.outbox else replace(snapshot, gone=False, outbox=outbox)


def delivered(snapshot: Snapshot, part_id: str, message_ids: tuple[str, ...]) -> Snapshot:
    """The part is on the screen; the next one is about to leave."""
    outbox = tuple(part for part in snapshot.outbox if part.id != part_id)
    if len(outbox) == len(snapshot.outbox):
        return snapshot
    # An edit of a message that was still leaving names it by its part.
    outbox = tuple(
        replace(part, replaces=message_ids[0]) if message_ids and part.replaces == part_id else part
        for part in outbox
    )
    sent = newest((*snapshot.sent, Sent(part_id, message_ids)), snapshot.answer)
    after = approvals.shown(replace(snapshot, outbox=outbox, sent=sent), part_id, message_ids)
    return _next_sending(after)


# ---------------------------------------------------------------------- the small print


def newest(sent: tuple[Sent, ...], answer: str) -> tuple[Sent, ...]:
    if len(sent) <= SENT_LIMIT:
        return sent
    old, new = sent[:-SENT_LIMIT], sent[-SENT_LIMIT:]
    mine = f"{answer}."
    reply = tuple(each for each in old if answer and each.part.startswith(mine))
    return (*reply[-ANSWER_LIMIT:], *new)


def _replaced(snapshot: Snapshot, part: Outbound) -> Snapshot:
    outbox = tuple(part if each.id == part.id else each for each in snapshot.outbox)
    return replace(snapshot, outbox=outbox)


def _next_sending(snapshot: Snapshot) -> Snapshot:
    part = snapshot.next_part
    return _with_state(snapshot, part.id, "sending") if part else snapshot


def _put_away(snapshot: Snapshot, part_id: str, state: str, why: str) -> Snapshot:
    """A part that only waits for people from now on makes room for the next one."""
    after = _with_state(snapshot, part_id, state, why)
    return after if after is snapshot else _next_sending(after)


def _with_state(snapshot: Snapshot, part_id: str, state: str, why: str | None = None) -> Snapshot:
    """A part that is held or has failed is out of the way for good, and stays as it is."""
    outbox = tuple(
        replace(part, state=state, why=why)
        if part.id == part_id and part.state in ("waiting", "sending")
        else part
        for part in snapshot.outbox
    )
    return snapshot if outbox == snapshot.outbox else replace(snapshot, outbox=_bounded(outbox))


def _bounded(outbox: tuple[Outbound, ...]) -> tuple[Outbound, ...]:
    """Of the parts that only wait for people to look at them, the newest stay."""
    kept = [part.id for part in outbox if part.state in ("held", "failed")]
    old = set(kept[:-KEPT_PARTS_LIMIT])
    return tuple(part for part in outbox if part.id not in old) if old else outbox
