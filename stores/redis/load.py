"""A conversation read, in one script, so that all of it is of one moment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from core.errors import SnapshotUnreadable
from core.messages import Message
from core.snapshot import Snapshot, Span
from stores.redis import scripts
from stores.redis.rows import Stored, head_of, message_of, put_together, text_of
from stores.redis.server import Server


class Loaded(msgspec.Struct, frozen=True):
    snapshot: Snapshot
    stored: Stored


async def load(server: Server, key: str) -> Loaded | None:
    """
    :raises SnapshotUnreadable: a checksum is wrong, a row is missing, or it is no snapshot
    :raises SnapshotTooNew: of a newer version
    """
    stored = await fetch(server, key)
    return None if stored is None else Loaded(put_together(key, stored), stored)


async def fetch(server: Server, key: str) -> Stored | None:
    """As it is stored, whether that can be read or not."""
    found: list[Any] = await server.run(scripts.LOAD, key=key)
    if not found:
        return None
    id, fields, seen, bodies, numbers, rows = found
    return _stored(id, fields)._replace(
        seen=seen,
        bodies={name.decode(errors="replace"): body for name, body in _pairs(bodies)},
        rows={int(number): row for number, row in zip(numbers, rows, strict=True)},
    )


async def revision(server: Server, key: str) -> int | None:
    """
    :raises SnapshotUnreadable: it is no number
    """
    found: list[Any] = await server.run(scripts.REVISION, key=key)
    if not found:
        return None
    try:
        return int(found[0])
    except (TypeError, ValueError) as error:
        raise SnapshotUnreadable(f"{key}: the stored revision is damaged") from error


def _stored(id: bytes, fields: Sequence[bytes | None]) -> Stored:
    revision, next_seq, seen, seen_then, head, crc = (field or b"" for field in fields[:6])
    return Stored(id.decode(errors="replace"), revision, next_seq, seen, seen_then, head, crc)


def _pairs(flat: list[bytes]) -> Iterable[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)


async def rows_of(server: Server, id: str) -> dict[int, bytes]:
    """All of a conversation's messages."""
    (found,) = await server.run(scripts.ROWS, id=id)
    return {int(number): row for number, row in _pairs(found)}


async def archive(server: Server, key: str, before: int | None, limit: int) -> list[Message]:
    """History, newest first, whether the window still shows it or not.

    :raises SnapshotUnreadable: a checksum is wrong
    """
    found: list[Any] = await server.run(scripts.HEAD, key=key)
    if not found:
        return []
    stored = _stored(*found)
    snapshot, _ = head_of(key, stored)
    spans = text_of(_descending(snapshot.spans, before))
    (flat,) = await server.run(scripts.NEWEST, id=stored.id, ranges=spans, limit=limit)
    return [message_of(key, stored.id, int(seq), row) for seq, row in _pairs(flat)]


def _descending(spans: Iterable[Span], before: int | None) -> list[Span]:
    """Those that are left below `before`, newest first, none twice: where rows were appended while
    a turn was under way, spans overlap."""
    found: list[Span] = []
    for first, last in sorted(spans, key=lambda span: span[1], reverse=True):
        upto = last if before is None else min(last, before - 1)
        before = first if before is None else min(first, before)
        if upto >= first:
            found.append((first, upto))
    return found
