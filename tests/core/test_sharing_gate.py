"""Who may speak, and how fast anything leaves, where several processes share a database."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from core import access
from core.adapter import Accepted, Duplicate, Refused
from core.agent import Agent
from core.answering import NO_MODEL_WAIT
from core.approvals import data
from core.errors import TryLater
from core.gate import CODE, OWNER, SOON, SOON_FOR_STRANGERS
from core.memory import BOT_MEMORY
from core.messages import Sender
from core.pace import Pace
from core.snapshot import Snapshot
from core.store import SessionRef
from core.tenure import READING
from core.tools import ToolContext, tool
from tests.core.fakes import FakeClock, MemoryNotes, settle
from tests.core.sharing import ADA, KEY, Process, World, passing

BOB = Sender("test:bob", "Bob")


def closed(world: World, name: str, **given: Any) -> Process:
    return Process(world, name, open_to_all=False, **given)


async def owned(world: World, *names: str) -> list[Process]:
    await world.store.notes.put(OWNER, ADA.id.encode(), was=None)
    processes = [closed(world, name) for name in names]
    for process in processes:
        assert await process.gate.open() is None
        await process.conversations.open()
    return processes


async def decide(world: World, verdict: access.Verdict) -> None:
    asking = await access.ask(world.store.notes, world.clock, BOB)
    assert asking is not None
    assert await access.decide(world.store.notes, world.clock, asking.token, verdict)


async def test_who_was_let_in_by_one_process_may_speak_to_another() -> None:
    world = World()
    left, right = await owned(world, "left", "right")
    assert isinstance(await left.says("hello #t1;", sender=BOB), Refused)
    await decide(world, "allow")
    world.clock.advance(SOON_FOR_STRANGERS)
    for process in (left, right):
        assert isinstance(await process.says("hello #t2;", sender=BOB), Accepted)


async def test_who_was_shut_out_by_one_process_is_soon_silent_in_another() -> None:
    world = World()
    (left,) = await owned(world, "left")
    await decide(world, "allow")
    world.clock.advance(SOON)
    assert isinstance(await left.says("hello #t1;", sender=BOB), Accepted)
    await access.change(
        world.store.notes,
        lambda lists: lists.having(access.Listed(BOB.id, "Bob"), "deny"),
    )
    world.clock.advance(SOON)
    assert isinstance(await left.says("hello #t2;", sender=BOB), Refused)


async def test_one_process_alone_reads_no_list_again() -> None:
    world = World()
    alone = Process(world, "alone", shared=False)
    await alone.says("hello #t1;")
    world.clock.advance(SOON)
    await alone.says("hello #t2;")
    assert "notes.get" not in alone.calls


async def test_lists_are_read_once_in_two_seconds_however_many_write() -> None:
    world = World()
    (left,) = await owned(world, "left")
    world.clock.advance(SOON)
    left.calls.clear()
    for number in range(10):
        await left.says(f"hello #t{number};", "test:1")
        world.clock.advance(SOON / 11)
    assert left.calls.count("notes.get") == 2 + 2  # and what is looked up for a first message


async def test_a_code_that_two_processes_are_told_makes_one_owner() -> None:
    for ahead in range(8):
        world = World()
        left, right, worker = (closed(world, name) for name in ("left", "right", "worker"))
        code = await left.gate.open()
        assert code is not None and await right.gate.open() == code
        pairing = world.inbound(f"/start {code}")
        first = asyncio.ensure_future(left.takes(pairing))
        await settle(ahead)
        second = asyncio.ensure_future(right.takes(pairing))
        await passing(world, first, second)
        kinds = sorted(type(each.result()).__name__ for each in (first, second))
        assert kinds == ["Accepted", "Duplicate"], ahead
        assert left.gate.owner == right.gate.owner == ADA.id
        assert await world.store.notes.get(CODE) is None
        assert await worker.works()
        assert len(world.shown) == 1


async def test_a_code_is_not_made_anew_while_somebody_becomes_the_owner() -> None:
    world = World()
    left = closed(world, "left")
    code = await left.gate.open()
    right = closed(world, "right", stops=lambda what: what == "before notes.put")
    await world.store.notes.put(CODE, None, was=str(code).encode())
    opening = asyncio.ensure_future(right.gate.open())
    await settle()
    assert right.stopped
    await world.store.notes.put(OWNER, ADA.id.encode(), was=None)
    right.stops = lambda what: False
    right.go_on()
    assert await opening is None
    assert await world.store.notes.get(CODE) is None


# ---------------------------------------------------------------------- approvals


def asking(process_world: World) -> Any:
    @tool(name="note", needs_approval=True)
    async def note(token: str, context: ToolContext) -> str:
        """Notes it."""
        process_world.ran.append(token)
        return f"noted {token}"

    return note


@pytest.mark.parametrize("sign", ["+", "-"])
async def test_a_button_pressed_at_another_process_counts_once(sign: str) -> None:
    world = World()
    agent = Agent(memory=BOT_MEMORY, tools=(asking(world),))
    left, right, worker = (
        Process(world, name, agent=agent) for name in ("left", "right", "worker")
    )
    await left.says("hello #t1 tool;")
    await worker.conversations.work(KEY)
    snapshot = await world.store.load(SessionRef(KEY))
    assert isinstance(snapshot, Snapshot) and snapshot.turn and snapshot.turn.suspended
    press = world.inbound(
        data(snapshot.turn.suspended, 0, "approved" if sign == "+" else "declined"),
        kind="decision",
        message_id="m1",
    )
    outcomes = [
        asyncio.ensure_future(process.conversations.accept(press)) for process in (left, right)
    ]
    await passing(world, *outcomes)
    kinds = {type(each.result()) for each in outcomes}
    assert kinds == {Accepted, Duplicate}
    working = asyncio.ensure_future(right.works())
    await passing(world, working)
    assert world.ran == (["#t1"] if sign == "+" else [])
    assert [each.text for each in world.shown][-1].startswith("#t1")


# ---------------------------------------------------------------------- pace


async def test_nobody_sends_into_a_penalty_that_another_process_was_told() -> None:
    world = World()
    left, right = Process(world, "left"), Process(world, "right")
    for process in (left, right):
        await process.conversations.open()
    await left.says("/id")
    left.screen.script = [TryLater(30)]
    assert not await asyncio.wait_for(left.works(calls=0), 1)
    outcome = await left.conversations.work(KEY)
    assert getattr(outcome, "seconds", 0) == 30
    outcome = await right.conversations.work(KEY)
    assert getattr(outcome, "seconds", 0) == 30 and not world.shown
    world.clock.advance(30)
    assert await right.works()
    assert len(world.shown) == 1


async def test_short_penalties_are_told_only_where_somebody_else_sends() -> None:
    clock, notes = FakeClock(), MemoryNotes()
    alone = Pace(clock, notes)
    await alone.later("test:1", 3)
    left, right = Pace(clock, notes, shared=True), Pace(clock, notes, shared=True)
    await right.refresh()
    assert right.wait("test:1") == 0
    await left.later("test:1", 3)
    await right.refresh()
    assert right.wait("test:1") == 3
    clock.advance(3)
    await right.refresh()
    assert right.wait("test:1") == 0


# ---------------------------------------------------------------------- albums


async def test_an_album_is_waited_for_once_whoever_works() -> None:
    world = World()
    left, right = Process(world, "left"), Process(world, "right")
    await left.says("a #t1;", album="7")
    outcome = await left.conversations.work(KEY)
    assert getattr(outcome, "seconds", 0) == 1
    world.clock.advance(1)
    working = asyncio.ensure_future(right.works(calls=1))
    await settle(60)
    assert world.asked == 1
    await passing(world, working)


def test_the_times_are_what_the_documents_say() -> None:
    assert (SOON, SOON_FOR_STRANGERS, READING, NO_MODEL_WAIT) == (2.0, 0.2, 2.0, 60.0)
