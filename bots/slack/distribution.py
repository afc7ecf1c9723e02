"""An app that anybody may install: what that takes, and how it is put together."""

from __future__ import annotations

from typing import Final

import msgspec
from slack_sdk.web.async_client import AsyncWebClient

from bots.slack.installs import Installs
from bots.slack.manifest import SCOPES
from bots.slack.many import ManyWorkspaces
from bots.slack.oauth import Flow, States, Tokens
from core.clock import Clock
from core.seal import Seal
from core.store import Notes

# Where people choose the workspace; beside it is the Web API.
_AUTHORIZE: Final = "/oauth/v2/authorize"


class Distribution(msgspec.Struct, frozen=True):
    """
    :param keys: what tokens are sealed with, see `core.seal.keys_of`
    :param public_url: under which people and Slack reach us
    :param erase: when a workspace takes the app out, what was said there is not kept
    """

    client_id: str
    client_secret: str
    keys: tuple[bytes, ...]
    public_url: str
    erase: bool = False

    def __repr__(self) -> str:
        return f"Distribution({self.client_id!r}, {self.public_url!r})"

    def opened(
        self, web: AsyncWebClient, notes: Notes, clock: Clock, base_url: str, account: str | None
    ) -> tuple[ManyWorkspaces, Flow]:
        """
        :param web: a client without a token of its own
        """
        installs = Installs(notes, Seal(self.keys), account)
        tokens = Tokens(
            web, installs, clock, client_id=self.client_id, client_secret=self.client_secret
        )
        flow = Flow(
            web,
            installs,
            States(notes, clock, account),
            clock,
            client_id=self.client_id,
            client_secret=self.client_secret,
            scopes=SCOPES,
            public_url=self.public_url,
            authorization_url=authorize_url(base_url),
        )
        return ManyWorkspaces(installs, tokens, self.client_id), flow


def authorize_url(base_url: str) -> str:
    """Where Slack asks people whether they want the app."""
    return base_url.removesuffix("/").removesuffix("/api") + _AUTHORIZE
