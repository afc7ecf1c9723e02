"""What Slack serves beside its Web API: response_url, uploads, private files, and the page where
the app is installed. Errors are texts here, and faults strike by the names of slack_faults."""

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from playground.slack_actions import respond
from playground.slack_calls import Calls
from playground.slack_chats import Json, Refused
from playground.slack_faults import (
    Answer,
    Delay,
    Faults,
    GarbageBody,
    Redirect,
    ResetAfter,
    ResetBefore,
)
from playground.slack_files import LOGIN, readable, uploaded
from playground.slack_http import HungUp, answer_fault, parameters, token_of
from playground.slack_oauth import agreed, page
from playground.slack_world import World

Work = Callable[[], Awaitable[Response]]


class Doors:
    """The routes, and what happens behind each."""

    def __init__(self, world: World, faults: Faults, calls: Calls) -> None:
        self._world = world
        self._faults = faults
        self._calls = calls

    def routes(self) -> list[Route]:
        hooks = ("commands", "actions", "app")
        path = "/{team}/{number}/{secret}"
        return [
            *(Route(f"/{kind}{path}", self._hooked, methods=["POST"]) for kind in hooks),
            Route("/upload/v1/{ticket}", self._uploaded, methods=["POST"]),
            Route("/files-pri/{id}/download/{name}", self._downloaded, methods=["GET"]),
            Route("/files-pri/{id}/{name}", self._downloaded, methods=["GET"]),
            Route("/oauth/v2/authorize", self._authorize, methods=["GET"]),
        ]

    async def _hooked(self, request: Request) -> Response:
        hook = self._world.hooks.get(request.url.path)
        given = await parameters(request)

        async def work() -> Response:
            if hook is None:
                raise Refused("invalid_url", 404)
            respond(self._world, hook, given)
            return PlainTextResponse("ok")

        return await self._through("response_url", given, hook.channel if hook else None, work)

    async def _uploaded(self, request: Request) -> Response:
        ticket = request.path_params["ticket"]
        body = await request.body()
        if request.headers.get("content-type", "").startswith("multipart/form-data"):
            parts = [part for part in (await parameters(request)).values()]
            body = next((part[1] for part in parts if isinstance(part, tuple)), b"")

        async def work() -> Response:
            return PlainTextResponse(uploaded(self._world, ticket, body))

        return await self._through("files.upload", {"length": len(body)}, None, work)

    async def _downloaded(self, request: Request) -> Response:
        given: Json = {"id": request.path_params["id"], "name": request.path_params["name"]}
        token = token_of(request, {})

        async def work() -> Response:
            file = readable(self._world, given["id"], token)
            if file is None or file.data is None:
                team = given["id"].partition("-")[0]
                return HTMLResponse(LOGIN.format(self._world.teams[team].name))
            return Response(file.data, media_type=file.media_type)

        return await self._through("files.download", given, None, work)

    async def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        chosen = asked.pop("team", None)

        async def work() -> Response:
            team = self._world.teams.get(chosen or "")
            if team is None:
                return HTMLResponse(page(self._world, asked))
            user = next((u.id for u in team.people.values() if u != team.bot), "U0OWNER0000")
            return RedirectResponse(agreed(self._world, asked, team, user), 302)

        return await self._through("oauth.authorize", asked, None, work)

    async def _through(self, name: str, given: Json, channel: str | None, work: Work) -> Response:
        number = self._calls.begin(name)
        self._calls.read(number, given)
        rule = self._faults.strike(name, channel)
        fault = None if rule is None else rule.fault
        error: str | None = None
        response: Response
        match fault:
            case Answer():
                response = answer_fault(fault)
            case ResetBefore():
                response = HungUp()
            case Redirect(to):
                response = RedirectResponse(to, 302)
            case GarbageBody(text, done=False):
                response = HTMLResponse(text)
            case _:
                try:
                    response = await work()
                except Refused as refused:
                    response = PlainTextResponse(refused.error, refused.status)
                    error = refused.error
        match fault:
            case ResetAfter():
                response = HungUp()
            case Delay(seconds):
                await asyncio.sleep(seconds)
        call = self._calls.end(number, response, error)
        self._world.tell("returned", {"method": name, "status": call.status, "error": error})
        return response
