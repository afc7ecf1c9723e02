"""What waits for the thread of a connection goes there together, in one hop.

No timer: who comes alone waits for nobody. A hundred writes share one sync of the disk, a hundred
loads one transaction. Knows no tables: what a group does is the affair of whoever makes one.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

# How many go together at most: the event loop hears of a whole group at once, and must not be busy
# with it for long. With half as many a crowd pays for a tenth more, in bytes and in time.
LIMIT: Final = 128

T = TypeVar("T")

# Works with a connection whose transaction is open, and raises what its caller shall see. A write
# may be run more than once.
Work = Callable[[sqlite3.Connection], T]


class Member(NamedTuple):
    work: Work[Any]
    outcome: asyncio.Future[Any]


class Group:
    """Of one event loop: the one in which it is made.

    :param hand_over: has the thread of the connection run a function
    :param together: runs a group there; gives what each of its works gave or raised, and never
        raises itself
    """

    def __init__(
        self,
        hand_over: Callable[[Callable[[], None]], None],
        together: Callable[[Sequence[Work[Any]]], Sequence[object]],
    ) -> None:
        self._hand_over = hand_over
        self._together = together
        # Asked for once: it costs a system call.
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Member] = deque()
        # Whether the thread has been asked to take what waits, and has not yet begun to.
        self._asked = False

    def do(self, work: Work[T]) -> asyncio.Future[T]:
        """What `work` gives, once the transaction is over. If its caller is cancelled, it happens
        still."""
        outcome: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append(Member(work, outcome))
        if not self._asked:
            self._ask()
        return outcome

    def _ask(self) -> None:
        self._asked = True
        self._hand_over(self._take)

    def _take(self) -> None:
        """In the thread. The next group does not wait for the event loop to hear of this one."""
        # First of all: whoever comes from now on asks again, so that nobody is overlooked.
        self._asked = False
        group = [self._waiting.popleft() for _ in range(min(LIMIT, len(self._waiting)))]
        if not group:
            return
        if self._waiting:
            self._ask()
        outcomes = self._together([member.work for member in group])
        self._loop.call_soon_threadsafe(_tell, group, outcomes)


def _tell(group: Sequence[Member], outcomes: Sequence[object]) -> None:
    for (_, future), outcome in zip(group, outcomes, strict=True):
        if future.done():  # its caller was cancelled
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


def read_together(database: sqlite3.Connection, reads: Sequence[Work[Any]]) -> list[object]:
    """All queries of a read see one state; reads that come together share it."""
    outcomes: list[object] = []
    try:
        for read in reads:
            if not database.in_transaction:  # some errors end it
                database.execute("BEGIN")
            try:
                outcomes.append(read(database))
            except Exception as error:
                outcomes.append(error)
    finally:
        if database.in_transaction:
            database.execute("COMMIT")
    return outcomes
