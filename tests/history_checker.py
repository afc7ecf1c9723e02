"""The history checker: reads the log of one run, and names everything in it that breaks a promise.

Lost, duplicated, reordered, invented and foreign replies, half turns, what a reset or a stop should
have ended, and every effect of a stranger. It is pure: it starts nothing, waits for nothing and
asks nobody; what it knows is the log.

It needs a run in which words can be followed. Each message of a person holds a token of its own
(``#k3f9``). Each answer of the model begins with all tokens of what it answers and is strewn with
marks, ``!a17.2/5``: the second of five of the model's answer a17. So a reply tells by itself which
messages it answers, whether it is the first saying of them, and whether all of it is there.

Order is that of the log; two things are known by their ids instead, because they come from the
program's own log and may be noted late: what was accepted, and which messages were marked as sent.

A duplicate is allowed in one place: an earlier saying of the same part was never marked, after it
its process was killed or its outcome stayed unknown, and nothing else was said in between. A
request of a process that is dead already (a ghost) may land at any time; it counts for nothing.
What a message says in the end counts, when it grew by edits: see `history_screen.py`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from core import phrases
from core.turn import NO_ANSWER, REFUSAL
from tests.history_log import (
    TOKEN,
    Accepted,
    Answered,
    Asked,
    Committed,
    Confirmed,
    Damaged,
    Deleted,
    Delivered,
    Drafted,
    Edited,
    Effect,
    Errored,
    Event,
    Finding,
    FindingKind,
    Killed,
    LogEvent,
    Mark,
    Marked,
    Moved,
    Noted,
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
from tests.history_screen import Screen

NOTED: Final = re.compile(r"noted (#[a-z0-9]+)")

# A reply for what it answers; the first two of them are in the history, too.
APOLOGIES: Final = frozenset(
    {
        NO_ANSWER,
        REFUSAL,
        phrases.UNAVAILABLE,
        phrases.REJECTED,
        phrases.GAVE_UP,
        phrases.INTERNAL,
    }
)
REFUSALS: Final = frozenset({phrases.INBOX_FULL, phrases.TOO_FAST})
NOTICES: Final = frozenset({phrases.UNREADABLE, phrases.TOO_NEW})
STOPS: Final = frozenset({phrases.STOPPED, phrases.NOTHING_TO_STOP})
_STRANGER: Final = phrases.STRANGER.partition("{")[0]


def check(log: Sequence[LogEvent]) -> list[Finding]:
    """Everything wrong with the run. Empty: every promise was kept."""
    run = _Run(log)
    chats = {chat: _Chat(run, chat) for chat in sorted(run.chats)}
    findings = [Finding("damaged", "", event.what, (event,)) for event in run.damaged]
    for chat in chats.values():
        findings += chat.findings()
    findings += _screen(run, chats)
    findings += _model(run, chats)
    findings += _effects(run)
    findings += _commits(run)
    findings += _marks(run)
    return findings


def tell(findings: Sequence[Finding]) -> str:
    """The findings for people, one a line, each with what shows it."""
    lines = [f"{len(findings)} findings"]
    for finding in findings:
        lines.append(f"{finding.kind} {finding.chat}: {finding.what}")
        lines += [f"    {str(event)[:300]}" for event in finding.events[:6]]
    return "\n".join(lines)


class _Run:
    """The log, sorted into what is asked of it."""

    def __init__(self, log: Sequence[LogEvent]) -> None:
        self.moves: dict[str, str] = {}
        self.written: dict[str, Written] = {}
        self.by_chat: defaultdict[str, list[Written]] = defaultdict(list)
        self.by_update: dict[int, Written] = {}
        self.confirmed: set[int] = set()
        self.accepted: dict[int, Accepted] = {}
        self.refused: dict[int, Refused] = {}
        self.sends: defaultdict[str, list[tuple[int, Sent]]] = defaultdict(list)
        self.messages: set[tuple[str, int]] = set()
        self.unknown: set[tuple[str, int]] = set()
        self.marked: set[tuple[str, int]] = set()
        self.killed: dict[int, int] = {}
        self.errored: defaultdict[str, list[int]] = defaultdict(list)
        self.undelivered: set[str] = set()
        self.asked: list[tuple[int, Asked]] = []
        self.asked_at: dict[str, int] = {}
        self.answered: dict[str, Answered] = {}
        self.commits: list[Committed] = []
        self.effects: list[Effect] = []
        self.stored: dict[str, Stored] = {}
        self.damaged: list[Damaged] = []
        self.screen = Screen(log)
        self.moves = {event.old: event.new for event in log if isinstance(event, Moved)}
        for place, event in enumerate(log):
            self._sort(place, event)
        for place, sent in self.screen.sends:
            self.sends[self.of(sent.chat)].append((place, sent))
        self.chats = {*self.by_chat, *self.sends, *self.stored}

    def _sort(self, place: int, event: LogEvent) -> None:
        match event:
            case Written(chat=chat, update=update, text=text):
                self.by_chat[self.of(chat)].append(event)
                self.by_update[update] = event
                for token in tokens_of(text):
                    self.written[token] = event
            case Confirmed(update=update):
                self.confirmed.add(update)
            case Accepted(update=update):
                self.accepted[update] = event
            case Refused(update=update):
                self.refused[update] = event
            case Sent(chat=chat, message=message):
                self.messages.add((chat, message))
            case Unknown(chat=chat, message=message):
                self.unknown.add((chat, message))
            case Marked(chat=chat, message=message):
                self.marked.add((chat, message))
            case Killed(life=life):
                self.killed.setdefault(life, place)
            case Errored(chat=chat):
                self.errored[self.of(chat)].append(place)
            case Undelivered(chat=chat):
                self.undelivered.add(self.of(chat))
            case Asked():
                self.asked.append((place, event))
                for token in event.now:
                    self.asked_at.setdefault(token, place)
            case Answered(answer=answer):
                self.answered[answer] = event
            case Committed():
                self.commits.append(event)
            case Effect():
                self.effects.append(event)
            case Stored(chat=chat):
                self.stored[self.of(chat)] = event
            case Damaged():
                self.damaged.append(event)
            case Delivered() | Moved() | Edited() | Deleted() | Drafted() | Noted():
                pass  # the last four are for the screen

    def of(self, chat: str) -> str:
        """The chat, under the name it has at the end."""
        while chat in self.moves:
            chat = self.moves[chat]
        return chat

    def obliged(self, message: Written) -> bool:
        """Whether the sender may rely on being answered."""
        if message.update in self.accepted:
            return True
        return message.update in self.confirmed and message.update not in self.refused

    def is_ghost(self, life: int, place: int) -> bool:
        """Whether its process was dead before it happened."""
        return self.killed.get(life, place) < place


class _Reply(NamedTuple):
    """A part as the person reads it: of several sayings the first.

    :param soft: perhaps only another saying of the one before it
    """

    place: int
    sent: Sent
    soft: bool = False


class _Barrier(NamedTuple):
    """From `place` on, something written before update `before` must not be answered."""

    place: int
    before: int
    kind: Literal["after reset", "after stop"]


class _Open(NamedTuple):
    """An answer of which parts are still to come."""

    answer: str
    next: int
    sent: Sent


class _Chat:
    """One chat from its first message to what is stored of it."""

    def __init__(self, run: _Run, name: str) -> None:
        self.run = run
        self.name = name
        written = sorted(run.by_chat[name], key=lambda message: message.update)
        self.strangers_only = bool(written) and all(message.stranger for message in written)
        mine = [message for message in written if not message.stranger]
        self.messages = [message for message in mine if message.kind == "message"]
        self.commands = [message for message in mine if message.kind != "message"]
        self.index = {
            token: number
            for number, message in enumerate(self.messages)
            for token in tokens_of(message.text)
        }
        # Which messages have got an answer, an apology, or were ended by a reset or a stop.
        self.covered: dict[int, str] = {}
        self.said: list[str] = []  # names of answers, in order
        self.said_at: dict[str, int] = {}  # token -> where its answer began
        self.barriers: list[_Barrier] = []
        self._replies_in_order: list[_Reply] = []
        self._found: list[Finding] = []
        self._next = 0
        self._apologies: list[_Reply] = []
        self._open: _Open | None = None
        self._replied: Counter[str] = Counter()
        self._obeyed: Counter[str] = Counter()
        self._walk()

    def findings(self) -> list[Finding]:
        return self._found

    def _find(self, kind: FindingKind, what: str, *events: Event) -> None:
        self._found.append(Finding(kind, self.name, what, events))

    # ------------------------------------------------------------------ what was said

    def _walk(self) -> None:
        if self.strangers_only:
            self._strangers()
            return
        self._replies_in_order = list(self._replies())
        for reply in self._replies_in_order:
            self._take(reply)
        self._close_answer()
        self._spend_apologies(len(self.messages))
        self._lost()
        self._commands()
        self._strangers()
        if self.name in self.run.stored:
            self._stored(self.run.stored[self.name])

    def _replies(self) -> Iterator[_Reply]:
        """The sends without repeats; repeats that nothing excuses are found."""
        earlier: defaultdict[str, list[tuple[int, Sent]]] = defaultdict(list)
        real: set[str] = set()
        latest = ""
        for place, sent in self.run.sends[self.name]:
            before = earlier[sent.text]
            # Nothing leaves before what may be unsent: what comes again comes next.
            comes_next = latest == sent.text or self.name in self.run.moves.values()
            excused = comes_next and self._is_excused(before, place)
            first = sent.text not in real
            before.append((place, sent))
            if self.run.is_ghost(sent.life, place):
                self._replied[_kind(sent.text)] += 1
                continue
            real.add(sent.text)
            if sent.text not in REFUSALS:
                latest = sent.text
            if not marks_of(sent.text):
                # Fixed sentences may be said again for something else.
                yield _Reply(place, sent, soft=excused and not first)
                continue
            if not first and not excused:
                events = tuple(one for _, one in before)
                self._find("duplicated", "a part came twice, and nothing excuses it", *events)
            if first:
                yield _Reply(place, sent)

    def _is_excused(self, before: Sequence[tuple[int, Sent]], place: int) -> bool:
        if not before:
            return False
        since, last = before[-1]
        # Of an answer every saying is the same part; of a fixed sentence only the last may be.
        same = before if marks_of(last.text) else before[-1:]
        if any((sent.chat, sent.message) in self.run.marked for _, sent in same):
            return False
        # What is in the snapshot by its id is edited, whatever became of the process.
        if any((sent.chat, sent.message) in self.run.screen.edited for _, sent in same):
            return False
        return (
            (last.chat, last.message) in self.run.unknown
            or self.run.killed.get(last.life, place) < place
            or any(since < failed < place for failed in self.run.errored[self.name])
        )

    def _take(self, reply: _Reply) -> None:
        text = reply.sent.text
        kind = _kind(text)
        self._replied[kind] += 1
        if kind == "answer":
            self._answer(reply)
        elif kind == "apology":
            self._apologies.append(reply)
        elif kind == "reset":
            # It takes away what was still unsent.
            self._open = None
            self._ended(reply, "reset", "after reset")
        elif kind == "stop":
            self._ended(reply, "stop", "after stop")
        elif kind == "refusal":
            if not any(self.run.of(event.chat) == self.name for event in self._refusals()):
                self._find("invented", "a refusal of nothing", reply.sent)
        elif kind == "notice":
            if not self.run.errored[self.name]:
                self._find("lost", "the conversation was given up", reply.sent)
        elif kind == "token":
            self._find("invented", "words of a person, not from the model", reply.sent)

    def _refusals(self) -> Iterator[Refused]:
        yield from self.run.refused.values()

    def _answer(self, reply: _Reply) -> None:
        sent = reply.sent
        marks = marks_of(sent.text)
        if not self._is_ours(reply):
            return
        first, last = marks[0], marks[-1]
        numbers = [mark.number for mark in marks]
        if {mark.answer for mark in marks} != {first.answer}:
            self._find("invented", "two answers in one message", sent)
            return
        if numbers != list(range(first.number, first.number + len(marks))):
            self._find("half", f"the pieces of answer {first.answer} are {numbers}", sent)
        if first.number == 1:
            self._close_answer()
            self._begin(reply, first)
        else:
            self._go_on(sent, first)
        unended = last.number < last.pieces
        self._open = _Open(last.answer, last.number + 1, sent) if unended else None

    def _is_ours(self, reply: _Reply) -> bool:
        """Whether this chat may hear it at all."""
        sent = reply.sent
        answer = self.run.answered.get(marks_of(sent.text)[0].answer)
        if answer is None:
            self._find("invented", "the model never said this", sent)
            return False
        for token in dict.fromkeys((*tokens_of(sent.text), *answer.tokens)):
            written = self.run.written.get(token)
            if written is None:
                self._find("invented", f"nobody wrote {token}", sent)
                return False
            if written.stranger:
                self._find("stranger", "a stranger was answered", written, sent)
                return False
            if self.run.of(written.chat) != self.name:
                self._find("foreign", f"{token} is of {written.chat}", written, sent)
                return False
            if token not in self.index:
                self._find("invented", "a command was answered by the model", written, sent)
                return False
        return True

    def _begin(self, reply: _Reply, mark: Mark) -> None:
        sent = reply.sent
        tokens = self.run.answered[mark.answer].tokens
        if mark.answer in self.said:
            self._find("duplicated", f"answer {mark.answer} began twice", sent)
            return
        if tokens_of(sent.text) != tokens:
            self._find("half", f"the model answered {tokens}", sent)
        self.said.append(mark.answer)
        self._cover(reply, [self.index[token] for token in tokens])
        for token in tokens:
            self.said_at.setdefault(token, reply.place)

    def _cover(self, reply: _Reply, numbers: list[int]) -> None:
        sent = reply.sent
        asked = [self.messages[number] for number in numbers]
        again = [number for number in numbers if number in self.covered]
        for number in again:
            if self.covered[number] == "answer":
                self._find("duplicated", "answered twice", self.messages[number], sent)
            elif self.covered[number] == "apology":
                self._find("duplicated", "answered after an apology", self.messages[number], sent)
        for barrier in self.barriers:
            late = [message for message in asked if self.ended_by(barrier, message)]
            if late:
                self._find(barrier.kind, "an answer to what was ended", *late, sent)
                return
        if numbers != sorted(numbers) or (numbers[0] < self._next and not again):
            self._find("reordered", "answered out of order", *asked, sent)
        self._spend_apologies(numbers[0])
        self._next = max(self._next, numbers[-1] + 1)
        self.covered.update(dict.fromkeys(numbers, "answer"))

    def _go_on(self, sent: Sent, mark: Mark) -> None:
        """A part that is not the first of its answer."""
        opened = self._open
        if opened is None or opened.answer != mark.answer:
            known = mark.answer in self.said
            what = "out of place" if known else "without its beginning"
            self._find("reordered" if known else "half", f"a part {what}", sent)
        elif mark.number > opened.next:
            self._find("half", f"piece {opened.next} is missing", opened.sent, sent)
        elif mark.number < opened.next:
            self._find("duplicated", f"piece {mark.number} comes again", opened.sent, sent)

    def _close_answer(self) -> None:
        if self._open is not None and not self._gave_up:
            what = f"answer {self._open.answer} ends before piece {self._open.next}"
            self._find("half", what, self._open.sent)
        self._open = None

    def _spend_apologies(self, upto: int) -> None:
        """What waited before message number `upto` is answered by the apologies, if there are."""
        apologies, self._apologies = self._apologies, []
        waiting = [number for number in range(self._next, upto) if number not in self.covered]
        firm = [reply.sent for reply in apologies if not reply.soft]
        if len(firm) > len(waiting):
            self._find("invented", "an apology for nothing, or twice", *firm)
        if apologies:
            self.covered.update(dict.fromkeys(waiting, "apology"))
            self._next = max(self._next, upto)

    def _ended(
        self, reply: _Reply, kind: WrittenKind, after: Literal["after reset", "after stop"]
    ) -> None:
        """A reset or stop is confirmed: what was written before it is over."""
        commands = [command for command in self.commands if command.kind == kind]
        if not commands:
            self._find("invented", f"nobody wrote /{kind}", reply.sent)
            return
        # At least so many were obeyed; a later reset may have taken a confirmation away.
        self._obeyed[kind] += not reply.soft
        before = commands[min(max(self._obeyed[kind], 1), len(commands)) - 1].update
        self.barriers.append(_Barrier(reply.place, before, after))
        over = sum(1 for message in self.messages if message.update < before)
        if kind == "reset":
            self._spend_apologies(over)
            for number in range(self._next, over):
                self.covered.setdefault(number, after)
            self._next = max(self._next, over)
        elif reply.sent.text == phrases.NOTHING_TO_STOP:
            self._spend_apologies(over)
            for number in range(over):
                if number not in self.covered and self._must_be_answered(number, before):
                    self.covered[number] = after
                    self._find("lost", "nothing to stop, but no reply", self.messages[number])

    def ended_by(self, barrier: _Barrier, message: Written) -> bool:
        """Whether this message must not be answered after that. A reset takes everything away, a
        stop what was being answered; messages that waited behind that still wait."""
        if message.update >= barrier.before:
            return False
        if barrier.kind == "after reset":
            return True
        asked = (self.run.asked_at.get(token) for token in tokens_of(message.text))
        return any(place is not None and place < barrier.place for place in asked)

    def _must_be_answered(self, number: int, before: int) -> bool:
        message = self.messages[number]
        # By a reset, or by an earlier stop.
        forgotten = any(
            command.kind in ("reset", "stop") and message.update < command.update < before
            for command in self.commands
        )
        return self.run.obliged(message) and not forgotten and not self._gave_up

    @property
    def _gave_up(self) -> bool:
        """The program said that it could not say all."""
        return self.name in self.run.undelivered

    # ------------------------------------------------------------------ what was not said

    def _lost(self) -> None:
        ends = [
            command.update
            for command in self.commands
            if command.kind in ("reset", "stop") and self.run.obliged(command)
        ]
        last = max(ends, default=-1)
        for number, message in enumerate(self.messages):
            if number in self.covered or message.update < last:
                continue
            if self.run.obliged(message) and not self._gave_up:
                self._find("lost", "no reply", message)

    def _commands(self) -> None:
        """Each is confirmed as often as it was given, but for what a later reset took away."""
        resets = [command.update for command in self.commands if command.kind == "reset"]
        last = max(resets, default=-1)
        for kind in ("reset", "stop", "command"):
            given = [command for command in self.commands if command.kind == kind]
            standing = [
                command for command in given if command.update >= last and self.run.obliged(command)
            ]
            if self._replied[kind] < len(standing) and not self._gave_up:
                self._find("lost", f"no reply to {kind}", *standing)
            firm = self._firm(kind)
            if len(firm) > len(given):
                self._find("duplicated", f"{len(given)} of {kind}, more replies", *firm)

    def _firm(self, kind: str) -> list[Sent]:
        """The replies of this sort that are certainly not repeats."""
        return [
            reply.sent
            for reply in self._replies_in_order
            if not reply.soft and _kind(reply.sent.text) == kind
        ]

    def _strangers(self) -> None:
        for message in self.run.by_chat[self.name]:
            if message.stranger and message.update in self.run.accepted:
                self._find("stranger", "accepted", message, self.run.accepted[message.update])
        if not self.strangers_only:
            return
        for _, sent in self.run.sends[self.name]:
            if not sent.text.startswith(_STRANGER):
                self._find("stranger", "a stranger was spoken to", sent)
        if self.name in self.run.stored:
            self._find("stranger", "a stranger is stored", self.run.stored[self.name])

    # ------------------------------------------------------------------ what is stored

    def _stored(self, stored: Stored) -> None:
        if stored.unfinished:
            self._find("lost", "something is left to do", stored)
        turns = self._turns(stored)
        order: list[int] = []
        answers: list[str] = []
        for turn in turns:
            asked = tokens_of(turn[0].text)
            foreign = [token for token in asked if token not in self.index]
            if foreign or not asked:
                kind: FindingKind = "foreign" if foreign else "half"
                self._find(kind, f"stored: a turn of {foreign or 'nothing'}", stored)
                continue
            order += [self.index[token] for token in asked]
            marks = marks_of(turn[-1].text)
            if marks:
                answers.append(marks[0].answer)
                self._is_whole(stored, turn, asked, marks)
            elif turn[-1].text not in APOLOGIES:
                self._find("invented", f"stored: {turn[-1].text[:80]!r}", stored)
        if len(set(order)) < len(order):
            self._find("duplicated", "stored: a message twice", stored)
        elif order != sorted(order):
            self._find("reordered", "stored: messages out of order", stored)
        self._compare(stored, order, answers)

    def _turns(self, stored: Stored) -> list[list[Said]]:
        """Exchanges; only whole ones."""
        turns: list[list[Said]] = []
        for said in stored.messages:
            if said.role == "user" and not said.results:
                turns.append([])
            if not turns:
                self._find("half", "stored: it begins in the middle of a turn", stored)
                return []
            turns[-1].append(said)
        whole = [turn for turn in turns if _is_whole_turn(turn)]
        if len(whole) < len(turns):
            self._find("half", "stored: a turn that is not whole", stored)
        return whole

    def _is_whole(
        self, stored: Stored, turn: list[Said], asked: tuple[str, ...], marks: tuple[Mark, ...]
    ) -> None:
        answer = self.run.answered.get(marks[0].answer)
        numbers = [mark.number for mark in marks]
        if answer is None:
            self._find("invented", f"stored: the model never said {marks[0].answer}", stored)
        elif answer.tokens != asked or tokens_of(turn[-1].text) != asked:
            self._find("half", f"stored: {asked} answered with {answer.tokens}", stored)
        elif numbers != list(range(1, marks[0].pieces + 1)):
            self._find("half", f"stored: answer {marks[0].answer} has pieces {numbers}", stored)

    def _compare(self, stored: Stored, order: list[int], answers: list[str]) -> None:
        """What is stored is what was said since the last reset, and in that order."""
        resets = [
            command.update
            for command in self.commands
            if command.kind == "reset" and self.run.obliged(command)
        ]
        last = max(resets, default=-1)
        old = [number for number in order if self.messages[number].update < last]
        if old:
            events = [self.messages[number] for number in old]
            self._find("after reset", "stored: what was forgotten", *events, stored)
            return
        said = [answer for answer in self.said if self._is_since(answer, last)]
        for answer in answers:
            if answer not in said and not self._gave_up:
                self._find("lost", f"stored, but never said: {answer}", stored)
        for answer in said:
            if answer not in answers:
                self._find("half", f"said, but not stored: {answer}", stored)
        common = [answer for answer in said if answer in answers]
        if common != [answer for answer in dict.fromkeys(answers) if answer in said]:
            self._find("reordered", "stored in another order than said", stored)

    def _is_since(self, answer: str, reset: int) -> bool:
        tokens = self.run.answered[answer].tokens
        return all(self.run.written[token].update > reset for token in tokens)


def _is_whole_turn(turn: Sequence[Said]) -> bool:
    if turn[-1].role != "assistant" or turn[-1].calls:
        return False
    for before, after in pairwise(turn):
        if sorted(before.calls) != sorted(after.results):
            return False
    return True


def _kind(text: str) -> str:
    """What sort of reply this is."""
    if marks_of(text):
        return "answer"
    if TOKEN.search(text):
        return "token"
    for kind, texts in _FIXED:
        if text in texts:
            return kind
    return "command"


_FIXED: Final = (
    ("apology", APOLOGIES),
    ("reset", frozenset({phrases.RESET})),
    ("stop", STOPS),
    ("refusal", REFUSALS),
    ("notice", NOTICES),
    ("neutral", frozenset({phrases.NO_MODEL})),
)


# ---------------------------------------------------------------------- beyond one chat


def _screen(run: _Run, chats: dict[str, _Chat]) -> Iterator[Finding]:
    """What could be read before it was said is nobody else's, and over when it is over."""
    for wrong in run.screen.wrong:
        if run.of(wrong.chat) not in run.undelivered:
            yield Finding(wrong.kind, run.of(wrong.chat), wrong.what, wrong.events)
    for place, glimpse in run.screen.glimpses:
        if run.is_ghost(glimpse.life, place):
            continue
        chat = run.of(glimpse.chat)
        written = [run.written.get(token) for token in tokens_of(glimpse.text)]
        asked = [message for message in written if message is not None]
        if len(asked) < len(written):
            yield Finding("invented", chat, "shown: words that nobody wrote", (glimpse,))
        elif any(message.stranger for message in asked):
            yield Finding("stranger", chat, "a stranger is being answered", (*asked, glimpse))
        elif any(run.of(message.chat) != chat for message in asked):
            yield Finding("foreign", chat, "shown: words of another chat", (*asked, glimpse))
        elif asked and chat in chats:
            for barrier in chats[chat].barriers:
                late = [each for each in asked if chats[chat].ended_by(barrier, each)]
                if barrier.place < place and late:
                    yield Finding(barrier.kind, chat, "shown", (*late, glimpse))


def _model(run: _Run, chats: dict[str, _Chat]) -> Iterator[Finding]:
    for place, asked in run.asked:
        if run.is_ghost(asked.life, place):
            continue
        tokens = (*asked.before, *asked.now)
        unknown = [token for token in tokens if token not in run.written]
        if unknown or not asked.now:
            what = f"nobody wrote {unknown}" if unknown else "nothing of a person"
            yield Finding("invented", "", f"asked: {what}", (asked,))
            continue
        written = [run.written[token] for token in dict.fromkeys(tokens)]
        strangers = [message for message in written if message.stranger]
        if strangers:
            yield Finding("stranger", strangers[0].chat, "asked", (*strangers, asked))
            continue
        names = {run.of(message.chat) for message in written}
        if len(names) > 1:
            yield Finding("foreign", "", f"asked: words of {sorted(names)}", (asked,))
            continue
        yield from _question(place, asked, written, chats[names.pop()])


def _question(
    place: int, asked: Asked, written: Sequence[Written], chat: _Chat
) -> Iterator[Finding]:
    updates = [message.update for message in written]
    if updates != sorted(updates):
        yield Finding("reordered", chat.name, "asked out of order", (asked,))
    for token in asked.now:
        if chat.said_at.get(token, place) < place:
            what = f"asked again for {token}, which was answered"
            yield Finding("duplicated", chat.name, what, (asked,))
    now = [chat.run.written[token] for token in asked.now]
    for barrier in chat.barriers:
        concerned = written if barrier.kind == "after reset" else now
        late = [message for message in concerned if chat.ended_by(barrier, message)]
        if barrier.place < place and late:
            yield Finding(barrier.kind, chat.name, "asked", (*late, asked))


def _effects(run: _Run) -> Iterator[Finding]:
    counts = Counter(effect.token for effect in run.effects)
    for token, count in counts.items():
        written = run.written.get(token)
        events = tuple(effect for effect in run.effects if effect.token == token)
        if written is None:
            yield Finding("invented", "", f"an effect for {token}", events)
        elif written.stranger:
            yield Finding("stranger", written.chat, "an effect", (written, *events))
        elif count > 1:
            yield Finding("duplicated", written.chat, f"{count} effects of {token}", events)
    for chat, sends in run.sends.items():
        for _, sent in sends:
            for token in NOTED.findall(sent.text):
                if token not in counts:
                    yield Finding("lost", chat, f"the effect of {token}", (sent,))


def _commits(run: _Run) -> Iterator[Finding]:
    seen: dict[str, Committed] = {}
    for commit in run.commits:
        if commit.execution in seen:
            events = (seen[commit.execution], commit)
            yield Finding("duplicated", commit.chat, "committed twice", events)
        seen[commit.execution] = commit


def _marks(run: _Run) -> Iterator[Finding]:
    for chat, message in sorted(run.marked - run.messages):
        yield Finding("lost", chat, f"message {message} was marked, but never sent")
