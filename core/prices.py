"""Prices: what a model call costs. The prices themselves are data, in `prices.toml`.

Exact: amounts are read as decimals and counted in whole `usage.UNIT`; nothing is ever rounded, and
a price that could not be counted so is refused when it is read. Not a budget: see `budget.py`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from core.errors import ConfigError
from core.usage import UNIT, Usage

BUILT_IN: Final = Path(__file__).with_name("prices.toml")

_LARGEST: Final = 10**6  # per million tokens: what costs more than 1 a token is a slip of the pen
_DATED: Final = re.compile(r"[-@]\d{8}$")
_KEYS: Final = {
    **dict.fromkeys(("model", "from", "input", "output")),
    "cache_write": Decimal("1.25"),
    "cache_write_1h": Decimal(2),
    "cache_read": Decimal("0.1"),
    "above": 0,
    "web_search": Decimal(10),
}


class Price(msgspec.Struct, frozen=True):
    """What one model costs from some day on, in `UNIT` a token (or a search).

    :param since: ms since 1970, UTC
    :param above: it holds for prompts of more tokens than this
    """

    model: str
    since: int
    above: int
    input: int
    output: int
    cache_write: int
    cache_write_1h: int
    cache_read: int
    web_search: int

    def cost(self, usage: Usage) -> int:
        """Of one call."""
        hour = min(usage.cache_creation_1h_input_tokens, usage.cache_creation_input_tokens)
        return (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + (usage.cache_creation_input_tokens - hour) * self.cache_write
            + hour * self.cache_write_1h
            + usage.cache_read_input_tokens * self.cache_read
            + usage.web_searches * self.web_search
        )


class Prices:
    """
    :param currency: a label, such as ``USD``
    """

    def __init__(self, prices: Iterable[Price] = (), currency: str = "USD") -> None:
        self.currency = currency
        self._of: dict[str, list[Price]] = {}
        for price in prices:
            self._of.setdefault(price.model, []).append(price)

    def knows(self, model: str) -> bool:
        return self._named(model) is not None

    def cost(self, model: str, usage: Usage, at: int) -> int | None:
        """Of one call, in `UNIT`; None when nobody knows the price.

        :param model: the provider's own name of it
        :param at: ms since 1970; a time before the first known price pays the first
        """
        prices = self._named(model)
        if prices is None:
            return None
        began = [price.since for price in prices if price.since <= at]
        since = max(began) if began else min(price.since for price in prices)
        fitting = [price for price in prices if price.since == since and price.above < usage.prompt]
        if not fitting:
            # Nothing was sent, as far as we were told.
            fitting = [price for price in prices if price.since == since]
            return min(fitting, key=lambda price: price.above).cost(usage)
        return max(fitting, key=lambda price: price.above).cost(usage)

    def worst(self, model: str, prompt: int, output: int, at: int) -> tuple[Usage, int | None]:
        """The most that a call can use and cost: no cache serves it, and one takes all of it in."""
        usage = Usage(cache_creation_input_tokens=prompt, output_tokens=output)
        return usage, self.cost(model, usage, at)

    def _named(self, model: str) -> list[Price] | None:
        found = self._of.get(model)
        return found if found is not None else self._of.get(_DATED.sub("", model))

    def overridden(self, other: Prices) -> Prices:
        """These, but of each model that the other one knows only what that one says."""
        both = {**self._of, **other._of}
        return Prices((price for prices in both.values() for price in prices), other.currency)


@cache
def built_in() -> Prices:
    """The prices that come along."""
    return read_prices(BUILT_IN)


def read_prices(file: Path) -> Prices:
    """
    :raises ConfigError: it cannot be read, or is no list of prices; says where and what
    """
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8-sig"), parse_float=Decimal)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: not TOML: {error}") from error
    unknown = sorted(data.keys() - {"currency", "price"})
    if unknown:
        raise ConfigError(f"{file}: no such key: {unknown[0]}; there are currency and [[price]]")
    currency, entries = data.get("currency", "USD"), data.get("price", [])
    if not isinstance(currency, str) or not re.fullmatch(r"[A-Za-z]{1,8}", currency):
        raise ConfigError(f'{file}: currency: want a word of letters, such as "USD"')
    if not isinstance(entries, list):
        raise ConfigError(f"{file}: price: want sections [[price]]")
    return Prices(
        (_price(entry, f"{file}: [[price]] {number}") for number, entry in enumerate(entries, 1)),
        currency,
    )


def _price(entry: Any, where: str) -> Price:
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: want a section with keys")
    unknown = sorted(entry.keys() - _KEYS.keys())
    if unknown:
        raise ConfigError(f"{where}: no such key: {unknown[0]}; there are {', '.join(_KEYS)}")
    given: Mapping[str, Any] = {**_KEYS, **entry}
    model, since = given["model"], given["from"]
    if not isinstance(model, str) or not model.strip():
        raise ConfigError(f"{where}: model: want the model's name")
    where = f"{where} ({model})"
    if not isinstance(since, date) or isinstance(since, datetime):
        raise ConfigError(f"{where}: from: want a day without quotes, such as 2026-10-07")
    above = given["above"]
    if not isinstance(above, int) or isinstance(above, bool) or above < 0:
        raise ConfigError(f"{where}: above: want a number of tokens")
    per_million = _number(given["input"], where, "input")

    def scaled(value: Decimal, name: str) -> int:
        units = value * UNIT
        if units != int(units):
            raise ConfigError(f"{where}: {name}: too fine; want fewer digits behind the point")
        return int(units)

    def factor(name: str) -> int:
        value = _number(given[name], where, name)
        return scaled(per_million * value / 10**6, name)

    return Price(
        model=model,
        since=int(datetime(since.year, since.month, since.day, tzinfo=UTC).timestamp()) * 1000,
        above=above,
        input=scaled(per_million / 10**6, "input"),
        output=scaled(_number(given["output"], where, "output") / 10**6, "output"),
        cache_write=factor("cache_write"),
        cache_write_1h=factor("cache_write_1h"),
        cache_read=factor("cache_read"),
        web_search=scaled(_number(given["web_search"], where, "web_search") / 1000, "web_search"),
    )


def _number(value: Any, where: str, name: str) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise ConfigError(f"{where}: {name}: want a number")
    number = Decimal(value)
    if not number.is_finite() or not 0 <= number <= _LARGEST:
        raise ConfigError(f"{where}: {name}: want a number from 0 to {_LARGEST:,}")
    return number
