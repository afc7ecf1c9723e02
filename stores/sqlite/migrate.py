"""A database of an older chinwag brought up: by the steps of the schema that it has not seen, each
in a transaction of its own, so that a crash in between leaves a whole database of some version.

Not the values inside: a snapshot is brought up when it is read (`core.snapshot.migrate`). Only
while the lock of the database is held and nobody has it open; the backup is made by whoever asks.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from core.errors import StoreCorrupt
from stores.sqlite import schema


@contextmanager
def _opened(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    schema.look_at(path)
    try:
        uri = f"{path.absolute().as_uri()}?mode={mode}"
        # One thread at a time; but not every step is run by the same one.
        opened = sqlite3.connect(
            uri, uri=True, isolation_level=None, timeout=5.0, check_same_thread=False
        )
        with closing(opened) as database:
            yield database
    except sqlite3.Error as error:
        raise schema.store_error(path, error) from error


def stored_version(path: Path) -> int:
    """
    :raises StoreCorrupt: not ours, or of a newer chinwag
    :raises StoreUnavailable: it is not there, or cannot be opened
    """
    with _opened(path, "ro") as database:
        return schema.version(database, path)


def bring_up(path: Path) -> Iterator[int]:
    """Each version that it has reached.

    :raises StoreError: a step failed: it is as it was before that one
    """
    with _opened(path, "rw") as database:
        stored = schema.version(database, path)
        schema.set_up_writer(database, path)
        for number, step in enumerate(schema.STEPS[stored:], stored + 1):
            database.execute("BEGIN IMMEDIATE")
            try:
                for statement in step:
                    database.execute(statement)
                database.execute(f"PRAGMA user_version={number}")
                database.execute("COMMIT")
            finally:
                if database.in_transaction:
                    database.execute("ROLLBACK")
            yield number


def check(path: Path) -> None:
    """Reads all of it.

    :raises StoreCorrupt: it is damaged
    """
    with _opened(path, "ro") as database:
        found = [line for (line,) in database.execute("PRAGMA quick_check") if line != "ok"]
    if found:
        raise StoreCorrupt(f"{path}: the database is damaged ({found[0]})")
