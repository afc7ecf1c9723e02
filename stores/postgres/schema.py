"""The tables, how a schema of ours is made and recognised, and what PostgreSQL's errors mean to us.

Not what is written into the tables: that is `save.py`. The tables are in the first schema of the
search path, `chinwag` unless the URL's ``options`` say otherwise, so they may live in a database
that has others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import psycopg
from psycopg import errors

from core.errors import (
    StoreCorrupt,
    StoreEmpty,
    StoreError,
    StoreOutdated,
    StoreUnavailable,
)

SCHEMA: Final = "chinwag"

# One entry per version of the schema, each a step from the version before it. Steps are only ever
# added: a database of any age is brought up by those that it has not seen.
STEPS: tuple[tuple[str, ...], ...] = (
    (
        # `aside` is when the row was set aside, in ms: it keeps all that it has, and its key is
        # free. `history` has the rows that are history, `runs` those that a load reads. Keys are
        # compared as bytes, whatever language the database is in.
        """
        CREATE TABLE sessions(
            id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
            key text COLLATE "C" NOT NULL,
            aside bigint,
            revision bigint NOT NULL,
            next_seq bigint NOT NULL,
            unfinished boolean NOT NULL,
            updated_at bigint NOT NULL,
            history int8multirange NOT NULL,
            runs int8multirange NOT NULL,
            seen bytea NOT NULL,
            head bytea NOT NULL,
            crc bigint NOT NULL
        )
        """,
        "CREATE UNIQUE INDEX session_key ON sessions(key) WHERE aside IS NULL",
        "CREATE INDEX session_unfinished ON sessions(key) WHERE unfinished AND aside IS NULL",
        # `about` and `blocks` as in a request: JSON, byte for byte.
        """
        CREATE TABLE messages(
            session bigint NOT NULL REFERENCES sessions ON DELETE CASCADE,
            seq bigint NOT NULL,
            about bytea NOT NULL,
            blocks bytea NOT NULL,
            crc bigint NOT NULL,
            PRIMARY KEY(session, seq)
        )
        """,
        "CREATE TABLE notes(name text PRIMARY KEY, value bytea NOT NULL)",
        "CREATE TABLE blobs(id text PRIMARY KEY, media_type text NOT NULL, data bytea NOT NULL)",
        # Of what was set aside, `aside` is the id of its row; else 0. Used by keys, not by
        # sessions: a message's image is stored before its conversation is.
        """
        CREATE TABLE blob_uses(
            key text COLLATE "C" NOT NULL,
            aside bigint NOT NULL DEFAULT 0,
            blob text NOT NULL REFERENCES blobs,
            at bigint NOT NULL,
            PRIMARY KEY(key, aside, blob)
        )
        """,
        "CREATE INDEX blob_used ON blob_uses(blob)",
        """
        CREATE TABLE usage(
            execution text NOT NULL,
            call integer NOT NULL,
            at bigint NOT NULL,
            key text COLLATE "C" NOT NULL,
            sender text,
            model text NOT NULL,
            input bigint NOT NULL,
            output bigint NOT NULL,
            written bigint NOT NULL,
            written_1h bigint NOT NULL,
            read bigint NOT NULL,
            searches bigint NOT NULL,
            cost bigint,
            estimated boolean NOT NULL,
            PRIMARY KEY(execution, call)
        )
        """,
        "CREATE INDEX usage_at ON usage(at)",
    ),
)

_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtext('chinwag schema'))"

# What we may not do ourselves, and waiting does not help against.
_DAMAGED: Final = (errors.DataCorrupted, errors.IndexCorrupted, errors.UndefinedTable)


def store_error(where: str, error: psycopg.Error) -> StoreError:
    """What an error of PostgreSQL means, in plain words, with the place."""
    why = (error.diag.message_primary or str(error)).strip().replace("\n", "; ")
    if isinstance(error, _DAMAGED):
        return StoreCorrupt(f"{where}: the database is damaged ({why})")
    return StoreUnavailable(f"{where}: {why or type(error).__name__}")


def outdated(where: str, stored: int) -> StoreOutdated:
    return StoreOutdated(
        f"{where}: an older chinwag wrote it (schema {stored}, this one wants {len(STEPS)}): stop"
        " every bot, make a backup with pg_dump, and run `chinwag migrate --no-backup`"
    )


async def prepare(connection: psycopg.AsyncConnection[Any], where: str) -> None:
    """Make the tables where there are none. One process at a time.

    :raises StoreCorrupt: of a newer chinwag, or not in UTF-8
    :raises StoreOutdated: of an older one
    """
    async with connection.transaction():
        await connection.execute(_LOCK)
        stored = await version(connection, where)
        if stored == len(STEPS):
            return
        if stored:
            raise outdated(where, stored)
        row = await (await connection.execute("SHOW search_path")).fetchone()
        assert row is not None
        schema = psycopg.sql.Identifier(str(row[0]).partition(",")[0].strip(' "'))
        await connection.execute(psycopg.sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
        await connection.execute("CREATE TABLE schema_version(version integer NOT NULL)")
        # One trip to the server, however many statements.
        steps = [statement for step in STEPS for statement in step]
        await connection.execute(";".join(steps))
        await connection.execute("INSERT INTO schema_version VALUES(%s)", (len(STEPS),))


async def bring_up(connection: psycopg.AsyncConnection[Any], where: str) -> AsyncIterator[int]:
    """Each version that it has reached, by the steps that it has not seen, each in a transaction of
    its own. The backup is made by whoever asks.

    :raises StoreCorrupt: of a newer chinwag, or not in UTF-8
    """
    stored = await version(connection, where)
    for number in range(stored + 1, len(STEPS) + 1):
        async with connection.transaction():
            await connection.execute(_LOCK)
            await connection.execute(";".join(STEPS[number - 1]))
            changed = await connection.execute(
                "UPDATE schema_version SET version = %s WHERE version = %s", (number, number - 1)
            )
            if changed.rowcount != 1:
                raise StoreUnavailable(f"{where}: somebody else brings it up")
        yield number


async def look_at(connection: psycopg.AsyncConnection[Any], where: str) -> None:
    """
    :raises StoreCorrupt: see `prepare`
    :raises StoreOutdated: of an older chinwag
    :raises StoreEmpty: nothing is there
    """
    stored = await version(connection, where)
    if stored == 0:
        raise StoreEmpty(f"{where}: nothing is stored there yet")
    if stored < len(STEPS):
        raise outdated(where, stored)


async def version(connection: psycopg.AsyncConnection[Any], where: str) -> int:
    if connection.info.parameter_status("server_encoding") != "UTF8":
        raise StoreCorrupt(f"{where}: the database is not in UTF-8; make one with ENCODING 'UTF8'")
    found = await connection.execute(
        "SELECT to_regclass('schema_version') IS NOT NULL, to_regclass('sessions') IS NOT NULL"
    )
    row = await found.fetchone()
    assert row is not None
    ours, tables = row
    if not ours:
        if tables:
            raise StoreCorrupt(
                f"{where}: there is a table sessions that is not of chinwag; name another schema"
            )
        return 0
    row = await (await connection.execute("SELECT version FROM schema_version")).fetchone()
    stored = int(row[0]) if row else 0
    if stored > len(STEPS):
        raise StoreCorrupt(
            f"{where}: its schema has version {stored}, this chinwag knows up to {len(STEPS)}: "
            "update chinwag"
        )
    return stored
