"""Conversations written: compare-and-set and all that is new in one statement, so in one trip to
the server and all or nothing, whoever else is writing.

What a save sends does not depend on how long the conversation is, as long as the caller knows how
much of it is stored (`known`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import psycopg

from core.errors import StaleSnapshot
from core.snapshot import Snapshot
from stores.postgres import blobs, usage
from stores.postgres.rows import Columns, Row, columns, ranges, row_of

_FIELDS: Final = Columns.__struct_fields__
# A value that stays as it is keeps its place on disk, however long it is.
_SET: Final = ", ".join(
    "seen = CASE WHEN seen = %(seen)s THEN seen ELSE %(seen)s END"
    if name == "seen"
    else f"{name} = %({name})s"
    for name in _FIELDS
)
_ADD: Final = f"""
    INSERT INTO sessions(key, {", ".join(_FIELDS)})
    VALUES(%(key)s, {", ".join(f"%({name})s" for name in _FIELDS)})
    ON CONFLICT(key) WHERE aside IS NULL DO NOTHING RETURNING id
"""
_CHANGE: Final = f"""
    UPDATE sessions SET {_SET}
    WHERE key = %(key)s AND aside IS NULL AND revision = %(replaces)s RETURNING id
"""
_ROWS: Final = (
    "unnest(%(seqs)s::bigint[], %(abouts)s::bytea[], %(blocks)s::bytea[], %(crcs)s::bigint[]) "
    "AS r(seq, about, blocks, crc)"
)
_INSERT: Final = f"""
    INSERT INTO messages(session, seq, about, blocks, crc)
    SELECT s.id, r.seq, r.about, r.blocks, r.crc FROM s, {_ROWS}
"""
_ERASE: Final = """
    DELETE FROM messages m USING s
    WHERE m.session = s.id AND (%(erase)s::int8multirange - %(held)s::int8multirange) @> m.seq
"""
_REWRITE: Final = """
    UPDATE messages m SET about = r.about, blocks = r.blocks, crc = r.crc
    FROM s, unnest(%(new_seqs)s::bigint[], %(new_abouts)s::bytea[], %(new_blocks)s::bytea[],
        %(new_crcs)s::bigint[]) AS r(seq, about, blocks, crc)
    WHERE m.session = s.id AND m.seq = r.seq
"""


async def save(
    connection: psycopg.AsyncConnection[Any],
    key: str,
    snapshot: Snapshot,
    replaces: int | None,
    known: int | None,
) -> None:
    """
    :param known: the `next_seq` that is stored with the revision `replaces`; None: to be asked for
    :raises StaleSnapshot: another revision is stored, or none; nothing was written
    """
    if replaces is None:
        known = 0
    elif known is None:
        known = await _next_seq(connection, key, replaces)
    if replaces is not None and (snapshot.erase or snapshot.rewritten):
        async with connection.transaction():
            put = await blobs.uses(connection, key)
            going = await _going(connection, key, replaces, snapshot) if put else set()
            await _save(connection, key, snapshot, replaces, known)
            if put:
                await blobs.end_unused(connection, key, put, going, snapshot)
    else:
        await _save(connection, key, snapshot, replaces, known)


async def _save(
    connection: psycopg.AsyncConnection[Any],
    key: str,
    snapshot: Snapshot,
    replaces: int | None,
    known: int,
) -> None:
    values: dict[str, object] = columns(snapshot).values()
    values |= {"key": key, "replaces": replaces}
    parts = [f"WITH s AS ({_ADD if replaces is None else _CHANGE})"]
    new = [row_of(row) for row in snapshot.rows if row.seq >= known]
    if new:
        parts.append(f"added AS ({_INSERT})")
        values |= _arrays(new, "")
    if snapshot.erase:
        parts.append(f"erased AS ({_ERASE})")
        # Never one that the value holds.
        values |= {"erase": ranges(snapshot.erase), "held": values["runs"]}
    if snapshot.rewritten:
        parts.append(f"changed AS ({_REWRITE})")
        values |= _arrays([row_of(row) for row in snapshot.rewritten], "new_")
    if snapshot.spent:
        parts.append(f"spent AS ({usage.ADD})")
        values |= usage.arrays(snapshot.spent)
    statement = ", ".join(parts) + " SELECT id FROM s"
    found = await connection.execute(statement, values)
    if await found.fetchone() is None:
        wanted = "nothing" if replaces is None else f"revision {replaces}"
        raise StaleSnapshot(f"{key}: what is stored is not {wanted}")


def _arrays(rows: Sequence[Row], prefix: str) -> dict[str, object]:
    return {
        f"{prefix}seqs": [row.seq for row in rows],
        f"{prefix}abouts": [row.about for row in rows],
        f"{prefix}blocks": [row.blocks for row in rows],
        f"{prefix}crcs": [row.crc for row in rows],
    }


async def _next_seq(connection: psycopg.AsyncConnection[Any], key: str, revision: int) -> int:
    found = await connection.execute(
        "SELECT next_seq FROM sessions WHERE key = %s AND aside IS NULL AND revision = %s",
        (key, revision),
    )
    row = await found.fetchone()
    if row is None:
        raise StaleSnapshot(f"{key}: what is stored is not revision {revision}")
    return int(row[0])


async def _going(
    connection: psycopg.AsyncConnection[Any], key: str, replaces: int, snapshot: Snapshot
) -> set[str]:
    """The blobs that what is stored names and the next value may not: in rows that go or change,
    and in what waits. Holds the conversation until the transaction ends."""
    found = await connection.execute(
        "SELECT id, head FROM sessions WHERE key = %s AND aside IS NULL AND revision = %s "
        "FOR UPDATE",
        (key, replaces),
    )
    row = await found.fetchone()
    if row is None:
        return set()
    session, head = row
    seqs = ranges((*snapshot.erase, *((row.seq, row.seq) for row in snapshot.rewritten)))
    return await blobs.named(connection, session, seqs) | blobs.named_in(bytes(head))


async def write(
    connection: psycopg.AsyncConnection[Any], id: int, key: str, snapshot: Snapshot, known: int
) -> None:
    """Bring a row to a new value, under another key.

    :param known: all its messages with a seq below are there already
    """
    values: dict[str, object] = {**columns(snapshot).values(), "id": id, "key": key}
    await connection.execute(f"UPDATE sessions SET {_SET}, key = %(key)s WHERE id = %(id)s", values)
    await connection.execute(
        "DELETE FROM messages WHERE session = %s "
        "AND (%s::int8multirange - %s::int8multirange) @> seq",
        (id, ranges(snapshot.erase), values["runs"]),
    )
    new = [row_of(row) for row in snapshot.rows if row.seq >= known]
    await connection.execute(
        f"WITH s AS (SELECT %(id)s::bigint AS id) {_INSERT}", {"id": id, **_arrays(new, "")}
    )


async def clear(connection: psycopg.AsyncConnection[Any], key: str) -> None:
    async with connection.transaction():
        await blobs.end_all(connection, key)
        await connection.execute("DELETE FROM sessions WHERE key = %s AND aside IS NULL", (key,))


async def remove(connection: psycopg.AsyncConnection[Any], key: str, revision: int) -> None:
    """
    :raises StaleSnapshot: another revision is stored, or none; nothing was written
    """
    async with connection.transaction():
        found = await connection.execute(
            "DELETE FROM sessions WHERE key = %s AND aside IS NULL AND revision = %s",
            (key, revision),
        )
        if not found.rowcount:
            raise StaleSnapshot(f"{key}: what is stored is not revision {revision}")
        await blobs.end_all(connection, key)


async def set_aside(connection: psycopg.AsyncConnection[Any], key: str, now: int) -> None:
    """All bytes stay where they are; the key is free."""
    async with connection.transaction():
        found = await connection.execute(
            "UPDATE sessions SET aside = %s WHERE key = %s AND aside IS NULL RETURNING id",
            (now, key),
        )
        row = await found.fetchone()
        if row is not None:
            await blobs.copy(connection, key, 0, key, row[0])
