"""Snapshots: load, and change by compare-and-set. The one place where a bot saves conversations.

A change is a pure function; when somebody else saved first it is applied again to what they saved.
That alone makes two tasks in one process, and two processes on one database, equally safe. Nothing
here knows what a change means.

Where several processes share the database, what is remembered may be older than what another one
saved: `refresh` asks. And a part that is about to leave says whose it is, for only who works on a
conversation sends.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from core import outbox
from core.clock import Clock
from core.errors import StaleSnapshot
from core.snapshot import Snapshot, stored
from core.spending import UnsavedRows
from core.store import SessionRef, SessionStore, TellsRevision

CACHED: Final = 1_000

Change = Callable[[Snapshot | None], Snapshot | None]


def first_revision() -> int:
    """Random, so that whoever saw a conversation that was cleared fits no later one."""
    return secrets.randbits(48)


def new_id() -> str:
    """For epochs and executions."""
    return secrets.token_hex(8)


class Snapshots:
    """
    :param ref: what the store is told about a key
    :param rows: of what model calls used, for whatever save comes next
    :param shared: other processes may save as well
    :ivar process: names this one in what it is about to send; empty: there is no other
    """

    def __init__(
        self,
        store: SessionStore,
        clock: Clock,
        ref: Callable[[str], SessionRef],
        rows: UnsavedRows | None = None,
        *,
        shared: bool = False,
    ) -> None:
        self.process: Final = new_id() if shared else ""
        self._asks = store if shared and isinstance(store, TellsRevision) else None
        self._store = store
        self._clock = clock
        self._ref = ref
        self._rows = rows or UnsavedRows()
        self._cached: OrderedDict[str, Snapshot] = OrderedDict()
        # Whose load or save of a key began last: only what that one brings may be remembered.
        self._newest: dict[str, object] = {}
        # Loads under way, as long as nothing has happened to their key since they began.
        self._loading: dict[str, set[object]] = {}
        # The part that we have marked and not tried yet, and when that was.
        self._fresh: dict[str, tuple[str, float]] = {}

    async def load(self, key: str) -> Snapshot | None:
        """From memory while the key is worked on, else from the store. Never older than a save that
        has ended: what was read before it may be what a reset has taken away since."""
        while key not in self._cached:
            call = self._newest[key] = object()
            self._loading.setdefault(key, set()).add(call)
            try:
                snapshot = await self._store.load(self._ref(key))
            finally:
                newest = self._ended(key, call)
                valid = self._arrived(key, call)
            if valid:
                if newest and snapshot is not None:
                    self._remember(key, snapshot)
                return snapshot
        return self._cached[key]

    async def refresh(self, key: str) -> Snapshot | None:
        """What is stored now, whoever saved it. Cheap as long as nobody else has."""
        known = self._cached.get(key)
        if known is not None and self._asks is not None:
            revision = await self._asks.revision(self._ref(key))
            if revision == known.revision and self._cached.get(key) is known:
                return known
        self.forget(key)
        return await self.load(key)

    async def update(
        self, key: str, change: Change, *, delivers: bool = False
    ) -> tuple[Snapshot | None, bool]:
        """What is stored afterwards, and whether the change applied.

        :param delivers: who asks is at work on this conversation, and sends what this marks
        :raises StoreError: what the store raises, `StaleSnapshot` aside; the outcome may be
            unknown, and the next load asks the store
        """
        while True:
            before = await self.load(key)
            after = change(before)
            if after is before or after is None:
                return before, False
            if self.process:
                after = self._whose(before, after, delivers)
            after = replace(
                after,
                revision=first_revision() if before is None else before.revision + 1,
                updated_at=self._clock.now(),
                spent=self._rows.of(key),
            )
            self._mark_fresh(key, before, after)
            self.forget(key)
            call = self._newest[key] = object()
            try:
                await self._store.save(
                    self._ref(key), after, replaces=before.revision if before else None
                )
            except StaleSnapshot:
                continue
            finally:
                newest = self._newest.get(key) is call
                # What somebody read meanwhile may be older than this.
                self.forget(key)
            self._rows.saved(key, after.spent)
            after = stored(after)
            if newest:
                self._remember(key, after)
            return after, True

    def forget(self, key: str) -> None:
        """Nothing of this key is kept in memory any more, and what is being read is read again."""
        self._cached.pop(key, None)
        self._newest.pop(key, None)
        if self._loading:
            self._loading.pop(key, None)

    def forget_all(self, which: Callable[[str], bool]) -> None:
        known = (*self._cached, *self._newest, *self._loading)
        for key in [key for key in known if which(key)]:
            self.forget(key)

    def take_fresh(self, key: str, part_id: str) -> bool:
        """Whether this process itself marked the part for a send it has yet to make. Asked once:
        from then on the part is uncertain."""
        if not self.is_fresh(key, part_id):
            return False
        del self._fresh[key]
        return True

    def is_fresh(self, key: str, part_id: str, within: float | None = None) -> bool:
        """The same, without a trace.

        :param within: only when it was marked so many seconds ago at most
        """
        fresh, at = self._fresh.get(key, ("", 0.0))
        return fresh == part_id and (within is None or self._clock.monotonic() - at <= within)

    def _whose(self, before: Snapshot | None, after: Snapshot, delivers: bool) -> Snapshot:
        """A part that is about to leave leaves from here; when nobody here sends it, it waits."""
        part = after.next_part
        if part is None or part.state != "sending" or _was_leaving(before, part.id):
            return after
        if delivers:
            return outbox.claimed(after, part.id, self.process)
        return outbox.unmarked(after, part.id)

    def _ended(self, key: str, call: object) -> bool:
        """Whether nothing else was asked or forgotten since this call began."""
        newest = self._newest.get(key) is call
        if newest:
            del self._newest[key]
        return newest

    def _arrived(self, key: str, call: object) -> bool:
        """Whether the key was not forgotten since this load began."""
        loading = self._loading.get(key, set())
        if call not in loading:
            return False
        loading.remove(call)
        if not loading:
            del self._loading[key]
        return True

    def _remember(self, key: str, snapshot: Snapshot) -> None:
        self._cached[key] = snapshot
        if len(self._cached) > CACHED:
            self._cached.popitem(last=False)

    def _mark_fresh(self, key: str, before: Snapshot | None, after: Snapshot) -> None:
        """Before the save: should its outcome stay unknown, the part was not sent all the same."""
        part = after.next_part if after.outbox else None
        if part is None or part.state != "sending":
            self._fresh.pop(key, None)
            return
        # One that was leaving already, even behind others, may be on the screen.
        if not _was_leaving(before, part.id):
            self._fresh[key] = part.id, self._clock.monotonic()


def _was_leaving(before: Snapshot | None, part_id: str) -> bool:
    return before is not None and any(
        old.id == part_id and old.state == "sending" for old in before.outbox
    )
