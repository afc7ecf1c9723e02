"""What pages are told as it happens: server-sent events, in order, to everybody who looks.

Nothing is kept for those who come later; they begin with the whole state. Who reads too slowly is
cut off, and a page that was cut off comes back and begins anew.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

Json = dict[str, Any]

MOST_UNREAD: Final = 5_000
QUIET_SECONDS: Final = 15.0  # then a comment goes out, so that both ends know they are there


class Feed:
    """Who looks now."""

    def __init__(self) -> None:
        self._readers: set[asyncio.Queue[str | None]] = set()

    def __len__(self) -> int:
        return len(self._readers)

    def publish(self, kind: str, data: Json) -> None:
        """
        :param kind: the name of the event
        :param data: anything that is JSON
        """
        if not self._readers:
            return
        text = event(kind, data)
        for reader in list(self._readers):
            if reader.qsize() >= MOST_UNREAD:
                self._readers.discard(reader)
                reader.put_nowait(None)
            else:
                reader.put_nowait(text)

    async def read(self, first: Callable[[], str]) -> AsyncIterator[str]:
        """Events as text, those that have gathered together in one piece.

        :param first: the text to begin with; what happens after it is made comes next
        """
        reader: asyncio.Queue[str | None] = asyncio.Queue()
        self._readers.add(reader)
        try:
            yield first()
            while True:
                try:
                    texts = [await asyncio.wait_for(reader.get(), QUIET_SECONDS)]
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                while not reader.empty():
                    texts.append(reader.get_nowait())
                yield "".join(text for text in texts if text)
                if None in texts:
                    return
        finally:
            self._readers.discard(reader)


def event(kind: str, data: Json) -> str:
    """One event of the stream. JSON has no raw line ends, so one line holds it."""
    return f"event: {kind}\ndata: {json.dumps(data, ensure_ascii=False, default=str)}\n\n"
