"""The part of `chinwag check` that looks at Slack: tokens, scopes, the socket, the clock.

Each question is a cheap one that changes nothing; a ticket for a socket is asked for and thrown
away.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from bots.doctor import CONFIG, PLATFORM, Finding
from bots.sections import SlackSection

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

PATIENCE: Final = 10.0
# Signatures are refused after five minutes; before that time stamps only look odd.
MOST_APART: Final = 60.0

APPS: Final = "https://api.slack.com/apps"


async def look(section: SlackSection) -> AsyncIterator[Finding]:
    if section.bot_token is None:
        return
    from bots.slack import wire
    from bots.slack.manifest import NEEDED, SCOPES

    async with wire.session(PATIENCE) as session:
        web = wire.client(section.base_url, session)
        try:
            answer = await web.auth_test(token=section.bot_token.get_secret_value())
        except Exception as error:
            yield refused(error, section.base_url, "SLACK_BOT_TOKEN", "OAuth & Permissions")
            return
        yield well(f"@{answer.get('user')} in {answer.get('team')}, {answer['team_id']}")
        yield scopes(answer.headers, NEEDED, SCOPES)
        for finding in clock(answer.headers):
            yield finding
        async for finding in door(section, web):
            yield finding


def clock(headers: Mapping[str, Any]) -> Iterator[Finding]:
    """:param headers: of an answer of Slack's"""
    skew = _apart(headers)
    if skew is not None and abs(skew) > MOST_APART:
        text = f"this machine's clock is {abs(skew):.0f} s {'fast' if skew > 0 else 'slow'}"
        yield wrong(text, PLATFORM, "set the clock, and keep it set (NTP)")


async def door(section: SlackSection, web: AsyncWebClient) -> AsyncIterator[Finding]:
    """By which Slack's events come in."""
    if section.transport == "http":
        if section.signing_secret is None:
            cure = f"{APPS}, Basic Information, Signing Secret"
            yield wrong("SLACK_SIGNING_SECRET is missing", CONFIG, cure)
        return
    if section.app_token is None:
        cure = f"{APPS}, Basic Information, App-Level Tokens: one with connections:write"
        yield wrong("SLACK_APP_TOKEN is missing", CONFIG, cure)
        return
    try:
        await web.apps_connections_open(app_token=section.app_token.get_secret_value())
    except Exception as error:
        yield refused(error, section.base_url, "SLACK_APP_TOKEN", "Basic Information")
        return
    yield well("Socket Mode is open to us")


def well(text: str, hint: str = "") -> Finding:
    return Finding("slack", True, text, cure=hint)


def wrong(text: str, code: int, cure: str) -> Finding:
    return Finding("slack", False, text, code, cure)


def refused(error: Exception, base_url: str, variable: str, page: str) -> Finding:
    from bots.slack.failures import code_of

    code = code_of(error)
    if code is None:
        text = f"no answer from {base_url} ({type(error).__name__})"
        return wrong(text, PLATFORM, "try again; look at network and base_url")
    cure = f"copy it anew from {APPS}, {page}; Socket Mode must be on"
    return wrong(f"{variable} is refused: {code}", PLATFORM, cure)


def scopes(headers: Mapping[str, Any], needed: tuple[str, ...], all_: tuple[str, ...]) -> Finding:
    said = next((str(headers[name]) for name in headers if name.lower() == "x-oauth-scopes"), "")
    given = {scope.strip() for scope in said.split(",") if scope.strip()}
    if not given:
        return well("Slack does not say which scopes there are")
    cure = f"paste `chinwag slack manifest` at {APPS}, App Manifest, and reinstall the app"
    missing = [scope for scope in needed if scope not in given]
    if missing:
        text = f"scopes are missing: {', '.join(missing)}"
        return wrong(text, PLATFORM, cure)
    more = [scope for scope in all_ if scope not in given]
    if more:
        return well(f"scopes that would allow more: {', '.join(more)}", cure)
    return well("all scopes are there")


def _apart(headers: Mapping[str, Any]) -> float | None:
    """Seconds by which our clock is ahead of Slack's; None: nobody can say."""
    said = next((str(headers[name]) for name in headers if name.lower() == "date"), "")
    try:
        return (datetime.now(UTC) - parsedate_to_datetime(said)).total_seconds()
    except (TypeError, ValueError):
        return None
