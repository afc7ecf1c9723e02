"""The stand-in's webhook delivery: what comes when, what comes again, and what is refused."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from telegram import Bot
from telegram.error import BadRequest, RetryAfter

from playground.serve import serving
from playground.telegram import (
    Delay,
    DeliverTwice,
    Fault,
    Person,
    ResetAfter,
    ResetBefore,
    Telegram,
)

SECOND = 0.02


class Hook:
    """What a bot would serve. `answer` is asked for each request.

    :param got: the updates, in order of their arrival
    """

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.secrets: list[str | None] = []
        self.busy = self.most = 0
        self.answer: Callable[[dict[str, Any]], Response] = lambda _: Response()
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, request: Request) -> Response:
        update = await request.json()
        self.got.append(update)
        self.secrets.append(request.headers.get("X-Telegram-Bot-Api-Secret-Token"))
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            await self.open.wait()
            return self.answer(update)
        finally:
            self.busy -= 1

    def texts(self) -> list[str]:
        return [update["message"]["text"] for update in self.got]


@asynccontextmanager
async def hooked(telegram: Telegram, hook: Hook, **given: Any) -> AsyncIterator[Bot]:
    app = Starlette(routes=[Route("/hook", hook.__call__, methods=["POST"])])
    async with serving(app) as url, Bot(telegram.token, base_url=f"{telegram.url}/bot") as bot:
        await bot.set_webhook(f"{url}/hook", **given)
        yield bot
        await bot.delete_webhook()


@pytest.fixture
async def telegram() -> AsyncIterator[Telegram]:
    async with Telegram(second=SECOND) as server:
        yield server


@pytest.fixture
def hook() -> Hook:
    return Hook()


@pytest.fixture
def alice(telegram: Telegram) -> Person:
    return telegram.person("Alice")


async def test_what_waited_and_what_comes(telegram: Telegram, hook: Hook, alice: Person) -> None:
    first = telegram.write(alice, "before")
    async with hooked(telegram, hook, secret_token="s" * 32, max_connections=7) as bot:
        await telegram.until(lambda: telegram.confirmed == [first])
        second = telegram.write(alice, "after")
        await telegram.until(lambda: telegram.confirmed == [first, second])
        info = await bot.get_webhook_info()
    assert hook.texts() == ["before", "after"]
    assert hook.secrets == ["s" * 32] * 2
    assert [each.status for each in telegram.deliveries] == [200, 200]
    assert (info.pending_update_count, info.max_connections) == (0, 7)
    assert info.last_error_message is None


async def test_a_chat_is_in_order_and_holds_up_no_other(
    telegram: Telegram, hook: Hook, alice: Person
) -> None:
    bob = telegram.person("Bob")
    hook.answer = lambda update: Response(
        status_code=500 if update["message"]["text"] == "a1" and len(hook.got) < 5 else 200
    )
    async with hooked(telegram, hook):
        for text in ("a1", "a2"):
            telegram.write(alice, text)
        for text in ("b1", "b2"):
            telegram.write(bob, text)
        await telegram.until(lambda: not telegram.unconfirmed())
    texts = hook.texts()
    assert [text for text in texts if text[0] == "a"] == ["a1"] * (len(texts) - 3) + ["a2"]
    assert [text for text in texts if text[0] == "b"] == ["b1", "b2"]
    assert texts.index("b2") < texts.index("a2")


async def test_what_fails_comes_again_later_and_later(
    telegram: Telegram, hook: Hook, alice: Person
) -> None:
    hook.answer = lambda _: Response(status_code=502 if len(hook.got) < 5 else 204)
    async with hooked(telegram, hook) as bot:
        telegram.write(alice, "hello")
        await telegram.until(lambda: len(telegram.deliveries) == 3)
        info = await bot.get_webhook_info()
        await telegram.until(lambda: not telegram.unconfirmed())
    assert info.last_error_message == "Wrong response from the webhook: 502 Bad Gateway"
    assert info.pending_update_count == 1
    began = [each.at for each in telegram.deliveries]
    waits = [later - sooner for sooner, later in itertools.pairwise(began)]
    for waited, asked in zip(waits, (1, 2, 4, 8), strict=True):
        assert waited >= asked * SECOND


async def test_retry_after_is_what_counts(telegram: Telegram, hook: Hook, alice: Person) -> None:
    hook.answer = lambda _: Response(
        status_code=503 if len(hook.got) < 3 else 200, headers={"Retry-After": "6"}
    )
    async with hooked(telegram, hook):
        telegram.write(alice, "hello")
        await telegram.until(lambda: not telegram.unconfirmed())
    first, second, third = telegram.deliveries
    assert first.retry_after == 6
    assert second.at - first.at >= 6 * SECOND and third.at - second.at >= 6 * SECOND


async def test_so_many_at_once_and_no_more(telegram: Telegram, hook: Hook) -> None:
    hook.open.clear()
    async with hooked(telegram, hook, max_connections=3):
        for number in range(9):
            telegram.write(telegram.person(f"P{number}"), "hello")
        while hook.busy < 3:  # noqa: ASYNC110 - the hook has no event
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        hook.open.set()
        await telegram.until(lambda: not telegram.unconfirmed())
    assert hook.most == 3


@pytest.mark.parametrize(
    ("fault", "times"), [(ResetBefore(), 1), (ResetAfter(), 2), (DeliverTwice(), 2), (Delay(0), 1)]
)
async def test_faults(
    telegram: Telegram, hook: Hook, alice: Person, fault: Fault, times: int
) -> None:
    telegram.fault("webhook", fault)
    async with hooked(telegram, hook):
        telegram.write(alice, "hello")
        await telegram.until(lambda: not telegram.unconfirmed())
    assert hook.texts() == ["hello"] * times


async def test_what_was_confirmed_may_come_again(
    telegram: Telegram, hook: Hook, alice: Person
) -> None:
    async with hooked(telegram, hook):
        update = telegram.write(alice, "hello")
        await telegram.until(lambda: not telegram.unconfirmed())
        telegram.redeliver(update)
        await telegram.until(lambda: len(hook.got) == 2)
    assert hook.got[0] == hook.got[1]


async def test_what_was_not_taken_is_there_for_a_poll(
    telegram: Telegram, hook: Hook, alice: Person
) -> None:
    hook.answer = lambda _: Response(status_code=503)
    async with hooked(telegram, hook) as bot:
        update = telegram.write(alice, "hello")
        await telegram.until(lambda: bool(telegram.deliveries))
        await bot.delete_webhook()
        (polled,) = await bot.get_updates(timeout=0)
        before = len(telegram.deliveries)
        await asyncio.sleep(4 * SECOND)
        assert len(telegram.deliveries) == before, "no webhook, no delivery"
    assert polled.update_id == update


async def test_a_public_url_leads_through_a_proxy(hook: Hook) -> None:
    app = Starlette(routes=[Route("/hook", hook.__call__, methods=["POST"])])
    async with serving(app) as url:
        proxy = {"https://bot.example.org": url}
        async with Telegram(second=SECOND, proxy=proxy) as telegram:
            alice = telegram.person("Alice")
            async with Bot(telegram.token, base_url=f"{telegram.url}/bot") as bot:
                await bot.set_webhook("https://bot.example.org/hook")
                telegram.write(alice, "hello")
                await telegram.until(lambda: not telegram.unconfirmed())
                await bot.delete_webhook()
    assert hook.texts() == ["hello"]


async def test_nobody_is_there(telegram: Telegram, alice: Person) -> None:
    async with Bot(telegram.token, base_url=f"{telegram.url}/bot") as bot:
        await bot.set_webhook("https://nowhere.example.org/hook")
        telegram.write(alice, "hello")
        await telegram.until(lambda: bool(telegram.deliveries))
        info = await bot.get_webhook_info()
    assert info.last_error_message == "Failed to resolve host"
    assert telegram.webhook.url == "https://nowhere.example.org/hook"


@pytest.mark.parametrize(
    ("url", "given", "words"),
    [
        ("http://bot.example.org/hook", {}, "An HTTPS URL must be provided"),
        ("https://bot.example.org:8080/hook", {}, "only on ports 80, 88, 443 or 8443"),
        ("https://bot.example.org/hook", {"secret_token": "not this!"}, "unallowed characters"),
        ("https://bot.example.org:port/hook", {}, "invalid webhook URL"),
    ],
)
async def test_what_cannot_be_set(
    telegram: Telegram, url: str, given: dict[str, str], words: str
) -> None:
    async with Bot(telegram.token, base_url=f"{telegram.url}/bot") as bot:
        with pytest.raises(BadRequest, match=f"(?i){words}"):
            await bot.set_webhook(url, **given)  # type: ignore[arg-type]
        assert (await bot.get_webhook_info()).url == ""


async def test_once_a_second(telegram: Telegram) -> None:
    async with Bot(telegram.token, base_url=f"{telegram.url}/bot") as bot:
        await bot.set_webhook("https://bot.example.org/hook")
        with pytest.raises(RetryAfter):
            await bot.set_webhook("https://bot.example.org/hook")


async def test_an_update_of_nobody_comes_too(telegram: Telegram, hook: Hook) -> None:
    async with hooked(telegram, hook):
        telegram.inject({"surprise": True})
        telegram.inject({"poll": {"id": 5}})
        await telegram.until(lambda: not telegram.unconfirmed())
    assert len(hook.got) == 2
