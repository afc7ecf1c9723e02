"""The app's home tab: what the bot can be told, what this person has used, a button to begin anew.

Shown anew each time somebody looks. Best effort: what goes wrong here holds up nothing else; but a
press of the button is accepted like what people say, and confirmed to Slack only then.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from bots.slack import home_view
from bots.slack.failures import why
from bots.slack.intake import Intake
from bots.slack.keys import THREAD, dm_key, padded
from bots.slack.opened import Opened, Reset
from bots.slack.rules import Rules
from bots.slack.wires import Wires
from core import phrases
from core.adapter import Refused
from core.commands import QUIETLY
from core.errors import StoreError
from core.events import emit, trouble
from core.keys import SessionKey
from core.messages import Inbound
from core.pages import Pages

SECONDS: Final = 20.0
MAX_AT_ONCE: Final = 64  # people whose page is being made
MOST_RESET: Final = 200  # conversations by one press


class _Wanted(msgspec.Struct, frozen=True):
    opened: Opened
    note: str = ""


class Home:
    """
    :param text: the owner's own, in Slack's marks; empty: a sentence of ours
    :ivar pages: what there is to be shown; None: nothing is
    """

    def __init__(self, wires: Wires, rules: Rules, text: str) -> None:
        self._wires = wires
        self._rules = rules
        self._text = text
        self.pages: Pages | None = None
        self._wanted: dict[tuple[str, str], _Wanted] = {}
        self._making: dict[tuple[str, str], asyncio.Task[None]] = {}

    def knows(self, opened: Opened) -> bool:
        """Whether they may speak, as far as anybody can say here."""
        return self.pages is None or self.pages.lets_in(opened.sender)

    def show(self, opened: Opened, note: str = "") -> None:
        """By and by. Of one person one page is made at a time, and the last that was wanted is the
        one that stays.

        :param note: what became of a press
        """
        who = (opened.team, opened.user)
        if self.pages is None or (who not in self._making and len(self._making) >= MAX_AT_ONCE):
            return
        self._wanted[who] = _Wanted(opened, note)
        if who not in self._making:
            self._making[who] = asyncio.create_task(self._make(who, self.pages), name="home")

    async def reset(self, reset: Reset, intake: Intake) -> None:
        """All that was said in direct messages is forgotten, when this returns.

        :raises Full: it can be taken in by nobody now
        :raises StoreError: what the store raises; Slack shows that the press has failed
        """
        if self.pages is None:
            return
        opened, say = reset.opened, self.pages.say
        direct = dm_key(opened.team, opened.channel, self._rules.account)
        keys, more = await self._theirs(opened, direct, self.pages)
        taken = [intake.take(self._inbound(reset, key, quietly=key != direct)) for key in keys]
        accepted = await asyncio.shield(asyncio.gather(*taken))
        refused = next((each for each in accepted if isinstance(each, Refused)), None)
        if refused is not None:
            note = refused.reply or ""
        else:
            note = say(phrases.PAGE_RESET_MORE if more else phrases.PAGE_WAS_RESET)
        self.show(opened, note)

    async def close(self) -> None:
        making = list(self._making.values())
        for task in making:
            task.cancel()
        await asyncio.gather(*making, return_exceptions=True)

    async def _theirs(self, opened: Opened, direct: str, pages: Pages) -> tuple[list[str], bool]:
        """Their conversations, and whether there are more of them than go at once.

        The direct messages themselves, unless each thread there is a conversation; and the threads.
        """
        if not pages.lets_in(opened.sender):
            # Whoever they are now: of them nothing is looked up. They are told so at the gate.
            return [direct], False
        threads = SessionKey(THREAD, (opened.team, opened.channel), self._rules.account)
        keys = await pages.conversations(str(threads))
        more = len(keys) > MOST_RESET
        # In order of their time: the newest are the last.
        keys = keys[-MOST_RESET:]
        if not self._rules.agent_view or await pages.conversations(direct):
            keys.append(direct)
        return keys, more

    def _inbound(self, reset: Reset, key: str, *, quietly: bool) -> Inbound:
        return Inbound(
            id=f"home {padded(reset.at)} {key}",
            key=key,
            kind="command",
            sender=reset.sender,
            text=f"/reset {QUIETLY}" if quietly else "/reset",
            # One press, however many conversations it is about.
            album=f"home {reset.at}",
        )

    async def _make(self, who: tuple[str, str], pages: Pages) -> None:
        try:
            while (wanted := self._wanted.pop(who, None)) is not None:
                await self._publish(wanted, pages)
        finally:
            del self._making[who]

    async def _publish(self, wanted: _Wanted, pages: Pages) -> None:
        opened = wanted.opened
        try:
            async with asyncio.timeout(SECONDS):
                token = await self._wires.workspaces.token_of(opened.team)
                page = await pages.of(opened.sender)
                if token is None:
                    return
                if page is None:
                    view = home_view.stranger(opened, pages.say, owned=pages.owned)
                else:
                    account = self._rules.account
                    view = home_view.member(
                        page, opened, account, self._text, pages.say, wanted.note
                    )
                await self._wires.web.views_publish(user_id=opened.user, view=view, token=token)
        except StoreError as error:
            trouble("slack.no_home", why=str(error))
        except Exception as error:
            # They see what they saw before, and look again.
            emit("slack.no_home", level=logging.DEBUG, why=why(error))
