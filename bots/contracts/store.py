"""What every store must do: inherit `StoreContract` and say how to open yours.

::

    class TestMyStore(StoreContract):
        def open(self, place: Path) -> BotStore:
            return MyStore(place / "my.db")

A store for the library alone has three methods and inherits `SessionStoreContract`.
It needs nothing else of this repository's tests. `open` is given an empty folder of its own and
gives a store that is empty, and closed. The flags say what a store leaves out on purpose.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from core import changes, outbox
from core.blobs import GRACE_MS, MAX_BYTES, is_id
from core.clock import SystemClock
from core.errors import (
    BlobUnreadable,
    InvalidKey,
    SnapshotTooNew,
    SnapshotUnreadable,
    StaleSnapshot,
    StoreUnavailable,
)
from core.forget import forget
from core.history import begins_exchange
from core.memory import BOT_MEMORY, ConversationMemory
from core.messages import Inbound, Message, Outbound, Role, Sender, encode_blocks, text_block
from core.retention import DAY as DAYS
from core.retention import Retention, Rules
from core.snapshot import Overheard, Pending, Sent, Snapshot, Suspension, Turn, Usage, stored
from core.snapshots import Snapshots
from core.store import Blob, BotStore, SessionRef, SessionStore, Summary, TellsRevision
from core.trimming import NewSummary
from core.usage import QUARTER, UNIT, Spent, Sum

EPOCH = "epoch-1"
DAY = 1_700_006_400_000  # a midnight, UTC

SHORT = ConversationMemory(8, 4)  # a window that a test fills in a few turns

HOSTILE_KEYS = (
    "telegram-chat:123",
    "telegram-chat:124",
    "a",
    "A",
    " ",
    "a ",
    "a/b",
    "a//b",
    ".",
    "..",
    "../../etc/passwd",
    "/etc/passwd",
    "a\\b",
    "a%",
    "a_",
    "a*",
    "ab",
    "'; DROP TABLE sessions; --",
    '"quoted"',
    "line\nbreak",
    "\x01\x7f",
    "null",
    "0",
    "\u00e9",
    "e\u0301",
    "漢字🙂",
    "🙂" * 255,
    "x" * 255,
)


# Stories are many and are not about durability: where there is such a disk, nothing waits for it.
_IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def ref(key: str) -> SessionRef:
    return SessionRef(key, agent="assistant", cwd="/somewhere")


def begun(revision: int = 1000, epoch: str = EPOCH) -> Snapshot:
    return changes.begin(revision=revision, epoch=epoch, now=1_700_000_000_000)


def inbound(name: str, text: str = "hello", key: str = "t:1") -> Inbound:
    return Inbound(id=name, key=key, kind="message", sender=Sender("t:42", "Ann"), text=text, at=7)


def text(words: str) -> Raw:
    return encode_blocks([text_block(words)])


def spent(execution: str = "e1", call: int = 1, **fields: Any) -> Spent:
    """A call of some minutes past midnight."""
    given: dict[str, Any] = {"at": DAY + 7, "model": "m1", "usage": Usage(10, 5, 2, 1), "cost": 100}
    return Spent(execution, call, **(given | fields))


def rich() -> Snapshot:
    """Every field is set, and to something that is easy to spoil."""
    verbatim = Raw(b'[ {"type" : "text",  "text":"caf\\u00e9 \xf0\x9f\x99\x82"} ]')
    rows = tuple(
        Message(
            seq=seq,
            role="user" if seq % 2 else "assistant",
            blocks=verbatim if seq == 3 else text(f"row {seq} " + "long " * 400 * (seq % 3)),
            at=1_700_000_000_000 + seq,
            sender="telegram:42" if seq % 2 else None,
            message_ids=(f"m{seq}", 'with " quote and \\ and \n') if seq % 2 else (),
        )
        for seq in (3, 4, 7, 8, 9, 10, 11, 12, 13)
    )
    return Snapshot(
        revision=2**48 - 1,
        epoch="ep\u00f6ch",
        created_at=1,
        updated_at=2**41,
        id="session id",
        model="anthropic/claude",
        system_prompt="Be brief. " * 200,
        thinking="adaptive",
        effort="high",
        cwd="/home/somebody",
        chosen={"model": "other", "thinking": "off", "": "\u2028"},
        spans=((1, 4), (7, 10)),
        window=3,
        messages=rows[:6],
        next_seq=14,
        inbox=(
            inbound("in-1", "short \u0007 🙂"),
            inbound("in-2", "é" * 400),
            replace(
                inbound("in-3", "x" * 16_000),
                kind="decision",
                blocks=text("a picture " * 100),
                message_id="77",
                reply_to="76",
                group=True,
            ),
            replace(inbound("in-4"), blocks=Raw(b'[{"type":"image"}]')),
        ),
        unanswered=(
            inbound("no-1", "é" * 500),
            replace(inbound("no-2", ""), blocks=text("a photo " * 100)),
        ),
        edited=replace(inbound("ed-1", "é" * 500), kind="edit"),
        turn=Turn(
            execution="exec-1",
            attempt=2,
            first=11,
            taken=("in-1", "in-2"),
            steps=rows[6:],
            started=("call-1",),
            shown=("90", "91"),
            suspended=Suspension(
                id="exec-0",
                calls=(
                    Pending("call-1", "0123456789ab", "approved", card="92"),
                    Pending("call-2", "ba9876543210", "declined", "too \u2028 much"),
                    Pending("call-3", "ffffffffffff"),
                ),
                results=text("what was found " * 300),
                sender="telegram:42",
                approvers=("telegram:42", "slack:T1/U1"),
                expires=1_700_003_600_000,
                joined=("in-2",),
            ),
        ),
        outbox=(
            Outbound("out-1", '{"text":"' + "y" * 4000 + '"}', "sending", reply_to="77"),
            Outbound("out-2", "é" * 300, by="process 1"),
            Outbound("out-3", None, "held", replaces="90"),
            Outbound("out-4", "", "failed"),
        ),
        heard=(Overheard(Sender("telegram:43", "Bob"), "lunch?", "75"),),
        answer="old",
        sent=(Sent("old.0", ("80", "81")), Sent("old.1", ())),
        seen=tuple(f"s{number:020}" for number in range(200)),
        usage=Usage(1, 2, 3, 2**40),
        erase=((5, 6),),
        spent=(spent("exec-1", 1),),
    )


def image(*ids: str) -> Raw:
    """Blocks that name blobs."""
    return encode_blocks(
        [
            {"type": "image", "source": {"type": "blob", "id": id, "media_type": "image/png"}}
            for id in ids
        ]
    )


class _StoppedClock(SystemClock):
    """It is this moment, and nobody sleeps."""

    def __init__(self, now: int) -> None:
        self._now = now

    def now(self) -> int:
        return self._now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class Chat:
    """One conversation, changed the way the core does it: load, change, compare-and-set."""

    def __init__(self, store: SessionStore, key: str) -> None:
        self.store = store
        self.ref = ref(key)
        self.turns = 0

    async def update(self, change: Callable[[Snapshot], Snapshot]) -> Snapshot:
        while True:
            stored = await self.store.load(self.ref)
            changed = change(stored or begun())
            if changed is stored:
                return changed
            try:
                return await self._save(stored, changed)
            except StaleSnapshot:
                continue

    async def _save(self, before: Snapshot | None, changed: Snapshot) -> Snapshot:
        if before:
            changed = replace(changed, revision=before.revision + 1)
        await self.store.save(self.ref, changed, replaces=before.revision if before else None)
        return stored(changed)

    async def turn(self, memory: ConversationMemory = BOT_MEMORY, words: str = "fine") -> Snapshot:
        """A whole one, four saves."""
        name = f"turn{self.turns}"
        self.turns += 1
        said = inbound(name, key=self.ref.key)
        fence = changes.Fence(EPOCH, name)
        await self.update(lambda value: changes.accept(value, said))
        await self.update(lambda value: changes.start(value, execution=name, now=8, memory=memory))
        done = await self.update(
            lambda value: changes.commit(value, fence, [text(words)], ["part"], Usage(1, 1), now=9)
        )
        part = done.outbox[-1].id
        return await self.update(lambda value: outbox.delivered(value, part, ("5",)))


def delivered_all(value: Snapshot) -> Snapshot:
    while part := value.next_part:
        value = outbox.delivered(value, part.id, ("1",))
    return value


async def keys(store: BotStore) -> list[str]:
    return sorted([key async for key in store.unfinished()])


async def listed(
    store: BotStore, prefix: str = "", after: str | None = None, limit: int = 100
) -> list[Summary]:
    return [summary async for summary in store.summaries(prefix, after, limit)]


async def seqs(
    store: BotStore, key: str, before: int | None = None, limit: int = 100_000
) -> list[int]:
    return [row.seq async for row in store.archive(ref(key), before, limit)]


Step = tuple[str, int]

STEPS = st.tuples(
    st.sampled_from(
        (
            *("talk", "ask") * 4,
            *("accept", "start", "answered", "results", "commit", "delivered") * 2,
            *("join", "shown", "apologise", "summarise", "postpone", "shorten", "append", "reply"),
            *("hold", "fail", "put_back", "gone", "stop", "reset", "undo"),
            *("clear", "set_aside", "move", "move"),
        )
    ),
    st.sampled_from((1, 20, 700)),
)


class SessionStoreContract:
    """What a store must do that has `load`, `save` and `clear`, and need have no more."""

    def open(self, place: Path) -> SessionStore:
        """A store on this folder, empty when the folder is. It is closed, if it can be."""
        raise NotImplementedError

    @pytest_asyncio.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[SessionStore]:
        store = self.open(tmp_path)
        async with AsyncExitStack() as stack:
            if isinstance(store, AbstractAsyncContextManager):
                await stack.enter_async_context(store)
            yield store

    async def test_what_is_not_there_is_none(self, store: SessionStore) -> None:
        assert await store.load(ref("t:1")) is None

    async def test_gives_back_what_it_was_given(self, store: SessionStore) -> None:
        value = rich()
        await store.save(ref("t:1"), value, replaces=None)
        assert await store.load(ref("t:1")) == stored(value)

    async def test_gives_back_every_field_after_every_save(self, store: SessionStore) -> None:
        value = stored(rich())
        await store.save(ref("t:1"), value, replaces=None)
        some: list[dict[str, Any]] = [
            {"inbox": value.inbox[2:], "outbox": value.outbox[1:]},
            {"system_prompt": None, "turn": None},
            {"inbox": (), "outbox": (), "chosen": {}, "sent": ()},
            {"system_prompt": "new " * 500, "model": None},
        ]
        for change in some:
            changed = replace(value, revision=value.revision + 1, **change)
            await store.save(ref("t:1"), changed, replaces=value.revision)
            assert await store.load(ref("t:1")) == changed
            value = changed

    async def test_blocks_stay_byte_for_byte(self, store: SessionStore) -> None:
        value = rich()
        await store.save(ref("t:1"), value, replaces=None)
        loaded = await store.load(ref("t:1"))
        assert loaded is not None
        assert [bytes(row.blocks) for row in loaded.rows] == [
            bytes(row.blocks) for row in value.rows
        ]

    async def test_any_key_is_a_key_of_its_own(self, store: SessionStore) -> None:
        values = {
            key: replace(begun(revision=number), id=key) for number, key in enumerate(HOSTILE_KEYS)
        }
        for key, value in values.items():
            await store.save(ref(key), value, replaces=None)
        for key, value in values.items():
            assert await store.load(ref(key)) == value

    @pytest.mark.parametrize("key", ["", "nul\0", "x" * 256, "\ud800"])
    async def test_what_is_no_key_gets_nowhere(self, store: SessionStore, key: str) -> None:
        with pytest.raises(InvalidKey):
            await store.load(ref(key))

    async def test_the_head_may_be_as_long_as_it_likes(self, store: SessionStore) -> None:
        value = replace(
            rich(),
            inbox=tuple(inbound(f"in{number}", "w" * 500) for number in range(20)),
            outbox=tuple(Outbound(f"out{number}", "v" * 500) for number in range(60)),
            erase=(),
            spent=(),
        )
        await store.save(ref("t:1"), value, replaces=None)
        assert await store.load(ref("t:1")) == value

    async def test_two_texts_may_be_equal(self, store: SessionStore) -> None:
        long = "the same " * 200
        value = replace(
            begun(), inbox=(inbound("1", long), inbound("2", long)), outbox=(Outbound("3", long),)
        )
        await store.save(ref("t:1"), value, replaces=None)
        fewer = replace(value, revision=1001, inbox=value.inbox[1:], outbox=())
        await store.save(ref("t:1"), fewer, replaces=1000)
        assert await store.load(ref("t:1")) == fewer

    async def test_seen_is_what_the_value_says(self, store: SessionStore) -> None:
        """Also when the last 200 are full, and when all of them were pushed out again."""
        value = replace(begun(), seen=tuple(f"old {number}" for number in range(197)))
        await store.save(ref("t:1"), value, replaces=None)
        for number in range(260):
            changed = replace(
                changes.reply(value, inbound(f"id {number}"), []), revision=value.revision + 1
            )
            await store.save(ref("t:1"), changed, replaces=value.revision)
            value = changed
            if number < 10 or number > 195:
                assert await store.load(ref("t:1")) == value
        assert len(value.seen) == changes.SEEN_LIMIT

    async def test_seen_may_change_in_any_way(self, store: SessionStore) -> None:
        value = begun()
        await store.save(ref("t:1"), value, replaces=None)
        many = tuple(f"id {number}" for number in range(300))
        for seen in (
            many[:5],
            many[:205],
            many[:200],
            many[150:],
            many[100:],
            many[100:200][::-1] + many[:100],
            ("other", *many[101:]),
            many[100:299],
            ('"', "\n", "a\nb", "", "'"),
            ('"', "\n", "a", "b", "", "'"),
            (),
            many[:1],
        ):
            changed = replace(value, revision=value.revision + 1, seen=seen)
            await store.save(ref("t:1"), changed, replaces=value.revision)
            assert await store.load(ref("t:1")) == changed
            value = changed

    async def test_clearing_what_is_not_there_is_fine(self, store: SessionStore) -> None:
        await store.clear(ref("t:1"))
        await store.clear(ref("t:1"))
        assert await store.load(ref("t:1")) is None

    async def test_a_first_save_wants_nothing_there(self, store: SessionStore) -> None:
        await store.save(ref("t:1"), begun(), replaces=None)
        with pytest.raises(StaleSnapshot):
            await store.save(ref("t:1"), replace(begun(), id="late"), replaces=None)
        assert await store.load(ref("t:1")) == begun()

    async def test_a_later_save_wants_the_revision_it_saw(self, store: SessionStore) -> None:
        with pytest.raises(StaleSnapshot):
            await store.save(ref("t:1"), begun(), replaces=999)
        assert await store.load(ref("t:1")) is None
        await store.save(ref("t:1"), begun(), replaces=None)
        with pytest.raises(StaleSnapshot):
            await store.save(ref("t:1"), begun(1001), replaces=999)
        await store.save(ref("t:1"), begun(1001), replaces=1000)
        assert await store.load(ref("t:1")) == begun(1001)

    async def test_a_stale_writer_does_not_fit_what_was_begun_anew(
        self, store: SessionStore
    ) -> None:
        await store.save(ref("t:1"), begun(1000), replaces=None)
        await store.clear(ref("t:1"))
        with pytest.raises(StaleSnapshot):
            await store.save(ref("t:1"), begun(1001), replaces=1000)
        await store.save(ref("t:1"), begun(7_000_000, "epoch-2"), replaces=None)
        with pytest.raises(StaleSnapshot):
            await store.save(ref("t:1"), begun(1001), replaces=1000)
        assert await store.load(ref("t:1")) == begun(7_000_000, "epoch-2")

    async def test_of_two_savers_one_wins(self, store: SessionStore) -> None:
        await store.save(ref("t:1"), begun(), replaces=None)
        first, second = (replace(begun(1001), id=name) for name in ("first", "second"))
        outcomes = await asyncio.gather(
            store.save(ref("t:1"), first, replaces=1000),
            store.save(ref("t:1"), second, replaces=1000),
            return_exceptions=True,
        )
        assert sorted(map(type, outcomes), key=str) == [type(None), StaleSnapshot]
        winner = first if outcomes[0] is None else second
        assert await store.load(ref("t:1")) == winner

    async def test_of_two_that_begin_one_wins(self, store: SessionStore) -> None:
        outcomes = await asyncio.gather(
            *(store.save(ref("t:1"), begun(number), replaces=None) for number in range(5)),
            return_exceptions=True,
        )
        assert sorted(map(type, outcomes), key=str) == [type(None), *[StaleSnapshot] * 4]

    async def test_fifty_savers_lose_no_change(self, store: SessionStore) -> None:
        chat = Chat(store, "t:1")
        await asyncio.gather(
            *(
                chat.update(partial(changes.reply, inbound=inbound(f"in{n}"), bodies=["ok"]))
                for n in range(50)
            )
        )
        value = await store.load(ref("t:1"))
        assert value is not None
        assert sorted(value.seen) == sorted(f"in{number}" for number in range(50))
        assert len(value.outbox) == 50
        assert value.revision == 1000 + 49

    async def test_many_conversations_at_once(self, store: SessionStore) -> None:
        chats = [Chat(store, f"t:{number}") for number in range(20)]

        async def talk(chat: Chat) -> None:
            for _ in range(3):
                await chat.turn()

        await asyncio.gather(*map(talk, chats))
        for chat in chats:
            value = await store.load(chat.ref)
            assert value is not None
            assert [row.seq for row in value.messages] == [1, 2, 3, 4, 5, 6]
            assert value.seen == ("turn0", "turn1", "turn2")

    async def test_a_cancelled_save_does_no_harm(self, store: SessionStore) -> None:
        await store.save(ref("t:1"), begun(), replaces=None)
        for rounds in range(6):
            stored = await store.load(ref("t:1"))
            assert stored is not None
            task = asyncio.create_task(
                store.save(
                    ref("t:1"),
                    replace(stored, revision=stored.revision + 1),
                    replaces=stored.revision,
                )
            )
            for _ in range(rounds):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        # Whether they happened is unknown; that all of it goes on is not.
        value = await Chat(store, "t:1").turn()
        assert await store.load(ref("t:1")) == value


class StoreContract(SessionStoreContract):
    # archive() gives rows that left the window, and summaries() counts them.
    keeps_archive: ClassVar[bool] = True
    # Sealed, a text takes more bytes, and a blob is not called by the hash of what was put.
    keeps_plain: ClassVar[bool] = True
    # Another object on the same place finds what the first one stored.
    durable: ClassVar[bool] = True

    def open(self, place: Path) -> BotStore:
        """A closed store on this folder, empty when the folder is."""
        raise NotImplementedError

    async def spoil(self, store: BotStore, place: Path, key: str) -> None:
        """Damage what is stored under the key, so that it cannot be read."""
        pytest.skip("this store cannot hold anything unreadable")

    async def age(self, store: BotStore, place: Path, key: str) -> None:
        """Make what is stored under the key look written by a newer version."""
        pytest.skip("this store cannot hold anything of a newer version")

    async def spoil_blob(self, store: BotStore, place: Path, id: str) -> None:
        """Damage the bytes of a blob."""
        pytest.skip("this store cannot hold anything damaged")

    async def bytes_of(self, place: Path) -> bytes:
        """All that the store has in files; b"" when it has none."""
        return b""

    # ------------------------------------------------------------------ load, save, clear

    async def test_is_a_bot_store(self, store: BotStore) -> None:
        assert isinstance(store, BotStore)
        assert isinstance(store, SessionStore)

    async def test_clear_removes_everything(self, store: BotStore) -> None:
        await store.save(ref("t:1"), rich(), replaces=None)
        await store.save(ref("t:2"), rich(), replaces=None)
        await store.clear(ref("t:1"))
        assert await store.load(ref("t:1")) is None
        assert await keys(store) == ["t:2"]
        assert [summary.key for summary in await listed(store)] == ["t:2"]
        assert await seqs(store, "t:1") == []
        assert await store.load(ref("t:2")) == stored(rich())

    async def test_another_object_finds_it(self, tmp_path: Path) -> None:
        if not self.durable:
            pytest.skip("this store lives as long as its object")
        async with self.open(tmp_path) as store:
            await store.save(ref("t:1"), rich(), replaces=None)
            assert await store.notes.put("owner", b"42", was=None)
        async with self.open(tmp_path) as store:
            assert await store.load(ref("t:1")) == stored(rich())
            assert await store.notes.get("owner") == b"42"
            assert await keys(store) == ["t:1"]

    # ------------------------------------------------------------------ compare-and-set

    async def test_a_stale_save_changes_nothing(self, store: BotStore) -> None:
        value = stored(rich())
        await store.save(ref("t:1"), value, replaces=None)
        stale = changes.reset(replace(value, revision=5), "other epoch")
        with pytest.raises(StaleSnapshot):
            await store.save(ref("t:1"), stale, replaces=4)
        assert await store.load(ref("t:1")) == value
        assert await seqs(store, "t:1") == [10, 9, 8, 7, 4, 3]
        assert await keys(store) == ["t:1"]

    async def test_the_revision_is_that_of_the_newest_save(self, store: BotStore) -> None:
        """Of a store that several processes may share."""
        if not isinstance(store, TellsRevision):
            return
        assert await store.revision(ref("t:1")) is None
        await store.save(ref("t:1"), begun(1000), replaces=None)
        await store.save(ref("t:2"), begun(2000), replaces=None)
        assert await store.revision(ref("t:1")) == 1000
        await store.save(ref("t:1"), begun(1001), replaces=1000)
        assert await store.revision(ref("t:1")) == 1001
        await store.set_aside(ref("t:1"))
        assert await store.revision(ref("t:1")) is None
        await store.clear(ref("t:2"))
        assert await store.revision(ref("t:2")) is None

    # ------------------------------------------------------------------ what a turn does

    async def test_turns(self, store: BotStore) -> None:
        chat = Chat(store, "t:1")
        for _ in range(10):
            value = await chat.turn(SHORT)
            assert await store.load(chat.ref) == value
        assert value.window > 1
        assert value.spans == ((1, 20),)

    async def test_a_turn_with_steps(self, store: BotStore) -> None:
        chat = Chat(store, "t:1")
        fence = changes.Fence(EPOCH, "x")
        for change in (
            lambda value: changes.accept(value, inbound("in", "long " * 500)),
            lambda value: changes.start(value, execution="x", now=1, memory=BOT_MEMORY),
            lambda value: changes.answered(value, fence, [text("call")], ("c1",), now=2),
            lambda value: changes.results(value, fence, text("result"), now=3),
            lambda value: changes.shown(value, fence, ("12",)),
            lambda value: changes.commit(value, fence, [text("end")], ["a", "b"], Usage(), now=4),
        ):
            value = await chat.update(change)
            assert await store.load(chat.ref) == value
        assert [row.seq for row in value.messages] == [1, 2, 3, 4]

    async def test_rows_appended_beside_a_turn(self, store: BotStore) -> None:
        chat = Chat(store, "t:1")
        fence = changes.Fence(EPOCH, "x")
        for _ in range(2):
            await chat.turn()
        for change in (
            lambda value: changes.accept(value, inbound("in")),
            lambda value: changes.start(value, execution="x", now=1, memory=BOT_MEMORY),
            lambda value: changes.append(
                value, [("user", text("q")), ("assistant", text("a"))], Usage(), 2, BOT_MEMORY
            ),
            lambda value: changes.commit(value, fence, [text("end")], [], Usage(), now=4),
        ):
            value = await chat.update(change)
            assert await store.load(chat.ref) == value
        # In reading order, which is not that of the numbers here.
        assert [row.seq for row in value.messages] == [1, 2, 3, 4, 6, 7, 5, 8]
        value = await chat.turn()
        assert await store.load(chat.ref) == value
        assert sorted(await seqs(store, "t:1")) == list(range(1, 11))
        assert (await listed(store))[0].messages == 10

    async def test_what_the_value_holds_is_never_erased(self, store: BotStore) -> None:
        value = replace(rich(), erase=((1, 2), (5, 11)))
        await store.save(ref("t:1"), value, replaces=None)
        assert await store.load(ref("t:1")) == stored(value)
        later = replace(value, revision=value.revision + 1, erase=((1, 13),))
        await store.save(ref("t:1"), later, replaces=value.revision)
        assert await store.load(ref("t:1")) == stored(later)
        assert await seqs(store, "t:1") == [10, 9, 8, 7, 4, 3]

    async def test_reset_erases_the_rows(self, store: BotStore) -> None:
        chat = Chat(store, "t:1")
        for _ in range(7):
            await chat.turn(SHORT)
        value = await chat.update(lambda value: changes.reset(value, "epoch-2"))
        assert value.next_seq == 15
        assert len(value.seen) == 7
        assert await store.load(chat.ref) == value
        assert await seqs(store, "t:1") == []
        (summary,) = await listed(store)
        assert summary.messages == 0

    async def test_an_abandoned_turn_leaves_no_rows(self, store: BotStore) -> None:
        chat = Chat(store, "t:1")
        await chat.turn()
        await chat.update(lambda value: changes.accept(value, inbound("in")))
        await chat.update(
            lambda value: changes.start(value, execution="x", now=1, memory=BOT_MEMORY)
        )
        await chat.update(changes.stop)
        value = await chat.turn()
        assert await store.load(chat.ref) == value
        assert await seqs(store, "t:1") == [5, 4, 2, 1]
        (summary,) = await listed(store)
        assert summary.messages == 4

    async def test_what_is_undone_is_no_history(self, store: BotStore) -> None:
        chat = Chat(store, "t:1")
        for _ in range(3):
            await chat.turn()
        value = await chat.update(
            lambda value: replace(value, spans=((1, 4),), messages=value.messages[:4])
        )
        assert await store.load(chat.ref) == value
        value = await chat.turn()
        assert value.spans == ((1, 4), (7, 8))
        assert await store.load(chat.ref) == value
        assert await seqs(store, "t:1") == [8, 7, 4, 3, 2, 1]
        (summary,) = await listed(store)
        assert summary.messages == 6

    # ------------------------------------------------------------------ lists

    async def test_unfinished(self, store: BotStore) -> None:
        chat = Chat(store, "t:1")
        await Chat(store, "t:0").turn()
        assert await keys(store) == []
        await chat.update(lambda value: changes.accept(value, inbound("in")))
        assert await keys(store) == ["t:1"]
        await chat.update(changes.stop)
        assert await keys(store) == []
        await chat.update(lambda value: changes.notice(value, ["sorry"]))
        assert await keys(store) == ["t:1"]
        await store.clear(chat.ref)
        assert await keys(store) == []

    async def test_many_unfinished(self, store: BotStore) -> None:
        expected = [f"t:{number:04}" for number in range(205)]
        value = changes.accept(begun(), inbound("in"))
        await asyncio.gather(
            *(store.save(ref(key), value, replaces=None) for key in reversed(expected))
        )
        assert sorted(await keys(store)) == expected
        assert [summary.key for summary in await listed(store, limit=1000)] == expected
        assert [summary.key for summary in await listed(store, limit=202)] == expected[:202]

    async def test_a_listing_holds_nothing_up(self, store: BotStore) -> None:
        for number in range(3):
            await store.save(
                ref(f"t:{number}"), changes.accept(begun(), inbound("in")), replaces=None
            )
        async for key in store.unfinished():
            await Chat(store, key).update(changes.stop)
        assert await keys(store) == []
        async for summary in store.summaries():
            await store.clear(ref(summary.key))
        assert await listed(store) == []

    async def test_any_key_is_listed(self, store: BotStore) -> None:
        for number, key in enumerate(HOSTILE_KEYS):
            await store.save(ref(key), begun(revision=number), replaces=None)
        assert [summary.key for summary in await listed(store)] == sorted(HOSTILE_KEYS)

    async def test_summaries(self, store: BotStore) -> None:
        done = await Chat(store, "t:2").turn()
        await Chat(store, "t:10").update(lambda value: changes.accept(value, inbound("in")))
        await Chat(store, "s:1").turn()
        assert await listed(store) == [
            Summary("s:1", 2, False, done.updated_at),
            Summary("t:10", 0, True, done.updated_at),
            Summary("t:2", 2, False, done.updated_at),
        ]
        assert [summary.key for summary in await listed(store, "t:")] == ["t:10", "t:2"]
        assert [summary.key for summary in await listed(store, after="s:1")] == ["t:10", "t:2"]
        assert [summary.key for summary in await listed(store, "t:", "t:10")] == ["t:2"]
        assert [summary.key for summary in await listed(store, "s:", "t:1")] == []
        assert [summary.key for summary in await listed(store, limit=1)] == ["s:1"]
        assert await listed(store, limit=0) == []
        assert await listed(store, "u") == []

    @pytest.mark.parametrize("prefix", ["a%", "a_", "a\ud7ff", "a\U0010ffff", "\U0010ffff", "é"])
    async def test_a_prefix_means_itself(self, store: BotStore, prefix: str) -> None:
        inside = sorted([prefix, prefix + "x", prefix + "\U0010ffff", prefix + "\U0010ffffx"])
        for key in [*inside, "ab", "a\ue000", "b", "a", "f"]:
            await store.save(ref(key), begun(), replaces=None)
        assert [summary.key for summary in await listed(store, prefix)] == inside

    async def test_archive(self, store: BotStore) -> None:
        chat = Chat(store, "t:1")
        for _ in range(12):
            value = await chat.turn(SHORT, words="word " * 20)
        await chat.update(lambda value: changes.accept(value, inbound("in")))
        await chat.update(
            lambda value: changes.start(value, execution="x", now=1, memory=BOT_MEMORY)
        )
        all_of_it = list(range(24, 0, -1))
        if not self.keeps_archive:
            all_of_it = all_of_it[: all_of_it.index(value.window) + 1]
        rows = [row async for row in store.archive(chat.ref, limit=3)]
        assert rows == list(reversed(value.messages[-3:]))
        assert await seqs(store, "t:1") == all_of_it
        assert await seqs(store, "t:1", before=24, limit=2) == [23, 22]
        assert await seqs(store, "t:1", before=1) == []
        assert await seqs(store, "t:1", limit=0) == []
        assert await seqs(store, "t:2") == []

    async def test_a_summary_is_written_last_read_first_and_stays_one(
        self, store: BotStore
    ) -> None:
        value = begun()
        for number in range(1, 4):
            value = changes.append(
                value,
                [("user", text(f"q{number}")), ("assistant", text(f"a{number}"))],
                Usage(),
                number,
                SHORT,
            )
        await store.save(ref("t:1"), value, replaces=None)
        covers = tuple(row.seq for row in value.messages[:2])
        after = changes.append(
            value,
            [("user", text("q4")), ("assistant", text("a4"))],
            Usage(),
            9,
            SHORT,
            summary=NewSummary(value.epoch, covers, "so far"),
        )
        after = replace(after, revision=value.revision + 1)
        await store.save(ref("t:1"), after, replaces=value.revision)
        assert await store.load(ref("t:1")) == after
        assert [row.role for row in after.messages][:2] == ["summary", "user"]
        assert [row.seq for row in after.messages] == [7, 3, 4, 5, 6, 8, 9]
        if self.keeps_archive:
            assert await seqs(store, "t:1") == [9, 8, 7, 6, 5, 4, 3, 2, 1]

    async def test_a_long_archive(self, store: BotStore) -> None:
        chat = Chat(store, "t:1")
        said = [("user", text("q")), ("assistant", text("a"))] * 450
        await chat.update(
            lambda value: changes.append(value, said, Usage(), 1, ConversationMemory())  # type: ignore[arg-type]
        )
        assert await seqs(store, "t:1") == list(range(900, 0, -1))
        assert await seqs(store, "t:1", limit=401) == list(range(900, 499, -1))

    # ------------------------------------------------------------------ move

    async def test_move(self, store: BotStore) -> None:
        waiting = changes.accept(rich(), inbound("in", key="t:-1"))
        for key in ("t:-1", "t:-1/7", "t:-1/7/42"):
            await store.save(ref(key), waiting, replaces=None)
        await store.move("t:-1", "t:-100")
        for key in ("t:-1", "t:-1/7", "t:-1/7/42"):
            assert await store.load(ref(key)) is None
            moved = key.replace("t:-1", "t:-100")
            expected = changes.move(stored(waiting), None, moved)
            assert await store.load(ref(moved)) == expected
        assert await keys(store) == ["t:-100", "t:-100/7", "t:-100/7/42"]
        assert await seqs(store, "t:-100") == [10, 9, 8, 7, 4, 3]

    async def test_move_takes_nobody_else_along(self, store: BotStore) -> None:
        others = [
            "t:10",
            "t:1-1",
            "t:1.",
            "t:1%",
            "t:1_",
            "t:1%/7",
            "t:1_/7",
            "T:1",
            "t:",
            "xt:1/7",
        ]
        for key in ["t:1", "t:1/7", *others]:
            await store.save(ref(key), replace(begun(), id=key), replaces=None)
        await store.move("t:1", "u:1")
        found = [summary.key for summary in await listed(store)]
        assert found == sorted(["u:1", "u:1/7", *others])
        await store.move("t:1%", "u:2")
        await store.move("t:1_", "u:3")
        found = [summary.key for summary in await listed(store, "u:")]
        assert found == ["u:1", "u:1/7", "u:2", "u:2/7", "u:3", "u:3/7"]
        value = await store.load(ref("u:2/7"))
        assert value is not None and value.id == "t:1%/7"

    async def test_move_of_nothing_and_to_itself(self, store: BotStore) -> None:
        await store.move("t:1", "t:2")
        assert await listed(store) == []
        await store.save(ref("t:1"), rich(), replaces=None)
        await store.move("t:1", "t:1")
        assert await store.load(ref("t:1")) == stored(rich())

    @pytest.mark.parametrize("new", ["", "x" * 254, "nul\0", "\ud800"])
    async def test_move_to_what_is_no_key(self, store: BotStore, new: str) -> None:
        for key in ("t:1", "t:1/7"):
            await store.save(ref(key), replace(rich(), id=key), replaces=None)
        with pytest.raises(InvalidKey):
            await store.move("t:1", new)
        assert [summary.key for summary in await listed(store)] == ["t:1", "t:1/7"]
        assert await store.load(ref("t:1")) == replace(rich(), id="t:1", erase=(), spent=())

    async def test_move_onto_one_that_is_there(self, store: BotStore) -> None:
        old, new = Chat(store, "t:1"), Chat(store, "t:2")
        new.turns = 100
        for _ in range(3):
            await old.turn()
        for _ in range(2):
            await new.turn()
        await new.update(lambda value: changes.accept(value, inbound("in", "x" * 999, "t:2")))
        before_old = await store.load(old.ref)
        before_new = await store.load(new.ref)
        assert before_old is not None and before_new is not None
        await store.move("t:1", "t:2")
        value = await store.load(new.ref)
        assert value == changes.move(before_old, before_new, "t:2")
        assert await store.load(old.ref) is None
        assert await seqs(store, "t:2") == list(range(10, 0, -1))
        assert [summary.key for summary in await listed(store)] == ["t:2"]
        assert (await listed(store))[0].messages == 10
        await store.move("t:1", "t:2")
        assert await store.load(new.ref) == value
        after = await new.turn()
        assert await store.load(new.ref) == after

    @pytest.mark.parametrize("running", ["old", "new", "both"])
    async def test_move_with_a_turn_under_way(self, store: BotStore, running: str) -> None:
        old, new = Chat(store, "t:1"), Chat(store, "t:2")
        new.turns = 100
        for chat, name in ((old, "old"), (new, "new")):
            await chat.turn()
            if running in (name, "both"):
                said = inbound(name, "long " * 300, chat.ref.key)
                await chat.update(partial(changes.accept, inbound=said))
                await chat.update(partial(changes.start, execution=name, now=1, memory=BOT_MEMORY))
        values = await store.load(old.ref), await store.load(new.ref)
        assert values[0] is not None
        merged = changes.move(values[0], values[1], "t:2")
        await store.move("t:1", "t:2")
        assert await store.load(ref("t:2")) == stored(merged)
        fence = changes.Fence(EPOCH, merged.turn.execution if merged.turn else "")
        value = await new.update(
            lambda value: changes.commit(value, fence, [text("end")], ["x"], Usage(), now=2)
        )
        assert await store.load(new.ref) == value
        assert await seqs(store, "t:2") == [row.seq for row in reversed(value.messages)]

    async def test_move_of_trimmed_ones(self, store: BotStore) -> None:
        old, new = Chat(store, "t:1"), Chat(store, "t:2")
        new.turns = 100
        for chat in (old, new):
            for _ in range(9):
                await chat.turn(SHORT)
        values = await store.load(old.ref), await store.load(new.ref)
        assert values[0] is not None
        await store.move("t:1", "t:2")
        value = await store.load(new.ref)
        assert value == changes.move(values[0], values[1], "t:2")
        if self.keeps_archive:
            assert await seqs(store, "t:2") == list(range(36, 0, -1))

    async def test_a_writer_of_before_a_move_is_stale(self, store: BotStore) -> None:
        await store.save(ref("t:1"), begun(1000), replaces=None)
        await store.save(ref("t:2"), begun(2000), replaces=None)
        await store.move("t:1", "t:2")
        with pytest.raises(StaleSnapshot):
            await store.save(ref("t:1"), begun(1001), replaces=1000)
        with pytest.raises(StaleSnapshot):
            await store.save(ref("t:2"), begun(2001), replaces=2000)

    # ------------------------------------------------------------------ what cannot be read

    async def test_unreadable_is_never_empty(self, store: BotStore, tmp_path: Path) -> None:
        await Chat(store, "t:1").turn()
        other = await Chat(store, "t:2").turn()
        await self.spoil(store, tmp_path, "t:1")
        for _ in range(2):
            with pytest.raises(SnapshotUnreadable):
                await store.load(ref("t:1"))
            with pytest.raises(StaleSnapshot):
                await store.save(ref("t:1"), begun(), replaces=None)
        with pytest.raises(SnapshotUnreadable):
            await seqs(store, "t:1")
        assert await store.load(ref("t:2")) == other
        assert "t:2" in [summary.key for summary in await listed(store)]

    async def test_too_new_is_said(self, store: BotStore, tmp_path: Path) -> None:
        await Chat(store, "t:1").turn()
        await self.age(store, tmp_path, "t:1")
        for _ in range(2):
            with pytest.raises(SnapshotTooNew):
                await store.load(ref("t:1"))
        with pytest.raises(StaleSnapshot):
            await store.save(ref("t:1"), begun(), replaces=None)

    # ------------------------------------------------------------------ forgetting a person

    async def test_several_speakers_of_a_row_are_kept(self, store: BotStore) -> None:
        chat = Chat(store, "t:1")
        for number, sender in enumerate(("telegram:1", "telegram:2")):
            said = replace(inbound(f"in-{number}"), sender=Sender(sender), group=True)
            await chat.update(partial(changes.accept, inbound=said))
        value = await chat.update(partial(changes.start, execution="x", now=1, memory=BOT_MEMORY))
        (row,) = value.rows
        assert (row.sender, row.senders) == ("telegram:2", ("telegram:1", "telegram:2"))
        assert await store.load(ref("t:1")) == stored(value)

    async def test_a_rewritten_row_keeps_what_it_still_names(self, store: BotStore) -> None:
        if not self.keeps_archive:
            pytest.skip("this store keeps the window only")
        chat = Chat(store, "t:1")
        id = await store.blobs.put("t:1", b"image", "image/png")
        await chat.update(
            partial(changes.accept, inbound=replace(inbound("in-0"), blocks=image(id)))
        )
        await chat.update(partial(changes.start, execution="x", now=1, memory=SHORT))
        fence = changes.Fence(EPOCH, "x")
        await chat.update(lambda value: changes.commit(value, fence, [text("re")], [], Usage(), 2))
        for _ in range(12):
            await chat.turn(SHORT)
        rows = [row async for row in store.archive(ref("t:1"))]
        seen = next(row for row in rows if id.encode() in bytes(row.blocks))
        renamed = replace(seen, sender="x")
        value = await chat.update(lambda value: replace(value, rewritten=(renamed,)))
        assert seen.seq not in [row.seq for row in value.messages], "it is outside of the window"
        assert await store.blobs.get(id) is not None

    async def test_a_rewritten_row_takes_the_place_of_the_other(self, store: BotStore) -> None:
        chat = Chat(store, "t:1")
        for _ in range(12):
            await chat.turn(SHORT)
        id = await store.blobs.put("t:1", b"image", "image/png")
        asked = replace(inbound("in-9"), blocks=image(id))
        await chat.update(partial(changes.accept, inbound=asked))
        await chat.update(partial(changes.start, execution="x", now=1, memory=SHORT))
        fence = changes.Fence(EPOCH, "x")
        await chat.update(lambda value: changes.commit(value, fence, [text("re")], [], Usage(), 2))
        rows = [row async for row in store.archive(ref("t:1"))]
        seen = next(row for row in rows if id.encode() in bytes(row.blocks))
        without = (replace(seen, blocks=text("marked")),)

        def unseen(value: Snapshot) -> Snapshot:
            kept = tuple(without[0] if row.seq == seen.seq else row for row in value.messages)
            return replace(value, messages=kept, rewritten=without)

        await chat.update(unseen)
        assert await store.blobs.get(id) is None
        rows = [row async for row in store.archive(ref("t:1"))]
        changed = tuple(replace(row, blocks=text("marked"), sender="x") for row in rows[-4:])

        def rewrite(value: Snapshot) -> Snapshot:
            there = {row.seq: row for row in changed}
            kept = tuple(there.get(row.seq, row) for row in value.messages)
            return replace(value, messages=kept, rewritten=changed)

        value = await chat.update(rewrite)
        assert await store.load(ref("t:1")) == stored(value) and stored(value).rewritten == ()
        after = [row async for row in store.archive(ref("t:1"))]
        assert [row.seq for row in after] == [row.seq for row in rows]
        assert after[-4:] == list(changed)
        assert after[:-4] == rows[:-4]

    async def test_where_a_person_has_spoken(self, store: BotStore) -> None:
        async def found(sender: str) -> list[str]:
            return sorted([key async for key in store.spoken_by(sender)])

        for key, sender in (("t:1", "telegram:1"), ("t:2", "telegram:11"), ("t:3", "telegram:1")):
            chat = Chat(store, key)
            said = replace(inbound("in-1", f'"{sender}0"'), sender=Sender(sender))
            await chat.update(partial(changes.accept, inbound=said))
        assert await found("telegram:1") == ["t:1", "t:3"]
        await Chat(store, "t:3").update(changes.stop)
        assert await found("telegram:1") == ["t:1", "t:3"], "it could be asked again"
        await Chat(store, "t:3").update(lambda value: changes.reset(value, EPOCH))
        assert await found("telegram:1") == ["t:1"]
        await Chat(store, "t:1").update(
            partial(changes.start, execution="x", now=1, memory=BOT_MEMORY)
        )
        assert await found("telegram:1") == ["t:1"]
        await store.set_aside(ref("t:1"))
        assert await found("telegram:1") == []
        assert await found('tele"gram') == []

    async def test_what_was_set_aside_can_be_deleted(self, store: BotStore) -> None:
        ids: list[str] = []
        for key, sender in (("t:1", "telegram:1"), ("t:2", "telegram:2"), ("t:3", "telegram:1")):
            chat = Chat(store, key)
            id = await store.blobs.put(key, key.encode(), "image/png")
            said = replace(inbound("in-1"), sender=Sender(sender), blocks=image(id))
            await chat.update(partial(changes.accept, inbound=said))
            await store.set_aside(ref(key))
            await store.clear(ref(key))
            ids.append(id)
        assert await store.clear_aside(sender="telegram:9", key="t:9") == 0
        assert [await store.blobs.get(id) is not None for id in ids] == [True] * 3
        assert await store.clear_aside(sender="telegram:1") == 2
        assert [await store.blobs.get(id) is not None for id in ids] == [False, True, False]
        assert await store.clear_aside(key="t:2") == 1
        assert await store.clear_aside(key="t:2", sender="telegram:1") == 0
        assert await store.blobs.get(ids[1]) is None

    async def test_what_was_set_aside_long_ago_can_be_deleted(self, store: BotStore) -> None:
        now = SystemClock().now()
        await Chat(store, "t:1").update(lambda value: changes.accept(value, inbound("in-1")))
        await store.set_aside(ref("t:1"))
        assert await store.clear_aside(before=now - 1000) == 0
        # A set of files has the day in its names, a database in a row: neither is far from now.
        assert await store.clear_aside(before=now + 3_600_000) == 1
        assert await store.clear_aside(before=now + 3_600_000) == 0

    async def test_remove_wants_the_revision_it_saw(self, store: BotStore) -> None:
        id = await store.blobs.put("t:1", b"data", "image/png")
        chat = await self._shows(store, "t:1", id)
        seen = await chat.turn()
        value = await chat.turn()
        for revision in (seen.revision, value.revision + 1):
            with pytest.raises(StaleSnapshot):
                await store.remove(ref("t:1"), replaces=revision)
        assert await store.load(ref("t:1")) == value
        assert await store.blobs.get(id) is not None
        await store.remove(ref("t:1"), replaces=value.revision)
        assert await store.load(ref("t:1")) is None
        assert await seqs(store, "t:1") == []
        assert await listed(store) == []
        assert await store.blobs.get(id) is None
        with pytest.raises(StaleSnapshot):
            await store.remove(ref("t:1"), replaces=value.revision)
        with pytest.raises(StaleSnapshot):
            await store.save(ref("t:1"), value, replaces=value.revision)
        await store.save(ref("t:1"), begun(), replaces=None)

    async def test_size_follows_what_is_stored(self, store: BotStore) -> None:
        assert await store.size("t:1") == 0
        both = await store.blobs.put("t:1", bytes(300_000), "image/png")
        assert await store.blobs.put("t:2", bytes(300_000), "image/png") == both
        alone = await store.blobs.put("t:1", bytes(200_000), "image/png")
        chat = await self._shows(store, "t:1", both, alone)
        await self._shows(store, "t:2", both)
        of_all = await store.size()
        assert 500_000 <= of_all < 1_000_000
        assert 200_000 <= await store.size("t:1") < 300_000
        assert 0 < await store.size("t:2") < 100_000
        await chat.update(lambda value: replace(value, system_prompt="x" * 400_000))
        assert 600_000 <= await store.size("t:1") < (700_000 if self.keeps_plain else 840_000)
        assert await store.size() - of_all >= 390_000
        before = await store.size()
        await store.clear(ref("t:1"))
        assert before - await store.size() >= 550_000
        assert 300_000 <= await store.size("t:2") < 400_000

    async def test_rows_erased_in_front_of_the_window(self, store: BotStore) -> None:
        if not self.keeps_archive:
            pytest.skip("this store keeps the window only")
        chat = Chat(store, "t:1")
        for _ in range(8):
            value = await chat.turn(SHORT)
        window = value.messages[0].seq
        before = await store.size("t:1")
        value = await chat.update(lambda value: replace(value, erase=((1, window - 3),)))
        assert await seqs(store, "t:1") == list(range(value.next_seq - 1, window - 3, -1))
        assert await store.load(ref("t:1")) == stored(value)
        assert [each.messages for each in await listed(store)] == [value.next_seq - window + 2]
        assert await store.size("t:1") < before
        value = await chat.turn(SHORT)
        assert await store.load(ref("t:1")) == stored(value)

    async def test_what_is_old_or_has_no_room_goes(self, store: BotStore) -> None:
        now = SystemClock().now()
        clock = _StoppedClock(now)

        async def talk(key: str, days: int, words: str = "fine", turns: int = 8) -> Snapshot:
            chat = Chat(store, key)
            for _ in range(turns):
                await chat.turn(SHORT, words)
            value = await chat.update(lambda value: replace(value, updated_at=now - days * DAYS))
            return value

        await talk("t:old", 40)
        # Its rows are of long ago all the same.
        live = await talk("t:live", 1)
        held = await talk("t:asked", 40)
        held = await Chat(store, "t:asked").update(
            lambda value: changes.accept(replace(value, updated_at=held.updated_at), inbound("in"))
        )
        gone = await Retention(store, ref, clock, Rules(days=30)).once()
        rows = live.messages[0].seq - 1 if self.keeps_archive else 0
        assert (gone.conversations, gone.unfinished) == (1, 1)
        assert [each.key for each in await listed(store)] == ["t:asked", "t:live"]
        assert await store.load(ref("t:asked")) == held
        value = await store.load(ref("t:live"))
        assert value is not None and value.messages == live.messages
        if self.keeps_archive:
            assert gone.messages == rows + (live.next_seq - 1)
            left = await seqs(store, "t:live")
            assert left == [row.seq for row in reversed(live.messages)]
        for number in range(12):
            await talk(f"t:{number:02}", 20 - number, "x" * 100_000, turns=2)
        gone = await Retention(store, ref, clock, Rules(megabytes=1)).once()
        assert await store.size() <= 1_000_000 and gone.conversations >= 6
        left_keys = [each.key for each in await listed(store) if each.key[2].isdigit()]
        assert left_keys == [f"t:{number:02}" for number in range(12)][-len(left_keys) :]

    async def test_of_what_is_forgotten_no_byte_is_left(
        self, store: BotStore, tmp_path: Path
    ) -> None:
        """Also where others' rows lay beside, and pages were split and joined meanwhile."""
        words = {key: f"{key[-1]}word" * 20 for key in ("t:1", "t:2", "t:3")}
        chance = random.Random(4)
        chats = {key: Chat(store, key) for key in words}
        for number in range(60):
            key = chance.choice(list(words))
            sender = Sender("telegram:1" if key == "t:1" else "telegram:2")
            said = words[key] * chance.choice((1, 3, 20, 90))
            id = await store.blobs.put(key, f"{words[key]} {number}".encode(), "image/png")
            asked = replace(
                inbound(f"{key}-{number}", said), sender=sender, blocks=image(id), group=True
            )
            await chats[key].update(partial(changes.accept, inbound=asked))
            if number % 4:
                await chats[key].update(
                    partial(changes.start, execution=f"x{number}", now=1, memory=BOT_MEMORY)
                )
                await chats[key].update(
                    partial(
                        changes.commit,
                        fence=changes.Fence(EPOCH, f"x{number}"),
                        blocks=[text(f"re {said}")],
                        bodies=[said],
                        usage=Usage(),
                        now=2,
                    )
                )
                await chats[key].update(delivered_all)
        kept = await self.bytes_of(tmp_path)
        snapshots = Snapshots(store, SystemClock(), ref)
        gone = await forget(store, snapshots, ref, "telegram:1", "[removed]")
        await store.scrub()
        assert (gone.conversations, gone.unreadable) == (1, 0)
        left = await self.bytes_of(tmp_path)
        assert b"1word" not in left and b'telegram:1"' not in left
        if kept:
            assert b"1word" in kept and b"2word" in left and b"3word" in left
        assert await store.load(ref("t:1")) is None
        for key in ("t:2", "t:3"):
            assert [row async for row in store.archive(ref(key))]

    @pytest.mark.parametrize("damage", ["spoil", "age"])
    async def test_set_aside_frees_the_key(
        self, store: BotStore, tmp_path: Path, damage: str
    ) -> None:
        chat = Chat(store, "t:1")
        for _ in range(2):
            await chat.update(lambda value: changes.accept(value, inbound("in")))
            await getattr(self, damage)(store, tmp_path, "t:1")
            await store.set_aside(chat.ref)
            assert await store.load(chat.ref) is None
            assert await keys(store) == []
            assert await listed(store) == []
        value = await chat.turn()
        assert await store.load(chat.ref) == value
        await store.clear(chat.ref)
        assert await store.load(chat.ref) is None

    async def test_set_aside_of_what_can_be_read_and_of_nothing(self, store: BotStore) -> None:
        await store.set_aside(ref("t:1"))
        await store.save(ref("t:1"), rich(), replaces=None)
        await store.set_aside(ref("t:1"))
        assert await store.load(ref("t:1")) is None
        assert await keys(store) == []
        assert await listed(store) == []
        assert await seqs(store, "t:1") == []

    async def test_clear_takes_the_unreadable_too(self, store: BotStore, tmp_path: Path) -> None:
        await Chat(store, "t:1").update(lambda value: changes.accept(value, inbound("in")))
        await self.spoil(store, tmp_path, "t:1")
        await store.clear(ref("t:1"))
        assert await store.load(ref("t:1")) is None
        assert await keys(store) == []

    @pytest.mark.parametrize("damage", ["spoil", "age"])
    async def test_move_of_the_unreadable_to_a_free_key(
        self, store: BotStore, tmp_path: Path, damage: str
    ) -> None:
        await Chat(store, "t:1").turn()
        await getattr(self, damage)(store, tmp_path, "t:1")
        for _ in range(2):
            await store.move("t:1", "t:2")
            assert await store.load(ref("t:1")) is None
            with pytest.raises((SnapshotUnreadable, SnapshotTooNew)):
                await store.load(ref("t:2"))

    @pytest.mark.parametrize("damage", ["spoil", "age"])
    async def test_move_of_the_unreadable_to_one_that_is_there(
        self, store: BotStore, tmp_path: Path, damage: str
    ) -> None:
        await Chat(store, "t:1").turn()
        there = await Chat(store, "t:2").turn()
        await getattr(self, damage)(store, tmp_path, "t:1")
        await store.move("t:1", "t:2")
        assert await store.load(ref("t:1")) is None
        assert await store.load(ref("t:2")) == there

    @pytest.mark.parametrize("damage", ["spoil", "age"])
    @pytest.mark.parametrize("both", [False, True])
    async def test_move_onto_the_unreadable(
        self, store: BotStore, tmp_path: Path, damage: str, both: bool
    ) -> None:
        moved = await Chat(store, "t:1").turn()
        await Chat(store, "t:2").turn()
        await getattr(self, damage)(store, tmp_path, "t:2")
        if both:
            await self.spoil(store, tmp_path, "t:1")
        await store.move("t:1", "t:2")
        assert await store.load(ref("t:1")) is None
        if both:
            with pytest.raises(SnapshotUnreadable):
                await store.load(ref("t:2"))
        else:
            assert await store.load(ref("t:2")) == changes.move(moved, None, "t:2")

    # ------------------------------------------------------------------ notes

    async def test_notes(self, store: BotStore) -> None:
        notes = store.notes
        assert await notes.get("owner") is None
        assert not await notes.put("owner", b"1", was=b"0")
        assert await notes.put("owner", b"1", was=None)
        assert not await notes.put("owner", b"2", was=None)
        assert not await notes.put("owner", None, was=b"2")
        assert await notes.get("owner") == b"1"
        assert await notes.put("owner", b"2", was=b"1")
        assert await notes.get("owner") == b"2"
        assert await notes.put("owner", None, was=b"2")
        assert await notes.get("owner") is None
        assert await notes.put("owner", None, was=None)

    async def test_the_names_of_all_notes(self, store: BotStore) -> None:
        names = [*HOSTILE_KEYS, *(f"note {number}" for number in range(250))]
        for name in names:
            await store.notes.put(name, b"\n", was=None)
        await store.notes.put("gone", b"1", was=None)
        await store.notes.put("gone", None, was=b"1")
        assert [name async for name in store.notes.names()] == sorted(names)

    async def test_any_note(self, store: BotStore) -> None:
        values = {name: f"{name!r} \x00\xff".encode("latin-1", "replace") for name in HOSTILE_KEYS}
        values["empty"] = b""
        values["large"] = bytes(range(256)) * 1000
        for name, value in values.items():
            assert await store.notes.put(name, value, was=None)
        for name, value in values.items():
            assert await store.notes.get(name) == value
        assert await listed(store) == []

    async def test_of_many_that_note_one_wins(self, store: BotStore) -> None:
        won = await asyncio.gather(
            *(store.notes.put("owner", str(number).encode(), was=None) for number in range(20))
        )
        assert won.count(True) == 1
        assert await store.notes.get("owner") == str(won.index(True)).encode()

    # ------------------------------------------------------------------ blobs

    async def _shows(self, store: BotStore, key: str, *ids: str) -> Chat:
        """A conversation with an exchange, and then one whose question shows these blobs."""
        chat = Chat(store, key)
        await chat.turn()
        said: list[tuple[Role, Raw]] = [("user", image(*ids)), ("assistant", text("I see"))]
        await chat.update(lambda value: changes.append(value, said, Usage(), 9, BOT_MEMORY))
        return chat

    async def test_a_blob_is_given_back(self, store: BotStore) -> None:
        data = bytes(range(256)) * 1000
        id = await store.blobs.put("t:1", data, "image/png")
        if self.keeps_plain:
            assert id == f"sha256:{sha256(data).hexdigest()}"
        assert is_id(id)
        assert await store.blobs.get(id) == Blob("image/png", data)
        empty = await store.blobs.put("t:1", b"", "text/plain")
        assert await store.blobs.get(empty) == Blob("text/plain", b"")
        assert await listed(store) == []

    @pytest.mark.parametrize("id", ["", "sha256:", "sha256:" + "0" * 64, "../x", "nul\0"])
    async def test_a_blob_that_is_not_there_is_none(self, store: BotStore, id: str) -> None:
        await store.blobs.put("t:1", b"data", "image/png")
        assert await store.blobs.get(id) is None

    async def test_what_can_be_no_blob(self, store: BotStore) -> None:
        with pytest.raises(ValueError, match="bytes at most"):
            await store.blobs.put("t:1", bytes(MAX_BYTES + 1), "image/png")
        with pytest.raises(InvalidKey):
            await store.blobs.put("nul\0", b"data", "image/png")

    async def test_the_same_bytes_are_one_blob(self, store: BotStore) -> None:
        ids = {
            await store.blobs.put(key, b"data", media_type)
            for key in ("t:1", "t:1", "t:2", "漢字🙂")
            for media_type in ("image/png", "image/gif")
        }
        assert len(ids) == 1
        assert await store.blobs.get(ids.pop()) == Blob("image/png", b"data")

    async def test_a_blob_survives(self, tmp_path: Path) -> None:
        if not self.durable:
            pytest.skip("this store lives as long as its object")
        async with self.open(tmp_path) as store:
            id = await store.blobs.put("t:1", b"data", "image/png")
        with pytest.raises(StoreUnavailable):
            await store.blobs.get(id)
        with pytest.raises(StoreUnavailable):
            await store.blobs.put("t:1", b"data", "image/png")
        async with self.open(tmp_path) as store:
            assert await store.blobs.get(id) == Blob("image/png", b"data")
            await store.clear(ref("t:1"))
            assert await store.blobs.get(id) is None

    async def test_damaged_bytes_are_never_given(self, store: BotStore, tmp_path: Path) -> None:
        id = await store.blobs.put("t:1", b"data", "image/png")
        other = await store.blobs.put("t:1", b"other", "image/png")
        await self.spoil_blob(store, tmp_path, id)
        for _ in range(2):
            with pytest.raises(BlobUnreadable):
                await store.blobs.get(id)
        assert await store.blobs.get(other) == Blob("image/png", b"other")
        await store.clear(ref("t:1"))
        assert await store.blobs.get(id) is None

    @pytest.mark.parametrize("how", ["reset", "clear"])
    async def test_the_last_user_takes_a_blob_along(self, store: BotStore, how: str) -> None:
        mine, both = [
            await store.blobs.put("t:1", data, "image/png") for data in (b"mine", b"both")
        ]
        assert await store.blobs.put("t:2", b"both", "image/png") == both
        first = await self._shows(store, "t:1", mine, both)
        second = await self._shows(store, "t:2", both)

        async def end(chat: Chat) -> None:
            if how == "reset":
                await chat.update(lambda value: changes.reset(value, "epoch-2"))
            else:
                await store.clear(chat.ref)

        await end(first)
        assert await store.blobs.get(mine) is None
        assert await store.blobs.get(both) == Blob("image/png", b"both")
        await end(second)
        assert await store.blobs.get(both) is None

    async def test_blobs_of_what_waited_go_with_a_reset(self, store: BotStore) -> None:
        """Of what was put, but is named by nothing yet, some message is still on its way."""
        names = (b"waits", b"is asked", b"arrives")
        ids = [await store.blobs.put("t:1", name, "image/png") for name in names]
        chat = Chat(store, "t:1")
        asked = replace(inbound("in-1"), blocks=image(ids[1]))
        await chat.update(partial(changes.accept, inbound=asked))
        await chat.update(partial(changes.start, execution="x", now=1, memory=BOT_MEMORY))
        waits = replace(inbound("in-2"), blocks=image(ids[0]))
        await chat.update(partial(changes.accept, inbound=waits))
        await chat.update(lambda value: changes.reset(value, "epoch-2"))
        assert [await store.blobs.get(id) is not None for id in ids] == [False, False, True]

    async def test_blobs_of_an_abandoned_turn_go(self, store: BotStore) -> None:
        ids = [await store.blobs.put("t:1", data, "image/png") for data in (b"old", b"new")]
        chat = await self._shows(store, "t:1", ids[0])
        asked = replace(inbound("in-1"), blocks=image(*ids))
        await chat.update(partial(changes.accept, inbound=asked))
        await chat.update(partial(changes.start, execution="x", now=1, memory=BOT_MEMORY))
        await chat.update(changes.stop)
        assert [await store.blobs.get(id) is not None for id in ids] == [True, True], "for a /retry"
        await chat.update(lambda value: replace(value, unanswered=()))
        await chat.update(partial(changes.accept, inbound=inbound("in-2")))
        await chat.update(partial(changes.start, execution="y", now=1, memory=BOT_MEMORY))
        await chat.update(lambda value: replace(changes.stop(value), updated_at=2**42 + GRACE_MS))
        assert [await store.blobs.get(id) is not None for id in ids] == [True, False]

    async def test_a_blob_that_is_sent_is_used(self, store: BotStore) -> None:
        id = await store.blobs.put("t:1", b"sent", "image/png")
        chat = await self._shows(store, "t:1", id)
        body = encode_blocks([{"file": id}])
        await chat.update(
            lambda value: changes.notice(changes.reset(value, "epoch-2"), [bytes(body).decode()])
        )
        assert await store.blobs.get(id) is not None

    async def test_what_was_never_named_goes_later(self, store: BotStore) -> None:
        ids = [await store.blobs.put("t:1", data, "image/png") for data in (b"shown", b"never")]
        chat = await self._shows(store, "t:1", ids[0])
        await chat.update(lambda value: changes.reset(value, EPOCH))
        assert [await store.blobs.get(id) is not None for id in ids] == [False, True]
        later = 2**42 + GRACE_MS  # ms: in a hundred years
        await chat.update(lambda value: replace(changes.reset(value, "epoch-3"), updated_at=later))
        assert await store.blobs.get(ids[1]) is None

    async def test_a_blob_outside_of_the_window_is_kept(self, store: BotStore) -> None:
        if not self.keeps_archive:
            pytest.skip("this store keeps the window only")
        id = await store.blobs.put("t:1", b"old", "image/png")
        chat = await self._shows(store, "t:1", id)
        for _ in range(6):
            await chat.turn(SHORT)
        asked = replace(inbound("in-1"), blocks=image(id))
        await chat.update(partial(changes.accept, inbound=asked))
        await chat.update(partial(changes.start, execution="x", now=1, memory=SHORT))
        value = await chat.update(changes.stop)
        assert not any(b"sha256" in bytes(row.blocks) for row in value.rows)
        assert await store.blobs.get(id) is not None

    async def test_a_blob_that_an_older_row_names_is_kept(self, store: BotStore) -> None:
        """Erased are the newer rows that name it, and nothing that waits does."""
        if not self.keeps_archive:
            pytest.skip("this store keeps the window only")
        id = await store.blobs.put("t:1", b"old", "image/png")
        chat = await self._shows(store, "t:1", id)
        for _ in range(6):
            await chat.turn(SHORT)
        said: list[tuple[Role, Raw]] = [("user", image(id)), ("assistant", text("again"))]
        value = await chat.update(lambda value: changes.append(value, said, Usage(), 9, SHORT))
        first = value.next_seq - 2
        fewer = replace(
            value,
            spans=((1, first - 1),),
            messages=value.messages[:-2],
            erase=((first, first + 1),),
        )
        value = await chat.update(lambda _: fewer)
        assert not any(b"sha256" in bytes(row.blocks) for row in value.rows)
        assert await store.blobs.get(id) is not None
        await chat.update(lambda value: changes.reset(value, "epoch-2"))
        assert await store.blobs.get(id) is None

    async def test_blobs_move_along(self, store: BotStore) -> None:
        ids = [await store.blobs.put("t:1", data, "image/png") for data in (b"a", b"b", b"c")]
        topic = await store.blobs.put("t:1/7", b"topic", "image/png")
        there = await store.blobs.put("u:1", b"there", "image/png")
        early = await store.blobs.put("t:1/8", b"its message is still to come", "image/png")
        await self._shows(store, "t:1", *ids)
        await self._shows(store, "t:1/7", topic)
        await self._shows(store, "u:1", there)
        for _ in range(2):
            await store.move("t:1", "u:1")
        for id in (*ids, topic, there, early):
            assert await store.blobs.get(id) is not None
        await store.clear(ref("t:1"))
        await store.clear(ref("t:1/7"))
        for id in (*ids, topic, there, early):
            assert await store.blobs.get(id) is not None
        await store.clear(ref("u:1"))
        await store.clear(ref("u:1/8"))
        assert [await store.blobs.get(id) for id in (*ids, there, early)] == [None] * 5
        assert await store.blobs.get(topic) is not None
        await Chat(store, "u:1/7").update(lambda value: changes.reset(value, "epoch-2"))
        assert await store.blobs.get(topic) is None

    async def test_blobs_of_conversations_that_never_began_are_swept(self, store: BotStore) -> None:
        now = SystemClock().now()
        names = (b"used", b"of nobody", b"aside")
        ids = [await store.blobs.put(f"t:{name!r}", name, "image/png") for name in names]
        await self._shows(store, f"t:{names[0]!r}", ids[0])
        await self._shows(store, f"t:{names[2]!r}", ids[2])
        await store.set_aside(ref(f"t:{names[2]!r}"))
        await store.clear(ref(f"t:{names[2]!r}"))
        assert await store.blobs.sweep(now - 1000) == 0
        assert await store.blobs.sweep(now + 3_600_000) == 1
        assert [await store.blobs.get(id) is not None for id in ids] == [True, False, True]
        assert await store.blobs.sweep(now + 3_600_000) == 0

    async def test_what_was_set_aside_keeps_its_blobs(self, store: BotStore) -> None:
        id = await store.blobs.put("t:1", b"data", "image/png")
        await self._shows(store, "t:1", id)
        await store.set_aside(ref("t:1"))
        await store.clear(ref("t:1"))
        assert await store.blobs.get(id) is not None

    # ------------------------------------------------------------------ what calls used

    async def pay(self, store: BotStore, key: str, *rows: Spent) -> None:
        await Chat(store, key).update(lambda value: replace(value, spent=rows))

    async def test_what_a_call_used_comes_with_the_save(self, store: BotStore) -> None:
        assert await store.usage.sums() == []
        await self.pay(store, "t:1", spent(sender="t:42"), spent(call=2, usage=Usage(1, 1), cost=3))
        assert await store.load(ref("t:1")) == begun()
        assert await store.usage.sums() == [Sum(calls=2, usage=Usage(11, 6, 2, 1), cost=103)]
        [first, second] = await store.usage.sums(("sender", "key", "model"))
        assert (first.sender, first.key, first.model, first.calls) == (None, "t:1", "m1", 1)
        assert (second.sender, second.cost, second.usage) == ("t:42", 100, Usage(10, 5, 2, 1))

    async def test_a_call_is_counted_once(self, store: BotStore) -> None:
        estimate = spent(estimated=True, usage=Usage(0, 4096, 999), cost=9_999, sender="t:42")
        for _ in range(3):
            await self.pay(store, "t:1", estimate)
        [one] = await store.usage.sums()
        assert one == Sum(calls=1, estimated=1, usage=Usage(0, 4096, 999), cost=9_999)
        known = spent(usage=Usage(1, 2, 3, 4, 2, 1), cost=None, model="m2")
        for row in (known, known, estimate):
            await self.pay(store, "t:1", row)
        [one] = await store.usage.sums(("sender", "model"))
        assert one == Sum(
            sender="t:42", model="m2", calls=1, unpriced=1, usage=Usage(1, 2, 3, 4, 2, 1)
        )

    async def test_a_stale_save_has_used_nothing(self, store: BotStore) -> None:
        await store.save(ref("t:1"), begun(), replaces=None)
        for replaces in (None, 7):
            with pytest.raises(StaleSnapshot):
                await store.save(ref("t:1"), replace(begun(), spent=(spent(),)), replaces=replaces)
        assert await store.usage.sums() == []

    async def test_sums_by_time(self, store: BotStore) -> None:
        month = 31 * 86_400_000
        for number, at in enumerate((DAY - 1, DAY, DAY + QUARTER - 1, DAY + QUARTER, DAY + month)):
            await self.pay(store, "t:1", spent(f"e{number}", at=at, cost=number))
        quarters = await store.usage.sums(("quarter",))
        first = DAY // QUARTER
        late = first + month // QUARTER
        assert [(each.quarter, each.cost) for each in quarters] == [
            (first - 1, 0),
            (first, 3),
            (first + 1, 3),
            (late, 4),
        ]
        assert (await store.usage.sums(since=DAY))[0].calls == 4
        assert (await store.usage.sums(since=DAY, until=DAY + QUARTER))[0].calls == 2
        assert await store.usage.sums(until=DAY - 1) == []
        assert await store.usage.sums(since=DAY + month + 1) == []

    async def test_sums_of_one_conversation_and_of_one_person(self, store: BotStore) -> None:
        await self.pay(store, "t:2", spent("e2", sender="t:7"), spent("e2", 2, sender="t:42"))
        await self.pay(store, "t:1", spent("e1", sender="t:7"))
        assert [each.key for each in await store.usage.sums(("key",))] == ["t:1", "t:2"]
        assert (await store.usage.sums(key="t:2"))[0].calls == 2
        assert (await store.usage.sums(sender="t:7"))[0].calls == 2
        assert (await store.usage.sums(key="t:2", sender="t:7"))[0].calls == 1
        assert await store.usage.sums(key="t:3") == []

    async def test_sums_are_exact(self, store: BotStore) -> None:
        cost = 9_000_000 * UNIT + 1
        await self.pay(store, "t:1", *(spent(call=call, cost=cost) for call in range(1, 5)))
        assert (await store.usage.sums())[0].cost == 4 * cost

    async def test_what_was_used_outlives_its_conversation(self, store: BotStore) -> None:
        await self.pay(store, "t:1", spent())
        await store.clear(ref("t:1"))
        await self.pay(store, "t:1", spent("e2"))
        await store.set_aside(ref("t:1"))
        assert [(each.key, each.calls) for each in await store.usage.sums(("key",))] == [("t:1", 2)]

    async def test_what_was_used_moves_along(self, store: BotStore) -> None:
        for number, key in enumerate(("t:1", "t:1/7", "t:11", "t:2")):
            await self.pay(store, key, spent(f"e{number}"))
        for _ in range(2):
            await store.move("t:1", "t:2")
            sums = await store.usage.sums(("key",))
            assert [(each.key, each.calls) for each in sums] == [
                ("t:11", 1),
                ("t:2", 2),
                ("t:2/7", 1),
            ]
        # One that was under way goes on where it is.
        await self.pay(store, "t:2", spent("e0", cost=5))
        assert (await store.usage.sums(key="t:2"))[0].cost == 105

    async def test_rows_of_what_was_used_can_be_copied(self, store: BotStore) -> None:
        rows = [
            (
                f"t:{number % 7}",
                spent(
                    f"e{number % 90}",
                    number // 90,
                    at=DAY + number * QUARTER * 1000,
                    usage=Usage(1, 2, 3, 4, 5, 6),
                    cost=None if number % 5 == 0 else number,
                    estimated=number % 3 == 0,
                    sender=None if number % 4 == 0 else f"t:{number}",
                ),
            )
            for number in range(260)
        ]
        await store.usage.add(rows)
        found = [row async for row in store.usage.rows()]
        assert sorted(found, key=str) == sorted(rows, key=str)
        # Twice is harmless, and what is there stays.
        await store.usage.add([(key, replace(row, cost=1)) for key, row in rows])
        assert sorted([row async for row in store.usage.rows()], key=str) == sorted(rows, key=str)

    async def test_a_person_is_forgotten_and_the_sums_stay(self, store: BotStore) -> None:
        estimate = spent(sender="t:42", estimated=True)
        await self.pay(store, "t:1", estimate, spent("e2", sender="t:7"))
        assert await store.usage.forget("t:42") == 1
        assert await store.usage.forget("t:42") == 0
        await self.pay(store, "t:1", spent(sender="t:42"))
        sums = await store.usage.sums(("sender", "key"))
        assert [(each.sender, each.key, each.estimated) for each in sums] == [
            (None, "", 0),
            ("t:7", "t:1", 0),
        ]

    async def test_old_rows_of_what_was_used_are_erased(self, store: BotStore) -> None:
        month = 31 * 24 * 3_600_000
        rows = [
            ("t:1", spent("e1", number, at=DAY + number * month // 400)) for number in range(1200)
        ]
        await store.usage.add(rows)
        cut = DAY + 700 * month // 400
        assert await store.usage.erase(cut) == 700
        assert await store.usage.erase(cut) == 0
        left = [row.at async for _, row in store.usage.rows()]
        assert (len(left), min(left)) == (500, cut)

    async def test_another_object_finds_what_was_used(self, tmp_path: Path) -> None:
        if not self.durable:
            pytest.skip("this store lives as long as its object")
        async with self.open(tmp_path) as store:
            await self.pay(store, "t:1", spent())
        async with self.open(tmp_path) as store:
            assert (await store.usage.sums())[0].cost == 100

    # ------------------------------------------------------------------ its life

    async def test_closed_is_unavailable(self, tmp_path: Path) -> None:
        if not self.durable:
            pytest.skip("this store has nothing to close")
        store = self.open(tmp_path)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await store.load(ref("t:1"))
            with pytest.raises(StoreUnavailable):
                await store.save(ref("t:1"), begun(), replaces=None)
            with pytest.raises(StoreUnavailable):
                await keys(store)
            with pytest.raises(StoreUnavailable):
                await store.notes.get("owner")
            async with store:
                assert await store.load(ref("t:1")) is None

    async def test_saves_under_way_are_done_when_it_closes(self, tmp_path: Path) -> None:
        if not self.durable:
            pytest.skip("this store lives as long as its object")
        async with self.open(tmp_path) as store:
            saves = [
                asyncio.create_task(store.save(ref(f"t:{number}"), begun(), replaces=None))
                for number in range(5)
            ]
            await asyncio.sleep(0)
        await asyncio.gather(*saves)
        async with self.open(tmp_path) as store:
            assert len(await listed(store)) == 5

    # ------------------------------------------------------------------ whatever happens

    @settings(
        max_examples=40,
        deadline=None,
        suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
    )
    @given(st.lists(st.tuples(st.sampled_from(("t:1", "t:2")), STEPS), min_size=10, max_size=50))
    def test_any_story(self, story: list[tuple[str, Step]]) -> None:
        with tempfile.TemporaryDirectory(dir=_IN_MEMORY) as folder:
            asyncio.run(self._tell(Path(folder), story))

    async def _tell(self, place: Path, story: list[tuple[str, Step]]) -> None:
        """The store holds, after every step, what a few lines of Python say it should."""
        values: dict[str, Snapshot] = {}
        rows: dict[str, set[int]] = {}
        async with self.open(place) as store:
            for number, (key, (name, size)) in enumerate(story):
                other = "t:2" if key == "t:1" else "t:1"
                value = values.get(key)
                if name == "clear":
                    await store.clear(ref(key))
                    values.pop(key, None)
                elif name == "set_aside":
                    await store.set_aside(ref(key))
                    values.pop(key, None)
                elif name == "move":
                    await store.move(key, other)
                    if value is not None:
                        there = values.get(other)
                        moved = changes.move(value, there, other)
                        if there is not None:
                            offset = value.next_seq - 1
                            rows[key] |= {seq + offset for seq in rows[other]}
                        rows[other] = _left(rows[key], moved) | {row.seq for row in moved.rows}
                        values[other] = stored(moved)
                        del values[key]
                elif value is None:
                    first = begun(revision=number * 1000, epoch=f"epoch {number}")
                    await store.save(ref(key), first, replaces=None)
                    values[key], rows[key] = first, set()
                else:
                    changed = _change(name, size, number, key, value)
                    changed = replace(changed, revision=value.revision + 1, updated_at=number)
                    await store.save(ref(key), changed, replaces=value.revision)
                    rows[key] = _left(rows[key], changed) | {row.seq for row in changed.rows}
                    values[key] = stored(changed)
                await self._compare(store, values, rows)

    async def _compare(
        self, store: BotStore, values: dict[str, Snapshot], rows: dict[str, set[int]]
    ) -> None:
        for key in ("t:1", "t:2"):
            assert await store.load(ref(key)) == values.get(key)
        assert await keys(store) == sorted(key for key in values if values[key].unfinished)
        summaries = await listed(store)
        assert [summary.key for summary in summaries] == sorted(values)
        for summary in summaries:
            value = values[summary.key]
            history = [row.seq for row in value.messages]
            if self.keeps_archive:
                history = sorted(
                    seq
                    for seq in rows[summary.key]
                    if any(first <= seq <= last for first, last in value.spans)
                )
            assert summary.messages == len(history)
            assert summary.unfinished == value.unfinished
            assert summary.updated_at == value.updated_at
            assert await seqs(store, summary.key) == history[::-1]


def _left(rows: set[int], changed: Snapshot) -> set[int]:
    return {seq for seq in rows if not any(first <= seq <= last for first, last in changed.erase)}


def _change(name: str, size: int, number: int, key: str, value: Snapshot) -> Snapshot:
    words = f"{number} é " * size
    memory = ConversationMemory(6, 3).add_user("I am Ann.").add_assistant("Hi!")
    fence = changes.Fence(value.epoch, value.turn.execution if value.turn else "")
    part = value.next_part.id if value.next_part else "?"
    answer = [text(words), text("more")]
    said = inbound(f"in {number}", words, key)
    match name:
        case "ask" | "talk":
            for part_of_it in ("accept", "start", "answered", "results", "commit"):
                if name == "talk" or part_of_it in ("accept", "start"):
                    value = _change(part_of_it, size, number, key, value)
            return value
        case "accept":
            return changes.accept(value, said)
        case "reply":
            return changes.reply(value, replace(said, group=True, message_id="8"), [words, "b"])
        case "start" | "join":
            return changes.start(
                value, execution=f"x{number}", now=number, memory=memory, join=name == "join"
            )
        case "answered":
            return changes.answered(value, fence, answer, ("c1",), number)
        case "results":
            return changes.results(value, fence, text(words), number)
        case "shown":
            return changes.shown(value, fence, tuple(f"{number}{index}" for index in range(3)))
        case "commit":
            return changes.commit(value, fence, answer, [words, "b"], Usage(1, size), number)
        case "shorten":
            window = value.turn.first if value.turn else 0
            return changes.commit(value, fence, answer, [], Usage(), number, window=window)
        case "append":
            return changes.append(
                value, [("user", text(words)), ("assistant", text("a"))], Usage(), number, memory
            )
        case "apologise":
            return changes.apologise(value, fence, [words])
        case "summarise":
            rows = value.messages
            last = max((at for at, row in enumerate(rows) if begins_exchange(row)), default=0)
            covers = tuple(row.seq for row in rows[:last])
            summary = NewSummary(value.epoch, covers, words, Usage(1, size))
            return changes.start(
                value, execution=f"x{number}", now=number, memory=memory, summary=summary
            )
        case "postpone":
            return changes.postpone(value, fence, [words])
        case "delivered":
            return outbox.delivered(value, part, (str(number),))
        case "hold":
            return outbox.hold(value, part)
        case "fail":
            return outbox.fail(value, part)
        case "put_back":
            return outbox.put_back(value, part)
        case "gone":
            return outbox.gone(value)
        case "stop":
            return changes.stop(value)
        case "reset":
            return changes.reset(value, f"epoch {number}")
        case _:
            return _undo(value)


def _undo(value: Snapshot) -> Snapshot:
    """The last exchange is history no longer; its rows stay."""
    if value.turn or not value.messages:
        return value
    seq = value.messages[-1].seq
    first, last = value.spans[-1]
    spans = (*value.spans[:-1], *([(first, seq - 1)] if seq > first else []))
    if last < seq:
        return value
    return replace(value, spans=spans, messages=value.messages[:-1])
