"""PostgresStore: conversations in a PostgreSQL database, for one process or for many.

Not a queue and not a lock between workers: whoever saves says which revision it saw, and of two
that saw the same one the second writes nothing. A save is one statement, and durable when the
server has answered. How long a conversation is makes no difference to either.

::

    async with PostgresStore("postgresql://chinwag@localhost/chats") as store:
        snapshot = await store.load(SessionRef("telegram-chat:123"))

`schema.py` has the tables; `rows.py`, `save.py` and `load.py` how a snapshot lies in them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from core.clock import Clock, SystemClock
from core.errors import ConfigError, StoreInUse, StoreUnavailable
from core.messages import Message
from core.snapshot import Snapshot
from core.store import SessionRef, Summary
from core.usage import By, Spent, Sum
from stores.postgres import forget, load, save, schema, size, usage
from stores.postgres.blobs import PostgresBlobs
from stores.postgres.move import move

PAGE: Final = 100  # rows that a listing reads at once
CONNECTIONS: Final = 8
WAIT_SECONDS: Final = 10.0  # for one of them
KNOWN: Final = 10_000  # conversations of which a save need not ask how much is stored

_CLOCK: Final = SystemClock()


class PostgresStore:
    """
    :param url: as libpq takes it; what it does not say comes from ``PGHOST`` and the like
    :param read_only: writes nothing; the tables must be there
    :param shared: other processes may write as well; if not, a second one is refused
    """

    def __init__(
        self,
        url: str,
        *,
        read_only: bool = False,
        shared: bool = False,
        connections: int = CONNECTIONS,
        clock: Clock = _CLOCK,
    ) -> None:
        """
        :raises ConfigError: the URL is none
        """
        try:
            given = conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            raise ConfigError(f"[store] url: {str(error).strip()}") from None
        options = str(given.pop("options", "") or "")
        if "search_path" not in options:
            options = f"-c search_path={schema.SCHEMA} {options}".strip()
        given.setdefault("connect_timeout", 5)
        given.setdefault("application_name", "chinwag")
        self._conninfo = make_conninfo("", **given, options=options)
        # Where it is, for people: never the password.
        self.where = f"postgresql://{given.get('host', '')}/{given.get('dbname', '')}"
        self.notes = PostgresNotes(self)
        self.usage = PostgresUsage(self)
        self.blobs = PostgresBlobs(self._connected, clock)
        self._read_only = read_only
        self._shared = shared
        self._connections = connections
        self._clock = clock
        self._pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]] | None = None
        self._closing = AsyncExitStack()
        self._calls: set[asyncio.Future[None]] = set()
        # By key: a revision, and the `next_seq` that is stored with it.
        self._known: OrderedDict[str, tuple[int, int]] = OrderedDict()

    async def __aenter__(self) -> Self:
        """
        :raises StoreInUse: another process writes to it
        :raises StoreCorrupt: not ours, or of a newer chinwag; untouched
        :raises StoreOutdated: of an older one; untouched
        :raises StoreUnavailable: it cannot be reached
        """
        async with AsyncExitStack() as stack:
            try:
                first = await self._first(stack)
                if self._read_only:
                    await schema.look_at(first, self.where)
                else:
                    await schema.prepare(first, self.where)
            except psycopg.Error as error:
                raise schema.store_error(self.where, error) from error
            pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]] = AsyncConnectionPool(
                self._conninfo,
                min_size=1,
                max_size=self._connections,
                timeout=WAIT_SECONDS,
                configure=self._configure,
                # A connection that a restart of the server has ended is found out before its use.
                check=AsyncConnectionPool.check_connection,
                open=False,
                name="chinwag",
            )
            await stack.enter_async_context(pool)
            self._pool = pool
            self._closing = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool = None
        # What is under way is done first.
        while self._calls:
            await asyncio.wait(self._calls)
        await self._closing.aclose()

    @asynccontextmanager
    async def alone(self, *, beside: bool = False) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """A connection while nobody else has any: for changes of the schema. Not beside `async
        with` on the store itself.

        :param beside: others may have theirs: it is only looked at
        :raises StoreInUse: somebody has
        :raises StoreError: it cannot be reached, or something failed inside
        """
        async with AsyncExitStack() as stack:
            try:
                connection = await self._first(stack)
                found = await connection.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                    "AND application_name = 'chinwag' AND pid <> pg_backend_pid()"
                )
                row = await found.fetchone()
                if row and row[0] and not beside:
                    raise StoreInUse(f"{self.where}: {row[0]} connections of chinwag are open")
                yield connection
            except psycopg.Error as error:
                raise schema.store_error(self.where, error) from error

    async def _first(self, stack: AsyncExitStack) -> psycopg.AsyncConnection[Any]:
        """A connection beside the pool's; it holds the lock for as long as it lives."""
        connection = await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True)
        stack.push_async_callback(connection.close)
        if not (self._read_only or self._shared):
            found = await connection.execute(
                "SELECT pg_try_advisory_lock(hashtext('chinwag'), "
                "hashtext(current_setting('search_path')))"
            )
            row = await found.fetchone()
            if not (row and row[0]):
                raise StoreInUse(
                    f"{self.where}: another chinwag holds it: stop it, or send /reset in the chat"
                )
        return connection

    async def _configure(self, connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.set_autocommit(True)
        if self._read_only:
            await connection.execute("SET default_transaction_read_only = on")
        # What was acknowledged survives a power cut, whatever the server is set to.
        await connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) "
            "WHERE current_setting('synchronous_commit') = 'off'"
        )

    # ------------------------------------------------------------------ what a Session needs

    async def load(self, ref: SessionRef) -> Snapshot | None:
        async with self._connected() as connection:
            loaded = await load.load(connection, ref.key)
        if loaded is None:
            return None
        self._remember(ref.key, loaded.snapshot)
        return loaded.snapshot

    async def revision(self, ref: SessionRef) -> int | None:
        found = await self._fetch(
            "SELECT revision FROM sessions WHERE key = %s AND aside IS NULL", (ref.key,)
        )
        return int(found[0][0]) if found else None

    async def save(self, ref: SessionRef, snapshot: Snapshot, *, replaces: int | None) -> None:
        revision, next_seq = self._known.get(ref.key, (None, None))
        known = next_seq if revision == replaces else None
        async with self._connected() as connection:
            await save.save(connection, ref.key, snapshot, replaces, known)
        self._remember(ref.key, snapshot)

    async def clear(self, ref: SessionRef) -> None:
        async with self._connected() as connection:
            await save.clear(connection, ref.key)

    # ------------------------------------------------------------------ what a bot needs besides

    async def unfinished(self) -> AsyncIterator[str]:
        after = ""
        while True:
            page = await self._fetch(
                "SELECT key FROM sessions WHERE unfinished AND aside IS NULL AND key > %s "
                "ORDER BY key LIMIT %s",
                (after, PAGE),
            )
            for (after,) in page:
                yield after
            if len(page) < PAGE:
                return

    async def summaries(
        self, prefix: str = "", after: str | None = None, limit: int = 100
    ) -> AsyncIterator[Summary]:
        last = after or ""
        while limit > 0:
            page = await self._fetch(
                "SELECT key, (SELECT count(*) FROM messages m WHERE m.session = s.id "
                "AND s.history @> m.seq), unfinished, updated_at FROM sessions s "
                "WHERE aside IS NULL AND key > %s AND key >= %s AND starts_with(key, %s) "
                "ORDER BY key LIMIT %s",
                (last, prefix, prefix, min(limit, PAGE)),
            )
            for last, messages, unfinished, updated_at in page:
                yield Summary(last, messages, unfinished, updated_at)
            if len(page) < min(limit, PAGE):
                return
            limit -= len(page)

    async def archive(
        self, ref: SessionRef, before: int | None = None, limit: int = 100
    ) -> AsyncIterator[Message]:
        while limit > 0:
            size = min(limit, PAGE)
            async with self._connected() as connection:
                page = await load.archive(connection, ref.key, before, size)
            for message in page:
                yield message
            if len(page) < size:
                return
            limit -= size
            before = page[-1].seq

    async def move(self, old: str, new: str) -> None:
        async with self._connected() as connection:
            await move(connection, old, new, self._clock.now())

    async def spoken_by(self, sender: str) -> AsyncIterator[str]:
        after = 0
        while True:
            async with self._connected() as connection:
                page = await forget.spoken_by(connection, sender, after)
            for _, key in page:
                if key is not None:
                    yield key
            if not page:
                return
            after = page[-1][0]

    async def remove(self, ref: SessionRef, *, replaces: int) -> None:
        async with self._connected() as connection:
            await save.remove(connection, ref.key, replaces)

    async def size(self, key: str | None = None) -> int:
        """Of all it looks at every row: once in a while."""
        async with self._connected() as connection:
            return await size.of(connection, key)

    async def clear_aside(
        self, *, key: str | None = None, sender: str | None = None, before: int | None = None
    ) -> int:
        async with self._connected() as connection:
            return await forget.clear_aside(connection, key, sender, before)

    async def scrub(self) -> None:
        """Rewrites the tables. The server's own write-ahead log and its backups keep what they
        have until they are recycled: that is for whoever runs it."""
        async with self._connected() as connection:
            await forget.scrub(connection)

    async def set_aside(self, ref: SessionRef) -> None:
        async with self._connected() as connection:
            await save.set_aside(connection, ref.key, self._clock.now())

    async def check(self) -> list[str]:
        """What is wrong with the server's settings, as far as our promises go. Empty: nothing."""
        found: list[str] = []
        for name, wanted in (("fsync", "on"), ("full_page_writes", "on")):
            ((value,),) = await self._fetch("SELECT current_setting(%s)", (name,))
            if value != wanted:
                found.append(f"{name} is {value}: a power cut may lose or damage conversations")
        return found

    # ------------------------------------------------------------------ the connections

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        if self._pool is None:
            raise StoreUnavailable(f"{self.where}: the store is not open")
        over = asyncio.get_running_loop().create_future()
        self._calls.add(over)
        try:
            async with self._pool.connection() as connection:
                yield connection
        except PoolTimeout as error:
            raise StoreUnavailable(
                f"{self.where}: no connection within {WAIT_SECONDS:g} s"
            ) from error
        except psycopg.Error as error:
            raise schema.store_error(self.where, error) from error
        finally:
            self._calls.discard(over)
            over.set_result(None)

    async def _fetch(self, sql: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        async with self._connected() as connection:
            found = await connection.execute(sql, values)
            return await found.fetchall()

    def _remember(self, key: str, snapshot: Snapshot) -> None:
        self._known[key] = (snapshot.revision, snapshot.next_seq)
        self._known.move_to_end(key)
        if len(self._known) > KNOWN:
            self._known.popitem(last=False)


class PostgresNotes:
    """Small things that are no session, in a table of their own."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    async def get(self, name: str) -> bytes | None:
        found = await self._store._fetch("SELECT value FROM notes WHERE name = %s", (name,))
        return bytes(found[0][0]) if found else None

    async def put(self, name: str, value: bytes | None, *, was: bytes | None) -> bool:
        if value == was:
            return await self.get(name) == was
        if was is None:
            sql = "INSERT INTO notes VALUES(%(name)s, %(value)s) ON CONFLICT DO NOTHING"
        elif value is None:
            sql = "DELETE FROM notes WHERE name = %(name)s AND value = %(was)s"
        else:
            sql = "UPDATE notes SET value = %(value)s WHERE name = %(name)s AND value = %(was)s"
        async with self._store._connected() as connection:
            changed = await connection.execute(sql, {"name": name, "value": value, "was": was})
            return changed.rowcount == 1

    async def names(self) -> AsyncIterator[str]:
        after = ""
        while True:
            page = await self._store._fetch(
                'SELECT name FROM notes WHERE name COLLATE "C" > %s ORDER BY name COLLATE "C" '
                "LIMIT %s",
                (after, PAGE),
            )
            for (after,) in page:
                yield after
            if len(page) < PAGE:
                return


class PostgresUsage:
    """What model calls used, in a table of its own."""

    def __init__(self, store: PostgresStore) -> None:
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
        async with self._store._connected() as connection:
            return await usage.sums(connection, by, since, until, key, sender)

    async def forget(self, sender: str) -> int:
        async with self._store._connected() as connection:
            return await usage.forget(connection, sender)

    async def erase(self, before: int) -> int:
        async with self._store._connected() as connection:
            return await usage.erase(connection, before)

    async def rows(self) -> AsyncIterator[tuple[str, Spent]]:
        after = ("", 0)
        while True:
            async with self._store._connected() as connection:
                page = await usage.page(connection, after, PAGE)
            for row in page:
                yield row
            if not page:
                return
            _, last = page[-1]
            after = (last.execution, last.call)

    async def add(self, rows: Sequence[tuple[str, Spent]]) -> None:
        async with self._store._connected() as connection, connection.transaction():
            for key, row in rows:
                await usage.add_missing(connection, key, row)
