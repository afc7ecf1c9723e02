"""Tenure: what one call of `work` took over when it began, where processes share a database.

Whoever works on a conversation goes on with what the process before left: a part that was leaving,
a turn that had begun. It may take over only what it found at its beginning. What it meets later and
has not begun itself is somebody else's, who was given this conversation since: then this one was
thought dead, and has lost it. Not a lock: compare-and-set and the fence decide in any case; this is
how a loser finds out that it has lost, and leaves alone what is not its own.
"""

from __future__ import annotations

from typing import Final

from core.clock import Clock
from core.errors import Fenced
from core.messages import Outbound
from core.snapshot import Snapshot

# How often a running turn looks whether it is still the one: contracts 3.
READING: Final = 2.0
# A process that was stopped for a while may have lost its turn without knowing; until it has looked
# again, nobody sees what it would show.
TRUSTED: Final = 2.5 * READING


class Tenure:
    """
    :param found: what was stored when the work began
    :ivar execution: of the turn that runs, until it is about to end
    """

    def __init__(self, clock: Clock, process: str, found: Snapshot | None) -> None:
        self._clock = clock
        self._process = process
        turn = found.turn if found else None
        part = found.next_part if found else None
        self._executions = {turn.execution} if turn else set()
        self._part = part.id if part and part.state == "sending" else None
        self.execution: str | None = None
        self._looked = clock.monotonic()

    def must_claim(self, part: Outbound) -> bool:
        """Whether this part was leaving when we began, from a process that is no more.

        :raises Fenced: it is leaving from one that was given this conversation after us
        """
        if part.state != "sending" or part.by == self._process:
            return False
        if part.id != self._part:
            raise Fenced("another process sends here now")
        self._part = None
        return True

    def begin(self, before: Snapshot, execution: str) -> None:
        """This run of the turn may begin.

        :raises Fenced: one has begun that we know nothing of
        """
        if before.turn is not None and before.turn.execution not in self._executions:
            raise Fenced("another process answers here now")
        self._executions.add(execution)

    def began(self, execution: str) -> None:
        """It has begun."""
        self.execution = execution
        self.looked()

    def ends(self) -> None:
        """It is about to end by itself."""
        self.execution = None

    def lost(self, snapshot: Snapshot | None) -> bool:
        """Whether the turn that runs is not the one any more, as is stored now."""
        if self.execution is None:
            return False
        turn = snapshot.turn if snapshot else None
        return turn is None or turn.execution != self.execution

    def looked(self) -> None:
        """Just now the turn was still ours."""
        self._looked = self._clock.monotonic()

    @property
    def trusted(self) -> bool:
        """Whether somebody has looked lately."""
        return self._clock.monotonic() - self._looked <= TRUSTED
