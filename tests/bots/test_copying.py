"""`chinwag sessions copy`: from any store to any other, all of it, and again after it was ended."""

from __future__ import annotations

import asyncio
import itertools
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from bots.cli import cli
from bots.contracts.store import Chat, begun, image, inbound, rich, spent
from bots.copying import UNDER_WAY, copy_sessions
from core import changes
from core.blobs import named_by
from core.errors import ConfigError, StoreUnavailable
from core.memory import ConversationMemory
from core.messages import encode_blocks, text_block
from core.snapshot import Snapshot, Usage
from core.store import BotStore, SessionRef
from stores.memory import MemoryStore
from stores.redis.scripts import Script
from stores.redis.server import Server
from stores.sqlite import SQLiteStore
from stores.urls import open_store
from tests import postgres, redis

MEMORY = ConversationMemory(6, 3)


def nothing(done: int, of: int) -> None:
    pass


async def copy(source: str, target: str, folder: Path) -> str:
    return "\n".join([line async for line in copy_sessions(source, target, folder, nothing)])


async def seen_in(store: BotStore, *, archive: bool = True) -> dict[str, Any]:
    """All that a store keeps, to be compared."""
    seen: dict[str, Any] = {}
    async for summary in store.summaries(limit=100_000):
        ref = SessionRef(summary.key)
        snapshot = await store.load(ref)
        rows = [row async for row in store.archive(ref, limit=100_000)] if archive else []
        seen[summary.key] = (summary if archive else None, snapshot, rows)
    seen["usage"] = sorted([row async for row in store.usage.rows()], key=str)
    names = [name async for name in store.notes.names()]
    seen["notes"] = {name: await store.notes.get(name) for name in names}
    return seen


async def fill(store: BotStore, *, conversations: int = 30, seed: int = 1) -> None:
    for first in range(0, conversations, 100):
        batch = range(first, min(first + 100, conversations))
        await asyncio.gather(*(_talk(store, number, seed) for number in batch))
    id = await store.blobs.put("telegram-chat:4", b"a picture", "image/png")
    chat = Chat(store, "telegram-chat:4")
    await chat.update(
        lambda value: changes.accept(value, replace(inbound("shows"), blocks=image(id)))
    )
    await store.save(SessionRef("slack-dm:T1/D1"), rich(), replaces=None)
    await store.usage.add([("telegram-chat:1", spent("e9", n)) for n in range(1, 1_200)])
    await store.notes.put("owner", b"telegram:1", was=None)
    await store.notes.put("empty", b"", was=None)


async def _talk(store: BotStore, number: int, seed: int) -> None:
    chance = random.Random(f"{seed} {number}")
    chat = Chat(store, f"telegram-chat:{number}")
    if number % 10 == 3:
        await chat.update(lambda value: replace(begun(), chosen={"model": "other"}, gone=True))
    for _ in range(chance.randrange(8)):
        await chat.turn(MEMORY, words="é" * chance.randrange(900))
    if number % 4 == 0:
        await chat.update(lambda value: changes.accept(value, inbound("waits", "w" * 700)))
    if number % 8 == 0:
        await chat.update(lambda value: changes.start(value, execution="x", now=7, memory=MEMORY))


def url(kind: str) -> str:
    servers = {"postgresql": postgres.fresh_url, "redis": redis.fresh_url}
    return servers[kind]() if kind in servers else f"{kind}:{kind}-{uuid4().hex}"


@pytest.mark.parametrize("through", [("redis", "postgresql", "sqlite"), ("sqlite", "sqlite")])
async def test_all_of_it_arrives(tmp_path: Path, through: tuple[str, ...]) -> None:
    urls = [url(kind) for kind in through]
    async with open_store(urls[0], tmp_path) as store:
        await fill(store)
        expected = await seen_in(store)
    count = len(expected) - len(("usage", "notes"))
    assert count > 20
    for source, target in itertools.pairwise(urls):
        told = await copy(source, target, tmp_path)
        assert f"{count} conversations" in told
        assert "counted in the target" in told
        async with open_store(target, tmp_path) as store:
            assert await seen_in(store) == expected
            assert [key async for key in store.unfinished()]
            blob = next(iter(await _blobs(store)))
            assert blob == b"a picture"


async def _blobs(store: BotStore) -> set[bytes]:
    snapshot = await store.load(SessionRef("telegram-chat:4"))
    assert snapshot is not None
    found = [await store.blobs.get(id) for id in named_by(snapshot)]
    return {blob.data for blob in found if blob is not None}


async def test_through_all_that_last(tmp_path: Path) -> None:
    await _through_all(tmp_path, conversations=40)


@pytest.mark.crash
@pytest.mark.timeout(3600)
async def test_ten_thousand_through_all_that_last(tmp_path: Path) -> None:
    await _through_all(tmp_path, conversations=10_000)


async def _through_all(folder: Path, *, conversations: int) -> None:
    """From a folder on, where the window only was kept, that and all else."""
    urls = [url(kind) for kind in ("sqlite", "postgresql", "redis", "disk", "sqlite")]
    async with open_store(urls[0], folder) as store:
        await fill(store, conversations=conversations)
        whole = await seen_in(store)
        window = await seen_in(store, archive=False)
    assert len(whole) > conversations * 0.8
    for source, target in itertools.pairwise(urls):
        told = await copy(source, target, folder)
        assert f"{len(whole) - 2} conversations" in told and "counted in the target" in told
        kept = urls.index(target) < urls.index(urls[3])
        async with open_store(target, folder) as store:
            # Not all of it in a sentence, if it should fail.
            same = await seen_in(store, archive=kept) == (whole if kept else window)
            assert same, target
            assert await _blobs(store) == {b"a picture"}


async def test_a_folder_keeps_the_window(tmp_path: Path) -> None:
    async with open_store("sqlite:a.db", tmp_path) as store:
        await fill(store)
        expected = await seen_in(store, archive=False)
    await copy("sqlite:a.db", "disk:b", tmp_path)
    async with open_store("disk:b", tmp_path) as store:
        assert await seen_in(store, archive=False) == expected
    await copy("disk:b", "sqlite:c.db", tmp_path)
    async with open_store("sqlite:c.db", tmp_path) as store:
        assert await seen_in(store, archive=False) == expected


def long_one(turns: int, *, under_way: bool) -> Snapshot:
    """Under way, the turn's rows have lower numbers than the last of the history, as when a program
    writes to the conversation while the bot answers."""
    value = begun()
    said = [("user", encode_blocks([text_block("q")])), ("assistant", encode_blocks([]))]
    for _ in range(turns):
        value = changes.append(value, said, Usage(), 1, ConversationMemory())  # type: ignore[arg-type]
    if under_way:
        value = changes.accept(value, inbound("in"))
        value = changes.start(value, execution="x", now=7, memory=ConversationMemory())
        value = changes.append(value, said, Usage(), 1, ConversationMemory())  # type: ignore[arg-type]
    return value


@pytest.mark.parametrize("under_way", [False, True])
async def test_a_history_that_is_longer_than_a_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, under_way: bool
) -> None:
    monkeypatch.setattr("bots.copying.ROWS", 7)
    async with open_store("sqlite:a.db", tmp_path) as store:
        whole = long_one(40, under_way=under_way)
        await store.save(SessionRef("t:1"), whole, replaces=None)
        trimmed = replace(whole, revision=1001, messages=whole.messages[-4:])
        await store.save(SessionRef("t:1"), trimmed, replaces=1000)
        expected = await seen_in(store)
    await copy("sqlite:a.db", "sqlite:b.db", tmp_path)
    async with open_store("sqlite:b.db", tmp_path) as store:
        assert await seen_in(store) == expected


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_ended_anywhere_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Every write to the target fails once, before and after it took effect."""
    monkeypatch.setattr("bots.copying.ROWS", 4)
    async with open_store("sqlite:a.db", tmp_path) as store:
        await fill(store, conversations=4)
        expected = await seen_in(store)
    for after in (False, True):
        target, failures = url(kind), 0
        for number in range(1, 400):
            with monkeypatch.context() as patch:
                struck = _fail_at(patch, number, after=after)
                try:
                    told = await copy("sqlite:a.db", target, tmp_path)
                except StoreUnavailable as error:
                    assert str(error) == "pulled"
                    failures += 1
            if not struck():
                break
            # The next attempt gets one write further than this one did.
            target = url(kind) if number % 3 == 0 else target
        assert failures > 10
        assert "counted" in told
        async with open_store(target, tmp_path) as store:
            assert await seen_in(store) == expected


def _fail_at(patch: pytest.MonkeyPatch, number: int, *, after: bool) -> Callable[[], bool]:
    count = 0

    async def failing(work: Callable[[], Any]) -> Any:
        nonlocal count
        count += 1
        if count == number and not after:
            raise StoreUnavailable("pulled")
        done = await work()
        if count == number:
            raise StoreUnavailable("pulled")
        return done

    write, run = SQLiteStore._write, Server.run

    async def writes(self: SQLiteStore, work: Any) -> Any:
        return await failing(lambda: write(self, work))

    async def runs(self: Server, script: Script, *data: bytes, **given: Any) -> Any:
        asked = partial(run, self, script, *data, **given)
        return await (failing(asked) if script.writes else asked())

    patch.setattr(SQLiteStore, "_write", writes)
    patch.setattr(Server, "run", runs)
    return lambda: count >= number


async def test_what_came_before_it_meanwhile_does_not_hold_it_up(tmp_path: Path) -> None:
    """Ended in the middle of one; then a conversation begins whose key is earlier."""
    async with open_store("sqlite:a.db", tmp_path) as store:
        await Chat(store, "t:1").turn()
        await Chat(store, "t:2").turn()
        expected = await seen_in(store)
    async with open_store("sqlite:b.db", tmp_path) as store:
        await store.save(SessionRef("t:2"), begun(), replaces=None)
        await store.notes.put(UNDER_WAY, b"t:2", was=None)
    assert "2 conversations" in await copy("sqlite:a.db", "sqlite:b.db", tmp_path)
    async with open_store("sqlite:b.db", tmp_path) as store:
        assert await seen_in(store) == expected


async def test_nothing_is_written_over(tmp_path: Path) -> None:
    for name, words in (("a", "one"), ("b", "two")):
        async with open_store(f"sqlite:{name}.db", tmp_path) as store:
            await Chat(store, "t:1").turn(words=words)
    with pytest.raises(ConfigError, match="t:1: the target has another conversation"):
        await copy("sqlite:a.db", "sqlite:b.db", tmp_path)
    async with open_store("sqlite:c.db", tmp_path) as store:
        await store.notes.put("owner", b"somebody", was=None)
    async with open_store("sqlite:a.db", tmp_path) as store:
        await store.notes.put("owner", b"else", was=None)
    with pytest.raises(ConfigError, match="the target has another note 'owner'"):
        await copy("sqlite:a.db", "sqlite:c.db", tmp_path)


async def test_what_cannot_be_read_is_said_and_the_rest_is_copied(tmp_path: Path) -> None:
    async with open_store("sqlite:a.db", tmp_path) as store:
        await Chat(store, "t:1").turn()
        await Chat(store, "t:2").turn()
    with closing(sqlite3.connect(tmp_path / "a.db")) as database, database:
        database.execute("UPDATE sessions SET head = head || ' ' WHERE key = 't:1'")
    told = await copy("sqlite:a.db", "sqlite:b.db", tmp_path)
    assert "not copied: t:1: " in told
    assert "1 conversations, 2 messages" in told


async def test_one_store_is_not_two(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="are one store, not two"):
        await copy("sqlite:a.db", "sqlite:a.db", tmp_path)


async def test_what_is_missing_afterwards_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store("sqlite:a.db", tmp_path) as store:
        await Chat(store, "t:1").turn()
        await store.notes.put("owner", b"1", was=None)

    async def forgotten(self: Any, name: str, value: Any, *, was: Any) -> bool:
        return True

    monkeypatch.setattr("stores.memory.MemoryNotes.put", forgotten)
    with pytest.raises(ConfigError, match="1 notes were copied, and the target has 0"):
        await copy("sqlite:a.db", "memory:", tmp_path)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def begin() -> None:
        async with open_store("sqlite:chinwag.db", tmp_path) as store:
            await Chat(store, "t:1").turn()

    asyncio.run(begin())
    done = CliRunner().invoke(cli, ["sessions", "copy", "--to", "sqlite:other.db"])
    assert done.exit_code == 0, done.output
    assert done.output == (
        "1 conversations, 2 messages, 0 model calls, 0 notes: copied, and counted in the target.\n"
    )


async def test_what_comes_back_different_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store("sqlite:a.db", tmp_path) as store:
        await Chat(store, "t:1").turn()
    save = MemoryStore.save

    async def forgetful(self: MemoryStore, ref: Any, value: Snapshot, *, replaces: Any) -> None:
        await save(self, ref, replace(value, chosen={"model": "?"}), replaces=replaces)

    monkeypatch.setattr(MemoryStore, "save", forgetful)
    with pytest.raises(ConfigError, match="t:1: the target gives back something else"):
        await copy("sqlite:a.db", "memory:", tmp_path)
