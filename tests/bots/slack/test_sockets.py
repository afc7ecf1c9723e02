"""Socket Mode from outside: tokens that are refused, sockets that are burnt, wedged or asked to go,
the order of what arrives, and that all of it is acknowledged in time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import statistics
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from bots.contracts.adapter import Desk, running
from bots.slack import intake as intake_module
from bots.slack.adapter import SlackAdapter
from bots.slack.intake import Full, Intake
from bots.slack.wire import bolt, client, session
from core.adapter import Accepted, Duplicate, Refused
from core.errors import PlatformRefused
from core.events import logger
from core.messages import Inbound, Sender
from playground.slack import (
    Answer,
    DeliverTwice,
    Error,
    Fault,
    GarbageBody,
    Person,
    ResetAfter,
    ResetBefore,
    Slack,
)
from tests.bots.slack.world import RULES, make
from tests.core.fakes import FakeClock


@pytest.fixture
async def slack() -> AsyncIterator[Slack]:
    async with Slack() as server:
        yield server


@pytest.fixture
async def adapter(slack: Slack) -> AsyncIterator[SlackAdapter]:
    adapter = make(slack, connect_seconds=0.3)
    yield adapter
    await adapter.close()


class TestTokens:
    async def test_who_we_are(self, slack: Slack, adapter: SlackAdapter) -> None:
        assert await adapter.identity() == f"{slack.team.id}/{slack.bot.bot_id}"
        await adapter.identity()
        assert len(slack.called("auth.test")) == 1

    @pytest.mark.parametrize(
        ("method", "variable"),
        [("auth.test", "SLACK_BOT_TOKEN"), ("apps.connections.open", "SLACK_APP_TOKEN")],
    )
    @pytest.mark.parametrize("error", ["invalid_auth", "token_revoked", "account_inactive"])
    async def test_one_that_is_refused_ends_it(
        self, slack: Slack, adapter: SlackAdapter, method: str, variable: str, error: str
    ) -> None:
        slack.fault(method, Error(error))
        with pytest.raises(PlatformRefused, match=variable) as caught:
            await adapter.run(Desk().accept)
        assert slack.token not in str(caught.value) and slack.app_token not in str(caught.value)

    @pytest.mark.parametrize("method", ["auth.test", "apps.connections.open"])
    @pytest.mark.parametrize(
        "fault",
        [
            ResetBefore(),
            Answer(500),
            Answer(502, html=True),
            Answer(429, retry_after=9),
            GarbageBody(),
            GarbageBody("[1]"),
            GarbageBody('{"ok":true}'),
        ],
        ids=str,
    )
    async def test_it_insists(self, slack: Slack, method: str, fault: Fault) -> None:
        clock = FakeClock()
        adapter = make(slack, clock=clock, connect_seconds=0.2)
        rule = slack.fault(method, fault, times=2)
        async with running(adapter, Desk()):
            await slack.until(lambda: slack.connected)
        assert rule.hits == 2 and len(clock.slept) == 2
        assert clock.slept[0] >= (9 if isinstance(fault, Answer) and fault.retry_after else 1)
        await adapter.close()

    @pytest.mark.parametrize("token", ["", "xoxb a", "xoxb-\n", "xöxb"])
    def test_what_cannot_be_one(self, token: str) -> None:
        for tokens in ((token, "xapp-1"), ("xoxb-1", token)):
            with pytest.raises(PlatformRefused) as caught:
                SlackAdapter(*tokens)
            assert not token or token not in str(caught.value)

    def test_it_does_not_show_them(self) -> None:
        adapter = SlackAdapter("xoxb-SECRET", "xapp-SECRET")
        assert "SECRET" not in repr(adapter) + str(adapter)

    async def test_the_environment_is_not_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("SLACK_BOT_TOKEN", "SLACK_CLIENT_ID", "SLACK_CLIENT_SECRET"):
            monkeypatch.setenv(name, "from the environment")

        async def nobody(*_: Any) -> None:
            return None

        async with session(1.0) as wire:
            app = bolt(client("http://127.0.0.1:1/api/", wire), "", nobody, nobody)
        assert app.oauth_flow is None and app._token is None
        assert os.environ["SLACK_BOT_TOKEN"] == "from the environment"


class TestConnections:
    async def test_asked_to_go_there_is_no_gap(self, slack: Slack, adapter: SlackAdapter) -> None:
        alice = slack.person("Alice")
        async with running(adapter, Desk()) as desk:
            await slack.until(lambda: slack.connected)
            await slack.sockets.farewell("warning")
            await slack.until(lambda: len(slack.sockets.connections) == 2)
            for number in range(6):
                slack.write(alice, f"message {number}")
            await desk.have(6)
            await slack.settle()
        assert all(delivery.attempts == 1 for delivery in slack.deliveries)

    @pytest.mark.parametrize("how", ["refresh_requested", "cut"])
    async def test_one_that_is_lost_is_replaced(
        self, slack: Slack, adapter: SlackAdapter, how: str
    ) -> None:
        alice = slack.person("Alice")
        async with running(adapter, Desk()) as desk:
            await slack.until(lambda: slack.connected)
            if how == "cut":
                slack.sockets.cut()
            else:
                await slack.sockets.farewell(how)
            slack.write(alice, "are you there?")
            await desk.have(1)
            await slack.settle()
        assert slack.sockets.opened == 2

    @pytest.mark.parametrize("fault", [Answer(403), ResetBefore(), ResetAfter()], ids=str)
    async def test_a_ticket_that_was_burnt_is_not_tried_again(
        self, slack: Slack, adapter: SlackAdapter, fault: Fault
    ) -> None:
        slack.fault("socket", fault, times=2)
        async with running(adapter, Desk()) as desk:
            slack.write(slack.person("Alice"), "are you there?")
            await desk.have(1)
        assert len(slack.called("apps.connections.open")) >= 2

    async def test_one_over_which_nothing_comes_is_given_up(self, slack: Slack) -> None:
        adapter = make(slack, ping_seconds=0.1)
        async with running(adapter, Desk()) as desk:
            await slack.until(lambda: slack.connected)
            slack.sockets.sleep()
            await slack.until(lambda: slack.sockets.opened == 2)
            slack.write(slack.person("Alice"), "are you there?")
            await desk.have(1)
        await adapter.close()

    async def test_nothing_is_left_behind(self, slack: Slack, adapter: SlackAdapter) -> None:
        before = asyncio.all_tasks()
        async with running(adapter, Desk()):
            await slack.until(lambda: slack.connected)
        await slack.until(lambda: not slack.connected)
        names = {task.get_name() for task in asyncio.all_tasks() - before}
        assert not [name for name in names if "intake" in name]


class TestWhatArrives:
    async def test_one_post_that_comes_as_two_events_and_again(
        self, slack: Slack, adapter: SlackAdapter
    ) -> None:
        alice, general = slack.person("Alice"), slack.channel("general")
        desk = Desk()
        desk.open.clear()
        slack.fault("events/*", DeliverTwice(), times=None)
        async with running(adapter, desk):
            deliveries = slack.write(alice, "hello", general, mention=True)
            assert {delivery.name for delivery in deliveries} == {"message", "app_mention"}
            await desk.until(lambda: bool(desk.asked))
            for _ in range(3):
                slack.redeliver(deliveries[0])
            await asyncio.sleep(0.1)
            assert len(desk.asked) == 1, "it is worked on already"
            desk.open.set()
            await slack.settle()
        assert len({inbound.id for inbound in desk.accepted}) == 1, "the core knows it by its id"

    async def test_everything_is_acknowledged(self, slack: Slack, adapter: SlackAdapter) -> None:
        alice, general = slack.person("Alice"), slack.channel("general")
        async with running(adapter, Desk()) as desk:
            slack.write(alice, "not for us", general)
            slack.write(slack.other_bot("Other"), "beep", general)
            slack.system("welcome", alice)
            slack.inject({"type": "reaction_added", "user": alice.id, "event_ts": "1.000001"})
            slack.inject({"type": "something new", "payload": [1, 2]})
            await slack.settle()
        assert desk.asked == []
        assert all(delivery.attempts == 1 for delivery in slack.deliveries)

    async def test_our_own_log_is_not_made_quiet(
        self, slack: Slack, adapter: SlackAdapter, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, logger=logger.name)
        async with running(adapter, Desk()) as desk:
            slack.write(slack.person("Alice"), "hello")
            await desk.have(1)
            await slack.settle()
        assert logger.isEnabledFor(logging.INFO)

    async def test_a_channel_of_another_team(self, slack: Slack, adapter: SlackAdapter) -> None:
        other = slack.workspace("Other", token="xoxb-other-team-1")
        eve = slack.person("Eve", other)
        async with running(adapter, Desk()) as desk:
            slack.write(eve, "hello")
            await slack.settle()
        assert desk.asked == []

    async def test_an_edit_and_a_deletion(self, slack: Slack, adapter: SlackAdapter) -> None:
        alice = slack.person("Alice")
        async with running(adapter, Desk()) as desk:
            (told, *_) = slack.write(alice, "helo")
            ts = told.event["ts"]
            slack.edit(alice, ts, "hello")
            await desk.have(2)
            slack.delete(alice, ts)
            _, edit, deletion = await desk.have(3)
        assert (edit.kind, edit.text, edit.message_id) == ("edit", "hello", ts)
        assert (deletion.kind, deletion.text, deletion.message_id) == ("edit", "", ts)
        assert len({inbound.id for inbound in desk.accepted}) == 3

    async def test_fifty_mentions_in_fifty_threads(
        self, slack: Slack, adapter: SlackAdapter
    ) -> None:
        general = slack.channel("general")
        people = [slack.person(f"P{number}") for number in range(50)]
        async with running(adapter, Desk()) as desk:
            threads = [
                slack.write(person, "1", general, mention=True)[0].event["ts"] for person in people
            ]
            for number in ("2", "3"):
                for person, thread in zip(people, threads, strict=True):
                    slack.write(person, number, general, thread=thread)
            await desk.have(150)
            await slack.settle()
        by_key: dict[str, list[str]] = {}
        for inbound in desk.accepted:
            by_key.setdefault(inbound.key, []).append(inbound.text)
        assert list(by_key.values()) == [["1", "2", "3"]] * 50

    async def test_two_hundred_at_once_are_acknowledged_quickly(
        self, slack: Slack, adapter: SlackAdapter
    ) -> None:
        general = slack.channel("general")
        people = [slack.person(f"P{number}") for number in range(200)]
        told: dict[str, float] = {}
        took: list[float] = []

        def listen(event: str, details: dict[str, Any]) -> None:
            now = asyncio.get_running_loop().time()
            if event == "delivered":
                told[details["id"]] = now
            elif event == "acknowledged":
                took.append(now - told[details["id"]])

        slack.listeners.append(listen)
        async with running(adapter, Desk()) as desk:
            await slack.until(lambda: slack.connected)
            for person in people:
                slack.write(person, "hello", general, mention=True)
            await desk.have(200)
            await slack.settle()
        assert all(delivery.attempts == 1 for delivery in slack.deliveries)
        # A bound in time, but a wide one: the slowest of them is what Slack would repeat.
        assert statistics.quantiles(took, n=100)[98] < 3.0


class TestTheLine:
    def inbound(self, number: int, key: str = "slack-dm:T1/D1") -> Inbound:
        return Inbound(f"T1/D1/{number:020}", key, "message", Sender("slack:T1/U1"), str(number))

    async def test_what_waits_is_sorted(self) -> None:
        desk = Desk()
        desk.open.clear()
        line = Intake(desk.accept, FakeClock())
        taken = [line.take(self.inbound(number)) for number in (5, 9, 7, 8, 6)]
        await desk.until(lambda: bool(desk.asked))
        desk.open.set()
        await asyncio.gather(*taken)
        assert desk.texts() == ["5", "6", "7", "8", "9"]
        await line.close()

    async def test_a_store_that_fails_holds_up_its_own_conversation_only(self) -> None:
        clock = FakeClock(manual=True)
        desk = Desk(failing=1)
        line = Intake(desk.accept, clock)
        first = line.take(self.inbound(1))
        await desk.until(lambda: bool(desk.asked))
        second = line.take(self.inbound(2))
        assert await line.take(self.inbound(3, "slack-dm:T1/D2")) == Accepted()
        assert desk.texts() == ["3"]
        clock.advance(2.0)
        await asyncio.gather(first, second)
        assert desk.texts() == ["3", "1", "2"]
        await line.close()

    async def test_too_much_is_left_to_slack(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(intake_module, "MAX_WAITING", 2)
        desk = Desk()
        desk.open.clear()
        line = Intake(desk.accept, FakeClock())
        waiting = [line.take(self.inbound(number)) for number in (1, 2)]
        with pytest.raises(Full):
            line.take(self.inbound(3))
        assert line.take(self.inbound(1)) is waiting[0], "what is known is no more than it was"
        await line.close()
        assert all(taken.cancelled() for taken in waiting)


class TestTelling:
    async def test_a_refusal_in_a_channel_is_for_one_alone(self, slack: Slack) -> None:
        adapter = make(slack, replace(RULES, scope="channel"))
        alice, general = slack.person("Alice"), slack.channel("general")
        desk = Desk(Refused("too **fast**", private=True))
        async with running(adapter, desk):
            slack.write(alice, "hello", general, mention=True)
            await slack.until(lambda: bool(slack.whispers(general, alice)))
        assert slack.texts(general) == []
        await adapter.close()

    async def test_a_duplicate_is_told_nobody(self, slack: Slack, adapter: SlackAdapter) -> None:
        alice: Person = slack.person("Alice")
        async with running(adapter, Desk(Duplicate())) as desk:
            slack.write(alice, "hello")
            await desk.have(1)
            await slack.settle()
        assert slack.texts(alice) == []
