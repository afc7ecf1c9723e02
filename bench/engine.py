"""What the shared engine costs: one worker, with its PostgreSQL on the same machine.

``make bench-engine``; a minute. The model and the platform are played in the process and cost
nothing, so what is measured is ours, DBOS', and the database's, which is the tests' own server with
the settings it comes with (``fsync`` on). Conversations and engine share it.
"""

from __future__ import annotations

import asyncio
import gc
import random
import shutil
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final

from bench.measure import Meter, percentile
from bench.ours import inbound
from bench.report import Figure, Goal
from bench.said import exchange
from bench.whole import AtOnce, Nowhere
from core.adapter import Accepted, Limits
from core.agent import Agent
from core.clock import SystemClock
from core.conversations import Conversations
from core.dbos import DbosEngine
from core.engine import Again, Done
from core.gate import Gate
from core.memory import BOT_MEMORY
from stores.postgres import PostgresStore
from tests import postgres

CHATS: Final = 200
MESSAGES: Final = 5  # of each chat, each after the answer to the one before
WARM_UP: Final = 40
IDLE_SECONDS: Final = 10.0
SINGLE: Final = 100  # messages that come alone
SEED: Final = 5

LEAST_TURNS: Final = 60.0  # a second
MOST_IDLE: Final = 8.0  # percent of a core
MOST_WAIT: Final = 0.1  # seconds, p50


class Timed:
    """Work, and when it began."""

    def __init__(self, work: Callable[[str], Awaitable[Done | Again]]) -> None:
        self._work = work
        self.began: dict[str, float] = {}

    async def __call__(self, key: str) -> Done | Again:
        self.began.setdefault(key, time.perf_counter())
        return await self._work(key)


async def measured(url: str) -> Figure:
    clock = SystemClock()
    adapter = Nowhere(Limits())
    numbers = count()
    async with PostgresStore(url, shared=True) as store, DbosEngine(url, clock) as engine:
        conversations = Conversations(
            store,
            Agent(memory=BOT_MEMORY),
            AtOnce(reads=False),
            (adapter,),
            Gate(store.notes, clock, open_to_all=True, per_minute=1_000_000),
            clock,
            engine.submit,
        )
        work = Timed(conversations.work)
        running = asyncio.create_task(engine.run(work))

        async def turn(key: str) -> None:
            said = inbound(key, exchange(next(numbers)))
            replied = adapter.waiting[key] = asyncio.get_running_loop().create_future()
            accepted = await conversations.accept(said)
            assert isinstance(accepted, Accepted), accepted
            await engine.submit(said.key, said.id)
            await asyncio.wait((replied, running), return_when=asyncio.FIRST_COMPLETED)
            assert replied.done(), "the engine has ended"

        async def chat(key: str) -> None:
            for _ in range(MESSAGES):
                await turn(key)

        for number in range(WARM_UP):
            await turn(f"telegram-chat:{10_000 + number % 8}")
        gc.collect()
        with Meter() as busy:
            await asyncio.gather(*(chat(f"telegram-chat:{number}") for number in range(CHATS)))
        while True:
            await engine.look()
            if engine.depth() == 0:
                break
            await asyncio.sleep(0.05)
        with Meter() as idle:
            await asyncio.sleep(IDLE_SECONDS)
        waits = []
        chance = random.Random(SEED)
        for number in range(SINGLE):
            await asyncio.sleep(chance.uniform(0.05, 0.15))
            key = f"telegram-chat:{20_000 + number}"
            asked = time.perf_counter()
            await turn(key)
            waits.append(work.began[key] - asked)
        await engine.drain(10)
        await running
    turns = CHATS * MESSAGES / busy.wall
    percent = idle.cpu / idle.wall * 100
    p50, p99 = percentile(waits, 50), percentile(waits, 99)
    return Figure(
        "The shared engine",
        f"{CHATS * MESSAGES:,} turns of {CHATS} chats, all chats at once, on one worker; then "
        f"nothing for {IDLE_SECONDS:.0f} s; then {SINGLE} messages, each by itself.",
        (
            Goal(
                "turns a second",
                f">= {LEAST_TURNS:.0f}",
                f"{turns:.0f}",
                f"{busy.cpu / busy.wall * 100:.0f} % of a core",
                met=turns >= LEAST_TURNS,
            ),
            Goal(
                "an idle worker",
                f"<= {MOST_IDLE:.0f} % of a core",
                f"{percent:.1f} %",
                met=percent <= MOST_IDLE,
            ),
            Goal(
                "from the message to the work on it, p50",
                f"<= {MOST_WAIT * 1e3:.0f} ms",
                f"{p50 * 1e3:.0f} ms",
                f"p99 {p99 * 1e3:.0f} ms",
                met=p50 <= MOST_WAIT,
            ),
        ),
        ("what", "ms"),
        (
            ("processor time of the worker, a turn", f"{busy.cpu / (CHATS * MESSAGES) * 1e3:.1f}"),
            ("from the message to the work on it, p99", f"{p99 * 1e3:.0f}"),
        ),
    )


def main() -> int:
    server = postgres.begin(("shared_buffers=128MB",))
    try:
        figure = asyncio.run(measured(server.url("public")))
    finally:
        server.stop()
        shutil.rmtree(server.folder)
    print(figure)
    return 0 if all(goal.met for goal in figure.goals) else 1


if __name__ == "__main__":
    sys.exit(main())
