"""Live for Telegram, as far as it goes: "typing" while a turn runs. Nothing of the answer is shown.

Best effort: whatever goes wrong here goes unsaid, for the answer itself is sent by other means.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from telegram.error import BadRequest, Forbidden, RetryAfter

from bots.telegram.failures import seconds_of, why
from core.adapter import May
from core.clock import Clock
from core.events import emit

FIRST_SECONDS: Final = 0.3  # quick answers need no typing
AGAIN_SECONDS: Final = 4.0  # Telegram shows it for five


class Typing:
    """
    :param act: tells Telegram once that the bot is typing
    :param may: whether that may leave now
    """

    def __init__(self, act: Callable[[], Awaitable[object]], clock: Clock, may: May) -> None:
        self._act = act
        self._may = may
        self._clock = clock
        self._task = asyncio.create_task(self._type())

    def show(self, text: str) -> bool:
        return False

    async def close(self) -> tuple[str, ...]:
        self._task.cancel()
        # Not awaited: if we are cancelled ourselves meanwhile, that must be heard.
        await asyncio.wait([self._task])
        return ()

    async def _type(self) -> None:
        await self._clock.sleep(FIRST_SECONDS)
        pause: float | None = AGAIN_SECONDS
        while pause is not None:
            pause = await self._once()
            if pause is not None:
                await self._clock.sleep(pause)

    async def _once(self) -> float | None:
        """Seconds until the next; None when there is nobody to show it to."""
        if not self._may("typing"):
            return AGAIN_SECONDS
        try:
            await self._act()
        except RetryAfter as error:
            return seconds_of(error) + AGAIN_SECONDS
        except (BadRequest, Forbidden) as error:
            # The send that follows meets the same, and is the one that is told.
            emit("telegram.typing", level=logging.DEBUG, why=why(error))
            return None
        except Exception as error:
            # Any: what PTB cannot read comes out as anything. Nobody misses one sign of typing.
            emit("telegram.typing", level=logging.DEBUG, why=why(error))
        return AGAIN_SECONDS
