"""What the machines of this folder have found, each in its shortest form."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from core import changes, outbox, phrases
from core.adapter import Accepted, Duplicate, Limits, Live, Receipt
from core.agent import Agent
from core.clock import Clock
from core.engine import Again, Done
from core.errors import (
    ModelRefusedKey,
    Moved,
    OutcomeUnknown,
    SnapshotUnreadable,
    StoreUnavailable,
    TryLater,
)
from core.gate import CODE
from core.memory import BOT_MEMORY
from core.messages import Outbound, encode_blocks
from core.model import ToolCall
from core.snapshot import Snapshot
from core.snapshots import Snapshots
from core.store import SessionRef
from core.tools import tool
from stores.memory import MemoryStore
from tests.core.fakes import FakeClock, calls, settle
from tests.core.test_conversations import KEY, Held, House
from tests.faults.faulty_store import Call, Fault, FaultyStore, Kind, Moment
from tests.faults.rig import Rig

FULL = Fault(Kind.FULL)
FULL_AFTER = Fault(Kind.FULL, Moment.AFTER)


def fails(name: str, fault: Fault = FULL, *, times: int = 1, skip: int = 0) -> FaultyStore:
    """A store whose calls of this name fail, so many of them."""
    numbers = iter(range(1_000))

    def plan(call: Call) -> Fault | None:
        hit = call.name == name and skip <= next(numbers) < skip + times
        return fault if hit else None

    return FaultyStore(MemoryStore(), plan)


def house_on(store: Any, *script: Any, **options: Any) -> House:
    return House(*script, store=store, **options)


# ---------------------------------------------------------------------- what cannot be read


class Unreadable(MemoryStore):
    """One conversation cannot be read until it is set aside; calls may fail besides."""

    def __init__(self, *, aside: list[Exception | None], saves: list[Exception | None]) -> None:
        super().__init__()
        self.damaged = True
        self.aside = aside
        self.failing = saves

    async def load(self, ref: SessionRef) -> Snapshot | None:
        if self.damaged:
            raise SnapshotUnreadable("checksum")
        return await super().load(ref)

    async def set_aside(self, ref: SessionRef) -> None:
        if self.aside and (error := self.aside.pop(0)):
            raise error
        self.damaged = False
        await super().set_aside(ref)

    async def save(self, ref: SessionRef, snapshot: Snapshot, *, replaces: int | None) -> None:
        if self.failing and (error := self.failing.pop(0)):
            raise error
        await super().save(ref, snapshot, replaces=replaces)


@pytest.mark.parametrize("what", ["aside", "saves"])
async def test_a_full_disk_while_something_is_set_aside_ends_nothing(what: str) -> None:
    failing: dict[str, list[Exception | None]] = {"aside": [], "saves": []}
    failing[what] = [StoreUnavailable("full")]
    house = house_on(Unreadable(**failing))
    assert await house.conversations.work(KEY) == Again(5.0)
    assert await house.conversations.work(KEY) == Again()
    assert await house.conversations.work(KEY) == Done()
    assert house.screen.shown == [phrases.UNREADABLE]


@pytest.mark.parametrize("what", ["aside", "saves"])
async def test_what_was_set_aside_is_said_when_the_message_comes_again(what: str) -> None:
    failing: dict[str, list[Exception | None]] = {"aside": [], "saves": []}
    failing[what] = [StoreUnavailable("full")]
    async with house_on(Unreadable(**failing), "hello", "again") as house:
        with pytest.raises(StoreUnavailable):
            await house.accept("hi", "u1")
        assert await house.says("hi", "u1") == Accepted()
        await house.says("and now?", "u2")
        assert house.screen.shown == [phrases.UNREADABLE, "hello", "again"]
        assert house.conversations._untold.of(KEY) is None


async def test_what_was_set_aside_is_said_once_and_before_all_else() -> None:
    house = house_on(Unreadable(aside=[], saves=[]))
    assert await house.conversations.accept(house.inbound("/help")) == Accepted()
    said = [part.body for part in (await house.snapshot()).outbox]
    assert said[0] == phrases.UNREADABLE and (said[1] or "").startswith(phrases.HELP)
    assert house.conversations._untold.of(KEY) is None


async def test_a_conversation_that_could_be_read_after_all_can_be_reset() -> None:
    store = Unreadable(aside=[StoreUnavailable("full")], saves=[])
    house = house_on(store)
    store.damaged = False
    await house.conversations.accept(house.inbound("/help"))
    store.damaged = True
    with pytest.raises(StoreUnavailable):
        await house.conversations.accept(house.inbound("b"))
    store.damaged = False
    await house.conversations.accept(house.inbound("/reset"))
    assert [part.body for part in (await house.snapshot()).outbox] == [phrases.RESET]


async def test_a_conversation_that_could_be_read_after_all_goes_on() -> None:
    store = Unreadable(aside=[StoreUnavailable("full")], saves=[])
    store.damaged = False
    async with house_on(store, "one", "two") as house:
        await house.says("a")
        store.damaged = True
        with pytest.raises(StoreUnavailable):
            await house.accept("b", "u2")
        store.damaged = False
        await house.says("b", "u2")
        assert house.screen.shown == ["one", "two"]
        assert len(await house.history()) == 4
        assert house.conversations._untold.of(KEY) is None


# ---------------------------------------------------------------------- a chat that moves


@pytest.mark.parametrize("name", ["move", "unfinished"])
@pytest.mark.parametrize("fault", [FULL, FULL_AFTER])
async def test_a_move_that_fails_is_done_to_the_end(name: str, fault: Fault) -> None:
    """The platform says it once, when something is sent there; then there is nothing to send."""
    store = fails(name, fault, skip=int(name == "unfinished"))
    async with house_on(store, "one|two") as house:
        house.screen.script = [Moved("test:1", "test:9")]
        await house.says("hi")
        assert house.screen.shown == []
        house.clock.advance(6)
        await settle(300)
        assert house.screen.keys == ["test:9"] * 2
        assert house.conversations._moves._begun == {}


async def test_a_message_that_comes_again_after_its_chat_moved_is_a_duplicate() -> None:
    async with House("one", "two", "three") as house:
        await house.says("a", "u1")
        assert await house.says("test:9", kind="moved") == Accepted()
        assert await house.says("a", "u1") == Duplicate()
        assert await house.says("b", "u2") == Accepted()
        assert await house.says("test:99", kind="moved", key="test:9") == Accepted()
        assert await house.says("b", "u2") == Duplicate()
        await house.says("c", "u3", key="test:9/7")
        assert house.screen.keys == ["test:1", "test:9", "test:99/7"]
        assert len(await house.history("test:99")) == 4


async def test_a_chat_that_moves_back_is_where_it_says() -> None:
    async with House("one", "two") as house:
        await house.says("test:9", kind="moved")
        await house.says("test:1", kind="moved", key="test:9")
        await house.says("a")
        await house.says("b", key="test:9")
        assert house.screen.keys == ["test:1", "test:1"]


@pytest.mark.parametrize("new", ["test:1", "test:1/2"])
async def test_a_chat_that_moves_into_itself_stays(new: str) -> None:
    async with House("one") as house:
        assert await house.says(new, kind="moved") == Accepted()
        await house.says("a")
        assert house.screen.keys == ["test:1"]


async def test_a_corrupt_database_is_no_affair_of_an_adapter_when_a_chat_moves() -> None:
    async with house_on(fails("move", Fault(Kind.CORRUPT))) as house:
        with pytest.raises(StoreUnavailable):
            await house.accept("test:9", kind="moved")


# ---------------------------------------------------------------------- silence or a repeat


async def test_with_hold_a_part_that_was_not_sent_because_the_chat_moved_is_sent() -> None:
    async with House("one", on_unknown_outcome="hold") as house:
        house.screen.script = [Moved("test:1", "test:9")]
        await house.says("hi")
        await settle(200)
        assert house.screen.keys == ["test:9"]
        assert house.screen.uncertain == [False, False]


async def test_with_hold_a_penalty_that_cannot_be_noted_holds_nothing() -> None:
    async with house_on(fails("notes.put"), "one", on_unknown_outcome="hold") as house:
        house.screen.script = [TryLater(30)]
        await house.says("hi")
        house.clock.advance(31)
        await settle(300)
        assert house.screen.shown == ["one"]


@pytest.mark.parametrize("number", [2, 3])
async def test_with_hold_an_unknown_save_before_a_send_holds_nothing(number: int) -> None:
    """2: the commit; 3: the mark of the first part, which is when the second begins to leave."""
    store = fails("save", FULL_AFTER, skip=number)
    async with house_on(store, "one|two", "no", on_unknown_outcome="hold") as house:
        await house.says("hi")
        house.clock.advance(6)
        await settle(300)
        assert house.screen.shown == ["one", "two"]


async def test_a_part_that_may_be_on_the_screen_stays_uncertain_over_a_wait() -> None:
    async with House("one") as house:
        house.screen.limits = Limits(can_look_up=True)
        house.screen.script = [OutcomeUnknown("no answer"), TryLater(30)]
        await house.says("hi")
        for _ in range(2):
            house.clock.advance(31)
            await settle(100)
        assert house.screen.uncertain == [False, True, True]


# ---------------------------------------------------------------------- the cache


class Slow(MemoryStore):
    """A load may read now and come back later."""

    def __init__(self) -> None:
        super().__init__()
        self.slow: asyncio.Event | None = None
        self.slow_save: asyncio.Event | None = None

    async def load(self, ref: SessionRef) -> Snapshot | None:
        snapshot = await super().load(ref)
        if self.slow is not None:
            slow, self.slow = self.slow, None
            await slow.wait()
        return snapshot

    async def save(self, ref: SessionRef, snapshot: Snapshot, *, replaces: int | None) -> None:
        await super().save(ref, snapshot, replaces=replaces)
        if self.slow_save is not None:
            slow, self.slow_save = self.slow_save, None
            await slow.wait()


def snapshots_on(store: MemoryStore, clock: Clock) -> Snapshots:
    return Snapshots(store, clock, lambda key: SessionRef(key=key))


def choosing(name: str) -> Callable[[Snapshot | None], Snapshot]:
    def change(before: Snapshot | None) -> Snapshot:
        old = before or changes.begin(revision=0, epoch="e", now=0)
        return replace(old, chosen={**old.chosen, name: name})

    return change


async def test_a_slow_load_does_not_bring_back_what_was_replaced_meanwhile() -> None:
    store = Slow()
    snapshots = snapshots_on(store, FakeClock())
    await snapshots.update(KEY, choosing("a"))
    snapshots.forget(KEY)
    slow = store.slow = asyncio.Event()
    loading = asyncio.create_task(snapshots.load(KEY))
    await settle(3)
    await snapshots.update(KEY, choosing("b"))
    slow.set()
    assert await loading == await snapshots.load(KEY)
    now = await snapshots.load(KEY)
    assert now is not None and set(now.chosen) == {"a", "b"}
    assert not snapshots._newest and not snapshots._loading


async def test_what_is_read_during_a_move_is_read_again() -> None:
    """The first of two loads is not the newest one; both began before."""
    store = Slow()
    snapshots = snapshots_on(store, FakeClock())
    await snapshots.update(KEY, choosing("a"))
    snapshots.forget(KEY)
    slow = store.slow = asyncio.Event()
    loading = asyncio.create_task(snapshots.load(KEY))
    await settle(3)
    await snapshots.load(KEY)
    await store.move(KEY, "test:9")
    snapshots.forget_all(lambda key: key == KEY)
    slow.set()
    assert await loading is None
    assert not snapshots._newest and not snapshots._loading


async def test_what_a_reset_takes_away_is_not_sent_by_who_read_before_it() -> None:
    store = Slow()
    unsent = changes.notice(changes.begin(revision=1, epoch="e", now=0), ["before"])
    await store.save(SessionRef(key=KEY), unsent, replaces=None)
    slow = store.slow = asyncio.Event()
    async with house_on(store) as house:
        await settle()
        await house.says("/reset")
        slow.set()
        await settle(200)
        assert house.screen.shown == [phrases.RESET]


async def test_a_slow_save_does_not_bring_back_what_was_forgotten_meanwhile() -> None:
    store = Slow()
    snapshots = snapshots_on(store, FakeClock())
    slow = store.slow_save = asyncio.Event()
    saving = asyncio.create_task(snapshots.update(KEY, choosing("a")))
    await settle(3)
    await store.set_aside(SessionRef(key=KEY))
    snapshots.forget_all(lambda key: key == KEY)
    slow.set()
    await saving
    assert await snapshots.load(KEY) is None
    assert not snapshots._newest


async def test_a_load_beside_a_slow_save_does_not_outlive_it() -> None:
    class Later(Slow):
        async def save(self, ref: SessionRef, snapshot: Snapshot, *, replaces: int | None) -> None:
            if self.slow_save is not None:
                slow, self.slow_save = self.slow_save, None
                await slow.wait()
            await MemoryStore.save(self, ref, snapshot, replaces=replaces)

    store = Later()
    snapshots = snapshots_on(store, FakeClock())
    await snapshots.update(KEY, choosing("a"))
    slow = store.slow_save = asyncio.Event()
    saving = asyncio.create_task(snapshots.update(KEY, choosing("b")))
    await settle(3)
    await snapshots.load(KEY)
    slow.set()
    await saving
    now = await snapshots.load(KEY)
    assert now is not None and set(now.chosen) == {"a", "b"}


async def test_who_asks_about_another_part_takes_nothing() -> None:
    snapshots = snapshots_on(MemoryStore(), FakeClock())
    part = Outbound(id="p1", body="x", state="sending")
    await snapshots.update(KEY, lambda before: replace(choosing("a")(before), outbox=(part,)))
    assert not snapshots.take_fresh(KEY, "p0")
    assert snapshots.take_fresh(KEY, "p1")
    assert not snapshots.take_fresh(KEY, "p1")


async def test_a_message_on_its_way_in_follows_its_chat() -> None:
    """Under the old key it would be answered before what came earlier and has moved."""
    store = Slow()
    async with house_on(store, "one", "two") as house:
        await house.says("a")
        slow = store.slow = asyncio.Event()
        accepting = asyncio.create_task(house.accept("b", "u2"))
        await settle(3)
        await house.says("test:9", kind="moved")
        slow.set()
        with pytest.raises(StoreUnavailable):
            await accepting
        assert await house.says("b", "u2") == Accepted()
        assert house.screen.keys == ["test:1", "test:9"]
        assert await store.load(SessionRef(key=KEY)) is None
        assert len(await house.history("test:9")) == 4


# ---------------------------------------------------------------------- bugs of others


async def test_no_key_is_said_although_the_first_try_to_say_it_failed() -> None:
    refused = ModelRefusedKey("401")
    async with house_on(fails("save", skip=2), refused, refused, "at last") as house:
        await house.says("hi")
        assert house.screen.shown == []
        house.clock.advance(6)
        await settle(200)
        assert house.screen.shown == [phrases.NO_MODEL]


@pytest.mark.parametrize("what", ["render", "live", "close"])
async def test_a_bug_in_an_adapter_hurts_only_its_turn(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with House("broken", "fine") as house:
        real = house.screen.render

        def render(markdown: str) -> tuple[str, ...]:
            if markdown == "broken":
                raise ZeroDivisionError
            return real(markdown)

        class Broken:
            def show(self, text: str) -> bool:
                return False

            async def close(self) -> tuple[str, ...]:
                raise ZeroDivisionError

        def live(*args: Any, **named: Any) -> Live:
            if what == "live":
                raise ZeroDivisionError
            return Broken()

        with monkeypatch.context() as patch:
            if what == "render":
                patch.setattr(house.screen, "render", render)
            else:
                patch.setattr(house.screen, "live", live)
            await house.says("a")
        assert house.screen.shown == [phrases.INTERNAL]
        house.model.script = ["fine"]
        await house.says("b")
        assert house.screen.shown[-1] == "fine"
        assert house.running is not None and not house.running.done()


async def test_an_error_of_a_turn_is_heard_when_the_delivery_beside_it_fails_too() -> None:
    """asyncio complains of an error that nobody asked for, long after and without a key."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, what: complaints.append(what))
    late = Held(StoreUnavailable("the turn's"))
    async with House(late, "well") as house:
        await house.says("a")

        async def both_fail() -> None:
            late.open.set()
            await settle(5)
            raise asyncio.CancelledError

        house.screen.script = [both_fail]
        await house.says("/help")
    await settle(5)
    gc.collect()
    await settle(5)
    assert complaints == []


# ---------------------------------------------------------------------- what mutants have shown


async def test_what_waits_is_a_duplicate_however_much_came_since() -> None:
    late = Held("one")
    async with House(late) as house:
        await house.says("a", "u1")
        for _ in range(changes.SEEN_LIMIT + 1):
            await house.accept("/help")
        assert "u1" not in (await house.snapshot()).seen
        assert await house.says("a", "u1") == Duplicate()
        late.open.set()
        await settle(2_000)
        assert house.screen.shown[-1] == "one"


async def test_an_old_announcement_of_a_move_takes_nothing_back() -> None:
    async with House("one") as house:
        await house.says("a")
        await house.says("test:9", kind="moved")
        await house.says("test:10", kind="moved", key="test:9")
        await house.says("test:9", kind="moved")
        assert len(await house.history("test:10")) == 2


async def test_a_chat_whose_move_waits_is_still_heard() -> None:
    async with house_on(fails("move"), "one", "two") as house:
        await house.says("a")
        with pytest.raises(StoreUnavailable):
            await house.accept("test:9", kind="moved")
        assert await house.says("b") == Accepted()
        assert house.screen.keys == ["test:1", "test:9"]


async def test_accepting_keeps_nothing_in_memory() -> None:
    house = House()
    await house.conversations.accept(house.inbound("a"))
    await house.conversations.accept(house.inbound("/help"))
    assert not house.conversations._snapshots._cached


async def test_a_picture_without_a_word_is_a_message() -> None:
    blocks = encode_blocks([{"type": "image", "source": {}}])
    async with House("nice") as house:
        assert await house.says(" ", blocks=blocks) == Accepted()
        assert house.screen.shown == ["nice"]


async def test_a_command_does_not_interrupt_a_turn_that_messages_do() -> None:
    late = Held("one")
    async with House(late, when_busy="interrupt") as house:
        await house.says("a")
        await house.says("/help")
        late.open.set()
        await settle(200)
        shown, answer = house.screen.shown
        assert shown.startswith(phrases.HELP) and answer == "one"
        assert len(house.model.requests) == 1


async def test_a_stop_while_something_is_sent_and_no_turn_runs() -> None:
    async with House() as house:
        sent = asyncio.Event()
        house.screen.script = [sent.wait]  # type: ignore[list-item]
        await house.says("/help")
        assert await house.says("/stop") == Accepted()
        sent.set()
        await settle(200)
        shown, answer = house.screen.shown
        assert shown.startswith(phrases.HELP) and answer == phrases.NOTHING_TO_STOP


async def test_what_no_adapter_serves_stays_as_it_is() -> None:
    house = House()
    inbound = house.inbound("a", key="other:1")
    stored = changes.notice(changes.begin(revision=1, epoch="e", now=0), ["hello"])
    stored = changes.accept(stored, inbound)
    await house.store.save(SessionRef(key="other:1"), stored, replaces=None)
    assert await house.conversations.work("other:1") == Done()
    assert await house.snapshot("other:1") == stored


async def test_a_long_wait_frees_the_lane() -> None:
    async with House("one") as house:
        house.screen.script = [TryLater(30)]
        await house.says("hi")
        assert house.engine.depth() == 0


async def test_what_is_on_the_screen_already_becomes_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Shown:
        def show(self, text: str) -> bool:
            return True

        async def close(self) -> tuple[str, ...]:
            return ("m7", "m8")

    replaced: list[str | None] = []

    async def send(key: str, part: Outbound, *, uncertain: bool) -> Receipt:
        replaced.append(part.replaces)
        return Receipt(("m7",))

    async with House("one") as house:
        monkeypatch.setattr(house.screen, "live", lambda *args, **named: Shown())
        monkeypatch.setattr(house.screen, "send", send)
        await house.says("hi")
        assert replaced == ["m7", "m8"]


async def test_with_hold_an_edit_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    class Shown:
        def show(self, text: str) -> bool:
            return True

        async def close(self) -> tuple[str, ...]:
            return ("m7",)

    async with House("one", on_unknown_outcome="hold") as house:
        monkeypatch.setattr(house.screen, "live", lambda *args, **named: Shown())
        house.screen.script = [OutcomeUnknown("no answer")]
        await house.says("hi")
        house.clock.advance(2)
        await settle(200)
        assert house.screen.shown == ["one"]


async def test_what_is_remembered_is_what_is_stored() -> None:
    store = MemoryStore()
    snapshots = snapshots_on(store, FakeClock())
    assert await snapshots.load(KEY) is None
    assert not snapshots._cached
    await snapshots.update(KEY, lambda before: replace(choosing("a")(before), erase=((1, 2),)))
    assert await snapshots.load(KEY) == await store.load(SessionRef(key=KEY))


async def test_turns_that_begin_again_do_not_wait_for_each_other() -> None:
    store = MemoryStore()
    async with House(Held(), Held(), store=store) as house:
        await house.says("a", key="test:1")
        await house.says("b", key="test:2")
    first, second = Held("one"), Held("two")
    async with House(first, second, store=store):
        await settle(200)
        assert first.asked.is_set() and second.asked.is_set()


async def test_a_fenced_commit_is_not_called_one(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger("chinwag")
    monkeypatch.setattr(logger, "propagate", True)
    logger.setLevel(logging.INFO)
    house = House("the old answer")
    other = House(store=house.store)
    await house.conversations.accept(house.inbound("secret"))

    async def reset_elsewhere(request: object) -> str:
        await other.conversations.accept(other.inbound("/reset", "u99"))
        return "the old answer"

    house.model.script[0] = reset_elsewhere
    await house.conversations.work(KEY)
    said = [record.message for record in caplog.records]
    assert "fenced" in said and "committed" not in said


async def test_a_tool_whose_chat_moves_away_ends_quietly(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = asyncio.Event()
    begun: list[str] = []

    @tool
    async def wait() -> str:
        """Waits."""
        begun.append("")
        await go_on.wait()
        return "done"

    monkeypatch.setattr(logging.getLogger("chinwag"), "propagate", True)
    logging.getLogger("chinwag").setLevel(logging.ERROR)
    agent = Agent(memory=BOT_MEMORY, tools=(wait,))
    async with House(calls(ToolCall("c1", "wait", {})), "I do not know", agent=agent) as house:
        await house.says("a")
        await house.says("test:9", kind="moved")
        go_on.set()
        await settle(200)
        assert house.screen.shown == ["I do not know"]
        assert begun == [""]
    assert not caplog.records


async def test_a_pairing_is_said() -> None:
    rig = Rig(owner=False)
    await rig.disk.notes.put(CODE, b"SESAME", was=None)
    rig.says("/start sesame")
    await rig.rest()
    await rig.end()
    assert [event.text for event in rig.log if event.what == "shown"] == [phrases.PAIRED]


def test_a_chat_can_be_gone_with_nothing_to_send() -> None:
    assert outbox.gone(changes.begin(revision=1, epoch="e", now=0)).gone
