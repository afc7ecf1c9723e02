"""Our webhook against the Bot API on loopback: what is confirmed when, and what it survives."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.routing import Route
from telegram import Bot

from bots import http
from bots.contracts.adapter import Desk, running
from bots.http import app_of, listen, serve
from bots.telegram import poll
from bots.telegram.adapter import TelegramAdapter
from bots.telegram.parse import parse
from bots.telegram.poll import ASKED
from bots.telegram.received import Me
from bots.telegram.webhook import (
    DOUBT_SECONDS,
    LOOK_SECONDS,
    SECRET_HEADER,
    Webhook,
    WebhookListener,
)
from bots.telegram.wire import bot_at
from core.adapter import Accept, Acceptance, Accepted, Adapter
from core.errors import PlatformRefused, StoreUnavailable
from core.messages import Inbound
from playground.telegram import Answer, ResetAfter, Telegram
from tests.bots.telegram import test_adapter
from tests.bots.telegram.test_poll import POISON
from tests.core.fakes import FakeClock, settle
from tests.examples.test_echo_adapter import free_port

SECRET: Final = "a-secret-of-32-signs-and-1-more_"
SECOND: Final = 0.02  # of the Telegram that brings the updates
PUBLIC: Final = "https://bot.example.org/bots"


# Much like an update, and not.
NAMES: Final = ("update_id", "message", "chat", "id", "from", "text", "type", "date", "entities")
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=20,
)


class Reached(TelegramAdapter):
    """An adapter whose routes are served while it runs, as the program does it."""

    port: int

    async def run(self, accept: Accept) -> None:
        with listen("127.0.0.1", self.port) as listener:
            serving = asyncio.create_task(serve(app_of(self.routes(accept)), listener))
            try:
                await super().run(accept)
            finally:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "GRACE_SECONDS", 0.3)


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
async def telegram(port: int) -> AsyncIterator[Telegram]:
    proxy = {PUBLIC: f"http://127.0.0.1:{port}"}
    async with Telegram(second=SECOND, proxy=proxy) as server:
        yield server


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(manual=True)


@asynccontextmanager
async def reached(
    telegram: Telegram, port: int, clock: FakeClock | None = None, **more: Any
) -> AsyncIterator[Reached]:
    """An adapter for the webhook, not running yet."""
    given = {"public_url": PUBLIC, "path": "/telegram", "secret": SECRET} | more
    adapter = Reached(
        telegram.token,
        base_url=telegram.url,
        clock=clock or FakeClock(manual=True),
        webhook=Webhook(**given),
    )
    adapter.port = port
    try:
        yield adapter
    finally:
        await adapter.close()


async def is_set(telegram: Telegram, times: int = 1) -> None:
    """The webhook was set so often, and found to be right after that."""
    await telegram.until(
        lambda: (
            len(calls(telegram, "setWebhook")) == times
            and telegram.calls[-1].method == "getWebhookInfo"
            and telegram.calls[-1].status == 200
        )
    )
    await settle(100)


def calls(telegram: Telegram, method: str) -> list[dict[str, Any]]:
    return [each.params for each in telegram.calls if each.method == method]


async def tried(telegram: Telegram, times: int) -> None:
    await telegram.until(lambda: len(calls(telegram, "setWebhook")) == times)


async def asleep(clock: FakeClock, seconds: float, times: int = 1) -> None:
    """It has gone to sleep for so long, so often."""
    async with asyncio.timeout(10):
        while clock.slept.count(seconds) < times:  # noqa: ASYNC110 - the clock has no event
            await asyncio.sleep(0.005)


async def look(telegram: Telegram, clock: FakeClock, *, last: bool = False) -> None:
    """A minute passes, and it looks after its webhook.

    :param last: it ends then
    """
    await asleep(clock, LOOK_SECONDS)
    times, before = clock.slept.count(LOOK_SECONDS), len(calls(telegram, "getWebhookInfo"))
    clock.advance(61)
    await telegram.until(lambda: len(calls(telegram, "getWebhookInfo")) > before)
    if not last:
        await asleep(clock, LOOK_SECONDS, times + 1)


async def knock(port: int, data: bytes, secret: str | None = SECRET) -> int:
    headers = {"Content-Type": "application/json"}
    if secret is not None:
        headers["X-Telegram-Bot-Api-Secret-Token"] = secret
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{port}/telegram"
        async with session.post(url, data=data, headers=headers) as answer:
            return answer.status


class TestWebhookContract(test_adapter.TestContract):
    """All that an adapter must do, by the other transport."""

    @pytest.fixture
    async def adapter(self, port: int, telegram: Telegram) -> AsyncIterator[Adapter]:
        self.server = telegram
        self.alice = self.server.person("Alice")
        async with reached(self.server, port) as adapter:
            yield adapter

    async def say(self, text: str) -> None:
        await self._is_asked_for()
        await super().say(text)

    async def press(self, label: str) -> None:
        await self._is_asked_for()
        await super().press(label)

    async def _is_asked_for(self) -> None:
        """Until a bot has said once what it wants, it gets what every bot gets."""
        await self.server.until(lambda: bool(self.server.webhook.url))


class TestTheDoor:
    @pytest.mark.parametrize("secret", [None, "", "wrong", SECRET[:-1], SECRET + "x", "ß" * 32])
    async def test_without_our_secret_nothing_is_done(
        self, telegram: Telegram, port: int, secret: str | None
    ) -> None:
        update = telegram.update(telegram.write(telegram.person("Alice"), "hello"))
        async with reached(telegram, port) as adapter, running(adapter, Desk()) as desk:
            await desk.have(1)
            assert await knock(port, json.dumps(update).encode(), secret) == 403
            assert await knock(port, b"not even JSON", secret) == 403
            assert len(desk.asked) == 1

    async def test_only_posts_and_only_there(self, telegram: Telegram, port: int) -> None:
        async with reached(telegram, port) as adapter, running(adapter, Desk()):
            await is_set(telegram)
            async with aiohttp.ClientSession() as session:
                for path, status in (("telegram", 405), ("", 404), ("telegram/support", 404)):
                    async with session.get(f"http://127.0.0.1:{port}/{path}") as answer:
                        assert answer.status == status

    async def test_a_proxy_may_leave_the_path_as_it_is(self, port: int) -> None:
        proxy = {"https://bot.example.org": f"http://127.0.0.1:{port}"}
        async with Telegram(second=SECOND, proxy=proxy) as telegram:
            telegram.write(telegram.person("Alice"), "hello")
            async with reached(telegram, port) as adapter, running(adapter, Desk()) as desk:
                await desk.have(1)
        assert telegram.webhook.url == f"{PUBLIC}/telegram"

    async def test_before_we_know_who_we_are_it_is_told_to_come_again(
        self, telegram: Telegram, port: int
    ) -> None:
        async with reached(telegram, port) as adapter:
            with listen("127.0.0.1", port) as listener:
                routes = adapter.routes(Desk().accept)
                serving = asyncio.create_task(serve(app_of(routes), listener))
                assert await knock(port, b'{"update_id": 1}') == 503
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)

    async def test_the_secret_is_shown_nowhere(
        self, telegram: Telegram, port: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        telegram.write(telegram.person("Alice"), "hello")
        async with reached(telegram, port) as adapter, running(adapter, Desk()) as desk:
            await desk.have(1)
            await knock(port, b"{}", "another secret")
        assert SECRET not in caplog.text + repr(Webhook(PUBLIC, "/telegram", SECRET))
        assert "another secret" not in caplog.text


class TestConfirming:
    async def test_not_before_it_was_accepted(self, telegram: Telegram, port: int) -> None:
        alice, bob = telegram.person("Alice"), telegram.person("Bob")
        desk = Desk()
        desk.open.clear()
        async with reached(telegram, port) as adapter, running(adapter, desk):
            first, _ = telegram.write(alice, "one"), telegram.write(alice, "two")
            telegram.write(bob, "three")
            await desk.until(lambda: len(desk.asked) == 2)
            await asyncio.sleep(0.05)
            assert telegram.confirmed == []
            assert {inbound.text for inbound in desk.asked} == {"one", "three"}
            desk.open.set()
            await telegram.until(lambda: not telegram.unconfirmed())
        assert first in telegram.confirmed
        assert [text for text in desk.texts() if text != "three"] == ["one", "two"]

    async def test_what_is_not_accepted_comes_again_when_we_ask_for_it(
        self, telegram: Telegram, port: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        alice, bob = telegram.person("Alice"), telegram.person("Bob")
        failing = {"one": 3}
        desk = Desk()

        async def accept(inbound: Inbound) -> Acceptance:
            if failing.get(inbound.text, 0):
                failing[inbound.text] -= 1
                desk.asked.append(inbound)
                raise StoreUnavailable("the disk is full")
            return await desk.accept(inbound)

        async with reached(telegram, port) as adapter:
            task = asyncio.create_task(adapter.run(accept))
            for text in ("one", "two"):
                telegram.write(alice, text)
            telegram.write(bob, "three")
            await telegram.until(lambda: len(telegram.deliveries) >= 2)
            await telegram.until(lambda: not telegram.unconfirmed())
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        refused = [each for each in telegram.deliveries if each.status == 503]
        assert [each.retry_after for each in refused] == [5, 5, 5]
        assert [text for text in desk.texts() if text != "three"] == ["one", "two"]
        assert len({inbound.id for inbound in desk.asked}) == 3
        lines = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
        assert lines.count("telegram.not_accepted") >= 1

    async def test_any_exception_is_a_failure(self, telegram: Telegram, port: int) -> None:
        tries: list[str] = []

        async def accept(inbound: Inbound) -> Acceptance:
            tries.append(inbound.text)
            if len(tries) < 3:
                raise ZeroDivisionError
            return Accepted()

        telegram.write(telegram.person("Alice"), "one")
        async with reached(telegram, port) as adapter:
            task = asyncio.create_task(adapter.run(accept))
            await telegram.until(lambda: len(telegram.confirmed) == 1)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert tries == ["one"] * 3

    async def test_an_answer_that_is_lost_brings_it_twice_under_one_id(
        self, telegram: Telegram, port: int
    ) -> None:
        telegram.fault("webhook", ResetAfter())
        telegram.write(telegram.person("Alice"), "one")
        async with reached(telegram, port) as adapter, running(adapter, Desk()) as desk:
            first, again = await desk.have(2)
        assert first == again

    async def test_the_failpoint_comes_before_accept(
        self, telegram: Telegram, port: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        steps: list[str] = []
        monkeypatch.setattr(poll, "failpoint", steps.append)
        telegram.write(telegram.person("Alice"), "one")

        class Noting(Desk):
            async def accept(self, inbound: Inbound) -> Acceptance:
                steps.append(inbound.text)
                return await super().accept(inbound)

        async with reached(telegram, port) as adapter, running(adapter, Noting()) as desk:
            await desk.have(1)
        assert steps == ["received", "one"]

    async def test_200_chats_at_once(self, telegram: Telegram, port: int) -> None:
        people = [telegram.person(f"P{number}") for number in range(200)]
        for turn in range(3):
            for person in people:
                telegram.write(person, f"{turn}")
        async with reached(telegram, port) as adapter, running(adapter, Desk()) as desk:
            accepted = await desk.have(600)
        for person in people:
            mine = [inbound.text for inbound in accepted if inbound.key.endswith(f":{person.id}")]
            assert mine == ["0", "1", "2"]


class TestPoison:
    async def test_it_holds_up_nobody(
        self, telegram: Telegram, port: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        alice = telegram.person("Alice")
        texts = []
        for number, poison in enumerate(POISON):
            telegram.inject(poison)
            texts.append(f"good {number}")
            telegram.write(alice, texts[-1])
        async with reached(telegram, port) as adapter, running(adapter, Desk()) as desk:
            await desk.have(len(texts))
            await telegram.until(lambda: not telegram.unconfirmed())
            assert desk.texts() == texts
            assert await knock(port, b'{"update_id": 77, "message": {"secret') == 200
            assert await knock(port, b"\xff\xfe") == 200
            assert await knock(port, b"x" * 1_000_001) == 200
        assert all(each.status == 200 for each in telegram.deliveries)
        events = [getattr(record, "event", {}) for record in caplog.records]
        assert {"update": 77, "bytes": 37} in events
        assert "secret" not in caplog.text

    @settings(max_examples=200, deadline=None)
    @given(st.one_of(st.binary(max_size=200), JSON.map(lambda value: json.dumps(value).encode())))
    def test_whatever_comes_is_done_with(self, body: bytes) -> None:
        """Bytes of any kind are an update that says nothing, or one that is accepted."""

        async def ask() -> int:
            desk = Desk()
            bot, wire = bot_at("http://127.0.0.1:1", "1:x", timeout=5)
            listener = WebhookListener(
                bot,
                Webhook(PUBLIC, "/telegram", SECRET),
                lambda update: parse(update, Me(777, "playground_bot"), None, "chat"),
                clock=FakeClock(manual=True),
            )
            listener._open = True
            route = listener.routes(desk.accept)[0]
            assert isinstance(route, Route)
            sent = [{"type": "http.request", "body": body, "more_body": False}]

            async def receive() -> dict[str, Any]:
                return sent.pop()

            headers = [(SECRET_HEADER.encode(), SECRET.encode())]
            scope = {"type": "http", "method": "POST", "headers": headers}
            answer = await route.endpoint(Request(scope, receive))
            await wire.shutdown()
            await bot.request.shutdown()
            assert len(desk.accepted) <= 1
            return int(answer.status_code)

        assert asyncio.run(ask()) == 200

    async def test_a_mistake_in_parse_stops_nobody(
        self, telegram: Telegram, port: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        alice = telegram.person("Alice")
        hear = TelegramAdapter._hear

        def mistaken(self: TelegramAdapter, update: object) -> Inbound | None:
            inbound = hear(self, update)
            if inbound is not None and inbound.text == "bad":
                raise IndexError
            return inbound

        monkeypatch.setattr(TelegramAdapter, "_hear", mistaken)
        telegram.write(alice, "bad")
        telegram.write(alice, "good")
        async with reached(telegram, port) as adapter, running(adapter, Desk()) as desk:
            await desk.have(1)
            await telegram.until(lambda: not telegram.unconfirmed())
        assert desk.texts() == ["good"]


class TestKeeping:
    async def test_it_is_set_once_and_stays(self, telegram: Telegram, port: int) -> None:
        for _ in range(3):
            async with reached(telegram, port) as adapter, running(adapter, Desk()) as desk:
                telegram.write(telegram.person("Alice"), "hello")
                await desk.have(1)
                await is_set(telegram)
        assert calls(telegram, "setWebhook") == [
            {
                "url": f"{PUBLIC}/telegram",
                "max_connections": 40,
                "allowed_updates": list(ASKED),
                "secret_token": SECRET,
            }
        ]
        assert telegram.webhook.url == f"{PUBLIC}/telegram"
        assert calls(telegram, "deleteWebhook") == []

    @pytest.mark.parametrize(
        "more",
        [{"max_connections": 7}, {"path": "/telegram/support"}, {"public_url": PUBLIC + "2"}],
    )
    async def test_it_is_set_anew_when_it_is_another(
        self, telegram: Telegram, port: int, more: dict[str, Any]
    ) -> None:
        async with reached(telegram, port) as adapter, running(adapter, Desk()):
            await is_set(telegram)
        telegram.webhook.set_at -= 1
        async with reached(telegram, port, **more) as adapter, running(adapter, Desk()):
            await is_set(telegram, 2)

    async def test_what_came_with_an_old_secret_comes_again_with_the_new_one(
        self, telegram: Telegram, port: int, clock: FakeClock
    ) -> None:
        async with reached(telegram, port) as adapter, running(adapter, Desk()):
            await is_set(telegram)
        telegram.webhook.set_at -= 1
        async with reached(telegram, port, clock, secret="n" * 32) as adapter:
            async with running(adapter, Desk()) as desk:
                await telegram.until(lambda: len(calls(telegram, "getWebhookInfo")) == 3)
                telegram.write(telegram.person("Alice"), "hello")
                await telegram.until(lambda: bool(telegram.deliveries))
                assert telegram.deliveries[0].status == 403
                await asleep(clock, DOUBT_SECONDS)
                clock.advance(6)
                await desk.have(1)
        assert telegram.webhook.secret == "n" * 32
        assert desk.texts() == ["hello"]

    async def test_strangers_do_not_make_us_set_it(
        self, telegram: Telegram, port: int, clock: FakeClock
    ) -> None:
        async with reached(telegram, port, clock) as adapter, running(adapter, Desk()):
            await is_set(telegram)
            await asleep(clock, LOOK_SECONDS)
            for times in (1, 2, 3):
                for _ in range(5):
                    assert await knock(port, b"{}", "wrong") == 403
                await asleep(clock, DOUBT_SECONDS, times)
                clock.advance(6)
                await asleep(clock, LOOK_SECONDS, times + 1)
            assert len(calls(telegram, "setWebhook")) == 1
            assert len(calls(telegram, "getWebhookInfo")) <= 2 + 3

    async def test_who_removes_it_gets_it_back_a_few_times(
        self, telegram: Telegram, port: int, clock: FakeClock
    ) -> None:
        other = Bot(telegram.token, base_url=f"{telegram.url}/bot")
        async with reached(telegram, port, clock) as adapter:
            task = asyncio.create_task(adapter.run(Desk().accept))
            for times in (1, 2, 3, 4):
                await is_set(telegram, times)
                await asleep(clock, LOOK_SECONDS, times)
                await other.delete_webhook()
                telegram.webhook.set_at -= 1
                await look(telegram, clock, last=times == 4)
            with pytest.raises(PlatformRefused, match="removes our webhook again and again"):
                await asyncio.wait_for(task, 5)
        await other.request.shutdown()

    async def test_another_who_sets_it_ends_us(
        self, telegram: Telegram, port: int, clock: FakeClock
    ) -> None:
        other = Bot(telegram.token, base_url=f"{telegram.url}/bot")
        async with reached(telegram, port, clock) as adapter:
            task = asyncio.create_task(adapter.run(Desk().accept))
            await is_set(telegram)
            telegram.webhook.set_at -= 1
            await other.set_webhook("https://other.example.org/hook")
            await look(telegram, clock, last=True)
            with pytest.raises(PlatformRefused, match=r"set a webhook to other\.example\.org"):
                await asyncio.wait_for(task, 5)
        await other.request.shutdown()

    async def test_a_url_that_telegram_does_not_take(self, telegram: Telegram, port: int) -> None:
        async with reached(telegram, port, public_url="http://bot.example.org") as adapter:
            with pytest.raises(PlatformRefused, match=r"http://bot.example.org/telegram: .*https"):
                await adapter.run(Desk().accept)

    async def test_a_host_that_is_not_found_yet(self, telegram: Telegram, port: int) -> None:
        unknown = "Bad Request: bad webhook: Failed to resolve host: Name or service not known"
        telegram.fault("setWebhook", Answer(400, unknown), times=2)
        telegram.fault("setWebhook", Answer(429, "Too Many Requests", retry_after=3), times=1)
        clock = FakeClock(manual=True)
        async with reached(telegram, port, clock) as adapter, running(adapter, Desk()):
            for times in (1, 2, 3):
                await tried(telegram, times)
                async with asyncio.timeout(10):
                    while len(clock.slept) < times:  # noqa: ASYNC110 - the clock has no event
                        await asyncio.sleep(0.005)
                clock.advance(6)
            await is_set(telegram, 4)

    async def test_an_old_server_that_knows_fewer_kinds(
        self, telegram: Telegram, port: int, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        allow = telegram._updates.allow

        def only_known(kinds: object) -> None:
            allow([kind for kind in kinds if kind == "message"] if kinds else kinds)  # type: ignore[attr-defined]

        monkeypatch.setattr(telegram._updates, "allow", only_known)
        async with reached(telegram, port, clock) as adapter, running(adapter, Desk()):
            await is_set(telegram)
            for _ in range(3):
                await look(telegram, clock)
            assert len(calls(telegram, "setWebhook")) == 1

    async def test_a_server_that_knows_of_no_webhooks(self, telegram: Telegram, port: int) -> None:
        async with reached(telegram, port) as adapter:
            telegram.fault("getWebhookInfo", Answer(404, "Not Found"))
            with pytest.raises(PlatformRefused, match='mode = "polling"'):
                await adapter.run(Desk().accept)

    async def test_a_refused_token_ends_it(self, telegram: Telegram, port: int) -> None:
        async with reached(telegram, port) as adapter:
            await adapter.connect()
            telegram.fault("getWebhookInfo", Answer(401, "Unauthorized"))
            with pytest.raises(PlatformRefused) as caught:
                await adapter.run(Desk().accept)
        assert telegram.token not in str(caught.value)


class TestPulse:
    async def test_all_is_well(self, telegram: Telegram, port: int, clock: FakeClock) -> None:
        async with reached(telegram, port, clock) as adapter:
            assert adapter.pulse().state == "starting"
            assert adapter.pulse().contact is None
            async with running(adapter, Desk()) as desk:
                await is_set(telegram)
                telegram.write(telegram.person("Alice"), "hello")
                await desk.have(1)
                clock.advance(7)
                pulse = adapter.pulse()
        assert (pulse.state, pulse.contact, pulse.event, pulse.deaf) == ("webhook", 7, 7, False)

    async def test_telegram_cannot_reach_us(self, port: int, clock: FakeClock) -> None:
        async with Telegram(second=SECOND) as telegram:  # nobody leads the public URL to us
            async with reached(telegram, port, clock) as adapter, running(adapter, Desk()):
                await is_set(telegram)
                telegram.write(telegram.person("Alice"), "hello")
                await telegram.until(lambda: bool(telegram.deliveries))
                await look(telegram, clock)
                pulse = adapter.pulse()
        assert (pulse.state, pulse.deaf) == ("not reached by Telegram", True)

    async def test_what_it_could_not_bring_while_we_were_down_is_no_fault(
        self, telegram: Telegram, port: int, clock: FakeClock
    ) -> None:
        async with reached(telegram, port) as adapter, running(adapter, Desk()):
            await is_set(telegram)
        alice = telegram.person("Alice")
        telegram.write(alice, "hello")
        await telegram.until(lambda: bool(telegram.deliveries))
        assert telegram.webhook.error
        async with reached(telegram, port, clock) as adapter, running(adapter, Desk()) as desk:
            await desk.have(1)
            await look(telegram, clock)
            assert not adapter.pulse().deaf

    async def test_what_is_not_accepted(
        self, telegram: Telegram, port: int, clock: FakeClock
    ) -> None:
        telegram.write(telegram.person("Alice"), "hello")
        desk = Desk(failing=1)
        async with reached(telegram, port, clock) as adapter, running(adapter, desk):
            await telegram.until(lambda: any(each.status == 503 for each in telegram.deliveries))
            assert adapter.pulse().state == "not accepting" and adapter.pulse().deaf
            await desk.have(1)
            await telegram.until(lambda: not telegram.unconfirmed())
            assert not adapter.pulse().deaf


class TestSwitching:
    async def test_back_and_forth_nothing_is_lost(self, telegram: Telegram, port: int) -> None:
        """People go on writing while the bot polls, has a webhook, polls again ..."""
        alice, bob = telegram.person("Alice"), telegram.person("Bob")
        written = 0
        heard: list[Inbound] = []

        def write() -> None:
            nonlocal written
            written += 1
            telegram.write(alice if written % 2 else bob, f"message {written}")

        for round_ in range(6):
            desk = Desk()
            write()
            if round_ % 2:
                telegram.webhook.set_at -= 1
                async with reached(telegram, port) as adapter, running(adapter, desk):
                    write()
                    await desk.until(lambda d=desk: bool(d.accepted))  # type: ignore[misc]
                    write()
            else:
                polling = TelegramAdapter(
                    telegram.token, base_url=telegram.url, clock=FakeClock(), poll_timeout=5
                )
                async with running(polling, desk):
                    write()
                    await desk.until(lambda d=desk: bool(d.accepted))  # type: ignore[misc]
                    write()
                await polling.close()
            heard += desk.accepted
            write()
        async with reached(telegram, port) as adapter, running(adapter, Desk()) as desk:
            await telegram.until(lambda: not telegram.unconfirmed())
        heard += desk.accepted
        by_id = {inbound.id: inbound.text for inbound in heard}
        assert sorted(by_id.values()) == sorted(f"message {n}" for n in range(1, written + 1))
        assert all("drop_pending_updates" not in each for each in calls(telegram, "deleteWebhook"))
        for key in {inbound.key for inbound in heard}:
            ids = [inbound.id for inbound in heard if inbound.key == key]
            assert list(dict.fromkeys(ids)) == sorted(set(ids)), "in order"
