"""How many bytes all takes, or one conversation.

By what the rows hold, not by how long the tables are: those do not shrink when rows go.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg

# Of what lies beside its row, a length is known without reading it.
_ALL: Final = """
    SELECT (SELECT coalesce(sum(octet_length(head) + octet_length(seen)), 0) FROM sessions)
        + (SELECT coalesce(sum(octet_length(about) + octet_length(blocks)), 0) FROM messages)
        + (SELECT coalesce(sum(octet_length(data)), 0) FROM blobs)
        + (SELECT count(*) * 200 FROM usage)
"""
_OF_ONE: Final = """
    SELECT octet_length(head) + octet_length(seen)
        + (SELECT coalesce(sum(octet_length(about) + octet_length(blocks)), 0) FROM messages
           WHERE session = s.id)
        + (SELECT coalesce(sum(octet_length(data)), 0) FROM blobs b WHERE b.id IN (
               SELECT blob FROM blob_uses mine WHERE mine.key = s.key AND mine.aside = 0
               AND NOT EXISTS(SELECT 1 FROM blob_uses other WHERE other.blob = mine.blob
                   AND (other.key, other.aside) <> (mine.key, mine.aside))))
    FROM sessions s WHERE key = %s AND aside IS NULL
"""


async def of(connection: psycopg.AsyncConnection[Any], key: str | None) -> int:
    if key is None:
        found = await connection.execute(_ALL)
    else:
        found = await connection.execute(_OF_ONE, (key,))
    row = await found.fetchone()
    return int(row[0]) if row else 0
