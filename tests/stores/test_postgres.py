"""PostgresStore: the contract, then what only a database on a server can suffer."""

from __future__ import annotations

import asyncio
import signal
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from bots.contracts.store import (
    Chat,
    StoreContract,
    begun,
    image,
    inbound,
    keys,
    listed,
    ref,
    rich,
    seqs,
)
from core import changes
from core.errors import (
    ConfigError,
    SnapshotUnreadable,
    StaleSnapshot,
    StoreCorrupt,
    StoreInUse,
    StoreOutdated,
    StoreUnavailable,
)
from core.snapshot import stored
from core.store import BotStore
from stores.postgres import PostgresStore, schema
from stores.urls import open_store
from tests.postgres import fresh_url, server


def url_of(place: Path) -> str:
    """A schema for each folder: what was stored there is found there again."""
    return server().url(f"t{sha256(str(place).encode()).hexdigest()[:16]}")


@contextmanager
def behind(url: str) -> Iterator[psycopg.Connection[Any]]:
    """The database, behind the store's back."""
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def edit(url: str, sql: str, *values: object) -> None:
    with behind(url) as database:
        assert database.execute(sql, values).rowcount > 0


class TestPostgresStore(StoreContract):
    def open(self, place: Path) -> BotStore:
        return PostgresStore(url_of(place))

    async def spoil(self, store: BotStore, place: Path, key: str) -> None:
        edit(url_of(place), "UPDATE sessions SET head = head || ' '::bytea WHERE key = %s", key)

    async def age(self, store: BotStore, place: Path, key: str) -> None:
        with behind(url_of(place)) as database:
            ((head, seen),) = database.execute(
                "SELECT head, seen FROM sessions WHERE key = %s AND aside IS NULL", (key,)
            ).fetchall()
            newer = bytes(head).replace(b'"version":1', b'"version":99')
            crc = zlib.crc32(seen, zlib.crc32(newer))
            database.execute(
                "UPDATE sessions SET head = %s, crc = %s WHERE key = %s AND aside IS NULL",
                (newer, crc, key),
            )

    async def spoil_blob(self, store: BotStore, place: Path, id: str) -> None:
        edit(url_of(place), "UPDATE blobs SET data = 'dada'::bytea WHERE id = %s", id)

    async def bytes_of(self, place: Path) -> bytes:
        with behind(url_of(place)) as database:
            database.execute("CHECKPOINT")
            names = [
                name
                for (name,) in database.execute(
                    "SELECT pg_relation_filepath(c.oid) FROM pg_class c "
                    "WHERE pg_relation_filepath(c.oid) IS NOT NULL AND c.relnamespace = "
                    "current_schema()::regnamespace OR c.oid IN (SELECT reltoastrelid FROM "
                    "pg_class t WHERE t.relnamespace = current_schema()::regnamespace)"
                )
                if name
            ]
        files = [server().folder / "data" / name for name in names]
        return b"".join(file.read_bytes() for file in files if file.exists())


@pytest.fixture
def url() -> str:
    return fresh_url()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(url) as store:
        yield store


# ---------------------------------------------------------------------- damage


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("UPDATE messages SET blocks = '[]'::bytea WHERE seq = 8", "its message 8 is wrong"),
        ("UPDATE messages SET about = '[]'::bytea WHERE seq = 8", "its message 8 is wrong"),
        ("DELETE FROM messages WHERE seq = 8", "1 of its messages are missing, 8 is the first"),
        ("UPDATE sessions SET seen = '[]'::bytea", "the checksum of its head is wrong"),
        ("UPDATE sessions SET revision = revision - 1", "its row and its head disagree"),
    ],
)
async def test_what_is_not_as_it_was_stored_is_unreadable(
    store: PostgresStore, url: str, sql: str, what: str
) -> None:
    await store.save(ref("t:1"), rich(), replaces=None)
    edit(url, sql)
    with pytest.raises(SnapshotUnreadable, match=what):
        await store.load(ref("t:1"))
    assert len(await listed(store)) == 1


@pytest.mark.parametrize("column", ["head", "about"])
async def test_what_has_its_checksum_and_is_no_json(
    store: PostgresStore, url: str, column: str
) -> None:
    await store.save(ref("t:1"), rich(), replaces=None)
    with behind(url) as database:
        if column == "head":
            ((seen,),) = database.execute("SELECT seen FROM sessions").fetchall()
            crc = zlib.crc32(seen, zlib.crc32(b"{"))
            database.execute("UPDATE sessions SET head = '{'::bytea, crc = %s", (crc,))
        else:
            ((blocks,),) = database.execute("SELECT blocks FROM messages WHERE seq = 8").fetchall()
            crc = zlib.crc32(blocks, zlib.crc32(b"{"))
            database.execute("UPDATE messages SET about = '{', crc = %s WHERE seq = 8", (crc,))
    with pytest.raises(SnapshotUnreadable, match="what is stored is damaged"):
        await store.load(ref("t:1"))


# ---------------------------------------------------------------------- many at once


async def test_a_second_process_is_refused(store: PostgresStore, url: str) -> None:
    with pytest.raises(StoreInUse, match="another chinwag holds it"):
        async with PostgresStore(url):
            raise AssertionError
    async with PostgresStore(url, read_only=True) as beside:
        assert await listed(beside) == []
        with pytest.raises(StoreUnavailable, match="read-only"):
            await beside.save(ref("t:1"), begun(), replaces=None)


async def test_when_it_has_ended_another_may_begin(url: str) -> None:
    for _ in range(2):
        async with PostgresStore(url) as store:
            await store.clear(ref("t:1"))


async def test_of_two_workers_one_is_stale(url: str) -> None:
    async with PostgresStore(url, shared=True) as one, PostgresStore(url, shared=True) as two:
        await one.save(ref("t:1"), begun(1), replaces=None)
        with pytest.raises(StaleSnapshot, match="what is stored is not nothing"):
            await two.save(ref("t:1"), begun(7), replaces=None)
        assert await two.load(ref("t:1")) == begun(1)
        await one.save(ref("t:1"), begun(2), replaces=1)
        with pytest.raises(StaleSnapshot, match="what is stored is not revision 1"):
            await two.save(ref("t:1"), begun(2), replaces=1)


async def test_workers_that_change_one_conversation_lose_nothing(url: str) -> None:
    async with PostgresStore(url, shared=True) as one, PostgresStore(url, shared=True) as two:
        chats = [Chat(store, "t:1") for store in (one, two)]

        async def count(chat: Chat, times: int) -> None:
            for _ in range(times):
                await chat.update(
                    lambda value: replace(value, chosen={"n": str(_number(value) + 1)})
                )

        await asyncio.gather(*(count(chat, 20) for chat in chats))
        final = await one.load(ref("t:1"))
        assert final is not None
        assert _number(final) == 40


def _number(value: Any) -> int:
    return int(value.chosen.get("n", "0"))


async def test_a_save_asks_for_what_it_does_not_know(url: str) -> None:
    """A worker that has never seen the conversation writes only what is new, too."""
    async with PostgresStore(url, shared=True) as one, PostgresStore(url, shared=True) as two:
        value = await Chat(one, "t:1").turn()
        changed = replace(value, revision=value.revision + 1, model="other")
        await two.save(ref("t:1"), changed, replaces=value.revision)
        assert await one.load(ref("t:1")) == changed
        assert await seqs(one, "t:1") == [2, 1]


async def test_what_it_remembers_is_bounded(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stores.postgres.KNOWN", 3)
    chats = [Chat(store, f"t:{number}") for number in range(5)]
    for _ in range(2):
        for chat in chats:
            await chat.turn()
    assert len(store._known) == 3
    assert [len(await seqs(store, chat.ref.key)) for chat in chats] == [4] * 5


# ---------------------------------------------------------------------- the server


async def test_a_server_that_starts_anew_is_found_again(url: str) -> None:
    """Whoever saved meanwhile was told that it failed; what was told to be durable is there."""
    async with PostgresStore(url) as store:
        await store.save(ref("t:1"), begun(1), replaces=None)
        server().stop(signal.SIGINT)
        try:
            with pytest.raises(StoreUnavailable, match="postgresql://"):
                await _impatient(store).save(ref("t:1"), begun(2), replaces=1)
        finally:
            server().start()
        assert await store.load(ref("t:1")) == begun(1)
        await store.save(ref("t:1"), begun(2), replaces=1)
        assert await store.load(ref("t:1")) == begun(2)


def _impatient(store: PostgresStore) -> PostgresStore:
    assert store._pool is not None
    store._pool.timeout = 0.5
    return store


async def test_connections_that_were_ended_are_no_hindrance(store: PostgresStore, url: str) -> None:
    await store.save(ref("t:1"), begun(1), replaces=None)
    with behind(url) as database:
        database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'chinwag' AND query NOT LIKE '%advisory%'"
        )
    await store.save(ref("t:1"), begun(2), replaces=1)


async def test_where_nobody_listens(tmp_path: Path) -> None:
    store = PostgresStore(f"postgresql://ann:hunter22@/db?host={tmp_path}")
    with pytest.raises(StoreUnavailable) as error:
        async with store:
            raise AssertionError
    assert "No such file or directory" in str(error.value)
    assert "hunter22" not in str(error.value)


async def test_one_that_is_not_open(url: str) -> None:
    with pytest.raises(StoreUnavailable, match="the store is not open"):
        await PostgresStore(url).load(ref("t:1"))


@pytest.mark.parametrize("url", ["postgresql://host/db?nonsense=1", "postgresql://[host/db"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ConfigError, match=r"\[store\] url: "):
        PostgresStore(url)


async def test_a_url_names_it(url: str, tmp_path: Path) -> None:
    for scheme in ("postgresql", "postgres"):
        async with open_store(url.replace("postgresql", scheme, 1), tmp_path) as store:
            await store.clear(ref("t:1"))
    async with open_store(url, tmp_path, read_only=True) as store:
        assert await keys(store) == []


async def test_it_has_a_schema_of_its_own() -> None:
    bare = server().url("x").partition("&options")[0]
    async with PostgresStore(bare) as store:
        await store.save(ref("t:1"), begun(), replaces=None)
    with behind(bare) as database:
        assert database.execute("SELECT count(*) FROM chinwag.sessions").fetchall() == [(1,)]
        database.execute("DROP SCHEMA chinwag CASCADE")


# ---------------------------------------------------------------------- whose it is


async def test_reading_makes_nothing(url: str) -> None:
    with pytest.raises(StoreUnavailable, match="nothing is stored there yet"):
        async with PostgresStore(url, read_only=True):
            raise AssertionError
    with behind(url) as database:
        assert database.execute("SELECT to_regclass('sessions')").fetchall() == [(None,)]


async def test_a_newer_one_is_left_alone(url: str) -> None:
    async with PostgresStore(url):
        pass
    edit(url, "UPDATE schema_version SET version = 99")
    for read_only in (True, False):
        with pytest.raises(StoreCorrupt, match="its schema has version 99"):
            async with PostgresStore(url, read_only=read_only):
                raise AssertionError


async def test_an_older_one_is_brought_up_when_that_is_asked_for(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with PostgresStore(url) as store:
        await store.save(ref("t:1"), rich(), replaces=None)
    steps = (
        *schema.STEPS,
        ("ALTER TABLE notes ADD COLUMN more text",),
        ("UPDATE sessions SET updated_at = 7", "ALTER TABLE notes ADD COLUMN most text"),
    )
    monkeypatch.setattr(schema, "STEPS", steps)
    for read_only in (True, False):
        with pytest.raises(StoreOutdated, match="an older chinwag wrote it"):
            async with PostgresStore(url, read_only=read_only):
                raise AssertionError
    async with PostgresStore(url).alone() as connection:
        reached = [number async for number in schema.bring_up(connection, "here")]
        assert reached == [len(steps) - 1, len(steps)]
        assert [number async for number in schema.bring_up(connection, "here")] == []
        with pytest.raises(StoreInUse):
            async with PostgresStore(url):
                raise AssertionError
    async with PostgresStore(url) as store:
        assert await store._fetch("SELECT more, most FROM notes", ()) == []
        assert await store.load(ref("t:1")) == stored(rich())
        with pytest.raises(StoreInUse):
            async with PostgresStore(url).alone():
                raise AssertionError
    async with PostgresStore(url, shared=True):
        with pytest.raises(StoreInUse, match="connections of chinwag are open"):
            async with PostgresStore(url).alone():
                raise AssertionError


async def test_a_step_that_fails_leaves_what_was(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with PostgresStore(url):
        pass
    steps = (
        *schema.STEPS,
        ("ALTER TABLE notes ADD COLUMN more text",),
        ("ALTER TABLE notes ADD COLUMN most text", "SELECT 1 / 0"),
    )
    monkeypatch.setattr(schema, "STEPS", steps)
    with pytest.raises(StoreUnavailable, match="division by zero"):
        async with PostgresStore(url).alone() as connection:
            async for _ in schema.bring_up(connection, "here"):
                pass
    async with PostgresStore(url).alone() as connection:
        assert await schema.version(connection, "here") == len(steps) - 1
        await connection.execute("SELECT more FROM notes")
        with pytest.raises(psycopg.errors.UndefinedColumn):
            await connection.execute("SELECT most FROM notes")


async def test_somebody_elses_tables_are_left_alone(url: str) -> None:
    name = url.rpartition("%3D")[2]
    with behind(url) as database:
        database.execute(f"CREATE SCHEMA {name}")
        database.execute("CREATE TABLE sessions(mine text)")
    with pytest.raises(StoreCorrupt, match="not of chinwag; name another schema"):
        async with PostgresStore(url):
            raise AssertionError


async def test_a_database_that_cannot_hold_every_text_is_refused(url: str) -> None:
    with behind(url) as database:
        database.execute("DROP DATABASE IF EXISTS ascii")
        database.execute(
            "CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' "
            "LC_CTYPE 'C'"
        )
    with pytest.raises(StoreCorrupt, match="not in UTF-8"):
        async with PostgresStore(url.replace("///postgres", "///ascii")):
            raise AssertionError


async def test_a_table_that_is_gone(store: PostgresStore, url: str) -> None:
    with behind(url) as database:
        database.execute("DROP TABLE notes")
    with pytest.raises(StoreCorrupt, match="the database is damaged"):
        await store.notes.get("a")


async def test_what_the_server_does_not_promise_is_said(store: PostgresStore) -> None:
    """The tests' own server is set to forget everything in a power cut."""
    assert await store.check() == [
        "fsync is off: a power cut may lose or damage conversations",
        "full_page_writes is off: a power cut may lose or damage conversations",
    ]


async def test_durable_whatever_the_server_is_set_to(url: str) -> None:
    lax = f"{url}%20-c%20synchronous_commit%3Doff"
    async with PostgresStore(lax) as store:
        assert await store._fetch("SHOW synchronous_commit", ()) == [("on",)]


@asynccontextmanager
async def counted(store: PostgresStore) -> AsyncIterator[list[str]]:
    """The statements that leave for the server meanwhile."""
    sent: list[str] = []
    execute = psycopg.AsyncConnection.execute

    async def counting(self: Any, query: Any, *rest: Any, **more: Any) -> Any:
        sent.append(str(query))
        return await execute(self, query, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.AsyncConnection, "execute", counting)
        yield sent


@pytest.mark.parametrize("turns", [3, 120])
async def test_a_turn_costs_the_same_however_long_it_is(store: PostgresStore, turns: int) -> None:
    """A statement a save, a statement a load, and no more rows than are new."""
    chat = Chat(store, "t:1")
    for _ in range(turns):
        await chat.turn()
    async with counted(store) as sent:
        await chat.turn()
    ours = [sql for sql in sent if "sessions" in sql]
    assert len(ours) == 8  # four loads, four saves
    rows = await store._fetch(
        "SELECT count(*) FROM messages m JOIN sessions s ON m.session = s.id AND s.runs @> m.seq",
        (),
    )
    assert rows[0][0] <= 40


async def test_a_stale_reset_takes_no_picture_along(url: str) -> None:
    async with PostgresStore(url, shared=True) as one, PostgresStore(url, shared=True) as two:
        id = await one.blobs.put("t:1", b"a picture", "image/png")
        seen = replace(inbound("in-1"), blocks=image(id))
        value = await Chat(one, "t:1").update(lambda value: changes.accept(value, seen))
        await two.save(ref("t:1"), replace(value, revision=2), replaces=value.revision)
        wiped = replace(changes.reset(value, "new"), revision=value.revision + 1, erase=((1, 9),))
        with pytest.raises(StaleSnapshot):
            await one.save(ref("t:1"), wiped, replaces=value.revision)
        assert await two.load(ref("t:1")) == replace(value, revision=2)
        assert await two.blobs.get(id) is not None
