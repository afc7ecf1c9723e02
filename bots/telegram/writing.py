"""What was written: text with entities, the command it begins with, and where the bot is named.

Pure. Whether the bot is meant is decided in `parse.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from bots.telegram.received import Entity, Me, Message


class Writing(msgspec.Struct):
    """What was written, in UTF-16 units: entities count in those."""

    units: bytes
    entities: Sequence[Entity]

    @staticmethod
    def of(message: Message) -> Writing:
        text, entities = message.text, message.entities
        if text is None:
            text, entities = message.caption or "", message.caption_entities
        return Writing(text.encode("utf-16-le", "surrogatepass"), entities)

    def part(self, start: int = 0, end: int | None = None) -> str:
        units = self.units[2 * start : None if end is None else 2 * end]
        return units.decode("utf-16-le", "surrogatepass")

    def command(self) -> Entity | None:
        """The command that it begins with."""
        for entity in self.entities:
            if entity.type == "bot_command" and entity.offset == 0:
                return entity if self.part(0, entity.length).startswith("/") else None
        return None

    def mentions(self, bot: Me) -> list[tuple[int, int]]:
        """Where the bot is named, in order."""
        return sorted(
            (entity.offset, entity.offset + entity.length)
            for entity in self.entities
            if self._names(entity, bot)
        )

    def _names(self, entity: Entity, bot: Me) -> bool:
        if entity.type == "text_mention":
            return entity.user is not None and entity.user.id == bot.id
        name = self.part(entity.offset, entity.offset + entity.length)
        return entity.type == "mention" and name.lower() == f"@{bot.username.lower()}"


class Called(msgspec.Struct, frozen=True):
    """What, besides its user name, reaches the bot in a group.

    :param names: at the beginning or the end of a message, as whole words, in any case
    :param everything: what is not said to it is brought, too, marked as that
    """

    names: tuple[str, ...] = ()
    everything: bool = False


BY_NAME_ONLY: Final = Called()


def is_called(writing: Writing, names: tuple[str, ...]) -> bool:
    """Whether one of these names stands in front or at the end."""
    return bool(names) and _calls(names).search(writing.part()) is not None


@lru_cache(maxsize=100)
def _calls(names: tuple[str, ...]) -> re.Pattern[str]:
    some = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    # Between the name and the border stands nothing that is said: signs, white space, pictograms.
    word, sign = r"[^\W_]", r"[\W_]*"
    return re.compile(rf"\A{sign}(?:{some})(?!{word})|(?<!{word})(?:{some}){sign}\Z", re.IGNORECASE)


def for_us(writing: Writing, bot: Me) -> bool:
    """Whether it begins with a command that is not another bot's."""
    command = writing.command()
    if command is None:
        return False
    _, at, whose = writing.part(0, command.length).partition("@")
    return not at or whose.lower() == bot.username.lower()


def own_words(writing: Writing, bot: Me) -> str:
    """The text without the bot's name where it only addresses the bot: in front and at the end."""
    command = writing.command() if for_us(writing, bot) else None
    start = 0 if command is None else command.length
    end = len(writing.units) // 2
    mentions = writing.mentions(bot)
    for first, last in mentions:
        if not writing.part(start, first).strip():
            start = max(start, last)
    for first, last in reversed(mentions):
        if first >= start and not writing.part(last, end).strip():
            end = min(end, first)
    rest = writing.part(start, end)
    if command is not None:
        name, _, _ = writing.part(0, command.length).partition("@")
        return f"{name} {rest.strip()}"
    if start:
        rest = re.sub(r"\A[,:](?=\s)", "", rest)
    # Who says nothing but our name still wants an answer.
    return rest if rest.strip() else writing.part()
