"""Sending what a `Play` says, faults included: only here does the stand-in wait or hang up."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from playground.claude_wire import Play
from playground.serve import hang_up


class Played(Response):
    """A response that stops, even in the middle of a pause, as soon as nobody listens."""

    def __init__(self, play: Play, request_id: str) -> None:
        super().__init__()
        self.play = play
        self.request_id = request_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(_client_gone(receive))
        try:
            await self._run(scope, send, gone)
        finally:
            gone.cancel()
            with suppress(asyncio.CancelledError):
                await gone

    async def _run(self, scope: Scope, send: Send, gone: asyncio.Task[None]) -> None:
        play = self.play
        if play.status is not None:
            headers = {**play.headers, "request-id": self.request_id}
            raw = [(name.encode(), value.encode()) for name, value in headers.items()]
            await send({"type": "http.response.start", "status": play.status, "headers": raw})
        for pause, chunk in play.chunks:
            if await _leaves(gone, pause):
                return
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if await _leaves(gone, play.wait):
            return
        if play.cut:
            await hang_up(scope)
        else:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _client_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _leaves(gone: asyncio.Task[None], seconds: float) -> bool:
    """Wait; true as soon as the client has gone away."""
    if seconds > 0:
        await asyncio.wait({gone}, timeout=seconds)
    else:
        # The answers to other clients get their turn between any two pieces.
        await asyncio.sleep(0)
    return gone.done()
