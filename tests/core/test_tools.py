"""Tools: what a model is told of them, and that whatever they do is a sentence for it."""

from __future__ import annotations

import asyncio
import enum
import logging
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta
from msgspec.structs import replace

from core.agent import Agent
from core.errors import ToolError
from core.history import Block
from core.messages import encode_blocks
from core.model import ToolCall
from core.registry import Registry
from core.results import MAX_CHARACTERS
from core.tools import Tool, ToolContext, tool

CONTEXT = ToolContext(
    state={},
    session_key="telegram-chat:1",
    execution_id="e1",
    call_id="c1",
    agent="assistant",
    sender="telegram:42",
)


async def run(made: Tool, given: Any = None, /, **arguments: Any) -> Block:
    call = ToolCall(id="c1", name=made.name, input=arguments if given is None else given)
    return await Registry([made]).run(call, CONTEXT)


def told(made: Tool) -> Any:
    """What the provider is told."""
    return msgspec.json.decode(made.json)


def done(content: str) -> Block:
    return {"type": "tool_result", "tool_use_id": "c1", "content": content}


def failed(content: str) -> Block:
    return {**done(content), "is_error": True}


# ---------------------------------------------------------------------- the schema


def test_a_schema_comes_from_the_hints_and_a_description_from_the_docstring() -> None:
    @tool
    async def weather(
        city: Annotated[str, Meta(description="its English name")],
        context: ToolContext,
        days: int = 1,
        unit: Literal["C", "F"] = "C",
        near: list[str] = [],  # noqa: B006 (msgspec makes a new one for each call)
    ) -> str:
        """Today's weather in a city.

        And tomorrow's.
        """
        return ""

    assert weather.name == "weather"
    assert not weather.repeatable
    assert weather.timeout == 60
    assert told(weather) == {
        "name": "weather",
        "description": "Today's weather in a city.\n\nAnd tomorrow's.",
        "input_schema": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "its English name"},
                "days": {"type": "integer", "default": 1},
                "unit": {"enum": ["C", "F"], "default": "C"},
                "near": {"type": "array", "items": {"type": "string"}, "default": []},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    }


def test_a_docstring_describes_the_parameters() -> None:
    @tool
    def rest(
        city: str,
        days: Annotated[int, Meta(ge=1)] = 1,
        unit: Annotated[str, Meta(description="from the hint")] = "C",
        silent: bool = False,
    ) -> str:
        """The weather.

        :param city: its English name,
            without the country
        :param int days: how many
        :param unit: not this
        :returns: a sentence
        :raises ToolError: there is no such city
        """
        return ""

    @tool
    def google(city: str, days: int = 1) -> str:
        """The weather.

        Args:
            city: its English name,
                without the country
            days (int, optional): how many

        Returns:
            A sentence.

        Only for Europe.
        """
        return ""

    assert told(rest)["description"] == "The weather."
    properties = told(rest)["input_schema"]["properties"]
    assert properties["city"]["description"] == "its English name, without the country"
    assert properties["days"] == {
        "type": "integer",
        "minimum": 1,
        "description": "how many",
        "default": 1,
    }
    assert properties["unit"]["description"] == "from the hint"
    assert "description" not in properties["silent"]
    assert told(google)["description"] == "The weather.\n\nOnly for Europe."
    properties = told(google)["input_schema"]["properties"]
    assert properties["city"]["description"] == "its English name, without the country"
    assert properties["days"]["description"] == "how many"


class WordCounter:
    """Counts words.

    :param by: in steps of
    """

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, word: str, by: int = 1) -> str:
        """
        :param word: which one
        """
        self.count += by
        return f"{word} {self.count}"


def test_the_docstrings_of_a_class_and_of_its_call_describe_the_parameters() -> None:
    made = tool(max_calls=3)(WordCounter)
    assert made.max_calls == 3
    assert told(made)["description"] == "Counts words."
    properties = told(made)["input_schema"]["properties"]
    assert properties["by"]["description"] == "in steps of"
    assert properties["word"]["description"] == "which one"
    assert list(properties) == ["word", "by"]


def test_an_object_that_can_be_called_is_a_tool() -> None:
    class HTTPClient:
        async def __call__(self, url: str) -> str:
            """Fetches a page."""
            return url

    made = tool(HTTPClient())
    assert (made.name, made.stateful) == ("HTTPClient", False)
    assert told(made)["description"] == "Fetches a page."
    assert list(told(made)["input_schema"]["properties"]) == ["url"]


def test_a_class_whose_objects_cannot_be_made() -> None:
    class Wanting:
        def __init__(self, what: str) -> None: ...
        def __call__(self) -> None: ...

    with pytest.raises(TypeError, match=r"called without arguments: missing .*'what'"):
        tool(Wanting)


@pytest.mark.parametrize("options", [{"timeout": 0}, {"timeout": -1.0}, {"max_calls": 0}])
def test_a_bound_that_lets_nothing_through(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="tool clock"):
        tool(name="clock", **options)(lambda: None)


def test_a_tool_without_parameters_and_without_a_word() -> None:
    @tool
    def clock() -> str:
        return ""

    assert told(clock) == {
        "name": "clock",
        "description": "",
        "input_schema": {
            "type": "object",
            "properties": {},
            "required": [],
            "additionalProperties": False,
        },
    }


@dataclass
class Place:
    name: str
    inside: Place | None = None


class Colour(enum.Enum):
    RED = "red"


def test_what_a_schema_refers_to_is_in_it() -> None:
    @tool(name="go-to", repeatable=True, timeout=5)
    def go(place: Place) -> None: ...

    assert (go.name, go.repeatable, go.timeout) == ("go-to", True, 5)
    schema = told(go)["input_schema"]
    assert schema["type"] == "object"
    assert schema["properties"] == {"place": {"$ref": "#/$defs/Place"}}
    assert schema["$defs"]["Place"]["properties"]["name"] == {"type": "string"}


async def test_a_structured_argument_arrives_as_what_it_is() -> None:
    got: list[Any] = []

    @tool
    def paint(place: Place, colour: Colour, on: date) -> None:
        got.extend((place, colour, on))

    await run(paint, place={"name": "hall"}, colour="red", on="2026-11-30")
    assert got == [Place("hall"), Colour.RED, date(2026, 11, 30)]


def test_what_cannot_be_described_is_refused_when_it_is_made() -> None:
    def no_hint(city):  # type: ignore[no-untyped-def]
        ...

    def stars(*cities: str) -> None: ...
    def options(**cities: str) -> None: ...
    def unnamed(city: str, /) -> None: ...
    def foreign(city: threading.Thread) -> None: ...
    def default(city: list[int] = [1]) -> None: ...  # noqa: B006 (the test's point)

    refused: list[Callable[..., Any]] = [no_hint, stars, options, unnamed, foreign, default]
    for function in refused:
        with pytest.raises(TypeError):
            tool(function)


@pytest.mark.parametrize("name", ["", "with space", "ä", "x" * 129, "a/b"])
def test_a_name_that_no_model_may_call_is_refused(name: str) -> None:
    def function() -> None: ...

    function.__name__ = name
    with pytest.raises(ValueError, match="name"):
        tool(function)


def test_two_tools_of_one_name_are_refused() -> None:
    @tool
    def clock() -> None: ...

    other = tool(name="clock")(lambda: None)
    with pytest.raises(ValueError, match="two tools are called clock"):
        Agent(tools=(clock, other))
    assert Agent(tools=(clock,)).tools == (clock,)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("anthropic/claude-sonnet-5-5", "claude-sonnet-5-5"),
        ("claude-sonnet-5-5", "claude-sonnet-5-5"),
        ("openai/some-org/some-model", "some-org/some-model"),
    ],
)
def test_the_providers_name_of_a_model(model: str, name: str) -> None:
    assert Agent(model=model).model_name == name


# ---------------------------------------------------------------------- what goes in


@tool
async def add(a: int, b: int = 2) -> int:
    """The sum."""
    return a + b


async def test_arguments_and_defaults() -> None:
    assert await run(add, a=1) == done("3")
    assert await run(add, a=1, b=10**30) == done(str(10**30 + 1))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "Object missing required field `a`"),
        ({"a": "1"}, "Expected `int`, got `str` - at `$.a`"),
        ({"a": 1, "c": 1}, "Object contains unknown field `c`"),
        ({"a": None}, "Expected `int`, got `null` - at `$.a`"),
    ],
)
async def test_arguments_that_do_not_fit(given: Any, why: str) -> None:
    assert await run(add, given) == failed(f"The arguments do not fit: {why}")


async def test_a_tool_that_is_not_there() -> None:
    call = ToolCall(id="c1", name="sub", input={})
    assert await Registry([replace(add, name="mul"), add]).run(call, CONTEXT) == failed(
        "There is no tool called 'sub'. Tools: add, mul."
    )
    assert await Registry([]).run(call, CONTEXT) == failed(
        "There is no tool called 'sub'. Tools: none."
    )


async def test_the_context_is_given_and_is_no_argument() -> None:
    got: list[ToolContext] = []

    @tool
    def look(where: ToolContext) -> None:
        got.append(where)

    assert told(look)["input_schema"]["properties"] == {}
    assert await run(look) == done("Done.")
    assert got == [CONTEXT]
    assert (await run(look, {"where": {}}))["is_error"]


async def test_a_mutable_default_is_new_for_each_call() -> None:
    @tool
    def collect(into: list[int] = []) -> list[int]:  # noqa: B006 (the test's point)
        into.append(1)
        return into

    assert await run(collect) == await run(collect) == done("[1]")


# ---------------------------------------------------------------------- what comes out


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "Done."),
        ("", "Done; there is no output."),
        (" \n", "Done; there is no output."),
        ("text\r\n", "text\n"),
        (True, "true"),
        (2**100, str(2**100)),
        (float("nan"), "NaN"),
        ({"a": [1, "ü"]}, '{"a":[1,"ü"]}'),
        ({1: "one"}, '{"1":"one"}'),
        (Place("hall"), '{"name":"hall","inside":null}'),
        (date(2026, 11, 30), '"2026-11-30"'),
        (2 + 1j, '"(2+1j)"'),
        ("\ud83d\udc4b and \ud83d alone", "👋 and \ufffd alone"),
        (["\ud83d"], '["\ufffd"]'),
        ("NUL \0 and \x1b[1mbold", "NUL \ufffd and [1mbold"),
    ],
    ids=range(15),
)
async def test_a_result_is_text(value: object, text: str) -> None:
    @tool
    def give() -> object:
        return value

    result = await run(give)
    assert result == done(text)
    encode_blocks([result])


async def test_a_long_result_is_cut() -> None:
    @tool
    def give() -> str:
        return "x" * (MAX_CHARACTERS + 1)

    content = (await run(give))["content"]
    assert content.startswith("x" * MAX_CHARACTERS + "\n[…")
    assert len(content) < MAX_CHARACTERS + 100


async def test_a_function_that_is_not_async_runs_in_a_thread() -> None:
    threads: list[int] = []

    @tool
    def where() -> None:
        threads.append(threading.get_ident())

    await asyncio.gather(run(where), run(where))
    assert threading.get_ident() not in threads
    assert len(threads) == 2


async def test_what_a_plain_function_gives_may_be_awaitable() -> None:
    async def inner() -> str:
        return "inner"

    @tool
    def outer() -> Any:
        return inner()

    assert await run(outer) == done("inner")


# ---------------------------------------------------------------------- classes


class Counter:
    """Counts what it is given."""

    def __init__(self) -> None:
        self.total = 0

    async def __call__(self, amount: int, context: ToolContext, twice: bool = False) -> int:
        """Not this one."""
        self.total += amount * (2 if twice else 1)
        return self.total


class Quiet(Counter):
    async def __call__(self, amount: int, context: ToolContext, twice: bool = False) -> int:
        """Says nothing."""
        return 0


def test_a_class_is_told_by_its_call() -> None:
    made = tool(name="count")(Counter)
    assert told(made) == {
        "name": "count",
        "description": "Counts what it is given.",
        "input_schema": {
            "type": "object",
            "properties": {
                "amount": {"type": "integer"},
                "twice": {"type": "boolean", "default": False},
            },
            "required": ["amount"],
            "additionalProperties": False,
        },
    }
    assert (made.made_by, made.context_parameter) == (Counter, "context")
    assert tool(Quiet).name == "Quiet"


def test_a_class_is_stateful_and_a_function_is_not_unless_they_say_so() -> None:
    assert tool(Counter).stateful
    assert not tool(stateful=False)(Counter).stateful
    assert not tool(deep).stateful
    assert tool(stateful=True)(deep).stateful


def test_a_class_that_cannot_be_called() -> None:
    with pytest.raises(TypeError, match="needs a __call__"):
        tool(Unspeakable)


# ---------------------------------------------------------------------- what goes wrong


class Unspeakable:
    def __str__(self) -> str:
        raise ZeroDivisionError("a secret")


def deep() -> object:
    value: list[object] = []
    value.append(value)
    return value


def leave() -> None:
    sys.exit("a secret")


def empty() -> None:
    next(iter(()))


BROKEN: dict[str, Callable[[], object]] = {
    "raises": lambda: 1 // 0,
    "raises a time-out of its own": lambda: _raise(TimeoutError("a secret")),
    "raises what no future can hold": empty,
    "leaves the program": leave,
    "gives what cannot be text": lambda: [Unspeakable()],
    "has no thread": lambda: _raise(KeyboardInterrupt("a secret")),
}


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("name", BROKEN)
async def test_a_failure_is_a_sentence_and_never_the_exceptions_own(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    broken = tool(name="broken")(BROKEN[name])
    with caplog.at_level(logging.INFO, "chinwag"):
        assert await run(broken) == failed("broken failed because of an internal error.")
    (record,) = caplog.records
    assert record.message == "tool.failed"
    assert "secret" not in str(record.__dict__)
    assert record.__dict__["event"]["tool"] == "broken"
    assert record.__dict__["event"]["key"] == "telegram-chat:1"


async def test_an_async_tool_that_fails() -> None:
    @tool
    async def broken() -> None:
        raise TimeoutError("a secret")

    assert await run(broken) == failed("broken failed because of an internal error.")


async def test_what_a_tool_says_itself_is_told() -> None:
    @tool
    def picky() -> None:
        raise ToolError("There is no such city \ud83d.")

    assert await run(picky) == failed("There is no such city \ufffd.")


async def test_an_error_is_never_without_a_word_and_never_endless() -> None:
    @tool
    def mute(times: int) -> None:
        raise ToolError(" " + "x" * times)

    assert await run(mute, times=0) == failed("mute failed.")
    assert len((await run(mute, times=10**6))["content"]) < MAX_CHARACTERS + 100


async def test_what_has_no_end_is_too_large() -> None:
    @tool
    def endless() -> object:
        return deep()

    assert await run(endless) == failed(
        "The result was far too large to be used. Ask for less of it."
    )


async def test_a_tool_that_takes_too_long() -> None:
    cancelled: list[bool] = []

    @tool(timeout=0.02)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    assert await run(slow) == failed("slow did not answer within 0.02 seconds.")
    assert cancelled


async def test_a_thread_that_takes_too_long_is_not_waited_for() -> None:
    go_on = threading.Event()

    @tool(timeout=0.02)
    def slow() -> None:
        go_on.wait(5)

    began = time.monotonic()
    try:
        assert await run(slow) == failed("slow did not answer within 0.02 seconds.")
        assert time.monotonic() - began < 2
    finally:
        go_on.set()


async def test_cancelling_the_turn_cancels_the_tool() -> None:
    begun = asyncio.Event()

    @tool
    async def slow() -> None:
        begun.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(run(slow))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_something_cancelled_inside_a_tool_does_not_cancel_the_turn() -> None:
    @tool
    async def confused() -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.cancel()
        await waiting

    assert await run(confused) == failed("confused failed because of an internal error.")
