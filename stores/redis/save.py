"""Conversations written: compare-and-set and all that is new in one script, so in one trip to the
server and all or nothing, whoever else is writing.

What a save sends does not depend on how long the conversation is, as long as the caller knows how
much of it is stored (`known`).
"""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_hex
from typing import Any, Final, NamedTuple

from core import blobs
from core.errors import SnapshotUnreadable, StaleSnapshot
from core.messages import Message
from core.snapshot import Snapshot
from stores.redis import scripts, usage
from stores.redis.rows import Parts, Stored, checksum, row_of, take_apart, text_of
from stores.redis.server import Server


class Known(NamedTuple):
    """What is stored of a conversation, as far as the next save must know it.

    :param id: the conversation's own, under which its rows lie
    :param seen: checksum of the ids seen
    :param seen_then: of those that stay when one more pushes the first out
    :param bodies: digests of the long texts
    :param crc: of its head. A server that has lost what it said was stored may hold another value
        of the same revision, which somebody else has saved since
    """

    id: str
    revision: int
    next_seq: int = 1
    seen: int | None = None
    seen_then: int | None = None
    bodies: frozenset[str] = frozenset()
    unfinished: bool | None = None
    crc: str = ""


_NOTHING: Final = frozenset[str]()


async def save(
    server: Server, key: str, snapshot: Snapshot, replaces: int | None, known: Known | None
) -> Known:
    """
    :param known: of the revision `replaces`; None: to be asked for
    :returns: what is stored now
    :raises StaleSnapshot: another revision is stored, or none; nothing was written
    """
    wanted = "nothing" if replaces is None else f"revision {replaces}"
    if replaces is None:
        known = Known(token_hex(8), 0)
    elif known is None:
        known = await look(server, key)
        if known is None or known.revision != replaces:
            raise StaleSnapshot(f"{key}: what is stored is not {wanted}")
    parts = take_apart(key, snapshot)
    ends = replaces is not None and (snapshot.erase or snapshot.rewritten)
    try:
        await server.run(
            scripts.SAVE,
            key=key,
            id=known.id,
            replaces="" if replaces is None else str(replaces),
            crc=known.crc,
            write=written(parts, snapshot, known),
            rewritten=_rows(known.id, snapshot.rewritten),
            turned=snapshot.unfinished != known.unfinished,
            unfinished=snapshot.unfinished,
            spent=usage.pairs(snapshot.spent),
            named=sorted(blobs.named_by(snapshot)) if ends else None,
            now=snapshot.updated_at,
            grace=blobs.GRACE_MS,
        )
    except StaleSnapshot:
        raise StaleSnapshot(f"{key}: what is stored is not {wanted}") from None
    return known_of(known.id, snapshot, parts)


def written(parts: Parts, snapshot: Snapshot, known: Known) -> dict[str, object]:
    """What of a value is to be written, given what is there."""
    new = snapshot.since(known.next_seq)
    add = [name for name in parts.bodies if name not in known.bodies]
    seen, all_of_them = _seen(parts, snapshot.seen, known)
    return {
        "fields": parts.fields,
        "rows": _rows(known.id, new),
        "erase": text_of(parts.erase),
        "bodies": [each for name in add for each in (name, parts.bodies[name])],
        "done_with": sorted(known.bodies.difference(parts.bodies)),
        "seen": seen,
        "seen_all": all_of_them,
        "seen_count": len(snapshot.seen),
    }


def _seen(parts: Parts, ids: Sequence[str], known: Known) -> tuple[Sequence[str], bool]:
    """The ids to be added, and whether all others go."""
    if parts.seen == known.seen:
        return (), False
    if ids and parts.seen_before in (known.seen, known.seen_then):
        return ids[-1:], False
    return ids, True


def known_of(id: str, snapshot: Snapshot, parts: Parts) -> Known:
    return Known(
        id,
        snapshot.revision,
        snapshot.next_seq,
        parts.seen,
        parts.seen_then,
        frozenset(parts.bodies) if parts.bodies else _NOTHING,
        snapshot.unfinished,
        parts.crc,
    )


def known_from(stored: Stored, snapshot: Snapshot) -> Known:
    """What a load has found."""
    return Known(
        stored.id,
        snapshot.revision,
        snapshot.next_seq,
        int(stored.seen_crc),
        checksum(snapshot.seen[1:]),
        frozenset(stored.bodies) if stored.bodies else _NOTHING,
        snapshot.unfinished,
        stored.crc.decode(),
    )


def _rows(id: str, rows: Sequence[Message]) -> list[str | bytes]:
    return [each for row in rows for each in (str(row.seq), row_of(id, row))]


async def look(server: Server, key: str) -> Known | None:
    """
    :raises SnapshotUnreadable: it is not as it was stored
    """
    found: list[Any] = await server.run(scripts.LOOK, key=key)
    if not found:
        return None
    id, fields, bodies = found
    try:
        revision, next_seq, seen, seen_then = map(int, fields)
    except (TypeError, ValueError) as error:
        raise SnapshotUnreadable(f"{key}: what is stored is damaged: {error}") from error
    names = frozenset(name.decode(errors="replace") for name in bodies)
    return Known(id.decode(errors="replace"), revision, next_seq, seen, seen_then, names)
