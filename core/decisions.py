"""Decisions: what a press, a command or a new message does to a call that waits. Pure.

Who may say anything at all is the gate's affair; here it is asked who may decide about this call,
and whether it still waits.
"""

from __future__ import annotations

import re
from typing import Final

from core import approvals, cards, phrases, suspending
from core.adapter import Adapter, Refused
from core.messages import Inbound
from core.phrases import ENGLISH, Wording
from core.snapshot import Snapshot, Suspension, Verdict

COMMANDS: Final = ("approve", "decline")

_NUMBER: Final = re.compile(r"(\d{1,3}|all)\b\s*", re.IGNORECASE)


def press(
    snapshot: Snapshot, inbound: Inbound, adapter: Adapter, say: Wording = ENGLISH
) -> Snapshot | Refused:
    """A button. Pressed twice, too late or in a conversation that began anew it changes nothing."""
    decision = approvals.decision_of(inbound.text)
    suspension = approvals.suspended(snapshot)
    if decision is None or suspension is None or not approvals.is_open(snapshot, decision):
        return Refused(say(phrases.NOT_OPEN), private=True, over=True)
    if inbound.sender.id not in suspension.approvers:
        return Refused(say(phrases.NOT_YOURS), private=True)
    return _decide(
        snapshot, suspension, (decision.index,), decision.verdict, None, inbound, adapter, say
    )


def told(
    snapshot: Snapshot,
    verb: str,
    argument: str,
    inbound: Inbound,
    adapter: Adapter,
    say: Wording = ENGLISH,
) -> tuple[Snapshot, str] | Refused:
    """/approve and /decline: what they do, and the reply.

    :param verb: which of the two
    :param argument: a number or ``all``, where several calls wait; and the reason
    """
    suspension = approvals.suspended(snapshot)
    if suspension is None:
        return snapshot, say(phrases.NOTHING_ASKED)
    if inbound.sender.id not in suspension.approvers:
        return Refused(say(phrases.NOT_YOURS), private=True)
    left = approvals.undecided(suspension)
    indexes, reason = _meant(suspension, left, argument)
    if verb == "approve" and indexes is None:
        return snapshot, say(phrases.WHICH, count=len(left))
    verdict: Verdict = "approved" if verb == "approve" else "declined"
    sentence = phrases.APPROVED if verb == "approve" else phrases.DECLINED
    after = _decide(snapshot, suspension, indexes or left, verdict, reason, inbound, adapter, say)
    return after, say(sentence, person=cards.name_of(inbound.sender))


def _meant(
    suspension: Suspension, left: tuple[int, ...], argument: str
) -> tuple[tuple[int, ...] | None, str | None]:
    """Which of the calls that are left, None when that is not said; and the reason.

    Where one was asked about nothing need be said, and a number is the beginning of a reason.
    """
    if len(suspension.calls) == 1:
        return left, argument.strip() or None
    found = _NUMBER.match(argument)
    if found is None:
        return (left if len(left) == 1 else None), argument.strip() or None
    reason = argument[found.end() :].strip() or None
    if found[1].lower() == "all":
        return left, reason
    index = int(found[1]) - 1
    return ((index,) if index in left else None), reason


def _decide(
    snapshot: Snapshot,
    suspension: Suspension,
    indexes: tuple[int, ...],
    verdict: Verdict,
    reason: str | None,
    inbound: Inbound,
    adapter: Adapter,
    say: Wording,
) -> Snapshot:
    assert snapshot.turn is not None
    sentence = phrases.APPROVED if verdict == "approved" else phrases.DECLINED
    said = say(sentence, person=cards.name_of(inbound.sender))
    bodies = cards.outcomes(adapter, snapshot.turn, indexes, said, say)
    why = reason if verdict == "declined" else None
    decided = approvals.decided(suspension, indexes, verdict, why)
    if inbound.kind != "decision":
        return suspending.decide(snapshot, decided, bodies)
    after = suspending.decide(snapshot, decided, bodies, inbound)
    return suspending.over_where_pressed(after, decided, bodies, inbound.message_id)


def go_on(
    before: Snapshot,
    after: Snapshot,
    inbound: Inbound,
    adapter: Adapter,
    say: Wording = ENGLISH,
) -> Snapshot:
    """Who may decide has written something else instead: that is a no, and goes on with the turn.

    :param after: with the message in the inbox already
    """
    suspension = approvals.suspended(before)
    if after is before or suspension is None or before.turn is None:
        return after
    if inbound.sender.id not in suspension.approvers:
        return after
    left = approvals.undecided(suspension)
    sentence = say(phrases.WENT_ON, person=cards.name_of(inbound.sender))
    bodies = cards.outcomes(adapter, before.turn, left, sentence, say)
    return suspending.go_on(after, suspension, bodies, inbound.id)
