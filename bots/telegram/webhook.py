"""Our own webhook: Telegram is told "received" only when an update was accepted.

What is not accepted is answered with 503, so that Telegram brings it again, within its chat before
all that follows; what can never be understood is answered with 200, for it would come again for a
day and hold up its chat. Telegram keeps to one request at a time for each chat, so nothing is put
into order here. The webhook itself is set where it is not as we want it, and looked after from then
on; when the program ends it stays, and Telegram keeps what comes meanwhile.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from telegram import Bot, WebhookInfo
from telegram.error import BadRequest, InvalidToken

from bots.http import BadBody, body_of
from bots.telegram.failures import unknown, why
from bots.telegram.insist import Backoff, Complaint, insist
from bots.telegram.line import Line
from bots.telegram.poll import ASKED, heard
from bots.telegram.updates import read_one
from core.adapter import Accept
from core.clock import Clock
from core.errors import PlatformRefused
from core.events import emit, trouble
from core.messages import Inbound

SECRET_HEADER: Final = "x-telegram-bot-api-secret-token"
RETRY_SECONDS: Final = 5  # after which Telegram brings again what we could not accept
LOOK_SECONDS: Final = 60.0
DOUBT_SECONDS: Final = 5.0
REMOVALS: Final = 3  # by somebody else, in one run

_BAD_HOST: Final = "resolve"  # in what Telegram says when it does not find our host: it may later


class Webhook(msgspec.Struct, frozen=True):
    """
    :param public_url: under which Telegram reaches our port
    :param path: of this bot, on our port and behind `public_url`
    :param secret: 32 to 256 letters, digits, `_` and `-`
    :param max_connections: how many updates may be on their way to us at once, 1 to 100
    """

    public_url: str
    path: str
    secret: str
    max_connections: int = 40

    def __repr__(self) -> str:
        return f"<Webhook {self.url}>"

    @property
    def url(self) -> str:
        return self.public_url + self.path

    @property
    def paths(self) -> tuple[str, ...]:
        """Where we are asked: a proxy may leave the path of the public URL away, or not."""
        return tuple({self.path: None, urlsplit(self.url).path: None})


class WebhookListener:
    """The webhook of one bot.

    :param hear: update -> Inbound, or None when it says nothing to us; not called before `run`
    """

    def __init__(
        self,
        bot: Bot,
        webhook: Webhook,
        hear: Callable[[object], Inbound | None],
        *,
        clock: Clock,
        line: Line | None = None,
    ) -> None:
        self._bot = bot
        self._webhook = webhook
        self._hear = hear
        self._clock = clock
        self._line = line or Line(clock)
        self._open = False
        self._doubt = asyncio.Event()
        self._unreachable = Backoff("telegram.unreachable", clock)
        self._not_accepted = Complaint("telegram.not_accepted", clock)
        self._strangers = Complaint("telegram.webhook_stranger", clock)
        self._undelivered = Complaint("telegram.undelivered", clock)
        self._removals = 0
        # What Telegram tells of a webhook that we have set: an old server leaves kinds out.
        self._agreed = (frozenset(ASKED), webhook.max_connections)
        self._old_failure: datetime | None = None
        self._failure: datetime | None = None
        self._failed_at = 0.0

    # What Telegram asks of us

    def routes(self, accept: Accept) -> Sequence[BaseRoute]:
        async def take(request: Request) -> Response:
            return await self._take(request, accept)

        return [Route(path, take, methods=["POST"]) for path in self._webhook.paths]

    async def _take(self, request: Request, accept: Accept) -> Response:
        given = request.headers.get(SECRET_HEADER, "")
        if not hmac.compare_digest(given.encode(), self._webhook.secret.encode()):
            # Anybody may knock; but it may be Telegram, with the secret of an earlier start.
            self._doubt.set()
            self._strangers.say("a request without our secret")
            return Response(status_code=403)
        if not self._open:
            return _later()
        try:
            body = await body_of(request)
        except BadBody as error:
            if error.status != 413:
                return Response(status_code=error.status)
            # No update is that large. Telegram would bring it for a day, and nothing else.
            trouble("telegram.unreadable_update", why="too large")
            return Response()
        update = read_one(body)
        if update.value is None:
            trouble("telegram.unreadable_update", update=update.id, bytes=len(body))
        self._line.brought()
        inbound = heard(self._hear, update)
        if inbound is None:
            return Response()
        try:
            await accept(inbound)
        except Exception as error:
            # Not lost: Telegram brings it again.
            self._line.refusing = True
            self._not_accepted.say(type(error).__name__)
            return _later()
        self._line.refusing = False
        self._not_accepted.over()
        return Response()

    # What we ask of Telegram

    async def run(self) -> None:
        """Until cancelled.

        :raises PlatformRefused: the token or the webhook is refused, or another process uses it
        """
        self._open = True
        info = await self._look()
        self._old_failure = info.last_error_date
        if info.url not in ("", self._webhook.url):
            emit("telegram.webhook_replaced", host=urlsplit(info.url).hostname)
        await self._keep(info, info.url != self._webhook.url)
        self._line.state = "webhook"
        while True:
            await self._wait()
            info = await self._look()
            if info.url not in ("", self._webhook.url):
                raise PlatformRefused(
                    "another process uses this Telegram token: it has set a webhook to "
                    f"{urlsplit(info.url).hostname}"
                )
            if not info.url:
                self._count_removal()
            await self._keep(info, not info.url or self._is_secret_wrong(info))
            self._note_failures(info)

    async def _wait(self) -> None:
        """Until it is time to look again; soon, when somebody came without our secret."""
        sleeping = asyncio.ensure_future(self._clock.sleep(LOOK_SECONDS))
        doubting = asyncio.ensure_future(self._doubt.wait())
        try:
            await asyncio.wait((sleeping, doubting), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            doubting.cancel()
        if self._doubt.is_set():
            # Telegram has to note it first; and nobody shall make us ask without end.
            await self._clock.sleep(DOUBT_SECONDS)
            self._doubt.clear()

    async def _look(self) -> WebhookInfo:
        info = await insist(self._info, self._unreachable)
        self._line.answered()
        return info

    async def _info(self) -> WebhookInfo:
        try:
            return await self._bot.get_webhook_info()
        except InvalidToken as error:
            if unknown(error):
                raise PlatformRefused(
                    'this Bot API server knows of no webhooks: set [telegram] mode = "polling"'
                ) from error
            raise

    async def _keep(self, info: WebhookInfo, wrong: bool) -> None:
        """Sets the webhook, if it is not as it should be."""
        if wrong or _told(info) != self._agreed:
            await insist(self._set, self._unreachable)
            info = await self._look()
            self._agreed = _told(info)
            self._old_failure = info.last_error_date
            emit("telegram.webhook_set", host=urlsplit(self._webhook.url).hostname)

    async def _set(self) -> None:
        try:
            await self._bot.set_webhook(
                self._webhook.url,
                max_connections=self._webhook.max_connections,
                allowed_updates=ASKED,
                secret_token=self._webhook.secret,
            )
        except BadRequest as error:
            if _BAD_HOST in str(error).lower():
                raise
            raise PlatformRefused(
                f"Telegram does not take the webhook {self._webhook.url}: {why(error)}; "
                "correct [http] public_url"
            ) from error

    def _count_removal(self) -> None:
        self._removals += 1
        if self._removals > REMOVALS:
            raise PlatformRefused(
                "another process uses this Telegram token: it removes our webhook again and again"
            )
        trouble("telegram.webhook_removed", times=self._removals)

    def _is_secret_wrong(self, info: WebhookInfo) -> bool:
        """We cannot ask which secret is set, but we turn Telegram away when it is another one."""
        return info.last_error_date != self._old_failure and "403" in (
            info.last_error_message or ""
        )

    def _note_failures(self, info: WebhookInfo) -> None:
        if info.last_error_date in (None, self._old_failure) or not info.pending_update_count:
            self._line.unreached = False
            self._undelivered.over()
            return
        if info.last_error_date != self._failure:
            self._failure, self._failed_at = info.last_error_date, self._clock.monotonic()
        if self._line.event is None or self._line.event < self._failed_at - LOOK_SECONDS:
            self._line.unreached = True
            self._undelivered.say(info.last_error_message or "it does not say why")


def _later() -> Response:
    return Response(status_code=503, headers={"Retry-After": str(RETRY_SECONDS)})


def _told(info: WebhookInfo) -> tuple[frozenset[str], int]:
    return frozenset(info.allowed_updates or ()), info.max_connections or 0
