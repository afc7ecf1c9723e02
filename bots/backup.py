"""`chinwag backup` and `chinwag restore`: a copy of the database beside a running bot, whether such
a copy is good, and putting it in the database's place.

Of SQLite databases alone: a folder is copied as a folder, and a server has tools of its own. Gives
lines of text; where they go is the command line's affair.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from bots.settings import Settings
from bots.stores import keys_in
from core import changes, outbox
from core.blobs import named_in
from core.clock import Clock, SystemClock
from core.errors import (
    BlobUnreadable,
    ConfigError,
    SnapshotTooNew,
    SnapshotUnreadable,
    StoreCorrupt,
)
from core.export import oldest_first
from core.lock import take_lock
from core.snapshot import Snapshot
from core.snapshots import Snapshots
from core.store import SessionRef
from stores.sealed import guard
from stores.sqlite import SQLiteStore, backup, migrate

Progress = Callable[[int, int], None]
Unfinished = Literal["resume", "drop"]

PAGE: Final = 500
HELD: Final = "restored from a backup: it may have been sent since"


class Contents(msgspec.Struct):
    """What is in a copy.

    :param size: bytes of the file
    :param unreadable: a line for each thing that is not as it was stored
    """

    size: int = 0
    conversations: int = 0
    messages: int = 0
    unfinished: int = 0
    unreadable: list[str] = []


async def back_up(
    settings: Settings, target: Path | None, progress: Progress, clock: Clock | None = None
) -> AsyncIterator[str]:
    """
    :param target: the file to make; None: beside the database, with the time in its name
    """
    source = _database(settings)
    now = _stamp((clock or SystemClock()).now())
    target = target or source.with_name(f"{source.stem}-{now}{source.suffix}")
    try:
        await asyncio.to_thread(backup.copy, source, target, progress)
    except FileExistsError:
        raise ConfigError(f"{target}: exists already; name another file") from None
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written: {error.strerror}") from None
    contents = await look_through(target)
    async for line in _told(target, contents):
        yield line
    yield f"`chinwag restore {target}` puts it in the database's place."


async def check_backup(copied: Path) -> AsyncIterator[str]:
    """
    :raises StoreCorrupt: something in it is damaged; which, is said in the lines before
    """
    async for line in _told(copied, await look_through(copied)):
        yield line


async def restore(
    settings: Settings,
    copied: Path,
    unfinished: Unfinished,
    *,
    replacing: bool,
    clock: Clock | None = None,
) -> AsyncIterator[str]:
    """
    :param unfinished: what becomes of that which the copy has not finished: it goes on, or is left
        out; either way it may have been said meanwhile
    :param replacing: whether a database that is there may go, under another name
    :raises StoreCorrupt: the copy is damaged; nothing was changed
    """
    clock = clock or SystemClock()
    target = _database(settings)
    lock = take_lock(target.with_name(f"{target.name}.lock"), target)
    try:
        aside = _unused(target.with_name(f"{target.name}.before-{_stamp(clock.now())}"))
        if target.exists() and not replacing:
            raise ConfigError(
                f"{target}: there is a database already; --replace keeps it as {aside.name} and"
                " puts the backup in its place"
            )
        staged = target.with_name(f"{target.name}.restoring")
        staged.unlink(missing_ok=True)
        await asyncio.to_thread(backup.copy, copied, staged, lambda done, pages: None)
        try:
            reached = await asyncio.to_thread(_brought_up, staged)
            if reached:
                yield f"{copied}: an older chinwag wrote it; it is brought up to schema {reached}."
            async for line in _told(copied, await look_through(staged)):
                yield line
            left = await _settle(settings, staged, unfinished, clock)
        except BaseException:
            _discard(staged)
            raise
        kept = target.exists()
        backup.put_in_place(staged, target, aside)
    finally:
        os.close(lock)
    yield f"{target}: restored."
    if kept:
        yield f"{aside}: what was there before."
    if left:
        yield {
            "resume": f"{left} with something unfinished: the next start goes on with it, and an"
            " answer that was sent after the backup may come again.",
            "drop": f"{left} with something unfinished: it is left out; `chinwag sessions"
            " undelivered` lists the answers.",
        }[unfinished]


async def look_through(copied: Path) -> Contents:
    """Read all of it.

    :raises StoreError: it cannot be opened at all
    """
    found = Contents((await asyncio.to_thread(copied.stat)).st_size)
    async with SQLiteStore(copied, read_only=True) as store:
        found.unreadable += await store.check()
        after: str | None = None
        while True:
            page = [each async for each in store.summaries(after=after, limit=PAGE)]
            for each in page:
                found.conversations += 1
                found.unfinished += each.unfinished
                ref = SessionRef(key=each.key)
                try:
                    await store.load(ref)
                    async for row in oldest_first(store, ref):
                        found.messages += 1
                        for id in named_in(bytes(row.blocks)):
                            await store.blobs.get(id)
                except (SnapshotUnreadable, SnapshotTooNew, BlobUnreadable) as error:
                    found.unreadable.append(f"{each.key}: {error}")
            if len(page) < PAGE:
                return found
            after = page[-1].key


async def _told(copied: Path, contents: Contents) -> AsyncIterator[str]:
    yield (
        f"{copied}: {contents.conversations} conversations, {contents.messages} messages,"
        f" {contents.size / 1e6:.1f} MB"
    )
    for line in contents.unreadable:
        yield f"  damaged: {line}"
    if contents.unreadable:
        raise StoreCorrupt(f"{copied}: {len(contents.unreadable)} things in it cannot be read")
    yield "Everything in it was read and is as it was stored."


async def _settle(settings: Settings, staged: Path, unfinished: Unfinished, clock: Clock) -> int:
    """How many conversations had something to do."""
    reading = unfinished == "resume"
    plain = SQLiteStore(staged, read_only=reading)
    async with guard(plain, keys_in(settings), encrypted=None, read_only=reading) as store:
        keys = [key async for key in store.unfinished()]
        if unfinished == "drop":
            snapshots = Snapshots(store, clock, lambda key: SessionRef(key=key))
            for key in keys:
                await snapshots.update(key, lambda before: before and left_out(before))
    await asyncio.to_thread(backup.in_one_file, staged)
    staged.with_name(f"{staged.name}.lock").unlink(missing_ok=True)
    return len(keys)


def left_out(snapshot: Snapshot) -> Snapshot:
    """Nothing is left to do; what was to be sent can still be looked at, and sent by hand."""
    stopped = replace(changes.stop(snapshot), inbox=())
    for part in stopped.outbox:
        if part.state in ("waiting", "sending"):
            stopped = outbox.hold(stopped, part.id, HELD)
    return stopped


def _brought_up(staged: Path) -> int:
    """The version that it has now; 0: it had it already."""
    reached = [0, *migrate.bring_up(staged)][-1]
    backup.in_one_file(staged)
    return reached


def _discard(staged: Path) -> None:
    for ending in (*backup.COMPANIONS, ".lock"):
        Path(f"{staged}{ending}").unlink(missing_ok=True)


def _database(settings: Settings) -> Path:
    scheme, _, rest = settings.store.url.partition(":")
    if scheme == "sqlite" and rest:
        return (settings.folder / rest).absolute()
    cure = {
        "disk": "stop the bot and copy the folder",
        "memory": "it keeps nothing, so there is nothing to copy",
    }.get(scheme, "use the tools of that database")
    raise ConfigError(f"[store] url: only a sqlite: database can be backed up here; {cure}")


def _unused(path: Path) -> Path:
    """A name that neither a database nor what was left beside one has."""
    numbered = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return next(
        name
        for name in chain([path], numbered)
        if not any(Path(f"{name}{ending}").exists() for ending in backup.COMPANIONS)
    )


def _stamp(now: int) -> str:
    return f"{datetime.fromtimestamp(now / 1000, UTC):%Y%m%d-%H%M%S}"
