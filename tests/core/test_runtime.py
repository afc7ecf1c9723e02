"""Runtime: independent runs, runs that are one conversation, what it opens and closes."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import pytest
from msgspec.structs import replace

from bots.contracts.store import SessionStoreContract
from core import Agent, ConversationMemory, Runtime, Session
from core.errors import ModelUnavailable, SessionBusy, StaleSnapshot, StoreUnavailable
from core.line import WAITING_LIMIT
from core.messages import text_of
from core.model import Answer, Request
from core.opening import derived_key
from core.runtime import _Remembered
from core.store import SessionStore
from tests.core.fakes import DictStore, FakeClock, Script, ScriptedModel, said, settle

AGENT = Agent(name="assistant", model="anthropic/claude-x", instructions="Be helpful.")
ALICE = replace(AGENT, session_id="alice")
STATEFUL = replace(AGENT, stateful=True)


def runtime(*script: Script, store: Any = None, **more: Any) -> Runtime:
    return Runtime(store, client=ScriptedModel(*script), clock=FakeClock(), **more)


def asked(of: Runtime) -> list[list[str]]:
    """The texts of each request, oldest first."""
    client = of._client
    assert isinstance(client, ScriptedModel)
    return [[text_of(each.blocks) for each in request.messages] for request in client.requests]


class Gate:
    """An answer that waits until the test lets it go."""

    def __init__(self, text: str = "Yes.") -> None:
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()
        self._text = text

    async def __call__(self, request: Request) -> Answer:
        self.asked.set()
        await self.go_on.wait()
        return said(self._text)


# ---------------------------------------------------------------------- which conversation


async def test_runs_of_an_agent_without_a_session_are_independent() -> None:
    store = DictStore()
    play = runtime("Hello Ada.", "I do not know.", store=store)
    await play.run(AGENT, "I am Ada")
    await play.run(AGENT, "Who am I?")
    assert asked(play) == [["I am Ada"], ["Who am I?"]]
    assert store.kept == {}
    assert store.refs == []


async def test_independent_runs_begin_with_the_agents_memory_each() -> None:
    memory = ConversationMemory().add_user("I am Ada.").add_assistant("Hello Ada.")
    play = runtime("Ada.", "Still Ada.")
    agent = replace(AGENT, memory=memory)
    await play.run(agent, "Who am I?")
    await play.run(agent, "And now?")
    assert asked(play) == [
        ["I am Ada.", "Hello Ada.", "Who am I?"],
        ["I am Ada.", "Hello Ada.", "And now?"],
    ]


async def test_runs_that_share_a_session_id_are_one_conversation() -> None:
    store = DictStore()
    play = runtime("Hello Ada.", "Ada.", "Who are you?", store=store)
    await play.run(ALICE, "I am Ada")
    await play.run(ALICE, "Who am I?")
    await play.run(replace(ALICE, session_id="bob"), "And me?")
    assert asked(play)[1:] == [["I am Ada", "Hello Ada.", "Who am I?"], ["And me?"]]
    assert sorted(store.kept) == ["agent:assistant/id/alice", "agent:assistant/id/bob"]
    assert {ref.id for ref in store.refs} == {"alice", "bob"}


async def test_a_session_id_of_another_agent_is_another_conversation() -> None:
    play = runtime("Hello.", "Hello.")
    await play.run(ALICE, "One")
    await play.run(replace(ALICE, name="other"), "Two")
    assert asked(play) == [["One"], ["Two"]]


async def test_a_session_id_given_to_the_run_wins_over_the_agents_and_a_key_over_both() -> None:
    store = DictStore()
    play = runtime("1", "2", "3", store=store)
    await play.run(ALICE, "a", session_id="bob")
    await play.run(AGENT, "b", session_id="bob")
    await play.run(ALICE, "c", session_id="bob", key="telegram-chat:1")
    assert sorted(store.kept) == ["agent:assistant/id/bob", "telegram-chat:1"]
    assert asked(play)[1] == ["a", "1", "b"]


async def test_a_stateful_agent_remembers_wherever_it_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]
) -> None:
    store = DictStore()
    play = runtime("Hello Ada.", "Ada.", "Ada.", store=store)
    await play.run(STATEFUL, "I am Ada")
    monkeypatch.chdir(tmp_path)
    await play.run(STATEFUL, "Who am I?")
    assert asked(play)[1] == ["I am Ada", "Hello Ada.", "Who am I?"]
    assert list(store.kept) == ["agent:assistant"]
    again = runtime("Ada.", store=store)
    await again.run(STATEFUL, "Still?")
    assert len(asked(again)[0]) == 5


async def test_without_a_store_it_remembers_for_as_long_as_it_lives() -> None:
    play = runtime("Hello Ada.", "Ada.")
    await play.run(ALICE, "I am Ada")
    await play.run(ALICE, "Who am I?")
    assert asked(play)[1] == ["I am Ada", "Hello Ada.", "Who am I?"]
    other = runtime("No idea.")
    await other.run(ALICE, "Who am I?")
    assert asked(other) == [["Who am I?"]]


async def test_what_is_remembered_can_be_cleared_and_is_compared() -> None:
    play = runtime("Hello.", "Hello.")
    session = await play.session(ALICE)
    await session.run("One")
    snapshot, ref = session.snapshot, session._ref
    with pytest.raises(StaleSnapshot):
        await session._store.save(ref, snapshot, replaces=None)  # type: ignore[union-attr]
    await session.clear()
    await play.run(ALICE, "Two")
    assert asked(play) == [["One"], ["Two"]]


async def test_seeds_begin_an_empty_conversation_only_and_are_not_changed() -> None:
    memory = ConversationMemory().add_system("Be brief.").add_user("I am Ada.").add_assistant("Hm.")
    before = memory.to_dict()
    agent = replace(ALICE, memory=memory)
    play = runtime("Ada.", "Ada.")
    await play.run(agent, "Who am I?")
    await play.run(agent, "Sure?")
    assert asked(play)[1] == ["I am Ada.", "Hm.", "Who am I?", "Ada.", "Sure?"]
    assert memory.to_dict() == before


# ---------------------------------------------------------------------- what a store is told


async def test_what_the_store_is_told() -> None:
    store = DictStore()
    options = {"redis": "r1", "agent": "nobody"}
    play = runtime("1", store=store, store_options=options)
    await play.run(ALICE, "a")
    assert {ref.key for ref in store.refs} == {derived_key("assistant", "alice", "")}
    assert store.refs[0].options == {
        "redis": "r1",
        "agent": "assistant",
        "cwd": os.getcwd(),
        "id": "alice",
        "key": "agent:assistant/id/alice",
    }


async def test_the_options_of_a_tuple_come_last() -> None:
    store = DictStore()
    tuple_options = {"redis": "r2", "key": "one:key"}
    play = runtime("1", "2", store=(store, tuple_options), store_options={"redis": "r1"})
    await play.run(ALICE, "a")
    await play.run(STATEFUL, "b", key="user:42")
    assert list(store.kept) == ["one:key"]
    assert {ref.options["redis"] for ref in store.refs} == {"r2"}


async def test_what_the_agent_says_holds_for_an_old_conversation_too() -> None:
    store = DictStore()
    await runtime("1", store=store).run(replace(ALICE, effort="low"), "a")
    play = runtime("2", "3", store=store)
    newer = replace(ALICE, model="anthropic/claude-y", instructions="Be brief.")
    await play.run(newer, "b")
    client = play._client
    assert isinstance(client, ScriptedModel)
    assert client.requests[0].model == "claude-y"
    assert client.requests[0].system == ("Be brief.",)
    assert client.requests[0].effort is None
    # A session restores what was stored, as Session.start does.
    session = await play.session(ALICE)
    await session.run("c")
    assert client.requests[1].model == "claude-y"


class TestRemembered(SessionStoreContract):
    """What a runtime without a store has in its place is one, too."""

    def open(self, place: Path) -> SessionStore:
        return _Remembered()


# ---------------------------------------------------------------------- several at once


async def test_two_runs_of_one_session_wait_for_each_other_and_both_are_history() -> None:
    gate = Gate("First.")
    store = DictStore()
    play = runtime(gate, "Second.", store=store)
    first = asyncio.create_task(play.run(ALICE, "a"))
    await gate.asked.wait()
    second = asyncio.create_task(play.run(ALICE, "b"))
    await settle()
    assert len(asked(play)) == 1
    gate.go_on.set()
    assert [(await first).text, (await second).text] == ["First.", "Second."]
    assert asked(play)[1] == ["a", "First.", "b"]
    assert len(store.saves) == 2
    assert [text_of(row.blocks) for row in store.saves[-1].messages] == [
        "a",
        "First.",
        "b",
        "Second.",
    ]


async def test_runs_of_different_sessions_do_not_wait() -> None:
    gate = Gate()
    play = runtime(gate, "At once.")
    first = asyncio.create_task(play.run(ALICE, "a"))
    await gate.asked.wait()
    assert (await play.run(replace(ALICE, session_id="bob"), "b")).text == "At once."
    gate.go_on.set()
    await first


async def test_independent_runs_do_not_wait() -> None:
    gate = Gate()
    play = runtime(gate, "At once.")
    first = asyncio.create_task(play.run(AGENT, "a"))
    await gate.asked.wait()
    assert (await play.run(AGENT, "b")).text == "At once."
    gate.go_on.set()
    await first


async def test_two_runtimes_on_one_store_lose_nothing() -> None:
    store = DictStore()
    here, there = runtime(*["Here."] * 5, store=store), runtime(*["There."] * 5, store=store)
    runs = [play.run(ALICE, f"{i}") for i in range(5) for play in (here, there)]
    await asyncio.gather(*runs)
    assert len(store.saves[-1].messages) == 20


async def test_so_many_runs_may_wait() -> None:
    gate = Gate()
    play = runtime(gate, *["Fine."] * WAITING_LIMIT)
    runs = [asyncio.create_task(play.run(ALICE, "a")) for _ in range(WAITING_LIMIT)]
    await gate.asked.wait()
    with pytest.raises(SessionBusy):
        await play.run(ALICE, "a")
    gate.go_on.set()
    await asyncio.gather(*runs)


async def test_an_idle_conversation_costs_nothing() -> None:
    play = runtime("1", "2", store=DictStore())
    await play.run(ALICE, "a")
    await play.run(replace(ALICE, session_id="bob"), "b")
    gc.collect()
    assert dict(play._lines) == {}


async def test_a_run_loads_once() -> None:
    store = DictStore()
    play = runtime(*["Fine."] * 4, store=store)
    await asyncio.gather(*(play.run(ALICE, "a") for _ in range(4)))
    assert len(store.refs) == 8  # a load and a save each


async def test_every_run_has_an_execution_of_its_own() -> None:
    play = runtime("1", "2", "3")
    replies = [await play.run(ALICE, "a"), await play.run(ALICE, "b"), await play.run(AGENT, "c")]
    assert len({reply.execution_id for reply in replies}) == 3


async def test_who_speaks_is_in_the_history() -> None:
    store = DictStore()
    memory = ConversationMemory().add_user("I am Ada.").add_assistant("Hello.")
    play = runtime("1", "2", store=store)
    await play.run(replace(ALICE, memory=memory), "a", sender="telegram:42")
    await play.run(ALICE, "b")
    senders = [row.sender for row in store.saves[-1].messages]
    assert senders == [None, None, "telegram:42", None, None, None]


# ---------------------------------------------------------------------- a session of it


async def test_a_session_and_runs_see_each_other() -> None:
    play = runtime("1", "2", "3", "4", store=DictStore())
    session = await play.session(ALICE)
    await session.run("a")
    await play.run(ALICE, "b")
    await session.run("c")
    assert asked(play)[2] == ["a", "1", "b", "2", "c"]
    assert [text_of(row.blocks) for row in session.history][-2:] == ["c", "3"]
    await session.clear()
    await play.run(ALICE, "d")
    assert asked(play)[3] == ["d"]


async def test_a_session_notices_that_another_was_cleared() -> None:
    play = runtime("1", "2", "3", store=DictStore())
    one, other = await play.session(ALICE), await play.session(ALICE)
    await one.run("a")
    await other.clear()
    await one.run("b")
    assert asked(play)[1] == ["b"]


async def test_a_clear_during_a_run_that_fails_is_noticed_too() -> None:
    gate = Gate()

    async def fail(request: Request) -> ModelUnavailable:
        await gate(request)
        return ModelUnavailable("529", 60.0)

    play = runtime("1", fail, "2", store=DictStore())
    one, other = await play.session(ALICE), await play.session(ALICE)
    await one.run("a")
    running = asyncio.create_task(one.run("b"))
    await gate.asked.wait()
    await other.clear()
    gate.go_on.set()
    with pytest.raises(ModelUnavailable):
        await running
    await one.run("c")
    assert asked(play)[2] == ["c"]


async def test_a_session_without_a_name_lives_as_long_as_the_object() -> None:
    store = DictStore()
    play = runtime("1", "2", store=store)
    session = await play.session(AGENT)
    await session.run("a")
    await session.run("b")
    assert asked(play)[1] == ["a", "1", "b"]
    assert store.refs == []


async def test_options_of_a_session() -> None:
    play = runtime("1", store=DictStore())
    session = await play.session(
        AGENT,
        key="user:1",
        cwd="/there",
        model="anthropic/claude-y",
        system_prompt="Be brief.",
        thinking="adaptive",
        effort="low",
    )
    await session.run("a")
    snapshot = session.snapshot
    assert (snapshot.model, snapshot.system_prompt) == ("anthropic/claude-y", "Be brief.")
    assert (snapshot.thinking, snapshot.effort, snapshot.cwd) == ("adaptive", "low", "/there")


async def test_session_start_knows_the_agents_session_id() -> None:
    store = DictStore()
    for agent in (ALICE, STATEFUL):
        session = await Session.start(agent, store=store, client=ScriptedModel("1"))
        await session.run("a")
    assert sorted(store.kept) == ["agent:assistant", "agent:assistant/id/alice"]


# ---------------------------------------------------------------------- stream


async def test_a_stream_gives_pieces_and_ends_with_the_reply() -> None:
    play = runtime("One two three.", "Four five.", store=DictStore())
    stream = play.stream(ALICE, "count", sender="telegram:42")
    assert [piece async for piece in stream] == ["One", " two", " three."]
    reply = await stream.result()
    assert (reply.text, reply.messages[0].sender) == ("One two three.", "telegram:42")
    assert (await play.stream(ALICE, "go on").result()).text == "Four five."


async def test_a_stream_left_early_leaves_the_history_as_it_was() -> None:
    store = DictStore()
    play = runtime("1", "One two three.", "One two three.", "2", store=store)
    await play.run(ALICE, "a")
    before = dict(store.kept)
    async with play.stream(ALICE, "b") as stream:
        assert await anext(stream) == "One"
    assert store.kept == before
    with pytest.raises(RuntimeError, match="without a reply"):
        await stream.result()
    async for _ in play.stream(ALICE, "c"):
        break
    await settle()
    assert store.kept == before
    assert (await play.run(ALICE, "d")).text == "2"
    assert asked(play)[3] == ["a", "1", "d"]


async def test_a_stream_raises_what_a_run_raises() -> None:
    play = runtime(ModelUnavailable("529", 60.0))
    stream = play.stream(AGENT, "a")
    with pytest.raises(ModelUnavailable):
        await stream.result()
    with pytest.raises(ValueError, match="nothing"):
        await anext(play.stream(AGENT, " "))


# ---------------------------------------------------------------------- opening and closing


class Counting(DictStore):
    opened: ClassVar[int] = 0
    closed: ClassVar[int] = 0
    tables: ClassVar[dict[str, bytes]] = {}

    async def __aenter__(self) -> Self:
        Counting.opened += 1
        self.kept = Counting.tables
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        Counting.closed += 1


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> type[Counting]:
    for name, value in (("opened", 0), ("closed", 0), ("tables", {})):
        monkeypatch.setattr(Counting, name, value)
    return Counting


async def test_inside_a_block_it_opens_once_and_closes_in_the_end(
    counting: type[Counting],
) -> None:
    async with runtime("1", "2", "3", store=counting) as play:
        await play.run(ALICE, "a")
        await play.run(ALICE, "b")
        session = await play.session(ALICE)
        await session.run("c")
        await session.close()
        assert (counting.opened, counting.closed) == (1, 0)
    assert (counting.opened, counting.closed) == (1, 1)
    assert asked(play)[2] == ["a", "1", "b", "2", "c"]


async def test_outside_of_one_each_run_opens_and_closes(counting: type[Counting]) -> None:
    play = runtime("1", "2", "3", store=counting)
    await play.run(ALICE, "a")
    await play.run(ALICE, "b")
    assert (counting.opened, counting.closed) == (2, 2)
    async with await play.session(ALICE) as session:
        assert (counting.opened, counting.closed) == (3, 2)
        await session.run("c")
    assert (counting.opened, counting.closed) == (3, 3)


async def test_what_cannot_be_opened_is_said() -> None:
    class Broken(DictStore):
        async def __aenter__(self) -> Self:
            raise StoreUnavailable("no disk")

        async def __aexit__(self, *of: object) -> None: ...

    with pytest.raises(StoreUnavailable):
        async with runtime(store=Broken):
            pass
    with pytest.raises(StoreUnavailable):
        await runtime(store=Broken).run(ALICE, "a")


async def test_the_default_model_is_closed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ScriptedModel] = []

    def claude() -> ScriptedModel:
        made.append(ScriptedModel("1", "2"))
        return made[-1]

    monkeypatch.setattr("core.claude.Claude", claude)
    play = Runtime()
    await play.run(AGENT, "a")
    assert [each.closed for each in made] == [True]
    async with play:
        await play.run(AGENT, "a")
        await play.run(AGENT, "b")
        assert [each.closed for each in made] == [True, False]
    assert [each.closed for each in made] == [True, True]


async def test_a_client_that_was_given_is_not_closed() -> None:
    client = ScriptedModel("1")
    async with Runtime(client=client) as play:
        await play.run(AGENT, "a")
    assert not client.closed


async def test_the_reference_of_an_independent_run_is_its_own() -> None:
    keys: list[str] = []

    play = runtime()
    for _ in range(2):
        session = await play.session(AGENT)
        keys.append(session._ref.key)
    assert len(set(keys)) == 2
    assert all(key.startswith("agent:assistant/id/") for key in keys)
