"""ConversationMemory: what a conversation begins with, and how much of it is sent.

An input of an agent: a run never changes it. Not a store: what left the window stays stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from core.history import exchanges
from core.messages import Message, Role


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


class ConversationMemory:
    """
    ::

        memory = ConversationMemory(20).add_system("You are concise.").add_user("I am Alice.")

    :param max_messages: how many messages a request may begin its turn with, the newest user
        message included; None: no bound
    :param trim_to: how many stay when the bound is met, at most; fewer trims keep the beginning
        of the prompt equal for many turns, which is what a provider's prompt cache pays for.
        Half of `max_messages` when not given
    :raises ValueError: a bound below 1, or `trim_to` above `max_messages`
    """

    def __init__(self, max_messages: int | None = None, trim_to: int | None = None) -> None:
        if max_messages is not None and max_messages < 1:
            raise ValueError(f"max_messages must be at least 1, or None; it is {max_messages}")
        if trim_to is not None and (trim_to < 1 or (max_messages or trim_to) < trim_to):
            raise ValueError(f"trim_to must be from 1 to max_messages; it is {trim_to}")
        self.max_messages = max_messages
        self.trim_to = trim_to or max(1, (max_messages or 2) // 2)
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
        """Index of the first of `messages` that a turn still sends, when one more joins them.

        Whole exchanges go, oldest first, down to `trim_to`; `len(messages)` when none can stay.
        """
        return self._first_kept(len(messages), exchanges(messages))

    def _first_kept(self, count: int, exchanges: Iterator[int]) -> int:
        """
        :param exchanges: indexes at which one begins; not asked while all fit
        """
        if self.max_messages is None or count + 1 <= self.max_messages:
            return 0
        beginnings = list(exchanges)
        for bound in (self.trim_to, self.max_messages):
            for index in beginnings:
                if count - index + 1 <= bound:
                    return index
        return count


BOT_MEMORY = ConversationMemory(40, 20)
