"""DiskStore: one file a conversation, which people can read, copy and back up one by one.

For a Session on one machine, and for small bots. It keeps the window only: what left it is gone,
`archive` gives the window, and a save writes all of it, so a turn costs what the window costs.
Lists read every file. Use SQLiteStore for anything that grows.

::

    folder/
        5f2c….json          {"key": …, "checksum": …, "snapshot": …}; the name is a hash of the key
        unfinished/5f2c…    the key of a conversation with something to do
        aside/5f2c….….json  what could not be read
        notes/9a1e…         what is no conversation
        usage/2026-11.jsonl what model calls used, a line a call
        blobs/3b0c…         an image, a document: a line with its type, then its bytes
        uses/77d1….3b0c…    that a conversation uses a blob: its key, and since when
        .move               a move under way: all that it writes, done to the end at the next call
        .lock               the number of the process that has the folder to itself

A file is replaced as a whole, temporary file, fsync, rename, fsync of the folder, and only its
owner may read it. `files.py` has the conversations in a folder, `envelope.py` what a file holds.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from core import snapshot as snapshots
from core.clock import Clock, SystemClock
from core.errors import StoreUnavailable
from core.keys import check_key
from core.lock import take_lock
from core.messages import Message
from core.snapshot import Snapshot
from core.store import Blob, SessionRef, Summary
from core.usage import By, Spent, Sum
from stores.disk.files import Files

_CLOCK: Final = SystemClock()

T = TypeVar("T")


class DiskStore:
    """
    ::

        DiskStore("chats")      has the folder to itself; a second process is refused
        DiskStore.shared()      .chinwag in the working directory, beside others who share it

    `Session` takes the shared one when it is given the class itself, ``store=DiskStore``.

    :param path: the folder; it is created, its parent is not
    :param read_only: takes no lock and writes nothing; the folder must be there
    :param exclusive: False: others may write here, too; each call keeps them out while it lasts

    A reference whose options have a ``path`` is stored in exactly that file. It is then in no list
    and is not moved: nobody but its owner knows where it is.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = ".chinwag",
        *,
        read_only: bool = False,
        exclusive: bool = True,
        clock: Clock = _CLOCK,
    ) -> None:
        self.path = Path(path).absolute()
        self.notes = DiskNotes(self)
        self.usage = DiskUsage(self)
        self.blobs = DiskBlobs(self)
        self._files = Files(self.path)
        self._read_only = read_only
        self._exclusive = exclusive
        self._clock = clock
        # One thread, one thing at a time: a cancelled caller leaves the thread to finish, and
        # nobody else gets in between.
        self._thread: ThreadPoolExecutor | None = None
        self._closing = ExitStack()

    @classmethod
    def shared(cls) -> Self:
        """A store that gets on with others in the same folder. Makes it when it first writes."""
        return cls(exclusive=False)

    async def __aenter__(self) -> Self:
        """
        :raises StoreInUse: another process has it to itself
        :raises StoreUnavailable: it cannot be opened
        """
        with ExitStack() as stack:
            if self._read_only:
                if not self.path.is_dir():
                    raise StoreUnavailable(f"{self.path}: there is no such folder")
            elif self._exclusive:
                self._files.create()
                stack.callback(os.close, take_lock(self.path / ".lock", self.path))
            thread = ThreadPoolExecutor(1, "disk store")
            stack.callback(thread.shutdown)
            self._thread = thread
            self._closing = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        thread, self._thread = self._thread, None
        try:
            if thread:
                # In its turn: whatever was asked before is done before.
                await asyncio.get_running_loop().run_in_executor(thread, int)
        finally:
            self._closing.close()

    # ------------------------------------------------------------------ what a Session needs

    async def load(self, ref: SessionRef) -> Snapshot | None:
        return await self._do(lambda files: files.load(ref), ref)

    async def save(self, ref: SessionRef, snapshot: Snapshot, *, replaces: int | None) -> None:
        data = snapshots.encode(snapshot)
        unfinished, now = snapshot.unfinished, snapshot.updated_at
        erases = bool(snapshot.erase or snapshot.rewritten)
        await self._do(
            lambda files: files.save(ref, data, replaces, unfinished, erases, now, snapshot.spent),
            ref,
            writes=True,
        )

    async def clear(self, ref: SessionRef) -> None:
        await self._do(lambda files: files.clear(ref), ref, writes=True)
        # By the key, wherever the conversation was; when there is no folder, there is nothing.
        await self._do(lambda files: files.blobs.end_all(ref.key))

    # ------------------------------------------------------------------ what a bot needs besides

    async def unfinished(self) -> AsyncIterator[str]:
        for key in await self._do(lambda files: files.unfinished()):
            yield key

    async def summaries(
        self, prefix: str = "", after: str | None = None, limit: int = 100
    ) -> AsyncIterator[Summary]:
        """`messages` counts the window. What cannot be read is not in the list; see `check`."""
        for summary in await self._do(lambda files: files.summaries(prefix, after, limit)):
            yield summary

    async def archive(
        self, ref: SessionRef, before: int | None = None, limit: int = 100
    ) -> AsyncIterator[Message]:
        """The window only: nothing else is kept."""
        snapshot = await self.load(ref)
        rows = snapshot.messages if snapshot else ()
        found = [row for row in reversed(rows) if before is None or row.seq < before]
        for row in found[:limit]:
            yield row

    async def move(self, old: str, new: str) -> None:
        now = self._clock.now()
        await self._do(lambda files: files.move(old, new, now), writes=True)

    async def spoken_by(self, sender: str) -> AsyncIterator[str]:
        for key in await self._do(lambda files: files.spoken_by(sender)):
            yield key

    async def remove(self, ref: SessionRef, *, replaces: int) -> None:
        await self._do(lambda files: files.remove(ref, replaces), ref, writes=True)

    async def size(self, key: str | None = None) -> int:
        return await self._do(lambda files: files.size(key))

    async def clear_aside(
        self, *, key: str | None = None, sender: str | None = None, before: int | None = None
    ) -> int:
        return await self._do(lambda files: files.clear_aside(key, sender, before), writes=True)

    async def scrub(self) -> None:
        """A file that is replaced or deleted is no file any more. What the disk keeps of it below
        the file system is out of our reach."""

    async def set_aside(self, ref: SessionRef) -> None:
        now = self._clock.now()
        await self._do(lambda files: files.set_aside(ref, now), ref, writes=True)

    async def check(self) -> list[str]:
        """What cannot be read, file by file. Empty: nothing."""
        return await self._do(lambda files: files.check())

    async def _do(
        self, work: Callable[[Files], T], ref: SessionRef | None = None, *, writes: bool = False
    ) -> T:
        """Run it in the thread, and alone in the folder it is about."""
        if self._thread is None or (writes and self._read_only):
            why = "opened for reading only" if self._thread else "not open"
            raise StoreUnavailable(f"{self.path}: the store is {why}")

        def in_thread() -> T:
            try:
                if self._read_only:
                    return work(self._files)
                with self._files.alone(ref, writes=writes):
                    return work(self._files)
            except OSError as error:
                raise StoreUnavailable(
                    f"{error.filename or self.path}: {error.strerror}; the outcome is unknown"
                ) from error

        return await asyncio.get_running_loop().run_in_executor(self._thread, in_thread)


class DiskNotes:
    """Small things that are no session, a file each."""

    def __init__(self, store: DiskStore) -> None:
        self._store = store

    async def get(self, name: str) -> bytes | None:
        return await self._store._do(lambda files: files.note(name))

    async def put(self, name: str, value: bytes | None, *, was: bytes | None) -> bool:
        return await self._store._do(lambda files: files.put_note(name, value, was), writes=True)

    async def names(self) -> AsyncIterator[str]:
        for name in await self._store._do(lambda files: files.notes()):
            yield name


class DiskBlobs:
    """Bytes beside the histories, a file each."""

    def __init__(self, store: DiskStore) -> None:
        self._store = store

    async def put(self, key: str, data: bytes, media_type: str) -> str:
        check_key(key)
        now = self._store._clock.now()
        return await self._store._do(
            lambda files: files.blobs.put(key, data, media_type, now), writes=True
        )

    async def get(self, id: str) -> Blob | None:
        return await self._store._do(lambda files: files.blobs.get(id))

    async def sweep(self, before: int) -> int:
        return await self._store._do(lambda files: files.sweep(before), writes=True)


class DiskUsage:
    """What model calls used, a file a month."""

    def __init__(self, store: DiskStore) -> None:
        self._store = store

    async def sums(
        self,
        by: Sequence[By] = (),
        *,
        since: int = 0,
        until: int | None = None,
        key: str | None = None,
        sender: str | None = None,
    ) -> list[Sum]:
        return await self._store._do(lambda files: files.usage.sums(by, since, until, key, sender))

    async def forget(self, sender: str) -> int:
        return await self._store._do(lambda files: files.usage.forget(sender), writes=True)

    async def erase(self, before: int) -> int:
        # A month at a time: all of them may be many.
        erased = 0
        for month in await self._store._do(lambda files: files.usage.months()):
            erased += await self._store._do(partial(_erased_of, month=month, before=before))
        return erased

    async def rows(self) -> AsyncIterator[tuple[str, Spent]]:
        # A month at a time: all of them may be many.
        for month in await self._store._do(lambda files: files.usage.months()):
            for row in await self._store._do(partial(_rows_of, month=month)):
                yield row

    async def add(self, rows: Sequence[tuple[str, Spent]]) -> None:
        await self._store._do(lambda files: files.usage.add_missing(rows), writes=True)


def _erased_of(files: Files, month: Path, before: int) -> int:
    return files.usage.erase(month, before)


def _rows_of(files: Files, month: Path) -> list[tuple[str, Spent]]:
    return files.usage.rows(month)
