"""`chinwag migrate`: a database of an older chinwag brought up, after a backup.

Forward only: what a newer chinwag wrote is refused, and the way back is the backup. Gives lines of
text; where they go is the command line's affair.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bots.settings import Settings
from core.clock import Clock, SystemClock
from core.errors import ConfigError, StoreError
from core.lock import take_lock
from stores.sqlite import backup, schema
from stores.sqlite import migrate as steps

Progress = Callable[[int, int], None]

# What is brought up when it is read, a conversation at a time.
_WITHOUT_SCHEMA: Final = ("disk", "memory", "redis", "rediss")


async def migrate(
    settings: Settings,
    progress: Progress,
    *,
    check: bool = False,
    backing_up: bool = True,
    clock: Clock | None = None,
) -> AsyncIterator[str]:
    """
    :param check: only say what would happen
    :raises StoreOutdated: with `check`, when there is something to do
    :raises StoreCorrupt: a newer chinwag wrote it, or it is damaged; nothing was changed
    """
    scheme, _, rest = settings.store.url.partition(":")
    if scheme == "sqlite" and rest:
        path = (settings.folder / rest).absolute()
        async for line in _sqlite(path, progress, check, backing_up, clock or SystemClock()):
            yield line
    elif scheme in ("postgresql", "postgres"):
        async for line in _postgres(settings.store.url, check, backing_up):
            yield line
    elif scheme in _WITHOUT_SCHEMA:
        yield f"{scheme}: has no schema; conversations are brought up when they are read."
    else:
        raise ConfigError(f"[store] url: {scheme}: is somebody else's store, and so are its steps")


async def _sqlite(
    path: Path, progress: Progress, check: bool, backing_up: bool, clock: Clock
) -> AsyncIterator[str]:
    wanted = len(schema.STEPS)
    stored = await asyncio.to_thread(steps.stored_version, path)
    if stored in (0, wanted):
        yield f"{path}: schema {wanted}, as this chinwag wants it; nothing to do."
        return
    now = datetime.fromtimestamp(clock.now() / 1000, UTC)
    copied = path.with_name(f"{path.stem}-schema-{stored}-{now:%Y%m%d-%H%M%S}{path.suffix}")
    if check:
        if backing_up:
            yield f"Would copy {_size(path) / 1e6:.1f} MB to {copied} first."
        yield f"Would bring {path} from schema {stored} to {wanted}."
        raise schema.outdated(path, stored)
    lock = take_lock(path.with_name(f"{path.name}.lock"), path)
    try:
        if backing_up:
            await asyncio.to_thread(_copy, path, copied, progress)
            yield f"{copied}: the database as it is, read through."
        try:
            bringing = steps.bring_up(path)
            while (number := await asyncio.to_thread(_next, bringing)) is not None:
                yield f"{path}: schema {number}."
        except StoreError as error:
            went_back = "; it is as it was before that step"
            backed_up = f", and {copied} as it was before all" if backing_up else ""
            raise type(error)(f"{error}{went_back}{backed_up}") from error
        await asyncio.to_thread(steps.check, path)
    finally:
        os.close(lock)
    yield "All of it was read through. The next start goes on with it."
    if backing_up:
        yield f"The way back: that older chinwag, and `chinwag restore --replace {copied}`."


def _size(path: Path) -> int:
    return path.stat().st_size


def _copy(path: Path, copied: Path, progress: Progress) -> None:
    try:
        backup.copy(path, copied, progress)
    except FileExistsError:
        raise ConfigError(f"{copied}: exists already; try again in a second") from None
    except OSError as error:
        raise ConfigError(f"{copied}: cannot be written: {error.strerror}") from None
    steps.check(copied)


def _next(bringing: Iterator[int]) -> int | None:
    return next(bringing, None)


async def _postgres(url: str, check: bool, backing_up: bool) -> AsyncIterator[str]:
    try:
        from stores.postgres import PostgresStore
        from stores.postgres import schema as theirs
    except ImportError as error:
        raise ConfigError(
            f"[store] url: {error.name} is not installed: install chinwag[postgres]"
        ) from None
    wanted = len(theirs.STEPS)
    # To look needs nobody to be stopped.
    store = PostgresStore(url, shared=check)
    async with store.alone(beside=check) as connection:
        stored = await theirs.version(connection, store.where)
        if stored in (0, wanted):
            yield f"{store.where}: schema {wanted}, as this chinwag wants it; nothing to do."
            return
        if check:
            yield f"Would bring {store.where} from schema {stored} to {wanted}."
        if check or backing_up:
            raise theirs.outdated(store.where, stored)
        async for number in theirs.bring_up(connection, store.where):
            yield f"{store.where}: schema {number}."
    yield "The next start goes on with it."
