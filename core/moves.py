"""Moves: which chats go on under another key, as far as this process knows.

Only what makes a move safe while it happens and what finds its way for late messages; the move
itself is the store's, and whoever forgets all this is told again by the platform. Where several
processes share the database a note says it to the others, from before the move begins.
"""

from __future__ import annotations

from typing import Final

import msgspec

from core.store import Notes

NAME: Final = "moves"
REMEMBERED: Final = 1_000


def is_under(key: str, prefix: str) -> bool:
    """Whether the key is the prefix, or begins with it and a slash."""
    return key == prefix or key.startswith(f"{prefix}/")


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(dict[str, str]).decode


class Moves:
    """
    :param notes: where other processes look; None: there are none
    """

    def __init__(self, notes: Notes | None = None) -> None:
        self._notes = notes
        self._done: dict[str, str] = {}
        # What a store error has left half done, until somebody tries again.
        self._begun: dict[str, str] = {}

    def begin(self, old: str, new: str) -> None:
        """From now on nothing may begin under the old key."""
        self._begun[old] = new

    async def tell(self, old: str, new: str) -> None:
        """Other processes know it when this returns.

        :raises StoreError: what the store raises
        """
        while self._notes is not None:
            was = await self._notes.get(NAME)
            told = _decode(was or b"{}")
            if told.get(old) == new and new not in told:
                return
            after = {key: told[key] for key in told if key not in (old, new)} | {old: new}
            if await self._notes.put(NAME, _encode(_newest(after)), was=was):
                return

    async def told(self, key: str) -> tuple[str, str] | None:
        """The move of this key that another process knows of.

        :raises StoreError: what the store raises
        """
        if self._notes is None:
            return None
        for old, new in _decode(await self._notes.get(NAME) or b"{}").items():
            if is_under(key, old):
                return old, new
        return None

    def stored(self, old: str, new: str) -> None:
        """The store has done it: late messages are for the new key."""
        self._done.pop(new, None)
        self._done[old] = new
        if len(self._done) > REMEMBERED:
            del self._done[next(iter(self._done))]

    def end(self, old: str) -> None:
        """All of it is done."""
        self._begun.pop(old, None)

    def unfinished(self, key: str) -> list[tuple[str, str]]:
        """Moves of this key that were begun and not ended."""
        return [(old, new) for old, new in self._begun.items() if is_under(key, old)]

    def is_leaving(self, key: str) -> bool:
        """Whether nothing may begin under this key any more, from when its move begins."""
        return any(is_under(key, old) for old in (*self._begun, *self._done))

    def now_at(self, key: str) -> str:
        """The key under which this conversation goes on."""
        for old, new in self._done.items():
            if is_under(key, old):
                key = new + key[len(old) :]
        return key


def _newest(moves: dict[str, str]) -> dict[str, str]:
    return dict(list(moves.items())[-REMEMBERED:])
