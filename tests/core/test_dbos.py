"""The shared engine: the contract on SQLite and on PostgreSQL, and what is DBOS's alone."""

from __future__ import annotations

import asyncio
import base64
import logging
import pickle
import shutil
import signal
import sys
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from uuid import uuid4

import pytest
import sqlalchemy as sa
from pytest import FixtureRequest, MonkeyPatch

from core import dbos as shared
from core.clock import SystemClock
from core.dbos import DbosEngine
from core.engine import Again, Done, Engine, Work
from core.errors import ConfigError, Fatal, StoreUnavailable
from core.events import listening
from tests import postgres
from tests.core.engine_contract import (
    EngineContract,
    Held,
    Outcome,
    Recorder,
    outcomes,
    running,
)

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


class Heard:
    """Events."""

    wants_content = False

    def __init__(self) -> None:
        self.events: list[tuple[str, Mapping[str, object]]] = []

    def heard(self, name: str, key: str | None, fields: Mapping[str, object]) -> None:
        self.events.append((name, fields))

    def said(self, execution: str, asked: object, answered: object) -> None:
        raise NotImplementedError

    def of(self, name: str) -> list[Mapping[str, object]]:
        return [fields for each, fields in self.events if each == name]


class Alone:
    """Both databases, and what is DBOS' alone. Real time."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.rows = Rows(url)
        self.rows.clear()

    def engine(self, **options: Any) -> DbosEngine:
        options = {"poll": POLL, "schema": SCHEMA, "beat": 0.05, "dead": 0.2, **options}
        return DbosEngine(self.url, SystemClock(), **options)

    def ids(self) -> list[str]:
        found = self.rows("SELECT workflow_uuid FROM @workflow_status ORDER BY workflow_uuid")
        return [row[0] for row in found]

    async def over(self, count: int) -> None:
        """So many workflows have ended, and no others are there."""
        await until(
            lambda: (
                [row[0] for row in self.rows("SELECT status FROM @workflow_status")]
                == ["SUCCESS"] * count
            )
        )


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110 (another process may have to)
            await asyncio.sleep(0.01)


@pytest.fixture(params=["sqlite_url", "postgres_url"])
def alone(request: FixtureRequest) -> Iterator[Alone]:
    made = Alone(request.getfixturevalue(request.param))
    yield made
    made.rows.engine.dispose()


async def test_a_message_that_two_processes_submit_is_one_workflow(alone: Alone) -> None:
    async with alone.engine(works=False) as one, alone.engine(works=False) as other:
        await asyncio.gather(
            *(
                engine.submit("telegram-chat:1", f"{number:020}")
                for engine in (one, other)
                for number in range(5)
            )
        )
        assert alone.ids() == [f"telegram-chat:1 {number:020} {number:020}" for number in range(5)]
        await one.look()
        assert one.depth() == 5


async def test_one_that_has_been_worked_on_is_looked_at_once_more(alone: Alone) -> None:
    """The first look may have been before what is submitted now was saved."""
    engine, work = alone.engine(), Recorder()
    async with running(engine, work):
        for count in (1, 2, 3):
            await engine.submit("a", "1")
            await alone.over(count)
        assert work.keys == ["a", "a", "a"]


async def test_it_counts_as_far_as_it_was_told(alone: Alone) -> None:
    engine = alone.engine(counted=3)
    async with engine:
        for number in range(5):
            await engine.submit(f"{number}", "1")
        await engine.look()
        assert engine.depth() == 3


async def test_who_takes_in_only_works_never(alone: Alone) -> None:
    intake, work = alone.engine(works=False), Recorder()
    async with running(intake, work):
        await intake.submit("a", "1")
        await until(lambda: intake.depth() == 1)
        await asyncio.sleep(10 * POLL)
        assert work.keys == []
        engine = alone.engine()
        async with running(engine, work):
            await alone.over(1)
            await until(lambda: intake.depth() == 0)
    assert work.keys == ["a"]


async def test_nothing_that_was_said_is_in_its_database(alone: Alone) -> None:
    async def work(key: str) -> Outcome:
        raise Fatal(3, "the secret word")

    engine = alone.engine()
    await engine.submit("telegram-chat:1", "7")
    with pytest.raises(Fatal):
        await engine.run(work)
    tables = ("workflow_status", "workflow_input", "workflow_output", "operation_outputs")
    stored = {table: alone.rows(f"SELECT * FROM @{table}") for table in tables}
    assert "telegram-chat:1" in str(stored["workflow_input"])
    assert "secret" not in str(stored)
    assert stored["operation_outputs"] == []
    # It is for the next start, and for it at once.
    assert [row[0] for row in alone.rows.open()] == ["ENQUEUED"]
    assert alone.rows("SELECT * FROM @chinwag_beats") == []


async def test_a_pickle_is_not_loaded(alone: Alone, tmp_path: Path) -> None:
    class Mean:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "touched",))

    engine, work = alone.engine(), Recorder()
    await engine.submit("a", "1")
    await engine.submit("b", "1")
    planted = base64.b64encode(pickle.dumps({"args": (Mean(),), "kwargs": {}})).decode()
    alone.rows(
        "UPDATE @workflow_input SET inputs = :planted WHERE workflow_uuid LIKE 'a %'",
        planted=planted,
    )
    alone.rows(
        "UPDATE @workflow_status SET serialization = 'py_pickle' WHERE workflow_uuid LIKE 'a %'"
    )
    async with running(engine, work):
        await until(lambda: alone.rows.open() == [])
        # It is over as an error, and does not keep others from its key.
        await engine.submit("a", "2")
        await until(lambda: work.ended == ["b", "a"] and alone.rows.open() == [])
    assert not (tmp_path / "touched").exists()


async def test_what_is_handed_over_although_we_live_waits_for_us(alone: Alone) -> None:
    engine, work = alone.engine(), Held()
    async with running(engine, work):
        await engine.submit("a", "1")
        await until(lambda: work.busy == ["a"])
        assert engine._asking is not None
        await engine._asking(engine._asking.hand_back, engine.executor)
        await until(lambda: len(engine._turns) == 2)
        assert work.busy == ["a"]
        work.go_on.set()
        await alone.over(1)
        assert work.keys == ["a", "a"]
        # The one that had lost it has ended, too.
        await until(lambda: not engine._turns)


async def test_who_has_stopped_is_found_out_and_its_turns_go_on(alone: Alone) -> None:
    """As if a process had been killed at its turn."""
    engine, work, heard = alone.engine(), Recorder(), Heard()
    await engine.submit("a", "1")
    alone.rows("UPDATE @workflow_status SET status = 'PENDING', executor_id = 'dead.1'")
    with listening(heard):
        async with running(engine, work):
            await alone.over(1)
    assert work.keys == ["a"]
    assert heard.of("engine.taken_over") == [{"executor": "dead.1", "workflows": 1}]


async def test_a_claim_that_we_never_heard_of_is_begun_all_the_same(alone: Alone) -> None:
    """The connection breaks between a claim and the word that it is ours."""
    engine, work, heard = alone.engine(), Recorder(), Heard()
    lost: list[str] = []
    with listening(heard):
        async with running(engine, work):
            await until(lambda: engine._dbos is not None)
            assert engine._dbos is not None
            system = engine._dbos._sys_db
            claim = system.start_queued_partitioned_workflows

            def broken(*given: Any, **named: Any) -> list[str]:
                claimed = claim(*given, **named)
                if claimed and not lost:
                    lost.extend(claimed)
                    raise sa.exc.OperationalError("claim", {}, Exception("the server is away"))
                return claimed

            system.start_queued_partitioned_workflows = broken  # type: ignore[method-assign]
            await engine.submit("a", "1")
            await until(lambda: bool(lost))
            await engine.submit("a", "2")
            await alone.over(2)
    assert work.keys[0] == "a"
    assert heard.of("engine.claims_lost") == [{"workflows": 1}]


async def test_what_runs_for_long_is_no_lost_claim(alone: Alone) -> None:
    engine, work, heard = alone.engine(), Held(), Heard()
    with listening(heard):
        async with running(engine, work):
            await engine.submit("a", "1")
            await until(lambda: work.busy == ["a"])
            await asyncio.sleep(5 * engine._dead)
            work.go_on.set()
            await alone.over(1)
    assert work.keys == ["a"]
    assert heard.of("engine.claims_lost") == []


async def test_nobody_is_judged_before_the_judge_is_steady(alone: Alone) -> None:
    engine, heard = alone.engine(beat=0.3), Heard()
    judged: list[float] = []
    async with engine:
        await engine.submit("a", "1")
        alone.rows("UPDATE @workflow_status SET status = 'PENDING', executor_id = 'dead.1'")
        asking = engine._asking
        assert asking is not None
        beat = asking.beats.beat
        beats = 0

        def noted(executor: str) -> None:
            nonlocal beats
            beats += 1
            if beats == 4:
                raise sa.exc.OperationalError("beat", {}, Exception("the database is away"))
            beat(executor)

        def judge(dead: float) -> Mapping[str, int]:
            judged.append(beats)
            return {}

        asking.beats.beat = noted  # type: ignore[method-assign]
        asking.hand_over = judge  # type: ignore[method-assign]
        with listening(heard):
            async with running(engine, Recorder()):
                await until(lambda: len(judged) == 3)
    # The first beat is that of the launch, the fourth failed: then the count begins anew.
    assert judged[0] >= 7
    assert len(heard.of("engine.unavailable")) == 1


async def test_what_is_over_is_swept_away(alone: Alone) -> None:
    engine = alone.engine(keep=0.0)
    async with running(engine, Recorder()):
        for number in range(5):
            await engine.submit(f"{number}", "1")
        await until(lambda: not alone.rows.open() and alone.ids() == [])


async def test_what_is_not_over_or_not_for_long_is_kept(alone: Alone) -> None:
    engine, work = alone.engine(keep=60.0), Recorder(outcomes(Done(), Again(500)))
    async with running(engine, work):
        await engine.submit("a", "1")
        await until(lambda: work.ended == ["a"])
        await engine.submit("b", "1")
        await until(lambda: engine._swept > 0 and len(alone.ids()) == 3)
    assert [row[0] for row in alone.rows.open()] == ["DELAYED"]


async def test_who_waits_for_the_same_moment_waits_once(alone: Alone) -> None:
    """Whichever process it was told in; and one that has begun is not waited for."""
    async with alone.engine(works=False) as one, alone.engine(works=False) as other:
        first = await one._wait("a", 300)
        second = await other._wait("a", 300)
        if second != first:  # the second has just passed
            second = await one._wait("a", 300)
            first = await other._wait("a", 300)
        assert first == second
        alone.rows("UPDATE @workflow_status SET status = 'PENDING'")
        assert await one._enqueue("a", first, 300.0) != first
        assert sum(row[0] == "DELAYED" for row in alone.rows.open()) == 1


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("not a url", "not a URL"),
        ("mysql://u:secret@h/d", "postgresql://"),
        ("postgresql://u:secret@h", "postgresql://"),
    ],
)
async def test_a_url_that_is_none_is_said_so(url: str, wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong) as raised:
        await DbosEngine(url, SystemClock()).open()
    assert "secret" not in repr(raised.value)
    assert raised.value.__cause__ is None


async def test_without_dbos_it_is_said_what_to_install(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dbos", None)
    with pytest.raises(ConfigError, match=r"chinwag\[dbos\]"):
        await DbosEngine("sqlite:///nowhere.db", SystemClock()).open()


async def test_a_server_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    engine = DbosEngine(f"postgresql://u:secret@/d?host={tmp_path}", SystemClock())
    with pytest.raises(StoreUnavailable, match="the engine's database") as raised:
        await engine.submit("a", "1")
    assert "secret" not in str(raised.value)


@pytest.fixture
def server() -> Iterator[postgres.Server]:
    """One that may go away."""
    made = postgres.begin()
    yield made
    made.stop()
    shutil.rmtree(made.folder)


async def test_it_ends_also_while_its_database_is_away(
    server: postgres.Server, monkeypatch: MonkeyPatch
) -> None:
    """DBOS would wait for it for ever, in a thread that nothing can end."""
    monkeypatch.setattr(shared, "LAST_WORDS", 0.2)
    monkeypatch.setattr(shared, "RETRY_SECONDS", 0.05)
    heard = Heard()
    one = Again(0)
    work = Held(one)
    engine = DbosEngine(server.url("public"), SystemClock(), poll=POLL, beat=0.1, dead=0.4)
    async with running(engine, work) as task:
        for key in ("a", "b"):
            await engine.submit(key, "1")
        await until(lambda: len(work.busy) == 2)
        server.stop(signal.SIGQUIT)
        with listening(heard):
            work.go_on.set()
            with pytest.raises(StoreUnavailable):
                await engine.submit("c", "1")
            await until(lambda: len(heard.of("engine.unavailable")) >= 4)
            async with asyncio.timeout(20):
                await engine.drain(0.2)
                await task
    assert sorted(work.ended) == ["a", "b"]
    server.start()
    # Neither was done, and nobody has said so: they are for the next start.
    rows = Rows(server.url("public"))
    rows.prefix = "chinwag_engine."
    assert sorted(key for _, key, _ in rows.open()) == ["a", "b"]
    rows.engine.dispose()


def test_the_log_of_dbos_is_ours_without_its_values() -> None:
    heard = Heard()
    shared._route_log()
    with listening(heard):
        log = logging.getLogger("dbos")
        log.warning("it failed: %s\n[parameters: a secret]", "x" * 400)
        log.info("nobody needs to know")
        log.warning("Asyncio task cancelled for workflow or step")
    (event,) = heard.of("engine.dbos")
    assert "secret" not in str(event)
    assert len(str(event["said"])) == 300


@pytest.mark.parametrize(
    ("inbound_id", "sequence"),
    [("42", "42"), ("T1/C1/1700000000.000100", "1700000000000100"), ("pair.7.x", "7"), ("x", "")],
)
def test_the_sequence_of_a_message_sorts(inbound_id: str, sequence: str) -> None:
    assert shared.sequence_of(inbound_id) == sequence.zfill(20)


async def test_what_has_no_message_is_a_workflow_each_time(alone: Alone) -> None:
    async with alone.engine(works=False) as engine:
        for _ in range(2):
            await engine.submit("a", "")
        assert len(alone.ids()) == 2


async def test_a_wait_that_cannot_be_taken_back_comes_in_its_time(alone: Alone) -> None:
    engine, work, heard = alone.engine(), Recorder(outcomes(Again(300))), Heard()

    def fail(workflow_id: str) -> None:
        raise sa.exc.OperationalError("cancel", {}, Exception("the database is away"))

    async with running(engine, work):
        await engine.submit("a", "1")
        await until(lambda: [row[0] for row in alone.rows.open()] == ["DELAYED"])
        assert engine._asking is not None
        engine._asking.cancel = fail  # type: ignore[method-assign]
        with listening(heard):
            await engine.submit("a", "2")
            await until(lambda: len(work.ended) == 2 and not engine._turns)
        assert len(heard.of("engine.unavailable")) == 1
        assert [row[0] for row in alone.rows.open()] == ["DELAYED"]


async def test_an_error_of_its_own_ends_it(alone: Alone) -> None:
    engine = alone.engine()
    await engine.open()
    assert engine._asking is not None

    def broken(most: int) -> list[Any]:
        raise ZeroDivisionError(most)

    engine._asking.open_ones = broken  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(10):
            await engine.run(Recorder())


async def test_one_at_a_time_hands_over_and_sweeps(postgres_url: str) -> None:
    alone = Alone(postgres_url)
    async with alone.engine(works=False) as one, alone.engine(works=False) as other:
        await one.submit("a", "1")
        alone.rows("UPDATE @workflow_status SET status = 'PENDING', executor_id = 'dead.1'")
        assert one._asking is not None
        assert other._asking is not None
        later = "2100-01-01T00:00:00+00:00"
        with one._asking.beats.alone() as mine:
            assert mine
            assert other._asking.hand_over(1.0) == {}
            assert other._asking.sweep(later) == 0
            assert [row[0] for row in alone.rows.open()] == ["PENDING"]
        assert other._asking.hand_over(1.0) == {"dead.1": 1}
        assert [row[0] for row in alone.rows.open()] == ["ENQUEUED"]
    alone.rows.engine.dispose()


async def test_a_file_that_several_read_is_written_beside(sqlite_url: str) -> None:
    async with DbosEngine(sqlite_url, SystemClock()):
        rows = Rows(sqlite_url)
        assert rows("PRAGMA journal_mode")[0][0] == "wal"
        rows.engine.dispose()


def test_only_so_much_is_remembered(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "KNOWN", 2)
    table: OrderedDict[str, int] = OrderedDict()
    for number, key in enumerate("abac"):
        shared._put(table, key, number)
    assert table == {"a": 2, "c": 3}
