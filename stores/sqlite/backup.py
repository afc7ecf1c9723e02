"""A copy of a database that is being written to, as it is at one moment: one file, complete.

Not a way to copy a conversation, and not a restore: that is `bots.backup`. SQLite's own online
backup copies the pages; the bot goes on meanwhile.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from stores.sqlite import schema

PAGES: Final = 1_000  # copied between two reports
# The database last: a log beside another database than its own would be played into it.
COMPANIONS: Final = ("-wal", "-shm", "")


def copy(source: Path, target: Path, copied: Callable[[int, int], None]) -> None:
    """`target` is there, whole and synced, when this returns; if not, nothing is.

    :param copied: told how many pages of how many are done, now and then
    :raises FileExistsError: `target` is there already; it stays as it is
    :raises StoreUnavailable: one of the files cannot be read or written
    :raises StoreCorrupt: `source` is damaged, or not ours; no copy is made of it
    """
    source, target = source.absolute(), target.absolute()
    schema.look_at(source)
    part = target.with_name(f"{target.name}.part")
    if target.exists():
        raise FileExistsError(target)
    with suppress(FileNotFoundError):
        part.unlink()  # of a copy that was killed
    schema.create_file(part)
    try:
        _copy(source, part, copied)
        # Not a rename: that would put it in the place of a file made meanwhile.
        os.link(part, target)
    finally:
        part.unlink()
    _sync(target.parent)


def _copy(source: Path, part: Path, copied: Callable[[int, int], None]) -> None:
    try:
        with (
            closing(sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True, timeout=5.0)) as old,
            closing(sqlite3.connect(part, isolation_level=None)) as new,
        ):
            schema.version(old, source)
            # What is read from here on is of this moment: a save of the bot would else have the
            # copy begin anew, again and again.
            old.execute("BEGIN")
            old.execute("SELECT count(*) FROM sessions").fetchone()
            old.backup(
                new,
                pages=PAGES,
                progress=lambda _, left, pages: copied(pages - left, pages),
            )
            old.rollback()
    except sqlite3.Error as error:
        raise schema.store_error(source, error) from error
    in_one_file(part)


def in_one_file(path: Path) -> None:
    """The database needs no companion to be complete; synced. Only while nobody has it open.

    :raises StoreUnavailable: somebody has
    """
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.Error as error:
        raise schema.store_error(path, error) from error
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """So that the name of a file survives a power cut, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def put_in_place(copied: Path, target: Path, aside: Path) -> None:
    """`copied` becomes the database `target`; what was there goes on under the name `aside`.

    Only while the lock of `target` is held and nobody has it open.
    """
    for ending in COMPANIONS:
        with suppress(FileNotFoundError):
            os.rename(f"{target}{ending}", f"{aside}{ending}")
    os.rename(copied, target)
    _sync(target.parent)
