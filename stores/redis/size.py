"""How many bytes all takes, or one conversation.

By what the fields hold, not by the memory that they take: that is more, and the server's affair.
"""

from __future__ import annotations

from typing import Any, Final

from stores.redis import scripts
from stores.redis.server import Server

PAGE: Final = 100
A_CALL: Final = 200  # bytes, about, of what one used


async def of(server: Server, key: str | None) -> int:
    if key is not None:
        (size,) = await server.run(scripts.SIZE, key=key)
        return int(size)
    total, start, last = 0, b"-", b""
    while last is not None:
        last, size = await server.run(scripts.SIZES, start=start)
        total, start = total + size, b"(" + (last or b"")
    (ids,) = await server.run(scripts.ASIDE)
    for id in ids:
        (size,) = await server.run(scripts.SIZE_ASIDE, id=id)
        total += size
    return total + await _beside(server)


async def _beside(server: Server) -> int:
    """Blobs, and what calls used."""
    total, start = 0, b"-"
    while True:
        found: list[Any] = await server.run(scripts.BLOB_SIZES, start=start, limit=PAGE)
        last, size, calls = found
        total += size
        if last is None:
            return int(total + calls * A_CALL)
        start = b"(" + last
