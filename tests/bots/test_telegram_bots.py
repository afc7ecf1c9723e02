"""Which Telegram bots the settings make, and what a webhook needs."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from bots.settings import load_settings
from bots.telegram_bots import telegram_bots, webhook_of
from core.errors import ConfigError
from tests.core.fakes import FakeClock

SECRET = "s" * 32
HTTP = '[http]\nport = 8080\npublic_url = "https://bot.example.org/bots/"\n'
BOTS = """\
[telegram]
mode = "webhook"
max_connections = 7
[[telegram.bots]]
account = "support"
token_env = "SUPPORT_BOT_TOKEN"
[[telegram.bots]]
account = "sales"
token_env = "SALES_BOT_TOKEN"
mode = "polling"
"""
ENVIRON = {
    "TELEGRAM_BOT_TOKEN": "20:a",
    "SUPPORT_BOT_TOKEN": "21:b",
    "SALES_BOT_TOKEN": "22:c",
    "TELEGRAM_WEBHOOK_SECRET": SECRET,
}


def config(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(text)
    return path


def test_each_has_its_webhook_or_none(tmp_path: Path) -> None:
    settings = load_settings(config(tmp_path, HTTP + BOTS), ENVIRON)
    webhooks = [webhook_of(bot, settings) for bot in settings.telegram.each()]
    assert [each and (each.url, each.secret, each.max_connections) for each in webhooks] == [
        ("https://bot.example.org/bots/telegram", SECRET, 7),
        ("https://bot.example.org/bots/telegram/support", SECRET, 7),
        None,
    ]
    assert SECRET not in repr(webhooks)
    first = webhooks[0]
    assert first is not None and first.paths == ("/telegram", "/bots/telegram")


async def test_they_are_adapters_of_their_own(tmp_path: Path) -> None:
    settings = load_settings(config(tmp_path, HTTP + BOTS), ENVIRON)
    bots = tuple(telegram_bots(settings, FakeClock()))
    assert [bot.name for bot in bots] == ["telegram", "telegram@support", "telegram@sales"]
    for number, key in enumerate(("telegram-chat:7", "telegram-chat@support:7")):
        assert [bot.serves(key) for bot in bots].index(True) == number
    for bot in bots:
        await bot.close()


def test_none_is_none(tmp_path: Path) -> None:
    assert list(telegram_bots(load_settings(config(tmp_path, HTTP), {}), FakeClock())) == []


@pytest.mark.parametrize(
    ("text", "without", "words"),
    [
        ("[http]\nport = 8080\n", "", r"needs \[http\] port and public_url"),
        ('[http]\npublic_url = "https://x.org"\n', "", r"needs \[http\] port and public_url"),
        (HTTP, "TELEGRAM_WEBHOOK_SECRET", "needs TELEGRAM_WEBHOOK_SECRET in .env"),
    ],
)
def test_what_a_webhook_needs(tmp_path: Path, text: str, without: str, words: str) -> None:
    environ = {name: value for name, value in ENVIRON.items() if name != without}
    settings = load_settings(config(tmp_path, text + BOTS), environ)
    with pytest.raises(ConfigError, match=words):
        list(telegram_bots(settings, FakeClock()))


# --- docs/telegram.md -------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "telegram.md").read_text()


@pytest.mark.parametrize("text", re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL))
def test_the_settings_of_the_page_are_some(tmp_path: Path, text: str) -> None:
    settings = load_settings(config(tmp_path, textwrap.dedent(text)), ENVIRON)
    for bot in settings.telegram.each():
        webhook_of(bot, settings)
    assert settings.model_fields_set


def test_what_the_page_quotes_is_said() -> None:
    code = "".join(path.read_text() for path in (ROOT / "bots").rglob("*.py"))
    code = re.sub(r'"\s+f?"', "", code)
    quoted = re.findall(r'exit \d, "(.*?)(?: \.\.\.)?"', PAGE)
    assert len(quoted) >= 5
    for sentence in quoted:
        assert sentence in code, sentence
    events = re.findall(r"`(telegram\.\w+)` in the log", PAGE)
    assert len(events) == 4
    for event in events:
        assert f'"{event}"' in code, event
