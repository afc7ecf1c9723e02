"""Forgetting a person: what they said goes from every conversation, and from the file's free space.

Where nobody else has spoken, all of the conversation goes. Elsewhere the exchanges that the person
began go as a whole, with their answers; what they said inside an exchange that somebody else began,
and wherever their words are repeated, becomes a marker: the one case in which a row is changed.

Every step can be repeated. Words are looked for before they are erased, and the rows that hold
them go last, so that a second run, after a crash, finds the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from core import changes, feedback, history, phrases
from core.command import Backstage, Call, Outcome
from core.errors import SnapshotTooNew, SnapshotUnreadable
from core.export import oldest_first
from core.messages import Message, Outbound, decode_blocks, encode_blocks, text_block
from core.overheard import spoke_to_us
from core.quoted import inside, is_overheard, is_quoted
from core.snapshot import Snapshot, Span
from core.snapshots import Snapshots, new_id
from core.store import BotStore, SessionRef
from core.transcript import said_in
from core.usage import Usage

# Who said what is not said by anybody any more.
NOBODY: Final = "forgotten"
# A shorter text is too common to be somebody's words.
SHORTEST_QUOTE: Final = 8
ROWS_A_SAVE: Final = 100

_UNTOUCHED: Final = frozenset({"type", "id", "tool_use_id", "signature", "data", "media_type"})
_THINKING: Final = frozenset({"thinking", "redacted_thinking"})


class Forgotten(NamedTuple):
    """What went.

    :param conversations: that went as a whole
    :param exchanges: that went from others
    :param marked: messages in which a marker stands now
    :param uses: rows of usage that name nobody any more
    :param unreadable: conversations that could not be read, and are as they were
    """

    conversations: int = 0
    exchanges: int = 0
    marked: int = 0
    uses: int = 0
    unreadable: int = 0

    def __add__(self, other: object) -> Forgotten:
        assert isinstance(other, Forgotten)
        return Forgotten(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class Found(NamedTuple):
    """What there is of a person in one conversation.

    :param erase: the rows of the exchanges that they began
    :param quotes: their words, the longest first
    :param message_ids: the platform's, of what goes
    :param kept: how many rows stay
    :param others: somebody else has spoken
    """

    erase: tuple[Span, ...] = ()
    quotes: tuple[str, ...] = ()
    message_ids: frozenset[str] = frozenset()
    kept: int = 0
    others: bool = False


async def forget(
    store: BotStore,
    snapshots: Snapshots,
    ref_of: Callable[[str], SessionRef],
    person: str,
    mark: str,
    here: str | None = None,
    *,
    alone: bool = False,
) -> Forgotten:
    """Everything of one person, in every conversation.

    :param person: platform and id, such as ``telegram:42``
    :param mark: stands where their words were
    :param here: the key of a conversation that stays, though empty: the receipt is said in it
    :param alone: nobody else can have spoken there, so it goes even when it cannot be read
    :raises StoreError: what the store raises; to be done again from the beginning
    """
    gone = Forgotten()
    keys = [key async for key in store.spoken_by(person)]
    for key in [*keys, *([here] if here and here not in keys else [])]:
        try:
            gone += await _forget_in(store, snapshots, ref_of(key), person, mark, key == here)
        except (SnapshotUnreadable, SnapshotTooNew):
            if alone and key == here:
                await store.clear(ref_of(key))
                gone += Forgotten(conversations=1)
            else:
                gone += Forgotten(unreadable=1)
        if key != here:
            # Nobody else may be at work there, who would take it out of memory.
            snapshots.forget(key)
    await store.clear_aside(sender=person, key=here if alone else None)
    await feedback.forget(store.notes, person)
    return gone + Forgotten(uses=await store.usage.forget(person))


async def _forget_in(
    store: BotStore, snapshots: Snapshots, ref: SessionRef, person: str, mark: str, stays: bool
) -> Forgotten:
    gone = Forgotten()
    while True:
        before = await snapshots.load(ref.key)
        if before is None:
            return gone
        found = await _look(store, ref, person)
        others = found.others or _others_wait(before, person)
        if not others and not stays:
            await store.clear(ref)
            snapshots.forget(ref.key)
            return gone + Forgotten(conversations=1)
        marked = 0
        if others:
            async for rows in _marked(store, ref, person, mark, found, before.next_seq):
                marked += len(rows)
                await snapshots.update(ref.key, partial(_with_rows, before.epoch, rows))
        change = partial(_left, person, mark, found, others, new_id())
        after, _ = await snapshots.update(ref.key, change)
        gone += Forgotten(not others, len(found.erase), marked)
        if after is None or after.next_seq == before.next_seq:
            return gone
        # Something was said meanwhile, and may have left the window before we came to it.


# ---------------------------------------------------------------------- looking


async def _look(store: BotStore, ref: SessionRef, person: str) -> Found:
    erase: list[Span] = []
    words: set[str] = set()
    ids: set[str] = set()
    kept, others = 0, False
    async for exchange in _exchanges(oldest_first(store, ref)):
        for row in exchange:
            said = _said_by(row, person)
            words.update(said)
            if said or row.sender == person:
                ids.update(row.message_ids)
            others |= any(who not in (None, "", NOBODY, person) for who in _speakers(row))
        if _began(exchange) == person:
            erase.append((exchange[0].seq, exchange[-1].seq))
        else:
            kept += len(exchange)
    return Found(tuple(erase), _quotes(words), frozenset(ids), kept, others)


async def _exchanges(rows: AsyncIterator[Message]) -> AsyncIterator[list[Message]]:
    exchange: list[Message] = []
    async for row in rows:
        if exchange and history.begins_after(exchange[-1], row):
            yield exchange
            exchange = []
        exchange.append(row)
    if exchange:
        yield exchange


def _speakers(row: Message) -> tuple[str | None, ...]:
    return row.senders or (row.sender,)


def _began(exchange: Sequence[Message]) -> str | None:
    """Whose exchange it is: of who spoke first in it."""
    return next(iter(spoke_to_us(exchange[0])), None)


def _theirs(row: Message, person: str, blocks: Sequence[dict[str, Any]]) -> list[bool]:
    """Of each block, whether the person said it."""
    speakers = row.senders if row.senders else (row.sender,) * len(blocks)
    return [
        who == person and block.get("type") != "tool_result"
        for who, block in zip(speakers, blocks, strict=True)
    ]


def _said_by(row: Message, person: str) -> list[str]:
    if person not in _speakers(row):
        return []
    blocks = decode_blocks(row.blocks)
    mine = _theirs(row, person, blocks)
    texts = [
        str(block.get("text", ""))
        for block, is_theirs in zip(blocks, mine, strict=True)
        if is_theirs
    ]
    # What they quote is somebody else's, who may have said it here, too.
    return [
        inside(text) if is_overheard(text) else said_in(text)[1]
        for text in texts
        if is_overheard(text) or not is_quoted(text)
    ]


def _quotes(words: Iterable[str]) -> tuple[str, ...]:
    """What to look for elsewhere: whole texts, and their lines."""
    found = {part.strip() for text in words for part in (text, *text.splitlines())}
    return tuple(
        sorted((each for each in found if len(each) >= SHORTEST_QUOTE), key=len, reverse=True)
    )


# ---------------------------------------------------------------------- marking


async def _marked(
    store: BotStore, ref: SessionRef, person: str, mark: str, found: Found, upto: int
) -> AsyncIterator[tuple[Message, ...]]:
    """The rows below this number that stay and change, some at a time."""
    rows: list[Message] = []
    going = iter(found.erase)
    span = next(going, None)
    async for row in oldest_first(store, ref):
        while span and row.seq > span[1]:
            span = next(going, None)
        if (span and span[0] <= row.seq) or row.seq >= upto:
            continue
        after = marked(row, person, mark, found.quotes)
        if after is not row:
            rows.append(after)
        if len(rows) >= ROWS_A_SAVE:
            yield tuple(rows)
            rows = []
    if rows:
        yield tuple(rows)


def marked(row: Message, person: str, mark: str, quotes: Sequence[str]) -> Message:
    """The row without the person's words; itself when there are none."""
    blocks = decode_blocks(row.blocks)
    if row.role == "summary":
        # It says in other words what they have said, and nobody can tell where.
        gone = encode_blocks([text_block(mark)])
        return row if row.blocks == gone else replace(row, blocks=gone)
    mine = _theirs(row, person, blocks)
    after: list[dict[str, Any]] = []
    for block, is_theirs in zip(blocks, mine, strict=True):
        after.append(text_block(mark) if is_theirs else _without_quotes(block, quotes, mark))
    if after == blocks:
        return row
    speakers = row.senders
    if row.role == "assistant":
        # Signed, so that it cannot be changed; and nothing needs it but the turn it was in.
        after = [block for block in after if block.get("type") not in _THINKING]
        after = after or [text_block(mark)]
    elif any(mine):
        speakers = tuple(NOBODY if who == person else who for who in speakers)
    return replace(
        row,
        blocks=encode_blocks(after),
        sender=NOBODY if row.sender == person else row.sender,
        senders=speakers,
        message_ids=() if any(mine) else row.message_ids,
    )


def _without_quotes(value: Any, quotes: Sequence[str], mark: str) -> Any:
    if isinstance(value, str):
        for quote in quotes:
            value = value.replace(quote, mark)
        return value
    if isinstance(value, list):
        return [_without_quotes(each, quotes, mark) for each in value]
    if isinstance(value, dict):
        return {
            name: each if name in _UNTOUCHED else _without_quotes(each, quotes, mark)
            for name, each in value.items()
        }
    return value


# ---------------------------------------------------------------------- changing


def _with_rows(epoch: str, rows: tuple[Message, ...], snapshot: Snapshot | None) -> Snapshot | None:
    """These take the place of those with the same numbers, unless they went meanwhile."""
    if snapshot is None:
        return None
    there = {
        row.seq: row
        for row in rows
        if any(first <= row.seq <= last for first, last in snapshot.spans)
    }
    if snapshot.epoch != epoch or not there:
        return snapshot
    messages = tuple(there.get(row.seq, row) for row in snapshot.messages)
    return replace(snapshot, messages=messages, rewritten=tuple(there.values()))


def _left(
    person: str, mark: str, found: Found, others: bool, epoch: str, snapshot: Snapshot | None
) -> Snapshot | None:
    if snapshot is None:
        return None
    if others or _others_wait(snapshot, person):
        return without(snapshot, person, mark, found)
    return _emptied(snapshot, epoch)


def _emptied(snapshot: Snapshot, epoch: str) -> Snapshot:
    """Nothing is left but what keeps a message from being answered twice."""
    left = changes.reset(snapshot, epoch)
    return replace(left, chosen={}, usage=Usage())


def without(snapshot: Snapshot, person: str, mark: str, found: Found) -> Snapshot:
    """The conversation without what the person said in it. A turn that runs begins anew: it has
    read their words."""
    if snapshot.turn:
        waiting = snapshot.inbox
        snapshot = replace(changes.abandoned(snapshot, snapshot.turn), inbox=waiting, unanswered=())
    erase, kept, rewritten = list(found.erase), [], []
    exchanges = _in_exchanges(snapshot.messages)
    words = [said for row in snapshot.messages for said in _said_by(row, person)]
    quotes = _quotes((*found.quotes, *words)) if words else found.quotes
    for exchange in exchanges:
        first, last = exchange[0].seq, exchange[-1].seq
        if any(start <= first <= end for start, end in found.erase):
            continue
        if _began(exchange) == person:
            erase.append((first, last))
            continue
        for row in exchange:
            after = marked(row, person, mark, quotes)
            kept.append(after)
            if after is not row:
                rewritten.append(after)
    return replace(
        snapshot,
        spans=snapshot.spans if kept or found.kept else (),
        messages=tuple(kept),
        inbox=tuple(each for each in snapshot.inbox if each.sender.id != person),
        unanswered=tuple(each for each in snapshot.unanswered if each.sender.id != person),
        edited=snapshot.edited if snapshot.edited and snapshot.edited.sender.id != person else None,
        heard=tuple(one for one in snapshot.heard if one.sender.id != person),
        answer="",
        outbox=_unsaid(snapshot.outbox, found),
        erase=(*snapshot.erase, *erase, *_unused(snapshot)),
        rewritten=tuple(rewritten),
    )


def _in_exchanges(rows: Sequence[Message]) -> list[list[Message]]:
    found: list[list[Message]] = []
    for row in rows:
        if found and not history.begins_after(found[-1][-1], row):
            found[-1].append(row)
        else:
            found.append([row])
    return found


def _unused(snapshot: Snapshot) -> list[Span]:
    """Rows that are history no more: what was taken back."""
    gaps: list[Span] = []
    free = 1
    for first, last in sorted(snapshot.spans):
        if first > free:
            gaps.append((free, first - 1))
        free = max(free, last + 1)
    if free < snapshot.next_seq:
        gaps.append((free, snapshot.next_seq - 1))
    return gaps


def _unsaid(outbox: Sequence[Outbound], found: Found) -> tuple[Outbound, ...]:
    """Without what was to be said to them, or with their words; and without what only waits for
    somebody to look at it."""
    answers = {part.id.rpartition(".")[0] for part in outbox if part.reply_to in found.message_ids}
    return tuple(
        part
        for part in outbox
        if part.state not in ("held", "failed")
        and part.id.rpartition(".")[0] not in answers
        and not any(quote in (part.body or "") for quote in found.quotes)
    )


def _others_wait(snapshot: Snapshot, person: str) -> bool:
    waiting = snapshot.inbox + snapshot.unanswered
    return any(inbound.sender.id != person for inbound in waiting)


# ---------------------------------------------------------------------- the command


async def first(call: Call, backstage: Backstage) -> object:
    """What went; seconds to wait; None: it was not confirmed."""
    if call.argument.lower() != call.say(phrases.FORGET_YES).lower():
        return None
    if wait := backstage.scrubs.wait():
        return wait
    here = call.inbound.key
    gone = await forget(
        backstage.store,
        backstage.snapshots,
        backstage.ref,
        call.inbound.sender.id,
        call.say(phrases.FORGOTTEN_MARK),
        here,
        alone=not call.inbound.group,
    )
    await backstage.scrubs.scrub(backstage.store)
    return gone


def run(snapshot: Snapshot, call: Call) -> Outcome:
    if isinstance(call.found, Forgotten):
        return Outcome(receipt(call, call.found))
    yes = call.say(phrases.FORGET_YES)
    if call.found is not None:
        return Outcome(call.say(phrases.FORGET_LATER, minutes=int(call.found // 60) + 1))
    ask = phrases.FORGET_ASK_GROUP if call.inbound.group else phrases.FORGET_ASK
    return Outcome(call.say(ask, yes=yes))


def receipt(call: Call, gone: Forgotten) -> str:
    went = call.say(
        phrases.FORGET_WENT,
        conversations=gone.conversations,
        exchanges=gone.exchanges,
        marked=gone.marked,
        uses=gone.uses,
    )
    remains = call.say(phrases.FORGET_REMAINS)
    unread = call.say(phrases.FORGET_UNREADABLE, count=gone.unreadable) if gone.unreadable else ""
    return "\n\n".join(part for part in (went, remains, unread) if part)
