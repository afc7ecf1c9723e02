"""A worker of the shared engine, with conversations on PostgreSQL; its model and its platform are
files in a folder. As a program of its own, to be killed, or inside a test.

usage: python -m tests.crash.worker URL SCHEMA FOLDER NAME BEAT DEAD
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from core.adapter import Limits, Live, Receipt, Showing
from core.agent import Agent
from core.clock import SystemClock
from core.conversations import Conversations
from core.dbos import DbosEngine
from core.gate import Gate
from core.messages import Inbound, Outbound, encode_blocks, text_block
from core.model import Answer, OnText, Request
from core.snapshot import Usage
from stores.postgres import PostgresStore


@dataclass
class Place:
    """What all workers of a test share.

    :param beat: seconds between two heartbeats; `dead`: seconds without one
    """

    url: str
    schema: str
    folder: Path
    beat: float = 0.25
    dead: float = 1.25

    def note(self, what: str, **fields: object) -> None:
        """A line in a file that all append to."""
        line = json.dumps(fields) + "\n"
        with open(self.folder / what, "ab", buffering=0) as file:
            file.write(line.encode())

    def noted(self, what: str) -> list[dict[str, Any]]:
        path = self.folder / what
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Model:
    """Answers with its own name. To "hold" it answers when a file says so, to "die" never."""

    def __init__(self, place: Place, name: str) -> None:
        self._place = place
        self._name = name

    async def answer(self, request: Request, on_text: OnText | None = None) -> Answer:
        asked = json.loads(bytes(request.messages[-1].blocks))[-1]["text"].split("\n")[-1]
        self._place.note("asked", by=self._name, text=asked)
        if asked.startswith("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        go = self._place.folder / f"go.{self._name}"
        try:
            while asked.startswith("hold") and not go.exists():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        finally:
            self._place.note("left", by=self._name, text=asked)
        text = f"{asked} by {self._name}"
        blocks = encode_blocks([text_block(text)])
        return Answer(blocks=blocks, text=text, calls=(), stop_reason="end_turn", usage=Usage())

    async def close(self) -> None:
        pass


class _Still:
    def show(self, text: str) -> bool:
        return False

    async def close(self) -> tuple[str, ...]:
        return ()


class Platform:
    """What is sent is a line in a file."""

    name = "telegram"

    def __init__(self, place: Place, name: str) -> None:
        self.limits = Limits()
        self._place = place
        self._name = name
        self._ids = count(1)

    def serves(self, key: str) -> bool:
        return True

    async def run(self, accept: Any) -> None:
        raise NotImplementedError

    def render(self, markdown: str) -> tuple[str, ...]:
        return (markdown,)

    async def send(self, key: str, part: Outbound, *, uncertain: bool) -> Receipt:
        self._place.note("sent", key=key, text=part.body, id=part.id, by=self._name)
        return Receipt((f"{self._name}.{next(self._ids)}",))

    def live(self, key: str, inbound: Inbound, shown: tuple[str, ...], showing: Showing) -> Live:
        return _Still()


@dataclass
class Worker:
    store: PostgresStore
    engine: DbosEngine
    conversations: Conversations


@asynccontextmanager
async def worker(place: Place, name: str, *, works: bool = True) -> AsyncIterator[Worker]:
    clock = SystemClock()
    engine = DbosEngine(
        place.url,
        clock,
        works=works,
        schema=place.schema,
        poll=0.05,
        beat=place.beat,
        dead=place.dead,
    )
    async with PostgresStore(place.url, shared=True) as store, engine:
        conversations = Conversations(
            store,
            Agent(),
            Model(place, name),
            (Platform(place, name),),
            Gate(store.notes, clock, open_to_all=True, per_minute=1_000_000),
            clock,
            engine.submit,
        )
        running = asyncio.create_task(engine.run(conversations.work), name=f"worker {name}")
        try:
            yield Worker(store, engine, conversations)
        finally:
            await engine.drain(1)
            await running


async def main(place: Place, name: str) -> None:
    async with worker(place, name):
        await asyncio.Event().wait()


if __name__ == "__main__":
    url, schema, folder, name, beat, dead = sys.argv[1:]
    asyncio.run(main(Place(url, schema, Path(folder), float(beat), float(dead)), name))
