"""The page "Sessions and Persistence" (Condukt), held to its word: a test a sentence, in its order.

Ours and theirs, where the names differ:

| there | here |
|---|---|
| a process that owns a session, `start_link` | `Session.start`, and the object it gives |
| `session_store`, `session_store_key`, `session_store_opts` | `store`, `key`, `store_options` |
| a store module, or a tuple of it and options | a store class or object, or such a tuple |
| options of a callback, a keyword list | `SessionRef`: key, agent, cwd, id, options |
| `agent_module` | the agent's name |
| ETS table; Disk | `MemoryStore` as a class: one table of the process; `DiskStore` |
| `:not_found`; `{:error, reason}` | None; an error of `core.errors` |
| any term as a key | text of 1 to 255 characters |
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from core import Agent, Session, Snapshot, ToolContext, snapshot, tool
from core.claude import Claude
from core.errors import StaleSnapshot, StoreUnavailable
from core.messages import text_of
from core.store import SessionRef, SessionStore
from playground.claude import Claude as StandIn
from playground.claude_answers import Fail, Say
from stores.disk import DiskStore
from stores.memory import MemoryStore

ROOT = Path(__file__).parents[2]
KEY = "telegram-chat:123"
CODER = Agent(name="coding_agent", model="anthropic/claude-sonnet-5-5", instructions="You code.")

Starts = Callable[..., Any]


@pytest.fixture
def start(claude: Claude) -> Starts:
    """`Session.start` with the stand-in behind it."""

    async def started(agent: Agent = CODER, **given: Any) -> Session:
        return await Session.start(agent, client=claude, **given)

    return started


@pytest.fixture(autouse=True)
async def empty_table() -> AsyncIterator[None]:
    """The one table of this process is empty before and after."""
    yield
    store = MemoryStore.shared()
    for summary in [each async for each in store.summaries()]:
        await store.clear(SessionRef(summary.key))


def texts(session: Session) -> list[str]:
    return [text_of(row.blocks) for row in session.history]


class Written:
    """A store that writes down each call, and keeps what it is given."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, SessionRef]] = []
        self.kept: dict[str, Snapshot] = {}

    async def load(self, ref: SessionRef) -> Snapshot | None:
        self.calls.append(("load", ref))
        return self.kept.get(ref.key)

    async def save(self, ref: SessionRef, value: Snapshot, *, replaces: int | None) -> None:
        self.calls.append(("save", ref))
        kept = self.kept.get(ref.key)
        if (kept and kept.revision) != replaces:
            raise StaleSnapshot(ref.key)
        # As a load shall give it back: without what only this save was to know.
        self.kept[ref.key] = snapshot.stored(value)

    async def clear(self, ref: SessionRef) -> None:
        self.calls.append(("clear", ref))
        self.kept.pop(ref.key, None)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


@tool
async def compile_it(path: str) -> str:
    """Compiles a file."""
    return f"compiled {path}"


# ---------------------------------------------------------------------- what a session is


async def test_s01_an_agents_session_holds_history_tools_and_options(
    start: Starts, stand_in: StandIn
) -> None:
    agent = replace(CODER, tools=(compile_it,), effort="low")
    session = await start(agent)
    reply = await session.run('use compile_it with {"path": "a.c"}')
    assert reply.text == "The tool says: compiled a.c"
    assert len(session.history) == 4
    assert [each["name"] for each in stand_in.requests[0]["tools"]] == ["compile_it"]
    held = session.snapshot
    assert (held.model, held.system_prompt) == (agent.model, agent.instructions)
    assert (held.effort, held.cwd) == ("low", os.getcwd())


async def test_s02_by_default_a_session_lives_as_long_as_its_owner(start: Starts) -> None:
    first = await start(key=KEY)
    await first.run("My name is Alice")
    assert (await first.run("What is my name?")).text == "Your name is Alice."
    second = await start(key=KEY)
    assert second.history == ()
    assert (await second.run("What is my name?")).text == "I do not know your name yet."


@pytest.mark.parametrize("kind", ["memory", "disk"])
async def test_s03_a_store_lets_one_snapshot_and_restore_a_session(
    kind: str, start: Starts, tmp_path: Path
) -> None:
    store: Any = MemoryStore if kind == "memory" else (DiskStore, {"path": tmp_path / "one"})
    first = await start(store=store, key=KEY)
    await first.run("My name is Alice")
    await first.close()
    second = await start(store=store, key=KEY)
    assert second.snapshot == first.snapshot
    assert (await second.run("What is my name?")).text == "Your name is Alice."
    await second.close()


# ---------------------------------------------------------------------- built-in stores


async def test_s04_the_memory_store_keeps_snapshots_in_a_table_of_the_process(
    start: Starts,
) -> None:
    session = await start(store=MemoryStore, key=KEY)
    await session.run("Hello")
    assert await MemoryStore.shared().load(SessionRef(KEY)) == session.snapshot


async def test_s05_it_restores_after_a_crash_inside_a_process_that_goes_on(
    start: Starts, stand_in: StandIn
) -> None:
    async def owner() -> None:
        session = await start(store=MemoryStore, key=KEY)
        await session.run("My name is Alice")
        stand_in.script(Say("never heard"))
        async for _ in session.stream("tell me something"):
            raise RuntimeError("the owner crashes in the middle of a turn")

    with pytest.raises(RuntimeError, match="crashes"):
        await asyncio.create_task(owner())
    after = await start(store=MemoryStore, key=KEY)
    assert texts(after) == ["My name is Alice", "Nice to meet you, Alice."]
    assert (await after.run("What is my name?")).text == "Your name is Alice."


async def test_s06_the_disk_store_writes_snapshots_to_disk(start: Starts, tmp_path: Path) -> None:
    file = tmp_path / "one.session"
    session = await start(store=(DiskStore, {"path": file}), key=KEY)
    await session.run("My name is Alice")
    await session.close()
    assert b"My name is Alice" in file.read_bytes()


PROGRAM = """
import asyncio, os, signal, sys
from core import Agent, Session
from stores.disk import DiskStore

async def main(text, ending):
    session = await Session.start(Agent(name="cli"), store=DiskStore)
    print((await session.run(text)).text, flush=True)
    if ending == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    await session.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_s07_it_serves_crashes_deployments_and_command_lines(
    stand_in: StandIn, tmp_path: Path
) -> None:
    """Three runs of a program in one folder, the first of them killed, the last with other code."""

    async def program(text: str, ending: str = "", source: str = PROGRAM) -> tuple[int, str]:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-c", source, text, ending),
            cwd=tmp_path,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT),
                "ANTHROPIC_API_KEY": "any",
                "ANTHROPIC_BASE_URL": stand_in.url,
            },
            stdout=subprocess.PIPE,
        )
        said, _ = await child.communicate()
        assert child.returncode is not None
        return child.returncode, said.decode().strip()

    assert await program("My name is Alice", "crash") == (
        -signal.SIGKILL,
        "Nice to meet you, Alice.",
    )
    assert await program("What is my name?") == (0, "Your name is Alice.")
    newer = PROGRAM.replace('Agent(name="cli")', 'Agent(name="cli", instructions="Version 2.")')
    assert await program("What did I say first?", source=newer) == (
        0,
        "You first said: “My name is Alice”",
    )


async def test_s08_the_example_of_restoring_within_the_process(start: Starts) -> None:
    given = {"store": MemoryStore, "key": "coding_agent:/tmp/project"}
    await (await start(**given)).run("My name is Alice")
    assert (await (await start(**given)).run("What is my name?")).text == "Your name is Alice."


async def test_s09_the_example_of_persisting_to_disk_across_restarts(
    start: Starts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for text, answer in (
        ("My name is Alice", "Nice to meet you, Alice."),
        ("What is my name?", "Your name is Alice."),
    ):
        async with await start(cwd="/tmp/project", store=DiskStore) as session:
            assert (await session.run(text)).text == answer
    async with await start(cwd="/tmp/other", store=DiskStore) as session:
        assert session.history == ()


async def test_s10_the_example_of_a_path_of_ones_own(start: Starts, tmp_path: Path) -> None:
    path = tmp_path / "my.session"
    for _ in range(2):
        async with await start(store=(DiskStore, {"path": path})) as session:
            await session.run("Hello")
    assert [file.name for file in tmp_path.iterdir()] == ["my.session"]
    assert len(session.history) == 4


async def test_s11_with_a_store_it_loads_at_the_start(start: Starts) -> None:
    store = Written()
    await start(store=store, key=KEY)
    assert store.names == ["load"]


async def test_s12_and_it_saves_after_every_completed_turn(
    start: Starts, stand_in: StandIn
) -> None:
    store = Written()
    session = await start(store=store, key=KEY)
    for count in (1, 2, 3):
        await session.run(f"Message {count}")
        assert store.names == ["load", *["save"] * count]
        assert store.kept[KEY] == session.snapshot
        assert len(store.kept[KEY].messages) == 2 * count
    stand_in.script(*[Fail(400, "invalid_request_error")] * 3)
    with pytest.raises(Exception, match="invalid_request_error"):
        await session.run("This one is not completed")
    assert store.names.count("save") == 3


# ---------------------------------------------------------------------- keys and options


async def test_s13_every_call_of_a_store_is_told_agent_cwd_id_key_and_options(
    start: Starts,
) -> None:
    store = Written()
    session = await start(
        store=store, cwd="/there", id="s-1", key=KEY, store_options={"redis": "r"}
    )
    await session.run("Hello")
    await session.clear()
    assert store.names == ["load", "save", "clear"]
    for _, ref in store.calls:
        assert (ref.agent, ref.cwd, ref.id, ref.key) == ("coding_agent", "/there", "s-1", KEY)
        assert ref.options["redis"] == "r"


async def test_s14_id_and_key_are_optional(start: Starts) -> None:
    store = Written()
    await start(store=store, cwd="/there")
    (_, ref) = store.calls[0]
    assert ref.id is None
    assert ref.key.startswith("agent:coding_agent/cwd/")
    await start(store=store, cwd="/there", id="s-1")
    assert store.calls[1][1].key == "agent:coding_agent/id/s-1"


async def test_s15_a_key_follows_the_application_where_an_id_follows_the_session(
    start: Starts,
) -> None:
    store = MemoryStore()
    await (await start(store=store, key=KEY, id="s-1", cwd="/here")).run("My name is Alice")
    other = replace(CODER, name="other_agent")
    later = await start(other, store=store, key=KEY, id="s-2", cwd="/there")
    assert (await later.run("What is my name?")).text == "Your name is Alice."
    assert (await start(store=store, id="s-1")).history == ()


class Redis:
    """The few commands that the example needs, over a dictionary."""

    def __init__(self) -> None:
        self.table: dict[str, bytes] = {}
        self.failing = False

    async def command(self, name: str, key: str, value: bytes = b"") -> bytes | None:
        if self.failing:
            raise ConnectionError("redis is away")
        if name == "GET":
            return self.table.get(key)
        if name == "SET":
            self.table[key] = value
        else:
            self.table.pop(key, None)
        return None


class RedisStore:
    """The store of the page, sentence by sentence. `replaces` it may leave alone as long as one
    process alone speaks in a conversation; `examples/own_store.py` is one that need not."""

    async def load(self, ref: SessionRef) -> Snapshot | None:
        try:
            blob = await ref.options["redis"].command("GET", self._key(ref))
        except ConnectionError as error:
            raise StoreUnavailable(str(error)) from error
        return None if blob is None else snapshot.decode(blob)

    async def save(self, ref: SessionRef, value: Snapshot, *, replaces: int | None) -> None:
        await ref.options["redis"].command("SET", self._key(ref), snapshot.encode(value))

    async def clear(self, ref: SessionRef) -> None:
        await ref.options["redis"].command("DEL", self._key(ref))

    def _key(self, ref: SessionRef) -> str:
        return f"chinwag:{ref.key}"


async def test_s16_the_example_of_a_chats_key_and_the_stores_options(start: Starts) -> None:
    redis = Redis()
    session = await start(store=RedisStore, key=KEY, store_options={"redis": redis})
    await session.run("Hello")
    assert list(redis.table) == ["chinwag:telegram-chat:123"]


async def test_s17_a_store_receives_that_key_as_the_key(start: Starts) -> None:
    store = Written()
    await start(store=store, key=KEY)
    ((_, ref),) = store.calls
    assert ref.key == ref.options["key"] == KEY


async def test_s18_the_options_of_a_tuple_come_last_and_may_override_what_is_usual(
    start: Starts,
) -> None:
    store = Written()
    own = {"redis": "own", "cwd": "/own", "agent": "own", "id": "own", "key": "own:key"}
    session = await start(
        store=(store, own), key=KEY, id="s-1", cwd="/there", store_options={"redis": "r", "more": 1}
    )
    await session.run("Hello")
    for _, ref in store.calls:
        assert (ref.agent, ref.cwd, ref.id, ref.key) == ("own", "/own", "own", "own:key")
        assert dict(ref.options) == {**own, "more": 1}
    assert list(store.kept) == ["own:key"]


# ---------------------------------------------------------------------- what a snapshot contains


async def test_s19_a_snapshot_has_what_must_survive_a_restart(
    start: Starts, stand_in: StandIn
) -> None:
    store = MemoryStore()
    chosen = {
        "model": "anthropic/claude-opus-5-5",
        "system_prompt": "You are kind.",
        "thinking": "adaptive",
        "effort": "low",
        "cwd": "/there",
    }
    first = await start(store=store, key=KEY, **chosen)
    await first.run("My name is Alice")
    kept = await store.load(SessionRef(KEY))
    assert kept is not None
    assert {name: getattr(kept, name) for name in chosen} == chosen
    assert kept.messages == first.history

    second = await start(store=store, key=KEY)
    await second.run("What is my name?")
    request = stand_in.requests[-1]
    assert request["model"] == "claude-opus-5-5"
    assert request["system"][0]["text"] == "You are kind."
    assert request["thinking"]["type"] == "adaptive"
    assert request["output_config"] == {"effort": "low"}
    assert second.snapshot.cwd == "/there"
    assert texts(second)[-1] == "Your name is Alice."


async def test_s20_it_does_not_have_what_passes_such_as_calls_in_flight(start: Starts) -> None:
    store = MemoryStore()
    flying, stays = asyncio.Event(), asyncio.Event()

    @tool
    async def fly(context: ToolContext) -> str:
        """Takes its time."""
        context.state["secret"] = "of this execution"
        flying.set()
        await stays.wait()
        return "landed"

    session = await start(replace(CODER, tools=(fly,)), store=store, key=KEY)
    await session.run("Hello")
    before = await store.load(SessionRef(KEY))
    assert before is not None
    running = asyncio.create_task(session.run("use fly"))
    await flying.wait()
    assert await store.load(SessionRef(KEY)) == session.snapshot == before
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert await store.load(SessionRef(KEY)) == session.snapshot == before

    stays.set()
    await session.run("use fly")
    after = await store.load(SessionRef(KEY))
    assert after is not None
    assert after.turn is None
    assert b"of this execution" not in msgspec.json.encode(after)
    # A call is only ever there together with its result.
    calls, results = (b'"tool_use"', b'"tool_result"')
    rows = [bytes(row.blocks) for row in after.messages]
    assert [calls in row for row in rows] == [False, False, False, True, False, False]
    assert [results in row for row in rows] == [False, False, False, False, True, False]


# ---------------------------------------------------------------------- a store of one's own


async def test_s21_a_store_is_whatever_has_the_three_methods(start: Starts) -> None:
    assert isinstance(RedisStore(), SessionStore)
    redis = Redis()
    session = await start(store=(RedisStore, {"redis": redis}), key=KEY)
    await session.run("My name is Alice")
    again = await start(store=(RedisStore(), {"redis": redis}), key=KEY)
    assert (await again.run("What is my name?")).text == "Your name is Alice."


async def test_s22_what_is_not_found_is_an_empty_conversation(start: Starts) -> None:
    redis = Redis()
    assert await RedisStore().load(SessionRef(KEY, options={"redis": redis})) is None
    assert (await start(store=(RedisStore, {"redis": redis}), key=KEY)).history == ()


async def test_s23_an_error_of_the_store_is_reported_and_never_an_empty_conversation(
    start: Starts,
) -> None:
    redis = Redis()
    redis.failing = True
    with pytest.raises(StoreUnavailable, match="redis is away"):
        await start(store=(RedisStore, {"redis": redis}), key=KEY)


async def test_s24_the_example_of_plugging_it_in(start: Starts) -> None:
    redis = Redis()
    for text in ("My name is Alice", "What is my name?"):
        session = await start(store=RedisStore, key="user:42", store_options={"redis": redis})
        await session.run(text)
    assert texts(session)[-1] == "Your name is Alice."
    assert list(redis.table) == ["chinwag:user:42"]


# ---------------------------------------------------------------------- clearing


async def test_s25_clear_resets_the_conversation(start: Starts) -> None:
    session = await start()
    await session.run("My name is Alice")
    await session.clear()
    assert session.history == ()
    assert (await session.run("What is my name?")).text == "I do not know your name yet."


async def test_s26_with_a_store_clear_removes_what_is_stored(start: Starts) -> None:
    store = Written()
    session = await start(store=store, key=KEY)
    await session.run("My name is Alice")
    await session.clear()
    assert store.names == ["load", "save", "clear"]
    assert store.kept == {}
    redis = Redis()
    session = await start(store=(RedisStore, {"redis": redis}), key=KEY)
    await session.run("Hello")
    await session.clear()
    assert redis.table == {}
