"""Socket Mode: tickets, connections, envelopes and their acknowledgements.

A ticket (the URL of apps.connections.open) opens one connection, within 30 seconds; a used, old or
unknown one is refused in the handshake. That real Slack refuses with 403 is an assumption; that it
does not accept a URL twice is what its clients are told (docs.slack.dev, "Using Socket Mode").
What was not acknowledged goes out again, over any connection. An app has at most ten; which one
gets an envelope is Slack's choice, here one after the other. aiohttp serves the WebSocket, for
uvicorn has none of its own.
"""

import asyncio
import json
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from aiohttp import WSCloseCode, WSMsgType, web

from playground.slack_chats import Json
from playground.slack_deliveries import Delivery, Failed
from playground.slack_faults import Answer, Delay, Faults, ResetAfter, ResetBefore

MAX_CONNECTIONS = 10
TICKET_SECONDS = 30.0
HOST = "applink-playground-1"


@dataclass(eq=False, slots=True)
class Connection:
    """One WebSocket of the app. `asleep`: it stays open and nothing is sent over it any more, not
    even an answer to a ping, as when a router has forgotten it."""

    number: int
    ws: web.WebSocketResponse
    transport: asyncio.Transport | None
    asleep: bool = False
    leaving: bool = False


@dataclass(eq=False, slots=True)
class _Unacknowledged:
    connection: Connection
    done: "asyncio.Future[Json | None]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Sockets:
    """The WebSocket server of one app."""

    def __init__(self, app_id: str, tell: Callable[[str, Json], None], faults: Faults) -> None:
        self.url = ""
        self.connections: list[Connection] = []
        self.opened = 0
        self.refused = 0
        self.acknowledged: list[str] = []
        self._app_id = app_id
        self._tell = tell
        self._faults = faults
        self._tickets: dict[str, float] = {}
        self._waiting: dict[str, _Unacknowledged] = {}
        self._changed = asyncio.Event()
        self._turn = 0
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/link/", self._serve)
        self._runner = web.AppRunner(
            app, handle_signals=False, access_log=None, shutdown_timeout=0.5
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"ws://{host}:{port}/link/"

    async def stop(self) -> None:
        for connection in list(self.connections):
            self._cut(connection)
        if self._runner is not None:
            await self._runner.cleanup()

    def ticket(self) -> str:
        """A URL for one connection."""
        name = str(uuid.uuid4())
        self._tickets[name] = time.monotonic()
        return f"{self.url}?ticket={name}&app_id={self._app_id}"

    async def carry(self, delivery: Delivery, ack_seconds: float) -> Json | None:
        connection = await self._next()
        envelope = str(uuid.uuid4())
        waiting = self._waiting[envelope] = _Unacknowledged(connection)
        body: Json = {
            "envelope_id": envelope,
            "payload": delivery.payload,
            "type": delivery.kind,
            "accepts_response_payload": delivery.kind != "events_api",
        }
        if delivery.kind == "events_api":
            body["retry_attempt"] = len(delivery.reasons)
            body["retry_reason"] = delivery.reasons[-1] if delivery.reasons else ""
        delivery.attempts += 1
        if delivery.state == "waiting":
            delivery.state = "sent"
        self._tell("delivered", {"id": delivery.id, "envelope_id": envelope})
        try:
            await self._send(connection, body)
            return await asyncio.wait_for(waiting.done, ack_seconds)
        except (TimeoutError, ConnectionError):
            raise Failed("timeout") from None
        finally:
            del self._waiting[envelope]

    async def farewell(self, reason: str) -> None:
        """Tells every connection to go: warning, refresh_requested or link_disabled. After the
        last two Slack closes by itself, and sends nothing over them before."""
        for connection in list(self.connections):
            await self._send(connection, _disconnect(reason))
            if reason != "warning":
                connection.leaving = True
                await connection.ws.close(code=WSCloseCode.GOING_AWAY)

    def cut(self) -> None:
        """The TCP connections break, without a word."""
        for connection in list(self.connections):
            self._cut(connection)

    def sleep(self) -> None:
        """From now on nothing comes over the connections that are open, though they stay so."""
        for connection in self.connections:
            connection.asleep = True

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        rule = self._faults.strike("socket", None)
        fault = None if rule is None else rule.fault
        transport = request.transport
        if isinstance(fault, Delay):
            await asyncio.sleep(fault.seconds)
        if isinstance(fault, ResetBefore) and transport is not None:
            transport.abort()  # the ticket is not used up
            return web.Response()
        issued = self._tickets.pop(request.query.get("ticket", ""), None)
        late = issued is None or time.monotonic() - issued > TICKET_SECONDS
        if late or isinstance(fault, Answer):
            self.refused += 1
            self._tell("refused", {"ticket": request.query.get("ticket", "")})
            return web.Response(status=fault.status if isinstance(fault, Answer) else 403)
        ws = web.WebSocketResponse(autoping=False, timeout=0.2)
        await ws.prepare(request)
        self.opened += 1
        connection = Connection(self.opened, ws, transport)
        if isinstance(fault, ResetAfter):
            self._cut(connection)
            return ws
        if len(self.connections) >= MAX_CONNECTIONS:
            await self._send(connection, _disconnect("too_many_websockets"))
            await ws.close()
            return ws
        self.connections.append(connection)
        try:
            await self._send(connection, self._hello())
            self._tell("connected", {"connection": connection.number})
            self._wake()
            await self._listen(connection)
        finally:
            self.connections.remove(connection)
            for waiting in self._waiting.values():
                if waiting.connection is connection and not waiting.done.done():
                    waiting.done.set_exception(ConnectionResetError("the socket was closed"))
            self._tell("disconnected", {"connection": connection.number})
        return ws

    async def _listen(self, connection: Connection) -> None:
        async for message in connection.ws:
            if connection.asleep:
                continue
            if message.type is WSMsgType.PING:
                await connection.ws.pong(message.data)
            elif message.type is WSMsgType.TEXT:
                self._heard(message.data)

    def _heard(self, text: str) -> None:
        with suppress(ValueError):
            said = json.loads(text)
            if not isinstance(said, dict):
                return
            envelope = str(said.get("envelope_id"))
            waiting = self._waiting.get(envelope)
            if waiting is not None and not waiting.done.done():
                self.acknowledged.append(envelope)
                payload = said.get("payload")
                waiting.done.set_result(payload if isinstance(payload, dict) else None)

    async def _next(self) -> Connection:
        while True:
            able = [c for c in self.connections if not c.leaving and not c.ws.closed]
            if able:
                self._turn += 1
                return able[self._turn % len(able)]
            await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _hello(self) -> Json:
        return {
            "type": "hello",
            "num_connections": len(self.connections),
            "debug_info": {
                "host": HOST,
                "build_number": 120,
                "approximate_connection_time": 18_060,
            },
            "connection_info": {"app_id": self._app_id},
        }

    async def _send(self, connection: Connection, body: Json) -> None:
        if not connection.asleep:
            await connection.ws.send_str(json.dumps(body, separators=(",", ":")))

    def _cut(self, connection: Connection) -> None:
        if connection.transport is not None:
            connection.transport.abort()


def _disconnect(reason: str) -> Json:
    return {"type": "disconnect", "reason": reason, "debug_info": {"host": HOST}}
