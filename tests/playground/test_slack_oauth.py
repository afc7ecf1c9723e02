"""The local Slack: installing by the unmodified slack-bolt, tokens that end, uninstalling."""

from collections.abc import AsyncIterator, Awaitable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from slack_bolt.adapter.starlette.async_handler import AsyncSlackRequestHandler
from slack_bolt.async_app import AsyncApp
from slack_bolt.oauth.async_oauth_flow import AsyncOAuthFlow
from slack_bolt.oauth.async_oauth_settings import AsyncOAuthSettings
from slack_sdk.errors import SlackApiError
from slack_sdk.oauth.installation_store import Installation
from slack_sdk.oauth.installation_store.async_installation_store import AsyncInstallationStore
from slack_sdk.oauth.state_store.async_state_store import AsyncOAuthStateStore
from slack_sdk.web.async_client import AsyncWebClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from playground.serve import serving
from playground.slack import Refused, Slack

# Of aiohttp, about how slack_sdk sends the app's secret.
pytestmark = pytest.mark.filterwarnings("ignore:BasicAuth is deprecated:DeprecationWarning")
Json = dict[str, Any]
REDIRECT = "http://127.0.0.1:9/slack/oauth_redirect"


@pytest.fixture
async def slack() -> AsyncIterator[Slack]:
    async with Slack() as running:
        yield running


def web(slack: Slack, token: str | None = None) -> AsyncWebClient:
    return AsyncWebClient(token, base_url=f"{slack.url}/api/", retry_handlers=[])


async def refused(call: Awaitable[object]) -> str:
    with pytest.raises(SlackApiError) as caught:
        await call
    return str(caught.value.response["error"])


def link(slack: Slack, **more: str) -> str:
    asked = {
        "client_id": slack.application.client_id,
        "scope": "chat:write,im:history,users:read",
        "redirect_uri": REDIRECT,
        "state": "s1",
    } | more
    return str(httpx.URL(f"{slack.url}/oauth/v2/authorize", params=asked))


def query(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


async def access(slack: Slack, **given: Any) -> Json:
    keys: Json = {
        "client_id": slack.application.client_id,
        "client_secret": slack.application.client_secret,
    }
    answer = await web(slack).oauth_v2_access(**keys | given)
    assert isinstance(answer.data, dict)
    return answer.data


async def installed(slack: Slack, team: Any = None, **more: Any) -> Json:
    owner = slack.person("Olga", team)
    back = slack.authorize(owner, link(slack), team, **more)
    return await access(slack, code=query(back)["code"], redirect_uri=REDIRECT)


# By hand


async def test_a_code_becomes_a_token_once(slack: Slack) -> None:
    team = slack.workspace("Other")
    owner = slack.person("Olga", team)
    back = slack.authorize(owner, link(slack))
    assert back.startswith(f"{REDIRECT}?")
    assert query(back)["state"] == "s1"
    code = query(back)["code"]
    wrong = access(slack, code=code, redirect_uri=REDIRECT, client_secret="x")
    assert await refused(wrong) == "bad_client_secret"
    got = await access(slack, code=code, redirect_uri=REDIRECT)
    assert got["access_token"].startswith("xoxb-")
    assert (got["token_type"], got["scope"]) == ("bot", "chat:write,im:history,users:read")
    assert (got["team"], got["enterprise"]) == ({"id": team.id, "name": "Other"}, None)
    assert (got["authed_user"], got["is_enterprise_install"]) == ({"id": owner.id}, False)
    assert await refused(access(slack, code=code, redirect_uri=REDIRECT)) == "invalid_code"
    me = await web(slack, got["access_token"]).auth_test()
    assert (me["team_id"], me["user_id"]) == (team.id, got["bot_user_id"])
    await web(slack, got["access_token"]).chat_postMessage(channel=owner.id, text="hello")
    assert slack.texts(owner) == ["hello"]
    channel = slack.channel("general", team=team)
    reading = web(slack, got["access_token"]).conversations_history(channel=channel.id)
    assert await refused(reading) == "missing_scope"
    assert "expires_in" not in got


async def test_what_is_wrong_with_a_link_or_a_code() -> None:
    now = [1_790_000_000.0]
    async with Slack(clock=lambda: now[0]) as slack:
        owner = slack.person("Olga")
        for error, more in (
            ("invalid_client_id", {"client_id": "1.1"}),
            ("no_scopes", {"scope": ""}),
            ("bad_redirect_uri", {"redirect_uri": ""}),
        ):
            with pytest.raises(Refused, match=error):
                slack.authorize(owner, link(slack, **more))
        with pytest.raises(Refused, match="not_an_enterprise"):
            slack.authorize(owner, link(slack), org=True)
        code = query(slack.authorize(owner, link(slack)))["code"]
        elsewhere = access(slack, code=code, redirect_uri="http://elsewhere.example/")
        assert await refused(elsewhere) == "bad_redirect_uri"
        code = query(slack.authorize(owner, link(slack)))["code"]
        now[0] += 601
        assert await refused(access(slack, code=code, redirect_uri=REDIRECT)) == "invalid_code"
        assert await refused(access(slack, code="x", client_id="1.1")) == "invalid_client_id"
        assert await refused(access(slack, grant_type="odd")) == "invalid_grant_type"


async def test_the_page_for_a_browser(slack: Slack) -> None:
    other = slack.workspace("Other & Sons")
    slack.person("Olga", other)
    async with httpx.AsyncClient() as http:
        page = await http.get(link(slack))
        assert "Other &amp; Sons" in page.text and "access_denied" in page.text
        chosen = await http.get(f"{link(slack)}&team={other.id}")
        assert chosen.status_code == 302
        assert chosen.headers["location"].startswith(REDIRECT)
        bad = await http.get(link(slack, client_id="1.1"))
        assert (bad.status_code, bad.text) == (400, "invalid_client_id")


async def test_tokens_that_expire_and_are_refreshed() -> None:
    now = [1_790_000_000.0]
    async with Slack(rotation=True, clock=lambda: now[0]) as slack:
        got = await installed(slack, slack.workspace("Other"))
        assert got["access_token"].startswith("xoxe.xoxb-")
        assert got["expires_in"] == 43_200
        again: Json = {"grant_type": "refresh_token", "refresh_token": got["refresh_token"]}
        new = await access(slack, **again)
        assert new["access_token"] != got["access_token"]
        assert await refused(access(slack, **again)) == "invalid_refresh_token"
        await web(slack, got["access_token"]).auth_test()  # until its own end
        now[0] += 43_200
        for token in (got["access_token"], new["access_token"]):
            assert await refused(web(slack, token).auth_test()) == "token_expired"
        newest = await access(slack, **again | {"refresh_token": new["refresh_token"]})
        await web(slack, newest["access_token"]).auth_test()


async def test_a_whole_organisation(slack: Slack) -> None:
    east = slack.workspace("East", enterprise="E0GRID00001")
    west = slack.workspace("West", enterprise="E0GRID00001")
    got = await installed(slack, east, org=True)
    assert (got["is_enterprise_install"], got["team"]) == (True, None)
    assert got["enterprise"]["id"] == "E0GRID00001"
    client = web(slack, got["access_token"])
    me = await client.auth_test()
    assert (me["is_enterprise_install"], me["enterprise_id"]) == (True, "E0GRID00001")
    bob = slack.person("Bob", west)
    (told,) = slack.write(bob, "hello")
    body = told.payload
    assert (body["team_id"], body["enterprise_id"]) == (west.id, "E0GRID00001")
    about = body["authorizations"][0]
    assert (about["is_enterprise_install"], about["team_id"]) == (True, None)
    assert about["user_id"] == got["bot_user_id"]
    await client.chat_postMessage(channel=slack.chat(bob).id, text="hello, west")
    assert slack.texts(bob) == ["hello, west"]
    assert (await client.users_info(user=bob.id, team_id=west.id))["user"]["id"] == bob.id
    assert await refused(client.users_info(user=bob.id)) == "missing_argument"
    assert slack.command(bob, "/x").payload["is_enterprise_install"] == "true"


# The end


async def test_uninstalling(slack: Slack) -> None:
    other = slack.workspace("Other")
    got = await installed(slack, other)
    general = slack.channel("general", team=other)
    slack.uninstall(other)
    revoked, gone = slack.deliveries[-2:]
    assert revoked.event["type"] == "tokens_revoked"
    assert revoked.event["tokens"] == {"oauth": [], "bot": [got["bot_user_id"]]}
    assert gone.event["type"] == "app_uninstalled"
    assert (gone.payload["team_id"], "authorizations" in gone.payload) == (other.id, False)
    posting = web(slack, got["access_token"]).chat_postMessage(channel=general.id, text="x")
    assert await refused(posting) == "account_inactive"
    assert slack.write(slack.person("Bob", other), "anybody?") == []
    again = await installed(slack, other)
    assert again["bot_user_id"] != got["bot_user_id"]
    await web(slack, slack.token).auth_test()  # the first workspace is not concerned
    with pytest.raises(Refused, match="not_installed"):
        slack.uninstall(slack.workspace("Third"))


async def test_the_app_gives_its_token_back_or_leaves(slack: Slack) -> None:
    other = slack.workspace("Other")
    got = await installed(slack, other)
    client = web(slack, got["access_token"])
    assert (await client.auth_revoke(test=True))["revoked"] is False
    assert (await client.auth_revoke())["revoked"] is True
    assert await refused(client.auth_test()) == "token_revoked"
    assert slack.deliveries[-1].event["type"] == "tokens_revoked"
    got = await installed(slack, other)
    keys = (slack.application.client_id, slack.application.client_secret)
    client = web(slack, got["access_token"])
    assert await refused(client.apps_uninstall(client_id="1.1", client_secret=keys[1])) == (
        "invalid_client_id"
    )
    await client.apps_uninstall(client_id=keys[0], client_secret=keys[1])
    assert slack.deliveries[-1].event["type"] == "app_uninstalled"
    slack.revoke_tokens(slack.team)
    assert await refused(web(slack, slack.token).auth_test()) == "token_revoked"


# By bolt


class States(AsyncOAuthStateStore):
    def __init__(self) -> None:
        self.issued: set[str] = set()

    async def async_issue(self, *args: Any, **kwargs: Any) -> str:
        self.issued.add("state-1")
        return "state-1"

    async def async_consume(self, state: str) -> bool:
        known = state in self.issued
        self.issued.discard(state)
        return known


class Installations(AsyncInstallationStore):
    def __init__(self) -> None:
        self.saved: list[Installation] = []

    async def async_save(self, installation: Installation) -> None:
        self.saved.append(installation)


async def test_bolt_installs_itself(slack: Slack) -> None:
    other = slack.workspace("Other")
    owner = slack.person("Olga", other)
    states, installations = States(), Installations()
    handlers: list[AsyncSlackRequestHandler] = []

    async def handle(request: Request) -> Response:
        return await handlers[0].handle(request)

    paths = ("/slack/install", "/slack/oauth_redirect")
    bot = Starlette(routes=[Route(path, handle) for path in paths])
    async with serving(bot) as url, httpx.AsyncClient() as http:
        settings = AsyncOAuthSettings(
            client_id=slack.application.client_id,
            client_secret=slack.application.client_secret,
            scopes=["chat:write"],
            redirect_uri=f"{url}/slack/oauth_redirect",
            authorization_url=f"{slack.url}/oauth/v2/authorize",
            installation_store=installations,
            state_store=states,
            state_cookie_name="state",
        )
        flow = AsyncOAuthFlow(client=web(slack), settings=settings)
        app = AsyncApp(signing_secret=slack.signing_secret, oauth_flow=flow)
        handlers.append(AsyncSlackRequestHandler(app))
        page = await http.get(f"{url}/slack/install")
        there = page.text.partition('href="http')[2].partition('"')[0].replace("&amp;", "&")
        there = f"http{there}"
        assert there.startswith(f"{slack.url}/oauth/v2/authorize")
        back = slack.authorize(owner, there)
        cookie = {"Cookie": "state=state-1"}
        done = await http.get(back, headers=cookie)
        assert done.status_code == 200
        twice = await http.get(back, headers=cookie)
        assert twice.status_code == 401
    (installation,) = installations.saved
    assert (installation.team_id, installation.user_id) == (other.id, owner.id)
    assert installation.bot_scopes == ["chat:write"]
    assert installation.bot_token is not None
    me = await web(slack, installation.bot_token).auth_test()
    assert me["bot_id"] == installation.bot_id
