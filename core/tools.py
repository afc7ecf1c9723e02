"""Tools: Python functions and classes that a model may call.

A tool's schema comes from its type hints, its description from its docstring; what the model
sends is checked against the schema before the function sees it. Nothing here decides which tools an
agent has (that is its list), or runs one (`registry.py`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final, cast, overload

import msgspec

from core.schema import described, schema_of, signature

DEFAULT_TIMEOUT: Final = 60.0

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")


class ToolContext(msgspec.Struct, frozen=True):
    """What a tool may know about where it runs: a parameter with this type receives it.

    :param state: shared by all tool calls of one execution, gone afterwards, never shown to the
        model
    """

    state: MutableMapping[str, Any]
    session_key: str
    execution_id: str
    call_id: str
    agent: str
    sender: str | None


NeedsApproval = bool | Callable[[Mapping[str, Any]], bool]


class Tool(msgspec.Struct, frozen=True):
    """
    :param arguments: what the model must send; None: whatever it sends, as one mapping of the name
        `arguments`
    :param repeatable: after a crash in the middle of a call it is run again; others are reported
        to the model as interrupted
    :param timeout: seconds
    :param json: the provider's JSON: name, description, input_schema
    :param stateful: it keeps something between its calls: a run of an agent that has such a tool
        anywhere in its tree shares no object with any other run
    :param made_by: the class whose objects are called; `function` is then its `__call__`
    :param needs_approval: whether a person must allow each call, or those with such arguments
    :param max_calls: how often it may be called in one turn; None: as often as the turn allows
    :param server: the model's provider runs it; no call of it ever comes to us
    :param origin: where it is from, for people; empty: from the program itself
    """

    name: str
    function: Callable[..., Any]
    arguments: type[msgspec.Struct] | None
    context_parameter: str | None
    repeatable: bool
    timeout: float
    json: msgspec.Raw
    stateful: bool = False
    made_by: type | None = None
    needs_approval: NeedsApproval = False
    max_calls: int | None = None
    server: bool = False
    origin: str = ""


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    repeatable: bool = False,
    timeout: float = DEFAULT_TIMEOUT,
    stateful: bool | None = None,
    needs_approval: NeedsApproval = False,
    max_calls: int | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    repeatable: bool = False,
    timeout: float = DEFAULT_TIMEOUT,
    stateful: bool | None = None,
    needs_approval: NeedsApproval = False,
    max_calls: int | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function, or of a class whose objects can be called.

    ::

        @tool
        async def weather(city: str) -> str:
            \"\"\"Today's weather in a city.

            :param city: its English name
            \"\"\"

        class Counter:
            \"\"\"Counts.\"\"\"

            def __init__(self) -> None:
                self.count = 0

            def __call__(self, by: int = 1) -> int:
                self.count += by
                return self.count

        counter = tool(name="counter")(Counter)

    A function that is not `async` runs in a thread; when it exceeds its time, its result is not
    waited for, but the thread cannot be stopped. Of a class the model calls an object: its
    `__call__` has the parameters. The object is built, without arguments, for the first call of an
    execution, and is gone with it.

    :param stateful: see `Tool`; None: a class is, a function is not. A class that says False has
        one object for all runs, as long as no other tool of theirs is stateful
    :param max_calls: how often it may be called in one turn; None: as often as the turn allows
    :param needs_approval: True, or a function of the checked arguments by their names: a person
        must allow such a call before it runs
    :raises TypeError: a parameter has no type hint, or one that has no JSON schema; a class whose
        objects cannot be called, or that wants arguments
    :raises ValueError: a name that no model may call: letters, digits, - and _ only; a bound that
        lets nothing through
    """
    options = _Options(name, repeatable, timeout, stateful, needs_approval, max_calls)
    if function is None:
        return lambda decorated: _made(decorated, options)
    return _made(function, options)


class _Options(msgspec.Struct, frozen=True):
    name: str | None
    repeatable: bool
    timeout: float
    stateful: bool | None
    needs_approval: NeedsApproval
    max_calls: int | None


def _made(given: Callable[..., Any], options: _Options) -> Tool:
    label = check_name(options.name or str(getattr(given, "__name__", type(given).__name__)))
    if inspect.iscoroutinefunction(options.needs_approval):
        raise TypeError(f"tool {label}: needs_approval is asked at once: it must not be async")
    if options.timeout <= 0:
        raise ValueError(f"tool {label}: timeout must be above 0; it is {options.timeout:g}")
    if options.max_calls is not None and options.max_calls < 1:
        raise ValueError(f"tool {label}: max_calls must be 1 or more; it is {options.max_calls}")
    made_by = given if isinstance(given, type) else None
    function = _call_of(given, label)
    about = described(given)
    parameters = about.parameters
    if function is not given:
        # What is said of the call adds to what is said of the object.
        inner = described(function)
        parameters = {**about.parameters, **inner.parameters}
        about = about._replace(text=about.text or inner.text)
    arguments, context_parameter = signature(
        function, label, ToolContext, parameters, bound=made_by is None
    )
    return Tool(
        name=label,
        function=function,
        arguments=arguments,
        context_parameter=context_parameter,
        repeatable=options.repeatable,
        timeout=options.timeout,
        json=tool_json(label, about.text, schema_of(arguments)),
        stateful=made_by is not None if options.stateful is None else options.stateful,
        made_by=made_by,
        needs_approval=options.needs_approval,
        max_calls=options.max_calls,
    )


def _call_of(given: Callable[..., Any], label: str) -> Callable[..., Any]:
    """What has the parameters: the function itself, or the `__call__` of an object or a class.

    :raises TypeError: there is none, or no object of the class can be made
    """
    if not isinstance(given, type):
        of_object: Callable[..., Any] = getattr(given, "__call__")  # noqa: B004, B009
        return given if inspect.isroutine(given) else of_object
    try:
        inspect.signature(given).bind()
    except TypeError as error:
        raise TypeError(f"tool {label}: the class is called without arguments: {error}") from error
    for each in given.__mro__:
        if function := vars(each).get("__call__"):
            return cast("Callable[..., Any]", function)
    raise TypeError(f"tool {label}: a class needs a __call__ for the model to call")


def tool_json(name: str, description: str, schema: object) -> msgspec.Raw:
    """What the provider is told."""
    about = {"name": name, "description": description, "input_schema": schema}
    return msgspec.Raw(msgspec.json.encode(about))


def check_name(name: str) -> str:
    """
    :raises ValueError: no model may call a tool by this name
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"tool {name!r}: a name has letters, digits, - and _, 128 at most")
    return name
