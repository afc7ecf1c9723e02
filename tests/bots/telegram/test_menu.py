"""The menu of commands, set at the server on loopback by the real client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from bots.telegram.adapter import TelegramAdapter
from bots.telegram.menu import MAX_DESCRIPTION
from core.command import Command, Commands, Outcome
from core.commands import BUILT_IN
from core.phrases import ENGLISH, Wording
from playground.telegram import Answer, GarbageBody, Telegram
from tests.core.fakes import FakeClock

PLACES = ("all_private_chats", "all_group_chats", "all_chat_administrators")


@pytest.fixture
async def telegram() -> AsyncIterator[Telegram]:
    async with Telegram() as server:
        yield server


async def publish(
    telegram: Telegram, commands: Commands = BUILT_IN, say: Wording = ENGLISH, **more: Any
) -> None:
    settings: dict[str, Any] = {"base_url": telegram.url, "clock": FakeClock()}
    adapter = TelegramAdapter(telegram.token, **settings | more)
    try:
        await adapter.show_menu(commands, say)
    finally:
        await adapter.close()


def calls(telegram: Telegram, method: str) -> list[Any]:
    return [call.params for call in telegram.calls if call.method == method]


def shown(telegram: Telegram) -> dict[str, list[str]]:
    """The names that were set last, by the place."""
    return {
        call["scope"]["type"]: [entry["command"] for entry in call["commands"]]
        for call in calls(telegram, "setMyCommands")
    }


def own(name: str, help: str = "own", **more: Any) -> Command:
    return Command(name, help, lambda snapshot, call: Outcome(""), **more)


async def test_each_kind_of_place_shows_what_may_be_used_there(telegram: Telegram) -> None:
    await publish(telegram, BUILT_IN.extended(own("roll"), own("secret", who="trusted")))
    private, groups, admins = (shown(telegram)[place] for place in PLACES)
    everything = [each.name for each in BUILT_IN if each.name != "start"] + ["roll"]
    assert admins == everything
    assert private == [name for name in everything if name != "mention"]
    assert groups == [name for name in everything if name != "reset"]


async def test_with_a_history_of_their_own_everybody_may_everything(telegram: Telegram) -> None:
    await publish(telegram, scope="user")
    assert "reset" in shown(telegram)["all_group_chats"]


async def test_only_what_differs_is_set(telegram: Telegram) -> None:
    await publish(telegram)
    await publish(telegram)
    assert len(calls(telegram, "setMyCommands")) == 3
    await publish(telegram, say=Wording({"HELP_RESET": "  alles\nvergessen " + "x" * 300}))
    changed = calls(telegram, "setMyCommands")[3:]
    # In groups it is not shown.
    assert [call["scope"]["type"] for call in changed] == [PLACES[0], PLACES[2]]
    described = {entry["command"]: entry["description"] for entry in changed[0]["commands"]}
    assert described["reset"].startswith("alles vergessen xxx")
    assert len(described["reset"]) == MAX_DESCRIPTION


async def test_what_says_nothing_of_itself_has_its_name(telegram: Telegram) -> None:
    await publish(telegram, Commands([own("roll", " ")]))
    (entry,) = calls(telegram, "setMyCommands")[0]["commands"]
    assert entry == {"command": "roll", "description": "roll"}


@pytest.mark.parametrize("method", ["getMyCommands", "setMyCommands"])
@pytest.mark.parametrize(
    "fault", [Answer(404, "Not Found"), Answer(429, "Too Many", 30), GarbageBody("{}")]
)
async def test_without_menus_it_runs_on(
    method: str, fault: Answer | GarbageBody, telegram: Telegram
) -> None:
    telegram.fault(method, fault, times=None)
    await publish(telegram)
    assert len(calls(telegram, method)) == 1


async def test_a_wrong_token_is_said_elsewhere(telegram: Telegram) -> None:
    real = telegram.token
    telegram.token = "123456:another"
    adapter = TelegramAdapter(real, base_url=telegram.url, clock=FakeClock())
    await adapter.show_menu(BUILT_IN, ENGLISH)
    await adapter.close()
    assert not calls(telegram, "getMyCommands")
