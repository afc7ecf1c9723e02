"""Retention: what goes by its age and for want of room, what never does, and who does it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from core import changes, history, outbox, retention
from core.changes import Fence
from core.errors import StoreUnavailable
from core.memory import ConversationMemory
from core.messages import Inbound, Message, Sender, encode_blocks, text_block
from core.retention import DAY, GRACE, LEASE, SAID, Fate, Gone, Retention, Rules
from core.snapshot import Snapshot, Usage
from core.snapshots import Snapshots
from core.store import BotStore, SessionRef, Summary
from core.trimming import NewSummary
from core.usage import Spent
from stores.memory import MemoryStore
from stores.sqlite import SQLiteStore
from tests.core.fakes import FakeClock

SHORT = ConversationMemory(8, 4)
DAYS = Rules(days=30)


def ref(key: str) -> SessionRef:
    return SessionRef(key)


@pytest.fixture(params=["memory", "sqlite"])
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    clock = FakeClock()
    made: BotStore = (
        MemoryStore(clock=clock)
        if request.param == "memory"
        else SQLiteStore(tmp_path / "a.db", clock=clock)
    )
    async with made as store:
        yield House(store, clock)


class House:
    """A store, a clock, and people who talk."""

    def __init__(self, store: BotStore, clock: FakeClock) -> None:
        self.store = store
        self.clock = clock
        self.snapshots = Snapshots(store, self.clock, ref)
        self.count = 0

    def retention(self, rules: Rules = DAYS, **more: Any) -> Retention:
        return Retention(self.store, ref, self.clock, rules, forget=self.snapshots.forget, **more)

    async def change(self, key: str, change: Any) -> Snapshot:
        after, _ = await self.snapshots.update(key, change)
        assert after is not None
        return after

    async def ask(self, key: str, words: str = "hello", *images: str) -> None:
        self.count += 1
        blocks: list[dict[str, object]] = [
            {"type": "image", "source": {"type": "blob", "id": id, "media_type": "image/png"}}
            for id in images
        ]
        said = Inbound(
            id=f"i{self.count}",
            key=key,
            kind="message",
            sender=Sender("t:1", "Ann"),
            text=words,
            blocks=encode_blocks(blocks),
        )
        empty = changes.begin(revision=1, epoch="e", now=self.clock.now())
        await self.change(key, lambda old: changes.accept(old or empty, said))

    async def turn(
        self, key: str, words: str = "hello", *images: str, memory: ConversationMemory = SHORT
    ) -> Snapshot:
        await self.ask(key, words, *images)
        name, now = f"x{self.count}", self.clock.now()
        answer = [encode_blocks([text_block("fine")])]
        await self.change(
            key, lambda old: changes.start(old, execution=name, now=now, memory=memory)
        )
        await self.change(
            key,
            lambda old: changes.commit(old, Fence("e", name), answer, ["part"], Usage(), now),
        )
        return await self.change(key, lambda old: outbox.delivered(old, old.outbox[0].id, ("1",)))

    async def days_of(self, key: str) -> list[int]:
        """How old each row is, the oldest first."""
        rows = [row async for row in self.store.archive(ref(key), None, 1000)]
        return [(self.clock.now() - row.at) // DAY for row in reversed(rows)]

    async def keys(self) -> list[str]:
        return [each.key async for each in self.store.summaries(limit=10_000)]

    def pass_days(self, days: float) -> None:
        self.clock.advance(days * DAY / 1000)


# ---------------------------------------------------------------------- by age


async def test_a_conversation_without_a_word_for_long_goes(house: House) -> None:
    await house.turn("t:old")
    house.pass_days(2)
    await house.turn("t:new")
    house.pass_days(28.5)
    gone = await house.retention().once()
    assert (gone.conversations, gone.messages) == (1, 2)
    assert await house.keys() == ["t:new"]
    assert await house.snapshots.load("t:old") is None
    # It may begin again.
    await house.turn("t:old")
    assert await house.keys() == ["t:new", "t:old"]


async def test_what_has_still_to_be_answered_or_sent_stays(house: House) -> None:
    await house.ask("t:asked")
    await house.ask("t:started")
    await house.change(
        "t:started", lambda old: changes.start(old, execution="x", now=1, memory=SHORT)
    )
    await house.turn("t:sending")
    await house.change("t:sending", lambda old: changes.notice(old, ["said"]))
    house.pass_days(400)
    gone = await house.retention(Rules(days=30, megabytes=1)).once()
    assert (gone.conversations, gone.messages, gone.unfinished) == (0, 0, 3)
    assert await house.keys() == ["t:asked", "t:sending", "t:started"]


async def test_old_exchanges_outside_of_the_window_go(house: House) -> None:
    for _ in range(20):
        await house.turn("t:1", memory=SHORT)
        house.pass_days(5)
    before = await house.snapshots.load("t:1")
    assert before is not None
    gone = await house.retention().once()
    assert (gone.conversations, gone.messages) == (0, 2 * (20 - 6))
    assert await house.days_of("t:1") == [30, 30, 25, 25, 20, 20, 15, 15, 10, 10, 5, 5]
    after = await house.snapshots.load("t:1")
    assert after is not None and after.revision > before.revision
    assert replace(after, revision=before.revision) == before, "nothing that is seen has changed"
    # Again: there is nothing, and only what has become old since goes.
    assert (await house.retention().once()).messages == 0
    await house.turn("t:1", memory=SHORT)
    house.pass_days(6)
    assert (await house.retention().once()).messages == 4
    assert min(await house.days_of("t:1")) == 6


async def test_a_window_is_never_touched(house: House) -> None:
    for _ in range(3):
        await house.turn("t:1")
    house.pass_days(29)
    await house.change("t:1", lambda old: replace(old, chosen={"model": "m"}))
    house.pass_days(29)
    gone = await house.retention().once()
    assert (gone.conversations, gone.messages) == (0, 0)
    assert await house.days_of("t:1") == [58] * 6


async def test_an_exchange_goes_as_a_whole(house: House) -> None:
    """Also one that took longer than it takes to become old, and is longer than what goes at
    once."""
    old, new = house.clock.now(), house.clock.now() + 40 * DAY

    def rows(steps: int, *times: int) -> list[tuple[Any, Any, int]]:
        ask = encode_blocks([text_block("go on")])
        result = encode_blocks([history.result("c", "found")])
        call = encode_blocks([{"type": "tool_use", "id": "c", "name": "n", "input": {}}])
        made: list[tuple[Any, Any, int]] = [("user", ask, times[0])]
        for step in range(steps):
            at = times[step * len(times) // steps]
            made += [("assistant", call, at), ("user", result, at)]
        return [*made, ("assistant", ask, times[-1])]

    said = [*rows(2, old), *rows(3 * retention.ROWS, old), *rows(4, old, new), *rows(1, new)]
    messages = tuple(
        Message(seq, role, blocks, at, "t:1" if role == "user" else None)
        for seq, (role, blocks, at) in enumerate(said, 1)
    )
    value = replace(
        changes.begin(revision=1, epoch="e", now=new),
        spans=((1, len(messages)),),
        messages=messages,
        next_seq=len(messages) + 1,
    )
    await house.store.save(ref("t:1"), value, replaces=None)
    window = replace(value, revision=2, messages=messages[-4:], window=messages[-4].seq)
    await house.store.save(ref("t:1"), window, replaces=1)
    house.pass_days(41)
    gone = await house.retention().once()
    assert gone.messages == 6 + 2 + 6 * retention.ROWS
    left = [row async for row in house.store.archive(ref("t:1"), None, 100)]
    assert [row.seq for row in reversed(left)] == list(range(gone.messages + 1, len(said) + 1))


async def test_a_summary_stays_with_its_window(house: House) -> None:
    for number in range(9):
        await house.turn("t:1", memory=ConversationMemory())
        house.pass_days(5)
        if number in (3, 6):
            value = await house.snapshots.load("t:1")
            assert value is not None
            covers = tuple(row.seq for row in value.messages[:-2])
            summary = NewSummary("e", covers, "so far")
            await house.ask("t:1")
            now, name = house.clock.now(), f"s{number}"
            await house.change(
                "t:1",
                lambda old, name=name, now=now, summary=summary: changes.start(
                    old, execution=name, now=now, memory=ConversationMemory(), summary=summary
                ),
            )
            answer = [encode_blocks([text_block("fine")])]
            await house.change(
                "t:1",
                lambda old, name=name, now=now, answer=answer: changes.commit(
                    old, Fence("e", name), answer, [], Usage(), now
                ),
            )
    before = await house.snapshots.load("t:1")
    assert before is not None and before.messages[0].role == "summary"
    house.pass_days(20)
    await house.retention().once()
    house.snapshots.forget("t:1")
    after = await house.snapshots.load("t:1")
    assert after is not None
    assert after.messages == before.messages
    rows = [row.seq async for row in house.store.archive(ref("t:1"), None, 100)]
    assert sorted(rows) == sorted(row.seq for row in before.messages)


async def test_images_go_with_what_named_them(house: House) -> None:
    ids = [await house.store.blobs.put("t:1", b"%d" % number, "image/png") for number in range(24)]
    for id in ids:
        await house.turn("t:1", "look", id)
    house.pass_days(20)
    for _ in range(6):
        await house.turn("t:1")
    house.pass_days(20)
    nobody = await house.store.blobs.put("t:2", b"of nobody", "image/png")
    house.pass_days(1.1)
    arriving = await house.store.blobs.put("t:2", b"arriving", "image/png")
    saves: list[Snapshot] = []
    kept = house.store.save

    async def save(ref: SessionRef, snapshot: Snapshot, *, replaces: int | None) -> None:
        saves.append(snapshot)
        await kept(ref, snapshot, replaces=replaces)

    house.store.save = save  # type: ignore[method-assign]
    gone = await house.retention(Rules(days=30)).once()
    assert (gone.conversations, gone.messages) == (0, 48)
    assert len(saves) == 24 // retention.BLOBS, "few at a time: each is much to overwrite"
    assert [await house.store.blobs.get(id) for id in ids] == [None] * 24
    assert await house.store.blobs.get(nobody) is None
    assert await house.store.blobs.get(arriving) is not None


async def test_what_was_used_has_an_age_of_its_own(house: House) -> None:
    now = house.clock.now()
    spent = [Spent(f"e{days}", 1, now - days * DAY, "m", Usage(1), 10) for days in (1, 90, 110)]
    await house.store.usage.add([("t:1", each) for each in spent])
    assert (await house.retention(Rules(days=30)).once()).usage == 0
    assert (await house.retention(Rules(usage_days=100)).once()).usage == 1
    assert [each.cost for each in await house.store.usage.sums()] == [20]


async def test_who_speaks_meanwhile_wins(house: House) -> None:
    await house.turn("t:1")
    house.pass_days(31)
    kept = house.store.remove

    async def remove(ref: SessionRef, *, replaces: int) -> None:
        await house.ask("t:1", "wait!")
        await kept(ref, replaces=replaces)

    house.store.remove = remove  # type: ignore[method-assign]
    gone = await house.retention().once()
    assert gone.conversations == 0
    value = await house.snapshots.load("t:1")
    assert value is not None and [each.text for each in value.inbox] == ["wait!"]
    assert len(value.messages) == 2


async def test_a_turn_beside_it_is_stale_and_goes_on(house: House) -> None:
    for _ in range(12):
        await house.turn("t:1")
        house.pass_days(4)
    kept = house.store.save
    beside: list[Snapshot] = []

    async def save(ref: SessionRef, snapshot: Snapshot, *, replaces: int | None) -> None:
        if not beside:
            beside.append(snapshot)
            await house.turn("t:1", "meanwhile")
        await kept(ref, snapshot, replaces=replaces)

    house.store.save = save  # type: ignore[method-assign]
    assert (await house.retention().once()).messages == 0
    value = await house.turn("t:1")
    assert [row.role for row in value.messages][-4:] == ["user", "assistant"] * 2
    assert (await house.retention().once()).messages > 0


# ---------------------------------------------------------------------- what could not be sent


async def test_what_could_not_be_sent_goes_after_it_was_said(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    await house.turn("t:1")
    await house.change("t:1", lambda old: changes.notice(old, ["said"]))
    await house.change("t:1", lambda old: outbox.hold(old, old.outbox[0].id, "unknown"))
    house.pass_days(31)
    with caplog.at_level(logging.WARNING, "chinwag"):
        for day in range(7):
            gone = await house.retention().once()
            assert (gone.conversations, gone.undelivered) == (0, 1)
            house.pass_days(1)
            said = [each for each in caplog.records if each.message == "retention.undelivered"]
            assert len(said) == day + 1
            assert said[-1].__dict__["event"] == {"key": "t:1", "parts": 1, "days": 7 - day}
    assert (await house.retention().once()).conversations == 1
    assert [name async for name in house.store.notes.names()] == []


async def test_what_was_said_of_one_that_went_on_is_said_anew(house: House) -> None:
    async def held() -> None:
        await house.change("t:1", lambda old: changes.notice(old, ["said"]))
        await house.change("t:1", lambda old: outbox.hold(old, old.outbox[-1].id, "unknown"))

    await house.turn("t:1")
    await held()
    house.pass_days(31)
    assert (await house.retention().once()).undelivered == 1
    await house.change("t:1", outbox.retry)
    await house.change("t:1", lambda old: outbox.delivered(old, old.outbox[0].id, ("1",)))
    await held()
    house.pass_days(31 + GRACE / DAY)
    assert (await house.retention().once()).undelivered == 1, "it was said of other parts"
    house.pass_days(GRACE / DAY)
    assert (await house.retention().once()).conversations == 1


async def test_a_note_goes_when_its_parts_were_sent(house: House) -> None:
    await house.turn("t:1")
    await house.change("t:1", lambda old: changes.notice(old, ["said"]))
    await house.change("t:1", lambda old: outbox.hold(old, old.outbox[0].id, "unknown"))
    house.pass_days(31)
    await house.retention().once()
    assert [name async for name in house.store.notes.names()] == [f"{SAID}t:1"]
    await house.change("t:1", outbox.retry)
    await house.change("t:1", lambda old: outbox.delivered(old, old.outbox[0].id, ("1",)))
    await house.retention().once()
    assert [name async for name in house.store.notes.names()] == []


# ---------------------------------------------------------------------- by size


LONG = "x" * 100_000


async def test_the_oldest_go_first_until_there_is_room(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    order = [7, 2, 9, 0, 4, 1, 8, 3, 6, 5, *range(10, 16)]
    for number in order:
        await house.turn(f"t:{number:02}", LONG)
        house.pass_days(1)
    house.pass_days(2)
    with caplog.at_level(logging.INFO, "chinwag"):
        gone = await house.retention(Rules(megabytes=1)).once()
    assert await house.store.size() <= 1_000_000
    left = {int(key.removeprefix("t:")) for key in await house.keys()}
    assert gone.conversations == 16 - len(left)
    assert left == set(order[gone.conversations :])
    assert len(left) in (8, 9), "no more than must"
    assert "retention.room" in caplog.messages


async def test_then_what_has_left_the_window(house: House) -> None:
    for number in range(3):
        for _ in range(10):
            await house.turn(f"t:{number}", LONG)
    house.pass_days(1)
    before = {key: await house.snapshots.load(key) for key in await house.keys()}
    gone = await house.retention(Rules(megabytes=2)).once()
    assert gone.conversations == 0, "none of them is old enough not to be missed"
    assert gone.messages > 0 and await house.store.size() <= 2_000_000
    for key, value in before.items():
        house.snapshots.forget(key)
        after = await house.snapshots.load(key)
        assert value is not None and after is not None and after.messages == value.messages


async def test_what_cannot_be_got_under_is_said(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(14):
        await house.ask(f"t:{number}", LONG)
    await house.turn("t:new", LONG)
    house.pass_days(0.1)
    with caplog.at_level(logging.WARNING, "chinwag"):
        await house.retention(Rules(megabytes=1)).once()
    (said,) = [each for each in caplog.records if each.message == "retention.full"]
    event = said.__dict__["event"]
    assert event["limit"] == 1_000_000 and event["bytes"] > 1_400_000
    assert len(await house.keys()) == 15


# ---------------------------------------------------------------------- dry


async def test_a_dry_run_says_what_would_go_and_changes_nothing(house: House) -> None:
    for number in range(8):
        await house.turn(f"t:old{number}", LONG)
    house.pass_days(25)
    for _ in range(8):
        await house.turn("t:long")
    house.pass_days(10)
    await house.turn("t:long")
    for number in range(12):
        await house.turn(f"t:{number:02}", LONG)
        house.pass_days(1)
    rules = Rules(days=30, megabytes=1)
    seen: list[tuple[Fate, str]] = []

    def see(fate: Fate, each: Summary) -> None:
        seen.append((fate, each.key))

    before = {key: await house.store.load(ref(key)) for key in await house.keys()}
    told = await house.retention(rules, dry=True, see=see).once()
    assert {key: await house.store.load(ref(key)) for key in await house.keys()} == before
    assert [name async for name in house.store.notes.names()] == []
    done: list[tuple[Fate, str]] = []
    gone = await house.retention(rules, see=lambda fate, each: done.append((fate, each.key))).once()
    assert seen[:8] == done[:8] == [("goes", f"t:old{number}") for number in range(8)]
    assert told.messages > 0
    # What a removal frees is estimated: a page more or less.
    assert abs(len(seen) - len(done)) <= 1
    assert abs(told.conversations - gone.conversations) <= 1


# ---------------------------------------------------------------------- when, and who


async def test_once_a_day(house: House) -> None:
    one = house.retention()
    task = asyncio.create_task(one.run())
    passes: list[Gone] = []
    once = one.once

    async def counted(after: str = "") -> Gone:
        passes.append(await once(after))
        if len(passes) == 3:
            task.cancel()
        return passes[-1]

    one.once = counted  # type: ignore[method-assign]
    began = house.clock.now()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert 2 * DAY <= house.clock.now() - began < 2 * DAY + 2 * 3_600_000
    assert max(house.clock.slept) <= 3600


async def test_of_many_one_does_it(house: House) -> None:
    for number in range(250):
        await house.turn(f"t:{number:03}")
    house.pass_days(31)
    first, second = house.retention(), house.retention()
    listed = first._listed

    async def beside(after: str) -> list[Summary]:
        assert 0 < await second.look() <= LEASE / 1000
        return await listed(after)

    first._listed = beside  # type: ignore[method-assign]
    await first.look()
    assert await house.keys() == []
    assert await second.look() == 3600, "it was done today"


async def test_another_goes_on_where_one_was_killed(house: House) -> None:
    for number in range(250):
        await house.turn(f"t:{number:03}")
    house.pass_days(29)
    asked: list[str] = []
    first = house.retention()
    look = first._shorten

    async def shorten(key: str, before: int | None) -> int:
        asked.append(key)
        if len(asked) == 150:
            raise asyncio.CancelledError
        return await look(key, before)

    first._shorten = shorten  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await first.look()
    second = house.retention()
    assert 0 < await second.look() <= LEASE / 1000, "it may be alive"
    house.clock.advance(LEASE / 1000)
    again: list[str] = []

    async def shorten_again(key: str, before: int | None) -> int:
        again.append(key)
        return 0

    second._shorten = shorten_again  # type: ignore[method-assign]
    await second.look()
    assert again[0] == "t:100" and len(again) == 150


async def test_who_was_thought_dead_stops(house: House) -> None:
    for number in range(250):
        await house.turn(f"t:{number:03}")
    house.pass_days(31)
    first, second = house.retention(), house.retention()
    listed = first._listed

    async def stopped(after: str) -> list[Summary]:
        page = await listed(after)
        if after:
            house.clock.advance(2 * LEASE / 1000)
            await second.look()
        return page

    first._listed = stopped  # type: ignore[method-assign]
    assert await first.look() == LEASE / 1000
    assert await house.keys() == []


async def test_a_store_that_does_not_answer_is_asked_again(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    await house.turn("t:1")
    house.pass_days(31)
    one = house.retention()
    kept, calls = house.store.load, 0

    async def load(ref: SessionRef) -> Snapshot | None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise StoreUnavailable("not now")
        return await kept(ref)

    house.store.load = load  # type: ignore[method-assign]
    look = one.look

    async def counted() -> float:
        wait = await look()
        task.cancel()
        return wait

    one.look = counted  # type: ignore[method-assign]
    task = asyncio.create_task(one.run())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "retention.failed" in caplog.messages
    assert await house.keys() == []


async def test_it_pauses_so_that_others_have_the_store(house: House) -> None:
    for number in range(20):
        await house.turn(f"t:{number}")
    house.pass_days(31)
    kept = house.store.remove

    async def remove(ref: SessionRef, *, replaces: int) -> None:
        house.clock._monotonic += 0.02
        await kept(ref, replaces=replaces)

    house.store.remove = remove  # type: ignore[method-assign]
    house.clock.slept.clear()
    gone = await house.retention().once()
    assert gone.conversations == 20 and gone.longest == pytest.approx(0.02)
    assert sum(house.clock.slept) >= 20 * 0.02 * retention.PAUSE * 0.99
