"""What a turn costs SQLiteStore does not depend on how much was said before: counted, not timed."""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path

import pytest
from msgspec import Raw
from msgspec.structs import replace

from bots.contracts.store import EPOCH, begun, inbound, ref, text
from core import changes, outbox
from core.memory import BOT_MEMORY, ConversationMemory
from core.messages import Role
from core.snapshot import Snapshot, Usage, stored
from core.store import SessionRef
from core.usage import Spent
from stores.sqlite import SQLiteStore

WINDOW = 40


async def talked(store: SQLiteStore, key: SessionRef, messages: int) -> Snapshot:
    """A conversation of so many messages, of which the window shows the last."""
    said: list[tuple[Role, Raw]] = [("user", text("q " * 80)), ("assistant", text("a " * 300))]
    whole = changes.append(begun(), said * (messages // 2), Usage(), 1, ConversationMemory())
    whole = replace(whole, seen=tuple(f"seen{number:016}" for number in range(200)))
    await store.save(key, whole, replaces=None)
    first = whole.next_seq - WINDOW // 2
    value = replace(
        whole,
        revision=whole.revision + 1,
        window=first,
        messages=whole.messages[-WINDOW // 2 :],
    )
    await store.save(key, value, replaces=whole.revision)
    return value


class Turns:
    """Ordinary turns, and the statements that each of their saves and loads ran."""

    def __init__(
        self, store: SQLiteStore, key: SessionRef, value: Snapshot, *, reserving: bool
    ) -> None:
        self.reserving = reserving
        self.store = store
        self.key = key
        self.value = value
        self.number = 0

    async def _save(self, changed: Snapshot, *spent: Spent) -> None:
        assert changed is not self.value
        revision = self.value.revision
        changed = replace(changed, revision=revision + 1, spent=spent)
        await self.store.save(self.key, changed, replaces=revision)
        self.value = stored(changed)

    async def turn(self) -> None:
        name = f"turn{self.number:016}"
        self.number += 1
        await self._save(changes.accept(self.value, inbound(name, "q " * 80)))
        row = Spent(name, 1, self.number, "m", Usage(0, 4096), 9, estimated=True, sender="t:42")
        started = changes.start(self.value, execution=name, now=2, memory=BOT_MEMORY)
        await self._save(started, *([row] if self.reserving else []))
        answer, fence = "a " * 300, changes.Fence(EPOCH, name)
        await self._save(
            changes.commit(self.value, fence, [text(answer)], [answer], Usage(1, 1), 3),
            replace(row, usage=Usage(1, 1), cost=1, estimated=False),
        )
        part = self.value.next_part
        assert part is not None
        await self._save(outbox.delivered(self.value, part.id, ("1",)))
        assert await self.store.load(self.key) == self.value


async def measured(path: Path, messages: int, *, reserving: bool = False) -> dict[str, object]:
    async with SQLiteStore(path) as store:
        value = await talked(store, ref("t:1"), messages)
    # Opened anew, the log is empty and grows from here.
    async with SQLiteStore(path) as store:
        turns = Turns(store, ref("t:1"), value, reserving=reserving)
        await turns.turn()
        written: list[str] = []
        read: list[str] = []
        # All of it stays in the log, whose length then says how much was written.
        await store._write(lambda database: database.execute("PRAGMA wal_autocheckpoint=0"))
        await store._write(lambda database: database.set_trace_callback(written.append))
        await store._read(lambda database: database.set_trace_callback(read.append))
        log = path.with_name(f"{path.name}-wal")
        per_turn: list[tuple[Counter[str], Counter[str], int, int]] = []
        bytes_written: list[int] = []
        # Enough turns for the window to be trimmed once.
        for _ in range(15):
            written.clear()
            read.clear()
            length = log.stat().st_size
            changed = await store._write(lambda database: database.total_changes)
            overhead = len(written)
            await turns.turn()
            bytes_written.append(log.stat().st_size - length)
            statements = Counter(_shape(sql) for sql in written[overhead:])
            rows = await store._write(lambda database: database.total_changes) - changed
            reads = Counter(_shape(sql) for sql in read)
            per_turn.append((statements, reads, rows, statements["COMMIT"]))
        return {
            "turns": per_turn,
            "bytes": statistics.median(bytes_written),
            "most": max(bytes_written),
        }


def _shape(sql: str) -> str:
    """The statement without its values."""
    return sql.split("(", maxsplit=1)[0].split("=", maxsplit=1)[0]


@pytest.mark.parametrize("reserving", [False, True], ids=["plain", "with a budget"])
async def test_a_turn_costs_the_same_after_ten_thousand_messages(
    tmp_path: Path, reserving: bool
) -> None:
    few = await measured(tmp_path / "few.db", 200, reserving=reserving)
    many = await measured(tmp_path / "many.db", 10_000, reserving=reserving)
    assert many["turns"] == few["turns"]
    assert many["bytes"] == few["bytes"]


@pytest.mark.parametrize("reserving", [False, True], ids=["plain", "with a budget"])
async def test_what_a_turn_costs(tmp_path: Path, reserving: bool) -> None:
    """The figures themselves: whoever adds a statement or a row to a turn sees it here."""
    costs = await measured(tmp_path / "few.db", 200, reserving=reserving)
    turns = costs["turns"]
    assert isinstance(turns, list)
    for statements, reads, rows, commits in turns:
        assert commits == 4
        # an id seen, two messages, four heads; what the call used, with a budget twice
        assert rows == 1 + 1 + 1 + 4 + 1 + reserving
        # BEGIN, UPDATE, COMMIT a save; an id seen, two messages, what the call used. The first save
        # reads its row, for it was not a save that this test had run before it.
        assert statements.total() == 4 * 3 + 3 + 1 + reserving + 1
        assert reads.total() == 4
    assert costs["bytes"] == pytest.approx(53_000 if reserving else 49_000, rel=0.1)
