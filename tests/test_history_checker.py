"""The history checker, tested with logs that are wrong on purpose, and with right ones.

Each wrong log is a right one with one thing changed, so that what is found is that thing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from core import phrases
from core.turn import NO_ANSWER
from tests.history_checker import check, tell
from tests.history_log import (
    Accepted,
    Answered,
    Asked,
    Committed,
    Confirmed,
    Damaged,
    Delivered,
    Effect,
    Errored,
    FindingKind,
    Killed,
    LogEvent,
    Marked,
    Moved,
    Refused,
    Said,
    Sent,
    Stored,
    Undelivered,
    Unknown,
    Written,
    WrittenKind,
    marks_of,
    tokens_of,
)

A, B, G = "telegram-chat:1", "telegram-chat:2", "telegram-chat:-3"
STRANGER = "telegram-chat:9"


class Log:
    """Writes a log as a right program would make it, and lets a test do worse."""

    def __init__(self) -> None:
        self.events: list[LogEvent] = []
        self.life = 1
        self.turns: dict[str, list[Said]] = {}
        self._update = 100
        self._message = 0
        self._answer = 0
        self._before: dict[str, tuple[str, ...]] = {}

    def add(self, *events: LogEvent) -> None:
        self.events += events

    def write(
        self,
        chat: str,
        text: str = "",
        kind: WrittenKind = "message",
        *,
        confirm: bool = True,
        accept: bool = True,
        stranger: bool = False,
    ) -> int:
        self._update += 1
        update = self._update
        text = text or f"hello #m{update};"
        self.add(
            Written(chat=chat, update=update, text=text, kind=kind, stranger=stranger),
            Delivered(update=update),
        )
        if accept and not stranger:
            self.add(Accepted(chat=chat, update=update))
        if confirm:
            self.add(Confirmed(update=update))
        return update

    def command(self, chat: str, kind: WrittenKind) -> int:
        return self.write(chat, f"/{kind}", kind)

    def ask(self, chat: str, *updates: int) -> tuple[str, ...]:
        now = tuple(f"#m{update}" for update in updates)
        self.add(Asked(life=self.life, now=now, before=self._before.get(chat, ())))
        return now

    def answer(self, now: Sequence[str], pieces: int = 1) -> list[str]:
        """What the model says: as many parts as pieces."""
        self._answer += 1
        name = f"a{self._answer}"
        self.add(Answered(answer=name, tokens=tuple(now)))
        parts = [f"!{name}.{number}/{pieces}" for number in range(1, pieces + 1)]
        return [" ".join([*now, parts[0]]), *parts[1:]]

    def commit(self, chat: str, now: Sequence[str], parts: Sequence[str]) -> None:
        self.add(Committed(chat=chat, execution=f"x{self._answer}"))
        self.keep(chat, Said("user", " ".join(now)), Said("assistant", " ".join(parts)))
        self._before[chat] = (*self._before.get(chat, ()), *now)

    def keep(self, chat: str, *turn: Said) -> None:
        self.turns.setdefault(chat, []).extend(turn)

    def send(self, chat: str, text: str) -> int:
        self._message += 1
        self.add(Sent(life=self.life, chat=chat, message=self._message, text=text))
        return self._message

    def mark(self, chat: str, message: int) -> None:
        self.add(Marked(chat=chat, message=message, part=f"p{message}"))

    def say(self, chat: str, text: str) -> int:
        message = self.send(chat, text)
        self.mark(chat, message)
        return message

    def kill(self) -> None:
        self.add(Killed(life=self.life, point="sent"))
        self.life += 1

    def turn(self, chat: str, *updates: int, pieces: int = 1) -> list[str]:
        """From the question to the mark. The parts."""
        now = self.ask(chat, *updates)
        parts = self.answer(now, pieces)
        self.commit(chat, now, parts)
        for part in parts:
            self.say(chat, part)
        return parts

    def reset(self, chat: str) -> None:
        self.command(chat, "reset")
        self.say(chat, phrases.RESET)
        self.forget(chat)

    def forget(self, chat: str) -> None:
        self.turns[chat] = []
        self._before[chat] = ()

    def end(self, *, without: str = "") -> list[LogEvent]:
        """With everything stored; the whole log."""
        stored = [
            Stored(chat=chat, messages=tuple(turns))
            for chat, turns in self.turns.items()
            if chat != without
        ]
        return [*self.events, *stored]


def found(log: Sequence[LogEvent]) -> set[FindingKind]:
    return {finding.kind for finding in check(log)}


def assert_right(log: Sequence[LogEvent]) -> None:
    findings = check(log)
    assert not findings, tell(findings)


# ---------------------------------------------------------------------- right ones


def test_nothing_happened() -> None:
    assert check([]) == []


def test_turns_of_several_chats_interleaved() -> None:
    log = Log()
    first, second, third = log.write(A), log.write(B), log.write(A)
    log.turn(B, second)
    log.turn(A, first)
    log.turn(A, third, pieces=3)
    assert_right(log.end())


def test_messages_that_wait_are_answered_together() -> None:
    log = Log()
    log.turn(A, log.write(A), log.write(A), log.write(A), pieces=2)
    assert_right(log.end())


def test_neither_confirmed_nor_answered() -> None:
    log = Log()
    log.write(A, confirm=False, accept=False)
    assert_right(log.end())


def test_refused_and_told_so() -> None:
    log = Log()
    update = log.write(A, accept=False)
    log.add(Refused(chat=A, update=update))
    log.send(A, phrases.INBOX_FULL)
    assert_right(log.end())


def test_an_apology_is_a_reply() -> None:
    log = Log()
    log.ask(A, log.write(A))
    log.say(A, phrases.UNAVAILABLE)
    log.turn(A, log.write(A))
    log.ask(A, log.write(A))
    log.say(A, phrases.UNAVAILABLE)
    assert_right(log.end())


def test_one_apology_for_all_that_waited() -> None:
    log = Log()
    log.ask(A, log.write(A), log.write(A))
    log.say(A, phrases.INTERNAL)
    assert_right(log.end())


def test_a_turn_without_an_answer_is_history() -> None:
    log = Log()
    now = log.ask(A, log.write(A))
    log.keep(A, Said("user", " ".join(now)), Said("assistant", NO_ANSWER))
    log.say(A, NO_ANSWER)
    log.turn(A, log.write(A))
    assert_right(log.end())


def test_a_part_comes_twice_inside_the_window() -> None:
    log = Log()
    now = log.ask(A, log.write(A))
    first, second = log.answer(now, 2)
    log.commit(A, now, [first, second])
    log.send(A, first)
    log.kill()
    log.say(A, first)
    log.say(A, second)
    assert_right(log.end())


def test_a_part_comes_twice_after_an_unknown_outcome() -> None:
    log = Log()
    now = log.ask(A, log.write(A))
    (part,) = log.answer(now)
    log.commit(A, now, [part])
    log.add(Unknown(chat=A, message=log.send(A, part)))
    log.add(Unknown(chat=A, message=log.send(A, part)))
    log.say(A, part)
    assert_right(log.end())


def test_a_part_comes_twice_after_its_mark_failed() -> None:
    log = Log()
    now = log.ask(A, log.write(A))
    (part,) = log.answer(now)
    log.commit(A, now, [part])
    log.send(A, part)
    log.add(Errored(chat=A))
    log.say(A, part)
    assert_right(log.end())


def test_an_apology_comes_twice_inside_the_window() -> None:
    log = Log()
    log.ask(A, log.write(A))
    log.send(A, phrases.UNAVAILABLE)
    log.kill()
    log.say(A, phrases.UNAVAILABLE)
    assert_right(log.end())


def test_two_resets_of_which_neither_was_marked() -> None:
    """The second confirmation is no repeat of the first: something was said in between."""
    log = Log()
    log.command(A, "reset")
    log.send(A, phrases.RESET)
    log.kill()
    log.send(A, phrases.RESET)
    log.kill()
    log.ask(A, log.write(A))
    log.send(A, phrases.GAVE_UP)
    log.kill()
    log.command(A, "reset")
    log.say(A, phrases.RESET)
    assert_right(log.end())


def test_a_ghost_lands_late() -> None:
    """The request of a dead process arrives after all that its successor has said."""
    log = Log()
    now = log.ask(A, log.write(A))
    first, second = log.answer(now, 2)
    log.commit(A, now, [first, second])
    dead = log.life
    log.kill()
    log.say(A, first)
    log.say(A, second)
    log.turn(A, log.write(A))
    log.add(Sent(life=dead, chat=A, message=999, text=first))
    assert_right(log.end())


def test_the_model_is_asked_again_while_nothing_was_said() -> None:
    log = Log()
    update = log.write(A)
    log.ask(A, update)
    log.kill()
    log.answer(log.ask(A, update))
    log.kill()
    log.turn(A, update)
    assert_right(log.end())


def test_a_reset_takes_away_what_waits_and_what_is_unsent() -> None:
    log = Log()
    log.turn(A, log.write(A))
    log.ask(A, log.write(A))
    log.write(A)
    log.reset(A)
    log.turn(A, log.write(A))
    now = log.ask(A, log.write(A))
    first, _ = log.answer(now, 2)
    log.commit(A, now, [first])
    log.say(A, first)
    log.reset(A)
    log.reset(A)
    assert_right(log.end())


def test_a_stop_ends_what_is_being_answered() -> None:
    log = Log()
    log.turn(A, log.write(A))
    log.ask(A, log.write(A))
    waiting = log.write(A)
    log.command(A, "stop")
    log.say(A, phrases.STOPPED)
    log.turn(A, waiting, log.write(A))
    log.command(A, "stop")
    log.say(A, phrases.NOTHING_TO_STOP)
    assert_right(log.end())


def test_other_commands_are_answered_whenever() -> None:
    log = Log()
    update = log.write(A)
    log.command(A, "command")
    log.say(A, phrases.HELP)
    log.turn(A, update)
    assert_right(log.end())


def test_strangers_cost_nothing() -> None:
    log = Log()
    log.write(STRANGER, stranger=True)
    log.write(STRANGER, "/id", "command", stranger=True)
    log.send(STRANGER, phrases.STRANGER.format(id="telegram:9"))
    log.write(G, stranger=True)
    log.turn(G, log.write(G))
    assert_right(log.end())


def test_what_the_program_says_it_could_not_send() -> None:
    log = Log()
    now = log.ask(A, log.write(A))
    parts = log.answer(now, 2)
    log.commit(A, now, parts)
    log.say(A, parts[0])
    log.add(Undelivered(chat=A))
    assert_right(log.end())


def test_a_group_moves() -> None:
    log = Log()
    log.turn(G, log.write(G))
    before = log.write(G)
    log.add(Moved(old=G, new=B))
    log.turns[B] = log.turns.pop(G)
    log._before[B] = log._before[G]
    log.turn(B, before, log.write(B))
    assert_right(log.end())


def tooled(log: Log, result: str = "noted", effects: int = 1) -> None:
    update = log.write(A)
    now = log.ask(A, update)
    log.add(*[Effect(token=now[0])] * effects)
    log.ask(A, update)
    (part,) = log.answer(now)
    part = f"{part} {result} {now[0]}"
    log.add(Committed(chat=A, execution="x"))
    log.keep(
        A,
        Said("user", " ".join(now)),
        Said("assistant", "", calls=("c1", "c2")),
        Said("user", "", results=("c2", "c1")),
        Said("assistant", part),
    )
    log.say(A, part)


def test_a_turn_with_tools() -> None:
    log = Log()
    tooled(log)
    assert_right(log.end())


def test_an_interrupted_tool_has_worked_or_not() -> None:
    for effects in (0, 1):
        log = Log()
        tooled(log, "interrupted", effects)
        assert_right(log.end())


def test_the_log_can_be_kept_and_read_again() -> None:
    log = Log()
    tooled(log)
    log.kill()
    kept = [msgspec.json.encode(event) for event in log.end()]
    assert [msgspec.json.decode(line, type=LogEvent) for line in kept] == log.end()


# ---------------------------------------------------------------------- wrong ones


def unanswered(log: Log) -> None:
    log.ask(A, log.write(A))


def unanswered_but_confirmed_only(log: Log) -> None:
    log.write(A, accept=False)


def unanswered_but_accepted_only(log: Log) -> None:
    log.write(A, confirm=False)


def committed_but_not_sent(log: Log) -> None:
    now = log.ask(A, log.write(A))
    log.commit(A, now, log.answer(now))


def one_of_several_skipped(log: Log) -> None:
    log.write(A)
    log.turn(A, log.write(A))


def a_reset_without_reply(log: Log) -> None:
    log.command(A, "reset")
    log.forget(A)


def nothing_to_stop_though_one_waited(log: Log) -> None:
    log.write(A)
    log.command(A, "stop")
    log.say(A, phrases.NOTHING_TO_STOP)


def marked_but_not_sent(log: Log) -> None:
    log.turn(A, log.write(A))
    log.mark(A, 999)


def something_is_left_to_do(log: Log) -> None:
    log.turn(A, log.write(A))
    log.add(Stored(chat=A, messages=tuple(log.turns.pop(A)), unfinished=True))


def the_conversation_is_given_up(log: Log) -> None:
    log.turn(A, log.write(A))
    log.say(A, phrases.UNREADABLE)


def an_effect_is_claimed(log: Log) -> None:
    tooled(log, effects=0)


def sent_twice_without_a_reason(log: Log) -> None:
    (part,) = log.turn(A, log.write(A))
    log.say(A, part)


def sent_twice_unmarked_without_a_reason(log: Log) -> None:
    now = log.ask(A, log.write(A))
    (part,) = log.answer(now)
    log.commit(A, now, [part])
    log.send(A, part)
    log.say(A, part)


def sent_twice_after_its_mark(log: Log) -> None:
    (part,) = log.turn(A, log.write(A))
    log.kill()
    log.say(A, part)


def sent_again_after_a_kill_before_it(log: Log) -> None:
    now = log.ask(A, log.write(A))
    (part,) = log.answer(now)
    log.commit(A, now, [part])
    log.kill()
    log.send(A, part)
    log.say(A, part)


def sent_again_for_another_chats_error(log: Log) -> None:
    now = log.ask(A, log.write(A))
    (part,) = log.answer(now)
    log.commit(A, now, [part])
    log.send(A, part)
    log.add(Errored(chat=B))
    log.say(A, part)


def sent_again_for_another_parts_unknown_outcome(log: Log) -> None:
    now = log.ask(A, log.write(A))
    first, second = log.answer(now, 2)
    log.commit(A, now, [first, second])
    log.add(Unknown(chat=A, message=log.send(A, first)))
    log.say(A, first)
    log.say(A, second)
    log.say(A, first)


def sent_thrice_with_one_reason(log: Log) -> None:
    now = log.ask(A, log.write(A))
    (part,) = log.answer(now)
    log.commit(A, now, [part])
    log.add(Unknown(chat=A, message=log.send(A, part)))
    log.send(A, part)
    log.say(A, part)


def sent_again_after_what_follows_it(log: Log) -> None:
    now = log.ask(A, log.write(A))
    first, second = log.answer(now, 2)
    log.commit(A, now, [first, second])
    log.send(A, first)
    log.say(A, second)
    log.kill()
    log.say(A, first)


def answered_twice_in_other_words(log: Log) -> None:
    update = log.write(A)
    log.turn(A, update)
    log.kill()
    now = (f"#m{update}",)
    log.say(A, log.answer(now)[0])


def asked_again_after_the_answer(log: Log) -> None:
    update = log.write(A)
    log.turn(A, update)
    log.add(Asked(life=log.life, now=(f"#m{update}",)))


def committed_twice(log: Log) -> None:
    log.turn(A, log.write(A))
    log.add(Committed(chat=A, execution="x1"))


def an_effect_twice(log: Log) -> None:
    tooled(log, effects=2)


def a_reset_confirmed_twice(log: Log) -> None:
    log.reset(A)
    log.say(A, phrases.RESET)


def a_message_stored_twice(log: Log) -> None:
    log.turn(A, log.write(A))
    log.turns[A] *= 2


def apologised_and_answered(log: Log) -> None:
    update = log.write(A)
    log.say(A, phrases.INTERNAL)
    log.turn(A, log.write(A))
    log.turn(A, update)


def second_first(log: Log) -> None:
    first, second = log.write(A), log.write(A)
    log.turn(A, second)
    log.turn(A, first)


def parts_exchanged(log: Log) -> None:
    now = log.ask(A, log.write(A))
    parts = log.answer(now, 3)
    log.commit(A, now, parts)
    for index in (0, 2, 1):
        log.say(A, parts[index])


def stored_in_another_order(log: Log) -> None:
    log.turn(A, log.write(A))
    log.turn(A, log.write(A))
    log.turns[A] = [*log.turns[A][2:], *log.turns[A][:2]]


def asked_in_another_order(log: Log) -> None:
    first, second = log.write(A), log.write(A)
    log.add(Asked(life=log.life, now=(f"#m{second}", f"#m{first}")))
    log.turn(A, first, second)


def the_model_never_said_it(log: Log) -> None:
    update = log.write(A)
    log.turn(A, update)
    log.say(A, f"#m{update} !zz.1/1")


def nobody_asked(log: Log) -> None:
    log.say(A, log.answer(["#nobody"])[0])


def an_apology_for_nothing(log: Log) -> None:
    log.turn(A, log.write(A))
    log.say(A, phrases.INTERNAL)


def one_apology_too_many(log: Log) -> None:
    log.write(A)
    log.say(A, phrases.UNAVAILABLE)
    log.say(A, phrases.UNAVAILABLE)


def a_reset_that_nobody_wrote(log: Log) -> None:
    log.turn(A, log.write(A))
    log.say(A, phrases.RESET)


def a_refusal_of_nothing(log: Log) -> None:
    log.turn(A, log.write(A))
    log.say(A, phrases.INBOX_FULL)


def words_of_a_person(log: Log) -> None:
    update = log.write(A)
    log.turn(A, update)
    log.say(A, f"you said #m{update}")


def an_effect_for_nobody(log: Log) -> None:
    log.add(Effect(token="#nobody"))


def a_command_reaches_the_model(log: Log) -> None:
    log.write(A, "/help #m101;", "command")
    log.say(A, phrases.HELP)
    log.say(A, log.answer(["#m101"])[0])


def said_in_another_chat(log: Log) -> None:
    log.turn(B, log.write(B))
    now = log.ask(A, log.write(A))
    (part,) = log.answer(now)
    log.commit(A, now, [part])
    log.say(B, part)


def asked_with_words_of_another_chat(log: Log) -> None:
    first, second = log.write(A), log.write(B)
    log.turn(A, first)
    log.add(Asked(life=log.life, before=(f"#m{first}",), now=(f"#m{second}",)))
    log.turn(B, second)


def stored_in_another_chat(log: Log) -> None:
    log.turn(A, log.write(A))
    log.turn(B, log.write(B))
    log.turns[B] += log.turns[A]


def only_the_first_part(log: Log) -> None:
    now = log.ask(A, log.write(A))
    parts = log.answer(now, 3)
    log.commit(A, now, parts)
    log.say(A, parts[0])


def a_part_is_missing(log: Log) -> None:
    now = log.ask(A, log.write(A))
    parts = log.answer(now, 3)
    log.commit(A, now, parts)
    log.say(A, parts[0])
    log.say(A, parts[2])


def only_the_last_part(log: Log) -> None:
    update = log.write(A)
    parts = log.answer([f"#m{update}"], 2)
    log.say(A, parts[1])


def a_token_is_dropped_from_the_answer(log: Log) -> None:
    now = log.ask(A, log.write(A), log.write(A))
    (part,) = log.answer(now)
    log.commit(A, now, [part])
    log.say(A, part.removeprefix(now[0]))


def the_last_turn_has_no_answer(log: Log) -> None:
    log.turn(A, log.write(A))
    log.turns[A].pop()


def a_call_without_its_result(log: Log) -> None:
    tooled(log)
    del log.turns[A][2]


def a_turn_ends_with_a_call(log: Log) -> None:
    tooled(log)
    del log.turns[A][2:]


def it_begins_with_an_answer(log: Log) -> None:
    log.turn(A, log.write(A))
    del log.turns[A][0]


def the_stored_answer_is_shorter(log: Log) -> None:
    log.turn(A, log.write(A), pieces=2)
    question, answer = log.turns[A]
    log.turns[A] = [question, Said("assistant", answer.text.rpartition(" ")[0])]


def stored_with_half_the_question(log: Log) -> None:
    log.turn(A, log.write(A), log.write(A))
    question, answer = log.turns[A]
    log.turns[A] = [Said("user", question.text.split()[0]), answer]


def said_but_not_stored(log: Log) -> None:
    log.turn(A, log.write(A))
    log.turn(A, log.write(A))
    del log.turns[A][:2]


def a_stranger_is_answered(log: Log) -> None:
    update = log.write(STRANGER, stranger=True)
    log.say(STRANGER, log.answer([f"#m{update}"])[0])


def a_stranger_in_a_group_is_answered(log: Log) -> None:
    stranger = log.write(G, stranger=True)
    log.turn(G, log.write(G))
    log.say(G, log.answer([f"#m{stranger}"])[0])


def a_stranger_is_in_the_prompt(log: Log) -> None:
    stranger = log.write(G, stranger=True)
    update = log.write(G)
    log.add(Asked(life=log.life, before=(f"#m{stranger}",), now=(f"#m{update}",)))
    log.turn(G, update)


def a_stranger_is_accepted(log: Log) -> None:
    update = log.write(STRANGER, stranger=True)
    log.add(Accepted(chat=STRANGER, update=update))


def a_stranger_is_stored(log: Log) -> None:
    log.write(STRANGER, stranger=True)
    log.add(Stored(chat=STRANGER, messages=()))


def a_stranger_is_refused_aloud(log: Log) -> None:
    log.write(STRANGER, stranger=True)
    log.send(STRANGER, phrases.TOO_FAST)


def a_stranger_moves_the_world(log: Log) -> None:
    update = log.write(STRANGER, stranger=True)
    log.add(Effect(token=f"#m{update}"))


def answered_after_the_reset(log: Log) -> None:
    update = log.write(A)
    now = log.ask(A, update)
    (part,) = log.answer(now)
    log.reset(A)
    log.say(A, part)


def asked_after_the_reset(log: Log) -> None:
    old = log.write(A)
    log.turn(A, old)
    log.reset(A)
    new = log.write(A)
    log.add(Asked(life=log.life, before=(f"#m{old}",), now=(f"#m{new}",)))
    log.turn(A, new)


def still_stored_after_the_reset(log: Log) -> None:
    log.turn(A, log.write(A))
    kept = list(log.turns[A])
    log.reset(A)
    log.turn(A, log.write(A))
    log.turns[A] = [*kept, *log.turns[A]]


def answered_after_the_stop(log: Log) -> None:
    now = log.ask(A, log.write(A))
    (part,) = log.answer(now)
    log.command(A, "stop")
    log.say(A, phrases.STOPPED)
    log.commit(A, now, [part])
    log.say(A, part)


def asked_after_the_stop(log: Log) -> None:
    update = log.write(A)
    log.ask(A, update)
    log.command(A, "stop")
    log.say(A, phrases.STOPPED)
    log.ask(A, update)


def the_database_is_broken(log: Log) -> None:
    log.add(Damaged(what="row 7 missing from index"))


WRONG: list[tuple[FindingKind, Callable[[Log], None]]] = [
    ("lost", unanswered),
    ("lost", unanswered_but_confirmed_only),
    ("lost", unanswered_but_accepted_only),
    ("lost", committed_but_not_sent),
    ("lost", one_of_several_skipped),
    ("lost", a_reset_without_reply),
    ("lost", nothing_to_stop_though_one_waited),
    ("lost", marked_but_not_sent),
    ("lost", something_is_left_to_do),
    ("lost", the_conversation_is_given_up),
    ("lost", an_effect_is_claimed),
    ("duplicated", sent_twice_without_a_reason),
    ("duplicated", sent_twice_unmarked_without_a_reason),
    ("duplicated", sent_twice_after_its_mark),
    ("duplicated", sent_again_after_a_kill_before_it),
    ("duplicated", sent_again_for_another_chats_error),
    ("duplicated", sent_again_for_another_parts_unknown_outcome),
    ("duplicated", sent_thrice_with_one_reason),
    ("duplicated", sent_again_after_what_follows_it),
    ("duplicated", answered_twice_in_other_words),
    ("duplicated", asked_again_after_the_answer),
    ("duplicated", committed_twice),
    ("duplicated", an_effect_twice),
    ("duplicated", a_reset_confirmed_twice),
    ("duplicated", a_message_stored_twice),
    ("duplicated", apologised_and_answered),
    ("reordered", second_first),
    ("reordered", parts_exchanged),
    ("reordered", stored_in_another_order),
    ("reordered", asked_in_another_order),
    ("invented", the_model_never_said_it),
    ("invented", nobody_asked),
    ("invented", an_apology_for_nothing),
    ("invented", one_apology_too_many),
    ("invented", a_reset_that_nobody_wrote),
    ("invented", a_refusal_of_nothing),
    ("invented", words_of_a_person),
    ("invented", an_effect_for_nobody),
    ("invented", a_command_reaches_the_model),
    ("foreign", said_in_another_chat),
    ("foreign", asked_with_words_of_another_chat),
    ("foreign", stored_in_another_chat),
    ("half", only_the_first_part),
    ("half", a_part_is_missing),
    ("half", only_the_last_part),
    ("half", a_token_is_dropped_from_the_answer),
    ("half", the_last_turn_has_no_answer),
    ("half", a_call_without_its_result),
    ("half", a_turn_ends_with_a_call),
    ("half", it_begins_with_an_answer),
    ("half", the_stored_answer_is_shorter),
    ("half", stored_with_half_the_question),
    ("half", said_but_not_stored),
    ("stranger", a_stranger_is_answered),
    ("stranger", a_stranger_in_a_group_is_answered),
    ("stranger", a_stranger_is_in_the_prompt),
    ("stranger", a_stranger_is_accepted),
    ("stranger", a_stranger_is_stored),
    ("stranger", a_stranger_is_refused_aloud),
    ("stranger", a_stranger_moves_the_world),
    ("after reset", answered_after_the_reset),
    ("after reset", asked_after_the_reset),
    ("after reset", still_stored_after_the_reset),
    ("after stop", answered_after_the_stop),
    ("after stop", asked_after_the_stop),
    ("damaged", the_database_is_broken),
]


@pytest.mark.parametrize(("kind", "wrong"), WRONG, ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_wrong_is_found(kind: FindingKind, wrong: Callable[[Log], None]) -> None:
    log = Log()
    wrong(log)
    findings = check(log.end())
    assert kind in {finding.kind for finding in findings}, tell(findings)


def test_a_finding_shows_its_events() -> None:
    log = Log()
    unanswered(log)
    (finding,) = check(log.end())
    assert finding.chat == A
    assert [type(event) for event in finding.events] == [Written]
    assert "lost telegram-chat:1: no reply" in tell([finding])


# ---------------------------------------------------------------------- any right log


@st.composite
def right(draw: st.DrawFn, certain: int = 0) -> list[LogEvent]:
    """A run of several chats, with what may happen in one.

    :param certain: how many answers each chat has at the least
    """
    log = Log()
    chats = [A, B, G][: draw(st.integers(2, 3))]
    waiting: dict[str, list[int]] = {chat: [] for chat in chats}
    steps = ("write", "write", "turn", "kill", "apology", "reset", "stop", "stranger", "unknown")
    for _ in range(draw(st.integers(1, 25))):
        chat = draw(st.sampled_from(chats))
        _step(draw, log, chat, waiting, draw(st.sampled_from(steps)))
    for chat in chats:
        if waiting[chat]:
            log.turn(chat, *waiting[chat])
        for _ in range(certain):
            log.turn(chat, log.write(chat))
    return log.end()


def _step(draw: st.DrawFn, log: Log, chat: str, waiting: dict[str, list[int]], step: str) -> None:
    mine = waiting[chat]
    if step == "write":
        mine.append(log.write(chat))
    elif step == "kill":
        log.kill()
    elif step == "stranger":
        log.write(chat, stranger=True)
    elif step == "reset":
        log.reset(chat)
        mine.clear()
    elif step == "stop":
        if mine:
            log.ask(chat, *mine)
        log.command(chat, "stop")
        log.say(chat, phrases.STOPPED if mine else phrases.NOTHING_TO_STOP)
        mine.clear()
    elif not mine:
        return
    elif step == "apology":
        log.ask(chat, *mine)
        log.say(chat, phrases.UNAVAILABLE)
        mine.clear()
    else:
        taken = mine[: draw(st.integers(1, len(mine)))]
        del mine[: len(taken)]
        _turn(draw, log, chat, taken, unknown=step == "unknown")


def _turn(draw: st.DrawFn, log: Log, chat: str, taken: list[int], *, unknown: bool) -> None:
    now = log.ask(chat, *taken)
    parts = log.answer(now, draw(st.integers(1, 3)))
    log.commit(chat, now, parts)
    for part in parts:
        if unknown and draw(st.booleans()):
            message = log.send(chat, part)
            if draw(st.booleans()):
                log.kill()
            else:
                log.add(Unknown(chat=chat, message=message))
        log.say(chat, part)


@given(right())
def test_right_logs_are_right(log: list[LogEvent]) -> None:
    assert_right(log)


def _answers(log: Sequence[LogEvent]) -> list[int]:
    """Where the answers are that came once."""
    texts = [event.text for event in log if isinstance(event, Sent)]
    return [
        place
        for place, event in enumerate(log)
        if isinstance(event, Sent) and marks_of(event.text) and texts.count(event.text) == 1
    ]


def _spoil(
    data: st.DataObject, log: list[LogEvent], spoil: Callable[[list[LogEvent], int], None]
) -> set[FindingKind]:
    spoil(log, data.draw(st.sampled_from(_answers(log))))
    return found(log)


@given(st.data(), right(certain=1))
def test_a_reply_that_is_dropped_is_missed(data: st.DataObject, log: list[LogEvent]) -> None:
    def drop(events: list[LogEvent], place: int) -> None:
        del events[place]

    assert _spoil(data, log, drop)


@given(st.data(), right(certain=1))
def test_a_reply_that_is_doubled_is_seen(data: st.DataObject, log: list[LogEvent]) -> None:
    def double(events: list[LogEvent], place: int) -> None:
        sent = events[place]
        assert isinstance(sent, Sent)
        later = data.draw(st.integers(place + 1, len(events)))
        dead = [event.life for event in events[:later] if isinstance(event, Killed)]
        assume(sent.life not in dead)
        events.insert(later, msgspec.structs.replace(sent, message=9_999))

    assert "duplicated" in _spoil(data, log, double)


@given(st.data(), right(certain=2))
def test_replies_that_are_swapped_are_seen(data: st.DataObject, log: list[LogEvent]) -> None:
    def swap(events: list[LogEvent], place: int) -> None:
        one = events[place]
        assert isinstance(one, Sent)
        others = [
            other
            for other in _answers(events)
            if other != place and _chat(events[other]) == one.chat
        ]
        where = data.draw(st.sampled_from(others))
        other = events[where]
        assert isinstance(other, Sent)
        events[place] = msgspec.structs.replace(one, text=other.text)
        events[where] = msgspec.structs.replace(other, text=one.text)

    assert _spoil(data, log, swap)


@given(st.data(), right(certain=1))
def test_a_reply_in_another_chat_is_seen(data: st.DataObject, log: list[LogEvent]) -> None:
    def move(events: list[LogEvent], place: int) -> None:
        sent = events[place]
        assert isinstance(sent, Sent)
        # A later part has no token; who it is for is known by its answer.
        events[place] = msgspec.structs.replace(sent, chat=B if sent.chat == A else A)

    # A chat in which only strangers wrote hears nothing at all.
    assert _spoil(data, log, move) & {"foreign", "stranger"}


@given(st.data(), right(certain=1))
def test_a_stored_turn_that_is_dropped_is_missed(data: st.DataObject, log: list[LogEvent]) -> None:
    places = [n for n, e in enumerate(log) if isinstance(e, Stored) and e.messages]
    place = data.draw(st.sampled_from(places))
    stored = log[place]
    assert isinstance(stored, Stored)
    cut = data.draw(st.integers(0, len(stored.messages) - 1))
    left = (*stored.messages[:cut], *stored.messages[cut + 1 :])
    log[place] = msgspec.structs.replace(stored, messages=left)
    assert "half" in found(log)


def _chat(event: LogEvent) -> str:
    assert isinstance(event, Sent)
    return event.chat


def test_tokens_and_marks() -> None:
    assert tokens_of("plain #t1;note #t2; #t1") == ("#t1", "#t2")
    assert [tuple(mark) for mark in marks_of("x !a1.2/3 y !a1.3/3")] == [("a1", 2, 3), ("a1", 3, 3)]
