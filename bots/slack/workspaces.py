"""The workspaces that the app is installed in: whose token speaks there, and who the bot is.

Here is the one workspace of an app with a token of its own. An app that is installed into many has
another class of this shape.
"""

from __future__ import annotations

from typing import Protocol

from slack_sdk.web.async_client import AsyncWebClient

from bots.slack.backoff import Backoff
from bots.slack.failures import BAD_TOKEN, code_of, retry_after, why
from bots.slack.keys import is_id
from bots.slack.rules import Me
from core.clock import Clock
from core.errors import PlatformRefused


class Workspaces(Protocol):
    async def connect(self) -> None:
        """
        :raises PlatformRefused: Slack refuses us for good
        """
        ...

    async def identity(self) -> str:
        """What a database remembers the bot by.

        :raises PlatformRefused: Slack refuses us for good
        """
        ...

    async def token_of(self, team: str) -> str | None:
        """The bot's token in this workspace; None: it is not installed there."""
        ...

    async def me_of(self, team: str | None, organisation: str | None = None) -> Me | None:
        """Who the bot is in this workspace; None: it is not installed there.

        :param team: None: in all of the organisation
        :param organisation: what the workspace is a part of, as an event has named it
        """
        ...

    def known(self, team: str) -> Me | None:
        """The same, of what has been looked up before."""
        ...

    async def removed(self, team: str, organisation: str | None) -> None:
        """The app was taken out of this workspace. Twice is harmless."""
        ...


class OneWorkspace:
    """
    :param web: a client without a token of its own
    """

    def __init__(self, web: AsyncWebClient, token: str, clock: Clock) -> None:
        self._web = web
        self._token = token
        self._clock = clock
        self._me: Me | None = None

    async def connect(self) -> None:
        await self._asked()

    async def identity(self) -> str:
        me = await self._asked()
        return f"{me.team}/{me.bot}"

    async def token_of(self, team: str) -> str | None:
        return self._token if (await self._asked()).team == team else None

    async def me_of(self, team: str | None, organisation: str | None = None) -> Me | None:
        me = await self._asked()
        return me if me.team == team else None

    def known(self, team: str) -> Me | None:
        return self._me if self._me is not None and self._me.team == team else None

    async def removed(self, team: str, organisation: str | None) -> None:
        """Its token is configured, and stays so."""

    async def _asked(self) -> Me:
        """Asks until Slack answers; knows it afterwards."""
        backoff = Backoff("slack.unreachable", self._clock)
        while self._me is None:
            try:
                answer = await self._web.auth_test(token=self._token)
                team, user = answer["team_id"], answer["user_id"]
                if not (is_id(team) and is_id(user)):
                    raise ValueError("an answer that does not say who we are")
                # A token of a person has no bot, and speaks as that person.
                bot = str(answer.get("bot_id") or user)
                self._me = Me(team, user, bot, str(answer.get("user") or "bot"))
            except Exception as error:
                # Any: what is none of Slack's answers comes out of the SDK as anything.
                if code_of(error) in BAD_TOKEN:
                    raise PlatformRefused(
                        f"Slack refuses the bot's token (SLACK_BOT_TOKEN): {why(error)}"
                    ) from None
                await backoff.wait(why(error), retry_after(error) or 0.0)
        backoff.over()
        return self._me
