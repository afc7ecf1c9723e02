"""Serving an ASGI app inside the running event loop, and stopping it within milliseconds.

This is uvicorn without the process around it: no signal handlers, no log configuration, no main
loop that polls, no lifespan. A stand-in lives as long as an `async with` block, and what is still
open when the block ends (a long poll, a stream nobody finished) is cut off in silence instead of
being waited for. It is not a server for the open network: only loopback addresses are accepted.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import uvicorn
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol

# A handler that goes on for longer than this after its cancellation is a bug to be seen.
PATIENCE_SECONDS = 2.0


@asynccontextmanager
async def serving(app: ASGIApp, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve `app` while the block runs; yields its base URL, `http://127.0.0.1:PORT`.

    Port 0 takes a free one. Raises `ValueError` for a host that is not loopback, `OSError` for a
    port in use, and at the end `TimeoutError` if a handler does not stop when cancelled: requests
    that still run then have their connection closed and their handler cancelled.
    """
    address = _loopback(host)
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    # Bound here and not by uvicorn, which answers a port in use with `SystemExit`.
    listener = socket.create_server((str(address), port), family=family)
    # A socket that asyncio did not make waits for more to send, 40 ms an answer, if not told so.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    guard = _Guard(app)
    config = uvicorn.Config(
        guard,
        http=_Connection,
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    try:
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[listener])
    except BaseException:
        listener.close()
        raise
    shown = f"[{address}]" if address.version == 6 else str(address)
    try:
        yield f"http://{shown}:{listener.getsockname()[1]}"
    finally:
        guard.closing = True
        await _close(server)


async def hang_up(scope: Scope) -> None:
    """Close the TCP connection of a request at once; the handler should return after that.

    Raises `ConnectionAbortedError` when the app is served by something other than `serving`.
    """
    cut = scope.get("state", {}).get("hang_up")
    if cut is None:
        raise ConnectionAbortedError("only playground.serve.serving can hang up on a client")
    cut()
    # The protocol hears of the loss in the next round of the loop; a handler that returns before
    # that would be logged as one that did not finish its answer.
    await asyncio.sleep(0)


def _loopback(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    if host == "localhost":
        return ipaddress.IPv4Address("127.0.0.1")
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        if address.is_loopback:
            return address
    raise ValueError(
        "The playground protects nothing and so serves only this machine:"
        f" host must be 127.0.0.1, ::1 or localhost, not {host!r}."
    )


class _Connection(H11Protocol):
    """Uvicorn's HTTP/1.1 connection, which also lets the app cut the line: see `hang_up`."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: Any,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, {**app_state, "hang_up": self._cut}, _loop)

    def _cut(self) -> None:
        self.transport.abort()


class _Guard:
    """The app, minus what uvicorn would log as errors when a client or the server goes away."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.closing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self.app(scope, receive, send)
        except (ClientDisconnect, WebSocketDisconnect):
            pass
        except asyncio.CancelledError:
            if not self.closing:
                raise


async def _close(server: uvicorn.Server) -> None:
    state = server.server_state
    for listening in server.servers:
        listening.close()
    # One that was just accepted needs three rounds of the loop to be among `state.connections`.
    for _ in range(3):
        await asyncio.sleep(0)
    cancelled: set[asyncio.Task[None]] = set()
    first = True
    async with asyncio.timeout(PATIENCE_SECONDS):
        while state.connections or state.tasks:
            for connection in list(state.connections):
                # One whose answer is complete closes by itself, after sending what it still holds.
                connection.shutdown()
                if not (first and connection.transport.is_closing()):
                    connection.transport.abort()
            first = False
            running = set(state.tasks)
            for task in running - cancelled:
                task.cancel()
            cancelled |= running
            if running:
                await asyncio.wait(running, timeout=0.05)
            else:
                await asyncio.sleep(0.001)
        for listening in server.servers:
            await listening.wait_closed()
