"""DiskStore: the contract, with what it leaves out on purpose, and its files."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import random
import resource
import subprocess
import sys
import time
import zlib
from collections.abc import AsyncIterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from msgspec.structs import replace

from bots.contracts.store import (
    SHORT,
    Chat,
    StoreContract,
    begun,
    image,
    inbound,
    keys,
    listed,
    ref,
    rich,
    spent,
)
from core import changes
from core.errors import (
    BlobUnreadable,
    SnapshotTooNew,
    SnapshotUnreadable,
    StaleSnapshot,
    StoreCorrupt,
    StoreInUse,
    StoreUnavailable,
)
from core.snapshot import Snapshot, stored
from core.store import BotStore, SessionRef
from stores.disk import DiskStore, envelope, files


def file_of(folder: Path, key: str) -> Path:
    return folder / f"{sha256(key.encode()).hexdigest()}.json"


def in_file(path: Path, key: str = "t:1") -> SessionRef:
    return SessionRef(key, options={"path": str(path)})


def rewrite(file: Path, change: dict[str, Any]) -> None:
    """Change the snapshot inside, and the checksum with it."""
    envelope: dict[str, Any] = msgspec.json.decode(file.read_bytes())
    snapshot = msgspec.json.encode({**envelope["snapshot"], **change})
    envelope["checksum"] = zlib.crc32(snapshot, zlib.crc32(envelope["key"].encode()))
    file.write_bytes(msgspec.json.encode({**envelope, "snapshot": msgspec.Raw(snapshot)}))


class TestDiskStore(StoreContract):
    keeps_archive: ClassVar[bool] = False

    def open(self, place: Path) -> BotStore:
        return DiskStore(place / "chats")

    async def bytes_of(self, place: Path) -> bytes:
        return b"".join(file.read_bytes() for file in place.rglob("*") if file.is_file())

    async def spoil(self, store: BotStore, place: Path, key: str) -> None:
        file = file_of(place / "chats", key)
        file.write_bytes(file.read_bytes().replace(b'"epoch"', b'"epocH"'))

    async def age(self, store: BotStore, place: Path, key: str) -> None:
        rewrite(file_of(place / "chats", key), {"version": 99})

    async def spoil_blob(self, store: BotStore, place: Path, id: str) -> None:
        file = place / "chats" / "blobs" / id.removeprefix("sha256:")
        file.write_bytes(file.read_bytes().replace(b"data", b"dada"))


class FixedClock:
    def now(self) -> int:
        return 1_700_000_000_000

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None: ...


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "chats"


@pytest.fixture
async def store(folder: Path) -> AsyncIterator[DiskStore]:
    async with DiskStore(folder, clock=FixedClock()) as store:
        yield store


async def opens(folder: Path, *, read_only: bool = False) -> None:
    async with DiskStore(folder, read_only=read_only):
        pass


# ---------------------------------------------------------------------- opening


async def test_second_one_is_refused(folder: Path) -> None:
    async with DiskStore(folder) as store:
        with pytest.raises(StoreInUse, match=rf"\(pid {os.getpid()}\)"):
            await opens(folder)
        async with DiskStore(folder, read_only=True) as reader:
            value = await Chat(store, "t:1").turn()
            assert await reader.load(ref("t:1")) == value
            with pytest.raises(StoreUnavailable, match="reading only"):
                await reader.clear(ref("t:1"))
    await opens(folder)


async def test_a_lock_that_cannot_be_had(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", refuse)
        with pytest.raises(StoreUnavailable, match=r"\.lock: it cannot be locked: No locks"):
            await opens(folder)
    (folder / ".lock").unlink()
    (folder / ".lock").mkdir()
    with pytest.raises(StoreUnavailable, match=r"\.lock: it cannot be opened"):
        await opens(folder)


async def test_folders_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"nowhere/chats: it cannot be created"):
        await opens(tmp_path / "nowhere" / "chats")
    with pytest.raises(StoreUnavailable, match=r"chats: there is no such folder"):
        await opens(tmp_path / "chats", read_only=True)
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match="cannot be created"):
        await opens(tmp_path / "file")


async def test_modes_do_not_depend_on_the_umask(folder: Path) -> None:
    before = os.umask(0)
    try:
        async with DiskStore(folder) as store:
            await store.save(ref("t:1"), rich(), replaces=None)
            await store.notes.put("owner", b"1", was=None)
    finally:
        os.umask(before)
    found = list(folder.rglob("*"))
    assert {file.stat().st_mode & 0o777 for file in found if file.is_file()} == {0o600}
    assert {file.stat().st_mode & 0o777 for file in (folder, *found) if file.is_dir()} == {0o700}
    assert len([file for file in found if file.is_file()]) == 5  # what a call used among them


async def test_a_cancelled_close_closes(folder: Path) -> None:
    store = await DiskStore(folder).__aenter__()
    closing = asyncio.create_task(store.__aexit__(None, None, None))
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    await opens(folder)


# ---------------------------------------------------------------------- shared


async def test_the_shared_ones_get_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with DiskStore.shared() as one, DiskStore.shared() as two:
        assert await one.load(ref("t:1")) is None
        assert await keys(one) == []
        assert await listed(one) == []
        assert list(tmp_path.iterdir()) == []
        chats = [Chat(store, "t:1") for store in (one, two) for _ in range(10)]
        await asyncio.gather(
            *(
                chat.update(lambda value, n=n: changes.reply(value, inbound(f"in{n}"), []))  # type: ignore[misc]
                for n, chat in enumerate(chats)
            )
        )
        value = await two.load(ref("t:1"))
        assert value is not None and len(value.seen) == 20
        assert [file.name for file in tmp_path.iterdir()] == [".chinwag"]


# ---------------------------------------------------------------------- a file of its own


async def test_a_path_is_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "my.session"
    async with DiskStore.shared() as store:
        value = stored(rich())
        assert await store.load(in_file(file)) is None
        await store.save(in_file(file), value, replaces=None)
        assert await store.load(in_file(file)) == value
        # It is found by its path, whatever the key, and by nothing else.
        assert await store.load(in_file(file, "t:2")) == value
        assert await store.load(ref("t:1")) is None
        assert await keys(store) == []
        assert await listed(store) == []
        await store.move("t:1", "t:2")
        with pytest.raises(StaleSnapshot):
            await store.save(in_file(file, "t:3"), begun(), replaces=None)
        assert [path.name for path in tmp_path.iterdir()] == [".chinwag", "my.session"]
        done = replace(value, revision=value.revision + 1, inbox=(), turn=None, outbox=())
        await store.save(in_file(file), done, replaces=value.revision)
        await store.set_aside(in_file(file))
        assert await store.load(in_file(file)) is None
        (aside,) = tmp_path.glob("my.*.session")
        assert await store.load(in_file(aside)) == done
        await store.clear(in_file(aside))
        await store.clear(in_file(aside))
        assert await store.load(in_file(aside)) is None


async def test_of_two_stores_on_one_path_one_wins(tmp_path: Path) -> None:
    file = tmp_path / "my.session"
    async with DiskStore.shared() as one, DiskStore.shared() as two:
        for number in range(20):
            outcomes = await asyncio.gather(
                one.save(in_file(file), begun(1000), replaces=None),
                two.save(in_file(file), begun(2000), replaces=None),
                return_exceptions=True,
            )
            assert [outcome is None for outcome in outcomes].count(True) == 1, number
            await one.clear(in_file(file))


async def test_a_path_in_no_folder(tmp_path: Path) -> None:
    async with DiskStore.shared() as store:
        there = in_file(tmp_path / "nowhere" / "my.session")
        assert await store.load(there) is None
        with pytest.raises(StoreUnavailable, match=r"nowhere/my\.session"):
            await store.save(there, begun(), replaces=None)


# ---------------------------------------------------------------------- damage


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 200_000, b'{"key":"t:1"}'])
async def test_what_is_no_conversation_is_unreadable(
    store: DiskStore, folder: Path, content: bytes
) -> None:
    other = await Chat(store, "t:2").turn()
    file = file_of(folder, "t:1")
    file.write_bytes(content)
    with pytest.raises(SnapshotUnreadable, match="t:1"):
        await store.load(ref("t:1"))
    with pytest.raises(StaleSnapshot):
        await store.save(ref("t:1"), begun(), replaces=None)
    assert file.read_bytes() == content
    assert [summary.key for summary in await listed(store)] == ["t:2"]
    assert await store.load(ref("t:2")) == other
    assert [file.name in line for line in await store.check()] == [True]


async def test_anothers_file_is_unreadable(store: DiskStore, folder: Path) -> None:
    await Chat(store, "t:1").turn()
    os.rename(file_of(folder, "t:1"), file_of(folder, "t:2"))
    with pytest.raises(SnapshotUnreadable, match="belongs to t:1"):
        await store.load(ref("t:2"))
    assert await listed(store) == []


async def test_a_list_leaves_out_what_cannot_be_read(store: DiskStore, folder: Path) -> None:
    for key in ("t:1", "t:2", "t:3"):
        await Chat(store, key).turn()
    rewrite(file_of(folder, "t:1"), {"version": 99})
    rewrite(file_of(folder, "t:2"), {"version": 1, "revision": None})
    assert [summary.key for summary in await listed(store)] == ["t:3"]
    assert len(await store.check()) == 2
    with pytest.raises(SnapshotTooNew):
        await store.load(ref("t:1"))
    with pytest.raises(StaleSnapshot):
        await store.save(ref("t:2"), begun(), replaces=None)


async def test_set_aside_keeps_the_bytes(store: DiskStore, folder: Path) -> None:
    for content in (b"first", b"second"):  # at the same moment: the clock stands
        file_of(folder, "t:1").write_bytes(content)
        await store.set_aside(ref("t:1"))
    kept = sorted((folder / "aside").iterdir())
    assert [file.read_bytes() for file in kept] == [b"first", b"second"]


async def test_too_new_goes_on_under_its_new_key(store: DiskStore, folder: Path) -> None:
    value = await Chat(store, "t:1").turn()
    rewrite(file_of(folder, "t:1"), {"version": 99})
    await store.move("t:1", "t:2")
    rewrite(file_of(folder, "t:2"), {"version": 1})
    assert await store.load(ref("t:2")) == value


# ---------------------------------------------------------------------- crashes


async def test_a_full_disk_is_said_and_survived(store: DiskStore, folder: Path) -> None:
    chat = Chat(store, "t:1")
    value = await chat.turn()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
    try:
        with pytest.raises(StoreUnavailable, match="outcome is unknown"):
            await chat.turn(words="word " * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(folder.rglob("*.new"))
    loaded = await store.load(chat.ref)
    assert loaded is not None and loaded.messages == value.messages
    await Chat(store, "t:2").turn(words="word " * 2000)


async def test_a_move_is_done_wholly_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its n-th write fails, for every n; then the same store goes on, or another one does."""
    real = envelope.write_file
    outcomes: set[bool] = set()
    for number in range(100):
        folder = tmp_path / str(number)
        before: dict[str, Snapshot | None] = {}
        async with DiskStore(folder, clock=FixedClock()) as store:
            old, new, topic = (Chat(store, key) for key in ("t:1", "t:2", "t:1/7"))
            new.turns = 50
            for chat in (old, new, topic):
                await chat.turn()
                await chat.update(lambda value: changes.accept(value, inbound("in")))
                before[chat.ref.key] = await store.load(chat.ref)
            file_of(folder, "t:2/7").write_bytes(b"damaged")
            left = number

            def fails(file: Path, data: bytes) -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    raise OSError(errno.ENOSPC, "No space left on device", str(file))
                real(file, data)

            with monkeypatch.context() as patch:
                patch.setattr(files, "write_file", fails)
                failed = False
                try:
                    await store.move("t:1", "t:2")
                except StoreUnavailable:
                    failed = True
                    if number:
                        with pytest.raises(StoreUnavailable):  # not before it is done
                            await store.load(new.ref)
            if number % 2:
                await store.load(ref("t:9"))
        async with DiskStore(folder) as store:
            assert before["t:1"] is not None and before["t:1/7"] is not None
            moved = number > 0
            outcomes.add(moved)
            if moved:
                merged = changes.move(before["t:1"], before["t:2"], "t:2")
                assert await store.load(ref("t:2")) == merged
                assert await store.load(ref("t:1")) is None
                assert await store.load(ref("t:2/7")) == changes.move(
                    before["t:1/7"], None, "t:2/7"
                )
                assert await keys(store) == ["t:2", "t:2/7"]
                (aside,) = (folder / "aside").iterdir()
                assert aside.read_bytes() == b"damaged"
            else:
                for key, value in before.items():
                    assert await store.load(ref(key)) == value
                assert await keys(store) == ["t:1", "t:1/7", "t:2"]
            assert not (folder / ".move").exists()
        if not failed:
            break
    assert outcomes == {True, False} and number > 3


async def test_a_damaged_plan_of_a_move_stops_the_store(folder: Path) -> None:
    await opens(folder)
    (folder / ".move").write_bytes(b"{")
    async with DiskStore(folder) as store:
        with pytest.raises(StoreCorrupt, match=r"\.move: it is damaged"):
            await store.load(ref("t:1"))


SAVER = """
import asyncio, sys
from stores.disk import DiskStore
from bots.contracts.store import Chat
async def main():
    async with DiskStore(sys.argv[1]) as store:
        chat = Chat(store, "t:1")
        chat.turns = int(sys.argv[2])
        while True:
            value = await chat.turn(words="word " * 300)
            print(value.revision, flush=True)
asyncio.run(main())
"""


async def test_killed_while_it_saves(folder: Path) -> None:
    chance = random.Random(3)
    revision = 0
    for round_ in range(4):
        command = [sys.executable, "-c", SAVER, str(folder), str(round_ * 100_000)]
        root = Path(__file__).parents[2]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root) as process:
            assert process.stdout is not None
            for _ in range(chance.randrange(1, 20)):
                process.stdout.readline()
            time.sleep(chance.random() / 100)
            process.kill()
            lines = process.stdout.read().splitlines()
        revision = max([revision, *(int(line) for line in lines[:-1])])
        async with DiskStore(folder) as store:
            assert await store.check() == []
            value = await store.load(ref("t:1"))
            assert value is not None and value.revision >= revision
            assert value.unfinished <= (await keys(store) == ["t:1"])


async def test_a_blob_is_a_file_for_its_owner_alone(folder: Path) -> None:
    async with DiskStore(folder) as store:
        id = await store.blobs.put("t:1", b"data", "image/png")
        file = folder / "blobs" / id.removeprefix("sha256:")
        assert file.read_bytes() == b"image/png\ndata"
        assert file.stat().st_mode & 0o777 == 0o600
        await store.clear(ref("t:1"))
        assert list((folder / "blobs").iterdir()) == list((folder / "uses").iterdir()) == []


async def test_blobs_go_when_the_window_has_passed_them(folder: Path) -> None:
    """Nothing of them is kept here but the window."""
    async with DiskStore(folder) as store:
        id = await store.blobs.put("t:1", b"data", "image/png")
        chat = Chat(store, "t:1")
        await chat.update(partial(changes.accept, inbound=replace(inbound("1"), blocks=image(id))))
        for _ in range(5):
            await chat.turn(SHORT)
        assert await store.blobs.get(id) is None


async def test_a_blob_whose_type_is_damaged(folder: Path) -> None:
    async with DiskStore(folder) as store:
        id = await store.blobs.put("t:1", b"data", "image/png")
        (folder / "blobs" / id.removeprefix("sha256:")).write_bytes(b"\xff\ndata")
        with pytest.raises(BlobUnreadable):
            await store.blobs.get(id)


async def test_a_damaged_use_is_in_nobodys_way(folder: Path) -> None:
    async with DiskStore(folder) as store:
        id = await store.blobs.put("t:1", b"data", "image/png")
        (use,) = (folder / "uses").iterdir()
        use.write_bytes(b"nonsense")
        await store.move("t:1", "t:2")
        assert await store.blobs.get(id) is not None
        await store.clear(ref("t:1"))
        assert await store.blobs.get(id) is None


async def test_blobs_are_there_beside_conversations_in_files_of_their_own(
    tmp_path: Path,
) -> None:
    store = DiskStore(tmp_path / "chats", exclusive=False)
    async with store:
        own = SessionRef("t:1", options={"path": str(tmp_path / "own.json")})
        id = await store.blobs.put("t:1", b"data", "image/png")
        await store.save(own, begun(), replaces=None)
        await store.save(own, begun(1001), replaces=1000)
        assert await store.blobs.get(id) is not None
        await store.clear(own)
        assert await store.blobs.get(id) is None


async def test_what_a_crash_cut_off_is_no_line(folder: Path) -> None:
    async with DiskStore(folder) as store:
        await store.save(ref("t:1"), replace(begun(), spent=(spent(),)), replaces=None)
    [file] = (folder / "usage").iterdir()
    assert file.name == "2023-11.jsonl"
    file.write_bytes(file.read_bytes() + b'\n{"key":"t:1","spent":{"execution":"e2",\xff')
    async with DiskStore(folder) as store:
        assert (await store.usage.sums())[0].calls == 1
        later = replace(begun(1001), spent=(spent("e3"),))
        await store.save(ref("t:1"), later, replaces=1000)
        assert (await store.usage.sums())[0].calls == 2


async def test_what_calls_used_is_a_file_a_month(folder: Path) -> None:
    async with DiskStore(folder) as store:
        rows = (spent(), spent("e2", at=spent().at + 31 * 86_400_000, sender="t:42"))
        await store.save(ref("t:1"), replace(begun(), spent=rows), replaces=None)
        assert sorted(file.name for file in (folder / "usage").iterdir()) == [
            "2023-11.jsonl",
            "2023-12.jsonl",
        ]
        assert await store.usage.forget("t:42") == 1
    assert not any(b"t:42" in file.read_bytes() for file in (folder / "usage").iterdir())


async def test_a_file_of_its_own_keeps_no_account(folder: Path) -> None:
    own = SessionRef("t:1", options={"path": str(folder.parent / "own.json")})
    async with DiskStore(folder) as store:
        await store.save(own, replace(begun(), spent=(spent(),)), replaces=None)
        assert await store.usage.sums() == []
