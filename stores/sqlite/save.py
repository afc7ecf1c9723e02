"""A conversation written: only what is new, so that its length does not matter. Sync, and inside
a transaction that is open already: see `group.py`.

One row in `sessions`, one a message, never changed; the ids seen; the texts the head does without.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from core.errors import StaleSnapshot
from core.messages import Message
from core.snapshot import Snapshot
from stores.sqlite import blobs, usage
from stores.sqlite.encode import RING, Prepared, Seen

_encode: Final = msgspec.json.Encoder().encode

_UPDATE: Final = (
    "UPDATE sessions SET revision = ?, next_seq = ?, updated_at = ?, row_count = ?, messages = ?, "
    "seen_count = ?, seen_crc = ?, seen_then = ?, bodies = ?, head = ?, crc = ?"
)


class Stored(NamedTuple):
    """What a save must know of the row that it replaces."""

    id: int
    revision: int
    next_seq: int
    unfinished: int
    row_count: int
    seen_count: int
    seen_crc: int
    seen_then: int
    bodies: int


def stored(database: sqlite3.Connection, key: str) -> Stored | None:
    """The row that stands under the key."""
    row = database.execute(
        "SELECT id, revision, next_seq, unfinished, row_count, seen_count, seen_crc, seen_then, "
        "bodies FROM sessions WHERE key = ? AND aside IS NULL",
        (key,),
    ).fetchone()
    return Stored(*row) if row else None


def save(database: sqlite3.Connection, key: str, prepared: Prepared, replaces: int | None) -> None:
    """
    :raises StaleSnapshot: another revision is stored, or none; nothing was written
    """
    was = stored(database, key)
    if (was.revision if was else None) != replaces:
        raise StaleSnapshot(
            f"{key}: revision {was.revision if was else None} is stored, not {replaces}"
        )
    if was is None:
        cursor = database.execute(
            "INSERT INTO sessions(key, revision, next_seq, unfinished, updated_at, row_count, "
            "messages, seen_count, seen_crc, seen_then, bodies, head, crc) "
            "VALUES(?, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, x'', 0)",
            (key,),
        )
        assert cursor.lastrowid is not None
        was = Stored(cursor.lastrowid, 0, 0, 0, 0, 0, 0, 0, 0)
    write(database, key, was, prepared)
    if prepared.snapshot.spent:
        usage.add(database, key, prepared.snapshot.spent)


def write(database: sqlite3.Connection, key: str, was: Stored, prepared: Prepared) -> None:
    """Bring what is stored to the new value. Rows below the stored `next_seq` are there."""
    snapshot = prepared.snapshot
    row_count = was.row_count
    put = blobs.uses(database, key) if prepared.erase else {}
    going = blobs.waiting(database, was.id) if put else set()
    for first, last in prepared.erase:
        if put:
            going.update(blobs.named(database, was.id, first, last))
        row_count -= database.execute(
            "DELETE FROM messages WHERE session = ? AND seq BETWEEN ? AND ?", (was.id, first, last)
        ).rowcount
    new = [_columns(was.id, row) for row in _since(snapshot, was.next_seq)]
    if new:
        database.executemany(
            "INSERT INTO messages(session, seq, about, blocks, crc) VALUES(?, ?, ?, ?, ?)", new
        )
    row_count += len(new)
    outside = 0
    for first, last in prepared.outside:
        (rows,) = database.execute(
            "SELECT count(*) FROM messages WHERE session = ? AND seq BETWEEN ? AND ?",
            (was.id, first, last),
        ).fetchone()
        outside += rows
    seen_count = was.seen_count
    if prepared.seen.crc != was.seen_crc:
        seen_count = _write_seen(database, was, snapshot.seen, prepared.seen)
    if put:
        blobs.end_unused(database, key, was.id, put, going, snapshot)
    if prepared.bodies or was.bodies:
        _write_bodies(database, was.id, prepared.bodies)
    values = (
        snapshot.revision,
        snapshot.next_seq,
        snapshot.updated_at,
        row_count,
        row_count - outside - prepared.steps,
        seen_count,
        prepared.seen.crc,
        prepared.seen.then,
        len(prepared.bodies),
        prepared.head,
        zlib.crc32(prepared.head),
    )
    if snapshot.unfinished == was.unfinished:
        # Named without need, it would have SQLite write a page of its index anew.
        database.execute(f"{_UPDATE} WHERE id = ?", (*values, was.id))
    else:
        values_too = (*values, snapshot.unfinished, was.id)
        database.execute(f"{_UPDATE}, unfinished = ? WHERE id = ?", values_too)


def _since(snapshot: Snapshot, seq: int) -> list[Message]:
    """The rows from this number on, looked for from the end: not a walk through the history."""
    new: list[Message] = []
    for rows in (snapshot.turn.steps if snapshot.turn else (), snapshot.messages):
        for row in reversed(rows):
            if row.seq < seq:
                break
            new.append(row)
    new.reverse()
    return new


def _columns(session: int, row: Message) -> tuple[object, ...]:
    about = _encode((row.role, row.at, row.sender, row.message_ids))
    blocks = bytes(row.blocks)
    # Not over the seq: a move gives new ones.
    return (session, row.seq, about, blocks, zlib.crc32(blocks, zlib.crc32(about)))


def _write_seen(database: sqlite3.Connection, was: Stored, ids: Sequence[str], seen: Seen) -> int:
    """A new id takes the slot of the oldest; after any other change all of them are written.

    :returns: how many ids the ring has taken so far
    """
    if seen.before == was.seen_then and len(ids) <= RING:
        database.execute(
            "REPLACE INTO seen(session, slot, id) VALUES(?, ?, ?)",
            (was.id, was.seen_count % RING, ids[-1]),
        )
        return was.seen_count + 1
    database.execute("DELETE FROM seen WHERE session = ?", (was.id,))
    database.executemany(
        "INSERT INTO seen(session, slot, id) VALUES(?, ?, ?)",
        [(was.id, slot, id) for slot, id in enumerate(ids)],
    )
    return len(ids)


def _write_bodies(database: sqlite3.Connection, session: int, bodies: dict[str, bytes]) -> None:
    # Named by what they say: a text that is stored already is never written again.
    names = database.execute("SELECT name FROM bodies WHERE session = ?", (session,)).fetchall()
    there = {name for (name,) in names}
    database.executemany(
        "DELETE FROM bodies WHERE session = ? AND name = ?",
        [(session, name) for name in there - bodies.keys()],
    )
    database.executemany(
        "INSERT INTO bodies(session, name, body) VALUES(?, ?, ?)",
        [(session, name, body) for name, body in bodies.items() if name not in there],
    )


def clear(database: sqlite3.Connection, key: str) -> None:
    blobs.end_all(database, key)
    if was := stored(database, key):
        remove(database, was)


def remove(database: sqlite3.Connection, was: Stored) -> None:
    """All of it but its blobs."""
    for table in ("messages", "seen", "bodies"):
        database.execute(f"DELETE FROM {table} WHERE session = ?", (was.id,))
    database.execute("DELETE FROM sessions WHERE id = ?", (was.id,))


def set_aside(database: sqlite3.Connection, key: str, now: int) -> None:
    """All bytes stay where they are; the key is free."""
    # No key has a NUL in it: nobody ends these uses by chance.
    blobs.copy(database, key, f"{key}\0{now}")
    database.execute("UPDATE sessions SET aside = ? WHERE key = ? AND aside IS NULL", (now, key))
