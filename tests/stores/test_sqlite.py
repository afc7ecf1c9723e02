"""SQLiteStore: the contract, then what only a database can suffer."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from msgspec.structs import replace

from bots.contracts.store import (
    Chat,
    StoreContract,
    begun,
    inbound,
    keys,
    listed,
    ref,
    rich,
    seqs,
    text,
)
from core import changes
from core.errors import (
    BlobUnreadable,
    SnapshotUnreadable,
    StaleSnapshot,
    StoreCorrupt,
    StoreError,
    StoreInUse,
    StoreOutdated,
    StoreUnavailable,
)
from core.memory import ConversationMemory
from core.messages import Outbound
from core.snapshot import Snapshot, stored
from core.store import Blob, BotStore, SessionRef
from stores.sqlite import SQLiteStore, backup, commit, encode, group, migrate, save, schema

NAME = "chats.db"


@contextmanager
def behind(database: Path) -> Iterator[sqlite3.Connection]:
    """The database, behind the store's back."""
    connection = sqlite3.connect(database, isolation_level=None)
    connection.create_function("crc_of", 2, encode.head_checksum)
    try:
        yield connection
    finally:
        connection.close()


def edit(database: Path, sql: str, *values: object) -> None:
    with behind(database) as connection:
        assert connection.execute(sql, values).rowcount


class TestSQLiteStore(StoreContract):
    def open(self, place: Path) -> BotStore:
        return SQLiteStore(place / NAME)

    async def spoil(self, store: BotStore, place: Path, key: str) -> None:
        edit(place / NAME, "UPDATE sessions SET head = head || ' ' WHERE key = ?", key)

    async def age(self, store: BotStore, place: Path, key: str) -> None:
        edit(
            place / NAME,
            "UPDATE sessions SET head = CAST(replace(head, ?, ?) AS BLOB) WHERE key = ?",
            *('"version":1', '"version":99', key),
        )
        edit(place / NAME, "UPDATE sessions SET crc = crc_of(key, head) WHERE key = ?", key)

    async def bytes_of(self, place: Path) -> bytes:
        return b"".join(file.read_bytes() for file in place.iterdir())

    async def spoil_blob(self, store: BotStore, place: Path, id: str) -> None:
        edit(place / NAME, "UPDATE blobs SET data = ? WHERE id = ?", b"dada", id)


@pytest.mark.parametrize("seed", [0, 4])
async def test_a_scrub_takes_what_secure_delete_leaves(tmp_path: Path, seed: int) -> None:
    """Rows come and go in any order, so that pages are split and joined; SQLite then keeps copies
    of cells that it has moved. With 3.40 it does so for both seeds."""
    path, chance = tmp_path / NAME, random.Random(seed)
    async with SQLiteStore(path):
        pass
    live: dict[tuple[str, int], str] = {}
    dead: list[str] = []
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA secure_delete=ON")
        database.execute("PRAGMA synchronous=OFF")
        database.execute("BEGIN")
        for number in range(1, 5_001):
            word = f"{chance.getrandbits(128):032x}"
            data = (word * chance.choice((1, 2, 3, 8, 30, 60, 120, 300))).encode()
            place = ("messages", number) if chance.random() < 0.55 else ("bodies", number % 300)
            if place in live:
                dead.append(live.pop(place))
            if place[0] == "messages":
                database.execute(
                    "INSERT INTO messages VALUES(?, 1, ?, x'', ?, 0)", (number, number, data)
                )
            else:
                database.execute(
                    "REPLACE INTO bodies VALUES(?, ?, ?)", (place[1] % 40, str(place[1]), data)
                )
            live[place] = word
            if chance.random() < 0.45:
                table, gone = chance.choice(list(live))
                dead.append(live.pop((table, gone)))
                if table == "messages":
                    database.execute("DELETE FROM messages WHERE id = ?", (gone,))
                else:
                    database.execute(
                        "DELETE FROM bodies WHERE session = ? AND name = ?", (gone % 40, str(gone))
                    )
        database.execute("COMMIT")
    async with SQLiteStore(path) as store:
        await store.scrub()
    left = path.read_bytes()
    assert not [word for word in dead if word.encode() in left]
    assert all(word.encode() in left for word in live.values())


async def test_a_scrub_wants_the_log_to_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / NAME
    with pytest.raises(StoreUnavailable, match="not open for writing"):
        await SQLiteStore(path).scrub()
    async with SQLiteStore(path) as store:
        monkeypatch.setattr("stores.sqlite.forget.IN_MEMORY", 0)
        await store.scrub()
        await store.notes.put("n", b"1", was=None)
        with behind(path) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM notes").fetchone()
            await store.notes.put("n", b"2", was=b"1")
            with pytest.raises(StoreUnavailable):
                await store.scrub()
        await store.scrub()
        assert await store.notes.get("n") == b"2"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / NAME


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    async with SQLiteStore(path) as store:
        yield store


async def opens(path: Path, *, read_only: bool = False) -> None:
    async with SQLiteStore(path, read_only=read_only):
        pass


def threads() -> list[threading.Thread]:
    """The connections' threads that are left."""
    deadline = time.monotonic() + 5
    while True:
        left = [each for each in threading.enumerate() if "_connection_worker" in each.name]
        # aiosqlite's close returns a moment before its thread has ended.
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.001)


# ---------------------------------------------------------------------- opening


async def test_second_one_in_this_process_is_refused(path: Path) -> None:
    async with SQLiteStore(path):
        with pytest.raises(StoreInUse, match=rf"chats\.db: .*\(pid {os.getpid()}\)"):
            await opens(path)
    await opens(path)


async def test_a_link_leads_to_the_same_lock(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    other.symlink_to(path)
    async with SQLiteStore(path):
        with pytest.raises(StoreInUse):
            await opens(other)


HOLDER = """
import asyncio, sys
from stores.sqlite import SQLiteStore
async def main():
    async with SQLiteStore(sys.argv[1]):
        print("open", flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


async def test_second_process_is_refused_until_the_first_is_dead(path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"open\n"
            with pytest.raises(StoreInUse, match=rf"\(pid {process.pid}\) .*/reset"):
                await opens(path)
            async with SQLiteStore(path, read_only=True) as store:
                assert await store.load(ref("t:1")) is None
        finally:
            process.kill()
    # Killed, it leaves its log behind, and so much of the database stands in nothing else.
    async with SQLiteStore(path, read_only=True) as store:
        assert await store.check() == []
    await opens(path)


@pytest.mark.parametrize(
    "content",
    [
        b"x",
        b"hello\n" * 1000,
        b"\xff" * 5000,
        b"SQLite format 3",
        b"SQLite format 3\0" + b"x" * 5000,
    ],
)
@pytest.mark.parametrize("read_only", [False, True])
async def test_what_is_no_database_is_left_alone(
    path: Path, content: bytes, read_only: bool
) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt, match="not a SQLite database"):
        await opens(path, read_only=read_only)
    assert path.read_bytes() == content
    assert {file.name for file in path.parent.iterdir()} <= {NAME, f"{NAME}.lock"}
    assert threads() == []


async def test_a_destroyed_header_is_not_written_over(path: Path) -> None:
    async with SQLiteStore(path) as store:
        await store.save(ref("t:1"), rich(), replaces=None)
    content = b"\0" * 100 + path.read_bytes()[100:]
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt):
        await opens(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "sql", ["CREATE TABLE messages(text)", "PRAGMA application_id=5", "PRAGMA user_version=99"]
)
async def test_somebody_elses_database_is_left_alone(path: Path, sql: str) -> None:
    with behind(path) as connection:
        connection.execute(sql)
    content = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(StoreCorrupt):
            await opens(path, read_only=read_only)
    assert path.read_bytes() == content


async def test_a_newer_schema_is_left_alone(path: Path) -> None:
    await opens(path)
    edit_version = f"PRAGMA user_version={len(schema.STEPS) + 1}"
    with behind(path) as connection:
        connection.execute(edit_version)
    with pytest.raises(StoreCorrupt, match="update chinwag"):
        await opens(path)


async def test_an_older_schema_is_brought_up_when_that_is_asked_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SQLiteStore(path) as store:
        await store.save(ref("t:1"), rich(), replaces=None)
    content = path.read_bytes()
    more = (*schema.STEPS, ("CREATE TABLE later(id)", "INSERT INTO later VALUES(1)"))
    monkeypatch.setattr(schema, "STEPS", more)
    for read_only in (True, False):
        with pytest.raises(StoreOutdated, match="run `chinwag migrate`"):
            await opens(path, read_only=read_only)
    assert path.read_bytes() == content
    assert list(migrate.bring_up(path)) == [len(more)]
    assert list(migrate.bring_up(path)) == []
    async with SQLiteStore(path) as store:
        assert await store.load(ref("t:1")) == stored(rich())
    with behind(path) as connection:
        assert connection.execute("SELECT * FROM later").fetchall() == [(1,)]


async def test_an_empty_file_is_a_new_database(path: Path) -> None:
    path.touch()
    with pytest.raises(StoreUnavailable, match="nothing is stored there yet"):
        await opens(path, read_only=True)
    assert path.stat().st_size == 0
    async with SQLiteStore(path) as store:
        await Chat(store, "t:1").turn()


async def test_a_crash_while_it_is_made_leaves_a_new_database(path: Path) -> None:
    with behind(path) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    async with SQLiteStore(path) as store:
        await Chat(store, "t:1").turn()


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / NAME
    with pytest.raises(StoreUnavailable, match="nowhere"):
        await opens(path)
    with pytest.raises(StoreUnavailable, match="No such file; the first start of the bot makes it"):
        await opens(path, read_only=True)
    with pytest.raises(StoreUnavailable, match="cannot be opened: File name too long"):
        await opens(tmp_path / ("x" * 300), read_only=True)
    assert list(tmp_path.iterdir()) == []


async def test_a_file_that_cannot_be_made(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse(name: Any, flags: int, *rest: Any) -> int:
        if Path(name) == path:
            raise PermissionError(13, "Permission denied", name)
        return real(name, flags, *rest)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StoreUnavailable, match="cannot be created: Permission denied"):
        await opens(path)


async def test_a_file_system_without_a_log(path: Path) -> None:
    class Refuses:
        """A connection that stays with its old way of logging, as on some network file systems."""

        def __init__(self, real: sqlite3.Connection) -> None:
            self.real = real

        def execute(self, sql: str) -> sqlite3.Cursor:
            return self.real.execute("SELECT 'delete'" if "journal_mode" in sql else sql)

    with behind(path) as connection, pytest.raises(StoreUnavailable, match="write-ahead log"):
        schema.prepare_writer(Refuses(connection), path)  # type: ignore[arg-type]
    assert path.stat().st_size == 0


async def test_modes_do_not_depend_on_the_umask(path: Path) -> None:
    before = os.umask(0)
    try:
        async with SQLiteStore(path) as store:
            await store.save(ref("t:1"), rich(), replaces=None)
            modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == {f"{NAME}{end}": 0o600 for end in ("", "-wal", "-shm", ".lock")}


async def test_no_thread_is_left_when_opening_fails(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(database: sqlite3.Connection, path: Path) -> NoReturn:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(schema, "prepare_reader", fail)
        with pytest.raises(ZeroDivisionError):
            await opens(path)
    assert threads() == []
    await opens(path)


async def test_a_folder_is_no_database_and_leaves_no_thread(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreUnavailable, match=r"chats\.db: it cannot be opened"):
        await opens(path)
    assert threads() == []


async def test_no_thread_is_left_when_opening_is_cancelled(path: Path) -> None:
    finished = False
    steps = 0
    while not finished:
        task = asyncio.create_task(opens(path))
        for _ in range(steps):
            await asyncio.sleep(0)
        finished = task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert threads() == []
        steps += 1 + steps // 10
    await opens(path)


async def test_what_the_promises_rest_on(store: SQLiteStore) -> None:
    def settings(database: sqlite3.Connection) -> list[object]:
        names = ("journal_mode", "synchronous", "secure_delete", "temp_store", "mmap_size")
        return [database.execute(f"PRAGMA {name}").fetchone()[0] for name in names]

    full, memory = 2, 2
    assert await store._write(settings) == ["wal", full, 1, memory, 0]


# ---------------------------------------------------------------------- reading only


async def test_read_only_reads_beside_a_writer(path: Path) -> None:
    async with SQLiteStore(path) as store, SQLiteStore(path, read_only=True) as reader:
        value = await Chat(store, "t:1").turn()
        assert await store.notes.put("owner", b"1", was=None)
        assert await reader.load(ref("t:1")) == value
        assert await seqs(reader, "t:1") == [2, 1]
        assert [summary.key for summary in await listed(reader)] == ["t:1"]
        assert await reader.notes.get("owner") == b"1"
        assert await reader.check() == []
        for write in (
            reader.save(ref("t:1"), begun(), replaces=None),
            reader.clear(ref("t:1")),
            reader.set_aside(ref("t:1")),
            reader.move("t:1", "t:2"),
            reader.notes.put("owner", b"2", was=b"1"),
        ):
            with pytest.raises(StoreUnavailable, match="reading only"):
                await write
        assert await store.load(ref("t:1")) == value


# ---------------------------------------------------------------------- damage


def flip(path: Path, near: bytes, offset: int = 0) -> None:
    content = bytearray(path.read_bytes())
    place = content.index(near) + offset
    content[place] ^= 1
    path.write_bytes(content)


async def test_a_flipped_byte_hurts_one_conversation(path: Path) -> None:
    async with SQLiteStore(path) as store:
        await Chat(store, "t:1").turn(words="a word that will change")
        other = await Chat(store, "t:2").turn()
    flip(path, b"that will change")
    async with SQLiteStore(path) as store:
        assert await store.check() == []
        with pytest.raises(SnapshotUnreadable, match=r"t:1: the checksum of its message 2"):
            await store.load(ref("t:1"))
        with pytest.raises(SnapshotUnreadable):
            await seqs(store, "t:1")
        assert await store.load(ref("t:2")) == other
        assert await keys(store) == []
        await store.set_aside(ref("t:1"))
        await Chat(store, "t:1").turn()
        assert await store.load(ref("t:2")) == other
    with behind(path) as connection:
        ((aside, rows_kept),) = connection.execute(
            "SELECT aside, (SELECT count(*) FROM messages WHERE session = sessions.id) "
            "FROM sessions WHERE key = 't:1' AND aside IS NOT NULL"
        ).fetchall()
    assert abs(aside / 1000 - time.time()) < 60
    assert rows_kept == 2


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM messages WHERE seq = 2",
        "UPDATE messages SET seq = 20 WHERE seq = 2",
        "UPDATE messages SET about = replace(about, 'user', 'assistant') WHERE seq = 1",
        "UPDATE messages SET about = CAST(CAST(about AS TEXT) || '1' AS BLOB) WHERE seq = 2",
        "UPDATE messages SET blocks = 5 WHERE seq = 2",
        "UPDATE messages SET blocks = CAST(blocks AS TEXT) WHERE seq = 2",
        "UPDATE messages SET crc = NULL WHERE 0 OR crc = crc + 1 OR seq = 2 AND crc IS NOT NULL",
        "DELETE FROM seen WHERE slot = 0",
        "UPDATE seen SET ids = CAST('[\"other\"]' AS BLOB) WHERE slot = 0",
        "UPDATE seen SET ids = x'ff' WHERE slot = 0",
        "UPDATE seen SET ids = 5 WHERE slot = 0",
        "UPDATE sessions SET seen_crc = 1",
        "UPDATE sessions SET revision = revision + 1",
        "UPDATE sessions SET next_seq = next_seq + 1",
        "UPDATE sessions SET next_seq = CAST(x'ff' AS TEXT)",
        "UPDATE sessions SET head = x'00'",
        "UPDATE sessions SET head = x'5b5d', crc = crc_of(key, x'5b5d')",
        "UPDATE sessions SET head = CAST('{\"snapshot\":[]}' AS BLOB), crc = crc_of(key, x'7b7d')",
        "UPDATE sessions SET crc = 'text'",
        "DELETE FROM bodies",
        "UPDATE bodies SET body = body || 'x'",
        "UPDATE bodies SET body = 5",
    ],
)
async def test_whatever_is_damaged_is_unreadable(path: Path, sql: str) -> None:
    async with SQLiteStore(path) as store:
        chat = Chat(store, "t:1")
        await chat.turn()
        await chat.update(lambda value: changes.accept(value, inbound("in", "long " * 1000)))
        if "crc = NULL" in sql:
            sql = "UPDATE messages SET crc = 1 WHERE seq = 2"
        edit(path, sql)
        with pytest.raises(SnapshotUnreadable, match=r"t:1|stored snapshot") as caught:
            await store.load(chat.ref)
        assert await keys(store) == ["t:1"]
        # The error, which is still there, keeps nothing open.
        await store.set_aside(chat.ref)
        assert await store.load(chat.ref) is None
    assert caught


_PLACED = "revision, next_seq, seen_count, seen_crc, seen_then, bodies, head, crc"


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE messages SET (about, blocks, crc) = (SELECT about, blocks, crc FROM messages "
        "WHERE session = 1 AND seq = 1) WHERE session = 1 AND seq = 3",
        "UPDATE messages SET (about, blocks, crc) = (SELECT about, blocks, crc FROM messages "
        "WHERE session = 2 AND seq = 1) WHERE session = 1 AND seq = 1",
        "UPDATE messages SET seq = 9 - seq WHERE session = 1 AND seq IN (4, 5)",
        f"UPDATE sessions SET ({_PLACED}) = (SELECT {_PLACED} FROM sessions WHERE id = 2) "
        "WHERE id = 1",
    ],
)
async def test_what_lies_in_the_place_of_another_is_unreadable(path: Path, sql: str) -> None:
    """As a damaged index would show it: whole, but of another place, or of somebody else."""
    async with SQLiteStore(path) as store:
        for key in ("t:1", "t:2"):
            chat = Chat(store, key)
            for _ in range(3):
                await chat.turn()
        edit(path, "DROP INDEX message_place")
        edit(path, sql)
        with pytest.raises(SnapshotUnreadable, match="t:1"):
            await store.load(ref("t:1"))
        assert await store.load(ref("t:2")) is not None


async def test_what_a_move_brings_along_is_as_damaged_as_it_was(path: Path) -> None:
    async with SQLiteStore(path) as store:
        for key in ("t:old", "t:new"):
            chat = Chat(store, key)
            for _ in range(3):
                await chat.turn()
            await chat.update(lambda value: replace(value, messages=value.messages[4:], window=5))
        # Behind the window, where no load looks.
        for seq, damage in ((1, "about = CAST(about || ' ' AS BLOB)"), (2, "blocks = 5")):
            edit(path, f"UPDATE messages SET {damage} WHERE seq = ? AND session = 2", seq)
        await store.move("t:old", "t:new")
        value = await store.load(ref("t:new"))
        assert value is not None
        assert [row.seq for row in value.messages] == [11, 12]
        for seq in (7, 8):
            with pytest.raises(SnapshotUnreadable, match=r"checksum|damaged"):
                [row async for row in store.archive(ref("t:new"), before=seq + 1, limit=1)]


async def test_a_damaged_key_does_not_stop_a_list(path: Path) -> None:
    value = changes.accept(begun(), inbound("in"))
    async with SQLiteStore(path) as store:
        for number in range(250):
            await store.save(ref(f"t:{number:03}"), value, replaces=None)
        edit(path, "UPDATE sessions SET key = CAST(x'ff' AS TEXT) WHERE key = 't:099'")
        expected = sorted([f"t:{number:03}" for number in range(250) if number != 99] + ["\ufffd"])
        assert await keys(store) == expected
        assert [summary.key for summary in await listed(store, limit=1000)] == expected


async def test_a_destroyed_page_is_corruption(path: Path) -> None:
    async with SQLiteStore(path) as store:
        for _ in range(20):
            await Chat(store, "t:1").update(
                lambda value: changes.append(
                    value,
                    [("user", text("q " * 500))],
                    value.usage,
                    1,
                    memory=ConversationMemory(),
                )
            )
    content = bytearray(path.read_bytes())
    place = content.rindex(b"q q q q") & ~4095
    content[place : place + 64] = b"\xff" * 64
    path.write_bytes(content)
    async with SQLiteStore(path) as store:
        with pytest.raises(StoreCorrupt, match=r"chats\.db: the database is damaged"):
            await store.load(ref("t:1"))
        assert await store.check() != []


async def test_no_flipped_byte_gives_a_wrong_value(path: Path, tmp_path: Path) -> None:
    values: dict[str, Snapshot | None] = {"t:3": None}
    async with SQLiteStore(path) as store:
        for key in ("t:1", "t:2"):
            chat = Chat(store, key)
            for _ in range(3):
                await chat.turn(words="a few words " * 30)
            values[key] = await chat.update(
                lambda value: changes.accept(value, inbound("in", "long " * 1000))
            )
    whole = path.read_bytes()
    used = [place for place, byte in enumerate(whole) if byte]
    chance = random.Random(1)
    said: set[str] = set()
    for number in range(150):
        damaged = tmp_path / f"{number}.db"
        content = bytearray(whole)
        content[chance.choice(used)] ^= 1 << chance.randrange(8)
        damaged.write_bytes(content)
        try:
            async with SQLiteStore(damaged) as store:
                for key, value in values.items():
                    try:
                        assert await store.load(ref(key)) in (value, None)
                    except SnapshotUnreadable:
                        said.add("unreadable")
        except StoreError as error:
            said.add(type(error).__name__)
    assert "unreadable" in said


# ---------------------------------------------------------------------- a disk that refuses


async def limit_pages(store: SQLiteStore, pages: int) -> None:
    await store._write(lambda database: database.execute(f"PRAGMA max_page_count={pages}"))


async def test_a_full_disk_is_said_and_survived(store: SQLiteStore) -> None:
    chat = Chat(store, "t:1")
    value = await chat.turn()
    await limit_pages(store, 1)  # no less than there are
    large = replace(value, revision=value.revision + 1, system_prompt=os.urandom(50_000).hex())
    small = begun()
    outcomes = await asyncio.gather(
        store.save(ref("t:2"), small, replaces=None),
        store.save(chat.ref, large, replaces=value.revision),
        store.notes.put("owner", b"1", was=None),
        return_exceptions=True,
    )
    assert outcomes[0] is None and outcomes[2] is True
    assert isinstance(outcomes[1], StoreUnavailable)
    assert "the disk is full" in str(outcomes[1])
    assert await store.load(chat.ref) == value
    assert await store.load(ref("t:2")) == small
    await limit_pages(store, 1_000_000)
    await store.save(chat.ref, large, replaces=value.revision)
    assert await store.load(chat.ref) == large
    assert await store.check() == []


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """Python ignores the signal, so writing fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_commit_that_fails_is_of_unknown_outcome(store: SQLiteStore, path: Path) -> None:
    value = await Chat(store, "t:1").turn()
    with no_file_longer_than(path.with_name(f"{NAME}-wal").stat().st_size + 100):
        outcomes = await asyncio.gather(
            *(store.save(ref(f"t:{number}"), begun(), replaces=None) for number in range(2, 5)),
            return_exceptions=True,
        )
    for outcome in outcomes:
        assert isinstance(outcome, StoreUnavailable)
        assert "outcome is unknown" in str(outcome)
    assert len({id(outcome) for outcome in outcomes}) == 3
    assert await store.load(ref("t:1")) == value
    await Chat(store, "t:2").turn()
    assert await store.check() == []


async def test_a_lock_is_waited_for_and_said(store: SQLiteStore, path: Path) -> None:
    await store._write(lambda database: database.execute("PRAGMA busy_timeout=20"))
    with behind(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            await store.save(ref("t:1"), begun(), replaces=None)
        assert await store.load(ref("t:1")) is None
        connection.execute("ROLLBACK")
    await store.save(ref("t:1"), begun(), replaces=None)


async def test_other_errors_of_sqlite_are_unavailable_too(store: SQLiteStore) -> None:
    with pytest.raises(StoreUnavailable, match="no such table"):
        await store._write(lambda database: database.execute("SELECT * FROM missing"))
    with pytest.raises(StoreUnavailable, match="no such table"):
        await store._fetch("SELECT * FROM missing", ())


async def test_a_transaction_that_is_gone_is_begun_anew(store: SQLiteStore) -> None:
    """Some errors make SQLite roll back all of it."""

    def lose_it(database: sqlite3.Connection) -> None:
        database.execute("ROLLBACK")
        raise sqlite3.OperationalError("disk I/O error")

    outcomes = await asyncio.gather(
        store.save(ref("t:1"), begun(), replaces=None),
        store._write(lose_it),
        store.save(ref("t:2"), begun(), replaces=None),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), StoreUnavailable, type(None)]
    assert [summary.key for summary in await listed(store)] == ["t:1", "t:2"]
    with pytest.raises(StoreUnavailable):
        await store._read(lose_it)
    assert await store.load(ref("t:1")) == begun()


# ---------------------------------------------------------------------- groups


async def statements(store: SQLiteStore) -> list[str]:
    """What the writing connection runs from now on."""
    seen: list[str] = []
    await store._write(lambda database: database.set_trace_callback(seen.append))
    return seen


async def test_what_waits_shares_a_transaction(store: SQLiteStore) -> None:
    seen = await statements(store)
    await asyncio.gather(
        *(store.save(ref(f"t:{number}"), begun(), replaces=None) for number in range(100))
    )
    assert seen.count("COMMIT") <= 3


async def test_a_member_that_fails_leaves_the_others_alone(store: SQLiteStore) -> None:
    def fail(database: sqlite3.Connection) -> None:
        save.Save("t:2", encode.prepare(begun()), None)(database)
        raise ZeroDivisionError

    await store.save(ref("t:3"), begun(5), replaces=None)
    outcomes = await asyncio.gather(
        store.save(ref("t:1"), begun(), replaces=None),
        store._write(fail),
        store.save(ref("t:3"), begun(7), replaces=6),
        store.save(ref("t:4"), begun(), replaces=None),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [
        type(None),
        ZeroDivisionError,
        StaleSnapshot,
        type(None),
    ]
    assert [summary.key for summary in await listed(store)] == ["t:1", "t:3", "t:4"]


async def test_who_no_longer_waits_is_saved_all_the_same(store: SQLiteStore) -> None:
    saves = [
        asyncio.create_task(store.save(ref(f"t:{number}"), begun(), replaces=None))
        for number in range(3)
    ]
    await asyncio.sleep(0)
    saves[1].cancel()
    outcomes = await asyncio.gather(*saves, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [
        type(None),
        asyncio.CancelledError,
        type(None),
    ]
    assert await store.load(ref("t:1")) == begun()


async def test_a_thread_that_was_asked_in_vain_goes_on(store: SQLiteStore) -> None:
    """Who comes while a group is being taken may ask again for nothing."""
    assert store._reads is not None
    store._reads._take()
    assert await store.load(ref("t:1")) is None


async def test_a_bug_while_a_group_is_written_leaves_nobody_waiting(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> NoReturn:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(commit.Writer, "commit", fail)
        with pytest.raises(StoreUnavailable, match="outcome is unknown"):
            await store.save(ref("t:1"), begun(), replaces=None)
        patch.setattr("stores.sqlite.read_together", fail)
        with pytest.raises(ZeroDivisionError):
            await store.load(ref("t:1"))
    await store.save(ref("t:1"), begun(), replaces=None)


async def test_a_row_that_is_not_what_was_left_there(store: SQLiteStore, path: Path) -> None:
    """Nobody else may write. Should somebody all the same, what counts is what is there."""
    chat = Chat(store, "t:1")
    value = await chat.turn()
    other = await Chat(store, "t:2").turn()
    edit(path, "UPDATE sessions SET revision = revision + 5 WHERE key = 't:1'")
    outcomes = await asyncio.gather(
        store.save(chat.ref, replace(value, revision=9_999), replaces=value.revision),
        store.save(ref("t:2"), replace(other, revision=9_999), replaces=other.revision),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [StaleSnapshot, type(None)]
    edit(path, "UPDATE sessions SET revision = 7 WHERE key = 't:2'")
    # Whoever loads it gets on from there.
    await store.save(ref("t:2"), replace(other, revision=8), replaces=7)


async def test_only_so_many_conversations_are_known(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "KNOWN", 2)
    seen = await statements(store)
    values = [await Chat(store, f"t:{number}").turn() for number in range(4)]
    seen.clear()
    for number in (3, 0, 3):
        value = replace(values[number], revision=values[number].revision + 1)
        await store.save(ref(f"t:{number}"), value, replaces=value.revision - 1)
        values[number] = value
    # What is known is not read again: BEGIN, UPDATE, COMMIT.
    assert len(seen) == 3 + 4 + 3


async def test_closing_waits_for_what_is_being_written(path: Path) -> None:
    began = threading.Event()

    def slowly(database: sqlite3.Connection) -> str:
        began.set()
        time.sleep(0.05)
        return "done"

    async with SQLiteStore(path) as store:
        write = store._write(slowly)
        assert await asyncio.to_thread(began.wait, 5)
    assert await write == "done"


# ---------------------------------------------------------------------- how it lies there


async def test_the_head_stays_small(store: SQLiteStore, path: Path) -> None:
    def lengths() -> tuple[int, int]:
        with behind(path) as connection:
            head: int = connection.execute("SELECT max(length(head)) FROM sessions").fetchone()[0]
            bodies: int = connection.execute("SELECT count(*) FROM bodies").fetchone()[0]
        return head, bodies

    value = replace(
        rich(),
        system_prompt="p" * 50_000,
        inbox=tuple(inbound(f"in{number}", chr(65 + number) * 16_000) for number in range(20)),
        outbox=tuple(Outbound(f"out{number}", str(number) * 4000) for number in range(40)),
        sent=(),
        unanswered=(),
        edited=None,
    )
    await store.save(ref("t:1"), value, replaces=None)
    head, bodies = lengths()
    assert head < 16 << 10
    assert bodies == 1 + 20 + 40 + 1  # and what a suspended step has got already
    seen = await statements(store)
    fewer = replace(value, revision=value.revision + 1, outbox=value.outbox[1:], erase=(), spent=())
    await store.save(ref("t:1"), fewer, replaces=value.revision)
    assert lengths()[1] == bodies - 1
    assert not [sql for sql in seen if sql.startswith("INSERT")]
    done = replace(
        fewer, revision=fewer.revision + 1, outbox=(), inbox=(), system_prompt=None, turn=None
    )
    await store.save(ref("t:1"), done, replaces=fewer.revision)
    assert lengths()[1] == 0
    assert await store.load(ref("t:1")) == done


@pytest.mark.parametrize("how", ["reset", "clear"])
async def test_what_is_erased_is_gone_from_the_file(path: Path, how: str) -> None:
    async with SQLiteStore(path) as store:
        chat = Chat(store, "t:1")
        await chat.turn(words="a secret among friends " * 100)
        other = await Chat(store, "t:2").turn(words="what stays")
        await chat.update(lambda value: changes.notice(value, ["another secret " * 500]))
        if how == "reset":
            await chat.update(lambda value: changes.reset(value, "epoch-2"))
        else:
            await store.clear(chat.ref)
    content = path.read_bytes()
    assert b"secret" not in content
    assert b"what stays" in content
    assert not path.with_name(f"{NAME}-wal").exists()
    async with SQLiteStore(path, read_only=True) as store:
        assert await store.load(ref("t:2")) == other


@pytest.mark.parametrize(
    ("ask", "index"),
    [
        (keys, "session_unfinished"),
        (lambda store: listed(store, "t:"), "session_key"),
        (lambda store: store.load(ref("t:1")), "session_key"),
        (lambda store: seqs(store, "t:1"), "message_place"),
    ],
)
async def test_nothing_is_scanned(
    store: SQLiteStore, ask: Callable[[SQLiteStore], Any], index: str
) -> None:
    await Chat(store, "t:1").turn()
    asked: list[str] = []
    await store._read(lambda database: database.set_trace_callback(asked.append))
    await ask(store)
    await store._read(lambda database: database.set_trace_callback(None))
    plans: list[str] = []
    for sql in asked:
        if sql.startswith("SELECT"):
            plan = await store._fetch(f"EXPLAIN QUERY PLAN {sql}", ())
            plans += [line[-1] for line in plan]
    assert plans
    assert any(index in line for line in plans)
    # The ring of ids is a subquery: what SQLite scans there is its result.
    assert not [line for line in plans if line.startswith("SCAN") and "subquery" not in line], plans


async def test_a_call_is_one_hop(store: SQLiteStore) -> None:
    hops = 0
    assert store._reads is not None
    real = store._reads._hand_over

    def count(work: Callable[[], None]) -> None:
        nonlocal hops
        hops += 1
        # When all have asked: the thread may be faster than they are.
        asyncio.get_running_loop().call_soon(real, work)

    store._reads._hand_over = count
    await store.load(ref("t:1"))
    assert hops == 1
    await asyncio.gather(*(store.load(ref(f"t:{number}")) for number in range(group.LIMIT)))
    assert hops == 2


# ---------------------------------------------------------------------- kill -9


SAVER = """
import asyncio, sys
from stores.sqlite import SQLiteStore
from bots.contracts.store import Chat
async def main():
    async with SQLiteStore(sys.argv[1]) as store:
        async def talk(key):
            chat = Chat(store, key)
            chat.turns = int(sys.argv[2])
            while True:
                value = await chat.turn(words="word " * 300)
                print(key, value.revision, value.next_seq, flush=True)
        await asyncio.gather(*(talk(f"t:{number}") for number in range(4)))
asyncio.run(main())
"""


async def test_killed_while_it_saves(path: Path) -> None:
    chance = random.Random(2)
    acknowledged: dict[str, tuple[int, int]] = {}
    root = Path(__file__).parents[2]
    for round_ in range(5):
        command = [sys.executable, "-c", SAVER, str(path), str(round_ * 100_000)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root) as process:
            assert process.stdout is not None
            for _ in range(chance.randrange(1, 60)):
                process.stdout.readline()
            time.sleep(chance.random() / 100)
            process.kill()
            # What it said in the meantime was acknowledged, too.
            lines = process.stdout.read().splitlines()
        for line in lines:
            if len(words := line.decode().split()) == 3:
                acknowledged[words[0]] = (int(words[1]), int(words[2]))
        with behind(path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        async with SQLiteStore(path) as store:
            for key, (revision, next_seq) in acknowledged.items():
                value = await store.load(ref(key))
                assert value is not None
                assert value.revision >= revision and value.next_seq >= next_seq
                assert await seqs(store, key) == list(range(value.spans[-1][1], 0, -1))
    assert acknowledged


async def test_a_blob_that_goes_leaves_no_bytes(path: Path) -> None:
    secret = b"nobody else shall read this" * 1000
    async with SQLiteStore(path) as store:
        await store.blobs.put("t:1", secret, "text/plain")
        edit(path, "UPDATE blobs SET media_type = media_type")
        assert secret[:27] in _all_bytes(path)
        await store.clear(ref("t:1"))
        # The log is emptied by whoever checkpoints it; here it is the test.
        with behind(path) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert secret[:27] not in _all_bytes(path)


def _all_bytes(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))


async def test_a_blob_of_a_wrong_type_is_damaged(store: SQLiteStore, path: Path) -> None:
    id = await store.blobs.put("t:1", b"data", "image/png")
    edit(path, "UPDATE blobs SET media_type = ?", b"\xff")
    with pytest.raises(BlobUnreadable):
        await store.blobs.get(id)


async def test_a_database_from_before_there_were_blobs(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(schema, "STEPS", schema.STEPS[:1])
        async with SQLiteStore(path):
            pass
    assert list(migrate.bring_up(path)) == [*range(2, len(schema.STEPS) + 1)]
    async with SQLiteStore(path) as store:
        id = await store.blobs.put("t:1", b"data", "image/png")
        assert await store.blobs.get(id) == Blob("image/png", b"data")


# --- copies -----------------------------------------------------------------------------------


async def test_of_a_damaged_database_no_copy_is_made(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    async with SQLiteStore(path):
        pass
    with closing(sqlite3.connect(path)) as database, database:
        (root,) = database.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'sessions'"
        ).fetchone()
        (size,) = database.execute("PRAGMA page_size").fetchone()
    with open(path, "r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * size)
    with pytest.raises(StoreCorrupt, match="is damaged"):
        backup.copy(path, tmp_path / "copy.db", lambda done, of: None)
    assert not list(tmp_path.glob("copy.db*"))


async def test_what_somebody_reads_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    async with SQLiteStore(path) as store:
        assert await store.load(SessionRef("a")) is None
        with pytest.raises(StoreUnavailable, match="locked by somebody else"):
            backup.in_one_file(path)
