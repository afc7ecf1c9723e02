"""ConversationMemory: what a conversation begins with, and how much of it is sent.

An input of an agent: a run never changes it. Not a store: what left the window stays stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, get_args

import msgspec

from core.history import exchanges
from core.messages import Message, Role
from core.snapshot import Fit
from core.window import Bounds, compacted, fitted

SUMMARY_MODEL: Final = "anthropic/claude-haiku-5-5"
COMPACT_AT: Final = 150_000  # the service's own default
LEAST_COMPACT_AT: Final = 50_000


class Seed(msgspec.Struct, frozen=True):
    """One spoken entry given up front."""

    role: Role
    message: str


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: Literal["system", "user", "assistant"]
    message: str


class _Serial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    messages: tuple[_Entry, ...]
    max_messages: int | None = None
    trim_to: int | None = None


Strategy = Literal["window", "summary", "server"]


class ConversationMemory:
    """
    ::

        memory = ConversationMemory(20).add_system("You are concise.").add_user("I am Alice.")

    All bounds hold for the history and the newest user message together, when a turn starts.

    :param max_messages: how many messages a request may begin its turn with, the newest user
        message included; None: no bound
    :param trim_to: how many stay when the bound is met, at most; fewer trims keep the beginning
        of the prompt equal for many turns, which is what a provider's prompt cache pays for.
        Half of `max_messages` when not given. The other bounds go down to the same share
    :param max_tokens: estimated, see `core.window`; system texts and tools do not count
    :param max_bytes: of the messages, images and files in base64 included
    :param max_images: images and files together; older ones are not sent again
    :param strategy: what becomes of exchanges that are too many: ``window`` leaves them out,
        ``summary`` has them summarised, ``server`` lets the service compact them (Anthropic only)
    :param summary_model: the model that summarises, as in `Agent.model`
    :param compact_at: tokens of the whole request from which on the service compacts; it takes
        no less than 50,000
    :raises ValueError: a bound below 1, or `trim_to` above `max_messages`
    """

    def __init__(
        self,
        max_messages: int | None = None,
        trim_to: int | None = None,
        *,
        max_tokens: int | None = None,
        max_bytes: int | None = None,
        max_images: int | None = None,
        strategy: Strategy = "window",
        summary_model: str = SUMMARY_MODEL,
        compact_at: int = COMPACT_AT,
    ) -> None:
        if max_messages is not None and max_messages < 1:
            raise ValueError(f"max_messages must be at least 1, or None; it is {max_messages}")
        if trim_to is not None and (trim_to < 1 or (max_messages or trim_to) < trim_to):
            raise ValueError(f"trim_to must be from 1 to max_messages; it is {trim_to}")
        for name, bound in (("max_tokens", max_tokens), ("max_bytes", max_bytes)):
            if bound is not None and bound < 1:
                raise ValueError(f"{name} must be at least 1, or None; it is {bound}")
        if max_images is not None and max_images < 0:
            raise ValueError(f"max_images must be at least 0, or None; it is {max_images}")
        if strategy not in get_args(Strategy):
            raise ValueError(f"strategy must be one of {get_args(Strategy)}; it is {strategy!r}")
        if compact_at < LEAST_COMPACT_AT:
            raise ValueError(f"compact_at must be at least {LEAST_COMPACT_AT}; it is {compact_at}")
        self.max_messages = max_messages
        self.trim_to = trim_to or max(1, (max_messages or 2) // 2)
        self.bounds = Bounds(max_tokens, max_bytes, max_images)
        self.strategy: Strategy = strategy
        self.summary_model = summary_model
        self.compact_at = compact_at
        self._entries: tuple[tuple[str, str], ...] = ()
        self.system: tuple[str, ...] = ()
        self._spoken: tuple[Seed, ...] = ()

    def add_system(self, message: str) -> ConversationMemory:
        """It joins the request's system parameter; no bound touches it."""
        self.system += (message,)
        return self._add("system", message)

    def add_user(self, message: str) -> ConversationMemory:
        """It is among the first messages of an empty conversation."""
        self._spoken += (Seed("user", message),)
        return self._add("user", message)

    def add_assistant(self, message: str) -> ConversationMemory:
        """It is among the first messages of an empty conversation."""
        self._spoken += (Seed("assistant", message),)
        return self._add("assistant", message)

    def _add(self, role: str, message: str) -> ConversationMemory:
        self._entries += ((role, message),)
        return self

    @property
    def spoken(self) -> tuple[Seed, ...]:
        """What an empty conversation begins with: the user and assistant entries that fit into
        the bound beside one more message."""
        beginnings = (i for i, seed in enumerate(self._spoken) if seed.role == "user")
        return self._spoken[self._first_kept(len(self._spoken), beginnings) :]

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> ConversationMemory:
        """What `to_dict` gave, out of a store of your own.

        :raises ValueError: it is of another shape
        """
        try:
            serial = msgspec.convert(dict(value), _Serial)
        except msgspec.ValidationError as error:
            raise ValueError(f"no conversation memory: {error}") from None
        memory = cls(serial.max_messages, serial.trim_to)
        add = {"system": memory.add_system, "user": memory.add_user}
        for entry in serial.messages:
            add.get(entry.role, memory.add_assistant)(entry.message)
        return memory

    def to_dict(self) -> dict[str, object]:
        """All entries as ``{"role": ..., "message": ...}``; `max_messages` only when it is set,
        `trim_to` when it is not the half of that."""
        entries = [{"role": role, "message": message} for role, message in self._entries]
        given = {"max_messages": self.max_messages, "trim_to": self.trim_to}
        usual = ConversationMemory(self.max_messages)
        bounds = {"max_messages": None, "trim_to": usual.trim_to}
        return {"messages": entries, **{k: v for k, v in given.items() if v != bounds[k]}}

    def first_kept(self, messages: Sequence[Message]) -> int:
        """Index of the first of `messages` that `max_messages` lets a turn still send, when one
        more joins them.

        Whole exchanges go, oldest first, down to `trim_to`; `len(messages)` when none can stay.
        """
        return self._first_kept(len(messages), exchanges(messages))

    def kept(
        self,
        messages: tuple[Message, ...],
        newest: Sequence[Message] = (),
        fit: Fit = Fit(),  # noqa: B008 (frozen)
        *,
        times: int = 1,
    ) -> tuple[tuple[Message, ...], Fit]:
        """Those that a turn still sends when `newest` joins them, and what of them it leaves out.
        What was kept once is kept again.

        A summary at the beginning stays when exchanges go, if there is any room.

        :param times: all bounds are so many times as wide
        """
        told = messages[:1] if messages and messages[0].role == "summary" else ()
        if told and self.max_messages == 1:
            return self.kept(messages[1:], newest, fit, times=times)
        rest = messages[len(told) :]
        first = self._first_kept(len(rest), exchanges(rest), times, beside=1 + len(told))
        if self.strategy == "server":
            first = max(first, compacted(rest))
        bounds = self.bounds.times(times)
        if any(bound is not None for bound in bounds):
            share = self.trim_to / self.max_messages if self.max_messages else 0.5
            further, fit = fitted(rest[first:], (*told, *newest), bounds, share, fit)
            first += further
        return (told + rest[first:] if first else messages), fit

    def _first_kept(
        self, count: int, exchanges: Iterator[int], times: int = 1, beside: int = 1
    ) -> int:
        """
        :param exchanges: indexes at which one begins; not asked while all fit
        :param beside: how many messages there are besides
        """
        if self.max_messages is None or count + beside <= self.max_messages * times:
            return 0
        beginnings = list(exchanges)
        for bound in (self.trim_to * times, self.max_messages * times):
            for index in beginnings:
                if count - index + beside <= bound:
                    return index
        return count


BOT_MEMORY = ConversationMemory(40, 20)
