"""A Snapshot taken apart into columns, and put together again. Pure: no database is asked.

The head is the snapshot without its messages and the ids seen. Long texts stay in it: PostgreSQL
keeps what does not fit its page apart by itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace
from psycopg.types.multirange import Int8Multirange
from psycopg.types.range import Int8Range

from core.errors import SnapshotUnreadable
from core.messages import Message, Role
from core.snapshot import Snapshot, Span
from core.snapshot import decode as decode_snapshot

_encode: Final = msgspec.json.Encoder().encode


class _Head(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """
    :param rows: the numbers of the rows that belong to the value, in reading order
    :param steps: how many of them, from the end, are the turn's
    """

    snapshot: msgspec.Raw
    rows: tuple[Span, ...] = ()
    steps: int = 0


class _Written(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A head on its way out: the snapshot is encoded with all else."""

    snapshot: Snapshot
    rows: tuple[Span, ...] = ()
    steps: int = 0


class Columns(msgspec.Struct, frozen=True, gc=False):
    """What goes into the row of the conversation."""

    revision: int
    next_seq: int
    unfinished: bool
    updated_at: int
    history: Int8Multirange
    runs: Int8Multirange
    seen: bytes
    head: bytes
    crc: int

    def values(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


class Row(msgspec.Struct, frozen=True, gc=False):
    """A row of `messages`."""

    seq: int
    about: bytes
    blocks: bytes
    crc: int


_decode_head: Final = msgspec.json.Decoder(_Head).decode
_decode_ids: Final = msgspec.json.Decoder(tuple[str, ...]).decode
_About = tuple[Role, int, str | tuple[str, ...] | None, tuple[str, ...]]
_decode_about: Final = msgspec.json.Decoder(_About).decode


def columns(snapshot: Snapshot) -> Columns:
    steps = snapshot.turn.steps if snapshot.turn else ()
    turn = replace(snapshot.turn, steps=()) if snapshot.turn else None
    bare = replace(snapshot, messages=(), seen=(), turn=turn, erase=(), spent=(), rewritten=())
    rows = _spans(snapshot.rows)
    head = _encode(_Written(bare, rows, len(steps)))
    seen = _encode(snapshot.seen)
    return Columns(
        snapshot.revision,
        snapshot.next_seq,
        snapshot.unfinished,
        snapshot.updated_at,
        ranges(snapshot.spans),
        ranges(rows),
        seen,
        head,
        zlib.crc32(seen, zlib.crc32(head)),
    )


def ranges(spans: Iterable[Span]) -> Int8Multirange:
    return Int8Multirange([Int8Range(first, last + 1) for first, last in spans])


def _spans(rows: Sequence[Message]) -> tuple[Span, ...]:
    spans: list[Span] = []
    for row in rows:
        if spans and spans[-1][1] + 1 == row.seq:
            spans[-1] = (spans[-1][0], row.seq)
        else:
            spans.append((row.seq, row.seq))
    return tuple(spans)


def row_of(message: Message) -> Row:
    # The last of several senders is the one of the row.
    sender = message.senders or message.sender
    about = _encode((message.role, message.at, sender, message.message_ids))
    blocks = bytes(message.blocks)
    # Not over the seq: a move gives new ones.
    return Row(message.seq, about, blocks, zlib.crc32(blocks, zlib.crc32(about)))


def message_of(key: str, seq: int, about: bytes, blocks: bytes, crc: int) -> Message:
    """
    :raises SnapshotUnreadable: it is not as it was stored
    """
    if zlib.crc32(blocks, zlib.crc32(about)) != crc:
        raise SnapshotUnreadable(f"{key}: the checksum of its message {seq} is wrong")
    role, at, sender, message_ids = _decode_about(about)
    blocks_ = msgspec.Raw(blocks)
    if isinstance(sender, tuple):
        return Message(seq, role, blocks_, at, sender[-1], message_ids, sender)
    return Message(seq, role, blocks_, at, sender, message_ids)


def check(key: str, head: bytes, seen: bytes, crc: int) -> None:
    """
    :raises SnapshotUnreadable: it is not as it was stored
    """
    if zlib.crc32(seen, zlib.crc32(head)) != crc:
        raise SnapshotUnreadable(f"{key}: the checksum of its head is wrong")


def snapshot_of(
    key: str, revision: int, head: bytes, seen: bytes, crc: int, rows: Mapping[int, Message]
) -> Snapshot:
    """
    :raises SnapshotUnreadable: it is not as it was stored
    :raises SnapshotTooNew: of a newer version
    """
    check(key, head, seen, crc)
    try:
        read = _decode_head(head)
        ids = _decode_ids(seen)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SnapshotUnreadable(f"{key}: what is stored is damaged: {error}") from error
    snapshot = decode_snapshot(bytes(read.snapshot))
    if snapshot.revision != revision:
        raise SnapshotUnreadable(f"{key}: its row and its head disagree")
    wanted = [seq for first, last in read.rows for seq in range(first, last + 1)]
    missing = [seq for seq in wanted if seq not in rows]
    if missing:
        raise SnapshotUnreadable(
            f"{key}: {len(missing)} of its messages are missing, {missing[0]} is the first"
        )
    found = tuple(rows[seq] for seq in wanted)
    middle = len(found) - read.steps
    return replace(
        snapshot,
        messages=found[:middle],
        turn=replace(snapshot.turn, steps=found[middle:]) if snapshot.turn else None,
        seen=ids,
    )
