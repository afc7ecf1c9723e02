"""The HTTP clients that python-telegram-bot's `Bot` sends its requests through.

PTB's own, with its mapping of errors, but for two things: getUpdates answers are kept as they came,
and no answer is ever logged. Nothing here decides what an error means for us.
"""

from __future__ import annotations

import json
from typing import Any, Final

from telegram import Bot
from telegram.error import TelegramError
from telegram.request import HTTPXRequest

_NOTHING_CAME: Final = b'{"ok":true,"result":[]}'


class Request(HTTPXRequest):
    """PTB's client, except that what it cannot read is not written to the log.

    Such an answer may quote a message, or our address and with it the token.
    """

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        try:
            decoded = json.loads(payload.decode(errors="replace"))
        except (ValueError, RecursionError) as error:
            raise TelegramError("Invalid server response") from error
        if not isinstance(decoded, dict):
            raise TelegramError("Invalid server response")
        return decoded


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
    updates = UpdatesRequest(connection_pool_size=2, connect_timeout=10, pool_timeout=5)
    other = Request(
        connection_pool_size=256,
        connect_timeout=10,
        read_timeout=timeout,
        write_timeout=timeout,
        pool_timeout=30,
    )
    base = base_url.rstrip("/")
    bot = Bot(
        token,
        base_url=f"{base}/bot",
        base_file_url=f"{base}/file/bot",
        request=other,
        get_updates_request=updates,
    )
    return bot, updates
