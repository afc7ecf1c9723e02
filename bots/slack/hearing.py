"""What comes in, by either transport: read, put in line, accepted, and only then acknowledged.

The durable accept is a global middleware of Bolt's, for that is awaited before the acknowledgement.
Refusals are told from here, once and best effort; all else that leaves is the core's affair.
"""

from __future__ import annotations

import asyncio
import logging
import re
from functools import partial
from typing import Any, Final

import msgspec
from slack_bolt.async_app import AsyncApp, AsyncBoltRequest
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.response import BoltResponse
from slack_sdk.socket_mode.request import SocketModeRequest

from bots.slack import wire
from bots.slack.acts import Hint
from bots.slack.assistant import Assistant
from bots.slack.beside import Beside
from bots.slack.departures import departed, farewells
from bots.slack.failures import why
from bots.slack.home import Home
from bots.slack.intake import Full, Intake, Taken
from bots.slack.keys import address
from bots.slack.opened import HOME, Opened, Reset
from bots.slack.parse import Found, organisation_of, parse, team_of
from bots.slack.render import body_of, render
from bots.slack.rules import Rules
from bots.slack.wires import Wires
from core import feedback
from core.adapter import Acceptance, Refused
from core.clock import Clock
from core.errors import StoreError
from core.events import emit, trouble
from core.failpoints import failpoint
from core.feedback import Opinion
from core.messages import Inbound

DECLINE_SECONDS: Final = 20.0
REMEMBERED: Final = 10_000
REFUSAL: Final = "refusal"  # the name of a message that is no part of an outbox

_TAKEN: Final = "chinwag_taken"
_OK: Final = 200


class Hearing:
    """
    :param signing_secret: of requests by HTTP; empty where there are none
    :param erase: what was said in a workspace goes when the app is taken out of it
    :ivar home: the page that people see of the app
    :ivar intake: where it all goes; None: nobody takes anything
    :ivar event: when Slack last told us anything, by the monotonic clock
    """

    def __init__(
        self,
        wires: Wires,
        rules: Rules,
        signing_secret: str,
        clock: Clock,
        *,
        erase: bool,
        home: Home,
        assistant: Assistant,
    ) -> None:
        self._wires = wires
        self.home = home
        self._assistant = assistant
        self._rules = rules
        self._app = wire.bolt(wires.web, signing_secret, self._authorize, self._hear)
        _catch_all(self._app)
        self._clock = clock
        self._erase = erase
        self.intake: Intake | None = None
        self.event: float | None = None
        self._beside = Beside()
        self._fresh: dict[str, None] = {}

    def is_fresh(self, inbound_id: str) -> bool:
        """Whether this process has heard it, and has not begun to answer it before. Asked once."""
        fresh = inbound_id in self._fresh
        self._fresh.pop(inbound_id, None)
        return fresh

    async def close(self) -> None:
        await self._beside.close()
        await self._assistant.close()
        await self.home.close()

    # ------------------------------------------------------------------ the two transports

    async def by_socket(self, request: SocketModeRequest) -> tuple[bool, Any]:
        """Whether to acknowledge it, and what to say with that."""
        # In line before anything is waited for: so the order is that of arrival.
        taken = self._take(request.payload)
        context = {_TAKEN: taken} if taken else {}
        response = await self._app.async_dispatch(
            AsyncBoltRequest(mode="socket_mode", body=request.payload, context=context)
        )
        if response.status != _OK:
            return False, None
        # What is no JSON is Bolt's own word to people who have not installed the app.
        said = response.body if response.body.startswith("{") else None
        return True, msgspec.json.decode(said) if said else None

    async def by_request(self, request: AsyncBoltRequest) -> BoltResponse:
        if self.intake is None:
            return BoltResponse(status=503, body="")
        return await self._app.async_dispatch(request)

    # ------------------------------------------------------------------ within Bolt

    async def _hear(self, request: AsyncBoltRequest) -> BoltResponse | None:
        taken = request.context.get(_TAKEN)
        if taken is None:
            gone = departed(request.body)
            organisation = organisation_of(request.body)
            if gone is not None:
                return await self._leave(gone, organisation)
            team = team_of(request.body)
            # Looked up once; what comes after it is known at once.
            if team is not None and await self._wires.workspaces.me_of(team, organisation):
                taken = self._take(request.body)
        if taken is None:
            return None
        if isinstance(taken, Hint):
            return _said_to_them(taken.text)
        if isinstance(taken, Opinion):
            return await self._keep(taken)
        if isinstance(taken, Opened):
            if taken.tab == HOME:
                self.home.show(taken)
            elif self.home.knows(taken):
                self._assistant.opened(taken)
            return BoltResponse(status=_OK, body="")
        if isinstance(taken, Reset):
            return await self._reset(taken)
        inbound, accepting = taken
        acceptance = await asyncio.shield(accepting)
        slash = isinstance(request.body, dict) and "command" in request.body
        if slash and isinstance(acceptance, Refused):
            return _said_to_them(acceptance.reply or "")
        self._tell(inbound, acceptance, request.body)
        self._assistant.heard(inbound, acceptance)
        return BoltResponse(status=_OK, body="")

    async def _keep(self, opinion: Opinion) -> BoltResponse:
        """Slack shows it as chosen; one that is not confirmed it shows as failed."""
        notes = self._wires.notes
        if notes is None:
            return BoltResponse(status=_OK, body="")
        kept = msgspec.structs.replace(opinion, at=self._clock.now())
        try:
            await asyncio.shield(feedback.keep(notes, kept))
        except StoreError as error:
            trouble("slack.not_accepted", opinion.key, why=type(error).__name__)
            return BoltResponse(status=503, body="")
        emit("feedback", opinion.key, good=opinion.good, message=opinion.message_id)
        return BoltResponse(status=_OK, body="")

    async def _reset(self, reset: Reset) -> BoltResponse:
        if self.intake is None:
            raise Full
        try:
            await self.home.reset(reset, self.intake)
        except StoreError as error:
            trouble("slack.not_accepted", why=type(error).__name__)
            return BoltResponse(status=503, body="")
        return BoltResponse(status=_OK, body="")

    async def _leave(self, team: str, organisation: str | None) -> BoltResponse:
        """The app was taken out of a workspace: nothing is answered there, and nothing sent."""
        if self.intake is None:
            raise Full
        for each in farewells(team, self._rules.account, erase=self._erase):
            await asyncio.shield(self.intake.take(each))
        if self._erase and self._wires.notes is not None:
            await feedback.forget_all(self._wires.notes, f"slack:{team}/")
        # Last: until all of that is done, the event may come again.
        await self._wires.workspaces.removed(team, organisation)
        return BoltResponse(status=_OK, body="")

    def _take(self, body: object) -> tuple[Inbound, Taken] | Hint | Opinion | Opened | Reset | None:
        """
        :raises Full: it can be taken in by nobody now
        """
        failpoint("received")
        self.event = self._clock.monotonic()
        team = team_of(body)
        me = self._wires.workspaces.known(team) if team is not None else None
        if me is None:
            return None
        try:
            found: Found | None = parse(body, me, self._rules)
        except Exception as error:
            # A mistake of ours, and loud. It would come again, so it is confirmed all the same.
            trouble("slack.unparsed", why=type(error).__name__)
            return None
        if not isinstance(found, Inbound):
            emit("received", level=logging.DEBUG, kind="ignored")
            return found
        emit("received", found.key, level=logging.DEBUG, id=found.id, kind=found.kind)
        if self.intake is None:
            raise Full
        self._fresh[found.id] = None
        if len(self._fresh) > REMEMBERED:
            del self._fresh[next(iter(self._fresh))]
        return found, self.intake.take(found)

    async def _authorize(
        self, team: str | None, organisation: str | None
    ) -> AuthorizeResult | None:
        workspaces = self._wires.workspaces
        me = await workspaces.me_of(team, organisation)
        if me is None:
            return None
        # Without the token: it is for what leaves. One that has ended, and that Slack does not
        # renew just now, must not keep anything from coming in.
        return AuthorizeResult(
            enterprise_id=None, team_id=me.team, bot_id=me.bot, bot_user_id=me.user
        )

    # ------------------------------------------------------------------ refusals

    def _tell(self, inbound: Inbound, acceptance: Acceptance, body: object) -> None:
        """Nobody waits for it."""
        refused = acceptance if isinstance(acceptance, Refused) else None
        if refused is None or not (refused.reply or refused.over):
            return
        self._beside.do(partial(self._decline, inbound, refused, body))

    async def _decline(self, inbound: Inbound, refused: Refused, body: object) -> None:
        to = address(inbound.key, self._rules.account)
        private = inbound.kind == "decision" or (refused.private and inbound.group)
        try:
            async with asyncio.timeout(DECLINE_SECONDS):
                if to is None:
                    return
                post = await self._wires.post(to)
                for rendered in render(refused.reply or ""):
                    said = body_of(rendered)
                    if private:
                        user = inbound.sender.id.rpartition("/")[2]
                        await post.whisper(to, inbound.key, user, said)
                    else:
                        await post.say(to, inbound.key, said, REFUSAL)
                if refused.over and inbound.message_id and isinstance(body, dict):
                    await post.take_buttons(to, inbound.message_id, body.get("message"))
        except Exception as error:
            # Nothing was kept of it.
            emit("slack.not_declined", inbound.key, level=logging.DEBUG, why=why(error))


def _catch_all(app: AsyncApp) -> None:
    """What nobody listens to is acknowledged too, or it would come again."""
    anything = re.compile(".*")

    async def nothing() -> None:
        pass

    async def acknowledge(ack: Any) -> None:
        await ack()

    app.event(anything)(nothing)
    for kind in (app.command, app.action, app.shortcut, app.view, app.options):
        kind(anything)(acknowledge)


def _said_to_them(text: str) -> BoltResponse:
    """Only who has asked sees it."""
    if not text:
        return BoltResponse(status=_OK, body="")
    return BoltResponse(status=_OK, body={"response_type": "ephemeral", "text": text})
