"""`chinwag usage`, `[budget]`: what an operator sees of the money, and sets for it."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner, Result

from bots.app import build_agent
from bots.cli import cli
from bots.doctor import check
from bots.settings import Settings, load_settings
from bots.spending import build_spending
from bots.usage import Column, report
from core.agent import Agent
from core.budget import Limit
from core.clock import SystemClock
from core.errors import ConfigError
from core.snapshot import Snapshot
from core.spending import Spending
from core.store import SessionRef
from core.usage import UNIT, Spent, Usage
from stores.urls import open_store

NOON = int(datetime(2026, 11, 10, 12, tzinfo=UTC).timestamp() * 1000)
DAY = 86_400_000
SINCE = "2026-11-09"

ROWS = {
    "telegram-chat:42": (
        Spent("e1", 1, NOON - 90_000_000, "m", Usage(1), 1, sender="telegram:42"),
        Spent("e2", 1, NOON, "m", Usage(1000, 20, 300, 4), UNIT // 8, sender="telegram:42"),
        Spent("e2", 2, NOON + 1, "m", Usage(0, 4096), UNIT, estimated=True, sender="telegram:42"),
    ),
    "telegram-chat:-7": (
        Spent("e3", 1, NOON + 11 * 3_600_000, "other", Usage(5, 5), None, sender="telegram:7"),
    ),
}


def config(folder: Path, text: str = "") -> Settings:
    (folder / "config.toml").write_text(f'[store]\nurl = "sqlite:bot.db"\n{text}')
    return load_settings(folder / "config.toml", {})


@pytest.fixture
async def settings(tmp_path: Path) -> AsyncIterator[Settings]:
    """Beside a bot that runs."""
    settings = config(tmp_path)
    async with open_store(settings.store.url, settings.folder) as store:
        for key, rows in ROWS.items():
            value = Snapshot(revision=1, epoch="e", created_at=1, updated_at=1, spent=rows)
            await store.save(SessionRef(key), value, replaces=None)
        yield settings


async def lines(
    settings: Settings, *by: Column, how: Any = "table", since: str = SINCE
) -> list[str]:
    return [line async for line in report(settings, by or ("day",), since, how)]


async def test_a_table(settings: Settings) -> None:
    assert await lines(settings) == [
        "day         calls  input  cache write  cache read  output          cost",
        "2026-11-09      1      1            0           0       0    0.0000 USD",
        "2026-11-10      3  1,005          300           4   4,121  ~?1.1250 USD",
        "total           4  1,006          300           4   4,121  ~?1.1250 USD",
        "",
        "~ calls that were cut off, counted as the most that they can cost: 1",
        "? calls of models without a price, not in the sum: 1; see docs/budgets.md",
    ]


async def test_by_several_things(settings: Settings) -> None:
    rows = [line.split() for line in await lines(settings, "sender", "chat", since="2026-11-10")]
    assert rows[0][:3] == ["sender", "chat", "calls"]
    assert [row[:3] for row in rows[1:3]] == [
        ["telegram:42", "telegram-chat:42", "2"],
        ["telegram:7", "telegram-chat:-7", "1"],
    ]


async def test_days_are_those_of_the_configured_zone(tmp_path: Path, settings: Settings) -> None:
    there = config(tmp_path, '[budget]\ntimezone = "Europe/Brussels"\n')
    days = [line[:10] for line in await lines(there)]
    assert days[1:4] == ["2026-11-09", "2026-11-10", "2026-11-11"]


async def test_json_is_exact(settings: Settings) -> None:
    [first, second] = [json.loads(line) for line in await lines(settings, "model", how="json")]
    assert first == {
        "model": "m",
        "calls": 3,
        "estimated_calls": 1,
        "unpriced_calls": 0,
        "input_tokens": 1001,
        "cache_creation_input_tokens": 300,
        "cache_read_input_tokens": 4,
        "output_tokens": 4116,
        "web_searches": 0,
        "cost": "1.125000000001",
        "currency": "USD",
    }
    assert (second["model"], second["cost"], second["unpriced_calls"]) == ("other", "0", 1)


async def test_csv(settings: Settings) -> None:
    text = "\n".join(await lines(settings, "chat", "day", how="csv"))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["chat"], row["day"], row["cost"]) for row in rows] == [
        ("telegram-chat:-7", "2026-11-10", "0"),
        ("telegram-chat:42", "2026-11-09", "0.000000000001"),
        ("telegram-chat:42", "2026-11-10", "1.125"),
    ]


async def test_a_name_is_no_formula_and_no_escape(tmp_path: Path) -> None:
    settings = config(tmp_path)
    async with open_store(settings.store.url, settings.folder) as store:
        rows = (Spent("e1", 1, NOON, "=1+1\x1b[2J", Usage(1), 1),)
        value = Snapshot(revision=1, epoch="e", created_at=1, updated_at=1, spent=rows)
        await store.save(SessionRef("t:1"), value, replaces=None)
    _, row = await lines(settings, "model", how="csv")
    assert row.startswith("'=1+1")
    assert "\x1b" not in row
    assert (await lines(settings, "sender"))[1].split()[0] == "1"


async def test_nothing_was_used(settings: Settings) -> None:
    assert await lines(settings, since="2030-01-01") == ["Nothing was used since 2030-01-01."]
    assert await lines(settings, since="2030-01-01", how="json") == []
    assert len(await lines(settings, since="2030-01-01", how="csv")) == 1


async def test_so_many_days(settings: Settings) -> None:
    days = (datetime.now(UTC) - datetime(2026, 11, 10, tzinfo=UTC)).days
    assert (await lines(settings, since=f"{days + 1}d"))[-1] != ""
    assert (await lines(settings, since="1d"))[0].startswith("Nothing was used since")


@pytest.mark.parametrize("since", ["yesterday", "xd", "99999999999d", "2026-13-01"])
async def test_what_is_no_day(settings: Settings, since: str) -> None:
    with pytest.raises(ConfigError, match=r"--since .*: want a day, such as 2026-11-01"):
        await lines(settings, since=since)


async def test_the_command(settings: Settings) -> None:
    path = str(settings.folder / "config.toml")

    async def run(*words: str) -> Result:
        # In a thread, for it brings a loop of its own.
        return await asyncio.to_thread(CliRunner().invoke, cli, ["usage", "--config", path, *words])

    table = await run("--since", SINCE, "--by", "sender")
    assert table.output.splitlines()[1].startswith("telegram:42")
    as_json = await run("--since", SINCE, "--json")
    assert json.loads(as_json.output.splitlines()[0])["day"] == "2026-11-09"
    assert (await run("--csv")).output.startswith("day,calls,")
    both = await run("--csv", "--json")
    assert both.exit_code == 2
    assert "give one" in both.output


# ---------------------------------------------------------------------- [budget]


def spending(settings: Settings) -> Spending:
    return build_spending(settings, build_agent(settings), SystemClock())


def test_without_a_budget_there_is_no_limit(tmp_path: Path) -> None:
    assert spending(config(tmp_path)).budget.limits == ()


def test_each_key_is_a_limit(tmp_path: Path) -> None:
    text = """\
    [budget]
    sender_per_day = "0.50 USD"
    sender_per_month = "200_000 tokens"
    chat_per_day = ["1 USD", "300000 tokens"]
    chat_per_month = "2 USD"
    per_day = "3 USD"
    per_month = "4 USD"
    total = "5 USD"
    timezone = "Europe/Brussels"
    """
    budget = spending(config(tmp_path, text)).budget
    assert budget.limits == (
        Limit("sender", "day", "money", UNIT // 2),
        Limit("sender", "month", "tokens", 200_000),
        Limit("chat", "day", "money", UNIT),
        Limit("chat", "day", "tokens", 300_000),
        Limit("chat", "month", "money", 2 * UNIT),
        Limit("all", "day", "money", 3 * UNIT),
        Limit("all", "month", "money", 4 * UNIT),
        Limit("all", "ever", "money", 5 * UNIT),
    )
    assert budget.zone == ZoneInfo("Europe/Brussels")


def test_a_variable_sets_it_too(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    environ = {"CHINWAG_BUDGET__PER_DAY": "5 USD, 900_000 tokens"}
    budget = spending(load_settings(tmp_path / "config.toml", environ)).budget
    assert [limit.unit for limit in budget.limits] == ["money", "tokens"]


def test_open_to_everybody_demands_limits_and_has_them(tmp_path: Path) -> None:
    usual = spending(config(tmp_path, "[access]\nopen = true\n")).budget.limits
    assert {limit.scope for limit in usual} == {"sender", "all"}
    assert {limit.unit for limit in usual} == {"tokens", "money"}
    text = '[access]\nopen = true\n[budget]\nper_day = "9 USD"\nsender_per_day = []\n'
    assert spending(config(tmp_path, text)).budget.limits == (
        Limit("all", "day", "money", 9 * UNIT),
    )
    with pytest.raises(ConfigError, match="open = true lets everybody spend: set"):
        spending(config(tmp_path, "[access]\nopen = true\n[budget]\nper_day = []\n"))


def test_where_there_is_no_price_tokens_must_do(tmp_path: Path) -> None:
    text = '[access]\nopen = true\n[agent]\nmodel = "openai/unheard-of"\n'
    limits = spending(config(tmp_path, text)).budget.limits
    assert {limit.unit for limit in limits} == {"tokens"}


def test_prices_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        'currency = "EUR"\n[[price]]\nmodel = "local"\nfrom = 2026-01-01\ninput = 1\noutput = 1\n'
    )
    text = '[agent]\nmodel = "openai/local"\n[budget]\nprices = "own.toml"\nper_day = "2 EUR"\n'
    own = spending(config(tmp_path, text))
    assert own.prices.cost("local", Usage(10**6), NOON) == UNIT
    assert own.prices.knows(Agent().model_name)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[budget]\nper_day = "5"', 'per_day, entry 1: want an amount, such as "5 USD"'),
        ('[budget]\nper_day = "five USD"', "per_day, entry 1: want an amount"),
        ("[budget]\nper_day = 5", "per_day: want a list of texts"),
        ('[budget]\ntimezone = "Mars"', "timezone: want a time zone"),
        ('[budget]\nday = "5 USD"', "day: no such key"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('per_day = "5 EUR"', "per_day: the prices are in USD"),
        ('per_day = "0.01 USD"', r"per_day: 0.0100 USD cannot pay for one answer of claude-sonnet"),
        ('sender_per_day = "4000 tokens"', "sender_per_day: 4,000 tokens cannot pay for one"),
        ('prices = "none.toml"', r"none\.toml: cannot be read"),
    ],
)
async def test_what_cannot_hold_is_said_before_a_start(
    tmp_path: Path, text: str, said: str
) -> None:
    settings = config(tmp_path, f"[budget]\n{text}\n")
    with pytest.raises(ConfigError, match=said):
        spending(settings)
    [finding] = [each for each in await check(settings) if each.what == "budget"]
    assert (finding.ok, finding.exit_code) == (False, 2)


def test_a_budget_in_money_wants_a_price(tmp_path: Path) -> None:
    text = '[agent]\nmodel = "openai/unheard-of"\n[budget]\ntotal = "5 USD"\n'
    with pytest.raises(ConfigError, match="what unheard-of costs is not known: name a file"):
        spending(config(tmp_path, text))


async def test_check_says_which_limits_hold(tmp_path: Path) -> None:
    settings = config(tmp_path, '[budget]\nper_day = ["5 USD", "200_000 tokens"]\n')
    [finding] = [each for each in await check(settings) if each.what == "budget"]
    assert finding.text == "per_day 5.0000 USD; per_day 200,000 tokens"
