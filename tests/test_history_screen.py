"""Answers that grow on the screen, for the history checker: right logs, and ones that are wrong on
purpose. Each wrong log is a right one with one thing changed.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from core import phrases
from tests.history_checker import check, tell
from tests.history_log import (
    Answered,
    Deleted,
    Drafted,
    Edited,
    FindingKind,
    LogEvent,
    Noted,
    Sent,
    Unknown,
)
from tests.history_screen import Screen
from tests.test_history_checker import STRANGER, A, G, Log, assert_right

PIECES = 4


class Growing(Log):
    """A log in which one answer grows in a group."""

    def __init__(self) -> None:
        super().__init__()
        self.now: tuple[str, ...] = ()

    def begin(self, chat: str = G) -> list[str]:
        """Somebody asks, the model begins to answer: what the message says as it grows."""
        self.now = self.ask(chat, self.write(chat))
        return self.grow()

    def grow(self) -> list[str]:
        self._answer += 1
        name = f"a{self._answer}"
        self.add(Answered(answer=name, tokens=self.now, grows=True))
        marks = [f"!{name}.{number}/{PIECES}" for number in range(1, PIECES + 1)]
        return [" ".join([*self.now, *marks[:upto]]) for upto in range(1, PIECES + 1)]

    def edit(self, chat: str, message: int, text: str) -> None:
        self.add(Edited(life=self.life, chat=chat, message=message, text=text))

    def delete(self, chat: str, message: int) -> None:
        self.add(Deleted(life=self.life, chat=chat, message=message))

    def finish(self, chat: str, message: int, text: str) -> None:
        """From the commit to the mark."""
        self.commit(chat, self.now, [text])
        self.edit(chat, message, text)
        self.mark(chat, message)

    def left(self) -> int:
        return len(Screen(self.events).left)


# ---------------------------------------------------------------------- right ones


def test_it_grows_and_is_finished() -> None:
    log = Growing()
    first, second, _, whole = log.begin()
    message = log.send(G, first)
    log.edit(G, message, second)
    log.finish(G, message, whole)
    log.turn(G, log.write(G))
    assert_right(log.end())


def test_it_is_finished_by_who_comes_after_a_kill() -> None:
    log = Growing()
    first, second, _, _ = log.begin()
    message = log.send(G, first)
    log.edit(G, message, second)
    log.kill()
    log.add(Noted(chat=G, message=message))
    log.add(*_asked_again(log))
    *_, whole = log.grow()
    log.finish(G, message, whole)
    assert_right(log.end())
    assert log.left() == 0


def test_it_is_left_behind_by_a_kill_before_its_note() -> None:
    log = Growing()
    first, *_ = log.begin()
    log.send(G, first)
    log.kill()
    log.add(*_asked_again(log))
    begun, *_, whole = log.grow()
    message = log.send(G, begun)
    log.finish(G, message, whole)
    assert_right(log.end())
    assert log.left() == 1


def test_it_is_left_behind_whole_by_a_kill_before_its_note() -> None:
    log = Growing()
    *_, whole = log.begin()
    log.send(G, whole)
    log.kill()
    log.add(*_asked_again(log))
    *_, again = log.grow()
    log.commit(G, log.now, [again])
    log.say(G, again)
    assert_right(log.end())
    assert log.left() == 1


def test_nobody_knows_whether_it_began() -> None:
    log = Growing()
    first, *_, whole = log.begin()
    log.add(Unknown(chat=G, message=log.send(G, first)))
    log.commit(G, log.now, [whole])
    log.say(G, whole)
    assert_right(log.end())


def test_a_stop_takes_it_back() -> None:
    log = Growing()
    first, second, *_ = log.begin()
    message = log.send(G, first)
    log.edit(G, message, second)
    log.command(G, "stop")
    log.delete(G, message)
    log.say(G, phrases.STOPPED)
    assert_right(log.end())


def test_a_dead_process_still_edits() -> None:
    log = Growing()
    first, second, _, whole = log.begin()
    message = log.send(G, first)
    log.edit(G, message, second)
    dead = log.life
    log.kill()
    log.add(*_asked_again(log))
    log.finish(G, message, whole)
    log.add(Edited(life=dead, chat=G, message=message, text=second))
    assert_right(log.end())


def test_a_draft_is_shown_and_fades() -> None:
    log = Growing()
    first, *_, whole = log.begin(A)
    log.add(Drafted(life=log.life, chat=A, text=first))
    log.commit(A, log.now, [whole])
    log.say(A, whole)
    assert_right(log.end())


def _asked_again(log: Growing) -> list[LogEvent]:
    before = len(log.events)
    log.ask(G, *(int(token[2:]) for token in log.now))
    events = log.events[before:]
    del log.events[before:]
    return events


# ---------------------------------------------------------------------- wrong ones


def never_finished(log: Growing) -> None:
    first, second, _, _ = log.begin()
    message = log.send(G, first)
    log.edit(G, message, second)


def left_behind_though_nobody_died(log: Growing) -> None:
    first, *_, whole = log.begin()
    log.send(G, first)
    log.commit(G, log.now, [whole])
    log.say(G, whole)


def left_behind_though_it_was_noted(log: Growing) -> None:
    first, *_ = log.begin()
    message = log.send(G, first)
    log.kill()
    log.add(Noted(chat=G, message=message), *_asked_again(log))
    *_, whole = log.grow()
    log.commit(G, log.now, [whole])
    log.say(G, whole)


def left_behind_though_it_was_edited(log: Growing) -> None:
    first, second, _, _ = log.begin()
    log.edit(G, log.send(G, first), second)
    log.kill()
    log.add(*_asked_again(log))
    *_, whole = log.grow()
    log.commit(G, log.now, [whole])
    log.say(G, whole)


def left_behind_by_one_who_died_later(log: Growing) -> None:
    first, *_, whole = log.begin()
    log.send(G, first)
    log.commit(G, log.now, [whole])
    log.say(G, whole)
    log.kill()


def finished_and_said_once_more(log: Growing) -> None:
    first, *_, whole = log.begin()
    message = log.send(G, first)
    log.finish(G, message, whole)
    log.say(G, whole)


def said_once_more_after_a_kill_though_it_can_be_edited(log: Growing) -> None:
    first, *_, whole = log.begin()
    message = log.send(G, first)
    log.commit(G, log.now, [whole])
    log.edit(G, message, whole)
    log.kill()
    log.say(G, whole)


def said_is_deleted(log: Growing) -> None:
    first, *_, whole = log.begin()
    message = log.send(G, first)
    log.finish(G, message, whole)
    log.delete(G, message)


def edited_into_words_of_another_chat(log: Growing) -> None:
    first, *_, whole = log.begin()
    theirs = log.turn(A, log.write(A))[0]
    message = log.send(G, first)
    log.edit(G, message, theirs)
    log.finish(G, message, whole)


def a_draft_in_another_chat(log: Growing) -> None:
    first, *_, whole = log.begin()
    log.turn(A, log.write(A))
    log.add(Drafted(life=log.life, chat=A, text=first))
    log.finish(G, log.send(G, first), whole)


def a_draft_of_what_nobody_wrote(log: Growing) -> None:
    log.begin()
    log.finish(G, log.send(G, "!a1.1/4"), log.grow()[-1])
    log.add(Drafted(life=log.life, chat=G, text="#nobody !a1.1/4"))


def a_stranger_sees_a_draft(log: Growing) -> None:
    update = log.write(STRANGER, stranger=True)
    log.add(Drafted(life=log.life, chat=STRANGER, text=f"#m{update} !a1.1/4"))


def shown_after_the_reset(log: Growing) -> None:
    first, second, *_ = log.begin()
    message = log.send(G, first)
    log.edit(G, message, second)
    log.reset(G)
    log.edit(G, message, second)
    log.delete(G, message)


def shown_after_the_stop(log: Growing) -> None:
    first, second, *_ = log.begin(A)
    log.command(A, "stop")
    log.say(A, phrases.STOPPED)
    log.add(Drafted(life=log.life, chat=A, text=second or first))


def edited_out_of_nothing(log: Growing) -> None:
    *_, whole = log.begin()
    log.commit(G, log.now, [whole])
    log.say(G, whole)
    log.edit(G, 999, whole)


WRONG: list[tuple[FindingKind, Callable[[Growing], None]]] = [
    ("half", never_finished),
    ("half", left_behind_though_nobody_died),
    ("half", left_behind_though_it_was_noted),
    ("half", left_behind_though_it_was_edited),
    ("half", left_behind_by_one_who_died_later),
    ("duplicated", finished_and_said_once_more),
    ("duplicated", said_once_more_after_a_kill_though_it_can_be_edited),
    ("lost", said_is_deleted),
    ("foreign", edited_into_words_of_another_chat),
    ("foreign", a_draft_in_another_chat),
    ("invented", a_draft_of_what_nobody_wrote),
    ("invented", edited_out_of_nothing),
    ("stranger", a_stranger_sees_a_draft),
    ("after reset", shown_after_the_reset),
    ("after stop", shown_after_the_stop),
]


@pytest.mark.parametrize(("kind", "wrong"), WRONG, ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_wrong_is_found(kind: FindingKind, wrong: Callable[[Growing], None]) -> None:
    log = Growing()
    wrong(log)
    findings = check(log.end())
    assert kind in {finding.kind for finding in findings}, tell(findings)


def test_a_send_that_does_not_grow_is_as_it_was() -> None:
    log = Log()
    log.turn(A, log.write(A), pieces=2)
    screen = Screen(log.events)
    assert [sent for _, sent in screen.sends] == [e for e in log.events if isinstance(e, Sent)]
    assert not screen.glimpses
