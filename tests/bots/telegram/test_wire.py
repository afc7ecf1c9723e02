"""The HTTP client below python-telegram-bot, on sockets: what leaves, and what an error says."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator

import aiohttp
import pytest
from telegram import InputFile
from telegram.error import BadRequest, NetworkError, TimedOut
from telegram.request import BaseRequest, HTTPXRequest, RequestData
from telegram.request._requestparameter import RequestParameter

from bots.telegram.wire import Request, bot_at
from playground.telegram import Telegram

SECRET = "8:secret"


@pytest.fixture
async def request_() -> AsyncIterator[Request]:
    request = Request(connections=2, timeout=1, pool_timeout=1)
    yield request
    await request.shutdown()


async def deaf_until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


def form(**values: object) -> RequestData:
    return RequestData([RequestParameter.from_input(name, each) for name, each in values.items()])


class _Heard:
    """Answers each request with `{}`, and keeps what it was."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            self.heads.append(head.partition(b"\r\n\r\n")[0].lower())
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            self.bodies.append(await reader.readexactly(length))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            break
        await writer.drain()
        writer.close()


async def sent_by(request: BaseRequest, data: RequestData) -> tuple[bytes, bytes]:
    heard = _Heard()
    async with await asyncio.start_server(heard, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}/bot{SECRET}/sendMessage"
        assert await request.do_request(url, "POST", data) == (200, b"{}")
    return heard.heads[0], heard.bodies[0]


async def test_it_sends_what_ptbs_own_client_sends(request_: Request) -> None:
    data = form(chat_id=5, text="a & b = ö\n", entities=[{"type": "bold"}], empty=None)
    head, body = await sent_by(request_, data)
    async with HTTPXRequest() as other:
        other_head, other_body = await sent_by(other, data)
    assert body == other_body
    for line in (b"content-type: application/x-www-form-urlencoded", b"user-agent: "):
        assert line in head and line in other_head


async def test_files_leave_as_parts_of_a_form(request_: Request) -> None:
    file = InputFile(io.BytesIO(b"bytes of it"), filename="a.txt", attach=True)
    head, body = await sent_by(request_, form(chat_id=5, document=file))
    assert b"content-type: multipart/form-data; boundary=" in head
    assert b'name="chat_id"' in body and b"bytes of it" in body
    assert b'filename="a.txt"' in body and b"text/plain" in body


@pytest.mark.parametrize("past", [False, True])
async def test_the_environment_names_the_proxy(
    request_: Request, monkeypatch: pytest.MonkeyPatch, past: bool
) -> None:
    heard, proxied = _Heard(), _Heard()
    async with (
        await asyncio.start_server(heard, "127.0.0.1", 0) as server,
        await asyncio.start_server(proxied, "127.0.0.1", 0) as proxy,
    ):
        port = server.sockets[0].getsockname()[1]
        at = proxy.sockets[0].getsockname()[1]
        for name, value in (
            ("http_proxy", f"http://name:word@127.0.0.1:{at}"),
            ("no_proxy", "127.0.0.1" if past else ""),
        ):
            monkeypatch.setenv(name, value)
        url = f"http://127.0.0.1:{port}/bot{SECRET}/getMe"
        assert await request_.do_request(url, "POST", form(a=1)) == (200, b"{}")
    assert (len(heard.heads), len(proxied.heads)) == ((1, 0) if past else (0, 1))
    for head in proxied.heads:
        assert head.startswith(f"post http://127.0.0.1:{port}/bot".encode())
        assert b"proxy-authorization: basic" in head


async def test_no_error_holds_the_address() -> None:
    request = Request(connections=1, timeout=0.1, pool_timeout=0.1)
    async with await asyncio.start_server(deaf_until_closed, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(TimedOut) as silence:
            await request.do_request(f"http://127.0.0.1:{port}/bot{SECRET}/getMe", "POST")
        assert isinstance(silence.value.__cause__, aiohttp.SocketTimeoutError)
        # The one connection is taken: nothing of the second request has left.
        url = f"http://127.0.0.1:{port}/bot{SECRET}/getMe"
        first = asyncio.create_task(request.do_request(url, "POST", read_timeout=5))
        await asyncio.sleep(0.05)
        with pytest.raises(TimedOut) as full:
            await request.do_request(url, "POST", connect_timeout=0.1)
        assert isinstance(full.value.__cause__, aiohttp.ConnectionTimeoutError)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await request.shutdown()
    request = Request(connections=1, pool_timeout=1)
    with pytest.raises(NetworkError) as refused:
        await request.do_request(f"http://127.0.0.1:{port}/bot{SECRET}/getMe", "POST")
    assert isinstance(refused.value.__cause__, aiohttp.ClientConnectorError)
    await request.shutdown()
    for error in (silence.value, full.value, refused.value):
        assert SECRET not in f"{error} {error.__cause__}"


async def test_after_hanging_up_nothing_leaves_until_it_is_initialized() -> None:
    async with Telegram() as telegram:
        bot, wire = bot_at(telegram.url, telegram.token, timeout=5)
        alice = telegram.person("Alice")
        sent = await bot.send_message(alice.id, "hello", read_timeout=None, connect_timeout=None)
        assert sent.text == "hello"
        with pytest.raises(BadRequest):
            await bot.send_message(alice.id, "")
        await bot.request.shutdown()
        with pytest.raises(NetworkError, match="hung up"):
            await bot.send_message(alice.id, "hello")
        await bot.request.initialize()
        assert (await bot.send_message(alice.id, "again")).text == "again"
        assert bot.request.read_timeout == 5
        await bot.request.shutdown()
        await wire.shutdown()
