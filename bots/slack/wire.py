"""The ways to Slack: one client session, slack_sdk's client over it, and slack-bolt's app.

Both SDKs read tokens, and whether to install anywhere, out of the environment unless they are kept
from it; here they are given all they may know. They are kept quiet too: what they write into a log
may be what a person said, or an address that is a ticket. What an error means is not decided here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

import aiohttp
from slack_bolt.async_app import AsyncApp, AsyncBoltRequest
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient

CONNECT_SECONDS: Final = 10.0
CONNECTIONS: Final = 256

QUIET: Final = logging.getLogger("bots.slack.sdk")
QUIET.setLevel(logging.CRITICAL)

Authorize = Callable[[str | None, str | None], Awaitable[AuthorizeResult | None]]
Hear = Callable[[AsyncBoltRequest], Awaitable[BoltResponse | None]]


def session(seconds: float) -> aiohttp.ClientSession:
    """
    :param seconds: until a request without an answer is given up
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=CONNECTIONS),
        cookie_jar=aiohttp.DummyCookieJar(),
        # With a session of ours the client's own timeout is without effect.
        timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS),
        trust_env=True,
    )


def client(base_url: str, wire: aiohttp.ClientSession, token: str | None = None) -> AsyncWebClient:
    """
    :param token: the bot's; None: each call says its own
    """
    return AsyncWebClient(
        token,
        base_url=base_url,
        session=wire,
        # Its own would send again what may have been done.
        retry_handlers=[],
        logger=QUIET,
    )


def bolt(web: AsyncWebClient, signing_secret: str, authorize: Authorize, hear: Hear) -> AsyncApp:
    """
    :param signing_secret: of requests by HTTP; empty where there are none
    :param authorize: who we are in a team, or in all of an organisation; None: nobody
    :param hear: asked before anything is acknowledged; None: Bolt shall go on with it
    """

    async def authorized(team_id: str | None, enterprise_id: str | None) -> AuthorizeResult | None:
        return await authorize(team_id, enterprise_id) if team_id or enterprise_id else None

    async def heard(
        request: AsyncBoltRequest, next_: Callable[[], Awaitable[BoltResponse]]
    ) -> BoltResponse | None:
        response = await hear(request)
        return response if response is not None else await next_()

    with _no_environment():
        app = AsyncApp(
            logger=QUIET,
            # It becomes the name of a logger, which is made as quiet as this one.
            name=QUIET.name,
            signing_secret=signing_secret,
            client=web,
            authorize=cast(Any, authorized),  # that it may be None is not in its type
            attaching_conversation_kwargs_enabled=False,
        )
    app.use(heard)
    return app


@contextmanager
def _no_environment() -> Iterator[None]:
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("SLACK_")}
    try:
        yield
    finally:
        os.environ.update(hidden)
