"""The changes of a turn that waits for people: suspended, decided, and its cards. Pure.

As in `changes.py`, which has those of a turn that runs: from a Snapshot to the next one. Who may
decide, and what a decision is worth, is in `approvals.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from core import approvals, changes
from core.approvals import card_id, over_id
from core.changes import Fence
from core.messages import Inbound, Outbound
from core.outbox import queue
from core.snapshot import Snapshot, Suspension, Usage


def suspend(
    snapshot: Snapshot,
    fence: Fence,
    suspension: Suspension,
    cards: Sequence[Outbound],
    usage: Usage,
) -> Snapshot:
    """The step waits for people; what asks them waits in the outbox."""
    turn = snapshot.turn
    if turn is None or not changes.holds(snapshot, fence):
        return snapshot
    # Not an attempt yet: the next start is the first since this was saved.
    turn = replace(turn, suspended=suspension, started=(), attempt=0)
    return queue(replace(snapshot, turn=turn, usage=snapshot.usage + usage), tuple(cards))


def decide(
    snapshot: Snapshot,
    suspension: Suspension,
    bodies: Mapping[int, str],
    inbound: Inbound | None = None,
) -> Snapshot:
    """Somebody has decided, or the time is over.

    :param suspension: the open question as it is now
    :param bodies: what the cards say from now on, by the number of the call
    :param inbound: the decision, which is seen by that
    """
    assert snapshot.turn is not None
    after = replace(snapshot, turn=replace(snapshot.turn, suspended=suspension))
    if inbound is not None:
        after = changes.reply(after, inbound, ())
    return over(after, suspension, bodies)


def go_on(
    snapshot: Snapshot, suspension: Suspension, bodies: Mapping[int, str], inbound_id: str
) -> Snapshot:
    """Instead of a decision comes another message: it goes on with the step, which runs nothing of
    what was asked about and not allowed yet."""
    left = approvals.undecided(suspension)
    declined = approvals.decided(suspension, left, "declined", approvals.WENT_ON)
    joined = (*suspension.joined, inbound_id)
    return decide(snapshot, replace(declined, joined=joined), bodies)


def over_where_pressed(
    snapshot: Snapshot, suspension: Suspension, bodies: Mapping[int, str], message_id: str | None
) -> Snapshot:
    """A card may have come twice: the one that was pressed is edited in any case."""
    edited = any(part.replaces == message_id for part in snapshot.outbox)
    if message_id is None or edited:
        return snapshot
    edits = tuple(
        Outbound(f"{suspension.id}.over.again.{index}", body, replaces=message_id)
        for index, body in bodies.items()
    )
    return queue(snapshot, edits)


def over(snapshot: Snapshot, suspension: Suspension, bodies: Mapping[int, str]) -> Snapshot:
    """These questions are not open any more, and the cards that ask them say so.

    A card that nobody has seen is not sent; one that is leaving is edited when it has left.
    """
    unsent: set[str] = set()
    edits: list[Outbound] = []
    for index, body in bodies.items():
        name = card_id(suspension, index)
        card = next((part for part in snapshot.outbox if part.id == name), None)
        shown = suspension.calls[index].card if card is None else name
        if card is not None and card.state == "waiting":
            unsent.add(name)
        elif shown is not None:
            edits.append(Outbound(id=over_id(suspension, index), body=body, replaces=shown))
    outbox = tuple(part for part in snapshot.outbox if part.id not in unsent)
    return queue(replace(snapshot, outbox=outbox), tuple(edits))
