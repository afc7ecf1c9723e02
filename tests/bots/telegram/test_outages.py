"""What a poller does while Telegram fails: it recovers, or ends with the reason; it is never deaf
without saying so, and never asks more than once a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from telegram import Bot

from bots.contracts.adapter import Desk, running
from bots.telegram.adapter import TelegramAdapter
from core.adapter import Acceptance, Accepted, Pulse
from core.errors import PlatformRefused, StoreUnavailable
from core.messages import Inbound
from playground.telegram import (
    Answer,
    Fault,
    GarbageBody,
    ResetBefore,
    Telegram,
)
from tests.core.fakes import FakeClock
from tests.examples.test_echo_adapter import free_port

WEBHOOK = (
    "Conflict: can't use getUpdates method while webhook is active; "
    "use deleteWebhook to delete the webhook first"
)


@pytest.fixture
async def telegram() -> AsyncIterator[Telegram]:
    async with Telegram() as server:
        yield server


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def adapter(telegram: Telegram, clock: FakeClock) -> AsyncIterator[TelegramAdapter]:
    adapter = make(telegram.url, telegram.token, clock)
    yield adapter
    await adapter.close()


def make(url: str, token: str, clock: FakeClock) -> TelegramAdapter:
    return TelegramAdapter(token, base_url=url, clock=clock, poll_timeout=5)


def polls(telegram: Telegram) -> int:
    return sum(call.method == "getUpdates" for call in telegram.calls)


async def until_it_is(clock: FakeClock, then: float) -> None:
    """The time of the clock is moved on by whoever sleeps."""
    async with asyncio.timeout(10):
        while clock.monotonic() < then:  # noqa: ASYNC110 - the clock has no event
            await asyncio.sleep(0.005)


async def test_a_server_that_goes_away_for_a_minute_and_comes_back(clock: FakeClock) -> None:
    telegram = Telegram(port=free_port())
    async with telegram:
        alice = telegram.person("Alice")
        adapter = make(telegram.url, telegram.token, clock)
        url = telegram.url
    desk = Desk()
    async with telegram:
        task = asyncio.create_task(adapter.run(desk.accept))
        telegram.write(alice, "before")
        await desk.have(1)
        await telegram.until(lambda: telegram.polled)
    gone, slept = clock.monotonic(), len(clock.slept)
    await until_it_is(clock, gone + 60)
    waits, waited = clock.slept[slept:], clock.monotonic() - gone
    assert adapter.pulse().state == "unreachable"
    assert len(waits) <= waited and min(waits) >= 1, "at most one question a second"
    async with telegram:
        assert telegram.url == url
        telegram.write(alice, "after")
        await desk.have(2)
        await telegram.until(lambda: not telegram.unconfirmed())
        assert adapter.pulse().state == "polling" and not adapter.pulse().deaf
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await adapter.close()
    assert desk.texts() == ["before", "after"]


FAILURES: list[Fault] = [
    ResetBefore(),
    GarbageBody(),
    GarbageBody('{"ok": true, "result": {}}'),
    Answer(502, html=True),
    Answer(500, "Internal Server Error"),
    Answer(429, "Too Many Requests: retry after 2", retry_after=2),
    Answer(403, "Forbidden"),
    Answer(400, "Bad Request"),
]


@pytest.mark.parametrize("fault", FAILURES, ids=str)
async def test_a_minute_of_failures(
    telegram: Telegram, clock: FakeClock, adapter: TelegramAdapter, fault: Fault
) -> None:
    alice = telegram.person("Alice")
    telegram.write(alice, "before")
    async with running(adapter, Desk()) as desk:
        await desk.have(1)
        await telegram.until(lambda: telegram.polled)
        rule = telegram.fault("getUpdates", fault, times=None)
        telegram.write(alice, "meanwhile")
        await desk.have(2)
        asked, began = polls(telegram), clock.monotonic()
        await until_it_is(clock, began + 60)
        most = clock.monotonic() - began + 2
        assert polls(telegram) - asked <= most
        assert adapter.pulse().state == "unreachable"
        rule.cancel()
        telegram.write(alice, "after")
        await desk.until(lambda: "after" in desk.texts())
        await telegram.until(lambda: not telegram.unconfirmed())
        assert adapter.pulse().state == "polling"
    assert list(dict.fromkeys(desk.texts())) == ["before", "meanwhile", "after"]


async def test_a_minute_in_which_nothing_is_accepted(
    telegram: Telegram, clock: FakeClock, adapter: TelegramAdapter
) -> None:
    alice = telegram.person("Alice")
    telegram.write(alice, "hello")
    full = True
    accepted: list[str] = []

    async def accept(inbound: Inbound) -> Acceptance:
        if full:
            raise StoreUnavailable("the disk is full")
        accepted.append(inbound.text)
        return Accepted()

    task = asyncio.create_task(adapter.run(accept))
    began = clock.monotonic()
    await until_it_is(clock, began + 60)
    assert polls(telegram) <= clock.monotonic() - began + 2
    assert adapter.pulse().deaf and adapter.pulse().state == "not accepting"
    full = False
    await telegram.until(lambda: not telegram.unconfirmed())
    assert accepted == ["hello"]
    assert not adapter.pulse().deaf
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_nameless_update_among_good_ones_for_a_minute(
    telegram: Telegram, clock: FakeClock, adapter: TelegramAdapter
) -> None:
    alice = telegram.person("Alice")
    telegram.write(alice, "before")
    telegram.inject("{}")
    async with running(adapter, Desk()) as desk:
        began = clock.monotonic()
        await until_it_is(clock, began + 60)
        assert polls(telegram) <= clock.monotonic() - began + 2
        telegram.write(alice, "after")
        await desk.have(2)
        await telegram.until(lambda: not telegram.unconfirmed())
    assert desk.texts() == ["before", "after"]


class TestConflict:
    async def test_a_webhook_that_a_predecessor_sets_once_more_is_taken_away_again(
        self, telegram: Telegram, adapter: TelegramAdapter
    ) -> None:
        """Who had the webhook before us, and is just being stopped, may look after it once more."""
        alice = telegram.person("Alice")
        other = Bot(telegram.token, base_url=f"{telegram.url}/bot")
        async with running(adapter, Desk()) as desk:
            await telegram.until(lambda: telegram.polled)
            await other.set_webhook("https://bot.example.org/hook")
            telegram.write(alice, "hello")
            await desk.have(1)
        await other.request.shutdown()
        assert telegram.webhook.url == ""

    async def test_later_it_is_somebody_else(
        self, telegram: Telegram, clock: FakeClock, adapter: TelegramAdapter
    ) -> None:
        other = Bot(telegram.token, base_url=f"{telegram.url}/bot")
        task = asyncio.create_task(adapter.run(Desk().accept))
        await telegram.until(lambda: telegram.polled)
        clock.advance(31)
        await other.set_webhook("https://bot.example.org/hook")
        with pytest.raises(PlatformRefused, match=r'set a webhook .* mode = "webhook" here'):
            await asyncio.wait_for(task, 5)
        await other.request.shutdown()
        assert telegram.webhook.url, "what is not ours stays"

    async def test_it_is_said_which_of_both_it_is(
        self, telegram: Telegram, adapter: TelegramAdapter
    ) -> None:
        telegram.fault("getUpdates", Answer(409, WEBHOOK), times=None)
        with pytest.raises(PlatformRefused, match="has set a webhook"):
            await asyncio.wait_for(adapter.run(Desk().accept), 5)
        taken = [call for call in telegram.calls if call.method == "deleteWebhook"]
        assert 2 <= len(taken) <= 4
        assert all(not call.params for call in taken), "nothing that waits is dropped"


async def test_the_pulse_of_a_quiet_bot(
    telegram: Telegram, clock: FakeClock, adapter: TelegramAdapter
) -> None:
    assert adapter.pulse() == Pulse("starting")
    async with running(adapter, Desk()) as desk:
        await telegram.until(lambda: telegram.polled)
        telegram.write(telegram.person("Alice"), "hello")
        await desk.have(1)
        await telegram.until(lambda: telegram.polled and not telegram.unconfirmed())
        clock.advance(40)
        assert adapter.pulse() == Pulse("polling", 40, 40)
