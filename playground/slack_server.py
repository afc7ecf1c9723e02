"""The HTTP server of the Web API: finds token and method, lets the faults strike, keeps the record
of calls."""

import asyncio

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from playground.slack_calls import Calls
from playground.slack_chats import Json, Refused
from playground.slack_doors import Doors
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
    client_of,
    parameters,
    token_of,
)
from playground.slack_limits import Limits
from playground.slack_methods import METHODS, Method
from playground.slack_world import Grant, World


class Server:
    """`app` serves `/api/<method>`. `calls` are in the order of their arrival."""

    def __init__(self, world: World, faults: Faults, limits: Limits) -> None:
        self.calls = Calls()
        doors = Doors(world, faults, self.calls)
        self.app = Starlette(
            routes=[
                Route("/api/{method}", self._answer, methods=["GET", "POST"]),
                *doors.routes(),
            ]
        )
        self._world = world
        self._faults = faults
        self._limits = limits

    async def _answer(self, request: Request) -> Response:
        name = request.path_params["method"]
        number = self.calls.begin(name)
        self._world.tell("called", {"method": name})
        error: str | None = None
        try:
            given = await parameters(request)
            client_of(request, given)
            token = token_of(request, given)
            grant = self._world.grants.get(token)
            self.calls.read(number, given, grant.team if grant else None)
            response, error = await self._faulty(name, token, grant, given)
        except Refused as refused:
            response, error = answer_refusal(refused), refused.error
        call = self.calls.end(number, response, error)
        details = {"method": name, "params": call.params, "status": call.status, "error": error}
        self._world.tell("returned", details)
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
            self._limits.count(name, method.tier, grant.team, given)
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
