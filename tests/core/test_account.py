"""What /usage says."""

from __future__ import annotations

from core.account import account, said
from core.budget import Budget, Limit
from core.prices import built_in
from core.snapshot import Snapshot
from core.spending import Spending
from core.store import SessionRef
from core.usage import UNIT, Spent, Usage
from stores.memory import MemoryStore
from tests.core.fakes import NOON, FakeClock

DAY = 86_400_000
KEY, ANN = "telegram-chat:-7", "telegram:42"


async def told(*limits: Limit, key: str = KEY, sender: str = ANN) -> list[str]:
    clock, store = FakeClock(), MemoryStore()
    rows = (
        Spent("e1", 1, NOON, "m", Usage(1000, 20, 300, 4), UNIT // 8, sender=ANN),
        Spent("e2", 1, NOON - DAY, "m", Usage(5), UNIT, estimated=True, sender=ANN),
        Spent("e3", 1, NOON - 20 * DAY, "m", Usage(7), UNIT, sender=ANN),
        Spent("e4", 1, NOON, "m", Usage(100), None, sender="telegram:7"),
    )
    value = Snapshot(
        revision=1,
        epoch="e",
        created_at=1,
        updated_at=1,
        usage=Usage(2000, 20, 300, 40),
        spent=rows,
    )
    await store.save(SessionRef(KEY), value, replaces=None)
    spending = Spending(clock, built_in(), Budget(clock, limits))
    await spending.budget.open(store.usage)
    return said(value, await account(store.usage, spending, key, sender)).splitlines()


async def test_this_conversation_and_this_person() -> None:
    assert await told() == [
        "**This conversation**",
        "",
        "* today: 0.1250 USD + ? for 1,424 tokens (4 from a cache)",
        "* this month: ~1.1250 USD + ? for 1,429 tokens (4 from a cache)",
        "* since it began: 2,360 tokens (40 from a cache)",
        "",
        "**You**",
        "",
        "* today: 0.1250 USD for 1,324 tokens (4 from a cache)",
        "* this month: ~1.1250 USD for 1,329 tokens (4 from a cache)",
    ]


async def test_what_is_left() -> None:
    limits = (
        Limit("sender", "day", "money", UNIT),
        Limit("chat", "month", "tokens", 1_000),
        Limit("all", "ever", "money", 5 * UNIT),
    )
    assert (await told(*limits))[-5:] == [
        "**Left**",
        "",
        "* You, today: 0.8750 USD of 1.0000 USD",
        "* This conversation, this month: 0 tokens of 1,000 tokens",
        "* All together, in all: 2.8750 USD of 5.0000 USD",
    ]


async def test_who_has_used_nothing() -> None:
    lines = await told(key="telegram-chat:1", sender="telegram:1")
    assert lines[2] == lines[8] == "* today: 0.0000 USD for 0 tokens (0 from a cache)"
