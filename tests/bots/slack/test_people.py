"""Who people are, as Slack tells it: asked of the server on loopback, by the real client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from bots.slack import people
from bots.slack.adapter import SlackAdapter
from bots.slack.people import REMEMBERED_SECONDS, UNKNOWN_SECONDS
from core import phrases
from core.adapter import KnowsMembers, KnowsNames
from core.snapshot import Snapshot
from core.store import SessionRef
from playground.slack import Answer, Channel, Delay, Error, Person, Slack
from tests.bots.slack.whole import Bot, bot
from tests.bots.slack.world import make, seen
from tests.core.fakes import FakeClock, said


@pytest.fixture
async def slack() -> AsyncIterator[Slack]:
    async with Slack() as server:
        yield server


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def adapter(slack: Slack, clock: FakeClock) -> AsyncIterator[SlackAdapter]:
    adapter = make(slack, clock=clock)
    yield adapter
    await adapter.close()


def asked(slack: Slack, method: str) -> int:
    return [call.method for call in slack.calls].count(method)


def id_of(slack: Slack, person: Person) -> str:
    return f"slack:{slack.team.id}/{person.id}"


def thread(slack: Slack, opener: Person, place: Channel) -> str:
    (root, *_) = slack.write(opener, "look here", place)
    return f"slack-thread:{slack.team.id}/{place.id}/{root.event['ts']}"


async def test_who_runs_the_workspace_and_who_opened_the_thread_may_decide(
    slack: Slack, adapter: SlackAdapter, clock: FakeClock
) -> None:
    assert isinstance(adapter, KnowsMembers)
    alice, bob, boss = slack.person("Alice"), slack.person("Bob"), slack.person("Boss", admin=True)
    place = slack.channel("general")
    opened = thread(slack, alice, place)
    whole = f"slack-channel:{slack.team.id}/{place.id}"
    for key, person, may in (
        (opened, alice, True),
        (opened, bob, False),
        (opened, boss, True),
        (whole, alice, False),
        (whole, boss, True),
    ):
        assert await adapter.is_admin(key, id_of(slack, person)) is may
    assert (asked(slack, "users.info"), asked(slack, "conversations.replies")) == (3, 1)
    slack.team.people[boss.id] = replace(boss, admin=False)
    assert await adapter.is_admin(whole, id_of(slack, boss)) is True
    clock.advance(REMEMBERED_SECONDS)
    assert await adapter.is_admin(whole, id_of(slack, boss)) is False


async def test_who_is_alone_with_their_history_is_not_asked_about(
    slack: Slack, adapter: SlackAdapter
) -> None:
    alice = slack.person("Alice")
    team, who = slack.team.id, id_of(slack, alice)
    for key in (
        f"slack-dm:{team}/D1",
        f"slack-thread:{team}/D1/1700000000.000100",
        f"slack-user:{team}/C1/{alice.id}",
    ):
        assert await adapter.is_admin(key, who) is True
    assert await adapter.is_admin("telegram-chat:-1", who) is None
    assert await adapter.is_admin(f"slack-channel:{team}/C1", "telegram:1") is None
    assert not slack.calls


async def test_people_of_other_teams_run_nothing_here(slack: Slack, adapter: SlackAdapter) -> None:
    place = slack.channel("shared")

    may = await adapter.is_admin(f"slack-channel:{slack.team.id}/{place.id}", "slack:T9/U9")

    assert may is False
    assert asked(slack, "users.info") == 0


@pytest.mark.parametrize("fault", [Error("missing_scope"), Error("internal_error")])
async def test_what_slack_does_not_say_is_asked_for_again_a_little_later(
    fault: Error, slack: Slack, adapter: SlackAdapter, clock: FakeClock
) -> None:
    boss, place = slack.person("Boss", admin=True), slack.channel("general")
    key = f"slack-channel:{slack.team.id}/{place.id}"
    slack.fault("users.info", fault)
    for _ in range(2):
        assert await adapter.is_admin(key, id_of(slack, boss)) is None
    assert asked(slack, "users.info") == 1
    clock.advance(UNKNOWN_SECONDS)
    assert await adapter.is_admin(key, id_of(slack, boss)) is True


async def test_slack_is_not_asked_before_it_wants_to_be(
    slack: Slack, adapter: SlackAdapter, clock: FakeClock
) -> None:
    assert isinstance(adapter, KnowsNames)
    alice, place = slack.person("Alice"), slack.channel("general")
    key = f"slack-channel:{slack.team.id}/{place.id}"
    slack.fault("users.info", Answer(429, retry_after=90))
    assert await adapter.name_of(key, id_of(slack, alice)) == ""
    clock.advance(60)
    assert await adapter.name_of(key, id_of(slack, alice)) == ""
    clock.advance(31)
    assert await adapter.name_of(key, id_of(slack, alice)) == "Alice"
    assert asked(slack, "users.info") == 2


async def test_a_slack_that_says_nothing_is_not_waited_for(
    slack: Slack, adapter: SlackAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(people, "ASK_SECONDS", 0.05)
    alice = slack.person("Alice")
    slack.fault("users.info", Delay(5.0))

    assert await adapter.name_of(f"slack-channel:{slack.team.id}/C1", id_of(slack, alice)) == ""


async def test_who_asks_at_the_same_time_is_told_the_same(
    slack: Slack, adapter: SlackAdapter
) -> None:
    alice = slack.person("Alice")
    key = f"slack-channel:{slack.team.id}/C1"
    names = await asyncio.gather(
        *(adapter.name_of(key, id_of(slack, alice)) for _ in range(20)),
    )
    assert names == ["Alice"] * 20
    assert asked(slack, "users.info") == 1


async def test_not_everybody_is_remembered(
    slack: Slack, adapter: SlackAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(people, "REMEMBERED", 1)
    alice, bob = slack.person("Alice"), slack.person("Bob")
    for person in (alice, bob, alice):
        key = f"slack-channel:{slack.team.id}/C1"
        assert await adapter.name_of(key, id_of(slack, person)) == person.name
    assert asked(slack, "users.info") == 3


# ---------------------------------------------------------------------- the whole bot


async def test_the_model_is_told_who_speaks_in_a_channel(slack: Slack) -> None:
    alice, place = slack.person("Alice"), slack.channel("general")
    async with bot(slack, said("hello")) as ada:
        slack.write(alice, "hi", place, mention=True)
        await ada.quiet(slack)
        (snapshot,) = await snapshots(ada)
        assert "<from>Alice</from>" in bytes(snapshot.messages[0].blocks).decode()


async def test_without_an_answer_it_is_told_the_id(slack: Slack) -> None:
    alice, place = slack.person("Alice"), slack.channel("general")
    slack.fault("users.info", Error("missing_scope"))
    async with bot(slack, said("hello")) as ada:
        slack.write(alice, "hi", place, mention=True)
        await ada.quiet(slack)
        (snapshot,) = await snapshots(ada)
        expected = f"<from>{id_of(slack, alice)}</from>"
        assert expected in bytes(snapshot.messages[0].blocks).decode()


async def test_nobody_is_asked_about_a_stranger_or_alone(slack: Slack) -> None:
    alice, eve, place = slack.person("Alice"), slack.person("Eve"), slack.channel("general")
    async with bot(slack, said("hello"), allow=[id_of(slack, alice)]) as ada:
        slack.write(eve, "hi", place, mention=True)
        slack.write(alice, "hi")
        await ada.quiet(slack)
        assert asked(slack, "users.info") == 0


async def test_only_who_may_forgets_a_thread_of_several(slack: Slack) -> None:
    alice, bob, place = slack.person("Alice"), slack.person("Bob"), slack.channel("general")
    async with bot(slack, said("hello"), said("again")) as ada:
        (root, *_) = slack.write(alice, "hi", place, mention=True)
        ts = root.event["ts"]
        await ada.quiet(slack)
        slack.write(bob, "!reset", place, thread=ts)
        await ada.quiet(slack)
        assert seen(slack, place)[-1] == phrases.ENGLISH(phrases.ADMIN_ONLY)
        assert [bool(each.messages) for each in await snapshots(ada)] == [True]
        slack.write(alice, "!reset", place, thread=ts)
        await ada.quiet(slack)
        assert [bool(each.messages) for each in await snapshots(ada)] == [False]


async def snapshots(ada: Bot) -> list[Snapshot]:
    loaded = [await ada.store.load(SessionRef(each.key)) async for each in ada.store.summaries()]
    return [snapshot for snapshot in loaded if snapshot]
