"""The seam of the benchmark: what a run asks of a store, whoever wrote it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from bench.said import Exchange


class Wrong(Exception):
    """A store gave back something else than what was put into it."""


class Seen(NamedTuple):
    """What a turn found when it loaded its conversation.

    :param total: messages of history
    :param window: how many of them were at hand; None: all, always
    :param last: blocks of the newest one; None: none, or this store cannot tell
    """

    total: int
    window: int | None = None
    last: bytes | None = None


Turn = Callable[[], Awaitable[Seen]]


class Subject(Protocol):
    async def open(self) -> None: ...

    async def fill(self, key: str, said: Sequence[Exchange]) -> None:
        """A chat that has said all this already. Not timed."""
        ...

    def ready(self, key: str, said: Exchange, total: int) -> Turn:
        """A turn that needs only to be run: what its caller would hand over ready-made is made
        here, and not timed.

        :param total: messages that the chat will have when it runs
        """
        ...

    async def count(self, key: str) -> int:
        """Messages that are really there."""
        ...

    async def close(self) -> None: ...
