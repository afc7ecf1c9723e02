"""Asking Telegram until it answers, and saying so no more than once a minute."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn, TypeVar

from telegram.error import InvalidToken, RetryAfter

from bots.telegram.failures import seconds_of, why
from core.clock import Clock
from core.errors import PlatformRefused
from core.events import emit, trouble

BACKOFF_SECONDS: Final = 60.0
LOG_SECONDS: Final = 60.0

_T = TypeVar("_T")


class Complaint:
    """Something goes wrong again and again: said at first, then once a minute, and when it is
    over."""

    def __init__(self, event: str, clock: Clock) -> None:
        self.times = 0
        self._event = event
        self._clock = clock
        self._quiet_until = float("-inf")

    def say(self, reason: str) -> None:
        self.times += 1
        if self._clock.monotonic() >= self._quiet_until:
            self._quiet_until = self._clock.monotonic() + LOG_SECONDS
            trouble(self._event, why=reason, failures=self.times)

    def over(self) -> None:
        if self.times:
            emit(f"{self._event}.over", failures=self.times)
        self.times = 0
        self._quiet_until = float("-inf")


class Backoff:
    """Waits 1, 2, 4 ... 60 seconds, up to a quarter more before the last, and says why once a
    minute.

    Never less than a second: Telegram gives one update at a time to who asks again sooner.
    """

    def __init__(
        self,
        event: str,
        clock: Clock,
        chance: Callable[[], float] = random.random,
        *,
        most: float = BACKOFF_SECONDS,
    ) -> None:
        self._complaint = Complaint(event, clock)
        self._clock = clock
        self._chance = chance
        self._most = most

    async def wait(self, reason: str, at_least: float = 0.0) -> None:
        self._complaint.say(reason)
        jitter = 1 + self._chance() / 4
        seconds = min(2.0 ** min(self._complaint.times - 1, 10) * jitter, self._most)
        await self._clock.sleep(max(seconds, at_least * jitter))

    def over(self) -> None:
        self._complaint.over()


async def insist(call: Callable[[], Awaitable[_T]], backoff: Backoff) -> _T:
    """Calls until it succeeds.

    :raises PlatformRefused: Telegram does not know the token, or `call` gives up
    """
    while True:
        try:
            result = await call()
        except PlatformRefused:
            raise
        except InvalidToken as error:
            refuse_token(error)
        except RetryAfter as error:
            await backoff.wait(why(error), at_least=seconds_of(error))
        except Exception as error:
            # Any: an answer that is none of Telegram's comes out of PTB as anything.
            await backoff.wait(why(error))
        else:
            backoff.over()
            return result


def refuse_token(error: InvalidToken) -> NoReturn:
    """
    :raises PlatformRefused: always
    """
    raise PlatformRefused(f"Telegram refuses the bot's token: {why(error)}") from error
