"""Loads that are no part of a turn: a whole history, and the first ones after a start."""

from __future__ import annotations

import asyncio
import gc
import random
import sqlite3
import time
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from bench import rows
from bench.floors import Floor
from bench.measure import evict, median, percentile, resident, size_of
from bench.ours import NOW, UNBOUNDED, Chinwag, grown, inbound, ref
from bench.said import Exchange, exchange, exchanges
from bench.subject import Alternation, Numbers, Spec, Wrong, opened
from bench.turns import APART, fold
from core import changes
from core.claude import encode_request
from core.history import repair
from core.model import Request
from core.snapshot import Snapshot

UNFINISHED_EVERY: Final = 1_000
STORED: Final = 10  # messages in each conversation of a full database
FIRST_LOADS: Final = 500
TOGETHER: Final = 500  # saves under way at once while a database is filled


# ---------------------------------------------------------------------- a whole history


async def load(spec: Spec) -> Numbers:
    """The window lifted: all of a chat's messages, made ready to send."""
    said = {
        f"telegram-chat:{index}": exchanges(spec.history // 2, index * APART)
        for index in range(spec.chats)
    }
    folder, alternation = Path(spec.folder), Alternation(spec.block)
    if spec.who == "chinwag":
        return await _load_snapshots(folder, said, spec.turns, alternation)
    return await _load_bytes(folder, said, spec.turns, alternation, checked=spec.who == "floor")


async def _load_snapshots(
    folder: Path, said: dict[str, list[Exchange]], loads: int, alternation: Alternation
) -> Numbers:
    cold: list[float] = []
    cold_sent: list[float] = []
    warm: list[float] = []
    warm_sent: list[float] = []
    keys = list(said)
    async with opened(Chinwag(folder / "db", memory=UNBOUNDED)) as subject:
        for key in keys:
            await subject.fill(key, said[key])
        fold(folder)
        gc.collect()
        for number in range(loads):
            key = keys[number % len(keys)]
            alternation.wait()
            subject.snapshots.forget(key)
            for loaded, sent in ((cold, cold_sent), (warm, warm_sent)):
                began = time.perf_counter()
                snapshot = await subject.snapshots.load(key)
                loaded.append(time.perf_counter() - began)
                body = _body(snapshot)
                sent.append(time.perf_counter() - began)
                _check_body(key, body, said[key])
    return {
        "cold": median(cold_sent) * 1e3,
        "warm": median(warm_sent) * 1e3,
        "cold_load": median(cold) * 1e3,
        "warm_load": median(warm) * 1e3,
    }


def _body(snapshot: Snapshot | None) -> bytes:
    """As a turn makes it of what was loaded."""
    if snapshot is None:
        raise Wrong("a conversation is not there")
    messages = repair(snapshot.messages)
    return encode_request(Request(model="claude", system=("Be concise.",), messages=messages))


async def _load_bytes(
    folder: Path,
    said: dict[str, list[Exchange]],
    loads: int,
    alternation: Alternation,
    *,
    checked: bool,
) -> Numbers:
    """Rows that are request-ready already, held against their checksums, and joined."""
    cold: list[float] = []
    warm: list[float] = []
    keys = list(said)
    async with opened(Floor(folder / "db")) as subject:
        for key in keys:
            await subject.save(partial(rows.fill, key=key, said=said[key], bounded=False))
        fold(folder)
        gc.collect()
        for number in range(loads):
            key = keys[number % len(keys)]
            alternation.wait()
            began = time.perf_counter()
            loaded = await subject.hop(partial(rows.load, key=key, checked=checked))
            assert loaded is not None and loaded[1] is not None
            read = time.perf_counter()
            body = b'{"messages":[%b]}' % b",".join([row for _, row in loaded[1]])
            done = time.perf_counter()
            cold.append(done - began)
            warm.append(done - read)
            _check_body(key, body, said[key])
    return {"cold": median(cold) * 1e3, "warm": median(warm) * 1e3}


def _check_body(key: str, body: bytes, said: list[Exchange]) -> None:
    if body.count(b'"role":') != 2 * len(said) or said[-1].answer_message not in body:
        raise Wrong(f"{key}: the request does not hold all that was said")


# ---------------------------------------------------------------------- start


async def build(spec: Spec) -> Numbers:
    """A database with many conversations, some of them unfinished."""
    path = Path(spec.folder, "db")
    if spec.who == "floor":
        async with opened(Floor(path)) as floor:
            await floor.save(partial(_build_rows, chats=spec.chats))
    else:
        async with opened(Chinwag(path)) as subject:
            for first in range(0, spec.chats, TOGETHER):
                some = range(first, min(spec.chats, first + TOGETHER))
                await asyncio.gather(*(_build_one(subject, index) for index in some))
    return {"size": size_of(path.parent)}


def _said(index: int) -> list[Exchange]:
    return exchanges(STORED // 2, index * STORED)


def _build_rows(database: sqlite3.Connection, chats: int) -> None:
    for index in range(chats):
        rows.fill(database, f"telegram-chat:{index}", _said(index))
    database.execute("UPDATE sessions SET unfinished = 1 WHERE id % ? = 0", (UNFINISHED_EVERY,))


async def _build_one(subject: Chinwag, index: int) -> None:
    key = f"telegram-chat:{index}"
    snapshot = grown(key, _said(index))
    if (index + 1) % UNFINISHED_EVERY == 0:
        snapshot = changes.accept(snapshot, inbound(key, exchange((index + 1) * STORED - 1)))
    await subject.store.save(ref(key), replace(snapshot, updated_at=NOW), replaces=None)


async def start(spec: Spec) -> Numbers:
    """From a file that nobody has read lately to the first messages of random chats."""
    path = Path(spec.folder, "db")
    evict(path)
    base = resident()
    took: list[float] = []
    began = time.perf_counter()
    async with opened(Floor(path) if spec.who == "floor" else Chinwag(path)) as subject:
        open_after = time.perf_counter() - began
        unfinished = await _unfinished(subject)
        ready_after = time.perf_counter() - began
        if unfinished != spec.chats // UNFINISHED_EVERY:
            raise Wrong(f"{unfinished} conversations are unfinished")
        chats = random.Random(5).sample(range(spec.chats), min(FIRST_LOADS, spec.chats))
        for index in chats:
            key = f"telegram-chat:{index}"
            began = time.perf_counter()
            messages = await _messages(subject, key)
            took.append(time.perf_counter() - began)
            if messages != STORED:
                raise Wrong(f"{key}: {messages} messages, not {STORED}")
        memory = resident() - base
    return {
        "opened": open_after * 1e3,
        "ready": ready_after * 1e3,
        "p50": percentile(took, 50) * 1e3,
        "p99": percentile(took, 99) * 1e3,
        "memory": memory,
    }


async def _unfinished(subject: Floor | Chinwag) -> int:
    if isinstance(subject, Chinwag):
        return len([key async for key in subject.store.unfinished()])
    rows = await subject.hop(
        lambda database: database.execute("SELECT key FROM sessions WHERE unfinished").fetchall()
    )
    return len(rows)


async def _messages(subject: Floor | Chinwag, key: str) -> int:
    if isinstance(subject, Chinwag):
        snapshot = await subject.snapshots.load(key)
        return len(snapshot.messages) if snapshot else 0
    found = await subject.load(key)
    return len(found[1]) if found and found[1] else 0
