"""What several processes on one bot do: which part each, who takes in, and how fast."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bots import roles
from bots.pressure import MOST_SECONDS, Pressure
from bots.roles import build_engine, check_roles, is_shared, taking_in
from bots.settings import Settings
from core.adapter import Accepted
from core.clock import SystemClock
from core.engine import EmbeddedEngine
from core.errors import ConfigError, PlatformTaken, StoreUnavailable
from core.lease import TERM
from core.messages import Inbound, Sender
from stores.memory import MemoryStore
from tests.core.fakes import NOON, FakeClock, settle

SERVER = "postgresql://chinwag@127.0.0.1:9/chats"
SAID = Inbound("1", "test:1", "message", Sender("test:7"), "hello", at=NOON)


def settings(store: str = SERVER, **engine: Any) -> Settings:
    given: dict[str, Any] = {"engine": engine, "store": {"url": store}}
    return Settings(**given)


def test_one_process_has_the_embedded_engine() -> None:
    assert isinstance(build_engine(settings("memory:"), SystemClock()), EmbeddedEngine)
    assert not is_shared(settings("memory:"))


def test_several_share_one_on_a_server(tmp_path: Path) -> None:
    from core.dbos import DbosEngine

    several = settings(url=SERVER, role="intake")
    assert is_shared(several)
    assert isinstance(build_engine(several, SystemClock()), DbosEngine)
    alone = settings("sqlite:bot.db", url="sqlite:engine.db")
    assert not is_shared(alone)
    assert isinstance(build_engine(alone, SystemClock()), DbosEngine)


def test_the_queue_is_counted_until_intake_is_as_slow_as_it_gets() -> None:
    engine = build_engine(settings(url=SERVER, most_waiting=4_000), SystemClock())
    assert engine._counted == 8_000  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("store", "engine", "said"),
    [
        ("sqlite:bot.db", {"role": "worker"}, r"\[engine\] url"),
        ("sqlite:bot.db", {"role": "intake", "url": "sqlite:engine.db"}, "one process"),
        ("sqlite:bot.db", {"url": SERVER}, "postgresql: or redis:"),
        (SERVER, {"url": "redis://127.0.0.1/0"}, "nothing can be queued there"),
        ("disk:chats", {"url": SERVER, "role": "worker"}, "postgresql: or redis:"),
    ],
)
def test_what_does_not_fit_is_said(store: str, engine: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_roles(settings(store, **engine))


class Polled:
    """An adapter that only one process may ask."""

    name = "polled"

    def __init__(self) -> None:
        self.accept: Any = None

    async def run(self, accept: Any) -> None:
        self.accept = accept
        try:
            await asyncio.Event().wait()
        finally:
            self.accept = None


class Brought(Polled):
    anywhere = True


async def test_what_is_polled_one_asks_for_and_what_is_brought_all_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, store = FakeClock(manual=True), MemoryStore()
    shared = settings(url=SERVER)
    accepted: list[Inbound] = []

    async def accept(inbound: Inbound) -> Accepted:
        accepted.append(inbound)
        return Accepted()

    tasks, active, adapters = [], [], [Polled(), Polled(), Brought(), Brought()]
    for number, adapter in enumerate(adapters):
        monkeypatch.setattr(roles, "HOLDER", str(number))
        work, held = taking_in(adapter, accept, shared, store, clock)  # type: ignore[arg-type]
        tasks.append(asyncio.create_task(work))
        active.append(held)
        await settle()
    assert [each() for each in active] == [True, False, True, True]
    assert [each.accept is not None for each in adapters] == [True, False, True, True]
    first = adapters[0].accept
    await first(SAID)
    clock.advance(60)  # as if it had been stopped: nothing of it has run
    with pytest.raises(StoreUnavailable):
        await first(SAID)
    assert accepted == [SAID]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_who_shares_outlives_another_that_is_heard(caplog: pytest.LogCaptureFixture) -> None:
    """Telegram ends one of two polls. By a lease that is no reason to end: we ask again later."""
    clock, store = FakeClock(manual=True), MemoryStore()
    asked = asyncio.Event()

    class Twin(Polled):
        tries = 0

        async def run(self, accept: Any) -> None:
            self.tries += 1
            if self.tries == 1:
                raise PlatformTaken("it polls too")
            asked.set()
            await super().run(accept)

    async def accept(inbound: Inbound) -> Accepted:
        return Accepted()

    twin = Twin()
    work, held = taking_in(twin, accept, settings(url=SERVER), store, clock)  # type: ignore[arg-type]
    task = asyncio.create_task(work)
    await settle()
    assert twin.tries == 1 and held() and not task.done()
    for _ in range(8):  # the lease is renewed meanwhile
        clock.advance(TERM / 4)
        await settle()
    assert asked.is_set() and held() and not task.done()
    assert [each.message for each in caplog.records] == ["lease.twin"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    # Alone, it is for the operator: exit 4.
    alone, _ = taking_in(Twin(), accept, settings("memory:"), store, clock)  # type: ignore[arg-type]
    with pytest.raises(PlatformTaken):
        await alone


async def test_intake_slows_before_the_database_suffers(caplog: pytest.LogCaptureFixture) -> None:
    clock, waiting = FakeClock(), [0]
    pressure = Pressure(lambda: waiting[0], 100, clock)
    for depth, seconds in ((0, 0.0), (100, 0.0), (150, MOST_SECONDS / 2), (5_000, MOST_SECONDS)):
        waiting[0] = depth
        before = clock.monotonic()
        await pressure.ease()
        assert clock.monotonic() - before == pytest.approx(seconds)
    assert [each.message for each in caplog.records] == ["pressure"]
