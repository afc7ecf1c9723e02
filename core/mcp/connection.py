"""One MCP server: started, asked for its tools, called, and started again when it dies.

A task of its own holds the connection from its beginning to its end; calls come from other tasks.
Everything is bounded: the time of a start and of a call, how much the server may say at once, how
many tools it may have.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final

import httpx2
import mcp_types
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from core.clock import Clock
from core.errors import ToolError
from core.events import emit, trouble
from core.mcp import Server
from core.mcp.stdio import Stdio
from core.mcp.translation import tool_of, values_of
from core.results import MAX_KEPT
from core.tools import Tool

MAX_TOOLS: Final = 200
MAX_PAGES: Final = 50
MAX_SAID: Final = 2 * MAX_KEPT  # bytes of one message of a server
FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 60.0
WAIT_FOR_IT: Final = 10.0  # seconds that a call waits for a server that is being started again
CLOSE_SECONDS: Final = 10.0


class Connection:
    """
    `tools` and, when it has not come up, `why` are settled by `open`.
    """

    def __init__(self, server: Server, clock: Clock) -> None:
        self.name = server.name
        self.tools: tuple[Tool, ...] = ()
        self.why = ""
        self._server = server
        self._clock = clock
        self._client: Client | None = None
        self._there = asyncio.Event()
        self._lost = asyncio.Event()
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Until it has come up, or `why` says that it has not. It is then not tried again."""
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(first), name=f"mcp {self.name}")
        await first

    async def close(self) -> None:
        self._closing.set()
        if self._task is None:
            return
        if self._there.is_set():
            await asyncio.wait((self._task,), timeout=CLOSE_SECONDS)
        # Also in the middle of a start; its end is bounded.
        self._task.cancel()
        await asyncio.wait((self._task,), timeout=CLOSE_SECONDS)

    # ------------------------------------------------------------------ its life

    async def _run(self, first: asyncio.Future[None]) -> None:
        wait = FIRST_WAIT
        while not self._closing.is_set():
            began = self._clock.monotonic()
            self._lost.clear()
            try:
                async with self._connected() as client:
                    if not first.done():
                        self.tools = await self._list(client)
                        first.set_result(None)
                    await self._serve(client)
                why = "it has ended"
            except Exception as error:
                why = _reason(error)
            finally:
                self._lose()
            if not first.done():
                self.why = why
                first.set_result(None)
                return
            if self._closing.is_set():
                return
            if self._clock.monotonic() - began > LONGEST_WAIT:
                wait = FIRST_WAIT
            trouble("mcp.lost", server=self.name, error=why, again=wait)
            await _first_of(self._closing.wait(), self._clock.sleep(wait))
            wait = min(wait * 2, LONGEST_WAIT)

    async def _serve(self, client: Client) -> None:
        self._client = client
        self._there.set()
        emit("mcp.there", server=self.name)
        await _first_of(self._lost.wait(), self._closing.wait())

    def _lose(self, client: Client | None = None) -> None:
        """From now on calls wait for the next one.

        :param client: the one that has failed; when there is a newer one, it is not lost
        """
        if client is not None and client is not self._client:
            return
        self._client = None
        self._there.clear()
        self._lost.set()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Client]:
        async with AsyncExitStack() as stack:
            stdio = None
            if self._server.command is not None:
                stdio = Stdio(self._server, MAX_SAID, self._lose)
            transport = stdio or await self._http(stack)
            client = Client(
                transport,
                cache=None,
                read_timeout_seconds=self._server.timeout,
                client_info=mcp_types.Implementation(name="chinwag", version="0"),
            )
            try:
                async with asyncio.timeout(self._server.start_timeout):
                    await stack.enter_async_context(client)
            except TimeoutError as error:
                raise _NotUp(f"no answer in {self._server.start_timeout:g} s") from error
            except Exception as error:
                said = stdio.last_words if stdio else ""
                raise _NotUp(f"{_reason(error)}{f': {said}' if said else ''}") from error
            yield client

    async def _http(self, stack: AsyncExitStack) -> Any:
        client = httpx2.AsyncClient(
            headers=dict(self._server.headers),
            timeout=httpx2.Timeout(
                self._server.start_timeout, read=max(self._server.timeout, 300.0)
            ),
            event_hooks={"response": [_bounded]},
        )
        await stack.enter_async_context(client)
        assert self._server.url is not None
        return streamable_http_client(
            self._server.url, http_client=client, max_sse_event_size=MAX_SAID
        )

    async def _list(self, client: Client) -> tuple[Tool, ...]:
        """The tools that are wanted, by name."""
        tools: dict[str, Tool] = {}
        cursor: str | None = None
        async with asyncio.timeout(self._server.start_timeout):
            for _ in range(MAX_PAGES):
                page = await client.list_tools(cursor=cursor)
                for each in page.tools:
                    if any(fnmatchcase(each.name, pattern) for pattern in self._server.tools):
                        self._take(tools, each)
                cursor = page.next_cursor
                if cursor is None:
                    break
        return tuple(tools[name] for name in sorted(tools))

    def _take(self, tools: dict[str, Tool], each: mcp_types.Tool) -> None:
        if len(tools) >= MAX_TOOLS:
            trouble("mcp.tool.left_out", server=self.name, error=f"{MAX_TOOLS} tools at most")
            return
        try:
            tool = tool_of(self._server, each, partial(self._call, each.name))
        except ValueError as error:
            # One that the model's provider refuses would have every request refused.
            trouble("mcp.tool.left_out", server=self.name, tool=each.name[:100], error=str(error))
            return
        if tools.setdefault(tool.name, tool) is not tool:
            trouble("mcp.tool.left_out", server=self.name, tool=tool.name, error="there twice")

    # ------------------------------------------------------------------ a call

    async def _call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        client = self._client
        if client is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(WAIT_FOR_IT):
                    await self._there.wait()
            client = self._client
        if client is None:
            raise ToolError(f"{self.name} is not there at the moment. Try again later.")
        try:
            result = await client.call_tool(name, dict(arguments))
        except MCPError as error:
            # A server that was started again knows nothing of sessions from before.
            if error.code == mcp_types.CONNECTION_CLOSED or error.message == "Session terminated":
                self._lose(client)
                raise ToolError(f"{self.name} ended before it had answered.") from error
            raise ToolError(f"{self.name} refused: {error.message[:1000]}") from error
        except Exception as error:
            # The connection: whatever else a server does comes as a result.
            self._lose(client)
            raise ToolError(f"{self.name} ended before it had answered.") from error
        values = values_of(result)
        if result.is_error:
            raise ToolError("\n".join(value for value in values if isinstance(value, str)))
        return values[0] if len(values) == 1 else values


class _NotUp(Exception):
    """Why a server has not come up, in words."""


def _reason(error: BaseException) -> str:
    """Of groups, the first one inside."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, _NotUp):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return "there is no such command"
    if isinstance(error, MCPError):
        return error.message[:300]
    return type(error).__name__


async def _first_of(*waits: Any) -> None:
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# ---------------------------------------------------------------------- what comes by HTTP


async def _bounded(response: httpx2.Response) -> None:
    """Of an answer in one piece; events have a bound of their own."""
    if "text/event-stream" not in response.headers.get("content-type", ""):
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Bounded(response.stream)


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, inside: httpx2.AsyncByteStream) -> None:
        self._inside = inside

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inside:
            size += len(chunk)
            if size > MAX_SAID:
                raise httpx2.RemoteProtocolError("the answer was too large")
            yield chunk

    async def aclose(self) -> None:
        await self._inside.aclose()
