"""A stand-in for Claude over a real socket, and the unmodified client that talks to it.

The stand-in remembers nothing: that it knows somebody's name shows what it was really sent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from core.claude import Claude
from playground.claude import Claude as StandIn


@pytest.fixture
async def stand_in() -> AsyncIterator[StandIn]:
    async with StandIn() as server:
        yield server


@pytest.fixture
async def claude(stand_in: StandIn) -> AsyncIterator[Claude]:
    client = Claude("any", stand_in.url)
    yield client
    await client.close()
