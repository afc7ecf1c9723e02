"""SQLiteStore: conversations in one SQLite file, for one process that writes.

Not for several programs at once (a lock file refuses the second writer; any number may read) and
not for a network file system. Two connections: one that writes and checkpoints, one that only
reads. What a save writes and what a load of the window reads does not depend on how long the
conversation is.

::

    async with SQLiteStore("chinwag.db") as store:
        snapshot = await store.load(SessionRef("telegram-chat:123"))

`schema.py` has the tables; `encode.py`, `save.py` and `load.py` how a snapshot lies in them;
`group.py` how saves share a transaction; `move.py` how a conversation gets another key; `blobs.py`
what is kept beside the histories.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import aiosqlite

from core.clock import Clock, SystemClock
from core.errors import StoreCorrupt, StoreUnavailable
from core.lock import take_lock
from core.messages import Message
from core.snapshot import Snapshot
from core.store import SessionRef, Summary
from core.usage import By, Sum
from stores.sqlite import load, save, schema, usage
from stores.sqlite.blobs import SQLiteBlobs
from stores.sqlite.encode import prepare
from stores.sqlite.group import GroupCommit, Write, commit_together
from stores.sqlite.move import move

PAGE: Final = 100  # rows that a listing reads at once, so that no transaction waits for its reader

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
        self._reader: aiosqlite.Connection | None = None
        self._group: GroupCommit | None = None
        self._closing = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """
        :raises StoreInUse: another process writes to it
        :raises StoreCorrupt: not a database, not one of ours, or of a newer chinwag; untouched
        :raises StoreUnavailable: it cannot be opened
        """
        # Two names of one file must meet at one lock.
        path = self.path.resolve()
        group = None
        async with AsyncExitStack() as stack:
            if not self._read_only:
                lock = take_lock(path.with_name(f"{path.name}.lock"), path)
                stack.callback(os.close, lock)
                schema.create_file(path)
                schema.look_at(path)
                writer = await _connect(stack, path, "rw", schema.prepare_writer)
                group = GroupCommit(partial(_run, path, writer))
                stack.push_async_callback(group.finish)
            else:
                schema.look_at(path)
            self._reader = await _connect(stack, path, "ro", schema.prepare_reader)
            self._group = group
            self._closing = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._reader = self._group = None
        await self._closing.aclose()

    # ------------------------------------------------------------------ what a Session needs

    async def load(self, ref: SessionRef) -> Snapshot | None:
        return await self._read(lambda database: load.load(database, ref.key))

    async def save(self, ref: SessionRef, snapshot: Snapshot, *, replaces: int | None) -> None:
        prepared = prepare(snapshot)
        await self._write(lambda database: save.save(database, ref.key, prepared, replaces))

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

    async def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        if self._reader is None:
            raise StoreUnavailable(f"{self.path}: the store is not open")

        def in_transaction(database: sqlite3.Connection) -> T:
            # All queries of a read see one state.
            database.execute("BEGIN")
            try:
                return read(database)
            finally:
                if database.in_transaction:  # some errors end it
                    database.execute("COMMIT")

        return await _hop(self.path, self._reader, in_transaction)

    async def _fetch(self, sql: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        return await self._read(lambda database: database.execute(sql, values).fetchall())

    async def _write(self, write: Write[T]) -> T:
        if self._group is None:
            why = "opened for reading only" if self._reader else "not open"
            raise StoreUnavailable(f"{self.path}: the store is {why}")
        return await self._group.do(write)


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
    await _hop(path, connection, lambda database: prepare(database, path))
    return connection


async def _hop(
    path: Path, connection: aiosqlite.Connection, work: Callable[[sqlite3.Connection], T]
) -> T:
    """Run it in the connection's thread. One hop costs more than most of the SQL in it, and
    aiosqlite's public calls are one hop a statement: hence the private method, in this one place.
    """
    try:
        done: T = await connection._execute(lambda: work(connection._conn))  # type: ignore[no-untyped-call]
    except sqlite3.Error as error:
        raise schema.store_error(path, error) from error
    except UnicodeDecodeError as error:
        # What SQLite said quotes a damaged schema, and Python cannot decode it.
        raise StoreCorrupt(f"{path}: the database is damaged ({error})") from error
    return done


async def _run(
    path: Path, connection: aiosqlite.Connection, writes: list[Write[object]]
) -> list[object]:
    try:
        outcomes = await _hop(path, connection, lambda database: commit_together(database, writes))
    except (StoreUnavailable, StoreCorrupt) as error:
        return [type(error)(f"{error}; the outcome is unknown") for _ in writes]
    return [
        schema.store_error(path, outcome) if isinstance(outcome, sqlite3.Error) else outcome
        for outcome in outcomes
    ]
