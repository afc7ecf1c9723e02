"""The changes of a conversation: an example for each sentence of their contract, and a machine that
makes any of them in any order beside a store that keeps rows as the contract says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec import Raw
from msgspec.structs import replace

from core import changes, history, outbox
from core.changes import INBOX_LIMIT, SEEN_LIMIT, Fence
from core.command import Call, Command
from core.commands import BUILT_IN
from core.errors import StaleSnapshot
from core.memory import BOT_MEMORY, ConversationMemory
from core.messages import Inbound, Message, Outbound, Role, Sender, decode_blocks, encode_blocks
from core.messages import text_block as block
from core.snapshot import Pending, Sent, Snapshot, Suspension, Usage, decode, encode
from core.snapshots import Snapshots
from core.store import SessionRef
from tests.core.fakes import DictStore, FakeClock

KEY: Final = "telegram-chat:1"
ALL: Final = ConversationMemory()
USAGE: Final = Usage(3, 2, 1, 0)


def begun(epoch: str = "e1") -> Snapshot:
    return changes.begin(revision=7, epoch=epoch, now=100, cwd="/srv")


def inbound(
    id: str,
    text: str | None = None,
    *,
    group: bool = False,
    name: str = "Ann",
    blocks: Raw = Raw(b"[]"),  # noqa: B008 (immutable)
) -> Inbound:
    return Inbound(
        id=id,
        key=KEY,
        kind="message",
        sender=Sender("t:42", name),
        text=f"text {id}" if text is None else text,
        blocks=blocks,
        message_id=f"m{id}",
        group=group,
    )


def accepted(snapshot: Snapshot, *ids: str) -> Snapshot:
    for id in ids:
        snapshot = changes.accept(snapshot, inbound(id))
    return snapshot


def started(
    snapshot: Snapshot, execution: str = "x1", memory: ConversationMemory = ALL
) -> Snapshot:
    return changes.start(snapshot, execution=execution, now=200, memory=memory)


def fence_of(snapshot: Snapshot) -> Fence:
    assert snapshot.turn is not None
    return Fence(snapshot.epoch, snapshot.turn.execution)


def said(text: str) -> Raw:
    return encode_blocks([block(text)])


def called(*ids: str) -> Raw:
    return encode_blocks(
        [{"type": "tool_use", "id": id, "name": "weather", "input": {}} for id in ids]
    )


def given_back(*ids: str) -> Raw:
    return encode_blocks([history.result(id, "4") for id in ids])


def answered(snapshot: Snapshot, *ids: str) -> Snapshot:
    return changes.answered(snapshot, fence_of(snapshot), [called(*ids)], ids, 300)


def resulted(snapshot: Snapshot, *ids: str) -> Snapshot:
    return changes.results(snapshot, fence_of(snapshot), given_back(*ids), 301)


def committed(
    snapshot: Snapshot, *bodies: str, answer: str = "answer", window: int | None = None
) -> Snapshot:
    return changes.commit(
        snapshot, fence_of(snapshot), [said(answer)], bodies or ("body",), USAGE, 400, window
    )


def conversation(turns: int, snapshot: Snapshot | None = None, name: str = "i") -> Snapshot:
    """So many turns, answered and delivered."""
    snapshot = snapshot or begun()
    for turn in range(turns):
        snapshot = accepted(snapshot, f"{name}{turn}")
        snapshot = started(snapshot, f"{name}x{turn}")
        snapshot = delivered_all(committed(snapshot, answer=f"answer {name}{turn}"))
    return snapshot


def delivered_all(snapshot: Snapshot) -> Snapshot:
    while part := snapshot.next_part:
        snapshot = outbox.delivered(snapshot, part.id, (f"on screen {part.id}",))
    return snapshot


def seqs(rows: Iterable[Message]) -> list[int]:
    return [row.seq for row in rows]


def texts(rows: Iterable[Message]) -> list[str]:
    return [
        str(each["text"])
        for row in rows
        for each in decode_blocks(row.blocks)
        if each["type"] == "text"
    ]


def spoken(blocks: Raw) -> list[str]:
    return texts([Message(0, "user", blocks, 0)])


def states(snapshot: Snapshot) -> list[tuple[str, str]]:
    return [(part.id, part.state) for part in snapshot.outbox]


# ---------------------------------------------------------------------- what comes in


def test_a_conversation_begins_empty() -> None:
    snapshot = begun()
    assert (snapshot.created_at, snapshot.updated_at, snapshot.cwd) == (100, 100, "/srv")
    assert (snapshot.next_seq, snapshot.spans, snapshot.messages) == (1, (), ())
    assert not snapshot.unfinished


def test_an_accepted_message_waits_and_was_seen() -> None:
    snapshot = accepted(begun(), "1", "2")
    assert [each.id for each in snapshot.inbox] == ["1", "2"]
    assert snapshot.seen == ("1", "2")
    assert snapshot.unfinished


def test_a_message_that_was_seen_changes_nothing() -> None:
    waiting = accepted(begun(), "1")
    done = conversation(1)
    assert changes.accept(waiting, inbound("1", "other text")) is waiting
    assert changes.accept(done, inbound("i0")) is done
    assert changes.reply(waiting, inbound("1"), ["body"]) is waiting


def test_a_full_inbox_takes_no_more_and_has_not_seen_it() -> None:
    full = accepted(begun(), *map(str, range(INBOX_LIMIT)))
    assert len(full.inbox) == INBOX_LIMIT == 20
    assert changes.accept(full, inbound("more")) is full
    assert "more" not in full.seen


def test_the_last_200_ids_are_remembered() -> None:
    snapshot = begun()
    for index in range(SEEN_LIMIT + 1):
        snapshot = changes.reply(snapshot, inbound(str(index)), [])
    assert snapshot.seen == tuple(map(str, range(1, 201)))


def test_a_command_is_answered_and_enters_neither_inbox_nor_history() -> None:
    snapshot = changes.reply(begun(), inbound("1"), ["one", "two"])
    assert snapshot.inbox == ()
    assert snapshot.seen == ("1",)
    assert snapshot.outbox == (
        Outbound("e1.1.0", "one", "sending", reply_to="m1"),
        Outbound("e1.1.1", "two", "waiting"),
    )
    assert snapshot.next_seq == 1


def test_a_notice_comes_first_and_answers_nobody() -> None:
    snapshot = changes.notice(begun(), ["sorry"])
    snapshot = changes.reply(snapshot, inbound("1"), ["hello"])
    assert states(snapshot) == [("e1.notice.0", "sending"), ("e1.1.0", "waiting")]
    assert snapshot.outbox[0].reply_to is None


# ---------------------------------------------------------------------- the turn


def test_start_takes_all_that_waits_and_makes_one_message_of_it() -> None:
    snapshot = started(accepted(begun(), "1", "2"))
    turn = snapshot.turn
    assert turn is not None
    assert (turn.execution, turn.attempt, turn.first, turn.taken) == ("x1", 1, 1, ("1", "2"))
    (row,) = turn.steps
    assert (row.seq, row.role, row.sender, row.message_ids) == (1, "user", "t:42", ("m1", "m2"))
    assert texts([row]) == ["text 1", "text 2"]
    assert snapshot.next_seq == 2
    assert [each.id for each in snapshot.inbox] == ["1", "2"], "until it is answered"


def test_one_by_one_takes_the_oldest() -> None:
    snapshot = changes.start(
        accepted(begun(), "1", "2"), execution="x1", now=0, memory=ALL, one_by_one=True
    )
    assert snapshot.turn is not None
    assert snapshot.turn.taken == ("1",)
    assert texts(snapshot.turn.steps) == ["text 1"]


def test_nothing_starts_when_nobody_waits() -> None:
    snapshot = conversation(1)
    assert started(snapshot, "x9") is snapshot


def test_white_space_is_no_block_and_blocks_follow_the_text() -> None:
    image: history.Block = {"type": "image", "source": {}}
    snapshot = changes.accept(begun(), inbound("1", " \n", blocks=encode_blocks([image])))
    snapshot = changes.accept(snapshot, inbound("2", "see?", blocks=encode_blocks([image])))
    turn = started(snapshot).turn
    assert turn is not None
    assert decode_blocks(turn.steps[0].blocks) == [image, block("see?"), image]


def test_memory_comes_before_the_first_message_and_is_history_from_its_commit_on() -> None:
    memory = ConversationMemory().add_system("s").add_user("I am Alice.").add_assistant("Hi.")
    snapshot = started(accepted(begun(), "1"), memory=memory)
    assert snapshot.messages == ()
    again = started(snapshot, "x2", memory)
    assert again.next_seq == snapshot.next_seq, "a restart does not seed again"
    done = committed(again)
    assert [(row.seq, row.role) for row in done.messages] == [
        (1, "user"),
        (2, "assistant"),
        (3, "user"),
        (4, "assistant"),
    ]
    assert texts(done.messages) == ["I am Alice.", "Hi.", "text 1", "answer"]
    assert done.spans == ((1, 4),)
    second = committed(started(accepted(done, "2"), "x3", memory))
    assert texts(second.messages)[4:] == ["text 2", "answer"]
    anew = started(accepted(changes.reset(second, "e2"), "3"), "x4", memory)
    assert anew.turn is not None
    assert texts(anew.turn.steps) == ["I am Alice.", "Hi.", "text 3"], "a reset does"


def test_memory_of_an_abandoned_first_turn_comes_again() -> None:
    memory = ConversationMemory().add_user("I am Alice.")
    stopped = changes.stop(started(accepted(begun(), "1"), memory=memory))
    again = started(accepted(stopped, "2"), "x2", memory)
    assert again.turn is not None
    assert texts(again.turn.steps) == ["I am Alice.", "text 2"]
    assert seqs(again.turn.steps) == [3, 4]


def test_the_bound_holds_for_memory_too() -> None:
    memory = ConversationMemory(3)
    for index in range(9):
        memory.add_user(f"q{index}").add_assistant(f"a{index}")
    snapshot = started(accepted(begun(), "1"), memory=memory)
    assert len(snapshot.rows) <= 3
    assert texts(snapshot.rows)[-1] == "text 1"


def test_trimming_moves_the_window_and_nothing_else() -> None:
    before = accepted(conversation(3), "now")
    memory = ConversationMemory(5, 3)
    after = started(before, memory=memory)
    assert seqs(before.messages) == [1, 2, 3, 4, 5, 6]
    assert seqs(after.messages) == [5, 6]
    assert (after.window, after.spans, after.erase) == (5, ((1, 6),), ())
    alone = started(before, memory=ConversationMemory(1))
    assert alone.messages == ()
    assert alone.window == alone.turn.first if alone.turn else None
    done = committed(alone)
    assert seqs(done.messages) == [7, 8]
    assert done.spans == ((1, 8),)


def test_a_second_attempt_is_another_execution_and_keeps_completed_steps() -> None:
    snapshot = resulted(answered(started(accepted(begun(), "1")), "c1"), "c1")
    again = started(accepted(snapshot, "2"), "x2")
    assert again.turn is not None
    assert snapshot.turn is not None
    assert again.turn.steps == snapshot.turn.steps
    assert (again.turn.execution, again.turn.attempt, again.turn.taken) == ("x2", 2, ("1",))
    assert again.next_seq == snapshot.next_seq
    third = started(again, "x3")
    assert third.turn is not None
    assert third.turn.attempt == 3


def test_a_tool_round_is_two_changes_and_what_started_is_known_between_them() -> None:
    snapshot = started(accepted(begun(), "1"))
    first = answered(snapshot, "c1", "c2")
    assert first.turn is not None
    assert first.turn.started == ("c1", "c2")
    assert [row.role for row in first.turn.steps] == ["user", "assistant"]
    second = resulted(first, "c1", "c2")
    assert second.turn is not None
    assert second.turn.started == ()
    assert seqs(second.turn.steps) == [1, 2, 3]
    assert second.turn.steps[-1].sender is None
    assert second.messages == first.messages == (), "until the commit"
    done = committed(second)
    assert seqs(done.messages) == [1, 2, 3, 4]
    assert done.spans == ((1, 4),)


def test_a_saved_step_sets_the_attempt_back_to_one() -> None:
    third = started(started(started(accepted(begun(), "1")), "x2"), "x3")
    first = answered(third, "c1")
    assert first.turn is not None
    assert first.turn.attempt == 1
    second = resulted(started(first, "x4"), "c1")
    assert second.turn is not None
    assert second.turn.attempt == 1


def test_several_answers_of_one_step_are_several_rows() -> None:
    snapshot = started(accepted(begun(), "1"))
    snapshot = changes.answered(
        snapshot, fence_of(snapshot), [said("hm"), called("c1")], ("c1",), 0
    )
    assert seqs(snapshot.rows) == [1, 2, 3]
    assert snapshot.next_seq == 4


def test_commit_changes_history_inbox_outbox_and_usage_together() -> None:
    snapshot = accepted(started(accepted(begun(), "1")), "2")
    done = committed(snapshot, "one", "two", "three")
    assert done.turn is None
    assert texts(done.messages) == ["text 1", "answer"]
    assert done.spans == ((1, 2),)
    assert [each.id for each in done.inbox] == ["2"], "only what was taken is done"
    assert done.seen == ("1", "2")
    assert done.usage == USAGE
    assert done.outbox == (
        Outbound("x1.0", "one", "sending", reply_to="m1"),
        Outbound("x1.1", "two", "waiting"),
        Outbound("x1.2", "three", "waiting"),
    )


def test_a_reply_behind_an_unsent_one_waits() -> None:
    first = committed(started(accepted(begun(), "1")), "one")
    second = committed(started(accepted(first, "2"), "x2"), "two")
    assert states(second) == [("x1.0", "sending"), ("x2.0", "waiting")]
    assert committed(started(accepted(first, "2"), "x2")).usage == USAGE + USAGE


def test_a_reply_behind_one_that_waits_for_a_penalty_does_not_make_that_leave() -> None:
    waiting = outbox.put_back(committed(started(accepted(begun(), "1")), "one"), "x1.0")
    after = changes.reply(waiting, inbound("2"), ["help"])
    assert states(after) == [("x1.0", "waiting"), ("e1.2.0", "waiting")]


def test_a_turn_that_had_to_shorten_its_history_moves_the_window() -> None:
    snapshot = started(accepted(conversation(3), "now"))
    assert seqs(committed(snapshot, window=5).messages) == [5, 6, 7, 8]
    done = committed(snapshot, window=7)
    assert seqs(done.messages) == [7, 8]
    assert (done.window, done.spans) == (7, ((1, 8),))


def test_an_apology_is_a_reply_and_the_turn_leaves_no_trace() -> None:
    before = conversation(1)
    snapshot = answered(started(accepted(before, "1", "2")), "c1")
    snapshot = accepted(snapshot, "3")
    sorry = changes.apologise(snapshot, fence_of(snapshot), ["sorry"])
    assert sorry.turn is None
    assert sorry.messages == before.messages
    assert [each.id for each in sorry.inbox] == ["3"]
    assert sorry.erase == ((3, 4),)
    assert sorry.outbox == (Outbound("x1.0", "sorry", "sending", reply_to="m2"),)


def test_a_turn_that_waits_for_the_operator_was_no_attempt() -> None:
    snapshot = started(accepted(begun(), "1"))
    for index in range(9):
        snapshot = changes.postpone(snapshot, fence_of(snapshot), ["no key"] if index == 0 else [])
        snapshot = started(snapshot, f"again{index}")
    assert snapshot.turn is not None
    assert snapshot.turn.attempt == 1
    assert [each.id for each in snapshot.inbox] == ["1"]
    assert states(snapshot) == [("x1.0", "sending")]


def test_numbers_are_never_given_twice_and_spans_run_on_over_erased_rows() -> None:
    snapshot = conversation(1)
    snapshot = changes.stop(answered(started(accepted(snapshot, "1")), "c1"))
    assert snapshot.erase == ((3, 4),)
    snapshot = conversation(1, replace(snapshot, erase=()), "j")
    assert snapshot.spans == ((1, 6),)
    assert seqs(snapshot.messages) == [1, 2, 5, 6]
    snapshot = conversation(1, changes.reset(snapshot, "e2"), "k")
    assert seqs(snapshot.messages) == [7, 8]
    assert snapshot.spans == ((7, 8),)


# ---------------------------------------------------------------------- fences


FENCED: Final[dict[str, Callable[[Snapshot, Fence], Snapshot]]] = {
    "answered": lambda snapshot, fence: changes.answered(snapshot, fence, [said("a")], (), 0),
    "results": lambda snapshot, fence: changes.results(snapshot, fence, given_back("c1"), 0),
    "shown": lambda snapshot, fence: changes.shown(snapshot, fence, ("s",)),
    "commit": lambda snapshot, fence: changes.commit(
        snapshot, fence, [said("a")], ["b"], USAGE, 0, 1
    ),
    "apologise": lambda snapshot, fence: changes.apologise(snapshot, fence, ["b"]),
    "postpone": lambda snapshot, fence: changes.postpone(snapshot, fence, ["b"]),
}


@pytest.mark.parametrize("name", FENCED)
def test_a_run_that_is_no_longer_the_one_changes_nothing(name: str) -> None:
    change = FENCED[name]
    snapshot = started(accepted(begun(), "1"))
    fence = fence_of(snapshot)
    assert changes.holds(snapshot, fence)
    assert change(snapshot, fence) is not snapshot
    overtaken = started(snapshot, "x2")
    cleared = changes.reset(snapshot, "e2")
    others = [
        overtaken,
        cleared,
        changes.stop(snapshot),
        committed(snapshot),
        started(accepted(cleared, "2")),  # even by an execution of the same name
    ]
    for other in others:
        assert not changes.holds(other, fence)
        assert change(other, fence) is other


def test_a_conversation_that_is_gone_is_held_by_nobody() -> None:
    assert not changes.holds(None, Fence("e1", "x1"))


# ---------------------------------------------------------------------- reset and stop


def test_reset_forgets_what_was_said_and_not_what_was_seen_or_chosen() -> None:
    before = replace(
        resulted(answered(started(accepted(conversation(2), "1")), "c1"), "c1"),
        chosen={"model": "other"},
    )
    after = changes.reset(accepted(before, "2"), "e2")
    assert after.epoch == "e2"
    assert (after.messages, after.spans, after.turn, after.inbox) == ((), (), None, ())
    assert (after.outbox, after.sent) == ((), ())
    assert after.erase == ((1, before.next_seq - 1),)
    assert (after.next_seq, after.window) == (before.next_seq, before.next_seq)
    assert after.seen == (*before.seen, "2")
    assert after.chosen == {"model": "other"}
    assert after.usage == before.usage


def test_resetting_what_is_empty_erases_nothing() -> None:
    assert changes.reset(begun(), "e2") == replace(begun("e2"), window=1)


def test_the_confirmation_of_a_reset_is_the_new_outbox() -> None:
    before = committed(started(accepted(begun(), "1")), "one", "two")
    after = changes.reply(changes.reset(before, "e2"), inbound("2"), ["done"])
    assert states(after) == [("e2.2.0", "sending")]
    assert changes.reply(after, inbound("2"), ["done"]) is after, "redelivered"


def test_stop_removes_what_is_being_answered_and_history_is_unchanged() -> None:
    before = conversation(1)
    running = accepted(started(accepted(before, "1", "2")), "3")
    after = changes.stop(running)
    assert after.turn is None
    assert after.messages == before.messages
    assert [each.id for each in after.inbox] == ["3"]
    assert after.erase == ((3, 3),)
    assert after.epoch == before.epoch


def test_stop_removes_what_waits_when_nothing_is_being_answered() -> None:
    assert changes.stop(accepted(begun(), "1", "2")).inbox == ()
    done = conversation(1)
    assert changes.stop(done) is done


# ---------------------------------------------------------------------- interrupt


def test_interrupt_keeps_completed_steps_and_adds_the_new_message_after_them() -> None:
    snapshot = resulted(answered(started(accepted(begun(), "1")), "c1"), "c1")
    snapshot = accepted(started(snapshot, "x2"), "2", "3")
    joined = changes.start(snapshot, execution="x3", now=0, memory=ALL, join=True)
    assert joined.turn is not None
    assert snapshot.turn is not None
    assert joined.turn.steps[:3] == snapshot.turn.steps
    assert texts(joined.turn.steps[3:]) == ["text 2", "text 3"]
    assert (joined.turn.taken, joined.turn.attempt) == (("1", "2", "3"), 1)
    done = committed(joined)
    assert done.inbox == ()
    assert done.outbox[0].reply_to == "m3"


def test_calls_that_an_interrupt_left_open_are_answered_before_the_new_message() -> None:
    snapshot = accepted(answered(started(accepted(begun(), "1")), "c1", "c2"), "2")
    joined = changes.start(snapshot, execution="x2", now=0, memory=ALL, join=True)
    assert joined.turn is not None
    assert joined.turn.started == ()
    assert decode_blocks(joined.turn.steps[-1].blocks) == [
        history.result("c1", history.INTERRUPTED, error=True),
        history.result("c2", history.INTERRUPTED, error=True),
        block("text 2"),
    ]
    assert history.repair(joined.turn.steps) == joined.turn.steps


def test_without_a_new_message_there_is_nothing_to_join() -> None:
    snapshot = started(accepted(begun(), "1"))
    joined = changes.start(snapshot, execution="x2", now=0, memory=ALL, join=True)
    assert joined == started(snapshot, "x2")


# ---------------------------------------------------------------------- what is on the screen


def shown(snapshot: Snapshot, *ids: str) -> Snapshot:
    return changes.shown(snapshot, fence_of(snapshot), ids)


def test_shown_is_noted_once() -> None:
    snapshot = shown(started(accepted(begun(), "1")), "s1")
    assert snapshot.turn is not None
    assert snapshot.turn.shown == ("s1",)
    assert shown(snapshot, "s1") is snapshot
    again = started(snapshot, "x2")
    assert again.turn is not None
    assert again.turn.shown == ("s1",), "the next attempt goes on in the same message"


def test_part_i_becomes_the_message_that_shows_it_and_surplus_ones_are_deleted() -> None:
    snapshot = shown(started(accepted(begun(), "1")), "s1", "s2", "s3")
    assert committed(snapshot, "one").outbox == (
        Outbound("x1.0", "one", "sending", replaces="s1", reply_to="m1"),
        Outbound("x1.-s2", None, "waiting", replaces="s2"),
        Outbound("x1.-s3", None, "waiting", replaces="s3"),
    )
    more = committed(snapshot, "one", "two", "three", "four").outbox
    assert [part.replaces for part in more] == ["s1", "s2", "s3", None]


def test_what_stands_there_as_it_is_to_read_is_not_sent_again() -> None:
    snapshot = shown(started(accepted(begun(), "1")), "s1", "s2", "s3", "s4")
    standing = {"s1": "one", "s2": "two, but", "s4": "of no part"}
    after = changes.commit(
        snapshot,
        fence_of(snapshot),
        [said("answer")],
        ["one", "two", "three"],
        USAGE,
        3,
        standing=standing,
    )
    assert after.outbox == (
        Outbound("x1.1", "two", "sending", replaces="s2"),
        Outbound("x1.2", "three", "waiting", replaces="s3"),
        Outbound("x1.-s4", None, "waiting", replaces="s4"),
    )
    assert after.sent == (Sent("x1.0", ("s1",)),)
    whole = changes.commit(
        snapshot, fence_of(snapshot), [said("answer")], ["one"], USAGE, 3, standing={"s1": "one"}
    )
    assert [part.body for part in whole.outbox] == [None, None, None]


def test_all_that_stands_there_of_a_long_answer_can_be_taken_back() -> None:
    ids = tuple(f"s{number}" for number in range(15))
    snapshot = shown(started(accepted(begun(), "1")), *ids)
    bodies = [f"part {number}" for number in range(15)]
    after = changes.commit(
        snapshot,
        fence_of(snapshot),
        [said("answer")],
        bodies,
        USAGE,
        3,
        standing=dict(zip(ids, bodies, strict=True)),
    )
    assert after.outbox == ()
    assert [part.replaces for part in outbox.taken_back(after).outbox] == list(ids)


def test_of_a_file_that_is_not_waiting_nothing_is_said() -> None:
    snapshot = begun()
    assert outbox.instead(snapshot, "gone", "not sent") is snapshot


def test_stop_reset_and_an_apology_take_back_what_is_shown() -> None:
    snapshot = shown(started(accepted(begun(), "1")), "s1", "s2")
    fence = fence_of(snapshot)
    assert [part.replaces for part in changes.stop(snapshot).outbox] == ["s1", "s2"]
    assert [part.replaces for part in changes.reset(snapshot, "e2").outbox] == ["s1", "s2"]
    sorry = changes.apologise(snapshot, fence, ["sorry"])
    assert [(part.body, part.replaces) for part in sorry.outbox] == [
        (None, "s1"),
        (None, "s2"),
        ("sorry", None),
    ]


# ---------------------------------------------------------------------- what goes out


def three_parts() -> Snapshot:
    return committed(started(accepted(begun(), "1")), "one", "two", "three")


def test_delivered_removes_the_part_and_marks_the_next() -> None:
    snapshot = outbox.delivered(three_parts(), "x1.0", ("901",))
    assert states(snapshot) == [("x1.1", "sending"), ("x1.2", "waiting")]
    assert snapshot.sent == (Sent("x1.0", ("901",)),)
    assert outbox.delivered(snapshot, "x1.0", ("901",)) is snapshot, "twice is harmless"
    assert not delivered_all(snapshot).unfinished


def test_delivered_needs_no_execution_and_survives_what_came_meanwhile() -> None:
    snapshot = started(accepted(three_parts(), "2"), "x2")
    snapshot = outbox.delivered(snapshot, "x1.0", ())
    assert snapshot.turn is not None
    cleared = changes.reset(snapshot, "e2")
    assert outbox.delivered(cleared, "x1.1", ("902",)) is cleared


def test_only_the_last_deliveries_are_remembered() -> None:
    snapshot = conversation(outbox.SENT_LIMIT + 5)
    assert len(snapshot.sent) == outbox.SENT_LIMIT
    assert snapshot.sent[-1].part == f"ix{outbox.SENT_LIMIT + 4}.0"


def test_a_part_that_was_not_sent_waits_again_and_holds_the_others() -> None:
    snapshot = outbox.put_back(three_parts(), "x1.0")
    assert states(snapshot) == [("x1.0", "waiting"), ("x1.1", "waiting"), ("x1.2", "waiting")]
    assert outbox.put_back(snapshot, "x1.0") is snapshot
    again = outbox.sending(snapshot, "x1.0")
    assert again == three_parts()
    assert outbox.sending(again, "x1.0") is again


def test_only_the_next_part_is_ever_leaving() -> None:
    snapshot = outbox.put_back(three_parts(), "x1.0")
    assert outbox.sending(snapshot, "x1.1") is snapshot
    assert outbox.sending(snapshot, "gone") is snapshot


@pytest.mark.parametrize(
    ("change", "state"), [(outbox.hold, "held"), (outbox.fail, "failed")], ids=["hold", "fail"]
)
def test_a_part_that_is_put_away_blocks_nothing(
    change: Callable[[Snapshot, str], Snapshot], state: str
) -> None:
    snapshot = change(three_parts(), "x1.0")
    assert states(snapshot) == [("x1.0", state), ("x1.1", "sending"), ("x1.2", "waiting")]
    done = delivered_all(snapshot)
    assert states(done) == [("x1.0", state)]
    assert not done.unfinished
    for other in (outbox.hold, outbox.fail, outbox.put_back, outbox.sending):
        assert other(done, "x1.0") is done


@pytest.mark.parametrize("change", [outbox.hold, outbox.fail])
def test_putting_away_a_part_that_is_gone_changes_nothing(
    change: Callable[[Snapshot, str], Snapshot],
) -> None:
    """Not even for the part behind it, which waits for a penalty to be over."""
    snapshot = outbox.put_back(outbox.delivered(three_parts(), "x1.0", ()), "x1.1")
    assert change(snapshot, "x1.0") is snapshot


def test_of_parts_that_are_put_away_the_newest_stay() -> None:
    bodies = [f"body {index}" for index in range(outbox.KEPT_PARTS_LIMIT + 3)]
    snapshot = committed(started(accepted(begun(), "1")), *bodies)
    while part := snapshot.next_part:
        snapshot = outbox.fail(snapshot, part.id)
    assert [part.body for part in snapshot.outbox] == bodies[3:]


def test_a_chat_that_is_gone_gets_nothing_of_what_waits() -> None:
    snapshot = outbox.gone(three_parts())
    assert {state for _, state in states(snapshot)} == {"failed"}
    assert not snapshot.unfinished
    assert outbox.gone(snapshot) is snapshot
    later = changes.reply(snapshot, inbound("2"), ["hello"])
    assert later.outbox[-1].state == "sending", "it works again when somebody writes"


def test_what_joins_a_chat_that_is_gone_can_fail_as_well() -> None:
    """Two chats have become one, and of the other parts were leaving."""
    old, new = outbox.gone(three_parts()), committed(started(accepted(begun("e2"), "2"), "x2"))
    both = changes.move(old, new, NEW_KEY)
    assert both.gone and both.next_part is not None
    over = outbox.gone(both)
    assert {state for _, state in states(over)} == {"failed"} and not over.unfinished


def test_an_edit_of_what_is_leaving_names_its_message_once_that_is_there() -> None:
    snapshot = three_parts()
    edit = Outbound("edit", "better", replaces="x1.0")
    snapshot = replace(snapshot, outbox=(*snapshot.outbox, edit))
    there = outbox.delivered(snapshot, "x1.0", ("901", "902"))
    assert [part.replaces for part in there.outbox] == [None, None, "901"]
    # One that is on no screen leaves nothing that could be named.
    assert outbox.delivered(snapshot, "x1.0", ()).outbox[-1].replaces == "x1.0"
    # Whatever is delivered besides is not what it edits.
    assert outbox.delivered(there, "x1.1", ("903",)).outbox[-1].replaces == "901"


# ---------------------------------------------------------------------- a Session's turn


def test_append_adds_a_whole_turn_at_once() -> None:
    before = conversation(1)
    turn: list[tuple[Role, Raw]] = [
        ("user", said("q")),
        ("assistant", called("c1")),
        ("user", given_back("c1")),
        ("assistant", said("a")),
    ]
    after = changes.append(before, turn, USAGE, 500, ALL)
    assert after.spans == ((1, 6),)
    assert [(row.seq, row.role, row.at) for row in after.messages[2:]] == [
        (3, "user", 500),
        (4, "assistant", 500),
        (5, "user", 500),
        (6, "assistant", 500),
    ]
    assert after.next_seq == 7
    assert after.usage == before.usage + USAGE
    assert (after.outbox, after.inbox) == ((), ())


@pytest.mark.parametrize(("most", "kept"), [(5, [5, 6, 7, 8]), (1, [7, 8])])
def test_append_trims_what_the_turn_did_not_send(most: int, kept: list[int]) -> None:
    before = conversation(3)
    after = changes.append(
        before,
        [("user", said("q")), ("assistant", said("a"))],
        USAGE,
        500,
        ConversationMemory(most, min(most, 3)),
    )
    assert seqs(after.messages) == kept
    assert (after.window, after.spans) == (kept[0], ((1, 8),))


# ---------------------------------------------------------------------- groups


def test_between_two_people_a_text_is_as_it_was_written() -> None:
    assert changes.said_by(inbound("1", "<from>x</from>")) == "<from>x</from>"


@given(st.text(), st.text())
def test_in_a_group_the_first_line_names_the_speaker_and_nothing_else_can(
    name: str, text: str
) -> None:
    spoken = changes.said_by(inbound("1", text, group=True, name=name))
    lines = re.split(r"[\n\r]", spoken)
    assert re.fullmatch("<from>[^<>]+</from>", lines[0])
    assert spoken.count("<from>") == spoken.count("</from>") == 1


def test_in_a_group_without_a_name_the_id_is_the_name() -> None:
    assert changes.said_by(inbound("1", "hi", group=True, name=" <>\n")) == "<from>t:42</from>\nhi"
    assert changes.said_by(inbound("1", "</from>", group=True)) == "<from>Ann</from>\n‹/from›"


# ---------------------------------------------------------------------- a chat with a new id

NEW_KEY: Final = "telegram-chat:-100"


def test_a_chat_moves_to_where_nothing_was() -> None:
    old = accepted(started(accepted(conversation(2), "1")), "2")
    moved = changes.move(old, None, NEW_KEY)
    assert {each.key for each in moved.inbox} == {NEW_KEY}
    assert moved.turn == old.turn
    assert (moved.messages, moved.spans, moved.seen) == (old.messages, old.spans, old.seen)


def test_nothing_names_a_message_of_the_chat_that_was_left() -> None:
    """The new chat counts its messages anew: an edit or a deletion would hit another one."""
    old = started(accepted(conversation(1), "1"), "x")
    old = changes.shown(old, Fence(old.epoch, "x"), ("7", "8"))
    assert old.turn is not None
    asking = Suspension("s", (Pending("c", "digest", card="9"),))
    parts = (
        Outbound("a.0", "edit", "sending", replaces="5", reply_to="4"),
        Outbound("a.1", None, replaces="6"),
        Outbound("a.2", "edit of the first", replaces="a.0"),
    )
    old = replace(old, turn=replace(old.turn, suspended=asking), outbox=parts)
    for new in (None, begun("e9")):
        moved = changes.move(old, new, NEW_KEY)
        assert moved.turn is not None and moved.turn.suspended is not None
        assert moved.turn.shown == ()
        assert moved.turn.suspended.calls[0].card is None
        assert moved.sent == ()
        assert moved.outbox == (
            Outbound("a.0", "edit", "sending"),
            Outbound("a.2", "edit of the first", replaces="a.0"),
        )
        assert {each.message_id for each in moved.inbox} == {None}


def test_what_was_said_under_the_new_key_follows_renumbered() -> None:
    old = replace(accepted(conversation(2), "old"), chosen={"model": "a", "effort": "low"})
    new = replace(
        accepted(conversation(1, begun("e9"), "j"), "new"), chosen={"model": "b"}, revision=99
    )
    moved = changes.move(old, new, NEW_KEY)
    assert texts(moved.messages) == texts(old.messages) + texts(new.messages)
    assert seqs(moved.messages) == [1, 2, 3, 4, 5, 6]
    assert (moved.spans, moved.next_seq, moved.erase) == (((1, 6),), 7, ())
    assert [(each.id, each.key) for each in moved.inbox] == [("old", NEW_KEY), ("new", NEW_KEY)]
    assert moved.seen == ("i0", "i1", "old", "j0", "new")
    assert moved.sent == new.sent
    assert moved.usage == old.usage + new.usage
    assert moved.chosen == {"model": "b", "effort": "low"}
    assert (moved.epoch, moved.revision) == (old.epoch, old.revision)


def test_ids_that_both_have_seen_are_there_once() -> None:
    old = accepted(begun(), "1", "2")
    new = replace(begun("e9"), seen=("2", "3"))
    assert changes.move(old, new, NEW_KEY).seen == ("1", "2", "3")


def test_a_window_that_the_new_one_had_moved_stays_where_it_is() -> None:
    old = conversation(2)
    new = committed(
        started(
            accepted(conversation(3, begun("e9"), "j"), "k"), "kx", memory=ConversationMemory(3, 3)
        )
    )
    assert (new.window, seqs(new.messages)) == (5, [5, 6, 7, 8])
    moved = changes.move(old, new, NEW_KEY)
    assert (moved.window, seqs(moved.messages)) == (9, [9, 10, 11, 12])
    assert moved.spans == ((1, 12),)


def test_a_new_conversation_that_was_reset_hides_nothing_of_the_old_one() -> None:
    new = conversation(1, changes.reset(conversation(1, begun("e8"), "j"), "e9"), "k")
    assert (new.window, new.spans) == (3, ((3, 4),))
    moved = changes.move(conversation(1), new, NEW_KEY)
    assert seqs(moved.messages) == [1, 2, 5, 6]
    assert moved.spans == ((1, 2), (5, 6))


def test_the_old_turn_goes_on_at_the_end_of_both() -> None:
    old = resulted(answered(started(accepted(conversation(1), "1")), "c1"), "c1")
    new = conversation(1, begun("e9"), "j")
    moved = changes.move(old, new, NEW_KEY)
    assert moved.turn is not None
    assert old.turn is not None
    assert [row.blocks for row in moved.turn.steps] == [row.blocks for row in old.turn.steps]
    assert (moved.turn.first, seqs(moved.turn.steps)) == (8, [8, 9, 10])
    assert moved.erase == ((3, 5),)
    assert changes.holds(moved, fence_of(old))
    done = committed(moved)
    assert done.spans == ((1, 11),)
    assert seqs(done.messages) == [1, 2, 6, 7, 8, 9, 10, 11]


def test_a_new_turn_goes_on_when_the_old_one_had_none() -> None:
    old = conversation(1)
    new = answered(started(accepted(conversation(1, begun("e9"), "j"), "1")), "c1")
    moved = changes.move(old, new, NEW_KEY)
    assert moved.turn is not None
    assert moved.turn.taken == ("1",)
    assert moved.turn.started == ("c1",)
    assert (seqs(moved.turn.steps), moved.erase) == ([7, 8], ((5, 6),))
    assert not changes.holds(moved, fence_of(new)), "its run belongs to another conversation"
    done = committed(resulted(started(moved, "x2"), "c1"))
    assert done.spans == ((1, 10),)
    assert done.inbox == ()


def test_of_two_turns_the_newer_begins_again_and_takes_back_what_it_showed() -> None:
    old = started(accepted(conversation(1), "1"))
    new = shown(started(accepted(conversation(1, begun("e9"), "j"), "2"), "x2"), "s1")
    moved = changes.move(old, new, NEW_KEY)
    assert moved.turn is not None
    assert moved.turn.taken == ("1",)
    assert [each.id for each in moved.inbox] == ["1", "2"]
    assert moved.erase == ((3, 3), (6, 6))
    assert [part.replaces for part in moved.outbox] == ["s1"]
    done = started(committed(moved), "x3")
    assert done.turn is not None
    assert done.turn.taken == ("2",)
    assert done.spans == ((1, 8),)


def test_unsent_parts_keep_their_order_and_their_doubts() -> None:
    old, new = three_parts(), changes.reply(begun("e9"), inbound("9"), ["hello"])
    moved = changes.move(old, new, NEW_KEY)
    assert states(moved) == [
        ("x1.0", "sending"),
        ("x1.1", "waiting"),
        ("x1.2", "waiting"),
        ("e9.9.0", "sending"),
    ]


# ---------------------------------------------------------------------- compare-and-set


class Raced(DictStore):
    """Somebody else saves first, as often as there are changes to do that with."""

    def __init__(self) -> None:
        super().__init__()
        self.first: list[Callable[[Snapshot], Snapshot]] = []

    async def save(self, ref: SessionRef, snapshot: Snapshot, *, replaces: int | None) -> None:
        if self.first and replaces is not None:
            stored = decode(self.kept[ref.key])
            theirs = replace(self.first.pop(0)(stored), revision=stored.revision + 1)
            self.kept[ref.key] = encode(theirs)
        await super().save(ref, snapshot, replaces=replaces)


async def test_a_change_that_lost_a_race_is_made_to_what_the_other_saved() -> None:
    store = Raced()
    snapshots = Snapshots(store, FakeClock(), SessionRef)
    before = started(accepted(conversation(1), "1"))
    fence = fence_of(before)
    await store.save(SessionRef(KEY), before, replaces=None)

    def change(snapshot: Snapshot) -> Snapshot:
        return changes.commit(snapshot, fence, [said("a")], ["b"], USAGE, 9)

    def first(snapshot: Snapshot) -> Snapshot:
        return changes.reply(accepted(snapshot, "2"), inbound("3"), ["help"])

    store.first = [first, lambda snapshot: accepted(snapshot, "4")]
    after, applied = await snapshots.update(KEY, lambda found: found and change(found))
    assert applied
    assert after is not None
    expected = change(accepted(first(before), "4"))
    assert after == replace(expected, revision=before.revision + 3, updated_at=after.updated_at)


async def test_a_change_that_was_fenced_by_the_winner_of_a_race_is_not_saved() -> None:
    store = Raced()
    snapshots = Snapshots(store, FakeClock(), SessionRef)
    before = started(accepted(begun(), "1"))
    await store.save(SessionRef(KEY), before, replaces=None)
    store.first = [lambda snapshot: changes.reset(snapshot, "e2")]
    after, applied = await snapshots.update(KEY, lambda found: found and committed_by_x1(found))
    assert not applied
    assert after is not None
    assert (after.epoch, after.messages) == ("e2", ())
    with pytest.raises(StaleSnapshot):
        await store.save(SessionRef(KEY), committed(before), replaces=before.revision)


def committed_by_x1(snapshot: Snapshot) -> Snapshot:
    return changes.commit(snapshot, Fence("e1", "x1"), [said("a")], ["b"], USAGE, 9)


# ---------------------------------------------------------------------- anything, in any order


class Chat:
    """A conversation, and beside it what must be true of it, kept in the plainest way.

    :param rows: what a store keeps, by the contract: rows are inserted once, and erased
    :param used: all numbers that a row ever had
    :param undone: of those the numbers that were history and were taken back
    :param waiting: texts by id, of what was accepted and is not answered
    :param said: texts of people in the history, in order
    :param fences: all runs there were
    :param moved: it took another conversation in
    """

    def __init__(self, epoch: str) -> None:
        self.snapshot = begun(epoch)
        self.rows: dict[int, Message] = {}
        self.used: set[int] = set()
        self.undone: set[int] = set()
        self.waiting: dict[str, list[str]] = {}
        self.said: list[str] = []
        self.fences: list[Fence] = []
        self.moved = False

    def save(self, after: Snapshot) -> None:
        before = self.snapshot
        assert after.next_seq >= before.next_seq
        assert after.window >= before.window
        for first, last in after.erase:
            assert 1 <= first <= last < after.next_seq
            for seq in range(first, last + 1):
                self.rows.pop(seq, None)
                self.undone.discard(seq)
        for row in after.rows:
            if row.seq < before.next_seq:
                assert self.rows[row.seq] == row, "a row is never changed"
            else:
                assert row.seq not in self.used, "a number is never given twice"
                assert row.seq < after.next_seq
                self.used.add(row.seq)
                self.rows[row.seq] = row
        self.snapshot = decode(encode(replace(after, revision=before.revision + 1)))

    def in_history(self) -> list[Message]:
        return [
            self.rows[seq]
            for first, last in self.snapshot.spans
            for seq in range(first, last + 1)
            if seq in self.rows
        ]

    def take_in(self, new: Chat, moved: Snapshot) -> None:
        offset = self.snapshot.next_seq - 1
        history_of_both = [row.blocks for row in self.in_history() + new.in_history()]
        seen = {*self.snapshot.seen, *new.snapshot.seen}
        for seq, row in new.rows.items():
            self.rows[seq + offset] = replace(row, seq=seq + offset)
        self.used |= {seq + offset for seq in new.used}
        self.undone |= {seq + offset for seq in new.undone}
        self.snapshot = replace(self.snapshot, next_seq=offset + new.snapshot.next_seq)
        self.save(moved)
        assert [row.blocks for row in self.in_history()] == history_of_both
        assert set(self.snapshot.seen) <= seen
        assert len(self.snapshot.seen) == min(len(seen), SEEN_LIMIT)
        self.waiting |= new.waiting
        self.said += new.said
        self.fences += new.fences
        self.moved = True


MEMORIES: Final = (
    ALL,
    BOT_MEMORY,
    ConversationMemory(6, 3),
    ConversationMemory(1),
    ConversationMemory(5).add_user("seed").add_assistant("seed"),
    ConversationMemory(4, 4).add_system("s").add_user("seed").add_user("seed").add_user("seed"),
)

COUNTS = st.integers(0, 3)
HELP = next(command for command in BUILT_IN if command.name == "help")


class Machine(RuleBasedStateMachine):
    """Two chats: one that everything happens to, and one that may come to be the other."""

    chat: Chat
    other: Chat
    memory: ConversationMemory
    stale: Snapshot

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def new(self, name: str) -> str:
        self.count += 1
        return f"{name}{self.count}"

    @initialize(memory=st.sampled_from(MEMORIES))
    def begin(self, memory: ConversationMemory) -> None:
        self.memory = memory
        self.chat = Chat(self.new("e"))
        self.other = Chat(self.new("e"))
        self.stale = self.chat.snapshot

    def apply(self, change: Callable[[Snapshot], Snapshot]) -> bool:
        """Save what the change makes, having made it to an older snapshot in vain before."""
        before = self.chat.snapshot
        was = encode(before)
        change(self.stale)
        after = change(before)
        assert change(before) == after
        assert encode(before) == was
        if after is before:
            return False
        assert after != before
        self.stale = before
        self.chat.save(after)
        return True

    def unchanged(self, change: Callable[[Snapshot], Snapshot]) -> None:
        assert not self.apply(change)

    # what comes in

    @rule(group=st.booleans(), image=st.booleans())
    def accept(self, group: bool, image: bool) -> None:
        id = self.new("i")
        blocks = encode_blocks([{"type": "image"}] if image else [])
        message = inbound(id, group=group, blocks=blocks)
        full = len(self.chat.snapshot.inbox) >= INBOX_LIMIT
        assert self.apply(lambda snapshot: changes.accept(snapshot, message)) is not full
        if not full:
            self.chat.waiting[id] = [changes.said_by(message)]
            assert self.chat.snapshot.seen[-1] == id

    @rule()
    def accept_many(self) -> None:
        for _ in range(12):
            self.accept(False, False)

    @precondition(lambda self: self.chat.snapshot.seen)
    @rule(data=st.data())
    def accept_again(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(self.chat.snapshot.seen))
        self.unchanged(lambda snapshot: changes.accept(snapshot, inbound(id)))
        self.unchanged(lambda snapshot: changes.reply(snapshot, inbound(id), ["again"]))

    @rule(command=st.sampled_from(tuple(BUILT_IN)), parts=COUNTS)
    def command(self, command: Command, parts: int) -> None:
        id, epoch, before = self.new("c"), self.new("e"), self.chat.snapshot
        name = command.name
        bodies = [f"body {index}" for index in range(parts)]
        assert self.apply(
            lambda snapshot: changes.reply(
                command.outcome(snapshot, Call(name, inbound(id), epoch=epoch)).snapshot
                or snapshot,
                inbound(id),
                bodies,
            )
        )
        after, chat = self.chat.snapshot, self.chat
        if name == "reset":
            assert chat.undone == set()
            chat.waiting.clear()
            chat.said.clear()
            assert chat.rows == {}
            assert after.next_seq == before.next_seq
            assert set(after.seen) >= set(before.seen[1:])
            assert (after.inbox, after.turn, after.messages) == ((), None, ())
        elif name == "stop":
            taken = before.turn.taken if before.turn else list(chat.waiting)
            for each in taken:
                del chat.waiting[each]
            assert after.messages == before.messages
            if taken:
                assert [each.id for each in after.unanswered] == list(taken)
        elif name == "undo":
            taken = before.turn.taken if before.turn else list(chat.waiting)
            for id in taken:
                del chat.waiting[id]
            went = self.went(before, after)
            assert not (went and (taken or before.unanswered))
            assert after.unanswered == ()
        elif name == "retry":
            went = self.went(before, after)
            if before.turn or before.inbox:
                assert not went
                assert (after.turn, after.inbox) == (None, before.inbox)
                return
            assert not (went and before.unanswered)
            assert bool(after.inbox) == bool(went or before.unanswered)
            for again in after.inbox:
                words = [changes.said_by(again)] if again.text else spoken(again.blocks)
                chat.waiting[again.id] = words
            asked = [word for words in chat.waiting.values() for word in words]
            assert before.unanswered or asked == texts(row for row in went if row.role == "user")
        else:
            assert (after.messages, after.inbox) == (before.messages, before.inbox)

    def went(self, before: Snapshot, after: Snapshot) -> tuple[Message, ...]:
        """The exchange that was taken back, if one was; all of one is."""
        kept = len(after.messages)
        went = before.messages[kept:]
        assert after.messages == before.messages[:kept]
        if went:
            assert went[0].role == "user" and went[0].sender and went[-1].role == "assistant"
            if kept:
                assert before.messages[kept - 1].sender is None
            for row, then in pairwise(went):
                assert row.role == "user" or history.calls(row) or then.role == "assistant"
            lost = texts(row for row in went if row.role == "user")
            assert self.chat.said[len(self.chat.said) - len(lost) :] == lost
            del self.chat.said[len(self.chat.said) - len(lost) :]
            self.chat.undone |= set(seqs(went))
        return went

    @rule(turns=st.integers(1, 4))
    def converse(self, turns: int) -> None:
        for _ in range(turns):
            self.accept(False, False)
            self.start(True, False)
            if not self.open_calls():
                self.commit(1, 1, None)

    @rule()
    def many_commands(self) -> None:
        for _ in range(70):
            self.command(HELP, 0)

    # the turn

    @rule(one_by_one=st.booleans(), join=st.booleans())
    def start(self, one_by_one: bool, join: bool) -> None:
        execution, before = self.new("x"), self.chat.snapshot

        def change(snapshot: Snapshot) -> Snapshot:
            return changes.start(
                snapshot,
                execution=execution,
                now=0,
                memory=self.memory,
                one_by_one=one_by_one,
                join=join,
            )

        if not self.apply(change):
            assert not before.turn
            assert not before.inbox
            return
        after = self.chat.snapshot
        assert after.turn is not None
        assert after.turn.execution == execution
        self.chat.fences.append(fence_of(after))
        if before.turn is None:
            assert after.turn.attempt == 1
            assert after.turn.taken == tuple(self.chat.waiting)[: 1 if one_by_one else None]
            most = self.memory.max_messages
            assert most is None or len(after.rows) <= most
        else:
            assert after.turn.steps[: len(before.turn.steps)] == before.turn.steps
            joined = join and len(self.chat.waiting) > len(before.turn.taken)
            assert after.turn.attempt == (1 if joined else before.turn.attempt + 1)

    def open_calls(self) -> tuple[str, ...]:
        turn = self.chat.snapshot.turn
        return tuple(str(call["id"]) for call in history.calls(turn.steps[-1])) if turn else ()

    @precondition(lambda self: self.chat.snapshot.turn and not self.open_calls())
    @rule(calls=st.integers(1, 3), before=st.booleans())
    def answer_with_calls(self, calls: int, before: bool) -> None:
        ids = tuple(self.new("call") for _ in range(calls))
        blocks = [said("hm")] * before + [called(*ids)]
        fence = fence_of(self.chat.snapshot)
        assert self.apply(lambda snapshot: changes.answered(snapshot, fence, blocks, ids, 1))

    @precondition(lambda self: self.open_calls())
    @rule()
    def results(self) -> None:
        blocks, fence = given_back(*self.open_calls()), fence_of(self.chat.snapshot)
        assert self.apply(lambda snapshot: changes.results(snapshot, fence, blocks, 2))
        assert self.chat.snapshot.turn is not None
        assert self.chat.snapshot.turn.attempt == 1

    @precondition(lambda self: self.chat.snapshot.turn)
    @rule(ids=st.lists(st.sampled_from(["s1", "s2", "s3"]), unique=True))
    def show(self, ids: list[str]) -> None:
        fence = fence_of(self.chat.snapshot)
        self.apply(lambda snapshot: changes.shown(snapshot, fence, tuple(ids)))
        assert self.chat.snapshot.turn is not None
        assert self.chat.snapshot.turn.shown == tuple(ids)

    @precondition(lambda self: self.chat.snapshot.turn and not self.open_calls())
    @rule(answers=st.integers(1, 2), parts=st.integers(1, 3), shorten=st.none() | COUNTS)
    def commit(self, answers: int, parts: int, shorten: int | None) -> None:
        before = self.chat.snapshot
        assert before.turn is not None
        window = None
        if shorten is not None:
            beginnings = [
                before.messages[index].seq for index in history.exchanges(before.messages)
            ]
            window = [*beginnings, before.turn.first][-1 - shorten :][0]
        blocks = [said("answer")] * answers
        bodies = [f"body {index}" for index in range(parts)]
        fence = fence_of(before)
        assert self.apply(
            lambda snapshot: changes.commit(snapshot, fence, blocks, bodies, USAGE, 3, window)
        )
        for each in before.turn.taken:
            self.chat.said += self.chat.waiting.pop(each)
        after = self.chat.snapshot
        assert after.turn is None
        assert len(after.messages) >= len(before.turn.steps) + answers
        mine = [part for part in after.outbox if part.id.startswith(f"{fence.execution}.")]
        if not any(part.id.startswith(f"{fence.execution}.") for part in before.outbox):
            shown = before.turn.shown
            assert [part.body for part in mine] == bodies + [None] * (len(shown) - parts)
            assert [part.replaces for part in mine if part.replaces] == list(shown)

    @precondition(lambda self: self.chat.snapshot.turn)
    @rule()
    def apologise(self) -> None:
        before = self.chat.snapshot
        assert before.turn is not None
        fence = fence_of(before)
        assert self.apply(lambda snapshot: changes.apologise(snapshot, fence, ["sorry"]))
        for each in before.turn.taken:
            del self.chat.waiting[each]
        assert self.chat.snapshot.messages == before.messages

    @precondition(lambda self: self.chat.snapshot.turn)
    @rule()
    def postpone(self) -> None:
        before = self.chat.snapshot
        assert before.turn is not None
        fence = fence_of(before)
        # It ends a run: what it says is said once in it.
        bodies = [] if any(fence.execution in part.id for part in before.outbox) else ["no key"]
        assert self.apply(lambda snapshot: changes.postpone(snapshot, fence, bodies))
        self.start(False, False)
        assert self.chat.snapshot.turn is not None
        assert self.chat.snapshot.turn.attempt == before.turn.attempt

    @precondition(lambda self: self.chat.fences)
    @rule(data=st.data(), name=st.sampled_from(sorted(FENCED)))
    def fenced(self, data: st.DataObject, name: str) -> None:
        fence = data.draw(st.sampled_from(self.chat.fences))
        turn = self.chat.snapshot.turn
        if turn and turn.execution == fence.execution:
            fence = Fence(self.new("e"), fence.execution)
        self.unchanged(lambda snapshot: FENCED[name](snapshot, fence))

    @precondition(lambda self: not self.chat.snapshot.turn)
    @rule(with_tools=st.booleans())
    def append(self, with_tools: bool) -> None:
        text, call = self.new("session"), self.new("call")
        turn: list[tuple[Role, Raw]] = [("user", said(text)), ("assistant", said("answer"))]
        if with_tools:
            turn[1:1] = [("assistant", called(call)), ("user", given_back(call))]
        assert self.apply(lambda snapshot: changes.append(snapshot, turn, USAGE, 4, self.memory))
        self.chat.said.append(text)

    # what goes out

    @rule(
        change=st.sampled_from([outbox.sending, outbox.put_back, outbox.hold, outbox.fail]),
        data=st.data(),
    )
    def part(self, change: Callable[[Snapshot, str], Snapshot], data: st.DataObject) -> None:
        ids = [part.id for part in self.chat.snapshot.outbox]
        id = data.draw(st.sampled_from([*ids, "gone"]))
        self.apply(lambda snapshot: change(snapshot, id))

    @precondition(lambda self: self.chat.snapshot.next_part)
    @rule()
    def deliver(self) -> None:
        part = self.chat.snapshot.next_part
        assert part is not None
        assert self.apply(lambda snapshot: outbox.delivered(snapshot, part.id, ("m",)))
        self.unchanged(lambda snapshot: outbox.delivered(snapshot, part.id, ("m",)))
        after = self.chat.snapshot.next_part
        assert after is None or after.state == "sending"

    @rule()
    def gone(self) -> None:
        self.apply(outbox.gone)
        assert self.chat.snapshot.next_part is None

    # the other chat

    @rule()
    def turn_to_the_other(self) -> None:
        self.chat, self.other = self.other, self.chat

    @rule()
    def move(self) -> None:
        old, new = self.chat, self.other
        moved = changes.move(old.snapshot, new.snapshot, NEW_KEY)
        assert {each.key for each in moved.inbox} <= {NEW_KEY}
        kept = [part.id for part in old.snapshot.outbox if part.body is not None]
        assert [part.id for part in moved.outbox[: len(kept)]] == kept
        old.take_in(new, moved)
        self.other = Chat(self.new("e"))
        self.stale = old.snapshot

    # what is true of it at any time

    @invariant()
    def what_is_held_is_what_is_stored(self) -> None:
        chat, snapshot = self.chat, self.chat.snapshot
        stored = chat.in_history()
        assert list(snapshot.messages) == [row for row in stored if row.seq >= snapshot.window]
        steps = snapshot.turn.steps if snapshot.turn else ()
        used = [*seqs(stored), *seqs(steps), *chat.undone]
        assert sorted(chat.rows) == sorted(used), "no row without a use"
        assert max(chat.used, default=0) < snapshot.next_seq
        if snapshot.turn:
            first = snapshot.turn.first
            assert seqs(steps) == list(range(first, first + len(steps)))
            assert not stored or first > stored[-1].seq

    @invariant()
    def spans_are_apart_and_in_order(self) -> None:
        spans = self.chat.snapshot.spans
        ends = [seq for span in spans for seq in span]
        assert ends == sorted(ends)
        assert all(left[1] + 1 < right[0] for left, right in pairwise(spans))
        assert len(spans) <= 1 or self.chat.moved or self.chat.undone

    @invariant()
    def history_is_whole_turns(self) -> None:
        stored = self.chat.in_history()
        for row, after in pairwise([*stored, None]):
            calls = history.calls(row) if row else []
            if calls:
                assert after is not None
                results = decode_blocks(after.blocks)[: len(calls)]
                assert [each.get("tool_use_id") for each in results] == [c["id"] for c in calls]
        assert history.repair(stored) == tuple(stored)
        assert history.repair(self.chat.snapshot.messages) == self.chat.snapshot.messages
        people = [row for row in stored if row.role == "user"]
        assert [text for text in texts(people) if text != "seed"] == self.chat.said

    @invariant()
    def nothing_accepted_is_lost(self) -> None:
        chat, snapshot = self.chat, self.chat.snapshot
        assert [each.id for each in snapshot.inbox] == list(chat.waiting)
        assert len(snapshot.inbox) <= INBOX_LIMIT or chat.moved
        assert len(snapshot.seen) == len(set(snapshot.seen)) <= SEEN_LIMIT
        if snapshot.turn:
            assert snapshot.turn.taken
            assert set(snapshot.turn.taken) <= set(chat.waiting)
            assert snapshot.turn.attempt >= 1

    @invariant()
    def one_part_is_leaving_and_it_is_the_next(self) -> None:
        snapshot = self.chat.snapshot
        leaving = [part for part in snapshot.outbox if part.state == "sending"]
        if not self.chat.moved:
            assert leaving in ([], [snapshot.next_part])
            ids = [part.id for part in snapshot.outbox]
            assert len(ids) == len(set(ids))
        kept = [part for part in snapshot.outbox if part.state in ("held", "failed")]
        assert len(kept) <= outbox.KEPT_PARTS_LIMIT or self.chat.moved
        assert len(snapshot.sent) <= outbox.SENT_LIMIT


def test_any_changes_in_any_order() -> None:
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=60, stateful_step_count=40, deadline=None)
    )
