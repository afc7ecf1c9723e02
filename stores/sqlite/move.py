"""A chat that goes on under another key: its conversations follow, in one transaction.

Runs inside a write of the group, so that nobody sees half of it. What two conversations become
when they meet is decided by `core.changes.move`; this file only brings the rows there.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from core import changes
from core.errors import SnapshotTooNew, SnapshotUnreadable
from core.keys import check_key
from core.snapshot import Snapshot
from stores.sqlite import blobs, usage
from stores.sqlite.encode import head_checksum, prepare, row_checksum
from stores.sqlite.load import load
from stores.sqlite.save import Stored, remove, set_aside, stored, write

# What no damage has given another type.
_HEAD: Final = "typeof(head) = 'blob' AND typeof(crc) = 'integer'"
_ROW: Final = "typeof(about) = 'blob' AND typeof(blocks) = 'blob' AND typeof(crc) = 'integer'"


def move(database: sqlite3.Connection, old: str, new: str, now: int) -> None:
    """Every key that is `old`, or begins with `old` and a slash, begins with `new` instead.

    :param now: ms since 1970, for what has to be set aside
    :raises InvalidKey: a key would become one that cannot be
    """
    if old == new:
        return
    # "0" is the character after "/". The longest first, so that none lands on one still to move.
    keys = database.execute(
        "SELECT key FROM sessions WHERE aside IS NULL AND (key = ? OR (key > ? AND key < ?)) "
        "ORDER BY key DESC",
        (old, f"{old}/", f"{old}0"),
    ).fetchall()
    used = blobs.users(database, old)
    for key in used:
        blobs.copy(database, key, check_key(new + key[len(old) :]))
    for (key,) in keys:
        _move_one(database, key, check_key(new + key[len(old) :]), now)
    for key in used:
        blobs.forget(database, key)
    usage.move(database, old, new)


def _move_one(database: sqlite3.Connection, old_key: str, new_key: str, now: int) -> None:
    old, new = _readable(database, old_key), _readable(database, new_key)
    if new is None and stored(database, new_key):
        set_aside(database, new_key, now)
    if old is None and new is not None:
        set_aside(database, old_key, now)
        return
    was = stored(database, old_key)
    assert was is not None
    if old is not None:
        merged = changes.move(old, new, new_key)
        if new is not None:
            was = _append_rows(database, was, new_key, old.next_seq - 1)
        write(database, new_key, was, prepare(merged))
    else:
        _bring_checksum(database, was.id, old_key, new_key)
    database.execute("UPDATE sessions SET key = ? WHERE id = ?", (new_key, was.id))


def _bring_checksum(database: sqlite3.Connection, id: int, old_key: str, new_key: str) -> None:
    """Of a head that this version cannot read, and another one may. What is damaged stays damaged:
    its checksum is as wrong as it was."""
    for head, crc in database.execute(
        f"SELECT head, crc FROM sessions WHERE id = ? AND {_HEAD}", (id,)
    ).fetchall():
        now = crc ^ head_checksum(old_key, head) ^ head_checksum(new_key, head)
        database.execute("UPDATE sessions SET crc = ? WHERE id = ?", (now, id))


def _readable(database: sqlite3.Connection, key: str) -> Snapshot | None:
    try:
        return load(database, key)
    except (SnapshotUnreadable, SnapshotTooNew):
        return None


def _append_rows(database: sqlite3.Connection, first: Stored, key: str, offset: int) -> Stored:
    """The rows of the conversation under `key` follow those of the first; the rest of it goes."""
    then = stored(database, key)
    assert then is not None
    # Here, too, what is damaged stays so.
    checksums = []
    for id, seq, crc, about, blocks in database.execute(
        f"SELECT id, seq, crc, about, blocks FROM messages WHERE session = ? AND {_ROW}", (then.id,)
    ).fetchall():
        wrong = crc ^ row_checksum(then.id, seq, about, blocks)
        checksums.append((wrong ^ row_checksum(first.id, seq + offset, about, blocks), id))
    database.executemany("UPDATE messages SET crc = ? WHERE id = ?", checksums)
    database.execute(
        "UPDATE messages SET session = ?, seq = seq + ? WHERE session = ?",
        (first.id, offset, then.id),
    )
    remove(database, then)
    return first._replace(
        next_seq=offset + then.next_seq, row_count=first.row_count + then.row_count
    )
