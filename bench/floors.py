"""The limit of the machine: bare sqlite3 that saves the same and checks nothing.

Everything is encoded before the clock starts. Four transactions a turn as in chinwag (accepted,
started, committed, delivered), write-ahead log, synchronous=FULL; rows in order of arrival with an
index on their place, and a head row of the size that chinwag's snapshot has. What chinwag does
besides is not here: checksums, savepoints, ids seen, the index of unfinished conversations,
erasing what is deleted.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple, TypeVar

from bench.ours import heads
from bench.said import Exchange, in_window
from bench.subject import Seen, Turn, Wrong
from core.memory import BOT_MEMORY

BATCH: Final = 256  # saves that share a transaction, at most

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], T]

TABLES: Final = """
    CREATE TABLE IF NOT EXISTS sessions(
        id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, revision INTEGER NOT NULL,
        next_seq INTEGER NOT NULL, window INTEGER NOT NULL, unfinished INTEGER NOT NULL,
        head BLOB NOT NULL
    );
    CREATE TABLE IF NOT EXISTS messages(
        id INTEGER PRIMARY KEY, session INTEGER NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL
    );
    CREATE UNIQUE INDEX IF NOT EXISTS place ON messages(session, seq);
"""


class Place(NamedTuple):
    """What is known of a chat before its turn: the columns beside its head."""

    id: int
    revision: int
    next_seq: int
    window: int


# A chat, and the rows of its window unless nothing was read.
Loaded = tuple[Place, list[tuple[int, bytes]] | None]


def connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    return database


def place_of(database: sqlite3.Connection, key: str) -> tuple[Place, bytes] | None:
    row = database.execute(
        "SELECT id, revision, next_seq, window, head FROM sessions WHERE key = ?", (key,)
    ).fetchone()
    return (Place(*row[:4]), row[4]) if row else None


def rows_of(database: sqlite3.Connection, place: Place) -> list[tuple[int, bytes]]:
    return database.execute(
        "SELECT seq, body FROM messages WHERE session = ? AND seq >= ? ORDER BY seq",
        (place.id, place.window),
    ).fetchall()


def load(database: sqlite3.Connection, key: str) -> Loaded | None:
    """The head and the rows of the window."""
    found = place_of(database, key)
    return (found[0], rows_of(database, found[0])) if found else None


def add(database: sqlite3.Connection, key: str, head: bytes) -> Place:
    """A new chat."""
    cursor = database.execute(
        "INSERT INTO sessions(key, revision, next_seq, window, unfinished, head) "
        "VALUES(?, 1, 1, 1, 1, ?)",
        (key, head),
    )
    assert cursor.lastrowid is not None
    return Place(cursor.lastrowid, 1, 1, 1)


def save(
    database: sqlite3.Connection,
    place: Place,
    head: bytes,
    rows: Sequence[bytes] = (),
    *,
    window: int | None = None,
    unfinished: bool = True,
) -> Place:
    """New rows and the head; by compare-and-set."""
    database.executemany(
        "INSERT INTO messages(session, seq, body) VALUES(?, ?, ?)",
        [(place.id, place.next_seq + index, row) for index, row in enumerate(rows)],
    )
    after = Place(
        place.id,
        place.revision + 1,
        place.next_seq + len(rows),
        place.window if window is None else window,
    )
    changed = database.execute(
        "UPDATE sessions SET revision = ?, next_seq = ?, window = ?, unfinished = ?, head = ? "
        "WHERE id = ? AND revision = ?",
        (*after[1:], unfinished, head, place.id, place.revision),
    ).rowcount
    if changed != 1:
        raise Wrong(f"session {place.id}: somebody else saved it")
    return after


def alone(job: Job[T]) -> Job[T]:
    """In a transaction of its own."""

    def run(database: sqlite3.Connection) -> T:
        database.execute("BEGIN IMMEDIATE")
        outcome = job(database)
        database.execute("COMMIT")
        return outcome

    return run


def fill(
    database: sqlite3.Connection, key: str, said: Sequence[Exchange], *, bounded: bool = True
) -> None:
    if not said:
        return
    total = 2 * len(said)
    head = heads(key, said[-1], total - 2)[-1]
    rows = [row for each in said for row in (each.user_message, each.answer_message)]
    window = total + 1 - in_window(total) if bounded else 1
    save(database, add(database, key, head), head, rows, window=window, unfinished=False)


def next_window(place: Place) -> int:
    """What chinwag's window does when one more message joins."""
    bound, kept = BOT_MEMORY.max_messages, BOT_MEMORY.trim_to
    assert bound is not None
    in_it = place.next_seq - place.window
    return place.next_seq - (kept - 1) // 2 * 2 if in_it + 1 > bound else place.window


def seen(loaded: Loaded | None) -> Seen:
    if loaded is None:
        return Seen(0)
    place, rows = loaded
    if rows is None:
        return Seen(place.next_seq - 1)
    last = rows[-1][1].partition(b'"content":')[2][:-1] if rows else None
    return Seen(place.next_seq - 1, len(rows), last)


class Floor:
    """One connection in one worker thread, one hop a load or save: what asyncio code with the
    standard library alone would do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1)
        self._database = await self._loop.run_in_executor(self._thread, connect, self.path)
        await self.hop(lambda database: database.executescript(TABLES))

    async def close(self) -> None:
        await self.hop(lambda database: database.close())
        self._thread.shutdown()

    async def hop(self, job: Job[T]) -> T:
        return await self._loop.run_in_executor(self._thread, job, self._database)

    async def load(self, key: str) -> Loaded | None:
        return await self.hop(lambda database: load(database, key))

    async def save(self, job: Job[T]) -> T:
        return await self.hop(alone(job))

    async def fill(self, key: str, said: Sequence[Exchange]) -> None:
        await self.save(lambda database: fill(database, key, said))

    def ready(self, key: str, said: Exchange, total: int) -> Turn:
        accepted, started, committed, delivered = heads(key, said, total)
        asked, answered = (said.user_message,), (said.answer_message,)

        async def turn() -> Seen:
            loaded = await self.load(key)
            if loaded is None:
                place = await self.save(lambda database: add(database, key, accepted))
            else:
                place = await self.step(loaded[0], accepted)
            place = await self.step(place, started, asked, window=next_window(place))
            place = await self.step(place, committed, answered)
            place = await self.step(place, delivered, unfinished=False)
            self.remember(key, place)
            return seen(loaded)

        return turn

    async def step(
        self,
        place: Place,
        head: bytes,
        rows: Sequence[bytes] = (),
        *,
        window: int | None = None,
        unfinished: bool = True,
    ) -> Place:
        def job(database: sqlite3.Connection) -> Place:
            return save(database, place, head, rows, window=window, unfinished=unfinished)

        return await self.save(job)

    def remember(self, key: str, place: Place) -> None:
        """A turn is over."""

    async def count(self, key: str) -> int:
        return await self.hop(lambda database: count(database, key))


class Append:
    """One transaction a turn in the event loop's own thread, the history never read: the least
    that a durable turn can cost, and it stops the loop meanwhile."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._places: dict[str, Place] = {}

    async def open(self) -> None:
        self._database = connect(self.path)
        self._database.executescript(TABLES)

    async def close(self) -> None:
        self._database.close()

    async def fill(self, key: str, said: Sequence[Exchange]) -> None:
        alone(lambda database: fill(database, key, said))(self._database)

    def ready(self, key: str, said: Exchange, total: int) -> Turn:
        head = heads(key, said, total)[-1]
        rows = (said.user_message, said.answer_message)

        def append(database: sqlite3.Connection) -> Place:
            place = self._places.get(key) or add(database, key, head)
            return save(database, place, head, rows, unfinished=False)

        async def turn() -> Seen:
            before = self._places.get(key)
            self._places[key] = alone(append)(self._database)
            return Seen(before.next_seq - 1 if before else 0)

        found = place_of(self._database, key)
        if found:
            self._places[key] = found[0]
        return turn

    async def count(self, key: str) -> int:
        return count(self._database, key)


class Group(Floor):
    """A thread that writes whatever waits in one transaction; loads on a second connection, in the
    event loop's own thread.

    :param keeps: the history is never read, as if it were in memory
    """

    def __init__(self, path: Path, *, keeps: bool = False) -> None:
        super().__init__(path)
        self._keeps = keeps
        self._places: dict[str, Place] = {}
        self._waiting: SimpleQueue[tuple[Job[object], asyncio.Future[object]] | None] = (
            SimpleQueue()
        )

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = connect(self.path)
        self._reader.executescript(TABLES)
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
        return load(self._reader, key)

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


def count(database: sqlite3.Connection, key: str) -> int:
    found = place_of(database, key)
    if found is None:
        return 0
    place, _ = found
    (rows,) = database.execute(
        "SELECT count(*) FROM messages WHERE session = ?", (place.id,)
    ).fetchone()
    if rows != place.next_seq - 1:
        raise Wrong(f"{key}: {rows} rows, but its head says {place.next_seq - 1}")
    return int(rows)
