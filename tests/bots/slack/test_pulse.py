"""Whether a Slack bot hears: a connection that is lost is told, and one that is back."""

from __future__ import annotations

import asyncio

from bots.contracts.adapter import Desk, running
from bots.slack.adapter import SlackAdapter
from core.adapter import Watched
from playground.slack import ResetBefore, Slack
from tests.bots.slack.world import RULES, make
from tests.core.fakes import FakeClock


async def until(adapter: Watched, state: str) -> None:
    async with asyncio.timeout(10):
        while adapter.pulse().state != state:  # noqa: ASYNC110 - it is only ever asked
            await asyncio.sleep(0.01)


async def test_a_connection_that_is_lost_and_back() -> None:
    clock = FakeClock(manual=True)
    async with Slack() as slack:
        adapter = make(slack, RULES, clock=clock, connect_seconds=0.5)
        assert isinstance(adapter, Watched)
        assert (adapter.pulse().state, adapter.pulse().contact) == ("connecting", None)
        async with running(adapter, Desk()) as desk:
            await until(adapter, "connected")
            assert adapter.pulse().event is None
            slack.write(slack.person("Alice"), "hello")
            await desk.have(1)
            clock.advance(3)
            assert adapter.pulse().event == 3
            rule = slack.fault("apps.connections.open", ResetBefore(), times=None)
            slack.sockets.cut()
            clock.advance(6)
            await until(adapter, "connecting")
            clock.advance(200)
            assert (adapter.pulse().contact or 0) > 120, "long enough to be called deaf"
            rule.cancel()
            async with asyncio.timeout(10):
                while adapter.pulse().state != "connected":
                    clock.advance(1)
                    await asyncio.sleep(0.02)
            assert (adapter.pulse().contact or 0) < 5
        await adapter.close()


async def test_who_is_come_to_is_not_asked() -> None:
    async with Slack() as slack:
        adapter = SlackAdapter(slack.token, signing_secret="s" * 32, base_url=f"{slack.url}/api/")
        assert (adapter.pulse().state, adapter.pulse().deaf) == ("requests", False)
        await adapter.close()
