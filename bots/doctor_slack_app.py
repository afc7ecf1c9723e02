"""The part of `chinwag check` that looks at an app which others install: what it is known to Slack
by, where a browser comes back to, and whether the workspaces that have it still do.

Each question changes nothing: Slack is asked what it thinks of a code that nobody was given.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient

from bots.app import slack_distribution
from bots.doctor import CONFIG, PLATFORM, STORE, Finding
from bots.doctor_slack import APPS, PATIENCE, clock, door, refused, scopes, well, wrong
from bots.settings import Settings
from bots.slack import wire
from bots.slack.distribution import authorize_url
from bots.slack.failures import BAD_TOKEN, code_of
from bots.slack.installs import Install, Installs
from bots.slack.manifest import NEEDED, SCOPES
from bots.slack.oauth import INSTALL_PATH, REDIRECT_PATH
from bots.stores import store_of
from core.errors import CannotUnseal, ConfigError, StoreError
from core.seal import Seal

if TYPE_CHECKING:
    from bots.slack.distribution import Distribution

ASKED: Final = 20  # installs whose tokens are tried; hundreds would take minutes
NOBODYS_CODE: Final = "chinwag-check"
_NO_SUCH_PLACE: Final = ("bad_redirect_uri", "did not match any configured URIs")


async def look_at_app(settings: Settings) -> AsyncIterator[Finding]:
    section = settings.slack
    try:
        app = slack_distribution(settings)
    except ConfigError as error:
        yield wrong(str(error), CONFIG, "docs/installs.md has all of it, step by step")
        return
    if app is None:
        return
    async with wire.session(PATIENCE) as session:
        web = wire.client(section.base_url, session)
        async for finding in _known(app, web, session, section.base_url):
            yield finding
            if not finding.ok:
                return
        async for finding in door(section, web):
            yield finding
        yield await _reached(app.public_url, session)
        async for finding in _installs(settings, app, web):
            yield finding


async def _known(
    app: Distribution, web: AsyncWebClient, session: aiohttp.ClientSession, base_url: str
) -> AsyncIterator[Finding]:
    """Whether Slack knows the app, and where it sends people back to."""
    redirect = f"{app.public_url.rstrip('/')}{REDIRECT_PATH}"
    where = urlsplit(redirect)
    if where.scheme != "https" and where.hostname not in ("127.0.0.1", "localhost"):
        yield wrong(
            f"Slack sends nobody back to {redirect}: it wants https",
            CONFIG,
            "[http] public_url: the address by which a browser reaches the bot",
        )
        return
    try:
        await web.oauth_v2_access(
            client_id=app.client_id,
            client_secret=app.client_secret,
            code=NOBODYS_CODE,
            redirect_uri=redirect,
        )
    except Exception as error:
        code = code_of(error)
        page = "Basic Information"
        if code == "invalid_code":
            yield well("Slack knows the app")
            for finding in clock(getattr(getattr(error, "response", None), "headers", {})):
                yield finding
            yield await _comes_back(app, session, base_url, redirect)
        elif code == "bad_client_secret":
            yield refused(error, base_url, "SLACK_CLIENT_SECRET", page)
        else:
            yield refused(error, base_url, "SLACK_CLIENT_ID", page)
    else:
        yield wrong("Slack took a code that nobody was given", PLATFORM, "look at base_url")


async def _comes_back(
    app: Distribution, session: aiohttp.ClientSession, base_url: str, redirect: str
) -> Finding:
    """Whether the app names the place where a browser comes back to. Slack says so on the page on
    which people are asked."""
    asked = {"client_id": app.client_id, "scope": ",".join(SCOPES), "redirect_uri": redirect}
    try:
        async with session.get(authorize_url(base_url), params=asked) as response:
            page = (await response.content.read(1_000_000)).decode(errors="replace")
    except (aiohttp.ClientError, TimeoutError) as error:
        return well(f"Slack does not say whether people come back ({type(error).__name__})")
    if any(sign in page for sign in _NO_SUCH_PLACE):
        return wrong(
            f"the app does not name {redirect} as a place to come back to",
            PLATFORM,
            f"paste `chinwag slack manifest` at {APPS}, App Manifest; or add it at"
            " OAuth & Permissions, Redirect URLs",
        )
    return well(f"people come back to {redirect}")


async def _reached(public_url: str, session: aiohttp.ClientSession) -> Finding:
    """Whether something of ours answers where people install it; it may be that the bot is not
    running just now, so this is no failure."""
    url = f"{public_url.rstrip('/')}{INSTALL_PATH}"
    cure = "is the bot running, and does what stands before it pass requests on to [http] port?"
    try:
        async with session.get(url, allow_redirects=False) as response:
            status, to = response.status, response.headers.get("Location", "")
            page = "" if to else (await response.content.read(100_000)).decode(errors="replace")
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        return well(f"nobody answers at {url} ({type(error).__name__})", cure)
    if "/oauth/v2/authorize" in to + page:
        return well(f"people install it at {url}")
    return well(f"what answers at {url} is not the bot ({status})", cure)


async def _installs(
    settings: Settings, app: Distribution, web: AsyncWebClient
) -> AsyncIterator[Finding]:
    count = 0
    # What is wrong with the database is said where that is looked at.
    with suppress(StoreError):
        async with store_of(settings, read_only=True) as store:
            kept = Installs(store.notes, Seal(app.keys), settings.slack.account)
            try:
                async for each in kept.all():
                    count += 1
                    finding = await _lives(each, web) if count <= ASKED else None
                    if finding is not None:
                        yield finding
            except CannotUnseal as error:
                cure = "CHINWAG_ENCRYPTION_KEYS must still have the key that it was kept with"
                yield wrong(str(error), STORE, cure)
                return
    more = f"; the tokens of the first {ASKED} were tried" if count > ASKED else ""
    yield well(f"{count} workspaces have installed it{more}")


async def _lives(install: Install, web: AsyncWebClient) -> Finding | None:
    """None: all is well there."""
    name = f"{install.where} ({install.name})"
    try:
        answer = await web.auth_test(token=install.token)
    except Exception as error:
        code = code_of(error)
        if code not in BAD_TOKEN or (code == "token_expired" and install.refresh):
            # Not an answer about the token; or one that is renewed when it is needed.
            return None
        cure = f"`chinwag slack installs --remove {install.where}`, or have them install it anew"
        return wrong(f"{name}: its token is refused: {code}", PLATFORM, cure)
    found = scopes(answer.headers, NEEDED, SCOPES)
    if found.ok:
        return None
    return wrong(f"{name}: {found.text}", PLATFORM, "have them install it anew")
