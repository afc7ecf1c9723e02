"""Who people are, as Slack tells it: what they are called, and who may decide for all who share a
conversation.

Not who may speak to the bot (that is the gate's affair), and nothing of it is stored. What Slack
has said is remembered for some minutes, and that it said nothing for a shorter time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from slack_sdk.web.async_client import AsyncWebClient

from bots.slack.failures import retry_after, why
from bots.slack.keys import Address, is_id
from bots.slack.rules import readable_name
from bots.slack.workspaces import Workspaces
from core.clock import Clock
from core.events import emit

# Who answers waits for it, and Slack for the acknowledgement: three seconds in all.
ASK_SECONDS: Final = 1.5
REMEMBERED_SECONDS: Final = 600.0
UNKNOWN_SECONDS: Final = 30.0
REMEMBERED: Final = 10_000  # people, and as many threads

T = TypeVar("T")


class Person(NamedTuple):
    """
    :param name: as others read it; may be empty
    :param runs: an owner or administrator of the workspace
    """

    name: str
    runs: bool


class People:
    """:param web: a client without a token of its own"""

    def __init__(self, web: AsyncWebClient, workspaces: Workspaces, clock: Clock) -> None:
        self._web = web
        self._workspaces = workspaces
        self._people: _Remembered[Person] = _Remembered(clock)
        self._openers: _Remembered[str] = _Remembered(clock)

    async def name_of(self, team: str, user: str) -> str:
        """Empty when Slack does not say."""
        person = await self._person(team, user)
        return person.name if person else ""

    async def may_decide(self, to: Address, team: str, user: str) -> bool | None:
        """Whether this person runs the workspace, or has opened the thread. People of other teams
        run nothing here. None: Slack does not say.

        :param team: the person's
        """
        person, opener = await asyncio.gather(
            self._person(to.team, user) if team == to.team else _nobody(), self._opener(to)
        )
        if opener == user or (person is not None and person.runs):
            return True
        known = person is not None and (to.thread is None or opener is not None)
        return False if known or team != to.team else None

    async def _person(self, team: str, user: str) -> Person | None:
        async def ask(token: str) -> Person:
            answer = await self._web.users_info(user=user, team_id=team, token=token)
            return _person_in(answer["user"])

        return await self._people.get((team, user), self._asking(team, "users.info", ask))

    async def _opener(self, to: Address) -> str | None:
        """Who wrote the message that the thread hangs on; empty: nobody is named there."""
        channel, thread = to.channel, to.thread
        if thread is None:
            return None

        async def ask(token: str) -> str:
            answer = await self._web.conversations_replies(
                channel=channel, ts=thread, limit=1, token=token
            )
            user = answer["messages"][0].get("user")
            return user if is_id(user) else ""

        return await self._openers.get(to, self._asking(to.team, "conversations.replies", ask))

    def _asking(
        self, team: str, method: str, ask: Callable[[str], Awaitable[T]]
    ) -> Callable[[], Awaitable[tuple[T | None, float]]]:
        """What was said, and for how many seconds that holds; it raises nothing."""

        async def asked() -> tuple[T | None, float]:
            try:
                async with asyncio.timeout(ASK_SECONDS):
                    token = await self._workspaces.token_of(team)
                    if token is None:
                        return None, UNKNOWN_SECONDS
                    return await ask(token), REMEMBERED_SECONDS
            except Exception as error:
                # Any: what is none of Slack's answers comes out of the SDK as anything.
                emit("slack.unknown", level=logging.WARNING, method=method, why=why(error))
                return None, max(UNKNOWN_SECONDS, retry_after(error) or 0.0)

        return asked


class _Remembered(Generic[T]):
    """Answers, by what was asked. Who asks what is being asked waits for the same answer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: OrderedDict[Hashable, tuple[T | None, float]] = OrderedDict()
        self._asked: dict[Hashable, asyncio.Task[T | None]] = {}

    async def get(
        self, what: Hashable, ask: Callable[[], Awaitable[tuple[T | None, float]]]
    ) -> T | None:
        known, until = self._known.get(what, (None, 0.0))
        if self._clock.monotonic() < until:
            return known
        asking = self._asked.get(what)
        if asking is None:
            asking = self._asked[what] = asyncio.create_task(self._remember(what, ask))
        return await asyncio.shield(asking)

    async def _remember(
        self, what: Hashable, ask: Callable[[], Awaitable[tuple[T | None, float]]]
    ) -> T | None:
        try:
            found, seconds = await ask()
            self._known[what] = (found, self._clock.monotonic() + seconds)
            self._known.move_to_end(what)
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
            return found
        finally:
            del self._asked[what]


def _person_in(user: dict[str, Any]) -> Person:
    profile = user.get("profile") or {}
    name = profile.get("display_name") or profile.get("real_name") or user.get("real_name")
    return Person(
        readable_name(name if isinstance(name, str) else None),
        runs=user.get("is_admin") is True or user.get("is_owner") is True,
    )


async def _nobody() -> None:
    return None
