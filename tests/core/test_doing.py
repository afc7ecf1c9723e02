"""What is told of a turn's tools while it runs: what each is for and how it stands, never more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from core.adapter import Doing
from core.agent import Agent
from core.doing import MAX_TITLE, title_of
from core.errors import ToolError
from core.history import result
from core.messages import Message, encode_blocks
from core.model import ToolCall
from core.snapshot import Suspension
from core.tools import Tool, tool
from core.turn import Finished, Suspended, run_turn
from tests.core.fakes import FakeClock, ScriptedModel, calls, said
from tests.core.test_turn import PLACE, Journal, spoken


@tool
async def look_up(password: str) -> str:
    """Look it up in the cellar. It is dark there.

    :param password: opens it
    """
    await asyncio.sleep(0)
    return f"treasure of {password}"


@tool
async def break_it() -> str:
    """Break it."""
    raise ToolError("broken")


@tool(needs_approval=True)
async def pay() -> str:
    """Pay"""
    return "paid"


class Told:
    """
    :ivar states: how the calls stood, each time
    """

    def __init__(self) -> None:
        self.calls: list[tuple[Doing, ...]] = []

    def __call__(self, calls: tuple[Doing, ...]) -> None:
        self.calls.append(calls)

    @property
    def states(self) -> list[list[str]]:
        return [[each.state for each in calls] for calls in self.calls]


async def turn(
    told: object, *script: object, tools: Sequence[Tool] = (look_up, break_it, pay), **more: object
) -> Finished | Suspended:
    model = ScriptedModel(*script)  # type: ignore[arg-type]
    steps = more.pop("steps", (spoken("user", "Hello"),))
    return await run_turn(
        Agent(tools=tuple(tools)),
        model,
        (),
        steps,  # type: ignore[arg-type]
        Journal(),
        place=PLACE,
        clock=FakeClock(),
        doing=told,  # type: ignore[arg-type]
        **more,  # type: ignore[arg-type]
    )


def call(name: str, id: str, **arguments: object) -> ToolCall:
    return ToolCall(id, name, arguments)


async def test_calls_are_told_as_they_go_and_nothing_of_what_they_bring() -> None:
    told = Told()
    both = calls(call("look_up", "c1", password="sesame"), call("break_it", "c2"))
    await turn(told, both, calls(call("nowhere", "c3")), "done")
    assert told.states[0] == ["running", "running"]
    assert told.states[-3:] == [
        ["done", "failed"],
        ["done", "failed", "running"],
        ["done", "failed", "failed"],
    ]
    assert [each.title for each in told.calls[-1]] == [
        "Look it up in the cellar",
        "Break it",
        "nowhere",
    ]
    assert "sesame" not in str(told.calls) and "treasure" not in str(told.calls)


async def test_a_call_that_waits_for_a_yes() -> None:
    told = Told()
    found = await turn(told, calls(call("pay", "c1"), call("look_up", "c2", password="x")))
    assert isinstance(found, Suspended)
    assert told.states == [["asks", "running"], ["asks", "done"]]


@pytest.mark.parametrize(("yes", "end"), [(True, "done"), (False, "failed")])
async def test_one_that_is_asked_about_at_once(yes: bool, end: str) -> None:
    told = Told()

    async def approve(call: ToolCall) -> bool:
        assert told.states[-1] == ["asks"]
        return yes

    await turn(told, calls(call("pay", "c1")), "done", approve=approve)
    assert told.states[-1] == [end]
    assert (["running"] in told.states) is yes


async def test_after_a_crash_those_are_told_that_are_gone_on_with() -> None:
    told = Told()
    asked = calls(call("look_up", "c1", password="x"), call("look_up", "c2", password="y"))
    step = Message(seq=11, role="assistant", blocks=asked.blocks, at=0)
    done = Suspension(
        id="s",
        calls=(),
        results=encode_blocks([result("c1", "there")]),
        sender="s",
        approvers=(),
        expires=0,
    )
    await turn(told, "done", steps=(spoken("user", "Hello"), step), suspended=done)
    assert told.states == [["done", "running"], ["done", "done"]]


async def test_who_shows_it_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    def broken(calls: tuple[Doing, ...]) -> None:
        raise RuntimeError("secret")

    with caplog.at_level(logging.INFO):
        found = await turn(broken, calls(call("look_up", "c1", password="x")), said("done"))
    assert isinstance(found, Finished) and found.text == "done"
    (line,) = [record for record in caplog.records if record.getMessage() == "live.broken"]
    assert "secret" not in str(vars(line))


@pytest.mark.parametrize(
    ("docstring", "title"),
    [
        ("Today's weather in a city.\n\nAnd more.", "Today's weather in a city"),
        ("Find it, e.g. A Book, i.e. a text. Then read", "Find it, e.g. A Book, i.e. a text"),
        ("", "some tool"),
        ("  \x1b[31m red \u202e turned \n", "[31m red turned"),
        ("word " * 60, f"{'word ' * 14}w…"),
    ],
)
def test_a_title(docstring: str, title: str) -> None:
    def some_tool() -> str:
        return ""

    some_tool.__doc__ = docstring
    found = title_of(tool(some_tool), "some_tool")
    assert found == title and len(found) <= MAX_TITLE
    assert title_of(None, "files__read-all") == "files read all"
