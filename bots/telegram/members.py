"""Who runs a group: its administrators, as Telegram tells them, remembered for minutes.

Asked only when somebody wants to change something for all of a group. Of who does not answer in
time, or does not know the method, nothing is known: that is neither yes nor no.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import Final

from telegram import Bot

from bots.telegram.failures import why
from core.clock import Clock
from core.events import emit

REMEMBERED_SECONDS: Final = 300.0
# What could not be found out is not asked again at once: who sends a hundred commands waits once.
UNKNOWN_SECONDS: Final = 10.0
ASK_SECONDS: Final = 5.0
GROUPS: Final = 1_000

_Admins = frozenset[str] | None


class Members:
    """For all groups of one bot."""

    def __init__(self, bot: Bot, clock: Clock) -> None:
        self._bot = bot
        self._clock = clock
        self._known: OrderedDict[int, tuple[float, _Admins]] = OrderedDict()

    async def is_admin(self, chat_id: int, sender_id: str) -> bool | None:
        """None: Telegram does not say."""
        # Who speaks in the group's name could only do so as one of its administrators.
        if chat_id > 0 or sender_id == f"telegram:{chat_id}":
            return True
        admins = await self._admins(chat_id)
        return None if admins is None else sender_id in admins

    async def _admins(self, chat_id: int) -> _Admins:
        until, admins = self._known.get(chat_id, (0.0, None))
        if self._clock.monotonic() < until:
            return admins
        admins = await self._ask(chat_id)
        seconds = UNKNOWN_SECONDS if admins is None else REMEMBERED_SECONDS
        self._known[chat_id] = (self._clock.monotonic() + seconds, admins)
        self._known.move_to_end(chat_id)
        if len(self._known) > GROUPS:
            self._known.popitem(last=False)
        return admins

    async def _ask(self, chat_id: int) -> _Admins:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                members = await self._bot.get_chat_administrators(chat_id)
        except Exception as error:
            # Any: an answer that is none of Telegram's comes out of PTB as anything.
            emit("telegram.no_admins", level=logging.WARNING, chat=chat_id, why=why(error))
            return None
        return frozenset(f"telegram:{member.user.id}" for member in members)
