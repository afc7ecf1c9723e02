"""The one place where something from outside may knock: an ASGI app of ours, served by uvicorn
inside the running loop.

There is no open port unless `[http] port` is set, and by default only this machine can reach it:
a reverse proxy stands in front and does TLS. It is not a web framework, knows no platform, and
takes no signals. What an adapter wants served is in its `routes`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from typing import Final, Protocol, runtime_checkable

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from core.adapter import Accept
from core.errors import ConfigError

MAX_BODY: Final = 1_000_000  # bytes that a platform may send at once
BODY_SECONDS: Final = 10.0  # to send them in
GRACE_SECONDS: Final = 5  # for requests under way when the program stops
MAX_CONNECTIONS: Final = 1_000


@runtime_checkable
class Served(Protocol):
    """An adapter that its platform comes to. `run` is called as well, and may do the rest."""

    def routes(self, accept: Accept) -> Sequence[BaseRoute]:
        """What the platform asks for; none when it does not come to us after all.

        :param accept: as in `run`: a message is confirmed only after it has returned
        """
        ...


class BadBody(Exception):
    """
    :param status: of the answer
    """

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


async def body_of(request: Request, limit: int = MAX_BODY) -> bytes:
    """The body, read no further than to its limit.

    :raises BadBody: it is larger (413), or does not come (408)
    """
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdecimal() and int(length) > limit:
        raise BadBody(413)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > limit:
                    raise BadBody(413)
    except TimeoutError:
        raise BadBody(408) from None
    return bytes(body)


def listen(host: str, port: int) -> socket.socket:
    """
    :raises ConfigError: the port cannot be had
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        # Some platforms put the address into the reason, others do not.
        why = (error.strerror or type(error).__name__).partition(" (")[0]
        raise ConfigError(f"[http] {host}:{port}: {why}; set another host or port") from None
    # A socket that asyncio did not make waits for more to send, 40 ms an answer, if not told so.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def app_of(routes: Iterable[BaseRoute]) -> ASGIApp:
    return _Quiet(Starlette(routes=list(routes)))


async def serve(app: ASGIApp, listener: socket.socket) -> None:
    """Until cancelled; then what is under way may come to its end, for a few seconds."""
    import uvicorn

    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        # Anybody can make it warn.
        log_level="error",
        # Addresses are nobody's affair, and one of them might be meant to be secret.
        access_log=False,
        proxy_headers=False,
        date_header=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    # Not `Server.serve`: it would take the signals.
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    # Cancelled in its middle, it would leave a port behind that nobody closes.
    starting = asyncio.ensure_future(server.startup(sockets=[listener]))
    try:
        await asyncio.shield(starting)
        await asyncio.Event().wait()
    finally:
        await starting
        await server.shutdown(sockets=[listener])
        for connection in list(server.server_state.connections):
            connection.transport.abort()


class _Quiet:
    """The app, minus what would be logged as an error when a client goes away."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except ClientDisconnect:
            pass
