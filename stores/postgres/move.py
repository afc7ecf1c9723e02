"""A chat that goes on under another key: its conversations follow, in one transaction.

What two conversations become when they meet is decided by `core.changes.move`; this file only
brings the rows there.
"""

from __future__ import annotations

from typing import Any

import psycopg

from core import changes
from core.errors import SnapshotTooNew, SnapshotUnreadable
from core.keys import check_key
from stores.postgres import blobs, save, usage
from stores.postgres.load import Loaded, load


async def move(connection: psycopg.AsyncConnection[Any], old: str, new: str, now: int) -> None:
    """Every key that is `old`, or begins with `old` and a slash, begins with `new` instead.

    :param now: ms since 1970, for what has to be set aside
    :raises InvalidKey: a key would become one that cannot be
    """
    if old == new:
        return
    async with connection.transaction():
        # Nobody saves to either while they move. "0" is the character after "/"; the longest first,
        # so that none lands on one still to move.
        found = await connection.execute(
            "SELECT key FROM sessions WHERE aside IS NULL "
            "AND (key = %s OR (key > %s AND key < %s)) ORDER BY key DESC FOR UPDATE",
            (old, f"{old}/", f"{old}0"),
        )
        keys = [key for (key,) in await found.fetchall()]
        used = await blobs.users(connection, old)
        for key in used:
            await blobs.copy(connection, key, 0, check_key(new + key[len(old) :]), 0)
        for key in keys:
            await _move_one(connection, key, check_key(new + key[len(old) :]), now)
        for key in used:
            await blobs.forget(connection, key)
        await usage.move(connection, old, new)


async def _move_one(
    connection: psycopg.AsyncConnection[Any], old_key: str, new_key: str, now: int
) -> None:
    await connection.execute(
        "SELECT 1 FROM sessions WHERE key = %s AND aside IS NULL FOR UPDATE", (new_key,)
    )
    old, new = await _readable(connection, old_key), await _readable(connection, new_key)
    if new is None:
        await save.set_aside(connection, new_key, now)  # unless it is not there
    if old is None and new is not None:
        await save.set_aside(connection, old_key, now)
        return
    if old is None:
        await connection.execute(
            "UPDATE sessions SET key = %s WHERE key = %s AND aside IS NULL", (new_key, old_key)
        )
        return
    merged = changes.move(old.snapshot, new.snapshot if new else None, new_key)
    known = old.snapshot.next_seq
    if new is not None:
        # The rows of the second follow those of the first; the rest of it goes.
        offset = known - 1
        known = offset + new.snapshot.next_seq
        await connection.execute(
            "UPDATE messages SET session = %s, seq = seq + %s WHERE session = %s",
            (old.id, offset, new.id),
        )
        await connection.execute("DELETE FROM sessions WHERE id = %s", (new.id,))
    await save.write(connection, old.id, new_key, merged, known)


async def _readable(connection: psycopg.AsyncConnection[Any], key: str) -> Loaded | None:
    try:
        return await load(connection, key)
    except (SnapshotUnreadable, SnapshotTooNew):
        return None
