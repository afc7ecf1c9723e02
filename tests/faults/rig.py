"""A bot whose platform, model and store can fail at any call, and that can die at any await.

The core is the real one; around it stand a platform like Telegram (what is not confirmed comes
again, in order), a model that echoes the tokens it was asked about, and one clock for all. Whatever
happens is written into one log, over all lives of the bot; `verdict.py` judges it. Nothing here
knows what is right.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from core.adapter import Card, Limits, Live, Receipt, Refused, Showing
from core.agent import Agent
from core.answering import WhenBusy
from core.conversations import Conversations, Options
from core.delivery import OnUnknownOutcome
from core.engine import EmbeddedEngine
from core.errors import Fatal, Gone, Moved, StoreError
from core.gate import Gate
from core.memory import BOT_MEMORY
from core.messages import Inbound, Message, Outbound, Sender, text_of
from core.model import Answer, OnText, Request, ToolCall
from core.snapshot import Snapshot
from core.store import SessionRef
from core.tools import ToolContext, tool
from stores.memory import MemoryStore
from tests.core.fakes import FakeClock, calls, said
from tests.faults.faulty_store import Call, Dead, Fault, FaultyStore, Kind, Plan

TOKEN: Final = re.compile(r"t\d+")
CHAT: Final = "test:1"
ADA: Final = Sender("test:ada", "Ada")


def tokens(text: str) -> tuple[str, ...]:
    """Each message says one, and an answer repeats those it answers."""
    return tuple(dict.fromkeys(TOKEN.findall(text)))


class Event(NamedTuple):
    """
    :param what: tried, accepted, duplicate, refused, began, shown, tool, dropped, lost, gone
    :param name: an inbound id, a part id, a token
    """

    what: str
    key: str = ""
    name: str = ""
    text: str = ""


class SendFault(NamedTuple):
    """
    :param shown: the part is on the screen all the same
    :param before: done to the platform first
    """

    error: BaseException | None
    shown: bool = False
    before: Callable[[], None] = lambda: None


class Rig:
    """The world outside, which survives the bot; and the bot of the moment, `life`."""

    def __init__(
        self,
        *,
        plan: Plan = lambda call: None,
        rounds: Callable[[], int] = lambda: 1,
        when_busy: WhenBusy = "collect",
        on_unknown_outcome: OnUnknownOutcome = "resend",
        owner: bool = True,
    ) -> None:
        self.clock = FakeClock(manual=True)
        self.disk = MemoryStore()
        self.damaged: set[str] = set()
        self.log: list[Event] = []
        self.plan = plan
        self.rounds = rounds
        self.options = Options("/", when_busy, on_unknown_outcome)
        self.owner = owner
        # The platform.
        self.said = 0
        self.updates: list[Inbound] = []
        self.offset = 0
        self.moves: dict[str, str] = {}
        self.unannounced: dict[str, str] = {}
        self.forgotten: set[str] = set()
        self.unknown: set[str] = set()
        self.blocked: set[str] = set()
        self.sends = 0
        self.send_plan: Callable[[int], SendFault | None] = lambda number: None
        self.may_repeat: dict[str, int] = {}
        # The model.
        self.asked = 0
        # Somebody who presses every new button of this sign as soon as they see it.
        self.presses: str | None = None
        self.pressed: set[str] = set()
        self.model_plan: Callable[[int], BaseException | None] = lambda number: None
        self.holding: set[str] = set()
        self.let_go = asyncio.Event()
        self.call_ids = 0
        self.restarts = 0
        self.life: _Life | None = None

    # ------------------------------------------------------------------ what people do

    def says(self, text: str, chat: str = CHAT, **fields: Any) -> Inbound:
        """A new update of the platform. It is there until it is confirmed."""
        self._announce_move(chat)
        number = self.said = self.said + 1
        inbound = Inbound(
            id=f"u{number:05}",
            key=fields.pop("key", None) or self.now_at(chat),
            kind=fields.pop("kind", "command" if text.startswith("/") else "message"),
            sender=fields.pop("sender", ADA),
            text=text,
            message_id=fields.pop("message_id", f"q{number:05}"),
            **fields,
        )
        self.updates.append(inbound)
        return inbound

    def sees(self, key: str, body: str, message_id: str) -> None:
        """A card is on the screen."""
        for data in body.split()[1:]:
            if body.startswith("card ") and data[0] == self.presses and data not in self.pressed:
                self.pressed.add(data)
                self.says(data, key, kind="decision", message_id=message_id)

    def says_again(self, inbound: Inbound) -> None:
        """The platform repeats itself. But not what nobody can know any more: ids seen are set
        aside with what is unreadable, and which key a chat had is remembered by a life only."""
        if inbound.key not in self.forgotten and inbound.id not in self.unknown:
            self.updates.append(inbound)

    def moves_to(self, new: str, chat: str = CHAT, *, announced: bool = True) -> None:
        """
        :param announced: at once; else before the next message there, if there is one
        """
        old = self.now_at(chat)
        if old == new:
            return
        self._announce_move(chat)
        self.unannounced[new] = old
        self.moves[old] = new
        if announced:
            self._announce_move(chat)

    def _announce_move(self, chat: str) -> None:
        new = self.now_at(chat)
        old = self.unannounced.pop(new, None)
        if old is not None:
            self.says(new, old, kind="moved", key=old)

    def now_at(self, key: str) -> str:
        """Where a chat that had this key is now."""
        while key in self.moves:
            key = self.moves[key]
        return key

    def hold(self, token: str) -> None:
        """The model does not answer this one until `release`."""
        self.holding.add(token)
        self.let_go.clear()

    def release(self) -> None:
        self.holding.clear()
        self.let_go.set()

    # ------------------------------------------------------------------ time

    async def run(self, rounds: int = 120) -> None:
        """No time passes, but whatever can go on does; a bot that has died is started again."""
        for _ in range(rounds):
            await asyncio.sleep(0)
            if self.life is None or self.life.broken:
                await self.restart()

    async def rest(self) -> bool:
        """All time passes, and nothing fails any more. Whether everything came to an end."""
        self.release()
        passed = False
        for number in range(300):
            await self.run(40)
            if not self._quiet():
                passed = False
                self.clock.advance(1.0 if number < 20 else 30.0)
            elif passed:
                return True
            else:
                # Something may wait for its time, and nobody sees it but the engine.
                passed = True
                self.clock.advance(4_000)
        return False

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.run(40)

    def _quiet(self) -> bool:
        idle = self.life is not None and self.life.engine.depth() == 0
        return idle and self.offset == len(self.updates) and not self.disk._table.unfinished

    # ------------------------------------------------------------------ life and death

    async def restart(self) -> None:
        """An orderly end, as far as the bot manages, and a new life."""
        if self.life is not None:
            await self.life.stop()
            self.allow_repeats()
            self.restarts += 1
        self._begin_life()

    async def kill(self) -> None:
        """Nothing that was under way happens any more. Nobody starts it again but `run`."""
        if self.life is not None:
            self.life.dead = self.life.store.dead = True
            self.allow_repeats()
            await self.life.stop()
            self.life = None

    def _begin_life(self) -> None:
        """Which key a chat had before is remembered by a life only (see `says_again`). So what was
        taken before a move is not repeated to a new life; the rest comes when it was told again."""
        self.forgotten = set(self.moves)
        seen = {each for snapshot in self.stored().values() for each in snapshot.seen}
        waiting, self.updates[self.offset :] = self.updates[self.offset :], []
        for old, new in self.moves.items():
            self.says(new, old, kind="moved", key=old)
        for inbound in waiting:
            if inbound.key not in self.forgotten or inbound.kind == "moved":
                self.updates.append(inbound)
            elif inbound.id in seen:
                self.accepted("duplicate", inbound)
            else:
                self.updates.append(replace(inbound, key=self.now_at(inbound.key)))
        self.life = _Life(self)

    async def end(self) -> None:
        if self.life is not None:
            await self.life.stop()
            self.life = None

    # ------------------------------------------------------------------ the log

    @property
    def troubled(self) -> bool:
        """Whether anything has failed at all."""
        return any(event.what in ("struck", "gone") for event in self.log) or bool(self.moves)

    def write(self, what: str, key: str = "", name: str = "", text: str = "") -> None:
        self.log.append(Event(what, key, name, text))

    def accepted(self, how: str, inbound: Inbound) -> None:
        self.write(how, inbound.key, inbound.id, inbound.text)
        if inbound.text in ("/stop", "/undo", "/forget yes"):
            self._note_dropped(inbound)
        if inbound.kind == "moved":
            # What was being sent is noted under a key where nothing is any more.
            self.allow_repeats()

    def _note_dropped(self, stop: Inbound) -> None:
        """What was taken away: said before, and now in no history, inbox or outbox."""
        left = str(
            [
                (kept.rows.values(), kept.snapshot.inbox, kept.snapshot.outbox)
                for kept in self.disk._table.sessions.values()
            ]
        ) + str([event.text for event in self.log if event.what == "shown"])
        for event in tuple(self.log):
            same = self.now_at(event.key) == self.now_at(stop.key)
            taken = event.what in ("accepted", "duplicate")
            if taken and event.name != stop.id and same:
                for token in set(tokens(event.text)) - set(TOKEN.findall(left)):
                    self.write("dropped", event.key, event.name, token)

    def allow_repeats(self, key: str | None = None) -> None:
        """What is on the screen now and not noted as delivered may come a second time."""
        on_screen = {event.name for event in self.log if event.what == "shown"}
        for stored, snapshot in self.stored().items():
            for part in snapshot.outbox:
                if part.id in on_screen and key in (None, stored):
                    self.may_repeat[part.id] = self.may_repeat.get(part.id, 0) + 1

    def stored(self) -> dict[str, Snapshot]:
        """What is on the disk, behind everybody's back."""
        return {key: kept.snapshot for key, kept in self.disk._table.sessions.items()}

    def struck(self, call: Call, fault: Fault) -> None:
        """A fault of the store happens now."""
        self.write("struck", call.about, f"{call.number} {call.name}", str(fault))
        self.allow_repeats()
        task = asyncio.current_task()
        if fault.kind is Kind.CANCELLED and task is not None and self.life is not None:
            # Only the end of the program cancels a lane.
            self.life.ending |= task.get_name().startswith("lane")

    def lost(self, key: str) -> None:
        """It is set aside. The bot says so, and that stands for all that waited there."""
        snapshot = self.stored().get(key)
        self.unknown.update(snapshot.seen if snapshot else ())
        for inbound in snapshot.inbox if snapshot else ():
            self.write("lost", key, inbound.id, inbound.text)
        for part in snapshot.outbox if snapshot else ():
            self.write("lost", key, part.id, part.body or "")


class _Life:
    """One process: from its start until it is stopped or killed."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.dead = False
        self.ending = False
        self.store = FaultyStore(
            rig.disk,
            self._planned,
            rounds=rig.rounds,
            struck=rig.struck,
            damaged=rig.damaged,
            aside=rig.lost,
        )
        self.engine = EmbeddedEngine(rig.clock)
        self.gate = Gate(self.store.notes, rig.clock, open_to_all=rig.owner, per_minute=1_000_000)
        self.conversations = Conversations(
            self.store,
            Agent(memory=BOT_MEMORY, tools=(_noting(self), _noting(self, "bound"))),
            _Echo(self),
            (_Screen(self),),
            self.gate,
            rig.clock,
            self.engine.submit,
            rig.options,
        )
        self.tasks = [
            asyncio.create_task(self._work(), name="engine"),
            asyncio.create_task(self._poll(), name="poll"),
        ]

    @property
    def broken(self) -> bool:
        return self.ending or any(task.done() for task in self.tasks)

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self.tasks, return_exceptions=True):
            # What may end a program: its operator, the store, what the core calls Fatal, and an
            # await that gave up by itself.
            fine = (asyncio.CancelledError, Fatal, StoreError, Dead)
            assert isinstance(outcome, fine) or "cancelled by nobody" in str(outcome), repr(outcome)
        self.dead = self.store.dead = True

    def breathe(self) -> None:
        if self.dead:
            raise Dead

    def _planned(self, call: Call) -> Fault | None:
        """The plan of the moment: a story makes others while it goes on."""
        return self.rig.plan(call)

    async def _work(self) -> None:
        while True:
            try:
                await self.conversations.open()
                break
            except StoreError:
                # The program would end, and be started again.
                await self.rig.clock.sleep(1.0)
        async for key in self.store.unfinished():
            await self.engine.submit(key, "")
        await self.engine.run(self.conversations.work)
        raise AssertionError("the engine ended by itself")

    # ------------------------------------------------------------------ the adapter's intake

    async def _poll(self) -> None:
        """As Telegram's poller does it: chats side by side, the offset up to the first failure."""
        if not self.rig.owner:
            await self.gate.open()
        while True:
            begin, batch = self.rig.offset, self.rig.updates[self.rig.offset :]
            passed = [False] * len(batch)
            for stretch in _stretches(batch):
                chains = [self._accept_chain(batch, chain, passed) for chain in stretch]
                outcomes = await asyncio.gather(
                    *(asyncio.create_task(chain) for chain in chains), return_exceptions=True
                )
                if any(isinstance(outcome, BaseException) for outcome in outcomes):
                    break
            confirmed = passed.index(False) if False in passed else len(passed)
            self.rig.offset = begin + confirmed
            if confirmed < len(batch):
                await self.rig.clock.sleep(1.0)
            else:
                await asyncio.sleep(0)

    async def _accept_chain(
        self, batch: list[Inbound], chain: Iterable[int], passed: list[bool]
    ) -> None:
        for index in chain:
            if batch[index].kind != "edit":
                await self.accept(batch[index])
            passed[index] = True

    async def accept(self, inbound: Inbound) -> object:
        self.rig.write("tried", inbound.key, inbound.id, inbound.text)
        acceptance = await self.conversations.accept(inbound)
        self.breathe()
        self.rig.accepted(type(acceptance).__name__.lower(), inbound)
        if not isinstance(acceptance, Refused):
            await self.engine.submit(inbound.key, inbound.id)
        return acceptance


def _stretches(batch: list[Inbound]) -> Iterable[list[list[int]]]:
    """Indexes of one chat's messages in order; a move is a stretch of its own."""
    chains: dict[str, list[int]] = {}
    for index, inbound in enumerate(batch):
        if inbound.kind == "moved":
            yield list(chains.values())
            yield [[index]]
            chains = {}
        else:
            chains.setdefault(inbound.key, []).append(index)
    yield list(chains.values())


class _Quiet:
    def show(self, text: str) -> bool:
        return False

    async def close(self) -> tuple[str, ...]:
        return ()


class _Screen:
    """The adapter. Its bodies are the text itself; "|" parts them."""

    name = "screen"

    def __init__(self, life: _Life) -> None:
        self.limits = Limits()
        self._life = life

    def serves(self, key: str) -> bool:
        return key.startswith("test:")

    async def run(self, accept: Any) -> None:
        raise NotImplementedError

    def render(self, markdown: str) -> tuple[str, ...]:
        return tuple(part for part in markdown.strip().split("|") if part)

    def render_card(self, card: Card) -> str:
        """Without the arguments, which are tokens: they are not said by that."""
        return " ".join(["card", *(choice.data for choice in card.choices)])

    def live(self, key: str, inbound: Inbound, shown: tuple[str, ...], showing: Showing) -> Live:
        return _Quiet()

    async def send(self, key: str, part: Outbound, *, uncertain: bool) -> Receipt:
        rig = self._life.rig
        self._life.breathe()
        rig.sends += 1
        rig.write("began", key, part.id, part.body or "")
        await self._pause()
        fault = rig.send_plan(rig.sends)
        if fault is not None:
            fault.before()
        if key in rig.moves:
            raise Moved(key, rig.moves[key])
        if key in rig.blocked:
            rig.write("gone", key, part.id)
            raise Gone("blocked")
        if fault is None or fault.shown:
            rig.write("shown", key, part.id, part.body or "")
            rig.sees(key, part.body or "", f"m{rig.sends}")
        await self._pause()
        if fault is not None and fault.error is not None:
            self._fail(key, part, fault.error, fault.shown)
            await asyncio.sleep(0)
        return Receipt((f"m{rig.sends}",))

    async def send_file(self, key: str, part: Outbound, data: bytes, *, uncertain: bool) -> Receipt:
        return await self.send(key, replace(part, body=f"file {part.id}"), uncertain=uncertain)

    def _fail(self, key: str, part: Outbound, error: BaseException, shown: bool) -> None:
        rig = self._life.rig
        rig.write("struck", key, part.id, repr(error))
        if shown:
            rig.may_repeat[part.id] = rig.may_repeat.get(part.id, 0) + 1
        if isinstance(error, Gone):
            rig.write("gone", key, part.id)
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            assert task is not None
            self._life.ending = True
            task.cancel()
            return
        raise error

    async def _pause(self) -> None:
        for _ in range(self._life.rig.rounds()):
            await asyncio.sleep(0)
        self._life.breathe()


class _Echo:
    """The model: repeats the tokens of what it is asked; "long" gives three parts, "tool" a call of
    the tool first, as long as it may, and "ask" a call of the one that needs an approval."""

    def __init__(self, life: _Life) -> None:
        self._life = life

    async def answer(self, request: Request, on_text: OnText | None = None) -> Answer:
        rig = self._life.rig
        self._life.breathe()
        rig.asked += 1
        number = rig.asked
        exchange = _newest(request.messages)
        asked = " ".join(text_of(message.blocks) for message in exchange if message.role == "user")
        for _ in range(rig.rounds()):
            await asyncio.sleep(0)
        while any(token in rig.holding for token in tokens(asked)):
            await rig.let_go.wait()
        self._life.breathe()
        if error := rig.model_plan(number):
            rig.write("struck", "", f"model {number}", repr(error))
            raise error
        called = str([bytes(each.blocks) for each in exchange if each.role == "assistant"])
        for token, how in re.findall(r"(t\d+) (tool|ask)", asked):
            if request.use_tools and f'"{token}"' not in called:
                rig.call_ids += 1
                name = "note" if how == "tool" else "bound"
                return calls(ToolCall(f"call-{rig.call_ids}", name, {"token": token}))
        echo = " ".join(tokens(asked))
        long = "long" in asked
        return said("|".join(f"re {echo} {number}/3" for number in (1, 2, 3)) if long else echo)

    async def close(self) -> None:
        raise NotImplementedError


def _newest(messages: Iterable[Message]) -> list[Message]:
    """What belongs to the question: back to the last answer that called nothing."""
    exchange: list[Message] = []
    for message in messages:
        if message.role == "assistant" and b'"tool_use"' not in bytes(message.blocks):
            exchange = []
        else:
            exchange.append(message)
    return exchange


def _noting(life: _Life, name: str = "note") -> Any:
    @tool(name=name, needs_approval=name == "bound")
    async def note(token: str, context: ToolContext) -> str:
        """Writes a token down."""
        life.breathe()
        life.rig.write("tool", context.session_key, token)
        await asyncio.sleep(0)
        life.breathe()
        return "noted"

    return note


async def rows_of(disk: MemoryStore, key: str) -> list[Message]:
    """The whole history, oldest first."""
    newest_first = [row async for row in disk.archive(SessionRef(key), limit=100_000)]
    return newest_first[::-1]


Action = Callable[[Rig], Awaitable[None]]
