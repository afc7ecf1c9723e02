"""The seam to a database: SessionStore (all that a Session needs) and BotStore (what a bot adds).

Protocols and values only. An implementation is one file in `stores/`, proved by the contract suite
in `bots/contracts/store.py`. Stores compare keys as exact text and never parse them; a store never
turns unreadable into empty; every failure travels up as an error of `core.errors`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

import msgspec

from core.keys import check_key
from core.messages import Message
from core.snapshot import Snapshot
from core.usage import By, Spent, Sum


class SessionRef(msgspec.Struct, frozen=True):
    """What every store call is told about its session.

    :param key: 1 to 255 characters, no NUL; every built-in store goes by it alone
    :param agent: the agent's name
    :param cwd: the working directory
    :param id: the session id, when it has one
    :param options: free options of whoever configured the store
    :raises InvalidKey: the key cannot be one
    """

    key: str
    agent: str = ""
    cwd: str = ""
    id: str | None = None
    options: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        check_key(self.key)


class Summary(msgspec.Struct, frozen=True):
    """One conversation in a list.

    :param messages: rows of history, trimmed ones included
    :param updated_at: milliseconds since 1970, UTC
    """

    key: str
    messages: int
    unfinished: bool
    updated_at: int


@runtime_checkable
class SessionStore(Protocol):
    """Load, save, clear: all that a custom store must write."""

    async def load(self, ref: SessionRef) -> Snapshot | None:
        """None: nothing is stored under this key.

        :raises SnapshotUnreadable: something is, and it cannot be read; it stays as it is
        :raises SnapshotTooNew: a newer version wrote it; it stays as it is
        :raises StoreUnavailable: the database did not answer
        """
        ...

    async def save(self, ref: SessionRef, snapshot: Snapshot, *, replaces: int | None) -> None:
        """Durable when this returns.

        :param replaces: the stored revision the caller saw; None: nothing may be stored
        :raises StaleSnapshot: another revision is stored; nothing was changed
        :raises StoreUnavailable: the outcome is unknown: load again before anything else
        """
        ...

    async def clear(self, ref: SessionRef) -> None:
        """`load` gives None afterwards. Clearing what is not there, or is unreadable, is fine."""
        ...


class Notes(Protocol):
    """Small things that are no session: owner, pairing code, bot id per account."""

    async def get(self, name: str) -> bytes | None:
        """None: there is no such note."""
        ...

    async def put(self, name: str, value: bytes | None, *, was: bytes | None) -> bool:
        """Compare-and-set: False, and nothing changed, unless the note is `was` (None: absent).

        :param value: None removes the note
        """
        ...

    def names(self) -> AsyncIterator[str]:
        """Of all notes, in order."""
        ...


class Blob(msgspec.Struct, frozen=True):
    """An image, a document, a long result of a tool."""

    media_type: str
    data: bytes


class Blobs(Protocol):
    """Bytes beside the histories, each stored once, by its hash. Blocks name one as
    ``{"type": "image", "source": {"type": "blob", "id": ..., "media_type": ...}}``.

    A blob lives as long as a conversation uses it. `clear`, and a `save` whose `erase` takes the
    last row that names it, end the use of that conversation; `move` takes its uses along. What was
    put and is named by nothing ends with the next such save that is a quarter of an hour later.
    """

    async def put(self, key: str, data: bytes, media_type: str) -> str:
        """Durable when it returns; the conversation `key`, which need not exist, uses it from now
        on. Twice is harmless.

        :returns: its id, ``sha256:`` and 64 digits
        :raises ValueError: more bytes than `core.blobs.MAX_BYTES`
        :raises StoreUnavailable: it may be stored or not
        """
        ...

    async def sweep(self, before: int) -> int:
        """Ends the uses of conversations that are not there, as far as they were put before then,
        in ms since 1970. How many those were. In small steps, so that no save waits for long."""
        ...

    async def get(self, id: str) -> Blob | None:
        """None: there is no such blob, or no more.

        :raises BlobUnreadable: it is damaged
        :raises StoreUnavailable: the database did not answer
        """
        ...


class UsageRows(Protocol):
    """What model calls used: a row a call, written by the save whose snapshot names it in `spent`.

    A row is named by its execution and call: saved again it takes the place of the one before,
    except that an estimate never replaces what the provider said. It outlives its conversation,
    goes on under the new key when that moves, and is of no conversation whose save failed.
    """

    async def sums(
        self,
        by: Sequence[By] = (),
        *,
        since: int = 0,
        until: int | None = None,
        key: str | None = None,
        sender: str | None = None,
    ) -> list[Sum]:
        """One sum for each group, in order of what they are grouped by; none when no row fits.

        :param since: only calls from then on, in ms since 1970
        :param until: only calls before that
        :param key: only those of this conversation
        :param sender: only those that answered this person
        """
        ...

    async def forget(self, sender: str) -> int:
        """The person's rows stay, for the sums that they are in, but without sender and key. How
        many there were."""
        ...

    async def erase(self, before: int) -> int:
        """The rows of calls before then, in ms since 1970, are deleted. How many there were. In
        small steps, so that no save waits for long."""
        ...

    def rows(self) -> AsyncIterator[tuple[str, Spent]]:
        """All of them, each with the key of its conversation, in any order: for whoever copies
        them."""
        ...

    async def add(self, rows: Sequence[tuple[str, Spent]]) -> None:
        """As `rows` gave them, without a save. Those that are there already stay. Twice is
        harmless."""
        ...


@runtime_checkable
class TellsRevision(Protocol):
    """What a store has besides when several processes may share it, so that whoever wants to know
    whether somebody else has saved need not load all of a conversation."""

    async def revision(self, ref: SessionRef) -> int | None:
        """The stored revision, as `load` would give it; None: nothing is stored. Whether it can be
        read nobody has looked.

        :raises StoreUnavailable: the database did not answer
        """
        ...


@runtime_checkable
class BotStore(SessionStore, Protocol):
    """What a bot needs besides. An async context manager: open inside, closed outside."""

    @property
    def notes(self) -> Notes: ...

    @property
    def usage(self) -> UsageRows: ...

    @property
    def blobs(self) -> Blobs: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def unfinished(self) -> AsyncIterator[str]:
        """Keys of the sessions with something to do, by an index, never by a scan of all."""
        ...

    def summaries(
        self, prefix: str = "", after: str | None = None, limit: int = 100
    ) -> AsyncIterator[Summary]:
        """Conversations in order of their key, from the first key behind `after`."""
        ...

    def archive(
        self, ref: SessionRef, before: int | None = None, limit: int = 100
    ) -> AsyncIterator[Message]:
        """Rows of history with a seq below `before` (None: from the end), newest first, trimmed
        ones included. A store that keeps only the window gives only that, and says so."""
        ...

    async def move(self, old: str, new: str) -> None:
        """Every key that is `old`, or begins with `old` and a slash, begins with `new` instead.

        A conversation that is already there follows the moved one (`changes.move`). One
        transaction; a second time changes nothing.
        """
        ...

    def spoken_by(self, sender: str) -> AsyncIterator[str]:
        """Keys of the conversations in which this person has said something that is stored, be it
        history or not. Looks at all of them."""
        ...

    async def remove(self, ref: SessionRef, *, replaces: int) -> None:
        """As `clear`, if this revision is what is stored.

        :raises StaleSnapshot: it is not; nothing was changed
        """
        ...

    async def size(self, key: str | None = None) -> int:
        """Bytes that all takes, or the one conversation and what it alone uses; what is free is not
        counted. Nearly: what comes of a removal is seen in it."""
        ...

    async def clear_aside(
        self, *, key: str | None = None, sender: str | None = None, before: int | None = None
    ) -> int:
        """What was set aside under the key, or has this person's id in it, or was set aside before
        that time, is deleted. How many conversations that were.

        :param before: in ms since 1970
        """
        ...

    async def scrub(self) -> None:
        """What was erased before is in no file any more when this returns, not even in free space.
        Takes time in proportion to all that is stored, and holds up saves meanwhile."""
        ...

    async def set_aside(self, ref: SessionRef) -> None:
        """The stored bytes are kept under another name, and the key is free."""
        ...
