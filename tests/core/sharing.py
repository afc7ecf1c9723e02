"""Processes that share one database, each with a core of its own, all in one event loop.

A process can be stopped as SIGSTOP does it: whatever it asks of the store, the platform or the
model waits until it goes on. What is seen from outside is written into one log, which the history
checker judges. Nothing here knows how the core finds out what another process did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from core.adapter import Acceptance, Accepted, Limits, Live, Receipt, Refused, Showing
from core.agent import Agent
from core.answering import WhenBusy
from core.conversations import Conversations, Options
from core.delivery import OnUnknownOutcome
from core.engine import Again
from core.gate import Gate
from core.memory import BOT_MEMORY
from core.messages import Inbound, Outbound, Sender, text_of
from core.model import Answer, OnText, Request, ToolCall
from core.spending import Spending
from core.store import BotStore, SessionRef
from core.tools import Tool, ToolContext, tool
from stores.memory import MemoryStore
from tests.core.fakes import FakeClock, calls, said, settle
from tests.faults.faulty_store import FaultyStore
from tests.history_checker import check, tell
from tests.history_log import (
    TOKEN,
    Answered,
    Asked,
    Confirmed,
    Effect,
    LogEvent,
    Marked,
    Said,
    Sent,
    Stored,
    Written,
)
from tests.history_log import Accepted as Taken

T = TypeVar("T")

KEY: Final = "test:1"
ADA: Final = Sender("test:ada", "Ada")


class Shown(NamedTuple):
    """A part on the screen."""

    process: str
    part: str
    text: str
    uncertain: bool


class World:
    """What all processes have in common: time, the database, the platform, and who writes."""

    def __init__(self, store: BotStore | None = None, *, can_look_up: bool = False) -> None:
        self.clock = FakeClock(manual=True)
        self.store = store or MemoryStore()
        self.can_look_up = can_look_up
        self.shown: list[Shown] = []
        self.log: list[LogEvent] = []
        self.updates = 0
        self.answers = 0
        self.asked = 0
        self.under_way = 0
        self.ran: list[str] = []
        self.holding: set[str] = set()
        self.let_go = asyncio.Event()

    def inbound(self, text: str, key: str = KEY, **fields: Any) -> Inbound:
        self.updates += 1
        kind = fields.pop("kind", "command" if text.startswith("/") else "message")
        inbound = Inbound(
            id=f"{self.updates:05}",
            key=key,
            kind=kind,
            sender=fields.pop("sender", ADA),
            text=text,
            message_id=fields.pop("message_id", f"q{self.updates}"),
            **fields,
        )
        name = text.strip("/") if text in ("/reset", "/stop") else "command"
        written: Any = name if kind == "command" else "message"
        self.log.append(Written(chat=key, update=self.updates, text=text, kind=written))
        return inbound

    def hold(self, token: str) -> None:
        """The model does not answer to this one until `release`."""
        self.holding.add(token)
        self.let_go.clear()

    def release(self) -> None:
        self.holding.clear()
        self.let_go.set()

    async def settle(self, rounds: int = 12) -> None:
        """Everything that can go on without time has gone on; a server takes its own."""
        await settle(rounds)
        while self.under_way:
            await asyncio.sleep(0.001)
            await settle(rounds)

    async def judge(self, *, twice: int = 0) -> None:
        """
        :param twice: so many parts may have come a second time, one after the other
        """
        again = [part for part in self.parts if self.parts.count(part) > 1]
        assert len(again) <= 2 * twice, f"more than {twice} came twice: {self.shown}"
        first: dict[str, Sent] = {}
        for number, each in enumerate(self.shown):
            # What came a second time is no news; all else must be as if it had not.
            sent = Sent(life=1, chat=KEY, message=number, text=each.text)
            if first.setdefault(each.part, sent) is sent:
                self.log += [sent, Marked(chat=KEY, message=number)]
        self.log += [await self._stored()]
        findings = check(self._ordered())
        assert not findings, f"{tell(findings)}\n{self.shown}"

    @property
    def parts(self) -> list[str]:
        return [each.part for each in self.shown]

    def _ordered(self) -> list[LogEvent]:
        """Sends behind what was asked: their places among each other are what counts."""
        last = (Sent, Marked, Stored)
        return [each for each in self.log if not isinstance(each, last)] + [
            each for each in self.log if isinstance(each, last)
        ]

    async def _stored(self) -> Stored:
        snapshot = await self.store.load(SessionRef(KEY))
        rows = snapshot.messages if snapshot else ()
        messages = []
        for row in rows:
            blocks = msgspec.json.decode(bytes(row.blocks))
            messages.append(
                Said(
                    row.role,
                    text_of(row.blocks),
                    tuple(each["id"] for each in blocks if each["type"] == "tool_use"),
                    tuple(each["tool_use_id"] for each in blocks if each["type"] == "tool_result"),
                )
            )
        unfinished = bool(snapshot and snapshot.unfinished)
        return Stored(chat=KEY, messages=tuple(messages), unfinished=unfinished)


Plan = Callable[[str], bool]


class Process:
    """
    :param stops: asked at each thing that it asks of the world: whether it is stopped there
    """

    def __init__(
        self,
        world: World,
        name: str,
        *,
        stops: Plan = lambda what: False,
        when_busy: WhenBusy = "collect",
        on_unknown_outcome: OnUnknownOutcome = "resend",
        spending: Spending | None = None,
        shared: bool = True,
        approvers: tuple[str, ...] = (),
        allow: tuple[str, ...] = (),
        open_to_all: bool = True,
        per_minute: int = 1000,
        agent: Agent | None = None,
    ) -> None:
        self.world = world
        self.name = name
        self.stops = stops
        self.stopped = False
        self.calls: list[str] = []
        self.goes = asyncio.Event()
        self.submitted: list[str] = []
        self.store = _Stopping(world.store, self)
        self.screen = _Screen(self)
        self.gate = Gate(
            self.store.notes,
            world.clock,
            allow=allow,
            open_to_all=open_to_all,
            per_minute=per_minute,
        )
        self.conversations = Conversations(
            self.store,
            agent or Agent(memory=BOT_MEMORY, tools=(_noting(self),)),
            _Echo(self),
            (self.screen,),
            self.gate,
            world.clock,
            self._submit,
            Options("/", when_busy, on_unknown_outcome, approvers=approvers, shared=shared),
            spending=spending,
        )

    async def _submit(self, key: str, inbound_id: str) -> None:
        self.submitted.append(key)

    async def passes(self, what: str) -> None:
        """Nothing of a stopped process goes on."""
        if not self.stopped and self.stops(what):
            self.stopped = True
            self.goes.clear()
        while self.stopped:
            await self.goes.wait()

    def go_on(self) -> None:
        self.stopped = False
        self.goes.set()

    async def says(self, text: str, key: str = KEY, **fields: Any) -> Acceptance:
        """Somebody writes, and this process takes it in."""
        return await self.takes(self.world.inbound(text, key, **fields))

    async def takes(self, inbound: Inbound) -> Acceptance:
        acceptance = await self.conversations.accept(inbound)
        if not isinstance(acceptance, Refused):
            update = int(inbound.id)
            if isinstance(acceptance, Accepted):
                self.world.log.append(Taken(chat=inbound.key, update=update))
            self.world.log.append(Confirmed(update=update))
        return acceptance

    async def works(self, key: str = KEY, *, calls: int = 20) -> bool:
        """As an engine does it, but without its waits. Whether it came to an end."""
        for _ in range(calls):
            outcome = await self.conversations.work(key)
            if not isinstance(outcome, Again):
                return True
            if outcome.seconds:
                await self.world.clock.sleep(outcome.seconds)
        return False


async def passing(world: World, *tasks: asyncio.Future[Any], seconds: float = 200.0) -> None:
    """Time passes until all of these are done."""
    for _ in range(int(seconds * 2)):
        await world.settle()
        if all(task.done() for task in tasks):
            return
        world.clock.advance(0.5)
    raise AssertionError("it never came to an end")


class _Stopping(FaultyStore):
    def __init__(self, store: BotStore, process: Process) -> None:
        super().__init__(store)
        self._process = process

    async def _call(self, name: str, about: str, effect: Callable[[], Awaitable[T]]) -> T:
        await self._process.passes(f"before {name}")
        self._process.calls.append(name)
        await asyncio.sleep(0)
        self._process.world.under_way += 1
        try:
            outcome = await effect()
        finally:
            self._process.world.under_way -= 1
        await self._process.passes(f"after {name}")
        return outcome


class _Quiet:
    def show(self, text: str) -> bool:
        return False

    async def close(self) -> tuple[str, ...]:
        return ()


class _Screen:
    """Its bodies are the text itself; "|" parts them."""

    name = "screen"

    def __init__(self, process: Process) -> None:
        self.limits = Limits(can_look_up=process.world.can_look_up)
        self.script: list[BaseException | None] = []
        self._process = process

    def serves(self, key: str) -> bool:
        return key.startswith("test:")

    async def run(self, accept: Any) -> None:
        raise NotImplementedError

    def render(self, markdown: str) -> tuple[str, ...]:
        return tuple(part for part in markdown.strip().split("|") if part)

    def live(self, key: str, inbound: Inbound, shown: tuple[str, ...], showing: Showing) -> Live:
        self.showing = showing
        return _Quiet()

    async def send(self, key: str, part: Outbound, *, uncertain: bool) -> Receipt:
        process, world = self._process, self._process.world
        await process.passes("send")
        error = self.script.pop(0) if self.script else None
        if error is not None:
            raise error
        world.shown.append(Shown(process.name, part.id, part.body or "", uncertain))
        number = len(world.shown)
        await process.passes("sent")
        return Receipt((f"m{number}",))


class _Echo:
    """The model: "long" gives three parts, "tool" a call first."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def answer(self, request: Request, on_text: OnText | None = None) -> Answer:
        process, world = self._process, self._process.world
        await process.passes("ask")
        newest: list[str] = []
        called = False
        for message in request.messages:
            text = text_of(message.blocks) + ";"
            if message.role == "assistant" and b'"tool_use"' not in bytes(message.blocks):
                newest, called = [], False
            elif message.role == "user":
                newest.append(text)
                called |= b'"tool_result"' in bytes(message.blocks)
        asked = " ".join(newest)
        now = tuple(dict.fromkeys(TOKEN.findall(asked)))
        world.asked += 1
        world.log.append(Asked(life=1, now=now))
        while any(token in world.holding for token in now):
            await world.let_go.wait()
        await process.passes("answered")
        if "tool" in asked and not called:
            return calls(ToolCall(f"call-{now[-1]}", "note", {"token": now[-1]}))
        world.answers += 1
        name = f"a{world.answers}"
        world.log.append(Answered(answer=name, tokens=now))
        pieces = 3 if "long" in asked else 1
        marks = [f"!{name}.{number}/{pieces}" for number in range(1, pieces + 1)]
        return said("|".join([" ".join([*now, marks[0]]), *marks[1:]]))

    async def close(self) -> None:
        raise NotImplementedError


def _noting(process: Process) -> Tool:
    @tool(name="note")
    async def note(token: str, context: ToolContext) -> str:
        """Notes it."""
        await process.passes("tool")
        process.world.ran.append(token)
        process.world.log.append(Effect(token=token))
        return f"noted {token}"

    return note
