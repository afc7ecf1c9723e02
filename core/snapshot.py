"""Snapshot: the immutable, versioned value of a session, and its journal.

Not a live object: nothing here waits, saves or sends. What changes a snapshot is in `changes.py`;
where it is kept is a store's affair; it never holds keys, tokens, tool state or in-flight calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec

from core.errors import SnapshotTooNew, SnapshotUnreadable
from core.messages import NO_BLOCKS, Inbound, Message, Outbound, Sender
from core.usage import Spent
from core.usage import Usage as Usage  # noqa: PLC0414 (it has always been found here)

Fields = dict[str, msgspec.Raw]

# From each version to the next: what a value of the one says, by field, as the other says it. What
# is not looked into stays byte for byte. Steps are only ever added, and none is ever changed: a
# value of any age is brought up by those that it has not seen, whenever it is read.
STEPS: tuple[Callable[[Fields], Fields], ...] = ()

VERSION: Final = 1 + len(STEPS)

Span = tuple[int, int]


Verdict = Literal["approved", "declined"]


class Pending(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    """A call that waits for a person.

    :param id: the call's
    :param digest: of the call's id, name and arguments: what was asked about is what runs
    :param verdict: None while nobody has decided
    :param reason: why it was declined, for the model
    :param card: id of the platform message that asks
    """

    id: str
    digest: str
    verdict: Verdict | None = None
    reason: str | None = None
    card: str | None = None


class Suspension(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    """What a turn waits for, between two runs of it.

    :param id: random; a decision names it, so that it is for nothing else
    :param calls: those of the last answer that need an approval
    :param results: a JSON array of what its other calls gave
    :param sender: for whom the calls run
    :param approvers: ids of those who may decide
    :param expires: when it is declined for want of a decision; milliseconds since 1970, UTC
    :param joined: ids of the inbox messages that the step goes on with besides its results
    """

    id: str
    calls: tuple[Pending, ...]
    results: msgspec.Raw = NO_BLOCKS
    sender: str | None = None
    approvers: tuple[str, ...] = ()
    expires: int = 0
    joined: tuple[str, ...] = ()


class Turn(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """The turn under way.

    :param execution: random id of this run of the turn; a run with another id is fenced
    :param attempt: how often it was started since its last saved step
    :param first: seq of its first row
    :param taken: ids of the inbox messages that it answers
    :param steps: its rows so far: the user's message, then answers and tool results in turn
    :param started: ids of the calls of the last answer that were about to run
    :param shown: ids of the platform messages that already show a part of the answer
    :param suspended: set from when the last step asks people until that step has its results
    """

    execution: str
    attempt: int
    first: int
    taken: tuple[str, ...]
    steps: tuple[Message, ...] = ()
    started: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    suspended: Suspension | None = None


class Overheard(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    """What somebody said in the room, but not to the bot; see `core.overheard`."""

    sender: Sender
    text: str
    message_id: str | None = None


class Sent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Which platform messages a delivered part became."""

    part: str
    message_ids: tuple[str, ...]


class Fit(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How the history is made to fit into a request. The rows themselves are never changed.

    :param images: of rows with a lower seq, images and files are not sent
    :param results: of rows with a lower seq, tool results are not sent
    :param bytes_per_token: of the text, as the last answers' usage told; 0: none has yet
    """

    images: int = 0
    results: int = 0
    bytes_per_token: float = 0.0


class Snapshot(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,
):
    """All that survives of a conversation.

    :param revision: what compare-and-set compares; random at first, then plus one a save
    :param epoch: random; a reset makes a new one, which fences everything older
    :param spans: first and last seq of all rows that are history, in reading order
    :param window: the seq from which `messages` and requests read
    :param messages: the history in the window: whole exchanges, never an unanswered call
    :param fit: what of `messages` requests leave out, and how tokens are estimated
    :param unanswered: what was said last, when it got no answer: an apology, or a stop
    :param edited: what was said last as its author has changed it since, while they are asked
        whether it shall be answered again
    :param heard: what was said in the room since the last turn, but not to the bot
    :param answer: the execution whose reply is the last that was said, while undo may take it back
    :param sent: the last delivered parts, and all of that reply
    :param seen: the last inbound ids, oldest first
    :param gone: nobody was there when we last sent something, and nobody has written since
    :param erase: row ranges that the next save deletes; never stored
    :param rewritten: rows that the next save puts in the place of those with the same seq, because
        somebody is to be forgotten; never stored
    :param spent: what model calls used, for the next save to write beside it; never stored
    """

    # By a factory: a default that is left out when it is written would be no version at all.
    version: int = msgspec.field(default_factory=lambda: VERSION)
    revision: int
    epoch: str
    created_at: int
    updated_at: int
    id: str | None = None
    model: str | None = None
    system_prompt: str | None = None
    thinking: str | None = None
    effort: str | None = None
    cwd: str | None = None
    chosen: Mapping[str, str] = {}
    spans: tuple[Span, ...] = ()
    window: int = 0
    messages: tuple[Message, ...] = ()
    fit: Fit = Fit()
    next_seq: int = 1
    inbox: tuple[Inbound, ...] = ()
    unanswered: tuple[Inbound, ...] = ()
    edited: Inbound | None = None
    turn: Turn | None = None
    outbox: tuple[Outbound, ...] = ()
    heard: tuple[Overheard, ...] = ()
    answer: str = ""
    sent: tuple[Sent, ...] = ()
    seen: tuple[str, ...] = ()
    usage: Usage = Usage()
    gone: bool = False
    erase: tuple[Span, ...] = ()
    spent: tuple[Spent, ...] = ()
    rewritten: tuple[Message, ...] = ()

    @property
    def rows(self) -> tuple[Message, ...]:
        """The rows that this value holds, in reading order."""
        return self.messages + self.turn.steps if self.turn else self.messages

    def since(self, seq: int) -> list[Message]:
        """Its rows from this number on, oldest first, looked for from the end: not a walk through
        the history."""
        new: list[Message] = []
        for rows in (self.turn.steps if self.turn else (), self.messages):
            for row in reversed(rows):
                if row.seq < seq:
                    break
                new.append(row)
        # A summary is written last and read first.
        told = self.messages[:1]
        if told and told[0].role == "summary" and told[0].seq >= seq and told[0] not in new:
            new.append(told[0])
        new.reverse()
        return new

    @property
    def next_part(self) -> Outbound | None:
        """The part that must leave before all others."""
        for part in self.outbox:
            if part.state in ("waiting", "sending"):
                return part
        return None

    @property
    def undelivered(self) -> tuple[Outbound, ...]:
        """The parts that only wait for a person to look at them."""
        return tuple(part for part in self.outbox if part.state in ("held", "failed"))

    @property
    def unfinished(self) -> bool:
        """Whether an engine has anything to do here."""
        return bool(self.inbox or self.turn or self.next_part)


class _Versioned(msgspec.Struct, gc=False):
    version: object = None


_encode: Final = msgspec.json.Encoder().encode
_decode_array: Final = msgspec.json.Decoder(list[object]).decode
_decode: Final = msgspec.json.Decoder(Snapshot).decode
# All else is only looked through, not built.
_decode_version: Final = msgspec.json.Decoder(_Versioned).decode


def stored(snapshot: Snapshot) -> Snapshot:
    """The value as a load gives it back: without what only its save was to know."""
    if snapshot.erase or snapshot.spent or snapshot.rewritten:
        return msgspec.structs.replace(snapshot, erase=(), spent=(), rewritten=())
    return snapshot


def encode(snapshot: Snapshot) -> bytes:
    """The whole value as JSON, but for what is never stored."""
    return _encode(stored(snapshot))


def decode(data: bytes) -> Snapshot:
    """
    :raises SnapshotTooNew: written by a newer version
    :raises SnapshotUnreadable: not JSON, too deep, or not a snapshot
    """
    try:
        version = _decode_version(data).version
    except msgspec.ValidationError:  # some other JSON
        version = None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotUnreadable(f"the stored snapshot is not JSON: {error}") from error
    return migrate(version, data)


def _brought_up(version: int, data: bytes) -> bytes:
    fields = msgspec.json.decode(data, type=Fields)
    for step in STEPS[version - 1 :]:
        try:
            fields = step(fields)
        except KeyError as error:
            raise SnapshotUnreadable(f"the stored snapshot has no {error}") from error
    return _encode(fields | {"version": msgspec.Raw(b"%d" % VERSION)})


def migrate(version: object, data: bytes) -> Snapshot:
    """The one way in: a newer version is refused, an older one brought up, all else unreadable.
    So is a field that we do not know: the next save would lose it.

    :param version: what the JSON says that it is
    """
    if not isinstance(version, int) or version < 1:
        raise SnapshotUnreadable("the stored snapshot has no version")
    if version > VERSION:
        raise SnapshotTooNew(
            f"the stored snapshot has version {version}, this chinwag reads up to {VERSION}: "
            "update chinwag"
        )
    try:
        snapshot = _decode(data if version == VERSION else _brought_up(version, data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotUnreadable(f"the stored snapshot is not one: {error}") from error
    # Blocks are kept as they are, so nothing has looked inside yet; all that reads them wants
    # an array.
    kept = [each.blocks for each in snapshot.rows + snapshot.inbox + snapshot.unanswered]
    if snapshot.edited is not None:
        kept.append(snapshot.edited.blocks)
    if snapshot.turn is not None and snapshot.turn.suspended is not None:
        kept.append(snapshot.turn.suspended.results)
    for blocks in kept:
        try:
            _decode_array(blocks)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SnapshotUnreadable(
                f"the stored snapshot has a message whose blocks are no array: {error}"
            ) from error
    return snapshot
