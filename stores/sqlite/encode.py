"""A Snapshot taken apart, before any database is asked: what goes into the head, what beside it.

Not the value itself (`core.snapshot`), and not SQL: see `save.py` and `load.py`.

The head is the snapshot without its messages, its ids seen and, when they are too long, its texts.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from core.messages import Inbound, Message
from core.snapshot import Snapshot, Span

# The ring of ids seen: this many of them, so many to a row. One row more than are needed, for the
# newest is mostly not full.
RING: Final = 200
PER_ROW: Final = 20
ROWS: Final = RING // PER_ROW + 1

# A head over so many bytes sheds its texts over so many. One that fits a page of the database is
# written with one page: rows of their own would only add to that.
SHED: Final = ((3 << 10, 512), (16 << 10, 64))

T = TypeVar("T", bound=msgspec.Struct)


class Away(NamedTuple):
    """A text that the head names instead of holding it.

    :param place: the snapshot's field
    :param which: the place in that, when it is a list
    :param field: the field in that one
    :param name: digest of the text
    """

    place: str
    which: int
    field: str
    name: str


class Head(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """
    :param runs: first and last seq of the rows that belong to the value, in reading order
    :param steps: how many of them, from the end, are the turn's
    """

    snapshot: msgspec.Raw
    runs: tuple[Span, ...] = ()
    steps: int = 0
    away: tuple[Away, ...] = ()


class _Written(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A head on its way out: the snapshot is encoded with all else."""

    snapshot: Snapshot
    runs: tuple[Span, ...] = ()
    steps: int = 0
    away: tuple[Away, ...] = ()


class Seen(NamedTuple):
    """Checksums by which a save knows, without reading them, what became of the ids seen.

    :param crc: of all
    :param before: of all but the last: what was seen before, when one id is new
    :param then: of those that stay when the ring takes one more
    """

    crc: int
    before: int
    then: int


class Prepared(NamedTuple):
    """A snapshot ready to be written: all encoding that needs no database is done.

    :param erase: ranges of rows that go: those the snapshot names, but never one that it holds
    :param outside: ranges of seq in which there are only rows that are not history, if any
    """

    snapshot: Snapshot
    erase: tuple[Span, ...]
    head: bytes
    bodies: dict[str, bytes]
    steps: int
    outside: tuple[Span, ...]


_encode: Final = msgspec.json.Encoder().encode


def prepare(snapshot: Snapshot) -> Prepared:
    """Everything that can be done before a transaction is open."""
    turn = snapshot.turn
    steps = turn.steps if turn else ()
    if turn and steps:
        turn = replace(turn, steps=())
    bare = replace(snapshot, messages=(), seen=(), turn=turn, erase=(), spent=(), rewritten=())
    runs = _runs(snapshot.messages, ascending=_ascend(snapshot.spans)) + _runs(steps)
    head = _encode(_Written(bare, runs, len(steps)))
    bodies: dict[str, bytes] = {}
    for size, length in SHED:
        if len(head) > size:
            head, bodies = _shed(bare, runs, len(steps), length)
    spoken = (*snapshot.spans, (steps[0].seq, steps[-1].seq)) if steps else snapshot.spans
    return Prepared(
        snapshot,
        _without(snapshot.erase, runs) if snapshot.erase else (),
        head,
        bodies,
        len(steps),
        _without(((1, snapshot.next_seq - 1),), spoken),
    )


def _shed(
    bare: Snapshot, runs: tuple[Span, ...], steps: int, limit: int
) -> tuple[bytes, dict[str, bytes]]:
    """The head without its texts of more than `limit` bytes, and these by their names."""
    away: list[Away] = []
    bodies: dict[str, bytes] = {}

    def shed(value: T, place: str, which: int, field: str) -> T:
        text = getattr(value, field)
        if text is None:
            return value
        body = bytes(text) if isinstance(text, msgspec.Raw) else text.encode()
        if len(body) <= limit:
            return value
        name = digest(body)
        away.append(Away(place, which, field, name))
        bodies[name] = body
        return replace(value, **{field: "" if isinstance(text, str) else msgspec.Raw(b"[]")})

    bare = shed(bare, "snapshot", 0, "system_prompt")

    def shed_inbounds(many: Sequence[Inbound], place: str) -> tuple[Inbound, ...]:
        return tuple(
            shed(shed(inbound, place, which, "text"), place, which, "blocks")
            for which, inbound in enumerate(many)
        )

    outbox = [shed(part, "outbox", which, "body") for which, part in enumerate(bare.outbox)]
    bare = replace(
        bare,
        inbox=shed_inbounds(bare.inbox, "inbox"),
        unanswered=shed_inbounds(bare.unanswered, "unanswered"),
        outbox=tuple(outbox),
    )
    if bare.edited:
        (edited,) = shed_inbounds((bare.edited,), "edited")
        bare = replace(bare, edited=edited)
    if bare.turn and bare.turn.suspended:
        suspended = shed(bare.turn.suspended, "suspended", 0, "results")
        bare = replace(bare, turn=replace(bare.turn, suspended=suspended))
    return _encode(_Written(bare, runs, steps, tuple(away))), bodies


def _ascend(spans: Sequence[Span]) -> bool:
    """Whether what is read later was written later: neither a summary stands in front of older
    rows, nor was anything appended while a turn was under way."""
    return len(spans) < 2 or all(one[1] < next[0] for one, next in pairwise(spans))


def _runs(rows: Sequence[Message], *, ascending: bool = True) -> tuple[Span, ...]:
    """The rows' numbers as ranges, in their order.

    :param ascending: so that the first and the last can say all; to look at each would fetch it
        from memory
    """
    if not rows:
        return ()
    first, last = rows[0].seq, rows[-1].seq
    if ascending and last - first + 1 == len(rows):
        return ((first, last),)
    runs: list[Span] = []
    for row in rows:
        seq = row.seq
        if runs and runs[-1][1] + 1 == seq:
            runs[-1] = (runs[-1][0], seq)
        else:
            runs.append((seq, seq))
    return tuple(runs)


def _without(ranges: Sequence[Span], taken: Sequence[Span]) -> tuple[Span, ...]:
    """What is left of the ranges; of each of them in order."""
    left: list[Span] = []
    for start, end in ranges:
        free = start
        for first, last in sorted(taken):
            if first > end:
                break
            if first > free:
                left.append((free, first - 1))
            free = max(free, last + 1)
        if free <= end:
            left.append((free, end))
    return tuple(left)


def head_checksum(key: str, head: bytes) -> int:
    """Of a head and its place: an index that leads to another conversation is damaged, too."""
    return zlib.crc32(head, zlib.crc32(key.encode()))


def seed(session: int) -> int:
    """What the checksums of a session's rows begin with; the seq is added. As for heads."""
    # Far from each other, so that no seq leads from one session to the next. crc32 takes the last
    # 32 bits of it.
    return session * 2_654_435_761


def row_checksum(session: int, seq: int, about: bytes, blocks: bytes) -> int:
    return zlib.crc32(blocks, zlib.crc32(about, seed(session) + seq))


def digest(body: bytes) -> str:
    return blake2b(body, digest_size=16).hexdigest()


def checksum(ids: Sequence[str]) -> int:
    """The one that `Seen.crc` holds."""
    return zlib.crc32(_encode(ids)[1:-1])


def checksums(ids: Sequence[str]) -> Seen:
    array = _encode(ids)[1:-1]
    crc = zlib.crc32(array)
    if not ids:
        return Seen(crc, crc, crc)
    # Of the parts of one encoding: it takes longer than all three checksums.
    before = zlib.crc32(array[: -len(_encode(ids[-1])) - 1])
    if len(ids) < RING:
        return Seen(crc, before, crc)
    return Seen(crc, before, zlib.crc32(array[len(_encode(ids[0])) + 1 :]))
