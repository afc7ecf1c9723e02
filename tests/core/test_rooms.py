"""Who may use a command where several people share one conversation."""

from __future__ import annotations

from typing import Any

import pytest

from core import changes, phrases, rooms
from core.adapter import KnowsMembers
from core.command import Backstage, Call, Command, Outcome
from core.commands import BUILT_IN
from core.errors import SnapshotUnreadable
from core.messages import Inbound, Sender
from tests.core.fakes import settle
from tests.core.test_conversations import Faulty, Held, House, Screen

ADA, BOB = Sender("test:ada", "Ada"), Sender("test:bob", "Bob")
EMPTY = changes.begin(revision=1, epoch="e1", now=0)


class Club(Screen):
    """A platform that knows who runs a room.

    :param admins: None: it does not say
    """

    def __init__(self) -> None:
        super().__init__()
        self.admins: tuple[str, ...] | None = (ADA.id,)
        self.asked: list[str] = []

    async def is_admin(self, key: str, sender_id: str) -> bool | None:
        self.asked.append(sender_id)
        return None if self.admins is None else sender_id in self.admins


class Room(House):
    """Everybody here speaks in one conversation."""

    def __init__(self, *script: Any, **more: Any) -> None:
        self.club = Club()
        super().__init__(*script, screen=self.club, **more)

    def inbound(self, text: str, id: str | None = None, **fields: Any) -> Inbound:
        return super().inbound(text, id, **{"group": True, **fields})


def test_the_club_knows_its_members() -> None:
    assert isinstance(Club(), KnowsMembers) and not isinstance(Screen(), KnowsMembers)


@pytest.mark.parametrize("command", ["/reset", "/undo", "/retry", "/model x"])
async def test_an_administrator_may_and_others_may_not(command: str) -> None:
    async with Room("one", "two") as house:
        await house.says("hi", sender=Sender("test:cleo"))
        await house.says(command, sender=BOB)
        only = command in ("/reset", "/model x")
        assert house.screen.shown[1:] == [phrases.ADMIN_ONLY if only else phrases.ADMIN_OR_LAST]
        assert [text for _, text in await house.history()][-1] == "one"
        await house.says(command, sender=ADA)
        assert house.screen.shown[2:] and phrases.ADMIN_ONLY not in house.screen.shown[2:]
        assert house.club.asked == [BOB.id, ADA.id]


@pytest.mark.parametrize("command", ["/undo", "/retry"])
async def test_who_alone_spoke_last_may_and_nobody_is_asked(command: str) -> None:
    async with Room("one", "two") as house:
        await house.says("hi", sender=BOB)
        await house.says(command, sender=BOB)
        assert house.club.asked == []
        assert phrases.ADMIN_OR_LAST not in house.screen.shown
        assert await house.history() == [] or house.screen.shown[-1] == "two"


@pytest.mark.parametrize(
    "command", ["/stop", "/model", "/usage", "/id", "/help", "/forget", "/export nothing"]
)
async def test_what_concerns_nobody_else_may_everybody(command: str) -> None:
    async with Room("one") as house:
        await house.says("hi", sender=ADA)
        await house.says(command, sender=BOB)
        assert house.club.asked == [] and len(house.screen.shown) == 2


async def test_alone_with_the_bot_everybody_may() -> None:
    async with Room("one") as house:
        await house.says("hi", sender=BOB, group=False)
        await house.says("/reset", sender=BOB, group=False)
        assert house.screen.shown == ["one", phrases.RESET] and house.club.asked == []


async def test_the_trusted_may_everywhere() -> None:
    async with Room("one", allow=[BOB.id]) as house:
        await house.says("hi", sender=ADA)
        await house.says("/reset", sender=BOB)
        assert house.screen.shown == ["one", phrases.RESET] and house.club.asked == []


async def test_where_the_platform_does_not_know_everybody_may() -> None:
    async with House("one") as house:
        await house.says("hi", sender=ADA, group=True)
        await house.says("/reset", sender=BOB, group=True)
        assert house.screen.shown == ["one", phrases.RESET]


async def test_what_nobody_knows_is_no() -> None:
    async with Room("one") as house:
        house.club.admins = None
        await house.says("hi", sender=ADA)
        for command in ("/reset", "/undo"):
            await house.says(command, sender=BOB)
            assert house.screen.shown[-1] == phrases.ADMIN_UNKNOWN
        assert len(await house.history()) == 2


async def test_what_is_refused_interrupts_nothing() -> None:
    held = Held("one")
    async with Room(held) as house:
        await house.accept("hi", sender=ADA)
        await held.asked.wait()
        for command in ("/reset", "/undo", "/retry"):
            await house.says(command, sender=BOB)
        held.open.set()
        await settle(200)
        assert house.screen.shown[-1] == "one" and len(house.model.requests) == 1


async def test_what_was_said_by_several_is_taken_back_by_none_of_them() -> None:
    held = Held("one")
    async with Room(held, "both") as house:
        await house.accept("first", sender=ADA)
        await held.asked.wait()
        await house.says("mine", sender=BOB)
        await house.says("and mine", sender=Sender("test:cleo"))
        held.open.set()
        await settle(200)
        await house.says("/undo", sender=BOB)
        assert house.screen.shown[-1] == phrases.ADMIN_OR_LAST
        assert len(await house.history()) == 4


async def test_where_nothing_can_be_read_there_is_nothing_of_others() -> None:
    store = Faulty()
    async with Room(store=store) as house:
        store.loads = [SnapshotUnreadable("checksum"), SnapshotUnreadable("checksum")]
        await house.says("/undo", sender=BOB)
        assert house.screen.shown == [phrases.UNREADABLE, phrases.NOTHING_TO_UNDO]
        assert house.club.asked == []


async def test_who_may_not_has_nothing_looked_up() -> None:
    ran: list[str] = []

    async def first(call: Call, backstage: Backstage) -> object:
        ran.append(call.inbound.sender.id)
        return "done"

    own = Command("own", "own", lambda s, call: Outcome(call.found), first=first, room="admins")
    async with Room(commands=BUILT_IN.extended(own)) as house:
        await house.says("/own", sender=BOB)
        await house.says("/own", sender=ADA)
        assert house.screen.shown == [phrases.ADMIN_ONLY, "done"] and ran == [ADA.id]


def test_where_nothing_was_said_nobody_spoke_last() -> None:
    assert rooms.spoke_last(None, "x") and rooms.spoke_last(EMPTY, "x")
    waits = changes.accept(EMPTY, Inbound("1", "k", "message", ADA, "hi"))
    assert rooms.spoke_last(waits, ADA.id) and not rooms.spoke_last(waits, BOB.id)


def test_what_need_not_be_known_is_not_asked_for() -> None:
    assert rooms.refusal("setting", "", None, EMPTY, BOB.id) is None
    assert rooms.refusal("everyone", "x", None, EMPTY, BOB.id) is None
    assert rooms.refusal("setting", "x", None, EMPTY, BOB.id) == phrases.ADMIN_UNKNOWN
