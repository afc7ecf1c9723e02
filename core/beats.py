"""Heartbeats: who works on the queue of a shared engine, and who has stopped.

A table beside the engine's own, in its database: each worker notes every few seconds that it is
there, by the database's clock, so that no two machines need to agree on the time. It judges
nobody; `core.dbos` does. SQLAlchemy comes with DBOS and is imported with the first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import sqlalchemy as sa

# Of pg_try_advisory_xact_lock: who hands over, and sweeps. Any number, but always the same one.
LOCK: Final = 0x43_68_69_6E_77_61_67
FORGOTTEN: Final = 3_600.0  # seconds after which a beat is no longer kept

_NOW: Final = {
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
}


class Beats:
    """
    :param engine: of the database that the workflows are in; this uses one connection of it at a
        time, two while it holds the lock
    :param schema: PostgreSQL's, the workflows' own
    """

    def __init__(self, engine: sa.Engine, schema: str) -> None:
        self._engine = engine
        self._postgres = engine.dialect.name == "postgresql"
        self._table = f'"{schema}".chinwag_beats' if self._postgres else "chinwag_beats"
        self._now = _NOW[engine.dialect.name]

    def create(self) -> None:
        """Twice is harmless, also at the same time."""
        import sqlalchemy as sa

        with self._engine.begin() as connection:
            if self._postgres:
                # Two that create one table at the same moment may fail on each other.
                lock = sa.text("SELECT pg_advisory_xact_lock(:lock)")
                connection.execute(lock, {"lock": LOCK + 1})
            connection.execute(
                sa.text(
                    f"CREATE TABLE IF NOT EXISTS {self._table}"
                    " (executor TEXT PRIMARY KEY, at BIGINT NOT NULL)"
                )
            )

    def beat(self, executor: str) -> None:
        import sqlalchemy as sa

        with self._engine.begin() as connection:
            connection.execute(
                sa.text(
                    f"INSERT INTO {self._table} (executor, at) VALUES (:executor, {self._now})"
                    " ON CONFLICT (executor) DO UPDATE SET at = excluded.at"
                ),
                {"executor": executor},
            )

    def alive(self, seconds: float) -> set[str]:
        """Who has beaten in the last so many seconds."""
        import sqlalchemy as sa

        with self._engine.begin() as connection:
            connection.execute(
                sa.text(f"DELETE FROM {self._table} WHERE at < {self._now} - :kept"),
                {"kept": round(FORGOTTEN * 1000)},
            )
            rows = connection.execute(
                sa.text(f"SELECT executor FROM {self._table} WHERE at >= {self._now} - :lately"),
                {"lately": round(seconds * 1000)},
            )
            return set(rows.scalars())

    def leave(self, executor: str) -> None:
        """It has ended in order."""
        import sqlalchemy as sa

        with self._engine.begin() as connection:
            connection.execute(
                sa.text(f"DELETE FROM {self._table} WHERE executor = :executor"),
                {"executor": executor},
            )

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether we are the only one within the block. A holder that stops there (SIGSTOP) is
        put out of the database after some seconds, and loses the lock with it.

        SQLite's is one machine's: there each process may, and does what the others do.
        """
        import sqlalchemy as sa

        if not self._postgres:
            yield True
            return
        with self._engine.begin() as connection:
            taken = connection.execute(
                sa.text(
                    "SELECT pg_try_advisory_xact_lock(:lock)"
                    " FROM set_config('idle_in_transaction_session_timeout', '5000', true)"
                ),
                {"lock": LOCK},
            ).scalar()
            yield bool(taken)
