"""A turn that needs an approval: what runs before, what after, and who is asked at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from core import approvals, history
from core.agent import Agent
from core.errors import ModelUnavailable, ToolError
from core.history import INTERRUPTED
from core.messages import Message, decode_blocks, encode_blocks, text_block
from core.model import ToolCall
from core.session import Session
from core.snapshot import Suspension
from core.tools import Tool, ToolContext, tool
from core.turn import Approve, Finished, Place, Suspended, run_turn
from tests.core.fakes import NOON, USAGE, FakeClock, ScriptedModel, calls
from tests.core.test_turn import Journal, spoken

PLACE = Place(session_key="telegram-chat:1", execution="e1", sender="telegram:42")
ran: list[tuple[str, str | None]] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@tool
def free(text: str) -> str:
    """Needs nobody."""
    ran.append((text, None))
    return f"free {text}"


@tool(needs_approval=True)
def bound(text: str, context: ToolContext) -> str:
    """Needs somebody."""
    ran.append((text, context.sender))
    return f"bound {text}"


@tool(needs_approval=True, repeatable=True)
def again(text: str) -> str:
    """May be repeated."""
    ran.append((text, None))
    return f"again {text}"


@tool(needs_approval=lambda given: given["amount"] > 100)
def pay(amount: int = 500) -> str:
    """Costs money."""
    ran.append((str(amount), None))
    return f"paid {amount}"


TOOLS: tuple[Tool, ...] = (free, bound, again, pay)


def call(name: str, id: str = "c1", **given: Any) -> ToolCall:
    return ToolCall(id, name, given or {"text": id})


async def run(
    *script: Any,
    steps: Sequence[Message] | None = None,
    journal: Journal | None = None,
    tools: Sequence[Tool] = TOOLS,
    started: tuple[str, ...] = (),
    suspended: Suspension | None = None,
    joining: Sequence[history.Block] = (),
    approve: Approve | None = None,
    turn_timeout: float = 120.0,
) -> tuple[Finished | Suspended, Journal, ScriptedModel]:
    model = ScriptedModel(*script)
    journal = journal or Journal()
    finished = await run_turn(
        Agent(tools=tuple(tools), approval_timeout=60, turn_timeout=turn_timeout),
        model,
        (),
        steps or [spoken("user", "Hello")],
        journal,
        started=started,
        suspended=suspended,
        joining=joining,
        approve=approve,
        place=PLACE,
        clock=FakeClock(),
    )
    return finished, journal, model


def asked(*wanted: ToolCall) -> list[Message]:
    """The steps of a turn that was suspended."""
    return [
        spoken("user", "Hello"),
        Message(seq=11, role="assistant", blocks=calls(*wanted).blocks, at=0),
    ]


def waiting(*wanted: ToolCall, results: Sequence[history.Block] = ()) -> Suspension:
    return Suspension(
        "s1",
        approvals.pending(wanted),
        encode_blocks(results),
        sender="telegram:7",
        approvers=("telegram:7",),
        expires=NOON,
    )


def told(model: ScriptedModel) -> list[tuple[str, object]]:
    blocks = decode_blocks(model.requests[-1].messages[-1].blocks)
    return [(str(b["tool_use_id"]), b["content"]) for b in blocks if b["type"] == "tool_result"]


# ---------------------------------------------------------------------- suspending


async def test_it_is_suspended_with_what_the_others_gave() -> None:
    wanted = (call("bound", "c1"), call("free", "c2"), call("bound", "c3"))
    finished, journal, model = await run(calls(*wanted))
    assert isinstance(finished, Suspended)
    assert finished.calls == (wanted[0], wanted[2])
    assert decode_blocks(finished.step) == [history.result("c2", "free c2")]
    assert finished.expires == NOON + 60_000 and finished.usage == USAGE
    assert journal.kinds == ["answered"] and journal.entries[0][2] == ("c2",)
    assert ran == [("c2", None)] and len(model.requests) == 1


async def test_a_call_that_was_about_to_be_asked_about_is_asked_about_after_a_crash() -> None:
    wanted = (call("bound", "c1"), call("free", "c2"), call("free", "c3"))
    finished, journal, _ = await run(steps=asked(*wanted), started=("c2",))
    assert isinstance(finished, Suspended)
    assert finished.calls == (wanted[0],)
    assert decode_blocks(finished.step) == [
        history.result("c2", INTERRUPTED, error=True),
        history.result("c3", "free c3"),
    ]
    assert journal.kinds == []


@pytest.mark.parametrize(
    ("given", "needed"),
    [({"amount": 101}, True), ({"amount": 100}, False), ({}, True), ({"amount": "x"}, False)],
)
async def test_a_predicate_looks_at_the_checked_arguments(
    given: dict[str, Any], needed: bool
) -> None:
    wanted = ToolCall("c1", "pay", given)
    finished, _, _ = await run(calls(wanted), "Done.")
    assert isinstance(finished, Suspended) == needed


@pytest.mark.parametrize("sort", [True, False])
async def test_arguments_that_do_not_fit_are_nobodys_affair(sort: bool) -> None:
    finished, _, model = await run(
        calls(ToolCall("c1", "bound" if sort else "none", {"x": 1})), "No."
    )
    assert isinstance(finished, Finished) and len(told(model)) == 1


async def test_a_predicate_that_breaks_asks_to_be_safe(caplog: pytest.LogCaptureFixture) -> None:
    @tool(needs_approval=lambda given: bool(given["nothing"]))
    def odd(text: str) -> str:
        """Odd."""
        return text

    finished, _, _ = await run(calls(call("odd")), tools=(odd,))
    assert isinstance(finished, Suspended)
    assert "approval.unclear" in caplog.text


def test_a_predicate_must_not_be_async() -> None:
    async def later(given: Mapping[str, Any]) -> bool:
        return True

    def something() -> None:
        """Something."""

    with pytest.raises(TypeError, match="must not be async"):
        tool(needs_approval=later)(something)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- going on


async def test_what_was_allowed_runs_for_who_asked_and_is_saved_as_started() -> None:
    wanted = (call("bound", "c1"), call("free", "c2"), call("bound", "c3"))
    suspended = waiting(wanted[0], wanted[2], results=[history.result("c2", "free c2")])
    suspended = approvals.decided(suspended, (0,), "approved")
    suspended = approvals.decided(suspended, (1,), "declined", "not that one")
    finished, journal, model = await run(
        "Done.", steps=asked(*wanted), suspended=suspended, joining=[text_block("hurry")]
    )
    assert isinstance(finished, Finished) and finished.text == "Done."
    assert ran == [("c1", "telegram:7")]
    assert journal.kinds == ["answered", "results"]
    assert journal.entries[0][1:] == ([], ("c1",))
    why = approvals.DECLINED_BECAUSE.format(reason="not that one")
    assert told(model) == [("c1", "bound c1"), ("c2", "free c2"), ("c3", why)]
    last = decode_blocks(model.requests[-1].messages[-1].blocks)
    assert last[-1] == text_block("hurry")
    assert journal.entries[1][1] == last


async def test_when_all_is_declined_nothing_starts() -> None:
    wanted = call("bound")
    suspended = approvals.decided(waiting(wanted), (0,), "declined")
    _, journal, model = await run("Well.", steps=asked(wanted), suspended=suspended)
    assert ran == [] and journal.kinds == ["results"]
    assert told(model) == [("c1", approvals.DECLINED)]


@pytest.mark.parametrize(("name", "outcome"), [("bound", INTERRUPTED), ("again", "again c1")])
async def test_what_had_started_is_not_begun_anew_without_an_attempt(
    name: str, outcome: str
) -> None:
    wanted = call(name)
    suspended = approvals.decided(waiting(wanted), (0,), "approved")
    _, journal, model = await run(
        "Done.", steps=asked(wanted), suspended=suspended, started=("c1",)
    )
    assert told(model) == [("c1", outcome)]
    # Not saved once more as started: that would make the next attempt the first for ever.
    assert journal.kinds == ["results"]


async def test_an_approval_of_other_arguments_is_none() -> None:
    suspended = approvals.decided(waiting(call("bound", text="a")), (0,), "approved")
    finished, journal, _ = await run(steps=asked(call("bound", text="b")), suspended=suspended)
    assert isinstance(finished, Suspended)
    assert finished.calls == (call("bound", text="b"),)
    assert ran == [] and journal.kinds == []


# ---------------------------------------------------------------------- asked at once


async def test_who_can_be_asked_at_once_is_and_nothing_is_suspended() -> None:
    wanted = (call("bound", "c1"), call("free", "c2"), call("bound", "c3"), call("bound", "c4"))
    questions: list[str] = []

    async def approve(call: ToolCall) -> bool:
        assert ran == [("c2", None)]
        questions.append(call.id)
        if call.id == "c3":
            raise ToolError("not today")
        return call.id == "c1"

    finished, journal, model = await run(calls(*wanted), "Done.", approve=approve)
    assert isinstance(finished, Finished)
    assert questions == ["c1", "c3", "c4"]
    assert journal.kinds == ["answered", "answered", "results"]
    assert [started for _, _, started in journal.entries] == [("c2",), ("c1",), None]
    assert told(model) == [
        ("c1", "bound c1"),
        ("c2", "free c2"),
        ("c3", approvals.DECLINED_BECAUSE.format(reason="not today")),
        ("c4", approvals.DECLINED),
    ]


async def test_the_time_that_a_person_takes_is_not_the_turns() -> None:
    async def slow(call: ToolCall) -> bool:
        await asyncio.sleep(0.15)
        return True

    finished, _, _ = await run(calls(call("bound")), "Done.", approve=slow, turn_timeout=0.1)
    assert isinstance(finished, Finished)

    async def hang(request: Any) -> str:
        await asyncio.Event().wait()
        return ""

    with pytest.raises(ModelUnavailable, match=r"0\.1 s"):
        await run(calls(call("bound")), hang, approve=slow, turn_timeout=0.1)


async def test_a_session_asks_whoever_it_was_told_to() -> None:
    async def approve(call: ToolCall) -> bool:
        return bool(call.input["text"] == "yes")

    wanted = (call("bound", "c1", text="yes"), call("bound", "c2", text="no"))
    model = ScriptedModel(calls(*wanted), "Done.")
    session = await Session.start(Agent(tools=TOOLS), client=model, approve=approve)
    reply = await session.run("go", sender="me")
    assert reply.text == "Done." and ran == [("yes", "me")]
    assert told(model) == [("c1", "bound yes"), ("c2", approvals.DECLINED)]
    assert history.repair(session.history) == session.history


async def test_a_session_that_can_ask_nobody_declines() -> None:
    model = ScriptedModel(calls(call("bound")), "Well.")
    session = await Session.start(Agent(tools=TOOLS), client=model)
    await session.run("go")
    assert told(model) == [("c1", f"This call was {approvals.NOT_ASKED}.")]
    assert ran == []


# ---------------------------------------------------------------------- small things


def test_the_digest_is_of_the_call_its_name_and_its_arguments() -> None:
    base = ToolCall("c1", "send", {"to": "a", "n": 1})
    assert approvals.digest(base) == approvals.digest(ToolCall("c1", "send", {"n": 1, "to": "a"}))
    others = (
        replace(base, id="c2"),
        replace(base, name="sent"),
        replace(base, input={"to": "a", "n": "1"}),
    )
    assert len({approvals.digest(each) for each in (base, *others)}) == 4


def test_what_a_button_says_is_short_and_comes_back() -> None:
    suspension = replace(waiting(call("bound")), id="0123456789abcdef")
    said = approvals.data(suspension, 0, "declined")
    assert len(said.encode()) <= 34 and said.isascii()
    decision = approvals.decision_of(said)
    assert decision == approvals.Decision("declined", suspension.id, 0, suspension.calls[0].digest)
    assert approvals.decision_of(said + "x") is None


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a\nb", r'"a\nb"'),
        ("\u202eevil\u200b", r'"\u202eevil\u200b"'),
        ("\U000e0041", r'"\udb40\udc41"'),
        ("Grüße 🙂", '"Grüße 🙂"'),
    ],
)
def test_arguments_are_shown_without_signs_that_hide(given: str, shown: str) -> None:
    assert shown in approvals.shown_arguments({"text": given})


def test_what_the_model_wrote_is_decoded_only_where_it_is_looked_at() -> None:
    assert approvals.results(None) == {} and approvals.approved(None, ()) == frozenset()
    assert msgspec.json.decode(encode_blocks([])) == []


# ---------------------------------------------------------------------- an agent that is asked


@pytest.mark.parametrize("allowed", [True, False, None])
async def test_the_tools_of_an_agent_that_is_asked_need_it_too(allowed: bool | None) -> None:
    """Its steps are kept by nobody, so in a bot it cannot wait: there it is declined."""

    async def approve(call: ToolCall) -> bool:
        return bool(allowed)

    agent = Agent(agents=(Agent(name="clerk", tools=TOOLS),), approval_timeout=60)
    model = ScriptedModel(
        calls(ToolCall("a1", "clerk", {"request": "do it"})), calls(call("bound")), "Well.", "Done."
    )
    finished = await run_turn(
        agent,
        model,
        (),
        [spoken("user", "Hello")],
        Journal(),
        approve=None if allowed is None else approve,
        place=PLACE,
        clock=FakeClock(),
    )
    assert isinstance(finished, Finished) and finished.text == "Done."
    assert bool(ran) == bool(allowed)
    heard = decode_blocks(model.requests[2].messages[-1].blocks)[0]["content"]
    nobody = f"This call was {approvals.NOT_ASKED}."
    assert heard == {True: "bound c1", False: approvals.DECLINED, None: nobody}[allowed]
