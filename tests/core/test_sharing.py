"""Several processes on one database: what one is told the others do, and no two do the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from core import phrases
from core.adapter import Accepted
from core.answering import WhenBusy
from core.engine import Again
from core.errors import SnapshotUnreadable, StoreUnavailable
from core.snapshot import Snapshot
from core.store import BotStore, SessionRef
from core.tenure import READING, TRUSTED
from stores.memory import MemoryStore
from stores.postgres import PostgresStore
from tests.core.fakes import settle
from tests.core.sharing import KEY, Process, World, passing
from tests.postgres import fresh_url

MOST_CALLS = 200


async def stored(world: World, key: str = KEY) -> Snapshot | None:
    return await world.store.load(SessionRef(key))


class Nth:
    """Stops a process at the n-th thing that it asks of the world."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.met = ""

    def __call__(self, what: str) -> bool:
        self.left -= 1
        if self.left == 0:
            self.met = what
        return self.left == 0


Scenario = Callable[[World, Process], Awaitable[None]]


async def one(world: World, intake: Process) -> None:
    await intake.says("hello #t1;")


async def long(world: World, intake: Process) -> None:
    await intake.says("hello #t1 long;")


async def tools(world: World, intake: Process) -> None:
    await intake.says("hello #t1 tool;")


async def command_first(world: World, intake: Process) -> None:
    await intake.says("/help")
    await intake.says("hello #t1 long;")


async def two(world: World, intake: Process) -> None:
    await intake.says("hello #t1 long;")
    await intake.says("hello #t2;")


@pytest.mark.parametrize("scenario", [one, long, tools, command_first, two])
async def test_a_worker_that_was_thought_dead_writes_nothing_and_sends_one_part(
    scenario: Scenario,
) -> None:
    """Stopped at everything that it asks of the world in turn; another one is given its work, and
    then it goes on."""
    await stopped_everywhere(scenario, MemoryStore())


async def test_so_it_is_on_postgresql() -> None:
    async with PostgresStore(fresh_url(), shared=True) as store:
        await stopped_everywhere(long, store)


async def stopped_everywhere(scenario: Scenario, store: BotStore) -> None:
    for number in range(1, MOST_CALLS):
        world = World(store)
        await store.clear(SessionRef(KEY))
        intake = Process(world, "intake")
        plan = Nth(number)
        first, second = Process(world, "first", stops=plan), Process(world, "second")
        await scenario(world, intake)
        working = asyncio.ensure_future(first.works())
        for _ in range(40):
            await world.settle()
            if first.stopped or working.done():
                break
        assert first.stopped or working.done()
        other = asyncio.ensure_future(second.works())
        await passing(world, other)
        assert other.result()
        before = await stored(world)
        ran, shown = list(world.ran), len(world.shown)
        world.clock.advance(60)
        first.go_on()
        await passing(world, working)
        after = await stored(world)
        assert before is not None and after is not None
        where = f"stopped at call {number}, {plan.met}"
        # What the tool did not know when it was stopped, it does: it had begun.
        assert plan.met == "tool" or world.ran == ran, where
        if plan.met != "tool":
            # What it has used is saved, for it was used; nothing else is.
            saved = {"revision": before.revision, "updated_at": before.updated_at}
            assert before == replace(after, **saved), where
            assert len(world.shown) - shown <= (plan.met in ("send", "sent")), where
            await world.judge(twice=1)
        if not plan.met:
            return
    raise AssertionError("there is no end of it")


@pytest.mark.parametrize("when_busy", ["collect", "queue", "interrupt"])
async def test_of_two_that_work_at_once_one_leaves_off(when_busy: WhenBusy) -> None:
    """The second is told to work while the first does, after each number of steps."""
    for steps in range(0, 60, 2):
        world = World()
        first, second, third = (
            Process(world, name, when_busy=when_busy) for name in ("first", "second", "third")
        )
        await first.says("hello #t1 long;")
        working = [asyncio.ensure_future(first.works())]
        await settle(steps)
        await third.says("hello #t2 long;")
        working.append(asyncio.ensure_future(second.works()))
        await passing(world, *working)
        assert all(each.result() for each in working)
        await world.judge(twice=1)


async def test_who_comes_too_late_to_begin_does_not_begin() -> None:
    """Two that take over from each other would use up the attempts of a turn that nobody ends."""
    world = World()
    world.hold("#t1")
    late = Process(world, "late", stops=lambda what: what == "before save")
    other = Process(world, "other")
    await other.says("hello #t1;")
    beginning = asyncio.ensure_future(late.conversations.work(KEY))
    await settle(40)
    assert late.stopped
    working = asyncio.ensure_future(other.works())
    await settle(60)
    before = await stored(world)
    late.stops = lambda what: False
    late.go_on()
    assert await beginning == Again(5.0)
    assert world.asked == 1 and await stored(world) == before
    world.release()
    await passing(world, working)
    await world.judge()


async def test_a_part_that_was_claimed_is_noted_by_who_claimed_it() -> None:
    world = World()
    old = Process(world, "old", stops=lambda what: what == "send")
    new = Process(world, "new", stops=lambda what: what == "send")
    await new.says("hello #t1 long;")
    sending = asyncio.ensure_future(old.conversations.work(KEY))
    await settle(80)
    working = asyncio.ensure_future(new.works())
    await settle(80)
    assert old.stopped and new.stopped
    before = await stored(world)
    old.stops = new.stops = lambda what: False
    old.go_on()
    assert await sending == Again(5.0)
    assert len(world.shown) == 1 and await stored(world) == before
    new.go_on()
    await passing(world, working)
    assert [each.process for each in world.shown] == ["old", "new", "new", "new"]
    assert [each.uncertain for each in world.shown] == [False, True, False, False]
    await world.judge(twice=1)


# ---------------------------------------------------------------------- what another one was told


async def running(world: World, worker: Process, intake: Process) -> asyncio.Future[bool]:
    """A turn that waits for its model."""
    world.hold("#t1")
    await intake.says("hello #t1 tool;")
    working = asyncio.ensure_future(worker.works())
    await settle(40)
    assert world.asked  # it has begun
    return working


@pytest.mark.parametrize("said", ["/stop", "/reset", "/undo"])
async def test_what_ends_a_turn_ends_it_in_another_process(said: str) -> None:
    world = World()
    worker, intake = Process(world, "worker"), Process(world, "intake")
    working = await running(world, worker, intake)
    await intake.says(said)
    await settle(40)
    assert not world.shown
    world.clock.advance(READING)
    await settle(40)
    # The model still has not answered: nobody waits for it any more.
    assert working.done() and len(world.shown) == 1
    snapshot = await stored(world)
    assert snapshot is not None and not snapshot.unfinished
    if said != "/undo":  # which the judge does not know
        await world.judge()


async def test_a_chat_that_is_left_ends_its_turn_in_another_process() -> None:
    world = World()
    worker, intake = Process(world, "worker"), Process(world, "intake")
    working = await running(world, worker, intake)
    for text in ("", "erase"):
        await intake.conversations.accept(world.inbound(text, kind="left"))
    world.clock.advance(READING)
    await settle(40)
    assert working.done() and not world.shown


async def test_a_message_interrupts_a_turn_of_another_process() -> None:
    world = World()
    worker = Process(world, "worker", when_busy="interrupt")
    intake = Process(world, "intake", when_busy="interrupt")
    working = await running(world, worker, intake)
    await intake.says("and #t2;")
    world.clock.advance(READING)
    await settle(40)
    world.release()
    await passing(world, working)
    assert [each.text.split(" !")[0] for each in world.shown] == ["#t1 #t2"]


async def test_commands_are_answered_beside_a_turn_of_another_process() -> None:
    world = World()
    worker, intake = Process(world, "worker"), Process(world, "intake")
    working = await running(world, worker, intake)
    await intake.says("/id")
    snapshot = await stored(world)
    # Whoever takes it in sends nothing, and says so.
    assert snapshot is not None and snapshot.outbox[0].state == "waiting"
    world.clock.advance(READING)
    await settle(40)
    assert [each.uncertain for each in world.shown] == [False] and not working.done()
    assert worker.calls.count("load") <= 3
    world.release()
    await passing(world, working)
    await world.judge()


async def test_looking_costs_one_small_question_each_two_seconds() -> None:
    world = World()
    worker, intake = Process(world, "worker"), Process(world, "intake")
    working = await running(world, worker, intake)
    worker.calls.clear()
    for _ in range(5):
        world.clock.advance(READING)
        await settle(10)
    assert worker.calls == ["revision"] * 5
    world.release()
    await passing(world, working)


async def test_one_process_alone_never_looks() -> None:
    world = World()
    alone = Process(world, "alone", shared=False)
    working = await running(world, alone, alone)
    alone.calls.clear()
    world.clock.advance(20 * READING)
    await settle(10)
    assert not alone.calls
    world.release()
    await passing(world, working)
    assert "revision" not in alone.calls


async def test_a_store_that_does_not_answer_ends_no_turn() -> None:
    world = World()
    worker, intake = Process(world, "worker"), Process(world, "intake")
    working = await running(world, worker, intake)
    failing = worker.store._call

    async def fails(*args: Any) -> Any:
        raise StoreUnavailable("away")

    worker.store._call = fails  # type: ignore[method-assign, assignment]
    world.clock.advance(READING)
    await settle(10)
    worker.store._call = failing  # type: ignore[method-assign]
    world.release()
    await passing(world, working)
    assert world.answers == 1
    await world.judge()


async def test_what_was_stopped_shows_nothing_before_it_has_looked() -> None:
    """Its edits would take the place of what another one has said since."""
    world = World()
    worker, intake = Process(world, "worker"), Process(world, "intake")
    working = await running(world, worker, intake)
    assert worker.screen.showing.may("edit")
    worker.stops = lambda what: True  # from its next question on
    world.clock.advance(TRUSTED + 1)
    await settle(10)
    assert not worker.screen.showing.may("edit")
    worker.stops = lambda what: False
    worker.go_on()
    await settle(20)
    assert worker.screen.showing.may("edit")
    world.release()
    await passing(world, working)


async def test_a_part_that_nobody_has_marked_is_certain() -> None:
    """What another process only took in was never about to leave: nothing is held for that."""
    world = World()
    worker = Process(world, "worker", on_unknown_outcome="hold")
    intake = Process(world, "intake", on_unknown_outcome="hold")
    await intake.says("/id")
    assert await worker.works()
    assert [each.uncertain for each in world.shown] == [False]


async def test_a_part_that_a_dead_process_was_sending_is_uncertain() -> None:
    world = World(can_look_up=True)
    dead = Process(world, "dead", stops=lambda what: what == "send")
    await dead.says("hello #t1;")
    working = asyncio.ensure_future(dead.works())
    await settle(60)
    assert dead.stopped
    worker = Process(world, "worker")
    assert await worker.works()
    assert [(each.process, each.uncertain) for each in world.shown] == [("worker", True)]
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def test_work_on_one_key_waits_for_that_under_way_in_this_process() -> None:
    world = World()
    worker = Process(world, "worker")
    working = await running(world, worker, worker)
    again = asyncio.ensure_future(worker.works())
    await settle(20)
    world.release()
    await passing(world, working, again)
    assert world.answers == 1
    await world.judge()


# ---------------------------------------------------------------------- every event twice


@pytest.mark.parametrize(
    "text", ["hello #t1;", "/help", "/reset", "/stop", "/undo"], ids=lambda text: text.split()[0]
)
@pytest.mark.parametrize("known", [False, True], ids=["first", "later"])
async def test_an_event_that_two_processes_are_given_counts_once(text: str, known: bool) -> None:
    for ahead in range(6):
        world = World()
        left, right, worker = (Process(world, name) for name in ("left", "right", "worker"))
        if known:
            await left.says("hello #t0;")
            assert await worker.works()
        inbound = world.inbound(text)
        first = asyncio.ensure_future(left.takes(inbound))
        await settle(ahead)
        second = asyncio.ensure_future(right.takes(inbound))
        await passing(world, first, second)
        kinds = sorted(type(each.result()).__name__ for each in (first, second))
        assert kinds == ["Accepted", "Duplicate"], ahead
        assert await worker.works()
        if known and text == "/undo":
            assert [each.text for each in world.shown[1:]] == ["", phrases.UNDONE]
        else:
            assert len(world.shown) == 1 + known
            await world.judge()


async def test_an_edit_that_two_processes_are_given_counts_once() -> None:
    world = World()
    left, right, worker = (Process(world, name) for name in ("left", "right", "worker"))
    said = world.inbound("hello #t1;")
    await left.takes(said)
    edit = replace(said, id="edit", kind="edit", text="hello #t1; again")
    outcomes = await asyncio.gather(
        left.conversations.accept(edit), right.conversations.accept(edit)
    )
    assert sorted(type(each).__name__ for each in outcomes) == ["Accepted", "Duplicate"]
    assert await worker.works()
    await world.judge()


async def test_members_of_an_album_that_two_processes_take_in_are_one_turn() -> None:
    world = World()
    left, right, worker = (Process(world, name) for name in ("left", "right", "worker"))
    await asyncio.gather(left.says("a #t1;", album="7"), right.says("b #t2;", album="7"))
    working = asyncio.ensure_future(worker.works())
    await passing(world, working)
    assert world.answers == 1 and len(world.shown) == 1
    await world.judge()


async def test_nothing_goes_on_beside_a_turn_that_is_over() -> None:
    world = World()
    worker = Process(world, "worker")
    await worker.says("hello #t1;")
    assert await worker.works()
    await settle(40)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_rest_of_an_album_is_not_waited_for_twice() -> None:
    """A queue brings it to whoever is free; that one need not begin its wait anew."""
    world = World()
    intake, worker = Process(world, "intake"), Process(world, "worker")
    await intake.says("a #t1;", album="7")
    world.clock.advance(1.5)
    assert await worker.works(calls=1)
    assert len(world.shown) == 1


async def test_a_late_member_of_an_album_joins_the_turn_of_another_process() -> None:
    world = World()
    intake, worker = Process(world, "intake"), Process(world, "worker")
    world.hold("#t1")
    await intake.says("a #t1;", album="7")
    working = asyncio.ensure_future(worker.works())
    await settle()
    world.clock.advance(1.5)
    await settle(40)
    await intake.says("b #t2;", album="7")
    world.clock.advance(READING)
    await settle(40)
    world.release()
    await passing(world, working)
    assert len(world.shown) == 1 and "#t1 #t2" in world.shown[0].text


# ---------------------------------------------------------------------- what is kept beside


async def test_what_was_set_aside_by_one_is_said_by_another() -> None:
    world = World()
    left, right, worker = (Process(world, name) for name in ("left", "right", "worker"))
    for process in (left, right, worker):
        await process.conversations.open()
    await left.says("hello #t1;")
    # Killed in between: set aside, and not told.
    await left.conversations._untold.add(KEY, "That could not be read.")
    await world.store.set_aside(SessionRef(KEY))
    await right.says("/id")
    assert await worker.works()
    assert world.shown[0].text == "That could not be read." and len(world.shown) == 2


async def test_what_was_set_aside_by_one_that_died_is_said_although_nobody_writes() -> None:
    world = World()
    left, worker = Process(world, "left"), Process(world, "worker")
    await worker.conversations.open()
    await left.says("hello #t1;")
    await left.conversations._untold.add(KEY, "That could not be read.")
    await world.store.set_aside(SessionRef(KEY))
    assert await worker.works()
    assert [each.text for each in world.shown] == ["That could not be read."]


async def test_a_message_for_a_chat_that_another_process_has_moved_goes_on_there() -> None:
    world = World()
    left, right, worker = (Process(world, name) for name in ("left", "right", "worker"))
    await left.says("hello #t1;")
    await left.conversations.accept(world.inbound("test:2", kind="moved"))
    late = world.inbound("and #t2;")
    with pytest.raises(StoreUnavailable, match="moving"):
        await right.conversations.accept(late)
    assert isinstance(await right.conversations.accept(late), Accepted)
    assert await stored(world) is None
    assert await worker.works("test:2")
    assert [each.text.split(" !")[0] for each in world.shown] == ["#t1 #t2"]


async def test_a_move_that_a_dead_process_has_begun_is_done_by_another() -> None:
    world = World()
    left, right = Process(world, "left"), Process(world, "right")
    await left.says("hello #t1;", "test:1/7")
    left.stops = lambda what: what == "before move"
    moving = asyncio.ensure_future(left.conversations.accept(world.inbound("test:2", kind="moved")))
    await settle()
    assert left.stopped
    assert await right.works("test:1")
    assert await stored(world, "test:2/7") is not None and right.submitted == ["test:2/7"]
    moving.cancel()
    await asyncio.gather(moving, return_exceptions=True)


async def test_a_conversation_that_moves_away_under_a_turn_goes_on_elsewhere() -> None:
    world = World()
    worker, intake, other = (Process(world, name) for name in ("worker", "intake", "other"))
    working = await running(world, worker, intake)
    await intake.conversations.accept(world.inbound("test:2", kind="moved"))
    world.clock.advance(READING)
    await settle(40)
    assert working.done() and not world.shown
    world.release()
    assert await other.works("test:2")
    assert len(world.shown) == 1
    # What the model was asked for in vain is known, and names nobody.
    sums = await world.store.usage.sums(("key",))
    assert {each.key: each.calls for each in sums} == {"": 1, "test:2": 2}


async def test_a_conversation_that_two_cannot_read_is_set_aside_once() -> None:
    world = World()
    left = Process(world, "left")
    await left.says("hello #t1;")
    # It has met what another one has set aside since: what it finds now has begun anew.
    await left.conversations._set_aside(KEY, SnapshotUnreadable("damaged"), 0)
    assert await stored(world) is not None


async def test_forgetting_ends_a_turn_of_another_process() -> None:
    world = World()
    worker, intake = Process(world, "worker"), Process(world, "intake")
    working = await running(world, worker, intake)
    await intake.says(f"/forget {phrases.FORGET_YES}", "test:2")
    world.clock.advance(READING)
    await settle(40)
    assert working.done() and await stored(world) is None
    world.release()
    await settle(40)
    assert all("#t1" not in each.text for each in world.shown)
