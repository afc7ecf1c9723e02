"""`chinwag access`: who may speak, as an operator sees and changes it; and the invitation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import segno
from click.testing import CliRunner

from bots.access import decide, list_access, remove
from bots.cli import cli
from bots.pairing import invitation, links
from bots.settings import Settings, load_settings
from bots.telegram.adapter import TelegramAdapter
from core import access
from core.access import Lists
from core.clock import SystemClock
from core.errors import ConfigError, StoreInUse
from core.gate import OWNER
from core.messages import Sender
from playground.telegram import Telegram
from stores.urls import open_store

URLS = ("sqlite:bot.db", "disk:bot")


@pytest.fixture(params=URLS)
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    text = '[access]\nallow = ["telegram:1", "telegram:9"]\ndeny = ["telegram:9"]\n'
    (tmp_path / "config.toml").write_text(f'[store]\nurl = "{request.param}"\n{text}')
    yield load_settings(tmp_path / "config.toml", {})


async def lines(said: AsyncIterator[str]) -> list[str]:
    return [line async for line in said]


async def stored(settings: Settings) -> Lists:
    async with open_store(settings.store.url, settings.folder) as store:
        return await access.read(store.notes)


async def test_all_is_listed_beside_a_running_bot(settings: Settings) -> None:
    async with open_store(settings.store.url, settings.folder) as store:
        await store.notes.put(OWNER, b"telegram:7", was=None)
        await access.ask(store.notes, SystemClock(), Sender("telegram:666", "Eve\n\x1b[31m"))
        said = await lines(list_access(settings))
        for id in ("telegram:8", "telegram:666"):
            with pytest.raises(StoreInUse):
                await lines(decide(settings, id, "allow"))
    kinds = [line.split()[:2] for line in said]
    assert kinds == [
        ["owner", "telegram:7"],
        ["allow", "telegram:1"],
        ["allow", "telegram:9"],
        ["deny", "telegram:9"],
        ["asks", "telegram:666"],
    ]
    assert all(line.isprintable() for line in said)


async def test_somebody_is_let_in_and_out_again(settings: Settings) -> None:
    async with open_store(settings.store.url, settings.folder) as store:
        await access.ask(store.notes, SystemClock(), Sender("telegram:8", "Bob"))
    assert (await lines(decide(settings, "telegram:8", "allow"))) == [
        "telegram:8: may speak from the next start on."
    ]
    assert [each.id for each in (await stored(settings)).allow] == ["telegram:8"]
    said = await lines(list_access(settings))
    assert not [line for line in said if line.startswith("asks")]
    assert (await lines(decide(settings, "telegram:1", "deny")))[1].startswith("It is in [access]")
    assert (await lines(decide(settings, "telegram:9", "allow")))[1].startswith("It is in [access]")
    assert [each.id for each in (await stored(settings)).deny] == ["telegram:1"]
    assert len(await lines(list_access(settings))) == 6
    assert (await lines(remove(settings, "telegram:8")))[0].startswith("telegram:8: a stranger")
    with pytest.raises(ConfigError, match="on neither list"):
        await lines(remove(settings, "telegram:8"))


def test_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[access]\nopen = true\n")
    given = ["--config", str(tmp_path / "config.toml")]
    runner = CliRunner()
    assert runner.invoke(cli, ["access", "allow", "telegram:42", *given]).exit_code == 0
    assert runner.invoke(cli, ["access", "deny", "slack:T1/U1", *given]).exit_code == 0
    said = runner.invoke(cli, ["access", "list", *given]).stdout.splitlines()
    assert [line.split()[:2] for line in said] == [
        ["open", "everybody"],
        ["allow", "telegram:42"],
        ["deny", "slack:T1/U1"],
    ]
    assert runner.invoke(cli, ["access", "remove", "telegram:42", *given]).exit_code == 0
    wrong = runner.invoke(cli, ["access", "allow", "telegram:alice", *given])
    assert wrong.exit_code == 2 and "numeric id" in wrong.output


# ---------------------------------------------------------------------- the invitation


async def test_telegram_opens_our_chat_by_a_link() -> None:
    async with Telegram(username="our_bot") as telegram:
        adapter = TelegramAdapter(telegram.token, base_url=telegram.url)
        try:
            assert await links([adapter, object()], "ABC23") == ["https://t.me/our_bot?start=ABC23"]
        finally:
            await adapter.close()


def test_a_terminal_shows_the_link_as_a_picture_too() -> None:
    link = "https://t.me/our_bot?start=ABCDEFGH23"
    text = invitation("ABCDEFGH23", [link], terminal=False)
    assert text.splitlines() == [
        "Nobody may speak to this bot yet. Send it  /start ABCDEFGH23  to become its owner.",
        f"Or open  {link}",
    ]
    shown = invitation("ABCDEFGH23", [link], terminal=True)
    assert shown.startswith(text)
    # Two rows a line; a full block is light, as on a dark terminal.
    picture = shown[len(text) :].strip("\n").splitlines()
    upper, lower = {"█", "▀"}, {"█", "▄"}
    seen = [[char not in half for char in line] for line in picture for half in (upper, lower)]
    wanted = [
        [bool(dark) for dark in row] for row in segno.make(link, micro=False).matrix_iter(border=4)
    ]
    assert seen[: len(wanted)] == wanted
