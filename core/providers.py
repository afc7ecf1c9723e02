"""Providers: several model clients behind one, each request to the one that its model belongs to.

It knows no provider itself, imports no SDK, and retries nothing: which clients there are is for
whoever builds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from core.errors import ModelNotFound
from core.model import Answer, ModelClient, OnText, Request


@runtime_checkable
class _Warming(Protocol):
    async def warm(self) -> None: ...


class Providers:
    """
    :param clients: by the name that stands before the slash of ``provider/model``
    :param default: whose models may be named without one
    """

    def __init__(self, clients: Mapping[str, ModelClient], default: str = "anthropic") -> None:
        self._clients = dict(clients)
        self._default = default

    async def answer(self, request: Request, on_text: OnText | None = None) -> Answer:
        name = request.provider or self._default
        client = self._clients.get(name)
        if client is None:
            known = ", ".join(sorted(self._clients)) or "none"
            raise ModelNotFound(f"there is no provider {name!r}; there is: {known}")
        return await client.answer(request, on_text)

    async def warm(self, provider: str) -> None:
        """Make this provider's client ready, so that the first question need not wait for it.

        :raises ModelError: what it needs is not there
        """
        client = self._clients.get(provider or self._default)
        if isinstance(client, _Warming):
            await client.warm()

    async def close(self) -> None:
        await asyncio.gather(*(client.close() for client in self._clients.values()))

    def __repr__(self) -> str:
        return f"Providers({', '.join(sorted(self._clients))})"
