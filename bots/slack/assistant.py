"""What an app that shows as an agent adds to a conversation: what one could ask, and a title.

In the agent view the suggestions belong to the *Messages* tab, and each message at its top begins a
session with a title. In the older assistant view a person begins a thread first, and both belong to
that. Best effort: a conversation without them is as good.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec
import regex

from bots.slack.beside import Beside
from bots.slack.failures import why
from bots.slack.keys import Address, address
from bots.slack.opened import Opened
from bots.slack.render import inert
from bots.slack.rules import Rules
from bots.slack.wires import Wires
from core.adapter import Acceptance, Accepted
from core.events import emit
from core.messages import Inbound

SECONDS: Final = 20.0
MAX_TITLE: Final = 80  # as people see them; Slack takes 200 characters
REMEMBERED: Final = 1_000  # threads of the older view that have no title yet

_GRAPHEMES: Final = regex.compile(rf"\X{{1,{MAX_TITLE}}}")


class Prompt(msgspec.Struct, frozen=True):
    """
    :param title: what people read
    :param message: what is said for them when they choose it
    """

    title: str
    message: str


class Assistant:
    """
    :param prompts: at most four
    """

    def __init__(self, wires: Wires, rules: Rules, prompts: Sequence[Prompt]) -> None:
        self._wires = wires
        self._rules = rules
        self._prompts = [{"title": each.title, "message": each.message} for each in prompts]
        self._begun: dict[Address, None] = {}
        self._beside = Beside()

    def opened(self, opened: Opened) -> None:
        """Somebody could begin to write now."""
        if not self._rules.agent_view:
            return
        if opened.thread is not None:
            self._begun[Address(opened.team, opened.channel, opened.thread)] = None
            if len(self._begun) > REMEMBERED:
                del self._begun[next(iter(self._begun))]
        if self._prompts:
            self._beside.do(partial(self._suggest, opened))

    def heard(self, inbound: Inbound, acceptance: Acceptance) -> None:
        """The first thing that is said in a thread is its title."""
        if not (self._rules.agent_view and isinstance(acceptance, Accepted)):
            return
        to = address(inbound.key, self._rules.account)
        if inbound.group or inbound.kind != "message" or to is None or to.thread is None:
            return
        title = title_of(inbound.text)
        begun = to in self._begun
        self._begun.pop(to, None)
        if title and (begun or inbound.message_id == to.thread):
            user = inbound.sender.id.rpartition("/")[2]
            self._beside.do(partial(self._name, to, title, None if begun else user))

    async def close(self) -> None:
        await self._beside.close()

    async def _suggest(self, opened: Opened) -> None:
        try:
            async with asyncio.timeout(SECONDS):
                token = await self._wires.workspaces.token_of(opened.team)
                if token is not None:
                    await self._wires.web.assistant_threads_setSuggestedPrompts(
                        channel_id=opened.channel,
                        # An agent's suggestions have no thread: with one they would not be shown.
                        thread_ts=opened.thread,
                        prompts=self._prompts,
                        token=token,
                    )
        except Exception as error:
            emit("slack.no_prompts", level=logging.DEBUG, why=why(error))

    async def _name(self, to: Address, title: str, user: str | None) -> None:
        """
        :param user: who begins the session; None: it is a thread of the older view
        """
        assert to.thread is not None
        try:
            async with asyncio.timeout(SECONDS):
                token = await self._wires.workspaces.token_of(to.team)
                if token is None:
                    return
                if user is None:
                    await self._wires.web.assistant_threads_setTitle(
                        channel_id=to.channel, thread_ts=to.thread, title=title, token=token
                    )
                    return
                # Only what begins a session gives it a title; that it is at work says its stream.
                await self._wires.web.agents_sessions_setStatus(
                    channel_id=to.channel,
                    thread_ts=to.thread,
                    status="active",
                    title=title,
                    initiator_user_id=user,
                    token=token,
                )
        except Exception as error:
            emit("slack.no_title", level=logging.DEBUG, why=why(error))


def title_of(text: str) -> str:
    """The beginning, on one line; nobody is called by it."""
    line = " ".join(inert(text).split())
    found = _GRAPHEMES.match(line)
    cut = found[0] if found else ""
    return cut if cut == line else f"{cut[:-1].rstrip()}…"
