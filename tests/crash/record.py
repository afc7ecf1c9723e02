"""A World that writes down what happens in it, for the history checker.

Everything is seen from where it takes effect: people and updates at the stand-in for Telegram,
questions at the one for Claude, what the program claims in its own log, the rest in its files when
it is over. Nothing of the program is changed; only its base URLs carry the number of its life, so
that a request which lands after its sender's death is known for what it is.

Who speaks here says tokens and marks; see `tests.history_checker`.
"""

from __future__ import annotations

import json
import random
import re
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from core.history import Block, calls
from core.messages import Message, decode_blocks, text_of
from core.store import SessionRef
from playground.claude import Claude
from playground.claude_answers import Answer, Say, ToolUse, UseTools
from playground.telegram import Chat, GarbageBody, Person
from stores.sqlite import SQLiteStore
from stores.sqlite.load import load
from tests.crash.program import World
from tests.history_checker import check
from tests.history_log import (
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
    Finding,
    Killed,
    LogEvent,
    Marked,
    Noted,
    Refused,
    Said,
    Sent,
    Stored,
    Undelivered,
    Unknown,
    Written,
    WrittenKind,
    tokens_of,
)

Json = dict[str, Any]
Way = Literal["plain", "poison", "note", "long", "slow", "grow", "reset", "stop"]

CONFIG: Final = """\
[agent]
tools = ["effects.py:note"]
[access]
allow = [{allow}]
messages_per_minute = 100000
[telegram]
poll_timeout = 5
"""
LONG_PIECES: Final = 10  # of so many characters: three messages
PIECE: Final = "and so it goes on, " * 45
SLOW: Final = 0.5
GROWING_PIECES: Final = 6  # of so many characters: one message, which is edited a few times
GROWING_PIECE: Final = "it grows and grows, " * 3
GROWING_PAUSE: Final = 0.5

_LIFE: Final = re.compile(r"/life-([0-9]+)(/.*)")
_WANTS_NOTE: Final = re.compile(r"note (#[a-z0-9]+)")
# What the program may say about trouble that others have made; all else at that level is its own.
_EXPECTED: Final = frozenset(
    {
        "apologised",
        "model.again",
        "model.later",
        "refused",
        "send.later",
        "send.unknown",
        "telegram.nameless_update",
        "telegram.twin",
        "telegram.unreachable",
    }
)


class _Request:
    """One request of the program, while it is answered."""

    def __init__(self, life: int) -> None:
        self.life = life
        self.sent: tuple[str, int] | None = None
        self.fault: object = None


_request: ContextVar[_Request] = ContextVar("request")


class Lives:
    """Serves the app below ``/life-7/``, and knows that the seventh life asks."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _LIFE.fullmatch(scope["path"])
        if found is not None:
            _request.set(_Request(int(found[1])))
            scope = {**scope, "path": found[2], "raw_path": found[2].encode()}
        await self._app(scope, receive, send)


class Recorded(World):
    """
    :param chance: for all that is left to chance
    :param spoil: what the model answers instead; None: nothing
    """

    patience = 150.0  # it may die several times while somebody waits

    def __init__(
        self,
        folder: Path,
        chance: random.Random,
        spoil: Callable[[], Answer | None] = lambda: None,
    ) -> None:
        super().__init__(folder)
        self.chance = chance
        self.events: list[LogEvent] = []
        self.life = 0
        self.kills = 0
        # The failpoints of the next lives that begin without one of their own.
        self.points: deque[str] = deque()
        self.allowed: list[Person] = []
        self.claude = Claude(keep=20)
        self.claude.brain = self._think
        self.claude.app = Lives(self.claude.app)  # type: ignore[assignment]
        self.telegram.app = Lives(self.telegram.app)  # type: ignore[assignment]
        self.telegram.listeners.append(self._hear)
        self._spoil = spoil
        self._point = ""
        self._buried = 0
        self._read = 0
        self._tokens = 0
        self._answers = 0

    # ------------------------------------------------------------------ people

    def friend(self, name: str) -> Person:
        """Somebody whom the bot listens to. Only before the first start."""
        person = self.telegram.person(name)
        self.allowed.append(person)
        return person

    def say_so(self, person: Person, chat: Chat | None = None, way: Way = "plain") -> int:
        """They write; what the model shall do is in the words."""
        kind: WrittenKind = "message"
        if way in ("reset", "stop"):
            kind = "reset" if way == "reset" else "stop"
            text = f"/{way}@{self.telegram.username}" if chat else f"/{way}"
        else:
            self._tokens += 1
            # What follows a token must not run into it when messages are put together.
            text = f"{way} #t{self._tokens};"
        mention = chat is not None and kind == "message"
        update = self.telegram.write(person, text, chat, mention=mention)
        stranger = person not in self.allowed
        key = _key((chat or person).id)
        self._note(Written(chat=key, update=update, text=text, kind=kind, stranger=stranger))
        return update

    # ------------------------------------------------------------------ the program

    async def start(self, failpoint: str | None = None, *arguments: str, **environ: str) -> None:
        if self.life == 0:
            allow = ", ".join(f'"telegram:{person.id}"' for person in self.allowed)
            (self.folder / "config.toml").write_text(CONFIG.format(allow=allow))
        self.life += 1
        if failpoint is None and self.points:
            failpoint = self.points.popleft()
        self._point = failpoint or ""
        await super().start(failpoint, "--log-json", *arguments, **environ)

    def environ(self, **more: str) -> dict[str, str]:
        life = f"/life-{self.life}"
        return super().environ(
            CHINWAG_TELEGRAM__BASE_URL=self.telegram.url + life,
            ANTHROPIC_BASE_URL=self.claude.url + life,
            **more,
        )

    async def kill(self) -> None:
        self._point = ""
        await super().kill()

    def died(self) -> None:
        if self._buried == self.life:
            return
        super().died()
        self._buried = self.life
        self.kills += 1
        self._drain()
        self._note(Killed(life=self.life, point=self._point))
        for chat, message in _shown(self.folder / "chinwag.db"):
            self._note(Noted(chat=chat, message=message))

    async def unfinished(self) -> list[str]:
        """The chats in which something is left to do."""
        return await self._unfinished() if (self.folder / "chinwag.db").exists() else []

    async def judge(self) -> list[Finding]:
        """When the program has ended: what is in its files joins the log, and that is checked."""
        self._drain()
        for token in self.effects():
            self._note(Effect(token=token))
        with closing(sqlite3.connect(self.folder / "chinwag.db")) as database:
            for (line,) in database.execute("PRAGMA integrity_check"):
                if line != "ok":
                    self._note(Damaged(what=line))
        async with SQLiteStore(self.folder / "chinwag.db", read_only=True) as store:
            async for summary in store.summaries(limit=1_000_000):
                self._note(await _stored(store, summary.key))
        return check(self.events)

    def save(self, file: Path) -> None:
        """The log, one event a line."""
        file.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in self.events))

    def _note(self, event: LogEvent) -> None:
        self.events.append(msgspec.structs.replace(event, at=time.time()))

    # ------------------------------------------------------------------ what Telegram sees

    def _hear(self, event: str, details: Json) -> None:
        if event == "delivered":
            self._note(Delivered(update=details["update_id"]))
        elif event == "confirmed":
            self._note(Confirmed(update=details["update_id"]))
        elif event == "sent":
            request = _request.get()
            request.sent = _key(details["chat_id"]), details["message_id"]
            chat, message = request.sent
            self._note(Sent(life=request.life, chat=chat, message=message, text=details["text"]))
        elif event == "edited" and details["text"] != "":
            life = _request.get().life
            chat, message = _key(details["chat_id"]), details["message_id"]
            self._note(Edited(life=life, chat=chat, message=message, text=details["text"]))
        elif event == "deleted":
            chat, message = _key(details["chat_id"]), details["message_id"]
            self._note(Deleted(life=_request.get().life, chat=chat, message=message))
        elif event == "draft":
            chat = _key(details["chat_id"])
            self._note(Drafted(life=_request.get().life, chat=chat, text=details["text"]))
        elif event == "fault":
            _request.get().fault = details["fault"]
        elif event == "returned":
            self._returned(details["status"])

    def _returned(self, status: int) -> None:
        request = _request.get(None)
        if request is None or request.sent is None:
            return
        if status != 200 or isinstance(request.fault, GarbageBody):
            chat, message = request.sent
            self._note(Unknown(chat=chat, message=message))

    # ------------------------------------------------------------------ what Claude says

    def _think(self, body: Json) -> Answer:
        messages: list[Json] = body["messages"]
        last = max(index for index, message in enumerate(messages) if _texts(message, "user"))
        now = tokens_of("\n".join(_texts(messages[last], "user")))
        earlier = (text for message in messages[:last] for text in _texts(message))
        before = tokens_of("\n".join(earlier))
        self._note(Asked(life=_request.get().life, now=now, before=before))
        spoilt = self._spoil()
        if spoilt is not None:
            return spoilt
        asked = "\n".join(_texts(messages[last], "user"))
        wanted = _WANTS_NOTE.findall(asked)
        if wanted and last == len(messages) - 1:
            return UseTools(tuple(ToolUse("note", {"text": token}) for token in wanted))
        return self._answer(asked, now, _results(messages[-1]))

    def _answer(self, asked: str, now: tuple[str, ...], results: list[str]) -> Say:
        self._answers += 1
        name = f"a{self._answers}"
        grows = "grow" in asked
        self._note(Answered(answer=name, tokens=now, grows=grows))
        if grows:
            marks = [
                f"!{name}.{number}/{GROWING_PIECES}" for number in range(1, GROWING_PIECES + 1)
            ]
            pieces = [f"{GROWING_PIECE}{mark} " for mark in marks[1:]]
            deltas = (" ".join([*now, marks[0], *results]) + " ", *pieces)
            return Say("".join(deltas), deltas=deltas, pause=GROWING_PAUSE)
        count = LONG_PIECES if "long" in asked else 1
        pieces = [f"!{name}.{number}/{count} {PIECE}" for number in range(2, count + 1)]
        head = " ".join([*now, f"!{name}.1/{count}", *results])
        text = "\n\n".join([head, *pieces])
        return Say(text, deltas=(text,), pause=SLOW if "slow" in asked else 0.0)

    # ------------------------------------------------------------------ what the program says

    def _drain(self) -> None:
        """Note what is new in its log."""
        with (self.folder / "log.txt").open("rb") as file:
            file.seek(self._read)
            *lines, _ = file.read().split(b"\n")
        self._read += sum(len(line) + 1 for line in lines)
        for line in lines:
            if line.startswith(b"{"):
                self._claim(json.loads(line))
            elif line and not line.startswith(b"--- "):
                self._note(Damaged(what=f"in the log: {line.decode(errors='replace')}"))

    def _claim(self, line: Json) -> None:
        event, chat = line["event"], line.get("key", "")
        if event in ("accepted", "duplicate"):
            self._note(Accepted(chat=chat, update=int(line["id"])))
        elif event == "refused" and "id" in line:
            self._note(Refused(chat=chat, update=int(line["id"])))
        elif event == "committed":
            self._note(Committed(chat=chat, execution=line["execution"]))
        elif event == "delivered":
            for message in filter(None, line["messages"].split(",")):
                self._note(Marked(chat=chat, message=int(message), part=line["part"]))
        elif event in ("send.held", "send.failed", "send.gone"):
            self._note(Undelivered(chat=chat))
        elif event == "store":
            self._note(Errored(chat=chat))
        if line["level"] in ("warning", "error") and event not in _EXPECTED:
            self._note(Damaged(what=f"in the log: {json.dumps(line)[:2000]}"))


def _key(chat_id: int) -> str:
    return f"telegram-chat:{chat_id}"


def _texts(message: Json, role: str | None = None) -> list[str]:
    """What was said in it, by this side."""
    content = message["content"]
    if role not in (None, message["role"]):
        return []
    if isinstance(content, str):
        return [content]
    return [block["text"] for block in content if block["type"] == "text"]


def _results(message: Json) -> list[str]:
    if message["role"] != "user" or isinstance(message["content"], str):
        return []
    return [_result_text(b) for b in message["content"] if b["type"] == "tool_result"]


def _result_text(block: Json) -> str:
    content = block.get("content", "")
    return content if isinstance(content, str) else " ".join(part["text"] for part in content)


def _shown(database: Path) -> Iterator[tuple[str, int]]:
    """What snapshots name as messages that are on the screen, and not finished."""
    if not database.exists():
        return
    with closing(sqlite3.connect(database)) as connection:
        for (key,) in connection.execute("SELECT key FROM sessions WHERE unfinished").fetchall():
            snapshot = load(connection, key)
            assert snapshot is not None
            shown = snapshot.turn.shown if snapshot.turn else ()
            edits = tuple(part.replaces for part in snapshot.outbox if part.replaces)
            for message in (*shown, *edits):
                # While a message is still leaving, a part that replaces it names its part.
                if message.isdecimal():
                    yield key, int(message)


async def _stored(store: SQLiteStore, key: str) -> Stored:
    ref = SessionRef(key=key)
    snapshot = await store.load(ref)
    messages = [message async for message in store.archive(ref, limit=1_000_000)]
    return Stored(
        chat=key,
        messages=tuple(_said(message) for message in reversed(messages)),
        unfinished=snapshot is None or snapshot.unfinished,
    )


def _said(message: Message) -> Said:
    blocks: Iterable[Block] = decode_blocks(message.blocks)
    results = [b["tool_use_id"] for b in blocks if b.get("type") == "tool_result"]
    return Said(
        role=message.role,
        text=text_of(message.blocks),
        calls=tuple(str(call["id"]) for call in calls(message)),
        results=tuple(str(result) for result in results),
    )
