"""What turns spend: rows of each call, reservations, and what is said when a budget is used up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from core import answering, changes
from core.adapter import Accepted
from core.agent import Agent
from core.budget import Budget, Limit
from core.claude import Claude
from core.clock import SystemClock
from core.conversations import Conversations
from core.engine import EmbeddedEngine
from core.errors import Fenced, ModelRejected, ModelUnavailable
from core.gate import Gate
from core.messages import Message, encode_blocks, text_block
from core.model import Request, ToolCall
from core.prices import Price, Prices
from core.session import Session
from core.snapshot import Snapshot
from core.spending import DOCUMENT_TOKENS, IMAGE_TOKENS, Spending, UnsavedRows, most_sent
from core.store import SessionRef
from core.tools import tool
from core.usage import UNIT, Spent, Sum, Usage
from playground.claude import Claude as StandIn
from playground.claude_answers import Say
from stores.memory import MemoryStore
from stores.sqlite import SQLiteStore
from tests.core.fakes import USAGE, FakeClock, ScriptedModel, calls, settle
from tests.core.test_conversations import KEY, Held, House, Screen

PRICES = Prices([Price("m", 0, 0, 1, 10, 2, 4, 0, 0)])
COST = PRICES.cost("m", USAGE, 0)
LIMIT = Limit("all", "day", "tokens", 1_000_000)


@tool(repeatable=True)
async def echo(text: str) -> str:
    """Says the same."""
    return text


ECHO = ToolCall(id="c1", name="echo", input={"text": "hi"})


class Counting(MemoryStore):
    """How often it was saved to, and what each save has taken along."""

    def __init__(self) -> None:
        super().__init__()
        self.saves: list[tuple[Spent, ...]] = []

    async def save(self, ref: SessionRef, snapshot: Snapshot, *, replaces: int | None) -> None:
        await super().save(ref, snapshot, replaces=replaces)
        self.saves.append(snapshot.spent)


@asynccontextmanager
async def paying(
    *script: Any, limits: tuple[Limit, ...] = (), store: MemoryStore | None = None, **agent: Any
) -> AsyncIterator[House]:
    """A bot that counts what it spends."""
    given: dict[str, Any] = {"model": "x/m", "tools": (echo,), "max_tokens": 100}
    bot = Agent(**(given | agent))
    house = House(*script, store=store or Counting(), agent=bot)
    spending = Spending(house.clock, PRICES, Budget(house.clock, limits))
    # Made anew: a House knows no spending.
    house.conversations = Conversations(
        house.store,
        bot,
        house.model,
        (house.screen,),
        house.gate,
        house.clock,
        house.engine.submit,
        spending=spending,
    )
    await house.conversations.open()
    async with house:
        yield house


def saves(house: House) -> list[tuple[Spent, ...]]:
    assert isinstance(house.store, Counting)
    return house.store.saves


async def total(house: House) -> Sum:
    return ([*await house.store.usage.sums(), Sum()])[0]


# ---------------------------------------------------------------------- rows


@pytest.mark.parametrize("limits", [(), (LIMIT,)], ids=["plain", "with a budget"])
async def test_an_ordinary_turn_keeps_its_four_saves(limits: tuple[Limit, ...]) -> None:
    async with paying("fine", limits=limits) as house:
        await house.says("hi")
        accepted, started, committed, delivered = saves(house)
    assert accepted == delivered == ()
    [row] = committed
    assert (row.usage, row.cost, row.estimated, row.call) == (USAGE, COST, False, 1)
    assert (row.model, row.sender) == ("m", "test:ada")
    # Before the call, the most that it can come to.
    assert [(each.execution, each.estimated) for each in started] == (
        [(row.execution, True)] if limits else []
    )
    assert await total(house) == Sum(calls=1, usage=USAGE, cost=COST or 0)


@pytest.mark.parametrize("limits", [(), (LIMIT,)], ids=["plain", "with a budget"])
async def test_a_tool_round_keeps_its_two_saves(limits: tuple[Limit, ...]) -> None:
    async with paying(calls(ECHO), "done", limits=limits) as house:
        await house.says("hi")
        _, _, answered, results, committed, _ = saves(house)
    assert [(row.call, row.estimated) for row in answered] == [(1, False)]
    assert [(row.call, row.estimated) for row in results] == ([(2, True)] if limits else [])
    assert [(row.call, row.estimated) for row in committed] == [(2, False)]
    assert (await total(house)).calls == 2


async def test_a_reservation_is_durable_before_its_call_and_outlives_a_crash() -> None:
    held, store = Held(), Counting()
    async with paying(held, limits=(LIMIT,), store=store) as house:
        await house.says("hi")
        assert held.asked.is_set()
        before = await total(house)
        assert (before.calls, before.estimated) == (1, 1)
        assert before.usage.output_tokens == 100
        assert before.usage.prompt > 1000
    # Killed. The next process begins anew: what was reserved is spent, and again each time.
    limit = replace(LIMIT, amount=3 * before.usage.tokens)
    for number in (2, 3):
        held = Held()
        async with paying(held, limits=(limit,), store=store) as house:
            await settle(100)
            assert (await total(house)).estimated == number
    async with paying(limits=(limit,), store=store) as house:
        await settle(200)
        assert (await total(house)).estimated == 3
        assert house.model.requests == []
        assert len(house.screen.shown) == 1


@pytest.mark.parametrize("limits", [(), (LIMIT,)], ids=["plain", "with a budget"])
async def test_what_is_stopped_counts_as_its_estimate(limits: tuple[Limit, ...]) -> None:
    held = Held()
    async with paying(held, limits=limits) as house:
        await house.says("hi")
        await house.says("/stop")
        assert (await house.snapshot()).turn is None
        one = await total(house)
    assert (one.calls, one.estimated, one.usage.output_tokens) == (1, 1, 100)


@pytest.mark.parametrize("limits", [(), (LIMIT,)], ids=["plain", "with a budget"])
async def test_an_answer_that_nobody_waits_for_any_more_is_counted(
    limits: tuple[Limit, ...],
) -> None:
    store = Counting()

    async def reset(request: Request) -> str:
        # Somebody else has begun the conversation anew meanwhile, so that no commit applies.
        stored = await store.load(SessionRef(KEY))
        assert stored is not None
        anew = replace(changes.reset(stored, "anew"), revision=stored.revision + 1)
        await store.save(SessionRef(KEY), anew, replaces=stored.revision)
        return "late"

    async with paying(reset, limits=limits, store=store) as house:
        await house.says("hi")
        assert house.screen.shown == []
        assert await total(house) == Sum(calls=1, usage=USAGE, cost=COST or 0)


@pytest.mark.parametrize("limits", [(), (LIMIT,)], ids=["plain", "with a budget"])
async def test_what_was_spent_moves_with_its_chat(limits: tuple[Limit, ...]) -> None:
    cut_off = ModelUnavailable("cut off", usage=Usage(10, 3))
    async with paying(cut_off, "fine", limits=limits) as house:
        await house.says("hi")
        await house.says("test:91", kind="moved")
        for _ in range(3):
            house.clock.advance(10)
            await settle(200)
        assert house.screen.shown == ["fine"]
        [sum] = await house.store.usage.sums(key="test:91")
        assert sum.calls == 2 and sum.usage.input_tokens == 10 + USAGE.input_tokens


@pytest.mark.parametrize("limits", [(), (LIMIT,)], ids=["plain", "with a budget"])
async def test_every_attempt_is_a_call(limits: tuple[Limit, ...]) -> None:
    script = (
        ModelUnavailable("529 overloaded", usage=Usage()),
        ModelUnavailable("cut off", usage=Usage(10, 3)),
        "fine",
    )
    async with paying(*script, limits=limits) as house:
        await house.says("hi")
        house.clock.advance(10)
        await settle(100)
        house.clock.advance(10)
        await settle(200)
        assert house.screen.shown == ["fine"]
        assert await total(house) == Sum(
            calls=3, estimated=1, usage=USAGE + Usage(10, 3), cost=(COST or 0) + 40
        )


async def test_an_apology_is_counted() -> None:
    failed = ModelUnavailable("silence", 1_000)
    async with paying(failed, "fine") as house:
        await house.says("hi")
        one = await total(house)
        assert (one.calls, one.estimated) == (1, 1)
        assert [len(rows) for rows in saves(house)] == [0, 0, 1, 0]


async def test_what_was_refused_costs_nothing() -> None:
    async with paying(ModelRejected("400"), limits=(LIMIT,)) as house:
        await house.says("hi")
        assert await total(house) == Sum(calls=1)


async def test_a_model_without_a_price_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="chinwag"):
        async with paying("one", "two", model="x/unknown") as house:
            await house.says("hi")
            await house.says("hi")
            assert await total(house) == Sum(calls=2, unpriced=2, usage=USAGE + USAGE)
    [record] = [each for each in caplog.records if each.message == "usage.unpriced"]
    assert vars(record)["event"]["model"] == "unknown"


async def test_agents_that_are_asked_spend_from_the_same_purse() -> None:
    other = Agent(name="expert", model="x/m", max_tokens=50)
    ask = ToolCall(id="c1", name="expert", input={"request": "why?"})
    async with paying(calls(ask), "because", "so", agents=(other,), limits=(LIMIT,)) as house:
        await house.says("hi")
        assert house.screen.shown == ["so"]
        assert (await total(house)).calls == 3
        # One save more: for the call of the other one nothing was reserved ahead.
        assert len(saves(house)) == 7


async def test_a_chat_that_moves_takes_along_what_is_not_saved_yet() -> None:
    rows = UnsavedRows()
    row = Spent("e1", 1, 0, "m", Usage(1))
    rows.add("t:1", row)
    rows.add("t:1/7", row)
    rows.add("t:11", row)
    rows.move("t:1", "t:2")
    assert [rows.of(key) for key in ("t:1", "t:2", "t:2/7", "t:11")] == [(), (row,), (row,), (row,)]
    later = replace(row, usage=Usage(2))
    rows.add("t:2", later)
    rows.saved("t:2", [row])
    assert rows.of("t:2") == (later,)
    rows.saved("t:2", [later])
    rows.saved("t:2", [later])
    assert rows.of("t:2") == ()


@pytest.mark.parametrize("limits", [(), (LIMIT,)], ids=["plain", "with a budget"])
async def test_the_command(limits: tuple[Limit, ...]) -> None:
    async with paying("fine", limits=limits) as house:
        await house.says("hi")
        await house.says("/usage")
        told = house.screen.shown[-1]
        assert f"today: 0.0000 USD for {USAGE.tokens} tokens" in told
        assert ("All together, today: 999,982 tokens of 1,000,000 tokens" in told) == bool(limits)
        # A conversation may begin with it; and it was no question to the model.
        await house.says("/usage", key="test:2")
        assert "since it began: 0 tokens" in house.screen.shown[-1]
        assert len(house.model.requests) == 1


# ---------------------------------------------------------------------- what a request comes to


def request_of(*blocks: dict[str, object]) -> int:
    message = Message(seq=1, role="user", blocks=encode_blocks(blocks), at=0)
    return most_sent((), (), (message,))


def test_a_token_is_a_byte_at_least() -> None:
    short, long = (request_of(text_block("é" * length)) for length in (1, 1001))
    assert long - short == 2000
    system = most_sent(("be brief",), (b"{}",), ())
    assert system - most_sent((), (), ()) == 10


def test_an_image_is_not_counted_by_its_bytes() -> None:
    def image(**source: object) -> dict[str, object]:
        return {"type": "image", "source": {"type": "base64", **source}}

    plain = request_of(image(data=""))
    assert request_of(image(data="x" * 100_000)) == plain
    assert IMAGE_TOKENS < plain < IMAGE_TOKENS + 2000
    inside: dict[str, object] = {
        "type": "tool_result",
        "content": [image(data="x" * 1000), {"type": "document", "source": {"id": "sha256:1"}}],
        "source": 3,
    }
    files = IMAGE_TOKENS + DOCUMENT_TOKENS
    assert files < request_of(inside) < files + 2000


# ---------------------------------------------------------------------- a budget is used up


async def test_it_is_said_once_and_then_in_few_words() -> None:
    limit = Limit("sender", "day", "tokens", 1_900)
    async with paying("fine", "good morning", limits=(limit,)) as house:
        await house.says("hi")
        await house.says("x" * 900)
        await house.says("x" * 900)
        fine, first, again = house.screen.shown
        assert fine == "fine"
        assert "used up what you may spend with me today" in first
        assert "00:00 UTC on 16 January" in first
        assert again == "I may still spend nothing before 00:00 UTC on 16 January."
        # Nothing was asked, nothing waits, and what was said before is as it was.
        assert len(house.model.requests) == 1
        assert not (await house.snapshot()).unfinished
        assert await house.history() == [("user", "hi"), ("assistant", "fine")]
        assert (await total(house)).calls == 1
        # Tomorrow is another day.
        house.clock.advance(86_400)
        await house.says("hi")
        assert house.screen.shown[-1] == "good morning"


async def test_another_limit_is_another_sentence() -> None:
    limits = (Limit("sender", "day", "tokens", 1_150), Limit("chat", "ever", "tokens", 1_200))
    async with paying(limits=limits) as house:
        await house.says("x" * 500)
        await house.says("x" * 500)
        house.clock.advance(86_400)
        await house.says("x" * 500)
        first, again, _ = house.screen.shown
        assert first != again


async def test_a_budget_that_ends_on_the_way_leaves_a_valid_history() -> None:
    limit = Limit("chat", "day", "tokens", 2_000)
    greedy = replace(calls(ECHO, text="Let me see."), usage=Usage(0, 900))
    async with paying(greedy, "fine", limits=(limit,)) as house:
        await house.says("hi")
        [told] = house.screen.shown
        assert told.startswith("Let me see.\n\nI had to stop here. This conversation has used up")
        history = await house.history()
        assert [role for role, _ in history] == ["user", "assistant", "user", "assistant"]
        assert history[-1][1].startswith("I had to stop here.")
        assert not (await house.snapshot()).unfinished
        house.clock.advance(86_400)
        await house.says("go on")
        assert house.screen.shown[-1] == "fine"


async def test_a_model_that_nobody_knows_the_price_of_is_not_used_on_a_budget() -> None:
    async with paying(limits=(Limit("all", "day", "money", UNIT),), model="x/unknown") as house:
        await house.says("hi")
        assert "what it costs" in house.screen.shown[0]
        assert house.model.requests == []


async def test_who_finds_no_room_just_now_waits() -> None:
    limit = Limit("all", "day", "tokens", 2_000)
    first = Held("first")
    async with paying(first, "second", limits=(limit,)) as house:
        await house.says("hi", key="test:1")
        await house.says("hi", key="test:2")
        assert len(house.model.requests) == 1
        first.open.set()
        await settle(300)
        assert sorted(house.screen.shown) == ["first", "second"]


async def test_nothing_stays_reserved() -> None:
    store = Counting()
    async with paying(calls(ECHO), "fine", limits=(LIMIT,), store=store) as house:
        await house.says("hi")
        left = house.conversations._spending.budget.left(KEY, None)
    assert [each.spent for each in left] == [2 * USAGE.tokens]


async def test_a_turn_that_fails_before_its_call_gives_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with paying("unused", limits=(LIMIT,)) as house:

        def broken(*_: object) -> None:
            raise RuntimeError("an adapter's mistake")

        monkeypatch.setattr(house.screen, "live", broken)
        await house.says("hi")
        assert await total(house) == Sum(calls=1)
        assert house.conversations._spending.budget.left(KEY, None)[0].spent == 0


async def test_what_is_reserved_makes_way_for_a_larger_request() -> None:
    clock = FakeClock()
    spending = Spending(clock, PRICES, Budget(clock, [LIMIT]))
    purse = spending.purse(KEY, "e1")
    agent = Agent(model="x/m", max_tokens=100)
    purse.ahead(agent, ())
    purse.ahead(agent, ())
    larger = Request(model="m", system=("x" * 5000,), messages=(), max_tokens=100)
    reserved = await purse.reserve(larger)
    assert [(row.call, row.estimated) for row in spending.rows.of(KEY)] == [(1, False), (2, True)]
    reserved.settle(USAGE)
    purse.close()
    assert spending.budget.left(KEY, None)[0].spent == USAGE.tokens
    assert purse.cost == COST


async def test_a_reservation_that_could_not_be_saved_is_none() -> None:
    clock = FakeClock()
    spending = Spending(clock, PRICES, Budget(clock, [LIMIT]))
    purse = spending.purse(KEY, "e1")

    async def save() -> None:
        raise Fenced("somebody else answers")

    purse.save = save
    with pytest.raises(Fenced):
        await purse.reserve(Request(model="m", system=(), messages=(), max_tokens=100))
    assert spending.budget.left(KEY, None)[0].spent == 0


async def test_a_cost_that_is_not_known_is_none() -> None:
    purse = Spending(FakeClock(), PRICES, quiet=True).purse(KEY, "e1")
    assert purse.cost == 0
    request = Request(model="m", system=(), messages=(), max_tokens=100)
    (await purse.reserve(request)).settle(USAGE)
    (await purse.reserve(replace(request, model="unknown"))).settle(USAGE)
    assert purse.cost is None


async def test_of_many_conversations_the_last_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answering, "TOLD", 1)
    async with paying(limits=(Limit("all", "ever", "tokens", 1),)) as house:
        for key in ("test:1", "test:1", "test:2", "test:1"):
            await house.says("hi", key=key)
    first, again, *anew = house.screen.shown
    assert anew == [first, first] != [again, again]


# ---------------------------------------------------------------------- in a library


async def test_a_run_says_what_it_cost_and_its_store_keeps_it() -> None:
    store = MemoryStore()
    agent = Agent(model="anthropic/claude-sonnet-5-5", tools=(echo,))
    model = ScriptedModel(calls(ECHO), "done")
    session = await Session.start(agent, store=store, key="user:42", client=model)
    reply = await session.run("hi", sender="user:42")
    # 10 new at 2, 5 out at 10, 2 into a cache at 2.50, 1 out of one at 0.10, a million; twice
    assert reply.cost == Decimal("0.0001502")
    assert session.snapshot.spent == ()
    [one] = await store.usage.sums(("key", "sender", "model"))
    assert (one.key, one.sender, one.model) == ("user:42", "user:42", "claude-sonnet-5-5")
    assert (one.calls, one.usage) == (2, USAGE + USAGE)
    assert Decimal(one.cost) / UNIT == reply.cost


async def test_a_run_that_failed_is_counted_with_the_next(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    model = ScriptedModel(ModelUnavailable("cut off", 1_000, Usage(7, 3)), "fine")
    session = await Session.start(Agent(model="x"), store=store, key="k", client=model)
    with pytest.raises(ModelUnavailable):
        await session.run("hi")
    assert await store.usage.sums() == []
    reply = await session.run("hi")
    assert reply.cost is None
    [one] = await store.usage.sums()
    assert (one.calls, one.estimated, one.unpriced) == (2, 1, 2)
    assert not [each for each in caplog.records if each.message == "usage.unpriced"]


# ---------------------------------------------------------------------- many at once


async def test_fifty_turns_at_once_on_a_budget_for_ten(tmp_path: Path) -> None:
    """Over a real socket and a real database: whoever asks first is paid, nobody is lost."""
    agent = Agent(model="anthropic/claude-sonnet-5-5", max_tokens=2_100)
    async with StandIn() as service, SQLiteStore(tmp_path / "chinwag.db") as store:
        service.brain = lambda body: Say("word " * 1_600, deltas=("word " * 1_600,))
        client = Claude("key", service.url)
        screen = Screen()

        async def bot(*limits: Limit) -> Conversations:
            clock = SystemClock()
            spending = Spending(clock, budget=Budget(clock, limits))
            engine = EmbeddedEngine(clock)
            gate = Gate(store.notes, clock, open_to_all=True, per_minute=1_000)
            conversations = Conversations(
                store, agent, client, (screen,), gate, clock, engine.submit, spending=spending
            )
            await conversations.open()
            return conversations

        def hello(number: int) -> Any:
            return House().inbound(f"hello {number:03}", id=f"u{number}", key=f"test:{number:03}")

        async def turn(conversations: Conversations, number: int) -> None:
            assert await conversations.accept(hello(number)) == Accepted()
            await conversations.work(f"test:{number:03}")

        await turn(await bot(), 100)
        [one] = await store.usage.sums()
        assert one.cost > 0
        worst = Spending(SystemClock()).prices.worst(
            "claude-sonnet-5-5", 2_000, agent.max_tokens, SystemClock().now()
        )[1]
        assert worst is not None
        # What was spent already, ten more, and what an eleventh must leave free beside its cost.
        limit = Limit("all", "day", "money", 10 * one.cost + worst)
        conversations = await bot(limit)
        await asyncio.gather(*(turn(conversations, number) for number in range(50)))
        await client.close()

        paid = [text for text in screen.shown if text.startswith("word")]
        refused = [text for text in screen.shown if "I have used up what I may spend" in text]
        assert len(service.requests) == len(paid)
        assert len(paid) - 1 == 10
        assert len(paid) + len(refused) == 51
        [all_of_them] = await store.usage.sums()
        assert all_of_them.cost <= limit.amount
        assert all_of_them.calls == len(paid)
        assert all_of_them.estimated == 0
