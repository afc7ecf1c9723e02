"""What people have yet to be told: that their conversation could not be read, and began anew.

Kept in a note, from before the conversation is set aside until the new one says it: what was
accepted and not answered went with the old one, and whoever waits for it must not wait for nothing
because we were killed in between. Not a log, and not what was set aside: that is the store's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from core.store import Notes

NAME: Final = "untold"

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(dict[str, str]).decode


class Untold:
    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._known: dict[str, str] = {}

    async def open(self) -> tuple[str, ...]:
        """Remember what an earlier process could not say any more.

        :returns: in which conversations
        :raises StoreError: what the store raises
        """
        self._known = _decode(await self._notes.get(NAME) or b"{}")
        return tuple(self._known)

    def of(self, key: str) -> str | None:
        return self._known.get(key)

    async def refresh(self) -> None:
        """What other processes could not say.

        :raises StoreError: what the store raises
        """
        self._known = _decode(await self._notes.get(NAME) or b"{}")

    async def add(self, key: str, sentence: str) -> None:
        """Durable when it returns.

        :raises StoreError: what the store raises
        """
        await self._change(lambda kept: {**kept, key: sentence})

    async def told(self, key: str) -> None:
        """The new conversation says it.

        :raises StoreError: what the store raises; it is said once all the same
        """
        if key in self._known:
            await self._change(lambda kept: {name: kept[name] for name in kept if name != key})

    async def _change(self, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
        while True:
            was = await self._notes.get(NAME)
            after = change(_decode(was or b"{}"))
            if await self._notes.put(NAME, _encode(after) if after else None, was=was):
                self._known = after
                return
