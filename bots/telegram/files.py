"""Files that people sent to the bot, fetched from the Bot API server: getFile, then the bytes.

From that server alone, by its own address and a path that it gave: nothing that a message says
leads anywhere else, no redirect is followed, and no path is looked for on this machine (PTB's own
download would). The token is a part of the address, so no error that leaves here has that in it.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from telegram import Bot
from telegram.error import (
    BadRequest,
    Forbidden,
    InvalidToken,
    RetryAfter,
    TelegramError,
)

from bots.telegram.failures import says, seconds_of
from bots.telegram.wire import Request, TooLong
from core.adapter import Fetched
from core.errors import NotFetched, TryLater
from core.events import trouble
from core.messages import Attachment

MAX_BYTES: Final = 20 << 20  # more the Bot API does not give out
# Seconds, when it is not known for how long.
WAIT: Final = 2.0
LONG_WAIT: Final = 6.0

GONE: Final = "Telegram does not have it any more"
UNKNOWN: Final = "Telegram does not give it out"

_TOO_BIG: Final = ("file is too big",)
_LATER: Final = ("temporarily unavailable",)
# Relative, and without a way up; on a server that was started with --local it is neither.
_PATH: Final = re.compile(r"(?!/)(?:(?!\.\.(?:/|\Z))[^/\\\x00-\x1f]+(?:/(?=[^/])|\Z))+")


class Files:
    """
    :param bot: as `bots.telegram.wire.bot_at` makes one
    :param max_bytes: of one file
    """

    def __init__(self, bot: Bot, *, max_bytes: int = MAX_BYTES) -> None:
        assert isinstance(bot.request, Request)
        self._bot = bot
        self._request = bot.request
        self._max_bytes = max_bytes

    async def fetch(self, attachment: Attachment) -> Fetched:
        """See `core.adapter.Fetches`."""
        if attachment.size > self._max_bytes:
            raise NotFetched(self._too_large())
        path = await self._path(attachment.id)
        url = f"{self._bot.base_file_url}/{quote(path)}"
        try:
            status, wait, data = await self._request.download(url, self._max_bytes)
        except TooLong:
            raise NotFetched(self._too_large()) from None
        except TelegramError as error:
            raise TryLater(WAIT, type(error).__name__) from None
        if status == 200:
            return Fetched(data, attachment.media_type, attachment.name)
        if status == 429 or status >= 500:
            raise TryLater(wait or WAIT, f"status {status}")
        if 300 <= status < 400:
            trouble("telegram.file_elsewhere", "", status=status)
            raise NotFetched(UNKNOWN)
        raise NotFetched(GONE)

    async def _path(self, file_id: str) -> str:
        try:
            file = await self._bot.get_file(file_id)
        except RetryAfter as error:
            raise TryLater(seconds_of(error) + 0.5, "flood") from None
        except (InvalidToken, Forbidden):
            raise NotFetched(UNKNOWN) from None
        except BadRequest as error:
            if says(error, _TOO_BIG):
                raise NotFetched(self._too_large()) from None
            if says(error, _LATER):
                # Or for ever: Telegram says so of either in one sentence.
                raise TryLater(LONG_WAIT, "temporarily unavailable") from None
            raise NotFetched(GONE) from None
        except TelegramError as error:
            raise TryLater(WAIT, type(error).__name__) from None
        # PTB has put the server's address in front, unless there is such a file on this machine.
        path = str(file.file_path or "").removeprefix(f"{self._bot.base_file_url}/")
        if not _PATH.fullmatch(path):
            # A server of one's own that was started with --local keeps its files to itself.
            trouble("telegram.file_path", "", why="no path below the server's address")
            raise NotFetched(UNKNOWN)
        return path

    def _too_large(self) -> str:
        return f"it is larger than the {self._max_bytes >> 20} MB that this bot takes"
