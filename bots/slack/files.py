"""Files: those that people sent, fetched from Slack itself, and those of ours, on their way there.

The bot's token goes with a request for a file, so it goes to Slack's own host alone, over TLS, and
no redirect is followed. Whoever may not read a file gets a page to sign in, with 200: that is
noticed, for nobody sends a file as a page that says so.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient

from bots.slack.failures import failure, retry_after, why
from bots.slack.keys import Address, is_id
from bots.slack.received import File
from core.adapter import Fetched
from core.errors import NotFetched, OutcomeUnknown, TryLater, Undeliverable
from core.events import trouble
from core.messages import Attachment

MAX_BYTES: Final = 64 << 20
HOSTS: Final = frozenset({"files.slack.com", "slack-files.com"})
SECONDS: Final = 60.0
WAIT: Final = 2.0  # seconds, when it is not known for how long

GONE: Final = "Slack does not have it any more"
UNKNOWN: Final = "Slack does not give it out"
ELSEWHERE: Final = "it is kept outside of Slack"
TOO_LARGE: Final = f"it is larger than the {MAX_BYTES >> 20} MB that are fetched"

_PIECE: Final = 1 << 16
_PAGE: Final = re.compile(rb"\s*<(?:!doctype html|html)", re.I)
_KINDS: Final = {"image": "photo", "audio": "audio", "video": "video"}


def attachment_of(file: File) -> Attachment:
    """What is fetched when its turn starts. In a shared channel Slack tells no more than an id."""
    kind = _KINDS.get((file.mimetype or "").partition("/")[0], "document")
    if file.subtype == "slack_audio":
        kind = "voice"
    return Attachment(
        kind=kind,
        id=file.url_private_download or file.url_private or file.id or "",
        name=(file.name or file.title or "")[:255],
        media_type=(file.mimetype or "")[:127],
        size=file.size or 0,
        seconds=(file.duration_ms or 0) // 1000,
    )


class Files:
    """
    :param wire: without a limit of time of its own for what is large
    :param base_url: of the Web API; where that is not Slack's, its host has the files too
    """

    def __init__(self, web: AsyncWebClient, wire: aiohttp.ClientSession, base_url: str) -> None:
        self._web = web
        self._wire = wire
        base = urlsplit(base_url)
        own = (base.hostname or "").endswith("slack.com")
        self._places = {("https", host) for host in HOSTS}
        if not own:
            self._places.add((base.scheme, base.netloc))

    async def fetch(self, attachment: Attachment, token: str) -> Fetched:
        """See `core.adapter.Fetches`."""
        if attachment.size > MAX_BYTES:
            raise NotFetched(TOO_LARGE)
        url = attachment.id
        if is_id(url):
            url = await self._address_of(url, token)
        parts = urlsplit(url)
        if (parts.scheme, parts.netloc) not in self._places:
            raise NotFetched(ELSEWHERE if url else GONE)
        try:
            data, media_type = await self._download(url, token)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise TryLater(WAIT, type(error).__name__) from None
        if _PAGE.match(data) and "html" in media_type and "html" not in attachment.media_type:
            trouble("slack.file_refused", why="a page to sign in came instead: files:read?")
            raise NotFetched(UNKNOWN)
        return Fetched(data, attachment.media_type or media_type, attachment.name)

    async def _address_of(self, file_id: str, token: str) -> str:
        try:
            answer = await self._web.files_info(file=file_id, token=token)
            file = answer["file"]
            return str(file.get("url_private_download") or file.get("url_private") or "")
        except Exception as error:
            seconds = retry_after(error)
            if seconds is not None:
                raise TryLater(seconds + 0.5, why(error)) from None
            if isinstance(failure(error), OutcomeUnknown | TryLater):
                raise TryLater(WAIT, why(error)) from None
            raise NotFetched(GONE) from None

    async def _download(self, url: str, token: str) -> tuple[bytes, str]:
        async with self._wire.get(
            url,
            headers={"Authorization": f"Bearer {token}"},
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=SECONDS, sock_connect=10),
        ) as response:
            if response.status == 429 or response.status >= 500:
                raise TryLater(WAIT, f"status {response.status}")
            if 300 <= response.status < 400:
                trouble("slack.file_elsewhere", status=response.status)
                raise NotFetched(UNKNOWN)
            if response.status != 200:
                raise NotFetched(GONE)
            data = bytearray()
            async for piece in response.content.iter_chunked(_PIECE):
                data += piece
                if len(data) > MAX_BYTES:
                    raise NotFetched(TOO_LARGE)
            return bytes(data), response.headers.get("Content-Type", "")

    async def send(self, to: Address, name: str, data: bytes, token: str) -> None:
        """In three steps, of which the last one shows it.

        :raises Exception: what slack_sdk and aiohttp raise
        """
        if not data:
            raise Undeliverable("Slack takes no empty files")
        asked = await self._web.files_getUploadURLExternal(
            filename=name, length=len(data), token=token
        )
        url, file_id = str(asked["upload_url"]), str(asked["file_id"])
        try:
            await self._upload(url, data)
        except (aiohttp.ClientError, TimeoutError) as error:
            # Nobody has seen it yet.
            raise TryLater(WAIT, type(error).__name__) from None
        await self._web.files_completeUploadExternal(
            files=[{"id": file_id, "title": name}],
            channel_id=to.channel,
            thread_ts=to.thread,
            token=token,
        )

    async def _upload(self, url: str, data: bytes) -> None:
        async with self._wire.post(
            url,
            data=data,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=2 * SECONDS, sock_connect=10),
        ) as response:
            if response.status != 200:
                raise TryLater(WAIT, f"the upload was answered with {response.status}")


def shows(message: dict[str, Any], name: str, size: int) -> bool:
    """Whether this is a message with that file."""
    files = message.get("files")
    return isinstance(files, list) and any(
        isinstance(file, dict) and file.get("name") == name and file.get("size") == size
        for file in files
    )
