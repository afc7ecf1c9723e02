"""What people in a room are called, where messages come without it: asked before a turn, for the
model shall know who speaks. Best effort: who stays without a name is told by their id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from core.adapter import Adapter, KnowsNames
from core.messages import Inbound


async def names_of(key: str, adapter: Adapter, messages: Sequence[Inbound]) -> Mapping[str, str]:
    """By `Sender.id`; nobody is asked about who has a name, or is alone with the bot."""
    nameless = {each.sender.id for each in messages if each.group and not each.sender.name}
    if not nameless or not isinstance(adapter, KnowsNames):
        return {}
    found = await asyncio.gather(*(adapter.name_of(key, each) for each in nameless))
    return {who: name for who, name in zip(nameless, found, strict=True) if name}
