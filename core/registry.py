"""Registry: the tools of one turn, and what becomes of a call of one.

Made anew for every turn of an agent and gone with it. Not whose tools they are (`execution.py`),
and not the turn: which calls run, and when, is not decided here.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from core import history
from core.errors import StoreError, ToolError
from core.events import trouble
from core.messages import clean
from core.model import ToolCall
from core.results import MAX_CHARACTERS, Keep, content_of
from core.threads import in_thread
from core.tools import Tool, ToolContext

# A tool that was cancelled may put things right; one that goes on all the same is left to itself.
LAST_SECONDS: Final = 1.0


class Registry:
    """
    :param used: the tools that were called in this turn before
    :param keep: a place beside the history for long results, images and files

    `json` is what the provider is told of them, in their order.
    """

    def __init__(
        self, tools: Iterable[Tool], used: Iterable[str] = (), keep: Keep | None = None
    ) -> None:
        every = tuple(tools)
        self.json = tuple(tool.json for tool in every)
        self._tools = {tool.name: tool for tool in every if not tool.server}
        # Not a Counter: to make one takes longer than all else here, and most turns call nothing.
        self._used: defaultdict[str, int] = defaultdict(int)
        for name in used:
            self._used[name] += 1
        self._keep = keep

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    async def run(self, call: ToolCall, context: ToolContext) -> history.Block:
        """The tool_result block of one call. Whatever goes wrong is a plain sentence for the model;
        the exception itself, which may hold anything, is only logged by its type.

        :raises StoreError: a result could not be kept
        """
        wanted = self._tools.get(call.name)
        if wanted is None:
            known = ", ".join(sorted(self._tools)) or "none"
            return _failed(call, f"There is no tool called {call.name!r}. Tools: {known}.")
        self._used[call.name] += 1
        if wanted.max_calls is not None and self._used[call.name] > wanted.max_calls:
            times = "once" if wanted.max_calls == 1 else f"{wanted.max_calls} times"
            return _failed(call, f"{call.name} may be called {times} in a turn, and has been.")
        try:
            keywords = _arguments(wanted, call)
        except msgspec.ValidationError as error:
            return _failed(call, f"The arguments do not fit: {error}")
        if wanted.context_parameter:
            keywords[wanted.context_parameter] = context
        try:
            value = await _in_time(wanted.timeout, called(wanted.function, keywords))
            return history.result(call.id, await content_of(value, self._keep))
        except _Late:
            return _failed(call, f"{call.name} did not answer within {wanted.timeout:g} seconds.")
        except ToolError as error:
            return _failed(call, str(error))
        except StoreError:
            raise
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            # Something that the tool waited for was cancelled, not the turn.
            return _broke(call, context, error)
        except Exception as error:
            return _broke(call, context, error)


class _Late(Exception):
    """The tool did not answer in its time."""


def _arguments(wanted: Tool, call: ToolCall) -> dict[str, Any]:
    if wanted.arguments is None:
        return {"arguments": call.input}
    given = msgspec.convert(call.input, wanted.arguments)
    return {field: getattr(given, field) for field in given.__struct_fields__}


async def called(function: Callable[..., Any], keywords: Mapping[str, Any]) -> Any:
    """What it gives: an async function here, any other in a thread."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 (of what kind it is)
    ):
        return await function(**keywords)
    value = await in_thread(function, keywords)
    return await value if inspect.isawaitable(value) else value


async def _in_time(seconds: float, work: Awaitable[Any]) -> Any:
    """In a task of its own, so that one that does not let itself be cancelled holds up nobody.

    :raises _Late: it has not ended in its time
    """
    task = asyncio.ensure_future(_without_exit(work))
    try:
        done, _ = await asyncio.wait((task,), timeout=seconds)
    except asyncio.CancelledError:
        await _end(task)
        raise
    if not done:
        await _end(task)
        raise _Late
    return task.result()


async def _end(task: asyncio.Future[Any]) -> None:
    task.cancel()
    task.add_done_callback(_heard)
    await asyncio.wait((task,), timeout=LAST_SECONDS)


def _heard(task: asyncio.Future[Any]) -> None:
    """Nobody waits for it any more; asyncio need not complain that nobody heard the error."""
    if not task.cancelled():
        task.exception()


async def _without_exit(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        # Out of a task, these would end the whole program.
        raise RuntimeError(type(error).__name__) from error


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
    text = clean(sentence[:MAX_CHARACTERS]).strip() or f"{call.name} failed."
    return history.result(call.id, text, error=True)
