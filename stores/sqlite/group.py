"""Group commit: whatever waits to be written goes into one transaction, in one hop to the thread.

No timer and no batch size: a lone writer waits for nobody, and a hundred share one sync of the
disk. Each member stands for itself: when one fails, only its caller hears of it. Knows no tables
and no driver.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from core.errors import StaleSnapshot, StoreUnavailable

T = TypeVar("T")

# Writes with a connection whose transaction is open, and raises what its caller shall see. It may
# be run more than once. When it raises StaleSnapshot, it has written nothing.
Write = Callable[[sqlite3.Connection], T]


class Member(NamedTuple):
    write: Write[object]
    outcome: asyncio.Future[Any]


class GroupCommit:
    """
    :param run: brings a group to the thread of the writing connection and through
        `commit_together`; gives what each of its writes gave or raised, and never raises itself
    """

    def __init__(self, run: Callable[[list[Write[object]]], Awaitable[list[object]]]) -> None:
        self._run = run
        self._waiting: list[Member] = []
        # A task that exists only while there is something to write.
        self._at_work: asyncio.Task[None] | None = None

    async def do(self, write: Write[T]) -> T:
        """What `write` gives, once it is durable. If its caller is cancelled, it happens still."""
        member = Member(write, asyncio.get_running_loop().create_future())
        self._waiting.append(member)
        if self._at_work is None:
            self._at_work = asyncio.create_task(self._work(), name="group commit")
        outcome: T = await member.outcome
        return outcome

    async def finish(self) -> None:
        """Wait until nothing waits to be written."""
        if self._at_work:
            await asyncio.wait([self._at_work])

    async def _work(self) -> None:
        group: list[Member] = []
        try:
            while self._waiting:
                group, self._waiting = self._waiting, []
                for member, outcome in zip(
                    group, await self._run([member.write for member in group]), strict=True
                ):
                    _tell(member, outcome)
        finally:
            self._at_work = None
            # Only when this task was cancelled from outside is anybody left: none may wait forever.
            for member in group + self._waiting:
                _tell(member, StoreUnavailable("the writer has ended; the outcome is unknown"))
            self._waiting = []


def _tell(member: Member, outcome: object) -> None:
    if member.outcome.done():  # told already, or its caller was cancelled
        return
    if isinstance(outcome, Exception):
        member.outcome.set_exception(outcome)
    else:
        member.outcome.set_result(outcome)


def commit_together(database: sqlite3.Connection, writes: list[Write[object]]) -> list[object]:
    """One transaction. Runs in the connection's thread.

    :returns: for each write, what it gave or the exception that it raised
    :raises sqlite3.Error: the transaction as a whole failed; after COMMIT has begun, nobody can
        know how much of it is on the disk
    """
    outcomes: list[object] = [None] * len(writes)
    left = dict(enumerate(writes))
    # A member that fails, which is rare, is left out and the others run anew. Savepoints would cost
    # every save two statements, and a full disk makes SQLite roll back through them anyway.
    while (failed := _attempt(database, left, outcomes)) is not None:
        del left[failed]
    return outcomes


def _attempt(
    database: sqlite3.Connection, left: dict[int, Write[object]], outcomes: list[object]
) -> int | None:
    """The number of the member that failed, and the transaction with it; None: it is committed."""
    try:
        database.execute("BEGIN IMMEDIATE")
        for number, write in left.items():
            try:
                outcomes[number] = write(database)
            except StaleSnapshot as stale:
                outcomes[number] = stale
            except Exception as error:
                outcomes[number] = error
                return number
        database.execute("COMMIT")
        return None
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")
