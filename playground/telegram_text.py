"""Telegram's rules for text: lengths in UTF-16 units, entities in and out, trimming.

Not a parser of Markdown or HTML: a text sent with `parse_mode` is kept as it came.
The rules and the wording of the errors are those of tdlib (td/telegram/MessageEntity.cpp).
"""

import re
from typing import Any

from playground.telegram_chats import Json, Refused

MAX_TEXT = 4096  # UTF-16 units
MAX_ENTITIES = 100

_MARKS = re.compile(
    r"(?<![\w/@<>])(?:"
    r"(?P<bot_command>/[A-Za-z0-9_]{1,64}(?:@[A-Za-z0-9_]{3,32})?)"
    r"|(?P<mention>@[A-Za-z0-9_]{3,32})"
    r")(?![\w/])"
)


def units(text: str) -> int:
    """The length in UTF-16 units, in which Telegram counts."""
    return len(text) + sum(1 for letter in text if letter > "\uffff")


def marks(text: str) -> list[Json]:
    """The entities that Telegram itself finds in what a person wrote: commands and mentions."""
    return [
        {
            "type": found.lastgroup,
            "offset": units(text[: found.start()]),
            "length": units(found.group()),
        }
        for found in _MARKS.finditer(text)
    ]


def outgoing(
    text: object, entities: object, *, may_be_empty: bool = False
) -> tuple[str, list[Json]]:
    """The text and entities as Telegram keeps them: checked, cut to 100 entities, trimmed.

    Raises `Refused` as Telegram would. The length is checked by `fits`, for Telegram looks at the
    chat in between.
    """
    given = text if isinstance(text, str) else ""
    if any("\ud800" <= letter <= "\udfff" for letter in given):
        raise Refused(400, "Bad Request: strings must be encoded in UTF-8")
    kept = _checked(given, entities)[:MAX_ENTITIES]
    trimmed, kept = _trimmed(given, kept)
    if not trimmed and not may_be_empty:
        raise Refused(400, "Bad Request: message text is empty")
    return trimmed, kept


def fits(text: str) -> None:
    """Raises `Refused` when the text is longer than one message may be."""
    if units(text) > MAX_TEXT:
        raise Refused(400, "Bad Request: message is too long")


def _checked(text: str, entities: object) -> list[Json]:
    if entities is None or entities == "":
        return []
    if not isinstance(entities, list):
        raise Refused(400, "Bad Request: can't parse entities JSON object")
    if not entities:
        return []
    borders = _borders(text)
    end = borders[-1]
    inside = set(borders)
    kept: list[Json] = []
    for entity in entities:
        offset, length = _span(entity)
        if length == 0:
            continue
        for place, word in ((offset, "begins"), (offset + length, "ends")):
            if place > end:
                raise Refused(
                    400,
                    f"Bad Request: entity {word} after the end of the text at offset {place}",
                )
            if place not in inside:
                raise Refused(
                    400,
                    f"Bad Request: entity {word} in a middle of a UTF-16 symbol at offset {place}",
                )
        kept.append(entity)
    # Telegram sorts them: outer before inner.
    return sorted(kept, key=lambda entity: (entity["offset"], -entity["length"]))


def _span(entity: Any) -> tuple[int, int]:
    if not isinstance(entity, dict) or not isinstance(entity.get("type"), str):
        raise Refused(400, "Bad Request: can't parse MessageEntity: Object expected")
    offset, length = entity.get("offset"), entity.get("length")
    if not isinstance(offset, int) or not 0 <= offset <= 1_000_000:
        raise Refused(400, f"Bad Request: receive an entity with incorrect offset {offset}")
    if not isinstance(length, int) or not 0 <= length <= 1_000_000:
        raise Refused(400, f"Bad Request: receive an entity with incorrect length {length}")
    return offset, length


def _borders(text: str) -> list[int]:
    """The UTF-16 offsets between whole characters, from 0 to the end."""
    borders = [0]
    for letter in text:
        borders.append(borders[-1] + (2 if letter > "\uffff" else 1))
    return borders


def _trimmed(text: str, entities: list[Json]) -> tuple[str, list[Json]]:
    # At the front only what is in no entity goes; at the end all white space goes, and entities are
    # cut with it.
    front = len(text) - len(text.lstrip())
    if entities:
        front = min(front, entities[0]["offset"])
    text = text[front:].rstrip()
    end = units(text)
    kept: list[Json] = []
    for entity in entities:
        offset = entity["offset"] - front
        length = min(entity["length"], end - offset)
        if length > 0:
            kept.append({**entity, "offset": offset, "length": length})
    return text, kept
