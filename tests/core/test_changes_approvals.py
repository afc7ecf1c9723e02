"""The changes of a turn that waits for people: an example for each sentence of their contract."""

from __future__ import annotations

from typing import Final

import pytest
from msgspec.structs import replace

from core import approvals, changes, outbox, suspending
from core.changes import Fence
from core.messages import Outbound, decode_blocks, encode_blocks
from core.model import ToolCall
from core.snapshot import Snapshot, Suspension, Usage
from tests.core.fakes import calls
from tests.core.test_changes import ALL, accepted, begun, fence_of, inbound, started

WANTED: Final = (ToolCall("c1", "send", {"to": "a"}), ToolCall("c2", "send", {"to": "b"}))


def question(snapshot: Snapshot, **fields: object) -> Suspension:
    return replace(
        Suspension(
            id=fence_of(snapshot).execution,
            calls=approvals.pending(WANTED),
            results=encode_blocks([]),
            sender="t:42",
            approvers=("t:42",),
            expires=5_000,
        ),
        **fields,
    )


def running() -> Snapshot:
    """A turn whose model has asked for two calls."""
    snapshot = started(accepted(begun(), "i1"))
    return changes.answered(snapshot, fence_of(snapshot), [calls(*WANTED).blocks], (), now=3)


def suspended() -> Snapshot:
    snapshot = running()
    asked = question(snapshot)
    cards = [Outbound(approvals.card_id(asked, index), f"card {index}") for index in (0, 1)]
    return suspending.suspend(snapshot, fence_of(snapshot), asked, cards, Usage(1, 2, 3, 4))


def of(snapshot: Snapshot) -> Suspension:
    assert snapshot.turn is not None and snapshot.turn.suspended is not None
    return snapshot.turn.suspended


def states(snapshot: Snapshot) -> list[tuple[str, str, str | None]]:
    return [(part.body or "", part.state, part.replaces) for part in snapshot.outbox]


# ---------------------------------------------------------------------- suspend


def test_it_keeps_the_question_and_what_it_has_cost_so_far() -> None:
    snapshot = suspended()
    assert snapshot.turn is not None
    assert (snapshot.turn.attempt, snapshot.turn.started) == (0, ())
    assert snapshot.usage == Usage(1, 2, 3, 4)
    assert states(snapshot) == [("card 0", "sending", None), ("card 1", "waiting", None)]
    assert snapshot.unfinished


def test_a_run_that_is_fenced_suspends_nothing() -> None:
    snapshot = running()
    asked = question(snapshot)
    other = Fence(snapshot.epoch, "another")
    assert suspending.suspend(snapshot, other, asked, [], Usage()) is snapshot
    stopped = changes.stop(snapshot)
    assert suspending.suspend(stopped, fence_of(snapshot), asked, [], Usage()) is stopped


@pytest.mark.parametrize("join", [True, False])
def test_while_people_have_to_decide_nothing_starts(join: bool) -> None:
    snapshot = accepted(suspended(), "i2")
    again = changes.start(snapshot, execution="e9", now=9, memory=ALL, join=join)
    assert again is snapshot


# ---------------------------------------------------------------------- decided


def test_when_all_is_decided_the_turn_begins_again_where_it_was() -> None:
    snapshot = suspended()
    asked = approvals.decided(of(snapshot), (0,), "approved")
    snapshot = suspending.decide(snapshot, asked, {}, inbound("d1"))
    assert "d1" in snapshot.seen and not any(each.id == "d1" for each in snapshot.inbox)
    assert approvals.undecided(of(snapshot)) == (1,)
    snapshot = suspending.decide(
        snapshot, approvals.decided(of(snapshot), (1,), "declined", "no"), {}
    )
    again = changes.start(snapshot, execution="e2", now=9, memory=ALL)
    assert again.turn is not None
    assert (again.turn.execution, again.turn.attempt) == ("e2", 1)
    assert of(again) == of(snapshot) and again.turn.taken == ("i1",)
    done = changes.results(again, fence_of(again), encode_blocks([]), 10)
    assert done.turn is not None and done.turn.suspended is None


def test_what_joins_is_taken_and_its_words_are_of_who_spoke() -> None:
    snapshot = accepted(suspended(), "i2", "i3")
    snapshot = suspending.go_on(snapshot, of(snapshot), {}, "i3")
    assert [call.reason for call in of(snapshot).calls] == [approvals.WENT_ON] * 2
    again = changes.start(snapshot, execution="e2", now=9, memory=ALL)
    assert again.turn is not None and again.turn.taken == ("i1", "i3")
    assert changes.joining(again) == [{"type": "text", "text": "text i3"}]
    # After a crash it is still there.
    once_more = changes.start(again, execution="e3", now=9, memory=ALL)
    assert once_more.turn is not None and once_more.turn.taken == ("i1", "i3")
    assert changes.joining(once_more) == changes.joining(again)
    done = changes.results(again, fence_of(again), encode_blocks([]), 10)
    assert done.turn is not None
    assert (done.turn.steps[-1].sender, done.turn.steps[-1].message_ids) == ("t:42", ("mi3",))


def test_what_interrupts_a_resumed_run_goes_on_with_its_step() -> None:
    snapshot = suspended()
    asked = approvals.decided(of(snapshot), (0, 1), "approved")
    snapshot = changes.start(
        suspending.decide(snapshot, asked, {}), execution="e2", now=9, memory=ALL
    )
    snapshot = accepted(snapshot, "i2")
    again = changes.start(snapshot, execution="e3", now=9, memory=ALL, join=True)
    assert again.turn is not None and again.turn.taken == ("i1", "i2")
    assert of(again).joined == ("i2",) and of(again).calls == asked.calls
    assert len(again.turn.steps) == 2


# ---------------------------------------------------------------------- cards


def test_a_card_that_stands_there_is_edited() -> None:
    snapshot = suspended()
    for index in (0, 1):
        card = approvals.card_id(of(snapshot), index)
        snapshot = outbox.delivered(snapshot, card, (f"m{index}", "more"))
    assert [call.card for call in of(snapshot).calls] == ["m0", "m1"]
    over = suspending.over(snapshot, of(snapshot), {1: "no", 0: "yes"})
    assert states(over) == [("no", "sending", "m1"), ("yes", "waiting", "m0")]


def test_one_that_came_twice_is_edited_where_it_was_pressed_and_nowhere_twice() -> None:
    snapshot = suspended()
    for index in (0, 1):
        card = approvals.card_id(of(snapshot), index)
        snapshot = outbox.delivered(snapshot, card, (f"m{index}",))
    over = suspending.over(snapshot, of(snapshot), {0: "yes"})
    for pressed in ("m0", None):
        assert suspending.over_where_pressed(over, of(snapshot), {0: "yes"}, pressed) is over
    other = suspending.over_where_pressed(over, of(snapshot), {0: "yes"}, "m9")
    assert states(other) == [("yes", "sending", "m0"), ("yes", "waiting", "m9")]


def test_one_that_is_leaving_is_edited_when_it_has_left_and_one_that_waits_never_leaves() -> None:
    snapshot = suspended()
    card = approvals.card_id(of(snapshot), 0)
    over = suspending.over(snapshot, of(snapshot), {0: "yes", 1: "no"})
    assert states(over) == [("card 0", "sending", None), ("yes", "waiting", card)]
    left = outbox.delivered(over, card, ("m7",))
    assert states(left) == [("yes", "sending", "m7")]


def test_one_that_nobody_has_seen_and_nothing_asks_any_more_is_not_spoken_of() -> None:
    snapshot = replace(suspended(), outbox=())
    assert suspending.over(snapshot, of(snapshot), {0: "yes"}).outbox == ()


def test_one_that_cannot_be_shown_is_declined_and_no_other() -> None:
    snapshot = suspended()
    failed = outbox.fail(snapshot, approvals.card_id(of(snapshot), 0))
    assert [call.verdict for call in of(failed).calls] == ["declined", None]
    other = outbox.fail(replace(snapshot, outbox=(Outbound("x", "y"),)), "x")
    assert of(other) == of(snapshot)
    assert outbox.fail(failed, "unknown") is failed


def test_a_part_of_another_turn_is_no_card() -> None:
    snapshot = replace(suspended(), outbox=(Outbound("x", "y", "sending"),))
    assert of(outbox.delivered(snapshot, "x", ("m1",))) == of(snapshot)
    snapshot = suspended()
    nowhere = outbox.delivered(snapshot, approvals.card_id(of(snapshot), 0), ())
    assert of(nowhere).calls[0].card is None


def test_what_runs_is_what_was_asked_about() -> None:
    snapshot = suspended()
    assert snapshot.turn is not None
    assert approvals.asked_about(snapshot.turn, 1) == WANTED[1]
    assert decode_blocks(of(snapshot).results) == []
