"""A lease: of several processes on one store one holds it, for a term that it renews.

Not a lock: who holds it may be stopped in the middle of anything, and wake up when it is somebody
else's. So `held` is asked before each thing that only one may do, and what two do all the same must
be harmless. No two clocks need to agree: who waits takes it over when it has seen nothing change
for a whole term, and who holds it counts the term from before it asked for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from core.clock import Clock
from core.errors import StoreError, StoreUnavailable
from core.events import emit, trouble
from core.store import Notes

TERM: Final = 12.0
RENEWALS: Final = 4  # in a term
LATEST: Final = 0.8  # of a term, after which it is not ours any more, whatever others think


class _Note(msgspec.Struct, frozen=True):
    """
    :param holder: the process; empty: it was given back
    :param count: of renewals, so that each differs from the one before
    """

    holder: str
    count: int = 0


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Note).decode


class Lease:
    """
    :param name: of the note
    :param holder: this process, and no other
    :param term: seconds; who takes over waits so long, and a renewal more
    """

    def __init__(
        self, notes: Notes, clock: Clock, name: str, holder: str, *, term: float = TERM
    ) -> None:
        self.name: Final = name
        self._notes = notes
        self._clock = clock
        self._holder = holder
        self._term = term
        self._until = float("-inf")
        self._seen: bytes | None = None
        self._since = float("-inf")

    @property
    def held(self) -> bool:
        """Whether it is ours now."""
        return self._clock.monotonic() < self._until

    async def hold(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` while it is ours, and stand by while it is not: until cancelled, or until
        `work` ends by itself.

        :raises Exception: what `work` raises
        """
        try:
            while True:
                while not await self._taken():
                    await self._clock.sleep(self._term / RENEWALS)
                emit("lease.held", lease=self.name)
                working = asyncio.ensure_future(work())
                try:
                    await self._kept(working)
                finally:
                    working.cancel()
                    await asyncio.gather(working, return_exceptions=True)
                if not working.cancelled():
                    return working.result()
                trouble("lease.lost", lease=self.name)
        finally:
            await self._give_back()

    async def _kept(self, working: asyncio.Future[None]) -> None:
        """Until the work ends, or the lease is not ours any more."""
        while self.held and not working.done():
            wait = min(self._term / RENEWALS, self._until - self._clock.monotonic())
            sleeping = asyncio.ensure_future(self._clock.sleep(max(0.0, wait)))
            try:
                await asyncio.wait((working, sleeping), return_when=asyncio.FIRST_COMPLETED)
            finally:
                sleeping.cancel()
            if not working.done():
                await self._taken()

    async def _taken(self) -> bool:
        """One try to take or renew it."""
        began = self._clock.monotonic()
        try:
            # A store that does not answer must not keep us from seeing that the term is over.
            async with asyncio.timeout(self._term / RENEWALS):
                if await self._put():
                    self._until = began + LATEST * self._term
        except (StoreError, TimeoutError) as error:
            trouble("lease.unknown", lease=self.name, why=type(error).__name__)
        return self.held

    async def _put(self) -> bool:
        stored = await self._notes.get(self.name)
        note = _read(stored)
        if note.holder not in ("", self._holder):
            now = self._clock.monotonic()
            if stored != self._seen:
                self._seen, self._since = stored, now
            self._until = float("-inf")
            if now - self._since < self._term:
                return False
        mine = _encode(_Note(self._holder, note.count + 1))
        return await self._notes.put(self.name, mine, was=stored)

    async def _give_back(self) -> None:
        """Best effort: others wait for a term at worst, and we for a store no longer than that."""
        if not self.held:
            return
        self._until = float("-inf")
        try:
            async with asyncio.timeout(self._term / RENEWALS):
                stored = await self._notes.get(self.name)
                note = _read(stored)
                if note.holder == self._holder:
                    free = _encode(_Note("", note.count + 1))
                    await self._notes.put(self.name, free, was=stored)
        except (StoreError, TimeoutError) as error:
            trouble("lease.unknown", lease=self.name, why=type(error).__name__)

    def check(self) -> None:
        """
        :raises StoreUnavailable: it is not ours: nothing may be taken in by this process
        """
        if not self.held:
            raise StoreUnavailable(f"{self.name}: another process takes in by now")


def _read(stored: bytes | None) -> _Note:
    """What cannot be read belongs to nobody."""
    try:
        return _decode(stored) if stored else _Note("")
    except msgspec.MsgspecError:
        return _Note("")
