"""`chinwag backup` and `chinwag restore`: whole, beside a bot that writes, and never in the way."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from bots.backup import HELD, Unfinished, back_up, check_backup, left_out, restore
from bots.cli import cli
from bots.settings import Settings, load_settings
from core import changes, outbox
from core.changes import Fence
from core.errors import ConfigError, StoreCorrupt, StoreInUse, StoreUnavailable
from core.memory import ConversationMemory
from core.messages import Inbound, Sender, encode_blocks, text_block
from core.snapshot import Snapshot, Usage
from core.store import SessionRef
from stores.sqlite import SQLiteStore
from tests.core.fakes import NOON, FakeClock

ADA, BOB = "telegram-chat:1", "telegram-chat:2"
STAMP = "20270115-080000"


def inbound(key: str, number: int) -> Inbound:
    return Inbound(f"{key}-{number}", key, "message", Sender("telegram:1", "Ada"), "hello", at=NOON)


def begun(key: str) -> Snapshot:
    """With a message that waits for its answer."""
    new = changes.begin(revision=1, epoch="e", now=NOON)
    return changes.accept(new, inbound(key, 1))


def answered(key: str, snapshot: Snapshot, parts: tuple[str, ...] = ('"x"',)) -> Snapshot:
    """With an answer on its way."""
    started = changes.start(snapshot, execution="x", now=NOON, memory=ConversationMemory(4, 2))
    blocks = [encode_blocks([text_block("well")])]
    fence = Fence(started.epoch, "x")
    after = changes.commit(started, fence, blocks, parts, Usage(1, 1, 0, 0), NOON)
    return replace(after, revision=1)


def finished(key: str) -> Snapshot:
    after = answered(key, begun(key))
    assert after.next_part is not None
    return replace(outbox.delivered(after, after.next_part.id, ("9",)), revision=1)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    config = tmp_path / "config.toml"
    config.write_text('[store]\nurl = "sqlite:bot.db"\n')
    return load_settings(config, {})


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    async with SQLiteStore(tmp_path / "bot.db") as store:
        yield store


async def keep(store: SQLiteStore, key: str, snapshot: Snapshot) -> None:
    await store.save(SessionRef(key), snapshot, replaces=None)


async def lines(told: AsyncIterator[str]) -> str:
    return "\n".join([line async for line in told])


def nothing(done: int, of: int) -> None:
    pass


async def backed_up(settings: Settings, target: Path | None = None) -> str:
    return await lines(back_up(settings, target, nothing, FakeClock()))


async def test_a_copy_has_everything(settings: Settings, store: SQLiteStore) -> None:
    await keep(store, ADA, finished(ADA))
    id = await store.blobs.put(ADA, b"a picture", "image/png")
    told = await backed_up(settings)
    copied = settings.folder / f"bot-{STAMP}.db"
    assert f"{copied}: 1 conversations, 2 messages" in told
    assert "was read and is as it was stored" in told
    assert stat.S_IMODE(copied.stat().st_mode) == 0o600
    async with SQLiteStore(copied, read_only=True) as other:
        assert await other.load(SessionRef(ADA)) == await store.load(SessionRef(ADA))
        blob = await other.blobs.get(id)
        assert blob is not None
        assert blob.data == b"a picture"
    # One file: whoever moves it away has moved all of it.
    assert sorted(path.name for path in settings.folder.glob(f"bot-{STAMP}*")) == [copied.name]


async def test_a_copy_is_of_one_moment_while_the_bot_writes(
    settings: Settings, store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends, though somebody saves between any two of its pages, and holds no half of a save."""
    monkeypatch.setattr("stores.sqlite.backup.PAGES", 1)
    for number in range(200):
        await keep(store, f"telegram-chat:{number + 1}", finished(ADA))
    loop, written = asyncio.get_running_loop(), 0

    def write_more(done: int, of: int) -> None:
        nonlocal written
        written += 1
        key = f"telegram-chat:{1_000 + written}"
        asyncio.run_coroutine_threadsafe(keep(store, key, finished(key)), loop).result(5)

    target = settings.folder / "copy.db"
    told = await lines(back_up(settings, target, write_more, FakeClock()))
    assert written > 20
    assert "200 conversations, 400 messages" in told


async def test_nothing_is_written_over(settings: Settings, store: SQLiteStore) -> None:
    target = settings.folder / "mine.txt"
    target.write_text("mine")
    with pytest.raises(ConfigError, match=r"mine\.txt: exists already; name another file"):
        await backed_up(settings, target)
    assert target.read_text() == "mine"
    assert not list(settings.folder.glob("*.part"))


async def test_what_a_killed_copy_left_is_no_hindrance(
    settings: Settings, store: SQLiteStore
) -> None:
    target = settings.folder / "copy.db"
    target.with_name("copy.db.part").write_bytes(b"half")
    await backed_up(settings, target)
    assert target.exists()
    assert not target.with_name("copy.db.part").exists()


async def test_where_nothing_can_be_written(settings: Settings, store: SQLiteStore) -> None:
    with pytest.raises(StoreUnavailable, match="No such file"):
        await backed_up(settings, settings.folder / "nowhere" / "copy.db")


async def test_there_is_nothing_to_copy(settings: Settings) -> None:
    with pytest.raises(StoreUnavailable, match="the first start of the bot makes it"):
        await backed_up(settings)


@pytest.mark.parametrize(
    ("url", "cure"),
    [
        ("disk:chats", "stop the bot and copy the folder"),
        ("memory:", "nothing to copy"),
        ("other://host/db", "the tools of that database"),
    ],
)
async def test_other_stores_are_copied_by_other_means(tmp_path: Path, url: str, cure: str) -> None:
    settings = load_settings(None, {"CHINWAG_STORE__URL": url})
    with pytest.raises(ConfigError, match=cure):
        await backed_up(settings)


# --- check ------------------------------------------------------------------------------------


async def test_a_damaged_copy_is_noticed(settings: Settings, store: SQLiteStore) -> None:
    await keep(store, ADA, finished(ADA))
    await keep(store, BOB, finished(BOB))
    copied = settings.folder / "copy.db"
    await backed_up(settings, copied)
    with closing(sqlite3.connect(copied)) as database, database:
        database.execute("UPDATE messages SET blocks = CAST('[]' AS BLOB) WHERE id = 1")
    told: list[str] = []
    with pytest.raises(StoreCorrupt, match=r"copy\.db: 1 things in it cannot be read"):
        async for line in check_backup(copied):
            told.append(line)
    assert f"damaged: {ADA}: " in "\n".join(told)


async def test_a_lost_picture_is_noticed(settings: Settings, store: SQLiteStore) -> None:
    id = await store.blobs.put(ADA, b"a picture", "image/png")
    source = {"type": "blob", "id": id, "media_type": "image/png"}
    seen = msgspec.Raw(msgspec.json.encode([{"type": "image", "source": source}]))
    snapshot = changes.accept(
        changes.begin(revision=1, epoch="e", now=NOON), replace(inbound(ADA, 1), blocks=seen)
    )
    await keep(store, ADA, answered(ADA, snapshot))
    copied = settings.folder / "copy.db"
    await backed_up(settings, copied)
    with closing(sqlite3.connect(copied)) as database, database:
        database.execute("UPDATE blobs SET data = CAST('another' AS BLOB)")
    with pytest.raises(StoreCorrupt, match="cannot be read"):
        await lines(check_backup(copied))


async def test_what_is_no_backup(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    other.write_text("not a database, and longer than its header would be" * 10)
    with pytest.raises(StoreCorrupt, match="not a SQLite database"):
        await lines(check_backup(other))


# --- restore ----------------------------------------------------------------------------------


async def test_a_restored_database_is_what_it_was(settings: Settings, tmp_path: Path) -> None:
    async with SQLiteStore(tmp_path / "bot.db") as store:
        await keep(store, ADA, finished(ADA))
        before = await store.load(SessionRef(ADA))
        await backed_up(settings, tmp_path / "copy.db")
        await keep(store, BOB, finished(BOB))
    told = await lines(
        restore(settings, tmp_path / "copy.db", "resume", replacing=True, clock=FakeClock())
    )
    assert f"{tmp_path / 'bot.db'}: restored." in told
    async with SQLiteStore(tmp_path / "bot.db") as store:
        assert await store.load(SessionRef(ADA)) == before
        assert await store.load(SessionRef(BOB)) is None
    async with SQLiteStore(tmp_path / f"bot.db.before-{STAMP}") as old:
        assert await old.load(SessionRef(BOB)) is not None
    assert (tmp_path / "copy.db").exists()
    assert not list(tmp_path.glob("*.restoring*"))


async def test_a_log_that_was_left_is_not_played_into_it(
    settings: Settings, tmp_path: Path
) -> None:
    """The bot was killed: beside its database there is a write-ahead log."""
    async with SQLiteStore(tmp_path / "bot.db") as store:
        await keep(store, ADA, finished(ADA))
        await backed_up(settings, tmp_path / "copy.db")
        await keep(store, BOB, finished(BOB))
        killed = {path: path.read_bytes() for path in tmp_path.glob("bot.db*")}
    for path, data in killed.items():
        path.write_bytes(data)
    assert (tmp_path / "bot.db-wal").stat().st_size > 0
    await lines(
        restore(settings, tmp_path / "copy.db", "resume", replacing=True, clock=FakeClock())
    )
    async with SQLiteStore(tmp_path / "bot.db") as store:
        assert [each.key async for each in store.summaries()] == [ADA]
    async with SQLiteStore(tmp_path / f"bot.db.before-{STAMP}") as old:
        assert [each.key async for each in old.summaries()] == [ADA, BOB]


async def test_a_database_that_is_there_stays(settings: Settings, tmp_path: Path) -> None:
    async with SQLiteStore(tmp_path / "bot.db"):
        await backed_up(settings, tmp_path / "copy.db")
    with pytest.raises(ConfigError, match="--replace keeps it as"):
        await lines(restore(settings, tmp_path / "copy.db", "resume", replacing=False))


async def test_where_there_is_none_it_needs_no_word(settings: Settings, tmp_path: Path) -> None:
    async with SQLiteStore(tmp_path / "bot.db"):
        await backed_up(settings, tmp_path / "copy.db")
    for path in tmp_path.glob("bot.db*"):
        path.unlink()
    told = await lines(restore(settings, tmp_path / "copy.db", "resume", replacing=False))
    assert "restored." in told
    assert "before" not in told


async def test_not_while_the_bot_runs(settings: Settings, store: SQLiteStore) -> None:
    copied = settings.folder / "copy.db"
    await backed_up(settings, copied)
    with pytest.raises(StoreInUse, match=f"pid {os.getpid()}"):
        await lines(restore(settings, copied, "resume", replacing=True))


async def test_a_damaged_one_changes_nothing(settings: Settings, tmp_path: Path) -> None:
    async with SQLiteStore(tmp_path / "bot.db") as store:
        await keep(store, ADA, finished(ADA))
        await backed_up(settings, tmp_path / "copy.db")
    with closing(sqlite3.connect(tmp_path / "copy.db")) as database, database:
        database.execute("UPDATE sessions SET head = CAST('{}' AS BLOB)")
    before = (tmp_path / "bot.db").read_bytes()
    with pytest.raises(StoreCorrupt):
        await lines(restore(settings, tmp_path / "copy.db", "resume", replacing=True))
    assert (tmp_path / "bot.db").read_bytes() == before
    assert not list(tmp_path.glob("*before*"))


@pytest.mark.parametrize("renames", range(3))
async def test_ended_in_the_middle_it_can_be_begun_anew(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    """And every byte that was there still is."""
    async with SQLiteStore(tmp_path / "bot.db") as store:
        await keep(store, ADA, finished(ADA))
        await backed_up(settings, tmp_path / "copy.db")
        await keep(store, BOB, finished(BOB))
        killed = {path: path.read_bytes() for path in tmp_path.glob("bot.db*")}
    for path, data in killed.items():
        path.write_bytes(data)
    rename, left = os.rename, renames

    def until_killed(old: str, new: str) -> None:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        rename(old, new)

    async def put_back() -> None:
        await lines(
            restore(settings, tmp_path / "copy.db", "resume", replacing=True, clock=FakeClock())
        )

    with monkeypatch.context() as patch:
        patch.setattr("stores.sqlite.backup.os.rename", until_killed)
        with pytest.raises(KeyboardInterrupt):
            await put_back()
    await put_back()
    async with SQLiteStore(tmp_path / "bot.db") as store:
        assert [each.key async for each in store.summaries()] == [ADA]
    kept = {path.read_bytes() for path in tmp_path.glob("bot.db.before-*")}
    assert kept >= {killed[tmp_path / "bot.db"], killed[tmp_path / "bot.db-wal"]}


@pytest.mark.parametrize(("unfinished", "left"), [("resume", [ADA, BOB]), ("drop", [])])
async def test_what_was_unfinished(
    settings: Settings, tmp_path: Path, unfinished: Unfinished, left: list[str]
) -> None:
    async with SQLiteStore(tmp_path / "bot.db") as store:
        await keep(store, ADA, begun(ADA))
        await keep(store, BOB, answered(BOB, begun(BOB), ('"one"', '"two"')))
        await backed_up(settings, tmp_path / "copy.db")
    told = await lines(restore(settings, tmp_path / "copy.db", unfinished, replacing=True))
    assert "2 with something unfinished" in told
    async with SQLiteStore(tmp_path / "bot.db") as store:
        assert [key async for key in store.unfinished()] == left
        bob = await store.load(SessionRef(BOB))
        assert bob is not None
        assert [part.body for part in bob.outbox] == ['"one"', '"two"']
        if unfinished == "drop":
            assert {(part.state, part.why) for part in bob.outbox} == {("held", HELD)}


def test_left_out_leaves_the_history_alone() -> None:
    started = changes.start(begun(ADA), execution="x", now=NOON, memory=ConversationMemory(4, 2))
    after = left_out(changes.accept(started, inbound(ADA, 2)))
    assert not after.unfinished
    assert after.messages == started.messages
    assert left_out(after) == after


# --- as it is typed ---------------------------------------------------------------------------


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def fill() -> None:
        async with SQLiteStore(tmp_path / "chinwag.db") as store:
            await keep(store, ADA, finished(ADA))

    asyncio.run(fill())
    run = CliRunner().invoke
    made = run(cli, ["backup", "copy.db"])
    assert made.exit_code == 0, made.output
    assert "1 conversations, 2 messages" in made.output
    checked = run(cli, ["restore", "--check", "copy.db"])
    assert checked.exit_code == 0, checked.output
    assert "is as it was stored" in checked.output
    put_back = run(cli, ["restore", "--replace", "copy.db"])
    assert put_back.exit_code == 0, put_back.output
    assert "restored." in put_back.output
