"""Blobs in their tables: the bytes once, and a row for each conversation that uses them.

When a conversation is done with a blob is decided in `core.blobs`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

import psycopg
from psycopg.types.multirange import Int8Multirange

from core import blobs
from core.blobs import named_in
from core.clock import Clock
from core.keys import check_key
from core.snapshot import Snapshot
from core.store import Blob

__all__ = ["PostgresBlobs", "named_in"]

# What nobody uses any more. A use that is being added holds the blob by its foreign key.
_END_UNUSED: Final = (
    "DELETE FROM blobs b WHERE b.id = ANY(%s) "
    "AND NOT EXISTS(SELECT 1 FROM blob_uses u WHERE u.blob = b.id)"
)


class Connecting(Protocol):
    """A connection of the pool for as long as the block lasts, its errors ours."""

    def __call__(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]: ...


class PostgresBlobs:
    """Bytes beside the histories."""

    def __init__(self, connected: Connecting, clock: Clock) -> None:
        self._connected = connected
        self._clock = clock

    async def put(self, key: str, data: bytes, media_type: str) -> str:
        check_key(key)
        id = await asyncio.to_thread(blobs.id_of, data)
        async with self._connected() as connection, connection.transaction():
            # The update changes nothing; it holds the row, so that nobody ends it meanwhile.
            await connection.execute(
                "INSERT INTO blobs VALUES(%s, %s, %s) "
                "ON CONFLICT(id) DO UPDATE SET media_type = blobs.media_type",
                (id, media_type, data),
            )
            await connection.execute(
                "INSERT INTO blob_uses(key, blob, at) VALUES(%s, %s, %s) "
                "ON CONFLICT(key, aside, blob) DO UPDATE SET at = excluded.at",
                (key, id, self._clock.now()),
            )
        return id

    async def get(self, id: str) -> Blob | None:
        if not blobs.is_id(id):
            return None
        async with self._connected() as connection:
            found = await connection.execute(
                "SELECT media_type, data FROM blobs WHERE id = %s", (id,), binary=True
            )
            row = await found.fetchone()
        if row is None:
            return None
        media_type, data = row
        return Blob(media_type, await asyncio.to_thread(blobs.checked, id, bytes(data)))

    async def sweep(self, before: int) -> int:
        async with self._connected() as connection:
            return await _sweep(connection, before)


async def _sweep(connection: psycopg.AsyncConnection[Any], before: int) -> int:
    async with connection.transaction():
        found = await connection.execute(
            "DELETE FROM blob_uses u WHERE aside = 0 AND at < %s AND NOT EXISTS("
            "SELECT 1 FROM sessions s WHERE s.key = u.key AND s.aside IS NULL) RETURNING blob",
            (before,),
        )
        ids = [id for (id,) in await found.fetchall()]
        await connection.execute(_END_UNUSED, (ids,))
    return len(ids)


async def named(
    connection: psycopg.AsyncConnection[Any], session: int, seqs: Int8Multirange
) -> set[str]:
    """The ids in these rows."""
    found = await connection.execute(
        "SELECT blocks FROM messages WHERE session = %s AND %s::int8multirange @> seq",
        (session, seqs),
        binary=True,
    )
    return {id for (blocks,) in await found.fetchall() for id in named_in(bytes(blocks))}


async def uses(connection: psycopg.AsyncConnection[Any], key: str) -> dict[str, int]:
    """When the conversation has put each of its blobs, in ms."""
    found = await connection.execute(
        "SELECT blob, at FROM blob_uses WHERE key = %s AND aside = 0", (key,)
    )
    return {blob: at for blob, at in await found.fetchall()}


async def end_unused(
    connection: psycopg.AsyncConnection[Any],
    key: str,
    put: dict[str, int],
    going: Iterable[str],
    snapshot: Snapshot,
) -> None:
    """After rows were erased.

    :param put: `uses`, before that
    :param going: the ids that these rows named
    """
    done = blobs.unused(put, going, blobs.named_by(snapshot), snapshot.updated_at)
    if not done:
        return
    found = await connection.execute(
        # Rows that left the window are history still.
        "SELECT d.blob FROM unnest(%s::text[]) AS d(blob) WHERE NOT EXISTS("
        "SELECT 1 FROM sessions s JOIN messages m ON m.session = s.id "
        "WHERE s.key = %s AND s.aside IS NULL "
        "AND position(convert_to(d.blob, 'UTF8') IN m.blocks) > 0)",
        (sorted(done), key),
    )
    await _end(connection, key, [id for (id,) in await found.fetchall()])


async def end_all(connection: psycopg.AsyncConnection[Any], key: str, aside: int = 0) -> None:
    found = await connection.execute(
        "DELETE FROM blob_uses WHERE key = %s AND aside = %s RETURNING blob", (key, aside)
    )
    await connection.execute(_END_UNUSED, ([id for (id,) in await found.fetchall()],))


async def _end(connection: psycopg.AsyncConnection[Any], key: str, ids: list[str]) -> None:
    await connection.execute(
        "DELETE FROM blob_uses WHERE key = %s AND aside = 0 AND blob = ANY(%s)", (key, ids)
    )
    await connection.execute(_END_UNUSED, (ids,))


async def copy(
    connection: psycopg.AsyncConnection[Any], old: str, aside: int, new: str, new_aside: int
) -> None:
    """What `old` uses, `new` uses as well."""
    await connection.execute(
        "INSERT INTO blob_uses SELECT %s, %s, blob, at FROM blob_uses "
        "WHERE key = %s AND aside = %s "
        "ON CONFLICT(key, aside, blob) DO UPDATE SET at = excluded.at",
        (new, new_aside, old, aside),
    )


async def users(connection: psycopg.AsyncConnection[Any], key: str) -> list[str]:
    """Who uses any, of the conversation and those inside of it."""
    found = await connection.execute(
        "SELECT DISTINCT key FROM blob_uses WHERE aside = 0 "
        "AND (key = %s OR (key > %s AND key < %s))",
        (key, f"{key}/", f"{key}0"),
    )
    return [used_by for (used_by,) in await found.fetchall()]


async def forget(connection: psycopg.AsyncConnection[Any], key: str) -> None:
    """After a `copy`: nothing becomes free."""
    await connection.execute("DELETE FROM blob_uses WHERE key = %s AND aside = 0", (key,))
