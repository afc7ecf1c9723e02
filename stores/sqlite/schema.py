"""The tables, how a database file is made and recognised, and what SQLite's errors mean to us.

Not what is written into the tables: that is `save.py`. Everything here is synchronous and runs in
the thread of the connection that it is given.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final

from core.errors import StoreCorrupt, StoreError, StoreOutdated, StoreUnavailable

APPLICATION_ID: Final = 0x63_68_77_67  # "chwg"

# One entry per version of the schema, each a step from the version before it. Steps are only ever
# added: a database of any age is brought up by those that it has not seen.
STEPS: tuple[tuple[str, ...], ...] = (
    (
        # `aside` is when the row was set aside, in ms. Such a row keeps all its bytes, and its key
        # is free. `key` and `aside` are not written by a save, so it leaves both indexes alone.
        """
        CREATE TABLE sessions(
            id INTEGER PRIMARY KEY,
            key TEXT NOT NULL,
            aside INTEGER,
            revision INTEGER NOT NULL,
            next_seq INTEGER NOT NULL,
            unfinished INTEGER NOT NULL,
            updated_at INTEGER NOT NULL,
            row_count INTEGER NOT NULL,
            messages INTEGER NOT NULL,
            seen_count INTEGER NOT NULL,
            seen_crc INTEGER NOT NULL,
            seen_then INTEGER NOT NULL,
            bodies INTEGER NOT NULL,
            head BLOB NOT NULL,
            crc INTEGER NOT NULL
        )
        """,
        "CREATE UNIQUE INDEX session_key ON sessions(key) WHERE aside IS NULL",
        "CREATE INDEX session_unfinished ON sessions(key) WHERE unfinished AND aside IS NULL",
        # In order of arrival, not of their session: what a group of saves adds shares its pages.
        # `about` is JSON, ["user", ms, sender, [message ids]], or for an answer, which has neither
        # of the last two, just its ms: reading a column costs as much as decoding all four.
        """
        CREATE TABLE messages(
            id INTEGER PRIMARY KEY,
            session INTEGER NOT NULL,
            seq INTEGER NOT NULL,
            about BLOB NOT NULL,
            blocks BLOB NOT NULL,
            crc INTEGER NOT NULL
        )
        """,
        "CREATE UNIQUE INDEX message_place ON messages(session, seq)",
        # A ring: a new id joins the newest row or takes the place of the oldest one, so a message
        # costs one row in place. `ids` is a JSON array: a row an id would cost a load more than all
        # messages of its window.
        """
        CREATE TABLE seen(
            session INTEGER NOT NULL,
            slot INTEGER NOT NULL,
            ids BLOB NOT NULL,
            PRIMARY KEY(session, slot)
        ) WITHOUT ROWID
        """,
        # Long texts of a head, named by their digest.
        """
        CREATE TABLE bodies(
            session INTEGER NOT NULL,
            name TEXT NOT NULL,
            body BLOB NOT NULL,
            PRIMARY KEY(session, name)
        ) WITHOUT ROWID
        """,
        "CREATE TABLE notes(name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    ),
    (
        # Used by keys, not by sessions: a message's image is stored before its conversation is.
        "CREATE TABLE blobs(id TEXT PRIMARY KEY, media_type TEXT NOT NULL, data BLOB NOT NULL)",
        """
        CREATE TABLE blob_uses(
            key TEXT NOT NULL,
            blob TEXT NOT NULL,
            at INTEGER NOT NULL,
            PRIMARY KEY(key, blob)
        ) WITHOUT ROWID
        """,
        "CREATE INDEX blob_used ON blob_uses(blob)",
    ),
    (
        # A row a model call, in order of time: what a group of saves adds shares its page, and
        # what was used since some day lies together. No index: it would be one more page a save.
        """
        CREATE TABLE usage(
            at INTEGER NOT NULL,
            execution TEXT NOT NULL,
            call INTEGER NOT NULL,
            key TEXT NOT NULL,
            sender TEXT,
            model TEXT NOT NULL,
            input INTEGER NOT NULL,
            output INTEGER NOT NULL,
            written INTEGER NOT NULL,
            written_1h INTEGER NOT NULL,
            read INTEGER NOT NULL,
            searches INTEGER NOT NULL,
            cost INTEGER,
            estimated INTEGER NOT NULL,
            PRIMARY KEY(at, execution, call)
        ) WITHOUT ROWID
        """,
    ),
)

_NOT_NOW: Final = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_BUSY: "it is locked by somebody else",
    sqlite3.SQLITE_LOCKED: "it is locked by somebody else",
    sqlite3.SQLITE_IOERR: "the disk reports an error",
    sqlite3.SQLITE_READONLY: "it may not be written to",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_PERM: "access is denied",
    sqlite3.SQLITE_NOMEM: "there is no memory left",
}


def store_error(path: Path, error: sqlite3.Error) -> StoreError:
    """What an error of SQLite means, in plain words, with the path."""
    # The low byte is the kind, the rest says more about it than we act on.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code == sqlite3.SQLITE_CORRUPT:
        return StoreCorrupt(f"{path}: the database is damaged ({error})")
    if code == sqlite3.SQLITE_NOTADB:
        return StoreCorrupt(f"{path}: this is not a SQLite database")
    why = _NOT_NOW.get(code)
    return StoreUnavailable(f"{path}: {f'{why} ({error})' if why else error}")


def look_at(path: Path) -> None:
    """Not by opening it: closing a file gives up every lock that this process has on it, those of
    SQLite's connections included.

    :raises StoreCorrupt: one byte, which is no database, and which SQLite would take for none
    :raises StoreUnavailable: there is no such file
    """
    try:
        size = path.stat().st_size
    except FileNotFoundError as error:
        raise StoreUnavailable(
            f"{path}: it cannot be opened: No such file; the first start of the bot makes it"
        ) from error
    except OSError as error:
        raise StoreUnavailable(f"{path}: it cannot be opened: {error.strerror}") from error
    if size == 1:
        raise StoreCorrupt(f"{path}: this is not a SQLite database")


def create_file(path: Path) -> None:
    """An empty file that only its owner may read, whatever the umask; SQLite gives its companions
    the same mode. A file that is there already stays as it is.

    :raises StoreUnavailable: it cannot be made; a missing folder is not created
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    except OSError as error:
        raise StoreUnavailable(f"{path}: it cannot be created: {error.strerror}") from error
    try:
        os.fchmod(file, 0o600)
    finally:
        os.close(file)


def version(database: sqlite3.Connection, path: Path) -> int:
    """The version of its schema, 0 for an empty one. Only reads.

    :raises StoreCorrupt: not ours, or of a newer chinwag
    """
    (application_id,) = database.execute("PRAGMA application_id").fetchone()
    (stored,) = database.execute("PRAGMA user_version").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application_id != APPLICATION_ID and (tables or application_id):
        raise StoreCorrupt(f"{path}: this is a SQLite database, but not one of chinwag")
    if stored > len(STEPS):
        raise StoreCorrupt(
            f"{path}: its schema has version {stored}, this chinwag knows up to {len(STEPS)}: "
            "update chinwag"
        )
    return int(stored) if tables else 0


def outdated(path: Path, stored: int) -> StoreOutdated:
    return StoreOutdated(
        f"{path}: an older chinwag wrote it (schema {stored}, this one wants {len(STEPS)}): stop"
        " the bot and run `chinwag migrate`, which makes a backup first"
    )


def prepare_writer(database: sqlite3.Connection, path: Path) -> None:
    """Look at the database first, then set the connection up, and make the tables of a new one.

    :raises StoreCorrupt: see `version`; nothing was written
    :raises StoreOutdated: it is of an older chinwag; nothing was written
    """
    stored = version(database, path)
    if 0 < stored < len(STEPS):
        raise outdated(path, stored)
    set_up_writer(database, path)
    if stored == len(STEPS):
        return
    database.execute("BEGIN IMMEDIATE")
    for step in STEPS:
        for statement in step:
            database.execute(statement)
    database.execute(f"PRAGMA application_id={APPLICATION_ID}")
    database.execute(f"PRAGMA user_version={len(STEPS)}")
    database.execute("COMMIT")


def set_up_writer(database: sqlite3.Connection, path: Path) -> None:
    # Private text must not linger in freed pages, nor go to a temporary file.
    database.execute("PRAGMA secure_delete=ON")
    database.execute("PRAGMA temp_store=MEMORY")
    # FULL: what was acknowledged survives a power cut, too.
    database.execute("PRAGMA synchronous=FULL")
    (mode,) = database.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode != "wal":
        raise StoreUnavailable(f"{path}: its file system cannot hold a write-ahead log")
    # After a burst the log shrinks back to this.
    database.execute(f"PRAGMA journal_size_limit={16 << 20}")


def prepare_reader(database: sqlite3.Connection, path: Path) -> None:
    """
    :raises StoreCorrupt: see `version`
    :raises StoreUnavailable: nothing is stored there yet
    :raises StoreOutdated: it is of an older chinwag
    """
    database.execute("PRAGMA temp_store=MEMORY")
    stored = version(database, path)
    if stored == 0:
        raise StoreUnavailable(f"{path}: nothing is stored there yet")
    if stored < len(STEPS):
        raise outdated(path, stored)
