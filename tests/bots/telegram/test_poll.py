"""The long poll against the Bot API on loopback: what is confirmed when, and what it survives."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bots.contracts.adapter import Desk
from bots.telegram import poll
from bots.telegram.insist import Backoff
from bots.telegram.parse import parse
from bots.telegram.poll import Poller
from bots.telegram.received import Me
from bots.telegram.wire import bot_at
from core.adapter import Acceptance, Accepted
from core.errors import PlatformRefused, PlatformTaken, StoreUnavailable
from core.messages import Inbound
from playground.telegram import (
    Answer,
    Delay,
    DeliverTwice,
    Fault,
    GarbageBody,
    ResetAfter,
    ResetBefore,
    Telegram,
)
from tests.core.fakes import FakeClock

BOT = Me(777, "playground_bot")


@pytest.fixture
async def telegram() -> AsyncIterator[Telegram]:
    async with Telegram() as server:
        yield server


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


class Polling:
    """A poller and its task. `failing` are texts that are not accepted, each that many times."""

    def __init__(self, telegram: Telegram, clock: FakeClock, **more: Any) -> None:
        self.desk = Desk()
        self.failing: dict[str, int] = {}
        self.bot, self.wire = bot_at(telegram.url, telegram.token, timeout=5)
        options: dict[str, Any] = {
            "hear": lambda update: parse(update, BOT, None, "chat"),
            "accept": self.accept,
            "timeout": 5,
            "chance": lambda: 0.0,
        }
        self.poller = Poller(self.bot, self.wire, clock=clock, **options | more)

    async def accept(self, inbound: Inbound) -> Acceptance:
        left = self.failing.get(inbound.text, 0)
        if left:
            self.failing[inbound.text] = left - 1
            self.desk.asked.append(inbound)
            raise StoreUnavailable("the disk is full")
        return await self.desk.accept(inbound)

    async def close(self) -> None:
        await self.wire.shutdown()
        await self.bot.request.shutdown()


@asynccontextmanager
async def polling(telegram: Telegram, clock: FakeClock, **more: Any) -> AsyncIterator[Polling]:
    """Its task runs while the block does, and must then end by being cancelled."""
    one = Polling(telegram, clock, **more)
    task = asyncio.create_task(one.poller.run())
    try:
        yield one
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=3)
        await one.close()
        assert task.done()
        if not task.cancelled():
            task.result()


async def run_to_the_end(telegram: Telegram, clock: FakeClock) -> None:
    one = Polling(telegram, clock)
    try:
        async with asyncio.timeout(5):
            await one.poller.run()
    finally:
        await one.close()


def polls(telegram: Telegram) -> list[dict[str, Any]]:
    return [call.params for call in telegram.calls if call.method == "getUpdates"]


class TestConfirming:
    async def test_what_cannot_be_confirmed_is_not_asked_for_in_a_circle(
        self, telegram: Telegram
    ) -> None:
        clock = FakeClock(manual=True)
        alice = telegram.person("Alice")
        raw = telegram.update(telegram.write(alice, "hello"))
        # To the server an offset far beyond its last id is none: it sends the same again.
        telegram.inject(json.dumps({**raw, "update_id": raw["update_id"] + 500}))
        async with polling(telegram, clock) as one:
            await telegram.until(lambda: len(polls(telegram)) == 2)
            async with asyncio.timeout(5):
                while not clock.slept:  # noqa: ASYNC110 - the clock has no event
                    await asyncio.sleep(0.001)
            await asyncio.sleep(0.1)
            assert len(polls(telegram)) == 2
            assert {inbound.text for inbound in one.desk.accepted} == {"hello"}

    async def test_the_first_question_has_no_offset(
        self, telegram: Telegram, clock: FakeClock
    ) -> None:
        alice = telegram.person("Alice")
        first = telegram.write(alice, "hello")
        async with polling(telegram, clock) as one:
            await one.desk.have(1)
            await telegram.until(lambda: telegram.confirmed == [first])
            await telegram.until(lambda: len(polls(telegram)) == 2)
        asked, after, _ = polls(telegram)  # the third says goodbye
        assert "offset" not in asked
        assert after["offset"] == first + 1
        assert asked["allowed_updates"] == [
            "message",
            "edited_message",
            "callback_query",
            "stopped_message_generation",
        ]
        assert asked["timeout"] == 5

    async def test_only_up_to_the_first_failure(self, telegram: Telegram, clock: FakeClock) -> None:
        alice, bob = telegram.person("Alice"), telegram.person("Bob")
        ids = [
            telegram.write(alice, "a1"),
            telegram.write(bob, "b1"),
            telegram.write(alice, "a2"),
            telegram.write(bob, "b2"),
            telegram.write(alice, "a3"),
        ]
        async with polling(telegram, clock) as one:
            one.failing["a2"] = 3
            await telegram.until(lambda: len(telegram.confirmed) == 5)
            accepted = one.desk.texts()
        assert telegram.confirmed == ids
        assert polls(telegram)[1]["offset"] == ids[2]
        assert sorted(accepted[:3]) == ["a1", "b1", "b2"]
        assert [text for text in accepted if text[0] == "a"] == ["a1", "a2", "a3"]
        assert accepted.count("b2") == 4, "it comes again, and the core knows it by its id"
        assert clock.slept == [1, 2, 4]

    async def test_nothing_is_confirmed_when_nothing_was_accepted(
        self, telegram: Telegram, clock: FakeClock
    ) -> None:
        alice = telegram.person("Alice")
        first, second = telegram.write(alice, "one"), telegram.write(alice, "two")
        async with polling(telegram, clock) as one:
            one.failing["one"] = 10**9
            await telegram.until(lambda: len(polls(telegram)) >= 9)
            assert telegram.confirmed == []
            assert one.desk.accepted == []
            one.failing.clear()
            await telegram.until(lambda: telegram.confirmed == [first, second])
        assert clock.slept[:8] == [1, 2, 4, 8, 16, 32, 60, 60]

    async def test_any_exception_is_a_failure(self, telegram: Telegram, clock: FakeClock) -> None:
        alice = telegram.person("Alice")
        telegram.write(alice, "one")
        tries: list[str] = []

        async def accept(inbound: Inbound) -> Acceptance:
            tries.append(inbound.text)
            if len(tries) < 3:
                raise ZeroDivisionError
            return Accepted()

        async with polling(telegram, clock, accept=accept):
            await telegram.until(lambda: len(telegram.confirmed) == 1)
        assert tries == ["one"] * 3

    async def test_update_ids_that_begin_anew(self, telegram: Telegram, clock: FakeClock) -> None:
        alice = telegram.person("Alice")
        async with polling(telegram, clock) as one:
            for number, jump in enumerate((900_000_000, 4, 70_000, 5), 1):
                await telegram.until(lambda: not telegram.unconfirmed())
                telegram.jump_update_ids(jump)
                telegram.write(alice, f"message {number}")
                await one.desk.have(number)
        assert one.desk.texts() == [f"message {number}" for number in range(1, 5)]

    async def test_what_telegram_delivers_twice_is_brought_twice(
        self, telegram: Telegram, clock: FakeClock
    ) -> None:
        alice = telegram.person("Alice")
        telegram.fault("getUpdates", DeliverTwice())
        async with polling(telegram, clock) as one:
            telegram.write(alice, "one")
            first, again = await one.desk.have(2)
            telegram.write(alice, "two")
            await one.desk.have(3)
            await telegram.until(lambda: not telegram.unconfirmed())
        assert first == again
        assert one.desk.texts() == ["one", "one", "two"]

    async def test_stopping_confirms_what_was_accepted(
        self, telegram: Telegram, clock: FakeClock
    ) -> None:
        alice, bob = telegram.person("Alice"), telegram.person("Bob")
        first, second = telegram.write(alice, "one"), telegram.write(bob, "two")
        stuck = asyncio.Event()
        done = asyncio.Event()

        async def accept(inbound: Inbound) -> Acceptance:
            if inbound.text == "two":
                stuck.set()
                await asyncio.Event().wait()
            done.set()
            return Accepted()

        async with polling(telegram, clock, accept=accept):
            async with asyncio.timeout(5):
                await stuck.wait()
                await done.wait()
        assert telegram.confirmed == [first]
        assert telegram.unconfirmed() == [second]

    async def test_stopping_does_not_wait_for_telegram(
        self, telegram: Telegram, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(poll, "GOODBYE_SECONDS", 0.05)
        alice = telegram.person("Alice")
        telegram.write(alice, "one")
        stuck = asyncio.Event()

        async def accept(inbound: Inbound) -> Acceptance:
            telegram.fault("getUpdates", Delay(30, before=True), times=None)
            stuck.set()
            return Accepted()

        async with asyncio.timeout(2), polling(telegram, clock, accept=accept):
            await stuck.wait()

    async def test_the_failpoint_comes_before_accept(
        self, telegram: Telegram, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        steps: list[str] = []
        monkeypatch.setattr(poll, "failpoint", steps.append)
        alice = telegram.person("Alice")
        telegram.write(alice, "one")
        telegram.write(alice, "two")
        desk = Desk()

        async def accept(inbound: Inbound) -> Acceptance:
            steps.append(inbound.text)
            return await desk.accept(inbound)

        async with polling(telegram, clock, accept=accept):
            await desk.have(2)
        assert steps == ["received", "received", "one", "two"]


class TestOrder:
    async def test_200_chats_at_once(self, telegram: Telegram, clock: FakeClock) -> None:
        people = [telegram.person(f"P{number}") for number in range(200)]
        for turn in range(3):
            for person in people:
                telegram.write(person, f"{turn}")
        async with polling(telegram, clock) as one:
            one.desk.open.clear()
            await one.desk.until(lambda: len(one.desk.asked) == 100)
            one.desk.open.set()
            accepted = await one.desk.have(600)
        for person in people:
            mine = [inbound.text for inbound in accepted if inbound.key.endswith(f":{person.id}")]
            assert mine == ["0", "1", "2"]

    async def test_a_move_waits_for_the_old_chat_and_the_new_one_for_it(
        self, telegram: Telegram, clock: FakeClock
    ) -> None:
        alice, group = telegram.person("Alice"), telegram.group("Group")
        telegram.write(alice, "before", group, mention=True)
        new = group.migrate()
        telegram.write(alice, "after", new, mention=True)
        async with polling(telegram, clock) as one:
            one.desk.open.clear()
            await one.desk.until(lambda: len(one.desk.asked) == 1)
            await asyncio.sleep(0.05)
            assert [inbound.text for inbound in one.desk.asked] == ["before"]
            one.desk.open.set()
            accepted = await one.desk.have(4)
        assert [inbound.kind for inbound in accepted] == ["message", "moved", "moved", "message"]

    async def test_nothing_passes_a_move_that_failed(
        self, telegram: Telegram, clock: FakeClock
    ) -> None:
        alice, group = telegram.person("Alice"), telegram.group("Group")
        new = group.migrate()
        telegram.write(alice, "after", new, mention=True)
        async with polling(telegram, clock) as one:
            one.failing[f"telegram-chat:{new.id}"] = 1
            accepted = await one.desk.have(3)
        assert [inbound.kind for inbound in accepted] == ["moved", "moved", "message"]


POISON: list[Any] = [
    {},
    {"message": 5},
    {"message": {"chat": {"id": "x"}}},
    {"message": {"text": ["a"] * 1000}},
    {"surprise": True},
    '{"update_id": 5, "message"',
    "null",
    '"text"',
    "[1, 2]",
    "{}",
    '{"update_id": "5"}',
    '{"update_id": 5, "a": "\\ud800"}',
    '{"update_id": 5, "a": ' + "[" * 50_000 + "]" * 50_000 + "}",
    "12e999",
]


class TestPoison:
    async def test_it_does_not_hide_the_good_ones(
        self, telegram: Telegram, clock: FakeClock
    ) -> None:
        alice = telegram.person("Alice")
        texts = []
        for number, poison in enumerate(POISON):
            if poison == '{"update_id": 5, "message"':
                continue  # makes the whole answer no JSON: see below
            telegram.inject(poison)
            texts.append(f"good {number}")
            telegram.write(alice, texts[-1])
        async with polling(telegram, clock) as one:
            await one.desk.have(len(texts))
            await telegram.until(lambda: not telegram.unconfirmed())
        assert one.desk.texts() == texts
        assert one.poller.ignored == len(texts)

    async def test_one_that_cannot_be_confirmed_makes_no_circle(
        self, telegram: Telegram, clock: FakeClock
    ) -> None:
        alice = telegram.person("Alice")
        telegram.inject("{}")
        async with polling(telegram, clock) as one:
            await telegram.until(lambda: len(polls(telegram)) >= 6)
            telegram.write(alice, "good")
            await one.desk.have(1)
            await telegram.until(lambda: not telegram.unconfirmed())
        assert clock.slept[:5] == [1, 2, 4, 4, 4]

    async def test_an_answer_that_is_no_json_is_asked_for_again(
        self, telegram: Telegram, clock: FakeClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        alice = telegram.person("Alice")
        telegram.write(alice, "good")
        telegram.fault("getUpdates", GarbageBody('{"ok":true,"result":[{"secret'), times=2)
        async with polling(telegram, clock) as one:
            await one.desk.have(1)
        assert clock.slept == [1, 2]
        assert "secret" not in caplog.text

    async def test_a_mistake_in_parse_stops_nobody(
        self, telegram: Telegram, clock: FakeClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        alice = telegram.person("Alice")
        telegram.write(alice, "bad")
        telegram.write(alice, "good")

        def hear(update: object) -> Inbound | None:
            inbound = parse(update, BOT, None, "chat")
            if inbound is not None and inbound.text == "bad":
                raise IndexError
            return inbound

        async with polling(telegram, clock, hear=hear) as one:
            await one.desk.have(1)
        assert one.desk.texts() == ["good"]
        assert "telegram.unparsed" in caplog.text


FAULTS: list[Fault] = [
    ResetBefore(),
    ResetAfter(),
    Answer(500),
    Answer(502, html=True),
    Answer(504),
    Answer(400, "Bad Request: what"),
    Answer(403, "Forbidden"),
    Answer(429, retry_after=7),
    GarbageBody(),
    GarbageBody("[]"),
    GarbageBody('{"ok":true}', done=True),
    GarbageBody(""),
]


class TestTrouble:
    @pytest.mark.parametrize("fault", FAULTS, ids=str)
    async def test_it_goes_on(
        self, telegram: Telegram, clock: FakeClock, fault: Fault, caplog: pytest.LogCaptureFixture
    ) -> None:
        alice = telegram.person("Alice")
        telegram.write(alice, "hello")
        telegram.fault("getUpdates", fault, times=3)
        async with polling(telegram, clock) as one:
            await one.desk.have(1)
        least = 7 if isinstance(fault, Answer) and fault.retry_after else 1
        assert clock.slept == [max(seconds, least) for seconds in (1, 2, 4)]
        warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert [record.message for record in warnings] == ["telegram.unreachable"]

    async def test_a_server_that_is_not_there_is_asked_for_ever(
        self, telegram: Telegram, clock: FakeClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        telegram.fault("*", ResetBefore(), times=None)
        async with polling(telegram, clock):
            await telegram.until(lambda: len(telegram.calls) >= 12)
        lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(lines) <= sum(clock.slept) / 60 + 1
        assert max(clock.slept) == 60

    async def test_the_webhook_goes_and_what_waits_stays(
        self, telegram: Telegram, clock: FakeClock
    ) -> None:
        alice = telegram.person("Alice")
        telegram.write(alice, "hello")
        other, _ = bot_at(telegram.url, telegram.token, timeout=5)
        await other.set_webhook("https://example.org/hook")
        await other.request.shutdown()
        telegram.fault("deleteWebhook", Answer(500), times=2)
        async with polling(telegram, clock) as one:
            await one.desk.have(1)
        assert all(not call.params for call in telegram.calls if call.method == "deleteWebhook")

    @pytest.mark.parametrize("status", [401, 404])
    @pytest.mark.parametrize("method", ["getUpdates", "deleteWebhook"])
    async def test_a_refused_token_ends_it(
        self, telegram: Telegram, clock: FakeClock, method: str, status: int
    ) -> None:
        telegram.fault(method, Answer(status, "Unauthorized"))
        with pytest.raises(PlatformRefused) as caught:
            await run_to_the_end(telegram, clock)
        assert telegram.token not in str(caught.value)
        assert clock.slept == []

    async def test_a_token_that_is_revoked_later(
        self, telegram: Telegram, clock: FakeClock
    ) -> None:
        alice = telegram.person("Alice")
        with pytest.raises(PlatformRefused):
            async with polling(telegram, clock) as one:
                telegram.write(alice, "hello")
                await one.desk.have(1)
                await telegram.until(lambda: len(polls(telegram)) == 2)
                telegram.token = "123456:NEW"
                telegram.write(alice, "hello")
                await telegram.until(lambda: any(call.status == 401 for call in telegram.calls))
                await asyncio.sleep(0.05)

    async def test_a_predecessor_may_linger(self, telegram: Telegram, clock: FakeClock) -> None:
        alice = telegram.person("Alice")
        telegram.write(alice, "hello")
        telegram.fault("getUpdates", Answer(409, "Conflict: terminated"), times=3)
        async with polling(telegram, clock) as one:
            await one.desk.have(1)
        assert clock.slept == [3, 3, 3]

    async def test_a_twin_ends_it(self, telegram: Telegram, clock: FakeClock) -> None:
        telegram.fault("getUpdates", Answer(409, "Conflict: terminated"), times=4)
        with pytest.raises(PlatformTaken, match="another process"):
            await run_to_the_end(telegram, clock)

    async def test_a_twin_that_comes_later_ends_it_at_once(
        self, telegram: Telegram, clock: FakeClock
    ) -> None:
        with pytest.raises(PlatformRefused, match="another process"):
            async with polling(telegram, clock):
                await telegram.until(lambda: len(polls(telegram)) == 1)
                clock.advance(31)
                async with polling(telegram, FakeClock()):
                    await telegram.until(lambda: any(c.status == 409 for c in telegram.calls))
                    await asyncio.sleep(0.05)

    async def test_a_poll_that_hangs_is_given_up(
        self, telegram: Telegram, clock: FakeClock
    ) -> None:
        alice = telegram.person("Alice")
        telegram.write(alice, "hello")
        telegram.fault("getUpdates", Delay(60, before=True), times=2)
        async with polling(telegram, clock, timeout=0, patience=0.1) as one:
            await telegram.until(lambda: len(polls(telegram)) == 1)
            session = one.wire._session
            await one.desk.have(1)
            assert one.wire._session is not session
        assert clock.slept[:2] == [1, 2]

    async def test_answers_that_come_too_soon_make_no_circle(
        self, telegram: Telegram, clock: FakeClock
    ) -> None:
        telegram.fault("getUpdates", GarbageBody('{"ok":true,"result":[]}'), times=3)
        async with polling(telegram, clock):
            await telegram.until(lambda: len(polls(telegram)) == 4)
        assert clock.slept == [1, 1, 1]


async def test_backoff_says_it_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    backoff = Backoff("trouble", clock, lambda: 1.0)
    caplog.set_level(logging.INFO)
    for _ in range(9):
        await backoff.wait("no network")
    assert clock.slept == [1.25, 2.5, 5, 10, 20, 40, 60, 60, 60]
    backoff.over()
    backoff.over()
    await backoff.wait("again")
    names = [record.message for record in caplog.records]
    assert names == ["trouble"] * 4 + ["trouble.over", "trouble"]
    assert clock.slept[-1] == 1.25
