"""The HTTP server of the Web API: finds token and method, lets the faults strike, keeps the record
of calls."""

import asyncio
import time
from dataclasses import dataclass, replace

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from playground.slack_actions import respond
from playground.slack_chats import Json, Refused
from playground.slack_faults import (
    Answer,
    Delay,
    Error,
    Faults,
    GarbageBody,
    ResetAfter,
    ResetBefore,
)
from playground.slack_http import (
    HungUp,
    answer_fault,
    answer_refusal,
    answer_result,
    parameters,
    token_of,
)
from playground.slack_methods import METHODS, Method
from playground.slack_world import Grant, World


@dataclass(frozen=True, slots=True)
class Call:
    """One request of the bot.

    `status` is that of HTTP, None while unanswered, 0 when the connection broke; `error` is Slack's
    code when the answer was one.
    """

    method: str
    params: Json
    at: float  # time.monotonic() of its arrival
    team: str | None = None
    status: int | None = None
    error: str | None = None


class Server:
    """`app` serves `/api/<method>`. `calls` are in the order of their arrival."""

    def __init__(self, world: World, faults: Faults) -> None:
        self.calls: list[Call] = []
        self.app = Starlette(
            routes=[
                Route("/api/{method}", self._answer, methods=["GET", "POST"]),
                *(
                    Route(f"/{kind}/{{team}}/{{number}}/{{secret}}", self._hooked, methods=["POST"])
                    for kind in ("commands", "actions", "app")
                ),
            ]
        )
        self._world = world
        self._faults = faults

    async def _answer(self, request: Request) -> Response:
        name = request.path_params["method"]
        number = len(self.calls)
        self.calls.append(Call(name, {}, time.monotonic()))
        self._world.tell("called", {"method": name})
        error: str | None = None
        try:
            given = await parameters(request)
            token = token_of(request, given)
            grant = self._world.grants.get(token)
            team = grant.team if grant else None
            self.calls[number] = replace(self.calls[number], params=given, team=team)
            response, error = await self._faulty(name, token, grant, given)
        except Refused as refused:
            response, error = answer_refusal(refused), refused.error
        status = 0 if isinstance(response, HungUp) else response.status_code
        call = self.calls[number] = replace(self.calls[number], status=status, error=error)
        details = {"method": name, "params": call.params, "status": status, "error": error}
        self._world.tell("returned", details)
        return response

    async def _hooked(self, request: Request) -> Response:
        """An answer by a response_url."""
        number = len(self.calls)
        self.calls.append(Call("response_url", {}, time.monotonic()))
        response: Response = PlainTextResponse("ok")
        error: str | None = None
        try:
            given = await parameters(request)
            self.calls[number] = replace(self.calls[number], params=given)
            hook = self._world.hooks.get(request.url.path)
            if hook is None:
                raise Refused("invalid_url", 404)
            rule = self._faults.strike("response_url", hook.channel)
            fault = None if rule is None else rule.fault
            match fault:
                case Answer():
                    response = answer_fault(fault)
                case ResetBefore():
                    response = HungUp()
                case _:
                    respond(self._world, hook, given)
            match fault:
                case ResetAfter():
                    response = HungUp()
                case Delay(seconds):
                    await asyncio.sleep(seconds)
        except Refused as refused:
            response, error = PlainTextResponse(refused.error, refused.status), refused.error
        status = 0 if isinstance(response, HungUp) else response.status_code
        self.calls[number] = replace(self.calls[number], status=status, error=error)
        return response

    async def _faulty(
        self, name: str, token: str, grant: Grant | None, given: Json
    ) -> tuple[Response, str | None]:
        rule = self._faults.strike(name.lower(), given.get("channel", given.get("channel_id")))
        fault = None if rule is None else rule.fault
        if fault is not None:
            self._world.tell("fault", {"method": name, "fault": fault})
        match fault:
            case Answer():
                return answer_fault(fault), fault.description
            case Error(error):
                raise Refused(error)
            case ResetBefore():
                return HungUp(), None
            case GarbageBody(text, done=False):
                return Response(text, media_type="application/json"), None
            case Delay(seconds, before=True):
                await asyncio.sleep(seconds)
        response, refusal = self._done(name, token, grant, given)
        match fault:
            case Delay(seconds, before=False):
                await asyncio.sleep(seconds)
            case ResetAfter():
                return HungUp(), refusal
            case GarbageBody(text):
                return Response(text, media_type="application/json"), refusal
        return response, refusal

    def _done(
        self, name: str, token: str, grant: Grant | None, given: Json
    ) -> tuple[Response, str | None]:
        headers: dict[str, str] = {}
        try:
            method = METHODS.get(name)
            if method is None:
                raise Refused("unknown_method", req_method=name)
            grant = self._allowed(method, token, grant)
            if grant.scopes is not None:
                headers["x-oauth-scopes"] = ",".join(sorted(grant.scopes))
            return answer_result(method.run(self._world, grant, given), headers), None
        except Refused as refused:
            return answer_refusal(refused, headers), refused.error

    def _allowed(self, method: Method, token: str, grant: Grant | None) -> Grant:
        if method.kind is None:
            return grant or Grant("", "none")
        if not token:
            raise Refused("not_authed")
        if grant is None:
            raise Refused("invalid_auth")
        if grant.dead is not None:
            raise Refused(grant.dead)
        if grant.expires is not None and grant.expires <= self._world.clock():
            raise Refused("token_expired")
        if method.kind not in ("any", grant.kind):
            raise Refused("not_allowed_token_type")
        return grant
