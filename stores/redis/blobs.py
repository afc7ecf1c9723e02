"""Blobs: the bytes once, and who uses them.

When a conversation is done with a blob is decided as in `core.blobs`, by the script that saves.
"""

from __future__ import annotations

import asyncio
from typing import Final

from core import blobs
from core.clock import Clock
from core.errors import BlobUnreadable
from core.keys import check_key
from core.store import Blob
from stores.redis import scripts
from stores.redis.server import Server

PAGE: Final = 100


class RedisBlobs:
    """Bytes beside the histories."""

    def __init__(self, server: Server, clock: Clock) -> None:
        self._server = server
        self._clock = clock

    async def put(self, key: str, data: bytes, media_type: str) -> str:
        check_key(key)
        id = await asyncio.to_thread(blobs.id_of, data)
        now = str(self._clock.now())
        await self._server.run(scripts.PUT_BLOB, data, key=key, blob=id, type=media_type, now=now)
        return id

    async def get(self, id: str) -> Blob | None:
        if not blobs.is_id(id):
            return None
        ((media_type, data),) = await self._server.run(scripts.BLOB, blob=id)
        if media_type is None and data is None:
            return None
        if media_type is None or data is None:
            raise BlobUnreadable(f"{id[:19]}…: a part of it is missing")
        return Blob(media_type.decode(), await asyncio.to_thread(blobs.checked, id, data))

    async def sweep(self, before: int) -> int:
        count, start = 0, b"-"
        while True:
            last, ended = await self._server.run(
                scripts.SWEEP, start=start, limit=PAGE, before=before
            )
            count += ended
            if last is None:
                return int(count)
            start = b"(" + last
