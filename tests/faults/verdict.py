"""What a log of `rig.py` says about the promises: findings as sentences; none is good.

It reads the log and what is stored at the end, and knows nothing of how the core works: only what
it promises. A finding names the promise first: lost, twice, order, foreign, reset, stopped, tool,
history, bounds, unfinished.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from core import history, phrases
from core import snapshot as snapshots
from core.changes import INBOX_LIMIT, SEEN_LIMIT
from core.messages import Message, text_of
from core.outbox import KEPT_PARTS_LIMIT, SENT_LIMIT
from core.snapshot import Snapshot
from tests.faults.rig import Event, Rig, rows_of, tokens

APOLOGIES: Final = (
    phrases.UNAVAILABLE,
    phrases.REJECTED,
    phrases.GAVE_UP,
    phrases.INTERNAL,
    phrases.UNREADABLE,
)


async def findings(rig: Rig, *, apologies: bool, refusals: bool) -> list[str]:
    """
    :param apologies: whether anything happened that one may apologise for
    :param refusals: whether anything was said that may be refused
    """
    chats: dict[str, list[Event]] = {}
    for event in rig.log:
        if event.key:
            chats.setdefault(rig.now_at(event.key), []).append(event)
    found: list[str] = []
    for key, events in chats.items():
        chat = _Chat(rig, key, events)
        for check in (
            chat.lost,
            chat.twice,
            chat.order,
            chat.foreign,
            chat.reset,
            chat.stopped,
            chat.tools,
        ):
            found += [f"{key}: {sentence}" for sentence in check()]
        if not apologies and any(event.text in APOLOGIES for event in chat.shown):
            found.append(f"{key}: an apology without need")
        refused = [each for each in chat.events if each.what == "refused"]
        # What somebody decides about may have ended meanwhile, when something failed.
        decided = [each for each in refused if each.text[:1] in "+-"] if rig.troubled else []
        if not refusals and len(refused) > len(decided):
            found.append(f"{key}: refused without need")
    for key, snapshot in rig.stored().items():
        rows = await rows_of(rig.disk, key)
        found += [f"{key}: {sentence}" for sentence in (*_bounds(snapshot), *_history(rows))]
    return found


class _Chat:
    def __init__(self, rig: Rig, key: str, events: list[Event]) -> None:
        self.rig = rig
        self.events = events
        self.shown = [event for event in events if event.what == "shown"]
        self.accepted: dict[str, Event] = {}
        for event in events:
            if event.what in ("accepted", "duplicate"):
                self.accepted.setdefault(event.name, event)
        # Nobody may have told the bot yet that it has moved.
        self.stored = [each for at, each in rig.stored().items() if rig.now_at(at) == key]

    def lost(self) -> Iterator[str]:
        for event in self.accepted.values():
            if not self._has_reply(event) and not self._is_excused(event):
                yield f"lost: {event.name} {event.text!r} has no reply"

    def _has_reply(self, event: Event) -> bool:
        if tokens(event.text):
            return any(set(tokens(event.text)) <= set(tokens(each.text)) for each in self.shown)
        if event.text == "/retry" and self._is_answered_anew(event):
            return True
        # A move and a press are not replied to: what they do is seen elsewhere.
        return event.text.startswith(("test:", "+", "-")) or any(
            f".{event.name}." in each.name for each in self.shown
        )

    def _is_answered_anew(self, retry: Event) -> bool:
        """By an answer, which may have been seen before the platform was told of the /retry; or
        one is kept that could not be sent."""
        at = next(index for index, each in enumerate(self.events) if each.name == retry.name)
        shown = [each.text for each in self.events[at:] if each.what == "shown"]
        kept = [part.body or "" for snapshot in self.stored for part in snapshot.undelivered]
        return any(tokens(text) for text in shown + kept)

    def _retries(self) -> int:
        return sum(event.text == "/retry" for event in self.accepted.values())

    def _is_excused(self, event: Event) -> bool:
        """By an apology, by a later /reset or /stop, or because it could not be sent."""
        at = self.events.index(next(each for each in self.events if each.name == event.name))
        for later in self.events[at:]:
            if later.what == "shown" and later.text in APOLOGIES:
                return True
            if later.what == "gone" or (later.what, later.name) == ("dropped", event.name):
                return True
            if later.what == "lost" and (
                later.name == event.name
                or f".{event.name}." in later.name
                or set(tokens(event.text)) & set(tokens(later.text))
            ):
                return True
        if event in self._before_resets():
            return True
        outbox = [part for snapshot in self.stored for part in snapshot.outbox]
        kept = [part for part in outbox if part.state in ("held", "failed")]
        return any(
            f".{event.name}." in part.id
            or part.body in APOLOGIES
            or set(tokens(event.text)) & set(tokens(part.body or ""))
            for part in kept
        )

    def _before_resets(self) -> list[Event]:
        """What was accepted before the last /reset."""
        accepted = list(self.accepted.values())
        resets = [index for index, event in enumerate(accepted) if event.text == "/reset"]
        return accepted[: resets[-1]] if resets else []

    def twice(self) -> Iterator[str]:
        hold = self.rig.options.on_unknown_outcome == "hold"
        for part, times in Counter(event.name for event in self.shown).items():
            if times > 1 + (0 if hold else self.rig.may_repeat.get(part, 0)):
                yield f"twice: {part} was shown {times} times"
        answers: dict[str, set[str]] = {}
        for event in self.shown:
            for token in tokens(event.text):
                answers.setdefault(token, set()).add(event.name.rpartition(".")[0])
        for token, turns in answers.items():
            if len(turns) > 1 + self._retries() and token not in self._unknown():
                yield f"twice: {token} was answered by the turns {sorted(turns)}"

    def _unknown(self) -> set[str]:
        """Tokens of which nobody can know any more that they were seen."""
        return {
            token
            for event in self.events
            if event.name in self.rig.unknown
            for token in tokens(event.text)
        }

    def order(self) -> Iterator[str]:
        unknown = self._unknown()
        said = [token for event in self.accepted.values() for token in tokens(event.text)]
        shown = [token for event in self.shown for token in tokens(event.text)]
        first = [token for token in dict.fromkeys(shown) if token not in unknown]
        if first != [token for token in said if token in first]:
            yield f"order: said {said}, answered {first}"
        # What takes a message from the screen says nothing, and has no place among the parts.
        said_parts = [event.name for event in self.shown if ".-" not in event.name]
        parts = list(dict.fromkeys(said_parts))
        for turn in {part.rpartition(".")[0] for part in parts}:
            ends = [
                end for name, _, end in (part.rpartition(".") for part in parts) if name == turn
            ]
            # What is taken from the screen says nothing, and its message stands in its name.
            numbers = [int(end) for end in ends if not end.startswith("-")]
            if numbers != sorted(numbers):
                yield f"order: the parts of {turn} came as {numbers}"

    def foreign(self) -> Iterator[str]:
        said = {
            token for event in self.events if event.what == "tried" for token in tokens(event.text)
        }
        for event in self.shown:
            if strange := set(tokens(event.text)) - said:
                yield f"foreign: {strange} was never said here"

    def reset(self) -> Iterator[str]:
        """From the moment that it is accepted nothing older begins to be said."""
        unknown = self._unknown()
        accepted = list(self.accepted.values())
        for index, event in enumerate(accepted):
            if event.text != "/reset":
                continue
            old = {token for each in accepted[:index] for token in tokens(each.text)} - unknown
            for each in self.events[self.events.index(event) :]:
                if each.what == "began" and old & set(tokens(each.text)):
                    yield f"reset: {each.text!r} was said after {event.name}"
        stored = [message for snapshot in self.stored for message in snapshot.messages]
        text = " ".join(text_of(message.blocks) for message in stored)
        for event in self._before_resets():
            if (set(tokens(event.text)) - unknown) & set(tokens(text)):
                yield f"reset: {event.text!r} is still in the history"

    def stopped(self) -> Iterator[str]:
        for index, event in enumerate(self.events):
            if event.what == "dropped" and event.text not in self._unknown():
                for later in self.events[index:]:
                    if later.what == "shown" and event.text in tokens(later.text):
                        yield f"stopped: {event.text} was answered after all"

    def tools(self) -> Iterator[str]:
        runs = Counter(event.name for event in self.events if event.what == "tool")
        for token, times in runs.items():
            if times > 1 + self._retries() and token not in self._unknown():
                yield f"tool: it ran {times} times for {token}"


def _bounds(snapshot: Snapshot) -> Iterator[str]:
    """The value at rest: valid, bounded, finished."""
    if snapshot.unfinished:
        yield "unfinished: something is left to do"
    if snapshots.decode(snapshots.encode(snapshot)) != snapshot or snapshot.erase:
        yield "bounds: it does not survive its own codec"
    if len(snapshot.seen) > SEEN_LIMIT or len(set(snapshot.seen)) < len(snapshot.seen):
        yield "bounds: ids seen"
    if len(snapshot.inbox) > 2 * INBOX_LIMIT or len(snapshot.sent) > SENT_LIMIT:
        yield "bounds: inbox or sent"
    if len(snapshot.outbox) > KEPT_PARTS_LIMIT:
        yield "bounds: outbox"


def _history(rows: list[Message]) -> Iterator[str]:
    """Whole turns, one after the other: a person, then an answer with the same tokens; in between
    only calls and their results."""
    numbers = [row.seq for row in rows]
    if numbers != sorted(set(numbers)):
        yield f"history: numbers {numbers}"
    if tuple(rows) != history.repair(rows):
        yield "history: it needs repair"
    if rows and (rows[0].role, rows[-1].role) != ("user", "assistant"):
        yield f"history: it goes from {rows[0].role} to {rows[-1].role}"
    asked: tuple[str, ...] = ()
    for before, row in pairwise(rows):
        if before.role == row.role == "assistant":
            yield f"history: two answers at {row.seq}"
    for row in rows:
        if row.role == "user":
            asked += tokens(text_of(row.blocks))
        elif not history.calls(row):
            if tokens(text_of(row.blocks)) != tuple(dict.fromkeys(asked)):
                yield f"history: {asked} was answered by {text_of(row.blocks)!r}"
            asked = ()
