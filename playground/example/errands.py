"""Looking is free; what is dear is bought only when a person allows it."""

from collections.abc import Mapping
from typing import Any

from core.tools import tool

bought: list[str] = []


@tool(repeatable=True)
def look() -> str:
    """What has been bought since the bot was started."""
    return ", ".join(bought) or "nothing yet"


def is_dear(arguments: Mapping[str, Any]) -> bool:
    return bool(arguments["euros"] > 20)


@tool(needs_approval=is_dear)
def buy(thing: str, euros: float) -> str:
    """Buy something. What costs more than 20 euros is bought only if a person allows it."""
    bought.append(f"{thing} for {euros:g} euros")
    return f"Bought {thing} for {euros:g} euros."
