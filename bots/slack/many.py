"""The workspaces of an app that anybody may install: found among the installs, each with a token of
its own.

The counterpart of `workspaces.OneWorkspace`. Slack is asked nothing when an event comes: who the
bot is in a workspace was learned when it was installed there.
"""

from __future__ import annotations

from typing import Final

from bots.slack.installs import Install, Installs
from bots.slack.oauth import Tokens
from bots.slack.rules import Me
from core.events import emit

KNOWN: Final = 10_000  # workspaces of which is remembered who the bot is


class ManyWorkspaces:
    """
    :param client_id: of the app: what a database remembers it by
    """

    def __init__(self, installs: Installs, tokens: Tokens, client_id: str) -> None:
        self._installs = installs
        self._tokens = tokens
        self._client_id = client_id
        self._known: dict[str, Me] = {}

    async def connect(self) -> None:
        """There is nobody to be asked."""

    async def identity(self) -> str:
        return self._client_id

    async def token_of(self, team: str) -> str | None:
        install = await self._tokens.of(team)
        return install.token if install else None

    async def me_of(self, team: str | None, organisation: str | None = None) -> Me | None:
        install = await self._installs.find(team, organisation)
        if team is None:
            return _me("", install) if install else None
        if install is None:
            self._known.pop(team, None)
            return None
        me = self._known[team] = _me(team, install)
        if len(self._known) > KNOWN:
            del self._known[next(iter(self._known))]
        return me

    def known(self, team: str) -> Me | None:
        return self._known.get(team)

    async def removed(self, team: str, organisation: str | None) -> None:
        if await self._installs.remove(team, organisation):
            emit("slack.uninstalled", where=team)
        self._known.pop(team, None)


def _me(team: str, install: Install) -> Me:
    return Me(team, install.bot_user, install.bot_id)
