"""`chinwag sessions copy`: everything that one store keeps, in another.

Conversations with all their history, images and files, what calls used, owners and lists. It goes
through the seam of stores alone, so any two can meet; what one of them does not keep (`disk:` has
the window only) cannot be copied, nor what was set aside because nobody could read it. Nothing is
taken away. Begun again after it ended half way, it goes on: what is there already, and is the same,
is passed over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from core.blobs import named_by, named_in
from core.errors import BlobUnreadable, ConfigError, SnapshotTooNew, SnapshotUnreadable
from core.export import oldest_first
from core.messages import Message
from core.snapshot import Snapshot, Span, decode, encode
from core.store import BotStore, SessionRef
from core.usage import Spent
from stores.sealed import guard
from stores.urls import open_store

ROWS: Final = 500  # of a history in one save, so that a long one is never in memory as a whole
PAGE: Final = 500
UNDER_WAY: Final = "copy.under-way"  # the key of the conversation that is being written

Progress = Callable[[int, int], None]


class Count(msgspec.Struct):
    """What is in a store, as far as it can be counted without reading all of it twice."""

    conversations: int = 0
    messages: int = 0
    notes: int = 0
    calls: int = 0


async def copy_sessions(
    source_url: str,
    target_url: str,
    folder: Path,
    progress: Progress,
    *,
    keys: Sequence[bytes] | None = None,
    encrypted: bool | None = None,
) -> AsyncIterator[str]:
    """
    :param folder: what relative paths are relative to
    :param keys: of `[encryption]`, for what is encrypted of the two
    :param encrypted: whether the other is to be, see `stores.sealed`; the one is what it is
    :param progress: told how many conversations of how many are done
    :raises ConfigError: both are one, or the other has something else under a key
    """
    if source_url == target_url:
        # A URL may hold a password.
        raise ConfigError("from and to are one store, not two")
    kept, new = open_store(source_url, folder, read_only=True), open_store(target_url, folder)
    async with (
        guard(kept, keys, encrypted=None, read_only=True) as source,
        guard(new, keys, encrypted=encrypted, read_only=False) as target,
    ):
        await _clear_half_copied(target)
        every = [key async for key in _keys(source)]
        copied = Count()
        unreadable: list[str] = []
        for done, key in enumerate(every):
            progress(done, len(every))
            try:
                copied.messages += await _copy_one(source, target, key)
                copied.conversations += 1
            except (SnapshotUnreadable, SnapshotTooNew) as error:
                unreadable.append(str(error))
        progress(len(every), len(every))
        copied.calls = await _copy_usage(source, target)
        copied.notes = await _copy_notes(source, target)
        there = await _count(target)
        if target_url.startswith("disk:"):
            # It keeps the window only, and says so.
            there.messages = copied.messages
        _compare(copied, there)
        for told in unreadable:
            yield f"not copied: {told}"
        yield (
            f"{copied.conversations} conversations, {copied.messages} messages, {copied.calls}"
            f" model calls, {copied.notes} notes: copied, and counted in the target."
        )


async def _clear_half_copied(target: BotStore) -> None:
    """What an attempt that was ended was writing: it is written anew, whenever its turn comes."""
    under_way = await target.notes.get(UNDER_WAY)
    if under_way is not None:
        await target.clear(SessionRef(under_way.decode()))
        await target.notes.put(UNDER_WAY, None, was=under_way)


async def _copy_one(source: BotStore, target: BotStore, key: str) -> int:
    """How many messages it has."""
    ref = SessionRef(key)
    snapshot = await source.load(ref)
    if snapshot is None:
        return 0  # gone meanwhile
    named = named_by(snapshot)
    async for row in oldest_first(source, ref):
        named |= named_in(bytes(row.blocks))
    # Where one is encrypted, a blob is called otherwise; only who has put it there knows how.
    renamed = await _copy_blobs(source, target, key, named)
    snapshot = _with_names(snapshot, renamed)
    if await _is_there(target, ref, snapshot):
        return sum([1 async for _ in oldest_first(target, ref)])
    await target.notes.put(UNDER_WAY, key.encode(), was=None)
    count = await _write(source, target, ref, snapshot, renamed)
    await target.notes.put(UNDER_WAY, None, was=key.encode())
    return count


async def _is_there(target: BotStore, ref: SessionRef, snapshot: Snapshot) -> bool:
    there = await target.load(ref)
    if there is None:
        return False
    if there == snapshot:
        return True
    raise ConfigError(
        f"{ref.key}: the target has another conversation under this key, and nothing is written"
        " over; copy into an empty store"
    )


async def _write(
    source: BotStore,
    target: BotStore,
    ref: SessionRef,
    snapshot: Snapshot,
    renamed: Mapping[str, str],
) -> int:
    """Row after row in order, some at a time, and the snapshot itself in the last save."""
    inside = {row.seq for row in snapshot.rows}
    history = [row.seq async for row in oldest_first(source, ref)]
    replaces: int | None = None
    if not inside.issuperset(history):
        saves = len(inside.union(history)) // ROWS + 1
        # One lower for each of them: the last one is the snapshot's own.
        revision = max(0, snapshot.revision - saves)
        rows: list[Message] = []
        async for row in _in_order(oldest_first(source, ref), snapshot):
            rows.append(_row_with_names(row, renamed))
            if len(rows) == ROWS:
                replaces = await _save_rows(target, ref, snapshot, rows, revision, replaces)
                revision += 1
                rows = []
        if rows:
            replaces = await _save_rows(target, ref, snapshot, rows, revision, replaces)
    await target.save(ref, snapshot, replaces=replaces)
    if await target.load(ref) != snapshot:
        raise ConfigError(f"{ref.key}: the target gives back something else than was copied")
    return len(history)


async def _in_order(history: AsyncIterator[Message], snapshot: Snapshot) -> AsyncIterator[Message]:
    """All rows by their number: a turn under way has some that are not history yet."""
    waiting = sorted(snapshot.rows, key=lambda row: row.seq)
    async for row in history:
        while waiting and waiting[0].seq <= row.seq:
            other = waiting.pop(0)
            if other.seq < row.seq:
                yield other
        yield row
    for other in waiting:
        yield other


async def _save_rows(
    target: BotStore,
    ref: SessionRef,
    snapshot: Snapshot,
    rows: list[Message],
    revision: int,
    replaces: int | None,
) -> int:
    """A conversation that has these rows, and before them those that are stored."""
    last = rows[-1].seq
    part = Snapshot(
        revision=revision,
        epoch=snapshot.epoch,
        created_at=snapshot.created_at,
        updated_at=snapshot.updated_at,
        spans=_upto(snapshot.spans, last),
        window=rows[0].seq,
        messages=tuple(rows),
        next_seq=last + 1,
    )
    await target.save(ref, part, replaces=replaces)
    return revision


def _upto(spans: tuple[Span, ...], last: int) -> tuple[Span, ...]:
    return tuple((start, min(end, last)) for start, end in spans if start <= last)


async def _copy_blobs(
    source: BotStore, target: BotStore, key: str, ids: set[str]
) -> dict[str, str]:
    """Those that are called otherwise in the target, and how."""
    renamed: dict[str, str] = {}
    for id in sorted(ids):
        try:
            blob = await source.blobs.get(id)
        except BlobUnreadable:
            continue  # of a damaged one there is nothing to copy; its block stays and says so
        if blob is not None:
            there = await target.blobs.put(key, blob.data, blob.media_type)
            if there != id:
                renamed[id] = there
    return renamed


def _with_names(snapshot: Snapshot, renamed: Mapping[str, str]) -> Snapshot:
    """The same value, in which blobs are called as they are in the target."""
    if not renamed:
        return snapshot
    written = encode(snapshot)
    for old, new in renamed.items():
        # Ids are 64 random digits: nobody says one by chance, and in quotes they are escaped.
        written = written.replace(old.encode(), new.encode())
    return decode(written)


def _row_with_names(row: Message, renamed: Mapping[str, str]) -> Message:
    blocks = bytes(row.blocks)
    if not (named_in(blocks) & renamed.keys()):
        return row
    for old, new in renamed.items():
        blocks = blocks.replace(f'"{old}"'.encode(), f'"{new}"'.encode())
    return replace(row, blocks=Raw(blocks))


async def _copy_usage(source: BotStore, target: BotStore) -> int:
    count = 0
    page: list[tuple[str, Spent]] = []
    async for row in source.usage.rows():
        page.append(row)
        count += 1
        if len(page) == PAGE:
            await target.usage.add(page)
            page = []
    await target.usage.add(page)
    return count


async def _copy_notes(source: BotStore, target: BotStore) -> int:
    count = 0
    async for name in source.notes.names():
        value = await source.notes.get(name)
        there = await target.notes.get(name)
        if value is None or name == UNDER_WAY:
            continue
        if there not in (None, value):
            raise ConfigError(
                f"the target has another note {name!r}, and nothing is written over; copy into an"
                " empty store"
            )
        await target.notes.put(name, value, was=there)
        count += 1
    return count


async def _count(store: BotStore) -> Count:
    there = Count()
    async for messages in _messages(store):
        there.conversations += 1
        there.messages += messages
    there.calls = sum([1 async for _ in store.usage.rows()])
    there.notes = sum([1 async for _ in store.notes.names()])
    return there


def _compare(copied: Count, there: Count) -> None:
    """
    :raises ConfigError: something that was copied is not there
    """
    for name in Count.__struct_fields__:
        wanted, found = getattr(copied, name), getattr(there, name)
        if found < wanted:
            raise ConfigError(
                f"{wanted} {name} were copied, and the target has {found}: copy once more"
            )


async def _keys(store: BotStore) -> AsyncIterator[str]:
    after: str | None = None
    while page := [each async for each in store.summaries(after=after, limit=PAGE)]:
        for each in page:
            yield each.key
        after = page[-1].key


async def _messages(store: BotStore) -> AsyncIterator[int]:
    after: str | None = None
    while page := [each async for each in store.summaries(after=after, limit=PAGE)]:
        for each in page:
            yield each.messages
        after = page[-1].key
