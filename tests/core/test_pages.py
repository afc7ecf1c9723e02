"""What one person is shown of the bot, and which conversations a place has."""

from __future__ import annotations

from msgspec.structs import replace

from core import changes, phrases
from core.budget import Budget, Limit
from core.command import Command, Commands, Outcome
from core.commands import BUILT_IN
from core.gate import OWNER, Gate
from core.messages import Inbound, Sender
from core.pages import LISTED, Page, Pages
from core.prices import built_in
from core.spending import Spending
from core.store import SessionRef
from core.usage import UNIT, Spent, Usage
from stores.memory import MemoryStore
from tests.core.fakes import NOON, FakeClock

ANN, EVE, BOSS = "slack:T1/U1", "slack:T1/U2", "slack:T1/U9"


async def pages(*limits: Limit, store: MemoryStore | None = None) -> Pages:
    clock, store = FakeClock(), store or MemoryStore()
    await store.notes.put(OWNER, BOSS.encode(), was=None)
    secret = Command("secret", "for few", lambda snapshot, call: Outcome(""), who="trusted")
    only = Commands(
        (BUILT_IN.named("reset") or secret, BUILT_IN.named("mention") or secret, secret)
    )
    gate = Gate(store.notes, clock, open_to_all=True, deny=(EVE,), commands=only)
    await gate.open()
    spending = Spending(clock, built_in(), Budget(clock, limits))
    await store.usage.add(
        [
            ("k", Spent("e1", 1, NOON, "m", Usage(1000), UNIT // 4, sender=ANN)),
            ("k", Spent("e2", 1, NOON, "m", Usage(7), None, sender=BOSS)),
        ]
    )
    await spending.budget.open(store.usage)
    return Pages(store, gate, spending, only, "Ada")


async def test_each_sees_their_own() -> None:
    reset = ("reset", phrases.HELP_RESET)
    found = await (await pages()).of(ANN)
    assert found == Page(
        "Ada",
        (reset,),
        (
            "today: 0.2500 USD for 1,000 tokens (0 from a cache)",
            "this month: 0.2500 USD for 1,000 tokens (0 from a cache)",
        ),
    )
    boss = await (await pages()).of(BOSS)
    assert boss is not None and boss.commands == (reset, ("secret", "for few"))
    assert boss.usage[0] == "today: 0.0000 USD + ? for 7 tokens (0 from a cache)"


async def test_a_stranger_sees_nothing() -> None:
    made = await pages()
    assert await made.of(EVE) is None
    assert made.owned and not made.lets_in(EVE)


async def test_only_ones_own_limits_are_shown() -> None:
    made = await pages(
        Limit("sender", "day", "money", UNIT),
        Limit("chat", "day", "money", UNIT),
        Limit("all", "day", "money", UNIT),
    )
    found = await made.of(ANN)
    assert found is not None
    assert found.usage[2:] == ("You, today: 0.7500 USD of 1.0000 USD",)


async def test_the_conversations_of_a_place() -> None:
    store = MemoryStore()
    place = "slack-thread:T1/D1"
    empty = changes.begin(revision=1, epoch="e", now=1, cwd="")
    said = Inbound("i", "k", "message", Sender(ANN), "hello")
    full = changes.accept(empty, said)
    keys = [f"{place}/{number:04}.000100" for number in range(LISTED + 3)]
    for key in (*keys, f"{place}2/0001.000100", "slack-dm:T1/D1", "slack-thread:T2/D1/1.1"):
        await store.save(SessionRef(key), full, replaces=None)
    await store.save(SessionRef(f"{place}/9999.1"), empty, replaces=None)
    made = await pages(store=store)
    assert await made.conversations(place) == keys
    assert await made.conversations("slack-dm:T1/D1") == ["slack-dm:T1/D1"]
    assert await made.conversations("slack-dm:T1/D9") == []


async def test_one_press_about_many_conversations_counts_once() -> None:
    store = MemoryStore()
    gate = Gate(store.notes, FakeClock(), open_to_all=True, per_minute=1)
    press = Inbound("p0", "k0", "command", Sender(ANN), "/reset quietly", album="home 1")
    for number in range(5):
        admitted = await gate.admit(replace(press, id=f"p{number}", key=f"k{number}"))
        assert type(admitted).__name__ == "Admitted"
    other = await gate.admit(replace(press, id="q", sender=Sender("slack:T1/U3")))
    assert type(other).__name__ == "Admitted", "another's press is another's"
    again = await gate.admit(replace(press, id="r", album="home 2"))
    assert type(again).__name__ == "Refused"
