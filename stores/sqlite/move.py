"""A chat that goes on under another key: its conversations follow, in one transaction.

Runs inside a write of the group, so that nobody sees half of it. What two conversations become
when they meet is decided by `core.changes.move`; this file only brings the rows there.
"""

from __future__ import annotations

import sqlite3

from core import changes
from core.errors import SnapshotTooNew, SnapshotUnreadable
from core.keys import check_key
from core.snapshot import Snapshot
from stores.sqlite import blobs, usage
from stores.sqlite.encode import prepare
from stores.sqlite.load import load
from stores.sqlite.save import Stored, remove, set_aside, stored, write


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
    database.execute("UPDATE sessions SET key = ? WHERE id = ?", (new_key, was.id))


def _readable(database: sqlite3.Connection, key: str) -> Snapshot | None:
    try:
        return load(database, key)
    except (SnapshotUnreadable, SnapshotTooNew):
        return None


def _append_rows(database: sqlite3.Connection, first: Stored, key: str, offset: int) -> Stored:
    """The rows of the conversation under `key` follow those of the first; the rest of it goes."""
    then = stored(database, key)
    assert then is not None
    database.execute(
        "UPDATE messages SET session = ?, seq = seq + ? WHERE session = ?",
        (first.id, offset, then.id),
    )
    remove(database, then)
    return first._replace(
        next_seq=offset + then.next_seq, row_count=first.row_count + then.row_count
    )
