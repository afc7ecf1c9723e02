"""Runs of whole bots (`stacks.py`), and of what a bot costs besides its turns: the time to the
first text, what is our own in a turn, memory, and the start of the command."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.measure import Meter, descriptors, median, percentile, resident
from bench.ours import NOW, grown, inbound
from bench.outside import APART, BOT, TOKEN, Order, Outside, pieces, stream
from bench.said import Exchange, exchange, exchanges
from bench.stacks import INSTRUCTIONS, MODEL, STACKS, Reader, Socket, Stack, key_of, plain_body
from bench.subject import Alternation, Numbers, Spec, Wrong
from bots.telegram.adapter import TelegramAdapter
from bots.telegram.parse import parse
from bots.telegram.received import Me
from bots.telegram.updates import read
from core.adapter import Accepted, Limits, Live, Receipt, Showing
from core.agent import Agent
from core.claude import Claude, encode_request
from core.clock import SystemClock
from core.conversations import Conversations
from core.engine import EmbeddedEngine
from core.gate import Gate
from core.history import repair
from core.memory import BOT_MEMORY
from core.messages import Inbound, Outbound, encode_blocks, text_block
from core.model import Answer, OnText, Request
from core.snapshot import Snapshot, Usage
from core.sse import Assembly
from core.store import BotStore
from stores.memory import MemoryStore
from stores.sqlite import SQLiteStore

TOGETHER: Final = 50  # chats that wait for a reply at any time
NOBODY: Final = "http://127.0.0.1:9"  # should anything leave after all


@asynccontextmanager
async def _outside() -> AsyncIterator[Outside]:
    outside = await Outside.begin()
    try:
        yield outside
    finally:
        await outside.end()


@asynccontextmanager
async def _under_way(
    spec: Spec, said: dict[str, list[Exchange]]
) -> AsyncIterator[tuple[Outside, Stack]]:
    """A bot that has been told all this, and the world that it is in."""
    async with _outside() as outside:
        stack = STACKS[spec.who](Path(spec.folder), outside)
        await stack.fill(said)
        await stack.open()
        try:
            yield outside, stack
        finally:
            await stack.close()


async def _told(outside: Outside, order: Order) -> float:
    """Seconds that it took."""
    report = await outside.order(order)
    if report.wrong:
        raise Wrong(report.wrong)
    return report.wall


# ---------------------------------------------------------------------- a whole turn


async def whole(spec: Spec) -> Numbers:
    """Rounds in which each chat says one thing, `TOGETHER` at a time; the first is not timed."""
    said = {
        key_of(index): exchanges(spec.history // 2, index * APART) for index in range(spec.chats)
    }
    order = Order(
        turns=spec.chats,
        chats=spec.chats,
        together=min(TOGETHER, spec.chats),
        history=spec.history,
    )
    turns = spec.chats * spec.turns
    cpu = wall = 0.0
    p50: list[float] = []
    p99: list[float] = []
    async with _under_way(spec, said) as (outside, stack):
        await _told(outside, order)
        gc.collect()
        alternation = Alternation(spec.block)
        for _ in range(spec.turns):
            alternation.wait()
            with Meter() as meter:
                report = await outside.order(order)
            if report.wrong:
                raise Wrong(report.wrong)
            cpu += meter.cpu
            wall += report.wall
            p50.append(report.p50)
            p99.append(report.p99)
        memory = resident()
    expected = spec.history + 2 * (spec.turns + 1)
    for key, found in (await stack.counts(list(said))).items():
        if found != expected:
            raise Wrong(f"{key}: {found} messages are stored, not {expected}")
    return {
        "turns": turns,
        "cpu": cpu / turns * 1e3,
        "per_core": turns / cpu,
        "per_second": turns / wall,
        "p50": median(p50),
        "p99": median(p99),
        "memory": memory,
    }


async def busy(spec: Spec) -> Numbers:
    """All chats wait for the rest of an answer that has begun."""
    said = {
        key_of(index): exchanges(spec.history // 2, index * APART) for index in range(spec.chats)
    }
    async with _under_way(spec, said) as (outside, _):
        few = Order(turns=50, chats=10, together=5, history=spec.history)
        await _told(outside, few)
        gc.collect()
        before, tasks, open_files = resident(), len(asyncio.all_tasks()), descriptors()
        order = Order(
            mode="held",
            turns=spec.chats,
            chats=spec.chats,
            together=spec.chats,
            held=spec.chats,
            history=spec.history,
        )
        await _told(outside, order)
        # The first piece of the last one is on its way.
        await asyncio.sleep(0.5)
        gc.collect()
        memory = (resident() - before) * 2**20 / spec.chats
        tasks, open_files = len(asyncio.all_tasks()) - tasks, descriptors() - open_files
        await _told(outside, Order(release=True))
    return {
        "memory": memory,
        "history": sum(each.payload for all_of_it in said.values() for each in all_of_it)
        / spec.chats,
        "tasks": tasks / spec.chats,
        "descriptors": open_files / spec.chats,
    }


# ---------------------------------------------------------------------- first text


async def first(spec: Spec) -> Numbers:
    """From a history in memory to the first piece of the answer, one question after the other."""
    said = exchanges(spec.history // 2)
    snapshot = grown("telegram-chat:1", said)
    number = len(said)
    # The numbers of what it says tell the outside how much must stand before it.
    asked = exchange(number)
    took: list[float] = []
    async with _outside() as outside:
        await outside.order(Order(mode="paced"))
        ask, close = _ASKS[spec.who](outside, snapshot, asked)
        alternation = Alternation(spec.block)
        for each in range(-3, spec.turns):
            if each >= 0:
                alternation.wait()
            began = time.perf_counter()
            at = await ask()
            if each >= 0:
                took.append(at - began)
        await close()
    return {"p50": percentile(took, 50) * 1e3, "p99": percentile(took, 99) * 1e3}


class _First:
    """When it was called first."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self, piece: str) -> None:
        self.at = self.at or time.perf_counter()


Ask = Callable[[], Awaitable[float]]
Close = Callable[[], Awaitable[None]]


def _ask_ours(outside: Outside, snapshot: Snapshot, asked: Exchange) -> tuple[Ask, Close]:
    client = Claude("sk-bench", outside.url)
    more = grown("telegram-chat:1", [asked]).messages[0]
    more = msgspec.structs.replace(more, seq=snapshot.next_seq)

    async def ask() -> float:
        first = _First()
        messages = repair((*snapshot.messages, more))
        request = Request(model=MODEL, system=(INSTRUCTIONS,), messages=messages)
        await client.answer(request, first)
        return first.at

    return ask, client.close


def _ask_bare(outside: Outside, snapshot: Snapshot, asked: Exchange) -> tuple[Ask, Close]:
    body = plain_body([bytes(row) for row in _rows(snapshot)], asked.user_message)
    sockets: list[Socket] = []

    async def ask() -> float:
        if not sockets:
            sockets.append(await Socket.open(outside.port))
        first, reader = _First(), Reader()

        def feed(data: bytes) -> bool:
            ended = reader.feed(data)
            if reader.said:
                first("")
            return ended

        await sockets[0].ask(body, feed)
        return first.at

    async def close() -> None:
        for socket in sockets:
            await socket.close()

    return ask, close


def _ask_stream(outside: Outside, snapshot: Snapshot, asked: Exchange) -> tuple[Ask, Close]:
    """As the SDK's documentation shows it."""
    import anthropic

    client = anthropic.AsyncAnthropic(api_key="sk-bench", base_url=outside.url)
    messages: list[Any] = [msgspec.json.decode(row) for row in _rows(snapshot)]
    messages.append(msgspec.json.decode(asked.user_message))

    async def ask() -> float:
        first = _First()
        async with client.messages.stream(
            model=MODEL, max_tokens=4096, system=INSTRUCTIONS, messages=messages
        ) as stream:
            async for piece in stream.text_stream:
                first(piece)
        return first.at

    return ask, client.close


def _rows(snapshot: Snapshot) -> list[bytes]:
    return [
        b'{"role":"%b","content":%b}' % (message.role.encode(), bytes(message.blocks))
        for message in snapshot.messages
    ]


_ASKS: Final = {
    "chinwag": _ask_ours,
    "bare sockets": _ask_bare,
    "Anthropic stream": _ask_stream,
}


# ---------------------------------------------------------------------- what is our own


class _Later(SystemClock):
    """A clock that can be put forward."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class AtOnce:
    """A model that answers in no time, in 100 pieces.

    :param reads: whether the request is encoded and a stream of bytes read
    """

    def __init__(self, *, reads: bool) -> None:
        said = exchange(3).answer
        self._pieces = pieces(said)
        self._stream = stream(said)
        self._reads = reads
        self._answer = Answer(
            blocks=encode_blocks([text_block(said)]),
            text=said,
            calls=(),
            stop_reason="end_turn",
            usage=Usage(input_tokens=120, output_tokens=180),
        )

    async def answer(self, request: Request, on_text: OnText | None = None) -> Answer:
        if self._reads:
            encode_request(request)
            assembly = Assembly(on_text)
            assembly.feed(self._stream)
            return assembly.answer()
        assert on_text is not None
        for piece in self._pieces:
            on_text(piece)
        return self._answer

    async def close(self) -> None:
        pass


class _Still:
    def show(self, text: str) -> bool:
        return False

    async def close(self) -> tuple[str, ...]:
        return ()


class Nowhere:
    """An adapter whose messages arrive at once, nowhere."""

    name = "telegram"

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.waiting: dict[str, asyncio.Future[None]] = {}
        self._ids = count(1)

    def serves(self, key: str) -> bool:
        return True

    async def run(self, accept: Any) -> None:
        raise NotImplementedError

    def render(self, markdown: str) -> tuple[str, ...]:
        return (msgspec.json.encode({"text": markdown}).decode(),)

    async def send(self, key: str, part: Outbound, *, uncertain: bool) -> Receipt:
        self.waiting.pop(key).set_result(None)
        return Receipt((str(next(self._ids)),))

    def live(self, key: str, inbound: Inbound, shown: tuple[str, ...], showing: Showing) -> Live:
        return _Still()


class _ToTelegram(Nowhere):
    """The same behind all of the Telegram adapter that is ours: keys, rendering, typing."""

    def __init__(self, adapter: TelegramAdapter) -> None:
        super().__init__(adapter.limits)
        self.serves = adapter.serves  # type: ignore[method-assign]
        self.render = adapter.render  # type: ignore[method-assign]
        self.live = adapter.live  # type: ignore[method-assign]


class _House:
    """A bot between an adapter and a model that cost nothing."""

    def __init__(self, store: BotStore, adapter: Nowhere, *, reads: bool) -> None:
        self.adapter = adapter
        self.clock = _Later()
        self.engine = EmbeddedEngine(self.clock)
        gate = Gate(store.notes, self.clock, open_to_all=True, per_minute=1_000_000)
        self.conversations = Conversations(
            store,
            Agent(memory=BOT_MEMORY),
            AtOnce(reads=reads),
            (adapter,),
            gate,
            self.clock,
            self.engine.submit,
        )

    async def __aenter__(self) -> _House:
        self._running = asyncio.create_task(self.engine.run(self.conversations.work))
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.engine.drain(10)
        await self._running

    async def turn(self, inbound: Inbound) -> None:
        replied = self.adapter.waiting[inbound.key] = asyncio.get_running_loop().create_future()
        accepted = await self.conversations.accept(inbound)
        if not isinstance(accepted, Accepted):
            raise Wrong(f"{inbound.key}: {accepted}")
        await self.engine.submit(inbound.key, inbound.id)
        await replied

    async def rest(self) -> None:
        """Until the last save of the last turn has ended."""
        while self.engine.depth():  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0.001)


async def own(spec: Spec) -> Numbers:
    """Turns without SDK, network and database."""
    alone = spec.who == "core"
    telegram = TelegramAdapter(TOKEN, base_url=NOBODY, streaming="off")
    adapter = Nowhere(telegram.limits) if alone else _ToTelegram(telegram)
    me = Me(BOT, "bench_bot")
    store = MemoryStore()
    took = 0.0
    async with _House(store, adapter, reads=not alone) as house:
        for number in range(spec.turns + 1):
            said = [inbound(key_of(each), exchange(number)) for each in range(spec.chats)]
            bodies = [_update(number * spec.chats + each, one) for each, one in enumerate(said)]
            with Meter() as meter:
                for body, one in zip(bodies, said, strict=True):
                    if alone:
                        await house.turn(one)
                    else:
                        (update,) = read(body)
                        heard = parse(update.value, me, None, "chat")
                        assert heard is not None
                        await house.turn(heard)
                await house.rest()
            took += meter.cpu if number else 0.0
            house.clock.ahead += 2.0  # nobody waits for the pace of a chat
    await telegram.close()
    return {"cpu": took / (spec.chats * spec.turns) * 1e3}


def _update(number: int, said: Inbound) -> bytes:
    person = {"id": int(said.key.partition(":")[2]), "first_name": "Alice", "username": "alice"}
    return msgspec.json.encode(
        {
            "ok": True,
            "result": [
                {
                    "update_id": number,
                    "message": {
                        "message_id": number + 1,
                        "date": NOW // 1000,
                        "text": said.text,
                        "chat": {**person, "type": "private"},
                        "from": {**person, "is_bot": False, "language_code": "en"},
                    },
                }
            ],
        }
    )


# ---------------------------------------------------------------------- memory of idle ones


async def idle(spec: Spec) -> Numbers:
    """Each chat has had a turn, and is silent. First some, then many more, then a day passes."""
    telegram = TelegramAdapter(TOKEN, base_url=NOBODY, streaming="off")
    first = min(500, spec.chats)  # enough for what is there anyway
    async with SQLiteStore(Path(spec.folder, "db")) as store:
        async with _House(store, Nowhere(telegram.limits), reads=False) as house:
            await _talk(house, 0, first)
            base, tasks, open_files = resident(), len(asyncio.all_tasks()), descriptors()
            await _talk(house, first, spec.chats)
            one = resident()
            tasks, open_files = len(asyncio.all_tasks()) - tasks, descriptors() - open_files
            # Who wrote when is known for a minute, what was let in for an hour.
            house.clock.ahead += 86_400
            # What is kept of the silent ones is bounded, and now up to its bounds.
            await _talk(house, first + spec.chats, 2 * spec.chats)
            full = resident()
            # Many more of them take no more.
            await _talk(house, first + 3 * spec.chats, 2 * spec.chats)
            many = resident()
    await telegram.close()
    return {
        "memory": (one - base) * 2**20 / spec.chats,
        "more": (many - full) * 2**20 / (2 * spec.chats),
        "tasks": tasks,
        "descriptors": open_files,
    }


async def _talk(house: _House, first: int, chats: int) -> None:
    async def some(begin: int) -> None:
        for each in range(first + begin, first + chats, TOGETHER):
            person = f"telegram:{each}"
            said = inbound(f"telegram-chat:{each + 1}", exchange(each))
            sender = msgspec.structs.replace(said.sender, id=person)
            await house.turn(msgspec.structs.replace(said, sender=sender))

    await asyncio.gather(*map(some, range(TOGETHER)))
    await house.rest()
    gc.collect()


# ---------------------------------------------------------------------- the command


async def command(spec: Spec) -> Numbers:
    """`chinwag --version` and a Python that does nothing, in turns."""
    took: dict[str, list[float]] = {"version": [], "nothing": []}
    program = Path(sys.executable).with_name("chinwag")
    lines = {"version": [str(program), "--version"], "nothing": [sys.executable, "-c", "pass"]}
    for number in range(spec.turns + 1):
        for name, line in lines.items():
            began = time.perf_counter()
            process = await asyncio.create_subprocess_exec(*line, stdout=subprocess.PIPE)
            said, _ = await process.communicate()
            if number:
                took[name].append(time.perf_counter() - began)
            if (name == "version") != said.startswith(b"chinwag "):
                raise Wrong(f"{name} said {said[:80]!r}")
    return {name: median(times) * 1e3 for name, times in took.items()}


KINDS: Final[dict[str, Callable[[Spec], Awaitable[Numbers]]]] = {
    "whole": whole,
    "busy": busy,
    "first": first,
    "own": own,
    "idle": idle,
    "command": command,
}
