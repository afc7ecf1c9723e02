"""A stand-in for a server of Chat Completions: a real HTTP server for the unmodified openai SDK.

    async with OpenAI() as server:
        client = openai.AsyncOpenAI(base_url=server.url, api_key="any")
        server.script(Fail(429, "rate_limit_exceeded"), Say("Hello."))

Requests are checked by the rules that a client most easily breaks (every call has its result, every
result its call), then answered by the next scripted answer or, when there is none, by what
the stand-in for Claude would say. Every key is good but the key "wrong", every model exists but
"gpt-retired". It only streams, and knows nothing but the request at hand.
`python -m playground.openai` runs it alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from playground import claude_brain
from playground.claude_answers import Answer, Fail
from playground.claude_play import Played
from playground.openai_wire import Json, error_body, streamed
from playground.serve import serving

BOUNDS = ("max_completion_tokens", "max_tokens")


class OpenAI:
    """One stand-in. `pace` is the time in seconds before each streamed piece of an answer."""

    def __init__(self, *, pace: float = 0.0, host: str = "127.0.0.1", port: int = 0) -> None:
        self.pace = pace
        # The bodies of all requests with a good key that were JSON, oldest first, and the headers
        # of each (names in lower case).
        self.requests: list[Json] = []
        self.headers: list[dict[str, str]] = []
        # The answers still to be given; a refused request uses none.
        self.scripted: deque[Answer] = deque()
        self.app = Starlette(
            routes=[
                Route("/v1/chat/completions", self._completions, methods=["POST"]),
                Route("/v1/models", self._models),
            ],
            exception_handlers={_Refused: _refused},
        )
        self._host = host
        self._port = port
        self._url: str | None = None
        self._stack = AsyncExitStack()

    @property
    def url(self) -> str:
        """The base URL for the client. Only inside `async with`; else `RuntimeError`."""
        if self._url is None:
            raise RuntimeError("the stand-in for OpenAI has an address only inside `async with`")
        return f"{self._url}/v1"

    def script(self, *answers: Answer) -> None:
        """Queue answers: each is used for one request, in order."""
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

    async def _completions(self, request: Request) -> Response:
        _check_key(request)
        try:
            body = json.loads(await request.body())
        except ValueError:
            raise _invalid("We could not parse the JSON body of your request.") from None
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        check(body)
        _check_model(body["model"])
        answer = self.scripted.popleft() if self.scripted else claude_brain.answer(_plainly(body))
        number = len(self.requests)
        return Played(streamed(answer, body, number, self.pace), f"req_{number}")

    async def _models(self, request: Request) -> Response:
        _check_key(request)
        model = {"id": "gpt-playground", "object": "model", "created": 0, "owned_by": "here"}
        return JSONResponse({"object": "list", "data": [model]})


def check(body: Json) -> None:
    """What the service would refuse."""
    messages = body.get("messages")
    if not body.get("stream"):
        raise _invalid("this stand-in only streams")
    if not isinstance(messages, list) or not messages:
        raise _invalid("Invalid 'messages': empty array.")
    if sum(name in body for name in BOUNDS) != 1:
        raise _invalid("want one bound of the answer")
    waiting: list[str] = []
    for message in messages:
        role = message.get("role")
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                raise _invalid("messages with role 'tool' must follow a message with 'tool_calls'.")
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            raise _invalid(
                "An assistant message with 'tool_calls' must be followed by tool messages "
                f"responding to each 'tool_call_id'. Missing: {', '.join(waiting)}"
            )
        if role not in ("system", "developer", "user", "assistant"):
            raise _invalid(f"Invalid value: {role!r}.")
        if not message.get("content") and not message.get("tool_calls"):
            raise _invalid("Invalid value for 'content': expected a string, got null.")
        waiting = [call["id"] for call in message.get("tool_calls", ())]
    if waiting:
        raise _invalid("the last calls have no results")
    for tool in body.get("tools", ()):
        if tool.get("type") != "function" or "name" not in tool.get("function", {}):
            raise _invalid("Missing required parameter: 'tools[0].function'.")


def _plainly(body: Json) -> Json:
    """The request as `claude_brain` reads it."""
    return {
        "max_tokens": next(body[name] for name in BOUNDS if name in body),
        "tools": [tool["function"] for tool in body.get("tools", ())],
        "tool_choice": {"type": body.get("tool_choice", "auto")},
        "messages": [_message(each) for each in body["messages"] if each["role"] != "system"],
    }


def _message(message: Json) -> Json:
    if message["role"] == "tool":
        result = {"type": "tool_result", "content": message["content"]}
        return {"role": "user", "content": [result]}
    return {"role": message["role"], "content": message.get("content") or ""}


class _Refused(Exception):
    def __init__(self, fail: Fail) -> None:
        super().__init__(fail.message)
        self.fail = fail


def _invalid(message: str) -> _Refused:
    return _Refused(Fail(400, "invalid_value", message))


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, _Refused)
    return JSONResponse(error_body(error.fail), status_code=error.fail.status)


def _check_key(request: Request) -> None:
    key = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
    if not key or key == "wrong":
        raise _Refused(Fail(401, "invalid_api_key", f"Incorrect API key provided: {key}."))


def _check_model(model_id: str) -> None:
    if model_id == "gpt-retired":
        sentence = f"The model `{model_id}` does not exist or you do not have access to it."
        raise _Refused(Fail(404, "model_not_found", sentence))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m playground.openai",
        description="A local stand-in for Chat Completions. Every key works but 'wrong'.",
    )
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--pace", type=float, default=0.02, help="seconds per word (0.02)")
    options = parser.parse_args(arguments)
    asyncio.run(_alone(options.port, options.pace))


async def _alone(port: int, pace: float) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with OpenAI(port=port, pace=pace) as server:
        print(server.url, flush=True)
        await stop.wait()


if __name__ == "__main__":
    main()
