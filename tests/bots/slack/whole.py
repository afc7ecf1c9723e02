"""A whole bot at the Slack of loopback, by either transport; only the model follows a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Literal

from bots import http
from bots.slack.adapter import SlackAdapter
from bots.slack.manifest import PATH
from bots.slack.rules import Rules
from core.adapter import Acceptance, Refused
from core.agent import Agent
from core.clock import SystemClock
from core.commands import BUILT_IN
from core.conversations import Conversations, Options
from core.engine import EmbeddedEngine
from core.gate import Gate
from core.memory import BOT_MEMORY
from core.messages import Inbound
from core.pages import Pages
from core.spending import Spending
from core.tools import Tool
from playground.slack import Slack
from stores.memory import MemoryStore
from tests.bots.slack.world import RULES
from tests.core.fakes import ScriptedModel

Transport = Literal["socket", "http"]


class Bot:
    """
    :ivar accepted: all that was brought, whatever became of it
    """

    def __init__(self, adapter: SlackAdapter, store: MemoryStore, gate: Gate) -> None:
        self.adapter = adapter
        self.store = store
        self.gate = gate
        self.accepted: list[Inbound] = []

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not done():  # noqa: ASYNC110 (there is no event of all that)
                await asyncio.sleep(0.005)

    async def quiet(self, slack: Slack) -> None:
        """All that Slack told is acknowledged, every page is made, and nothing is left to do."""
        await slack.settle()
        home = self.adapter._hearing.home
        await self.until(lambda: not home._making)
        async with asyncio.timeout(10):
            while [key async for key in self.store.unfinished()]:  # noqa: ASYNC110 (the same)
                await asyncio.sleep(0.005)


@asynccontextmanager
async def bot(
    slack: Slack,
    *script: Any,
    transport: Transport = "socket",
    rules: Rules = RULES,
    tools: Sequence[Tool] = (),
    allow: Sequence[str] | None = None,
    adapter: SlackAdapter | None = None,
    per_minute: int = 20,
    **more: Any,
) -> AsyncIterator[Bot]:
    """
    :param allow: who may speak; None: everybody
    :param more: settings of the adapter
    """
    clock, store = SystemClock(), MemoryStore()
    by_http = transport == "http"
    adapter = adapter or SlackAdapter(
        slack.token,
        None if by_http else slack.app_token,
        signing_secret=slack.signing_secret if by_http else None,
        base_url=f"{slack.url}/api/",
        rules=rules,
        clock=clock,
        **more,
    )
    gate = Gate(
        store.notes, clock, allow=allow or (), open_to_all=allow is None, per_minute=per_minute
    )
    await gate.open()
    engine, spending = EmbeddedEngine(clock), Spending(clock)
    conversations = Conversations(
        store,
        Agent(name="Ada", memory=BOT_MEMORY, tools=tuple(tools)),
        ScriptedModel(*script),
        (adapter,),
        gate,
        clock,
        engine.submit,
        Options("/"),
        spending=spending,
    )
    await conversations.open()
    adapter.show_pages(Pages(store, gate, spending, BUILT_IN, "Ada"))
    made = Bot(adapter, store, gate)

    async def accept(inbound: Inbound) -> Acceptance:
        made.accepted.append(inbound)
        acceptance = await conversations.accept(inbound)
        if not isinstance(acceptance, Refused):
            await engine.submit(inbound.key, inbound.id)
        return acceptance

    async with AsyncExitStack() as stack:
        tasks = [
            asyncio.create_task(engine.run(conversations.work)),
            asyncio.create_task(adapter.run(accept)),
        ]
        if by_http:
            listener = stack.enter_context(http.listen("127.0.0.1", 0))
            served = http.serve(http.app_of(list(adapter.routes(accept))), listener)
            tasks.append(asyncio.create_task(served))
            slack.deliver_to(f"http://127.0.0.1:{listener.getsockname()[1]}{PATH}")
        hears = adapter._hearing
        await made.until(lambda: hears.intake is not None if by_http else slack.connected)
        try:
            yield made
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await adapter.close()
