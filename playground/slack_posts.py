"""What Slack tells an app over HTTP: signed requests, with the headers of a retry.

An answer of 2xx within three seconds is the acknowledgement, anything else a failure with one of
Slack's reasons (docs.slack.dev, Events API): http_timeout, connection_failed, http_error,
too_many_redirects. `X-Slack-No-Retry: 1` in a failure asks for no more. Not here: that Slack
switches a subscription off after an hour in which nearly all failed.
"""

import hashlib
import hmac
import json
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlencode

import aiohttp

from playground.slack_chats import Json
from playground.slack_deliveries import Delivery, Failed

AGENT = "Slackbot 1.0 (+https://api.slack.com/robots)"
FORM = "application/x-www-form-urlencoded"


class Posts:
    """The carrier over HTTP. `url` is the one that the app gave for all kinds."""

    def __init__(self, url: str, secret: Callable[[], str], clock: Callable[[], float]) -> None:
        self.url = url
        self.statuses: list[int] = []  # of the answers, in order; 0 when there was none
        self._secret = secret
        self._clock = clock
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def close(self) -> None:
        await self._session.close()

    def headers(self, body: bytes, kind: str, timestamp: int | None = None) -> dict[str, str]:
        """The headers of a request that is from Slack."""
        at = int(self._clock()) if timestamp is None else timestamp
        return {
            "Content-Type": kind,
            "User-Agent": AGENT,
            "X-Slack-Request-Timestamp": str(at),
            "X-Slack-Signature": signature(self._secret(), str(at), body),
        }

    async def carry(self, delivery: Delivery, ack_seconds: float) -> Json | None:
        body, kind = written(delivery)
        headers = self.headers(body, kind)
        if delivery.reasons and delivery.kind == "events_api":
            headers["X-Slack-Retry-Num"] = str(len(delivery.reasons))
            headers["X-Slack-Retry-Reason"] = delivery.reasons[-1]
        delivery.attempts += 1
        if delivery.state == "waiting":
            delivery.state = "sent"
        status, answer, back = await self._post(body, headers, ack_seconds)
        if not 200 <= status < 300:
            reason = "too_many_redirects" if 300 <= status < 400 else "http_error"
            raise Failed(reason, final=back.get("x-slack-no-retry") == "1")
        return said(answer, back.get("content-type", ""))

    async def send(
        self, body: bytes, headers: dict[str, str], timeout: float = 5.0
    ) -> tuple[int, str]:
        """Any request, as it is. Returns status and body. Raises `Failed` when there is none."""
        status, answer, _ = await self._post(body, headers, timeout)
        return status, answer

    async def _post(
        self, body: bytes, headers: dict[str, str], timeout: float
    ) -> tuple[int, str, dict[str, str]]:
        try:
            async with self._session.post(
                self.url,
                data=body,
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=timeout),
            ) as response:
                text = await response.text(errors="replace")
                self.statuses.append(response.status)
                back = {name.lower(): value for name, value in response.headers.items()}
                return response.status, text, back
        except TimeoutError:
            self.statuses.append(0)
            raise Failed("http_timeout") from None
        except (aiohttp.ClientError, OSError):
            self.statuses.append(0)
            raise Failed("connection_failed") from None


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """What Slack writes into X-Slack-Signature."""
    base = b"v0:" + timestamp.encode() + b":" + body
    return "v0=" + hmac.new(secret.encode(), base, hashlib.sha256).hexdigest()


def written(delivery: Delivery) -> tuple[bytes, str]:
    """Body and content type: JSON for events, a form for commands, JSON in a form for presses."""
    if delivery.kind == "events_api":
        return json.dumps(delivery.payload).encode(), "application/json"
    if delivery.kind == "slash_commands":
        return urlencode(delivery.payload).encode(), FORM
    return urlencode({"payload": json.dumps(delivery.payload)}).encode(), FORM


def said(answer: str, kind: str) -> Json | None:
    """What an acknowledgement says: a message, or nothing."""
    if kind.startswith("application/json"):
        with suppress(ValueError):
            value = json.loads(answer)
            return value if isinstance(value, dict) and value else None
    return {"text": answer} if answer.strip() else None
