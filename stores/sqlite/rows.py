"""One conversation as rows: how a Snapshot is taken apart, written, read and put together again.

Not the value itself (`core.snapshot`) and not who runs what in which transaction: all functions
here are synchronous and run inside one that is open already.

A conversation is one row in `sessions`, whose `head` is the snapshot without its rows, ids seen
and long texts; one row a message, never changed; a ring of ids seen; and its long texts. What a
save writes is what is new, so its cost does not depend on the length of the history. Everything
that is read is held against a checksum.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from core import snapshot as snapshots
from core.errors import SnapshotUnreadable, StaleSnapshot
from core.messages import Message, Role
from core.snapshot import Snapshot, Span

RING: Final = 200  # slots of the ring of ids seen

# A head over so many bytes sheds its texts over so many. One that fits a page of the database is
# written with one page: rows of their own would only add to that.
SHED: Final = ((3 << 10, 512), (16 << 10, 64))

T = TypeVar("T", bound=msgspec.Struct)


class Away(NamedTuple):
    """A text that the head names instead of holding it.

    :param place: the snapshot's field
    :param which: the place in an inbox or outbox
    :param field: the field in that one
    :param name: digest of the text
    """

    place: str
    which: int
    field: str
    name: str


class Head(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    :param runs: first and last seq of the rows that belong to the value, in reading order
    :param steps: how many of them, from the end, are the turn's
    """

    snapshot: msgspec.Raw
    runs: tuple[Span, ...] = ()
    steps: int = 0
    away: tuple[Away, ...] = ()


class Seen(NamedTuple):
    """Checksums by which a save knows, without reading them, what became of the ids seen.

    :param crc: of all
    :param before: of all but the last: what was seen before, when one id is new
    :param then: of those that stay when the ring takes one more
    """

    crc: int
    before: int
    then: int


class Prepared(NamedTuple):
    """A snapshot ready to be written: all encoding that needs no database is done.

    :param outside: ranges of seq in which there are only rows that are not history, if any
    """

    snapshot: Snapshot
    head: bytes
    bodies: dict[str, bytes]
    seen: Seen
    steps: int
    outside: tuple[Span, ...]


class Stored(NamedTuple):
    """What a save must know of the row that it replaces."""

    id: int
    revision: int
    next_seq: int
    row_count: int
    seen_count: int
    seen_crc: int
    seen_then: int
    bodies: int


_encode_head: Final = msgspec.json.Encoder().encode
_decode_head: Final = msgspec.json.Decoder(Head).decode
_encode_ids: Final = msgspec.json.Encoder().encode
_encode_about: Final = msgspec.json.Encoder().encode
_decode_about: Final = msgspec.json.Decoder(tuple[Role, int, str | None, tuple[str, ...]]).decode
_decode_ids: Final = msgspec.json.Decoder(tuple[str, ...]).decode


# ---------------------------------------------------------------------- taking apart


def prepare(snapshot: Snapshot) -> Prepared:
    """Everything that can be done before a transaction is open."""
    steps = snapshot.turn.steps if snapshot.turn else ()
    bare = replace(
        snapshot,
        messages=(),
        seen=(),
        erase=(),
        turn=replace(snapshot.turn, steps=()) if snapshot.turn else None,
    )
    runs = _runs(snapshot.messages) + _runs(steps)
    encoded = msgspec.Raw(snapshots.encode(bare))
    head = _encode_head(Head(encoded, runs, len(steps)))
    bodies: dict[str, bytes] = {}
    for size, length in SHED:
        if len(head) > size:
            head, bodies = _shed(bare, runs, len(steps), length)
    return Prepared(
        snapshot, head, bodies, _seen(snapshot.seen), len(steps), _outside(snapshot, steps)
    )


def _shed(
    bare: Snapshot, runs: tuple[Span, ...], steps: int, limit: int
) -> tuple[bytes, dict[str, bytes]]:
    """The head without its texts of more than `limit` bytes, and these by their names."""
    away: list[Away] = []
    bodies: dict[str, bytes] = {}

    def shed(value: T, place: str, which: int, field: str) -> T:
        text = getattr(value, field)
        if text is None:
            return value
        body = bytes(text) if isinstance(text, msgspec.Raw) else text.encode()
        if len(body) <= limit:
            return value
        name = _digest(body)
        away.append(Away(place, which, field, name))
        bodies[name] = body
        return replace(value, **{field: "" if isinstance(text, str) else msgspec.Raw(b"[]")})

    bare = shed(bare, "snapshot", 0, "system_prompt")
    inbox = [
        shed(shed(inbound, "inbox", which, "text"), "inbox", which, "blocks")
        for which, inbound in enumerate(bare.inbox)
    ]
    outbox = [shed(part, "outbox", which, "body") for which, part in enumerate(bare.outbox)]
    bare = replace(bare, inbox=tuple(inbox), outbox=tuple(outbox))
    encoded = msgspec.Raw(snapshots.encode(bare))
    return _encode_head(Head(encoded, runs, steps, tuple(away))), bodies


def _runs(rows: Sequence[Message]) -> tuple[Span, ...]:
    """The rows' numbers as ranges, in their order."""
    if not rows:
        return ()
    first, last = rows[0].seq, rows[-1].seq
    if last - first + 1 == len(rows):
        return ((first, last),)
    runs: list[Span] = []
    for row in rows:
        if runs and runs[-1][1] + 1 == row.seq:
            runs[-1] = (runs[-1][0], row.seq)
        else:
            runs.append((row.seq, row.seq))
    return tuple(runs)


def _outside(snapshot: Snapshot, steps: Sequence[Message]) -> tuple[Span, ...]:
    """What is left of all numbers given so far without the history and the turn."""
    ranges = sorted((*snapshot.spans, (steps[0].seq, steps[-1].seq)) if steps else snapshot.spans)
    left: list[Span] = []
    free = 1
    for first, last in ranges:
        if first > free:
            left.append((free, first - 1))
        free = max(free, last + 1)
    if snapshot.next_seq > free:
        left.append((free, snapshot.next_seq - 1))
    return tuple(left)


def _digest(body: bytes) -> str:
    return blake2b(body, digest_size=16).hexdigest()


def _seen(ids: Sequence[str]) -> Seen:
    array = _encode_ids(ids)[1:-1]
    crc = zlib.crc32(array)
    if not ids:
        return Seen(crc, crc, crc)
    # Of the parts of one encoding: it takes longer than all three checksums.
    before = zlib.crc32(array[: -len(_encode_ids(ids[-1])) - 1])
    if len(ids) < RING:
        return Seen(crc, before, crc)
    return Seen(crc, before, zlib.crc32(array[len(_encode_ids(ids[0])) + 1 :]))


# ---------------------------------------------------------------------- writing


def stored(database: sqlite3.Connection, key: str) -> Stored | None:
    """The row that stands under the key."""
    row = database.execute(
        "SELECT id, revision, next_seq, row_count, seen_count, seen_crc, seen_then, bodies "
        "FROM sessions WHERE key = ? AND aside IS NULL",
        (key,),
    ).fetchone()
    return Stored(*row) if row else None


def save(database: sqlite3.Connection, key: str, prepared: Prepared, replaces: int | None) -> None:
    """
    :raises StaleSnapshot: another revision is stored, or none; nothing was written
    """
    was = stored(database, key)
    if (was.revision if was else None) != replaces:
        raise StaleSnapshot(
            f"{key}: revision {was.revision if was else None} is stored, not {replaces}"
        )
    if was is None:
        cursor = database.execute(
            "INSERT INTO sessions(key, revision, next_seq, unfinished, updated_at, row_count, "
            "messages, seen_count, seen_crc, seen_then, bodies, head, crc) "
            "VALUES(?, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, x'', 0)",
            (key,),
        )
        assert cursor.lastrowid is not None
        was = Stored(cursor.lastrowid, 0, 0, 0, 0, *_seen(())[::2], 0)
    write(database, was, prepared)


def write(database: sqlite3.Connection, was: Stored, prepared: Prepared) -> None:
    """Bring what is stored to the new value. Rows below the stored `next_seq` are there."""
    snapshot = prepared.snapshot
    row_count = was.row_count
    for first, last in snapshot.erase:
        row_count -= database.execute(
            "DELETE FROM messages WHERE session = ? AND seq BETWEEN ? AND ?", (was.id, first, last)
        ).rowcount
    new = [_columns(was.id, row) for row in _since(snapshot, was.next_seq)]
    if new:
        database.executemany(
            "INSERT INTO messages(session, seq, about, blocks, crc) VALUES(?, ?, ?, ?, ?)", new
        )
    row_count += len(new)
    outside = 0
    for first, last in prepared.outside:
        (rows,) = database.execute(
            "SELECT count(*) FROM messages WHERE session = ? AND seq BETWEEN ? AND ?",
            (was.id, first, last),
        ).fetchone()
        outside += rows
    seen_count = was.seen_count
    if prepared.seen.crc != was.seen_crc:
        seen_count = _write_seen(database, was, snapshot.seen, prepared.seen)
    if prepared.bodies or was.bodies:
        _write_bodies(database, was.id, prepared.bodies)
    database.execute(
        "UPDATE sessions SET revision = ?, next_seq = ?, unfinished = ?, updated_at = ?, "
        "row_count = ?, messages = ?, seen_count = ?, seen_crc = ?, seen_then = ?, bodies = ?, "
        "head = ?, crc = ? WHERE id = ?",
        (
            snapshot.revision,
            snapshot.next_seq,
            snapshot.unfinished,
            snapshot.updated_at,
            row_count,
            row_count - outside - prepared.steps,
            seen_count,
            prepared.seen.crc,
            prepared.seen.then,
            len(prepared.bodies),
            prepared.head,
            zlib.crc32(prepared.head),
            was.id,
        ),
    )


def _since(snapshot: Snapshot, seq: int) -> list[Message]:
    """The rows from this number on, looked for from the end: not a walk through the history."""
    new: list[Message] = []
    for rows in (snapshot.turn.steps if snapshot.turn else (), snapshot.messages):
        for row in reversed(rows):
            if row.seq < seq:
                break
            new.append(row)
    new.reverse()
    return new


def _columns(session: int, row: Message) -> tuple[object, ...]:
    about = _encode_about((row.role, row.at, row.sender, row.message_ids))
    blocks = bytes(row.blocks)
    # Not over the seq: a move gives new ones.
    return (session, row.seq, about, blocks, zlib.crc32(blocks, zlib.crc32(about)))


def _write_seen(database: sqlite3.Connection, was: Stored, ids: Sequence[str], seen: Seen) -> int:
    """A new id takes the slot of the oldest; after any other change all of them are written.

    :returns: how many ids the ring has taken so far
    """
    if seen.before == was.seen_then and len(ids) <= RING:
        database.execute(
            "REPLACE INTO seen(session, slot, id) VALUES(?, ?, ?)",
            (was.id, was.seen_count % RING, ids[-1]),
        )
        return was.seen_count + 1
    database.execute("DELETE FROM seen WHERE session = ?", (was.id,))
    database.executemany(
        "INSERT INTO seen(session, slot, id) VALUES(?, ?, ?)",
        [(was.id, slot, id) for slot, id in enumerate(ids)],
    )
    return len(ids)


def _write_bodies(database: sqlite3.Connection, session: int, bodies: dict[str, bytes]) -> None:
    # Named by what they say: a text that is stored already is never written again.
    there = {
        name
        for (name,) in database.execute("SELECT name FROM bodies WHERE session = ?", (session,))
    }
    database.executemany(
        "DELETE FROM bodies WHERE session = ? AND name = ?",
        [(session, name) for name in there - bodies.keys()],
    )
    database.executemany(
        "INSERT INTO bodies(session, name, body) VALUES(?, ?, ?)",
        [(session, name, body) for name, body in bodies.items() if name not in there],
    )


def clear(database: sqlite3.Connection, key: str) -> None:
    was = stored(database, key)
    if was is None:
        return
    for table in ("messages", "seen", "bodies"):
        database.execute(f"DELETE FROM {table} WHERE session = ?", (was.id,))
    database.execute("DELETE FROM sessions WHERE id = ?", (was.id,))


def set_aside(database: sqlite3.Connection, key: str, now: int) -> None:
    """All bytes stay where they are; the key is free."""
    database.execute("UPDATE sessions SET aside = ? WHERE key = ? AND aside IS NULL", (now, key))


# ---------------------------------------------------------------------- reading


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
        "(SELECT json_group_array(id) FROM "
        "(SELECT id FROM seen WHERE session = sessions.id ORDER BY slot)) "
        "FROM sessions WHERE key = ? AND aside IS NULL",
        (key,),
    ).fetchone()
    if row is None:
        return None
    session, revision, next_seq, seen_count, seen_crc, body_count, encoded, crc, array = row
    head, snapshot = _read_head(key, encoded, crc)
    if (snapshot.revision, snapshot.next_seq) != (revision, next_seq):
        raise SnapshotUnreadable(f"{key}: its row and its head disagree")
    rows = [
        message
        for first, last in _merged(head.runs)
        for message in _read_run(database, key, session, first, last)
    ]
    seen = _in_order(_decode_ids(array), seen_count)
    if zlib.crc32(_encode_ids(seen)[1:-1]) != seen_crc:
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
    if zlib.crc32(encoded) != crc:
        raise SnapshotUnreadable(f"{key}: the checksum of its head is wrong")
    head = _decode_head(encoded)
    return head, snapshots.decode(bytes(head.snapshot))


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
    return _messages(key, zip(range(first, last + 1), rows, strict=True))


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
        for first, last in sorted(snapshot.spans, reverse=True):
            upto = last if before is None else min(last, before - 1)
            if upto >= first and len(found) < limit:
                rows = database.execute(
                    "SELECT seq, about, blocks, crc FROM messages WHERE session = ? "
                    "AND seq BETWEEN ? AND ? ORDER BY seq DESC LIMIT ?",
                    (session, first, upto, limit - len(found)),
                )
                found += _messages(key, ((seq, row) for seq, *row in rows))
    return found


def _messages(key: str, rows: Iterable[tuple[int, Sequence[Any]]]) -> list[Message]:
    """
    :param rows: seq, and about, blocks, crc
    """
    # A request may take a thousand of them: hence one loop, and no names to look up in it.
    crc32, decode, raw = zlib.crc32, _decode_about, msgspec.Raw
    made: list[Message] = []
    for seq, (about, blocks, crc) in rows:
        if crc32(blocks, crc32(about)) != crc:
            raise SnapshotUnreadable(f"{key}: the checksum of its message {seq} is wrong")
        role, at, sender, message_ids = decode(about)
        made.append(Message(seq, role, raw(blocks), at, sender, message_ids))
    return made


def _in_order(slots: tuple[str, ...], count: int) -> tuple[str, ...]:
    """The ring's ids, oldest first."""
    oldest = count % RING if len(slots) == RING else 0
    return slots[oldest:] + slots[:oldest]


def _with_bodies(
    database: sqlite3.Connection,
    key: str,
    session: int,
    snapshot: Snapshot,
    away: Iterable[Away],
) -> Snapshot:
    bodies: dict[str, bytes] = dict(
        database.execute("SELECT name, body FROM bodies WHERE session = ?", (session,))
    )
    inbox, outbox = list(snapshot.inbox), list(snapshot.outbox)
    for place, which, field, name in away:
        body = bodies.get(name)
        if body is None or _digest(body) != name:
            raise SnapshotUnreadable(f"{key}: a text in its {place} is missing or damaged")
        if place == "inbox":
            value = msgspec.Raw(body) if field == "blocks" else body.decode()
            inbox[which] = replace(inbox[which], **{field: value})
        elif place == "outbox":
            outbox[which] = replace(outbox[which], **{field: body.decode()})
        else:
            snapshot = replace(snapshot, **{field: body.decode()})
    return replace(snapshot, inbox=tuple(inbox), outbox=tuple(outbox))
