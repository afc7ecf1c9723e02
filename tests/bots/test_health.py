"""What `/healthz` says: of adapters that hear or do not, of what waits, of a store that is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request

from bots.health import Health
from core.adapter import Pulse
from core.errors import SnapshotUnreadable, StoreUnavailable
from core.messages import Inbound, Outbound, Sender
from core.snapshot import Snapshot, Suspension, Turn
from core.store import SessionRef
from stores.memory import MemoryStore
from tests.core.fakes import NOON, FakeClock

KEY = "telegram-chat:7"
ASKED = Inbound("1", KEY, "message", Sender("telegram:7", "Alice"), "a secret", at=NOON)
PART = Outbound("part-1", "a secret too")


class Line:
    """An adapter, as far as health looks at one."""

    def __init__(self, pulse: Pulse, name: str = "telegram") -> None:
        self.name = name
        self.now = pulse

    def pulse(self) -> Pulse:
        return self.now


class Broken(MemoryStore):
    async def _fail(self) -> AsyncIterator[str]:
        raise StoreUnavailable("the disk is gone")
        yield ""

    def unfinished(self) -> AsyncIterator[str]:
        return self._fail()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(manual=True)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def health(store: MemoryStore, clock: FakeClock, *adapters: Any) -> Health:
    return Health(store, lambda key: SessionRef(key=key), adapters, clock)


def snapshot(**more: Any) -> Snapshot:
    return Snapshot(revision=1, epoch="e", created_at=NOON, updated_at=NOON, **more)


async def keep(store: MemoryStore, kept: Snapshot, key: str = KEY) -> None:
    await store.save(SessionRef(key=key), kept, replaces=None)


async def test_all_is_well(store: MemoryStore, clock: FakeClock) -> None:
    line = Line(Pulse("polling", contact=12.34, event=None))
    healthy, seen = await health(store, clock, line, object_without_pulse()).look()
    assert healthy
    assert seen == {
        "healthy": True,
        "wrong": [],
        "uptime_seconds": 0.0,
        "adapters": {
            "telegram": {
                "state": "polling",
                "seconds_since_contact": 12.3,
                "seconds_since_event": None,
            }
        },
        "oldest_inbox_seconds": None,
        "oldest_outbox_seconds": None,
    }


def object_without_pulse() -> Any:
    return type("Console", (), {"name": "console"})()


@pytest.mark.parametrize(
    ("pulse", "uptime", "healthy"),
    [
        (Pulse("polling", contact=119), 10_000, True),
        (Pulse("polling", contact=121), 10_000, False),
        (Pulse("polling", contact=1, event=1e6), 10_000, True),  # nobody writes: no fault of ours
        (Pulse("connecting"), 119, True),
        (Pulse("connecting"), 121, False),
        (Pulse("not accepting", contact=1, deaf=True), 1, False),
    ],
)
async def test_a_deaf_bot_is_not_healthy(
    store: MemoryStore, clock: FakeClock, pulse: Pulse, uptime: float, healthy: bool
) -> None:
    one = health(store, clock, Line(pulse), Line(Pulse("polling", contact=1), "telegram@other"))
    clock.advance(uptime)
    found, seen = await one.look()
    assert found is healthy
    assert seen["wrong"] == ([] if healthy else ["telegram is deaf"])


async def test_what_waits(store: MemoryStore, clock: FakeClock) -> None:
    late = msgspec.structs.replace(ASKED, id="2", key="telegram-chat:8", at=NOON + 60_000)
    await keep(store, snapshot(inbox=(ASKED,), outbox=(PART,)))
    await keep(store, snapshot(inbox=(late,)), "telegram-chat:8")
    one = health(store, clock)
    clock.advance(100)
    healthy, seen = await one.look()
    assert healthy
    assert (seen["oldest_inbox_seconds"], seen["oldest_outbox_seconds"]) == (100.0, 100.0)
    clock.advance(801)
    healthy, seen = await one.look()
    assert not healthy
    assert seen["wrong"] == ["a message is not being answered"]
    clock.advance(3_000)
    _, seen = await one.look()
    assert seen["wrong"] == ["a message is not being answered", "a reply is not being delivered"]


async def test_what_waited_while_we_were_down_is_told_but_no_fault(
    store: MemoryStore, clock: FakeClock
) -> None:
    await keep(store, snapshot(inbox=(ASKED,)))
    clock.advance(40_000)
    healthy, seen = await health(store, clock).look()
    assert healthy
    assert seen["oldest_inbox_seconds"] == 40_000


async def test_a_person_who_is_asked_may_take_their_time(
    store: MemoryStore, clock: FakeClock
) -> None:
    turn = Turn("x", 1, 1, ("1",), suspended=Suspension("s", (), expires=NOON + 3_600_000))
    held = msgspec.structs.replace(PART, state="held")
    await keep(store, snapshot(inbox=(ASKED,), turn=turn, outbox=(held,)))
    one = health(store, clock)
    clock.advance(3_700)
    assert await one.look() == (True, (await one.look())[1])
    _, seen = await one.look()
    assert (seen["oldest_inbox_seconds"], seen["oldest_outbox_seconds"]) == (None, None)


async def test_one_conversation_that_cannot_be_read_hides_no_other(
    store: MemoryStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keep(store, snapshot(inbox=(ASKED,)))
    await keep(store, snapshot(inbox=(ASKED,)), "telegram-chat:8")
    load = MemoryStore.load

    async def torn(self: MemoryStore, ref: SessionRef) -> Snapshot | None:
        if ref.key == KEY:
            raise SnapshotUnreadable("torn")
        return await load(self, ref)

    monkeypatch.setattr(MemoryStore, "load", torn)
    clock.advance(5)
    _, seen = await health(store, clock).look()
    assert seen["oldest_inbox_seconds"] == 5.0


async def test_a_store_that_does_not_answer(clock: FakeClock) -> None:
    healthy, seen = await health(Broken(), clock).look()
    assert not healthy
    assert seen["wrong"] == ["the store does not answer"]


async def test_who_asks_often_costs_nothing(
    store: MemoryStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    unfinished = MemoryStore.unfinished

    def counted(self: MemoryStore) -> AsyncIterator[str]:
        looks.append(1)
        return unfinished(self)

    monkeypatch.setattr(MemoryStore, "unfinished", counted)
    one = health(store, clock)
    for _ in range(50):
        await one.look()
    assert len(looks) == 1
    clock.advance(2)
    await one.look()
    assert len(looks) == 2


async def test_it_says_nothing_of_what_was_said(store: MemoryStore, clock: FakeClock) -> None:
    await keep(store, snapshot(inbox=(ASKED,), outbox=(PART,)))
    route = health(store, clock, Line(Pulse("polling", deaf=True))).routes()[0]
    assert Starlette(routes=[route]).routes == [route]
    answer = await route.endpoint(Request({"type": "http"}))
    assert answer.status_code == 503
    assert answer.headers["cache-control"] == "no-store"
    assert b"secret" not in answer.body and b"Alice" not in answer.body and b"7" not in answer.body
    assert msgspec.json.decode(answer.body)["healthy"] is False


async def test_who_stands_by_is_not_deaf(store: MemoryStore, clock: FakeClock) -> None:
    one = health(store, clock, Line(Pulse("starting", deaf=True)))
    one.active["telegram"] = lambda: False

    healthy, seen = await one.look()

    assert healthy and seen["adapters"]["telegram"]["state"] == "standing by"


class TestReady:
    async def test_what_can_write_is_ready_and_leaves_nothing_behind(
        self, store: MemoryStore, clock: FakeClock
    ) -> None:
        one = health(store, clock)
        assert await one.ready() == (True, {"ready": True, "wrong": []})
        clock.advance(60)
        assert (await one.ready())[0]
        assert [name async for name in store.notes.names()] == ["probe.this"]
        await one.close()
        assert [name async for name in store.notes.names()] == []

    async def test_a_store_that_takes_nothing(
        self, store: MemoryStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def broken(*_: object, **__: object) -> bool:
            raise StoreUnavailable("full")

        one = health(store, clock)
        with monkeypatch.context() as patch:
            patch.setattr(store.notes, "put", broken)
            assert (await one.ready())[1]["wrong"] == ["the store takes nothing"]
        assert not (await one.ready())[0], "whoever asks more often is told the same"
        clock.advance(60)
        assert (await one.ready())[0]

    async def test_an_answer_that_was_lost(self, store: MemoryStore, clock: FakeClock) -> None:
        one = health(store, clock)
        await one.ready()
        clock.advance(60)
        await store.notes.put("probe.this", b"9", was=one._probe)
        for _ in range(2):
            assert (await one.ready())[0]
            clock.advance(60)
        assert await store.notes.get("probe.this") == one._probe

    async def test_an_engine_that_cannot_be_reached_and_an_end(
        self, store: MemoryStore, clock: FakeClock
    ) -> None:
        async def away() -> None:
            raise StoreUnavailable("away")

        refer = lambda key: SessionRef(key=key)  # noqa: E731
        one = Health(store, refer, (), clock, engine=away)
        one.leaving = True
        ready, seen = await one.ready()
        assert not ready
        assert seen["wrong"] == ["the engine cannot be reached", "it is about to end"]
