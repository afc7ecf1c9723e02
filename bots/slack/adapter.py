"""Slack behind the seam of `core.adapter`: takes messages in, sends parts out.

It keeps no conversation, and of what it sends it knows only what Slack answered. Pace, order and
repeats are the core's: a request that failed is told, not tried again. What may have been sent is
looked for, for here every message carries the name of its part.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Final

from starlette.routing import BaseRoute

from bots.slack.assistant import Assistant, Prompt
from bots.slack.distribution import Distribution
from bots.slack.hearing import Hearing
from bots.slack.home import Home
from bots.slack.intake import Intake
from bots.slack.keys import address, is_theirs, is_ts, person_of
from bots.slack.live import Growing, Status, Streaming
from bots.slack.oauth import routes as install_routes
from bots.slack.place import Place
from bots.slack.render import asking, render, render_card
from bots.slack.requests import Requests
from bots.slack.rules import Rules
from bots.slack.sending import send, send_file
from bots.slack.sockets import CONNECT_SECONDS, PING_SECONDS, Sockets
from bots.slack.wires import Wires
from core.adapter import (
    Accept,
    Card,
    Fetched,
    Limits,
    Live,
    NotFetched,
    Pulse,
    Rate,
    Receipt,
    Showing,
)
from core.clock import Clock, SystemClock
from core.delivery import OnUnknownOutcome
from core.errors import PlatformRefused, Undeliverable
from core.messages import Attachment, Inbound, Outbound
from core.pages import Pages
from core.store import Notes

BASE_URL: Final = "https://slack.com/api"
SEND_SECONDS: Final = 20.0
LOST_SECONDS: Final = 5.0  # without a connection; a new one is there within two

# Slack names one message a second for a conversation, and bears short bursts.
_RATE: Final = Rate(burst=10, per_second=1.0)
_LIMITS: Final = Limits(can_look_up=True, rate_of=lambda key: _RATE)


class SlackAdapter:
    """One app.

    :param bot_token: of the workspace that the app is installed in, ``xoxb-...``; None: anybody may
        install it, see `distribution`
    :param app_token: for Socket Mode, ``xapp-...``; None: Slack comes to us by HTTP
    :param signing_secret: by which we know Slack when it comes to us
    :param distribution: how others install the app; beside it, `keep_in` must be called before all
        else
    :param rules: what is a conversation, and who is meant
    :param streaming: whether an answer is shown while it grows: by streams where they exist, else
        by edits (`auto`), by edits only (`edit`), or not at all (`off`)
    :param feedback: below an answer are two buttons: whether it was good
    :param home: what stands on the app's page, in Slack's marks; empty: a sentence of ours
    :param prompts: what an app that shows as an agent suggests to ask; at most four
    :param on_unknown_outcome: what to do with what may have been sent when we cannot look
    :param send_timeout: seconds to wait for Slack's answer
    :param connect_seconds: after which a connection that does not come about is given up
    :param ping_seconds: between two signs of life; after four without one a connection is dead
    """

    def __init__(
        self,
        bot_token: str | None,
        app_token: str | None = None,
        *,
        distribution: Distribution | None = None,
        signing_secret: str | None = None,
        base_url: str = BASE_URL,
        rules: Rules = Rules(),  # noqa: B008 (frozen)
        streaming: Streaming = "auto",
        feedback: bool = False,
        home: str = "",
        prompts: Sequence[Prompt] = (),
        on_unknown_outcome: OnUnknownOutcome = "resend",
        send_timeout: float = SEND_SECONDS,
        connect_seconds: float = CONNECT_SECONDS,
        ping_seconds: float = PING_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        second = ("SLACK_SIGNING_SECRET", signing_secret or "")
        if app_token is not None:
            second = ("SLACK_APP_TOKEN", app_token)
        first = ("SLACK_BOT_TOKEN", "x" if distribution else bot_token or "")
        for variable, token in (first, second):
            if not re.fullmatch(r"[!-~]+", token):
                raise PlatformRefused(f"{variable} is empty, or has signs that no token has")
        self._signing_secret = signing_secret or ""
        self._app_token = app_token
        self._bot_token = bot_token or ""
        self._distribution = distribution
        self._notes: Notes | None = None
        self._base_url = base_url
        self._rules = rules
        self._send_timeout = send_timeout
        self._connect_seconds = connect_seconds
        self._ping_seconds = ping_seconds
        self._clock: Clock = clock or SystemClock()
        self._streaming: Streaming = streaming
        self._feedback = feedback
        self._streams = streaming == "auto"
        self._home = home
        self._prompts = tuple(prompts)
        self._pages: Pages | None = None
        self._on_unknown_outcome = on_unknown_outcome
        self._opened: tuple[Wires, Hearing] | None = None
        self._contact: float | None = None  # by the monotonic clock

    def __repr__(self) -> str:
        return f"<SlackAdapter {self.name}>"

    @property
    def name(self) -> str:
        account = self._rules.account
        return "slack" if account is None else f"slack@{account}"

    @property
    def limits(self) -> Limits:
        return _LIMITS

    def serves(self, key: str) -> bool:
        return address(key, self._rules.account) is not None

    def render(self, markdown: str) -> tuple[str, ...]:
        return render(markdown)

    def render_card(self, card: Card) -> str:
        return render_card(card)

    def asking(self, bodies: tuple[str, ...]) -> tuple[str, ...]:
        return asking(bodies) if self._feedback else bodies

    def keep_in(self, notes: Notes) -> None:
        self._notes = notes

    def show_pages(self, pages: Pages) -> None:
        self._pages = pages
        if self._opened is not None:
            self._opened[1].home.pages = pages

    async def identity(self) -> str:
        """A database remembers which app in which workspace it belongs to.

        :raises PlatformRefused: Slack does not know the token
        """
        return await self._wires.workspaces.identity()

    def _alive(self) -> None:
        self._contact = self._clock.monotonic()

    def pulse(self) -> Pulse:
        now = self._clock.monotonic()
        heard = self._hearing.event if self._opened is not None else None
        event = None if heard is None else now - heard
        if self._app_token is None:
            # While nobody writes Slack does not come, and there is nothing to ask it.
            return Pulse("requests", 0.0, event)
        contact = None if self._contact is None else now - self._contact
        lost = contact is None or contact > LOST_SECONDS
        return Pulse("connecting" if lost else "connected", contact, event)

    async def run(self, accept: Accept) -> None:
        await self._wires.workspaces.connect()
        intake = self._hearing.intake = Intake(accept, self._clock)
        try:
            if self._app_token is None:
                await asyncio.Event().wait()
            else:
                await self._connected(self._app_token).run()
        finally:
            self._hearing.intake = None
            await intake.close()

    def _connected(self, app_token: str) -> Sockets:
        return Sockets(
            self._wires.web,
            app_token,
            self._hearing.by_socket,
            self._clock,
            connect_seconds=self._connect_seconds,
            ping_seconds=self._ping_seconds,
            alive=self._alive,
        )

    @property
    def anywhere(self) -> bool:
        """Whether Slack comes to us, to whichever process it reaches."""
        return self._app_token is None

    def routes(self, accept: Accept) -> Sequence[BaseRoute]:
        """What Slack asks for when it comes to us. Nothing is taken in before `run`.

        :param accept: not used: `run` has the same
        """
        doors: list[BaseRoute] = []
        if self._app_token is None:
            doors += Requests(self._signing_secret, self._hearing.by_request, self._clock).routes()
        flow = self._wires.flow
        return [*doors, *(install_routes(flow) if flow else ())]

    async def close(self) -> None:
        """Hangs up. Nothing can be sent after this."""
        opened, self._opened = self._opened, None
        if opened is not None:
            wires, hearing = opened
            await hearing.close()
            await wires.close()

    async def send(self, key: str, part: Outbound, *, uncertain: bool) -> Receipt:
        to = address(key, self._rules.account)
        if to is None:
            raise Undeliverable("not a key of this bot's")
        policy = self._on_unknown_outcome
        return await send(
            self._wires, to, key, part, uncertain=uncertain, on_unknown_outcome=policy
        )

    async def send_file(self, key: str, part: Outbound, data: bytes, *, uncertain: bool) -> Receipt:
        to = address(key, self._rules.account)
        if to is None or part.file is None:
            raise Undeliverable("not a key of this bot's, or no file")
        after = part.reply_to
        return await send_file(self._wires, to, part.file, data, after, uncertain=uncertain)

    async def fetch(self, key: str, attachment: Attachment) -> Fetched:
        to = address(key, self._rules.account)
        token = await self._wires.workspaces.token_of(to.team) if to is not None else None
        if token is None:
            raise NotFetched("the app is not installed in that workspace any more")
        return await self._wires.files.fetch(attachment, token)

    async def is_admin(self, key: str, sender_id: str) -> bool | None:
        to, person = address(key, self._rules.account), person_of(sender_id)
        if to is None or person is None:
            return None
        return is_theirs(key) or await self._wires.people.may_decide(to, *person)

    async def name_of(self, key: str, sender_id: str) -> str:
        to, person = address(key, self._rules.account), person_of(sender_id)
        if to is None or person is None:
            return ""
        _, user = person
        return await self._wires.people.name_of(to.team, user)

    def live(self, key: str, inbound: Inbound, shown: tuple[str, ...], showing: Showing) -> Live:
        to = address(key, self._rules.account)
        if to is None:
            return Status(_nothing, self._clock, showing)
        place = Place(self._wires, to, key, inbound)
        if self._streaming == "off":
            return Status(place.status, self._clock, showing)
        return Growing(
            key,
            place,
            self._clock,
            showing,
            tuple(ts for ts in shown if is_ts(ts)),
            streams=self._streams and to.thread is not None,
            unsure=not (self._hearing.is_fresh(inbound.id) or shown),
            no_streams=self._without_streams,
        )

    def _without_streams(self) -> None:
        self._streams = False

    @property
    def _wires(self) -> Wires:
        return self._open()[0]

    @property
    def _hearing(self) -> Hearing:
        return self._open()[1]

    def _open(self) -> tuple[Wires, Hearing]:
        """What needs a running loop, and so cannot be made with the adapter itself."""
        if self._opened is None:
            wires = Wires(
                self._bot_token,
                self._distribution,
                self._notes,
                self._base_url,
                self._send_timeout,
                self._rules.account,
                self._clock,
            )
            erase = self._distribution is not None and self._distribution.erase
            home = Home(wires, self._rules, self._home)
            home.pages = self._pages
            hearing = Hearing(
                wires,
                self._rules,
                self._signing_secret,
                self._clock,
                erase=erase,
                home=home,
                assistant=Assistant(wires, self._rules, self._prompts),
            )
            self._opened = wires, hearing
        return self._opened


async def _nothing(status: str) -> None:
    raise LookupError("nobody is there")
