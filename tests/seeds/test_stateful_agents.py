"""The page "Stateful Agents" (Conductor), held to its word: a test a sentence, in its order.

Ours and theirs, where the names differ:

| there | here |
|---|---|
| a runtime and its server | `Runtime` and its store |
| `Agent.builder()...build()` | `Agent(...)`, a frozen value |
| `sessionId` | `session_id` of the agent or of the run |
| a domain per execution, its workers | `core.execution.Execution`: id, tools, objects, state |
| `ToolDef...stateful(true)` | `tool(stateful=True)`; a class is, unless it says otherwise |
| `ConversationMemory(20)`, `maxMessages`, null | the same, `max_messages`, None |
| `ToolContext.getState()` | `ToolContext.state` |
| trimmed by the server | not sent any more; the store keeps them |
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from core import Agent, ConversationMemory, Runtime, ToolContext, history, tool
from core.claude import Claude
from core.messages import text_of
from core.store import SessionRef
from playground.claude import Claude as StandIn
from stores.sqlite import SQLiteStore

ROOT = Path(__file__).parents[2]
ASSISTANT = Agent(
    name="assistant",
    model="anthropic/claude-sonnet-5-5",
    instructions="You are a helpful assistant.",
)
KNOWN = "Your name is Alice."
UNKNOWN = "I do not know your name yet."


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    async with SQLiteStore(tmp_path / "runs.db") as opened:
        yield opened


@pytest.fixture
async def runtime(store: SQLiteStore, claude: Claude) -> AsyncIterator[Runtime]:
    async with Runtime(store, client=claude) as ready:
        yield ready


def asked(stand_in: StandIn) -> list[list[str]]:
    """The texts of each request's messages."""
    return [
        [block["text"] for message in body["messages"] for block in _texts(message["content"])]
        for body in stand_in.requests
    ]


def _texts(content: Any) -> Iterable[dict[str, str]]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return (block for block in blocks if block["type"] == "text")


class Notebook:
    """Takes a note and gives all that it has taken."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    async def __call__(self, note: str) -> str:
        self.notes.append(note)
        return "+".join(self.notes)


def use(*notes: str) -> str:
    """What to say to have the model take these notes."""
    return " and ".join(f"use note with {json.dumps({'note': note})}" for note in notes)


# ---------------------------------------------------------------------- independent, or not


async def test_s01_by_default_each_run_is_independent(runtime: Runtime, store: SQLiteStore) -> None:
    assert (await runtime.run(ASSISTANT, "My name is Alice")).text == "Nice to meet you, Alice."
    assert (await runtime.run(ASSISTANT, "What is my name?")).text == UNKNOWN
    assert [each async for each in store.summaries()] == []


async def test_s02_three_means_for_agents_that_go_on_and_they_add_up(runtime: Runtime) -> None:
    memory = ConversationMemory().add_user("My name is Alice.").add_assistant("Hello Alice.")
    one_by_one = (
        replace(ASSISTANT, name="a", session_id="user-42"),
        replace(ASSISTANT, name="b", stateful=True),
        replace(ASSISTANT, name="c", memory=memory),
    )
    for agent in one_by_one[:2]:
        await runtime.run(agent, "My name is Alice")
    for agent in one_by_one:
        assert (await runtime.run(agent, "What is my name?")).text == KNOWN
    together = replace(ASSISTANT, session_id="user-42", stateful=True, memory=memory)
    await runtime.run(together, "I like tea")
    said = (await runtime.run(together, "What did I say first?")).text
    assert said == "You first said: “My name is Alice.”"
    assert (await runtime.run(together, "What did I say last?")).text.endswith("first?”")


# ---------------------------------------------------------------------- sessions


async def test_s03_what_goes_on_is_keyed_by_the_session_id(
    runtime: Runtime, store: SQLiteStore
) -> None:
    await runtime.run(replace(ASSISTANT, session_id="user-42"), "My name is Alice")
    await runtime.run(replace(ASSISTANT, session_id="user-43"), "Hello")
    assert [each.key async for each in store.summaries()] == [
        "agent:assistant/id/user-42",
        "agent:assistant/id/user-43",
    ]


async def test_s04_runs_that_share_a_session_id_are_one_conversation(
    runtime: Runtime, store: SQLiteStore, stand_in: StandIn
) -> None:
    agent = replace(ASSISTANT, session_id="user-42")
    await runtime.run(agent, "My name is Alice")
    assert (await runtime.run(agent, "What is my name?")).text == KNOWN
    # Also two that were started at the same time, and one in another runtime.
    await asyncio.gather(*(runtime.run(agent, f"Message {i}") for i in range(2)))
    async with Runtime(store, client=Claude("any", stand_in.url)) as other:
        reply = await other.run(agent, "How many messages do you see?")
        await other._client.close()  # type: ignore[union-attr]
    assert reply.text == "I can see 9 messages in this conversation."
    assert (await runtime.run(agent, "What is my name?", session_id="user-43")).text == UNKNOWN


async def test_s05_the_example_of_an_agent_with_a_session_id(runtime: Runtime) -> None:
    agent = Agent(
        name="assistant",
        model="anthropic/claude-sonnet-5-5",
        instructions="You are a helpful assistant.",
        session_id="user-42",
    )
    await runtime.run(agent, "My name is Alice")
    assert (await runtime.run(agent, "What is my name?")).text == KNOWN


# ---------------------------------------------------------------------- stateful


async def test_s06_stateful_keeps_the_history_of_the_agents_runs(
    runtime: Runtime, store: SQLiteStore, claude: Claude, tmp_path: Path
) -> None:
    agent = replace(ASSISTANT, stateful=True)
    await runtime.run(agent, "My name is Alice")
    # It is in the store, for a process to come.
    kept = await store.load(SessionRef("agent:assistant"))
    assert kept is not None
    assert text_of(kept.messages[0].blocks) == "My name is Alice"
    assert (await Runtime(store, client=claude).run(agent, "What is my name?")).text == KNOWN


async def test_s07_stateful_also_gives_each_execution_a_domain_of_its_own(
    runtime: Runtime,
) -> None:
    # Not stateful by itself: the agent alone makes it so.
    note = tool(name="note", stateful=False)(Notebook)
    agent = replace(ASSISTANT, name="notes", tools=(note,), stateful=True)
    replies = [await runtime.run(agent, use(name)) for name in ("one", "two")]
    assert [reply.text for reply in replies] == ["The tool says: one", "The tool says: two"]
    assert replies[0].execution_id != replies[1].execution_id


async def test_s08_concurrent_stateful_runs_never_get_each_others_tool_calls(
    runtime: Runtime,
) -> None:
    """Ten at once, each with two calls of a tool of the same name; all are inside of their first
    call before the first goes on."""
    inside = asyncio.Barrier(10)
    calls: list[tuple[str, str, str]] = []

    class Meeting:
        """Waits for nine others."""

        def __init__(self) -> None:
            self.notes: list[str] = []

        async def __call__(self, note: str, context: ToolContext) -> str:
            calls.append((context.execution_id, context.session_key, note))
            if not self.notes:
                self.notes.append(note)
                async with asyncio.timeout(20):
                    await inside.wait()
            else:
                self.notes.append(note)
            context.state.setdefault("notes", []).append(note)
            return "+".join(self.notes) + "/" + "+".join(sorted(context.state["notes"]))

    meet = tool(name="note")(Meeting)
    agents = [
        replace(ASSISTANT, name="notes", tools=(meet,), stateful=True, session_id=f"s{i}")
        for i in range(10)
    ]
    replies = await asyncio.gather(
        *(
            runtime.run(agent, use(f"{i}a", f"{i}b"))
            for i, agent in enumerate(agents)
        )
    )  # fmt: skip
    for i, reply in enumerate(replies):
        own = {note for execution, _, note in calls if execution == reply.execution_id}
        assert own == {f"{i}a", f"{i}b"}
        assert {key for execution, key, _ in calls if execution == reply.execution_id} == {
            f"agent:notes/id/s{i}"
        }
        said = "".join(reply.text.split("The tool says: "))
        assert all(part in said for part in own)
        others = {f"{j}{c}" for j in range(10) if j != i for c in "ab"}
        assert not any(other in said for other in others)


async def test_s09_the_example_of_a_stateful_agent(runtime: Runtime) -> None:
    agent = Agent(
        name="hr_assistant",
        model="anthropic/claude-sonnet-5-5",
        instructions="You answer what staff ask, and know what they asked before.",
        stateful=True,
    )
    await runtime.run(agent, "My name is Alice")
    assert (await runtime.run(agent, "What is my name?")).text == KNOWN


async def test_s10_later_runs_of_a_stateful_agent_see_the_exchanges_before(
    runtime: Runtime, stand_in: StandIn
) -> None:
    agent = replace(ASSISTANT, stateful=True)
    for text in ("One", "Two", "Three"):
        await runtime.run(agent, text)
    sent = asked(stand_in)
    assert [texts[0::2] for texts in sent] == [["One"], ["One", "Two"], ["One", "Two", "Three"]]
    assert [len(texts) for texts in sent] == [1, 3, 5]


def test_s11_a_tool_can_be_marked_stateful_too() -> None:
    def plain(note: str) -> str:
        """A function."""
        return note

    assert tool(stateful=True)(plain).stateful
    assert not tool(plain).stateful
    assert tool(Notebook).stateful


@pytest.mark.parametrize("depth", [0, 1, 3])
async def test_s12_a_stateful_tool_anywhere_in_the_tree_isolates_the_whole_run(
    depth: int, runtime: Runtime
) -> None:
    class Shared(Notebook):
        """Would be one for all runs."""

    shared = tool(name="note", stateful=False)(Shared)
    marked = tool(name="marked", stateful=True)(lambda: "")
    tree = Agent(name="level0", tools=(marked,))
    for level in range(1, depth):
        tree = Agent(name=f"level{level}", agents=(tree,))
    agent = replace(ASSISTANT, tools=(shared,), agents=(tree,))
    if depth == 0:
        agent = replace(ASSISTANT, tools=(shared, marked))
    texts = [(await runtime.run(agent, use(name))).text for name in ("one", "two")]
    assert texts == ["The tool says: one", "The tool says: two"]

    # Without the mark there is one for all, so that this test would notice.
    plain = replace(ASSISTANT, tools=(shared,))
    texts = [(await runtime.run(plain, use(name))).text for name in ("one", "two")]
    assert texts == ["The tool says: one", "The tool says: one+two"]


# ---------------------------------------------------------------------- memory


async def test_s13_memory_supplies_messages_up_front_such_as_ones_own_store_has(
    runtime: Runtime, stand_in: StandIn
) -> None:
    own_store = json.dumps(
        ConversationMemory().add_user("My name is Alice.").add_assistant("Hello.").to_dict()
    )
    memory = ConversationMemory.from_dict(json.loads(own_store))
    agent = replace(ASSISTANT, memory=memory)
    assert (await runtime.run(agent, "What is my name?")).text == KNOWN
    assert asked(stand_in) == [["My name is Alice.", "Hello.", "What is my name?"]]


@pytest.mark.parametrize("most", [1, 2, 5, 20])
async def test_s14_and_may_cap_how_many_messages_are_retained(
    most: int, runtime: Runtime, stand_in: StandIn
) -> None:
    agent = replace(ASSISTANT, memory=ConversationMemory(most), session_id="s")
    for number in range(15):
        await runtime.run(agent, f"Message {number}")
        newest = stand_in.requests[-1]["messages"]
        assert len(newest) <= most
        assert newest[0]["role"] == "user"
        assert asked(stand_in)[-1][-1] == f"Message {number}"


async def test_s15_without_a_number_nothing_is_ever_left_out(
    runtime: Runtime, stand_in: StandIn
) -> None:
    assert ConversationMemory().max_messages is None
    assert ConversationMemory(None).max_messages is None
    agent = replace(ASSISTANT, memory=ConversationMemory(None), session_id="s")
    for number in range(30):
        await runtime.run(agent, f"Message {number}")
    assert len(stand_in.requests[-1]["messages"]) == 59


async def test_s16_the_example_of_a_memory(runtime: Runtime, stand_in: StandIn) -> None:
    memory = (
        ConversationMemory(20)
        .add_system("You are concise.")
        .add_user("My name is Alice.")
        .add_assistant("Nice to meet you, Alice.")
    )
    agent = Agent(name="assistant", model="anthropic/claude-sonnet-5-5", memory=memory)
    assert (await runtime.run(agent, "What is my name?")).text == KNOWN
    (request,) = stand_in.requests
    assert [block["text"] for block in request["system"]][-1] == "You are concise."
    assert [message["role"] for message in request["messages"]] == ["user", "assistant", "user"]


def test_s17_the_three_adders_can_be_chained() -> None:
    memory = ConversationMemory()
    assert memory.add_user("a") is memory
    assert memory.add_assistant("b") is memory
    assert memory.add_system("c") is memory


def test_s18_each_message_serialises_as_role_and_message() -> None:
    memory = ConversationMemory(20).add_system("a").add_user("b").add_assistant("c")
    assert memory.to_dict() == {
        "messages": [
            {"role": "system", "message": "a"},
            {"role": "user", "message": "b"},
            {"role": "assistant", "message": "c"},
        ],
        "max_messages": 20,
    }
    assert "max_messages" not in ConversationMemory().add_user("b").to_dict()


async def test_s19_the_oldest_messages_beyond_the_cap_go_and_whole_exchanges_at_that(
    runtime: Runtime, store: SQLiteStore, stand_in: StandIn
) -> None:
    memory = ConversationMemory(6, 4).add_system("Always here.").add_user("Seed.")
    before = msgspec.json.encode(memory.to_dict())
    agent = replace(ASSISTANT, memory=memory, session_id="s", tools=(tool(name="note")(Notebook),))
    for number in range(12):
        await runtime.run(agent, use(f"{number}") if number % 3 == 0 else f"Message {number}")
    for request in stand_in.requests:
        assert request["system"][-1]["text"] == "Always here."
    window = await store.load(SessionRef("agent:assistant/id/s"))
    assert window is not None
    # The oldest are gone from what is sent, and calls stand beside their results.
    assert text_of(window.messages[0].blocks) in {use("9"), "Message 10", "Message 11"}
    assert history.repair(window.messages) == window.messages
    # The store keeps what is not sent any more; the memory that was given is as it was.
    kept = [row async for row in store.archive(SessionRef("agent:assistant/id/s"))]
    assert text_of(kept[-1].blocks) == "Seed."
    assert len(kept) == 1 + 12 * 2 + 4 * 2
    assert msgspec.json.encode(memory.to_dict()) == before


# ---------------------------------------------------------------------- state between tools


async def test_s20_tools_of_one_execution_pass_data_through_a_mutable_map(
    runtime: Runtime, stand_in: StandIn
) -> None:
    @tool
    async def put(value: str, context: ToolContext) -> str:
        """Puts something down."""
        context.state["kept"] = value
        return "put"

    @tool
    async def get(context: ToolContext) -> str:
        """Picks it up."""
        return str(context.state.get("kept"))

    agent = replace(ASSISTANT, tools=(put, get), session_id="s")
    reply = await runtime.run(agent, 'use put with {"value": "the blue pen"} and use get')
    assert reply.text == "The tool says: put\nThe tool says: the blue pen"
    # It ends with the execution, and the model is told what tools say, not what they know.
    assert (await runtime.run(agent, "use get")).text == "The tool says: None"


async def test_s21_what_a_tool_is_told_is_documented_and_true(runtime: Runtime) -> None:
    seen: list[ToolContext] = []

    @tool
    async def look(context: ToolContext) -> str:
        """Looks around."""
        seen.append(context)
        return "seen"

    agent = replace(ASSISTANT, tools=(look,), session_id="s")
    reply = await runtime.run(agent, "use look", sender="telegram:42")
    (context,) = seen
    call = next(each for row in reply.messages for each in history.calls(row))
    assert context == ToolContext(
        state={},
        session_key="agent:assistant/id/s",
        execution_id=reply.execution_id,
        call_id=call["id"],
        agent="assistant",
        sender="telegram:42",
    )
    page = (ROOT / "docs" / "agents.md").read_text()
    for field in ToolContext.__struct_fields__:
        assert f"`{field}`" in page
