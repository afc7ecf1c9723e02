"""Approvals: which calls wait for a person, who may decide, and what a decision is worth. Pure.

Nothing here saves, shows or waits: the changes are in `changes.py`, what a person sees in
`cards.py`. A decision names the question it answers, the call in it, and a digest of that call's
arguments; so it is good for that call, as it was shown, once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from core import history
from core.errors import ToolError
from core.events import trouble
from core.messages import Outbound, decode_blocks
from core.model import ToolCall
from core.snapshot import Pending, Snapshot, Suspension, Turn, Verdict
from core.tools import Tool

# Why a call was not run, for the model.
DECLINED: Final = "Declined: a person was asked for approval and did not allow this call."
DECLINED_BECAUSE: Final = "Declined by a person who was asked for approval: {reason}"
EXPIRED: Final = "not run, because nobody approved it in time"
WENT_ON: Final = "not run, because the person went on with another message instead of approving"
NOBODY_HERE: Final = "not run, because nobody who may approve it takes part in this conversation"
NOT_SHOWN: Final = "not run, because the question for an approval could not be shown"
NOT_ASKED: Final = "not run, because it needs an approval and nobody can be asked here"

MAX_REASON: Final = 500

_DATA: Final = re.compile(r"([+-])([0-9a-f]{16})\.([0-9]{1,3})\.([0-9a-f]{12})")


class Decision(msgspec.Struct, frozen=True):
    """What a pressed button says."""

    verdict: Verdict
    suspension: str
    index: int
    digest: str


def needed(tool: Tool | None, call: ToolCall) -> bool:
    """Whether a person must allow this call. Arguments that do not fit need nobody: they are
    refused as they are."""
    if tool is None or tool.needs_approval is False:
        return False
    arguments = dict(call.input)
    if tool.arguments is not None:
        try:
            given = msgspec.convert(call.input, tool.arguments)
        except msgspec.ValidationError:
            return False
        arguments = {field: getattr(given, field) for field in given.__struct_fields__}
    if tool.needs_approval is True:
        return True
    try:
        return bool(tool.needs_approval(arguments))
    except Exception as error:
        trouble("approval.unclear", tool=tool.name, error=type(error).__name__)
        return True


def digest(call: ToolCall) -> str:
    """Of what would run."""
    said = msgspec.json.encode([call.id, call.name, call.input], order="deterministic")
    return sha256(said).hexdigest()[:12]


def calls_of(turn: Turn) -> tuple[ToolCall, ...]:
    """The calls of the last answer."""
    return tuple(
        ToolCall(id=str(call["id"]), name=str(call["name"]), input=dict(call["input"]))
        for call in history.calls(turn.steps[-1])
    )


def asked_about(turn: Turn, index: int) -> ToolCall:
    """The call that a question of the suspended turn is about."""
    assert turn.suspended is not None
    wanted = turn.suspended.calls[index].id
    return next(call for call in calls_of(turn) if call.id == wanted)


def data(suspension: Suspension, index: int, verdict: Verdict) -> str:
    """What a button says when it is pressed: at most 34 bytes of ASCII."""
    sign = "+" if verdict == "approved" else "-"
    return f"{sign}{suspension.id}.{index}.{suspension.calls[index].digest}"


def decision_of(text: str) -> Decision | None:
    """What was pressed; None when it is none of our buttons."""
    found = _DATA.fullmatch(text)
    if found is None:
        return None
    verdict: Verdict = "approved" if found[1] == "+" else "declined"
    return Decision(verdict, found[2], int(found[3]), found[4])


def suspended(snapshot: Snapshot | None) -> Suspension | None:
    """The question that is open: somebody has still to decide."""
    turn = snapshot.turn if snapshot else None
    if turn is None or turn.suspended is None or not undecided(turn.suspended):
        return None
    return turn.suspended


def undecided(suspension: Suspension) -> tuple[int, ...]:
    """Which of its calls nobody has decided about."""
    return tuple(index for index, call in enumerate(suspension.calls) if call.verdict is None)


def is_open(snapshot: Snapshot | None, decision: Decision) -> bool:
    """Whether this is what is asked now."""
    suspension = suspended(snapshot)
    if suspension is None or suspension.id != decision.suspension:
        return False
    if decision.index not in undecided(suspension):
        return False
    return suspension.calls[decision.index].digest == decision.digest


def wait(snapshot: Snapshot | None, now: int) -> float | None:
    """Seconds until the open question expires, at least 0; None: nothing is asked."""
    suspension = suspended(snapshot)
    return None if suspension is None else max(0.0, (suspension.expires - now) / 1000)


def decided(
    suspension: Suspension, indexes: Sequence[int], verdict: Verdict, reason: str | None = None
) -> Suspension:
    """The same, with a verdict on some of its calls."""
    calls = tuple(
        replace(call, verdict=verdict, reason=reason) if index in indexes else call
        for index, call in enumerate(suspension.calls)
    )
    return replace(suspension, calls=calls)


def approved(suspension: Suspension | None, calls: Sequence[ToolCall]) -> frozenset[str]:
    """Ids of those calls that may run: allowed, and still what was asked about."""
    allowed = {
        (call.id, call.digest)
        for call in (suspension.calls if suspension else ())
        if call.verdict == "approved"
    }
    return frozenset(call.id for call in calls if (call.id, digest(call)) in allowed)


def results(suspension: Suspension | None) -> dict[str, history.Block]:
    """What is known of a suspended step: by the call's id, its result."""
    if suspension is None:
        return {}
    known: dict[str, history.Block] = {
        str(block["tool_use_id"]): block for block in decode_blocks(suspension.results)
    }
    for call in suspension.calls:
        if call.verdict == "declined":
            known[call.id] = history.result(call.id, said_of(call.reason), error=True)
    return known


def said_of(reason: str | None) -> str:
    """What the model is told of a call that was not allowed."""
    if reason is None:
        return DECLINED
    if reason in (EXPIRED, WENT_ON, NOBODY_HERE, NOT_SHOWN, NOT_ASKED):
        return f"This call was {reason}."
    return DECLINED_BECAUSE.format(reason=reason[:MAX_REASON])


async def nobody(call: ToolCall) -> bool:
    """Where no person can be asked."""
    raise ToolError(NOT_ASKED)


def pending(calls: Sequence[ToolCall]) -> tuple[Pending, ...]:
    return tuple(Pending(call.id, digest(call)) for call in calls)


def card_id(suspension: Suspension, index: int) -> str:
    return f"{suspension.id}.card.{index}"


def over_id(suspension: Suspension, index: int) -> str:
    return f"{suspension.id}.over.{index}"


def is_over(part: Outbound) -> bool:
    """Whether this part tells that a question is not open any more."""
    return ".over." in part.id


def not_shown(snapshot: Snapshot, part_id: str) -> Snapshot:
    """A question that cannot be shown is declined: nobody could answer it."""
    suspension = suspended(snapshot)
    for index in undecided(suspension) if suspension else ():
        assert suspension is not None and snapshot.turn is not None
        if card_id(suspension, index) == part_id:
            declined = decided(suspension, (index,), "declined", NOT_SHOWN)
            return replace(snapshot, turn=replace(snapshot.turn, suspended=declined))
    return snapshot


def shown(snapshot: Snapshot, part_id: str, message_ids: tuple[str, ...]) -> Snapshot:
    """If the part was a card, the question knows where it stands."""
    turn = snapshot.turn
    if turn is None or turn.suspended is None or not message_ids:
        return snapshot
    calls = tuple(
        replace(call, card=message_ids[0]) if card_id(turn.suspended, index) == part_id else call
        for index, call in enumerate(turn.suspended.calls)
    )
    if calls == turn.suspended.calls:
        return snapshot
    suspension = replace(turn.suspended, calls=calls)
    return replace(snapshot, turn=replace(turn, suspended=suspension))


def shown_arguments(arguments: Mapping[str, Any]) -> str:
    """The arguments as a person reads them: JSON in which no sign is invisible or turns the
    direction of what follows."""
    text = msgspec.json.format(msgspec.json.encode(dict(arguments)), indent=2).decode()
    return "".join(char if char == "\n" or char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
