"""What needs a running loop: the client session, and all that speaks to Slack through it."""

from __future__ import annotations

from bots.slack import wire
from bots.slack.distribution import Distribution
from bots.slack.files import Files
from bots.slack.keys import Address
from bots.slack.oauth import Flow
from bots.slack.people import People
from bots.slack.post import Post
from bots.slack.workspaces import OneWorkspace, Workspaces
from core.clock import Clock
from core.errors import Gone
from core.store import Notes


class Wires:
    """
    :param bot_token: of the one workspace that the app is installed in
    :param distribution: how others install the app; then no token is known beforehand
    :param notes: where installs are kept, and what people think of answers
    :param seconds: to wait for an answer of Slack's
    :param account: which of several bots of ours this is
    """

    def __init__(
        self,
        bot_token: str,
        distribution: Distribution | None,
        notes: Notes | None,
        base_url: str,
        seconds: float,
        account: str | None,
        clock: Clock,
    ) -> None:
        self.notes = notes
        self.session = wire.session(seconds)
        self.web = wire.client(base_url, self.session)
        self.files = Files(self.web, self.session, base_url)
        self.flow: Flow | None = None
        self.workspaces: Workspaces
        if distribution is None:
            self.workspaces = OneWorkspace(self.web, bot_token, clock)
        else:
            assert notes is not None, "keep_in comes first"
            self.workspaces, self.flow = distribution.opened(
                self.web, notes, clock, base_url, account
            )
        self.people = People(self.web, self.workspaces, clock)

    async def post(self, to: Address) -> Post:
        """
        :raises Gone: the app is not installed there any more
        """
        token, me = await self.workspaces.token_of(to.team), await self.workspaces.me_of(to.team)
        if token is None or me is None:
            raise Gone("the app is not installed in this workspace")
        return Post(self.web, token, me)

    async def close(self) -> None:
        await self.session.close()
