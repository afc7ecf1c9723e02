"""Threads for functions that are not async: one for each call, and none that anybody waits for.

Not asyncio's pool. A function that never returns keeps its thread for ever: a pool would run out
of them, and with it all else that goes there (names that are looked up, say), and Python would
wait for it before it ends. These are daemons, and there is a bound to how many there are.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final

from core.errors import ToolError

MAX_THREADS: Final = 256

_free: Final = threading.BoundedSemaphore(MAX_THREADS)


async def in_thread(function: Callable[..., Any], keywords: Mapping[str, Any]) -> Any:
    """What the function gives or raises. Cancelled, nobody hears of it any more.

    :raises ToolError: as many as may be run already
    """
    free = _free
    if not free.acquire(blocking=False):
        raise ToolError("Too much is under way at the moment. Try again later.")
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Any] = loop.create_future()
    context = copy_context()

    def work() -> None:
        value: Any = None
        failure: BaseException | None = None
        try:
            value = context.run(function, **keywords)
        except Exception as error:
            failure = error
        except BaseException as error:
            # An end of the program is not for a tool to ask for, and no future can hold it.
            failure = RuntimeError(type(error).__name__)
        finally:
            free.release()
        if isinstance(failure, StopIteration):
            # No future can hold this one, either.
            failure = RuntimeError("StopIteration")
        with suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(_tell, outcome, value, failure)

    try:
        threading.Thread(target=work, name=f"tool {function!r:.80}", daemon=True).start()
    except RuntimeError:
        free.release()
        raise
    return await outcome


def _tell(outcome: asyncio.Future[Any], value: Any, failure: BaseException | None) -> None:
    if outcome.done():  # whoever asked has gone
        return
    if failure is None:
        outcome.set_result(value)
    else:
        outcome.set_exception(failure)
