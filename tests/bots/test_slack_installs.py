"""`chinwag slack installs`: who has the app, and taking it out of a workspace from here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bots.contracts.store import begun
from bots.settings import Settings, load_settings
from bots.slack.installs import Install, Installs
from bots.slack_installs import installs, remove_install
from core import feedback
from core.errors import CannotUnseal, ConfigError, StoreInUse
from core.feedback import Opinion
from core.seal import Seal, keys_of, new_key
from core.store import BotStore, SessionRef
from playground.slack import Slack
from stores.urls import open_store
from tests.core.fakes import NOON

# Of aiohttp, about how slack_sdk sends the app's secret.
pytestmark = pytest.mark.filterwarnings("ignore:BasicAuth is deprecated:DeprecationWarning")
KEY = new_key()


def settings(folder: Path, **more: str) -> Settings:
    config = folder / "config.toml"
    config.write_text('[store]\nurl = "sqlite:bot.db"\n')
    return load_settings(config, {"CHINWAG_ENCRYPTION_KEYS": KEY, **more})


def install(team: str | None, enterprise: str | None = None, token: str = "xoxb-1") -> Install:
    return Install(enterprise, team, "Acme", "A1", "U0BOT", "B0BOT", token, installer="U7", at=NOON)


async def keep(store: BotStore, *kept: Install) -> None:
    for each in kept:
        await Installs(store.notes, Seal(keys_of(KEY))).save(each)


async def lines(told: AsyncIterator[str]) -> list[str]:
    return [line async for line in told]


async def test_the_list(tmp_path: Path) -> None:
    async with open_store("sqlite:bot.db", tmp_path) as store:
        assert await lines(installs(settings(tmp_path))) == ["Nobody has installed the app yet."]
        await keep(store, install("T1"), install(None, "E1"))
        assert await lines(installs(settings(tmp_path))) == [
            "workspace      installed            by             name",
            "T1             2027-01-15 08:00     U7             Acme",
            "E1             2027-01-15 08:00     U7             Acme (all of the organisation)",
        ]
        with pytest.raises(StoreInUse):
            await lines(remove_install(settings(tmp_path), "T1", erase=False))


async def test_it_is_taken_out(tmp_path: Path) -> None:
    async with Slack() as slack:
        team = slack.workspace("Acme", token="xoxb-acme")
        app = slack.application
        where = settings(
            tmp_path,
            SLACK_CLIENT_ID=app.client_id,
            SLACK_CLIENT_SECRET=app.client_secret,
            CHINWAG_SLACK__BASE_URL=f"{slack.url}/api",
        )
        keys = [f"slack-dm:{team.id}/D1", f"slack-thread:{team.id}/C1/1.000100", "slack-dm:T9/D1"]
        async with open_store("sqlite:bot.db", tmp_path) as store:
            await keep(store, install(team.id, token="xoxb-acme"))
            for key in keys:
                await store.save(SessionRef(key), begun(), replaces=None)
            theirs = Opinion(f"slack:{team.id}/U1", keys[0], "1.2", good=True)
            others = Opinion("slack:T9/U1", keys[2], "1.2", good=True)
            for opinion in (theirs, others):
                await feedback.keep(store.notes, opinion)
        told = await lines(remove_install(where, team.id, erase=True))
        assert told == [
            "Slack has taken the app out.",
            f"{team.id}: removed.",
            "2 conversations: erased.",
        ]
        assert team.bot is None
        async with open_store("sqlite:bot.db", tmp_path) as store:
            assert [each.key async for each in store.summaries()] == keys[2:]
            assert [each async for each in feedback.opinions(store.notes)] == [others]
        with pytest.raises(ConfigError, match="nobody there has installed the app"):
            await lines(remove_install(where, team.id, erase=False))


async def test_slack_need_not_agree(tmp_path: Path) -> None:
    async with open_store("sqlite:bot.db", tmp_path) as store:
        await keep(store, install("T1"))
    told = await lines(remove_install(settings(tmp_path), "T1", erase=False))
    assert told[0].startswith("Slack was not told: SLACK_CLIENT_ID")
    async with Slack() as slack:
        async with open_store("sqlite:bot.db", tmp_path) as store:
            await keep(store, install("T1"))
        where = settings(
            tmp_path,
            SLACK_CLIENT_ID="1.1",
            SLACK_CLIENT_SECRET="wrong",
            CHINWAG_SLACK__BASE_URL=f"{slack.url}/api",
        )
        told = await lines(remove_install(where, "T1", erase=False))
        assert told[0].startswith("Slack was told, and answered: ")
        assert told[1] == "T1: removed."


async def test_without_the_key_it_is_an_error_and_not_an_empty_list(tmp_path: Path) -> None:
    async with open_store("sqlite:bot.db", tmp_path) as store:
        await keep(store, install("T1"))
    with pytest.raises(CannotUnseal, match="put that key back"):
        await lines(installs(settings(tmp_path, CHINWAG_ENCRYPTION_KEYS=new_key())))
    with pytest.raises(ConfigError, match="CHINWAG_ENCRYPTION_KEYS is missing"):
        await lines(installs(load_settings(tmp_path / "config.toml", {})))
