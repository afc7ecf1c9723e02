"""Cards: what people see of a call that waits for an approval, with buttons or as text. Pure.

A card holds nothing that a model wrote but the call's arguments, which it shows so that they
cannot pass for anything else. What a decision is worth is in `approvals.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from core import approvals, phrases, suspending
from core.adapter import Adapter, Card, Cards, Choice
from core.messages import Inbound, Outbound, Sender
from core.model import ToolCall
from core.outbox import queue
from core.phrases import ENGLISH, Wording
from core.snapshot import Snapshot, Suspension, Turn

# Of the arguments, so that a question is one message wherever it is shown.
MAX_SHOWN: Final = 1_500

_FENCE: Final = re.compile("`+")


def questions(
    adapter: Adapter,
    suspension: Suspension,
    calls: Iterable[ToolCall],
    asked: Inbound,
    now: int,
    say: Wording = ENGLISH,
) -> tuple[Outbound, ...]:
    """What asks about each of these calls, ready to be sent.

    :param calls: those of the suspension, in order
    :param asked: the message that is being answered
    """
    parts: list[Outbound] = []
    for index, call in enumerate(calls):
        text = question(call, say)
        if asked.group and suspension.approvers == (asked.sender.id,):
            text += f"\n\n{say(phrases.ONLY, person=name_of(asked.sender))}"
        seconds = (suspension.expires - now) / 1000
        text += f"\n\n{say(phrases.OPEN_FOR, time=_time(seconds, say))}"
        name = approvals.card_id(suspension, index)
        reply_to = asked.message_id
        for number, body in enumerate(_asking(adapter, suspension, index, text, say)):
            part = Outbound(f"{name}+{number}" if number else name, body, reply_to=reply_to)
            parts.append(part)
            reply_to = None
    return tuple(parts)


def _asking(
    adapter: Adapter, suspension: Suspension, index: int, text: str, say: Wording
) -> tuple[str, ...]:
    if isinstance(adapter, Cards):
        choices = (
            Choice(say(phrases.APPROVE), approvals.data(suspension, index, "approved")),
            Choice(say(phrases.DECLINE), approvals.data(suspension, index, "declined")),
        )
        return (adapter.render_card(Card(text, choices)),)
    several = len(suspension.calls) > 1
    hint = say(phrases.BY_NUMBER, number=index + 1) if several else say(phrases.BY_TEXT)
    return adapter.render(f"{text} {hint}")


def question(call: ToolCall, say: Wording = ENGLISH) -> str:
    """What a call would do, in markdown."""
    text = say(phrases.MAY_I, tool=call.name)
    if not call.input:
        return text
    shown = approvals.shown_arguments(call.input)
    if len(shown) > MAX_SHOWN:
        half = MAX_SHOWN // 2
        shown = f"{shown[:half]}\n{say(phrases.LONGER)}\n{shown[-half:]}"
    # Longer than any in the arguments: they cannot end it.
    fence = "`" * max(3, *(len(run) + 1 for run in _FENCE.findall(shown)), 0)
    return f"{text}\n\n{fence}\n{shown}\n{fence}"


def outcomes(
    adapter: Adapter, turn: Turn, indexes: Iterable[int], sentence: str, say: Wording = ENGLISH
) -> dict[int, str]:
    """What the cards of these calls say from now on. Without buttons nothing: what was asked as
    text has scrolled by, and the reply tells."""
    if not isinstance(adapter, Cards):
        return {}
    return {
        index: adapter.render_card(
            Card(f"{question(approvals.asked_about(turn, index), say)}\n\n{sentence}")
        )
        for index in indexes
    }


def withdrawn(
    before: Snapshot, after: Snapshot, adapter: Adapter, say: Wording = ENGLISH
) -> Snapshot:
    """After a change that may have ended a turn: the cards of its open questions, and those whose
    edit it took away, say that they are not open any more. Nothing else of the turn is said."""
    if not isinstance(adapter, Cards):
        return after
    body = adapter.render_card(Card(say(phrases.NOT_OPEN)))
    suspension = approvals.suspended(before)
    still = after.turn.suspended if after.turn else None
    if suspension is not None and (still is None or still.id != suspension.id):
        indexes = approvals.undecided(suspension)
        after = suspending.over(after, suspension, dict.fromkeys(indexes, body))
    kept = {part.id for part in after.outbox}
    leaving = {part.id for part in before.outbox}
    lost = [
        replace(part, body=body, state="waiting")
        for part in before.outbox
        if approvals.is_over(part) and part.id not in kept and part.replaces not in leaving
    ]
    return queue(after, tuple(lost)) if lost else after


def name_of(sender: Sender) -> str:
    """A person's name without anything that could be markup; else their id."""
    name = "".join(char for char in sender.name if char.isalnum() or char in " -.'’")
    return " ".join(name.split())[:64] or f"`{sender.id}`"


def _time(seconds: float, say: Wording = ENGLISH) -> str:
    for one, many, size in (
        (phrases.ONE_HOUR, phrases.HOURS, 3600),
        (phrases.ONE_MINUTE, phrases.MINUTES, 60),
    ):
        if seconds >= size:
            count = round(seconds / size)
            return say(one) if count == 1 else say(many, count=count)
    return say(phrases.SECONDS, count=max(1, round(seconds)))
