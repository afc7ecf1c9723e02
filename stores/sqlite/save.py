"""Conversations written: only what is new, so that their length does not matter. Sync, and inside
a transaction that is open already: see `commit.py`.

One row in `sessions`, one a message, never changed; the ids seen; the texts the head does without.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from core.errors import StaleSnapshot
from core.messages import Message
from stores.sqlite import blobs, usage
from stores.sqlite.encode import (
    PER_ROW,
    RING,
    ROWS,
    Prepared,
    Seen,
    checksums,
    head_checksum,
    row_checksum,
)

_encode: Final = msgspec.json.Encoder().encode

_MESSAGES: Final = "INSERT INTO messages(session, seq, about, blocks, crc) VALUES(?, ?, ?, ?, ?)"
_SEEN: Final = "REPLACE INTO seen(session, slot, ids) VALUES(?, ?, ?)"
_COLUMNS: Final = (
    "revision = ?, next_seq = ?, updated_at = ?, row_count = ?, messages = ?, seen_count = ?, "
    "seen_crc = ?, seen_then = ?, bodies = ?, head = ?, crc = ?"
)
_WHERE: Final = "WHERE id = ? AND revision = ?"
_SAME: Final = f"UPDATE sessions SET {_COLUMNS} {_WHERE}"
# An index holds `unfinished`: named without need, it would have SQLite write a page of it anew.
_TURNED: Final = f"UPDATE sessions SET {_COLUMNS}, unfinished = ? {_WHERE}"


class Stored(NamedTuple):
    """What a save must know of the row that it replaces.

    :param seen: the ids themselves, while they are at hand
    """

    id: int
    revision: int
    next_seq: int
    unfinished: int
    row_count: int
    seen_count: int
    seen_crc: int
    seen_then: int
    bodies: int
    seen: tuple[str, ...] | None = None


class Save(msgspec.Struct, frozen=True, gc=False):
    """Called, it is a write that stands for itself."""

    key: str
    prepared: Prepared
    replaces: int | None

    def __call__(self, database: sqlite3.Connection) -> None:
        """
        :raises StaleSnapshot: another revision is stored, or none; nothing was written
        """
        (outcome,) = save_together(database, [self], {})
        if isinstance(outcome, StaleSnapshot):
            raise outcome


class Changed(Exception):
    """A row is not what it was known to be. Nothing that was written may stay."""


class Lines:
    """What several saves write, each kind by one statement that is run over all of them."""

    def __init__(self) -> None:
        self.messages: list[tuple[object, ...]] = []
        self.seen: list[tuple[object, ...]] = []
        self.same: list[tuple[object, ...]] = []
        self.turned: list[tuple[object, ...]] = []
        self.usage: list[tuple[object, ...]] = []

    def write(self, database: sqlite3.Connection) -> None:
        """
        :raises Changed: one of the rows to update is another one now
        """
        if self.messages:
            database.executemany(_MESSAGES, self.messages)
        if self.seen:
            database.executemany(_SEEN, self.seen)
        if self.usage:
            database.executemany(usage.ADD, self.usage)
        for sql, rows in ((_SAME, self.same), (_TURNED, self.turned)):
            if rows and database.executemany(sql, rows).rowcount != len(rows):
                raise Changed


def stored(database: sqlite3.Connection, key: str) -> Stored | None:
    """The row that stands under the key."""
    row = database.execute(
        "SELECT id, revision, next_seq, unfinished, row_count, seen_count, seen_crc, seen_then, "
        "bodies FROM sessions WHERE key = ? AND aside IS NULL",
        (key,),
    ).fetchone()
    return Stored(*row) if row else None


def save_together(
    database: sqlite3.Connection, saves: Sequence[Save], known: Mapping[str, Stored]
) -> list[Stored | StaleSnapshot]:
    """Saves of different keys. One that finds another revision stored writes nothing.

    :param known: what is stored under some of the keys
    :returns: for each, what is stored now
    :raises Changed: that was not so
    """
    lines = Lines()
    outcomes: list[Stored | StaleSnapshot] = []
    for save in saves:
        key = save.key
        was = known.get(key)
        if was is None or was.revision != save.replaces:
            was = stored(database, key)
        revision = was.revision if was else None
        if revision == save.replaces:
            outcomes.append(_plan(database, key, was or _add(database, key), save.prepared, lines))
            lines.usage += usage.rows(key, save.prepared.snapshot.spent)
        else:
            said = f"{key}: revision {revision} is stored, not {save.replaces}"
            outcomes.append(StaleSnapshot(said))
    lines.write(database)
    return outcomes


def _add(database: sqlite3.Connection, key: str) -> Stored:
    cursor = database.execute(
        "INSERT INTO sessions(key, revision, next_seq, unfinished, updated_at, row_count, "
        "messages, seen_count, seen_crc, seen_then, bodies, head, crc) "
        "VALUES(?, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, x'', 0)",
        (key,),
    )
    assert cursor.lastrowid is not None
    return Stored(cursor.lastrowid, 0, 0, 0, 0, 0, 0, 0, 0)


def write(database: sqlite3.Connection, key: str, was: Stored, prepared: Prepared) -> None:
    """Bring what is stored to the new value. Rows below the stored `next_seq` are there."""
    lines = Lines()
    _plan(database, key, was, prepared, lines)
    lines.write(database)


def _plan(
    database: sqlite3.Connection, key: str, was: Stored, prepared: Prepared, lines: Lines
) -> Stored:
    """What every save writes goes into the lines, what few do is written at once.

    :returns: what is stored once the lines are
    """
    snapshot = prepared.snapshot
    row_count = was.row_count
    put = blobs.uses(database, key) if prepared.erase or snapshot.rewritten else {}
    going = blobs.waiting(database, was.id) if put else set()
    for first, last in prepared.erase:
        if put:
            going.update(blobs.named(database, was.id, first, last))
        row_count -= database.execute(
            "DELETE FROM messages WHERE session = ? AND seq BETWEEN ? AND ?", (was.id, first, last)
        ).rowcount
    for row in snapshot.rewritten:
        if put:
            going.update(blobs.named(database, was.id, row.seq, row.seq))
        _, _, about, blocks, crc = _columns(was.id, row)
        database.execute(
            "UPDATE messages SET about = ?, blocks = ?, crc = ? WHERE session = ? AND seq = ?",
            (about, blocks, crc, was.id, row.seq),
        )
    rows = [_columns(was.id, row) for row in snapshot.since(was.next_seq)]
    row_count += len(rows)
    if prepared.outside:  # where rows are counted, all must be there
        database.executemany(_MESSAGES, rows)
    else:
        lines.messages += rows
    outside = 0
    for first, last in prepared.outside:
        (count,) = database.execute(
            "SELECT count(*) FROM messages WHERE session = ? AND seq BETWEEN ? AND ?",
            (was.id, first, last),
        ).fetchone()
        outside += count
    if put:
        blobs.end_unused(database, key, was.id, put, going, snapshot)
    seen_count, sums = was.seen_count, Seen(was.seen_crc, 0, was.seen_then)
    if snapshot.seen is not was.seen:
        sums = checksums(snapshot.seen)
        if sums.crc != was.seen_crc:
            seen_count = _plan_seen(database, was, snapshot.seen, sums, lines)
    if prepared.bodies or was.bodies:
        _write_bodies(database, was.id, prepared.bodies)
    values = (
        snapshot.revision,
        snapshot.next_seq,
        snapshot.updated_at,
        row_count,
        row_count - outside - prepared.steps,
        seen_count,
        sums.crc,
        sums.then,
        len(prepared.bodies),
        prepared.head,
        head_checksum(key, prepared.head),
    )
    unfinished = snapshot.unfinished
    if unfinished == was.unfinished:
        lines.same.append((*values, was.id, was.revision))
    else:
        lines.turned.append((*values, unfinished, was.id, was.revision))
    return Stored(
        was.id,
        snapshot.revision,
        snapshot.next_seq,
        unfinished,
        row_count,
        seen_count,
        sums.crc,
        sums.then,
        len(prepared.bodies),
        # Between two turns a conversation is to cost next to nothing.
        snapshot.seen if unfinished else None,
    )


def _columns(session: int, row: Message) -> tuple[object, ...]:
    spoken = row.role != "assistant" or row.sender or row.message_ids
    # The last of several senders is the one of the row.
    sender = row.senders or row.sender
    about = _encode((row.role, row.at, sender, row.message_ids) if spoken else row.at)
    blocks = bytes(row.blocks)
    return (session, row.seq, about, blocks, row_checksum(session, row.seq, about, blocks))


def _plan_seen(
    database: sqlite3.Connection, was: Stored, ids: Sequence[str], sums: Seen, lines: Lines
) -> int:
    """A new id joins the newest row of the ring, or begins one in the place of the oldest; after
    any other change all of them are written.

    :returns: how many ids the ring has taken so far; 0 when they are too many for it
    """
    count = was.seen_count
    if sums.before == was.seen_then and len(ids) <= RING:
        row, place = divmod(count, PER_ROW)
        lines.seen.append((was.id, row % ROWS, _encode(ids[-place - 1 :])))
        return count + 1
    database.execute("DELETE FROM seen WHERE session = ?", (was.id,))
    size = PER_ROW if len(ids) <= RING else len(ids)
    lines.seen += [
        (was.id, slot, _encode(ids[first : first + size]))
        for slot, first in enumerate(range(0, len(ids), size))
    ]
    return len(ids) if len(ids) <= RING else 0


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


def remove_one(database: sqlite3.Connection, key: str, revision: int) -> None:
    """All of it but its blobs.

    :raises StaleSnapshot: another revision is stored, or none; nothing was written
    """
    was = stored(database, key)
    if was is None or was.revision != revision:
        there = was.revision if was else None
        raise StaleSnapshot(f"{key}: revision {there} is stored, not {revision}")
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
