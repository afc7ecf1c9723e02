"""The shared engine: the contract on SQLite and on PostgreSQL, and what is DBOS's alone."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from uuid import uuid4

import pytest
import sqlalchemy as sa
from pytest import FixtureRequest, MonkeyPatch

from core.clock import SystemClock
from core.dbos import DbosEngine
from core.engine import Engine, Work
from tests import postgres
from tests.core.engine_contract import EngineContract

POLL: Final = 0.01
SCHEMA: Final = f"e{uuid4().hex}"


class Time:
    """Stands still until somebody lets it pass; DBOS' clock and ours."""

    def __init__(self) -> None:
        self.seconds = float(round(time.time()))

    def now(self) -> int:
        return round(self.seconds * 1000)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Rows:
    """What stands in the engine's database, read beside it."""

    def __init__(self, url: str) -> None:
        on_postgres = url.startswith("postgresql")
        self.engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
        self.prefix = f'"{SCHEMA}".' if on_postgres else ""

    def __call__(self, statement: str, **values: object) -> list[Any]:
        with self.engine.begin() as connection:
            done = connection.execute(sa.text(statement.replace("@", self.prefix)), values)
            return list(done) if done.returns_rows else []

    def open(self) -> list[Any]:
        return self(
            "SELECT status, queue_partition_key, delay_until_epoch_ms FROM @workflow_status"
            " WHERE status IN ('ENQUEUED', 'PENDING', 'DELAYED')"
        )

    def clear(self) -> None:
        tables = ("workflow_input", "workflow_output", "workflow_status", "chinwag_beats")
        for table in tables:
            self(f"DELETE FROM @{table}")


class SharedContract(EngineContract):
    """:param database: the fixture with its URL"""

    database: str

    @pytest.fixture(autouse=True)
    def _database(self, request: FixtureRequest) -> None:
        self.url: str = request.getfixturevalue(self.database)

    @pytest.fixture(autouse=True)
    async def _shared(self, _database: None, monkeypatch: MonkeyPatch) -> AsyncIterator[None]:
        self.rows = Rows(self.url)
        self.rows.clear()
        self.time = Time()
        self.made: list[DbosEngine] = []
        self.runs = False
        monkeypatch.setattr("dbos._workflow_commands._BACKGROUND_JOBS_INTERVAL_SEC", 0.02)
        for module in ("dbos._sys_db", "dbos._enqueue_options"):
            stopped = SimpleNamespace(**vars(time))
            stopped.time = lambda: self.time.seconds
            monkeypatch.setattr(f"{module}.time", stopped)
        try:
            yield
        finally:
            for engine in self.made:
                await engine.close()
            self.rows.engine.dispose()

    def engine(self, concurrency: int = 256, **options: Any) -> DbosEngine:
        options = {"poll": POLL, "schema": SCHEMA, **options}
        self.made.append(DbosEngine(self.url, self.time, concurrency=concurrency, **options))
        return self.made[-1]

    def running(
        self, engine: Engine, work: Work
    ) -> AbstractAsyncContextManager[asyncio.Task[None]]:
        self.runs = True
        return super().running(engine, work)

    async def depth(self, engine: Engine) -> int:
        assert isinstance(engine, DbosEngine)
        if engine._work is not None:
            await engine.look()
        return engine.depth()

    async def settle(self) -> None:
        quiet = 0
        async with asyncio.timeout(20):
            while quiet < 2:
                quiet = quiet + 1 if self._quiet() else 0
                await asyncio.sleep(0.005)

    def _quiet(self) -> bool:
        """Nothing is due, all that DBOS runs is at work, and nothing more could be."""
        engine = self.made[-1] if self.made else None
        if not self.runs or engine is None or engine._draining:
            return True
        rows = self.rows.open()
        running = {key for status, key, _ in rows if status == "PENDING"}
        waiting = {key for status, key, _ in rows if status == "ENQUEUED"}
        room = len(engine._lanes) < engine._concurrency
        return (
            engine._dbos is not None
            and running == set(engine._lanes)
            and not (room and waiting - running)
            and not any(due <= self.time.now() for status, _, due in rows if status == "DELAYED")
        )

    async def pass_time(self, seconds: float) -> None:
        self.time.seconds += seconds
        await self.settle()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """DBOS' tables, made once."""
    path = tmp_path_factory.mktemp("engine") / "template.db"

    async def make() -> None:
        async with DbosEngine(f"sqlite:///{path}", SystemClock()):
            pass

    asyncio.run(make())
    return path


@pytest.fixture
def sqlite_url(template: Path, tmp_path: Path) -> str:
    shutil.copy(template, tmp_path / "engine.db")
    return f"sqlite:///{tmp_path / 'engine.db'}"


@pytest.fixture(scope="module")
def postgres_url() -> str:
    url = postgres.server().url("public")

    async def make() -> None:
        async with DbosEngine(url, SystemClock(), schema=SCHEMA):
            pass

    asyncio.run(make())
    return url


class TestOnSQLite(SharedContract):
    database = "sqlite_url"


class TestOnPostgreSQL(SharedContract):
    database = "postgres_url"
