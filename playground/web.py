"""The page: what it is made of, the feed, and what a person does on it.

Everything lies under a path that begins with a token, so that whoever does not have the URL gets
404 for all of it. It serves this machine only, fetches nothing from elsewhere, and asks the
stand-ins and the bot's process to do things; it never looks into the bot.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from playground.acting import Acting, OnSlack, OnTelegram, picture
from playground.lab import Lab
from playground.show import Show

Json = dict[str, Any]

FOLDER: Final = Path(__file__).parent / "page"
LARGEST_BODY: Final = 32 << 20
HISTORY: Final = 150
PEOPLE_DO: Final = frozenset({"say", "edit", "press", "stop"})

# Nothing but what we serve ourselves; pictures may also be what a person has just chosen.
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        "media-src 'self' blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Web:
    """
    :param token: the first part of every path
    :param real: the variables with which the bot asks the real model; None: there is no key
    """

    def __init__(self, lab: Lab, show: Show, token: str, real: Mapping[str, str] | None) -> None:
        self._lab = lab
        self._show = show
        self._token = token
        self._real = real
        self._restarting = asyncio.Lock()
        self._acting: dict[str, Acting] = {
            "telegram": OnTelegram(lab.telegram, show.say_message),
            "slack": OnSlack(lab.slack, show.say_on_slack),
        }
        here = "/{token}"
        self.app: ASGIApp = Starlette(
            routes=[
                Route(f"{here}/", self._of(self._index)),
                Route(f"{here}/events", self._of(self._events)),
                Route(f"{here}/history", self._of(self._history)),
                Route(f"{here}/request/{{number:int}}", self._of(self._request)),
                Route(f"{here}/file/{{platform}}/{{chat}}/{{message}}", self._of(self._file)),
                Route(f"{here}/do/{{what}}", self._of(self._do), methods=["POST"]),
                Route(f"{here}/{{name}}", self._of(self._static)),
            ],
            middleware=[
                # A name of somebody's that leads to this machine is not us.
                Middleware(
                    TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]"]
                ),
                Middleware(_Headers),
            ],
        )

    def _of(
        self, answer: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            given = str(request.path_params["token"]).encode()
            if not hmac.compare_digest(given, self._token.encode()):
                raise HTTPException(404)
            return await answer(request)

        return guarded

    async def _index(self, _: Request) -> Response:
        return FileResponse(FOLDER / "index.html")

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        file = FOLDER / name
        if file.suffix not in (".js", ".css", ".svg") or file.parent != FOLDER:
            raise HTTPException(404)
        if not file.is_file():
            raise HTTPException(404)
        return FileResponse(file)

    async def _events(self, _: Request) -> Response:
        stream = self._show.feed.read(self._show.first)
        return StreamingResponse(stream, media_type="text/event-stream")

    async def _history(self, request: Request) -> Response:
        query = dict(request.query_params)
        try:
            found = self._acting[query.get("platform", "telegram")].history(query, HISTORY)
        except (KeyError, ValueError):
            raise HTTPException(404) from None
        return JSONResponse(found)

    async def _request(self, request: Request) -> Response:
        wanted = request.path_params["number"]
        for number, body in self._show.requests:
            if number == wanted:
                return JSONResponse(body)
        raise HTTPException(404)

    async def _file(self, request: Request) -> Response:
        given = request.path_params
        try:
            data = self._acting[given["platform"]].file(given["chat"], given["message"])
        except (KeyError, ValueError):
            raise HTTPException(404) from None
        kind = picture(data)
        # Whatever it is, the browser saves it; only what is surely a picture is shown.
        headers = {} if kind else {"content-disposition": "attachment"}
        return Response(data, media_type=kind or "application/octet-stream", headers=headers)

    async def _do(self, request: Request) -> Response:
        actions: dict[str, Callable[[Json], Awaitable[None]]] = {
            "kill": self._kill,
            "start": self._start,
            "trouble": self._trouble,
            "model": self._model,
        }
        what, given = request.path_params["what"], await _body(request)
        try:
            if what in PEOPLE_DO:
                getattr(self._acting[given.get("platform", "telegram")], what)(given)
            elif what in actions:
                await actions[what](given)
            else:
                raise HTTPException(404)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            text = error.args[0] if error.args else type(error).__name__
            return JSONResponse({"error": str(text)}, 400)
        return JSONResponse({})

    # What is done to the bot

    async def _kill(self, _: Json) -> None:
        async with self._restarting:
            await self._lab.bot.kill()
            self._show.say_bot()
            # Long enough to be seen.
            await asyncio.sleep(0.6)
            await self._lab.bot.start()

    async def _start(self, _: Json) -> None:
        async with self._restarting:
            if self._lab.bot.pid is None:
                await self._lab.bot.start()

    async def _trouble(self, given: Json) -> None:
        if given["on"]:
            self._lab.troubles.set(given["name"])
        else:
            self._lab.troubles.clear(given["name"])

    async def _model(self, given: Json) -> None:
        real = given["which"] == "real"
        if real and self._real is None:
            raise ValueError("set ANTHROPIC_API_KEY and start the playground again")
        async with self._restarting:
            self._lab.real_model = dict(self._real) if real and self._real else None
            await self._lab.bot.stop()
            await self._lab.bot.start()


class _Headers:
    """Puts our headers on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.encode(), value.encode())
                        for name, value in HEADERS.items()
                        if name.encode() not in given
                    ),
                ]
            await send(message)

        await self._app(scope, receive, with_headers)


async def _body(request: Request) -> Json:
    raw = bytearray()
    async for piece in request.stream():
        raw += piece
        if len(raw) > LARGEST_BODY:
            raise HTTPException(413)
    with contextlib.suppress(ValueError):
        body = json.loads(raw)
        if isinstance(body, dict):
            return body
    raise HTTPException(400)
