"""Slack comes to us: signed requests with events, commands and buttons, all at one address.

A request is answered with 200 only when what it brings was accepted, and with 503 when that takes
too long: then Slack brings it again. Without Slack's signature, with one that was used before, or
with one that is none, it is answered with 401, and of its body nothing is kept, nor logged. Slack
signs each of its own repeats anew, so a signature that comes twice is somebody else's.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from slack_bolt.async_app import AsyncBoltRequest
from slack_bolt.response import BoltResponse
from slack_sdk.signature import Clock as SignatureClock
from slack_sdk.signature import SignatureVerifier
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from bots.http import MAX_BODY, BadBody, body_of
from bots.slack.manifest import PATH
from core.clock import Clock
from core.events import trouble

ANSWER_SECONDS: Final = 2.5  # Slack gives us three
WINDOW_SECONDS: Final = 300.0  # what Slack and its SDK take for a time stamp of now
LOG_SECONDS: Final = 60.0
MAX_USED: Final = 20_000
MAX_UNSIGNED: Final = 1_000  # bytes

_TIMESTAMP: Final = re.compile(r"[0-9]{1,12}")
_SIGNATURE: Final = re.compile(r"v0=[0-9a-f]{64}")

Dispatch = Callable[[AsyncBoltRequest], Awaitable[BoltResponse]]


class Requests:
    """
    :param dispatch: Bolt's; it checks the signature once more
    """

    def __init__(self, signing_secret: str, dispatch: Dispatch, clock: Clock) -> None:
        self._secret = signing_secret
        self._dispatch = dispatch
        self._clock = clock
        self._used: OrderedDict[str, float] = OrderedDict()
        self._quiet_until = float("-inf")

    def routes(self) -> Sequence[BaseRoute]:
        return [Route(PATH, self._take, methods=["POST"])]

    async def _take(self, request: Request) -> Response:
        timestamp = request.headers.get("x-slack-request-timestamp", "")
        signature = request.headers.get("x-slack-signature", "")
        unsigned = not (timestamp or signature)
        signed = _TIMESTAMP.fullmatch(timestamp) and _SIGNATURE.fullmatch(signature)
        if not (signed or unsigned):
            return Response(status_code=401)
        try:
            text = (await body_of(request, MAX_UNSIGNED if unsigned else MAX_BODY)).decode()
        except BadBody as error:
            return Response(status_code=error.status)
        except UnicodeDecodeError:
            return Response(status_code=401)
        if unsigned:
            # Now and then Slack only looks whether our certificate is good.
            return Response(status_code=200 if text.startswith("ssl_check=1") else 401)
        if not self._is_signed(text, timestamp, signature) or not self._use(signature):
            return Response(status_code=401)
        status = 0
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                response = await self._dispatch(
                    AsyncBoltRequest(
                        body=text,
                        query=request.url.query,
                        headers={name: [value] for name, value in request.headers.items()},
                    )
                )
            status = response.status
        except Exception as error:
            # Not lost: Slack brings it again.
            trouble("slack.not_answered", why=type(error).__name__)
            return Response(status_code=503)
        finally:
            if status != 200:
                # Nothing was taken of it: whoever passes it on to us may try again.
                self._used.pop(signature, None)
        headers = {name: values[0] for name, values in response.headers.items() if values}
        return Response(response.body, response.status, headers)

    def _is_signed(self, body: str, timestamp: str, signature: str) -> bool:
        if not self._genuine(body, timestamp, signature):
            return False
        apart = self._clock.now() / 1000 - int(timestamp)
        if abs(apart) <= WINDOW_SECONDS:
            return True
        if self._clock.monotonic() >= self._quiet_until:
            self._quiet_until = self._clock.monotonic() + LOG_SECONDS
            trouble("slack.clock_is_off", seconds=round(apart))
        return False

    def _genuine(self, body: str, timestamp: str, signature: str) -> bool:
        """Whether Slack has signed it, at whatever time."""
        verifier = SignatureVerifier(self._secret, clock=_At(int(timestamp)))
        return verifier.is_valid(body, timestamp, signature)

    def _use(self, signature: str) -> bool:
        """Whether it is new; from now on it is not, also while its request is worked on."""
        if signature in self._used:
            return False
        now = self._clock.monotonic()
        self._used[signature] = now
        # Older ones are refused for their time stamp; it may lie ahead by as much as behind.
        while self._used and (
            len(self._used) > MAX_USED or now - next(iter(self._used.values())) > 2 * WINDOW_SECONDS
        ):
            self._used.popitem(last=False)
        return True


class _At(SignatureClock):
    """A clock that stands still."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds

    def now(self) -> float:
        return float(self._seconds)
