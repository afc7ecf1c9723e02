"""One turn: a scripted model, real tools, and a journal that writes down what it is told."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from core.agent import Agent
from core.errors import (
    Fenced,
    ModelNotFound,
    ModelRefusedKey,
    ModelRejected,
    ModelUnavailable,
)
from core.history import INTERRUPTED, result
from core.memory import ConversationMemory
from core.messages import Message, Role, decode_blocks, encode_blocks, text_block, text_of
from core.model import Answer, OnText, Request, ToolCall
from core.results import Image
from core.server_tools import server_tool
from core.snapshot import Usage
from core.store import Blob, Blobs, SessionRef
from core.tools import Tool, ToolContext, tool
from core.turn import (
    ATTEMPTS,
    CUT_SHORT,
    MAX_PAUSES,
    NO_ANSWER,
    NO_TOOL,
    REFUSAL,
    Finished,
    Place,
    run_turn,
)
from stores.memory import MemoryStore
from tests.core.fakes import USAGE, FakeClock, Script, ScriptedModel, calls, said, settle

PLACE = Place(session_key="telegram-chat:1", execution="e1", sender="telegram:42")


@tool
async def echo(text: str) -> str:
    """Says the same."""
    return text


def call(name: str = "echo", id: str = "c1", **arguments: Any) -> ToolCall:
    if name == "echo" and not arguments:
        arguments = {"text": f"result of {id}"}
    return ToolCall(id=id, name=name, input=arguments)


def spoken(role: Role, text: str, seq: int = 10) -> Message:
    return Message(seq=seq, role=role, blocks=encode_blocks([text_block(text)]), at=0)


def blocks_of(message: Message) -> list[dict[str, object]]:
    return decode_blocks(message.blocks)


class Journal:
    """Everything it is told, in order.

    :param fenced: after so many entries the turn is not the one any more
    """

    def __init__(self, fenced: int | None = None) -> None:
        self.entries: list[tuple[str, Any, Any]] = []
        self._fenced = fenced

    async def answered(self, blocks: Sequence[msgspec.Raw], started: tuple[str, ...]) -> None:
        self._add("answered", [decode_blocks(each) for each in blocks], started)

    async def results(self, blocks: msgspec.Raw) -> None:
        self._add("results", decode_blocks(blocks), None)

    def _add(self, kind: str, blocks: Any, started: Any) -> None:
        if self._fenced is not None and len(self.entries) >= self._fenced:
            raise Fenced
        self.entries.append((kind, blocks, started))

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.entries]


class Turn:
    """One turn and all that it is given."""

    def __init__(self, *script: Script, tools: Sequence[Tool] = (echo,), **agent: Any) -> None:
        self.model = ScriptedModel(*script)
        self.agent = Agent(tools=tuple(tools), **agent)
        self.journal = Journal()
        self.clock = FakeClock()
        self.shown: list[str] = []

    async def run(
        self,
        messages: Sequence[Message] = (),
        steps: Sequence[Message] = (spoken("user", "Hello"),),
        *,
        started: tuple[str, ...] = (),
        configured: str | None = None,
        seen: bool = True,
        blobs: Blobs | None = None,
    ) -> Finished:
        def show(text: str) -> bool:
            self.shown.append(text)
            return seen

        finished = await run_turn(
            self.agent,
            self.model,
            messages,
            steps,
            self.journal,
            show,
            started=started,
            configured=configured,
            place=PLACE,
            clock=self.clock,
            blobs=blobs,
        )
        assert isinstance(finished, Finished)
        return finished

    def last_request(self) -> list[tuple[str, Any]]:
        """Roles and blocks of the last request's messages."""
        return [(each.role, blocks_of(each)) for each in self.model.requests[-1].messages]


# ---------------------------------------------------------------------- an answer


async def test_an_answer() -> None:
    turn = Turn("Guten Tag.")
    finished = await turn.run()
    assert finished == Finished(
        blocks=(finished.blocks[0],),
        text="Guten Tag.",
        usage=USAGE,
        outcome="answered",
        window=None,
    )
    assert decode_blocks(finished.blocks[0]) == [{"type": "text", "text": "Guten Tag."}]
    assert turn.journal.entries == []
    assert turn.clock.slept == []


async def test_what_is_asked() -> None:
    memory = ConversationMemory().add_system("Be kind.").add_user("not here")
    turn = Turn(
        "Hi.",
        model="anthropic/claude-x",
        instructions="Be brief.",
        memory=memory,
        thinking="adaptive",
        effort="low",
        max_tokens=77,
    )
    await turn.run([spoken("user", "Before", 1), spoken("assistant", "Yes", 2)])
    (request,) = turn.model.requests
    assert request == Request(
        provider="anthropic",
        model="claude-x",
        system=("Be brief.", "Be kind."),
        messages=request.messages,
        tools=(echo.json,),
        use_tools=True,
        max_tokens=77,
        thinking="adaptive",
        effort="low",
    )
    assert [text_of(each.blocks) for each in request.messages] == ["Before", "Yes", "Hello"]


async def test_without_instructions_there_is_no_system() -> None:
    turn = Turn("Hi.", instructions="")
    await turn.run()
    assert turn.model.requests[0].system == ()


async def test_the_history_is_repaired_before_it_is_sent() -> None:
    turn = Turn("Hi.")
    torn = Message(seq=2, role="assistant", blocks=calls(call()).blocks, at=0)
    await turn.run([spoken("user", "Before", 1), torn])
    assert turn.last_request()[2][1][0]["content"] == INTERRUPTED


async def test_blocks_are_kept_byte_for_byte() -> None:
    odd = msgspec.Raw(
        b'[ {"type":"thinking","thinking":"","signature":"s=="},{"type":"text","text":"H\\u0069"} ]'
    )
    finished = await Turn(msgspec.structs.replace(said("Hi"), blocks=odd)).run()
    assert finished.blocks == (odd,)


async def test_the_answer_is_shown_as_it_grows() -> None:
    turn = Turn("One two three.")
    await turn.run()
    assert turn.shown == ["One", "One two", "One two three."]


async def test_nobody_needs_to_be_shown_anything() -> None:
    finished = await run_turn(
        Agent(),
        ScriptedModel("Hi."),
        (),
        [spoken("user", "Hello")],
        Journal(),
        place=PLACE,
        clock=FakeClock(),
    )
    assert isinstance(finished, Finished)
    assert finished.text == "Hi."


# ---------------------------------------------------------------------- tools


async def test_a_round_of_tools() -> None:
    turn = Turn(calls(call(), text="Let me see. "), "It is so.")
    finished = await turn.run()
    wanted: Any = blocks_of(Message(seq=0, role="assistant", blocks=turn_blocks(turn, 0), at=0))
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "result of c1"}
    assert turn.journal.entries == [
        ("answered", [wanted], ("c1",)),
        ("results", [result], None),
    ]
    assert turn.last_request() == [
        ("user", [text_block("Hello")]),
        ("assistant", wanted),
        ("user", [result]),
    ]
    assert [decode_blocks(each) for each in finished.blocks] == [[text_block("It is so.")]]
    assert finished.text == "Let me see.\n\nIt is so."
    assert finished.usage == USAGE + USAGE
    assert [request.use_tools for request in turn.model.requests] == [True, True]


def turn_blocks(turn: Turn, entry: int) -> msgspec.Raw:
    return encode_blocks(turn.journal.entries[entry][1][0])


async def test_calls_of_one_answer_run_at_once_and_their_results_are_in_order() -> None:
    """Each waits for all others to have begun; the first is the last to end."""
    begun: list[str] = []
    all_begun, others_done = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    @tool
    async def meet(who: str) -> str:
        begun.append(who)
        if len(begun) == 3:
            all_begun.set()
        await all_begun.wait()
        if who == "a":
            await others_done.wait()
        ended.append(who)
        if len(ended) == 2:
            others_done.set()
        return f"I am {who}"

    wanted = [call("meet", f"c{who}", who=who) for who in "abc"]
    turn = Turn(calls(*wanted), "Done.", tools=[meet])
    await turn.run()
    assert ended[-1] == "a"
    results = turn.journal.entries[1][1]
    assert [result["tool_use_id"] for result in results] == ["ca", "cb", "cc"]
    assert [result["content"] for result in results] == ["I am a", "I am b", "I am c"]


async def test_the_journal_is_told_before_a_call_runs_and_after() -> None:
    turn = Turn()
    at: list[list[str]] = []

    @tool
    async def look() -> None:
        at.append(turn.journal.kinds)

    turn.agent = Agent(tools=(look,))
    turn.model.script = [calls(call("look", "c1"), call("look", "c2")), calls(call("look")), "Hm."]
    await turn.run()
    assert at == [["answered"], ["answered"], ["answered", "results", "answered"]]
    assert turn.journal.kinds == ["answered", "results", "answered", "results"]
    assert turn.journal.entries[0][2] == ("c1", "c2")
    assert turn.journal.entries[2][2] == ("c1",)


async def test_whatever_a_tool_does_is_a_plain_sentence(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    async def broken() -> None:
        raise ValueError("a secret")

    @tool(timeout=0.02)
    async def slow() -> None:
        await asyncio.Event().wait()

    wanted = calls(
        call("broken", "c1"),
        call("slow", "c2"),
        call("nothing", "c3"),
        ToolCall(id="c4", name="echo", input={"words": 1}),
        call("echo", "c5"),
    )
    turn = Turn(wanted, "I see.", tools=[broken, slow, echo])
    with caplog.at_level(logging.INFO, "chinwag"):
        assert (await turn.run()).text == "I see."
    results = turn.journal.entries[1][1]
    assert [result["content"] for result in results] == [
        "broken failed because of an internal error.",
        "slow did not answer within 0.02 seconds.",
        "There is no tool called 'nothing'. Tools: broken, echo, slow.",
        "The arguments do not fit: Object contains unknown field `words`",
        "result of c5",
    ]
    assert [result.get("is_error") for result in results] == [True, True, True, True, None]
    assert "secret" not in caplog.text


async def test_a_tool_that_is_not_async_does_not_stop_the_others() -> None:
    """The plain one, in its thread, goes on only when the async one has run."""
    go_on = threading.Event()

    @tool
    def plain() -> bool:
        return go_on.wait(5)

    @tool
    async def other() -> None:
        go_on.set()

    turn = Turn(
        calls(call("plain", "c1"), call("other", "c2")),
        "Done.",
        tools=[plain, other],
    )
    await turn.run()
    assert [result["content"] for result in turn.journal.entries[1][1]] == ["true", "Done."]


async def test_the_state_of_an_execution_is_shared_and_then_gone() -> None:
    contexts: list[ToolContext] = []

    @tool
    async def count(context: ToolContext) -> int:
        contexts.append(context)
        context.state["n"] = context.state.get("n", 0) + 1
        return int(context.state["n"])

    def one(id: str) -> ToolCall:
        return ToolCall(id=id, name="count", input={})

    for _ in range(2):
        turn = Turn(calls(one("a"), one("b")), calls(one("c")), "Done.", tools=[count], name="bob")
        await turn.run()
        told = [result["content"] for entry in turn.journal.entries[1::2] for result in entry[1]]
        assert told == ["1", "2", "3"]
        assert "state" not in str(turn.last_request())
    assert contexts[0].state is contexts[2].state
    assert contexts[0].state is not contexts[3].state
    first = contexts[0]
    assert (first.session_key, first.execution_id, first.call_id, first.agent, first.sender) == (
        "telegram-chat:1",
        "e1",
        "a",
        "bob",
        "telegram:42",
    )


async def test_concurrent_turns_never_see_each_others_state() -> None:
    both = asyncio.Barrier(2)

    @tool
    async def mark(who: str, context: ToolContext) -> str:
        context.state["who"] = who
        await both.wait()
        return str(context.state["who"])

    turns = [Turn(calls(call("mark", f"c-{who}", who=who)), "Done.", tools=[mark]) for who in "ab"]
    await asyncio.gather(*(turn.run() for turn in turns))
    assert [turn.journal.entries[1][1][0]["content"] for turn in turns] == ["a", "b"]


async def test_what_is_said_between_calls_is_part_of_the_text() -> None:
    turn = Turn(
        calls(call(), text="  First I look.\n"),
        calls(call(id="c2")),
        calls(call(id="c3"), text="Now I look again."),
        " There it is. ",
    )
    finished = await turn.run()
    assert finished.text == "First I look.\n\nNow I look again.\n\nThere it is."
    assert turn.shown[-1].rstrip() == finished.text
    # What is shown only ever grows.
    for before, after in zip(turn.shown, turn.shown[1:], strict=False):
        assert after.startswith(before.rstrip())


# ---------------------------------------------------------------------- an end to rounds


async def test_the_last_request_of_a_long_turn_may_not_use_tools() -> None:
    script = [calls(call(id=f"c{number}")) for number in range(3)]
    turn = Turn(*script, "Enough.", max_rounds=3)
    finished = await turn.run()
    assert finished.text == "Enough."
    assert [request.use_tools for request in turn.model.requests] == [True, True, True, False]
    # The tools stay in the prompt: without them it would be another one, for the cache too.
    assert all(request.tools == (echo.json,) for request in turn.model.requests)


async def test_a_model_that_calls_although_it_must_not_is_not_obeyed() -> None:
    turn = Turn(calls(call()), calls(call(id="c2"), text="I cannot stop."), max_rounds=1)
    finished = await turn.run()
    assert finished.text == "I cannot stop."
    assert finished.outcome == "answered"
    assert [decode_blocks(each) for each in finished.blocks] == [[text_block("I cannot stop.")]]
    assert turn.journal.kinds == ["answered", "results"]


async def test_a_model_that_only_ever_calls_comes_to_an_end() -> None:
    again: list[Script] = [calls(call(id=f"c{number}")) for number in range(20)]
    turn = Turn(*again, max_rounds=2)
    finished = await turn.run()
    assert finished.outcome == "empty"
    assert turn.journal.kinds == ["answered", "results"] * 2
    assert len(turn.model.requests) == 4


async def test_rounds_of_an_earlier_attempt_count() -> None:
    turn = Turn("Enough.", max_rounds=1)
    done = [
        spoken("user", "Hello", 10),
        Message(seq=11, role="assistant", blocks=calls(call()).blocks, at=0),
        Message(seq=12, role="user", blocks=results_of("c1"), at=0),
    ]
    await turn.run(steps=done)
    assert turn.model.requests[0].use_tools is False


def results_of(*ids: str) -> msgspec.Raw:
    return encode_blocks(
        [{"type": "tool_result", "tool_use_id": id, "content": "old"} for id in ids]
    )


# ---------------------------------------------------------------------- after a crash


def crashed(*wanted: ToolCall, text: str = "") -> list[Message]:
    """Steps that end between calls and their results."""
    answer = calls(*wanted, text=text)
    return [
        spoken("user", "Hello", 10),
        Message(seq=11, role="assistant", blocks=answer.blocks, at=0),
    ]


@pytest.mark.parametrize(
    ("repeatable", "started", "runs"),
    [(False, True, False), (True, True, True), (False, False, True), (True, False, True)],
)
async def test_a_call_without_its_result(repeatable: bool, started: bool, runs: bool) -> None:
    ran: list[str] = []

    @tool(repeatable=repeatable)
    async def pay(context: ToolContext) -> str:
        ran.append(context.call_id)
        return "paid"

    turn = Turn("So be it.", tools=[pay])
    finished = await turn.run(
        steps=crashed(call("pay", "c1"), text="I pay."),
        started=("c1",) if started else (),
    )
    assert ran == (["c1"] if runs else [])
    result: dict[str, object] = {"type": "tool_result", "tool_use_id": "c1", "content": "paid"}
    if not runs:
        result |= {"content": INTERRUPTED, "is_error": True}
    assert turn.journal.entries == [("results", [result], None)]
    assert turn.last_request()[-1] == ("user", [result])
    assert finished.text == "I pay.\n\nSo be it."
    assert [decode_blocks(each) for each in finished.blocks] == [[text_block("So be it.")]]


async def test_each_call_is_judged_by_itself() -> None:
    ran: list[str] = []

    @tool
    async def pay(context: ToolContext) -> None:
        ran.append(context.call_id)

    @tool(repeatable=True)
    async def look(context: ToolContext) -> None:
        ran.append(context.call_id)

    wanted = [("c1", "pay"), ("c2", "look"), ("c3", "pay"), ("c4", "gone")]
    turn = Turn("So be it.", tools=[pay, look])
    await turn.run(
        steps=crashed(*(ToolCall(id=id, name=name, input={}) for id, name in wanted)),
        started=("c1", "c2", "c4"),
    )
    assert ran == ["c2", "c3"]
    results = turn.journal.entries[0][1]
    assert [result["tool_use_id"] for result in results] == ["c1", "c2", "c3", "c4"]
    assert [result["content"] for result in results] == [INTERRUPTED, "Done.", "Done.", INTERRUPTED]


async def test_a_result_that_was_saved_is_kept() -> None:
    turn = Turn("So be it.")
    results = Message(seq=12, role="user", blocks=results_of("c1"), at=0)
    await turn.run(steps=[*crashed(call(), text="I look."), results], started=())
    assert turn.journal.entries == []
    assert turn.last_request()[-1][1][0]["content"] == "old"
    assert turn.shown[0] == "I look.\n\nSo"


async def test_what_was_said_before_the_turn_is_not_said_again() -> None:
    turn = Turn("New.")
    seeds = [spoken("user", "I am Alice", 8), spoken("assistant", "Hi Alice.", 9)]
    assert (await turn.run(steps=[*seeds, spoken("user", "Hello")])).text == "New."


# ---------------------------------------------------------------------- other stop reasons


async def test_a_pause_goes_on_with_what_was_said() -> None:
    first, second = said("I search", "pause_turn"), said(" and I find.")
    turn = Turn(first, second)
    finished = await turn.run()
    assert turn.last_request() == [
        ("user", [text_block("Hello")]),
        ("assistant", [text_block("I search")]),
    ]
    assert finished.text == "I search and I find."
    assert finished.blocks == (first.blocks, second.blocks)
    assert finished.outcome == "answered"
    assert turn.shown[-1] == "I search and I find."


async def test_a_pause_before_a_call_is_saved_with_it() -> None:
    turn = Turn(said("I search", "pause_turn"), calls(call(), text=" and call."), "Done.")
    finished = await turn.run()
    answered = turn.journal.entries[0]
    assert [blocks[0] for blocks in answered[1]] == [
        text_block("I search"),
        text_block(" and call."),
    ]
    assert answered[2] == ("c1",)
    assert finished.text == "I search and call.\n\nDone."
    assert len(finished.blocks) == 1


async def test_pauses_come_to_an_end() -> None:
    turn = Turn(*[said("so ", "pause_turn") for _ in range(MAX_PAUSES + 1)])
    finished = await turn.run()
    assert finished.text == "so " * MAX_PAUSES + "so"
    assert finished.outcome == "answered"
    assert len(finished.blocks) == MAX_PAUSES + 1


async def test_a_refusal_takes_the_place_of_what_was_said() -> None:
    finished = await Turn(said("First you take", "refusal")).run()
    assert (finished.text, finished.outcome) == (REFUSAL, "refused")
    assert [decode_blocks(each) for each in finished.blocks] == [[text_block(REFUSAL)]]


async def test_a_refusal_after_a_pause_and_after_tools() -> None:
    turn = Turn(calls(call(), text="I look."), said("I search", "pause_turn"), said("", "refusal"))
    finished = await turn.run()
    assert (finished.text, finished.outcome) == (REFUSAL, "refused")
    assert [decode_blocks(each) for each in finished.blocks] == [[text_block(REFUSAL)]]
    assert turn.journal.kinds == ["answered", "results"]


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
async def test_an_answer_that_was_cut(reason: str) -> None:
    answer = said("Once upon a ", reason)
    finished = await Turn(answer).run()
    assert finished.text == "Once upon a" + CUT_SHORT
    assert finished.outcome == "cut"
    assert finished.blocks == (answer.blocks,)


async def test_an_answer_that_was_cut_in_the_middle_of_a_call() -> None:
    half = ToolCall(id="c1", name="echo", input={})
    turn = Turn(calls(half, text="I look.", stop_reason="max_tokens"))
    finished = await turn.run()
    assert finished.text == "I look." + CUT_SHORT
    assert finished.outcome == "cut"
    assert [decode_blocks(each) for each in finished.blocks] == [[text_block("I look.")]]
    assert turn.journal.entries == []


async def test_half_a_call_and_nothing_else() -> None:
    turn = Turn(calls(call(), stop_reason="max_tokens"))
    finished = await turn.run()
    assert (finished.text, finished.outcome) == (NO_ANSWER, "empty")
    assert [decode_blocks(each) for each in finished.blocks] == [[text_block(NO_ANSWER)]]
    assert len(turn.model.requests) == 1


@pytest.mark.parametrize("nothing", ["", " \n\n "])
async def test_an_empty_answer_is_asked_for_once_more(nothing: str) -> None:
    turn = Turn(nothing, "Here.")
    finished = await turn.run()
    assert (finished.text, finished.outcome) == ("Here.", "answered")
    assert finished.usage == USAGE + USAGE
    assert turn.shown == ["Here."]
    assert turn.model.requests[0] == turn.model.requests[1]


@pytest.mark.parametrize("nothing", ["", " \n\n "])
async def test_an_empty_answer_twice(nothing: str) -> None:
    turn = Turn(nothing, nothing)
    finished = await turn.run()
    assert (finished.text, finished.outcome) == (NO_ANSWER, "empty")
    assert [decode_blocks(each) for each in finished.blocks] == [[text_block(NO_ANSWER)]]
    assert turn.shown == []


async def test_an_empty_answer_after_something_was_said() -> None:
    pause = said("I search.", "pause_turn")
    turn = Turn(calls(call(), text="I look."), pause, "", "")
    finished = await turn.run()
    assert finished.text == f"I look.\n\nI search.\n\n{NO_ANSWER}"
    assert [decode_blocks(each) for each in finished.blocks] == [
        [text_block("I search.")],
        [text_block(NO_ANSWER)],
    ]


async def test_only_thinking_is_no_answer() -> None:
    thought = msgspec.Raw(b'[{"type":"thinking","thinking":"hm","signature":"s"}]')
    turn = Turn(msgspec.structs.replace(said(""), blocks=thought), "Here.")
    assert (await turn.run()).text == "Here."


async def test_a_stop_reason_that_nobody_knows_ends_the_turn() -> None:
    finished = await Turn(said("Well.", "tired")).run()
    assert (finished.text, finished.outcome) == ("Well.", "answered")


async def test_calls_under_a_stop_reason_that_nobody_knows_are_not_run() -> None:
    turn = Turn(calls(call(), text="Well.", stop_reason="tired"))
    finished = await turn.run()
    assert finished.text == "Well."
    assert [decode_blocks(each) for each in finished.blocks] == [[text_block("Well.")]]


# ---------------------------------------------------------------------- when the model fails


def overloaded(retry_after: float | None = None) -> ModelUnavailable:
    return ModelUnavailable("529 overloaded_error", retry_after)


async def test_another_attempt_after_a_pause_that_grows() -> None:
    turn = Turn(overloaded(), overloaded(), "Here.")
    finished = await turn.run()
    assert finished.text == "Here."
    first, second = turn.clock.slept
    assert 1.0 <= first <= 1.25
    assert 2.0 <= second <= 2.25
    assert turn.model.requests[0] == turn.model.requests[2]
    assert finished.usage == USAGE


async def test_attempts_come_to_an_end() -> None:
    turn = Turn(*[overloaded() for _ in range(ATTEMPTS)])
    with pytest.raises(ModelUnavailable, match="529"):
        await turn.run()
    assert len(turn.model.requests) == ATTEMPTS == 3


async def test_the_service_says_how_long_to_wait() -> None:
    turn = Turn(overloaded(4.0), overloaded(0.0), "Here.")
    await turn.run()
    first, second = turn.clock.slept
    assert 4.0 <= first <= 4.25
    assert 2.0 <= second <= 2.25


async def test_nobody_waits_long_in_front_of_a_chat() -> None:
    turn = Turn(overloaded(30.0), "never asked")
    with pytest.raises(ModelUnavailable) as raised:
        await turn.run()
    assert raised.value.retry_after == 30.0
    assert turn.clock.slept == []


class Breaking(ScriptedModel):
    """A text in the script that ends with … is broken off there."""

    async def answer(self, request: Request, on_text: OnText | None = None) -> Answer:
        answer = await super().answer(request, on_text)
        if answer.text.endswith("…"):
            raise overloaded()
        return answer


async def test_no_other_attempt_after_something_was_seen() -> None:
    turn = Turn()
    turn.model = Breaking("I will tell…", "never asked")
    with pytest.raises(ModelUnavailable):
        await turn.run()
    assert turn.shown[-1] == "I will tell…"
    assert len(turn.model.requests) == 1


async def test_another_attempt_when_nobody_has_seen_anything() -> None:
    turn = Turn()
    turn.model = Breaking("I will tell…", "I will tell you.")
    assert (await turn.run(seen=False)).text == "I will tell you."


async def test_what_was_seen_before_a_tool_ran_does_not_forbid_another_attempt() -> None:
    """It stays on the screen, and the answer goes on after it."""
    turn = Turn()
    turn.model = Breaking(calls(call(), text="I look."), overloaded(), "There.")
    assert (await turn.run()).text == "I look.\n\nThere."
    assert turn.shown == ["I", "I look.", "I look.\n\nThere."]


@pytest.mark.parametrize("error", [ModelRefusedKey, ModelNotFound])
async def test_what_no_attempt_can_help(error: type[Exception]) -> None:
    turn = Turn(error("no"), "never asked")
    with pytest.raises(error):
        await turn.run()
    assert len(turn.model.requests) == 1


# ---------------------------------------------------------------------- another model


def asked(turn: Turn) -> list[str]:
    return [f"{request.provider}/{request.model}" for request in turn.model.requests]


@pytest.mark.parametrize("error", [ModelRefusedKey("no key"), ModelNotFound("404"), overloaded()])
async def test_the_fallback_takes_over(error: Exception) -> None:
    tries = 3 if isinstance(error, ModelUnavailable) else 1
    turn = Turn(*[error] * tries, "Here.", model="anthropic/a", fallback="openai/b")
    assert (await turn.run()).text == "Here."
    assert asked(turn) == ["anthropic/a"] * tries + ["openai/b"]


async def test_it_stays_for_the_rest_of_the_turn() -> None:
    turn = Turn(ModelNotFound("404"), calls(call()), "Done.", model="x/a", fallback="x/b")
    assert (await turn.run()).text == "Done."
    assert asked(turn) == ["x/a", "x/b", "x/b"]


async def test_tools_that_have_run_do_not_run_again_for_it() -> None:
    turn = Turn(calls(call()), ModelRefusedKey("no credit"), "Done.", model="x/a", fallback="x/b")
    assert (await turn.run()).text == "Done."
    assert asked(turn) == ["x/a", "x/a", "x/b"]
    assert turn.journal.kinds == ["answered", "results"]


async def test_not_after_something_was_shown() -> None:
    turn = Turn(fallback="x/b")
    turn.model = Breaking("I will tell…", "never asked")
    with pytest.raises(ModelUnavailable):
        await turn.run()
    assert len(turn.model.requests) == 1


async def test_it_may_fail_too() -> None:
    turn = Turn(ModelRefusedKey("a"), ModelRefusedKey("b"), model="x/a", fallback="x/b")
    with pytest.raises(ModelRefusedKey, match="b"):
        await turn.run()
    assert asked(turn) == ["x/a", "x/b"]


async def test_a_chosen_model_that_is_gone_gives_way_to_the_configured_one_first() -> None:
    turn = Turn(*[ModelNotFound("404")] * 2, "Here.", model="x/chosen", fallback="x/b")
    assert (await turn.run(configured="x/a")).text == "Here."
    assert asked(turn) == ["x/chosen", "x/a", "x/b"]


async def test_a_chosen_model_that_only_fails_does_not() -> None:
    turn = Turn(ModelRefusedKey("no"), model="x/chosen")
    with pytest.raises(ModelRefusedKey):
        await turn.run(configured="x/a")
    assert asked(turn) == ["x/chosen"]


async def test_a_whole_turn_has_a_deadline() -> None:
    async def never(_: Request) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    turn = Turn(never, turn_timeout=0.02)
    with pytest.raises(ModelUnavailable, match=r"no answer within 0\.02 s"):
        await turn.run()


async def test_the_deadline_holds_for_tools_too_and_cancels_them() -> None:
    cancelled: list[str] = []

    @tool
    async def slow(who: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(who)

    wanted = [call("slow", f"c{who}", who=who) for who in "ab"]
    turn = Turn(calls(*wanted), tools=[slow], turn_timeout=0.02)
    with pytest.raises(ModelUnavailable):
        await turn.run()
    assert sorted(cancelled) == ["a", "b"]
    assert turn.journal.kinds == ["answered"]


async def test_a_time_out_of_somebody_else_is_not_the_deadline() -> None:
    with pytest.raises(TimeoutError):
        await Turn(TimeoutError()).run()


async def test_cancelling_the_turn_cancels_its_tools() -> None:
    begun, cancelled = asyncio.Barrier(3), []

    @tool
    async def slow(who: str) -> None:
        await begun.wait()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(who)

    wanted = [call("slow", f"c{who}", who=who) for who in "ab"]
    turn = Turn(calls(*wanted), tools=[slow])
    running = asyncio.create_task(turn.run())
    await begun.wait()
    await settle()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sorted(cancelled) == ["a", "b"]
    assert turn.journal.kinds == ["answered"]


# ---------------------------------------------------------------------- a history refused


def talk(*seqs: int) -> list[Message]:
    """Exchanges of two messages, each beginning at its seq."""
    return [
        message
        for seq in seqs
        for message in (spoken("user", f"q{seq}", seq), spoken("assistant", f"a{seq}", seq + 1))
    ]


async def test_a_refused_history_is_shortened_to_its_last_exchange(
    caplog: pytest.LogCaptureFixture,
) -> None:
    turn = Turn(ModelRejected("400 too long"), "Here.")
    with caplog.at_level(logging.WARNING, "chinwag"):
        finished = await turn.run(talk(2, 4, 6))
    assert finished.text == "Here."
    assert finished.window == 6
    assert [each.seq for each in turn.model.requests[1].messages] == [6, 7, 10]
    assert [record.message for record in caplog.records] == ["model.rejected"]


async def test_a_single_refused_exchange_goes_altogether() -> None:
    turn = Turn(ModelRejected("400 too long"), "Here.")
    finished = await turn.run(talk(6))
    assert finished.window == 10
    assert [each.seq for each in turn.model.requests[1].messages] == [10]


async def test_the_last_exchange_may_be_the_one_that_is_refused() -> None:
    turn = Turn(ModelRejected("400 first"), ModelRejected("400 second"), "Here.")
    finished = await turn.run(talk(2, 4, 6))
    assert finished.window == 10
    sent = [[each.seq for each in request.messages] for request in turn.model.requests]
    assert sent == [[2, 3, 4, 5, 6, 7, 10], [6, 7, 10], [10]]


async def test_what_is_refused_alone_is_to_blame_itself() -> None:
    turn = Turn(*(ModelRejected(f"400 {which}") for which in "abc"), "never asked")
    with pytest.raises(ModelRejected, match="c"):
        await turn.run(talk(2, 4, 6))
    assert len(turn.model.requests) == 3


async def test_without_a_history_there_is_nothing_to_shorten() -> None:
    turn = Turn(ModelRejected("400 no"), "never asked")
    with pytest.raises(ModelRejected):
        await turn.run()
    assert len(turn.model.requests) == 1


async def test_the_shortened_history_stays_so_for_the_whole_turn() -> None:
    turn = Turn(ModelRejected("400"), overloaded(), calls(call()), "Here.")
    finished = await turn.run(talk(2, 4))
    assert finished.window == 4
    assert [request.messages[0].seq for request in turn.model.requests] == [2, 4, 4, 4]


# ---------------------------------------------------------------------- fenced


@pytest.mark.parametrize(("fenced", "ran"), [(0, 0), (1, 1)])
async def test_a_fenced_journal_stops_the_turn(fenced: int, ran: int) -> None:
    runs: list[None] = []

    @tool
    async def look() -> None:
        runs.append(None)

    turn = Turn(calls(call("look", "c1")), "never asked", tools=[look])
    turn.journal = Journal(fenced)
    with pytest.raises(Fenced):
        await turn.run()
    assert len(runs) == ran
    assert len(turn.model.requests) == 1


async def test_events_hold_no_text(caplog: pytest.LogCaptureFixture) -> None:
    turn = Turn(overloaded(), calls(call(text="secret"), text="secret"), "secret")
    with caplog.at_level(logging.INFO, "chinwag"):
        await turn.run()
    names = [record.message for record in caplog.records]
    assert names == ["model.again", "answered", "tool", "answered"]
    assert "secret" not in str([record.__dict__ for record in caplog.records])
    assert caplog.records[1].__dict__["event"]["cached"] == USAGE.cache_read_input_tokens
    assert Usage() + USAGE == USAGE


# ---------------------------------------------------------------------- blobs, the provider's tools


async def test_what_a_tool_shows_is_kept_and_sent() -> None:
    png = b"\x89PNG\r\n\x1a\n"
    store = MemoryStore()

    @tool
    def look() -> Image:
        return Image(png)

    turn = Turn(calls(call("look")), "A picture.", tools=[look])
    await turn.run(blobs=store.blobs)
    ((kind, (block,), _),) = turn.journal.entries[1:]
    assert kind == "results"
    (shown,) = block["content"]
    assert shown["source"]["type"] == "blob"
    assert await store.blobs.get(shown["source"]["id"]) == Blob("image/png", png)
    (sent,) = blocks_of(turn.model.requests[1].messages[-1])
    assert isinstance(sent["content"], list)
    assert sent["content"][0]["source"] == {
        "type": "base64",
        "media_type": "image/png",
        "data": "iVBORw0KGgo=",
    }
    # The conversation uses it: what it was put under is its key.
    await store.clear(SessionRef("telegram-chat:1"))
    assert await store.blobs.get(shown["source"]["id"]) is None


async def test_calls_of_an_earlier_attempt_count() -> None:
    @tool(max_calls=2)
    def few() -> str:
        return "ran"

    steps = (
        spoken("user", "Hello"),
        Message(seq=11, role="assistant", blocks=calls(call("few")).blocks, at=0),
        Message(seq=12, role="user", blocks=encode_blocks([result("c1", "ran")]), at=0),
        Message(
            seq=13,
            role="assistant",
            blocks=calls(call("few", "c2"), call("few", "c3")).blocks,
            at=0,
        ),
    )
    turn = Turn("Done.", tools=[few])
    await turn.run(steps=steps)
    ((_, blocks, _),) = turn.journal.entries
    assert [block.get("is_error", False) for block in blocks] == [False, True]


async def test_a_history_with_calls_is_sent_although_there_are_no_tools_any_more() -> None:
    messages = (
        spoken("user", "Hello", 1),
        Message(seq=2, role="assistant", blocks=calls(call()).blocks, at=0),
        Message(seq=3, role="user", blocks=encode_blocks([result("c1", "ran")]), at=0),
        spoken("assistant", "Done.", 4),
    )
    turn = Turn("Hello again.", "Hello.", tools=[])
    await turn.run(messages)
    await turn.run()
    with_calls, without = turn.model.requests
    assert (with_calls.tools, with_calls.use_tools) == ((NO_TOOL,), False)
    assert (without.tools, without.use_tools) == ((), True)


async def test_an_answer_goes_on_where_its_code_has_run() -> None:
    first = replace(said("I compute", "pause_turn"), container="container_1")
    turn = Turn(first, calls(call(), text=" and"), " found.", tools=[echo])
    await turn.run()
    assert [request.container for request in turn.model.requests] == [
        None,
        "container_1",
        "container_1",
    ]


async def test_what_the_provider_ran_is_kept_as_it_came() -> None:
    block: dict[str, object] = {"type": "server_tool_use", "id": "s1", "name": "web_search"}
    found: dict[str, object] = {"type": "web_search_tool_result", "tool_use_id": "s1"}
    pause = replace(said("I search", "pause_turn"), blocks=encode_blocks([block]))
    goes_on = replace(said("Found."), blocks=encode_blocks([found, text_block("Found.")]))
    turn = Turn(pause, goes_on, tools=[server_tool("web_search")])
    finished = await turn.run()
    assert [decode_blocks(each) for each in finished.blocks] == [
        [block],
        [found, text_block("Found.")],
    ]
    assert blocks_of(turn.model.requests[1].messages[-1]) == [block]
    assert b"web_search_20260318" in bytes(turn.model.requests[0].tools[0])


def statements(count: int) -> int:
    """How many lines of ours a turn without calls runs, with so many tools."""
    tools = [replace(echo, name=f"echo_{number}") for number in range(count)]
    turn = Turn("Hello.", tools=tools)
    lines = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        if "/core/" in frame.f_code.co_filename and "/tests/" not in frame.f_code.co_filename:
            lines += event == "line"
            return trace
        return None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        asyncio.run(turn.run())
    finally:
        sys.settrace(before)
    return lines


def test_tools_that_are_not_called_cost_next_to_nothing() -> None:
    """Of their 20 each costs a few lines, and the whole turn no more than a few hundred: at less
    than a microsecond a line that is far below the millisecond it may cost. The bench measures."""
    none, twenty = statements(0), statements(20)
    assert (twenty - none) / 20 < 8
    assert twenty < 600
