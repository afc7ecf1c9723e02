"""A whole store in one file: conversations in a table of a database that you have already.

    .venv/bin/python -m examples.own_store

Three methods are all that a store needs. Its proof is `tests/examples/test_own_store.py`, three
lines over the contract suite. It rewrites the whole snapshot with each save, and opens a
connection for each call: fine for a web application, slow for a bot with thousands of chats, for
which there is `stores/sqlite`.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

from core import Agent, Session, SessionRef, Snapshot
from core.errors import StaleSnapshot, StoreUnavailable
from core.snapshot import decode, encode
from examples.stand_in import model

TABLE = """
CREATE TABLE IF NOT EXISTS conversations (
    key TEXT PRIMARY KEY, revision INTEGER NOT NULL, snapshot BLOB NOT NULL
)"""

T = TypeVar("T")


class OwnStore:
    """
    :param path: your database; `ref.options["path"]` wins over it
    """

    def __init__(self, path: str = "application.db") -> None:
        self._path = path

    async def load(self, ref: SessionRef) -> Snapshot | None:
        """None means: nothing is stored. What is stored and cannot be read raises, in `decode`."""

        def read(database: sqlite3.Connection) -> bytes | None:
            row = database.execute(
                "SELECT snapshot FROM conversations WHERE key = ?", (ref.key,)
            ).fetchone()
            return row[0] if row else None

        blob = await self._do(ref, read)
        return None if blob is None else decode(blob)

    async def save(self, ref: SessionRef, snapshot: Snapshot, *, replaces: int | None) -> None:
        """Compare-and-set: what is stored must still be what the caller saw, or nothing is written.
        One statement does both, so two writers at once are no trouble."""
        blob = encode(snapshot)

        def write(database: sqlite3.Connection) -> int:
            if replaces is None:
                return database.execute(
                    "INSERT OR IGNORE INTO conversations VALUES (?, ?, ?)",
                    (ref.key, snapshot.revision, blob),
                ).rowcount
            return database.execute(
                "UPDATE conversations SET revision = ?, snapshot = ? "
                "WHERE key = ? AND revision = ?",
                (snapshot.revision, blob, ref.key, replaces),
            ).rowcount

        if await self._do(ref, write) == 0:
            raise StaleSnapshot(f"{ref.key}: another revision is stored, not {replaces}")

    async def clear(self, ref: SessionRef) -> None:
        """Fine when nothing is there."""
        await self._do(
            ref,
            lambda database: (
                database.execute("DELETE FROM conversations WHERE key = ?", (ref.key,)).rowcount
            ),
        )

    async def _do(self, ref: SessionRef, work: Callable[[sqlite3.Connection], T]) -> T:
        """In a thread: a store must not hold up the others. An error of the database is said as
        one of ours, and never taken for an empty conversation."""
        path = str(ref.options.get("path", self._path))

        def connected() -> T:
            try:
                with closing(sqlite3.connect(path, timeout=10)) as database, database:
                    database.execute(TABLE)
                    return work(database)
            except sqlite3.Error as error:
                raise StoreUnavailable(f"{path}: {error}") from error

        return await asyncio.to_thread(connected)


async def main() -> None:
    agent = Agent(instructions="You are helpful.")
    async with model() as client:
        for text in ("Hello, my name is Alice", "What is my name?"):
            # A new session each time, as after a restart: what it knows comes from the store.
            session = await Session.start(agent, store=OwnStore(), key="user:42", client=client)
            print((await session.run(text)).text)
        await session.clear()
        print("Forgotten.")


if __name__ == "__main__":
    asyncio.run(main())
