"""chinwag's SQLiteStore, used as a bot uses it: four saves a turn, each by compare-and-set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from bench.said import Exchange, in_window
from bench.subject import Seen, Turn, Wrong
from core import changes, outbox
from core.changes import SEEN_LIMIT
from core.clock import SystemClock
from core.memory import BOT_MEMORY, ConversationMemory
from core.messages import Inbound, Role, Sender
from core.snapshot import Sent, Snapshot, Usage, encode
from core.snapshots import Snapshots, first_revision, new_id
from core.spending import UnsavedRows
from core.store import SessionRef
from core.usage import Spent
from stores.sqlite import SQLiteStore

NOW: Final = 1_800_000_000_000
UNBOUNDED: Final = ConversationMemory()
USAGE: Final = Usage(input_tokens=120, output_tokens=180, cache_read_input_tokens=4_000)

Change = Callable[[Snapshot], Snapshot]


class Chinwag:
    """
    :param keeps: snapshots stay in memory between the turns of a chat
    :param memory: the window; unbounded, every load reads all of the history
    """

    def __init__(
        self, path: Path, *, keeps: bool = False, memory: ConversationMemory = BOT_MEMORY
    ) -> None:
        self.store = SQLiteStore(path)
        self._rows = UnsavedRows()
        self.snapshots = Snapshots(self.store, SystemClock(), ref, self._rows)
        self._keeps = keeps
        self._memory = memory

    async def open(self) -> None:
        await self.store.__aenter__()

    async def close(self) -> None:
        await self.store.__aexit__(None, None, None)

    async def fill(self, key: str, said: Sequence[Exchange]) -> None:
        whole = grown(key, said)
        await self.store.save(ref(key), whole, replaces=None)
        kept = in_window(len(whole.messages))
        if self._memory is not UNBOUNDED and kept < len(whole.messages):
            shorter = trimmed(whole, kept)
            await self.store.save(ref(key), shorter, replaces=whole.revision)

    def ready(self, key: str, said: Exchange, total: int) -> Turn:
        asked = inbound(key, said)
        execution = new_id()
        used = spent(execution, total)
        accept, start, commit = steps(asked, said, execution, self._memory)

        async def change(change: Change) -> Snapshot:
            def apply(before: Snapshot | None) -> Snapshot:
                return change(before or begun())

            after, applied = await self.snapshots.update(key, apply)
            if after is None or not applied:
                raise Wrong(f"{key}: a change did not apply")
            return after

        async def turn() -> Seen:
            before = await self.snapshots.load(key)
            await change(accept)
            await change(start)
            self._rows.add(key, used)
            committed = await change(commit)
            await change(delivery(committed))
            if not self._keeps:
                self.snapshots.forget(key)
            return seen(before)

        return turn

    async def count(self, key: str) -> int:
        rows = [row.seq async for row in self.store.archive(ref(key), limit=1_000_000)]
        if rows != sorted(set(rows), reverse=True):
            raise Wrong(f"{key}: rows are out of order or doubled")
        return len(rows)


def ref(key: str) -> SessionRef:
    return SessionRef(key=key, agent="assistant")


def begun() -> Snapshot:
    return changes.begin(revision=0, epoch=new_id(), now=NOW)


def inbound(key: str, said: Exchange) -> Inbound:
    return Inbound(
        id=f"{key}:{said.number}",
        key=key,
        kind="message",
        sender=Sender("telegram:42", "Alice"),
        text=said.user,
        message_id=str(said.number),
        at=NOW,
    )


def steps(
    asked: Inbound, said: Exchange, execution: str, memory: ConversationMemory
) -> tuple[Change, Change, Change]:
    """An ordinary turn, up to its commit."""
    blocks = (msgspec.Raw(said.answer_blocks),)
    bodies = (said.body,)

    def accept(before: Snapshot) -> Snapshot:
        return changes.accept(before, asked)

    def start(before: Snapshot) -> Snapshot:
        return changes.start(before, execution=execution, now=NOW, memory=memory)

    def commit(before: Snapshot) -> Snapshot:
        fence = changes.Fence(before.epoch, execution)
        return changes.commit(before, fence, blocks, bodies, USAGE, NOW)

    return accept, start, commit


def spent(execution: str, total: int) -> Spent:
    """What the answer of a turn has used.

    :param total: messages that the chat has before it
    """
    return Spent(
        execution=execution,
        call=1,
        at=NOW + 500 * total,
        model="claude-sonnet-5-5",
        usage=USAGE,
        cost=4_260_000_000,
        sender="telegram:42",
    )


def delivery(committed: Snapshot) -> Change:
    """The reply of a committed turn has arrived."""
    part = committed.next_part
    if part is None:
        raise Wrong("a turn was committed without a reply")
    part_id = part.id
    return lambda before: outbox.delivered(before, part_id, ("1234567",))


def seen(before: Snapshot | None) -> Seen:
    if before is None:
        return Seen(0, 0)
    total = sum(last - first + 1 for first, last in before.spans)
    messages = before.messages
    return Seen(total, len(messages), bytes(messages[-1].blocks) if messages else None)


def grown(key: str, said: Sequence[Exchange]) -> Snapshot:
    """A conversation that went through all this, nothing trimmed yet."""
    rows: list[tuple[Role, msgspec.Raw]] = []
    for each in said:
        rows.append(("user", msgspec.Raw(each.user_blocks)))
        rows.append(("assistant", msgspec.Raw(each.answer_blocks)))
    snapshot = changes.append(begun(), rows, Usage(), NOW, UNBOUNDED)
    return replace(
        snapshot,
        revision=first_revision(),
        seen=tuple(inbound(key, each).id for each in said[-SEEN_LIMIT:]),
        sent=tuple(Sent(f"{new_id()}.0", ("1234567",)) for _ in said[-outbox.SENT_LIMIT :]),
    )


def trimmed(whole: Snapshot, kept: int) -> Snapshot:
    messages = whole.messages[-kept:]
    return replace(whole, revision=whole.revision + 1, messages=messages, window=messages[0].seq)


def heads(key: str, said: Exchange, total: int) -> tuple[bytes, ...]:
    """What the head of the conversation is after each of the four saves: all of the snapshot but
    its rows and the ids seen. For the floors, so that they save the same."""
    sent = tuple(
        Sent(f"{new_id()}.0", ("1234567",)) for _ in range(min(outbox.SENT_LIMIT, total // 2))
    )
    snapshot = replace(begun(), next_seq=total + 1, sent=sent)
    if total:
        snapshot = replace(snapshot, spans=((1, total),))
    made: list[bytes] = []
    for change in steps(inbound(key, said), said, new_id(), UNBOUNDED):
        snapshot = change(snapshot)
        made.append(_head(snapshot))
    made.append(_head(delivery(snapshot)(snapshot)))
    return tuple(made)


def _head(snapshot: Snapshot) -> bytes:
    turn = replace(snapshot.turn, steps=()) if snapshot.turn else None
    return encode(replace(snapshot, messages=(), seen=(), turn=turn))
