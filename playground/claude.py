"""A stand-in for Claude: a real HTTP server with the Messages API, for the unmodified SDK.

    async with Claude() as claude:
        client = anthropic.AsyncAnthropic(base_url=claude.url, api_key="any")
        claude.script(Fail(529, "overloaded_error"), Say("Hello."))

Requests are checked as strictly as by the real service, then answered by the next scripted answer
or, when there is none, by `brain`. Every key is good but the key "wrong", every model that begins
with "claude-" exists but "claude-retired". It is not a proxy, calls nobody, and knows nothing but
the request at hand. `python -m playground.claude` runs it alone.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from playground import claude_brain, claude_compaction
from playground.claude_answers import Answer, Compacted, Fail, Pause, Say, UseTools
from playground.claude_blocks import Invalid
from playground.claude_play import Played
from playground.claude_rules import check, check_betas
from playground.claude_usage import Cache, prompt_of
from playground.claude_wire import Head, Json, error_body, streamed, tokens, whole
from playground.serve import serving

Brain = Callable[[Json], Answer]

LARGEST_REQUEST = 32 * 1024 * 1024
MODELS = {
    "claude-opus-5-5": "Claude Opus 5.5",
    "claude-sonnet-5-5": "Claude Sonnet 5.5",
    "claude-haiku-5-5": "Claude Haiku 5.5",
}


@dataclass(frozen=True)
class Asked:
    """A request, and what it gets. `usage` counts its input, in tokens, as the answer will."""

    number: int
    body: Json
    usage: Mapping[str, int]
    answer: Answer


class Claude:
    """One stand-in. `pace` is the time in seconds before each streamed piece of an answer."""

    def __init__(
        self,
        *,
        pace: float = 0.0,
        host: str = "127.0.0.1",
        port: int = 0,
        context_tokens: int = 1_000_000,
        keep: int | None = None,
    ) -> None:
        self.pace = pace
        self.brain: Brain = claude_brain.answer
        # The bodies of all message requests with a good key that were JSON, refused ones included,
        # oldest first, and the headers of each (names in lower case); only the last `keep` of them.
        self.requests: list[Json] = []
        self.headers: list[dict[str, str]] = []
        # The answers still to be given; a refused request uses none.
        self.scripted: deque[Answer] = deque()
        # Called with each request that was found good, as it is about to be answered.
        self.listeners: list[Callable[[Asked], None]] = []
        self.app = Starlette(
            routes=[
                Route("/v1/messages", self._messages, methods=["POST"]),
                Route("/v1/messages/count_tokens", self._count_tokens, methods=["POST"]),
                Route("/v1/models", self._models),
                Route("/v1/models/{model_id}", self._model),
            ],
            exception_handlers={HTTPException: _http_error, _Refused: _refused},
        )
        self._host = host
        self._port = port
        self._context_tokens = context_tokens
        self._keep = keep
        self._received = 0
        self._cache = Cache()
        self._paused: set[str] = set()
        self._url: str | None = None
        self._stack = AsyncExitStack()

    @property
    def url(self) -> str:
        """The base URL for the client. Only inside `async with`; else `RuntimeError`."""
        if self._url is None:
            raise RuntimeError("the stand-in for Claude has an address only inside `async with`")
        return self._url

    def script(self, *answers: Answer) -> None:
        """Queue answers: each is used for one request, in order; after them the brain is back."""
        self.scripted.extend(answers)

    async def __aenter__(self) -> Self:
        server = serving(self.app, host=self._host, port=self._port)
        self._url = await self._stack.enter_async_context(server)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._url = None
        await self._stack.aclose()

    async def _messages(self, request: Request) -> Response:
        body = await self._accept(request)
        self._received += 1
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        if self._keep is not None:
            del self.requests[: -self._keep], self.headers[: -self._keep]
        prompt = self._check(body, request.headers.get("anthropic-beta", ""))
        seen = claude_compaction.read(body)
        head = Head(
            message_id=f"msg_{_digest(f'{prompt}/{self._received}')}",
            request_id=f"req_{_digest(f'{self._received}')}",
            model=body["model"],
            usage=self._cache.usage(seen, prompt),
            hide_thinking=(body.get("thinking") or {}).get("display") == "omitted",
        )
        answer = self.scripted.popleft() if self.scripted else self._think(seen)
        if claude_compaction.due(body, tokens(prompt)) and isinstance(answer, Say | UseTools):
            answer = Compacted(claude_compaction.summary(seen), answer)
        if isinstance(answer, Pause):
            self._paused.add(answer.text)
        asked = Asked(self._received, body, head.usage, answer)
        for listener in self.listeners:
            listener(asked)
        if body.get("stream"):
            return Played(streamed(answer, head, self.pace), head.request_id)
        return Played(whole(answer, head), head.request_id)

    def _think(self, body: Json) -> Answer:
        # No token at all may be asked for, to warm the cache.
        return self.brain(body) if body["max_tokens"] else Say("", "max_tokens", deltas=())

    async def _count_tokens(self, request: Request) -> Response:
        body = await self._accept(request)
        betas = request.headers.get("anthropic-beta", "")
        prompt = self._check({"max_tokens": 1, **body}, betas)
        return JSONResponse({"input_tokens": tokens(prompt)})

    async def _models(self, request: Request) -> Response:
        _check_key(request)
        data = [_model_info(model_id) for model_id in MODELS]
        ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]}
        return JSONResponse({"data": data, "has_more": False, **ends})

    async def _model(self, request: Request) -> Response:
        _check_key(request)
        model_id: str = request.path_params["model_id"]
        _check_model(model_id)
        return JSONResponse(_model_info(model_id))

    async def _accept(self, request: Request) -> Json:
        """The parsed body, from a client with a good key."""
        _check_key(request)
        raw = await request.body()
        if len(raw) > LARGEST_REQUEST:
            raise _Refused(Fail(413, "request_too_large"))
        if "anthropic-version" not in request.headers:
            raise _invalid("anthropic-version: header is required")
        try:
            body = json.loads(raw)
        except ValueError as error:
            raise _invalid(f"The request body is not valid JSON: {error}") from None
        if not isinstance(body, dict):
            raise _invalid("The request body must be a JSON object.")
        return body

    def _check(self, body: Json, betas: str) -> str:
        """The request as one text, as the model would read it, if there is nothing wrong."""
        try:
            check(body, self._paused)
            check_betas(body, betas)
        except Invalid as error:
            raise _invalid(str(error)) from None
        _check_model(body["model"])
        prompt = prompt_of(claude_compaction.read(body))
        if tokens(prompt) > self._context_tokens:
            raise _invalid(
                f"prompt is too long: {tokens(prompt)} tokens > {self._context_tokens} maximum"
            )
        try:
            prompt.encode()
        except UnicodeEncodeError:
            raise _invalid("The request body is not valid JSON: lone surrogate") from None
        return prompt


class _Refused(Exception):
    def __init__(self, fail: Fail) -> None:
        super().__init__(fail.message)
        self.fail = fail


def _invalid(message: str) -> _Refused:
    return _Refused(Fail(400, "invalid_request_error", message))


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, _Refused)
    return _error(error.fail)


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    type = "not_found_error" if error.status_code == 404 else "invalid_request_error"
    return _error(Fail(error.status_code, type, str(error.detail)))


def _error(fail: Fail) -> Response:
    request_id = f"req_{_digest(fail.message)}"
    body = error_body(fail.type, fail.message, request_id)
    return JSONResponse(body, status_code=fail.status, headers={"request-id": request_id})


def _check_key(request: Request) -> None:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        key = request.headers.get("x-api-key", "")  # the way of older clients, still accepted
    if not key.strip():
        raise _Refused(Fail(401, "authentication_error", "Authorization header is required"))
    if key.strip() == "wrong":
        raise _Refused(Fail(401, "authentication_error", "invalid API key"))


def _check_model(model_id: str) -> None:
    if not model_id.startswith("claude-") or model_id == "claude-retired":
        raise _Refused(Fail(404, "not_found_error", f"model: {model_id}"))


def _model_info(model_id: str) -> Json:
    return {
        "type": "model",
        "id": model_id,
        "display_name": MODELS.get(model_id, model_id),
        "created_at": "2026-01-01T00:00:00Z",
        "lifecycle": "active",
        "max_input_tokens": 1_000_000,
        "max_tokens": 128_000,
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m playground.claude",
        description="A local stand-in for Claude's Messages API. Every key works but 'wrong'.",
    )
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--pace", type=float, default=0.02, help="seconds per word (0.02)")
    options = parser.parse_args(arguments)
    asyncio.run(_alone(options.port, options.pace))


async def _alone(port: int, pace: float) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Claude(port=port, pace=pace, keep=100) as claude:
        print(claude.url, flush=True)
        await stop.wait()


if __name__ == "__main__":
    main()
