"""Prices and budgets as the settings say; and whether they can hold at all.

No logic of its own: what a budget does is in `core.budget`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from bots.settings import Settings
from core.agent import Agent
from core.budget import Budget, Limit, Period, Scope, Unit, read_amount
from core.clock import Clock, SystemClock
from core.errors import ConfigError
from core.prices import Prices, built_in, read_prices
from core.spending import Spending, most_sent, shown
from core.usage import money

# What holds for a bot that everybody may speak to, unless its config says something else.
OPEN: Final[dict[str, tuple[str, ...]]] = {
    "sender_per_day": ("300_000 tokens",),
    "per_day": ("10_000_000 tokens",),
}
OPEN_MONEY: Final = "5"  # a day, all together, where there is a price

KEYS: Final[dict[str, tuple[Scope, Period]]] = {
    "sender_per_day": ("sender", "day"),
    "sender_per_month": ("sender", "month"),
    "chat_per_day": ("chat", "day"),
    "chat_per_month": ("chat", "month"),
    "per_day": ("all", "day"),
    "per_month": ("all", "month"),
    "total": ("all", "ever"),
}


def build_spending(settings: Settings, agent: Agent, clock: Clock) -> Spending:
    """
    :raises ConfigError: a price file, an amount or a limit that cannot hold
    """
    prices = build_prices(settings)
    limits = [
        limit
        for name, texts in _amounts(settings, agent, prices).items()
        for limit in _limits(name, texts, prices.currency)
    ]
    if settings.access.open and not any(limit.scope == "all" for limit in limits):
        raise ConfigError(
            "[access] open = true lets everybody spend: set [budget] per_day, per_month or total"
        )
    for limit in limits:
        _check(limit, agent, prices, clock.now())
    return Spending(clock, prices, Budget(clock, limits, zone_of(settings)))


def budget_lines(settings: Settings) -> list[str]:
    """The limits that hold, each in a few words.

    :raises ConfigError: see `build_spending`
    """
    section = settings.agent
    agent = Agent(
        model=section.model,
        fallback=section.fallback,
        instructions=section.instructions,
        max_tokens=section.max_tokens,
    )
    spending = build_spending(settings, agent, SystemClock())
    return [
        f"{_name(limit)} {said(limit.unit, limit.amount, spending.prices)}"
        for limit in spending.budget.limits
    ]


def build_prices(settings: Settings) -> Prices:
    """
    :raises ConfigError: the file that the settings name cannot be used
    """
    own = settings.budget.prices
    return built_in() if own is None else built_in().overridden(read_prices(settings.folder / own))


def zone_of(settings: Settings) -> tzinfo:
    name = settings.budget.timezone
    return UTC if name == "UTC" else ZoneInfo(name)


def _amounts(settings: Settings, agent: Agent, prices: Prices) -> dict[str, tuple[str, ...]]:
    given: dict[str, tuple[str, ...] | None] = {
        name: getattr(settings.budget, name) for name in KEYS
    }
    usual: dict[str, tuple[str, ...]] = {}
    if settings.access.open:
        usual = dict(OPEN)
        # Where nobody knows what the model costs, tokens must do.
        if not list(_unpriced(agent, prices)):
            usual["per_day"] += (f"{OPEN_MONEY} {prices.currency}",)
    return {name: usual.get(name, ()) if texts is None else texts for name, texts in given.items()}


def _limits(name: str, texts: tuple[str, ...], currency: str) -> Iterator[Limit]:
    for text in texts:
        try:
            unit, amount = read_amount(text, currency)
        except ValueError as error:
            raise ConfigError(f"[budget] {name}: {error}") from None
        yield Limit(*KEYS[name], unit, amount)


def _check(limit: Limit, agent: Agent, prices: Prices, now: int) -> None:
    """A limit that could never be met, or never be held, is a slip of the pen."""
    name = _name(limit)
    for model in _unpriced(agent, prices) if limit.unit == "money" else ():
        raise ConfigError(
            f"[budget] {name}: is in money, but what {model} costs is not known: name a file with "
            "its price in [budget] prices, or set the limit in tokens"
        )
    prompt = most_sent((agent.instructions, *agent.memory.system), shown(agent), ())
    for model in _models(agent):
        usage, cost = prices.worst(model, prompt, agent.max_tokens, now)
        least = usage.tokens if limit.unit == "tokens" else cost or 0
        if least > limit.amount:
            amount, least_said = (said(limit.unit, each, prices) for each in (limit.amount, least))
            raise ConfigError(
                f"[budget] {name}: {amount} cannot pay for one answer of {model}, which may come "
                f"to {least_said}: raise it, or lower [agent] max_tokens"
            )


def _name(limit: Limit) -> str:
    return next(name for name, what in KEYS.items() if what == (limit.scope, limit.period))


def said(unit: Unit, amount: int, prices: Prices) -> str:
    return f"{amount:,} tokens" if unit == "tokens" else money(amount, prices.currency)


def _models(agent: Agent) -> Iterator[str]:
    for model in (agent.model, agent.fallback):
        if model is not None:
            yield replace(agent, model=model).model_name


def _unpriced(agent: Agent, prices: Prices) -> Iterator[str]:
    return (model for model in _models(agent) if not prices.knows(model))
