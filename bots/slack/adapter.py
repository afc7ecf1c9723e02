"""Slack behind the seam of `core.adapter`: takes messages in, sends parts out.

It keeps no conversation, and of what it sends it knows only what Slack answered. Pace, order and
repeats are the core's: a request that failed is told, not tried again. What may have been sent is
looked for, for here every message carries the name of its part.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from slack_bolt.async_app import AsyncApp, AsyncBoltRequest
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.response import BoltResponse
from slack_sdk.socket_mode.request import SocketModeRequest
from starlette.routing import BaseRoute

from bots.slack import wire
from bots.slack.acts import Hint
from bots.slack.departures import departed, farewells
from bots.slack.distribution import Distribution
from bots.slack.failures import MISSING_SCOPE, NOTHING_TO_EDIT, failure, says, why
from bots.slack.files import Files, shows
from bots.slack.intake import Full, Intake, Taken
from bots.slack.keys import Address, address, is_ts
from bots.slack.live import Growing, Status, Streaming
from bots.slack.oauth import Flow
from bots.slack.oauth import routes as install_routes
from bots.slack.parse import organisation_of, parse, team_of
from bots.slack.post import Post, name_of
from bots.slack.render import Body, body_of, render, render_card
from bots.slack.requests import Requests
from bots.slack.rules import Rules
from bots.slack.sockets import CONNECT_SECONDS, PING_SECONDS, Sockets
from bots.slack.workspaces import OneWorkspace, Workspaces
from core.adapter import (
    Accept,
    Acceptance,
    Card,
    Fetched,
    Limits,
    Live,
    NotFetched,
    Pulse,
    Rate,
    Receipt,
    Refused,
    Showing,
)
from core.clock import Clock, SystemClock
from core.delivery import OnUnknownOutcome
from core.errors import Gone, PlatformRefused, SendError, Undeliverable
from core.events import emit, trouble
from core.failpoints import failpoint
from core.messages import Attachment, Inbound, Outbound
from core.store import Notes

BASE_URL: Final = "https://slack.com/api"
LOST_SECONDS: Final = 5.0  # without a connection; a new one is there within two
SEND_SECONDS: Final = 20.0
DECLINE_SECONDS: Final = 20.0
MAX_DECLINES: Final = 64
REMEMBERED: Final = 10_000
REFUSAL: Final = "refusal"  # the name of a message that is no part of an outbox

# Slack names one message a second for a conversation, and bears short bursts.
_RATE: Final = Rate(burst=10, per_second=1.0)
_LIMITS: Final = Limits(can_look_up=True, rate_of=lambda key: _RATE)
_TAKEN: Final = "chinwag_taken"
_OK: Final = 200


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
        self._streams = streaming == "auto"
        # Messages that this process has heard and not begun to answer; what streams have said.
        self._fresh: dict[str, str] = {}
        self._streamed: dict[str, str] = {}
        self._on_unknown_outcome = on_unknown_outcome
        self._beside: set[asyncio.Task[None]] = set()
        self._intake: Intake | None = None
        self._opened: _Opened | None = None
        # By the monotonic clock.
        self._contact: float | None = None
        self._event: float | None = None

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

    def keep_in(self, notes: Notes) -> None:
        self._notes = notes

    async def identity(self) -> str:
        """A database remembers which app in which workspace it belongs to.

        :raises PlatformRefused: Slack does not know the token
        """
        return await self._wires().workspaces.identity()

    async def run(self, accept: Accept) -> None:
        wires = self._wires()
        await wires.workspaces.connect()
        intake = self._intake = Intake(accept, self._clock)
        try:
            if self._app_token is None:
                await asyncio.Event().wait()
            else:
                await self._sockets(wires, self._app_token).run()
        finally:
            self._intake = None
            await intake.close()

    def _sockets(self, wires: _Opened, app_token: str) -> Sockets:
        return Sockets(
            wires.web,
            app_token,
            self._hear_socket,
            self._clock,
            connect_seconds=self._connect_seconds,
            ping_seconds=self._ping_seconds,
            alive=self._alive,
        )

    def _alive(self) -> None:
        self._contact = self._clock.monotonic()

    def pulse(self) -> Pulse:
        now = self._clock.monotonic()
        event = None if self._event is None else now - self._event
        if self._app_token is None:
            # While nobody writes Slack does not come, and there is nothing to ask it.
            return Pulse("requests", 0.0, event)
        contact = None if self._contact is None else now - self._contact
        lost = contact is None or contact > LOST_SECONDS
        return Pulse("connecting" if lost else "connected", contact, event)

    def routes(self, accept: Accept) -> Sequence[BaseRoute]:
        """What Slack asks for when it comes to us. Nothing is taken in before `run`.

        :param accept: not used: `run` has the same
        """
        doors: list[BaseRoute] = []
        if self._app_token is None:
            doors += Requests(self._signing_secret, self._dispatch, self._clock).routes()
        flow = self._wires().flow
        return [*doors, *(install_routes(flow) if flow else ())]

    async def _dispatch(self, request: AsyncBoltRequest) -> BoltResponse:
        if self._intake is None:
            return BoltResponse(status=503, body="")
        return await self._wires().app.async_dispatch(request)

    async def close(self) -> None:
        """Hangs up. Nothing can be sent after this."""
        beside = list(self._beside)
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()

    # ------------------------------------------------------------------ what comes in

    async def _hear_socket(self, request: SocketModeRequest) -> tuple[bool, Any]:
        # In line before anything is waited for: so the order is that of arrival.
        taken = self._take(request.payload)
        response = await self._wires().app.async_dispatch(
            AsyncBoltRequest(
                mode="socket_mode", body=request.payload, context={_TAKEN: taken} if taken else {}
            )
        )
        if response.status != _OK:
            return False, None
        # What is no JSON is Bolt's own word to people who have not installed the app.
        said = response.body if response.body.startswith("{") else None
        return True, msgspec.json.decode(said) if said else None

    async def _hear(self, request: AsyncBoltRequest) -> BoltResponse | None:
        """Bolt's global middleware: what is for us is durable before it is acknowledged."""
        taken = request.context.get(_TAKEN)
        if taken is None:
            gone = departed(request.body)
            if gone is not None:
                return await self._leave(gone, organisation_of(request.body))
            team = team_of(request.body)
            # Looked up once; what comes after it is known at once.
            if team is not None and await self._wires().workspaces.me_of(
                team, organisation_of(request.body)
            ):
                taken = self._take(request.body)
        if taken is None:
            return None
        if isinstance(taken, Hint):
            return _said_to_them(taken.text)
        inbound, accepting = taken
        acceptance = await asyncio.shield(accepting)
        slash = isinstance(request.body, dict) and "command" in request.body
        if slash and isinstance(acceptance, Refused):
            return _said_to_them(acceptance.reply or "")
        self._tell(inbound, acceptance, request.body)
        return BoltResponse(status=_OK, body="")

    async def _leave(self, team: str, organisation: str | None) -> BoltResponse:
        """The app was taken out of a workspace: nothing is answered there, and nothing sent."""
        if self._intake is None:
            raise Full
        erase = self._distribution is not None and self._distribution.erase
        for each in farewells(team, self._rules.account, erase=erase):
            await asyncio.shield(self._intake.take(each))
        # Last: until all of that is done, the event may come again.
        await self._wires().workspaces.removed(team, organisation)
        return BoltResponse(status=_OK, body="")

    def _take(self, body: object) -> tuple[Inbound, Taken] | Hint | None:
        failpoint("received")
        self._event = self._clock.monotonic()
        team = team_of(body)
        me = self._wires().workspaces.known(team) if team is not None else None
        if me is None:
            return None
        try:
            found = parse(body, me, self._rules)
        except Exception as error:
            # A mistake of ours, and loud. It would come again, so it is confirmed all the same.
            trouble("slack.unparsed", why=type(error).__name__)
            return None
        if not isinstance(found, Inbound):
            emit("received", level=logging.DEBUG, kind="ignored")
            return found
        emit("received", found.key, level=logging.DEBUG, id=found.id, kind=found.kind)
        if self._intake is None:
            raise Full
        self._remember(self._fresh, found.id, "")
        return found, self._intake.take(found)

    def _remember(self, what: dict[str, str], name: str, value: str) -> None:
        what[name] = value
        if len(what) > REMEMBERED:
            del what[next(iter(what))]

    def _tell(self, inbound: Inbound, acceptance: Acceptance, body: object) -> None:
        """Best effort, and nobody waits for it."""
        refused = acceptance if isinstance(acceptance, Refused) else None
        if refused is None or not (refused.reply or refused.over):
            return
        if len(self._beside) < MAX_DECLINES:
            task = asyncio.create_task(self._decline(inbound, refused, body))
            self._beside.add(task)
            task.add_done_callback(self._beside.discard)

    async def _decline(self, inbound: Inbound, refused: Refused, body: object) -> None:
        """Says once, best effort, why a message or a press was refused."""
        to = address(inbound.key, self._rules.account)
        pressed = inbound.kind == "decision"
        try:
            async with asyncio.timeout(DECLINE_SECONDS):
                if to is None:
                    return
                post = await self._post(to)
                for rendered in render(refused.reply or ""):
                    said = body_of(rendered)
                    if pressed or (refused.private and inbound.group):
                        user = inbound.sender.id.rpartition("/")[2]
                        await post.whisper(to, inbound.key, user, said)
                    else:
                        await post.say(to, inbound.key, said, REFUSAL)
                if refused.over and inbound.message_id and isinstance(body, dict):
                    await post.take_buttons(to, inbound.message_id, body.get("message"))
        except Exception as error:
            # Nothing was kept of it, so nobody waits for this.
            emit("slack.not_declined", inbound.key, level=logging.DEBUG, why=why(error))

    async def _authorize(
        self, team: str | None, organisation: str | None
    ) -> AuthorizeResult | None:
        workspaces = self._wires().workspaces
        me = await workspaces.me_of(team, organisation)
        if me is None:
            return None
        return AuthorizeResult(
            enterprise_id=None,
            team_id=me.team,
            bot_id=me.bot,
            bot_user_id=me.user,
            bot_token=await workspaces.token_of(team) if team else None,
        )

    # ------------------------------------------------------------------ what goes out

    async def send(self, key: str, part: Outbound, *, uncertain: bool) -> Receipt:
        to = address(key, self._rules.account)
        if to is None:
            raise Undeliverable("not a key of this bot's")
        try:
            body = None if part.body is None else body_of(part.body)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise Undeliverable("not a body that this adapter has rendered") from error
        replaces = part.replaces if is_ts(part.replaces) else None
        try:
            post = await self._post(to)
            if body is None:
                if replaces is not None:
                    await post.delete(to, replaces)
                return Receipt(())
            if replaces is not None and await self._edited(post, to, key, replaces, body, part.id):
                return Receipt((replaces,))
            if uncertain:
                found = await self._found(post, to, part)
                if found is not None:
                    return Receipt((found,))
            return Receipt((await post.say(to, key, body, part.id),))
        except SendError:
            raise
        except Exception as error:
            # Any: an answer that is none of Slack's comes out of the SDK as anything.
            raise failure(error) from error

    async def send_file(self, key: str, part: Outbound, data: bytes, *, uncertain: bool) -> Receipt:
        to = address(key, self._rules.account)
        if to is None or part.file is None:
            raise Undeliverable("not a key of this bot's, or no file")
        name = part.file.name
        try:
            post = await self._post(to)
            if uncertain:
                # Such a message carries no name; but its file has one.
                async for message in post.own(to, part.reply_to):
                    if shows(message, name, len(data)):
                        return Receipt((str(message["ts"]),))
            await self._wires().files.send(to, name, data, post.token)
        except SendError:
            raise
        except Exception as error:
            raise failure(error) from error
        return Receipt(())

    async def fetch(self, key: str, attachment: Attachment) -> Fetched:
        to = address(key, self._rules.account)
        token = await self._wires().workspaces.token_of(to.team) if to is not None else None
        if token is None:
            raise NotFetched("the app is not installed in that workspace any more")
        return await self._wires().files.fetch(attachment, token)

    async def _edited(
        self, post: Post, to: Address, key: str, ts: str, body: Body, name: str
    ) -> bool:
        """False: there is nothing to edit any more."""
        if not body.buttons and self._streamed.pop(ts, None) == body.markdown:
            # The stream that has just ended says exactly this.
            return True
        try:
            await post.edit(to, key, ts, body, name)
        except Exception as error:
            if not says(error, NOTHING_TO_EDIT):
                raise
            return False
        return True

    async def _found(self, post: Post, to: Address, part: Outbound) -> str | None:
        try:
            return await post.find(to, part.id, part.reply_to)
        except Exception as error:
            if not says(error, MISSING_SCOPE):
                raise
            trouble("slack.cannot_look", part=part.id, why=why(error))
            if self._on_unknown_outcome == "hold":
                raise Undeliverable("it may have been sent already, and we may not look") from error
            return None

    async def _post(self, to: Address) -> Post:
        """
        :raises Gone: the app is not installed there any more
        """
        wires = self._wires()
        token, me = await wires.workspaces.token_of(to.team), await wires.workspaces.me_of(to.team)
        if token is None or me is None:
            raise Gone("the app is not installed in this workspace")
        return Post(wires.web, token, me)

    def live(self, key: str, inbound: Inbound, shown: tuple[str, ...], showing: Showing) -> Live:
        to = address(key, self._rules.account)
        if to is None or self._streaming == "off":
            place = _Place(self, to, key, inbound) if to else None
            return Status(place.status if place else _nothing, self._clock, showing)
        fresh = inbound.id in self._fresh
        self._fresh.pop(inbound.id, None)
        return Growing(
            key,
            _Place(self, to, key, inbound),
            self._clock,
            showing,
            tuple(ts for ts in shown if is_ts(ts)),
            streams=self._streams and to.thread is not None,
            unsure=not (fresh or shown),
            no_streams=self._without_streams,
        )

    def _without_streams(self) -> None:
        self._streams = False

    def _wires(self) -> _Opened:
        if self._opened is None:
            self._opened = _Opened(self)
        return self._opened


class _Opened:
    """What needs a running loop."""

    def __init__(self, adapter: SlackAdapter) -> None:
        self.session = wire.session(adapter._send_timeout)
        self.web = wire.client(adapter._base_url, self.session)
        self.flow: Flow | None = None
        self.workspaces: Workspaces
        if adapter._distribution is None:
            self.workspaces = OneWorkspace(self.web, adapter._bot_token, adapter._clock)
        else:
            assert adapter._notes is not None, "keep_in comes first"
            self.workspaces, self.flow = adapter._distribution.opened(
                self.web, adapter._notes, adapter._clock, adapter._base_url, adapter._rules.account
            )
        self.app: AsyncApp = wire.bolt(
            self.web, adapter._signing_secret, adapter._authorize, adapter._hear
        )
        _catch_all(self.app)
        self.files = Files(self.web, self.session, adapter._base_url)

    async def close(self) -> None:
        await self.session.close()


class _Place:
    """Where one answer is shown, as `Growing` needs it."""

    def __init__(self, adapter: SlackAdapter, to: Address, key: str, inbound: Inbound) -> None:
        self._adapter = adapter
        self._to = to
        self._key = key
        self._inbound = inbound
        self._name = f"live {inbound.id} "

    async def status(self) -> None:
        if self._to.thread is None:
            raise LookupError("there is no status outside of a thread")
        await (await self._post()).status(self._to, "is thinking…")

    async def start(self, markdown: str) -> str:
        team, _, user = self._inbound.sender.id.removeprefix("slack:").partition("/")
        return await (await self._post()).start(self._to, markdown, team, user)

    async def append(self, ts: str, markdown: str) -> None:
        await (await self._post()).append(self._to, ts, markdown)

    async def stop(self, ts: str, markdown: str, whole: str) -> None:
        await (await self._post()).stop(self._to, ts, markdown, self._name)
        self._adapter._remember(self._adapter._streamed, ts, whole)

    async def say(self, body: str, index: int) -> str:
        name = f"{self._name}{index}"
        return await (await self._post()).say(self._to, self._key, body_of(body), name)

    async def edit(self, ts: str, body: str, index: int) -> None:
        name = f"{self._name}{index}"
        await (await self._post()).edit(self._to, self._key, ts, body_of(body), name)

    async def delete(self, ts: str) -> None:
        await (await self._post()).delete(self._to, ts)

    async def left(self) -> list[str]:
        asked = self._inbound.message_id
        if not is_ts(asked):
            return []
        found = []
        async for message in (await self._post()).own(self._to, asked):
            name = name_of(message)
            # A stream carries no name until it is over, and nothing else of ours is without one.
            stream = name is None and self._to.thread is not None and not message.get("files")
            if (stream or (name or "").startswith(self._name)) and message["ts"] > asked:
                found.append(str(message["ts"]))
        return sorted(found)

    async def _post(self) -> Post:
        return await self._adapter._post(self._to)


async def _nothing() -> None:
    raise LookupError("nobody is there")


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
