"""`/export`: files that are made when they leave, page by page."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from core import export, phrases
from core.adapter import Receipt
from core.errors import BlobUnreadable, OutcomeUnknown, StoreUnavailable
from core.messages import File, Message, Outbound, encode_blocks, text_block, text_of
from core.snapshot import Snapshot
from core.store import Blob, SessionRef
from core.transcript import FORMS, About, Document
from stores.memory import MemoryStore
from tests.core.fakes import settle
from tests.core.test_conversations import KEY, House, Screen

REF = SessionRef(KEY, "assistant")
ABOUT = About(KEY, "assistant", 0)


class Filing(Screen):
    """A screen whose platform takes files."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[tuple[File, bytes]] = []

    async def send_file(self, key: str, part: Outbound, data: bytes, *, uncertain: bool) -> Receipt:
        receipt = await self.send(key, part, uncertain=uncertain)
        assert part.file is not None
        self.files.append((part.file, data))
        return receipt


class FilingHouse(House):
    def new_screen(self) -> Screen:
        return Filing()

    @property
    def files(self) -> list[tuple[File, bytes]]:
        assert isinstance(self.screen, Filing)
        return self.screen.files


class Paged(MemoryStore):
    """Knows how many rows were asked for at a time."""

    most = 0

    async def archive(self, ref, before=None, limit=100):  # type: ignore[no-untyped-def]
        self.most = max(self.most, limit)
        async for row in super().archive(ref, before, limit):
            yield row


async def stored(count: int, store: MemoryStore | None = None, words: str = "row") -> MemoryStore:
    rows = tuple(
        Message(
            seq,
            "user" if seq % 2 else "assistant",
            encode_blocks([text_block(f"{words} {seq}")]),
            seq,
            "t:1" if seq % 2 else None,
        )
        for seq in range(1, count + 1)
    )
    snapshot = Snapshot(
        revision=1,
        epoch="e",
        created_at=0,
        updated_at=0,
        spans=((1, count),),
        messages=rows,
        next_seq=count + 1,
    )
    store = store or MemoryStore()
    await store.save(REF, snapshot, replaces=None)
    return store


@pytest.mark.parametrize("count", [1, export.PAGE - 1, export.PAGE, export.PAGE + 1, 1_000])
async def test_all_rows_are_read_a_page_at_a_time(count: int) -> None:
    store = Paged()
    await stored(count, store)
    newest = [row.seq async for row in export.newest_first(store, REF)]
    oldest = [row.seq async for row in export.oldest_first(store, REF)]
    assert newest[::-1] == oldest == list(range(1, count + 1))
    assert store.most == export.PAGE


@pytest.mark.parametrize("form", FORMS)
async def test_a_long_conversation_becomes_several_files(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.export.FILE", 5_000)
    store = await stored(300)
    spans = await export.plan(store, REF, FORMS[form], ABOUT)
    assert len(spans) >= 3
    assert [first for first, _ in spans] == [1, *(last + 1 for _, last in spans[:-1])]
    assert spans[-1][1] == 300
    for first, last in spans:
        data = await export.made(store, REF, File("f", "m", form, first, last, 0))
        assert len(data) < 10_000
        assert f"row {first}".encode() in data and f"row {last}".encode() in data
        assert f"row {last + 1}".encode() not in data


async def test_nothing_is_no_file() -> None:
    assert await export.plan(MemoryStore(), REF, FORMS["json"], ABOUT) == []


async def test_blobs_are_in_it_when_they_are_there_and_not_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    small = await store.blobs.put(KEY, b"small", "image/png")
    large = await store.blobs.put(KEY, b"x" * (export.IMAGE + 1), "image/png")
    gone = "sha256:" + "0" * 64
    blocks = encode_blocks(
        [{"type": "image", "source": {"type": "blob", "id": id}} for id in (small, large, gone)]
    )
    row = Message(1, "user", blocks, 0, "t:1")
    assert await export.blobs_of(store, row) == {small: Blob("image/png", b"small")}

    async def damaged(id: str) -> Blob | None:
        raise BlobUnreadable(id)

    monkeypatch.setattr(store.blobs, "get", damaged)
    assert await export.blobs_of(store, row) == {}


# ---------------------------------------------------------------------- in a conversation


async def test_an_export_is_a_file_with_all_that_was_said() -> None:
    async with FilingHouse("one", "two") as house:
        await house.says("a")
        await house.says("b")
        await house.says("/export json", "u9")
        await house.says("/export json", "u9")
        assert house.screen.shown == ["one", "two", phrases.EXPORTED, ""]
        ((file, data),) = house.files
        assert (file.name, file.media_type) == ("conversation-2027-01-15.json", "application/json")
        again = msgspec.json.decode(data, type=Document)
        said = [text_of(row.blocks) for row in again.messages]
        assert said == ["a", "one", "b", "two"]
        assert [row.seq for row in again.messages] == [1, 2, 3, 4]


async def test_an_export_has_what_was_said_until_then_and_not_what_was_taken_back() -> None:
    async with FilingHouse("one", "two", "three") as house:
        await house.says("a")
        await house.says("b")
        await house.says("/undo")
        await house.says("c")
        await house.says("/export md")
        ((file, data),) = house.files
        assert file.name.endswith(".md")
        assert b"three" in data and b"one" in data and b"two" not in data


@pytest.mark.parametrize(("text", "suffix"), [("/export", "html"), ("/export HTML", "html")])
async def test_html_unless_something_else_is_asked_for(text: str, suffix: str) -> None:
    async with FilingHouse("one") as house:
        await house.says("a")
        await house.says(text)
        ((file, data),) = house.files
        assert file.name.endswith(suffix) and data.startswith(b"<!doctype html>")


async def test_an_unknown_form_and_nothing_said_are_told() -> None:
    async with FilingHouse() as house:
        await house.says("/export pdf")
        await house.says("/export")
        assert house.screen.shown == [
            "I can do that as one of these: html, markdown, json.",
            phrases.NOTHING_TO_EXPORT,
        ]


async def test_several_files_are_numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.export.FILE", 5_000)
    async with FilingHouse(store=await stored(300)) as house:
        await house.says("/export json")
        await settle(300)
        names = [file.name for file, _ in house.files]
        assert names == [f"conversation-2027-01-15-{n}.json" for n in range(1, len(names) + 1)]
        rows = [msgspec.json.decode(data, type=Document).messages for _, data in house.files]
        assert [row.seq for page in rows for row in page] == list(range(1, 301))


async def test_where_no_files_can_be_sent_it_is_text() -> None:
    async with House("one") as house:
        await house.says("a")
        await house.says("/export json")
        text = house.screen.shown[-1]
        assert text.startswith("### test:ada") and text.endswith("one")
        await house.says("/reset")
        await house.says("/export")
        assert house.screen.shown[-1] == phrases.NOTHING_TO_EXPORT


async def test_of_a_long_one_the_newest_are_text() -> None:
    store = await stored(1_000, words="w" * 100)
    async with House(store=store) as house:
        await house.says("/export")
        text = house.screen.shown[-1]
        assert text.startswith(phrases.EXPORT_CUT) and text.endswith("1000")
        assert len(text) < export.TEXT + 1_000


async def test_a_file_is_made_again_when_it_is_sent_again() -> None:
    async with FilingHouse("one") as house:
        await house.says("a")
        house.screen.script = [None, OutcomeUnknown("no answer")]
        await house.says("/export")
        house.clock.advance(60)
        await settle(200)
        assert len(house.files) == 1 and house.screen.uncertain[-1]


async def test_a_store_that_fails_while_a_file_is_made_has_sent_nothing() -> None:
    store = MemoryStore()
    failing = [StoreUnavailable("busy")]

    async def made(*_: object) -> bytes:
        if failing:
            raise failing.pop()
        return b"made"

    async with FilingHouse("one", store=store) as house:
        await house.says("a")
        house.conversations._delivery._made = made
        await house.says("/export")
        assert house.files == []
        house.clock.advance(60)
        await settle(200)
        assert [data for _, data in house.files] == [b"made"]
        assert not any(house.screen.uncertain)


async def test_of_a_file_for_an_adapter_that_takes_none_a_person_is_told() -> None:
    async with House("one") as house:
        await house.says("a")
        part = Outbound("p.0", "", file=File("f.json", "m", "json", 1, 2, 0))
        await house.conversations.update(KEY, lambda old: replace(old, outbox=(part,)))
        await house.conversations.work(KEY)
        assert house.screen.shown == ["one", phrases.FILE_NOT_SENT.format(name="f.json")]
        assert (await house.snapshot()).undelivered == ()
