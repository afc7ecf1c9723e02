"""/usage: what this conversation and this person have used, and what is left of their budgets.

Read-only. The figures are the rows that are stored, and what the budget holds just now.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from core import phrases
from core.budget import Left, Unit
from core.phrases import ENGLISH, Wording
from core.snapshot import Snapshot
from core.spending import Spending
from core.store import UsageRows
from core.usage import QUARTER, Sum, money

_SCOPES: Final = {
    "sender": phrases.ACCOUNT_YOU,
    "chat": phrases.ACCOUNT_CHAT,
    "all": phrases.ACCOUNT_ALL,
}
_PERIODS: Final = {
    "day": phrases.ACCOUNT_TODAY,
    "month": phrases.ACCOUNT_MONTH,
    "ever": phrases.ACCOUNT_EVER,
}


class Account(msgspec.Struct, frozen=True):
    """
    :param chat: what this conversation has used, today and this month
    :param sender: the same of this person, in all conversations
    :param left: how the limits stand that this person meets here
    """

    chat: tuple[Sum, Sum]
    sender: tuple[Sum, Sum]
    left: tuple[Left, ...]
    currency: str


async def account(rows: UsageRows, spending: Spending, key: str, sender: str) -> Account:
    """
    :raises StoreError: what the store raises
    """
    budget = spending.budget
    month, day = budget.start_of("month"), budget.start_of("day")
    chat = await rows.sums(("quarter",), since=month, key=key)
    person = await rows.sums(("quarter",), since=month, sender=sender)
    return Account(
        chat=_since(chat, day),
        sender=_since(person, day),
        left=tuple(await spending.left(key, sender)),
        currency=spending.prices.currency,
    )


async def personal(
    rows: UsageRows, spending: Spending, sender: str, say: Wording = ENGLISH
) -> tuple[str, ...]:
    """What this person has used, today and this month, and what is left: lines without a list's
    signs.

    :raises StoreError: what the store raises
    """
    budget, currency = spending.budget, spending.prices.currency
    sums = await rows.sums(("quarter",), since=budget.start_of("month"), sender=sender)
    when = say(phrases.ACCOUNT_TODAY), say(phrases.ACCOUNT_MONTH)
    lines = list(
        _lines(zip(when, _since(sums, budget.start_of("day")), strict=True), currency, say)
    )
    lines += [
        _left(each, currency, say)
        for each in await spending.left("", sender)
        if each.limit.scope == "sender"
    ]
    return tuple(line.removeprefix("* ") for line in lines)


def said(snapshot: Snapshot, found: Account, say: Wording = ENGLISH) -> str:
    """In markdown."""
    today, month = say(phrases.ACCOUNT_TODAY), say(phrases.ACCOUNT_MONTH)
    usage = snapshot.usage
    lines = [f"**{say(phrases.ACCOUNT_CHAT)}**", ""]
    lines += _lines(zip((today, month), found.chat, strict=True), found.currency, say)
    lines.append(
        say(
            phrases.ACCOUNT_BEGUN,
            tokens=f"{usage.tokens:,}",
            cached=f"{usage.cache_read_input_tokens:,}",
        )
    )
    lines += ["", f"**{say(phrases.ACCOUNT_YOU)}**", ""]
    lines += _lines(zip((today, month), found.sender, strict=True), found.currency, say)
    if found.left:
        lines += ["", f"**{say(phrases.ACCOUNT_LEFT)}**", ""]
        lines += [_left(each, found.currency, say) for each in found.left]
    return "\n".join(lines)


def _since(sums: Iterable[Sum], day: int) -> tuple[Sum, Sum]:
    """Today, and this month."""
    today = month = Sum()
    for each in sums:
        month += each
        if (each.quarter or 0) >= day // QUARTER:
            today += each
    return today, month


def _lines(sums: Iterable[tuple[str, Sum]], currency: str, say: Wording) -> Iterable[str]:
    for when, each in sums:
        yield say(
            phrases.ACCOUNT_LINE,
            when=when,
            tokens=f"{each.usage.tokens:,}",
            cached=f"{each.usage.cache_read_input_tokens:,}",
            cost=f"{'~' if each.estimated else ''}{money(each.cost, currency)}"
            + (" + ?" if each.unpriced else ""),
        )


def _left(left: Left, currency: str, say: Wording) -> str:
    limit = left.limit
    return say(
        phrases.ACCOUNT_LIMIT,
        whose=say(_SCOPES[limit.scope]),
        when=say(_PERIODS[limit.period]),
        left=_amount(limit.unit, max(0, limit.amount - left.spent), currency, say),
        limit=_amount(limit.unit, limit.amount, currency, say),
    )


def _amount(unit: Unit, amount: int, currency: str, say: Wording) -> str:
    return money(amount, currency) if unit == "money" else say(phrases.TOKENS, count=f"{amount:,}")
