"""Session: the library face, sentence by sentence: start, restore, run, stream, history, clear."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from hashlib import sha256
from types import TracebackType
from typing import Any, ClassVar, Self

import pytest
from msgspec.structs import replace

from core import Agent, ConversationMemory, Session, Snapshot, changes, tool
from core.errors import (
    Cleared,
    InvalidKey,
    ModelRejected,
    ModelUnavailable,
    SessionBusy,
    SnapshotTooNew,
    SnapshotUnreadable,
    StaleSnapshot,
    StoreUnavailable,
)
from core.line import WAITING_LIMIT
from core.messages import Inbound, Message, Sender, text_of
from core.model import Request, ToolCall
from core.opening import StoreChoice, derived_key
from core.snapshot import decode, encode
from core.snapshots import new_id
from core.store import SessionRef
from core.turn import CUT_SHORT, NO_ANSWER, REFUSAL
from stores.memory import MemoryStore
from tests.core.fakes import (
    NOON,
    USAGE,
    DictStore,
    FakeClock,
    Script,
    ScriptedModel,
    calls,
    said,
    settle,
)

AGENT = Agent(name="assistant", model="anthropic/claude-x", instructions="Be helpful.")
KEY = "telegram-chat:123"


async def begin(
    *script: Script, store: StoreChoice | None = None, agent: Agent = AGENT, **more: Any
) -> Session:
    more = {"key": KEY, "clock": FakeClock(), **more}
    return await Session.start(agent, store=store, client=ScriptedModel(*script), **more)


def model_of(session: Session) -> ScriptedModel:
    client = session._client
    assert isinstance(client, ScriptedModel)
    return client


def texts(messages: tuple[Message, ...]) -> list[str]:
    return [text_of(message.blocks) for message in messages]


def stored(store: DictStore, key: str = KEY) -> Snapshot:
    return decode(store.kept[key])


class Gate:
    """A model's answer that waits until it is let go."""

    def __init__(self, text: str = "Late.") -> None:
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        self._text = text

    async def __call__(self, _: Request) -> str:
        self.asked.set()
        await self.go_on.wait()
        return self._text


# ---------------------------------------------------------------------- without a store


async def test_a_conversation() -> None:
    session = await begin("Guten Tag.", "Gern.")
    reply = await session.run("Hello")
    assert (reply.text, reply.outcome, reply.usage) == ("Guten Tag.", "answered", USAGE)
    assert texts(reply.messages) == ["Hello", "Guten Tag."]
    assert [message.role for message in reply.messages] == ["user", "assistant"]
    await session.run("Thanks")
    assert texts(session.history) == ["Hello", "Guten Tag.", "Thanks", "Gern."]
    assert texts(tuple(model_of(session).requests[1].messages)) == ["Hello", "Guten Tag.", "Thanks"]
    assert session.snapshot.usage == USAGE + USAGE
    await session.close()


async def test_without_a_store_it_lives_as_long_as_the_object() -> None:
    session = await begin("One.")
    await session.run("Hello")
    assert (await begin()).history == ()
    assert texts(session.history) == ["Hello", "One."]
    await session.clear()
    assert session.history == ()


async def test_reply_holds_the_whole_turn() -> None:
    @tool
    async def clock() -> str:
        return "noon"

    wanted = ToolCall(id="c1", name="clock", input={})
    session = await begin(
        calls(wanted, text="I look."), "It is noon.", agent=replace(AGENT, tools=(clock,))
    )
    reply = await session.run("What time is it?")
    assert reply.text == "I look.\n\nIt is noon."
    assert [message.role for message in reply.messages] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert reply.messages == session.history
    assert [message.seq for message in reply.messages] == [1, 2, 3, 4]
    assert {message.at for message in reply.messages} == {NOON}
    assert b"tool_result" in bytes(reply.messages[2].blocks)


async def test_what_is_said_is_cleaned_and_must_be_something() -> None:
    session = await begin("Yes.")
    await session.run("a\0b\r\n\ud83d")
    assert texts(session.history)[0] == "a\ufffdb\n\ufffd"
    for nothing in ("", " \n"):
        with pytest.raises(ValueError, match="nothing"):
            await session.run(nothing)


async def test_the_default_client_and_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claude, with the environment's key; closed with the session that made it."""
    closed = []

    class Claude(ScriptedModel):
        async def close(self) -> None:
            closed.append(self)

    monkeypatch.setattr("core.claude.Claude", lambda: Claude("Hello."))
    async with await Session.start(AGENT) as session:
        assert (await session.run("Hi")).text == "Hello."
        assert session.history[0].at > NOON - 10**12
    assert len(closed) == 1


async def test_a_client_that_was_given_is_not_closed() -> None:
    session = await begin()
    await session.close()
    assert not model_of(session).closed


# ---------------------------------------------------------------------- which store, which key


class Counting(DictStore):
    """A store that is opened and closed; one table for all of them."""

    open: ClassVar[int] = 0
    opened: ClassVar[int] = 0
    tables: ClassVar[dict[str, bytes]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.kept = self.tables

    async def __aenter__(self) -> Self:
        Counting.open += 1
        Counting.opened += 1
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        Counting.open -= 1


@pytest.fixture(autouse=True)
def _fresh_tables() -> None:
    Counting.open = Counting.opened = 0
    Counting.tables.clear()


async def test_a_store_may_be_an_instance_which_is_its_owners_to_open() -> None:
    store = Counting()
    async with await begin("One.", store=store) as session:
        await session.run("Hello")
    assert Counting.opened == 0
    assert texts((await begin(store=store)).history) == ["Hello", "One."]


async def test_a_store_may_be_a_class_which_is_opened_and_closed() -> None:
    async with await begin("One.", store=Counting) as session:
        assert Counting.open == 1
        await session.run("Hello")
    assert Counting.open == 0
    async with await begin(store=Counting) as session:
        assert texts(session.history) == ["Hello", "One."]
    assert (Counting.open, Counting.opened) == (0, 2)


async def test_a_class_that_cannot_be_loaded_from_is_closed_again() -> None:
    Counting.tables[KEY] = b"nonsense"
    with pytest.raises(SnapshotUnreadable):
        await begin(store=Counting)
    assert (Counting.open, Counting.opened) == (0, 1)


async def test_a_class_that_need_not_be_opened() -> None:
    session = await begin("One.", store=DictStore)
    await session.run("Hello")
    await session.close()


async def test_memory_store_as_a_class_is_one_table() -> None:
    session = await begin("One.", store=MemoryStore, key="test-session:shared")
    try:
        await session.run("Hello")
        again = await begin(store=MemoryStore, key="test-session:shared")
        assert texts(again.history) == ["Hello", "One."]
        assert (await begin(store=MemoryStore(), key="test-session:shared")).history == ()
    finally:
        await session.clear()


@pytest.mark.parametrize("chosen", ["class", "instance"])
async def test_a_store_may_be_a_tuple_with_its_options(chosen: str) -> None:
    store = Counting()
    pair = (Counting if chosen == "class" else store, {"path": "x.db", "key": "other"})
    async with await begin("One.", store=pair) as session:
        await session.run("Hello")
        assert Counting.opened == (1 if chosen == "class" else 0)
        assert session._ref.key == "other"
        assert session._ref.options["path"] == "x.db"
    assert list(store.kept) == ["other"]


@pytest.mark.parametrize(
    ("given", "options"),
    [
        # store_options are the lowest: agent, cwd, id and key win over them.
        (
            {"store_options": {"agent": "o", "cwd": "o", "id": "o", "key": "o", "mine": 1}},
            {"agent": "assistant", "cwd": "/here", "id": "o", "key": "o", "mine": 1},
        ),
        (
            {"store_options": {"id": "o", "key": "o"}, "id": "i"},
            {"agent": "assistant", "cwd": "/here", "id": "i", "key": "o"},
        ),
        (
            {"store_options": {"key": "o"}, "key": "k", "id": "i"},
            {"agent": "assistant", "cwd": "/here", "id": "i", "key": "k"},
        ),
        # The options of a tuple are the last word.
        (
            {
                "store_options": {"mine": 1, "key": "o"},
                "key": "k",
                "id": "i",
                "own": {"agent": "t", "cwd": "/t", "id": "t", "key": "t", "mine": 2},
            },
            {"agent": "t", "cwd": "/t", "id": "t", "key": "t", "mine": 2},
        ),
    ],
)
async def test_what_a_store_is_told(given: dict[str, Any], options: Mapping[str, Any]) -> None:
    store = DictStore()
    own = given.pop("own", None)
    await Session.start(
        AGENT,
        store=(store, own) if own else store,
        client=ScriptedModel(),
        cwd="/here",
        **given,
    )
    (ref,) = store.refs
    assert ref == SessionRef(
        key=options["key"],
        agent=options["agent"],
        cwd=options["cwd"],
        id=options["id"],
        options=options,
    )


async def test_every_call_is_told_the_same() -> None:
    store = DictStore()
    session = await begin("One.", store=store, store_options={"redix": 5})
    await session.run("Hello")
    await session.clear()
    assert store.refs == [store.refs[0]] * 3
    assert store.refs[0].options["redix"] == 5
    assert store.refs[0].options["key"] == KEY


async def test_a_derived_key() -> None:
    store = DictStore()
    here = sha256(os.getcwd().encode()).hexdigest()[:16]
    there = sha256(b"/there").hexdigest()[:16]
    for more, key in (
        ({}, f"agent:assistant/cwd/{here}"),
        ({"cwd": "/there"}, f"agent:assistant/cwd/{there}"),
        ({"cwd": "/there", "id": "user 42/ü"}, "agent:assistant/id/user%2042%2F%C3%BC"),
        ({"id": "user-42", "key": "k"}, "k"),
    ):
        session = await Session.start(AGENT, store=store, client=ScriptedModel(), **more)  # type: ignore[arg-type]
        assert session._ref.key == session._ref.options["key"] == key
    assert derived_key("hr bot/x", None, "/there") == f"agent:hr%20bot%2Fx/cwd/{there}"


@pytest.mark.parametrize("key", ["", "x" * 256, "a\0b", "\ud800"])
async def test_a_key_that_cannot_be(key: str) -> None:
    with pytest.raises(InvalidKey):
        await begin(store=DictStore(), key=key)


# ---------------------------------------------------------------------- the seed's example


class RedisStore:
    """The custom store of the page, in Python: all that one must write."""

    async def load(self, ref: SessionRef) -> Snapshot | None:
        blob = ref.options["redix"].get(self._key(ref))
        return None if blob is None else decode(blob)

    async def save(self, ref: SessionRef, snapshot: Snapshot, *, replaces: int | None) -> None:
        before = await self.load(ref)
        if (before and before.revision) != replaces:
            raise StaleSnapshot(ref.key)
        ref.options["redix"][self._key(ref)] = encode(snapshot)

    async def clear(self, ref: SessionRef) -> None:
        ref.options["redix"].pop(self._key(ref), None)

    def _key(self, ref: SessionRef) -> str:
        return "chinwag:" + ref.key


async def test_the_custom_store_of_the_page() -> None:
    redix: dict[str, bytes] = {}
    options = {"redix": redix}
    session = await begin("Nice to meet you.", store=RedisStore, store_options=options)
    await session.run("I am Alice")
    assert list(redix) == ["chinwag:telegram-chat:123"]
    again = await begin("Alice.", store=(RedisStore, options))
    assert texts(again.history) == ["I am Alice", "Nice to meet you."]
    await again.run("Who am I?")
    await again.clear()
    assert redix == {}
    assert (await begin(store=RedisStore(), store_options=options)).history == ()


# ---------------------------------------------------------------------- what is restored


async def test_options_without_a_snapshot_are_the_agents_own() -> None:
    agent = replace(AGENT, thinking="adaptive", effort="low")
    session = await begin("One.", agent=agent, cwd="/here")
    snapshot = session.snapshot
    assert (snapshot.model, snapshot.system_prompt) == ("anthropic/claude-x", "Be helpful.")
    assert (snapshot.thinking, snapshot.effort, snapshot.cwd) == ("adaptive", "low", "/here")
    await session.run("Hello")
    (request,) = model_of(session).requests
    assert (request.model, request.system) == ("claude-x", ("Be helpful.",))
    assert (request.thinking, request.effort) == ("adaptive", "low")


async def test_a_snapshots_options_win_over_the_agents() -> None:
    store = DictStore()
    first = await begin(
        "One.",
        store=store,
        model="anthropic/claude-y",
        system_prompt="Be brief.",
        thinking="disabled",
        effort="max",
        cwd="/first",
    )
    await first.run("Hello")
    later = replace(AGENT, instructions="New.", thinking="adaptive", effort="low")
    session = await begin("Two.", store=store, agent=later)
    await session.run("And now?")
    (request,) = model_of(session).requests
    assert (request.model, request.system) == ("claude-y", ("Be brief.",))
    assert (request.thinking, request.effort) == ("disabled", "max")
    assert session.snapshot.cwd == "/first"
    assert (stored(store).model, stored(store).system_prompt) == ("anthropic/claude-y", "Be brief.")


async def test_an_explicit_argument_wins_over_the_snapshot() -> None:
    store = DictStore()
    await (await begin("One.", store=store, model="anthropic/claude-y", cwd="/first")).run("Hi")
    saves = len(store.saves)
    session = await begin(
        "Two.",
        store=store,
        model="anthropic/claude-z",
        system_prompt="",
        thinking="adaptive",
        effort="high",
        cwd="/second",
    )
    assert len(store.saves) == saves
    await session.run("And now?")
    (request,) = model_of(session).requests
    assert (request.model, request.system) == ("claude-z", ())
    assert (request.thinking, request.effort) == ("adaptive", "high")
    assert (stored(store).model, stored(store).cwd) == ("anthropic/claude-z", "/second")
    assert stored(store).system_prompt == ""


async def test_the_snapshot_holds_the_configured_prompt_and_no_tool_state() -> None:
    @tool
    async def remember(context: Any = None) -> str:
        return "ok"

    memory = ConversationMemory().add_system("Be kind.")
    store = DictStore()
    wanted = ToolCall(id="c1", name="remember", input={})
    session = await begin(
        calls(wanted),
        "Done.",
        store=store,
        agent=replace(AGENT, memory=memory, tools=(remember,)),
    )
    await session.run("Hello")
    assert model_of(session).requests[0].system == ("Be helpful.", "Be kind.")
    kept = stored(store)
    assert kept.system_prompt == "Be helpful."
    assert (kept.turn, kept.inbox, kept.outbox) == (None, (), ())
    assert len(store.saves) == 1


@pytest.mark.parametrize("error", [SnapshotUnreadable, SnapshotTooNew, StoreUnavailable])
async def test_what_the_store_says_at_the_start_is_raised(error: type[Exception]) -> None:
    store = DictStore()
    store.failing.append(error("no"))
    with pytest.raises(error):
        await begin(store=store)


# ---------------------------------------------------------------------- saved after each turn


async def test_it_is_saved_after_every_completed_turn_and_only_then() -> None:
    store = DictStore()
    gate = Gate()
    session = await begin("One.", gate, store=store)
    assert store.saves == []
    await session.run("Hello")
    assert len(store.saves) == 1
    running = asyncio.create_task(session.run("Still there?"))
    await gate.asked.wait()
    assert len(store.saves) == 1
    assert texts(session.history) == ["Hello", "One."]
    gate.go_on.set()
    await running
    assert len(store.saves) == 2
    first, second = store.saves
    assert second.revision == first.revision + 1
    assert 0 < first.revision < 2**48
    assert second == replace(session.snapshot, erase=())
    assert texts(stored(store).messages) == ["Hello", "One.", "Still there?", "Late."]


async def test_it_goes_on_after_a_restart() -> None:
    store = DictStore()
    await (await begin("Nice.", store=store)).run("I am Alice")
    session = await begin("Alice.", store=store)
    assert texts(session.history) == ["I am Alice", "Nice."]
    await session.run("Who am I?")
    assert texts(tuple(model_of(session).requests[0].messages)) == [
        "I am Alice",
        "Nice.",
        "Who am I?",
    ]
    assert stored(store).next_seq == 5
    assert stored(store).spans == ((1, 4),)


@pytest.mark.parametrize("how", ["fails", "is cancelled", "times out", "is too slow for itself"])
@pytest.mark.parametrize("first", [True, False], ids=["first turn", "later turn"])
async def test_a_turn_that_does_not_end_leaves_the_history_as_it_was(how: str, first: bool) -> None:
    @tool
    async def look() -> None: ...

    store = DictStore()
    agent = replace(AGENT, tools=(look,), turn_timeout=0.05 if "slow" in how else 120.0)
    before: list[Script] = [] if first else ["One."]
    gate = Gate()
    last: Script = ModelUnavailable("500", 60.0) if how == "fails" else gate
    session = await begin(
        *before,
        calls(ToolCall(id="c1", name="look", input={})),
        last,
        "Fine.",
        store=store,
        agent=agent,
    )
    if not first:
        await session.run("Hello")
    snapshot, kept = session.snapshot, dict(store.kept)
    if how == "is cancelled":
        running = asyncio.create_task(session.run("Lost"))
        await gate.asked.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    elif how == "times out":
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await session.run("Lost")
    else:
        with pytest.raises(ModelUnavailable):
            await session.run("Lost")
    # Nor does a late result change anything.
    gate.go_on.set()
    await settle()
    assert session.snapshot is snapshot
    assert store.kept == kept
    await session.run("Again")
    assert texts(session.history) == ([] if first else ["Hello", "One."]) + ["Again", "Fine."]
    assert stored(store).messages == session.history


async def test_a_save_that_fails_leaves_the_history_as_it_was() -> None:
    store = DictStore()
    session = await begin("One.", "Two.", "Three.", store=store)
    await session.run("Hello")
    snapshot = session.snapshot
    store.failing.append(StoreUnavailable("disk full"))
    with pytest.raises(StoreUnavailable):
        await session.run("Lost")
    assert session.snapshot is snapshot
    await session.run("Again")
    assert texts(stored(store).messages) == ["Hello", "One.", "Again", "Three."]


class Forgetful(DictStore):
    """Saves, and then says that it does not know."""

    unsure = False

    async def save(self, ref: SessionRef, snapshot: Snapshot, *, replaces: int | None) -> None:
        await super().save(ref, snapshot, replaces=replaces)
        if self.unsure:
            self.unsure = False
            raise StoreUnavailable("no answer")


@pytest.mark.parametrize("first", [True, False], ids=["first turn", "later turn"])
async def test_a_save_that_happened_although_nobody_said_so(first: bool) -> None:
    store = Forgetful()
    session = await begin("One.", "Two.", "Three.", store=store)
    if not first:
        await session.run("Hello")
    store.unsure = True
    with pytest.raises(StoreUnavailable):
        await session.run("Perhaps")
    await session.run("Again")
    assert texts(stored(store).messages)[-4:-2] == ["Perhaps", "One." if first else "Two."]
    assert texts(stored(store).messages)[-2] == "Again"
    assert stored(store).messages == session.history
    # The model was told of it, too.
    assert "Perhaps" in texts(tuple(model_of(session).requests[-1].messages))


async def test_a_run_cancelled_while_it_is_saved() -> None:
    """The store may go on: the next run asks it first."""
    store = Slow()
    session = await begin("One.", "Two.", store=store)
    running = asyncio.create_task(session.run("Hello"))
    store.steps.put_nowait(None)
    await settle()
    assert store.at == ["before save", "after save"]
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert session.history == ()
    for _ in range(2):
        store.steps.put_nowait(None)
    await session.run("Again")
    assert texts(stored(store).messages) == ["Hello", "One.", "Again", "Two."]
    assert texts(tuple(model_of(session).requests[1].messages)) == ["Hello", "One.", "Again"]


async def test_a_clear_that_happened_although_nobody_said_so() -> None:
    store = DictStore()
    session = await begin("One.", "Fresh.", store=store)
    await session.run("Hello")
    store.failing.append(StoreUnavailable("no answer"))
    with pytest.raises(StoreUnavailable):
        await session.clear()
    store.kept.clear()
    await session.run("Again")
    assert texts(stored(store).messages) == ["Again", "Fresh."]


async def test_other_outcomes_are_turns_too() -> None:
    store = DictStore()
    session = await begin(
        said("First you", "refusal"), "", "", said("Once upon", "max_tokens"), store=store
    )
    assert [(await session.run("?")).outcome for _ in range(3)] == ["refused", "empty", "cut"]
    assert texts(stored(store).messages)[1::2] == [REFUSAL, NO_ANSWER, "Once upon"]


async def test_a_refused_history_is_not_sent_again() -> None:
    """The rows stay in the history, but requests read from the shortened window."""
    store = DictStore()
    session = await begin("1.", "2.", ModelRejected("400"), "3.", "4.", store=store)
    for text in ("a", "b", "c", "d"):
        await session.run(text)
    assert texts(tuple(model_of(session).requests[-1].messages)) == ["b", "2.", "c", "3.", "d"]
    assert texts(session.history) == ["b", "2.", "c", "3.", "d", "4."]
    assert stored(store).window == 3
    assert stored(store).spans == ((1, 8),)


# ---------------------------------------------------------------------- memory


async def test_seeds_begin_an_empty_conversation_and_only_that() -> None:
    memory = ConversationMemory(20).add_system("Be kind.").add_user("I am Alice.")
    memory.add_assistant("Hi Alice.")
    store = DictStore()
    agent = replace(AGENT, memory=memory)
    session = await begin("Alice.", store=store, agent=agent)
    assert session.history == ()
    reply = await session.run("Who am I?")
    assert texts(reply.messages) == ["Who am I?", "Alice."]
    seeded = ["I am Alice.", "Hi Alice.", "Who am I?", "Alice."]
    assert texts(session.history) == seeded
    again = await begin("Yes.", "Fresh.", store=store, agent=agent)
    await again.run("Sure?")
    assert texts(again.history) == [*seeded, "Sure?", "Yes."]
    await again.clear()
    await again.run("Hello")
    assert texts(again.history) == ["I am Alice.", "Hi Alice.", "Hello", "Fresh."]
    assert memory.to_dict()["max_messages"] == 20


async def test_only_so_much_is_sent() -> None:
    store = DictStore()
    agent = replace(AGENT, memory=ConversationMemory(5, 3))
    session = await begin(*(f"a{n}" for n in range(5)), store=store, agent=agent)
    for number in range(5):
        await session.run(f"q{number}")
    sent = [texts(tuple(request.messages)) for request in model_of(session).requests]
    assert [len(each) for each in sent] == [1, 3, 5, 3, 5]
    assert sent[3] == ["q2", "a2", "q3"]
    assert texts(session.history) == ["q2", "a2", "q3", "a3", "q4", "a4"]
    assert stored(store).spans == ((1, 10),)
    assert stored(store).window == 5


# ---------------------------------------------------------------------- one after the other


async def test_runs_wait_for_each_other_in_order() -> None:
    gates = [Gate(f"answer {number}") for number in range(4)]
    session = await begin(*gates, store=DictStore())
    order = []

    async def ask(number: int) -> None:
        reply = await session.run(f"question {number}")
        order.append(reply.text)

    runs = [asyncio.create_task(ask(number)) for number in range(4)]
    await settle()
    assert [gate.asked.is_set() for gate in gates] == [True, False, False, False]
    for gate in reversed(gates):
        gate.go_on.set()
    await asyncio.gather(*runs)
    assert order == [f"answer {number}" for number in range(4)]
    assert texts(session.history)[::2] == [f"question {number}" for number in range(4)]


async def test_so_many_runs_may_wait() -> None:
    gate = Gate()
    session = await begin(gate, *["Fine."] * WAITING_LIMIT, store=DictStore())
    runs = [asyncio.create_task(session.run("Hello")) for _ in range(WAITING_LIMIT)]
    await gate.asked.wait()
    with pytest.raises(SessionBusy):
        await session.run("One too many")
    gate.go_on.set()
    await asyncio.gather(*runs)
    assert (await session.run("Again")).text == "Fine."
    assert len(session.history) == 2 * WAITING_LIMIT + 2


async def test_a_run_that_fails_or_is_cancelled_lets_the_next_one_go_on() -> None:
    gate = Gate()
    session = await begin(gate, ModelUnavailable("no", 60.0), "Fine.")
    runs = [asyncio.create_task(session.run(f"{number}")) for number in range(4)]
    await gate.asked.wait()
    runs[0].cancel()
    runs[2].cancel()
    results = await asyncio.gather(*runs, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert isinstance(results[1], ModelUnavailable)
    assert isinstance(results[2], asyncio.CancelledError)
    assert texts(session.history) == ["3", "Fine."]


# ---------------------------------------------------------------------- clear


async def test_clear_removes_everything_and_keeps_the_options() -> None:
    store = DictStore()
    session = await begin("One.", "Two.", store=store, system_prompt="Be brief.")
    await session.run("Hello")
    epoch = session.snapshot.epoch
    await session.clear()
    assert store.kept == {}
    assert await store.load(session._ref) is None
    empty = session.snapshot
    assert (empty.messages, empty.spans, empty.usage.input_tokens) == ((), (), 0)
    assert (empty.inbox, empty.turn, empty.outbox, empty.seen) == ((), None, (), ())
    assert empty.epoch != epoch
    assert empty.system_prompt == "Be brief."
    await session.run("Again")
    assert texts(tuple(model_of(session).requests[1].messages)) == ["Again"]
    assert texts(stored(store).messages) == ["Again", "Two."]
    assert model_of(session).requests[1].system == ("Be brief.",)


async def test_clearing_what_is_not_there_is_fine() -> None:
    store = DictStore()
    session = await begin("One.", store=store)
    await session.clear()
    await session.clear()
    await session.run("Hello")
    assert texts(stored(store).messages) == ["Hello", "One."]


async def test_a_store_that_cannot_clear_is_reported_and_nothing_has_changed() -> None:
    store = DictStore()
    session = await begin("One.", "Two.", store=store)
    await session.run("Hello")
    snapshot = session.snapshot
    store.failing.append(StoreUnavailable("locked"))
    with pytest.raises(StoreUnavailable):
        await session.clear()
    assert session.snapshot == snapshot
    await session.run("And?")
    assert texts(stored(store).messages) == ["Hello", "One.", "And?", "Two."]


@pytest.mark.parametrize("first", [True, False], ids=["first turn", "later turn"])
async def test_a_running_turn_cannot_undo_clear(first: bool) -> None:
    store = DictStore()
    gate = Gate()
    before = [] if first else ["One."]
    session = await begin(*before, gate, "Fresh.", store=store)
    if not first:
        await session.run("Hello")
    running = asyncio.create_task(session.run("Late"))
    waiting = asyncio.create_task(session.run("Next"))
    await gate.asked.wait()
    await session.clear()
    gate.go_on.set()
    with pytest.raises(Cleared):
        await running
    # Who waited speaks in the new conversation.
    assert (await waiting).text == "Fresh."
    assert texts(session.history) == ["Next", "Fresh."]
    assert stored(store).messages == session.history


class Slow(DictStore):
    """Each step of a save and a clear is let go by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: asyncio.Queue[None] = asyncio.Queue()
        self.at: list[str] = []

    async def save(self, ref: SessionRef, snapshot: Snapshot, *, replaces: int | None) -> None:
        await self._step("before save")
        await super().save(ref, snapshot, replaces=replaces)
        await self._step("after save")

    async def clear(self, ref: SessionRef) -> None:
        await self._step("before clear")
        await super().clear(ref)
        await self._step("after clear")

    async def _step(self, name: str) -> None:
        self.at.append(name)
        await self.steps.get()


@pytest.mark.parametrize("ahead", range(5))
async def test_clear_at_any_moment_of_a_save_is_the_last_word(ahead: int) -> None:
    """The save has made so many steps when `clear` is called; all others are made afterwards."""
    store = Slow()
    session = await begin("One.", "Fresh.", store=store)
    running = asyncio.create_task(session.run("Hello"))
    for _ in range(ahead):
        store.steps.put_nowait(None)
    await settle()
    clearing = asyncio.create_task(session.clear())
    await settle()
    for _ in range(20):
        store.steps.put_nowait(None)
    await clearing
    await asyncio.gather(running, return_exceptions=True)
    assert store.kept == {}
    assert session.history == ()
    await session.run("Again")
    assert texts(stored(store).messages) == ["Again", "Fresh."]


async def test_clear_begun_before_a_save_is_the_last_word() -> None:
    store = Slow()
    gate = Gate()
    session = await begin(gate, "Fresh.", store=store)
    running = asyncio.create_task(session.run("Hello"))
    await gate.asked.wait()
    clearing = asyncio.create_task(session.clear())
    await settle()
    assert store.at == ["before clear"]
    gate.go_on.set()
    await settle()
    for _ in range(20):
        store.steps.put_nowait(None)
    await clearing
    with pytest.raises(Cleared):
        await running
    assert store.kept == {}


class LateToSay(DictStore):
    """Has cleared long before it says so."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()

    async def clear(self, ref: SessionRef) -> None:
        await super().clear(ref)
        await self.go_on.wait()


async def test_a_first_save_does_not_slip_in_behind_a_clear() -> None:
    store = LateToSay()
    gate = Gate()
    session = await begin(gate, "Fresh.", store=store)
    running = asyncio.create_task(session.run("Late"))
    await gate.asked.wait()
    clearing = asyncio.create_task(session.clear())
    await settle()
    gate.go_on.set()
    await settle()
    store.go_on.set()
    await clearing
    with pytest.raises(Cleared):
        await running
    assert store.kept == {}
    await session.run("Again")
    assert texts(stored(store).messages) == ["Again", "Fresh."]


# ---------------------------------------------------------------------- two on one key


async def test_two_sessions_on_one_key_lose_nothing() -> None:
    store = DictStore()
    await (await begin("Zero.", store=store)).run("Hello")
    gates = [Gate("from one"), Gate("from two")]
    one = await begin(gates[0], "One again.", store=store)
    two = await begin(gates[1], "Two again.", store=store)
    runs = [asyncio.create_task(one.run("one")), asyncio.create_task(two.run("two"))]
    for gate in gates:
        await gate.asked.wait()
    for gate in gates:
        gate.go_on.set()
    replies = await asyncio.gather(*runs)
    assert [reply.text for reply in replies] == ["from one", "from two"]
    kept = texts(stored(store).messages)
    assert kept[:2] == ["Hello", "Zero."]
    assert sorted([tuple(kept[2:4]), tuple(kept[4:6])]) == [
        ("one", "from one"),
        ("two", "from two"),
    ]
    assert [message.seq for message in stored(store).messages] == list(range(1, 7))
    assert [texts(reply.messages) for reply in replies] == [
        ["one", "from one"],
        ["two", "from two"],
    ]
    await one.run("more")
    await two.run("and more")
    assert texts(stored(store).messages)[6:] == ["more", "One again.", "and more", "Two again."]


async def test_two_sessions_that_both_begin_lose_nothing_and_seed_once() -> None:
    memory = ConversationMemory().add_user("I am Alice.").add_assistant("Hi Alice.")
    agent = replace(AGENT, memory=memory)
    store = DictStore()
    one = await begin("One.", store=store, agent=agent)
    two = await begin("Two.", store=store, agent=agent)
    await one.run("a")
    reply = await two.run("b")
    assert texts(reply.messages) == ["b", "Two."]
    assert texts(stored(store).messages) == ["I am Alice.", "Hi Alice.", "a", "One.", "b", "Two."]
    assert two.snapshot.epoch == one.snapshot.epoch


async def test_a_session_keeps_its_own_options_after_a_race() -> None:
    store = DictStore()
    await (await begin("Zero.", store=store)).run("Hello")
    one = await begin("One.", store=store)
    two = await begin("Two.", "Three.", store=store, model="anthropic/claude-z")
    await one.run("a")
    await two.run("b")
    await two.run("c")
    assert [request.model for request in model_of(two).requests] == ["claude-z", "claude-z"]


async def test_many_sessions_at_once() -> None:
    store = DictStore()
    sessions = [await begin(f"answer {number}", store=store) for number in range(20)]
    await asyncio.gather(*(each.run(f"question {n}") for n, each in enumerate(sessions)))
    kept = texts(stored(store).messages)
    assert sorted(kept[::2]) == sorted(f"question {number}" for number in range(20))
    assert [text.replace("question", "answer") for text in kept[::2]] == kept[1::2]


async def test_cleared_by_another_session() -> None:
    store = DictStore()
    one = await begin("One.", store=store)
    await one.run("a")
    two = await begin("lost", "Two.", store=store)
    await one.clear()
    with pytest.raises(Cleared):
        await two.run("b")
    assert store.kept == {}
    assert two.history == ()
    # From then on it is in the new conversation.
    await two.run("c")
    assert texts(stored(store).messages) == ["c", "Two."]


async def test_cleared_and_begun_anew_by_another_session() -> None:
    store = DictStore()
    one = await begin("One.", "Fresh.", store=store)
    await one.run("a")
    two = await begin("lost", "Two.", store=store, effort="low")
    await one.clear()
    await one.run("new")
    with pytest.raises(Cleared):
        await two.run("b")
    assert texts(two.history) == ["new", "Fresh."]
    assert texts(stored(store).messages) == ["new", "Fresh."]
    await two.run("c")
    assert texts(stored(store).messages) == ["new", "Fresh.", "c", "Two."]
    assert model_of(two).requests[-1].effort == "low"


async def test_cleared_elsewhere_while_two_begin() -> None:
    """Somebody saved first and cleared before we could look: there is nothing to go on with."""

    class Vanishing(DictStore):
        async def save(self, ref: SessionRef, snapshot: Snapshot, *, replaces: int | None) -> None:
            raise StaleSnapshot

    session = await begin("lost", store=Vanishing())
    with pytest.raises(Cleared):
        await session.run("a")


async def test_a_store_that_fails_in_the_middle_of_a_race() -> None:
    store = DictStore()
    one = await begin("One.", "Two.", store=store)
    two = await begin("lost", "Three.", store=store)
    await one.run("a")
    # First "somebody else was here", then nothing at all.
    store.failing += [StaleSnapshot(), StoreUnavailable("locked")]
    with pytest.raises(StoreUnavailable):
        await two.run("b")
    assert two.history == ()
    await two.run("c")
    assert texts(stored(store).messages) == ["a", "One.", "c", "Three."]


# ---------------------------------------------------------------------- beside a bot


def answering(snapshot: Snapshot) -> Snapshot:
    """A bot has taken a message of a person and answers it."""
    inbound = Inbound(id="u1", key=KEY, kind="message", sender=Sender("telegram:42"), text="Hey")
    accepted = changes.accept(snapshot, inbound)
    return changes.start(accepted, execution=new_id(), now=NOON, memory=ConversationMemory())


async def test_a_session_does_not_speak_into_a_bots_turn() -> None:
    store = DictStore()
    await (await begin("Zero.", store=store)).run("Hello")
    session = await begin("lost", "Fine.", store=store)
    free = stored(store)
    busy = replace(answering(free), revision=free.revision + 1)
    store.kept[KEY] = encode(busy)
    with pytest.raises(SessionBusy, match="bot"):
        await session.run("a")
    # It knows now, and asks no model before the bot has finished.
    with pytest.raises(SessionBusy, match="bot"):
        await session.run("b")
    assert len(model_of(session).requests) == 1
    assert stored(store) == busy
    store.kept[KEY] = encode(replace(free, revision=busy.revision + 1, next_seq=busy.next_seq))
    await session.run("c")
    assert texts(stored(store).messages) == ["Hello", "Zero.", "c", "Fine."]


async def test_a_session_that_finds_a_bots_turn_when_it_starts() -> None:
    store = DictStore()
    await (await begin("Zero.", store=store)).run("Hello")
    busy = replace(answering(stored(store)), revision=7)
    store.kept[KEY] = encode(busy)
    session = await begin("never asked", store=store)
    with pytest.raises(SessionBusy, match="bot"):
        await session.run("a")
    assert model_of(session).requests == []
    assert stored(store) == busy


# ---------------------------------------------------------------------- stream


async def collect(pieces: AsyncIterator[str]) -> list[str]:
    return [piece async for piece in pieces]


async def test_stream_is_run_piece_by_piece() -> None:
    store = DictStore()
    session = await begin("One two three.", store=store)
    pieces = await collect(session.stream("Hello"))
    assert pieces == ["One", " two", " three."]
    assert texts(session.history) == ["Hello", "One two three."]
    assert texts(stored(store).messages) == ["Hello", "One two three."]


@tool
async def look() -> str:
    """Look."""
    return "seen"


LOOK = ToolCall(id="c1", name="look", input={})
LOOK_AGAIN = ToolCall(id="c2", name="look", input={})
SCRIPTS: dict[str, list[Script]] = {
    "plain": ["Hello there."],
    "with space around": [" \n Hello there. \n"],
    "with tools": [calls(LOOK, text=" I look. "), calls(LOOK_AGAIN, text="\nAgain."), " There. "],
    "with silent tools": [calls(LOOK), "There."],
    "paused": [said("I search", "pause_turn"), said(" and find.")],
    "paused and called": [said("I search ", "pause_turn"), calls(LOOK, text="and look."), "So."],
    "empty once": [" \n ", "Here."],
    "empty twice": ["", ""],
    "empty after tools": [calls(LOOK, text="I look."), " ", ""],
    "cut": [said("Once upon a ", "max_tokens")],
    "after a retry": [ModelUnavailable("529"), "Here."],
    "retried after tools": [calls(LOOK, text="I look."), ModelUnavailable("529"), "Here."],
    "refused in silence": [said("", "refusal")],
}


@pytest.mark.parametrize("name", SCRIPTS)
async def test_stream_gives_what_run_gives(name: str) -> None:
    agent = replace(AGENT, tools=(look,))
    streamed = await begin(*SCRIPTS[name], agent=agent)
    ran = await begin(*SCRIPTS[name], agent=agent)
    pieces = await collect(streamed.stream("Hello"))
    reply = await ran.run("Hello")
    assert "".join(pieces) == reply.text
    assert all(pieces)
    assert [
        each.blocks == other.blocks
        for each, other in zip(streamed.history, ran.history, strict=True)
    ] == [True] * len(ran.history)


async def test_a_refusal_comes_after_what_was_streamed() -> None:
    session = await begin(said("First you take the", "refusal"))
    pieces = await collect(session.stream("Hello"))
    assert "".join(pieces) == f"First you take the\n\n{REFUSAL}"
    assert texts(session.history) == ["Hello", REFUSAL]


async def test_a_cut_is_said_at_the_end() -> None:
    session = await begin(said("Once upon a", "max_tokens"))
    assert (await collect(session.stream("Hello")))[-1] == CUT_SHORT


async def test_a_stream_raises_what_a_run_raises() -> None:
    session = await begin(ModelUnavailable("no", 60.0), "Fine.")
    with pytest.raises(ModelUnavailable):
        await collect(session.stream("Hello"))
    with pytest.raises(ValueError, match="nothing"):
        await collect(session.stream(" "))
    assert await collect(session.stream("Hello")) == ["Fine."]


async def test_a_stream_that_nobody_reads_to_its_end_is_a_cancelled_turn() -> None:
    store = DictStore()
    session = await begin("One two three four five.", "Fine.", store=store)
    pieces = session.stream("Hello")
    assert await anext(pieces) == "One"
    await pieces.aclose()
    assert session.history == ()
    assert store.kept == {}
    assert (await session.run("Again")).text == "Fine."


async def test_a_cancelled_stream_is_a_cancelled_turn() -> None:
    gate = Gate()
    session = await begin(gate, "Fine.")
    reading = asyncio.create_task(collect(session.stream("Hello")))
    await gate.asked.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert session.history == ()
    assert (await session.run("Again")).text == "Fine."


async def test_a_stream_waits_its_turn() -> None:
    gate = Gate("First.")
    session = await begin(gate, "Second.")
    running = asyncio.create_task(session.run("a"))
    await gate.asked.wait()
    reading = asyncio.create_task(collect(session.stream("b")))
    await settle()
    gate.go_on.set()
    assert (await running).text == "First."
    assert await reading == ["Second."]
    assert texts(session.history) == ["a", "First.", "b", "Second."]
