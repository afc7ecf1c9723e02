"""The gate admits: who may speak, and how often. When things leave is the affair of `pace.py`.

Deny by default. A stranger leaves no trace in the store, costs no model call, and is answered only
when they ask by /start or /id, once a day; the owner is asked about who sends /start, and only then
is it noted who that was. Without an access list the first who knows the one-time
code (`/start CODE`) becomes the owner.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

import msgspec

from core import access, phrases
from core.adapter import Refused
from core.clock import Clock
from core.command import Commands, argument_of
from core.commands import BUILT_IN
from core.events import emit, trouble
from core.messages import Inbound
from core.phrases import ENGLISH, Wording
from core.store import Notes

OWNER: Final = "access.owner"
CODE: Final = "access.code"
# No letters that look like digits, so that a code can be read out.
_ALPHABET: Final = "ABCDEFGHJKMNPQRSTVWXYZ23456789"

DAY: Final = 86_400.0
HOUR: Final = 3_600.0
MINUTE: Final = 60.0
WRONG_CODES_PER_HOUR: Final = 10
# How soon what was decided in another process holds here; and for somebody who seems a stranger,
# who may have been let in a moment ago.
SOON: Final = 2.0
SOON_FOR_STRANGERS: Final = 0.2
_REMEMBERED: Final = 10_000


class Admitted(msgspec.Struct, frozen=True):
    """
    :param paired: the sender has just become the owner
    """

    paired: bool = False


class Asks(msgspec.Struct, frozen=True):
    """A stranger who wants to be let in: not admitted, but somebody can be asked."""

    asking: access.Asking


class _Recently:
    """When something last happened, for the newest so many names."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._count: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def knows(self, name: str) -> bool:
        began, _ = self._count.get(name, (None, 0))
        return began is not None and self._clock.monotonic() - began < self._seconds

    def count(self, name: str) -> int:
        """How often, with this time, since the first time in the period."""
        now = self._clock.monotonic()
        began, count = self._count.pop(name, (now, 0))
        if now - began >= self._seconds:
            began, count = now, 0
        self._count[name] = (began, count + 1)
        self._forget(now)
        return count + 1

    def _forget(self, now: float) -> None:
        """What is over for those who are silent, or is too much: two at a time, more than join."""
        for _ in range(2):
            name, (began, _) = next(iter(self._count.items()))
            if now - began < self._seconds and len(self._count) <= _REMEMBERED:
                return
            del self._count[name]


class Gate:
    """
    :param allow: ids of those who may speak, such as ``telegram:42``, besides those who are let in
        by the owner
    :param deny: of those who may not, whoever else may
    :param open_to_all: everybody may
    :param per_minute: messages of one sender that are let in
    :param commands: those that the bot knows
    :param say: how it words its sentences
    """

    def __init__(
        self,
        notes: Notes,
        clock: Clock,
        *,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
        open_to_all: bool = False,
        per_minute: int = 20,
        commands: Commands = BUILT_IN,
        say: Wording = ENGLISH,
    ) -> None:
        self._notes = notes
        self._configured = frozenset(allow), frozenset(deny)
        self._allow, self._deny = self._configured
        self._open = open_to_all
        self._per_minute = per_minute
        self._commands = commands
        self._say = say
        self._clock = clock
        self._owner: str | None = None
        self._shared = False
        self._read_at: float | None = None
        self._messages = _Recently(clock, MINUTE)
        self._let_in = _Recently(clock, HOUR)
        self._answered = _Recently(clock, DAY)
        self._asked = _Recently(clock, DAY)
        self._logged = _Recently(clock, HOUR)
        self._wrong = _Recently(clock, HOUR)

    def share(self) -> None:
        """Other processes let people in, too: what they have decided is read again and again."""
        self._shared = True

    async def refresh(self, within: float = SOON) -> None:
        """What other processes have decided until so many seconds ago is known.

        :raises StoreError: what the store raises
        """
        now = self._clock.monotonic()
        if not self._shared or (self._read_at is not None and now - self._read_at < within):
            return
        await self._read()
        self._read_at = now

    async def _read(self) -> None:
        await self._read_owner()
        self._know(await access.read(self._notes))

    async def open(self) -> str | None:
        """Read what the store knows; the one-time code, while nobody may speak yet."""
        await self._read()
        if self._open or self._allow or self._owner:
            return None
        code = "".join(secrets.choice(_ALPHABET) for _ in range(10))
        if await self._notes.put(CODE, code.encode(), was=None):
            await self._read_owner()
            if self._owner is None:
                return code
            # Somebody has become the owner meanwhile, by the code of another process.
            await self._notes.put(CODE, None, was=code.encode())
            return None
        kept = await self._notes.get(CODE)
        return kept.decode() if kept else code

    def trusts(self, sender: str) -> bool:
        """Whether it is the owner, or somebody on the access list."""
        return sender == self._owner or (sender in self._allow and sender not in self._deny)

    def lets_in(self, sender: str) -> bool:
        """Whether this person may speak, however often they do."""
        return self.trusts(sender) or (self._open and sender not in self._deny)

    @property
    def owner(self) -> str | None:
        return self._owner

    async def decide(
        self, token: str, verdict: access.Verdict
    ) -> tuple[access.Listed, access.Verdict] | None:
        """The owner has answered: what holds from now on; None: nobody asks that.

        :raises StoreError: what the store raises
        """
        decided = await access.decide(self._notes, self._clock, token, verdict)
        self._know(await access.read(self._notes))
        return decided

    def _know(self, lists: access.Lists) -> None:
        allow, deny = self._configured
        self._allow = allow | {each.id for each in lists.allow}
        self._deny = deny | {each.id for each in lists.deny}

    async def admit(self, inbound: Inbound) -> Admitted | Refused | Asks:
        if inbound.kind in ("moved", "left"):
            return Admitted()
        sender = inbound.sender.id
        await self.refresh()
        if not self.lets_in(sender):
            await self.refresh(SOON_FOR_STRANGERS)
        if not self.lets_in(sender):
            if await self._pair(inbound):
                return Admitted(paired=True)
            return await self._stranger(inbound)
        message = f"{inbound.key} {inbound.id}"
        # Whatever conversations it is about: platforms name an album, people do not.
        album = f"{sender} album {inbound.album}"
        if self._let_in.knows(message) or (inbound.album and self._let_in.knows(album)):
            # It comes again because it could not be kept, or its confirmation was lost; or it is
            # of one album with what was counted.
            return Admitted()
        # What stops a flood is not held up by it, nor is an answer to a question of ours: they
        # have a budget of their own.
        command = self._commands.of(inbound)
        control = inbound.kind == "decision" or (command is not None and command.control)
        edit = inbound.kind == "edit"
        budget = f"{sender} control" if control else f"{sender} edit" if edit else sender
        count = self._messages.count(budget)
        if count <= self._per_minute:
            self._let_in.count(message)
            if inbound.album:
                self._let_in.count(album)
            return Admitted()
        if edit or count > self._per_minute + 1:
            return Refused()
        trouble("refused", inbound.key, why="too fast", sender=sender)
        return Refused(self._say(phrases.TOO_FAST), private=True)

    async def _stranger(self, inbound: Inbound) -> Refused | Asks:
        sender = inbound.sender.id
        if self._logged.count(sender) == 1:
            emit("refused", inbound.key, why="stranger", sender=sender)
        name = self._name_of(inbound)
        if name not in ("start", "id") or sender in self._deny:
            return Refused()
        # Told once a day; but until it is asked, what could not be kept comes again.
        if self._owner and name == "start" and not inbound.group:
            if self._asked.knows(sender):
                return Refused()
            asking = await access.ask(self._notes, self._clock, inbound.sender)
            if asking is not None:
                return Asks(asking)
        if self._answered.count(sender) > 1:
            return Refused()
        return Refused(self._say(phrases.STRANGER, id=sender), private=True)

    def asked(self, sender: str) -> None:
        """The owner has been asked about them, and they were told so."""
        self._asked.count(sender)
        self._answered.count(sender)

    def _name_of(self, inbound: Inbound) -> str | None:
        command = self._commands.of(inbound)
        return command.name if command else None

    async def _pair(self, inbound: Inbound) -> bool:
        """First the owner, then the code: killed in between, the code opens nothing any more,
        because there is an owner."""
        given = argument_of(inbound) if self._name_of(inbound) == "start" else ""
        if not given or self._owner or self._open or self._allow:
            return False
        code = await self._notes.get(CODE)
        if code is None:
            # Used up; perhaps by this very message, before the store failed and it came again.
            await self._read_owner()
            return self._owner == inbound.sender.id
        if self._wrong.count(inbound.sender.id) > WRONG_CODES_PER_HOUR:
            return False
        if not hmac.compare_digest(given.upper().encode("utf-8", "replace"), code):
            return False
        paired = await self._notes.put(OWNER, inbound.sender.id.encode(), was=None)
        await self._notes.put(CODE, None, was=code)
        await self._read_owner()
        if paired:
            emit("paired", inbound.key, sender=inbound.sender.id)
        return self._owner == inbound.sender.id

    async def _read_owner(self) -> None:
        owner = await self._notes.get(OWNER)
        self._owner = owner.decode() if owner else None
