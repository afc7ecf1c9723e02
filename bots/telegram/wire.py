"""The HTTP client that python-telegram-bot's `Bot` sends its requests through, on aiohttp.

PTB's own, on httpx, looks at every connection of its pool for each request: with fifty chats at
once a message costs it several times the processor time of everything else in a turn. What an
answer means is PTB's affair as before (`BaseRequest.post`), but no answer is ever logged, and
getUpdates answers are kept as they came. What an error means for us is not decided here.
"""

from __future__ import annotations

import json
import re
from io import BytesIO
from typing import Any, Final
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx
from telegram import Bot
from telegram.error import NetworkError, TelegramError, TimedOut
from telegram.request import BaseRequest, RequestData

_NOTHING_CAME: Final = b'{"ok":true,"result":[]}'
CONNECT_SECONDS: Final = 10.0
PIECE: Final = 1 << 16
KEPT_SECONDS: Final = 5.0  # a connection without work; as httpx has it, which PTB comes with


class TooLong(Exception):
    """A file has more bytes than it may have."""


class Request(BaseRequest):
    """A pool of connections, opened with the first request.

    What PTB cannot read is not written to the log: such an answer may quote a message, or our
    address and with it the token. Nor does an error that leaves here hold the address.

    :param connections: at most
    :param timeout: seconds without a byte of an answer after which a request is given up
    :param pool_timeout: seconds to wait for one of the connections
    """

    def __init__(self, *, connections: int, timeout: float = 5.0, pool_timeout: float) -> None:
        self._connections = connections
        self._timeout = timeout
        self._pool_timeout = pool_timeout
        self._session: aiohttp.ClientSession | None = None
        self._proxies: dict[tuple[str, str], str | None] = {}
        self._closed = False

    @property
    def read_timeout(self) -> float:
        return self._timeout

    async def initialize(self) -> None:
        self._closed = False

    async def shutdown(self) -> None:
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def do_request(
        self,
        url: str,
        method: str,
        request_data: RequestData | None = None,
        read_timeout: Any = BaseRequest.DEFAULT_NONE,
        write_timeout: Any = BaseRequest.DEFAULT_NONE,
        connect_timeout: Any = BaseRequest.DEFAULT_NONE,
        pool_timeout: Any = BaseRequest.DEFAULT_NONE,
    ) -> tuple[int, bytes]:
        """
        :param write_timeout: not used: who does not take our request does not answer it either
        """
        connecting = _given(connect_timeout, CONNECT_SECONDS)
        waiting = _given(pool_timeout, self._pool_timeout)
        timeout = aiohttp.ClientTimeout(
            connect=None if connecting is None or waiting is None else connecting + waiting,
            sock_connect=connecting,
            sock_read=_given(read_timeout, self._timeout),
        )
        try:
            async with self._connected().request(
                method,
                url,
                data=_form(request_data) if request_data else None,
                headers={"User-Agent": self.USER_AGENT},
                timeout=timeout,
                allow_redirects=False,
                proxy=self._proxy(url),
            ) as response:
                return response.status, await response.read()
        except aiohttp.ServerTimeoutError as error:
            # Its text has the address in it.
            raise TimedOut from type(error)()
        except aiohttp.ClientError as error:
            raise NetworkError(type(error).__name__) from error

    async def download(self, url: str, limit: int) -> tuple[int, float | None, bytes]:
        """A file, as it is; no more than `limit` bytes are ever read.

        :param url: encoded already
        :returns: the status, the seconds to wait, if told, and of a 200 the bytes
        :raises TooLong: it has more bytes
        :raises TelegramError: it did not come, or not whole
        """
        timeout = aiohttp.ClientTimeout(
            connect=CONNECT_SECONDS + self._pool_timeout,
            sock_connect=CONNECT_SECONDS,
            sock_read=self._timeout,
        )
        try:
            async with self._connected().get(
                url,
                # What is packed unfolds to more than it seems.
                headers={"User-Agent": self.USER_AGENT, "Accept-Encoding": "identity"},
                timeout=timeout,
                allow_redirects=False,
                auto_decompress=False,
                proxy=self._proxy(url),
            ) as response:
                if response.status != 200:
                    return response.status, _seconds(response.headers.get("Retry-After")), b""
                if (response.content_length or 0) > limit:
                    raise TooLong
                data = bytearray()
                async for piece in response.content.iter_chunked(PIECE):
                    data += piece
                    if len(data) > limit:
                        raise TooLong
                return 200, None, bytes(data)
        except aiohttp.ServerTimeoutError as error:
            raise TimedOut from type(error)()
        except aiohttp.ClientError as error:
            raise NetworkError(type(error).__name__) from None

    def _connected(self) -> aiohttp.ClientSession:
        if self._closed:
            raise RuntimeError("hung up")
        if self._session is None:
            # Whom to trust is looked up where PTB's own client does.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._connections,
                    keepalive_timeout=KEPT_SECONDS,
                    ssl=httpx.create_ssl_context(),
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _proxy(self, url: str) -> str | None:
        """By which proxy to go, where PTB's own client finds it too. aiohttp would look for it with
        each request, in a thread, and for a password in another: half of what a request costs."""
        parts = urlsplit(url)
        place = parts.scheme, parts.netloc
        if place not in self._proxies:
            past = proxy_bypass(parts.hostname or "")
            self._proxies[place] = None if past else getproxies().get(parts.scheme)
        return self._proxies[place]

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        try:
            decoded = json.loads(payload.decode(errors="replace"))
        except (ValueError, RecursionError) as error:
            raise TelegramError("Invalid server response") from error
        if not isinstance(decoded, dict):
            raise TelegramError("Invalid server response")
        return decoded


def _given(seconds: Any, default: float) -> float | None:
    """What PTB was asked for; None means for ever."""
    if seconds is BaseRequest.DEFAULT_NONE:
        return default
    return None if seconds is None else float(seconds)


def _seconds(told: str | None) -> float | None:
    return float(told) if told is not None and re.fullmatch(r"[0-9]{1,6}", told) else None


def _form(data: RequestData) -> aiohttp.Payload | aiohttp.FormData:
    fields = data.json_parameters
    files = data.multipart_data
    if not files:
        return aiohttp.BytesPayload(
            urlencode(fields).encode(), content_type="application/x-www-form-urlencoded"
        )
    # Names of files go out as they are: quoted, people would see the signs of the quoting.
    form = aiohttp.FormData(fields, quote_fields=False)
    for name, (file_name, content, media_type) in files.items():
        # As a stream, so that a large one does not hold up everything else while it is written.
        stream = BytesIO(content) if isinstance(content, bytes) else content
        form.add_field(name, stream, filename=file_name, content_type=media_type)
    return form


class UpdatesRequest(Request):
    """For getUpdates alone: keeps the body of a successful answer, and shows PTB an empty one.

    PTB decodes a batch as a whole, so one update that it does not understand would hide the others.
    """

    body = b""

    async def do_request(self, *args: Any, **kwargs: Any) -> tuple[int, bytes]:
        self.body = b""
        status, body = await super().do_request(*args, **kwargs)
        if not 200 <= status <= 299:
            return status, body
        self.body = body
        return status, _NOTHING_CAME


def bot_at(base_url: str, token: str, *, timeout: float) -> tuple[Bot, UpdatesRequest]:
    """Nothing is connected yet, and `Bot.initialize` is not needed: it would only call getMe.

    :param timeout: seconds to wait for the answer to anything but getUpdates
    """
    updates = UpdatesRequest(connections=2, pool_timeout=5)
    other = Request(connections=256, timeout=timeout, pool_timeout=30)
    base = base_url.rstrip("/")
    bot = Bot(
        token,
        base_url=f"{base}/bot",
        base_file_url=f"{base}/file/bot",
        request=other,
        get_updates_request=updates,
    )
    return bot, updates
