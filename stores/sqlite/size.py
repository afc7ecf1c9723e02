"""How much of the file is in use, by all or by one conversation. Sync, inside a transaction that
is open already.

Not how long the file is: what was deleted leaves free pages in it, which are written to again.
"""

from __future__ import annotations

import sqlite3
from typing import Final

# Of the lengths, SQLite reads the heads of rows only.
_OF_ONE: Final = """
    SELECT length(head)
        + (SELECT coalesce(sum(length(about) + length(blocks)), 0) FROM messages
           WHERE session = sessions.id)
        + (SELECT coalesce(sum(length(body)), 0) FROM bodies WHERE session = sessions.id)
        + (SELECT coalesce(sum(length(data)), 0) FROM blobs WHERE id IN (
               SELECT blob FROM blob_uses mine WHERE mine.key = sessions.key AND NOT EXISTS(
                   SELECT 1 FROM blob_uses other
                   WHERE other.blob = mine.blob AND other.key <> mine.key)))
    FROM sessions WHERE key = ? AND aside IS NULL
"""


def of(database: sqlite3.Connection, key: str | None) -> int:
    """In bytes."""
    if key is not None:
        row = database.execute(_OF_ONE, (key,)).fetchone()
        return int(row[0]) if row else 0
    pages, free, size = (
        database.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int(pages - free) * int(size)
