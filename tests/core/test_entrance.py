"""Strangers who ask to be let in, and the owner who is asked: over the real core."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from core import access, phrases
from core.adapter import Accepted, Duplicate, KnowsPeople, Refused
from core.conversations import Conversations, Options
from core.errors import SnapshotUnreadable, StoreUnavailable
from core.gate import DAY, OWNER, Gate
from core.messages import Sender
from stores.memory import MemoryStore
from tests.core.fakes import settle
from tests.core.test_approvals import Buttons
from tests.core.test_conversations import Faulty, House, Screen

ADA, EVE = Sender("test:ada", "Ada"), Sender("test:eve", "Eve *Evil*")
HERE, THERE = "test:ada", "test:eve"
ASKS = phrases.ACCESS_ASK.format(person="Eve Evil", id=EVE.id)
TOLD = Refused(phrases.STRANGER_ASKED.format(id=EVE.id), private=True)
PRIVATE = Refused(phrases.STRANGER.format(id=EVE.id), private=True)


class Doors(Buttons):
    """A platform where everybody has a conversation of their own, of which it knows the key."""

    def private_key(self, sender_id: str) -> str | None:
        return sender_id if sender_id.startswith("test:") else None


class Private(House):
    """A bot that has an owner."""

    def __init__(self, *script: Any, owner: Sender | None = ADA, **more: Any) -> None:
        super().__init__(*script, screen=more.pop("screen", None) or Doors(), **more)
        self.owner = owner
        self.gate = Gate(self.store.notes, self.clock, per_minute=1000, deny=["test:bad"])
        self.conversations = Conversations(
            self.store,
            self.conversations._agent,
            self.model,
            (self.screen,),
            self.gate,
            self.clock,
            self.engine.submit,
            Options("/"),
        )

    async def __aenter__(self) -> Any:
        if self.owner and not await self.store.notes.get(OWNER):
            await self.store.notes.put(OWNER, self.owner.id.encode(), was=None)
        await self.gate.open()
        return await super().__aenter__()

    async def eve(self, text: str = "/start", **more: Any) -> Any:
        return await self.says(text, key=THERE, sender=EVE, **more)

    @property
    def doors(self) -> Doors:
        assert isinstance(self.screen, Doors)
        return self.screen

    async def presses(self, which: int, sender: Sender = ADA, **more: Any) -> Any:
        message_id, data = next(iter(self.doors.open().items()))
        return await self.sends(data[which], message_id, sender, **more)

    async def sends(
        self, data: str, message_id: str | None, sender: Sender = ADA, id: str | None = None
    ) -> Any:
        inbound = self.inbound(data, id, kind="decision", sender=sender, key=HERE)
        accepted = await self.conversations.accept(replace(inbound, message_id=message_id))
        if not isinstance(accepted, Refused):
            await self.engine.submit(HERE, inbound.id)
        await settle(200)
        return accepted


def test_the_doors_know_people() -> None:
    assert isinstance(Doors(), KnowsPeople) and not isinstance(Screen(), KnowsPeople)


async def test_the_owner_is_asked_once_and_lets_them_in() -> None:
    async with Private("hello Eve") as house:
        assert await house.eve() == TOLD
        assert house.doors.texts() == [ASKS] and house.screen.keys == [HERE]
        for text in ("/start", "/id", "hello"):
            assert await house.eve(text) == Refused()
        assert await house.presses(0) == Accepted()
        assert house.doors.texts() == [phrases.ACCESS_ALLOWED.format(person="Eve Evil", id=EVE.id)]
        assert house.doors.open() == {}
        assert (house.screen.keys[-2:], house.screen.shown.count(phrases.ACCESS_LET_IN)) in (
            ([THERE, HERE], 1),
            ([HERE, THERE], 1),
        )
        assert await house.eve("hi") == Accepted()
        assert house.screen.shown[-1] == "hello Eve"
        assert house.gate.trusts(EVE.id)


async def test_what_a_button_says_is_no_button_when_it_is_typed() -> None:
    async with Private("what is that?") as house:
        await house.eve()
        (data,) = [each[0] for each in house.doors.open().values()]
        assert await house.says(data) == Accepted()
        assert house.screen.shown[-1] == "what is that?" and house.doors.open()
        assert not house.gate.trusts(EVE.id)


async def test_the_owner_says_no_and_hears_of_them_no_more() -> None:
    async with Private() as house:
        await house.eve()
        assert await house.presses(1) == Accepted()
        assert house.doors.texts() == [phrases.ACCESS_DENIED.format(person="Eve Evil", id=EVE.id)]
        house.clock.advance(30 * DAY)
        for text in ("/start", "/id", "hello"):
            assert await house.eve(text) == Refused()
        assert await house.store.load(house.conversations.ref(THERE)) is None
        assert len(house.screen.shown) == 2


async def test_pressed_again_it_is_as_it_was_and_told_once() -> None:
    async with Private() as house:
        await house.eve()
        ((card, (yes, no)),) = house.doors.open().items()
        assert await house.sends(yes, card, id="p1") == Accepted()
        assert await house.sends(yes, card, id="p1") == Duplicate()
        assert await house.sends(no, card, id="p2") == Accepted()
        assert house.gate.trusts(EVE.id)
        assert house.screen.shown.count(phrases.ACCESS_LET_IN) == 1
        assert house.doors.texts()[0].endswith("may speak to me now.")
        assert await house.sends(yes, None) == Accepted()


async def test_only_the_owner_decides_and_only_what_was_asked() -> None:
    async with Private() as house:
        await house.eve()
        (data,) = house.doors.open().values()
        house.gate._allow |= {"test:bob"}
        refused = await house.presses(0, Sender("test:bob"))
        assert refused == Refused(phrases.NOT_YOURS, private=True)
        over = Refused(phrases.ACCESS_OVER, private=True, over=True)
        assert await house.sends("!+" + "0" * 16, "m1") == over
        house.clock.advance(8 * DAY)
        assert await house.sends(data[0], "m1") == over
        assert not house.gate.trusts(EVE.id)
        # And then they may ask anew.
        assert await house.eve() == TOLD
        assert len(house.doors.texts()) == 2


async def test_a_press_where_nothing_was_said_is_over() -> None:
    async with Private() as house:
        await house.eve()
        (data,) = house.doors.open().values()
        await house.store.clear(house.conversations.ref(HERE))
        house.conversations._snapshots.forget(HERE)
        assert await house.sends(data[0], "m1") == Refused(private=True, over=True)
        inbound = replace(house.inbound(data[0], kind="decision", sender=ADA), key="other:1")
        assert await house.conversations.accept(inbound) == Refused()


@pytest.mark.parametrize("text", ["/id", "/help", "hello"])
async def test_who_only_passes_by_is_noted_nowhere(text: str) -> None:
    async with Private() as house:
        assert await house.eve(text) == (PRIVATE if text == "/id" else Refused())
        assert await house.eve("/start", group=True) == (Refused() if text == "/id" else PRIVATE)
        assert await access.waiting(house.store.notes, house.clock) == ()
        assert house.screen.shown == []


async def test_who_is_denied_in_the_config_is_not_heard() -> None:
    async with Private() as house:
        bad = Sender("test:bad")
        for text in ("/start", "/id"):
            assert await house.says(text, key="test:bad", sender=bad) == Refused()
        house.gate._open = True
        assert not house.gate.lets_in("test:bad") and house.gate.lets_in(EVE.id)


async def test_where_nobody_can_be_asked_they_are_told_their_id() -> None:
    async with Private(screen=Buttons()) as house:
        assert await house.eve() == PRIVATE and await house.eve() == Refused()
    async with Private(owner=Sender("elsewhere:1")) as house:
        assert await house.eve() == PRIVATE
    async with Private(owner=None) as house:
        assert await house.eve() == PRIVATE


class NoButtons(Screen):
    """It knows where people are, but not how to ask them."""

    def private_key(self, sender_id: str) -> str | None:
        return sender_id


async def test_without_buttons_nobody_is_asked() -> None:
    async with Private(screen=NoButtons()) as house:
        assert await house.eve() == PRIVATE
        assert house.screen.shown == []


async def test_too_many_who_ask_are_told_their_id_only() -> None:
    async with Private() as house:
        for number in range(access.MOST_AN_HOUR + 3):
            stranger = Sender(f"test:s{number}")
            await house.says("/start", key=stranger.id, sender=stranger)
        assert len(house.doors.texts()) == access.MOST_AN_HOUR


async def test_what_cannot_be_kept_comes_again_and_is_asked_once() -> None:
    store = Faulty()
    async with Private(store=store) as house:
        store.saves = [StoreUnavailable("full")]
        with pytest.raises(StoreUnavailable):
            await house.eve(id="s1")
        assert await house.eve(id="s1") == TOLD
        assert house.doors.texts() == [ASKS]
        ((card, (yes, _)),) = house.doors.open().items()
        # The decision is kept, what tells of it not yet.
        store.saves = [StoreUnavailable("full")]
        with pytest.raises(StoreUnavailable):
            await house.sends(yes, card, id="p1")
        assert await house.sends(yes, card, id="p1") == Accepted()
        assert house.screen.shown.count(phrases.ACCESS_LET_IN) == 1


async def test_an_owner_whose_conversation_cannot_be_read_is_not_asked() -> None:
    store = Faulty()
    async with Private(store=store) as house:
        store.loads = [SnapshotUnreadable("checksum")]
        assert await house.eve() == PRIVATE


async def test_what_was_decided_outlives_a_restart() -> None:
    store = MemoryStore()
    async with Private(store=store) as house:
        await house.eve()
        (data,) = house.doors.open().values()
    async with Private("hello", store=store) as house:
        house.count = 50
        assert await house.eve() == TOLD and house.screen.shown == []
        await house.sends(data[0], "m1")
    async with Private("hello", store=store) as house:
        house.count = 90
        assert house.gate.trusts(EVE.id)
        assert await house.eve("hi") == Accepted()
