"""Tools: Python functions that a model may call.

A tool's schema comes from its type hints, its description from its docstring; what the model
sends is checked against the schema before the function sees it. Nothing here decides which tools an
agent has, or runs several of them: that is the turn's affair.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final, cast, get_type_hints, overload

import msgspec

from core import history
from core.errors import ToolError
from core.events import trouble
from core.messages import clean
from core.model import ToolCall

DEFAULT_TIMEOUT: Final = 60.0
MAX_RESULT_CHARACTERS: Final = 100_000

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
    :param repeatable: after a crash in the middle of a call it is run again; others are reported
        to the model as interrupted
    :param timeout: seconds
    :param json: the provider's JSON: name, description, input_schema
    :param stateful: it keeps something between its calls: a run of an agent that has such a tool
        anywhere in its tree shares no object with any other run
    :param made_by: the class whose objects are called; `function` is then its `__call__`
    :param needs_approval: whether a person must allow each call, or those with such arguments
    """

    name: str
    function: Callable[..., Any]
    arguments: type[msgspec.Struct]
    context_parameter: str | None
    repeatable: bool
    timeout: float
    json: msgspec.Raw
    stateful: bool = False
    made_by: type | None = None
    needs_approval: NeedsApproval = False


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
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function, or of a class.

    ::

        @tool
        async def weather(city: Annotated[str, Meta(description="its English name")]) -> str:
            \"\"\"Today's weather in a city.\"\"\"

    A function that is not `async` runs in a thread; when it exceeds its time, its result is not
    waited for, but the thread cannot be stopped.

    Of a class the model calls an object: its `__call__` has the parameters. The object is built,
    without arguments, for the first call of an execution, and is gone with it::

        class Notebook:
            \"\"\"Take a note, and read all that were taken.\"\"\"

            def __init__(self) -> None:
                self.notes: list[str] = []

            async def __call__(self, note: str) -> list[str]: ...

        notebook = tool(name="notebook")(Notebook)

    :param stateful: see `Tool`; None: a class is, a function is not. A class that says False has
        one object for all runs, as long as no other tool of theirs is stateful
    :param needs_approval: True, or a function of the checked arguments by their names: a person
        must allow such a call before it runs
    :raises TypeError: a parameter has no type hint, or one that has no JSON schema
    :raises ValueError: a name that no model may call: letters, digits, - and _ only
    """
    if function is None:
        return lambda decorated: _made(
            decorated, name, repeatable, timeout, stateful, needs_approval
        )
    return _made(function, name, repeatable, timeout, stateful, needs_approval)


def check_name(name: str) -> str:
    """
    :raises ValueError: no model may call a tool by this name
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"tool {name!r}: a name has letters, digits, - and _, 128 at most")
    return name


def _made(
    given: Callable[..., Any],
    name: str | None,
    repeatable: bool,
    timeout: float,
    stateful: bool | None,
    needs_approval: NeedsApproval,
) -> Tool:
    label = check_name(name or given.__name__)
    if inspect.iscoroutinefunction(needs_approval):
        raise TypeError(f"tool {label}: needs_approval is asked at once: it must not be async")
    made_by = given if isinstance(given, type) else None
    function = _call_of(made_by, label) if made_by else given
    hints = get_type_hints(function, include_extras=True)
    fields: list[Any] = []
    context_parameter = None
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters[1:] if made_by else parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"tool {label}: {parameter} cannot be given by its name")
        if parameter.name not in hints:
            raise TypeError(f"tool {label}: parameter {parameter.name!r} needs a type hint")
        hint = hints[parameter.name]
        if hint is ToolContext:
            context_parameter = parameter.name
        elif parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint, parameter.default))
    arguments = msgspec.defstruct(label, fields, kw_only=True, forbid_unknown_fields=True)
    description = inspect.getdoc(given) or inspect.getdoc(function) or ""
    return Tool(
        name=label,
        function=function,
        arguments=arguments,
        context_parameter=context_parameter,
        repeatable=repeatable,
        timeout=timeout,
        needs_approval=needs_approval,
        json=msgspec.Raw(
            msgspec.json.encode(
                {"name": label, "description": description, "input_schema": _schema(arguments)}
            )
        ),
        stateful=made_by is not None if stateful is None else stateful,
        made_by=made_by,
    )


def _call_of(made_by: type, label: str) -> Callable[..., Any]:
    for each in made_by.__mro__:
        if function := vars(each).get("__call__"):
            return cast("Callable[..., Any]", function)
    raise TypeError(f"tool {label}: a class needs a __call__ for the model to call")


def _schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    (root,), components = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    schema = dict(components.pop(root["$ref"].removeprefix("#/$defs/")))
    schema.pop("title", None)
    return {**schema, "$defs": components} if components else schema


async def run_tool(tools: dict[str, Tool], call: ToolCall, context: ToolContext) -> history.Block:
    """The tool_result block of one call. Whatever goes wrong is a plain sentence for the model;
    the exception itself, which may hold anything, is only logged by its type."""
    wanted = tools.get(call.name)
    if wanted is None:
        known = ", ".join(sorted(tools)) or "none"
        return _failed(call, f"There is no tool called {call.name!r}. Tools: {known}.")
    try:
        given = msgspec.convert(call.input, wanted.arguments)
    except msgspec.ValidationError as error:
        return _failed(call, f"The arguments do not fit: {error}")
    keywords = {field: getattr(given, field) for field in given.__struct_fields__}
    if wanted.context_parameter:
        keywords[wanted.context_parameter] = context
    try:
        async with asyncio.timeout(wanted.timeout) as limit:
            value = await called(wanted.function, keywords)
        return history.result(call.id, _readable(value) or "Done; there is no output.")
    except ToolError as error:
        return _failed(call, str(error))
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise
        # Something that the tool waited for was cancelled, not the turn.
        return _broke(call, context, error)
    except TimeoutError as error:
        if limit.expired():
            return _failed(call, f"{call.name} did not answer within {wanted.timeout:g} seconds.")
        return _broke(call, context, error)
    except (Exception, SystemExit) as error:
        return _broke(call, context, error)


async def called(function: Callable[..., Any], keywords: dict[str, Any]) -> Any:
    """What it gives; a function that is not `async` runs in a thread."""
    if inspect.iscoroutinefunction(function):
        return await function(**keywords)
    value = await asyncio.to_thread(_in_thread, function, keywords)
    return await value if inspect.isawaitable(value) else value


def _in_thread(function: Callable[..., Any], keywords: dict[str, Any]) -> Any:
    try:
        return function(**keywords)
    except StopIteration as error:
        # No future can hold this one: whoever waits for it would wait for ever.
        raise RuntimeError("StopIteration") from error


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _broke(call: ToolCall, context: ToolContext, error: BaseException) -> history.Block:
    trouble(
        "tool.failed",
        context.session_key,
        execution=context.execution_id,
        tool=call.name,
        error=type(error).__name__,
    )
    return _failed(call, f"{call.name} failed because of an internal error.")


def _failed(call: ToolCall, sentence: str) -> history.Block:
    # An error without a word would be refused, and the whole history with it.
    return history.result(call.id, _readable(sentence) or f"{call.name} failed.", error=True)


def _readable(value: object) -> str:
    """Text that a history can hold; empty when there is none to read."""
    if value is None:
        return "Done."
    text = clean(value if isinstance(value, str) else _json(value))
    if len(text) > MAX_RESULT_CHARACTERS:
        text = text[:MAX_RESULT_CHARACTERS] + "\n[… the result was longer; the rest was cut here]"
    return text if text.strip() else ""


def _json(value: object) -> str:
    # Not msgspec's own: a tool may give numbers and half characters that JSON proper has not.
    plain = msgspec.to_builtins(value, enc_hook=str, str_keys=True)
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
