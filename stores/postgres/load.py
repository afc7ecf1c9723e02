"""A conversation read, in one statement, so that all of it is of one moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import psycopg

from core.errors import SnapshotUnreadable
from core.messages import Message
from core.snapshot import Snapshot
from stores.postgres.rows import check, message_of, snapshot_of

# The bounds find the rows by the key of the table, the ranges pick those of them that are meant.
_LOAD: Final = """
    SELECT s.id, s.revision, s.next_seq, s.head, s.seen, s.crc, m.seqs, m.abouts, m.blocks, m.crcs
    FROM sessions s LEFT JOIN LATERAL (
        SELECT array_agg(r.seq) AS seqs, array_agg(r.about) AS abouts,
            array_agg(r.blocks) AS blocks, array_agg(r.crc) AS crcs
        FROM messages r
        WHERE r.session = s.id AND r.seq >= lower(s.runs) AND r.seq < upper(s.runs)
            AND s.runs @> r.seq
    ) m ON true
    WHERE s.key = %s AND s.aside IS NULL
"""
_ARCHIVE: Final = """
    SELECT r.seq, r.about, r.blocks, r.crc
    FROM sessions s JOIN messages r ON r.session = s.id
    WHERE s.key = %(key)s AND s.aside IS NULL AND s.history @> r.seq
        AND (%(before)s::bigint IS NULL OR r.seq < %(before)s)
    ORDER BY r.seq DESC LIMIT %(limit)s
"""


class Loaded(msgspec.Struct, frozen=True):
    """:param id: of its row"""

    id: int
    snapshot: Snapshot


async def load(connection: psycopg.AsyncConnection[Any], key: str) -> Loaded | None:
    """
    :raises SnapshotUnreadable: a checksum is wrong, a row is missing, or it is no snapshot
    :raises SnapshotTooNew: of a newer version
    """
    found = await connection.execute(_LOAD, (key,), binary=True)
    row = await found.fetchone()
    if row is None:
        return None
    id, revision, _, head, seen, crc, seqs, abouts, blocks, crcs = row
    rows = zip(seqs or (), abouts or (), blocks or (), crcs or (), strict=True)
    messages = {message.seq: message for message in _messages(key, list(rows))}
    return Loaded(id, snapshot_of(key, revision, head, seen, crc, messages))


async def archive(
    connection: psycopg.AsyncConnection[Any], key: str, before: int | None, limit: int
) -> list[Message]:
    """History, newest first, whether the window still shows it or not.

    :raises SnapshotUnreadable: a checksum is wrong
    """
    found = await connection.execute(
        "SELECT head, seen, crc FROM sessions WHERE key = %s AND aside IS NULL", (key,), binary=True
    )
    for head, seen, crc in await found.fetchall():
        # What is history is said by the head, too.
        check(key, head, seen, crc)
    found = await connection.execute(
        _ARCHIVE, {"key": key, "before": before, "limit": limit}, binary=True
    )
    return _messages(key, await found.fetchall())


def _messages(key: str, rows: Sequence[tuple[Any, ...]]) -> list[Message]:
    try:
        return [message_of(key, *row) for row in rows]
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SnapshotUnreadable(f"{key}: what is stored is damaged: {error}") from error
