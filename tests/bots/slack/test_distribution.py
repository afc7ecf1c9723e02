"""An app that others install: the contract in such a workspace, two workspaces that do not meet,
and the end of an install."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from msgspec.structs import replace

from bots.contracts.adapter import AdapterContract, Desk, running
from bots.slack.adapter import SlackAdapter
from bots.slack.distribution import Distribution
from bots.slack.installs import Installs
from bots.slack.manifest import SCOPES
from bots.slack.rules import Rules
from core import feedback
from core.adapter import Adapter
from core.errors import Gone
from core.feedback import Opinion
from core.messages import ERASE, Outbound, text_of
from core.model import Request
from core.seal import KEY_BYTES, Seal
from playground.slack import Channel, Slack
from playground.slack_chats import Team
from tests.bots.slack.whole import bot
from tests.bots.slack.world import RULES, labels, make, seen
from tests.core.fakes import MemoryNotes

# Of aiohttp, about how slack_sdk sends the app's secret.
pytestmark = pytest.mark.filterwarnings("ignore:BasicAuth is deprecated:DeprecationWarning")
PUBLIC = "https://bot.example.org"


def distributed(
    slack: Slack, notes: MemoryNotes, *, erase: bool = False, rules: Rules = RULES
) -> SlackAdapter:
    app = slack.application
    keys = (bytes(KEY_BYTES),)
    adapter = make(
        slack,
        rules,
        bot_token=None,
        distribution=Distribution(app.client_id, app.client_secret, keys, PUBLIC, erase),
    )
    adapter.keep_in(notes)
    return adapter


async def install(slack: Slack, adapter: SlackAdapter, team: Team, **more: Any) -> None:
    """Somebody there says yes; the pages of it are in test_oauth."""
    flow = adapter._wires.flow
    assert flow is not None
    asked = {
        "client_id": slack.application.client_id,
        "scope": ",".join(SCOPES),
        "redirect_uri": flow.redirect_uri,
        "state": "s",
    }
    link = f"{slack.url}/oauth/v2/authorize?{urlencode(asked)}"
    back = slack.authorize(slack.person("Olga", team), link, team, **more)
    code = dict(parse_qsl(urlsplit(back).query))["code"]
    assert await flow.run_installation(code) is not None


class TestContract(AdapterContract):
    """In a workspace that somebody has installed it in."""

    @pytest.fixture
    async def adapter(self) -> AsyncIterator[Adapter]:
        async with Slack(distributed=True) as self.server:
            team = self.server.workspace("Elsewhere")
            adapter = distributed(self.server, MemoryNotes())
            await install(self.server, adapter, team)
            self.alice = self.server.person("Alice", team)
            yield adapter
            await adapter.close()

    async def say(self, text: str) -> None:
        self.server.write(self.alice, text)

    async def screen(self) -> list[str]:
        return seen(self.server, self.alice)

    async def press(self, label: str) -> None:
        self.server.choose(self.alice, label)

    async def labels(self) -> list[str]:
        return labels(self.server, self.alice)

    async def files(self) -> dict[str, bytes]:
        return self.server.files(self.alice)


class World:
    def __init__(self, slack: Slack, adapter: SlackAdapter, desk: Desk, notes: MemoryNotes) -> None:
        self.slack, self.adapter, self.desk, self.notes = slack, adapter, desk, notes

    async def hear(self, count: int) -> list[str]:
        return [inbound.key for inbound in await self.desk.have(count)]


@asynccontextmanager
async def world(*, erase: bool = False) -> AsyncIterator[World]:
    async with Slack(distributed=True) as slack:
        notes = MemoryNotes()
        adapter = distributed(slack, notes, erase=erase)
        try:
            async with running(adapter, Desk()) as desk:
                yield World(slack, adapter, desk, notes)
        finally:
            await adapter.close()


def general(slack: Slack, team: Team) -> Channel:
    return slack.channel("general", team=team, channel_id="C0THESAME")


async def test_two_workspaces_with_the_same_channel_id_never_meet() -> None:
    async with world() as at:
        one, two = at.slack.workspace("One"), at.slack.workspace("Two")
        places: list[Channel] = []
        for team in (one, two):
            await install(at.slack, at.adapter, team)
            places.append(general(at.slack, team))
        for team, place in zip((one, two), places, strict=True):
            at.slack.write(at.slack.person("Alice", team), "hello", place, mention=True)
        keys = await at.hear(2)
        assert {key.split("/")[0] for key in keys} == {
            f"slack-thread:{one.id}",
            f"slack-thread:{two.id}",
        }
        for number, key in enumerate(sorted(keys, key=lambda key: one.id not in key)):
            (body,) = at.adapter.render(f"for {number}")
            await at.adapter.send(key, Outbound(f"p{number}", body), uncertain=False)
        assert [seen(at.slack, place) for place in places] == [["for 0"], ["for 1"]]


async def test_what_is_said_in_one_the_model_is_not_told_in_the_other() -> None:
    """The same id of a channel that is one conversation, the whole bot over one store."""

    def heard(request: Request) -> str:
        users = [text_of(message.blocks) for message in request.messages if message.role == "user"]
        return f"{len(users)} heard: {' '.join(users)}"

    async with Slack(distributed=True) as slack:
        adapter = distributed(slack, MemoryNotes(), rules=replace(RULES, scope="channel"))
        one, two = slack.workspace("One"), slack.workspace("Two")
        for team in (one, two):
            await install(slack, adapter, team)
        places = [general(slack, team) for team in (one, two)]
        people = [slack.person("Alice", team, admin=True) for team in (one, two)]
        async with bot(slack, *[heard] * 5, adapter=adapter) as whole:

            async def say(at: int, text: str) -> str:
                before = len(slack.texts(places[at]))
                slack.write(people[at], text, places[at], mention=True)
                await slack.until(lambda: len(slack.texts(places[at])) > before)
                await whole.quiet(slack)
                return slack.texts(places[at])[-1]

            assert "red" in await say(0, "red")
            second = await say(1, "blue")
            assert second.startswith("1 heard") and "blue" in second
            third = await say(0, "green")
            assert third.startswith("2 heard") and "red" in third and "blue" not in third
            await say(0, "!reset")
            # What one forgets the other has still.
            assert (await say(1, "white")).startswith("2 heard")
            assert (await say(0, "black")).startswith("1 heard")
            keys = {inbound.key for inbound in whole.accepted}
        assert keys == {f"slack-channel:{team.id}/C0THESAME" for team in (one, two)}


async def test_all_workspaces_of_an_organisation() -> None:
    async with world() as at:
        east = at.slack.workspace("East", enterprise="E0GRID00001")
        west = at.slack.workspace("West", enterprise="E0GRID00001")
        await install(at.slack, at.adapter, east, org=True)
        bob = at.slack.person("Bob", west)
        at.slack.write(bob, "hello")
        (key,) = await at.hear(1)
        assert key.startswith(f"slack-dm:{west.id}/")
        (body,) = at.adapter.render("hello, west")
        await at.adapter.send(key, Outbound("p1", body), uncertain=False)
        assert seen(at.slack, bob) == ["hello, west"]


async def test_where_it_is_not_installed_nothing_is_taken_in() -> None:
    async with world() as at:
        team = at.slack.workspace("One")
        await install(at.slack, at.adapter, team)
        # The workspace of the playground has the app by a token that this bot has not.
        at.slack.write(at.slack.person("Eve"), "hello")
        at.slack.write(at.slack.person("Alice", team), "hello")
        keys = await at.hear(1)
        assert [key.partition("/")[0] for key in keys] == [f"slack-dm:{team.id}"]
        with pytest.raises(Gone, match="not installed in this workspace"):
            (body,) = at.adapter.render("x")
            await at.adapter.send(
                f"slack-dm:{at.slack.team.id}/D0", Outbound("p", body), uncertain=False
            )


@pytest.mark.parametrize("erase", [False, True])
@pytest.mark.parametrize("how", ["uninstall", "revoke_tokens"])
async def test_taken_out_of_a_workspace(how: str, erase: bool) -> None:
    async with world(erase=erase) as at:
        team, other = at.slack.workspace("One"), at.slack.workspace("Two")
        for each in (team, other):
            await install(at.slack, at.adapter, each)
        alice = at.slack.person("Alice", team)
        at.slack.write(alice, "hello")
        (key,) = await at.hear(1)
        notes = at.adapter._wires.notes
        assert notes is not None
        theirs = [Opinion(f"slack:{each.id}/U1", key, "1.2", good=True) for each in (team, other)]
        for opinion in theirs:
            await feedback.keep(notes, opinion)
        getattr(at.slack, how)(team)
        told = [inbound for inbound in await at.desk.have(5) if inbound.kind == "left"]
        assert [inbound.key for inbound in told] == [
            f"slack-{scope}:{team.id}" for scope in ("dm", "thread", "channel", "user")
        ]
        assert {inbound.text for inbound in told} == {ERASE if erase else ""}
        # A turn that was under way meanwhile finds that nobody is there.
        (body,) = at.adapter.render("late")
        async with asyncio.timeout(5):
            while await at.adapter._wires.workspaces.token_of(team.id):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        with pytest.raises(Gone):
            await at.adapter.send(key, Outbound("p", body), uncertain=False)
        left = [opinion async for opinion in feedback.opinions(notes)]
        assert left == (theirs[1:] if erase else sorted(theirs, key=lambda each: each.sender))
        assert seen(at.slack, alice) == []
        assert await at.adapter._wires.workspaces.token_of(other.id)
        await at.slack.settle()
        assert {each.state for each in at.slack.deliveries} == {"acknowledged"}


async def test_a_token_that_has_ended_keeps_nobody_from_being_heard() -> None:
    async with world() as at:
        team = at.slack.workspace("One")
        await install(at.slack, at.adapter, team)
        installs = Installs(at.notes, Seal([bytes(KEY_BYTES)]))
        kept = await installs.find(team.id)
        assert kept is not None
        await installs.save(replace(kept, refresh="xoxe-1-nonsense", expires=1))
        (told,) = at.slack.write(at.slack.person("Alice", team), "hello")
        (key,) = await at.hear(1)
        await at.slack.until(lambda: told.state == "acknowledged")
        assert told.attempts == 1
        (body,) = at.adapter.render("x")
        with pytest.raises(Gone, match="install the app there again"):
            await at.adapter.send(key, Outbound("p", body), uncertain=False)


async def test_a_farewell_that_could_not_be_kept_comes_again() -> None:
    async with world() as at:
        team = at.slack.workspace("One")
        await install(at.slack, at.adapter, team)
        at.desk.failing = 2
        at.slack.uninstall(team)
        told = await at.desk.have(4)
        assert {inbound.kind for inbound in told} == {"left"}


async def test_its_secrets_are_not_shown() -> None:
    distribution = Distribution("1.1", "the-secret", (b"k" * KEY_BYTES,), PUBLIC)
    assert "the-secret" not in repr(distribution)
    assert "kkk" not in repr(distribution)
    async with Slack() as slack:
        adapter = distributed(slack, MemoryNotes())
        assert [route.path for route in adapter.routes(Desk().accept)] == [  # type: ignore[attr-defined]
            "/slack/install",
            "/slack/oauth_redirect",
        ]
        assert await adapter.identity() == slack.application.client_id
        await adapter.close()
