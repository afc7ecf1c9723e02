"""A server as a child process: messages on its standard input and output, one a line.

Beside the package's own transport because that one takes a line of any length into memory, and
copies what it has of it with each piece that comes. Here a line has a bound; a server that says
more at once is ended, like one that closes its output. What it says on standard error is kept only
as its last words.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

import anyio
import mcp_types
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from core.events import trouble
from core.mcp import Server

GRACE_SECONDS: Final = 2.0  # after its input is closed, and again after SIGTERM
_CHUNK: Final = 1 << 16


class Stdio:
    """A transport for `mcp.Client`: an async context manager that gives two streams.

    :param limit: bytes of one line
    :param lost: called when the server has ended, or has to
    """

    def __init__(self, server: Server, limit: int, lost: Callable[[], None]) -> None:
        self.last_words = ""
        self._server = server
        self._limit = limit
        self._lost = lost
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._streams: list[Any] = []

    async def __aenter__(self) -> Any:
        """
        :raises OSError: it cannot be started
        """
        command = self._server.command
        assert command is not None
        self._process = process = await asyncio.create_subprocess_exec(
            command,
            *self._server.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=get_default_environment() | dict(self._server.env),
            cwd=self._server.cwd,
            # A Ctrl-C in the terminal is for us; and what it starts itself ends with it.
            start_new_session=True,
            limit=self._limit,
        )
        into, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, out_of = anyio.create_memory_object_stream[SessionMessage](0)
        self._streams = [into, read, write, out_of]
        assert process.stdout and process.stderr
        self._tasks = [
            asyncio.create_task(work, name=f"mcp {self._server.name} {what}")
            for what, work in (
                ("reads", self._read(process.stdout, into)),
                ("writes", self._write(process, out_of, into)),
                ("listens", self._listen(process.stderr)),
            )
        ]
        return read, write

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._process
        assert process is not None
        try:
            assert process.stdin
            process.stdin.close()
            await self._ended(process)
        finally:
            # Whatever it has started is still in its group, and whoever was told to hurry does
            # not wait.
            _signal(process, signal.SIGKILL)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for stream in self._streams:
                await stream.aclose()
            # asyncio's own, which stays open as long as anybody holds the other end of a pipe.
            process._transport.close()  # type: ignore[attr-defined]

    async def _ended(self, process: asyncio.subprocess.Process) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if await self._within(process):
                return
            _signal(process, number)
        if not await self._within(process):
            trouble("mcp.alive", server=self._server.name, pid=process.pid)

    async def _within(self, process: asyncio.subprocess.Process) -> bool:
        # Not `wait`: that waits for the ends of the pipes, too, which others may hold.
        for _ in range(round(GRACE_SECONDS / 0.01)):
            if process.returncode is not None:
                return True
            await asyncio.sleep(0.01)
        return False

    # ------------------------------------------------------------------ its pipes

    async def _read(self, stdout: asyncio.StreamReader, into: Any) -> None:
        try:
            # It has ended, or we have: both are told below.
            with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                async with into:
                    while line := await stdout.readline():
                        if line.strip():
                            await into.send(_message(line))
        except ValueError:
            trouble("mcp.flood", server=self._server.name, error=f"more than {self._limit} bytes")
            assert self._process
            _signal(self._process, signal.SIGKILL)
        finally:
            self._lost()

    async def _write(self, process: asyncio.subprocess.Process, out_of: Any, into: Any) -> None:
        assert process.stdin
        try:
            with suppress(OSError):
                async with out_of:
                    async for each in out_of:
                        said = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                        process.stdin.write(said.encode() + b"\n")
                        await process.stdin.drain()
        finally:
            # Nothing that was asked will be answered.
            into.close()
            self._lost()

    async def _listen(self, stderr: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while said := await stderr.read(_CHUNK):
                lines = said.decode(errors="replace").strip().splitlines()
                self.last_words = lines[-1][:300] if lines else self.last_words


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
