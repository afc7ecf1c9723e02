"""Installing by a browser, over the unmodified flow of Bolt against the local Slack; and tokens
that are renewed by one at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from msgspec.structs import replace
from slack_sdk.web.async_client import AsyncWebClient
from starlette.applications import Starlette

from bots.slack.installs import Install, Installs
from bots.slack.many import ManyWorkspaces
from bots.slack.oauth import (
    INSTALL_PATH,
    MAX_STATES,
    RENEW_BEFORE,
    STATE_SECONDS,
    Flow,
    States,
    Tokens,
    routes,
)
from core.errors import Gone, TryLater
from core.seal import KEY_BYTES, Seal
from playground.serve import serving
from playground.slack import Slack
from tests.core.fakes import NOON, FakeClock, MemoryNotes

# Of aiohttp, about how slack_sdk sends the app's secret.
pytestmark = pytest.mark.filterwarnings("ignore:BasicAuth is deprecated:DeprecationWarning")
PUBLIC = "https://bot.example.org"
SCOPES = ("chat:write", "im:history")


class Lab:
    """An app that anybody may install, and a browser."""

    def __init__(self, slack: Slack, url: str, clock: FakeClock) -> None:
        self.slack = slack
        self.url = url
        self.clock = clock
        self.notes = MemoryNotes()
        self.installs = Installs(self.notes, Seal([bytes(KEY_BYTES)]))
        self.states = States(self.notes, clock)
        self.told: list[str] = []
        self.web = AsyncWebClient(base_url=f"{slack.url}/api/", retry_handlers=[])
        self.secrets = {
            "client_id": slack.application.client_id,
            "client_secret": slack.application.client_secret,
        }
        self.tokens = Tokens(self.web, self.installs, clock, **self.secrets)
        self.browser = httpx.AsyncClient()

    def flow(self) -> Flow:
        async def told(install: Install) -> None:
            self.told.append(install.where)

        return Flow(
            self.web,
            self.installs,
            self.states,
            self.clock,
            scopes=SCOPES,
            public_url=PUBLIC,
            authorization_url=f"{self.slack.url}/oauth/v2/authorize",
            installed=told,
            **self.secrets,
        )

    async def begin(self) -> tuple[str, str]:
        """Somebody follows the link: Slack's page, and the cookie that their browser is given."""
        answer = await self.browser.get(f"{self.url}{INSTALL_PATH}")
        assert answer.status_code == 302
        cookie = answer.headers["set-cookie"].partition(";")[0]
        assert {"Secure", "HttpOnly"} <= set(answer.headers["set-cookie"].split("; "))
        return answer.headers["location"], cookie

    async def end(self, back: str, cookie: str) -> httpx.Response:
        """Slack sends the browser back; what is public is this machine here."""
        assert back.startswith(f"{PUBLIC}/slack/oauth_redirect?")
        here = back.replace(PUBLIC, self.url)
        return await self.browser.get(here, headers={"cookie": cookie})

    async def install(self, team: Any = None, **more: Any) -> httpx.Response:
        asked, cookie = await self.begin()
        owner = self.slack.person("Olga", team)
        return await self.end(self.slack.authorize(owner, asked, team, **more), cookie)


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    clock = FakeClock()
    async with Slack(clock=lambda: clock.now() / 1000) as slack:
        app = Starlette()
        async with serving(app) as url:
            made = Lab(slack, url, clock)
            app.router.routes.extend(routes(made.flow()))
            async with made.browser:
                yield made


def query(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


async def test_somebody_installs_it(lab: Lab) -> None:
    team = lab.slack.workspace("Acme")
    asked, _ = await lab.begin()
    assert query(asked)["scope"] == "chat:write,im:history"
    assert query(asked)["redirect_uri"] == f"{PUBLIC}/slack/oauth_redirect"
    assert "user_scope" not in query(asked), "what is in the environment is not asked for"
    answer = await lab.install(team)
    assert answer.status_code == 200
    assert "Thank you" in answer.text
    install = await lab.installs.find(team.id)
    assert install is not None
    assert (install.name, install.scopes, install.at) == ("Acme", SCOPES, NOON)
    assert lab.told == [team.id]
    me = await AsyncWebClient(
        install.token, base_url=f"{lab.slack.url}/api/", retry_handlers=[]
    ).auth_test()
    assert (me["team_id"], me["user_id"], me["bot_id"]) == (
        team.id,
        install.bot_user,
        install.bot_id,
    )


async def test_two_workspaces_have_a_token_each(lab: Lab) -> None:
    one, two = lab.slack.workspace("One"), lab.slack.workspace("Two")
    await lab.install(one)
    await lab.install(two)
    workspaces = ManyWorkspaces(lab.installs, lab.tokens, "1.1")
    tokens = [await workspaces.token_of(team.id) for team in (one, two)]
    assert None not in tokens
    assert tokens[0] != tokens[1]
    assert await workspaces.token_of("T0ELSEWHERE") is None
    assert workspaces.known(one.id) is None
    me = await workspaces.me_of(one.id)
    assert me is not None
    assert workspaces.known(one.id) == me
    await workspaces.removed(one.id, None)
    assert workspaces.known(one.id) is None
    assert await workspaces.token_of(one.id) is None
    assert await workspaces.me_of(one.id) is None
    assert await workspaces.token_of(two.id) == tokens[1]


async def test_a_whole_organisation(lab: Lab) -> None:
    one = lab.slack.workspace("One", enterprise="E0ACME")
    two = lab.slack.workspace("Two", enterprise="E0ACME")
    assert (await lab.install(one, org=True)).status_code == 200
    workspaces = ManyWorkspaces(lab.installs, lab.tokens, "1.1")
    assert await workspaces.me_of(two.id) is None
    me = await workspaces.me_of(two.id, "E0ACME")
    assert me is not None and me.team == two.id
    assert await workspaces.token_of(two.id)


# --- what is refused --------------------------------------------------------------------------


async def test_a_state_is_good_once(lab: Lab) -> None:
    team = lab.slack.workspace("Acme")
    owner = lab.slack.person("Olga", team)
    asked, cookie = await lab.begin()
    back = lab.slack.authorize(owner, asked, team)
    assert (await lab.end(back, cookie)).status_code == 200
    again = lab.slack.authorize(owner, asked, team)
    refused = await lab.end(again, cookie)
    assert refused.status_code == 401
    assert "invalid_state" in refused.text
    assert lab.told == [team.id]


async def test_a_state_of_another_browser_is_refused(lab: Lab) -> None:
    team = lab.slack.workspace("Acme")
    asked, _ = await lab.begin()
    _, theirs = await lab.begin()
    back = lab.slack.authorize(lab.slack.person("Olga", team), asked, team)
    for cookie in (theirs, ""):
        refused = await lab.end(back, cookie)
        assert refused.status_code == 400
    assert lab.told == []


async def test_a_made_up_state_is_refused(lab: Lab) -> None:
    back = f"{PUBLIC}/slack/oauth_redirect?code=1&state=mine"
    refused = await lab.end(back, "slack-app-oauth-state=mine")
    assert refused.status_code == 401
    assert lab.told == []


async def test_a_state_ends(lab: Lab) -> None:
    team = lab.slack.workspace("Acme")
    asked, cookie = await lab.begin()
    back = lab.slack.authorize(lab.slack.person("Olga", team), asked, team)
    lab.clock.advance(STATE_SECONDS + 1)
    assert (await lab.end(back, cookie)).status_code == 401


async def test_a_wrong_code_is_refused_and_in_no_log(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    asked, cookie = await lab.begin()
    back = f"{PUBLIC}/slack/oauth_redirect?code=made-up&state={query(asked)['state']}"
    refused = await lab.end(back, cookie)
    assert refused.status_code == 401
    assert "made-up" not in "".join(
        record.getMessage() for record in caplog.records if record.name != "httpx"
    )
    (logged,) = [record for record in caplog.records if record.message == "slack.install"]
    assert logged.__dict__["event"] == {"error": "invalid_code"}


async def test_a_token_of_another_team_is_refused(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = lab.slack.workspace("One"), lab.slack.workspace("Two")
    await lab.install(two)
    other = await lab.installs.find(two.id)
    assert other is not None
    access = AsyncWebClient.oauth_v2_access

    async def swapped(self: AsyncWebClient, **given: Any) -> Any:
        answer = await access(self, **given)
        assert isinstance(answer.data, dict) and other is not None
        answer.data["access_token"] = other.token
        return answer

    monkeypatch.setattr(AsyncWebClient, "oauth_v2_access", swapped)
    assert (await lab.install(one)).status_code == 401
    assert await lab.installs.find(one.id) is None


async def test_somebody_who_thinks_better_of_it(lab: Lab) -> None:
    _, cookie = await lab.begin()
    answer = await lab.end(f"{PUBLIC}/slack/oauth_redirect?error=access_denied", cookie)
    assert answer.status_code == 200
    assert lab.told == []


async def test_states_are_kept_as_digests_and_not_without_end(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await lab.states.async_issue()
    assert first.encode() not in b"".join(lab.notes.kept.values())
    for _ in range(MAX_STATES):
        lab.clock.advance(0.001)
        last = await lab.states.async_issue()
    assert not await lab.states.async_consume(first)
    outcomes = await asyncio.gather(*(lab.states.async_consume(last) for _ in range(5)))
    assert sorted(outcomes) == [False] * 4 + [True]


# --- tokens that end --------------------------------------------------------------------------


@pytest.fixture
async def rotating(lab: Lab) -> tuple[Lab, Install]:
    lab.slack.application.rotation = True
    team = lab.slack.workspace("Acme")
    await lab.install(team)
    install = await lab.installs.find(team.id)
    assert install is not None
    assert install.refresh is not None and install.expires is not None
    return lab, install


def until_renewal(install: Install) -> float:
    assert install.expires is not None
    return install.expires - NOON / 1000 - RENEW_BEFORE + 1


async def asked_for(lab: Lab) -> int:
    """How often Slack was asked for a token: once for the install."""
    return len([each for each in lab.slack.calls if each.method == "oauth.v2.access"])


async def test_a_token_is_renewed_before_it_ends(rotating: tuple[Lab, Install]) -> None:
    lab, old = rotating
    assert old.team is not None
    assert await lab.tokens.of(old.team) == old
    lab.clock.advance(until_renewal(old))
    new = await lab.tokens.of(old.team)
    assert new is not None
    assert new.token != old.token and new.refresh != old.refresh and new.refreshing == 0
    assert await lab.tokens.of(old.team) == new
    assert await lab.installs.find(old.team) == new


async def test_of_many_that_need_it_one_asks(rotating: tuple[Lab, Install]) -> None:
    """Two processes, and many messages in each."""
    lab, old = rotating
    assert old.team is not None
    lab.clock.advance(until_renewal(old))
    other = Tokens(lab.web, lab.installs, lab.clock, **lab.secrets)
    found = await asyncio.gather(
        *(tokens.of(old.team) for tokens in (lab.tokens, other) for _ in range(10))
    )
    # Whoever does not ask goes on with the token that is still good.
    assert {each.token for each in found if each} <= {
        old.token,
        _token(await lab.tokens.of(old.team)),
    }
    assert await lab.installs.find(old.team) != old


def _token(install: Install | None) -> str:
    assert install is not None
    return install.token


async def test_one_that_has_ended_is_waited_for(rotating: tuple[Lab, Install]) -> None:
    lab, old = rotating
    assert old.team is not None
    lab.clock.advance(until_renewal(old) + RENEW_BEFORE)
    found = await asyncio.gather(*(lab.tokens.of(old.team) for _ in range(10)))
    (token,) = {_token(each) for each in found}
    assert token != old.token


async def test_a_refusal_while_the_old_one_is_good_is_no_hindrance(
    rotating: tuple[Lab, Install],
) -> None:
    lab, old = rotating
    assert old.team is not None
    await lab.installs.save(replace(old, refresh="xoxe-1-nonsense"))
    lab.clock.advance(until_renewal(old))
    assert _token(await lab.tokens.of(old.team)) == old.token
    lab.clock.advance(RENEW_BEFORE)
    with pytest.raises(Gone, match="install the app there again"):
        await lab.tokens.of(old.team)


async def test_slack_has_trouble(
    rotating: tuple[Lab, Install], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, old = rotating
    assert old.team is not None
    lab.clock.advance(until_renewal(old) + RENEW_BEFORE)

    async def cut(self: AsyncWebClient, **given: Any) -> Any:
        raise ConnectionResetError("cut")

    with monkeypatch.context() as patch:
        patch.setattr(AsyncWebClient, "oauth_v2_access", cut)
        with pytest.raises(TryLater) as later:
            await lab.tokens.of(old.team)
    assert later.value.seconds == 60
    # Killed, or not: after a minute another may ask.
    assert _token(await lab.tokens.of(old.team)) != old.token


async def test_it_was_removed_meanwhile(
    rotating: tuple[Lab, Install], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, old = rotating
    assert old.team is not None
    lab.clock.advance(until_renewal(old) + RENEW_BEFORE)
    access = AsyncWebClient.oauth_v2_access

    async def removed(self: AsyncWebClient, **given: Any) -> Any:
        await lab.installs.remove(old.team)
        return await access(self, **given)

    monkeypatch.setattr(AsyncWebClient, "oauth_v2_access", removed)
    with pytest.raises(Gone, match="the app was removed there"):
        await lab.tokens.of(old.team)
    assert await lab.tokens.of(old.team) is None
