"""The body of a getUpdates answer, or of a request to a webhook -> updates, each decoded by itself.

One update that no decoder takes must not hide the ones beside it. Nothing is understood here but
`update_id`, the one thing that confirming needs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Annotated, Final

import msgspec

# Strings are skipped as a whole, so that brackets and commas in them are just text.
_TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|[][{},]', re.S)
_RESULT: Final = re.compile(r'"result"\s*:\s*\[')
_ID: Final = re.compile(r'\{\s*"update_id"\s*:\s*([0-9]{1,16})\s*[,}]')


class Unreadable(Exception):
    """The body is not an answer of Telegram's."""


class Update(msgspec.Struct, frozen=True):
    """
    :param id: None when it has none: nothing can confirm it
    :param value: decoded JSON of any kind; None as well when it could not be decoded
    """

    id: int | None
    value: object


class _Answer(msgspec.Struct):
    result: list[msgspec.Raw]


class _Head(msgspec.Struct):
    update_id: Annotated[int, msgspec.Meta(ge=0, le=2**53)]


_answer: Final = msgspec.json.Decoder(_Answer).decode
_head: Final = msgspec.json.Decoder(_Head).decode
_any: Final = msgspec.json.Decoder().decode


def read(body: bytes) -> list[Update]:
    """In the order of the answer.

    :raises Unreadable: no JSON object with a list of results
    """
    try:
        return [_update(bytes(raw)) for raw in _answer(body).result]
    except msgspec.ValidationError as error:
        raise Unreadable("no list of updates") from error
    except (msgspec.DecodeError, RecursionError):
        # Valid JSON that this decoder refuses (half a surrogate pair, depth), or no JSON.
        return [_update(raw) for raw in _torn(body)]


def read_one(body: bytes) -> Update:
    """The body of a request to a webhook. Never raises."""
    return _update(body)


def _update(raw: bytes) -> Update:
    return Update(_id_of(raw), _value_of(raw))


def _id_of(raw: bytes) -> int | None:
    try:
        return _head(raw).update_id
    except (msgspec.DecodeError, RecursionError):
        found = _ID.match(raw.decode(errors="replace"))
        return int(found[1]) if found else None


def _value_of(raw: bytes) -> object:
    try:
        return _any(raw)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return json.loads(raw.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None


def _torn(body: bytes) -> Iterator[bytes]:
    """The elements of the list of results, found by its brackets alone."""
    text = body.decode(errors="replace")
    begin = _RESULT.search(text)
    if begin is None:
        raise Unreadable("no list of updates")
    depth, start = 0, begin.end()
    for token in _TOKENS.finditer(text, start):
        sign = token[0]
        if depth == 0 and sign in ",]":
            if element := text[start : token.start()].strip():
                yield element.encode(errors="replace")
            start = token.end()
            if sign == "]":
                return
        elif sign in "[{":
            depth += 1
        elif sign in "]}":
            depth -= 1
    raise Unreadable("the list of updates has no end")
