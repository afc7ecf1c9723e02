"""The HTTP server: finds the method, lets the faults strike, keeps the record of calls."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from email.utils import formatdate

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from playground.telegram_chats import Json, Refused
from playground.telegram_faults import (
    Answer,
    Delay,
    DeliverTwice,
    Faults,
    GarbageBody,
    ResetAfter,
    ResetBefore,
)
from playground.telegram_files import FAULT as DOWNLOAD
from playground.telegram_files import download
from playground.telegram_http import (
    HungUp,
    answer_fault,
    answer_refusal,
    answer_result,
    answer_updates,
    parameters,
)
from playground.telegram_methods import METHODS, World
from playground.telegram_updates import Update

WEBHOOK_ACTIVE = (
    "Conflict: can't use getUpdates method while webhook is active; "
    "use deleteWebhook to delete the webhook first"
)


@dataclass(frozen=True, slots=True)
class Call:
    """One request of the bot.

    `status` is that of HTTP, None while unanswered, 0 when the connection broke.
    """

    method: str
    params: Json
    at: float  # when it arrived, by the monotonic clock of the stand-in
    status: int | None = None


class Server:
    """`app` serves `/bot<token>/<method>` and `/file/bot<token>/<path>`.

    `calls` are in the order of their arrival.
    """

    def __init__(self, token: str, world: World, faults: Faults) -> None:
        self.token = token
        self.knows: frozenset[str] | None = None  # methods, in lower case; None: all
        self.calls: list[Call] = []
        self.app = Starlette(
            routes=[
                Route("/bot{token}/{method}", self._answer, methods=["GET", "POST"]),
                Route("/file/bot{token}/{path:path}", self._download, methods=["GET"]),
            ]
        )
        self._world = world
        self._faults = faults

    async def _answer(self, request: Request) -> Response:
        call = Call(request.path_params["method"], {}, self._world.monotonic())
        number = len(self.calls)
        self.calls.append(call)
        self._world.tell("called", {"method": call.method})
        try:
            given = await parameters(request)
            call = self.calls[number] = replace(call, params=given)
            response = await self._faulty(request, call.method.lower(), given)
        except Refused as refused:
            response = answer_refusal(refused)
        status = 0 if isinstance(response, HungUp) else response.status_code
        if status:
            response.headers["Date"] = formatdate(self._world.clock(), usegmt=True)
        call = self.calls[number] = replace(call, status=status)
        details = {"method": call.method, "params": call.params, "status": status}
        self._world.tell("returned", details)
        return response

    async def _download(self, request: Request) -> Response:
        call = Call(DOWNLOAD, {"path": request.path_params["path"]}, self._world.monotonic())
        number = len(self.calls)
        self.calls.append(call)
        if request.path_params["token"] == self.token:
            response = await download(request, self._world.files, self._faults)
        else:
            response = answer_refusal(Refused(401, "Unauthorized"))
        status = 0 if isinstance(response, HungUp) else response.status_code
        self.calls[number] = replace(call, status=status)
        self._world.tell("returned", {"method": DOWNLOAD, "params": call.params, "status": status})
        return response

    async def _faulty(self, request: Request, method: str, given: Json) -> Response:
        if request.path_params["token"] != self.token:
            raise Refused(401, "Unauthorized")
        if method not in METHODS and method != "getupdates":
            raise Refused(404, "Not Found")
        if self.knows is not None and method not in self.knows:
            raise Refused(404, "Not Found: method not found")
        rule = self._faults.strike(method, given.get("chat_id"))
        fault = None if rule is None else rule.fault
        if fault is not None:
            self._world.tell("fault", {"method": method, "fault": fault})
        match fault:
            case Answer():
                return answer_fault(fault)
            case ResetBefore():
                return HungUp()
            case GarbageBody(text, done=False):
                return Response(text, media_type="application/json")
            case Delay(seconds, before=True):
                await asyncio.sleep(seconds)
        try:
            response, batch = await self._done(request, method, given)
        except Refused as refused:
            response, batch = answer_refusal(refused), []
        match fault:
            case Delay(seconds, before=False):
                await asyncio.sleep(seconds)
            case ResetAfter():
                return HungUp()
            case GarbageBody(text):
                return Response(text, media_type="application/json")
            case DeliverTwice() if batch:
                self._world.updates.redeliver([update.id for update in batch])
            case DeliverTwice() if rule is not None:
                rule.hits -= 1  # there was nothing to deliver twice: it waits for the next call
        self._world.updates.note_delivered(batch)
        return response

    async def _done(
        self, request: Request, method: str, given: Json
    ) -> tuple[Response, list[Update]]:
        if method != "getupdates":
            return answer_result(METHODS[method](self._world, given)), []
        updates = self._world.updates
        if self._world.webhook.url:
            raise Refused(409, WEBHOOK_ACTIVE)
        updates.allow(given.get("allowed_updates"))
        offset, limit, timeout = (
            value if isinstance(value := given.get(name), int) else default
            for name, default in (("offset", 0), ("limit", 100), ("timeout", 0))
        )
        batch = await _while_connected(request, updates.get(offset, limit, timeout))
        if batch is None:
            return HungUp(), []
        return answer_updates([update.text for update in batch]), batch


async def _while_connected(
    request: Request, work: Coroutine[object, object, list[Update]]
) -> list[Update] | None:
    """The result of `work`, or None when the client left before: its poll must not go on."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        leaving.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
