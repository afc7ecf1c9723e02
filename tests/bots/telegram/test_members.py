"""Who runs a group, as Telegram tells it: asked of the server on loopback, by the real client."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bots.telegram import members
from bots.telegram.adapter import TelegramAdapter
from bots.telegram.members import REMEMBERED_SECONDS, UNKNOWN_SECONDS
from core.adapter import KnowsMembers
from playground.telegram import Answer, GarbageBody, Person, Telegram
from tests.core.fakes import FakeClock


@pytest.fixture
async def telegram() -> AsyncIterator[Telegram]:
    async with Telegram() as server:
        yield server


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def adapter(telegram: Telegram, clock: FakeClock) -> AsyncIterator[TelegramAdapter]:
    adapter = TelegramAdapter(telegram.token, base_url=telegram.url, clock=clock)
    yield adapter
    await adapter.close()


def asked(telegram: Telegram) -> int:
    return [call.method for call in telegram.calls].count("getChatAdministrators")


def id_of(person: Person) -> str:
    return f"telegram:{person.id}"


async def test_owner_and_administrators_are_told_from_others(
    telegram: Telegram, adapter: TelegramAdapter, clock: FakeClock
) -> None:
    assert isinstance(adapter, KnowsMembers)
    alice, bob, eve = (telegram.person(name) for name in ("Alice", "Bob", "Eve"))
    group = telegram.supergroup("Club", owner=alice)
    group.admins = (bob,)
    key = f"telegram-chat:{group.id}"
    for person, may in ((alice, True), (bob, True), (eve, False)):
        assert await adapter.is_admin(key, id_of(person)) is may
    assert await adapter.is_admin(f"telegram-topic:{group.id}/7", id_of(bob)) is True
    assert asked(telegram) == 1
    group.admins = (eve,)
    assert await adapter.is_admin(key, id_of(eve)) is False
    clock.advance(REMEMBERED_SECONDS)
    assert await adapter.is_admin(key, id_of(eve)) is True
    assert asked(telegram) == 2


async def test_who_need_not_be_one_is_not_asked_about(
    telegram: Telegram, adapter: TelegramAdapter
) -> None:
    alice = telegram.person("Alice")
    group = telegram.supergroup("Club")
    assert await adapter.is_admin(f"telegram-chat:{alice.id}", id_of(alice)) is True
    assert await adapter.is_admin(f"telegram-user:{group.id}/{alice.id}", id_of(alice)) is True
    # An anonymous administrator speaks in the group's name.
    assert await adapter.is_admin(f"telegram-chat:{group.id}", f"telegram:{group.id}") is True
    assert await adapter.is_admin("slack-dm:T1/D1", id_of(alice)) is None
    assert asked(telegram) == 0


@pytest.mark.parametrize(
    "fault",
    [
        Answer(404, "Not Found"),
        Answer(403, "Forbidden: bot was kicked from the supergroup chat"),
        GarbageBody('{"ok":true,"result":[{"status":"creator"}]}'),
    ],
)
async def test_an_answer_that_is_none_is_asked_for_again_a_little_later(
    fault: Answer | GarbageBody, telegram: Telegram, adapter: TelegramAdapter, clock: FakeClock
) -> None:
    alice = telegram.person("Alice")
    group = telegram.supergroup("Club", owner=alice)
    key = f"telegram-chat:{group.id}"
    telegram.fault("getChatAdministrators", fault)
    assert await adapter.is_admin(key, id_of(alice)) is None
    assert await adapter.is_admin(key, id_of(alice)) is None
    assert asked(telegram) == 1
    clock.advance(UNKNOWN_SECONDS)
    assert await adapter.is_admin(key, id_of(alice)) is True


async def test_not_all_groups_are_remembered(
    telegram: Telegram, adapter: TelegramAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "GROUPS", 1)
    alice = telegram.person("Alice")
    first, second = (telegram.supergroup(name, owner=alice) for name in ("One", "Two"))
    for group in (first, second, first):
        assert await adapter.is_admin(f"telegram-chat:{group.id}", id_of(alice)) is True
    assert asked(telegram) == 3
