"""What `chinwag check` finds, against the local Telegram and Claude."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from telegram import Bot

from bots.doctor import Finding, check, exit_code, render
from bots.settings import Settings, load_settings
from core.gate import OWNER
from playground.claude import Claude
from playground.openai import OpenAI
from playground.telegram import Telegram
from stores.sqlite import SQLiteStore
from stores.urls import open_store
from tests import postgres, redis

KEY = "sk-ant-" + "api03-abcdefghijklmnop"


@pytest.fixture
async def telegram() -> AsyncIterator[Telegram]:
    async with Telegram() as server:
        yield server


@pytest.fixture
async def claude() -> AsyncIterator[Claude]:
    async with Claude() as server:
        yield server


@pytest.fixture
def environ(telegram: Telegram, claude: Claude) -> dict[str, str]:
    return {
        "TELEGRAM_BOT_TOKEN": telegram.token,
        "CHINWAG_TELEGRAM__BASE_URL": telegram.url,
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": claude.url,
    }


def settings(folder: Path, environ: dict[str, str], text: str = "") -> Settings:
    config = folder / "config.toml"
    config.write_text(text)
    return load_settings(config, environ)


def of(what: str, findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.what == what]


def only(what: str, findings: list[Finding]) -> Finding:
    (finding,) = of(what, findings)
    return finding


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


async def test_all_is_well(tmp_path: Path, environ: dict[str, str], telegram: Telegram) -> None:
    findings = await check(settings(tmp_path, environ), tmp_path / "config.toml")
    assert exit_code(findings) == 0
    assert render(findings).splitlines() == [
        f"✓ config    {tmp_path / 'config.toml'}",
        "✓ store     sqlite:chinwag.db: new; made at the first start",
        "! access    nobody may speak yet",
        "            → `chinwag run` prints a code: who sends it to the bot is its owner",
        "✓ telegram  @playground_bot, id 123456; reads every message of its groups",
        "✓ telegram  no webhook in the way",
        "✓ model     claude-sonnet-5-5 is active; the key is good",
    ]
    # Looking leaves nothing behind, and takes no message away from the bot.
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]
    assert {call.method.lower() for call in telegram.calls} == {"getme", "getwebhookinfo"}


async def test_without_anything_there_are_hints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    findings = await check(load_settings(None, {}))
    assert exit_code(findings) == 5
    assert [finding.text for finding in of("config", findings)] == [
        "no config.toml; defaults and variables hold",
        "no platform is configured",
    ]
    assert not of("telegram", findings)
    assert only("model", findings).text == "there is no key"


async def test_secrets_that_others_can_read(tmp_path: Path) -> None:
    dotenv = tmp_path / ".env"
    dotenv.write_text("")
    for mode, seen in ((0o640, True), (0o600, False)):
        dotenv.chmod(mode)
        findings = await check(settings(tmp_path, {}))
        assert any(finding.cure == f"chmod 600 {dotenv}" for finding in findings) is seen


async def test_tools_and_adapters_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(
        'def time(place: str) -> str:\n    """The time there.\n\n    :param place: where\n    """\n'
        '    return "noon"\n'
    )
    text = (
        '[agent]\ntools = ["tools.py:time", "tools.py:other", "missing.py:x"]\n'
        '[adapters.irc]\nuse = "missing.py:IRC"\n'
    )
    findings = await check(settings(tmp_path, {}, text))
    assert [finding.ok for finding in of("tool", findings)] == [True, False, False]
    assert not only("adapter", findings).ok
    assert all(finding.cure for finding in findings if not finding.ok)
    assert exit_code(findings) == 2


async def test_the_transcriber_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "ears.py").write_text("def listen(data, media_type): return 'heard'\n")
    found = await check(settings(tmp_path, {}, '[media]\ntranscriber = "ears.py:listen"\n'))
    assert (only("media", found).ok, only("media", found).text) == (True, "ears.py:listen")
    found = await check(settings(tmp_path, {}, '[media]\ntranscriber = "ears.py:see"\n'))
    assert not only("media", found).ok and "'see'" in only("media", found).text
    assert of("media", await check(settings(tmp_path, {}))) == []


# --- database ---------------------------------------------------------------------------------


async def test_a_database_and_its_owner(tmp_path: Path) -> None:
    text = '[access]\nallow = ["telegram:7", "telegram:1", "telegram:2"]'
    async with SQLiteStore(tmp_path / "chinwag.db") as store:
        await store.notes.put(OWNER, b"telegram:7", was=None)
        # Beside a running bot, which holds the lock.
        findings = await check(settings(tmp_path, {}, text))
    assert only("store", findings).text == "sqlite:chinwag.db: sound"
    assert only("access", findings).text == (
        "owner telegram:7, telegram:1, telegram:2; 20 messages a minute each"
    )


async def test_who_may_speak(tmp_path: Path) -> None:
    allow = [f"telegram:{number}" for number in range(7)]
    findings = await check(settings(tmp_path, {}, f"[access]\nallow = {allow}"))
    assert "telegram:4 and 2 more; " in only("access", findings).text
    findings = await check(settings(tmp_path, {}, "[access]\nopen = true"))
    assert only("access", findings).text == "everybody may speak, 20 messages a minute each"


async def test_a_damaged_database(tmp_path: Path) -> None:
    path = tmp_path / "chinwag.db"
    async with SQLiteStore(path):
        pass
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE filler (text)")
        database.execute("CREATE INDEX fillers ON filler (text)")
        database.executemany(
            "INSERT INTO filler VALUES (?)", [(f"{number:0500}",) for number in range(400)]
        )
    database.close()
    data = bytearray(path.read_bytes())
    data[-8192:] = b"\xa5" * 8192
    path.write_bytes(data)
    finding = only("store", await check(settings(tmp_path, {})))
    assert (finding.ok, finding.exit_code) == (False, 3)
    assert finding.cure


async def test_a_server(tmp_path: Path) -> None:
    """New, then as Redis is mostly set up, then gone."""
    url = redis.fresh_url()
    text = f'[store]\nurl = "{url}"'
    found, weak = of("store", await check(settings(tmp_path, {}, text), None))
    assert (found.ok, found.text) == (True, f"{url}: new; made at the first start")
    assert weak.ok and weak.text.startswith("appendfsync is everysec: a power cut")
    async with open_store(url, tmp_path) as store:
        await store.notes.put(OWNER, b"telegram:1", was=None)
    sound, weak = of("store", await check(settings(tmp_path, {}, text), None))
    assert (sound.ok, sound.text) == (True, f"{url}: sound")
    assert weak.ok and weak.cure == "docs/scaling.md has what each setting promises"
    assert weak.text.startswith("appendfsync is everysec: a power cut, or a crash of the server")
    text = f'[store]\nurl = "unix://{tmp_path}/nobody"'
    found = only("store", await check(settings(tmp_path, {}, text), None))
    assert (found.ok, found.cure) == (
        False,
        "see whether the server runs, and what its own log says",
    )


async def test_a_shared_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not go together, what is missing, what is not there, and what is."""

    async def looked(url: str, store: str = "postgresql://127.0.0.1:1/x") -> Finding:
        text = f'[store]\nurl = "{store}"\n[engine]\nurl = "{url}"'
        return only("engine", await check(settings(tmp_path, {}, text), None))

    there = postgres.server().url("public")
    found = await looked(there)
    assert (found.ok, found.text) == (True, "PostgreSQL answers; the queue is chinwag")
    found = await looked(there, "sqlite:bot.db")
    assert (found.exit_code, found.ok) == (2, False)
    assert found.text.startswith("[store] url: sqlite: is for one process")
    found = await looked("postgresql://chinwag:hush@127.0.0.1:1/x")
    assert (found.exit_code, found.ok) == (3, False)
    assert "refused" in found.text and "hush" not in found.text and "\n" not in found.text
    assert (await looked("sqlite:engine.db", "sqlite:bot.db")).ok
    monkeypatch.setattr("bots.doctor.find_spec", lambda _: None)
    found = await looked(there)
    assert (found.exit_code, found.cure) == (2, "pip install 'chinwag[dbos]'")


async def test_what_a_server_has_failed_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failures(self: object) -> list[str]:
        return ["it could not", "nor that"]

    monkeypatch.setattr("stores.memory.MemoryStore.check", failures, raising=False)
    found = only("store", await check(settings(tmp_path, {}, '[store]\nurl = "memory:"'), None))
    assert not found.ok and found.text == "memory:: it could not, and 1 more"
    assert found.cure.startswith("look at the server's settings")


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "chinwag.db").write_text("hello" * 1_000)
    findings = await check(settings(tmp_path, {}))
    assert only("store", findings).exit_code == 3
    assert exit_code(findings) == 3


async def test_a_store_that_nobody_knows(tmp_path: Path) -> None:
    findings = await check(settings(tmp_path, {}, "[store]\nurl = 'nosuch:x'"))
    assert only("store", findings).exit_code == 2


async def test_a_store_in_memory(tmp_path: Path) -> None:
    findings = await check(settings(tmp_path, {}, "[store]\nurl = 'memory:'"))
    assert only("store", findings).ok


# --- Telegram ---------------------------------------------------------------------------------


async def test_a_wrong_token(tmp_path: Path, environ: dict[str, str], telegram: Telegram) -> None:
    telegram.token = "123456:another"
    findings = await check(settings(tmp_path, environ))
    finding = only("telegram", findings)
    assert (finding.ok, finding.exit_code, finding.text) == (False, 4, "the token is not valid")
    assert environ["TELEGRAM_BOT_TOKEN"] not in render(findings)
    assert exit_code(findings) == 4


async def test_no_telegram_there(tmp_path: Path, environ: dict[str, str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    findings = await check(settings(tmp_path, environ | {"CHINWAG_TELEGRAM__BASE_URL": url}))
    finding = only("telegram", findings)
    assert (finding.exit_code, finding.text) == (4, f"no answer from {url} (NetworkError)")


async def test_a_webhook_in_the_way(
    tmp_path: Path, environ: dict[str, str], telegram: Telegram
) -> None:
    async with Bot(telegram.token, base_url=f"{telegram.url}/bot") as bot:
        await bot.set_webhook(f"https://bot.example.org/{telegram.token}")
    findings = await check(settings(tmp_path, environ))
    finding = of("telegram", findings)[1]
    assert finding.exit_code == 4
    assert finding.text == "a webhook is set, to bot.example.org: it gets the messages, not we"


# --- model ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"ANTHROPIC_API_KEY": "wrong"}, "the key was refused (401)"),
        ({"CHINWAG_AGENT__MODEL": "claude-retired"}, "there is no claude-retired"),
        ({"CHINWAG_AGENT__MODEL": "anthropic/other"}, "there is no other"),
    ],
)
async def test_a_model_that_refuses_us(
    tmp_path: Path, environ: dict[str, str], changes: dict[str, str], text: str
) -> None:
    findings = await check(settings(tmp_path, environ | changes))
    finding = only("model", findings)
    assert (finding.exit_code, finding.text) == (5, text)
    assert finding.cure
    assert exit_code(findings) == 5
    assert KEY not in render(findings)


async def test_no_model_there(tmp_path: Path, environ: dict[str, str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    findings = await check(settings(tmp_path, environ | {"ANTHROPIC_BASE_URL": url}))
    assert only("model", findings).text.startswith(f"no answer from {url}")


async def test_a_model_on_another_platform_is_not_looked_at(tmp_path: Path) -> None:
    findings = await check(settings(tmp_path, {"CHINWAG_AGENT__MODEL": "foundry/claude"}))
    told = "foundry/claude: cannot be looked at; the first message will tell"
    assert only("model", findings) == Finding("model", True, told)


# --- OpenAI -----------------------------------------------------------------------------------


@pytest.fixture
async def openai() -> AsyncIterator[OpenAI]:
    async with OpenAI() as server:
        yield server


def compatible(openai: OpenAI, **more: str) -> dict[str, str]:
    return {
        "CHINWAG_AGENT__MODEL": "openai/gpt-playground",
        "OPENAI_BASE_URL": openai.url,
        "OPENAI_API_KEY": "sk-proj-abcdefghijklmnopqrstuvwx",
        **more,
    }


async def test_a_compatible_server(tmp_path: Path, openai: OpenAI) -> None:
    findings = await check(settings(tmp_path, compatible(openai)))
    assert only("model", findings) == Finding("model", True, "gpt-playground is there")


async def test_it_does_not_have_the_model(tmp_path: Path, openai: OpenAI) -> None:
    environ = compatible(openai, CHINWAG_AGENT__MODEL="openai/gpt-9")
    found = only("model", await check(settings(tmp_path, environ)))
    assert (found.ok, found.exit_code) == (False, 5)
    assert "has no gpt-9" in found.text


async def test_it_refuses_the_key(tmp_path: Path, openai: OpenAI) -> None:
    found = only(
        "model", await check(settings(tmp_path, compatible(openai, OPENAI_API_KEY="wrong")))
    )
    assert (found.text, found.exit_code) == ("the key was refused (401)", 5)


async def test_nobody_is_there(tmp_path: Path) -> None:
    environ = {"OPENAI_BASE_URL": f"http://127.0.0.1:{free_port()}/v1"}
    environ["CHINWAG_AGENT__MODEL"] = "openai/gpt"
    found = only("model", await check(settings(tmp_path, environ)))
    assert found.text.startswith("no answer from http://127.0.0.1")


async def test_openai_itself_wants_a_key(tmp_path: Path) -> None:
    found = only("model", await check(settings(tmp_path, {"CHINWAG_AGENT__MODEL": "openai/gpt"})))
    assert (found.text, found.exit_code) == ("there is no key", 5)


async def test_a_package_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bots.models._PACKAGES", {"openai": "no_such_package.at_all"})
    found = only("model", await check(settings(tmp_path, {"CHINWAG_AGENT__MODEL": "openai/gpt"})))
    assert found.exit_code == 2
    assert "install chinwag[openai]" in found.text


async def test_the_fallback_is_looked_at_too(
    tmp_path: Path, environ: dict[str, str], openai: OpenAI
) -> None:
    more = {
        "OPENAI_BASE_URL": openai.url,
        "CHINWAG_AGENT__FALLBACK": "openai/gpt-playground",
    }
    first, second = of("model", await check(settings(tmp_path, environ | more)))
    assert (first.ok, second.text) == (True, "gpt-playground is there")


# --- the table --------------------------------------------------------------------------------


def test_the_first_kind_that_failed_is_the_exit_code() -> None:
    found = [Finding("x", False, "", code, "cure") for code in (5, 3, 4)]
    assert exit_code(found) == 3
    assert exit_code([Finding("x", True, "")]) == 0


def test_a_cure_stands_below_its_failure() -> None:
    finding = Finding("model", False, "there is no key", 5, "set one")
    assert render([finding]) == "✗ model     there is no key\n            → set one"
