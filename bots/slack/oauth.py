"""How a workspace installs the app: Bolt's OAuth flow on our own store, and tokens that are renewed
before they end.

Not where the tokens are kept (`installs.py`), and not the pages' routes (`http.py`). The state of
an install is stored when it is given out, is good for ten minutes and once, and only in the browser
that it was given to.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec
from slack_bolt.adapter.starlette.async_handler import (
    to_async_bolt_request,
    to_starlette_response,
)
from slack_bolt.oauth.async_oauth_flow import AsyncOAuthFlow
from slack_bolt.oauth.async_oauth_settings import AsyncOAuthSettings
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_sdk.errors import SlackApiError
from slack_sdk.oauth.installation_store import Installation
from slack_sdk.oauth.installation_store.async_installation_store import AsyncInstallationStore
from slack_sdk.oauth.state_store.async_state_store import AsyncOAuthStateStore
from slack_sdk.web.async_client import AsyncWebClient
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from bots.slack.installs import Install, Installs, install_of, renewed
from core.clock import Clock
from core.errors import Gone, TryLater
from core.events import emit, trouble
from core.store import Notes

STATE_SECONDS: Final = 600
MAX_STATES: Final = 1_000
RENEW_BEFORE: Final = 2 * 60 * 60  # seconds before a token ends
RENEWING_SECONDS: Final = 60.0  # after which another may try
ASKS: Final = 0.25  # seconds between two looks whether the other has got it

INSTALL_PATH: Final = "/slack/install"
REDIRECT_PATH: Final = "/slack/oauth_redirect"

_encode: Final = msgspec.json.Encoder().encode
_states: Final = msgspec.json.Decoder(dict[str, int])


class States(AsyncOAuthStateStore):
    """The states that were given out and not used yet: their digests, and until when each is good.

    Bounded: at a thousand the oldest goes, and who holds it installs anew.
    """

    def __init__(self, notes: Notes, clock: Clock, account: str | None = None) -> None:
        self._notes = notes
        self._clock = clock
        self._name = "slack.states" if account is None else f"slack@{account}.states"

    async def async_issue(self, *args: Any, **kwargs: Any) -> str:
        state = secrets.token_urlsafe(32)
        until = self._clock.now() + STATE_SECONDS * 1000

        def with_it(states: dict[str, int]) -> dict[str, int]:
            kept = sorted(states.items(), key=lambda item: item[1])[-(MAX_STATES - 1) :]
            return {**dict(kept), _digest(state): until}

        await self._change(with_it)
        return state

    async def async_consume(self, state: str) -> bool:
        """True for one caller, once."""
        digest = _digest(state)
        before = await self._change(
            lambda states: {each: until for each, until in states.items() if each != digest}
        )
        return digest in before

    async def _change(self, change: Callable[[dict[str, int]], dict[str, int]]) -> dict[str, int]:
        """The states that were good before."""
        while True:
            was = await self._notes.get(self._name)
            now = self._clock.now()
            stored = _states.decode(was or b"{}")
            good = {each: until for each, until in stored.items() if until > now}
            after = change(good)
            if after == stored or await self._notes.put(self._name, _encode(after), was=was):
                return good


def _digest(state: str) -> str:
    return sha256(state.encode("utf-8", "surrogatepass")).hexdigest()


class Flow(AsyncOAuthFlow):
    """Bolt's flow, which keeps bots alone, and says no word of a code or a token to a log.

    :param installed: told of each install when it is stored
    """

    def __init__(
        self,
        client: AsyncWebClient,
        installs: Installs,
        states: States,
        clock: Clock,
        *,
        client_id: str,
        client_secret: str,
        scopes: tuple[str, ...],
        public_url: str,
        authorization_url: str,
        installed: Callable[[Install], Awaitable[None]] | None = None,
    ) -> None:
        settings = AsyncOAuthSettings(
            client_id=client_id,
            client_secret=client_secret,
            scopes=scopes,
            user_scopes=[],  # None would ask the environment
            redirect_uri=public_url.rstrip("/") + REDIRECT_PATH,
            install_path=INSTALL_PATH,
            redirect_uri_path=REDIRECT_PATH,
            # Bolt's page fetches a picture from elsewhere, and says nothing that its visitor wants.
            install_page_rendering_enabled=False,
            authorization_url=authorization_url,
            installation_store=_NoStore(),
            state_store=states,
            state_expiration_seconds=STATE_SECONDS,
        )
        super().__init__(client=client, settings=settings)
        self._installs = installs
        self._clock = clock
        self._installed = installed

    async def run_installation(self, code: str) -> Installation | None:
        """None: Slack knows no such code, or it belongs to somebody else."""
        try:
            answer = await self.client.oauth_v2_access(
                code=code,
                client_id=self.settings.client_id,
                client_secret=self.settings.client_secret,
                redirect_uri=self.settings.redirect_uri,
            )
            tested = await self.client.auth_test(token=answer.get("access_token"))
            install = install_of(_data(answer), _data(tested), self._clock.now())
        except SlackApiError as error:
            trouble("slack.install", error=_code(error))
            return None
        except ValueError as error:
            trouble("slack.install", error=str(error))
            return None
        await self._installs.save(install)
        emit("slack.installed", where=install.where, by=install.installer)
        if self._installed is not None:
            await self._installed(install)
        return Installation(
            app_id=install.app,
            enterprise_id=install.enterprise,
            team_id=install.team,
            is_enterprise_install=install.team is None,
            enterprise_url=_data(tested).get("url"),
            user_id=install.installer,
        )

    async def store_installation(
        self, request: AsyncBoltRequest, installation: Installation
    ) -> None:
        """It is stored already."""


def routes(flow: Flow) -> Sequence[BaseRoute]:
    """The page that begins an install, and the one that Slack sends the browser back to."""

    async def begin(request: Request) -> Response:
        asked = to_async_bolt_request(request, b"")
        return to_starlette_response(await flow.handle_installation(asked))

    async def end(request: Request) -> Response:
        asked = to_async_bolt_request(request, b"")
        return to_starlette_response(await flow.handle_callback(asked))

    return [
        Route(INSTALL_PATH, begin, methods=["GET"]),
        Route(REDIRECT_PATH, end, methods=["GET"]),
    ]


class _NoStore(AsyncInstallationStore):
    """Given one, Bolt makes no files in somebody's home. It is never asked: `Tokens` is."""


class Tokens:
    """The token of a workspace, renewed in time by one caller at a time, in however many processes.

    :param client: without a token of its own
    """

    def __init__(
        self,
        client: AsyncWebClient,
        installs: Installs,
        clock: Clock,
        *,
        client_id: str,
        client_secret: str,
    ) -> None:
        self._client = client
        self._installs = installs
        self._clock = clock
        self._client_id = client_id
        self._client_secret = client_secret

    async def of(self, team: str) -> Install | None:
        """An install whose token is good now; None: there is none.

        :raises TryLater: the token has ended, and Slack gives no other at the moment
        :raises Gone: Slack gives no other ever: the app must be installed anew
        :raises CannotUnseal: it cannot be read
        """
        install = await self._installs.find(team)
        while install is not None and self._left(install) < RENEW_BEFORE:
            mine = await self._reserve(install)
            if mine is not None:
                return await self._renew(mine)
            if self._left(install) > 0:
                return install
            await self._clock.sleep(ASKS)
            install = await self._installs.find(team)
        return install

    def _left(self, install: Install) -> float:
        if install.expires is None or install.refresh is None:
            return float("inf")
        return install.expires - self._clock.now() / 1000

    async def _reserve(self, install: Install) -> Install | None:
        """None: somebody else is at it, or has done it."""
        now = self._clock.now()
        mine = False

        def reserved(before: Install) -> Install | None:
            nonlocal mine
            mine = before.token == install.token and before.refreshing <= now
            if not mine:
                return None
            until = now + int(RENEWING_SECONDS * 1000)
            return msgspec.structs.replace(before, refreshing=until)

        after = await self._installs.change(install, reserved)
        return after if mine else None

    async def _renew(self, mine: Install) -> Install:
        try:
            async with asyncio.timeout(RENEWING_SECONDS / 2):
                answer = await self._client.oauth_v2_access(
                    client_id=self._client_id,
                    client_secret=self._client_secret,
                    grant_type="refresh_token",
                    refresh_token=mine.refresh,
                )
            after = renewed(mine, _data(answer), self._clock.now())
        except Exception as error:
            return await self._unrenewed(mine, error)
        stored = await self._installs.change(mine, lambda before: after)
        if stored is None:
            raise Gone(f"{mine.where}: the app was removed there")
        emit("slack.renewed", where=mine.where)
        return stored

    async def _unrenewed(self, mine: Install, error: Exception) -> Install:
        why = _code(error) if isinstance(error, SlackApiError) else type(error).__name__
        trouble("slack.renew", where=mine.where, error=why)
        if self._left(mine) > 0:
            # Nobody asks again before the reservation ends.
            return mine
        if why in _FOR_GOOD:
            raise Gone(
                f"{mine.where}: Slack gives no new token ({why}): install the app there again"
            )
        raise TryLater(RENEWING_SECONDS, f"{mine.where}: Slack gave no new token: {why}")


_FOR_GOOD: Final = ("invalid_refresh_token", "token_revoked", "account_inactive", "invalid_grant")


def _data(response: Any) -> Mapping[str, Any]:
    data = response.data
    return data if isinstance(data, dict) else {}


def _code(error: SlackApiError) -> str:
    """Slack's own word for it. The rest of the error may hold what was sent."""
    response = error.response
    data = getattr(response, "data", response)
    code = data.get("error") if isinstance(data, dict) else None
    return code if isinstance(code, str) else f"status {getattr(response, 'status_code', '?')}"
