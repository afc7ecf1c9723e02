"""Pages: what one person is shown of the bot where a platform has a page for that.

What it can be told, what this person has used, and which conversations a place has. Read-only:
whoever looks at a page leaves no trace, and a stranger is told nothing. How a page looks is the
platform's affair.
"""

from __future__ import annotations

from typing import Final

import msgspec

from core.account import personal
from core.command import Commands
from core.gate import Gate
from core.moves import is_under
from core.phrases import ENGLISH, Wording
from core.spending import Spending
from core.store import BotStore

LISTED: Final = 500  # conversations that are looked up at once


class Page(msgspec.Struct, frozen=True):
    """
    :param name: of the agent
    :param commands: what stands behind the sign of a command, and what it does
    :param usage: lines of text: today, this month, and what is left
    """

    name: str
    commands: tuple[tuple[str, str], ...] = ()
    usage: tuple[str, ...] = ()


class Pages:
    """
    :param name: of the agent
    :ivar say: how the bot words its sentences
    """

    def __init__(
        self,
        store: BotStore,
        gate: Gate,
        spending: Spending,
        commands: Commands,
        name: str,
        say: Wording = ENGLISH,
    ) -> None:
        self._store = store
        self._gate = gate
        self._spending = spending
        self._commands = commands
        self._name = name
        self.say = say

    def lets_in(self, sender: str) -> bool:
        return self._gate.lets_in(sender)

    @property
    def owned(self) -> bool:
        """Whether there is somebody who can be asked to let people in."""
        return self._gate.owner is not None

    async def of(self, sender: str) -> Page | None:
        """None: a stranger.

        :param sender: `Sender.id`
        :raises StoreError: what the store raises
        """
        if not self.lets_in(sender):
            return None
        commands = self._commands.open_to(self._gate.trusts(sender))
        return Page(
            self._name,
            tuple(
                (f"{each.name} {each.arguments}".rstrip(), self.say(each.help))
                for each in commands
                if not each.groups
            ),
            await personal(self._store.usage, self._spending, sender, self.say),
        )

    async def conversations(self, place: str) -> list[str]:
        """The keys of this place, and of those within it, in which anything was said.

        :raises StoreError: what the store raises
        """
        found: list[str] = []
        after: str | None = None
        while page := [each async for each in self._store.summaries(place, after, LISTED)]:
            found += [
                each.key
                for each in page
                if is_under(each.key, place) and (each.messages or each.unfinished)
            ]
            after = page[-1].key
        return found
