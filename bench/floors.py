"""The limit of the machine: bare sqlite3 that saves the same and checks nothing.

Everything is encoded before the clock starts (`rows.py`). Four transactions a turn as in chinwag
(accepted, started, committed, delivered), write-ahead log, synchronous=FULL. What chinwag does
besides is not here: working out what has changed and what goes where, looking at checksums,
erasing what is deleted.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from bench import rows
from bench.rows import Job, Loaded, Place, Summed, T, Values, alone, found_in, next_window
from bench.said import Exchange
from bench.subject import Seen, Turn

BATCH: Final = 256  # saves that share a transaction, at most


def connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    return database


class Floor:
    """One connection in one worker thread, one hop a load or save: what asyncio code with the
    standard library alone would do.

    :param bare: it saves messages and heads, and nothing else; see `rows.py`
    """

    def __init__(self, path: Path, *, bare: bool = False) -> None:
        self.path = path
        self._bare = bare

    @property
    def tables(self) -> str:
        return rows.TABLES if self._bare else rows.TABLES + rows.BESIDES

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1)
        self._database = await self._loop.run_in_executor(self._thread, connect, self.path)
        await self.hop(lambda database: database.executescript(self.tables))

    async def close(self) -> None:
        await self.hop(lambda database: database.close())
        self._thread.shutdown()

    async def hop(self, job: Job[T]) -> T:
        return await self._loop.run_in_executor(self._thread, job, self._database)

    async def load(self, key: str) -> Loaded | None:
        return await self.hop(lambda database: rows.load(database, key))

    async def save(self, job: Job[T]) -> T:
        return await self.hop(alone(job))

    async def fill(self, key: str, said: Sequence[Exchange]) -> None:
        await self.save(lambda database: rows.fill(database, key, said, bare=self._bare))

    def ready(self, key: str, said: Exchange, total: int) -> Turn:
        saves = rows.saves(key, said, total, bare=self._bare)

        async def turn() -> Seen:
            loaded = await self.load(key)
            if loaded is None:
                place = await self.save(
                    lambda database: rows.add(database, key, saves.accepted, saves.seen)
                )
            else:
                place = await self.step(loaded[0], saves.accepted, unfinished=True, seen=saves.seen)
            place = await self.step(place, saves.started, (saves.asked,), window=next_window(place))
            place = await self.step(place, saves.committed, (saves.answered,), usage=saves.usage)
            place = await self.step(place, saves.delivered, unfinished=False)
            self.remember(key, place)
            return found_in(loaded)

        return turn

    async def step(
        self,
        place: Place,
        head: Summed,
        said: Sequence[Summed] = (),
        *,
        window: int | None = None,
        unfinished: bool | None = None,
        seen: tuple[int, bytes] | None = None,
        usage: Values | None = None,
    ) -> Place:
        def job(database: sqlite3.Connection) -> Place:
            return rows.save(
                database,
                place,
                head,
                said,
                window=window,
                unfinished=unfinished,
                seen=seen,
                usage=usage,
            )

        return await self.save(job)

    def remember(self, key: str, place: Place) -> None:
        """A turn is over."""

    async def count(self, key: str) -> int:
        return await self.hop(lambda database: rows.count(database, key))


class Append:
    """One transaction a turn in the event loop's own thread, the history never read: the least
    that a durable turn can cost, and it stops the loop meanwhile."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._places: dict[str, Place] = {}

    async def open(self) -> None:
        self._database = connect(self.path)
        self._database.executescript(rows.TABLES)

    async def close(self) -> None:
        self._database.close()

    async def fill(self, key: str, said: Sequence[Exchange]) -> None:
        alone(lambda database: rows.fill(database, key, said, bare=True))(self._database)

    def ready(self, key: str, said: Exchange, total: int) -> Turn:
        saves = rows.saves(key, said, total, bare=True)
        both = (saves.asked, saves.answered)

        def append(database: sqlite3.Connection) -> Place:
            place = self._places.get(key) or rows.add(database, key, saves.delivered)
            return rows.save(database, place, saves.delivered, both, unfinished=False)

        async def turn() -> Seen:
            before = self._places.get(key)
            self._places[key] = alone(append)(self._database)
            return Seen(before.next_seq - 1 if before else 0)

        found = rows.place_of(self._database, key)
        if found:
            self._places[key] = found[0]
        return turn

    async def count(self, key: str) -> int:
        return rows.count(self._database, key)


class Group(Floor):
    """A thread that writes whatever waits in one transaction; loads on a second connection, in the
    event loop's own thread.

    :param keeps: the history is never read, as if it were in memory
    """

    def __init__(self, path: Path, *, keeps: bool = False, bare: bool = False) -> None:
        super().__init__(path, bare=bare)
        self._keeps = keeps
        self._places: dict[str, Place] = {}
        self._waiting: SimpleQueue[tuple[Job[object], asyncio.Future[object]] | None] = (
            SimpleQueue()
        )

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = connect(self.path)
        self._reader.executescript(self.tables)
        self._writer = threading.Thread(target=self._write)
        self._writer.start()

    async def close(self) -> None:
        self._waiting.put(None)
        await asyncio.to_thread(self._writer.join)
        self._reader.close()

    async def hop(self, job: Job[T]) -> T:
        return job(self._reader)

    async def load(self, key: str) -> Loaded | None:
        if self._keeps:
            place = self._places.get(key)
            return (place, None) if place else None
        return rows.load(self._reader, key)

    async def save(self, job: Job[T]) -> T:
        outcome: asyncio.Future[T] = self._loop.create_future()
        self._waiting.put((job, outcome))  # type: ignore[arg-type] # its outcome is what it gives
        return await outcome

    def remember(self, key: str, place: Place) -> None:
        if self._keeps:
            self._places[key] = place

    def _write(self) -> None:
        database = connect(self.path)
        while (first := self._waiting.get()) is not None:
            batch = [first]
            while len(batch) < BATCH:
                try:
                    another = self._waiting.get_nowait()
                except Empty:
                    break
                if another is None:
                    self._waiting.put(None)
                    break
                batch.append(another)
            database.execute("BEGIN IMMEDIATE")
            outcomes = [job(database) for job, _ in batch]
            database.execute("COMMIT")
            told = [outcome for _, outcome in batch]
            self._loop.call_soon_threadsafe(_tell, told, outcomes)
        database.close()


def _tell(told: Sequence[asyncio.Future[object]], outcomes: Sequence[object]) -> None:
    for future, outcome in zip(told, outcomes, strict=True):
        future.set_result(outcome)
