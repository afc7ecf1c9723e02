"""That a platform has ended a run: a note in the database, for `chinwag check`.

A second process that uses the same token is seen by whoever is turned away, and only then. Not a
log: the newest refusal of each adapter, until a run of it has ended well.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import msgspec

from core.store import Notes

_PREFIX: Final = "refused."


class Refusal(msgspec.Struct, frozen=True):
    """
    :param at: milliseconds since 1970, UTC
    :param why: a sentence, without a secret
    """

    at: int
    why: str


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Refusal).decode


async def note(notes: Notes, adapter: str, refusal: Refusal | None) -> None:
    """
    :param refusal: None: the run has ended well
    :raises StoreError: it may be noted or not
    """
    name = _PREFIX + adapter
    value = None if refusal is None else _encode(refusal)
    known = await notes.get(name)
    if known != value:
        # Nobody else writes it: we hold the database.
        await notes.put(name, value, was=known)


async def read(notes: Notes, adapters: Iterable[str]) -> dict[str, Refusal]:
    """The newest of each adapter that has one.

    :raises StoreError: the store does not answer
    """
    found = {}
    for adapter in adapters:
        value = await notes.get(_PREFIX + adapter)
        with suppress(msgspec.DecodeError):
            if value is not None:
                found[adapter] = _decode(value)
    return found
