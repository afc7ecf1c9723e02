"""Two tools of a bot that runs errands: looking is free, and what is dear is bought by leave only.

`config.toml` beside this file says how to try them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from core.errors import ToolError
from core.tools import tool

BUDGET = 20

bought: list[str] = []


@tool(repeatable=True)
def look() -> str:
    """What has been bought since the bot was started."""
    return ", ".join(bought) or "nothing yet"


def is_dear(arguments: Mapping[str, Any]) -> bool:
    """Asked with the arguments that the call would have, checked and with their defaults."""
    return bool(arguments["euros"] > BUDGET)


@tool(needs_approval=is_dear)
def buy(
    thing: Annotated[str, Meta(description="what to buy", min_length=1)],
    euros: Annotated[float, Meta(description="what it costs at most", gt=0)],
) -> str:
    """Buy something. What costs more than 20 euros is bought only if a person allows it."""
    if len(bought) >= 10:
        raise ToolError("The bag is full: ten things are all that can be carried.")
    bought.append(f"{thing} for {euros:g} €")
    return f"Bought {thing} for {euros:g} €."
