"""Budget: how much may be spent, by whom and in which period. Reserved before each model call, the
most that it can come to; settled after it, with what it came to.

The one place that says yes or no to a call, at once and for all that run beside each other, so that
together they cannot spend what each of them alone could. It keeps sums in memory and writes
nothing: what was spent before this process began is read from the store's rows, among them the
reservations that a crash left behind, which count as spent. Where several processes spend, its
limits hold in a `ledger.py` instead. Prices are in `prices.py`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Final, Literal, NamedTuple

import msgspec

from core.clock import Clock
from core.errors import BudgetReached
from core.store import UsageRows
from core.usage import UNIT, Sum

Scope = Literal["sender", "chat", "all"]
Period = Literal["day", "month", "ever"]
Unit = Literal["money", "tokens"]

_AMOUNT: Final = re.compile(r"(\d[\d_]*(?:\.\d{1,6})?) +([A-Za-z]{1,8})")
_BY: Final = {"sender": ("sender",), "chat": ("key",), "all": ()}


class Limit(msgspec.Struct, frozen=True):
    """
    :param scope: of each sender, of each conversation, or of all together
    :param period: a calendar day or month, or as long as the rows are kept
    :param amount: in `UNIT` of money, or in tokens
    """

    scope: Scope
    period: Period
    unit: Unit
    amount: int


class Left(msgspec.Struct, frozen=True):
    """How one limit stands, for one person and conversation.

    :param spent: in the limit's unit; what is reserved just now is in it
    """

    limit: Limit
    spent: int


class Tally:
    """What one limit has seen in the period that began at `start`."""

    __slots__ = ("held", "spent", "start")

    def __init__(self, start: int, spent: int = 0) -> None:
        self.start = start
        self.spent = spent
        self.held = 0


class Hold(NamedTuple):
    """A reservation: what it holds of each limit that is in its way."""

    parts: tuple[tuple[Tally, Unit, int], ...]


_NO_HOLD: Final = Hold(())


class Crowded(Exception):
    """There is room, but other calls that are being made hold it: wait until one has ended."""


def read_amount(text: str, currency: str) -> tuple[Unit, int]:
    """
    :param text: ``2.50 USD``, or ``200_000 tokens``
    :raises ValueError: it is neither; says what would be
    """
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f'want an amount such as "5 {currency}" or "200_000 tokens"')
    number, word = Decimal(match[1].replace("_", "")), match[2]
    if word.lower() in ("token", "tokens"):
        if number != int(number):
            raise ValueError("want a whole number of tokens")
        return "tokens", int(number)
    if word.upper() != currency.upper():
        raise ValueError(f"the prices are in {currency}; want an amount in {currency} or in tokens")
    return "money", int(number * UNIT)


class Budget:
    """
    :param limits: all of them hold; none: nothing is refused
    :param zone: in which days and months begin
    """

    def __init__(self, clock: Clock, limits: Iterable[Limit] = (), zone: tzinfo = UTC) -> None:
        self.limits: Final = tuple(dict.fromkeys(limits))
        self.zone: Final = zone
        self.clock: Final = clock
        self._tallies: dict[tuple[Limit, str], Tally] = {}
        self._latest = 0
        self._waiting: list[asyncio.Future[None]] = []

    async def open(self, rows: UsageRows) -> None:
        """Learn what was spent before.

        :raises StoreError: what the store raises
        """
        self._tallies.clear()
        read: dict[tuple[Scope, int], list[Sum]] = {}
        for limit in self.limits:
            # What a clock that was wrong has dated in the future counts, too.
            start = self._start(limit.period, self.now())
            if (limit.scope, start) not in read:
                by = _BY[limit.scope]
                read[limit.scope, start] = await rows.sums(by, since=start)  # type: ignore[arg-type]
            for each in read[limit.scope, start]:
                name = {"sender": each.sender, "chat": each.key, "all": ""}[limit.scope]
                if name is not None:
                    spent = each.cost if limit.unit == "money" else each.usage.tokens
                    self._tallies[limit, name] = Tally(start, spent)

    def reserve(self, key: str, sender: str | None, cost: int | None, tokens: int) -> Hold:
        """
        :param cost: the most that the call can cost; None: nobody knows the price
        :param tokens: the most that it can use, sent and received
        :raises BudgetReached: a limit has no room for it, or is in money and there is no price
        :raises Crowded: no limit has room for it as long as other calls are being made
        """
        if not self.limits:
            return _NO_HOLD
        now = self.now()
        parts: list[tuple[Tally, Unit, int]] = []
        crowded = False
        for limit, tally in self._in_the_way(key, sender, now):
            amount = tokens if limit.unit == "tokens" else cost
            if amount is None:
                raise BudgetReached(limit.scope, limit.period, None, unpriced=True)
            if tally.spent + amount > limit.amount:
                raise BudgetReached(limit.scope, limit.period, self._end(limit.period, now))
            crowded = crowded or tally.spent + tally.held + amount > limit.amount
            parts.append((tally, limit.unit, amount))
        if crowded:
            raise Crowded
        for tally, _, amount in parts:
            tally.held += amount
        return Hold(tuple(parts))

    def settle(self, hold: Hold, cost: int | None, tokens: int) -> None:
        """What it came to. Once for each reservation; it counts in the period in which that was
        made."""
        for tally, unit, amount in hold.parts:
            came_to = tokens if unit == "tokens" else cost
            tally.held -= amount
            tally.spent += amount if came_to is None else came_to
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    async def room(self) -> None:
        """Until some reservation is settled."""
        one: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(one)
        await one

    def left(self, key: str, sender: str | None) -> Sequence[Left]:
        """How the limits stand that this person meets in this conversation."""
        return [
            Left(limit, tally.spent + tally.held)
            for limit, tally in self._in_the_way(key, sender, self.now())
        ]

    def move(self, old: str, new: str) -> None:
        """A chat goes on under another key, and what it has spent with it."""
        for (limit, name), tally in list(self._tallies.items()):
            if limit.scope == "chat" and (name == old or name.startswith(f"{old}/")):
                del self._tallies[limit, name]
                there = self._tallies.setdefault((limit, new + name[len(old) :]), tally)
                if there is not tally and there.start == tally.start:
                    # What is held just now is settled where nobody looks any more.
                    there.spent += tally.spent + tally.held

    def start_of(self, period: Period) -> int:
        """When the current one began, in ms since 1970."""
        return self._start(period, self.now())

    def end_of(self, period: Period) -> datetime | None:
        """When the current one is over; None: never."""
        return self._end(period, self.now())

    def now(self) -> int:
        """In ms since 1970. A clock that is set back does not bring a day back."""
        self._latest = max(self._latest, self.clock.now())
        return self._latest

    # ------------------------------------------------------------------ the small print

    def _in_the_way(self, key: str, sender: str | None, now: int) -> list[tuple[Limit, Tally]]:
        names = {"sender": sender, "chat": key, "all": ""}
        return [
            (limit, self._tally(limit, name, self._start(limit.period, now)))
            for limit in self.limits
            if (name := names[limit.scope]) is not None
        ]

    def _tally(self, limit: Limit, name: str, start: int) -> Tally:
        tally = self._tallies.get((limit, name))
        if tally is None or tally.start < start:
            if tally is not None:
                self._forget(limit, start)
            tally = self._tallies[limit, name] = Tally(start)
        return tally

    def _forget(self, limit: Limit, start: int) -> None:
        """A period is over: whoever is silent in the next shall not be remembered for ever."""
        over = [
            named
            for named, tally in self._tallies.items()
            if named[0] == limit and tally.start < start
        ]
        for named in over:
            del self._tallies[named]

    def _start(self, period: Period, now: int) -> int:
        if period == "ever":
            return 0
        day = self._midnight(now)
        return _ms(day if period == "day" else day.replace(day=1))

    def _end(self, period: Period, now: int) -> datetime | None:
        if period == "ever":
            return None
        day = self._midnight(now)
        if period == "month":
            day = day.replace(day=28) + timedelta(days=4)
            return day.replace(day=1)
        return day + timedelta(days=1)

    def _midnight(self, now: int) -> datetime:
        local = datetime.fromtimestamp(now / 1000, self.zone)
        return local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)


def _ms(time: datetime) -> int:
    return int(time.timestamp() * 1000)
