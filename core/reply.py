"""Reply and Stream: what a run gives, at its end or piece by piece."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from decimal import Decimal
from types import TracebackType
from typing import Self

import msgspec

from core.messages import Message
from core.snapshot import Usage

Show = Callable[[str], bool]


class Reply(msgspec.Struct, frozen=True):
    """
    :param text: what the agent said, in markdown
    :param messages: all messages of the turn, the person's first
    :param usage: of the whole turn, the agents that it called included
    :param outcome: ``answered``, ``cut``, ``refused`` or ``empty``
    :param execution_id: the id that this run's tools and events were given
    :param cost: what the usage costs, by `core/prices.toml`, in its currency; None: nobody knows
    """

    text: str
    messages: tuple[Message, ...]
    usage: Usage
    outcome: str
    execution_id: str
    cost: Decimal | None = None


class Stream:
    """The text of one run, piece by piece, and its reply in the end.

    ::

        stream = session.stream("Tell me a story")
        async for piece in stream:
            print(piece, end="")
        reply = await stream.result()

    A stream that is not read to its end is a cancelled run: nothing of it is kept. `async with`
    makes sure of that at once, whatever happens in the block.
    """

    def __init__(self, run: Callable[[Show], Awaitable[Reply]]) -> None:
        # Not an attribute that the generator writes to: without a circle, a stream that is dropped
        # is closed there and then.
        self._replies: list[Reply] = []
        self._pieces = _pieces(run, self._replies)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        """
        :raises ChinwagError: what `run` raises
        """
        return await anext(self._pieces)

    async def result(self) -> Reply:
        """The reply, after what is still to come was read.

        :raises RuntimeError: there is none: the stream was closed before its end, or has failed
        """
        async for _ in self._pieces:
            pass
        if not self._replies:
            raise RuntimeError("the stream ended without a reply")
        return self._replies[0]

    async def aclose(self) -> None:
        """Cancel the run, unless it has ended."""
        await self._pieces.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


async def _pieces(
    run: Callable[[Show], Awaitable[Reply]], replies: list[Reply]
) -> AsyncGenerator[str, None]:
    """A refusal comes as a last paragraph."""
    pieces: asyncio.Queue[str | None] = asyncio.Queue()
    said = ""

    def show(so_far: str) -> bool:
        nonlocal said
        # White space at the end may yet turn out to be no part of the reply.
        so_far = so_far.rstrip()
        pieces.put_nowait(so_far[len(said) :])
        said = so_far
        return True

    async def running_to_its_end() -> Reply:
        return await run(show)

    running = asyncio.create_task(running_to_its_end())
    running.add_done_callback(lambda _: pieces.put_nowait(None))
    try:
        while (piece := await pieces.get()) is not None:
            yield piece
        reply = await running
        replaced = not reply.text.startswith(said)
        rest = f"\n\n{reply.text}" if replaced else reply.text[len(said) :]
        replies.append(reply)
        if rest:
            yield rest
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
