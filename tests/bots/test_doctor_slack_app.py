"""`chinwag check slack` of an app that others install, and of a Slack that is wrong in each way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from bots import http
from bots.doctor import Finding, check, exit_code
from bots.settings import load_settings
from bots.slack.installs import Install, Installs
from bots.slack.manifest import SCOPES
from core.seal import Seal, keys_of, new_key
from playground.slack import Answer, Error, Slack
from stores.urls import open_store
from tests.core.fakes import NOON

# Of aiohttp, about how slack_sdk sends the app's secret.
pytestmark = pytest.mark.filterwarnings("ignore:BasicAuth is deprecated:DeprecationWarning")
KEY = new_key()
PUBLIC = "http://127.0.0.1:9"
BACK = f"{PUBLIC}/slack/oauth_redirect"


@pytest.fixture
async def slack() -> AsyncIterator[Slack]:
    async with Slack(distributed=True, scopes=frozenset(SCOPES)) as server:
        server.application.redirect_urls = (BACK,)
        yield server


async def looked(slack: Slack, folder: Path, **environ: str) -> list[Finding]:
    config = folder / "config.toml"
    config.write_text('[store]\nurl = "sqlite:bot.db"\n')
    given = {
        "SLACK_CLIENT_ID": slack.application.client_id,
        "SLACK_CLIENT_SECRET": slack.application.client_secret,
        "SLACK_APP_TOKEN": slack.app_token,
        "CHINWAG_ENCRYPTION_KEYS": KEY,
        "CHINWAG_HTTP__PUBLIC_URL": PUBLIC,
        "CHINWAG_SLACK__BASE_URL": f"{slack.url}/api",
        **environ,
    }
    settings = load_settings(config, {name: value for name, value in given.items() if value})
    found = await check(settings, only="slack")
    return [each for each in found if each.what == "slack"]


async def keep(folder: Path, *kept: Install, key: str = KEY) -> None:
    async with open_store("sqlite:bot.db", folder) as store:
        for each in kept:
            await Installs(store.notes, Seal(keys_of(key))).save(each)


def install(token: str, team: str = "T1", refresh: str | None = None) -> Install:
    return Install(None, team, "Acme", "A1", "U0BOT", "B0BOT", token, refresh, at=NOON)


async def test_all_is_well(slack: Slack, tmp_path: Path) -> None:
    slack.install(slack.team, "xoxb-good")
    await keep(tmp_path, install("xoxb-good", slack.team.id))

    found = await looked(slack, tmp_path)

    assert exit_code(found) == 0
    assert [each.text for each in found] == [
        "Slack knows the app",
        f"people come back to {BACK}",
        "Socket Mode is open to us",
        f"nobody answers at {PUBLIC}/slack/install (ClientConnectorError)",
        "1 workspaces have installed it",
    ]


@pytest.mark.parametrize(
    ("missing", "code"),
    [("SLACK_CLIENT_SECRET", 2), ("CHINWAG_ENCRYPTION_KEYS", 2), ("CHINWAG_HTTP__PUBLIC_URL", 2)],
)
async def test_what_it_takes_is_missing(
    slack: Slack, tmp_path: Path, missing: str, code: int
) -> None:
    found = await looked(slack, tmp_path, **{missing: ""})
    assert exit_code(found) == code
    assert missing.rpartition("__")[2].lower() in found[-1].text.lower()


@pytest.mark.parametrize(
    ("variable", "said"),
    [("SLACK_CLIENT_ID", "invalid_client_id"), ("SLACK_CLIENT_SECRET", "bad_client_secret")],
)
async def test_slack_does_not_know_the_app(
    slack: Slack, tmp_path: Path, variable: str, said: str
) -> None:
    found = await looked(slack, tmp_path, **{variable: "1234567890.1234"})
    assert exit_code(found) == 4
    assert found[-1].text == f"{variable} is refused: {said}"


async def test_slack_does_not_answer(slack: Slack, tmp_path: Path) -> None:
    slack.fault("oauth.v2.access", Answer(502, html=True))
    found = await looked(slack, tmp_path)
    assert exit_code(found) == 4 and "no answer from" in found[-1].text


async def test_people_would_not_come_back(slack: Slack, tmp_path: Path) -> None:
    slack.application.redirect_urls = ("https://elsewhere.example.org/back",)
    found = await looked(slack, tmp_path)
    assert exit_code(found) == 4
    assert found[-1].text == f"the app does not name {BACK} as a place to come back to"


async def test_slack_wants_https(slack: Slack, tmp_path: Path) -> None:
    found = await looked(slack, tmp_path, CHINWAG_HTTP__PUBLIC_URL="http://bot.example.org")
    assert exit_code(found) == 2 and "it wants https" in found[-1].text


async def test_somebody_else_answers(slack: Slack, tmp_path: Path) -> None:
    async def page(_: object) -> PlainTextResponse:
        return PlainTextResponse("welcome to nginx")

    with http.listen("127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        slack.application.redirect_urls = (f"{url}/slack/oauth_redirect",)
        app = http.app_of([Route("/{path:path}", page)])
        serving = asyncio.create_task(http.serve(app, listener))
        try:
            found = await looked(slack, tmp_path, CHINWAG_HTTP__PUBLIC_URL=url)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
    assert any(each.text.startswith(f"what answers at {url}") and each.cure for each in found)


async def test_a_workspace_has_taken_it_out(slack: Slack, tmp_path: Path) -> None:
    slack.fault("auth.test", Error("token_revoked"))
    await keep(tmp_path, install("xoxb-old"))
    found = await looked(slack, tmp_path)
    assert exit_code(found) == 4
    (wrong,) = [each for each in found if not each.ok]
    assert wrong.text == "T1 (Acme): its token is refused: token_revoked"
    assert "chinwag slack installs --remove T1" in wrong.cure


async def test_a_token_that_is_renewed_when_it_is_needed_is_well(
    slack: Slack, tmp_path: Path
) -> None:
    slack.fault("auth.test", Error("token_expired"))
    await keep(tmp_path, install("xoxb-old", refresh="xoxe-1"))
    assert exit_code(await looked(slack, tmp_path)) == 0


async def test_kept_with_another_key(slack: Slack, tmp_path: Path) -> None:
    await keep(tmp_path, install("xoxb-1"), key=new_key())
    found = await looked(slack, tmp_path)
    assert exit_code(found) == 3
    assert "CHINWAG_ENCRYPTION_KEYS" in found[-1].cure
