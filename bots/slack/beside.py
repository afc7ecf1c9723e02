"""Work that nobody waits for: so much of it at once, and none of it outlives its owner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

MOST: Final = 64


class Beside:
    """
    :param most: at once; what is beyond that is left out
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._tasks: set[asyncio.Task[None]] = set()

    def do(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """
        :param work: it raises nothing
        """
        if len(self._tasks) < self._most:
            task = asyncio.create_task(work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
