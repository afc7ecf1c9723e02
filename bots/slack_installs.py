"""`chinwag slack installs`: the workspaces that have the app, and taking one out from here.

Gives lines of text; where they go is the command line's affair.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from bots.settings import Settings
from bots.stores import store_of
from core import feedback
from core.errors import ConfigError
from core.seal import Seal, keys_of
from core.store import BotStore, SessionRef

if TYPE_CHECKING:
    from bots.slack.installs import Installs

PATIENCE: Final = 10.0
PAGE: Final = 500


async def installs(settings: Settings) -> AsyncIterator[str]:
    """
    :raises CannotUnseal: a token is sealed with a key that is missing
    """
    async with store_of(settings, read_only=True) as store:
        found = False
        async for each in _installs(settings, store).all():
            if not found:
                yield f"{'workspace':<14} {'installed':<20} {'by':<14} name"
            found = True
            at = f"{datetime.fromtimestamp(each.at / 1000, UTC):%Y-%m-%d %H:%M}"
            name = each.name if each.team else f"{each.name} (all of the organisation)"
            yield f"{each.where:<14} {at:<20} {each.installer:<14} {name}"
        if not found:
            yield "Nobody has installed the app yet."


async def remove_install(settings: Settings, where: str, *, erase: bool) -> AsyncIterator[str]:
    """
    :param where: a workspace (``T...``), or an organisation (``E...``)
    :param erase: what was said there goes, too
    :raises ConfigError: nobody there has installed it
    """
    async with store_of(settings) as store:
        kept = _installs(settings, store)
        install = None
        async for each in kept.all():
            install = each if each.where == where else install
        if install is None:
            raise ConfigError(f"{where}: nobody there has installed the app")
        yield await _told_slack(settings, install.token)
        await kept.remove(install.team, install.enterprise)
        yield f"{where}: removed."
        if erase and install.team:
            count = 0
            async for key in _conversations(store, install.team, settings.slack.account):
                await store.clear(SessionRef(key))
                count += 1
            await feedback.forget_all(store.notes, f"slack:{install.team}/")
            yield f"{count} conversations: erased."


def _installs(settings: Settings, store: BotStore) -> Installs:
    from bots.slack.installs import Installs

    keys = settings.encryption.keys
    if keys is None:
        raise ConfigError("CHINWAG_ENCRYPTION_KEYS is missing: installs are kept encrypted")
    return Installs(store.notes, Seal(keys_of(keys.get_secret_value())), settings.slack.account)


async def _told_slack(settings: Settings, token: str) -> str:
    """Slack is asked to forget the app there; that it does not answer is no reason to keep it."""
    from bots.slack import wire
    from bots.slack.failures import why

    section = settings.slack
    if section.client_id is None or section.client_secret is None:
        return "Slack was not told: SLACK_CLIENT_ID and SLACK_CLIENT_SECRET are not set."
    async with wire.session(PATIENCE) as session:
        web = wire.client(section.base_url, session)
        try:
            await web.apps_uninstall(
                client_id=section.client_id,
                client_secret=section.client_secret.get_secret_value(),
                token=token,
            )
        except Exception as error:
            return f"Slack was told, and answered: {why(error)}."
    return "Slack has taken the app out."


async def _conversations(store: BotStore, team: str, account: str | None) -> AsyncIterator[str]:
    from bots.slack.departures import farewells

    for place in farewells(team, account, erase=True):
        after: str | None = None
        prefix = f"{place.key}/"
        while page := [each.key async for each in store.summaries(prefix, after, PAGE)]:
            for key in page:
                yield key
            after = page[-1]
