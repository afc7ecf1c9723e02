"""Webhooks as Telegram has them: setWebhook and its kin, and the sender that brings updates.

The rules are those of Telegram's own server (telegram-bot-api/WebhookActor.cpp). Updates of one
chat come in order, the next one only when the one before was answered with 2xx; other chats do not
wait for that. What fails comes again, after 1, 2, 4 ... 60 seconds or what `Retry-After` asks for.
Left out: certificates and addresses of one's own, methods called by an answer, and the end of a
webhook that has answered 410 for a day. What stands in for the reverse proxy of a public URL is
`proxy`; without one, only http on this machine can be reached.
"""

import asyncio
import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from playground.telegram_chats import Json, Refused
from playground.telegram_faults import Delay, DeliverTwice, Faults, ResetAfter, ResetBefore
from playground.telegram_updates import Update

if TYPE_CHECKING:
    import aiohttp

    from playground.telegram_methods import World

FAULT = "webhook"  # what a fault of a delivery names as its method
PORTS = (None, 80, 88, 443, 8443)
SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"
DEFAULT_CONNECTIONS = 40
FIRST_DELAY, LAST_DELAY, LONGEST_ASKED = 1.0, 60.0, 3600.0  # seconds
PATIENCE = 60.0  # seconds for an answer
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(slots=True)
class Webhook:
    """What was set, and how it goes. No webhook: no `url`."""

    url: str = ""
    secret: str = ""
    max_connections: int = DEFAULT_CONNECTIONS
    error: str = ""
    error_at: int = 0
    set_at: float = float("-inf")  # time.monotonic()

    def info(self) -> Json:
        if not self.url:
            return {}
        info: Json = {
            "url": self.url,
            "max_connections": self.max_connections,
            "ip_address": "127.0.0.1",
        }
        if self.error:
            info |= {"last_error_date": self.error_at, "last_error_message": self.error}
        return info


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request to the webhook.

    `status` is that of HTTP, 0 when there was no answer; `at` is time.monotonic() of its beginning.
    """

    update_id: int
    at: float
    status: int
    retry_after: float | None = None


def set_webhook(world: "World", given: Json) -> bool:
    url = str(given.get("url") or "")
    if not url:
        return delete_webhook(world, given)
    secret, connections = str(given.get("secret_token") or ""), given.get("max_connections")
    _check(url, secret)
    now = time.monotonic()
    if now - world.webhook.set_at < 1:
        raise Refused(429, "Too Many Requests: retry after 1", {"retry_after": 1})
    if given.get("drop_pending_updates"):
        world.updates.drop_all()
    world.updates.allow(given.get("allowed_updates"))
    number = connections if isinstance(connections, int) else DEFAULT_CONNECTIONS
    world.webhook = Webhook(url, secret, min(max(number, 1), 100), set_at=now)
    world.updates.abort_poll(Refused(409, "Conflict: terminated by setWebhook request"))
    world.tell("webhook", {"url": url})
    return True


def delete_webhook(world: "World", given: Json) -> bool:
    if given.get("drop_pending_updates"):
        world.updates.drop_all()
    world.webhook = Webhook(set_at=world.webhook.set_at)
    world.tell("webhook", {"url": ""})
    return True


def get_webhook_info(world: "World", _: Json) -> Json:
    info: Json = {
        "url": "",
        "has_custom_certificate": False,
        "pending_update_count": len(world.updates),
    }
    if world.updates.allowed is not None:
        info["allowed_updates"] = sorted(world.updates.allowed)
    return info | world.webhook.info()


def _check(url: str, secret: str) -> None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Refused(400, "Bad Request: invalid webhook URL specified") from None
    if not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        if parts.scheme != "https":
            raise Refused(
                400, "Bad Request: bad webhook: An HTTPS URL must be provided for webhook"
            )
        if port not in PORTS:
            raise Refused(
                400,
                "Bad Request: bad webhook: Webhook can be set up only on ports 80, 88, 443 or 8443",
            )
    if not re.fullmatch(r"[A-Za-z0-9_-]{0,256}", secret):
        raise Refused(400, "Bad Request: secret token contains unallowed characters")


@dataclass(eq=False, slots=True)
class Sender:
    """Brings what waits to the webhook, while there is one.

    `second` is how long a second of its delays takes; `proxy` says where a public URL leads to.
    """

    world: "World"
    faults: Faults
    second: float = 1.0
    proxy: Mapping[str, str] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    _busy: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    _extra: set[asyncio.Task[None]] = field(default_factory=set)
    _slots: asyncio.Semaphore | None = None
    _session: "aiohttp.ClientSession | None" = None

    def stir(self, *, anew: bool = False) -> None:
        """Something may be to be done. `anew`: the webhook is another one."""
        if anew or self._slots is None:
            self._cancel()
            self._slots = asyncio.Semaphore(self.world.webhook.max_connections)
        if not self.world.webhook.url:
            return
        for update in self.world.updates.take_again():
            task = asyncio.create_task(self._again(update))
            self._extra.add(task)
            task.add_done_callback(self._extra.discard)
        for update in self.world.updates.pending():
            queue = _queue_of(update)
            if queue not in self._busy:
                self._busy[queue] = asyncio.create_task(self._empty(queue))

    async def close(self) -> None:
        tasks = self._cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    def _cancel(self) -> list[asyncio.Task[None]]:
        tasks = [*self._busy.values(), *self._extra]
        self._busy = {}
        for task in tasks:
            task.cancel()
        return tasks

    async def _empty(self, queue: int) -> None:
        """One chat's updates, in order, until there are none."""
        delay = FIRST_DELAY
        while (update := self._next(queue)) is not None:
            delivery = await self._deliver(update)
            if 200 <= delivery.status <= 299:
                self.world.updates.confirm(update.id)
                delay = FIRST_DELAY
                continue
            wait, delay = delay, min(delay * 2, LAST_DELAY)
            if delivery.retry_after is not None:
                wait = min(delivery.retry_after, LONGEST_ASKED)
            await asyncio.sleep(wait * self.second)
        # No round of the loop lies between the last look and this.
        if self._busy.get(queue) is asyncio.current_task():
            del self._busy[queue]

    def _next(self, queue: int) -> Update | None:
        pending = self.world.updates.pending()
        return next((update for update in pending if _queue_of(update) == queue), None)

    async def _again(self, update: Update) -> None:
        await self._deliver(update)

    async def _deliver(self, update: Update) -> Delivery:
        assert self._slots is not None
        async with self._slots:
            rule = self.faults.strike(FAULT, _queue_of(update))
            fault = rule.fault if rule else None
            if isinstance(fault, Delay):
                await asyncio.sleep(fault.seconds)
            if isinstance(fault, DeliverTwice):
                await self._post(update)
            if isinstance(fault, ResetBefore):
                delivery = self._note(Delivery(update.id, time.monotonic(), 0), "Connection reset")
            elif isinstance(fault, ResetAfter):
                delivery = await self._post(update)
                delivery = self._note(Delivery(update.id, delivery.at, 0), "Connection reset")
            else:
                delivery = await self._post(update)
        return delivery

    async def _post(self, update: Update) -> Delivery:
        import aiohttp

        webhook, at = self.world.webhook, time.monotonic()
        url = self._target(webhook.url)
        if url is None:
            return self._note(Delivery(update.id, at, 0), "Failed to resolve host")
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE))
        headers = {"Content-Type": "application/json"}
        if webhook.secret:
            headers[SECRET_HEADER] = webhook.secret
        self.world.updates.note_delivered([update])
        try:
            async with self._session.post(
                url, data=update.text.encode(), headers=headers, allow_redirects=False
            ) as answer:
                await answer.read()
                status, asked = answer.status, answer.headers.get("Retry-After", "")
        except TimeoutError:
            return self._note(Delivery(update.id, at, 0), "Read timeout expired")
        except (aiohttp.ClientError, OSError):
            return self._note(Delivery(update.id, at, 0), "Connection refused")
        retry_after = float(asked) if asked.isascii() and asked.isdecimal() else None
        words = ""
        if not 200 <= status <= 299:
            phrase = ""
            with suppress(ValueError):
                phrase = HTTPStatus(status).phrase
            words = f"Wrong response from the webhook: {status} {phrase}"
        return self._note(Delivery(update.id, at, status, retry_after), words)

    def _note(self, delivery: Delivery, error: str) -> Delivery:
        self.deliveries.append(delivery)
        if error:
            self.world.webhook.error, self.world.webhook.error_at = error, self.world.date()
        details = {"update_id": delivery.update_id, "status": delivery.status}
        self.world.tell("brought", details)
        return delivery

    def _target(self, url: str) -> str | None:
        for public, behind in self.proxy.items():
            if url.startswith(public):
                return behind + url.removeprefix(public)
        parts = urlsplit(url)
        return url if parts.scheme == "http" and parts.hostname in LOOPBACK else None


def _queue_of(update: Update) -> int:
    """The chat, as far as one can tell; else who did it; else all such updates are one queue."""
    with suppress(ValueError, RecursionError):
        found = _ids(json.loads(update.text))
        return found.get("chat", found.get("from", 0))
    return 0


def _ids(value: object) -> dict[str, int]:
    payloads = value.values() if isinstance(value, dict) else ()
    for payload in payloads:
        if isinstance(payload, dict):
            message = payload.get("message")
            place = payload | (message if isinstance(message, dict) else {})
            return {
                name: each["id"]
                for name in ("chat", "from")
                if isinstance(each := place.get(name), dict) and isinstance(each.get("id"), int)
            }
    return {}
