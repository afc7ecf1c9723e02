"""SQLiteStore: conversations in one SQLite file, for one process that writes.

Not for several programs at once (a lock file refuses the second writer; any number may read) and
not for a network file system. Two connections: one that writes and checkpoints, one that only
reads. What a save writes and what a load of the window reads does not depend on how long the
conversation is.

::

    async with SQLiteStore("chinwag.db") as store:
        snapshot = await store.load(SessionRef("telegram-chat:123"))

`schema.py` has the tables; `encode.py`, `save.py` and `load.py` how a snapshot lies in them;
`group.py` how calls share a hop to a connection's thread, `commit.py` how writes share a
transaction; `move.py` how a conversation gets another key; `blobs.py` what is kept beside the
histories.
"""

from __future__ import annotations

import os
import sqlite3
from asyncio import Future
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import aiosqlite

from core.clock import Clock, SystemClock
from core.errors import StoreCorrupt, StoreError, StoreUnavailable
from core.lock import take_lock
from core.messages import Message
from core.snapshot import Snapshot
from core.store import SessionRef, Summary
from core.usage import By, Spent, Sum
from stores.sqlite import forget, load, save, schema, size, usage
from stores.sqlite.blobs import SQLiteBlobs
from stores.sqlite.commit import Writer
from stores.sqlite.encode import prepare
from stores.sqlite.group import Group, Work, read_together
from stores.sqlite.move import move

PAGE: Final = 100  # rows that a listing reads at once, so that no transaction waits for its reader
ERASED: Final = 500  # rows of usage that go at once

_CLOCK: Final = SystemClock()

# As bytes, there and back: a damaged key must not keep a list from coming to its end.
_KEY: Final = "CAST(key AS BLOB)"
_AFTER: Final = "key > CAST(? AS TEXT)"

T = TypeVar("T")


class SQLiteStore:
    """
    :param path: the database; it is created, its folder is not
    :param read_only: takes no lock and writes nothing; the database must be there
    """

    def __init__(
        self, path: str | os.PathLike[str], *, read_only: bool = False, clock: Clock = _CLOCK
    ) -> None:
        self.path = Path(path).absolute()
        self.notes = SQLiteNotes(self)
        self.usage = SQLiteUsage(self)
        self.blobs = SQLiteBlobs(self._read, self._write, clock)
        self._read_only = read_only
        self._clock = clock
        self._reads: Group | None = None
        self._writes: Group | None = None
        self._writer: aiosqlite.Connection | None = None
        self._closing = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """
        :raises StoreInUse: another process writes to it
        :raises StoreCorrupt: not a database, not one of ours, or of a newer chinwag; untouched
        :raises StoreOutdated: of an older one; untouched
        :raises StoreUnavailable: it cannot be opened
        """
        # Two names of one file must meet at one lock.
        path = self.path.resolve()
        writes = writer = None
        async with AsyncExitStack() as stack:
            if not self._read_only:
                lock = take_lock(path.with_name(f"{path.name}.lock"), path)
                stack.callback(os.close, lock)
                schema.create_file(path)
                schema.look_at(path)
                writer = await _connect(stack, path, "rw", schema.prepare_writer)
                writes = _group(writer, partial(_commit, path, Writer()))
            else:
                schema.look_at(path)
            reader = await _connect(stack, path, "ro", schema.prepare_reader)
            self._reads, self._writes = _group(reader, partial(_read, path)), writes
            self._writer = writer
            self._closing = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._reads = self._writes = self._writer = None
        # What waits is done first: a thread closes its connection in its turn.
        await self._closing.aclose()

    # ------------------------------------------------------------------ what a Session needs

    async def load(self, ref: SessionRef) -> Snapshot | None:
        return await self._read(lambda database: load.load(database, ref.key))

    async def save(self, ref: SessionRef, snapshot: Snapshot, *, replaces: int | None) -> None:
        await self._write(save.Save(ref.key, prepare(snapshot), replaces))

    async def clear(self, ref: SessionRef) -> None:
        await self._write(lambda database: save.clear(database, ref.key))

    # ------------------------------------------------------------------ what a bot needs besides

    async def unfinished(self) -> AsyncIterator[str]:
        after = b""
        while True:
            page = await self._fetch(
                f"SELECT {_KEY} FROM sessions WHERE unfinished AND aside IS NULL AND {_AFTER} "
                "ORDER BY key LIMIT ?",
                (after, PAGE),
            )
            for (after,) in page:
                yield _text(after)
            if len(page) < PAGE:
                return

    async def summaries(
        self, prefix: str = "", after: str | None = None, limit: int = 100
    ) -> AsyncIterator[Summary]:
        last = (after or "").encode()
        while limit > 0:
            # The first comparison finds the place in the index, the last one ends the walk there.
            page = await self._fetch(
                f"SELECT {_KEY}, messages, unfinished, updated_at FROM sessions "
                f"WHERE aside IS NULL AND {_AFTER} AND key >= ? AND (? IS NULL OR key < ?) "
                "ORDER BY key LIMIT ?",
                (last, prefix, behind := _behind(prefix), behind, min(limit, PAGE)),
            )
            for last, messages, unfinished, updated_at in page:
                yield Summary(_text(last), messages, bool(unfinished), updated_at)
            if len(page) < min(limit, PAGE):
                return
            limit -= len(page)

    async def archive(
        self, ref: SessionRef, before: int | None = None, limit: int = 100
    ) -> AsyncIterator[Message]:
        while limit > 0:
            size = min(limit, PAGE)
            page = await self._read(partial(load.archive, key=ref.key, before=before, limit=size))
            for message in page:
                yield message
            if len(page) < size:
                return
            limit -= size
            before = page[-1].seq

    async def move(self, old: str, new: str) -> None:
        now = self._clock.now()
        await self._write(lambda database: move(database, old, new, now))

    async def spoken_by(self, sender: str) -> AsyncIterator[str]:
        after = 0
        while True:
            page = await self._read(partial(forget.spoken_by, sender=sender, after=after))
            for _, key in page:
                if key is not None:
                    yield _text(key)
            if not page:
                return
            after = page[-1][0]

    async def remove(self, ref: SessionRef, *, replaces: int) -> None:
        await self._write(lambda database: save.remove_one(database, ref.key, replaces))
        # Each by itself: to overwrite them takes long. What a crash leaves, a sweep finds.
        await self.blobs.end_orphans(ref.key)

    async def size(self, key: str | None = None) -> int:
        return await self._read(lambda database: size.of(database, key))

    async def clear_aside(
        self, *, key: str | None = None, sender: str | None = None, before: int | None = None
    ) -> int:
        return await self._write(lambda database: forget.clear_aside(database, key, sender, before))

    async def scrub(self) -> None:
        """Rewrites the whole file: `secure_delete` leaves behind what rows once were on pages that
        others were moved from."""
        if self._writer is None:
            raise StoreUnavailable(f"{self.path}: the store is not open for writing")
        # Not among the writes: it wants no transaction around it.
        database = self._writer._conn
        await self._writer._execute(partial(_prepare, self.path, database, forget.scrub))  # type: ignore[no-untyped-call]

    async def set_aside(self, ref: SessionRef) -> None:
        now = self._clock.now()
        await self._write(lambda database: save.set_aside(database, ref.key, now))

    async def check(self) -> list[str]:
        """What SQLite finds wrong with the file; reads all of it. Empty: nothing."""
        try:
            found = await self._fetch("PRAGMA quick_check", ())
        except StoreCorrupt as error:  # too damaged to be looked through
            return [str(error)]
        return [line for (line,) in found if line != "ok"]

    # ------------------------------------------------------------------ the two connections

    def _read(self, read: Work[T]) -> Future[T]:
        if self._reads is None:
            raise StoreUnavailable(f"{self.path}: the store is not open")
        return self._reads.do(read)

    async def _fetch(self, sql: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        return await self._read(lambda database: database.execute(sql, values).fetchall())

    def _write(self, write: Work[T]) -> Future[T]:
        if self._writes is None:
            why = "opened for reading only" if self._reads else "not open"
            raise StoreUnavailable(f"{self.path}: the store is {why}")
        return self._writes.do(write)


class SQLiteNotes:
    """Small things that are no session, in a table of their own."""

    def __init__(self, store: SQLiteStore) -> None:
        self._store = store

    async def get(self, name: str) -> bytes | None:
        return await self._store._read(lambda database: _note(database, name))

    async def put(self, name: str, value: bytes | None, *, was: bytes | None) -> bool:
        def write(database: sqlite3.Connection) -> bool:
            if _note(database, name) != was:
                return False
            if value is None:
                database.execute("DELETE FROM notes WHERE name = ?", (name,))
            else:
                database.execute("REPLACE INTO notes(name, value) VALUES(?, ?)", (name, value))
            return True

        return await self._store._write(write)

    async def names(self) -> AsyncIterator[str]:
        after = ""
        while True:
            page = await self._store._fetch(
                "SELECT name FROM notes WHERE name > ? ORDER BY name LIMIT ?", (after, PAGE)
            )
            for (after,) in page:
                yield after
            if len(page) < PAGE:
                return


class SQLiteUsage:
    """What model calls used, in a table of its own."""

    def __init__(self, store: SQLiteStore) -> None:
        self._store = store

    async def sums(
        self,
        by: Sequence[By] = (),
        *,
        since: int = 0,
        until: int | None = None,
        key: str | None = None,
        sender: str | None = None,
    ) -> list[Sum]:
        return await self._store._read(
            lambda database: usage.sums(database, by, since, until, key, sender)
        )

    async def forget(self, sender: str) -> int:
        return await self._store._write(lambda database: usage.forget(database, sender))

    async def erase(self, before: int) -> int:
        erased = 0
        while page := await self._store._write(
            lambda database: usage.erase(database, before, ERASED)
        ):
            erased += page
        return erased

    async def rows(self) -> AsyncIterator[tuple[str, Spent]]:
        after: tuple[int, str, int] = (-1, "", 0)
        while page := await self._store._read(partial(usage.page, after=after, limit=PAGE)):
            for row in page:
                yield row
            _, last = page[-1]
            after = (last.at, last.execution, last.call)

    async def add(self, rows: Sequence[tuple[str, Spent]]) -> None:
        await self._store._write(lambda database: usage.add_missing(database, rows))


def _note(database: sqlite3.Connection, name: str) -> bytes | None:
    row = database.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
    return row[0] if row else None


def _text(key: bytes) -> str:
    return key.decode(errors="replace")


def _behind(prefix: str) -> str | None:
    """The first text behind all that begin with the prefix; None when there is none."""
    while prefix:
        last = ord(prefix[-1]) + 1
        prefix = prefix[:-1]
        if last <= 0x10FFFF:
            # The halves of surrogate pairs are no characters.
            return prefix + chr(0xE000 if last == 0xD800 else last)
    return None


async def _connect(
    stack: AsyncExitStack,
    path: Path,
    mode: str,
    prepare: Callable[[sqlite3.Connection, Path], None],
) -> aiosqlite.Connection:
    """
    :param mode: `rw` or `ro`: SQLite itself never creates the file
    """
    connection = aiosqlite.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, isolation_level=None, timeout=5.0
    )
    try:
        await connection
    except BaseException as error:
        # aiosqlite has told its thread to end, but does not wait for it.
        connection._thread.join()
        if isinstance(error, sqlite3.Error):
            raise schema.store_error(path, error) from error
        raise
    # Its thread is not a daemon: left open, it would keep the program from ending.
    stack.push_async_callback(connection.close)
    await connection._execute(partial(_prepare, path, connection._conn, prepare))  # type: ignore[no-untyped-call]
    return connection


def _prepare(
    path: Path,
    database: sqlite3.Connection,
    prepare: Callable[[sqlite3.Connection, Path], None],
) -> None:
    try:
        prepare(database, path)
    except Exception as error:
        raise _told(path, error) from error


def _group(
    connection: aiosqlite.Connection,
    together: Callable[[sqlite3.Connection, Sequence[Work[Any]]], Sequence[object]],
) -> Group:
    """aiosqlite's public calls are one hop a statement, and a hop costs more than most of the SQL
    in it: hence its thread's queue itself, in this one place."""

    def hand_over(work: Callable[[], None]) -> None:
        connection._tx.put_nowait((None, work))

    return Group(hand_over, partial(together, connection._conn))


def _read(path: Path, database: sqlite3.Connection, reads: Sequence[Work[Any]]) -> Sequence[object]:
    try:
        outcomes = read_together(database, reads)
    except Exception as error:
        outcomes = [error] * len(reads)
    return [_told(path, each) if isinstance(each, Exception) else each for each in outcomes]


def _commit(
    path: Path, writer: Writer, database: sqlite3.Connection, writes: Sequence[Work[Any]]
) -> Sequence[object]:
    try:
        outcomes = writer.commit(database, writes)
    except Exception as error:
        told = _told(path, error)
        kind = type(told) if isinstance(told, StoreError) else StoreUnavailable
        return [kind(f"{told}; the outcome is unknown") for _ in writes]
    return [_told(path, each) if isinstance(each, Exception) else each for each in outcomes]


def _told(path: Path, error: Exception) -> Exception:
    """As the caller shall see it."""
    if isinstance(error, sqlite3.Error):
        told: Exception = schema.store_error(path, error)
    elif isinstance(error, UnicodeDecodeError):
        # What SQLite said quotes a damaged schema, and Python cannot decode it.
        told = StoreCorrupt(f"{path}: the database is damaged ({error})")
    else:
        return error
    told.__cause__ = error
    return told
