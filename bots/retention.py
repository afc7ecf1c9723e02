"""`[retention]`, and `chinwag sessions expire`: what goes by its age or for want of room, now or
in a dry run. What that is, is decided in `core.retention`.

Gives lines of text; where they go is the command line's affair.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

from bots.settings import Settings
from bots.stores import store_of
from core.clock import Clock, SystemClock
from core.errors import ConfigError
from core.retention import Fate, Retention, Rules
from core.store import SessionRef, Summary


def build_rules(settings: Settings) -> Rules | None:
    """None: nothing ever goes by itself.

    :raises ConfigError: rows would go that a budget has to count
    """
    section = settings.retention
    if section.usage_days is not None and settings.budget.total:
        raise ConfigError(
            "[retention] usage_days: [budget] total counts all that was ever spent, so no row of"
            " it may go; take one of the two away"
        )
    rules = Rules(section.days, section.megabytes, section.usage_days)
    return None if rules == Rules() else rules


async def expire(
    settings: Settings, *, dry: bool = False, clock: Clock | None = None
) -> AsyncIterator[str]:
    """
    :param dry: say what would go, beside a running bot; else have it go
    """
    clock = clock or SystemClock()
    rules = build_rules(settings)
    if rules is None:
        raise ConfigError(
            "[retention] sets no age and no size, so nothing ever goes: set days, megabytes or"
            " usage_days"
        )
    seen: list[tuple[Fate, Summary]] = []
    async with store_of(settings, read_only=True):
        pass  # Asked first and without making anything.
    async with store_of(settings, read_only=dry) as store:
        before = await store.size()
        retention = Retention(
            store,
            lambda key: SessionRef(key=key),
            clock,
            rules,
            dry=dry,
            see=lambda fate, each: seen.append((fate, each)),
        )
        gone = await retention.once()
        for fate, each in seen:
            at = datetime.fromtimestamp(each.updated_at / 1000, UTC)
            yield f"{at:%Y-%m-%d %H:%M:%S}  {each.messages:>8}  {_FATES[fate]:<22}  {each.key}"
        if seen:
            yield ""
        verb = "would go" if dry else "went"
        yield f"conversations  {gone.conversations:>8} {verb}"
        yield f"messages       {gone.messages:>8} {verb}, theirs and old ones of others"
        if rules.usage_days is not None:
            usage = gone.usage
            if dry:
                until = clock.now() - rules.usage_days * 24 * 3_600_000
                usage = sum(each.calls for each in await store.usage.sums(until=until))
            yield f"model calls    {usage:>8} {verb} from what was used"
        if gone.undelivered and dry:
            yield (
                "What could not be sent (`chinwag sessions undelivered`) is said in the log for a"
                " week first, by the bot."
            )
        if dry:
            yield f"{before / 1e6:.1f} MB are in use. Nothing was changed."
            return
        await store.scrub()
        yield f"{before / 1e6:.1f} MB were in use, {await store.size() / 1e6:.1f} MB are."
        yield "What was deleted is in no file of the store any more. Backups are yours to delete."


_FATES: dict[Fate, str] = {
    "goes": "goes",
    "unfinished": "stays: unfinished",
    "undelivered": "stays: undelivered",
    "unreadable": "stays: unreadable",
}
