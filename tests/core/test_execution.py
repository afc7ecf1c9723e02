"""What an execution has to itself, and agents that ask agents."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from core import Agent, ConversationMemory, Runtime, Tool, ToolContext, tool
from core.agent import MAX_DEPTH
from core.delegation import Unkept, agent_tool
from core.errors import ModelRefusedKey, ModelUnavailable
from core.execution import Execution
from core.history import INTERRUPTED
from core.messages import Message, decode_blocks, encode_blocks, text_block, text_of
from core.model import Answer, Request, ToolCall
from core.snapshot import Usage
from core.turn import NO_ANSWER, REFUSAL, Finished, Place, run_turn
from tests.core.fakes import USAGE, FakeClock, Script, ScriptedModel, calls, said


def call(name: str, id: str = "c1", **arguments: Any) -> ToolCall:
    return ToolCall(id=id, name=name, input=arguments)


def runtime(*script: Script) -> tuple[Runtime, ScriptedModel]:
    model = ScriptedModel(*script)
    return Runtime(client=model, clock=FakeClock()), model


def results(request: Request) -> list[tuple[str, bool]]:
    """The tool results that a request ends with: content, and whether it is an error."""
    blocks = decode_blocks(request.messages[-1].blocks)
    return [(str(block["content"]), bool(block.get("is_error"))) for block in blocks]


def texts(request: Request) -> list[str]:
    return [text_of(each.blocks) for each in request.messages]


class Notebook:
    """Takes a note, and gives all that were taken."""

    built = 0

    def __init__(self) -> None:
        Notebook.built += 1
        self.notes: list[str] = []

    async def __call__(self, note: str) -> str:
        self.notes.append(note)
        return ", ".join(self.notes)


@tool
async def remember(word: str, context: ToolContext) -> str:
    """Remembers a word for the other tools."""
    context.state.setdefault("words", []).append(word)
    return " ".join(context.state["words"])


async def nobody(agent: Agent, request: str) -> str:
    raise AssertionError("nobody was to be asked")


def noted(*notes: str) -> Sequence[Script]:
    """A script in which the model calls `note` so often, and ends."""
    return [*(calls(call("note", note=note)) for note in notes), "Done."]


# ---------------------------------------------------------------------- objects of classes


async def test_the_object_of_a_class_lives_as_long_as_its_execution() -> None:
    agent = Agent(tools=(tool(name="note")(Notebook),))
    play, model = runtime(*noted("a", "b"), *noted("c"))
    await play.run(agent, "go")
    await play.run(agent, "go")
    assert results(model.requests[1]) == [("a", False)]
    assert results(model.requests[2]) == [("a, b", False)]
    assert results(model.requests[4]) == [("c", False)]


async def test_nothing_is_built_for_a_tool_that_is_not_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Notebook, "built", 0)
    agent = Agent(tools=(tool(name="note")(Notebook),))
    play, _ = runtime("Hello.")
    await play.run(agent, "go")
    assert Notebook.built == 0


async def test_a_class_that_keeps_no_state_has_one_object_for_all_runs() -> None:
    class Pool(Notebook):
        """Keeps connections."""

    pool = tool(name="note", stateful=False)(Pool)
    agent = Agent(tools=(pool,))
    play, model = runtime(*noted("a"), *noted("b"))
    await play.run(agent, "go")
    await play.run(agent, "go")
    assert results(model.requests[3]) == [("a, b", False)]


@pytest.mark.parametrize("where", ["agent", "tool", "agent below", "tool below", "far below"])
async def test_anything_stateful_in_the_tree_isolates_the_whole_run(where: str) -> None:
    class Pool(Notebook):
        """Keeps connections."""

    stateful = tool(name="other", stateful=True)(nobody_function)
    below = {
        "agent below": Agent(name="below", stateful=True),
        "tool below": Agent(name="below", tools=(stateful,)),
        "far below": Agent(name="below", agents=(Agent(name="deep", tools=(stateful,)),)),
    }
    agent = Agent(
        tools=(tool(name="note", stateful=False)(Pool), *((stateful,) if where == "tool" else ())),
        agents=(below[where],) if where in below else (),
        stateful=where == "agent",
    )
    assert agent.isolated
    play, model = runtime(*noted("a"), *noted("b"))
    await play.run(agent, "go", session_id="one")
    await play.run(agent, "go", session_id="two")
    assert results(model.requests[3]) == [("b", False)]


def nobody_function() -> str:
    """Does nothing."""
    return ""


async def test_a_tool_of_two_agents_is_one_object_in_one_execution() -> None:
    note = tool(name="note")(Notebook)
    helper = Agent(name="helper", tools=(note,))
    agent = Agent(tools=(note,), agents=(helper,))
    play, model = runtime(
        calls(call("note", note="mine")),
        calls(call("helper", request="note something")),
        calls(call("note", note="its")),
        "Noted.",
        "Done.",
    )
    await play.run(agent, "go")
    assert results(model.requests[3]) == [("mine, its", False)]


async def test_tools_of_one_name_in_two_agents_are_two_tools() -> None:
    agent = Agent(
        tools=(tool(name="note")(Notebook),),
        agents=(Agent(name="helper", tools=(tool(name="note")(Notebook),)),),
    )
    play, model = runtime(
        calls(call("note", note="mine")),
        calls(call("helper", request="note something")),
        calls(call("note", note="its")),
        "Noted.",
        "Done.",
    )
    await play.run(agent, "go")
    assert results(model.requests[3]) == [("its", False)]


async def test_parallel_calls_share_the_object_which_may_be_called_in_a_thread() -> None:
    class Threads:
        """Where it runs."""

        def __init__(self) -> None:
            self.calls = 0
            self.lock = threading.Lock()

        def __call__(self) -> int:
            assert threading.current_thread() is not threading.main_thread()
            with self.lock:
                self.calls += 1
                return self.calls

    agent = Agent(tools=(tool(name="count")(Threads),))
    play, model = runtime(calls(call("count", "c1"), call("count", "c2")), "Done.")
    await play.run(agent, "go")
    assert sorted(results(model.requests[1])) == [("1", False), ("2", False)]


async def test_an_object_that_cannot_be_built_is_a_failed_call() -> None:
    class Broken(Notebook):
        """Cannot be built."""

        def __init__(self) -> None:
            raise RuntimeError("a secret")

    agent = Agent(tools=(tool(name="note")(Broken),))
    play, model = runtime(calls(call("note", note="a")), "Sorry.")
    assert (await play.run(agent, "go")).text == "Sorry."
    assert results(model.requests[1]) == [("note failed because of an internal error.", True)]


async def test_state_is_shared_by_the_tools_of_one_execution_only() -> None:
    agent = Agent(tools=(remember,), agents=(Agent(name="helper", tools=(remember,)),))
    play, model = runtime(
        calls(call("remember", word="one")),
        calls(call("helper", request="remember two")),
        calls(call("remember", word="two")),
        "Done.",
        "Done.",
        calls(call("remember", word="three")),
        "Done.",
    )
    await play.run(agent, "go")
    await play.run(agent, "go")
    assert results(model.requests[3]) == [("one two", False)]
    assert results(model.requests[6]) == [("three", False)]
    assert not any("words" in text for request in model.requests for text in texts(request))


def test_what_costs_nothing_is_not_bound_anew() -> None:
    execution = Execution(Agent(tools=(remember,)))
    assert execution.tools(Agent(tools=(remember,)), nobody) == [remember]


# ---------------------------------------------------------------------- agents that ask agents

HELPER = Agent(
    name="researcher",
    description="Finds things out.",
    model="anthropic/claude-small",
    instructions="Search well.",
    memory=ConversationMemory().add_system("Be exact.").add_user("Hi.").add_assistant("Yes?"),
)
CHIEF = Agent(name="chief", model="anthropic/claude-large", agents=(HELPER,))
ASK = calls(call("researcher", request="How high is it?"))


async def test_an_agent_asks_another_as_a_tool() -> None:
    play, model = runtime(ASK, "8,849 m.", "It is 8,849 m high.")
    reply = await play.run(CHIEF, "How high is Everest?")
    assert reply.text == "It is 8,849 m high."
    chief, helper, again = model.requests
    assert (chief.model, helper.model, again.model) == (
        "claude-large",
        "claude-small",
        "claude-large",
    )
    assert helper.system == ("Search well.", "Be exact.")
    assert texts(helper) == ["Hi.", "Yes?", "How high is it?"]
    assert results(again) == [("8,849 m.", False)]
    # What they said to each other is no part of the conversation.
    assert [text_of(row.blocks) for row in reply.messages] == [
        "How high is Everest?",
        "",
        "",
        "It is 8,849 m high.",
    ]


def test_what_a_model_is_told_of_an_agent() -> None:
    made = agent_tool(HELPER, nobody)
    assert bytes(made.json).startswith(
        b'{"name":"researcher","description":"Finds things out.","input_schema":{"type":"object"'
    )
    assert b"Ask the agent plain." in bytes(agent_tool(Agent(name="plain"), nobody).json)
    assert made.timeout == HELPER.turn_timeout


async def test_agents_come_behind_the_tools_in_a_fixed_order() -> None:
    agent = replace(CHIEF, tools=(remember,), agents=(HELPER, Agent(name="writer")))
    play, model = runtime("Hello.")
    await play.run(agent, "Hi")
    named = [bytes(each).split(b'"')[3] for each in model.requests[0].tools]
    assert named == [b"remember", b"researcher", b"writer"]


async def test_what_the_other_spends_is_the_turns() -> None:
    play, _ = runtime(ASK, said("8,849 m.", usage=Usage(100, 20)), "So high.")
    reply = await play.run(CHIEF, "Everest?")
    assert reply.usage == USAGE + Usage(100, 20) + USAGE


async def test_what_it_spent_before_it_failed_is_the_turns_too() -> None:
    helper = replace(HELPER, tools=(remember,))
    play, _ = runtime(
        ASK, calls(call("remember", word="x")), ModelRefusedKey("no credit"), "Not known."
    )
    reply = await play.run(replace(CHIEF, agents=(helper,)), "Everest?")
    assert reply.usage == USAGE + USAGE + USAGE


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ([ModelRefusedKey("the key sk-1")], "researcher could not answer."),
        ([ModelUnavailable("529", 60.0)], "researcher could not answer."),
        ([said("", "refusal")], REFUSAL),
        (["", ""], NO_ANSWER),
    ],
)
async def test_a_failure_of_the_other_is_an_error_result(
    script: list[Script], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    play, model = runtime(ASK, *script, "I could not find out.")
    reply = await play.run(CHIEF, "Everest?")
    assert reply.text == "I could not find out."
    assert results(model.requests[-1]) == [(told, True)]


async def test_an_empty_request_is_not_asked() -> None:
    play, model = runtime(calls(call("researcher", request=" ")), "Hm.")
    await play.run(CHIEF, "Everest?")
    assert results(model.requests[-1]) == [("The request is empty.", True)]


async def test_one_that_takes_too_long_is_left() -> None:
    gone = asyncio.Event()

    async def hang(request: Request) -> Answer:
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()
        raise AssertionError

    helper = replace(HELPER, turn_timeout=0.01)
    play, model = runtime(ASK, hang, "No news.")
    assert (await play.run(replace(CHIEF, agents=(helper,)), "Everest?")).text == "No news."
    assert results(model.requests[-1]) == [("researcher did not answer within 0.01 seconds.", True)]
    assert gone.is_set()


async def test_several_are_asked_at_once() -> None:
    both = asyncio.Barrier(2)

    async def meet(request: Request) -> str:
        async with asyncio.timeout(5):
            await both.wait()
        return "Here."

    other = replace(HELPER, name="other")
    play, model = runtime(
        calls(call("researcher", "c1", request="a"), call("other", "c2", request="b")),
        meet,
        meet,
        "Both.",
    )
    await play.run(replace(CHIEF, agents=(HELPER, other)), "go")
    assert results(model.requests[-1]) == [("Here.", False), ("Here.", False)]


async def test_its_tools_and_events_carry_the_execution_and_its_own_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[ToolContext] = []

    @tool
    async def look(context: ToolContext) -> str:
        """Look."""
        seen.append(context)
        return "seen"

    helper = replace(HELPER, tools=(look,))
    agent = replace(CHIEF, agents=(helper,), tools=(look,), session_id="s1")
    play, _ = runtime(
        calls(call("look", "c0")), ASK, calls(call("look", "c9")), "Seen.", ASK,
        ModelUnavailable("529", 60.0), "Done.",
    )  # fmt: skip
    with caplog.at_level(logging.INFO, "chinwag"):
        reply = await play.run(agent, "go", sender="telegram:42")
    here = ("agent:chief/id/s1", reply.execution_id)
    assert [(each.session_key, each.execution_id) for each in seen] == [here, here]
    assert [(each.agent, each.call_id, each.sender) for each in seen] == [
        ("chief", "c0", "telegram:42"),
        ("researcher", "c9", "telegram:42"),
    ]
    assert seen[0].state is seen[1].state
    events = [(record.message, vars(record)["event"]) for record in caplog.records]
    assert {(event["key"], event["execution"]) for _, event in events} == {here}
    assert [(name, event["agent"]) for name, event in events] == [
        ("answered", "chief"),
        ("tool", "chief"),
        ("answered", "chief"),
        ("answered", "researcher"),
        ("tool", "researcher"),
        ("answered", "researcher"),
        ("tool", "chief"),
        ("answered", "chief"),
        ("agent.failed", "researcher"),
        ("tool", "chief"),
        ("answered", "chief"),
    ]


async def test_what_the_other_says_is_not_shown() -> None:
    play, _ = runtime(ASK, "Hidden words.", "Shown words.")
    assert [piece async for piece in play.stream(CHIEF, "go")] == ["Shown", " words."]


async def test_agents_may_ask_agents_but_not_without_end() -> None:
    tower = Agent(name="a0")
    for level in range(1, MAX_DEPTH):
        tower = Agent(name=f"a{level}", agents=(tower,))
    asks = [calls(call(f"a{level}", request="go on")) for level in reversed(range(MAX_DEPTH - 1))]
    play, model = runtime(*asks, *["Up."] * MAX_DEPTH)
    assert (await play.run(tower, "go")).text == "Up."
    assert len(model.requests) == 2 * MAX_DEPTH - 1
    with pytest.raises(ValueError, match=f"agents ask agents, {MAX_DEPTH} deep at most"):
        Agent(name="one too many", agents=(tower,))


def test_names_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="two tools are called remember"):
        Agent(tools=(remember,), agents=(Agent(name="remember"),))
    with pytest.raises(ValueError, match="letters, digits"):
        Agent(agents=(Agent(name="hr assistant"),))


def again(repeatable: bool) -> Tool:
    return tool(name="again", repeatable=repeatable)(nobody_function)


@pytest.mark.parametrize(
    ("agent", "repeatable"),
    [
        (Agent(name="a"), True),
        (Agent(name="a", tools=(again(True),)), True),
        (Agent(name="a", tools=(again(False),)), False),
        (Agent(name="a", agents=(Agent(name="b", tools=(again(False),)),)), False),
    ],
)
def test_it_is_asked_again_after_a_crash_when_all_its_tools_may_be(
    agent: Agent, repeatable: bool
) -> None:
    assert agent_tool(agent, nobody).repeatable == repeatable


@pytest.mark.parametrize("repeatable", [True, False])
async def test_a_question_that_a_crash_interrupted(repeatable: bool) -> None:
    """What the other said until then is gone: it is asked anew, or the one who asked is told."""
    helper = replace(HELPER, tools=(again(repeatable),))
    agent = replace(CHIEF, agents=(helper,))
    model = ScriptedModel(*(["8,849 m."] if repeatable else []), "Done.")
    steps = [
        Message(1, "user", encode_blocks([text_block("Everest?")]), 0),
        Message(2, "assistant", ASK.blocks, 0),
    ]
    finished = await run_turn(
        agent,
        model,
        (),
        steps,
        Unkept(),
        started=("c1",),
        place=Place(session_key="telegram-chat:1", execution="e2"),
        clock=FakeClock(),
    )
    assert isinstance(finished, Finished)
    assert finished.text == "Done."
    told = [("8,849 m.", False)] if repeatable else [(INTERRUPTED, True)]
    assert results(model.requests[-1]) == told
