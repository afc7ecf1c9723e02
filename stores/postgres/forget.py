"""What it takes to forget a person: finding where they spoke, and leaving nothing in the tables'
free space. What goes from a conversation is decided in `core.forget`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import psycopg

from stores.postgres import blobs

PAGE: Final = 200  # conversations looked through at once

_encode: Final = msgspec.json.Encoder().encode
_HAS_SPOKEN: Final = (
    "(position(%(name)s::bytea IN head) > 0 OR EXISTS(SELECT 1 FROM messages m "
    "WHERE m.session = s.id AND position(%(name)s::bytea IN m.about) > 0))"
)
_TABLES: Final = ("sessions", "messages", "blobs", "blob_uses", "usage", "notes")


async def spoken_by(
    connection: psycopg.AsyncConnection[Any], sender: str, after: int
) -> list[tuple[int, str | None]]:
    """The next conversations, by id: the key of those in which this person has spoken."""
    found = await connection.execute(
        f"SELECT id, CASE WHEN aside IS NULL AND {_HAS_SPOKEN} THEN key END "
        "FROM sessions s WHERE id > %(after)s ORDER BY id LIMIT %(limit)s",
        {"name": _encode(sender), "after": after, "limit": PAGE},
    )
    return await found.fetchall()


async def clear_aside(
    connection: psycopg.AsyncConnection[Any],
    key: str | None,
    sender: str | None,
    before: int | None,
) -> int:
    async with connection.transaction():
        found = await connection.execute(
            "DELETE FROM sessions s WHERE aside IS NOT NULL AND (key = %(key)s "
            "OR aside < %(before)s::bigint "
            f"OR (%(sender)s::text IS NOT NULL AND {_HAS_SPOKEN})) RETURNING id, key",
            {"key": key, "sender": sender, "before": before, "name": _encode(sender or "")},
        )
        rows = await found.fetchall()
        for id, was_at in rows:
            await blobs.end_all(connection, was_at, id)
    return len(rows)


async def scrub(connection: psycopg.AsyncConnection[Any]) -> None:
    for table in _TABLES:
        await connection.execute(f"VACUUM FULL {table}")
