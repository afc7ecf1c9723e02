"""`chinwag access`: who may speak to the bot, besides what the config says.

Gives lines of text. Reading works beside a running bot; changing wants it to be stopped, for it
knows the lists by heart: while it runs its owner decides by a button.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

from bots.settings import Settings
from bots.stores import store_of
from core import access
from core.access import Listed, Lists, Verdict
from core.clock import SystemClock
from core.errors import ConfigError
from core.gate import OWNER
from core.messages import clean


async def list_access(settings: Settings) -> AsyncIterator[str]:
    section = settings.access
    async with store_of(settings, read_only=True) as store:
        owner = await store.notes.get(OWNER)
        lists = await access.read(store.notes)
        waiting = await access.waiting(store.notes, SystemClock())
    if section.open:
        yield "open     everybody may speak, but for those who are denied  (config)"
    if owner:
        yield f"owner    {owner.decode()}"
    for id in section.allow:
        yield f"allow    {id}  (config)"
    for each in lists.allow:
        yield f"allow    {_line(each)}"
    for id in section.deny:
        yield f"deny     {id}  (config)"
    for each in lists.deny:
        yield f"deny     {_line(each)}"
    for asking in waiting:
        yield f"asks     {_line(Listed(asking.id, asking.name, asking.at))}"


async def decide(settings: Settings, id: str, verdict: Verdict) -> AsyncIterator[str]:
    async with store_of(settings) as store:
        listed = Listed(id, at=SystemClock().now())
        await access.change(store.notes, lambda lists: lists.having(listed, verdict))
        await access.forget(store.notes, id)
    others = settings.access.deny if verdict == "allow" else settings.access.allow
    yield f"{id}: {'may' if verdict == 'allow' else 'may not'} speak from the next start on."
    if id in others:
        word = "deny: who stands there may not" if verdict == "allow" else "allow, too; deny wins"
        yield f"It is in [access] {word}."


async def remove(settings: Settings, id: str) -> AsyncIterator[str]:
    """
    :raises ConfigError: nothing was decided about them
    """
    found = False

    def how(lists: Lists) -> Lists:
        nonlocal found
        left = lists.without(id)
        found = left != lists
        return left

    async with store_of(settings) as store:
        await access.change(store.notes, how)
        await access.forget(store.notes, id)
    if not found:
        raise ConfigError(f"{id}: is on neither list; `chinwag access list` shows both")
    yield f"{id}: a stranger again, who may ask."


def _line(listed: Listed) -> str:
    name = "".join(char for char in clean(listed.name) if char.isprintable())
    at = datetime.fromtimestamp(listed.at / 1000, UTC)
    return "  ".join(part for part in (listed.id, name, f"{at:%Y-%m-%d %H:%M}") if part)
