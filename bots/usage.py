"""`chinwag usage`: what was used and what it cost, as a table, JSON or CSV. Beside a running bot.

Gives lines of text; where they go is the command line's affair.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import date, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Final, Literal

from bots.settings import Settings
from bots.spending import build_prices, zone_of
from bots.stores import store_of
from core.errors import ConfigError
from core.messages import clean
from core.usage import QUARTER, By, Sum, money

Column = Literal["day", "sender", "chat", "model"]
Format = Literal["table", "json", "csv"]
DAYS: Final = 30  # how far back it goes when nobody says

_FIELDS: Final[dict[Column, By]] = {
    "day": "quarter",
    "sender": "sender",
    "chat": "key",
    "model": "model",
}
_FIGURES: Final = ("calls", "input", "cache write", "cache read", "output")


async def report(
    settings: Settings,
    by: Sequence[Column],
    since: str | None,
    how: Format,
) -> AsyncIterator[str]:
    """
    :param by: what is summed apart, in this order
    :param since: a day (``2026-11-01``) or a number of days (``7d``); None: the last `DAYS`
    :raises ConfigError: `since` is neither
    :raises StoreError: what the store raises
    """
    zone = zone_of(settings)
    begin = _begin(since, zone, datetime.now(zone).date())
    async with store_of(settings, read_only=True) as store:
        sums = await store.usage.sums(
            tuple(_FIELDS[name] for name in by), since=int(begin.timestamp() * 1000)
        )
    rows = _by_day(sums, by, zone)
    currency = build_prices(settings).currency
    if how == "json":
        for names, each in rows:
            yield json.dumps(_record(by, names, each, currency), ensure_ascii=False)
    elif how == "csv":
        for line in _csv(by, rows, currency):
            yield line
    else:
        for line in _table(by, rows, currency, begin):
            yield line


def _begin(since: str | None, zone: tzinfo, today: date) -> datetime:
    text = since or f"{DAYS}d"
    try:
        if text.endswith("d"):
            # Today is one of them.
            day = today - timedelta(days=max(0, int(text[:-1]) - 1))
        else:
            day = date.fromisoformat(text)
        return datetime(day.year, day.month, day.day, tzinfo=zone)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"--since {text}: want a day, such as 2026-11-01, or a number of days, such as 7d"
        ) from None


Row = tuple[tuple[str, ...], Sum]


def _by_day(sums: Iterable[Sum], by: Sequence[Column], zone: tzinfo) -> list[Row]:
    """Quarters of an hour become days of the zone."""
    rows: dict[tuple[str, ...], Sum] = {}
    for each in sums:
        names = tuple(_name(each, column, zone) for column in by)
        rows[names] = rows[names] + each if names in rows else each
    return sorted(rows.items())


def _name(each: Sum, column: Column, zone: tzinfo) -> str:
    if column == "day":
        return str(datetime.fromtimestamp((each.quarter or 0) * QUARTER / 1000, zone).date())
    # What people are called elsewhere is no text of ours.
    return clean({"sender": each.sender, "chat": each.key, "model": each.model}[column] or "")


def _figures(each: Sum) -> tuple[int, ...]:
    usage = each.usage
    return (
        each.calls,
        usage.input_tokens,
        usage.cache_creation_input_tokens,
        usage.cache_read_input_tokens,
        usage.output_tokens,
    )


def _record(
    by: Sequence[Column], names: Sequence[str], each: Sum, currency: str
) -> dict[str, object]:
    """One row; money as text, for a number would round it."""
    usage = each.usage
    return {
        **dict(zip(by, names, strict=True)),
        "calls": each.calls,
        "estimated_calls": each.estimated,
        "unpriced_calls": each.unpriced,
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_creation_input_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens,
        "output_tokens": usage.output_tokens,
        "web_searches": usage.web_searches,
        "cost": f"{Decimal(each.cost).scaleb(-12).normalize():f}",
        "currency": currency,
    }


def _csv(by: Sequence[Column], rows: Iterable[Row], currency: str) -> Iterable[str]:
    records = [_record(by, names, each, currency) for names, each in rows]
    fields = list(_record(by, [""] * len(by), Sum(), currency))
    text = io.StringIO()
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow(record | {name: _no_formula(str(record[name])) for name in by})
    return text.getvalue().splitlines()


def _no_formula(name: str) -> str:
    """A name that begins so would be one to a spreadsheet."""
    return f"'{name}" if name.startswith(("=", "+", "-", "@")) else name


def _table(
    by: Sequence[Column], rows: Sequence[Row], currency: str, begin: datetime
) -> Iterable[str]:
    if not rows:
        yield f"Nothing was used since {begin.date()}."
        return
    total = rows[0][1]
    for _, each in rows[1:]:
        total += each
    lines = [
        ((*by, *_FIGURES, "cost")),
        *((*names, *map(_grouped, _figures(each)), _money(each, currency)) for names, each in rows),
        (
            "total",
            *[""] * (len(by) - 1),
            *map(_grouped, _figures(total)),
            _money(total, currency),
        ),
    ]
    if not by:
        lines = [lines[0], lines[1]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        cells = [
            text.ljust(width) if column < len(by) else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
    if total.estimated or total.unpriced:
        yield ""
    if total.estimated:
        cut_off = "calls that were cut off, counted as the most that they can cost"
        yield f"~ {cut_off}: {total.estimated}"
    if total.unpriced:
        unpriced = "calls of models without a price, not in the sum"
        yield f"? {unpriced}: {total.unpriced}; see docs/budgets.md"


def _grouped(number: int) -> str:
    return f"{number:,}"


def _money(each: Sum, currency: str) -> str:
    marks = "~" * bool(each.estimated) + "?" * bool(each.unpriced)
    return f"{marks}{money(each.cost, currency)}"
