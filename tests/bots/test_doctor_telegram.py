"""What `chinwag check telegram` finds: webhook, door, clock, second process, several bots."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response
from starlette.routing import Route
from telegram import Bot

from bots import doctor_telegram, refusals
from bots.doctor import Finding, check, render
from bots.http import app_of, listen, serve
from bots.refusals import Refusal
from bots.settings import load_settings
from core.errors import StoreUnavailable
from playground.telegram import Telegram
from stores.memory import MemoryStore
from stores.sqlite import SQLiteStore
from tests.crash.program import CONFIG, World
from tests.examples.test_echo_adapter import free_port

SECRET = "s" * 32
HOOK = "https://bot.example.org/telegram"
WEBHOOK = '[telegram]\nmode = "webhook"\n[http]\nport = 8080\npublic_url = "{}"\n'


@pytest.fixture
async def telegram() -> AsyncIterator[Telegram]:
    async with Telegram() as server:
        yield server


def environ(telegram: Telegram, **more: str) -> dict[str, str]:
    return {
        "TELEGRAM_BOT_TOKEN": telegram.token,
        "CHINWAG_TELEGRAM__BASE_URL": telegram.url,
        "TELEGRAM_WEBHOOK_SECRET": SECRET,
        **more,
    }


async def look(folder: Path, variables: dict[str, str], text: str = "") -> list[Finding]:
    config = folder / "config.toml"
    config.write_text(text)
    findings = await check(load_settings(config, variables), None, "telegram")
    shown = render(findings)
    for secret in (variables.get("TELEGRAM_BOT_TOKEN", SECRET), SECRET):
        assert secret not in shown
    assert all(finding.cure for finding in findings if not finding.ok)
    return [finding for finding in findings if finding.what == "telegram"]


@asynccontextmanager
async def door(status: int) -> AsyncIterator[str]:
    """What stands at the public URL, and answers so."""

    async def answer(_: Any) -> Response:
        return Response(status_code=status)

    with listen("127.0.0.1", 0) as listener:
        app = app_of([Route("/telegram", answer, methods=["GET", "POST"])])
        serving = asyncio.create_task(serve(app, listener))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def set_webhook(telegram: Telegram, url: str = HOOK) -> None:
    async with Bot(telegram.token, base_url=f"{telegram.url}/bot") as bot:
        await bot.set_webhook(url)


async def test_only_what_was_asked_for(tmp_path: Path, telegram: Telegram) -> None:
    (tmp_path / "config.toml").write_text("")
    found = await check(
        load_settings(tmp_path / "config.toml", environ(telegram)), None, "telegram"
    )
    assert {finding.what for finding in found} == {"config", "telegram"}
    assert {call.method.lower() for call in telegram.calls} == {"getme", "getwebhookinfo"}


async def test_privacy_mode(
    tmp_path: Path, telegram: Telegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    from playground import telegram_methods

    get_me = telegram_methods.get_me
    private = {"can_read_all_group_messages": False, "can_join_groups": False}
    monkeypatch.setitem(
        telegram_methods.METHODS, "getme", lambda world, given: get_me(world, given) | private
    )
    who, _ = await look(tmp_path, environ(telegram))
    assert who.text == (
        "@playground_bot, id 123456; in groups hears commands, replies and mentions alone (privacy"
        " mode: docs/telegram.md); cannot be added to groups (/setjoingroups)"
    )


class TestWebhook:
    async def test_what_waits(self, tmp_path: Path, telegram: Telegram) -> None:
        alice = telegram.person("Alice")
        telegram.write(alice, "hello")
        assert (await look(tmp_path, environ(telegram)))[1].text == (
            "no webhook in the way; 1 update waiting at Telegram"
        )

    async def test_one_is_set_although_we_poll(self, tmp_path: Path, telegram: Telegram) -> None:
        await set_webhook(telegram)
        found = (await look(tmp_path, environ(telegram)))[1]
        assert (found.ok, found.exit_code) == (False, 4)
        assert "a webhook is set, to bot.example.org" in found.text
        assert "`chinwag run` takes it away" in found.cure

    @pytest.mark.parametrize(
        ("url", "ok", "text"),
        [
            ("", True, "no webhook is set"),
            (HOOK, True, "the webhook is set, to bot.example.org"),
            ("https://other.example.org/x", False, "the webhook is another one, to other.example"),
        ],
    )
    async def test_which_is_set(
        self, tmp_path: Path, telegram: Telegram, url: str, ok: bool, text: str
    ) -> None:
        if url:
            await set_webhook(telegram, url)
        config = WEBHOOK.format("https://bot.example.org")
        found = (await look(tmp_path, environ(telegram), config))[1]
        assert found.ok is ok and found.text.startswith(text)

    @pytest.mark.parametrize(
        ("message", "cure"),
        [
            ("Wrong response from the webhook: 403 Forbidden", "TELEGRAM_WEBHOOK_SECRET"),
            ("Wrong response from the webhook: 404 Not Found", "pass the path"),
            ("Wrong response from the webhook: 502 Bad Gateway", "is the bot running"),
            ("Wrong response from the webhook: 503 Service Unavailable", "its log"),
            ("SSL error {error:0A000086:certificate verify failed}", "certificate must be valid"),
            ("Failed to resolve host: Name or service not known", "known to the world"),
            ("Read timeout expired", "docs/telegram.md"),
        ],
    )
    async def test_telegram_could_not_reach_it(
        self, tmp_path: Path, message: str, cure: str
    ) -> None:
        async with Telegram(second=1_000) as telegram:  # it tries once, for as long as this takes
            await set_webhook(telegram)
            telegram.write(telegram.person("Alice"), "hello")
            await telegram.until(lambda: bool(telegram.deliveries))
            telegram.webhook.error = message
            config = WEBHOOK.format("https://bot.example.org")
            found = (await look(tmp_path, environ(telegram), config))[1]
        assert not found.ok
        assert message in found.text and "1 update waiting" in found.text
        assert cure in found.cure

    async def test_a_failure_of_last_week_is_none(self, tmp_path: Path, telegram: Telegram) -> None:
        await set_webhook(telegram)
        telegram.webhook.error, telegram.webhook.error_at = "old", int(time.time()) - 600_000
        config = WEBHOOK.format("https://bot.example.org")
        assert (await look(tmp_path, environ(telegram), config))[1].ok

    @pytest.mark.parametrize(
        ("text", "without", "words"),
        [
            ('[telegram]\nmode = "webhook"\n', "", "needs [http] port and public_url"),
            (WEBHOOK.format(HOOK), "TELEGRAM_WEBHOOK_SECRET", "needs TELEGRAM_WEBHOOK_SECRET"),
        ],
    )
    async def test_what_it_needs(
        self, tmp_path: Path, telegram: Telegram, text: str, without: str, words: str
    ) -> None:
        variables = {k: v for k, v in environ(telegram).items() if k != without}
        found = (await look(tmp_path, variables, text))[0]
        assert (found.exit_code, words in found.text) == (2, True)


class TestDoor:
    @pytest.mark.parametrize(
        ("status", "text", "hint"),
        [
            (405, "leads to a bot that runs", False),
            (502, "answers 502 where the webhook is to be", True),
            (404, "answers 404 where the webhook is to be", True),
        ],
    )
    async def test_what_answers(
        self, tmp_path: Path, telegram: Telegram, status: int, text: str, hint: bool
    ) -> None:
        async with door(status) as url:
            found = (await look(tmp_path, environ(telegram), WEBHOOK.format(url)))[-1]
        assert found.ok and text in found.text and bool(found.cure) is hint

    async def test_nobody_answers(self, tmp_path: Path, telegram: Telegram) -> None:
        url = f"http://127.0.0.1:{free_port()}"
        found = (await look(tmp_path, environ(telegram), WEBHOOK.format(url)))[-1]
        assert found.ok and "does not answer from here (ClientConnectorError)" in found.text

    async def test_no_tls_where_there_should_be(self, tmp_path: Path, telegram: Telegram) -> None:
        async with door(405) as url:
            config = WEBHOOK.format(url.replace("http:", "https:"))
            found = (await look(tmp_path, environ(telegram), config))[-1]
        assert (found.ok, found.exit_code) == (False, 4)
        assert "certificate is not valid" in found.text

    @pytest.mark.parametrize(
        ("url", "base_url", "words"),
        [
            ("http://bot.example.org", "https://api.telegram.org", ["https alone"]),
            ("https://bot.example.org:8080", "https://api.telegram.org", ["not to 8080"]),
            ("https://bot.example.org:8443", "https://api.telegram.org", []),
            ("https://bot.example.org", "https://api.telegram.org", []),
            ("http://bot.example.org:8080", "http://127.0.0.1:8081", []),
        ],
    )
    def test_what_telegram_would_refuse(self, url: str, base_url: str, words: list[str]) -> None:
        from bots.telegram.webhook import Webhook

        found = list(doctor_telegram._address(Webhook(url, "/telegram", SECRET), base_url))
        assert len(found) == len(words)
        for finding, word in zip(found, words, strict=True):
            assert word in finding.text and finding.exit_code == 2


class TestClock:
    @pytest.mark.parametrize(("theirs", "words"), [(-600, "600 s fast"), (600, "600 s slow")])
    async def test_it_is_wrong(self, tmp_path: Path, theirs: float, words: str) -> None:
        async with Telegram(clock=lambda: time.time() + theirs) as telegram:
            found = (await look(tmp_path, environ(telegram)))[-1]
        # Their date is in whole seconds.
        near = words.replace("600", "601"), words.replace("600", "599"), words
        assert any(each in found.text for each in near) and not found.ok

    async def test_a_little_does_not_matter(self, tmp_path: Path) -> None:
        async with Telegram(clock=lambda: time.time() - 30) as telegram:
            assert all(finding.ok for finding in await look(tmp_path, environ(telegram)))

    @pytest.mark.parametrize("date", [None, "", "yesterday", "Mon, 99 Foo 2026"])
    def test_who_does_not_say(self, date: str | None) -> None:
        assert doctor_telegram._apart(date) is None


async def test_several_bots(tmp_path: Path, telegram: Telegram) -> None:
    token = "654321:another-token"
    config = '[[telegram.bots]]\naccount = "support"\ntoken_env = "SUPPORT"\n'
    found = await look(tmp_path, environ(telegram, SUPPORT=token), config)
    assert [finding.ok for finding in found] == [True, True, False]
    assert found[2].text == "the token is not valid"
    assert "the token_env of support" in found[2].cure


class TestSecondProcess:
    async def test_it_is_known_from_the_run_that_it_ended(self, tmp_path: Path) -> None:
        """Nothing is asked that would turn away whoever polls; and it is forgotten after a run that
        ended well."""
        async with World(tmp_path, CONFIG) as world:
            await world.start()
            await world.ready()
            async with Bot(world.telegram.token, base_url=f"{world.telegram.url}/bot") as other:
                for _ in range(5):
                    polling = asyncio.create_task(other.get_updates(timeout=10))
                    ended = asyncio.create_task(world.exited())
                    await asyncio.wait((polling, ended), return_when=asyncio.FIRST_COMPLETED)
                    ended.cancel()
                    await asyncio.gather(polling, return_exceptions=True)
                    if world.child is not None and world.child.returncode is not None:
                        break
                assert await world.exited() == 4
            before = len(world.telegram.calls)
            checked = await world.command("check", "telegram")
            assert checked.code == 4
            assert "another process uses this Telegram token: it polls too" in checked.out
            asked = {call.method for call in world.telegram.calls[before:]}
            assert asked == {"getMe", "getWebhookInfo"}
            await world.start()
            await world.ready()
            assert await world.terminate() == 0
            checked = await world.command("check", "telegram")
            assert (checked.code, "another process" in checked.out) == (0, False)

    async def test_an_old_one_is_only_told(self, tmp_path: Path, telegram: Telegram) -> None:
        old = Refusal(int(time.time() * 1000) - 200_000_000, "another process")
        async with SQLiteStore(tmp_path / "chinwag.db") as store:
            await refusals.note(store.notes, "telegram", old)
        found = (await look(tmp_path, environ(telegram)))[-1]
        assert found.ok and found.text.startswith("Telegram ended a run on ")

    async def test_the_note(self) -> None:
        notes = MemoryStore().notes
        first = Refusal(1, "why")
        await refusals.note(notes, "telegram", None)
        assert await refusals.read(notes, ("telegram",)) == {}
        for refusal in (first, first, Refusal(2, "why else")):
            await refusals.note(notes, "telegram", refusal)
            assert await refusals.read(notes, ("telegram", "slack")) == {"telegram": refusal}
        await refusals.note(notes, "telegram", None)
        assert await refusals.read(notes, ("telegram",)) == {}
        await notes.put("refused.telegram", b"not one", was=None)
        assert await refusals.read(notes, ("telegram",)) == {}

    async def test_a_store_that_is_gone_is_said_elsewhere(
        self, tmp_path: Path, telegram: Telegram, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def gone(notes: object, names: Sequence[str]) -> dict[str, Refusal]:
            raise StoreUnavailable("gone")

        async with SQLiteStore(tmp_path / "chinwag.db"):
            pass
        monkeypatch.setattr("bots.doctor.read", gone)
        assert all(finding.ok for finding in await look(tmp_path, environ(telegram)))
