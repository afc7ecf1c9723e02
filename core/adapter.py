"""The seam to a platform: Adapter, and Live, which shows that an answer is on its way.

Protocols and values only. An implementation is one file or folder in `bots/`, proved by the
contract suite in `bots/contracts/adapter.py`. An adapter keeps no conversation and decides nothing
about who may speak: it turns events into Inbound values, and bodies into messages on a screen.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, Protocol, runtime_checkable

import msgspec

from core.errors import NotFetched as NotFetched  # noqa: PLC0414 (a part of the seam)
from core.messages import Attachment, Inbound, Outbound


class Accepted(msgspec.Struct, frozen=True):
    """The message is durable: the platform may be told so."""


class Duplicate(msgspec.Struct, frozen=True):
    """It was accepted before: the platform may be told again."""


class Refused(msgspec.Struct, frozen=True):
    """Nothing was kept. The adapter sends `reply`, if there is one, once and best effort.

    :param reply: markdown
    :param private: only its sender should see it, where the platform can do that
    :param over: of a decision: its question is not open any more, so its buttons may go
    """

    reply: str | None = None
    private: bool = False
    over: bool = False


class Choice(msgspec.Struct, frozen=True):
    """A button.

    :param data: what comes back when it is pressed; at most 34 bytes of ASCII
    """

    label: str
    data: str


class Card(msgspec.Struct, frozen=True):
    """A question with buttons, or, without choices, what became of it.

    :param text: markdown, at most 2,500 characters
    """

    text: str
    choices: tuple[Choice, ...] = ()


Acceptance = Accepted | Duplicate | Refused
Accept = Callable[[Inbound], Awaitable[Acceptance]]


class Rate(msgspec.Struct, frozen=True):
    """How much a platform lets leave for one chat.

    :param burst: how many at once, after a silence; at least 1
    :param per_second: how many go on after that
    :param spacing: seconds at least from the end of one send or edit to the next, however long the
        silence was; drafts and signs of typing, which nobody keeps, are not held to it
    :param place: all keys with the same share this rate (a chat has one for each topic, say);
        empty: the key has it to itself
    """

    burst: int
    per_second: float
    spacing: float = 0.0
    place: str = ""


# What leaves for a chat, what matters most first. A draft vanishes by itself.
Leaving = Literal["final", "approval", "edit", "draft", "typing"]
Decoration = Literal["edit", "draft", "typing"]


class Limits(msgspec.Struct, frozen=True):
    """What a platform can do.

    :param can_look_up: `send(uncertain=True)` finds out whether the part was sent before
    :param rate_of: the rate of the chat with this key; None: the platform sets none
    """

    can_look_up: bool = False
    rate_of: Callable[[str], Rate] | None = None

    def rate(self, key: str) -> Rate | None:
        return self.rate_of(key) if self.rate_of else None


class Showing(Protocol):
    """What a Live may ask of the core."""

    def may(self, leaving: Decoration) -> bool:
        """Whether a request may leave now. If so, it counts, for everything that leaves for a chat
        shares one budget; if not, it is left out."""
        ...

    def left(self, leaving: Decoration) -> None:
        """The request that was allowed is over, however it ended: from now on is counted when the
        next one may leave."""
        ...

    async def note(self, message_ids: tuple[str, ...]) -> None:
        """Durable when it returns: these messages show the answer so far, in order. After a crash
        they are finished by edits; so a new one is noted before it is edited further.

        :raises Fenced: the turn is not the one any more: nobody wants what they show
        :raises StoreError: it may not be noted
        """
        ...

    async def later(self, seconds: float) -> None:
        """The platform asks us to wait: nothing leaves for this chat until then."""
        ...


class Receipt(msgspec.Struct, frozen=True):
    """Which platform messages the part became."""

    message_ids: tuple[str, ...]


class Live(Protocol):
    """Typing, and the growing answer. Best effort: nothing that it does fails a turn."""

    def show(self, text: str) -> bool:
        """The answer so far. Never waits. True: somebody may have read it, so that the answer
        cannot silently be begun anew."""
        ...

    async def close(self) -> tuple[str, ...]:
        """Nothing is shown any more after this. Ids of the messages that stay on screen."""
        ...


@runtime_checkable
class Standing(Protocol):
    """What a Live can tell besides, when what it shows becomes the answer's own messages."""

    def standing(self) -> Mapping[str, str]:
        """After `close`: of the messages that stay, by their ids, the body that each surely has.
        A part of the answer that reads the same is not sent again."""
        ...


CallState = Literal["running", "done", "failed", "asks"]


class Doing(msgspec.Struct, frozen=True):
    """A call of a tool, as far as people may be told of it: never what it was given, or gave.

    :param id: of the call
    :param title: what its tool is for, in a few words on one line
    :param state: `asks`: somebody must allow it first
    """

    id: str
    title: str
    state: CallState


@runtime_checkable
class ShowsTools(Protocol):
    """What a Live can show besides: what the tools of the answer are doing. Best effort too."""

    def doing(self, calls: tuple[Doing, ...]) -> None:
        """All calls of this run of the turn so far, in order, each as it stands now. Never waits.
        Nothing is told of the end: what runs when the Live is closed has come to nothing."""
        ...


@runtime_checkable
class Adapter(Protocol):
    """One platform, or one of several bots on it."""

    @property
    def name(self) -> str: ...

    @property
    def limits(self) -> Limits: ...

    def serves(self, key: str) -> bool:
        """Whether this key's replies leave here."""
        ...

    async def run(self, accept: Accept) -> None:
        """Take messages in until cancelled. A message is confirmed to its platform only after
        `accept` has returned; when `accept` raises, it is not, and comes again.

        :raises PlatformRefused: deaf for good
        """
        ...

    def render(self, markdown: str) -> tuple[str, ...]:
        """Bodies for `send`, in order; together they say all of the text. Pure. White space
        alone gives no bodies."""
        ...

    async def send(self, key: str, part: Outbound, *, uncertain: bool) -> Receipt:
        """
        :param uncertain: the part may be on the screen already: look, where that is possible
        :raises TryLater: not sent; the platform asks us to wait
        :raises Gone: not sent; nobody is there any more
        :raises Moved: not sent; the chat has another key now
        :raises OutcomeUnknown: perhaps sent
        :raises Undeliverable: not sent; this part never can be
        """
        ...

    def live(self, key: str, inbound: Inbound, shown: tuple[str, ...], showing: Showing) -> Live:
        """
        :param inbound: the message being answered
        :param shown: ids of messages that an earlier attempt left on the screen
        """
        ...


@runtime_checkable
class Cards(Protocol):
    """What an adapter can besides, when its platform has buttons. A press comes in as an Inbound
    of kind ``decision``; once `accept` has returned, only who pressed is told of a refusal. An
    adapter without this is given the same question as text, to be answered by a command."""

    def render_card(self, card: Card) -> str:
        """One body for `send`. Pure. An edit to a card without choices takes the buttons away."""
        ...


@runtime_checkable
class AsksOpinions(Protocol):
    """What an adapter has besides when people can say by a button what they think of an answer; see
    `core.feedback`."""

    def asking(self, bodies: tuple[str, ...]) -> tuple[str, ...]:
        """The bodies of a complete answer, the last with the buttons. Pure."""
        ...


@runtime_checkable
class KnowsPeople(Protocol):
    """What an adapter has besides when it knows where a person and the bot are alone."""

    def private_key(self, sender_id: str) -> str | None:
        """The key of that conversation, whether there is one yet or not. None: it is nobody of this
        platform's, or nobody can say.

        :param sender_id: `Sender.id`
        """
        ...


@runtime_checkable
class KnowsMembers(Protocol):
    """What an adapter has besides when its platform knows who runs a room. In the rooms of others
    everybody may do what changes the conversation for all."""

    async def is_admin(self, key: str, sender_id: str) -> bool | None:
        """Whether this person may decide for all who share the conversation; always where the
        history is theirs alone. None: it cannot be found out now. Quick: seconds, and remembered
        for minutes.

        :param sender_id: `Sender.id`
        """
        ...


@runtime_checkable
class KnowsNames(Protocol):
    """What an adapter has besides when messages in rooms come without the name of their author."""

    async def name_of(self, key: str, sender_id: str) -> str:
        """As others there read it. Empty: it cannot be found out now. Quick: seconds, and
        remembered for minutes.

        :param sender_id: `Sender.id`
        """
        ...


@runtime_checkable
class SendsFiles(Protocol):
    """What an adapter has besides when its platform takes files. Others are given text instead."""

    async def send_file(self, key: str, part: Outbound, data: bytes, *, uncertain: bool) -> Receipt:
        """`Adapter.send` for a part with a `file`, which has these bytes."""
        ...


class Pulse(msgspec.Struct, frozen=True):
    """How the line to a platform is just now.

    :param state: in a word or two, such as ``polling``
    :param contact: seconds since the platform last answered us or came to us; None: never yet
    :param event: seconds since it last brought an event; None: never yet
    :param deaf: we know that nothing can come in
    """

    state: str
    contact: float | None = None
    event: float | None = None
    deaf: bool = False


@runtime_checkable
class Watched(Protocol):
    """What an adapter has besides when it can tell whether it still hears its platform."""

    def pulse(self) -> Pulse: ...


class Fetched(msgspec.Struct, frozen=True):
    """A file as it came.

    :param media_type: as the platform says; nobody has looked at the bytes
    """

    data: bytes
    media_type: str = ""
    name: str = ""


@runtime_checkable
class Fetches(Protocol):
    """What an adapter has besides when people can send files on its platform."""

    async def fetch(self, key: str, attachment: Attachment) -> Fetched:
        """Its bytes, from the platform itself and from nowhere else; bounded in size, and given up
        when cancelled.

        :raises TryLater: the platform asks us to wait, or could not be reached
        :raises NotFetched: it is too large, or is not there any more
        """
        ...
