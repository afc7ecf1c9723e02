"""`chinwag migrate`: forward only, after a backup, and a step that fails leaves what was."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from bots.backup import restore
from bots.cli import cli, exit_code
from bots.migrate import migrate
from bots.settings import Settings, load_settings
from core.errors import (
    ChinwagError,
    ConfigError,
    StoreCorrupt,
    StoreInUse,
    StoreOutdated,
    StoreUnavailable,
)
from core.store import SessionRef
from stores.postgres import PostgresStore
from stores.postgres import schema as theirs
from stores.sqlite import SQLiteStore, schema
from tests.bots.test_backup import ADA, begun
from tests.bots.test_sessions import lines
from tests.core.fakes import FakeClock
from tests.postgres import fresh_url

OLD = len(schema.STEPS)
COPY = f"chinwag-schema-{OLD}-20270115-080000.db"
REF = SessionRef(ADA)


def settings_for(folder: Path, url: str = "sqlite:chinwag.db") -> Settings:
    config = folder / "config.toml"
    config.write_text(f'[store]\nurl = "{url}"\n')
    return load_settings(config, {})


@pytest.fixture
async def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A database with something in it, and a chinwag that is two steps newer."""
    async with SQLiteStore(tmp_path / "chinwag.db") as store:
        await store.save(REF, begun(ADA), replaces=None)
    steps = (("CREATE TABLE later(id)", "INSERT INTO later VALUES(1)"), ("DROP TABLE later",))
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, *steps))
    return settings_for(tmp_path)


async def said(settings: Settings, *, check: bool = False, backing_up: bool = True) -> list[str]:
    found = migrate(
        settings, lambda done, of: None, check=check, backing_up=backing_up, clock=FakeClock()
    )
    return await lines(found)


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        return int(database.execute("PRAGMA user_version").fetchone()[0])


async def test_it_is_brought_up_after_a_backup(settings: Settings) -> None:
    path = settings.folder / "chinwag.db"
    told = await said(settings)
    assert f"{path}: schema {OLD + 1}." in told and f"{path}: schema {OLD + 2}." in told
    assert told[-1].endswith(f"`chinwag restore --replace {settings.folder / COPY}`.")
    assert (version(path), version(settings.folder / COPY)) == (OLD + 2, OLD)
    async with SQLiteStore(path) as store:
        value = await store.load(REF)
        assert value is not None and value.inbox == begun(ADA).inbox
    again = [f"{path}: schema {OLD + 2}, as this chinwag wants it; nothing to do."]
    assert await said(settings) == again
    # That backup, put back by this chinwag, is brought up again.
    told = await lines(restore(settings, settings.folder / COPY, "resume", replacing=True))
    assert f"it is brought up to schema {OLD + 2}." in told[0]
    async with SQLiteStore(path) as store:
        assert await store.load(REF) == value
    assert not list(settings.folder.glob("*.restoring*"))


async def test_the_bot_does_not_do_it_by_itself(settings: Settings) -> None:
    path = settings.folder / "chinwag.db"
    content = path.read_bytes()
    with pytest.raises(StoreOutdated, match="stop the bot and run `chinwag migrate`") as error:
        async with SQLiteStore(path):
            raise AssertionError
    assert exit_code(error.value) == 3
    assert path.read_bytes() == content and version(path) == OLD


async def test_a_check_changes_nothing(settings: Settings) -> None:
    content = (settings.folder / "chinwag.db").read_bytes()
    told: list[str] = []
    with pytest.raises(StoreOutdated):
        async for line in migrate(settings, lambda done, of: None, check=True, clock=FakeClock()):
            told.append(line)
    assert told[0].startswith("Would copy ") and COPY in told[0]
    assert told[1].endswith(f"from schema {OLD} to {OLD + 2}.")
    assert not (settings.folder / COPY).exists()
    assert (settings.folder / "chinwag.db").read_bytes() == content
    assert version(settings.folder / "chinwag.db") == OLD


async def test_a_step_that_fails_leaves_what_was(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = settings.folder / "chinwag.db"
    broken = ("CREATE TABLE half(id)", "INSERT INTO nowhere VALUES(1)")
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS[:-1], broken))
    with pytest.raises(StoreUnavailable, match=f"as it was before that step, and .*{COPY}"):
        await said(settings)
    assert version(path) == OLD + 1
    with closing(sqlite3.connect(path)) as database:
        names = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    assert "later" in names and "half" not in names
    # Mended, it goes on from there.
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS[:-1], ("DROP TABLE later",)))
    assert f"{path}: schema {OLD + 2}." in await said(settings, backing_up=False)


async def test_what_is_newer_is_refused(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await said(settings)
    content = (settings.folder / "chinwag.db").read_bytes()
    monkeypatch.setattr(schema, "STEPS", schema.STEPS[:OLD])
    for check in (True, False):
        with pytest.raises(StoreCorrupt, match=f"has version {OLD + 2}, .*: update chinwag"):
            await said(settings, check=check)
    assert (settings.folder / "chinwag.db").read_bytes() == content


async def test_not_beside_a_running_bot(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(schema, "STEPS", schema.STEPS[:OLD])
        running = SQLiteStore(settings.folder / "chinwag.db")
        await running.__aenter__()
    try:
        with pytest.raises(StoreInUse):
            await said(settings)
    finally:
        await running.__aexit__(None, None, None)


async def test_a_backup_that_cannot_be_made_stops_it(settings: Settings) -> None:
    (settings.folder / COPY).touch()
    with pytest.raises(ConfigError, match="exists already"):
        await said(settings)
    assert version(settings.folder / "chinwag.db") == OLD


async def test_what_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        await said(settings_for(tmp_path))
    assert [file.name for file in tmp_path.iterdir()] == ["config.toml"]


async def test_stores_without_a_schema(tmp_path: Path) -> None:
    for url in ("disk:chats", "memory:", "redis://localhost/0"):
        (told,) = await said(settings_for(tmp_path, url))
        assert "has no schema" in told
    with pytest.raises(ConfigError, match="somebody else's store"):
        await said(settings_for(tmp_path, "mongo:chats"))


async def test_postgres_wants_a_backup_of_your_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(tmp_path, url := fresh_url())
    async with PostgresStore(url) as store:
        await store.save(REF, begun(ADA), replaces=None)
    (told,) = await said(settings)
    assert told.endswith("as this chinwag wants it; nothing to do.")
    monkeypatch.setattr(theirs, "STEPS", (*theirs.STEPS, ("CREATE TABLE later(id integer)",)))
    for check in (False, True):
        with pytest.raises(StoreOutdated, match="pg_dump"):
            await said(settings, check=check)
    async with PostgresStore(url).alone() as connection:
        assert await theirs.version(connection, "here") == len(theirs.STEPS) - 1
    told, _ = await said(settings, backing_up=False)
    assert told.endswith(f"schema {len(theirs.STEPS)}.")
    async with PostgresStore(url) as store:
        assert await store.load(REF) is not None
    monkeypatch.setattr(theirs, "STEPS", theirs.STEPS[:-1])
    with pytest.raises(StoreCorrupt, match="update chinwag"):
        await said(settings, backing_up=False)


def test_the_command(tmp_path: Path) -> None:
    config = settings_for(tmp_path, "memory:").path
    ran = CliRunner().invoke(cli, ["migrate", "--check", "--config", str(config)])
    assert (ran.exit_code, ran.output.count("\n")) == (0, 1), ran.output
    ran = CliRunner().invoke(cli, ["migrate", "--config", str(settings_for(tmp_path).path)])
    assert isinstance(ran.exception, ChinwagError) and exit_code(ran.exception) == 3
