"""A budget that several processes spend from: together no more than one alone."""

from __future__ import annotations

import asyncio

import pytest

from core.budget import Budget, Crowded, Left, Limit
from core.errors import BudgetReached, StoreUnavailable
from core.ledger import PREFIX, TERM_MS, Ledger, Reservation
from core.snapshot import Usage
from core.spending import Spending
from core.store import BotStore, SessionRef
from core.usage import Spent
from stores.memory import MemoryStore
from stores.postgres import PostgresStore
from tests.core.fakes import FakeClock, settle
from tests.core.sharing import KEY, Process, World, passing
from tests.faults.faulty_store import Call, Fault, FaultyStore, Kind
from tests.postgres import fresh_url

DAY = 86_400
CALLS = range(8)
ALL = Limit("all", "day", "tokens", 100)
ANN = "test:ann"


def ledger(store: BotStore, clock: FakeClock, *limits: Limit) -> Ledger:
    return Ledger(Budget(clock, limits or (ALL,)), store.notes, store.usage)


async def take(book: Ledger, call: str, tokens: int = 10, **given: str) -> Reservation:
    return await book.reserve(call, given.get("key", KEY), ANN, 0, tokens, given.get("dead"))


async def spent(book: Ledger, key: str = KEY) -> list[int]:
    await book.settled()
    return [left.spent for left in await book.left(key, ANN)]


async def answer_all(store: BotStore) -> None:
    """Four processes, each with eight calls to make, and a budget for ten of them all."""
    clock = FakeClock()
    books = [ledger(store, clock) for _ in range(4)]
    paid: list[str] = []

    async def ask(book: Ledger, call: str) -> None:
        while True:
            try:
                held = await take(book, call)
                break
            except BudgetReached:
                return
            except Crowded:
                await asyncio.sleep(0.001)
        paid.append(call)
        await asyncio.sleep(0)
        book.settle(held, 0, 10)

    await asyncio.gather(
        *(
            ask(book, f"e{number}.{call}/1")
            for number, book in enumerate(books)
            for call in range(8)
        )
    )
    assert len(paid) == 10
    for book in books:
        assert await spent(book) == [100]


async def test_many_processes_spend_what_there_is_and_no_more() -> None:
    await answer_all(MemoryStore())


async def test_so_they_do_on_postgresql() -> None:
    async with PostgresStore(fresh_url(), shared=True) as store:
        await answer_all(store)


async def test_what_is_held_elsewhere_is_in_the_way() -> None:
    store, clock = MemoryStore(), FakeClock()
    here, there = ledger(store, clock), ledger(store, clock)
    held = await take(here, "a/1", 60)
    with pytest.raises(Crowded):
        await take(there, "b/1", 60)
    here.settle(held, 0, 30)
    assert await spent(here) == [30] == await spent(there)
    await take(there, "b/1", 60)
    with pytest.raises(BudgetReached):
        await take(here, "c/1", 71)


async def test_what_a_dead_process_held_counts_as_spent() -> None:
    store, clock = MemoryStore(), FakeClock()
    dead, heir, other = (ledger(store, clock) for _ in range(3))
    late = await take(dead, "run1/1", 60)
    with pytest.raises(Crowded):
        await take(other, "b/1", 60)
    # Whoever goes on with its turn says that it is dead.
    with pytest.raises(BudgetReached):
        await take(heir, "run2/1", 60, dead="run1")
    with pytest.raises(BudgetReached):
        await take(other, "b/1", 60)
    # It was not, and tells what it came to.
    dead.settle(late, 0, 10)
    assert await spent(dead) == [10]


async def test_nobody_waits_for_long_for_a_process_that_nobody_goes_on_with() -> None:
    store, clock = MemoryStore(), FakeClock()
    dead, other = ledger(store, clock), ledger(store, clock)
    late = await take(dead, "run1/1", 60)
    clock.advance(TERM_MS / 1000)
    with pytest.raises(BudgetReached):
        await take(other, "b/1", 60)
    await take(other, "b/1", 40)
    dead.settle(late, 0, 20)
    assert await spent(dead) == [60]


async def test_what_was_used_before_there_was_a_ledger_counts() -> None:
    store, clock = MemoryStore(), FakeClock()
    row = Spent("e", 1, clock.now(), "m", Usage(30, 12), 5, sender=ANN)
    await store.usage.add([(KEY, row)])
    limits = (ALL, Limit("sender", "day", "tokens", 50), Limit("chat", "day", "money", 50))
    book = ledger(store, clock, *limits)
    assert await spent(book) == [42, 42, 5]
    with pytest.raises(BudgetReached, match="sender"):
        await take(book, "a/1", 9)
    # What was held of the first limit is free again.
    assert await spent(book) == [42, 42, 5]


async def test_a_period_ends() -> None:
    store, clock = MemoryStore(), FakeClock()
    book = ledger(store, clock)
    first, late = await take(book, "a/1", 50), await take(book, "b/1", 50)
    book.settle(first, 0, 50)
    await book.settled()
    clock.advance(DAY)
    await take(book, "c/1", 100)
    book.settle(late, 0, 50)  # of the day before
    assert await spent(book) == [100]
    clock.advance(DAY)
    await ledger(store, clock).open()
    assert [name async for name in store.notes.names()] == []


async def test_a_chat_that_moves_takes_along_what_it_has_spent() -> None:
    store, clock = MemoryStore(), FakeClock()
    book = ledger(store, clock, Limit("chat", "day", "tokens", 100), ALL)
    book.settle(await take(book, "a/1", 30), 0, 30)
    await take(book, "b/1", 20)
    await book.settled()
    for _ in range(2):
        await book.move(KEY, "test:2")
    assert await spent(book, "test:2") == [50, 50]
    assert await spent(book) == [0, 50]


async def test_no_note_says_who_is_meant() -> None:
    store, clock = MemoryStore(), FakeClock()
    book = ledger(store, clock, Limit("sender", "day", "tokens", 100))
    await take(book, "a/1")
    (name,) = [name async for name in store.notes.names()]
    assert name.startswith(PREFIX) and "ann" not in name


async def test_what_the_store_does_not_take_is_written_later() -> None:
    down = False
    disk, clock = MemoryStore(), FakeClock()

    def plan(call: Call) -> Fault | None:
        return Fault(Kind.FULL) if down else None

    book = ledger(FaultyStore(disk, plan), clock)
    held = await take(book, "a/1", 60)
    down = True
    book.settle(held, 0, 10)
    await book.settled()
    with pytest.raises(StoreUnavailable):
        await take(book, "b/1")
    down = False
    assert await spent(book) == [10]


# ---------------------------------------------------------------------- whole turns


def spending(world: World, tokens: int) -> Spending:
    limit = Limit("all", "day", "tokens", tokens)
    return Spending(world.clock, budget=Budget(world.clock, (limit,)), quiet=True)


def asks(what: str) -> bool:
    return what == "ask"


async def most_of_a_call() -> int:
    """What one question of these tests reserves."""
    world = World()
    probe = Process(
        world, "probe", spending=spending(world, 10**9), stops=lambda what: what == "ask"
    )
    await probe.says("hello #t1;")
    working = asyncio.ensure_future(probe.works())
    await settle(80)
    other = Process(world, "other", spending=spending(world, 10**9))
    (left,) = await other.conversations._spending.left(KEY, None)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    assert isinstance(left, Left)
    return left.spent


async def test_workers_answer_as_often_as_there_is_money_for() -> None:
    """Three workers, fifteen chats, a budget for ten answers; one worker dies as it asks."""
    world = World()
    each = 18  # tokens of an answer
    most = await most_of_a_call()
    # The dead one's call counts as the most that it can have been.
    enough = most + 8 * each + most
    workers = [
        Process(world, f"worker {number}", spending=spending(world, enough)) for number in range(3)
    ]
    keys = [f"test:{number:02}" for number in range(1, 16)]
    for key in keys:
        await workers[0].says("hello #t1;", key)
    workers[2].stops = asks
    dying = asyncio.ensure_future(workers[2].works(keys[0]))
    await settle(80)
    assert workers[2].stopped
    working = [
        asyncio.ensure_future(workers[number % 2].works(key)) for number, key in enumerate(keys)
    ]
    await passing(world, *working)
    answered = [shown for shown in world.shown if "!a" in shown.text]
    assert world.asked == len(answered) == 9  # and the one that was asked for by the dead
    assert len(world.shown) == 15
    sums = await world.store.usage.sums()
    assert sums[0].usage.tokens == most + 9 * each
    # It was not dead, and tells what its call came to.
    workers[2].stops = lambda what: False
    workers[2].go_on()
    await passing(world, dying)
    assert len(world.shown) == 15
    (left,) = await workers[0].conversations._spending.left(KEY, None)
    assert left.spent == 10 * each == (await world.store.usage.sums())[0].usage.tokens


async def test_a_conversation_that_moves_takes_along_what_it_may_not_spend_again() -> None:
    world = World()

    def of_a_chat() -> Spending:
        limit = Limit("chat", "day", "tokens", 10**6)
        return Spending(world.clock, budget=Budget(world.clock, (limit,)), quiet=True)

    worker = Process(world, "worker", spending=of_a_chat())
    await worker.says("hello #t1;")
    await passing(world, asyncio.ensure_future(worker.works()))
    (before,) = await worker.conversations._spending.left(KEY, None)
    # Something was spent under the new key before, in the second case.
    for there in (0, 18):
        old, new = (KEY, "test:2") if there == 0 else ("test:2", "test:3")
        if there:
            await worker.says("hello #t2;", new)
            await passing(world, asyncio.ensure_future(worker.works(new)))
        await worker.says(new, old, kind="moved")
        other = Process(world, "other", spending=of_a_chat())
        (after,) = await other.conversations._spending.left(new, None)
        (nothing,) = await other.conversations._spending.left(old, None)
        assert (before.spent, after.spent, nothing.spent) == (18, 18 + there, 0)


async def test_a_reservation_is_kept_before_the_model_is_asked() -> None:
    world = World()
    worker = Process(
        world, "worker", spending=spending(world, 10**6), stops=lambda what: what == "ask"
    )
    await worker.says("hello #t1;")
    working = asyncio.ensure_future(worker.works())
    await settle(80)
    (row,) = await world.store.usage.sums()
    assert row.estimated == 1
    (left,) = await Process(
        world, "other", spending=spending(world, 10**6)
    ).conversations._spending.left(KEY, None)
    assert left.spent == row.usage.tokens
    snapshot = await world.store.load(SessionRef(KEY))
    assert snapshot is not None and snapshot.turn is not None
    worker.stops = lambda what: False
    worker.go_on()
    await passing(world, working)
    assert (await world.store.usage.sums())[0].estimated == 0
