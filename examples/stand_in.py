"""The model for the examples: Claude when there is a key, else the local stand-in. No example by
itself."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from core.claude import Claude
from core.model import ModelClient
from playground.claude import Claude as StandIn


@asynccontextmanager
async def model() -> AsyncIterator[ModelClient]:
    if os.environ.get("ANTHROPIC_API_KEY"):
        client = Claude()
        try:
            yield client
        finally:
            await client.close()
        return
    print("(No ANTHROPIC_API_KEY: a local stand-in answers. It is no language model.)")
    async with StandIn() as stand_in:
        client = Claude("any", stand_in.url)
        try:
            yield client
        finally:
            await client.close()
