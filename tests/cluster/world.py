"""Several processes of the real program on one PostgreSQL, which may die, sleep and wake; Telegram
and Claude in the parent."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final
from uuid import uuid4

from core.snapshot import Snapshot
from core.store import SessionRef
from playground.telegram import Person
from stores.postgres import PostgresStore
from tests import postgres
from tests.crash.program import CONFIG, World

WAIT: Final = 60.0
CONCURRENCY: Final = 32  # conversations that one of them is at, at most

SHARED: Final = """\
[store]
url = "{store}"
[engine]
url = "{engine}"
queue = "{queue}"
worker_concurrency = {concurrency}
# Each question has an answer of its own.
when_busy = "queue"
"""


class Cluster(World):
    """
    :param server: where conversations and the queue are
    """

    def __init__(self, folder: Path, server: postgres.Server | None = None) -> None:
        server = server or postgres.server()
        name = f"t{uuid4().hex}"
        self.url = server.url(name)
        shared = SHARED.format(
            store=self.url, engine=server.url("public"), queue=name, concurrency=CONCURRENCY
        )
        super().__init__(folder, CONFIG + shared)
        self.processes: dict[str, asyncio.subprocess.Process] = {}

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in tuple(self.processes):
            await self.slay(name)
        await super().__aexit__(kind, error, trace)

    async def begin(
        self, name: str, role: str, failpoint: str | None = None, **environ: str
    ) -> None:
        """One more process."""
        point = {"CHINWAG_FAILPOINT": failpoint} if failpoint else {}
        with (self.folder / "log.txt").open("a") as log:
            self.processes[name] = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bots", "run", "--role", role),
                cwd=self.folder,
                stdout=log,
                stderr=log,
                env=self.environ(**point, **environ),
            )

    async def ready(self) -> None:
        await self.reached(
            lambda: any(call.method == "getUpdates" for call in self.telegram.calls),
            "one of them asks for updates",
        )

    async def running(self, count: int) -> None:
        """So many have begun since the beginning, and what each does is under way."""
        await self.reached(lambda: self.log().count(" running ") >= count, f"{count} run")

    def noted_twice(self) -> list[str]:
        """Parts that were sent once more although it was noted that they had been delivered."""
        noted = Counter(re.findall(r" delivered +\S+ part=(\S+)", self.log()))
        return [part for part, times in noted.items() if times > 1]

    def taken_over(self) -> int:
        """How often somebody's turns were handed to others."""
        return self.log().count("engine.taken_over")

    async def reached(self, done: Callable[[], bool], what: str, seconds: float = WAIT) -> float:
        """Seconds that it took."""
        began = time.monotonic()
        while not done():
            assert time.monotonic() - began < seconds, f"never: {what}"
            # Of what is not Telegram's nobody tells.
            with suppress(TimeoutError):
                await self.telegram.until(done, timeout=0.1)
        return time.monotonic() - began

    async def slay(self, name: str) -> None:
        """SIGKILL; harmless to a dead one."""
        process = self.processes.pop(name)
        if process.returncode is None:
            process.kill()
            World.killed += 1
        await process.wait()

    def send(self, name: str, number: signal.Signals) -> None:
        os.kill(self.processes[name].pid, number)

    async def dead(self, name: str) -> None:
        """Its failpoint has killed it."""
        code = await asyncio.wait_for(self.processes[name].wait(), WAIT)
        assert code == -signal.SIGKILL, f"exit {code}"
        World.killed += 1

    async def end(self) -> None:
        """SIGTERM to all that live; each ends well."""
        living = {n: p for n, p in self.processes.items() if p.returncode is None}
        for process in living.values():
            process.terminate()
        codes = {n: await asyncio.wait_for(p.wait(), WAIT) for n, p in living.items()}
        assert set(codes.values()) <= {0}, codes

    def stored(self) -> PostgresStore:
        return PostgresStore(self.url, read_only=True)

    async def snapshot(self, key: str) -> Snapshot:
        async with self.stored() as store:
            snapshot = await store.load(SessionRef(key=key))
            # The server of the tests need not survive the machine.
            assert [line for line in await store.check() if "power cut" not in line] == []
        assert snapshot is not None
        return snapshot

    async def at_rest(self) -> None:
        """Everything is confirmed, and in no conversation is anything left to do."""
        await self.reached(lambda: not self.telegram.unconfirmed(), "all updates confirmed")
        async with asyncio.timeout(WAIT):
            while await self._unfinished():  # noqa: ASYNC110 (nobody tells)
                await asyncio.sleep(0.05)

    async def asked(self, people: list[Person], what: str) -> float:
        """Each of them says so, and is answered. Seconds until the last one was."""
        before = {person.id: len(self.telegram.texts(person)) for person in people}
        for person in people:
            self.telegram.write(person, what)
        return await self.reached(
            lambda: all(len(self.telegram.texts(each)) > before[each.id] for each in people),
            f"everybody is answered: {what}",
        )
