"""Limits: what is held, what is spent, and when there is room again."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from core import phrases
from core.budget import Budget, Crowded, Hold, Left, Limit, read_amount
from core.errors import BudgetReached
from core.phrases import Wording
from core.snapshot import Snapshot
from core.store import SessionRef
from core.usage import UNIT, Spent, Usage
from stores.memory import MemoryStore
from tests.core.fakes import FakeClock, settle

DAY = 86_400.0
KEY, ANN, BOB = "t:1", "t:42", "t:7"

SENDER = Limit("sender", "day", "tokens", 100)
CHAT = Limit("chat", "month", "tokens", 200)
ALL = Limit("all", "ever", "money", 5 * UNIT)


def spend(budget: Budget, tokens: int, *, key: str = KEY, sender: str | None = ANN) -> None:
    budget.settle(budget.reserve(key, sender, tokens, tokens), tokens, tokens)


def refused(budget: Budget, tokens: int, *, key: str = KEY, sender: str = ANN) -> BudgetReached:
    with pytest.raises(BudgetReached) as caught:
        budget.reserve(key, sender, tokens, tokens)
    return caught.value


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("5 USD", ("money", 5 * UNIT)),
        (" 0.000001 usd ", ("money", UNIT // 10**6)),
        ("1_000.5 USD", ("money", 1000 * UNIT + UNIT // 2)),
        ("200_000 tokens", ("tokens", 200_000)),
        ("1 token", ("tokens", 1)),
    ],
)
def test_amounts(text: str, amount: tuple[str, int]) -> None:
    assert read_amount(text, "USD") == amount


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("5", 'such as "5 USD" or "200_000 tokens"'),
        ("-5 USD", "such as"),
        ("five USD", "such as"),
        ("0.0000001 USD", "such as"),
        ("1.5 tokens", "a whole number of tokens"),
        ("5 EUR", "the prices are in USD; want an amount in USD or in tokens"),
    ],
)
def test_what_is_no_amount(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_amount(text, "USD")


def test_without_limits_there_is_always_room() -> None:
    budget = Budget(FakeClock())
    assert budget.reserve(KEY, ANN, None, 10**9) == Hold(())
    assert budget.left(KEY, ANN) == []


def test_what_is_held_is_not_free() -> None:
    budget = Budget(FakeClock(), [SENDER])
    first = budget.reserve(KEY, ANN, 0, 60)
    with pytest.raises(Crowded):
        budget.reserve(KEY, ANN, 0, 60)
    assert budget.left(KEY, ANN) == [Left(SENDER, 60)]
    budget.settle(first, 0, 40)
    second = budget.reserve(KEY, ANN, 0, 60)
    assert budget.left(KEY, ANN) == [Left(SENDER, 100)]
    budget.settle(second, 0, 60)
    assert refused(budget, 1).scope == "sender"


def test_a_refused_call_holds_nothing() -> None:
    budget = Budget(FakeClock(), [CHAT, SENDER])
    assert refused(budget, 150).scope == "sender"
    held = budget.reserve(KEY, BOB, 0, 100)
    with pytest.raises(Crowded):
        budget.reserve(KEY, BOB, 0, 100)
    budget.settle(held, 0, 0)
    assert budget.left(KEY, ANN) == [Left(CHAT, 0), Left(SENDER, 0)]


def test_each_sender_and_each_conversation_has_its_own() -> None:
    budget = Budget(FakeClock(), [SENDER, CHAT])
    spend(budget, 100)
    spend(budget, 100, sender=BOB)
    assert refused(budget, 1, key="t:2").scope == "sender"
    assert refused(budget, 1, sender="t:8").scope == "chat"
    spend(budget, 100, key="t:2", sender="t:8")
    # A run without a sender meets the limits of the others only.
    spend(budget, 100, key="t:2", sender=None)
    assert [left.limit for left in budget.left("t:2", None)] == [CHAT]


def test_the_same_limit_twice_is_one() -> None:
    budget = Budget(FakeClock(), [SENDER, replace(SENDER)])
    spend(budget, 60)
    assert budget.left(KEY, ANN) == [Left(SENDER, 60)]


def test_money_without_a_price_is_refused() -> None:
    budget = Budget(FakeClock(), [SENDER, ALL])
    with pytest.raises(BudgetReached) as caught:
        budget.reserve(KEY, ANN, None, 10)
    assert caught.value.unpriced
    # And what ends without one counts as what was held.
    budget.settle(budget.reserve(KEY, ANN, UNIT, 10), None, 10)
    assert budget.left(KEY, ANN) == [Left(SENDER, 10), Left(ALL, UNIT)]


def test_a_day_ends_and_there_is_room_again() -> None:
    clock = FakeClock()  # 2027-01-15, 08:00 UTC
    budget = Budget(clock, [SENDER])
    spend(budget, 100)
    reached = refused(budget, 1)
    assert reached.until == datetime(2027, 1, 16, tzinfo=UTC)
    clock.advance(DAY * 16 / 24 - 1)
    refused(budget, 1)
    clock.advance(1)
    spend(budget, 100)
    clock.jump(-86_400_000)  # somebody sets the clock back: the day does not come back
    refused(budget, 1)


def test_a_month_ends() -> None:
    clock = FakeClock()
    budget = Budget(clock, [CHAT])
    spend(budget, 200)
    assert refused(budget, 1).until == datetime(2027, 2, 1, tzinfo=UTC)
    clock.advance(17 * DAY)
    spend(budget, 200)
    assert refused(budget, 1).until == datetime(2027, 3, 1, tzinfo=UTC)


def test_days_begin_where_people_live() -> None:
    clock = FakeClock()
    clock.advance(13.5 * 3600)  # 21:30 UTC
    zone = ZoneInfo("Asia/Kolkata")
    budget = Budget(clock, [SENDER], zone)
    spend(budget, 100)
    until = refused(budget, 1).until
    assert until == datetime(2027, 1, 17, tzinfo=zone)
    assert budget.start_of("day") == datetime(2027, 1, 15, 18, 30, tzinfo=UTC).timestamp() * 1000
    assert budget.start_of("month") == datetime(2026, 12, 31, 18, 30, tzinfo=UTC).timestamp() * 1000
    assert budget.start_of("ever") == 0


def test_what_was_held_yesterday_is_not_spent_today() -> None:
    clock = FakeClock()
    budget = Budget(clock, [SENDER])
    held = budget.reserve(KEY, ANN, 0, 100)
    clock.advance(DAY)
    again = budget.reserve(KEY, ANN, 0, 100)
    budget.settle(held, 0, 100)
    assert budget.left(KEY, ANN) == [Left(SENDER, 100)]
    budget.settle(again, 0, 1)
    assert budget.left(KEY, ANN) == [Left(SENDER, 1)]


def test_whoever_is_silent_is_not_remembered() -> None:
    clock = FakeClock()
    budget = Budget(clock, [SENDER, CHAT])
    for number in range(100):
        spend(budget, 1, sender=f"t:{number}", key=f"k:{number}")
    clock.advance(DAY)
    spend(budget, 1, sender="t:5", key="k:5")
    assert len(budget._tallies) == 1 + 100


async def test_who_waits_for_room_is_woken() -> None:
    budget = Budget(FakeClock(), [SENDER])
    first = budget.reserve(KEY, ANN, 0, 100)
    waiting = [asyncio.create_task(budget.room()) for _ in range(2)]
    await settle()
    waiting[0].cancel()
    assert not waiting[1].done()
    budget.settle(first, 0, 1)
    await waiting[1]


async def test_what_was_spent_before_counts() -> None:
    clock, store = FakeClock(), MemoryStore()
    now = clock.now()
    rows = (
        Spent("e1", 1, now, "m", Usage(10), 7, sender=ANN),
        # A crash left it behind: nobody will ever say what it came to.
        Spent("e2", 1, now, "m", Usage(0, 20), 9, estimated=True, sender=ANN),
        Spent("e3", 1, now - 86_400_000, "m", Usage(100), None, sender=ANN),
        Spent("e4", 1, now + 86_400_000, "m", Usage(1), 1),
    )
    await store.save(SessionRef(KEY), started(rows), replaces=None)
    budget = Budget(clock, [SENDER, CHAT, ALL])
    await budget.open(store.usage)
    assert budget.left(KEY, ANN) == [Left(SENDER, 30), Left(CHAT, 131), Left(ALL, 17)]
    assert budget.left("t:2", BOB) == [Left(SENDER, 0), Left(CHAT, 0), Left(ALL, 17)]


def started(rows: tuple[Spent, ...]) -> Snapshot:
    return Snapshot(revision=1, epoch="e", created_at=1, updated_at=1, spent=rows)


def test_a_chat_moves_with_what_it_has_spent() -> None:
    budget = Budget(FakeClock(), [CHAT])
    spend(budget, 10, key="t:1")
    spend(budget, 20, key="t:1/7")
    spend(budget, 40, key="t:2")
    spend(budget, 80, key="t:11")
    held = budget.reserve("t:1/7", ANN, 0, 100)
    for _ in range(2):
        budget.move("t:1", "t:2")
    assert budget.left("t:2", ANN) == [Left(CHAT, 50)]
    assert budget.left("t:11", ANN) == [Left(CHAT, 80)]
    budget.settle(held, 0, 1)
    assert budget.left("t:2/7", ANN) == [Left(CHAT, 21)]


@pytest.mark.parametrize("scope", ["sender", "chat", "all"])
@pytest.mark.parametrize("period", ["day", "month", "ever"])
def test_what_is_said(scope: str, period: str) -> None:
    until = None if period == "ever" else datetime(2027, 2, 1, tzinfo=UTC)
    reached = BudgetReached(scope, period, until)
    said = phrases.budget_reached(reached)
    assert ("00:00 UTC on 1 February" in said) == (until is not None)
    assert ("Whoever runs me" in said) == (until is None)
    assert len(phrases.budget_reached(reached, again=True)) < len(said)
    midway = phrases.budget_reached(reached, midway=True)
    assert midway.startswith("I had to stop here. ")
    assert "did not keep" not in midway


def test_a_missing_price_is_said() -> None:
    reached = BudgetReached("all", "day", None, unpriced=True)
    assert "what it costs" in phrases.budget_reached(reached)
    assert "price" in str(reached)


def test_it_is_said_in_other_words() -> None:
    german = Wording(
        {
            "BUDGET_CHAT": "Aufgebraucht{period}.",
            "BUDGET_TODAY": " heute",
            "BUDGET_DATE": "{time}, {day}. {month}",
            "MONTHS": "Jan Feb Mär Apr Mai Jun Jul Aug Sep Okt Nov Dez",
            "BUDGET_AGAIN": "Weiter um {until}.",
        }
    )
    reached = BudgetReached("chat", "day", datetime(2027, 2, 1, tzinfo=UTC))
    said = phrases.budget_reached(reached, german)
    assert said == "Aufgebraucht heute. Weiter um 00:00 UTC, 1. Feb."
    assert "1 February" in phrases.budget_reached(reached, Wording({"MONTHS": "Januar Februar"}))
