"""Socket Mode, seen from outside: there is always a connection over which Slack can tell us.

slack_sdk's client is used for one connection at a time and never for a second one: left alone it
tries a one-time address again and again, and when Slack asks it to reconnect it hangs up first.
Here each connection gets an address of its own, the new one is open before the old one goes, and
one over which nothing comes any more is given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from bots.slack.backoff import Backoff
from bots.slack.failures import BAD_TOKEN, code_of, retry_after, why
from bots.slack.wire import QUIET
from core.clock import Clock
from core.errors import PlatformRefused
from core.events import emit

CONNECT_SECONDS: Final = 10.0
PING_SECONDS: Final = 5.0
WATCH_SECONDS: Final = 0.25
LINGER_SECONDS: Final = 15.0  # for what is still on its way over the old connection

# What to confirm with: None is not to confirm at all.
Answered = dict[str, Any] | None
Hear = Callable[[SocketModeRequest], Awaitable[tuple[bool, Answered]]]

_REFUSED: Final = BAD_TOKEN | {"not_allowed_token_type", "no_permission", "app_not_found"}


class _Connection(SocketModeClient):
    """One connection. It does not reconnect: it says that it is asked to go."""

    def __init__(self, app_token: str, web: AsyncWebClient, ping_seconds: float) -> None:
        super().__init__(
            app_token,
            logger=QUIET,
            web_client=web,
            auto_reconnect_enabled=False,
            ping_interval=ping_seconds,
        )
        self.leaving = asyncio.Event()

    async def connect_to_new_endpoint(self, force: bool = False) -> None:
        self.leaving.set()


class Sockets:
    """
    :param app_token: with the scope connections:write
    :param hear: given what came; whether to confirm it, and what to say with that
    :param connect_seconds: after which a connection that does not come about is given up
    :param alive: called again and again while there is a connection
    """

    def __init__(
        self,
        web: AsyncWebClient,
        app_token: str,
        hear: Hear,
        clock: Clock,
        *,
        connect_seconds: float = CONNECT_SECONDS,
        ping_seconds: float = PING_SECONDS,
        linger_seconds: float = LINGER_SECONDS,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self._alive = alive
        self._web = web
        self._app_token = app_token
        self._hear = hear
        self._connect_seconds = connect_seconds
        self._ping_seconds = ping_seconds
        self._linger_seconds = linger_seconds
        self._unreachable = Backoff("slack.unreachable", clock)
        self._open: set[_Connection] = set()
        self._leaving: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until cancelled.

        :raises PlatformRefused: Slack refuses the app's token
        """
        try:
            current = await self._connected()
            while True:
                asked = await self._watch(current)
                emit("slack.reconnects", why="asked to" if asked else "lost")
                if not asked:
                    await self._hang_up(current)
                old, current = current, await self._connected()
                if asked:
                    leaving = asyncio.create_task(self._linger(old))
                    self._leaving.add(leaving)
                    leaving.add_done_callback(self._leaving.discard)
        finally:
            for task in self._leaving:
                task.cancel()
            for connection in list(self._open):
                await self._hang_up(connection)

    async def _watch(self, connection: _Connection) -> bool:
        """Until it is over. Whether Slack has asked us to reconnect."""
        leaving = asyncio.create_task(connection.leaving.wait())
        try:
            while True:
                await asyncio.wait([leaving], timeout=WATCH_SECONDS)
                if leaving.done():
                    return True
                if not await connection.is_connected():
                    return False
                self._alive()
        finally:
            leaving.cancel()

    async def _linger(self, old: _Connection) -> None:
        deadline = asyncio.get_running_loop().time() + self._linger_seconds
        loop = asyncio.get_running_loop()
        # The SDK has no event for it.
        while await old.is_connected() and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(WATCH_SECONDS)
        await self._hang_up(old)

    async def _connected(self) -> _Connection:
        """A new one; tries until it is there.

        :raises PlatformRefused: Slack refuses the app's token
        """
        while True:
            try:
                connection = await self._connect()
            except PlatformRefused:
                raise
            except Exception as error:
                # Any: what is none of Slack's answers comes out of the SDK as anything.
                await self._unreachable.wait(why(error), retry_after(error) or 0.0)
            else:
                self._unreachable.over()
                self._alive()
                return connection

    async def _connect(self) -> _Connection:
        try:
            answer = await self._web.apps_connections_open(app_token=self._app_token)
        except Exception as error:
            if code_of(error) in _REFUSED:
                raise PlatformRefused(
                    f"Slack refuses the app's token (SLACK_APP_TOKEN): {why(error)}"
                ) from None
            raise
        connection = _Connection(self._app_token, self._web, self._ping_seconds)
        self._open.add(connection)
        connection.socket_mode_request_listeners.append(self._heard)
        # Used once, and never again.
        connection.wss_uri = str(answer["url"])
        try:
            connecting = connection.connect()  # type: ignore[no-untyped-call]
            await asyncio.wait_for(connecting, self._connect_seconds)
        except BaseException:
            await self._hang_up(connection)
            raise
        return connection

    async def _heard(
        self, connection: AsyncBaseSocketModeClient, request: SocketModeRequest
    ) -> None:
        # Not a step is waited for before `hear` is called: so the order is that of arrival.
        confirm, payload = await self._hear(request)
        if confirm:
            await connection.send_socket_mode_response(
                SocketModeResponse(envelope_id=request.envelope_id, payload=payload)
            )

    async def _hang_up(self, connection: _Connection) -> None:
        self._open.discard(connection)
        try:
            async with asyncio.timeout(2.0):
                await connection.close()  # type: ignore[no-untyped-call]
        except Exception as error:
            # It is gone either way.
            emit("slack.hung_up", why=why(error))
        await connection.aiohttp_client_session.close()
        tasks = [connection.message_processor, connection.current_session_monitor]
        running = [task for task in (*tasks, connection.message_receiver) if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
