"""A Snapshot taken apart into what the fields of Redis hold, and put together again. Pure: no
server is asked.

The head is the snapshot without its messages, the ids seen, and its long texts: these are fields of
their own, written when they come and deleted when they are done with, while the head is written by
every save.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from core.errors import SnapshotUnreadable
from core.messages import Inbound, Message, Outbound, Role
from core.snapshot import Snapshot, Span, Suspension
from core.snapshot import decode as decode_snapshot

T = TypeVar("T", bound=msgspec.Struct)

# Texts over so many bytes are not in the head; when it is over 16 KB all the same, shorter ones go.
LONG: Final = 512
HEAD: Final = 16 << 10
SHORT: Final = 64

_TEXTS: Final[dict[type[msgspec.Struct], tuple[str, ...]]] = {
    Snapshot: ("system_prompt",),
    Inbound: ("text", "blocks"),
    Outbound: ("body",),
    Suspension: ("results",),
}
_LISTS: Final = ("inbox", "unanswered", "outbox")
_ROW: Final = struct.Struct(">II")  # checksum, bytes of what is about it

_encode: Final = msgspec.json.Encoder().encode


class Away(NamedTuple):
    """A text that the head names instead of holding it.

    :param place: the snapshot's field; "": the snapshot itself
    :param which: the place in that, when it is a list
    :param field: the field in that one
    :param name: digest of the text
    """

    place: str
    which: int
    field: str
    name: str


class _Head(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """
    :param rows: the numbers of the rows that belong to the value, in reading order
    :param steps: how many of them, from the end, are the turn's
    """

    snapshot: msgspec.Raw
    rows: tuple[Span, ...] = ()
    steps: int = 0
    away: tuple[Away, ...] = ()


class _Written(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A head on its way out: the snapshot is encoded with all else."""

    snapshot: Snapshot
    rows: tuple[Span, ...] = ()
    steps: int = 0
    away: tuple[Away, ...] = ()


class Parts(msgspec.Struct, frozen=True, gc=False):
    """What of a snapshot is written whole by each save, and the long texts.

    :param fields: of the conversation's own key, in pairs
    :param erase: what goes of the rows, but never one that the value holds
    :param seen: checksum of the ids seen
    :param seen_before: of all of them but the last
    :param seen_then: of all of them but the first
    :param crc: of the head
    """

    fields: tuple[str | bytes, ...]
    bodies: dict[str, bytes]
    erase: tuple[Span, ...]
    seen: int
    seen_before: int
    seen_then: int
    crc: str


_decode_head: Final = msgspec.json.Decoder(_Head).decode
_About = tuple[Role, int, str | tuple[str, ...] | None, tuple[str, ...]]
_decode_about: Final = msgspec.json.Decoder(_About).decode


def take_apart(key: str, snapshot: Snapshot) -> Parts:
    steps = snapshot.turn.steps if snapshot.turn else ()
    turn = replace(snapshot.turn, steps=()) if snapshot.turn else None
    bare = replace(snapshot, messages=(), seen=(), turn=turn, erase=(), spent=(), rewritten=())
    rows = _spans(snapshot.rows)
    head, bodies = _shed(bare, rows, len(steps), LONG)
    if len(head) > HEAD:
        head, bodies = _shed(bare, rows, len(steps), SHORT)
    ids = snapshot.seen
    seen = checksum(ids)
    crc = str(head_checksum(key, head, seen))
    outside = _without(((1, snapshot.next_seq - 1),), snapshot.spans)
    return Parts(
        (
            *("revision", str(snapshot.revision)),
            *("next_seq", str(snapshot.next_seq)),
            *("unfinished", "1" if snapshot.unfinished else "0"),
            *("updated_at", str(snapshot.updated_at)),
            # The rows that a load reads, and where there are only rows that are no history.
            *("runs", text_of(rows)),
            *("outside", text_of(outside)),
            *("seen", str(seen)),
            *("seen_then", str(checksum(ids[1:]))),
            *("head", head),
            *("crc", crc),
        ),
        bodies,
        _without(snapshot.erase, rows),
        seen,
        checksum(ids[:-1]),
        checksum(ids[1:]),
        crc,
    )


def text_of(spans: Iterable[Span]) -> str:
    """As the scripts read them."""
    return ",".join(f"{first}-{last}" for first, last in spans)


def _spans(rows: Sequence[Message]) -> tuple[Span, ...]:
    spans: list[Span] = []
    for row in rows:
        if spans and spans[-1][1] + 1 == row.seq:
            spans[-1] = (spans[-1][0], row.seq)
        else:
            spans.append((row.seq, row.seq))
    return tuple(spans)


def _without(ranges: Iterable[Span], taken: Iterable[Span]) -> tuple[Span, ...]:
    """What is left of the ranges."""
    left: list[Span] = []
    held = sorted(taken)
    for start, end in ranges:
        free = start
        for first, last in held:
            if first > end:
                break
            if first > free:
                left.append((free, first - 1))
            free = max(free, last + 1)
        if free <= end:
            left.append((free, end))
    return tuple(left)


# ---------------------------------------------------------------------- long texts


def _shed(
    bare: Snapshot, rows: tuple[Span, ...], steps: int, limit: int
) -> tuple[bytes, dict[str, bytes]]:
    """The head without its texts of more than `limit` bytes, and these by their names."""
    away: list[Away] = []
    bodies: dict[str, bytes] = {}

    def shed(value: T, place: str, which: int = 0) -> T:
        for field in _TEXTS[type(value)]:
            text = getattr(value, field)
            body = text.encode() if isinstance(text, str) else bytes(text or b"")
            if len(body) > limit:
                away.append(Away(place, which, field, _digest(body)))
                bodies[away[-1].name] = body
                empty = "" if isinstance(text, str) else msgspec.Raw(b"[]")
                value = replace(value, **{field: empty})
        return value

    changed: dict[str, Any] = {
        place: tuple(shed(each, place, which) for which, each in enumerate(getattr(bare, place)))
        for place in _LISTS
    }
    if bare.edited:
        changed["edited"] = shed(bare.edited, "edited")
    if bare.turn and bare.turn.suspended:
        suspended = shed(bare.turn.suspended, "suspended")
        changed["turn"] = replace(bare.turn, suspended=suspended)
    bare = shed(replace(bare, **changed), "")
    return _encode(_Written(bare, rows, steps, tuple(away))), bodies


def _put_back(snapshot: Snapshot, away: Away, body: bytes) -> Snapshot:
    text = msgspec.Raw(body) if away.field in ("blocks", "results") else body.decode()
    change: dict[str, Any] = {away.field: text}
    if not away.place:
        return replace(snapshot, **change)
    if away.place == "edited":
        assert snapshot.edited is not None
        return replace(snapshot, edited=replace(snapshot.edited, **change))
    if away.place == "suspended":
        assert snapshot.turn is not None and snapshot.turn.suspended is not None
        suspended = replace(snapshot.turn.suspended, **change)
        return replace(snapshot, turn=replace(snapshot.turn, suspended=suspended))
    many = list(getattr(snapshot, away.place))
    many[away.which] = replace(many[away.which], **change)
    return replace(snapshot, **{away.place: tuple(many)})


def _digest(body: bytes) -> str:
    return blake2b(body, digest_size=16).hexdigest()


# ---------------------------------------------------------------------- checksums


def head_checksum(key: str, head: bytes, seen: int) -> int:
    """Of a head and its place: one that is found under another key is damaged, too."""
    return zlib.crc32(head, zlib.crc32(key.encode(), seen))


def row_checksum(id: str, seq: int, about: bytes, blocks: bytes) -> int:
    """As for heads: whole, but in the place of another, a row is damaged."""
    return zlib.crc32(blocks, zlib.crc32(about, zlib.crc32(f"{id}/{seq}".encode())))


def checksum(ids: Sequence[str]) -> int:
    return zlib.crc32(_encode(ids))


# ---------------------------------------------------------------------- rows


def row_of(id: str, message: Message) -> bytes:
    """
    :param id: of the conversation
    """
    # The last of several senders is the one of the row.
    sender = message.senders or message.sender
    about = _encode((message.role, message.at, sender, message.message_ids))
    blocks = bytes(message.blocks)
    return _ROW.pack(row_checksum(id, message.seq, about, blocks), len(about)) + about + blocks


def _cut(row: bytes) -> tuple[int, bytes, bytes]:
    """Checksum, about, blocks."""
    crc, length = _ROW.unpack_from(row)
    middle = _ROW.size + length
    return crc, row[_ROW.size : middle], row[middle:]


def message_of(key: str, id: str, seq: int, row: bytes) -> Message:
    """
    :raises SnapshotUnreadable: it is not as it was stored
    """
    try:
        crc, about, blocks = _cut(row)
        if row_checksum(id, seq, about, blocks) != crc:
            raise SnapshotUnreadable(f"{key}: the checksum of its message {seq} is wrong")
        role, at, sender, message_ids = _decode_about(about)
    except (struct.error, msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SnapshotUnreadable(f"{key}: its message {seq} is damaged: {error}") from error
    if isinstance(sender, tuple):
        return Message(seq, role, msgspec.Raw(blocks), at, sender[-1], message_ids, sender)
    return Message(seq, role, msgspec.Raw(blocks), at, sender, message_ids)


def moved_row(row: bytes, id: str, seq: int, new_id: str, new_seq: int) -> bytes:
    """The same in another place. What is damaged stays so: its checksum is as wrong as it was."""
    try:
        crc, about, blocks = _cut(row)
    except struct.error:
        return row
    crc ^= row_checksum(id, seq, about, blocks) ^ row_checksum(new_id, new_seq, about, blocks)
    return _ROW.pack(crc, len(about)) + about + blocks


# ---------------------------------------------------------------------- the whole


class Stored(NamedTuple):
    """A conversation as a script gives it."""

    id: str
    revision: bytes
    next_seq: bytes
    seen_crc: bytes
    seen_then: bytes
    head: bytes
    crc: bytes
    seen: Sequence[bytes] = ()
    bodies: Mapping[str, bytes] = {}
    rows: Mapping[int, bytes | None] = {}


def head_of(key: str, stored: Stored) -> tuple[Snapshot, _Head]:
    """The snapshot as far as its head holds it.

    :raises SnapshotUnreadable: it is not as it was stored
    :raises SnapshotTooNew: of a newer version
    """
    try:
        if head_checksum(key, stored.head, int(stored.seen_crc)) != int(stored.crc):
            raise SnapshotUnreadable(f"{key}: the checksum of its head is wrong")
        head = _decode_head(stored.head)
        snapshot = decode_snapshot(bytes(head.snapshot))
        if (snapshot.revision, snapshot.next_seq) != (int(stored.revision), int(stored.next_seq)):
            raise SnapshotUnreadable(f"{key}: its row and its head disagree")
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise SnapshotUnreadable(f"{key}: what is stored is damaged: {error}") from error
    return snapshot, head


def put_together(key: str, stored: Stored) -> Snapshot:
    """
    :raises SnapshotUnreadable: it is not as it was stored, or a part of it is missing
    :raises SnapshotTooNew: of a newer version
    """
    snapshot, head = head_of(key, stored)
    try:
        seen = tuple(name.decode() for name in stored.seen)
    except UnicodeDecodeError as error:
        raise SnapshotUnreadable(f"{key}: what is stored is damaged: {error}") from error
    if checksum(seen) != int(stored.seen_crc):
        raise SnapshotUnreadable(f"{key}: the checksum of its ids seen is wrong")
    for away in head.away:
        body = stored.bodies.get(away.name)
        if body is None or _digest(body) != away.name:
            place = away.place or "head"
            raise SnapshotUnreadable(f"{key}: a text in its {place} is missing or damaged")
        snapshot = _put_back(snapshot, away, body)
    wanted = [seq for first, last in head.rows for seq in range(first, last + 1)]
    missing = [seq for seq in wanted if stored.rows.get(seq) is None]
    if missing:
        raise SnapshotUnreadable(
            f"{key}: {len(missing)} of its messages are missing, {missing[0]} is the first"
        )
    found = tuple(message_of(key, stored.id, seq, stored.rows[seq] or b"") for seq in wanted)
    middle = len(found) - head.steps
    return replace(
        snapshot,
        messages=found[:middle],
        turn=replace(snapshot.turn, steps=found[middle:]) if snapshot.turn else None,
        seen=seen,
    )
