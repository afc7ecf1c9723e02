"""Blobs: images, documents and long results, kept beside a history by the hash of their bytes.

Pure functions: what a blob is called, which blobs a value names, and which of those a conversation
has used it does no longer. Not where the bytes are (a store's `blobs`, see `core.store`), and not
how they get into a request (`core.requested`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final

from core.errors import BlobUnreadable
from core.snapshot import Snapshot

MAX_BYTES: Final = 32 << 20
# What was put is named by a save soon afterwards, or never: its message was refused, say.
GRACE_MS: Final = 15 * 60 * 1000

# In a text a person wrote, the quotes would be escaped.
_NAME: Final = re.compile(rb'"(sha256:[0-9a-f]{64})"')
_ID: Final = re.compile(r"sha256:[0-9a-f]{64}")


def id_of(data: bytes) -> str:
    """
    :raises ValueError: more bytes than a blob may have
    """
    if len(data) > MAX_BYTES:
        raise ValueError(f"a blob has {MAX_BYTES} bytes at most; this one has {len(data)}")
    return f"sha256:{sha256(data).hexdigest()}"


def is_id(name: object) -> bool:
    return isinstance(name, str) and _ID.fullmatch(name) is not None


def checked(id: str, data: bytes) -> bytes:
    """
    :raises BlobUnreadable: these are not the bytes that once were stored under the id
    """
    if f"sha256:{sha256(data).hexdigest()}" != id:
        raise BlobUnreadable(f"{id[:19]}…: its bytes are damaged")
    return data


def named_in(data: bytes) -> set[str]:
    """The ids that stand in a piece of JSON."""
    return {match.decode() for match in _NAME.findall(data)} if b'"sha256:' in data else set()


def named_by(snapshot: Snapshot) -> set[str]:
    """The ids that the value names: in its rows, and in what waits to be answered or sent."""
    named: set[str] = set()
    for each in snapshot.rows + snapshot.inbox + snapshot.unanswered:
        named |= named_in(bytes(each.blocks))
    if snapshot.turn and snapshot.turn.suspended:
        named |= named_in(bytes(snapshot.turn.suspended.results))
    for part in snapshot.outbox:
        named |= named_in(part.body.encode()) if part.body else set()
        named |= {part.file.blob} if part.file and part.file.blob else set()
    return named


def unused(uses: Mapping[str, int], going: Iterable[str], named: set[str], now: int) -> set[str]:
    """Which of its blobs a conversation is done with.

    :param uses: when it put each of them, in ms
    :param going: ids that what is erased has named
    :param named: ids that what stays names
    """
    gone = set(going)
    return {
        id for id, at in uses.items() if id not in named and (id in gone or at + GRACE_MS < now)
    }
