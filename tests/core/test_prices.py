"""Prices are data, and exact."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from core.agent import Agent
from core.errors import ConfigError
from core.prices import BUILT_IN, built_in, read_prices
from core.usage import UNIT, Usage

MILLION = 10**6


def ms(year: int, month: int, day: int) -> int:
    return int(datetime(year, month, day, tzinfo=UTC).timestamp() * 1000)


NOW = ms(2026, 11, 30)


def written(folder: Path, text: str) -> Path:
    file = folder / "prices.toml"
    file.write_text(text)
    return file


def test_the_default_model_has_a_price() -> None:
    prices = built_in()
    assert prices.currency == "USD"
    assert prices.knows(Agent().model_name)


def test_each_kind_of_token_has_its_price() -> None:
    prices = built_in()

    def cost(**usage: int) -> int | None:
        return prices.cost("claude-sonnet-5-5", Usage(**usage), NOW)

    assert cost(input_tokens=MILLION) == 2 * UNIT
    assert cost(output_tokens=MILLION) == 10 * UNIT
    assert cost(cache_creation_input_tokens=MILLION) == 2 * UNIT + UNIT // 2
    assert cost(cache_read_input_tokens=MILLION) == UNIT // 10
    assert cost(web_searches=1000) == 10 * UNIT
    hour = {"cache_creation_input_tokens": MILLION, "cache_creation_1h_input_tokens": MILLION}
    assert cost(**hour) == 4 * UNIT
    # More for an hour than were taken in at all: what was taken in is what is paid.
    assert cost(cache_creation_1h_input_tokens=MILLION) == 0
    assert cost(input_tokens=1, cache_read_input_tokens=1) == 2_000_000 + 100_000
    assert cost() == 0


def test_a_price_holds_from_its_day_on() -> None:
    prices, read = built_in(), Usage(cache_read_input_tokens=MILLION)
    day = ms(2026, 10, 7)
    assert prices.cost("claude-sonnet-5-5", read, day - 1) == UNIT // 5
    assert prices.cost("claude-sonnet-5-5", read, day) == UNIT // 10
    # A clock that is wrong, or a model that was used before it was on the list.
    assert prices.cost("claude-sonnet-5-5", read, 0) == UNIT // 5


def test_a_long_prompt_may_cost_more_as_a_whole() -> None:
    prices = built_in()
    short = Usage(50_000, MILLION, 25_000, 25_000)
    assert prices.cost("claude-haiku-5-5", short, NOW) == (
        UNIT // 2 + 50_000 * 100_000 + 25_000 * 125_000 + 25_000 * 10_000
    )
    longer = Usage(50_001, MILLION, 25_000, 25_000)
    assert prices.cost("claude-haiku-5-5", longer, NOW) == (
        5 * UNIT // 2 + 50_001 * 500_000 + 25_000 * 625_000 + 25_000 * 50_000
    )


def test_what_must_be_reserved_is_the_most_that_a_call_can_cost() -> None:
    usage, cost = built_in().worst("claude-sonnet-5-5", 1000, 100, NOW)
    assert usage == Usage(0, 100, 1000)
    assert cost == 1000 * 2_500_000 + 100 * 10_000_000


def test_a_date_at_the_end_of_a_name_need_not_be_known() -> None:
    prices, usage = built_in(), Usage(input_tokens=MILLION)
    assert prices.cost("claude-haiku-4-5-20251001", usage, NOW) == UNIT
    assert prices.cost("claude-haiku-4-5@20251001", usage, NOW) == UNIT
    assert prices.cost("claude-haiku-4-5-2025100", usage, NOW) is None
    assert not prices.knows("llama")
    assert prices.worst("llama", 1, 2, NOW) == (Usage(0, 2, 1), None)


def test_a_file_of_ones_own_has_the_last_word_on_its_models(tmp_path: Path) -> None:
    own = read_prices(
        written(
            tmp_path,
            """\
            currency = "EUR"
            [[price]]
            model = "claude-haiku-5-5"
            from = 2020-01-01
            input = 0.000001
            output = 1
            cache_write = 1
            cache_write_1h = 1
            cache_read = 0
            web_search = 0
            """,
        )
    )
    prices = built_in().overridden(own)
    assert prices.currency == "EUR"
    usage = Usage(input_tokens=MILLION, cache_read_input_tokens=MILLION, web_searches=5)
    # Its tier for long prompts is gone, too.
    assert prices.cost("claude-haiku-5-5", usage, NOW) == MILLION
    assert prices.cost("claude-opus-5-5", Usage(MILLION), NOW) == 4 * UNIT


WHOLE = 'model = "m"\nfrom = 2026-01-01\ninput = 1\noutput = 1\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("price = 3", r"price: want sections \[\[price\]\]"),
        ("price = [3]", "1: want a section with keys"),
        ("prices = 3", "no such key: prices; there are currency"),
        ("currency = 3", "currency: want a word of letters"),
        ("[[price]", "not TOML"),
        (f"[[price]]\n{WHOLE}cached = 1", r"\[\[price\]\] 1: no such key: cached; there are model"),
        ('[[price]]\nmodel = " "', "1: model: want the model's name"),
        ('[[price]]\nmodel = "m"', r"1 \(m\): from: want a day without quotes"),
        ('[[price]]\nmodel = "m"\nfrom = 2026-01-01T00:00:00', "from: want a day"),
        ('[[price]]\nmodel = "m"\nfrom = 2026-01-01', "input: want a number"),
        (f"[[price]]\n{WHOLE}above = -1", "above: want a number of tokens"),
        (f"[[price]]\n{WHOLE}above = true", "above: want a number of tokens"),
        (f"[[price]]\n{WHOLE}cache_read = true", "cache_read: want a number"),
        (f"[[price]]\n{WHOLE}cache_read = -0.1", "cache_read: want a number from 0"),
        (f"[[price]]\n{WHOLE}cache_read = nan", "cache_read: want a number from 0"),
        (f"[[price]]\n{WHOLE}cache_read = 0.0000001", "cache_read: too fine"),
        (f"[[price]]\n{WHOLE}web_search = 2_000_000", "web_search: want a number from 0 to 1,000"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        read_prices(written(tmp_path, text))
    assert str(caught.value).startswith(f"{tmp_path}/prices.toml: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read: No such file"):
        read_prices(tmp_path / "none.toml")


def test_the_list_says_where_it_is_from() -> None:
    text = BUILT_IN.read_text()
    assert "https://platform.claude.com" in text
    assert "November 2026" in text
