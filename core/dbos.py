"""The shared engine: several processes on one queue, by DBOS Transact; and the only file that
imports dbos.

It decides *when and where* `work(key)` runs, nothing else: what is to be done stands in the
snapshots, and a workflow holds a session key and no word that anybody said. Its steps are
`work`'s own saves: DBOS records none of them, for a second record of what is done could only
disagree with the first.

One submit is one workflow on one queue, its partition the session key, ``partition_concurrency``
1; its id is made of key and message id, so that a message which two processes submit is one
workflow. Read from DBOS 3.4 as it is installed; what it promises and what it does not:

* A workflow is on disk when `submit` returns, and is run **at least once**: until its outcome is
  stored. Its outcome is stored only by the claim that owns it (``owner_xid``).
* Of one partition **nearly always** one runs at a time. Not always: two workers that see two
  heads of one partition (the older was committed later) both claim; a workflow that was handed
  over while its worker only slept runs in both. In one process `_lanes` makes it one; across
  processes the snapshots' compare-and-set and fence do.
* Open-source DBOS hands **nothing** of a dead worker to another: it recovers what bears its own
  executor id, and ours is new at each start. `_hand_over` does, by heartbeats and public API.
  Its `resume` starts its attempts anew, and asks nobody whether the worker is really dead: the
  attempts that count are in the snapshot, and so is the fence.
* A claim whose answer is lost on its way to us is **nobody's**: it bears our name, and no thread of
  DBOS knows of it. `_look_after_ours` queues it anew when it has been so for as long as makes a
  worker dead.
* A lost connection makes DBOS wait and try again for ever, in the thread that met it. So what we
  ask ourselves (submit, heartbeat) goes through a client of our own that raises.
* It looks for work every `poll` seconds: nothing wakes it. What waits for a time becomes work
  within a second or so after it, never before.
* The queue's settings are in the database: the worker started last decides for all of them.
* Nothing is ever deleted: `_sweep` does.
* Values are portable JSON. What another program left there as a pickle is not loaded.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import os
import socket
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from uuid import uuid4

from core.beats import Beats
from core.clock import Clock
from core.engine import Again, Done, Work, is_cancelled
from core.errors import ConfigError, StoreUnavailable
from core.events import emit, trouble

if TYPE_CHECKING:
    import dbos
    import sqlalchemy as sa

T = TypeVar("T")

# A workflow begun by one version of us is gone on with by another: it holds nothing but a key.
VERSION: Final = "1"
WORKFLOW: Final = "chinwag.work"
POOL: Final = 8  # connections that DBOS itself may open
ASKING: Final = 6  # threads, and connections, that we ask with
CONNECT_SECONDS: Final = 5
STEADY: Final = 3  # heartbeats in a row before anybody else is judged
KNOWN: Final = 10_000  # keys of which is remembered what was submitted or waits
WAITING: Final = 50  # submits of one key that one run may stand for
BATCH: Final = 1_000  # workflows that are swept away at once
SWEEP_EVERY: Final = 10.0
RETRY_SECONDS: Final = 1.0
LAST_WORDS: Final = 5.0  # seconds for outcomes to be stored, at the end

# A server that is gone without a word is noticed in some ten seconds.
LIVELY: Final = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}

_OVER: Final = ["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]
_OPEN: Final = ["ENQUEUED", "PENDING"]


class DbosEngine:
    """An `Engine` that several processes share. One a process: DBOS allows no more.

    ``run`` opens it if nobody has, and closes it at its end. `open` by itself, or
    ``async with``, lets a process submit that never runs (an intake).

    :param url: ``postgresql://user:password@host/database``, or ``sqlite:///path``: one machine.
        DBOS makes its tables there, in `schema`
    :param works: False: `run` calls `work` never, it keeps `depth` true until it is drained
    :param concurrency: keys that one worker works on at the same time, at most. One for all
        workers: the one started last decides
    :param queue: what shares a name shares the work
    :param poll: seconds between two looks for work; a message waits half of it on the average
    :param keep: seconds that a workflow is kept after its end
    :param beat: seconds between two signs of life
    :param dead: seconds without one after which a worker's turns are handed to others
    :param counted: workflows up to which `depth` counts
    """

    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        works: bool = True,
        concurrency: int = 64,
        queue: str = "chinwag",
        schema: str = "chinwag_engine",
        poll: float = 0.1,
        keep: float = 3_600.0,
        beat: float = 2.0,
        dead: float = 8.0,
        counted: int = 1_000,
    ) -> None:
        self._url = url
        self._clock = clock
        self._works = works
        self._concurrency = concurrency
        self._queue = queue
        self._schema = schema
        self._poll = poll
        self._keep = keep
        self._beat_every = beat
        self._dead = dead
        self._counted = counted
        self.executor: Final = f"{socket.gethostname()}.{os.getpid()}.{uuid4().hex[:12]}"
        self._opening = asyncio.Lock()
        self._asking: _Asking | None = None
        self._dbos: dbos.DBOS | None = None
        self._work: Work | None = None
        self._ended: asyncio.Future[None] | None = None
        self._draining = False
        self._context = contextvars.copy_context()
        self._lanes: dict[str, asyncio.Task[Done | Again]] = {}
        self._turns: dict[asyncio.Task[Any], str] = {}
        # Workflows that the database says we run and nobody here does, and since when.
        self._strays: dict[str, float] = {}
        self._unseen: OrderedDict[str, list[str]] = OrderedDict()
        self._covered: OrderedDict[str, None] = OrderedDict()
        self._timers: OrderedDict[str, str] = OrderedDict()
        self._depth = 0
        self._steady = 0
        self._beaten = -math.inf
        self._swept = -math.inf

    # ------------------------------------------------------------------ open, close

    async def open(self) -> None:
        """Twice is harmless.

        :raises ConfigError: DBOS is not installed, or the URL is none
        :raises StoreUnavailable: the database does not answer
        """
        async with self._opening:
            if self._asking is None:
                asking = _Asking(self._url, self._queue, self._schema)
                try:
                    await asking(asking.connect)
                except BaseException:
                    asking.close()
                    raise
                self._asking = asking

    async def close(self) -> None:
        """Twice is harmless."""
        asking, self._asking = self._asking, None
        if asking is not None:
            await asyncio.to_thread(asking.close)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ------------------------------------------------------------------ the engine's four

    async def run(self, work: Work) -> None:
        if self._draining:
            return
        await self.open()
        self._ended = asyncio.get_running_loop().create_future()
        self._work = work
        tending: asyncio.Task[None] | None = None
        try:
            if self._works:
                await self._launch()
            tending = asyncio.create_task(self._tend(), name="engine tending")
            await self._ended
        finally:
            self._draining = True
            if tending is not None:
                tending.cancel()
                await asyncio.gather(tending, return_exceptions=True)
            await self._land()
            self._work = None
            self._depth = 0
            await self.close()

    async def submit(self, key: str, inbound_id: str) -> None:
        """
        :param inbound_id: of the message; empty: something else is to be done, and each such
            submit is a workflow of its own
        :raises StoreUnavailable: it is not sure that it will run
        """
        if inbound_id:
            workflow_id = f"{key} {sequence_of(inbound_id)} {inbound_id}"
        else:
            workflow_id = f"{key} {uuid4().hex}"
        await self.open()
        self._depth += 1
        await self._enqueue(key, workflow_id)

    def depth(self) -> int:
        """Workflows, of all processes, that wait or run: some seconds old."""
        return self._depth

    async def drain(self, timeout: float) -> None:
        self._draining = True
        self._no_more()
        if self._turns:
            await asyncio.wait(tuple(self._turns), timeout=timeout)
        for lane in tuple(self._lanes.values()):
            lane.cancel()
        if self._turns:
            await asyncio.wait(tuple(self._turns), timeout=LAST_WORDS)
        if self._ended and not self._ended.done():
            self._ended.set_result(None)

    async def look(self) -> None:
        """Count anew what waits, for `depth`.

        :raises StoreUnavailable: it cannot be counted
        """
        await self.open()
        assert self._asking is not None
        found = await self._asking(self._asking.open_ones, self._counted)
        self._depth = len(found)
        if self._works:
            await self._look_after_ours(found)

    # ------------------------------------------------------------------ work

    async def _turn(self, key: str) -> None:
        """The workflow. It is either done, or left as it is for whoever comes next."""
        import dbos

        turn = asyncio.current_task()
        workflow_id = dbos.DBOS.workflow_id
        assert turn is not None and workflow_id is not None
        self._turns[turn] = workflow_id
        turn.add_done_callback(self._turns.pop)
        while not self._draining and (before := self._lanes.get(key)) is not None:
            # Handed over although we live, or claimed twice: here one after the other.
            await asyncio.wait((before,))
        if self._draining or self._work is None:
            raise asyncio.CancelledError
        if workflow_id in self._covered:
            # Somebody has looked after it was submitted, and that is all a submit asks for.
            del self._covered[workflow_id]
            return
        for covered in self._unseen.pop(key, ()):
            if covered != workflow_id:
                _put(self._covered, covered, None)
        lane = asyncio.create_task(
            self._lane(key, self._work), name=f"lane {key}", context=self._context.copy()
        )
        self._lanes[key] = lane
        try:
            outcome = await lane
        finally:
            if self._lanes.get(key) is lane:
                del self._lanes[key]
        await self._after(key, workflow_id, outcome)

    async def _lane(self, key: str, work: Work) -> Done | Again:
        try:
            return await work(key)
        except asyncio.CancelledError as error:
            if not is_cancelled():
                reason = RuntimeError(f"work on {key} was cancelled by nobody")
                reason.__cause__ = error
                self._fail(reason)
            raise
        except BaseException as error:
            self._fail(error)
            # No outcome of this workflow: it is for the next start, here or elsewhere.
            raise asyncio.CancelledError from error

    async def _after(self, key: str, workflow_id: str, outcome: Done | Again) -> None:
        """What comes next is in the database before this workflow is over."""
        timer = None
        if isinstance(outcome, Again) and outcome.seconds > 0:
            timer = await self._wait(key, outcome.seconds)
        elif isinstance(outcome, Again) and not self._unseen.get(key):
            await self._until_stored(key, f"{key} {uuid4().hex}", None)
        before = self._timers.pop(key, None)
        if timer is not None:
            _put(self._timers, key, timer)
        if before is not None and before not in (timer, workflow_id):
            await self._cancel(before)

    async def _wait(self, key: str, seconds: float) -> str:
        """To whole seconds: who is told to wait for the same moment waits once, whoever it is
        told."""
        now = self._clock.now() / 1000
        due = math.ceil(now + seconds)
        return await self._until_stored(key, f"{key} @{due}", due - now)

    async def _until_stored(self, key: str, workflow_id: str, delay: float | None) -> str:
        while True:
            try:
                return await self._enqueue(key, workflow_id, delay)
            except StoreUnavailable as error:
                trouble("engine.unavailable", key, why=str(error))
                await asyncio.sleep(RETRY_SECONDS)

    async def _enqueue(self, key: str, workflow_id: str, delay: float | None = None) -> str:
        """The id under which it will run. A workflow of this id that has yet to begin is the
        same; one that has begun may have looked already."""
        known = await self._stored(key, workflow_id, delay)
        if known is None or known == "ENQUEUED" or (known == "DELAYED" and delay is not None):
            return workflow_id
        once_more = f"{workflow_id} {uuid4().hex}"
        await self._stored(key, once_more, delay)
        return once_more

    async def _stored(self, key: str, workflow_id: str, delay: float | None) -> str | None:
        assert self._asking is not None
        if delay is None and self._works:
            _put(self._unseen, key, [*self._unseen.get(key, ()), workflow_id][-WAITING:])
        return await self._asking(self._asking.enqueue, key, workflow_id, delay)

    async def _cancel(self, workflow_id: str) -> None:
        assert self._asking is not None
        try:
            await self._asking(self._asking.cancel, workflow_id)
        except StoreUnavailable as error:
            # It comes in its time and finds nothing to do.
            trouble("engine.unavailable", why=str(error))

    def _fail(self, error: BaseException) -> None:
        self._draining = True
        if self._ended and not self._ended.done():
            self._ended.set_exception(error)

    # ------------------------------------------------------------------ DBOS, and its end

    async def _launch(self) -> None:
        """The first sign of life comes before the first claim."""
        import dbos

        assert self._asking is not None
        await self._asking(self._asking.beats.beat, self.executor)
        await self._asking(self._asking.register, self._concurrency, self._poll)
        # DBOS stores its outcomes by this loop's threads, and each waits while the database is
        # away: they are to be as many as there are workflows.
        asyncio.get_running_loop().set_default_executor(
            ThreadPoolExecutor(self._concurrency + 8, thread_name_prefix="asyncio")
        )
        config = dbos.DBOSConfig(
            name="chinwag",
            system_database_url=self._url,
            sys_db_pool_size=POOL,
            dbos_system_schema=self._schema,
            application_version=VERSION,
            executor_id=self.executor,
            serializer=dbos.DBOSPortableJSONSerializer(),
            run_migrations=False,
            log_level="WARNING",
            notification_listener_polling_interval_sec=max(self._poll, 0.01),
        )
        if self._url.startswith("postgresql"):
            config["db_engine_kwargs"] = {
                "connect_args": {"application_name": "chinwag_dbos", **LIVELY}
            }
        self._dbos = dbos.DBOS(config=config)
        dbos.DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)(self._workflow())
        dbos.DBOS.listen_queues([self._queue])
        dbos.DBOS.launch()

    def _workflow(self) -> Callable[..., Any]:
        async def work(key: str) -> None:
            await self._turn(key)

        return work

    def _no_more(self) -> None:
        """Claim nothing any more."""
        if self._dbos is not None:
            for event in self._dbos.background_thread_stop_events:
                event.set()

    async def _land(self) -> None:
        """End DBOS; what it leaves unfinished is for the others at once."""
        self._no_more()
        for lane in tuple(self._lanes.values()):
            lane.cancel()
        if self._turns:
            await asyncio.wait(tuple(self._turns), timeout=LAST_WORDS)
        for turn in tuple(self._turns):
            turn.cancel()
        await asyncio.gather(*self._turns, return_exceptions=True)
        if self._dbos is None:
            return
        instance, self._dbos = self._dbos, None
        await asyncio.to_thread(_destroy, instance)
        assert self._asking is not None
        try:
            await self._asking(self._asking.hand_back, self.executor)
        except StoreUnavailable as error:
            # They are handed over like a dead worker's.
            trouble("engine.unavailable", why=str(error))

    # ------------------------------------------------------------------ heartbeat, takeover

    async def _tend(self) -> None:
        """Once a beat: a sign of life, and what only one of all the workers does."""
        assert self._asking is not None
        try:
            while True:
                try:
                    await self._tend_once()
                except StoreUnavailable as error:
                    self._steady = 0
                    trouble("engine.unavailable", why=str(error))
                await asyncio.sleep(self._beat_every)
        except Exception as error:
            self._fail(error)

    async def _tend_once(self) -> None:
        asking = self._asking
        assert asking is not None
        if self._works:
            await asking(asking.beats.beat, self.executor)
            now = asyncio.get_running_loop().time()
            # After a pause of ours, or of the database, the others are as late as we are: they
            # get the time that we take for ourselves.
            late = now - self._beaten > self._beat_every * 2
            self._beaten = now
            self._steady = 1 if late else self._steady + 1
            if self._steady >= STEADY:
                await self._look_after_all()
        await self.look()

    async def _look_after_all(self) -> None:
        asking = self._asking
        assert asking is not None
        for executor, count in (await asking(asking.hand_over, self._dead)).items():
            trouble("engine.taken_over", executor=executor, workflows=count)
        now = asyncio.get_running_loop().time()
        if now - self._swept >= SWEEP_EVERY:
            before = datetime.fromtimestamp(self._clock.now() / 1000 - self._keep, UTC)
            swept = await asking(asking.sweep, before.isoformat())
            if swept < BATCH:
                self._swept = now
            if swept:
                emit("engine.swept", level=logging.DEBUG, workflows=swept)

    async def _look_after_ours(self, found: Sequence[dbos.WorkflowStatus]) -> None:
        """A claim whose answer was lost on its way here is nobody's: no other may take what bears
        the name of one who lives, and nothing else of its key is begun before it."""
        asking = self._asking
        assert asking is not None
        now = asyncio.get_running_loop().time()
        claimed = {
            each.workflow_id
            for each in found
            if each.status == "PENDING" and each.executor_id == self.executor
        }
        running = set(self._turns.values())
        self._strays = {each: self._strays.get(each, now) for each in claimed - running}
        lost = [each for each, since in self._strays.items() if now - since >= self._dead]
        if lost:
            await asking(asking.resume, lost)
            self._strays = {}
            trouble("engine.claims_lost", workflows=len(lost))


class _Asking:
    """What we ask the database ourselves: in threads, by DBOS's client, and it raises.

    :raises StoreUnavailable: of each call: the database does not answer
    """

    def __init__(self, url: str, queue: str, schema: str) -> None:
        self._url = url
        self._where = "the engine's database"
        self._queue = queue
        self._schema = schema
        self._threads = ThreadPoolExecutor(ASKING, thread_name_prefix="engine")
        self._client: dbos.DBOSClient | None = None
        self._engine: sa.Engine | None = None

    async def __call__(self, function: Callable[..., T], *arguments: object) -> T:
        import sqlalchemy as sa

        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, function, *arguments)
        except (sa.exc.DBAPIError, sa.exc.TimeoutError, sqlite3.Error) as error:
            raise StoreUnavailable(f"{self._where}: {type(error).__name__}") from error

    def connect(self) -> None:
        dbos = _imported()
        import sqlalchemy as sa

        _route_log()
        try:
            url = sa.make_url(self._url)
        except sa.exc.ArgumentError:
            raise ConfigError("[engine] url: not a URL of a database") from None
        if url.get_backend_name() not in ("postgresql", "sqlite") or not url.database:
            raise ConfigError(
                "[engine] url: postgresql://user:password@host/database or sqlite:///path"
            )
        self._where = f"the engine's database {url.host or ''}/{url.database.lstrip('/')}"
        if url.get_backend_name() == "sqlite":
            connection = sqlite3.connect(url.database, timeout=30)
            try:
                connection.execute("PRAGMA journal_mode=WAL")  # it stays with the file
            finally:
                connection.close()
        self._engine = _engine(url)
        with self._engine.connect():
            pass  # DBOS would wait for it for ever
        dbos.DBOS.migrate(self._url, schema=self._schema)
        self.beats = Beats(self._engine, self._schema)
        self.beats.create()
        self._client = dbos.DBOSClient(
            system_database_url=self._url,
            system_database_engine=self._engine,
            dbos_system_schema=self._schema,
            serializer=dbos.DBOSPortableJSONSerializer(),
            application_name="chinwag",
            retry_connection_errors=False,
        )

    def close(self) -> None:
        self._threads.shutdown()
        if self._client is not None:
            self._client.destroy()
        if self._engine is not None:
            self._engine.dispose()

    def register(self, concurrency: int, poll: float) -> None:
        self._known.register_queue(
            self._queue,
            worker_concurrency=concurrency,
            partition_concurrency=1,
            polling_interval_sec=poll,
            on_conflict="always_update",
            application_name="chinwag",
        )

    def enqueue(self, key: str, workflow_id: str, delay: float | None) -> str | None:
        """None, or the state of the workflow that has this id already."""
        import dbos

        options: dict[str, object] = {
            "workflow_name": WORKFLOW,
            "queue_name": self._queue,
            "queue_partition_key": key,
            "workflow_id": workflow_id,
            "workflow_id_reuse_policy": "reject",
            "app_version": VERSION,
        }
        if delay is not None:
            options["delay_seconds"] = delay
        try:
            self._known.enqueue(options, key)  # type: ignore[arg-type]
        except dbos.error.DBOSWorkflowIDInUseError as error:
            return error.workflow_status
        return None

    def cancel(self, workflow_id: str) -> None:
        self._known.cancel_workflow(workflow_id)

    def open_ones(self, most: int) -> list[dbos.WorkflowStatus]:
        """What waits and runs, the oldest first."""
        return self._list(status=_OPEN, limit=most)

    def hand_over(self, dead: float) -> Mapping[str, int]:
        """What runs on workers that have stopped is queued anew, at the head of its key.

        :returns: how much of whom
        """
        with self.beats.alone() as alone:
            if not alone:
                return {}
            # First what runs, then who lives: who claims something has beaten before.
            running = self._list(status="PENDING")
            if not running:
                return {}
            alive = self.beats.alive(dead)
            left: dict[str, list[str]] = {}
            for each in running:
                if each.executor_id not in alive:
                    left.setdefault(str(each.executor_id), []).append(each.workflow_id)
            for ids in left.values():
                self.resume(ids)
        return {executor: len(ids) for executor, ids in left.items()}

    def resume(self, ids: Collection[str]) -> None:
        """To the head of its key each, for whoever comes."""
        self._known.resume_workflows(list(ids), queue_name=self._queue)

    def hand_back(self, executor: str) -> None:
        """We have ended."""
        ids = [each.workflow_id for each in self._list(status="PENDING", executor_id=executor)]
        if ids:
            self.resume(ids)
        self.beats.leave(executor)

    def sweep(self, before: str) -> int:
        """How many of the workflows that ended before are gone now."""
        with self.beats.alone() as alone:
            if not alone:
                return 0
            over = self._list(status=_OVER, completed_before=before, limit=BATCH)
            if over:
                self._known.delete_workflows([each.workflow_id for each in over])
        return len(over)

    def _list(self, **asked: Any) -> list[dbos.WorkflowStatus]:
        # A cancelled workflow is on no queue any more; all of ours bear this name.
        if "completed_before" not in asked:
            asked["queue_name"] = self._queue
        return self._known.list_workflows(
            name=WORKFLOW, load_input=False, load_output=False, **asked
        )

    @property
    def _known(self) -> dbos.DBOSClient:
        assert self._client is not None
        return self._client


def sequence_of(inbound_id: str) -> str:
    """What orders the messages of one chat, as text that sorts: the digits of the last part of
    its platform's id (Telegram's update, Slack's time)."""
    last = inbound_id.rpartition("/")[2]
    return "".join(letter for letter in last if letter in "0123456789").zfill(20)


def _engine(url: sa.URL) -> sa.Engine:
    """Connections that give up where DBOS's own wait."""
    import sqlalchemy as sa

    if url.get_backend_name() == "sqlite":
        engine = sa.create_engine(url, pool_size=ASKING, connect_args={"timeout": 30})

        @sa.event.listens_for(engine, "connect")
        def begin_immediately(connection: Any, _: object) -> None:
            connection.isolation_level = "IMMEDIATE"
            connection.execute("PRAGMA foreign_keys=ON")

        return engine
    return sa.create_engine(
        url.set(drivername="postgresql+psycopg"),
        pool_size=ASKING + 1,
        max_overflow=0,
        pool_timeout=CONNECT_SECONDS,
        pool_pre_ping=True,
        connect_args={"application_name": "chinwag_engine", **LIVELY},
    )


def _imported() -> Any:
    """DBOS, without its pickles.

    :raises ConfigError: it is not installed
    """
    try:
        import dbos
        import dbos._serialization
    except ImportError as error:
        raise ConfigError("[engine] url needs the dbos package: install chinwag[dbos]") from error
    # It would load whatever a row says is one, whichever serializer we choose; and who can write
    # to the database shall not run code here.
    vars(dbos._serialization)["pickle"] = _NoPickle
    return dbos


class _NoPickle:
    """In place of the module. A workflow that says it is one ends as an error, whose words would
    have been pickled like it."""

    @staticmethod
    def dumps(_: object) -> bytes:
        return b""

    @staticmethod
    def loads(_: bytes) -> object:
        raise TypeError("no pickle is loaded here")


class _Told(logging.Handler):
    """What DBOS logs, as events of ours: its first line, without values."""

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage().partition("\n")[0][:300]
        if said.startswith("Asyncio task cancelled"):
            return  # that is how we leave a workflow to whoever comes next
        emit("engine.dbos", level=record.levelno, said=said)


def _route_log() -> None:
    log = logging.getLogger("dbos")
    if not any(isinstance(handler, _Told) for handler in log.handlers):
        log.addHandler(_Told())
    log.propagate = False
    log.setLevel(logging.WARNING)


def _destroy(instance: dbos.DBOS) -> None:
    import dbos

    # While the database is away each of its calls waits for it for ever, the program's end too.
    instance._sys_db._retry_connection_errors = False
    dbos.DBOS.destroy(destroy_registry=True)


def _put(table: OrderedDict[str, T], key: str, value: T) -> None:
    """The latest of so many are remembered."""
    table[key] = value
    table.move_to_end(key)
    if len(table) > KNOWN:
        table.popitem(last=False)
