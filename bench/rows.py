"""What the floors write: the rows of chinwag's saves, by sqlite3 alone, encoded beforehand.

Head rows by compare-and-set, message rows in order of arrival with an index on their place, the
ids seen, and what the model call used; each with the columns that chinwag holds it against, and the
index of unfinished conversations. *Bare* is only the first two, with no sums: what somebody would
write who does not care whether a message comes twice, what it has cost or whether it is damaged.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from bench.ours import heads, spent
from bench.said import Exchange, in_window
from bench.subject import Seen, Wrong
from core.changes import SEEN_LIMIT
from core.memory import BOT_MEMORY
from core.snapshots import new_id
from stores.sqlite.encode import PER_ROW, ROWS
from stores.sqlite.usage import rows as usage_rows

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], T]
Values = tuple[object, ...]

TABLES: Final = """
    CREATE TABLE IF NOT EXISTS sessions(
        id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, revision INTEGER NOT NULL,
        next_seq INTEGER NOT NULL, window INTEGER NOT NULL, unfinished INTEGER NOT NULL,
        head BLOB NOT NULL, crc INTEGER
    );
    CREATE TABLE IF NOT EXISTS messages(
        id INTEGER PRIMARY KEY, session INTEGER NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL,
        crc INTEGER
    );
    CREATE UNIQUE INDEX IF NOT EXISTS place ON messages(session, seq);
"""
BESIDES: Final = """
    CREATE INDEX IF NOT EXISTS to_do ON sessions(key) WHERE unfinished;
    CREATE TABLE IF NOT EXISTS seen(
        session INTEGER NOT NULL, slot INTEGER NOT NULL, ids BLOB NOT NULL,
        PRIMARY KEY(session, slot)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS usage(
        at INTEGER NOT NULL, execution TEXT NOT NULL, call INTEGER NOT NULL, key TEXT NOT NULL,
        sender TEXT, model TEXT NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL,
        written INTEGER NOT NULL, written_1h INTEGER NOT NULL, read INTEGER NOT NULL,
        searches INTEGER NOT NULL, cost INTEGER, estimated INTEGER NOT NULL,
        PRIMARY KEY(at, execution, call)
    ) WITHOUT ROWID;
"""
_USAGE: Final = f"INSERT INTO usage VALUES({', '.join('?' * 14)})"


class Place(NamedTuple):
    """What is known of a chat before its turn: the columns beside its head."""

    id: int
    revision: int
    next_seq: int
    window: int


# A chat, and the rows of its window unless nothing was read.
Loaded = tuple[Place, list[tuple[int, bytes]] | None]


class Summed(NamedTuple):
    """Bytes, and the column that tells when they are damaged; None: there is none."""

    data: bytes
    crc: int | None = None


class Saves(NamedTuple):
    """What the four saves of a turn write.

    :param seen: slot and ids of a row
    :param usage: a row
    """

    accepted: Summed
    started: Summed
    committed: Summed
    delivered: Summed
    asked: Summed
    answered: Summed
    seen: tuple[int, bytes] | None
    usage: Values | None


def saves(key: str, said: Exchange, total: int, *, bare: bool = False) -> Saves:
    """
    :param total: messages that the chat has before it
    """
    accepted, started, committed, delivered = heads(key, said, total)
    return Saves(
        accepted=_summed(accepted, bare),
        started=_summed(started, bare),
        committed=_summed(committed, bare),
        delivered=_summed(delivered, bare),
        asked=_summed(said.user_message, bare),
        answered=_summed(said.answer_message, bare),
        seen=None if bare else _slot(key, said.number, total // 2),
        usage=None if bare else usage_rows(key, (spent(new_id(), total),))[0],
    )


def _summed(data: bytes, bare: bool) -> Summed:
    return Summed(data, None if bare else zlib.crc32(data))


def _slot(key: str, number: int, turn: int) -> tuple[int, bytes]:
    """The row of the ring that holds the id of this turn's message, as it is with it."""
    row, place = divmod(turn, PER_ROW)
    ids = [f"{key}:{number - place + index}" for index in range(place + 1)]
    return row % ROWS, msgspec.json.encode(ids)


def place_of(database: sqlite3.Connection, key: str) -> tuple[Place, bytes] | None:
    row = database.execute(
        "SELECT id, revision, next_seq, window, head FROM sessions WHERE key = ?", (key,)
    ).fetchone()
    return (Place(*row[:4]), row[4]) if row else None


def rows_of(database: sqlite3.Connection, place: Place) -> list[tuple[int, bytes]]:
    return database.execute(
        "SELECT seq, body FROM messages WHERE session = ? AND seq >= ? ORDER BY seq",
        (place.id, place.window),
    ).fetchall()


def checked_rows_of(database: sqlite3.Connection, place: Place) -> list[tuple[int, bytes]]:
    rows = database.execute(
        "SELECT seq, body, crc FROM messages WHERE session = ? AND seq >= ? ORDER BY seq",
        (place.id, place.window),
    ).fetchall()
    if [zlib.crc32(body) for _, body, _ in rows] != [crc for _, _, crc in rows]:
        raise Wrong(f"session {place.id}: a row is damaged")
    return [(seq, body) for seq, body, _ in rows]


def load(database: sqlite3.Connection, key: str, *, checked: bool = False) -> Loaded | None:
    """The head and the rows of the window.

    :param checked: the rows are held against their checksums
    """
    found = place_of(database, key)
    if found is None:
        return None
    return found[0], (checked_rows_of if checked else rows_of)(database, found[0])


def add(
    database: sqlite3.Connection,
    key: str,
    head: Summed,
    seen: tuple[int, bytes] | None = None,
) -> Place:
    """A new chat."""
    cursor = database.execute(
        "INSERT INTO sessions(key, revision, next_seq, window, unfinished, head, crc) "
        "VALUES(?, 1, 1, 1, 1, ?, ?)",
        (key, *head),
    )
    assert cursor.lastrowid is not None
    place = Place(cursor.lastrowid, 1, 1, 1)
    if seen is not None:
        _see(database, place, seen)
    return place


def save(
    database: sqlite3.Connection,
    place: Place,
    head: Summed,
    rows: Sequence[Summed] = (),
    *,
    window: int | None = None,
    unfinished: bool | None = None,
    seen: tuple[int, bytes] | None = None,
    usage: Values | None = None,
) -> Place:
    """New rows and the head; by compare-and-set.

    :param unfinished: None: as it was
    """
    if rows:
        database.executemany(
            "INSERT INTO messages(session, seq, body, crc) VALUES(?, ?, ?, ?)",
            [(place.id, place.next_seq + index, *row) for index, row in enumerate(rows)],
        )
    if seen is not None:
        _see(database, place, seen)
    if usage is not None:
        database.execute(_USAGE, usage)
    after = Place(
        place.id,
        place.revision + 1,
        place.next_seq + len(rows),
        place.window if window is None else window,
    )
    turned, turn = ("", ()) if unfinished is None else (", unfinished = ?", (unfinished,))
    changed = database.execute(
        f"UPDATE sessions SET revision = ?, next_seq = ?, window = ?, head = ?, crc = ?{turned} "
        "WHERE id = ? AND revision = ?",
        (*after[1:], *head, *turn, place.id, place.revision),
    ).rowcount
    if changed != 1:
        raise Wrong(f"session {place.id}: somebody else saved it")
    return after


def _see(database: sqlite3.Connection, place: Place, seen: tuple[int, bytes]) -> None:
    database.execute("REPLACE INTO seen(session, slot, ids) VALUES(?, ?, ?)", (place.id, *seen))


def alone(job: Job[T]) -> Job[T]:
    """In a transaction of its own."""

    def run(database: sqlite3.Connection) -> T:
        database.execute("BEGIN IMMEDIATE")
        outcome = job(database)
        database.execute("COMMIT")
        return outcome

    return run


def fill(
    database: sqlite3.Connection,
    key: str,
    said: Sequence[Exchange],
    *,
    bounded: bool = True,
    bare: bool = False,
) -> None:
    """A chat that has said all this.

    :param bounded: its window is; else all of it is read
    """
    if not said:
        return
    total = 2 * len(said)
    head = _summed(heads(key, said[-1], total - 2)[-1], bare)
    rows = [_summed(row, bare) for each in said for row in (each.user_message, each.answer_message)]
    window = total + 1 - in_window(total) if bounded else 1
    place = save(database, add(database, key, head), head, rows, window=window, unfinished=False)
    if bare:
        return
    # The last turn of each row of the ring.
    turns = range(max(0, len(said) - SEEN_LIMIT), len(said))
    for turn in {min(turn // PER_ROW * PER_ROW + PER_ROW - 1, turns[-1]) for turn in turns}:
        _see(database, place, _slot(key, said[turn].number, turn))


def next_window(place: Place) -> int:
    """What chinwag's window does when one more message joins."""
    bound, kept = BOT_MEMORY.max_messages, BOT_MEMORY.trim_to
    assert bound is not None
    in_it = place.next_seq - place.window
    return place.next_seq - (kept - 1) // 2 * 2 if in_it + 1 > bound else place.window


def found_in(loaded: Loaded | None) -> Seen:
    """What a turn sees of it."""
    if loaded is None:
        return Seen(0)
    place, rows = loaded
    if rows is None:
        return Seen(place.next_seq - 1)
    last = rows[-1][1].partition(b'"content":')[2][:-1] if rows else None
    return Seen(place.next_seq - 1, len(rows), last)


def count(database: sqlite3.Connection, key: str) -> int:
    found = place_of(database, key)
    if found is None:
        return 0
    place, _ = found
    (rows,) = database.execute(
        "SELECT count(*) FROM messages WHERE session = ?", (place.id,)
    ).fetchone()
    if rows != place.next_seq - 1:
        raise Wrong(f"{key}: {rows} rows, but its head says {place.next_seq - 1}")
    return int(rows)
