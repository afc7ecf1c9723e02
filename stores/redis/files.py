"""The server's files, written anew, so that nothing is left in them of what was deleted."""

from __future__ import annotations

from typing import Final

from core.clock import Clock
from core.errors import StoreUnavailable
from stores.redis.server import Server

WAIT_SECONDS: Final = 0.05  # between two looks at how far it is
_BUSY: Final = ("in progress", "child process is active")


async def rewrite(server: Server, clock: Clock) -> None:
    """The append-only file, and the snapshot of the data, as far as the server makes them.

    :raises StoreUnavailable: it failed, or we are not allowed to ask for it
    """
    if (await server.information("persistence")).get("aof_enabled") == "1":
        await _write(server, clock, "BGREWRITEAOF", "aof_last_bgrewrite_status")
    if await server.setting("save") != "":
        await _write(server, clock, "BGSAVE", "rdb_last_bgsave_status")


async def _write(server: Server, clock: Clock, command: str, outcome: str) -> None:
    # One that is under way began too early.
    while True:
        await _wait(server, clock)
        try:
            await server.command(command)
            break
        except StoreUnavailable as error:
            if not any(busy in str(error) for busy in _BUSY):
                raise
    found = await _wait(server, clock)
    if found.get(outcome) != "ok":
        raise StoreUnavailable(f"{server.where}: {command} failed: see the server's own log")


async def _wait(server: Server, clock: Clock) -> dict[str, str]:
    names = ("aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress")
    while True:
        found = await server.information("persistence")
        if all(found.get(name, "0") == "0" for name in names):
            return found
        await clock.sleep(WAIT_SECONDS)
