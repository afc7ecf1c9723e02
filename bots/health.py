"""`/healthz`: whether people who write are heard and answered; for what restarts or watches us.
`/readyz`: whether messages may be brought to this process; for what stands before several of them.

200 or 503, and in any case JSON that says why: states and ages in seconds, never a text, a name or
a token. A program that runs is not enough: an adapter that nothing reaches is deaf, and a message
that waits for a quarter of an hour is not being answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from core.adapter import Adapter, Pulse, Watched
from core.clock import Clock
from core.errors import SnapshotTooNew, SnapshotUnreadable, StoreError
from core.snapshot import Snapshot
from core.store import BotStore, SessionRef

PATH: Final = "/healthz"
READY_PATH: Final = "/readyz"
DEAF_SECONDS: Final = 120.0  # without a word from the platform; a poll takes at most 50
INBOX_SECONDS: Final = 900.0  # a message waits, and for nobody's yes
OUTBOX_SECONDS: Final = 3600.0  # a part of a reply waits; a flood penalty may take long
KEPT_SECONDS: Final = 2.0  # whoever asks more often is told the same
STORE_SECONDS: Final = 5.0
STANDING_BY: Final = "standing by"
STORE_SILENT: Final = "the store does not answer"
MOST_LOOKED_AT: Final = 200  # conversations with something to do

_encode: Final = msgspec.json.Encoder().encode


class Health:
    """Answers for one run of the program.

    :param engine: raises when the engine cannot be reached; None: it is in this process
    :param process: which of several this is
    :ivar active: by an adapter's name: whether this process takes in its messages; if not, another
        does. One that is not in it does
    :ivar leaving: whether the program is about to end
    """

    def __init__(
        self,
        store: BotStore,
        refer: Callable[[str], SessionRef],
        adapters: Sequence[Adapter],
        clock: Clock,
        *,
        engine: Callable[[], Awaitable[None]] | None = None,
        process: str = "this",
    ) -> None:
        self._store = store
        self._engine = engine
        self._probe_name = f"probe.{process}"
        self._probe: bytes | None = None
        self.leaving = False
        self._refer = refer
        self._watched = {each.name: each for each in adapters if isinstance(each, Watched)}
        self.active: dict[str, Callable[[], bool]] = {}
        self._clock = clock
        self._started = clock.monotonic()
        self._asking = asyncio.Lock()
        self._said: tuple[bool, dict[str, Any]] | None = None
        self._until = float("-inf")
        self._probing = asyncio.Lock()
        self._ready: list[str] | None = None
        self._ready_until = float("-inf")

    def routes(self) -> list[Route]:
        return [
            Route(PATH, self._answer, methods=["GET"]),
            Route(READY_PATH, self._answer_ready, methods=["GET"]),
        ]

    async def look(self) -> tuple[bool, dict[str, Any]]:
        """Whether all is well, and what there is to see."""
        async with self._asking:
            if self._said is None or self._clock.monotonic() >= self._until:
                self._said = await self._look()
                self._until = self._clock.monotonic() + KEPT_SECONDS
            return self._said

    async def ready(self) -> tuple[bool, dict[str, Any]]:
        """Whether what is brought to this process now is taken in: it can write, its engine can be
        reached, and it does not end. One that stands by is ready."""
        async with self._probing:
            if self._ready is None or self._clock.monotonic() >= self._ready_until:
                self._ready = await self._try()
                self._ready_until = self._clock.monotonic() + KEPT_SECONDS
            wrong = [*self._ready, *(["it is about to end"] if self.leaving else [])]
            return not wrong, {"ready": not wrong, "wrong": wrong}

    async def close(self) -> None:
        """Nothing of the probe is left behind. Best effort."""
        if self._probe is not None:
            with suppress(StoreError, TimeoutError):
                async with asyncio.timeout(STORE_SECONDS):
                    await self._store.notes.put(self._probe_name, None, was=self._probe)

    async def _try(self) -> list[str]:
        wrong: list[str] = []
        try:
            async with asyncio.timeout(STORE_SECONDS):
                await self._write()
        except (StoreError, TimeoutError):
            wrong.append("the store takes nothing")
        if self._engine is not None:
            try:
                async with asyncio.timeout(STORE_SECONDS):
                    await self._engine()
            except (StoreError, TimeoutError):
                wrong.append("the engine cannot be reached")
        return wrong

    async def _write(self) -> None:
        """A note of our own, changed."""
        notes, now = self._store.notes, str(self._clock.now()).encode()
        if now == self._probe or await notes.put(self._probe_name, now, was=self._probe):
            self._probe = now
            return
        # An answer was lost: what is there is what we wrote last.
        self._probe = await notes.get(self._probe_name)

    async def _answer(self, request: Request) -> Response:
        return _told(*await self.look())

    async def _answer_ready(self, request: Request) -> Response:
        return _told(*await self.ready())

    async def _look(self) -> tuple[bool, dict[str, Any]]:
        uptime = self._clock.monotonic() - self._started
        wrong: list[str] = []
        adapters: dict[str, Any] = {}
        for name, adapter in self._watched.items():
            pulse, active = adapter.pulse(), self.active.get(name, _always)()
            if active and _deaf(pulse, uptime):
                wrong.append(f"{name} is deaf")
            adapters[name] = {
                "state": pulse.state if active else STANDING_BY,
                "seconds_since_contact": _rounded(pulse.contact),
                "seconds_since_event": _rounded(pulse.event),
            }
        inbox = outbox = None
        try:
            async with asyncio.timeout(STORE_SECONDS):
                inbox, outbox = await self._waiting()
        except (StoreError, TimeoutError):
            # Said to whoever asks; whoever needs the store hears of it where it fails.
            wrong.append(STORE_SILENT)
        # What waited while we were down is no fault of this run's.
        if min(inbox or 0.0, uptime) > INBOX_SECONDS:
            wrong.append("a message is not being answered")
        if min(outbox or 0.0, uptime) > OUTBOX_SECONDS:
            wrong.append("a reply is not being delivered")
        seen = {
            "healthy": not wrong,
            "wrong": wrong,
            "uptime_seconds": _rounded(uptime),
            "adapters": adapters,
            "oldest_inbox_seconds": _rounded(inbox),
            "oldest_outbox_seconds": _rounded(outbox),
        }
        return not wrong, seen

    async def _waiting(self) -> tuple[float | None, float | None]:
        """Ages of the oldest message without an answer, and of the oldest part not delivered.

        :raises StoreError: the store does not answer
        """
        messages: list[int] = []
        parts: list[int] = []
        looked = 0
        async for key in self._store.unfinished():
            looked += 1
            if looked > MOST_LOOKED_AT:
                break
            try:
                snapshot = await self._store.load(self._refer(key))
            except (SnapshotUnreadable, SnapshotTooNew):
                continue  # its next message says so
            if snapshot is not None:
                messages += _unanswered(snapshot)
                parts += [snapshot.updated_at] if snapshot.next_part else []
        now = self._clock.now()
        return (
            max(0.0, (now - min(messages)) / 1000) if messages else None,
            max(0.0, (now - min(parts)) / 1000) if parts else None,
        )


def _told(well: bool, seen: dict[str, Any]) -> Response:
    return Response(
        _encode(seen),
        200 if well else 503,
        headers={"Cache-Control": "no-store"},
        media_type="application/json",
    )


def _always() -> bool:
    return True


def _unanswered(snapshot: Snapshot) -> list[int]:
    if snapshot.turn is not None and snapshot.turn.suspended is not None:
        # A person is asked, and may take their time.
        return []
    return [inbound.at for inbound in snapshot.inbox]


def _deaf(pulse: Pulse, uptime: float) -> bool:
    silence = uptime if pulse.contact is None else pulse.contact
    return pulse.deaf or silence > DEAF_SECONDS


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
