"""A conversation read and put together again, each part held against its checksum. Sync, and
inside a transaction that is open already, so that all queries see one state.

Every query is fetched to its end at once. A cursor that an error left half-way would live on in
the error's traceback, and with it the state of the database that it saw: COMMIT does not end that.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from core.errors import SnapshotUnreadable
from core.messages import Message, Role
from core.snapshot import Snapshot, Span
from core.snapshot import decode as decode_snapshot
from stores.sqlite.encode import (
    PER_ROW,
    RING,
    ROWS,
    Away,
    Head,
    checksum,
    digest,
    head_checksum,
    seed,
)

_decode_head: Final = msgspec.json.Decoder(Head).decode
_decode_about: Final = msgspec.json.Decoder(
    int | tuple[Role, int, str | tuple[str, ...] | None, tuple[str, ...]]
).decode
_decode_ids: Final = msgspec.json.Decoder(list[tuple[str, ...]]).decode


@contextmanager
def _reading(key: str) -> Iterator[None]:
    """What a damaged byte may lead to besides a wrong checksum: a value of another type, or text
    that is none."""
    try:
        yield
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise SnapshotUnreadable(f"{key}: what is stored is damaged: {error}") from error
    except sqlite3.Error as error:
        if hasattr(error, "sqlite_errorcode"):
            raise
        # Not SQLite speaks here but Python's module, which cannot decode a text.
        raise SnapshotUnreadable(f"{key}: what is stored is damaged: {error}") from error


def load(database: sqlite3.Connection, key: str) -> Snapshot | None:
    """
    :raises SnapshotUnreadable: a checksum is wrong, a row is missing, or it is no snapshot
    :raises SnapshotTooNew: of a newer version
    """
    with _reading(key):
        return _load(database, key)


def _load(database: sqlite3.Connection, key: str) -> Snapshot | None:
    row = database.execute(
        # The ids in one value: as rows they would cost more than the rest of the load.
        "SELECT id, revision, next_seq, seen_count, seen_crc, bodies, head, crc, "
        "(SELECT CAST(group_concat(ids) AS BLOB) FROM "
        "(SELECT ids FROM seen WHERE session = sessions.id ORDER BY slot)) "
        "FROM sessions WHERE key = ? AND aside IS NULL",
        (key,),
    ).fetchone()
    if row is None:
        return None
    session, revision, next_seq, seen_count, seen_crc, body_count, encoded, crc, ring = row
    head, snapshot = _read_head(key, encoded, crc)
    if (snapshot.revision, snapshot.next_seq) != (revision, next_seq):
        raise SnapshotUnreadable(f"{key}: its row and its head disagree")
    rows: list[Message] = []
    for first, last in _merged(head.runs):
        rows += _read_run(database, key, session, first, last)
    seen = _in_order(_decode_ids(b"[%b]" % ring), seen_count) if ring else ()
    if checksum(seen) != seen_crc:
        raise SnapshotUnreadable(f"{key}: the checksum of its ids seen is wrong")
    if body_count or head.away:
        snapshot = _with_bodies(database, key, session, snapshot, head.away)
    middle = len(rows) - head.steps
    return replace(
        snapshot,
        messages=tuple(rows[:middle]),
        turn=replace(snapshot.turn, steps=tuple(rows[middle:])) if snapshot.turn else None,
        seen=seen,
    )


def _read_head(key: str, encoded: bytes, crc: int) -> tuple[Head, Snapshot]:
    """The head, and the snapshot as far as it holds it."""
    if head_checksum(key, encoded) != crc:
        raise SnapshotUnreadable(f"{key}: the checksum of its head is wrong")
    head = _decode_head(encoded)
    return head, decode_snapshot(bytes(head.snapshot))


def _merged(runs: Iterable[Span]) -> list[Span]:
    """The turn's rows mostly follow the last message's: then one query reads both."""
    merged: list[Span] = []
    for first, last in runs:
        if merged and merged[-1][1] + 1 == first:
            merged[-1] = (merged[-1][0], last)
        else:
            merged.append((first, last))
    return merged


def _read_run(
    database: sqlite3.Connection, key: str, session: int, first: int, last: int
) -> list[Message]:
    rows = database.execute(
        "SELECT about, blocks, crc FROM messages WHERE session = ? AND seq BETWEEN ? AND ? "
        "ORDER BY seq",
        (session, first, last),
    ).fetchall()
    if len(rows) != last - first + 1:
        raise SnapshotUnreadable(
            f"{key}: of its messages {first} to {last}, {last - first + 1 - len(rows)} are missing"
        )
    # No seq comes twice, so they are all there, in order: reading them would only cost time.
    return _messages(key, session, range(first, last + 1), rows)


def archive(
    database: sqlite3.Connection, key: str, before: int | None, limit: int
) -> list[Message]:
    """History, newest first, whether the window still shows it or not.

    :param before: only rows with a seq below; None: from the end
    """
    found: list[Message] = []
    with _reading(key):
        row = database.execute(
            "SELECT id, head, crc FROM sessions WHERE key = ? AND aside IS NULL", (key,)
        ).fetchone()
        if row is None:
            return found
        session, encoded, crc = row
        _, snapshot = _read_head(key, encoded, crc)
        # Spans may overlap, where rows were appended while a turn was under way.
        for first, last in sorted(snapshot.spans, key=lambda span: span[1], reverse=True):
            upto = last if before is None else min(last, before - 1)
            before = first if before is None else min(first, before)
            if upto >= first and len(found) < limit:
                rows = database.execute(
                    "SELECT seq, about, blocks, crc FROM messages WHERE session = ? "
                    "AND seq BETWEEN ? AND ? ORDER BY seq DESC LIMIT ?",
                    (session, first, upto, limit - len(found)),
                ).fetchall()
                found += _messages(
                    key, session, [seq for seq, *_ in rows], [row for _, *row in rows]
                )
    return found


def _messages(
    key: str, session: int, seqs: Sequence[int], rows: Sequence[Sequence[Any]]
) -> list[Message]:
    """
    :param rows: about, blocks and crc of each
    """
    # A request may take a thousand of them: hence loops that call little, and no names to look up.
    crc32, begin = zlib.crc32, seed(session)
    sums = [
        crc32(about + blocks, begin + seq)
        for seq, (about, blocks, _) in zip(seqs, rows, strict=True)
    ]
    if sums != [crc for _, _, crc in rows]:
        wrong = [seq for seq, found, row in zip(seqs, sums, rows, strict=True) if found != row[2]]
        raise SnapshotUnreadable(f"{key}: the checksum of its message {wrong[0]} is wrong")
    decode, raw = _decode_about, msgspec.Raw
    made: list[Message] = []
    add = made.append
    for seq, (about, blocks, _) in zip(seqs, rows, strict=True):
        said = decode(about)
        if isinstance(said, int):
            add(Message(seq, "assistant", raw(blocks), said))
            continue
        role, at, sender, message_ids = said
        if isinstance(sender, tuple):
            add(Message(seq, role, raw(blocks), at, sender[-1], message_ids, sender))
        else:
            add(Message(seq, role, raw(blocks), at, sender, message_ids))
    return made


def _in_order(ring: list[tuple[str, ...]], count: int) -> tuple[str, ...]:
    """The ids of the ring's rows, oldest first.

    :param count: how many ids it has taken so far; 0: they are too many for a ring
    """
    if not count:
        return ring[0]
    # When all rows are there, the oldest follows the newest.
    oldest = ((count - 1) // PER_ROW + 1) % ROWS if len(ring) == ROWS else 0
    return tuple(chain.from_iterable(ring[oldest:] + ring[:oldest]))[-RING:]


def _with_bodies(
    database: sqlite3.Connection,
    key: str,
    session: int,
    snapshot: Snapshot,
    away: Iterable[Away],
) -> Snapshot:
    bodies: dict[str, bytes] = dict(
        database.execute("SELECT name, body FROM bodies WHERE session = ?", (session,)).fetchall()
    )
    inbounds = {
        "inbox": list(snapshot.inbox),
        "unanswered": list(snapshot.unanswered),
        "edited": [snapshot.edited] if snapshot.edited else [],
    }
    outbox = list(snapshot.outbox)
    for place, which, field, name in away:
        body = bodies.get(name)
        if body is None or digest(body) != name:
            raise SnapshotUnreadable(f"{key}: a text in its {place} is missing or damaged")
        if place in inbounds:
            value = msgspec.Raw(body) if field == "blocks" else body.decode()
            inbounds[place][which] = replace(inbounds[place][which], **{field: value})
        elif place == "outbox":
            outbox[which] = replace(outbox[which], **{field: body.decode()})
        elif place == "suspended":
            assert snapshot.turn is not None and snapshot.turn.suspended is not None
            suspended = replace(snapshot.turn.suspended, results=msgspec.Raw(body))
            snapshot = replace(snapshot, turn=replace(snapshot.turn, suspended=suspended))
        else:
            snapshot = replace(snapshot, **{field: body.decode()})
    return replace(
        snapshot,
        inbox=tuple(inbounds["inbox"]),
        unanswered=tuple(inbounds["unanswered"]),
        edited=next(iter(inbounds["edited"]), None),
        outbox=tuple(outbox),
    )
