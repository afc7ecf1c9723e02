"""The lock of a store that is not shared: one process writes, and a second one is refused.

It has a term, by the server's clock, and is renewed while its holder lives. Whoever has lost it,
because it stood still for longer than that, writes nothing: each script that writes looks at it.
"""

from __future__ import annotations

from typing import Final

from core.clock import Clock
from core.errors import StoreInUse, StoreUnavailable
from stores.redis import scripts
from stores.redis.server import Server

TERM_SECONDS: Final = 15.0


async def take(server: Server, clock: Clock) -> None:
    """
    :raises StoreInUse: another process holds it
    """
    held = await _try(server)
    if held is None:
        return
    holder, seconds = held
    lives = await _lives(server, holder)
    if lives is None:
        # When it is not renewed, nobody is there.
        await clock.sleep(seconds)
    dead = holder if lives is False else ""
    if await _try(server, dead) is not None:
        raise StoreInUse(
            f"{server.where}: another chinwag holds it: stop it, or send /reset in the chat"
        )


async def renew(server: Server) -> bool:
    """Whether it is ours. Also when it was lost, and nobody has it any more."""
    return await _try(server) is None


async def _try(server: Server, dead: str = "") -> tuple[str, float] | None:
    """None: it is ours. Else whose, and for how many seconds."""
    outcome, *rest = await server.run(
        scripts.TAKE, owner=server.owner, dead=dead, term=int(TERM_SECONDS * 1000)
    )
    if outcome == b"mine":
        server.locked = True
        return None
    return rest[0].decode(), float(rest[1]) / 1000


async def _lives(server: Server, holder: str) -> bool | None:
    """Whether the holder is connected; None: the server does not tell.

    A process that was killed is replaced at once, and need not be waited for.
    """
    try:
        clients = await server.command("CLIENT", "LIST")
    except StoreUnavailable:
        return None
    return f"name=chinwag-{holder}" in str(clients)
