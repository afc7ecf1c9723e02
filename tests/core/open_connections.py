"""Counts the requests that a stand-in is answering: to see that a client has hung up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send


class OpenConnections:
    def __init__(self) -> None:
        self.open = 0

    @property
    def middleware(self) -> Callable[[ASGIApp], ASGIApp]:
        def counting(app: ASGIApp) -> ASGIApp:
            async def counted(scope: Scope, receive: Receive, send: Send) -> None:
                self.open += 1
                try:
                    await app(scope, receive, send)
                finally:
                    self.open -= 1

            return counted

        return counting

    async def all_closed(self) -> bool:
        """Whether, within a second, nobody is being answered any more."""
        async with asyncio.timeout(1):
            while self.open:  # noqa: ASYNC110 (a test looks from outside)
                await asyncio.sleep(0.005)
        return True
