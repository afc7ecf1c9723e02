"""What a command is: a value that says its name, what it does, and who may use it.

Not the commands themselves: those that are built in stand in `commands.py`, and more are added by
whoever builds the bot. A command is answered when it is accepted: one save holds its id as seen,
what it changes, and its reply. It never enters the inbox or a prompt.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from core import phrases, rooms
from core.agent import Agent
from core.clock import Clock
from core.errors import StoreError
from core.events import logger
from core.messages import File, Inbound
from core.phrases import ENGLISH, Wording
from core.rooms import Room
from core.scrubs import Scrubs
from core.snapshot import Snapshot
from core.snapshots import Snapshots
from core.spending import Spending
from core.store import BotStore, SessionRef

# What every platform takes as one: Telegram's rule is the strictest.
A_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
# Nothing else of its chat is taken in while a command of somebody's own makes up its mind.
OWN_SECONDS: Final = 10.0

Who = Literal["everyone", "trusted"]


class Call(msgspec.Struct, frozen=True):
    """One use of a command, and all that it may know.

    :param argument: what stands behind the name
    :param agent: as it is configured; what the chat chose is in the snapshot
    :param commands: those that this sender may use
    :param trusted: the sender is the owner, or on the access list
    :param admin: the sender may decide for all who share this conversation, because they are an
        administrator there, trusted, or alone in it; None: nobody knows
    :param files: whether files can be sent here
    :param epoch: a new random one, should the conversation begin anew
    :param now: milliseconds since 1970, UTC
    :param say: finds a fixed sentence in the words of this bot
    :param found: what the command's `first` returned
    :param failed: the command's `first` raised
    """

    name: str
    inbound: Inbound
    argument: str = ""
    agent: Agent = Agent()
    commands: tuple[Command, ...] = ()
    trusted: bool = False
    admin: bool | None = True
    files: bool = False
    epoch: str = ""
    now: int = 0
    say: Wording = ENGLISH
    found: Any = None
    failed: bool = False


class Backstage(msgspec.Struct, frozen=True):
    """What a command may use before the save that answers it.

    :param snapshots: loads and changes conversations, other ones too, by compare-and-set
    :param ref: what the store is told about a key
    :param spending: prices and budgets
    :param scrubs: when free space may be overwritten again
    """

    store: BotStore
    ref: Callable[[str], SessionRef]
    snapshots: Snapshots
    clock: Clock
    scrubs: Scrubs
    spending: Spending


class Outcome(msgspec.Struct, frozen=True):
    """
    :param text: what the bot says to it, in markdown; empty: nothing
    :param snapshot: the conversation afterwards; None: as it was
    :param files: sent behind the text; only where `Call.files`
    """

    text: str
    snapshot: Snapshot | None = None
    files: tuple[File, ...] = ()


class Command(msgspec.Struct, frozen=True):
    """
    ::

        Command("ping", "see whether I am there", lambda snapshot, call: Outcome("pong"))

    :param help: one line for `/help` and for the menus of the platforms
    :param run: the effect and the reply. Pure: it is applied again to a newer snapshot when
        somebody else saved first
    :param arguments: how what may stand behind the name is shown to people
    :param interrupts: it ends the turn that is running
    :param control: it stops what floods a chat, so it has a budget of its own at the gate
    :param who: whom it is for; to others it is not shown
    :param room: who may use it where several people share one conversation; see `core.rooms`
    :param groups: it makes sense only where several people speak
    :param first: what must wait for something, before the save; what it returns is `Call.found`.
        Killed before the save it runs again: what it changes must be compare-and-set, and
        harmless a second time
    """

    name: str
    help: str
    run: Callable[[Snapshot, Call], Outcome]
    arguments: str = ""
    interrupts: bool = False
    control: bool = False
    who: Who = "everyone"
    room: Room = "everyone"
    groups: bool = False
    first: Callable[[Call, Backstage], Awaitable[object]] | None = None

    def __post_init__(self) -> None:
        if not A_NAME.fullmatch(self.name):
            raise ValueError(
                f"{self.name!r} cannot be a command: want a letter, then a-z, 0-9 and _, 32 in all"
            )

    def is_for(self, *, trusted: bool) -> bool:
        """Whether such a sender may use it."""
        return trusted or self.who == "everyone"

    def outcome(self, snapshot: Snapshot, call: Call) -> Outcome:
        """What it does. Never raises: a message that cannot be accepted would come again and
        again, and hold up all that its chat says after it."""
        if not self.is_for(trusted=call.trusted):
            return Outcome(call.say(phrases.NOT_FOR_YOU))
        sender = call.inbound.sender.id
        refusal = rooms.refusal(self.room, call.argument, call.admin, snapshot, sender)
        if refusal is not None:
            return Outcome(call.say(refusal))
        if not call.failed:
            try:
                return self.run(snapshot, call)
            except Exception:
                logger.exception("command.broken", extra={"event": {"command": self.name}})
        return Outcome(call.say(phrases.COMMAND_FAILED))

    async def prepare(self, call: Call, backstage: Backstage) -> Call:
        """What must be done or found out before `outcome`.

        :raises StoreError: what the store raises; the message shall come again
        """
        if self.first is None or not self.is_for(trusted=call.trusted):
            return call
        if not call.admin and rooms.concerns(self.room, call.argument):
            return call
        try:
            return replace(call, found=await self.first(call, backstage))
        except StoreError:
            raise
        except Exception:
            logger.exception("command.broken", extra={"event": {"command": self.name}})
            return replace(call, failed=True)


def command_of(function: Callable[[Call], Any], name: str) -> Command:
    """A command made of a function that is given the `Call` and returns what to say, in markdown.

    ::

        def roll(call: Call) -> str:
            "roll a die"
            return str(random.randint(1, 6))

    The first line of its docstring is its help. One that is not async runs in a thread. Killed
    before its answer is saved, it runs again when the platform repeats the message.

    :raises ValueError: it cannot be a command's name
    """

    async def first(call: Call, backstage: Backstage) -> str:
        async with asyncio.timeout(OWN_SECONDS):
            said = await _called(function, call)
        if not isinstance(said, str):
            raise TypeError(f"/{name} returned {type(said).__name__}, not a text")
        return said

    lines = (inspect.getdoc(function) or "").splitlines()
    return Command(
        name,
        lines[0].strip() if lines else name,
        lambda snapshot, call: Outcome(call.found),
        first=first,
    )


async def _called(function: Callable[[Call], Any], call: Call) -> object:
    if inspect.iscoroutinefunction(function):
        return await function(call)
    said = await asyncio.to_thread(function, call)
    # An object with an async `__call__`, a partial.
    return await said if inspect.isawaitable(said) else said


class Commands:
    """A table of commands, in the order in which people are shown them.

    :raises ValueError: two of them have one name
    """

    def __init__(self, commands: Iterable[Command] = ()) -> None:
        table: dict[str, Command] = {}
        for command in commands:
            if command.name in table:
                raise ValueError(f"/{command.name}: there are two commands of this name")
            table[command.name] = command
        self._table: Mapping[str, Command] = table

    def __iter__(self) -> Iterator[Command]:
        return iter(self._table.values())

    def extended(self, *more: Command) -> Commands:
        """
        :raises ValueError: a name is taken
        """
        return Commands((*self, *more))

    def named(self, name: str) -> Command | None:
        """The command of this name."""
        return self._table.get(name)

    def without(self, *names: str) -> Commands:
        """Those that have other names."""
        return Commands(each for each in self if each.name not in names)

    def of(self, inbound: Inbound) -> Command | None:
        """Which command this is; None when it is none of ours, so that it is an ordinary
        message."""
        if inbound.kind != "command":
            return None
        return self._table.get(_words(inbound)[0].removeprefix("/").lower())

    def open_to(self, trusted: bool) -> tuple[Command, ...]:
        """Those that such a sender may use."""
        return tuple(each for each in self if each.is_for(trusted=trusted))


def argument_of(inbound: Inbound) -> str:
    """What stands behind the command's name."""
    return _words(inbound)[1].strip()


def _words(inbound: Inbound) -> tuple[str, str]:
    """The first word and the rest, whatever white space parts them."""
    first, rest, *_ = *inbound.text.split(maxsplit=1), "", ""
    return first, rest
