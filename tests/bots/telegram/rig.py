"""A whole bot on a Telegram of loopback, in a time of its own: minutes pass in seconds.

Sockets, SDK and adapter are the real ones. Time is a `FakeClock` that both sides read. It moves, by
itself, to when the next sleeper is due, but never while a request of the bot is on its way: so what
the stand-in notes as the time of a request is the time at which it left, and a spacing can be
asserted to the millisecond.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Self

import pytest

from bots.telegram.adapter import TelegramAdapter
from core.adapter import Acceptance, Refused
from core.agent import Agent
from core.commands import BUILT_IN
from core.conversations import Conversations, Options
from core.engine import EmbeddedEngine
from core.gate import Gate
from core.memory import BOT_MEMORY
from core.messages import Inbound, encode_blocks, text_block
from core.model import Answer, OnText, Request
from core.phrases import ENGLISH
from core.tools import Tool
from playground.telegram import OLDEST, Call, Chat, Person, Telegram
from stores.memory import MemoryStore
from tests.core.fakes import USAGE, FakeClock, settle

SENT: Final = frozenset({"sendMessage", "editMessageText", "sendDocument", "sendPhoto"})
SECOND: Final = 1.0 - 1e-6  # sums of floats


class Speaker:
    """A model that says its answers one after the other, each over so many seconds."""

    def __init__(self, clock: FakeClock, seconds: float, *script: str | Answer) -> None:
        self.script = list(script)
        self.requests: list[Request] = []
        self._clock = clock
        self._seconds = seconds

    async def answer(self, request: Request, on_text: OnText | None = None) -> Answer:
        self.requests.append(request)
        said = self.script.pop(0)
        if isinstance(said, Answer):
            return said
        pieces = max(1, round(self._seconds * 4))
        size = -(-len(said) // pieces)
        for at in range(0, len(said), size):
            if self._seconds:
                await self._clock.sleep(self._seconds / pieces)
            if on_text is not None:
                on_text(said[at : at + size])
        return Answer(encode_blocks([text_block(said)]), said, (), "end_turn", USAGE)

    async def close(self) -> None:
        pass


class Rig:
    """
    :param seconds: how long the model takes for an answer
    :param oldest: Telegram's server knows only the oldest methods
    """

    def __init__(
        self,
        *script: str | Answer,
        seconds: float = 0.0,
        store: MemoryStore | None = None,
        tools: Sequence[Tool] = (),
        oldest: bool = False,
        **adapter: Any,
    ) -> None:
        self.clock = FakeClock(manual=True)
        self.telegram = Telegram(monotonic=self.clock.monotonic)
        self.store = store or MemoryStore()
        self.model = Speaker(self.clock, seconds, *script)
        self._tools = tuple(tools)
        if oldest:
            self.telegram.knows(*OLDEST)
        self._settings = adapter
        self._busy = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._patch = pytest.MonkeyPatch()

    async def __aenter__(self) -> Self:
        await self.telegram.__aenter__()
        settings: dict[str, Any] = {"base_url": self.telegram.url, "poll_timeout": 5}
        self.adapter = TelegramAdapter(
            self.telegram.token, clock=self.clock, **settings | self._settings
        )
        request = self.adapter._bot.request
        self._patch.setattr(request, "do_request", self._counted(request.do_request))
        self._patch.setattr(asyncio, "to_thread", self._counted(asyncio.to_thread))
        engine = EmbeddedEngine(self.clock)
        self.conversations = Conversations(
            self.store,
            Agent(memory=BOT_MEMORY, tools=self._tools),
            self.model,
            (self.adapter,),
            Gate(self.store.notes, self.clock, open_to_all=True, per_minute=1000),
            self.clock,
            engine.submit,
            Options("/"),
        )

        async def accept(inbound: Inbound) -> Acceptance:
            acceptance = await self.conversations.accept(inbound)
            if not isinstance(acceptance, Refused):
                await engine.submit(inbound.key, inbound.id)
            return acceptance

        await self.adapter.show_menu(BUILT_IN, ENGLISH)
        self._start(engine.run(self.conversations.work))
        self._start(self.adapter.run(accept))
        self._start(self._pass_time())
        await self.telegram.until(lambda: self.telegram.polled)
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in reversed(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.adapter.close()
        await self.telegram.__aexit__(None, None, None)
        self._patch.undo()

    async def until(self, done: Callable[[], bool], seconds: float = 30.0) -> None:
        """
        :param seconds: of the time of the machine
        """
        async with asyncio.timeout(seconds):
            while not done():  # noqa: ASYNC110 (nobody tells)
                await asyncio.sleep(0.002)

    async def quiet(self, place: Person | Chat, seconds: float = 30.0) -> None:
        """Everything that was to be answered there is, and everything is sent."""
        key = f"telegram-chat:{place.id}"

        async with asyncio.timeout(seconds):
            while True:
                snapshot = await self.conversations._snapshots.load(key)
                if snapshot is not None and not snapshot.unfinished and not snapshot.outbox:
                    return
                await asyncio.sleep(0.005)

    def leaving(self, place: Person | Chat, methods: frozenset[str] = SENT) -> list[Call]:
        """The requests of these methods for that chat, whatever became of them."""
        return [
            call
            for call in self.telegram.calls
            if call.method in methods and call.params.get("chat_id") == place.id
        ]

    def assert_paced(self, place: Person | Chat) -> None:
        """At most one send or edit a second, and in a group no more than twenty a minute."""
        times = [call.at for call in self.leaving(place)]
        near = [b - a for a, b in itertools.pairwise(times) if b - a < SECOND]
        assert not near, near
        if place.id < 0:
            every = [
                call.at for call in self.leaving(place, SENT | {"sendChatAction", "deleteMessage"})
            ]
            most = max(sum(at <= each < at + 60 for each in every) for at in every)
            assert most <= 20, most

    # ------------------------------------------------------------------ time

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def counted(*arguments: Any, **keywords: Any) -> Any:
            self._busy += 1
            try:
                return await function(*arguments, **keywords)
            finally:
                self._busy -= 1

        return counted

    async def _pass_time(self) -> None:
        while True:
            await settle()
            if self._busy:
                await asyncio.sleep(0.0005)
                continue
            due = self.clock.next_due()
            if due is None:
                await asyncio.sleep(0.001)
            else:
                # A little at least: a sleep may be shorter than what a float of this size can tell.
                self.clock.advance(max(1e-6, due - self.clock.monotonic()))
