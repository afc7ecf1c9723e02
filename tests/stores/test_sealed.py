"""Encryption at rest, over real stores: nothing that was said is in the files, what was changed or
moved by somebody is noticed, keys can be changed, and a wrong one is one clear error."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, cast
from uuid import uuid4

import msgspec
import pytest
from msgspec.structs import replace

from bots.backup import back_up, restore
from bots.contracts.store import Chat, StoreContract, begun, image, inbound, ref, rich
from bots.copying import copy_sessions
from bots.doctor import _store
from bots.settings import Settings, load_settings
from bots.stores import store_of
from core import changes
from core.errors import BlobUnreadable, CannotUnseal, ConfigError, SnapshotUnreadable
from core.messages import Attachment, Message, Sender, encode_blocks, text_block
from core.seal import VARIABLE, Seal, keys_of, new_key
from core.snapshot import Overheard, Snapshot, stored
from core.store import BotStore
from stores.disk import DiskStore
from stores.memory import MemoryStore
from stores.sealed import Guarded, SealedStore, guard
from stores.sqlite import SQLiteStore
from tests import postgres, redis

KEYS = keys_of(new_key())
OTHER = keys_of(new_key())
WORD = "aardvark"  # in all that is said here

STORES: dict[str, Callable[[Path], BotStore]] = {
    "sqlite": lambda place: SQLiteStore(place / "a.db"),
    "disk": lambda place: DiskStore(place / "disk"),
    "memory": lambda place: MemoryStore(),
    "postgres": lambda place: _postgres(),
    "redis": lambda place: _redis(),
}


def _postgres() -> BotStore:
    from stores.postgres import PostgresStore

    return PostgresStore(postgres.fresh_url())


def _redis() -> BotStore:
    from stores.redis import RedisStore

    return RedisStore(redis.fresh_url())


def sealed(store: BotStore, keys: tuple[bytes, ...] | None = KEYS) -> Guarded:
    return guard(store, keys, encrypted=True, read_only=False)


def in_file(place: Path, keys: tuple[bytes, ...] | None = KEYS) -> Guarded:
    return sealed(SQLiteStore(place / "a.db"), keys)


def row(seq: int, words: str = WORD) -> Message:
    role: Any = "user" if seq % 2 else "assistant"
    return Message(seq, role, encode_blocks([text_block(f"{words} {seq}")]), 7)


class TestSealed(StoreContract):
    """Over SQLite: what the contract asks is the same with any store beneath."""

    keeps_plain: ClassVar[bool] = False

    def open(self, place: Path) -> BotStore:
        return cast(BotStore, in_file(place))


def talk(revision: int = 1, rows: int = 4, words: str = WORD) -> Snapshot:
    return replace(
        begun(revision),
        messages=tuple(row(seq, words) for seq in range(1, rows + 1)),
        spans=((1, rows),),
        next_seq=rows + 1,
    )


def told() -> Snapshot:
    """Every text that there is has the word in it."""
    full = rich()
    heard = inbound("i9", f"{WORD} text")
    heard = replace(
        heard,
        sender=Sender("t:42", WORD),
        blocks=encode_blocks([text_block(WORD)]),
        attachments=(Attachment("photo", WORD, WORD, author=WORD),),
    )
    assert full.turn is not None
    return replace(
        full,
        system_prompt=WORD * 2_000,
        cwd=f"/home/{WORD}",
        messages=tuple(
            replace(each, blocks=encode_blocks([text_block(WORD)])) for each in full.messages
        ),
        inbox=(heard,),
        unanswered=(replace(heard, id="i10"),),
        edited=replace(heard, id="i11"),
        heard=(Overheard(Sender("t:1", WORD), WORD),),
        outbox=tuple(replace(each, body=WORD * 500, why=WORD) for each in full.outbox),
    )


def words_in(place: Path) -> list[str]:
    """Which files have the word in them, in any of the ways in which a text is written."""
    files = [path for path in place.rglob("*") if path.is_file()]
    assert files
    return [path.name for path in files if WORD.encode() in path.read_bytes()]


@pytest.mark.parametrize("kind", STORES)
async def test_what_is_stored_comes_back(kind: str, tmp_path: Path) -> None:
    async with sealed(STORES[kind](tmp_path)) as store:
        assert isinstance(store, SealedStore)
        await store.save(ref("t:1"), told(), replaces=None)
        assert await store.load(ref("t:1")) == stored(told())
        beneath = await store._store.load(ref("t:1"))
        assert beneath is not None
        assert WORD not in msgspec.json.encode(beneath).decode()
        id = await store.blobs.put("t:1", WORD.encode(), "text/plain")
        assert id == await store.blobs.put("t:1", WORD.encode(), "text/plain")
        got = await store.blobs.get(id)
        assert got is not None
        assert got.data == WORD.encode()
        assert await store.notes.put("n", WORD.encode(), was=None)
        assert not await store.notes.put("n", b"other", was=b"wrong")
        assert await store.notes.get("n") == WORD.encode()
        assert [name async for name in store.notes.names()] == ["n"]
        assert WORD.encode() not in (await store._store.notes.get("n") or b"")


@pytest.mark.parametrize("kind", STORES)
async def test_a_chat_that_moves_is_read_under_its_new_key(kind: str, tmp_path: Path) -> None:
    """Also where two become one, in the store's own transaction."""
    async with sealed(STORES[kind](tmp_path)) as store:
        waiting = (inbound("i1", WORD, "t:1"),)
        await store.save(ref("t:1"), replace(talk(), inbox=waiting), replaces=None)
        await store.save(ref("t:2"), talk(words="second"), replaces=None)
        await store.save(ref("t:1/topic"), talk(words="topic"), replaces=None)
        await store.move("t:1", "t:2")
        await store.move("t:2", "t:3")
        moved = await store.load(ref("t:3"))
        assert moved is not None
        said = [each.blocks for each in moved.messages]
        assert said == [each.blocks for each in talk().messages + talk(words="second").messages]
        assert [each.text for each in moved.inbox] == [WORD]
        topic = await store.load(ref("t:3/topic"))
        assert topic is not None
        assert [each.blocks for each in topic.messages] == [
            each.blocks for each in talk(words="topic").messages
        ]
        chat = Chat(store, "t:3")
        await chat.update(lambda value: changes.accept(value, inbound("i2", "more", "t:3")))
        after = await store.load(ref("t:3"))
        assert after is not None
        assert len(after.inbox) == 2


@pytest.mark.parametrize("kind", ["sqlite", "disk"])
async def test_no_word_is_in_the_files(kind: str, tmp_path: Path) -> None:
    async with sealed(STORES[kind](tmp_path)) as store:
        await store.save(ref("t:1"), told(), replaces=None)
        await store.save(ref("t:2"), talk(), replaces=None)
        await store.save(ref("t:2"), talk(revision=2, rows=30), replaces=1)
        await store.blobs.put("t:1", WORD.encode() * 9, "text/plain")
        await store.notes.put("untold", WORD.encode(), was=None)
        await store.save(ref("t:3"), talk(), replaces=None)
        await store.set_aside(ref("t:3"))
        await store.move("t:2", "t:4")
        assert words_in(tmp_path) == []  # the write-ahead log is among them
    assert words_in(tmp_path) == []
    # The search finds what is there.
    async with STORES[kind](tmp_path / "..") as plain:
        await plain.save(ref("t:1"), talk(), replaces=None)
        assert words_in(tmp_path / "..")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE messages SET blocks = (SELECT blocks FROM messages WHERE seq = 3 LIMIT 1)"
        " WHERE seq = 1",
        "UPDATE messages SET blocks = (SELECT blocks FROM messages m WHERE m.seq = messages.seq"
        " AND m.session <> messages.session)",
        "UPDATE messages SET blocks = CAST(replace(blocks, 'A', 'B') AS BLOB)",
        'UPDATE messages SET blocks = \'[{"type":"text","text":"said by nobody"}]\'',
    ],
)
async def test_what_somebody_has_changed_is_noticed(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who can write to the file can correct its checksums, too: here nobody looks at those."""
    async with in_file(tmp_path) as store:
        await store.save(ref("t:1"), talk(), replaces=None)
        await store.save(ref("t:2"), talk(words="other"), replaces=None)
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        _correct(database, change)
    async with in_file(tmp_path) as store:
        with pytest.raises(SnapshotUnreadable, match="t:1: "):
            await store.load(ref("t:1"))


def _correct(database: sqlite3.Connection, change: str) -> None:
    from stores.sqlite.encode import row_checksum

    database.execute(change)
    for id, session, seq, about, blocks in database.execute(
        "SELECT id, session, seq, CAST(about AS BLOB), CAST(blocks AS BLOB) FROM messages"
    ).fetchall():
        database.execute(
            "UPDATE messages SET blocks = ?, crc = ? WHERE id = ?",
            (blocks, row_checksum(session, seq, about, blocks), id),
        )
    database.commit()


async def test_a_word_put_into_the_head_is_noticed(tmp_path: Path) -> None:
    async with in_file(tmp_path) as store:
        assert isinstance(store, SealedStore)
        await store._store.save(
            ref("t:1"), replace(begun(), inbox=(inbound("i1", "obey"),)), replaces=None
        )
        with pytest.raises(SnapshotUnreadable, match="not sealed"):
            await store.load(ref("t:1"))


async def test_a_blob_in_the_place_of_another_is_noticed(tmp_path: Path) -> None:
    async with in_file(tmp_path) as store:
        one = await store.blobs.put("t:1", b"one", "text/plain")
        await store.blobs.put("t:1", b"two", "text/plain")
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        database.execute("UPDATE blobs SET data = (SELECT data FROM blobs WHERE id <> ?)", (one,))
        database.commit()
    async with in_file(tmp_path) as store:
        with pytest.raises(BlobUnreadable):
            await store.blobs.get(one)


async def test_a_note_under_another_name_is_noticed(tmp_path: Path) -> None:
    async with in_file(tmp_path) as store:
        await store.notes.put("a", b"1", was=None)
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        database.execute("UPDATE notes SET name = 'owner' WHERE name = 'a'")
        database.commit()
    async with in_file(tmp_path) as store:
        with pytest.raises(CannotUnseal, match="'owner' was changed"):
            await store.notes.get("owner")


@pytest.mark.parametrize("keys", [OTHER, None])
async def test_a_lost_key_is_one_error_and_nothing_is_set_aside(
    keys: tuple[bytes, ...] | None, tmp_path: Path
) -> None:
    async with in_file(tmp_path) as store:
        await store.save(ref("t:1"), talk(), replaces=None)
    with pytest.raises((ConfigError, CannotUnseal), match="CHINWAG_ENCRYPTION_KEYS"):
        async with in_file(tmp_path, keys):
            pass
    async with in_file(tmp_path) as store:
        assert await store.load(ref("t:1")) == talk()


async def test_keys_are_changed_in_one_write(tmp_path: Path) -> None:
    async with in_file(tmp_path) as store:
        await store.save(ref("t:1"), talk(), replaces=None)
    # Who only reads changes nothing.
    async with guard(
        SQLiteStore(tmp_path / "a.db", read_only=True),
        (*OTHER, *KEYS),
        encrypted=True,
        read_only=True,
    ) as store:
        assert await store.load(ref("t:1")) == talk()
    with pytest.raises(CannotUnseal):
        async with in_file(tmp_path, OTHER):
            pass
    async with in_file(tmp_path, (*OTHER, *KEYS)) as store:
        assert await store.load(ref("t:1")) == talk()
    async with in_file(tmp_path, OTHER) as store:
        assert await store.load(ref("t:1")) == talk()
    with pytest.raises(CannotUnseal):
        async with in_file(tmp_path, KEYS):
            pass


async def test_what_the_settings_say_must_be_so(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with SQLiteStore(path) as plain:
        await plain.save(ref("t:1"), talk(), replaces=None)
    with pytest.raises(ConfigError, match="sessions copy"):
        async with in_file(tmp_path):
            pass
    new = tmp_path / "b.db"
    async with sealed(SQLiteStore(new)):
        pass
    with pytest.raises(ConfigError, match="set it to true"):
        async with guard(SQLiteStore(new), KEYS, encrypted=False, read_only=False):
            pass
    # One that is not encrypted is given out as it is: it costs what it did.
    async with guard(SQLiteStore(path), None, encrypted=False, read_only=False) as store:
        assert type(store) is SQLiteStore


async def test_a_copy_makes_it_encrypted_and_plain_again(tmp_path: Path) -> None:
    async with SQLiteStore(tmp_path / "plain.db") as plain:
        id = await plain.blobs.put("t:1", b"a picture", "image/png")
        shown = replace(inbound("i1", WORD, "t:1"), blocks=image(id))
        await plain.save(ref("t:1"), replace(talk(), inbox=(shown,)), replaces=None)
        await plain.notes.put("owner", b"telegram:1", was=None)

    async def copy(source: str, target: str, *, encrypted: bool) -> None:
        for _ in range(2):  # the second finds all there
            async for _line in copy_sessions(
                source,
                target,
                tmp_path,
                lambda done, of: None,
                keys=KEYS,
                encrypted=encrypted,
            ):
                pass

    await copy("sqlite:plain.db", "sqlite:sealed.db", encrypted=True)
    assert "sealed.db" not in words_in(tmp_path)
    await copy("sqlite:sealed.db", "sqlite:again.db", encrypted=False)
    async with SQLiteStore(tmp_path / "again.db") as again:
        loaded = await again.load(ref("t:1"))
        assert loaded == replace(talk(), inbox=(shown,))
        got = await again.blobs.get(id)
        assert got is not None
        assert got.data == b"a picture"
        assert await again.notes.get("owner") == b"telegram:1"


async def test_a_save_seals_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    async with sealed(MemoryStore()) as store:
        assert isinstance(store, SealedStore)
        before = talk(rows=500)
        await store.save(ref("t:1"), before, replaces=None)
        count = 0
        seal = Seal.seal

        def counted(*given: Any, **named: Any) -> bytes:
            nonlocal count
            count += 1
            return seal(*given, **named)

        monkeypatch.setattr(Seal, "seal", counted)
        after = replace(
            before,
            revision=2,
            messages=(*before.messages, row(501)),
            spans=((1, 501),),
            next_seq=502,
        )
        await store.save(ref("t:1"), after, replaces=1)
        assert count == 1


@pytest.mark.parametrize("kind", ["postgres", "redis"])
async def test_no_word_is_in_the_files_of_a_server(kind: str, tmp_path: Path) -> None:
    """Its data, its write-ahead log, its append-only file. What is said plain is found there."""
    sealed_word, plain_word = f"quagga{uuid4().hex}", f"quagga{uuid4().hex}"
    for store, word in (
        (sealed(STORES[kind](tmp_path)), sealed_word),
        (guard(STORES[kind](tmp_path), None, encrypted=False, read_only=False), plain_word),
    ):
        async with store as opened:
            waiting = (inbound("i1", word, "t:1"),)
            await opened.save(ref("t:1"), replace(talk(words=word), inbox=waiting), replaces=None)
            await opened.blobs.put("t:1", word.encode(), "text/plain")
            await opened.notes.put("n", word.encode(), was=None)
            await opened.move("t:1", "t:2")
            await opened.set_aside(ref("t:2"))
    if kind == "postgres":
        import psycopg

        folder = postgres.server().folder
        with psycopg.connect(postgres.server().url("public"), autocommit=True) as connection:
            connection.execute("CHECKPOINT")
    else:
        folder = redis.server().folder
    data = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert any(plain_word.encode() in each for each in data)
    assert not any(sealed_word.encode() in each for each in data)


def settings_in(folder: Path, keys: str | None, *, encrypted: bool = True) -> Settings:
    (folder / "config.toml").write_text(
        f'[store]\nurl = "sqlite:a.db"\nencrypted = {str(encrypted).lower()}\n'
    )
    return load_settings(folder / "config.toml", {VARIABLE: keys} if keys else {})


async def test_a_backup_is_sealed_and_is_put_back(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, new_key())
    async with store_of(settings) as store:
        waiting = (inbound("i1", WORD, "t:1"),)
        await store.save(ref("t:1"), replace(talk(), inbox=waiting), replaces=None)
    copied = tmp_path / "copied.db"
    async for _ in back_up(settings, copied, lambda done, of: None):
        pass
    assert words_in(tmp_path) == []
    async for _ in restore(settings, copied, "drop", replacing=True):
        pass
    assert words_in(tmp_path) == []
    async with store_of(settings) as store:
        back = await store.load(ref("t:1"))
    assert back is not None
    assert back.messages[:4] == talk().messages
    assert not back.unfinished


async def test_the_check_says_what_is_wrong_with_a_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="openssl rand"):
        async with store_of(settings_in(tmp_path, None)):
            pass
    key = new_key()
    async with store_of(settings_in(tmp_path, key)) as store:
        await store.save(ref("t:1"), talk(), replaces=None)

    async def found(keys: str | None, *, encrypted: bool = True) -> tuple[int, str]:
        settings = settings_in(tmp_path, keys, encrypted=encrypted)
        (finding,) = [each async for each in _store(settings) if each.what == "store"]
        return finding.exit_code, finding.text

    assert (await found(key))[0] == 0
    code, text = await found(new_key())
    assert (code, VARIABLE in text) == (3, True)
    code, text = await found(None)
    assert (code, VARIABLE in text) == (2, True)
    code, text = await found(key, encrypted=False)
    assert (code, "set it to true" in text) == (2, True)
