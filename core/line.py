"""Line: who runs next in one conversation. In order of arrival, up to a bound.

For one process only; across processes the stores' compare-and-set decides. A line also counts, so
that who comes to the front knows whether somebody else has spoken since it last looked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from core.errors import SessionBusy

WAITING_LIMIT: Final = 32


class Line:
    """
    :param moved: grows with everything that may have changed the conversation
    """

    def __init__(self) -> None:
        self.moved = 0
        self._lock = asyncio.Lock()
        self._waiting = 0

    @asynccontextmanager
    async def front(self) -> AsyncIterator[None]:
        """At the front of the line while the block runs.

        :raises SessionBusy: too many are in it already
        """
        if self._waiting >= WAITING_LIMIT:
            raise SessionBusy(f"{WAITING_LIMIT} runs wait for this session already")
        self._waiting += 1
        try:
            async with self._lock:
                yield
        finally:
            self._waiting -= 1
