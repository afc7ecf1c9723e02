"""RedisStore: the contract, then what only a store on a server that may forget can suffer."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec.structs import replace

from bots.contracts.store import (
    EPOCH,
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
    spent,
    text,
)
from core import changes, events
from core.blobs import GRACE_MS, id_of
from core.clock import SystemClock
from core.errors import (
    BlobUnreadable,
    ConfigError,
    SnapshotUnreadable,
    StaleSnapshot,
    StoreCorrupt,
    StoreEmpty,
    StoreInUse,
    StoreUnavailable,
)
from core.memory import BOT_MEMORY
from core.messages import encode_blocks
from core.snapshot import Usage, stored
from core.store import BotStore
from stores.memory import MemoryStore
from stores.redis import RedisStore, load, lock, move, scripts
from stores.redis import server as servers
from stores.redis.pack import pack
from stores.redis.place import place_of
from stores.redis.server import Server as OurServer
from stores.urls import open_store
from tests.redis import Server, another, fresh_url, server

ROOT = Path(__file__).parents[2]


def prefix_of(place: Path) -> str:
    """One for each folder: what was stored there is found there again."""
    return f"t{sha256(str(place).encode()).hexdigest()[:16]}"


class Behind:
    """The server, behind the store's back; names are those of `scripts`."""

    def __init__(self, client: Any, url: str) -> None:
        self.client = client
        self._prefix = place_of(url).prefix

    def __call__(self, command: str, name: str, *words: object) -> Any:
        return self.client.execute_command(command, f"{self._prefix}{name}", *words)

    def id(self, key: str) -> str:
        return str(self("HGET", "ids", key).decode())


@contextmanager
def behind(url: str, at: Server | None = None) -> Iterator[Behind]:
    with (at or server()).client() as client:
        yield Behind(client, url)


@pytest.fixture(autouse=True)
def _empty() -> None:
    """What a test looks for in the server's files is its own."""
    with server().client() as client:
        client.flushall()


class TestRedisStore(StoreContract):
    def open(self, place: Path) -> BotStore:
        return RedisStore(url_of(place))

    async def spoil(self, store: BotStore, place: Path, key: str) -> None:
        with behind(url_of(place)) as redis:
            name = f"s:{redis.id(key)}"
            redis("HSET", name, "head", redis("HGET", name, "head") + b" ")

    async def age(self, store: BotStore, place: Path, key: str) -> None:
        with behind(url_of(place)) as redis:
            name = f"s:{redis.id(key)}"
            newer = redis("HGET", name, "head").replace(b'"version":1', b'"version":99')
            seen = int(redis("HGET", name, "seen"))
            crc = zlib.crc32(newer, zlib.crc32(key.encode(), seen))
            redis("HSET", name, "head", newer, "crc", crc)

    async def spoil_blob(self, store: BotStore, place: Path, id: str) -> None:
        with behind(url_of(place)) as redis:
            redis("HSET", f"blob:{id}", "data", b"dada")

    async def bytes_of(self, place: Path) -> bytes:
        files = [file for file in server().folder.rglob("*") if file.is_file()]
        return b"".join(file.read_bytes() for file in files if file.name != "log")


def url_of(place: Path) -> str:
    return server().url(prefix_of(place))


@pytest.fixture
def url() -> str:
    return fresh_url()


@pytest.fixture
async def store(url: str) -> AsyncIterator[RedisStore]:
    async with RedisStore(url) as store:
        yield store


@pytest.fixture
def mine() -> Iterator[Callable[..., Server]]:
    """Servers that a test may do what it likes with."""
    made: list[Server] = []

    def start(*settings: str) -> Server:
        made.append(another(*settings))
        made[-1].start()
        return made[-1]

    yield start
    for each in made:
        each.stop(signal.SIGKILL)
        shutil.rmtree(each.folder)


async def noticed() -> None:
    """The loop sees which connections have ended."""
    for _ in range(3):
        await asyncio.sleep(0)


class Heard:
    """Events, as a listener."""

    wants_content = False

    def __init__(self) -> None:
        self.all: list[tuple[str, dict[str, Any]]] = []

    def heard(self, name: str, key: str | None, fields: Any) -> None:
        self.all.append((name, dict(fields)))

    def said(self, execution: str, asked: Any, answered: Any) -> None:
        raise AssertionError

    def of(self, name: str) -> list[dict[str, Any]]:
        return [fields for each, fields in self.all if each == name]


# ---------------------------------------------------------------------- damage


def _changed(redis: Behind, name: str, field: Any, change: Callable[[bytes], bytes]) -> object:
    return redis("HSET", name, field, change(redis("HGET", name, field)))


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda r, id: _changed(r, f"r:{id}", "8", lambda row: row + b" "), "message 8 is wrong"),
        (lambda r, id: _changed(r, f"r:{id}", "8", lambda row: row[:3]), "message 8 is damaged"),
        (lambda r, id: r("HDEL", f"r:{id}", "8"), "1 of its messages are missing, 8 is the first"),
        (
            lambda r, id: r("HSET", f"r:{id}", "8", r("HGET", f"r:{id}", "10")),
            "the checksum of its message 8 is wrong",
        ),
        (lambda r, id: r("LPOP", f"seen:{id}"), "the checksum of its ids seen is wrong"),
        (lambda r, id: r("RPUSH", f"seen:{id}", b"\xff"), "what is stored is damaged"),
        (lambda r, id: r("UNLINK", f"b:{id}"), "a text in its inbox is missing or damaged"),
        (
            lambda r, id: [_changed(r, f"b:{id}", n, bytes.upper) for n in r("HKEYS", f"b:{id}")],
            "is missing or damaged",
        ),
        (lambda r, id: r("HINCRBY", f"s:{id}", "revision", -1), "its row and its head disagree"),
        (lambda r, id: r("HSET", f"s:{id}", "seen", 7), "the checksum of its head is wrong"),
        (lambda r, id: r("HDEL", f"s:{id}", "crc"), "what is stored is damaged"),
        (lambda r, id: r("HSET", f"s:{id}", "runs", "1-99999999"), "9 of its messages are missing"),
    ],
)
async def test_what_is_not_as_it_was_stored_is_unreadable(
    store: RedisStore, url: str, damage: Callable[[Behind, str], object], what: str
) -> None:
    await store.save(ref("t:1"), rich(), replaces=None)
    with behind(url) as redis:
        damage(redis, redis.id("t:1"))
    with pytest.raises(SnapshotUnreadable, match=what):
        await store.load(ref("t:1"))
    assert len(await listed(store)) == 1


async def test_what_is_damaged_is_listed_and_not_written_over(store: RedisStore, url: str) -> None:
    await store.save(ref("t:1"), rich(), replaces=None)
    store._known.clear()
    with behind(url) as redis:
        redis("HSET", f"s:{redis.id('t:1')}", "updated_at", "?", "next_seq", "?", "revision", "?")
    with pytest.raises(SnapshotUnreadable, match="t:1: the stored revision is damaged"):
        await store.revision(ref("t:1"))
    assert [(each.key, each.updated_at) for each in await listed(store)] == [("t:1", 0)]
    later = replace(rich(), revision=2**48)
    with pytest.raises(SnapshotUnreadable, match="t:1: what is stored is damaged"):
        await store.save(ref("t:1"), later, replaces=2**48 - 1)
    with pytest.raises(SnapshotUnreadable):
        await store.load(ref("t:1"))


async def test_whole_but_in_the_place_of_another(store: RedisStore, url: str) -> None:
    for key in ("t:1", "t:2"):
        await store.save(ref(key), rich(), replaces=None)
    with behind(url) as redis:
        one, two = redis.id("t:1"), redis.id("t:2")
        redis("HSET", f"r:{one}", "8", redis("HGET", f"r:{two}", "8"))
        redis("HSET", "ids", "t:2", one)
    with pytest.raises(SnapshotUnreadable, match="message 8 is wrong"):
        await store.load(ref("t:1"))
    with pytest.raises(SnapshotUnreadable, match="t:2: the checksum of its head is wrong"):
        await store.load(ref("t:2"))


async def test_what_has_its_checksum_and_is_no_json(store: RedisStore, url: str) -> None:
    await store.save(ref("t:1"), rich(), replaces=None)
    with behind(url) as redis:
        name = f"s:{redis.id('t:1')}"
        crc = zlib.crc32(b"{", zlib.crc32(b"t:1", int(redis("HGET", name, "seen"))))
        redis("HSET", name, "head", "{", "crc", crc)
    with pytest.raises(SnapshotUnreadable, match="what is stored is damaged"):
        await store.load(ref("t:1"))


async def test_a_damaged_row_that_moves_stays_damaged(store: RedisStore, url: str) -> None:
    """In either place: outside of the window, where a move does not look."""
    for key in ("t:1", "t:2"):
        chat = Chat(store, key)
        for _ in range(30):
            await chat.turn()
        with behind(url) as redis:
            rows = f"r:{redis.id(key)}"
            _changed(redis, rows, "2", lambda row: row + b" ")
            redis("HSET", rows, "4", b"?")
    await store.move("t:1", "t:2")
    assert await store.load(ref("t:2")) is not None
    for seq in (2, 4, 62, 64):
        with pytest.raises(SnapshotUnreadable, match=f"message {seq} is"):
            await seqs(store, "t:2", before=seq + 1, limit=1)
        assert await seqs(store, "t:2", before=seq, limit=1) == [seq - 1]


async def test_a_blob_of_which_a_part_is_missing(store: RedisStore, url: str) -> None:
    id = await store.blobs.put("t:1", b"data", "image/png")
    with behind(url) as redis:
        redis("HDEL", f"blob:{id}", "data")
    with pytest.raises(BlobUnreadable, match="a part of it is missing"):
        await store.blobs.get(id)


async def test_a_checksum_that_is_none_moves_as_it_is(store: RedisStore, url: str) -> None:
    await store.save(ref("t:1"), rich(), replaces=None)
    with behind(url) as redis:
        redis("HSET", f"s:{redis.id('t:1')}", "crc", "?")
    await store.move("t:1", "t:2")
    with pytest.raises(SnapshotUnreadable):
        await store.load(ref("t:2"))


async def test_what_is_not_ours_is_corrupt(store: RedisStore, url: str) -> None:
    with behind(url) as redis:
        redis("SET", "notes", "mine")
    with pytest.raises(StoreCorrupt, match="damaged, or not ours"):
        await store.notes.get("a")


# ---------------------------------------------------------------------- many at once


async def test_a_second_process_is_refused(store: RedisStore, url: str) -> None:
    with pytest.raises(StoreInUse, match="another chinwag holds it"):
        async with RedisStore(url):
            raise AssertionError
    async with RedisStore(url, read_only=True) as beside:
        assert await listed(beside) == []
        with pytest.raises(StoreUnavailable, match="read-only"):
            await beside.save(ref("t:1"), begun(), replaces=None)
    await store.save(ref("t:1"), begun(), replaces=None)


async def test_when_it_has_ended_another_may_begin(url: str) -> None:
    for _ in range(2):
        async with RedisStore(url) as store:
            await store.clear(ref("t:1"))


async def test_when_it_was_killed_another_begins_at_once(url: str) -> None:
    script = (
        "import asyncio, sys; from stores.redis import RedisStore\n"
        "async def main():\n"
        "    async with RedisStore(sys.argv[1]):\n"
        "        print('open', flush=True); await asyncio.sleep(60)\n"
        "asyncio.run(main())"
    )
    command = [sys.executable, "-c", script, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        with pytest.raises(StoreInUse):
            async with RedisStore(url):
                raise AssertionError
        process.kill()
        process.wait()
        async with RedisStore(url) as store:
            await store.save(ref("t:1"), begun(), replaces=None)


class Still(SystemClock):
    """Waits are told, and never over, but for those that are let go."""

    def __init__(self) -> None:
        self.slept: asyncio.Queue[float] = asyncio.Queue()
        self.over = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.slept.put_nowait(seconds)
        await self.over.wait()
        self.over.clear()


async def test_one_that_stood_still_writes_nothing_any_more(url: str) -> None:
    """Its term is over, and another has begun; when that one has ended, it goes on."""
    clock = Still()
    async with RedisStore(url, clock=clock) as one:
        await one.save(ref("t:1"), begun(1), replaces=None)
        assert await clock.slept.get() == lock.TERM_SECONDS / 3
        with behind(url) as redis:
            redis("HSET", "lock", "until", 1)
        async with RedisStore(url) as two:
            for attempt in (
                one.save(ref("t:1"), begun(2), replaces=1),
                one.clear(ref("t:1")),
                one.notes.put("a", b"1", was=None),
                one.blobs.put("t:1", b"data", "image/png"),
                one.set_aside(ref("t:1")),
                one.move("t:1", "t:2"),
                one.usage.add([]),
            ):
                with pytest.raises(StoreUnavailable, match="another chinwag has taken it over"):
                    await attempt
            clock.over.set()
            await clock.slept.get()
            with pytest.raises(StoreUnavailable, match="taken it over"):
                await one.save(ref("t:1"), begun(2), replaces=1)
            assert await two.load(ref("t:1")) == begun(1)
            await two.save(ref("t:1"), begun(2), replaces=1)
        clock.over.set()
        await clock.slept.get()
        with pytest.raises(StaleSnapshot):
            await one.save(ref("t:1"), begun(2), replaces=1)
        await one.save(ref("t:1"), begun(3), replaces=2)


async def test_the_lock_is_renewed(url: str) -> None:
    clock = Still()
    async with RedisStore(url, clock=clock):
        await clock.slept.get()
        with behind(url) as redis:
            redis("HSET", "lock", "until", 1)
            clock.over.set()
            await clock.slept.get()
            assert int(redis("HGET", "lock", "until")) > 1


async def test_where_the_server_does_not_say_who_is_connected(
    store: RedisStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the term is waited for: who lives renews it meanwhile."""
    command = OurServer.command

    async def refusing(self: OurServer, *words: str) -> Any:
        if words == ("CLIENT", "LIST"):
            raise StoreUnavailable("NOPERM")
        return await command(self, *words)

    monkeypatch.setattr(OurServer, "command", refusing)
    for alive in (True, False):
        clock = Still()
        other = RedisStore(url, clock=clock)
        opening = asyncio.create_task(other.__aenter__())
        assert 0 < await clock.slept.get() <= lock.TERM_SECONDS
        if not alive:
            with behind(url) as redis:
                redis("HSET", "lock", "until", 1)
        clock.over.set()
        if alive:
            with pytest.raises(StoreInUse):
                await opening
        else:
            await opening
            await other.__aexit__(None, None, None)


async def test_of_two_workers_one_is_stale(url: str) -> None:
    async with RedisStore(url, shared=True) as one, RedisStore(url, shared=True) as two:
        await one.save(ref("t:1"), begun(1), replaces=None)
        with pytest.raises(StaleSnapshot, match="t:1: what is stored is not nothing"):
            await two.save(ref("t:1"), begun(7), replaces=None)
        assert await two.load(ref("t:1")) == begun(1)
        await one.save(ref("t:1"), begun(2), replaces=1)
        with pytest.raises(StaleSnapshot, match="t:1: what is stored is not revision 1"):
            await two.save(ref("t:1"), begun(2), replaces=1)


async def test_workers_that_change_one_conversation_lose_nothing(url: str) -> None:
    async with RedisStore(url, shared=True) as one, RedisStore(url, shared=True) as two:

        async def count(chat: Chat, times: int) -> None:
            for _ in range(times):
                await chat.update(
                    lambda value: replace(value, chosen={"n": str(_number(value) + 1)})
                )

        await asyncio.gather(*(count(Chat(store, "t:1"), 20) for store in (one, two)))
        final = await one.load(ref("t:1"))
        assert final is not None
        assert _number(final) == 40


def _number(value: Any) -> int:
    return int(value.chosen.get("n", "0"))


async def test_a_save_asks_for_what_it_does_not_know(url: str) -> None:
    """A worker that has never seen the conversation writes only what is new, too."""
    async with RedisStore(url, shared=True) as one, RedisStore(url, shared=True) as two:
        await Chat(one, "t:1").turn()
        value = await Chat(one, "t:1").update(
            lambda value: changes.accept(value, inbound("in", "long " * 300))
        )
        changed = replace(value, revision=value.revision + 1, model="other")
        await two.save(ref("t:1"), changed, replaces=value.revision)
        assert await one.load(ref("t:1")) == changed
        assert await seqs(one, "t:1") == [2, 1]
        with behind(url) as redis:
            assert redis("HLEN", f"b:{redis.id('t:1')}") == 1


async def test_what_it_remembers_is_bounded(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stores.redis.KNOWN", 3)
    chats = [Chat(store, f"t:{number}") for number in range(5)]
    for _ in range(2):
        for chat in chats:
            await chat.turn()
    assert len(store._known) == 3
    assert [len(await seqs(store, chat.ref.key)) for chat in chats] == [4] * 5


async def test_a_stale_reset_takes_no_picture_along(url: str) -> None:
    async with RedisStore(url, shared=True) as one, RedisStore(url, shared=True) as two:
        id = await one.blobs.put("t:1", b"a picture", "image/png")
        seen = replace(inbound("in-1"), blocks=image(id))
        value = await Chat(one, "t:1").update(lambda value: changes.accept(value, seen))
        await two.save(ref("t:1"), replace(value, revision=2), replaces=value.revision)
        wiped = replace(changes.reset(value, "new"), revision=value.revision + 1, erase=((1, 9),))
        with pytest.raises(StaleSnapshot):
            await one.save(ref("t:1"), wiped, replaces=value.revision)
        assert await two.load(ref("t:1")) == replace(value, revision=2)
        assert await two.blobs.get(id) is not None


async def test_long_texts_go_when_they_are_done_with(store: RedisStore, url: str) -> None:
    """And with them the pictures that only they have named."""
    id = await store.blobs.put("t:1", b"a picture", "image/png")
    chat = Chat(store, "t:1")
    await chat.turn()
    asked = replace(inbound("in", "long " * 300), blocks=image(id, *["sha256:" + "0" * 64] * 9))
    await chat.update(partial(changes.accept, inbound=asked))
    with behind(url) as redis:
        bodies = f"b:{redis.id('t:1')}"
        assert redis("HLEN", bodies) == 2
        await chat.update(lambda value: changes.reset(value, "epoch-2"))
        assert redis("HLEN", bodies) == 0
    assert await store.blobs.get(id) is None


async def test_a_picture_may_be_put_a_while_before_it_is_named(url: str) -> None:
    async with RedisStore(url, clock=Still()) as store:
        id = await store.blobs.put("t:1", b"early", "image/png")
        with behind(url) as redis:
            put = int(redis("HGET", "uses:t:1", id))
        chat = Chat(store, "t:1")
        for late, there in ((GRACE_MS, True), (GRACE_MS + 1, False)):
            await chat.turn()
            await chat.update(
                lambda value, at=put + late: replace(changes.reset(value, EPOCH), updated_at=at)  # type: ignore[misc]
            )
            assert (await store.blobs.get(id) is not None) is there


async def test_rows_that_are_gone_are_not_rewritten(store: RedisStore) -> None:
    chat = Chat(store, "t:1")
    value = await chat.turn()
    row = replace(value.messages[0], seq=77)
    await chat.update(lambda value: replace(value, rewritten=(row,), next_seq=99))
    assert await seqs(store, "t:1") == [2, 1]
    value = await chat.update(lambda value: replace(value, spans=((1, 98),)))
    assert await seqs(store, "t:1") == [2, 1]


async def test_a_name_inside_of_what_was_said_is_no_speaker(store: RedisStore) -> None:
    said: Any = [("assistant", encode_blocks([{"input": {"who": "telegram:9"}}]))]
    chat = Chat(store, "t:1")
    await chat.update(lambda value: changes.append(value, said, Usage(), 1, BOT_MEMORY))
    assert [key async for key in store.spoken_by("telegram:9")] == []


# ---------------------------------------------------------------------- a chat that moves


async def test_who_saves_while_a_chat_moves_loses_nothing(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = Chat(store, "t:1")
    await chat.turn()
    run, meanwhile = OurServer.run, 3

    async def disturbed(self: OurServer, script: Any, *data: bytes, **given: Any) -> Any:
        nonlocal meanwhile
        if script is scripts.MOVE and meanwhile:
            meanwhile -= 1
            await chat.turn()
        return await run(self, script, *data, **given)

    monkeypatch.setattr(OurServer, "run", disturbed)
    await store.move("t:1", "t:2")
    assert [summary.key for summary in await listed(store)] == ["t:2"]
    assert await seqs(store, "t:2") == list(range(8, 0, -1))
    monkeypatch.setattr(move, "ATTEMPTS", 2)
    chat.ref, meanwhile = ref("t:2"), 9
    with pytest.raises(StoreUnavailable, match="written to all the time"):
        await store.move("t:2", "t:3")
    assert [summary.key for summary in await listed(store)] == ["t:2"]


async def test_what_begins_while_a_chat_moves(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic inside, one where it goes, and a picture of a message that is still to come."""
    await Chat(store, "t:1").turn()
    run = OurServer.run
    begins: list[Callable[[], Any]] = [
        lambda: store.save(ref("t:1/7"), begun(), replaces=None),
        lambda: Chat(store, "t:2").turn(),
        lambda: store.blobs.put("t:1/8", b"early", "image/png"),
    ]

    async def disturbed(self: OurServer, script: Any, *data: bytes, **given: Any) -> Any:
        if script is scripts.MOVE and begins:
            await begins.pop(0)()
        return await run(self, script, *data, **given)

    monkeypatch.setattr(OurServer, "run", disturbed)
    await store.move("t:1", "t:2")
    assert [summary.key for summary in await listed(store)] == ["t:2", "t:2/7"]
    assert await seqs(store, "t:2") == [4, 3, 2, 1]
    await store.clear(ref("t:1/8"))
    await store.clear(ref("t:2/8"))
    assert await store.blobs.get(id_of(b"early")) is None
    await store.save(ref("t:2/8"), begun(), replaces=None)


async def test_only_who_moves_has_paid_elsewhere(store: RedisStore) -> None:
    paid = ["t:1", "t:1-1", "t:1.", "t:1/7", "t:10"]
    await store.usage.add([(key, spent(key)) for key in paid])
    await store.move("t:1", "u")
    sums = await store.usage.sums(("key",))
    assert [each.key for each in sums] == ["t:1-1", "t:1.", "t:10", "u", "u/7"]


@pytest.mark.parametrize(("old", "new"), [("t:1", "t:1/7"), ("t:1/7", "t:1"), ("t:1/7", "t:2")])
async def test_moves_within_itself_as_in_memory(store: RedisStore, old: str, new: str) -> None:
    other = MemoryStore()
    for each in (store, other):
        for number, key in enumerate(("t:1", "t:1/7", "t:1/7/7", "t:2")):
            chat = Chat(each, key)
            chat.turns = number * 100
            for _ in range(number + 1):
                await chat.turn()
            await chat.update(lambda value: changes.accept(value, inbound("in", "w" * 700)))
        await each.move(old, new)
    found = await listed(store)
    assert found == await listed(other)
    for summary in found:
        here, there = [await each.load(ref(summary.key)) for each in (store, other)]
        assert here is not None and there is not None
        # Each chat began at its own time.
        assert replace(here, epoch="", created_at=0) == replace(there, epoch="", created_at=0)
        rows = [[row async for row in each.archive(ref(summary.key))] for each in (store, other)]
        assert rows[0] == rows[1]


async def test_one_that_is_gone_while_it_moves(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.save(ref("t:1"), begun(), replaces=None)
    fetch = load.fetch

    async def gone(server: OurServer, key: str) -> Any:
        await store.clear(ref("t:1"))
        return await fetch(server, key)

    monkeypatch.setattr(move, "fetch", gone)
    await store.move("t:1", "t:2")
    assert await listed(store) == []


# ---------------------------------------------------------------------- the server


async def test_a_server_that_is_killed_and_comes_back(mine: Callable[..., Server]) -> None:
    """In the middle of many saves: what had returned is there, and nothing is there by half."""
    redis = mine("--appendfsync", "always")
    async with RedisStore(redis.url("x")) as store:
        chats = [Chat(store, f"t:{number}") for number in range(8)]
        done: dict[str, Any] = {}
        all_have_talked = asyncio.Event()

        async def talk(chat: Chat) -> None:
            while True:
                done[chat.ref.key] = await chat.turn(words="word " * 50)
                if len(done) == len(chats):
                    all_have_talked.set()

        tasks = [asyncio.create_task(talk(chat)) for chat in chats]
        await all_have_talked.wait()
        redis.stop(signal.SIGKILL)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}, outcomes
        with pytest.raises(StoreUnavailable, match="unix://"):
            await store.load(ref("t:1"))
        redis.start()
        await noticed()
        for chat in chats:
            value = await store.load(chat.ref)
            assert value is not None
            assert value.revision >= done[chat.ref.key].revision
            assert len(await seqs(store, chat.ref.key)) == len(
                [row for span in value.spans for row in range(span[0], span[1] + 1)]
            )
            chat.turns += 1
            await chat.update(changes.stop)
            value = await chat.turn()
            assert await store.load(chat.ref) == value


@asynccontextmanager
async def cut_off(redis: Server, folder: Path) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A way to the server on which nothing comes back once a save was sent: how to get there, and
    what was sent on it."""
    sent: list[bytes] = []
    path = folder / "cut"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far, near = await asyncio.open_unix_connection(str(redis.socket))
        answers = asyncio.create_task(_pass_on(far, writer))
        try:
            while data := await reader.read(1 << 16):
                near.write(data)
                if b"EVAL" in data and b"rewritten" in data:
                    answers.cancel()
                    sent.append(data)
                    # It has run when the server answers.
                    await far.read(1 << 16)
                    break
        finally:
            answers.cancel()
            near.close()
            writer.close()

    listener = await asyncio.start_unix_server(serve, str(path))
    async with listener:
        yield f"unix://{path}?prefix=x", sent


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)


async def test_what_may_have_happened_is_not_done_again(
    mine: Callable[..., Server], tmp_path: Path
) -> None:
    redis = mine()
    async with cut_off(redis, tmp_path) as (url, sent):
        async with RedisStore(url, shared=True) as store:
            with pytest.raises(StoreUnavailable):
                await store.save(ref("t:1"), begun(1), replaces=None)
            assert len(sent) == 1
            # The server did not know the script, so this was the one time that it was sent whole.
            assert await store.load(ref("t:1")) in (begun(1), None)
    async with RedisStore(redis.url("x")) as store:
        await store.clear(ref("t:1"))
        await store.save(ref("t:1"), begun(1), replaces=None)
    async with cut_off(redis, tmp_path) as (url, sent):
        async with RedisStore(url, shared=True) as store:
            with pytest.raises(StoreUnavailable):
                await store.save(ref("t:1"), begun(2), replaces=1)
            assert len(sent) == 1
            assert await store.load(ref("t:1")) == begun(2)


async def test_a_server_that_stands_still(
    mine: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may do what it was asked later, and was asked once."""
    monkeypatch.setattr(servers, "WAIT_SECONDS", 1.0)
    redis = mine()
    async with RedisStore(redis.url("x"), shared=True) as store:
        await store.save(ref("t:1"), begun(1), replaces=None)
        redis.tell(signal.SIGSTOP)
        with pytest.raises(StoreUnavailable, match="Timeout"):
            await store.save(ref("t:1"), begun(2), replaces=1)
        redis.tell(signal.SIGCONT)
        assert await store.load(ref("t:1")) == begun(2)
        with behind(redis.url("x"), redis) as there:
            assert there("HGET", "meta", "saves") == b"2"


async def test_a_server_that_has_forgotten_the_scripts(store: RedisStore) -> None:
    await store.save(ref("t:1"), begun(1), replaces=None)
    with server().client() as client:
        client.script_flush()
    await store.save(ref("t:1"), begun(2), replaces=1)


async def test_connections_that_were_ended_are_no_hindrance(store: RedisStore) -> None:
    await store.save(ref("t:1"), begun(1), replaces=None)
    with server().client() as client:
        client.client_kill_filter(_type="normal", skipme=True)
    await noticed()
    await store.save(ref("t:1"), begun(2), replaces=1)


async def test_a_server_that_comes_back_empty_is_not_an_empty_history(
    mine: Callable[..., Server],
) -> None:
    redis = mine("--appendonly", "no")
    store = RedisStore(redis.url("x"))
    heard = Heard()
    with events.listening(heard):
        async with store:
            assert len(heard.of("store.new")) == 1
            await store.save(ref("t:1"), begun(1), replaces=None)
            redis.stop(signal.SIGKILL)
            redis.start()
            await noticed()
            for attempt in (
                store.load(ref("t:1")),
                store.load(ref("t:2")),
                store.save(ref("t:2"), begun(1), replaces=None),
                keys(store),
                listed(store),
                store.notes.get("owner"),
                store.usage.sums(),
            ):
                with pytest.raises(StoreCorrupt, match="what was stored is gone"):
                    await attempt
        # Who comes afterwards can only say that it begins anew.
        async with store:
            assert len(heard.of("store.new")) == 2
            assert await store.load(ref("t:1")) is None


async def test_saves_that_the_server_has_lost_are_told(mine: Callable[..., Server]) -> None:
    redis = mine("--appendonly", "no")
    async with RedisStore(redis.url("x")) as store:
        await store.save(ref("t:1"), begun(1), replaces=None)
        with redis.client() as client:
            client.save()
        for revision in (1, 2, 3):
            await store.save(ref("t:1"), begun(revision + 1), replaces=revision)
        redis.stop(signal.SIGKILL)
        redis.start()
        await noticed()
        heard = Heard()
        with events.listening(heard):
            found = await asyncio.gather(*(store.load(ref("t:1")) for _ in range(4)))
        assert found == [begun(1)] * 4
        assert [fields["saves"] for fields in heard.of("store.lost")] == [3]
        with pytest.raises(StaleSnapshot):
            await store.save(ref("t:1"), begun(5), replaces=4)
        await store.save(ref("t:1"), begun(2), replaces=1)


async def test_the_same_revision_of_something_else_is_stale(url: str) -> None:
    """A server has lost a save that one worker made, and another has saved since."""
    async with RedisStore(url, shared=True) as one, RedisStore(url, shared=True) as two:
        await one.save(ref("t:1"), begun(1), replaces=None)
        with behind(url) as redis:
            name = f"s:{redis.id('t:1')}"
            before = redis("DUMP", name)
            await one.save(ref("t:1"), replace(begun(2), model="lost"), replaces=1)
            redis("RESTORE", name, 0, before, "REPLACE")
        assert await two.load(ref("t:1")) == begun(1)
        await two.save(ref("t:1"), replace(begun(2), model="kept"), replaces=1)
        with pytest.raises(StaleSnapshot):
            await one.save(ref("t:1"), replace(begun(3), model="lost"), replaces=2)
        assert await one.load(ref("t:1")) == replace(begun(2), model="kept")
        await one.save(ref("t:1"), replace(begun(3), model="kept"), replaces=2)


async def test_where_nobody_listens(tmp_path: Path) -> None:
    for url in (f"unix://ann:hunter22@{tmp_path}/nobody", "redis://ann:hunter22@localhost:1/0"):
        with pytest.raises(StoreUnavailable) as error:
            async with RedisStore(url):
                raise AssertionError
        assert "hunter22" not in str(error.value)


async def test_a_wrong_password_is_not_shown(mine: Callable[..., Server]) -> None:
    redis = mine()
    with redis.client() as client:
        client.execute_command("ACL", "SETUSER", "ann", "on", ">right1", "~*", "+@all")
    url = redis.url("x")
    with pytest.raises(StoreUnavailable, match="invalid username-password pair") as error:
        async with RedisStore(url.replace("://", "://ann:hunter22@")):
            raise AssertionError
    assert "hunter22" not in str(error.value)
    async with RedisStore(url.replace("://", "://ann:right1@")) as store:
        assert "right1" not in store.where + repr(place_of(url))


@contextmanager
def skipping(what: str) -> Iterator[None]:
    """A server may be built without it, and says so."""
    try:
        yield
    except AssertionError as error:
        if what not in str(error):
            raise
        pytest.skip(f"this server is built without {what}")


def certificate(folder: Path) -> None:
    """Of the name localhost, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


async def test_by_tls(mine: Callable[..., Server], tmp_path: Path) -> None:
    certificate(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with skipping("TLS support"):
        mine(
            *("--bind", "127.0.0.1", "--tls-port", str(port), "--tls-auth-clients", "no"),
            *(
                "--tls-cert-file",
                str(tmp_path / "cert.pem"),
                "--tls-key-file",
                str(tmp_path / "key.pem"),
            ),
            *("--tls-ca-cert-file", str(tmp_path / "cert.pem")),
        )
    url = f"rediss://localhost:{port}/3"
    async with RedisStore(f"{url}?ssl_ca_certs={tmp_path / 'cert.pem'}") as store:
        await store.save(ref("t:1"), begun(), replaces=None)
        assert await store.load(ref("t:1")) == begun()
    with pytest.raises(StoreUnavailable, match="certificate verify failed"):
        async with RedisStore(url):
            raise AssertionError


async def test_what_was_set_aside_counts_and_shares_are_a_whole(store: RedisStore) -> None:
    id = await store.blobs.put("t:1", bytes(100_000), "image/png")
    for key in ("t:1", "t:2"):
        await store.blobs.put(key, bytes(100_000), "image/png")
        asked = replace(inbound("in"), blocks=image(id), text="x" * 10_000)
        await Chat(store, key).update(partial(changes.accept, inbound=asked))
    before = await store.size()
    await store.set_aside(ref("t:1"))
    await store.clear(ref("t:1"))
    assert before <= await store.size() <= before + 100
    await store.clear_aside(key="t:1")
    assert 9_000 < before - await store.size() < 20_000


async def test_one_that_is_not_open(url: str) -> None:
    with pytest.raises(StoreUnavailable, match="the store is not open"):
        await RedisStore(url).load(ref("t:1"))


# ---------------------------------------------------------------------- what it promises


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("--appendfsync", "always"), None),
        (
            ("--appendfsync", "always", "--no-appendfsync-on-rewrite", "yes"),
            servers.FSYNC_REWRITING,
        ),
        ((), servers.FSYNC["everysec"]),
        (("--appendfsync", "no"), servers.FSYNC["no"]),
        (("--appendonly", "no"), servers.NO_FILE),
    ],
)
async def test_what_the_server_does_not_promise_is_said(
    mine: Callable[..., Server], settings: tuple[str, ...], said: str | None
) -> None:
    heard = Heard()
    with events.listening(heard):
        async with RedisStore(mine(*settings).url("x")) as store:
            assert await store.weaknesses() == ([said] if said else [])
            assert await store.check() == []
    assert [fields["why"] for fields in heard.of("store.weak")] == ([said] if said else [])


def test_the_documents_say_it_in_the_same_words() -> None:
    words = " ".join((ROOT / "docs/scaling.md").read_text().split())
    for sentence in (*servers.FSYNC.values(), servers.FSYNC_REWRITING, servers.NO_FILE):
        setting, _, loses = sentence.partition(": ")
        assert setting.partition(" is ")[2] in words
        assert loses in words


async def test_what_the_server_has_failed_to_do(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failed(self: OurServer, section: str) -> dict[str, str]:
        return {"aof_enabled": "1", "aof_last_write_status": "err", "rdb_last_bgsave_status": "err"}

    monkeypatch.setattr(OurServer, "information", failed)
    assert await store.check() == [
        "the server could not write to its append-only file",
        "the server could not write a snapshot of its data",
    ]


async def test_one_that_may_not_be_asked(mine: Callable[..., Server]) -> None:
    """As managed ones are."""
    redis = mine()
    with redis.client() as client:
        client.execute_command(
            "ACL", "SETUSER", "ann", "on", ">right1", "~*", "+@all", "-config", "-bgrewriteaof"
        )
    async with RedisStore(redis.url("x").replace("://", "://ann:right1@")) as store:
        assert await store.weaknesses() == [servers.NOT_SAID]
        with pytest.raises(StoreUnavailable, match="bgrewriteaof"):
            await store.scrub()


async def test_no_more_is_needed_than_the_documents_say(mine: Callable[..., Server]) -> None:
    redis = mine()
    words = "+@read +@write +@connection +eval +evalsha +info +time"
    assert words in " ".join((ROOT / "docs/scaling.md").read_text().split())
    with redis.client() as client:
        client.execute_command("ACL", "SETUSER", "ann", "on", ">pw", "~{x}:*", *words.split())
    async with RedisStore(redis.url("x").replace("://", "://ann:pw@")) as store:
        await Chat(store, "t:1").turn()
        await store.blobs.put("t:1", b"data", "image/png")
        await store.move("t:1", "t:2")
        assert [key async for key in store.spoken_by("t:42")] == ["t:2"]
        await store.clear(ref("t:2"))


async def test_files_that_are_being_written_are_written_once_more(
    mine: Callable[..., Server],
) -> None:
    """Both of them, and not taken for ours when somebody else has begun them before."""
    redis = mine("--save", "3600 1")
    async with RedisStore(redis.url("x")) as store:
        await store.save(ref("t:1"), rich(), replaces=None)
        with redis.client() as client:
            client.bgsave()
        await store.clear(ref("t:1"))
        await store.scrub()
        files = [file for file in redis.folder.rglob("*") if file.suffix in (".rdb", ".aof")]
        assert len(files) >= 2
        assert not any(b"Be brief" in file.read_bytes() for file in files)


async def test_files_that_cannot_be_written(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = iter(["ERR Background append only file rewriting already in progress", None])

    async def command(self: OurServer, *words: str) -> None:
        if why := next(busy):
            raise StoreUnavailable(why)

    looks = iter(["1", "0", "0", "0"])

    async def failed(self: OurServer, section: str) -> dict[str, str]:
        going = next(looks, "0")
        return {"aof_enabled": "1", "aof_rewrite_in_progress": going}

    monkeypatch.setattr(OurServer, "command", command)
    monkeypatch.setattr(OurServer, "information", failed)
    with pytest.raises(StoreUnavailable, match="BGREWRITEAOF failed"):
        await store.scrub()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("--maxmemory-policy", "allkeys-lru"), "maxmemory-policy is allkeys-lru: when memory"),
        (("--cluster-enabled", "yes"), "a node of a Redis Cluster"),
    ],
)
async def test_a_server_that_cannot_be_used_is_refused(
    mine: Callable[..., Server], settings: tuple[str, ...], said: str
) -> None:
    url = mine(*settings).url("x")
    for read_only in (True, False):
        with pytest.raises(ConfigError, match=rf"\[store\] url: .*{said}"):
            async with RedisStore(url, read_only=read_only):
                raise AssertionError


async def test_an_old_server_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "OLDEST", 99)
    with pytest.raises(ConfigError, match="it must be 99 or newer"):
        async with RedisStore(url):
            raise AssertionError


async def test_nothing_of_ours_ever_expires(url: str) -> None:
    """So that a policy that deletes only what expires deletes nothing."""
    async with RedisStore(url) as store:
        await store.save(ref("t:1"), rich(), replaces=None)
        await store.blobs.put("t:1", b"data", "image/png")
        await store.notes.put("a", b"1", was=None)
        with server().client() as client:
            names = list(client.scan_iter())
            assert len(names) > 10
            assert {client.ttl(name) for name in names} == {-1}


async def test_full_memory_is_an_error_and_nothing_is_written(mine: Callable[..., Server]) -> None:
    redis = mine()
    async with RedisStore(redis.url("x")) as store:
        value = await Chat(store, "t:1").turn()
        with redis.client() as client:
            client.config_set("maxmemory", 1)
        wiped = replace(
            changes.reset(value, "new"), revision=value.revision + 1, system_prompt="long " * 500
        )
        with pytest.raises(StoreUnavailable, match="maxmemory"):
            await store.save(ref("t:1"), wiped, replaces=value.revision)
        assert await store.load(ref("t:1")) == value
        with redis.client() as client:
            client.config_set("maxmemory", 0)
        await store.save(ref("t:1"), wiped, replaces=value.revision)
        assert await store.load(ref("t:1")) == stored(wiped)


# ---------------------------------------------------------------------- whose it is


async def test_reading_makes_nothing(url: str) -> None:
    with pytest.raises(StoreEmpty, match="nothing is stored there yet"):
        async with RedisStore(url, read_only=True):
            raise AssertionError
    with server().client() as client:
        assert client.keys() == []


async def test_a_newer_one_is_left_alone(url: str) -> None:
    async with RedisStore(url):
        pass
    with behind(url) as redis:
        redis("HSET", "meta", "version", 99)
    for read_only in (True, False):
        with pytest.raises(StoreCorrupt, match="what is stored has version 99"):
            async with RedisStore(url, read_only=read_only):
                raise AssertionError


async def test_a_url_names_it(url: str, tmp_path: Path) -> None:
    async with open_store(url, tmp_path) as store:
        await store.clear(ref("t:1"))
    async with open_store(url, tmp_path, read_only=True) as store:
        assert await keys(store) == []


@pytest.mark.parametrize(
    ("url", "where", "arguments"),
    [
        ("redis://", "redis://localhost:6379/0", {"host": "localhost", "port": 6379, "db": 0}),
        (
            "redis://ann:p%40ss@h:7/3?prefix=b",
            "redis://h:7/3",
            {"host": "h", "port": 7, "db": 3, "username": "ann", "password": "p@ss"},
        ),
        (
            "rediss://:secret@h?ssl_ca_certs=/ca.pem",
            "rediss://h:6379/0",
            {"host": "h", "port": 6379, "db": 0, "password": "secret", "ssl_ca_certs": "/ca.pem"},
        ),
        (
            "unix:///run/a%20b.sock?db=2",
            "unix:///run/a%20b.sock",
            {"path": "/run/a b.sock", "db": 2},
        ),
    ],
)
def test_urls(url: str, where: str, arguments: dict[str, Any]) -> None:
    place = place_of(url)
    assert (place.where, place.arguments) == (where, arguments)
    assert "p@ss" not in repr(place) and "secret" not in repr(place)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://ann:hunter22@h:port/0", "it cannot be read"),
        ("redis://ann:hunter22@[h/0", "it cannot be read"),
        ("redis://ann:hunter22@h/zero", "a database has a number"),
        ("redis://ann:hunter22@h/0?retry=hunter22", "there is no 'retry'; there are db, prefix"),
        ("redis://ann:hunter22@h/0?prefix=a%20b", "prefix: 1 to 64 letters"),
        ("unix:?db=0", "names no socket"),
    ],
)
def test_what_is_no_url(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"\[store\] url: .*{said}") as error:
        RedisStore(url)
    assert "hunter22" not in str(error.value)


# ---------------------------------------------------------------------- what it costs


def _costs() -> dict[str, int]:
    with server().client() as client:
        stats = client.info("stats")
        calls = {name: each["calls"] for name, each in client.info("commandstats").items()}
        file = client.info("persistence")
    for ours in ("cmdstat_info",):
        calls.pop(ours)
    return {
        "in": stats["total_net_input_bytes"],
        "out": stats["total_net_output_bytes"],
        "commands": sum(calls.values()),
        "asked": calls.get("cmdstat_evalsha", 0) + calls.get("cmdstat_eval", 0),
        # What a slow disk keeps waiting is as good as written.
        "file": file["aof_current_size"] + file["aof_buffer_length"],
    }


async def test_a_turn_costs_the_same_however_long_it_is(store: RedisStore) -> None:
    """Four saves and four loads; counted are commands, those inside of scripts too, and bytes."""
    costs: dict[int, dict[str, int]] = {}
    said: Any = [("user", text("q" * 200)), ("assistant", text("a" * 200))]
    for messages in (200, 10_000):
        chat = Chat(store, f"t:{messages:05}")
        value = begun()
        await store.save(chat.ref, value, replaces=None)
        while value.next_seq <= messages:
            before = value
            value = changes.append(value, said * 50, Usage(), 1, BOT_MEMORY)
            value = replace(value, revision=before.revision + 1)
            await store.save(chat.ref, value, replaces=before.revision)
        for _ in range(60):
            await chat.turn(words="a" * 200)
        before_it = _costs()
        for _ in range(20):
            await chat.turn(words="a" * 200)
        after = _costs()
        costs[messages] = {name: after[name] - before_it[name] for name in after}
    short, long = costs[200], costs[10_000]
    assert short["asked"] == long["asked"] == 20 * 8
    assert short["commands"] == long["commands"]
    for name in ("in", "out", "file"):
        # Longer numbers, and no more.
        assert short[name] <= long[name] <= short[name] * 1.03, name
    assert long["file"] / 20 < 8 << 10


def test_what_cannot_be_packed() -> None:
    with pytest.raises(TypeError, match="cannot be packed: float"):
        pack(1.0)
