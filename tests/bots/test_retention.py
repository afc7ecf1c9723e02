"""`[retention]` and `chinwag sessions expire`: the settings, the command, and the running bot."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from msgspec import Raw
from msgspec.structs import replace

from bots import app
from bots.doctor import check
from bots.retention import build_rules, expire
from bots.settings import Settings, load_settings
from core import changes, outbox, retention
from core.clock import SystemClock
from core.errors import ConfigError, StoreInUse
from core.events import listening
from core.messages import Message, Role, encode_blocks, text_block
from core.retention import DAY, Rules
from core.store import BotStore, SessionRef
from core.usage import Spent, Usage
from stores.urls import open_store
from tests.bots.test_doctor import free_port
from tests.bots.test_sessions import lines

URLS = ("sqlite:chinwag.db", "disk:chats")
ECHO = Path(__file__).parents[2] / "examples" / "echo_adapter.py"
NOW = SystemClock().now()
_SAID: tuple[tuple[int, Role, str | None], ...] = ((1, "user", "test:1"), (2, "assistant", None))


def settings_for(folder: Path, more: str, url: str = URLS[0]) -> Settings:
    config = folder / "config.toml"
    config.write_text(f'[store]\nurl = "{url}"\n{more}\n')
    return load_settings(config, {})


@pytest.fixture(params=URLS)
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    return settings_for(tmp_path, "[retention]\ndays = 30\nusage_days = 62", request.param)


async def fill(store: BotStore, **days: int) -> None:
    """A conversation by each name, whose last word is so many days old."""
    for name, age in days.items():
        at = NOW - age * DAY
        value = changes.begin(revision=1, epoch="e", now=at)
        rows = tuple(
            Message(seq, role, encode_blocks([text_block(f"word of {name}")]), at, sender)
            for seq, role, sender in _SAID
        )
        spent = (Spent(f"e-{name}", 1, at, "m", Usage(1), 10),)
        value = replace(value, spans=((1, 2),), messages=rows, next_seq=3, spent=spent)
        if name == "held":
            value = changes.notice(value, ['"never sent"'])
            value = outbox.hold(value, value.outbox[0].id, "unknown")
        await store.save(SessionRef(f"test-chat:{name}"), value, replaces=None)


async def keys_in(settings: Settings) -> list[str]:
    async with open_store(settings.store.url, settings.folder, read_only=True) as store:
        return [each.key async for each in store.summaries()]


async def test_a_dry_run_beside_a_running_bot(settings: Settings) -> None:
    async with open_store(settings.store.url, settings.folder) as store:
        await fill(store, old=90, older=100, new=3, held=40)
        said = await lines(expire(settings, dry=True))
        with pytest.raises(StoreInUse):
            await lines(expire(settings))
    rows = [line for line in said if "test-chat:" in line]
    assert [(row.split()[-1], "goes" in row) for row in rows] == [
        ("test-chat:held", False),
        ("test-chat:old", True),
        ("test-chat:older", True),
    ]
    assert "conversations         2 would go" in said
    assert "model calls           2 would go from what was used" in said
    assert said[-1].endswith("Nothing was changed.")
    assert len(await keys_in(settings)) == 4


async def test_what_is_old_goes_and_is_in_no_file(settings: Settings) -> None:
    async with open_store(settings.store.url, settings.folder) as store:
        await fill(store, old=90, new=3)
    said = await lines(expire(settings))
    assert "conversations         1 went" in said
    assert "model calls           1 went from what was used" in said
    assert await keys_in(settings) == ["test-chat:new"]
    files = [file for file in settings.folder.rglob("*") if file.is_file()]
    left = b"".join(file.read_bytes() for file in files)
    assert b"word of old" not in left and b"word of new" in left


async def test_nothing_goes_by_itself_when_nothing_is_set(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, "")
    assert build_rules(settings) is None
    with pytest.raises(ConfigError, match="sets no age and no size"):
        await lines(expire(settings, dry=True))
    assert [file.name for file in tmp_path.iterdir()] == ["config.toml"]


async def test_all_that_was_spent_is_counted_as_long_as_a_budget_counts_it(tmp_path: Path) -> None:
    settings = settings_for(
        tmp_path, '[retention]\nusage_days = 62\n[budget]\ntotal = "100_000_000 tokens"'
    )
    with pytest.raises(ConfigError, match="total counts all that was ever spent"):
        build_rules(settings)
    found = [each for each in await check(settings, settings.path) if each.what == "retention"]
    assert [each.ok for each in found] == [False] and found[0].exit_code == 2
    settings = settings_for(tmp_path, "[retention]\ndays = 2\nmegabytes = 10_000")
    assert build_rules(settings) == Rules(2, 10_000)
    found = [each for each in await check(settings, settings.path) if each.what == "retention"]
    assert [(each.ok, each.text) for each in found] == [(True, "days 2, megabytes 10,000")]


@pytest.mark.parametrize("line", ["days = 1", "megabytes = 0", "usage_days = 61"])
def test_what_would_lose_something_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError, match=rf"\[retention\] {line.partition(' ')[0]}"):
        settings_for(tmp_path, f"[retention]\n{line}")


class Heard:
    """A listener that waits for one event."""

    wants_content = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.fields: asyncio.Future[Mapping[str, object]] = asyncio.Future()

    def heard(self, name: str, key: str | None, fields: Mapping[str, object]) -> None:
        if name == self.name and not self.fields.done():
            self.fields.set_result(fields)

    def said(self, execution: str, asked: Sequence[Message], answered: Raw) -> None:
        raise AssertionError


async def test_a_running_bot_does_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "START_SECONDS", 0)
    # What nobody asks for here, and takes seconds to import.
    monkeypatch.setattr("core.providers.Providers.warm", AsyncMock())
    settings = settings_for(
        tmp_path,
        "[retention]\ndays = 30\n[access]\nopen = true\n"
        f'[adapters.echo]\nuse = "{ECHO}:EchoAdapter"\nport = {free_port()}',
    )
    async with open_store(settings.store.url, settings.folder) as store:
        await fill(store, old=90, new=3)
    heard = Heard("retention")
    with listening(heard):
        running = asyncio.create_task(app.serve(settings))
        done, _ = await asyncio.wait(
            (running, heard.fields), return_when=asyncio.FIRST_COMPLETED, timeout=30
        )
        assert heard.fields in done, running
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert (await heard.fields)["conversations"] == 1
    assert await keys_in(settings) == ["test-chat:new"]
