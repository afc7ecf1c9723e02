"""Taking the last exchange back, and asking it once more: pure functions."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from core import branches, changes, history, outbox
from core.changes import Fence
from core.memory import ConversationMemory
from core.messages import Inbound, Message, Outbound, Sender, encode_blocks, text_block, text_of
from core.snapshot import Snapshot, Usage

ADA, BOB = Sender("t:1", "Ada"), Sender("t:2", "Bob")
EMPTY = changes.begin(revision=1, epoch="e1", now=0)
ASKED = Inbound(id="c9", key="k:1", kind="command", sender=BOB, text="/retry", group=True)


def said(id: str, sender: Sender = ADA, *, group: bool = False, image: bool = False) -> Inbound:
    return Inbound(
        id=id,
        key="k:1",
        kind="message",
        sender=sender,
        text=f"text {id}",
        blocks=encode_blocks([{"type": "image"}] if image else []),
        message_id=f"m{id}",
        group=group,
        at=5,
    )


def waiting(snapshot: Snapshot, *many: Inbound) -> Snapshot:
    for each in many:
        snapshot = changes.accept(snapshot, each)
    return snapshot


def started(
    snapshot: Snapshot, execution: str = "x", memory: ConversationMemory | None = None
) -> Snapshot:
    memory = memory or ConversationMemory()
    return changes.start(snapshot, execution=execution, now=9, memory=memory, join=True)


def answered(
    snapshot: Snapshot, *many: Inbound, memory: ConversationMemory | None = None
) -> Snapshot:
    snapshot = started(waiting(snapshot, *many), memory=memory)
    answer = encode_blocks([text_block(f"re {many[-1].id}")])
    return changes.commit(snapshot, Fence("e1", "x"), [answer], ["body"], Usage(), 9)


def texts(snapshot: Snapshot) -> list[str]:
    return [text_of(row.blocks) for row in snapshot.messages]


def test_undo_takes_the_last_exchange_out_of_the_history_and_erases_nothing() -> None:
    both = answered(answered(EMPTY, said("1")), said("2"))
    left = branches.undo(both)
    assert texts(left) == ["text 1", "re 1"]
    assert (left.spans, left.next_seq, left.erase) == (((1, 2),), 5, ())
    none = branches.undo(left)
    assert (none.messages, none.spans, none.next_seq) == ((), (), 5)
    assert branches.undo(none) is none


def test_what_is_said_after_an_undo_is_a_span_of_its_own() -> None:
    left = branches.undo(answered(answered(EMPTY, said("1")), said("2")))
    on = answered(left, said("3"))
    assert on.spans == ((1, 2), (5, 6))
    assert texts(on) == ["text 1", "re 1", "text 3", "re 3"]
    assert branches.undo(on).spans == ((1, 2),)


@pytest.mark.parametrize("change", [branches.undo, lambda s: branches.ask_again(s, ASKED)])
def test_what_a_conversation_began_with_is_never_taken_back(change: object) -> None:
    memory = ConversationMemory().add_user("seed").add_assistant("seed")
    assert callable(change)
    one = answered(EMPTY, said("1"), memory=memory)
    left = change(one)
    assert texts(left) == ["seed", "seed"]
    assert change(replace(left, inbox=())) == replace(left, inbox=())


def test_a_seed_of_a_person_alone_does_not_hold_the_first_message_back() -> None:
    memory = ConversationMemory().add_user("seed")
    assert texts(branches.undo(answered(EMPTY, said("1"), memory=memory))) == ["seed"]


def test_a_message_that_joined_goes_with_the_one_that_it_joined() -> None:
    running = started(waiting(EMPTY, said("1")))
    joined = started(waiting(running, said("2", BOB)), "x")
    done = changes.commit(joined, Fence("e1", "x"), [encode_blocks([])], ["b"], Usage(), 9)
    assert len(done.messages) == 3
    assert branches.undo(done).messages == ()
    again = branches.ask_again(done, ASKED)
    assert [each.sender.id for each in again.inbox] == ["t:1", "t:2"]


def test_tool_results_are_no_exchange_of_their_own_and_are_not_asked_again() -> None:
    running = started(waiting(EMPTY, said("1")))
    call = encode_blocks([{"type": "tool_use", "id": "a", "name": "n", "input": {}}])
    result = encode_blocks([history.result("a", "4")])
    fence = Fence("e1", "x")
    running = changes.results(changes.answered(running, fence, [call], ("a",), 9), fence, result, 9)
    done = changes.commit(running, fence, [encode_blocks([text_block("4")])], ["b"], Usage(), 9)
    assert branches.undo(done).spans == ()
    assert [text_of(each.blocks) for each in branches.ask_again(done, ASKED).inbox] == ["text 1"]


def test_undo_takes_back_what_is_being_answered_or_waits() -> None:
    done = answered(EMPTY, said("1"))
    running = waiting(started(waiting(done, said("2"))), said("3"))
    left = branches.undo(running)
    assert (left.turn, [each.id for each in left.inbox], left.unanswered) == (None, ["3"], ())
    assert left.erase == ((3, 3),)
    idle = branches.undo(left)
    assert (idle.inbox, idle.unanswered) == ((), ())
    assert texts(idle) == ["text 1", "re 1"]


def test_undo_takes_back_what_was_not_answered_before_what_was() -> None:
    failed = started(waiting(answered(EMPTY, said("1")), said("2")))
    failed = changes.apologise(failed, Fence("e1", "x"), ["sorry"])
    assert [each.id for each in failed.unanswered] == ["2"]
    left = branches.undo(failed)
    assert left.unanswered == () and texts(left) == ["text 1", "re 1"]


def test_retry_asks_the_same_blocks_again() -> None:
    one = answered(EMPTY, said("1", group=True, image=True))
    again = branches.ask_again(one, ASKED)
    assert again.spans == () and again.erase == () and again.messages == ()
    (inbound,) = again.inbox
    assert inbound == Inbound(
        id="c9.1",
        key="k:1",
        kind="message",
        sender=Sender("t:1"),
        text="",
        blocks=one.messages[0].blocks,
        message_id="m1",
        group=True,
        at=9,
    )
    row = started(again).rows[0]
    assert (row.blocks, row.sender, row.message_ids) == (
        one.messages[0].blocks,
        "t:1",
        ("m1",),
    )


def test_retry_after_an_apology_or_a_stop_asks_what_was_not_answered() -> None:
    running = started(waiting(EMPTY, said("1"), said("2", BOB)))
    for failed in (
        changes.apologise(running, Fence("e1", "x"), ["sorry"]),
        changes.stop(running),
        changes.stop(waiting(EMPTY, said("1"), said("2", BOB))),
    ):
        again = branches.ask_again(failed, ASKED)
        assert [each.id for each in again.inbox] == ["1", "2"]
        assert again.unanswered == ()
        assert changes.accept(again, said("1")) is again, "it is seen as before"


def test_retry_of_a_running_turn_begins_it_anew() -> None:
    running = waiting(started(waiting(EMPTY, said("1"))), said("2"))
    again = branches.ask_again(changes.shown(running, Fence("e1", "x"), ("s1",)), ASKED)
    assert (again.turn, [each.id for each in again.inbox]) == (None, ["1", "2"])
    assert (again.erase, again.unanswered) == (((1, 1),), ())
    assert [part.replaces for part in again.outbox] == ["s1"]


def test_there_may_be_nothing_to_ask_again() -> None:
    assert branches.ask_again(EMPTY, ASKED) is EMPTY
    first = waiting(EMPTY, said("1"))
    assert branches.ask_again(first, ASKED) is first


def test_an_answer_ends_what_was_not_answered_and_so_does_a_reset() -> None:
    failed = changes.stop(waiting(EMPTY, said("1")))
    assert answered(failed, said("2")).unanswered == ()
    assert changes.reset(failed, "e2").unanswered == ()


def test_what_was_not_answered_moves_with_its_chat() -> None:
    failed = changes.stop(waiting(EMPTY, said("1")))
    for there in (None, EMPTY, replace(EMPTY, unanswered=(said("2"),))):
        moved = changes.move(failed, there, "k:2")
        assert [each.key for each in moved.unanswered] == ["k:2"]
    assert moved.unanswered[0].id == "2", "what was said last"


def test_only_what_requests_still_see_is_taken_back() -> None:
    rows = (Message(seq=1, role="assistant", blocks=encode_blocks([]), at=0),)
    assert history.last_exchange(rows) is None
    trimmed = replace(answered(EMPTY, said("1")), messages=(), window=3)
    assert branches.undo(trimmed) is trimmed


# ---------------------------------------------------------------------- what is on the screen


def long_answer(*delivered: tuple[str, ...], bodies: int = 3) -> Snapshot:
    """An exchange whose answer has that many parts, the first of which have been sent."""
    snapshot = started(waiting(EMPTY, said("1")))
    answer = encode_blocks([text_block("long")])
    parts = [f"part {number}" for number in range(bodies)]
    snapshot = changes.commit(snapshot, Fence("e1", "x"), [answer], parts, Usage(), 9)
    for ids in delivered:
        assert snapshot.next_part is not None
        snapshot = outbox.delivered(snapshot, snapshot.next_part.id, ids)
    return snapshot


def leaves(snapshot: Snapshot) -> list[tuple[str | None, str | None]]:
    return [(part.body, part.replaces) for part in snapshot.outbox]


def test_undo_deletes_what_was_sent_of_the_answer_and_sends_nothing_more_of_it() -> None:
    left = branches.undo(long_answer(("m1", "m2"), ("m3",), bodies=4))
    # The third is leaving: it goes when it has come.
    deleted = ["x.2", "m1", "m2", "m3"]
    assert leaves(left) == [("part 2", None), *((None, target) for target in deleted)]
    later = outbox.delivered(left, "x.2", ("m4",))
    assert leaves(later)[0] == (None, "m4")
    assert branches.undo(left) is left


def test_of_a_long_answer_all_is_remembered() -> None:
    many = long_answer(*[(f"m{number}",) for number in range(12)], bodies=12)
    assert len(many.sent) == 12
    assert [target for _, target in leaves(branches.undo(many))] == [f"m{n}" for n in range(12)]
    # Of what was said before it only the usual few are.
    next_one = replace(many, answer="y")
    for _ in range(6):
        part = Outbound("c.0", "x")
        next_one = outbox.queue(replace(next_one, outbox=()), (part,))
        next_one = outbox.delivered(next_one, "c.0", ("c",))
    assert len(next_one.sent) == 5


def test_an_apology_goes_with_what_it_was_for() -> None:
    failed = started(waiting(answered(EMPTY, said("1")), said("2")), "y")
    failed = changes.apologise(replace(failed, outbox=()), Fence("e1", "y"), ["sorry"])
    failed = outbox.delivered(failed, "y.0", ("m9",))
    assert leaves(branches.undo(failed)) == [(None, "m9")]


def test_what_is_not_known_to_be_of_the_answer_stays() -> None:
    """An older answer's messages, or those of a turn that had none, are not taken for it."""
    done = long_answer(("m1",), bodies=1)
    stopped = changes.stop(started(waiting(done, said("2")), "y"))
    assert leaves(branches.undo(stopped)) == []
    # While it runs, it alone is taken back; then the answer before it can be.
    running = started(waiting(done, said("2")), "y")
    once = branches.undo(running)
    assert leaves(once) == [] and leaves(branches.undo(once)) == [(None, "m1")]
    again = branches.ask_again(done, ASKED)
    assert again.answer == "" and leaves(again) == []
