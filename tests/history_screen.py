"""What stands on the screen in the end, of messages that grew by edits: for the history checker.

A message that shows a growing answer is *begun* by a send, *noted* in the snapshot, edited, and in
the end either finished (it says the whole part) or taken back (deleted). Then it counts as one
send, of its last words, at the time of the last edit. What they must be is the checker's affair.

One beginning may be left behind: of a message that was never noted, because its process was killed
before the note, or was never told that the message is there. Whoever goes on then knows nothing of
it. Once it was noted (what the process left in the database says so, and so does each edit, for
nothing is edited before) there is no excuse: the same message must be finished or taken back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.history_log import (
    Answered,
    Asked,
    Deleted,
    Drafted,
    Edited,
    Event,
    FindingKind,
    Killed,
    LogEvent,
    Marked,
    Noted,
    Sent,
    Stored,
    Unknown,
    marks_of,
)

Message = tuple[str, int]  # chat and id


class Wrong(NamedTuple):
    """A broken promise, by the chat's name at that time."""

    kind: FindingKind
    chat: str
    what: str
    events: tuple[Event, ...]


class Screen:
    """
    :ivar sends: place in the log and what counts as sent there, in order
    :ivar glimpses: everything else that people could read: beginnings, drafts
    :ivar left: beginnings that the window excuses
    :ivar edited: messages whose ids were in a snapshot: they can be edited, never said anew
    """

    def __init__(self, log: Sequence[LogEvent]) -> None:
        self.sends: list[tuple[int, Sent]] = []
        self.glimpses: list[tuple[int, Sent | Edited | Drafted]] = []
        self.left: list[Sent] = []
        self.edited: set[Message] = set()
        self.wrong: list[Wrong] = []
        self._killed: dict[int, int] = {}
        self._unknown: set[Message] = set()
        self._marked: set[Message] = set()
        self._answers: dict[str, Answered] = {}
        self._asked: list[tuple[int, Asked]] = []
        self._stored: set[str] = set()
        # Where a process has sent something into a chat for the last time.
        self._last: dict[tuple[int, str], int] = {}
        for place, event in enumerate(log):
            self._sort(place, event)
        for versions in self._versions(log).values():
            self._settle(versions)
        self.sends.sort(key=lambda each: each[0])

    def _sort(self, place: int, event: LogEvent) -> None:
        match event:
            case Killed(life=life):
                self._killed.setdefault(life, place)
            case Unknown(chat=chat, message=message):
                self._unknown.add((chat, message))
            case Marked(chat=chat, message=message):
                self._marked.add((chat, message))
            case Noted(chat=chat, message=message):
                self.edited.add((chat, message))
            case Answered(answer=answer):
                self._answers[answer] = event
            case Asked():
                self._asked.append((place, event))
            case Drafted():
                self.glimpses.append((place, event))
            case Sent(life=life, chat=chat):
                self._last[life, chat] = place
            case Stored(messages=messages):
                self._stored |= {mark.answer for said in messages for mark in marks_of(said.text)}
            case _:
                pass

    def _versions(
        self, log: Sequence[LogEvent]
    ) -> Mapping[Message, list[tuple[int, Sent | Edited | Deleted]]]:
        """What became of each message. What a dead process still does to one counts for nothing."""
        found: defaultdict[Message, list[tuple[int, Sent | Edited | Deleted]]] = defaultdict(list)
        for place, event in enumerate(log):
            if isinstance(event, Sent):
                found[event.chat, event.message].append((place, event))
            elif isinstance(event, Edited | Deleted) and not self._is_dead(event.life, place):
                found[event.chat, event.message].append((place, event))
        return found

    def _is_dead(self, life: int, place: int) -> bool:
        return self._killed.get(life, place) < place

    def _settle(self, versions: Sequence[tuple[int, Sent | Edited | Deleted]]) -> None:
        first_place, first = versions[0]
        last_place, last = versions[-1]
        if not isinstance(first, Sent):
            what = "a message that was never sent is edited or deleted"
            self._find("invented", first.chat, what, *(event for _, event in versions))
            return
        message = first.chat, first.message
        read = [(place, event) for place, event in versions if not isinstance(event, Deleted)]
        self.glimpses += read[:-1]
        if any(isinstance(event, Edited) for _, event in versions):
            self.edited.add(message)
        if isinstance(last, Deleted):
            self.glimpses += read[-1:]
            if message in self._marked:
                self._find("lost", first.chat, "what was said is deleted", first, last)
            return
        said = Sent(
            at=last.at, life=last.life, chat=first.chat, message=first.message, text=last.text
        )
        if self._is_begun(last.text) or self._is_superseded(first_place, last.text):
            if self._is_left(first_place, first):
                self.glimpses += read[-1:]
                self.left.append(said)
                return
            if self._is_begun(last.text):
                what = "a message was begun, and is neither finished nor taken back"
                self._find("half", first.chat, what, first, last)
                return
        self.sends.append((last_place, said))

    def _is_begun(self, text: str) -> bool:
        """Whether more was to come into this message."""
        marks = marks_of(text)
        answer = self._answers.get(marks[-1].answer) if marks else None
        return answer is not None and answer.grows and marks[-1].number < marks[-1].pieces

    def _is_superseded(self, place: int, text: str) -> bool:
        """Whether the model was asked the same again, because this answer was no history yet."""
        marks = marks_of(text)
        answer = self._answers.get(marks[0].answer) if marks else None
        return (
            answer is not None
            and answer.answer not in self._stored
            and any(
                place < later and not self._is_dead(asked.life, later)
                for later, asked in self._asked
                if set(asked.now) & set(answer.tokens)
            )
        )

    def _is_left(self, place: int, sent: Sent) -> bool:
        """Whether nobody could know of this message any more."""
        message = sent.chat, sent.message
        if message in self.edited or message in self._marked:
            return False
        # A process that said more in this chat has survived the note.
        died = sent.life in self._killed and self._last[sent.life, sent.chat] == place
        return message in self._unknown or died

    def _find(self, kind: FindingKind, chat: str, what: str, *events: Event) -> None:
        self.wrong.append(Wrong(kind, chat, what, events))
