"""Forgetting a person: alone, among others, again after a crash, and in the words of others."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from core import branches, changes, feedback, forget, history, phrases
from core.adapter import Duplicate
from core.changes import Fence
from core.command import Call
from core.errors import SnapshotUnreadable, StoreUnavailable
from core.feedback import Opinion
from core.forget import NOBODY, Forgotten, Found, marked
from core.memory import ConversationMemory
from core.messages import Inbound, Message, Outbound, Sender, encode_blocks, text_block, text_of
from core.quoted import quoted
from core.scrubs import SHARE, Scrubs
from core.snapshot import Snapshot, Usage
from core.snapshots import Snapshots
from core.store import SessionRef
from core.usage import Spent
from stores.memory import MemoryStore
from tests.core.fakes import FakeClock, settle
from tests.core.test_conversations import KEY, Faulty, Held, House

ADA, BOB = Sender("test:ada", "Ada"), Sender("test:bob", "Bob")
MARK = phrases.FORGOTTEN_MARK
SECRET = "my number is 4711"


def ref(key: str) -> SessionRef:
    return SessionRef(key)


def row(
    seq: int,
    *blocks: dict[str, Any],
    role: Any = "user",
    sender: str | None = "test:bob",
    senders: tuple[str, ...] = (),
) -> Message:
    return Message(seq, role, encode_blocks(blocks), 0, sender, ("m1",), senders)


class Group:
    """A conversation of several, without a bot."""

    def __init__(self, store: MemoryStore, key: str = KEY) -> None:
        self.store = store
        self.snapshots = Snapshots(store, FakeClock(), ref)
        self.key = key
        self.count = 0

    async def say(self, *said: tuple[Sender, str], answer: str = "fine") -> None:
        for sender, text in said:
            self.count += 1
            inbound = Inbound(
                id=f"i{self.count}",
                key=self.key,
                kind="message",
                sender=sender,
                text=text,
                message_id=f"m{self.count}",
                group=True,
            )
            await self.change(lambda old, inbound=inbound: changes.accept(old, inbound))
        await self.change(
            lambda old: changes.start(
                old, execution=f"x{self.count}", now=0, memory=ConversationMemory(4, 2)
            )
        )
        blocks = [encode_blocks([text_block(answer)])]
        await self.change(
            lambda old: changes.commit(
                old, Fence(old.epoch, f"x{self.count}"), blocks, ["body"], Usage(), 0
            )
        )

    async def change(self, change: Any) -> None:
        await self.snapshots.update(
            self.key,
            lambda old: change(old or changes.begin(revision=0, epoch=f"e{self.key}", now=0)),
        )

    async def texts(self) -> list[str]:
        rows = [each async for each in self.store.archive(ref(self.key))]
        return [text_of(each.blocks) for each in reversed(rows)]

    async def forget(self, person: Sender = ADA) -> Forgotten:
        return await forget.forget(self.store, self.snapshots, ref, person.id, MARK)


def bytes_of(store: MemoryStore) -> str:
    kept = store._table.sessions.values()
    return str([msgspec.json.encode((each.snapshot, list(each.rows.values()))) for each in kept])


# ---------------------------------------------------------------------- one row


def test_words_of_a_person_become_a_marker_and_others_stay() -> None:
    before = row(
        1,
        text_block("<from>Bob</from>\nhello"),
        text_block(f"<from>Ada</from>\n{SECRET}"),
        {"type": "image", "source": {}},
        senders=("test:bob", "test:ada", "test:ada"),
        sender="test:ada",
    )
    after = marked(before, "test:ada", MARK, ())
    assert after == replace(
        before,
        blocks=encode_blocks([text_block("<from>Bob</from>\nhello"), *[text_block(MARK)] * 2]),
        sender=NOBODY,
        senders=("test:bob", NOBODY, NOBODY),
        message_ids=(),
    )
    assert marked(after, "test:ada", MARK, ()) is after


def test_results_in_front_of_somebodys_words_stay() -> None:
    before = row(1, history.result("c", "4"), text_block("x"), sender="test:ada")
    after = marked(before, "test:ada", MARK, ())
    assert after.blocks == encode_blocks([history.result("c", "4"), text_block(MARK)])


def test_a_quote_is_replaced_wherever_it_stands_but_in_what_is_signed() -> None:
    before = row(
        2,
        {"type": "thinking", "thinking": SECRET, "signature": "s"},
        text_block(f"Ada says: {SECRET}!"),
        {"type": "tool_use", "id": SECRET, "name": "n", "input": {"of": [SECRET, 4, None]}},
        role="assistant",
        sender=None,
    )
    after = marked(before, "test:ada", MARK, (SECRET,))
    assert after.blocks == encode_blocks(
        [
            text_block(f"Ada says: {MARK}!"),
            {"type": "tool_use", "id": SECRET, "name": "n", "input": {"of": [MARK, 4, None]}},
        ]
    )
    assert after.message_ids == ("m1",)
    only = row(2, {"type": "thinking", "thinking": SECRET}, role="assistant", sender=None)
    assert text_of(marked(only, "test:ada", MARK, (SECRET,)).blocks) == MARK
    assert marked(before, "test:ada", MARK, ("something else",)) is before


# ---------------------------------------------------------------------- among others


async def test_exchanges_that_they_began_go_and_their_words_elsewhere_are_marked() -> None:
    group = Group(MemoryStore())
    await group.say((BOB, "hello bot"))
    await group.say((ADA, f"{SECRET}\nand so on"), answer="noted")
    await group.say((BOB, "what did she say?"), answer=f"She said: {SECRET}")
    await group.say((BOB, "and now"), (ADA, "I am here"), answer="both")
    await group.say((ADA, "short"), (BOB, "with her"), answer="gone too")
    await group.say((BOB, "the end"))
    gone = await group.forget()
    assert gone == Forgotten(exchanges=2, marked=2)
    assert await group.texts() == [
        "<from>Bob</from>\nhello bot",
        "fine",
        "<from>Bob</from>\nwhat did she say?",
        f"She said: {MARK}",
        f"<from>Bob</from>\nand now{MARK}",
        "both",
        "<from>Bob</from>\nthe end",
        "fine",
    ]
    left = bytes_of(group.store)
    assert SECRET not in left and "test:ada" not in left and "Ada" not in left
    assert await group.forget() == Forgotten()
    await group.say((BOB, "on"))
    assert (await group.texts())[-2:] == ["<from>Bob</from>\non", "fine"]


async def test_words_that_they_quoted_are_somebody_elses() -> None:
    group = Group(MemoryStore())
    await group.say((BOB, "meet me at nine"))
    await group.change(partial(_with_quote, quoted("meet me at nine", "Bob")))
    assert await group.forget() == Forgotten(exchanges=1)
    assert await group.texts() == ["<from>Bob</from>\nmeet me at nine", "fine"]


def _with_quote(block: dict[str, object], old: Snapshot) -> Snapshot:
    """Ada has sent it, and it was answered."""
    inbound = Inbound("q", KEY, "message", ADA, "when?", encode_blocks([block]), group=True)
    started = changes.start(
        changes.accept(old, inbound), execution="q", now=0, memory=ConversationMemory()
    )
    answer = encode_blocks([text_block("fine")])
    fence = Fence(old.epoch, "q")
    return changes.commit(started, fence, [answer], ["fine"], Usage(), 0)


async def test_what_was_taken_back_goes_as_well() -> None:
    group = Group(MemoryStore())
    await group.say((BOB, "hello bot"))
    await group.say((ADA, SECRET))
    await group.change(branches.undo)
    assert SECRET in bytes_of(group.store)
    await group.forget()
    assert SECRET not in bytes_of(group.store)
    assert await group.texts() == ["<from>Bob</from>\nhello bot", "fine"]


async def test_what_waits_runs_and_could_not_be_sent_goes() -> None:
    group = Group(MemoryStore())
    await group.say((ADA, SECRET))
    await group.say((BOB, "hello bot"))

    def waiting(old: Snapshot) -> Snapshot:
        for number, sender in enumerate((ADA, BOB)):
            old = changes.accept(
                old, Inbound(f"w{number}", KEY, "message", sender, f"{SECRET} {number}", group=True)
            )
        old = changes.start(old, execution="x", now=0, memory=ConversationMemory())
        parts = (
            Outbound("a.0", "to her", "waiting", reply_to="m1"),
            Outbound("a.1", "more", "waiting"),
            Outbound("b.0", f"she: {SECRET}", "waiting"),
            Outbound("c.0", "old", "failed"),
            Outbound("d.0", "to him", "waiting", reply_to="m2"),
        )
        return replace(old, outbox=parts, unanswered=(old.inbox[0],))

    await group.change(waiting)
    await group.forget()
    snapshot = await group.store.load(ref(KEY))
    assert snapshot is not None and snapshot.turn is None
    assert [each.sender.id for each in snapshot.inbox] == ["test:bob"]
    assert snapshot.unanswered == ()
    assert [part.id for part in snapshot.outbox] == ["d.0"]


async def test_where_nobody_else_spoke_all_goes_and_others_are_left_alone() -> None:
    store = MemoryStore()
    mine, shared, theirs = Group(store, "test:1"), Group(store, "test:2"), Group(store, "test:3")
    await mine.say((ADA, SECRET))
    await shared.say((ADA, SECRET))
    await shared.say((BOB, "hello bot"))
    await theirs.say((BOB, "hello bot"))
    before = await store.load(ref("test:3"))
    await store.blobs.put("test:1", b"photo", "image/png")
    await store.usage.add([("test:1", Spent("x", 1, 0, "m", Usage(1), sender="test:ada"))])
    bobs = Opinion("test:bob", "test:2", "m1", good=True)
    for opinion in (bobs, replace(bobs, sender="test:ada")):
        await feedback.keep(store.notes, opinion)
    gone = await mine.forget()
    assert gone == Forgotten(conversations=1, exchanges=1, uses=1)
    assert [each async for each in feedback.opinions(store.notes)] == [bobs]
    assert await store.load(ref("test:1")) is None and store._table.blobs == {}
    assert await store.load(ref("test:3")) == before
    assert "ada" not in str(store._table.usage).lower()


async def test_a_group_in_which_nothing_stays_begins_anew() -> None:
    group = Group(MemoryStore())
    await group.say((ADA, SECRET), (BOB, "with her"))
    await group.forget()
    snapshot = await group.store.load(ref(KEY))
    assert snapshot is not None and (snapshot.spans, snapshot.messages) == ((), ())


async def test_what_is_said_while_it_looks_goes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn of theirs is committed between the look and the last save."""
    group = Group(MemoryStore())
    await group.say((BOB, "hello bot"))
    look = forget._look

    async def late(*args: Any) -> Found:
        found = await look(*args)
        if group.count < 3:
            await group.say((ADA, SECRET))
            await group.say((BOB, "and then?"), answer=f"well, {SECRET}")
        return found

    monkeypatch.setattr(forget, "_look", late)
    await forget._forget_in(group.store, group.snapshots, ref(KEY), ADA.id, MARK, False)
    assert await group.texts() == [
        "<from>Bob</from>\nhello bot",
        "fine",
        "<from>Bob</from>\nand then?",
        f"well, {MARK}",
    ]


class Failing(MemoryStore):
    """The n-th write fails, before or after its effect."""

    def __init__(self, number: int, after: bool) -> None:
        super().__init__()
        self.left = 1_000_000
        self.number, self.after = number, after

    async def save(self, ref: SessionRef, snapshot: Snapshot, *, replaces: int | None) -> None:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise StoreUnavailable("full")
        await super().save(ref, snapshot, replaces=replaces)
        if self.left == 0:
            raise StoreUnavailable("full")


@pytest.mark.parametrize("after", [False, True])
async def test_a_second_run_after_a_crash_leaves_the_same(
    after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forget, "ROWS_A_SAVE", 1)
    for number in range(1, 50):
        store = Failing(number, after)
        group = Group(store)
        await group.say((ADA, SECRET))
        for _ in range(3):
            await group.say((BOB, "what?"), answer=f"She said: {SECRET}")
        store.left = number
        failed = False
        try:
            await group.forget()
        except StoreUnavailable:
            failed = True
            group.snapshots.forget(KEY)
            await group.forget()
        assert await group.texts() == ["<from>Bob</from>\nwhat?", f"She said: {MARK}"] * 3
        assert SECRET not in bytes_of(store)
        if not failed:
            assert number > 4
            return
    raise AssertionError("there is no end of it")


# ---------------------------------------------------------------------- the command


async def test_it_asks_first_and_forgets_when_it_is_told_yes() -> None:
    async with House("one", "two") as house:
        await house.says(SECRET)
        await house.says("/model nothing")
        await house.says("/forget")
        assert SECRET in bytes_of(house.store)
        assert house.screen.shown[-1] == phrases.FORGET_ASK.format(yes="yes")
        await house.says("/forget yes", "u9")
        assert await house.says("/forget yes", "u9") == Duplicate()
        assert house.screen.shown[-1].startswith("Done. What went:\n\n* 1 conversations")
        assert phrases.FORGET_REMAINS in house.screen.shown[-1]
        left = await house.snapshot()
        assert (left.spans, left.messages, left.chosen, left.unfinished) == ((), (), {}, False)
        assert "u9" in left.seen and SECRET not in bytes_of(house.store)
        await house.says("hello")
        assert [text_of(each.blocks) for each in house.model.requests[-1].messages] == ["hello"]


async def test_in_a_group_it_asks_otherwise_and_takes_only_what_is_theirs() -> None:
    async with House("one", f"she: {SECRET}", "three") as house:
        await house.says(SECRET, group=True)
        await house.says("what?", group=True, sender=BOB)
        await house.says("/forget", group=True)
        assert house.screen.shown[-1] == phrases.FORGET_ASK_GROUP.format(yes="yes")
        await house.says("/forget yes", group=True)
        assert await house.history() == [
            ("user", "<from>Bob</from>\nwhat?"),
            ("assistant", f"she: {MARK}"),
        ]


async def test_a_turn_that_runs_is_ended() -> None:
    late = Held(f"you said {SECRET}")
    async with House(late) as house:
        await house.says(SECRET)
        await house.says("/forget yes")
        late.open.set()
        await settle(300)
        assert SECRET not in bytes_of(house.store)
        assert [text[:5] for text in house.screen.shown] == ["Done."]
        assert not (await house.snapshot()).unfinished


async def test_what_cannot_be_read_goes_where_they_are_alone() -> None:
    store = Faulty()
    async with House("one", store=store) as house:
        await house.says(SECRET)
        store.loads = [SnapshotUnreadable("checksum")] * 2
        await house.says("/forget yes")
        assert SECRET not in bytes_of(store)
        assert house.screen.shown[-1].startswith("Done.")


async def test_what_cannot_be_read_elsewhere_is_told() -> None:
    store = Faulty()
    group = Group(store, "test:2")
    await group.say((ADA, SECRET))
    group.snapshots.forget("test:2")
    store.loads = [SnapshotUnreadable("checksum")]
    assert await group.forget() == Forgotten(unreadable=1)
    call = Call("forget", Inbound("1", KEY, "command", ADA, "/forget yes"))
    assert "1 conversations could not be read" in forget.receipt(call, Forgotten(unreadable=1))


async def test_a_store_that_fails_is_asked_again_by_the_platform() -> None:
    class Full(MemoryStore):
        full = True

        async def scrub(self) -> None:
            if self.full:
                raise StoreUnavailable("full")

    store = Full()
    async with House("one", store=store) as house:
        await house.says(SECRET)
        with pytest.raises(StoreUnavailable):
            await house.says("/forget yes", "u9")
        store.full = False
        await house.says("/forget yes", "u9")
        assert house.screen.shown[-1].startswith("Done.")


async def test_overwriting_takes_at_most_its_share_of_the_time() -> None:
    clock = FakeClock()

    class Slow(MemoryStore):
        async def scrub(self) -> None:
            clock.advance(30)

    scrubs = Scrubs(clock)
    assert scrubs.wait() == 0
    await scrubs.scrub(Slow())
    assert scrubs.wait() == 30 * SHARE
    async with House("one") as house:
        await house.says(SECRET)
        house.conversations._backstage.scrubs._next = house.clock.monotonic() + 90
        await house.says("/forget yes")
        assert house.screen.shown[-1] == phrases.FORGET_LATER.format(minutes=2)
        assert SECRET in bytes_of(house.store)


async def test_rows_that_went_meanwhile_are_not_brought_back() -> None:
    group = Group(MemoryStore())
    await group.say((BOB, "hello bot"))
    snapshot = await group.store.load(ref(KEY))
    assert snapshot is not None
    rows = (replace(snapshot.messages[0], sender=NOBODY),)
    assert forget._with_rows("other", rows, snapshot) is snapshot
    assert forget._with_rows(snapshot.epoch, (replace(rows[0], seq=99),), snapshot) is snapshot
    assert forget._with_rows(snapshot.epoch, rows, None) is None


async def test_a_conversation_that_goes_meanwhile_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = Group(MemoryStore())
    await group.say((BOB, "hello bot"))
    assert (
        await forget._forget_in(group.store, group.snapshots, ref("test:none"), ADA.id, MARK, False)
        == Forgotten()
    )
    look = forget._look

    async def late(*args: Any) -> Found:
        found = await look(*args)
        await group.store.clear(ref(KEY))
        group.snapshots.forget(KEY)
        return found

    monkeypatch.setattr(forget, "_look", late)
    await forget._forget_in(group.store, group.snapshots, ref(KEY), ADA.id, MARK, False)
    assert await group.store.load(ref(KEY)) is None


async def test_rows_between_spans_are_found() -> None:
    group = Group(MemoryStore())
    for text in ("one", "two"):
        await group.say((BOB, text))
    await group.change(branches.undo)
    await group.say((BOB, "three"))
    snapshot = await group.store.load(ref(KEY))
    assert snapshot is not None and forget._unused(snapshot) == [(3, 4)]


def test_short_words_are_nobodys() -> None:
    assert forget._quotes(["yes", "a longer text\nno\nand a line"]) == (
        "a longer text\nno\nand a line",
        "a longer text",
        "and a line",
    )


def test_a_summary_says_it_in_other_words_so_all_of_it_goes() -> None:
    told = row(9, text_block("Ada has told us her number"), role="summary", sender=None)
    after = marked(told, "test:ada", MARK, ("4711",))
    assert (after.role, text_of(after.blocks)) == ("summary", MARK)
    assert marked(after, "test:ada", MARK, ("4711",)) is after
