"""MCP: tools of other programs, by the Model Context Protocol.

::

    files = Server(name="files", command="npx", args=("-y", "some-files-server", "."))
    async with Servers([files]) as servers:
        agent = Agent(tools=servers.tools)

The bot never depends on them: one that does not come up is said to be missing, one that dies is
started again, and a call in its middle becomes an error result. The names of their tools begin with
the server's own, `files__read`. What the `mcp` package does is behind `connection.py`; it is an
extra, and imported when there is a server.
"""

from __future__ import annotations

import asyncio
import importlib.util
import re
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import msgspec

from core.clock import Clock, SystemClock
from core.events import emit, trouble
from core.tools import Tool

if TYPE_CHECKING:
    from core.mcp.connection import Connection

EXTRA: Final = "the package mcp is not installed: install chinwag[mcp]"

_NAME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9-]{0,39}")


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """How a server is reached: a command that speaks on its standard input and output, or a URL
    (streamable HTTP).

    :param name: the beginning of its tools' names: a letter, then letters, digits, -
    :param env: beside a few variables that are safe to inherit (PATH, HOME, ...)
    :param tools: which of its tools there are, by their own names; ``*`` stands for anything
    :param timeout: seconds for one call
    :param start_timeout: seconds within which it must have come up
    :raises ValueError: a name that cannot be one; not exactly one of `command` and `url`
    """

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = {}
    tools: tuple[str, ...] = ("*",)
    timeout: float = 60.0
    start_timeout: float = 15.0

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"mcp server {self.name!r}: want a letter, then letters, digits or -, 40 at most"
            )
        if (self.command is None) == (self.url is None):
            raise ValueError(f"mcp server {self.name}: want either a command or a url")

    def __repr__(self) -> str:
        # What else it has may hold secrets.
        return f"Server(name={self.name!r})"


class Servers:
    """Servers while they run. An async context manager; what it gives is settled when it is open.

    `tools` has the tools of those that came up, in the order of the servers and by name;
    `missing` says of the others, by their names, why.
    """

    def __init__(self, servers: Sequence[Server], *, clock: Clock | None = None) -> None:
        self.tools: tuple[Tool, ...] = ()
        self.missing: dict[str, str] = {}
        self._servers = tuple(servers)
        self._clock = clock or SystemClock()
        self._connections: list[Connection] = []

    async def __aenter__(self) -> Self:
        """Waits until all have come up or it is clear that they do not. Raises nothing."""
        if not self._servers:
            return self
        if importlib.util.find_spec("mcp") is None:
            self.missing = {server.name: EXTRA for server in self._servers}
        else:
            # It takes a second: not in the loop.
            module = await asyncio.to_thread(importlib.import_module, "core.mcp.connection")
            made = [module.Connection(server, self._clock) for server in self._servers]
            self._connections = made
            try:
                await asyncio.gather(*(each.open() for each in made))
            except BaseException:
                await self._close()
                raise
            self.missing = {each.name: each.why for each in made if each.why}
            self.tools = tuple(tool for each in made for tool in each.tools)
        for name, why in self.missing.items():
            trouble("mcp.missing", server=name, error=why)
        emit("mcp", tools=len(self.tools), missing=len(self.missing))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        connections, self._connections = self._connections, []
        await asyncio.gather(*(each.close() for each in connections))
