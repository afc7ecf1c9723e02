"""Turns against a store, timed and checked: one after the other, and all chats at once."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from bench.measure import (
    Heartbeat,
    Meter,
    descriptors,
    percentile,
    resident,
    size_of,
    unbind,
)
from bench.said import exchange, exchanges, in_window
from bench.subject import Alternation, Numbers, Seen, Spec, Subject, Wrong, opened

WARM_UP: Final = 3  # turns
APART: Final = 100_000  # numbers between the first exchanges of two chats

Make = Callable[[], Subject]


async def turns(spec: Spec, make: Make) -> Numbers:
    """Each turn waits for the one before it; the chats take turns."""
    folder = Path(spec.folder)
    keys = [f"telegram-chat:{index}" for index in range(spec.chats)]
    said = {key: exchanges(spec.history // 2, index * APART) for index, key in enumerate(keys)}
    took: list[float] = []
    found: list[tuple[str, int, Seen]] = []
    async with opened(make()) as subject:
        if spec.history:
            for key in keys:
                await subject.fill(key, said[key])
        await _warm_up(subject)
        fold(folder)
        planned = []
        for index in range(spec.turns):
            key, total = keys[index % spec.chats], 2 * len(said[keys[index % spec.chats]])
            each = exchange(total // 2 + index % spec.chats * APART)
            planned.append((subject.ready(key, each, total), key, total))
            said[key].append(each)
        alternation = Alternation(spec.block)
        gc.collect()
        with Meter() as meter:
            end = time.perf_counter() + spec.cap
            for turn, key, total in planned:
                alternation.wait()
                began = time.perf_counter()
                seen = await turn()
                took.append(time.perf_counter() - began)
                found.append((key, total, seen))
                if began > end:
                    break
        memory = resident()
    size = size_of(folder)
    done: Counter[str] = Counter()
    for key, total, seen in found:
        _check(key, seen, total, said[key][total // 2 - 1].answer_blocks if total else b"")
        done[key] += 1
    for key in keys:
        del said[key][spec.history // 2 + done[key] :]
    await _check_stored(make, {key: 2 * len(said[key]) for key in keys})
    return {
        "turns": len(took),
        "p50": percentile(took, 50) * 1e3,
        "p99": percentile(took, 99) * 1e3,
        "cpu": meter.cpu / len(took) * 1e3,
        "written": meter.written / len(took),
        "size": size,
        "payload": sum(each.payload for key in keys for each in said[key]) + _warm_payload(),
        "memory": memory,
    }


async def _warm_up(subject: Subject) -> None:
    for number in range(WARM_UP):
        await subject.ready("telegram-chat:warm", exchange(number), 2 * number)()


def _warm_payload() -> int:
    return sum(each.payload for each in exchanges(WARM_UP))


def _check(key: str, seen: Seen, total: int, newest: bytes) -> None:
    """
    :param newest: blocks of the answer that the turn must have found last
    """
    if seen.total != total:
        raise Wrong(f"{key}: a turn saw {seen.total} messages, not {total}")
    if seen.window is not None and seen.window != in_window(total):
        raise Wrong(f"{key}: the window held {seen.window} messages, not {in_window(total)}")
    if seen.last is not None and seen.last != newest:
        raise Wrong(f"{key}: the newest message is not the one that was said last")


async def _check_stored(make: Make, expected: dict[str, int]) -> None:
    """The store is opened anew, and each chat has all of its messages."""
    async with opened(make()) as subject:
        for key, messages in expected.items():
            stored = await subject.count(key)
            if stored != messages:
                raise Wrong(f"{key}: {stored} messages are there after it was opened again")


def fold(folder: Path) -> None:
    """What was filled in moves from SQLite's log into the database, so that no turn pays for it."""
    # Not each store is a SQLite file.
    with suppress(sqlite3.Error), closing(sqlite3.connect(folder / "db", timeout=2)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


async def crowd(spec: Spec, make: Make) -> Numbers:
    """All chats at once, each with one turn after the other; a turn that fails is a figure."""
    folder = Path(spec.folder)
    said = {
        f"telegram-chat:{index}": exchanges(spec.turns, index * APART)
        for index in range(spec.chats)
    }
    took: list[float] = []
    done: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    async with opened(make()) as subject:
        await _warm_up(subject)
        planned = {
            key: [subject.ready(key, each, 2 * number) for number, each in enumerate(all_of_it)]
            for key, all_of_it in said.items()
        }
        # What each turn must find is made beforehand: looking at it is to cost next to nothing.
        newest = {key: [b"", *(each.answer_blocks for each in said[key])] for key in said}
        memory = resident()

        async def chat(key: str) -> None:
            for turn in planned[key]:
                began = time.perf_counter()
                try:
                    seen = await turn()
                except Wrong:
                    raise
                except Exception as error:
                    errors[f"{type(error).__name__}: {error}"] += 1
                else:
                    took.append(time.perf_counter() - began)
                    # After a failure nobody can say how much of it was written.
                    if not errors:
                        _check(key, seen, 2 * done[key], newest[key][done[key]])
                    done[key] += 1
                await asyncio.sleep(0)

        gc.collect()
        # No bot has turns lying about that were planned beforehand: the collector need not walk
        # through them.
        gc.freeze()
        with Meter() as meter:
            async with Heartbeat() as heart:
                with suppress(TimeoutError):
                    async with asyncio.timeout(spec.cap):
                        await asyncio.gather(*map(chat, said))
        gc.unfreeze()
        unbind()
        memory = resident() - memory
        open_files = descriptors()
    size = size_of(folder)
    lost = 0
    async with opened(make()) as subject:
        for key, turns_done in done.items():
            # There may be more: one that was cut off may have been written all the same.
            lost += max(0, turns_done - await subject.count(key) // 2)
    for error, times in errors.most_common(3):
        print(f"{times} turns failed: {error}", file=sys.stderr)
    made = max(1, len(took))
    return {
        "turns": len(took),
        "per_second": len(took) / meter.wall,
        "failed": sum(errors.values()),
        "lost": lost,
        "p50": percentile(took, 50) * 1e3,
        "p99": percentile(took, 99) * 1e3,
        "cpu": meter.cpu / made * 1e3,
        "written": meter.written / made,
        "stall": heart.longest * 1e3,
        "descriptors": open_files,
        "size": size,
        "payload": sum(each.payload for key in said for each in said[key][: done[key]])
        + _warm_payload(),
        "memory": memory,
    }
