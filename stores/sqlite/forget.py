"""What it takes to forget a person: finding where they spoke, and leaving nothing in free space.

Sync. What goes from a conversation is decided in `core.forget`.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

import msgspec

from stores.sqlite import blobs

PAGE: Final = 200  # conversations looked through at once
# Up to so many bytes a file is rewritten by way of memory, above it by way of a temporary file.
IN_MEMORY: Final = 64 << 20

_encode: Final = msgspec.json.Encoder().encode
_HAS_SPOKEN: Final = (
    "(instr(head, ?) OR EXISTS(SELECT 1 FROM messages WHERE session = sessions.id "
    "AND instr(about, ?)))"
)


def spoken_by(
    database: sqlite3.Connection, sender: str, after: int
) -> list[tuple[int, bytes | None]]:
    """The next conversations, by id: the key of those in which this person has spoken."""
    name = _encode(sender)
    return database.execute(
        f"SELECT id, CASE WHEN aside IS NULL AND {_HAS_SPOKEN} THEN CAST(key AS BLOB) END "
        "FROM sessions WHERE id > ? ORDER BY id LIMIT ?",
        (name, name, after, PAGE),
    ).fetchall()


def clear_aside(
    database: sqlite3.Connection, key: str | None, sender: str | None, before: int | None
) -> int:
    name = _encode(sender or "")
    rows = database.execute(
        "SELECT id, key, aside FROM sessions WHERE aside IS NOT NULL "
        f"AND (key = ? OR aside < ? OR (? IS NOT NULL AND {_HAS_SPOKEN}))",
        (key, before, sender, name, name),
    ).fetchall()
    for session, was_at, aside in rows:
        blobs.end_all(database, f"{was_at}\0{aside}")
        for table in ("messages", "seen", "bodies"):
            database.execute(f"DELETE FROM {table} WHERE session = ?", (session,))
        database.execute("DELETE FROM sessions WHERE id = ?", (session,))
    return len(rows)


def scrub(database: sqlite3.Connection, path: Path) -> None:
    """
    :raises sqlite3.OperationalError: a reader of another process kept the log from being emptied
    """
    large = path.stat().st_size > IN_MEMORY
    if large:
        database.execute("PRAGMA temp_store=FILE")
    try:
        database.execute("VACUUM")
    finally:
        if large:
            database.execute("PRAGMA temp_store=MEMORY")
    (busy, _, _) = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise sqlite3.OperationalError("the log is being read and cannot be emptied")
