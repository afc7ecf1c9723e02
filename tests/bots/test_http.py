"""Our own port: what is served, what is refused, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from bots import http
from bots.http import BadBody, app_of, body_of, listen, serve
from core.errors import ConfigError
from tests.core.fakes import settle


@asynccontextmanager
async def serving(*routes: BaseRoute) -> AsyncIterator[str]:
    with listen("127.0.0.1", 0) as listener:
        task = asyncio.create_task(serve(app_of(routes), listener))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            task.cancel()
            await asyncio.wait([task], timeout=8)
            assert task.cancelled()


async def length(request: Request) -> Response:
    try:
        return PlainTextResponse(str(len(await body_of(request, 1_000))))
    except BadBody as error:
        return Response(status_code=error.status)


ECHO = Route("/length", length, methods=["POST"])


async def pieces(*sizes: int) -> AsyncIterator[bytes]:
    for size in sizes:
        yield b"x" * size


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 200),
        (b"x" * 1_000, 200),
        (b"x" * 1_001, 413),
        ((600, 400), 200),
        ((600, 401), 413),
    ],
)
async def test_a_body_and_its_limit(body: bytes | Sequence[int], status: int) -> None:
    data = body if isinstance(body, bytes) else pieces(*body)
    async with serving(ECHO) as url, aiohttp.ClientSession() as session:
        async with session.post(f"{url}/length", data=data) as answer:
            assert answer.status == status
            if status == 200:
                size = len(body) if isinstance(body, bytes) else sum(body)
                assert await answer.text() == str(size)


async def test_a_length_that_lies_is_believed_when_it_is_too_large() -> None:
    async with serving(ECHO) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999\r\n\r\n")
        assert b" 413 " in await asyncio.wait_for(reader.readline(), 5)
        writer.close()
        await writer.wait_closed()


async def test_a_body_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BODY_SECONDS", 0.05)
    async with serving(ECHO) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab")
        assert b" 408 " in await asyncio.wait_for(reader.readline(), 5)
        writer.close()
        await writer.wait_closed()


async def test_it_says_nothing_about_itself() -> None:
    async with serving(ECHO) as url, aiohttp.ClientSession() as session:
        async with session.get(f"{url}/nothing") as answer:
            assert answer.status == 404
            assert "Server" not in answer.headers


async def test_who_goes_away_is_no_error_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    heard = asyncio.Event()
    left = asyncio.Event()

    async def slow(request: Request) -> Response:
        heard.set()
        try:
            return PlainTextResponse(await body_of(request))
        finally:
            left.set()

    async with serving(Route("/slow", slow, methods=["POST"])) as url:
        _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab")
        await asyncio.wait_for(heard.wait(), 5)
        writer.close()
        await writer.wait_closed()
        await asyncio.wait_for(left.wait(), 5)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_what_is_under_way_comes_to_its_end() -> None:
    heard, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> Response:
        heard.set()
        await go_on.wait()
        return PlainTextResponse("done")

    async with aiohttp.ClientSession() as session:
        async with serving(Route("/slow", slow)) as url:
            asking = asyncio.create_task(session.get(f"{url}/slow"))
            await asyncio.wait_for(heard.wait(), 5)
            asyncio.get_running_loop().call_later(0.05, go_on.set)
        answer = await asking
        assert await answer.text() == "done"
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(f"{url}/slow")


async def test_what_never_ends_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http, "GRACE_SECONDS", 0.05)
    heard = asyncio.Event()

    async def stuck(request: Request) -> Response:
        heard.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with aiohttp.ClientSession() as session:
        async with asyncio.timeout(3), serving(Route("/stuck", stuck)) as url:
            asking = asyncio.create_task(session.get(f"{url}/stuck"))
            await asyncio.wait_for(heard.wait(), 5)
        with pytest.raises(aiohttp.ClientError):
            await asking


@pytest.mark.parametrize("rounds", range(6))
async def test_it_may_end_while_it_begins(rounds: int) -> None:
    with listen("127.0.0.1", 0) as listener:
        task = asyncio.create_task(serve(app_of([ECHO]), listener))
        await settle(rounds)
        task.cancel()
        await asyncio.wait([task], timeout=5)
        assert task.cancelled()
        assert listener.fileno() == -1 or rounds == 0


async def test_the_signals_stay_ours() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    async with serving(ECHO):
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_port_in_use_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as caught:
            listen("127.0.0.1", port)
    said = str(caught.value)
    assert said == f"[http] 127.0.0.1:{port}: Address already in use; set another host or port"


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host", "::1%none"])
def test_a_host_that_is_not_ours(host: str) -> None:
    with pytest.raises(ConfigError, match=r"^\[http\] .*; set another host or port$"):
        listen(host, 0)
