"""Group commit: the writes of a group in one transaction, in the thread of the connection.

Each member stands for itself: when one fails, only its caller hears of it. That is rare, and so the
ordinary case, saves of different conversations, costs no more than their statements.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

from core.errors import StaleSnapshot
from stores.sqlite.group import Work
from stores.sqlite.save import Save, Stored, save_together

KNOWN: Final = 1_000


class Writer:
    """What this connection wrote last is what is stored: no other process may write, and a save
    need not read again what the one before it has left there. The row itself is held against it
    all the same (`save.Changed`)."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Stored] = OrderedDict()

    def commit(self, database: sqlite3.Connection, writes: Sequence[Work[Any]]) -> list[object]:
        """
        :returns: for each write, what it gave or the exception that it raised
        :raises sqlite3.Error: the transaction as a whole failed; after COMMIT has begun, nobody
            can know how much of it is on the disk
        """
        saves = [write for write in writes if isinstance(write, Save)]
        if len({save.key for save in saves}) == len(writes):
            outcomes = self._save(database, saves)
            if outcomes is not None:
                return outcomes
        self._known.clear()
        return commit_together(database, writes)

    def _save(self, database: sqlite3.Connection, saves: Sequence[Save]) -> list[object] | None:
        """None: one of them failed, and nothing was written."""
        known = self._known
        # Until it is known how this ends.
        self._known = OrderedDict()
        try:
            database.execute("BEGIN IMMEDIATE")
            try:
                stored = save_together(database, saves, known)
            except Exception:
                return None  # whose fault it was, each of them will show alone
            database.execute("COMMIT")
        finally:
            if database.in_transaction:
                database.execute("ROLLBACK")
        outcomes: list[object] = []
        for save, after in zip(saves, stored, strict=True):
            known.pop(save.key, None)
            if isinstance(after, StaleSnapshot):
                outcomes.append(after)
                continue
            known[save.key] = after
            outcomes.append(None)
        while len(known) > KNOWN:
            known.popitem(last=False)
        self._known = known
        return outcomes


def commit_together(database: sqlite3.Connection, writes: Sequence[Work[Any]]) -> list[object]:
    """One transaction, in which each write stands for itself.

    :returns: for each write, what it gave or the exception that it raised
    :raises sqlite3.Error: the transaction as a whole failed
    """
    outcomes: list[object] = [None] * len(writes)
    left = dict(enumerate(writes))
    # A member that fails, which is rare, is left out and the others run anew. Savepoints would cost
    # every save two statements, and a full disk makes SQLite roll back through them anyway.
    while (failed := _attempt(database, left, outcomes)) is not None:
        del left[failed]
    return outcomes


def _attempt(
    database: sqlite3.Connection, left: dict[int, Work[Any]], outcomes: list[object]
) -> int | None:
    """The number of the member that failed, and the transaction with it; None: it is committed."""
    try:
        database.execute("BEGIN IMMEDIATE")
        for number, write in left.items():
            try:
                outcomes[number] = write(database)
            except StaleSnapshot as stale:  # it has written nothing
                outcomes[number] = stale
            except Exception as error:
                outcomes[number] = error
                return number
        database.execute("COMMIT")
        return None
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")
