"""100 concurrent runs over 10 sessions, with stateful tools of one name, on every built-in store.

No run sees another's state, and every turn is in the history of its session: the promise of
`stateful` at once, and at its worst.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from core import Agent, Runtime, ToolContext, tool
from core.history import begins_exchange
from core.messages import decode_blocks, text_of
from core.model import Answer, OnText, Request, ToolCall
from core.store import BotStore, SessionRef
from stores.disk import DiskStore
from stores.memory import MemoryStore
from stores.sqlite import SQLiteStore
from tests.core.fakes import calls, said

SESSIONS, RUNS, ROUNDS = 10, 10, 3
OPEN: dict[str, Callable[[Path], BotStore]] = {
    "memory": lambda place: MemoryStore(),
    "disk": lambda place: DiskStore(place / "chats"),
    "sqlite": lambda place: SQLiteStore(place / "chats.db"),
}


class Model:
    """Has the run take three notes, one a round, and then says what the last call gave.

    It answers from the request alone, so it cannot mix up runs by itself.
    """

    async def answer(self, request: Request, on_text: OnText | None = None) -> Answer:
        begin = max(i for i, each in enumerate(request.messages) if begins_exchange(each))
        name = text_of(request.messages[begin].blocks)
        rounds = (len(request.messages) - begin - 1) // 2
        await asyncio.sleep(0)
        if rounds < ROUNDS:
            call = ToolCall(id=f"{name}.{rounds}", name="note", input={"note": f"{name}.{rounds}"})
            return calls(call)
        (result,) = decode_blocks(request.messages[-1].blocks)
        return said(str(result["content"]))

    async def close(self) -> None:
        """Nothing is open."""


class Crowd:
    """How many runs are inside of a tool at once: they wait until ten are."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.full = asyncio.Event()

    async def enter(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        if self.inside == SESSIONS:
            self.full.set()
        async with asyncio.timeout(30):
            await self.full.wait()
        self.inside -= 1


def agent(crowd: Crowd) -> Agent:
    """Each is built anew, like an agent that another request has brought along."""

    class Notes:
        """Takes a note."""

        def __init__(self) -> None:
            self.notes: list[str] = []

        async def __call__(self, note: str, context: ToolContext) -> dict[str, Any]:
            self.notes.append(note)
            context.state.setdefault("notes", []).append(note)
            await crowd.enter()
            return {
                "object": list(self.notes),
                "state": list(context.state["notes"]),
                "session": context.session_key,
                "execution": context.execution_id,
            }

    return Agent(name="crowd", tools=(tool(name="note", stateful=True)(Notes),), max_rounds=ROUNDS)


@pytest.fixture(params=OPEN)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BotStore]:
    async with OPEN[request.param](tmp_path) as opened:
        yield opened


@pytest.mark.parametrize("runtimes", [1, 2])
async def test_no_state_is_seen_elsewhere_and_all_turns_are_history(
    store: BotStore, runtimes: int
) -> None:
    crowd = Crowd()
    shared = agent(crowd)
    async with AsyncExitStack() as stack:
        ready = [
            await stack.enter_async_context(Runtime(store, client=Model())) for _ in range(runtimes)
        ]

        async def run(session: int, number: int) -> tuple[str, dict[str, Any], str]:
            name = f"{session}/{number}"
            reply = await ready[number % runtimes].run(
                shared, name, session_id=f"session-{session}"
            )
            return name, json.loads(reply.text), reply.execution_id

        done = await asyncio.gather(*(run(i, j) for j in range(RUNS) for i in range(SESSIONS)))

    assert crowd.most >= SESSIONS
    for name, gave, execution in done:
        own = [f"{name}.{number}" for number in range(ROUNDS)]
        assert gave["object"] == own
        assert gave["state"] == own
        assert gave["execution"] == execution
        assert gave["session"] == f"agent:crowd/id/session-{name.split('/')[0]}"
    assert len({execution for _, _, execution in done}) == SESSIONS * RUNS

    for session in range(SESSIONS):
        kept = await store.load(SessionRef(f"agent:crowd/id/session-{session}"))
        assert kept is not None
        asked = [text_of(row.blocks) for row in kept.messages if begins_exchange(row)]
        expected = [f"{session}/{number}" for number in range(RUNS)]
        assert sorted(asked) == sorted(expected)
        if runtimes == 1:
            assert asked == expected  # in the order in which they came
        assert len(kept.messages) == RUNS * (2 + 2 * ROUNDS)
        whole = b"".join(bytes(row.blocks) for row in kept.messages).decode()
        foreign = [f'"{i}/{j}.' for i in range(SESSIONS) if i != session for j in range(RUNS)]
        assert not any(each in whole for each in foreign)
