"""What is said to one bot: `parse`, and a memory of the albums that were meant for it.

In a group the caption stands under one picture of an album, and with it the mention; the others
come as messages of their own. After a restart the memory is gone, and so may be a part of an album.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from bots.telegram.keys import Scope
from bots.telegram.parse import AlbumId, album_of, parse
from bots.telegram.received import Me
from bots.telegram.writing import BY_NAME_ONLY, Called
from core.messages import Inbound

REMEMBERED: Final = 1_000


class Hearing:
    """See `bots.telegram.parse.parse`."""

    def __init__(
        self, bot: Me, account: str | None, scope: Scope, called: Called = BY_NAME_ONLY
    ) -> None:
        self._bot = bot
        self._account = account
        self._scope: Scope = scope
        self._called = called
        self._albums: OrderedDict[AlbumId, None] = OrderedDict()

    def __call__(self, update: object) -> Inbound | None:
        inbound = parse(update, self._bot, self._account, self._scope, self._albums, self._called)
        album = album_of(update, inbound) if inbound is not None else None
        if album is not None:
            self._albums[album] = None
            if len(self._albums) > REMEMBERED:
                self._albums.popitem(last=False)
        return inbound
