"""Blobs in their tables: the bytes once, and a row for each conversation that uses them.

What is not in `SQLiteBlobs` is sync, and runs inside a transaction that is open already: see
`group.py`. When a conversation is done with a blob is decided in `core.blobs`.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final, Protocol, TypeVar

from core import blobs
from core.blobs import named_in
from core.clock import Clock
from core.errors import BlobUnreadable
from core.keys import check_key
from core.snapshot import Snapshot
from core.store import Blob

T = TypeVar("T")

_THOSE_OF: Final = "SELECT blob, at FROM blob_uses WHERE key = ?"
# What was set aside has a NUL in its name, and is a conversation, too.
_IS_THERE: Final = (
    "(instr(CAST(key AS BLOB), x'00') > 0 OR EXISTS(SELECT 1 FROM sessions "
    "WHERE sessions.key = blob_uses.key AND aside IS NULL))"
)
PAGE: Final = 500  # uses looked at at once
_IS_NAMED: Final = "SELECT 1 FROM messages WHERE session = ? AND instr(blocks, ?) LIMIT 1"


class Run(Protocol):
    """One transaction in the thread of a connection."""

    def __call__(self, work: Callable[[sqlite3.Connection], T], /) -> Awaitable[T]: ...


class SQLiteBlobs:
    """Bytes beside the histories."""

    def __init__(self, read: Run, write: Run, clock: Clock) -> None:
        self._read = read
        self._write = write
        self._clock = clock

    async def put(self, key: str, data: bytes, media_type: str) -> str:
        check_key(key)
        id = await asyncio.to_thread(blobs.id_of, data)
        now = self._clock.now()

        def write(database: sqlite3.Connection) -> None:
            database.execute("INSERT OR IGNORE INTO blobs VALUES(?, ?, ?)", (id, media_type, data))
            database.execute("REPLACE INTO blob_uses VALUES(?, ?, ?)", (key, id, now))

        await self._write(write)
        return id

    async def get(self, id: str) -> Blob | None:
        return await self._read(lambda database: _get(database, id))

    async def end_orphans(self, key: str) -> None:
        """All uses of a conversation that is not there any more."""
        before = self._clock.now() + 1
        for id in await self._read(partial(uses, key=key)):
            await self._write(partial(_end_orphan, use=(key, id), before=before))

    async def sweep(self, before: int) -> int:
        ended, after = 0, ("", "")
        while page := await self._read(partial(_page, after=after)):
            going = [(key, blob) for key, blob, at, there in page if at < before and not there]
            for use in going:
                ended += await self._write(partial(_end_orphan, use=use, before=before))
            after = page[-1][:2]
        return ended


def _get(database: sqlite3.Connection, id: str) -> Blob | None:
    row = database.execute("SELECT media_type, data FROM blobs WHERE id = ?", (id,)).fetchone()
    if row is None:
        return None
    media_type, data = row
    if not (isinstance(media_type, str) and isinstance(data, bytes)):
        raise BlobUnreadable(f"{id[:19]}…: what is stored is damaged")
    return Blob(media_type, blobs.checked(id, data))


def _page(database: sqlite3.Connection, after: tuple[str, str]) -> list[tuple[str, str, int, bool]]:
    """The next uses: key, blob, when it was put, and whether its conversation is there."""
    return database.execute(
        f"SELECT key, blob, at, {_IS_THERE} FROM blob_uses WHERE (key, blob) > (?, ?) "
        "ORDER BY key, blob LIMIT ?",
        (*after, PAGE),
    ).fetchall()


def _end_orphan(database: sqlite3.Connection, use: tuple[str, str], before: int) -> bool:
    """Unless its conversation has begun meanwhile."""
    found = database.execute(
        f"SELECT 1 FROM blob_uses WHERE (key, blob) = (?, ?) AND at < ? AND NOT {_IS_THERE}",
        (*use, before),
    ).fetchone()
    if found:
        _end(database, *use)
    return found is not None


def named(database: sqlite3.Connection, session: int, first: int, last: int) -> set[str]:
    """The ids in a range of rows, which are about to be erased."""
    rows = database.execute(
        "SELECT blocks FROM messages WHERE session = ? AND seq BETWEEN ? AND ?",
        (session, first, last),
    ).fetchall()
    return {id for (blocks,) in rows for id in named_in(bytes(blocks))}


def waiting(database: sqlite3.Connection, session: int) -> set[str]:
    """The ids in what waits to be answered, as it is stored."""
    rows = database.execute(
        "SELECT head FROM sessions WHERE id = ? UNION ALL "
        "SELECT body FROM bodies WHERE session = ?",
        (session, session),
    ).fetchall()
    return {id for (data,) in rows for id in named_in(bytes(data))}


def uses(database: sqlite3.Connection, key: str) -> dict[str, int]:
    """When the conversation has put each of its blobs, in ms."""
    return dict(database.execute(_THOSE_OF, (key,)).fetchall())


def end_unused(
    database: sqlite3.Connection,
    key: str,
    session: int,
    put: dict[str, int],
    going: Iterable[str],
    snapshot: Snapshot,
) -> None:
    """After rows were erased.

    :param put: `uses`, before that
    :param going: the ids that these rows named
    """
    named = blobs.named_by(snapshot)
    for id in blobs.unused(put, going, named, snapshot.updated_at):
        # Rows that left the window are history still.
        if not database.execute(_IS_NAMED, (session, f'"{id}"'.encode())).fetchone():
            _end(database, key, id)


def end_all(database: sqlite3.Connection, key: str) -> None:
    for id in uses(database, key):
        _end(database, key, id)


def _end(database: sqlite3.Connection, key: str, id: str) -> None:
    database.execute("DELETE FROM blob_uses WHERE key = ? AND blob = ?", (key, id))
    database.execute(
        "DELETE FROM blobs WHERE id = ? AND NOT EXISTS (SELECT 1 FROM blob_uses WHERE blob = ?)",
        (id, id),
    )


def users(database: sqlite3.Connection, key: str) -> list[str]:
    """Who uses any, of the conversation and those inside of it."""
    rows = database.execute(
        "SELECT DISTINCT key FROM blob_uses WHERE key = ? OR (key > ? AND key < ?)",
        (key, f"{key}/", f"{key}0"),
    ).fetchall()
    return [used_by for (used_by,) in rows]


def copy(database: sqlite3.Connection, old: str, new: str) -> None:
    """What `old` uses, `new` uses as well; `new` need not be a key."""
    database.execute(
        "REPLACE INTO blob_uses SELECT ?, blob, at FROM blob_uses WHERE key = ?", (new, old)
    )


def forget(database: sqlite3.Connection, key: str) -> None:
    """After a `copy`: nothing becomes free."""
    database.execute("DELETE FROM blob_uses WHERE key = ?", (key,))
