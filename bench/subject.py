"""The seam of the benchmark: what a run asks of a store, whoever wrote it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from bench.said import Exchange

Numbers = dict[str, float]


class Spec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run.

    :param history: messages that each chat has said already
    :param turns: in all, or of each chat when they come all at once; or loads
    :param cap: seconds after which it stops; what it did until then counts
    :param descriptors: how many files may be open; 0: as many as outside
    :param block: turns after which it lets the run beside it go on; 0: it runs to its end
    :param folder: where its database is; "": in one of its own
    """

    kind: str
    who: str
    chats: int = 1
    history: int = 0
    turns: int = 0
    cap: float = 60.0
    descriptors: int = 0
    block: int = 0
    folder: str = ""


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


READY: Final = "ready"


class Alternation:
    """Whose turn it is, among processes that are compared: each does a few turns while the others
    wait, so that all meet the same machine."""

    def __init__(self, block: int) -> None:
        self._block = block
        self._done = 0

    def wait(self) -> None:
        """Before each turn. Stops the event loop, in which nothing else may be under way."""
        if self._block and self._done % self._block == 0:
            print(READY, flush=True)
            sys.stdin.readline()
        self._done += 1


S = TypeVar("S", bound=Subject)


@asynccontextmanager
async def opened(subject: S) -> AsyncIterator[S]:
    await subject.open()
    try:
        yield subject
    finally:
        await subject.close()
