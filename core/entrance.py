"""The entrance: a stranger asks to be let in, the owner is asked by a card, and presses a button.

What was decided, and who asks, stands in the store's notes (`access.py`); the card, and the word
that somebody was let in, are parts of conversations like any other. Each step is done once, however
often it is begun anew: the decision first, then what tells of it, last that the press was seen.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from msgspec.structs import replace

from core import access, changes, phrases
from core.access import Asking
from core.adapter import (
    Acceptance,
    Accepted,
    Adapter,
    Card,
    Cards,
    Choice,
    Duplicate,
    KnowsPeople,
    Refused,
)
from core.cards import name_of
from core.errors import SnapshotTooNew, SnapshotUnreadable
from core.events import emit
from core.gate import Gate
from core.messages import Inbound, Outbound, Sender
from core.outbox import parts_of, queue
from core.phrases import Wording
from core.snapshot import Snapshot
from core.snapshots import Snapshots


class Entrance:
    """
    :param begin: an empty conversation
    :param submit: the engine's: a conversation has something to say
    """

    def __init__(
        self,
        gate: Gate,
        snapshots: Snapshots,
        adapters: Sequence[Adapter],
        begin: Callable[[], Snapshot],
        submit: Callable[[str, str], Awaitable[None]],
        say: Wording,
    ) -> None:
        self._gate = gate
        self._snapshots = snapshots
        self._adapters = tuple(adapters)
        self._begin = begin
        self._submit = submit
        self._say = say

    async def ask(self, stranger: Inbound, asking: Asking) -> Refused:
        """
        :raises StoreError: what the store raises; the message shall come again
        """
        owner = self._gate.owner
        assert owner is not None, "else nobody asks"
        for adapter, key in self._places(owner, stranger.key):
            if isinstance(adapter, Cards) and await self._card(adapter, key, asking):
                self._gate.asked(stranger.sender.id)
                reply = self._say(phrases.STRANGER_ASKED, id=stranger.sender.id)
                return Refused(reply, private=True)
        self._gate.asked(stranger.sender.id)
        return Refused(self._say(phrases.STRANGER, id=stranger.sender.id), private=True)

    async def _card(self, adapter: Cards, key: str, asking: Asking) -> bool:
        person = name_of(Sender(asking.id, asking.name))
        text = self._say(phrases.ACCESS_ASK, person=person, id=asking.id)
        choices = (
            Choice(self._say(phrases.ACCESS_ALLOW), access.data(asking, "allow")),
            Choice(self._say(phrases.ACCESS_DENY), access.data(asking, "deny")),
        )
        body = adapter.render_card(Card(text, choices))
        return await self._tell(key, f"asks.{asking.token}", (body,))

    async def press(self, pressed: Inbound, adapter: Adapter) -> Acceptance:
        """One of the two buttons.

        :raises StoreError: what the store raises; the press shall come again
        """
        if pressed.sender.id != self._gate.owner:
            return Refused(self._say(phrases.NOT_YOURS), private=True)
        answer = access.pressed(pressed.text)
        decided = await self._gate.decide(*answer) if answer else None
        if decided is None:
            return Refused(self._say(phrases.ACCESS_OVER), private=True, over=True)
        listed, verdict = decided
        if verdict == "allow":
            for other, key in self._places(listed.id, pressed.key):
                bodies = other.render(self._say(phrases.ACCESS_LET_IN))
                if await self._tell(key, f"let_in.{listed.token}", bodies):
                    break
        sentence = phrases.ACCESS_ALLOWED if verdict == "allow" else phrases.ACCESS_DENIED
        text = self._say(sentence, person=name_of(Sender(listed.id, listed.name)), id=listed.id)
        return await self._seen(pressed, adapter, text)

    async def _seen(self, pressed: Inbound, adapter: Adapter, text: str) -> Acceptance:
        """The card says what became of it."""
        edit: tuple[Outbound, ...] = ()
        if pressed.message_id is not None and isinstance(adapter, Cards):
            body = adapter.render_card(Card(text))
            edit = (Outbound(f"over.{pressed.id}", body, replaces=pressed.message_id),)

        def change(before: Snapshot | None) -> Snapshot | None:
            if before is None or changes.knows(before, pressed.id):
                return before
            return queue(changes.reply(before, pressed, ()), edit)

        snapshot, applied = await self._snapshots.update(pressed.key, change)
        if applied:
            return Accepted()
        return Duplicate() if snapshot else Refused(private=True, over=True)

    async def _tell(self, key: str, name: str, bodies: Sequence[str]) -> bool:
        """Says something once, unasked. False: the conversation cannot be read."""

        def change(before: Snapshot | None) -> Snapshot | None:
            snapshot = before or self._begin()
            if name in snapshot.seen:
                return before
            seen = (*snapshot.seen, name)[-changes.SEEN_LIMIT :]
            parts = parts_of(f"{snapshot.epoch}.{name}", bodies, None)
            return queue(replace(snapshot, seen=seen), parts)

        try:
            await self._snapshots.update(key, change)
        except (SnapshotUnreadable, SnapshotTooNew):
            return False
        emit("told", key, what=name.partition(".")[0])
        await self._submit(key, name)
        return True

    def _places(self, person: str, beside: str) -> Iterable[tuple[Adapter, str]]:
        """Where a person can be spoken to alone, first by the bot that serves this key."""
        for adapter in sorted(self._adapters, key=lambda each: not each.serves(beside)):
            key = adapter.private_key(person) if isinstance(adapter, KnowsPeople) else None
            if key is not None:
                yield adapter, key
