"""Usage: the tokens of a model call, what they cost, and sums of both.

Values only. What a token costs is in `prices.py`, who may spend how much in `budget.py`; the rows
are written by the save that commits what they paid for (`Snapshot.spent`) and read by `sums`.

Money is counted in whole billionths of a thousandth of a unit of the price file's currency, so that
no amount is ever rounded on its way: `UNIT` of them are 1 dollar.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

UNIT: Final = 10**12

# The finest step of a report, and of every time zone there is: days of any of them are sums of it.
QUARTER: Final = 900_000

By = Literal["quarter", "key", "sender", "model"]


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Tokens, as the provider counted them.

    :param input_tokens: what no cache served and none took in
    :param cache_creation_input_tokens: what a cache took in
    :param cache_read_input_tokens: what a cache served
    :param cache_creation_1h_input_tokens: of those that a cache took in, those kept for an hour
    :param web_searches: searches that the provider ran for us, and bills each
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_1h_input_tokens: int = 0
    web_searches: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_creation_input_tokens + other.cache_creation_input_tokens,
            self.cache_read_input_tokens + other.cache_read_input_tokens,
            self.cache_creation_1h_input_tokens + other.cache_creation_1h_input_tokens,
            self.web_searches + other.web_searches,
        )

    @property
    def prompt(self) -> int:
        """All tokens that were sent, wherever they came from."""
        return self.input_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens

    @property
    def tokens(self) -> int:
        """All tokens, sent and received: what a budget in tokens counts."""
        return self.prompt + self.output_tokens


class Spent(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one model call used. Execution and call name it, so that it is never counted twice.

    :param execution: the run of a turn that made the call
    :param call: its number in that run, from 1
    :param at: when it was about to be made, in ms since 1970, UTC
    :param cost: in `UNIT`; None when nobody knows what this model costs
    :param estimated: nobody has said what it came to: this is the most that it can have been
    :param sender: platform and id of the person who was answered
    """

    execution: str
    call: int
    at: int
    model: str
    usage: Usage
    cost: int | None = None
    estimated: bool = False
    sender: str | None = None


class Sum(msgspec.Struct, frozen=True, omit_defaults=True):
    """Many calls together.

    :param quarter: the quarter of an hour since 1970 in which they began, when summed by that
    :param estimated: how many of the calls nobody has said the end of
    :param unpriced: how many of the calls nobody knows the price of
    :param cost: of the others, in `UNIT`
    """

    quarter: int | None = None
    key: str | None = None
    sender: str | None = None
    model: str | None = None
    calls: int = 0
    estimated: int = 0
    unpriced: int = 0
    usage: Usage = Usage()
    cost: int = 0

    def __add__(self, other: Sum) -> Sum:
        """The figures of both; what they are of is that of the first."""
        return replace(
            self,
            calls=self.calls + other.calls,
            estimated=self.estimated + other.estimated,
            unpriced=self.unpriced + other.unpriced,
            usage=self.usage + other.usage,
            cost=self.cost + other.cost,
        )


def money(cost: int, currency: str) -> str:
    """For people, to a hundredth of a hundredth: ``0.0123 USD``."""
    return f"{Decimal(cost).scaleb(-12):,.4f} {currency}"


def newer(stored: Spent | None, row: Spent) -> Spent:
    """What is kept when a row is saved once more: what somebody has said is never taken back."""
    if stored is None:
        return row
    if row.estimated and not stored.estimated:
        return stored
    return replace(row, at=stored.at, sender=stored.sender)


def add_up(rows: Iterable[tuple[str, Spent]], by: Sequence[By] = ()) -> list[Sum]:
    """Rows with the key of each, in one sum for each group, in order of what they are grouped by.

    Without rows there is no sum.
    """
    sums: dict[tuple[tuple[bool, object], ...], Sum] = {}
    for key, row in rows:
        of = {"quarter": row.at // QUARTER, "key": key, "sender": row.sender, "model": row.model}
        group = {name: of[name] for name in by}
        one = Sum(
            calls=1,
            estimated=int(row.estimated),
            unpriced=int(row.cost is None),
            usage=row.usage,
            cost=row.cost or 0,
            **group,  # type: ignore[arg-type]
        )
        order = tuple((value is not None, value) for value in group.values())
        sums[order] = sums[order] + one if order in sums else one
    return [sums[order] for order in sorted(sums, key=lambda order: order)]
