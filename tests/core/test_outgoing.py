"""Files that a tool has for the person: sent after the answer, once, whatever dies in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from core import phrases
from core.agent import Agent
from core.blobs import named_by
from core.errors import BlobUnreadable, OutcomeUnknown, TryLater, Undeliverable
from core.messages import File, Message, Outbound, encode_blocks, text_block
from core.model import ToolCall
from core.outgoing import MAX_FILES, files_of, to_send
from core.results import File as ToolFile
from core.results import Image
from core.snapshot import decode, encode
from core.tools import tool
from stores.memory import MemoryStore
from tests.core.fakes import FakeClock, calls, settle
from tests.core.test_conversations import House
from tests.core.test_export import FilingHouse

PNG = b"\x89PNG\r\n\x1a\n of a chart"
ID = "sha256:" + "0" * 64


@pytest.fixture(autouse=True)
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture of a request is encoded in one, and `settle` does not wait for those."""

    async def at_once(function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", at_once)


@tool
async def chart(name: str = "chart.png") -> list[object]:
    """Draw."""
    return ["Drawn.", Image(PNG, name=name, send=True)]


@tool
async def table() -> ToolFile:
    """Count."""
    return ToolFile(b"a,b\n", "table.csv", "text/csv", send=True)


ARTIST = Agent(name="artist", tools=(chart, table))


def call(name: str = "chart", id: str = "c1", **given: Any) -> Any:
    return calls(ToolCall(id, name, given))


def sent(house: FilingHouse) -> list[tuple[str, bytes]]:
    return [(file.name, data) for file, data in house.files]


async def test_it_comes_after_the_text_and_once() -> None:
    async with FilingHouse(call(), call("table", "c2"), "Here|you are.", agent=ARTIST) as house:
        await house.says("draw")
        assert house.screen.shown == ["Here", "you are.", "", ""]
        assert sent(house) == [("chart.png", PNG), ("table.csv", b"a,b\n")]
        snapshot = await house.snapshot()
        assert snapshot.outbox == () and not snapshot.unfinished
        # The model has seen the picture, not the table, and not what says that they are sent.
        asked = b"".join(bytes(row.blocks) for row in house.model.requests[-1].messages)
        assert asked.count(b'"image"') == 1 and b'"send"' not in asked and b"a,b" not in asked


async def test_it_is_sent_again_until_it_is_there() -> None:
    async with FilingHouse(call(), "Here.", agent=ARTIST) as house:
        house.screen.script = [None, TryLater(1), OutcomeUnknown("?")]
        await house.says("draw")
        for _ in range(4):
            house.clock.advance(3)
            await settle(100)
        assert sent(house) == [("chart.png", PNG)]
        assert house.screen.uncertain == [False, False, False, True]


async def test_it_outlives_the_process_in_which_it_was_made() -> None:
    store = MemoryStore()
    async with FilingHouse(call(), "Here.", agent=ARTIST, store=store) as house:
        house.screen.script = [None, TryLater(600)]
        await house.says("draw")
        assert sent(house) == []
        waiting = await house.snapshot()
        (part,) = waiting.outbox
        assert part.file is not None and part.file.blob in named_by(waiting)
        assert decode(encode(waiting)).outbox == waiting.outbox
        later = house.clock.monotonic() + 601
    async with FilingHouse(agent=ARTIST, store=store) as again:
        again.clock.advance(later - again.clock.monotonic())
        await settle(100)
        assert sent(again) == [("chart.png", PNG)]


async def test_a_turn_that_is_given_up_sends_nothing() -> None:
    async with FilingHouse(call(), ValueError("a bug"), agent=ARTIST) as house:
        await house.says("draw")
        assert sent(house) == []
        assert house.screen.shown == [phrases.INTERNAL]


async def test_where_no_files_can_be_sent_a_person_is_told() -> None:
    async with House(call(), "Here.", agent=ARTIST) as house:
        await house.says("draw")
        assert house.screen.shown == ["Here.", phrases.FILE_NOT_SENT.format(name="chart.png")]
        assert not (await house.snapshot()).outbox


@pytest.mark.parametrize("refusal", [Undeliverable("too large"), None, BlobUnreadable("damaged")])
async def test_a_file_that_cannot_be_had_holds_nobody_up(
    refusal: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FilingHouse(call(), "Here.", "next", agent=ARTIST) as house:
        if isinstance(refusal, Undeliverable):
            house.screen.script = [None, refusal]
        else:

            async def get(id: str) -> None:
                if refusal:
                    raise refusal

            monkeypatch.setattr(house.store.blobs, "get", get)
        await house.says("draw")
        assert sent(house) == []
        said = phrases.FILE_NOT_SENT.format(name="chart.png")
        assert house.screen.shown == ["Here.", said]
        await house.says("go on")
        assert house.screen.shown == ["Here.", said, "next"]


async def test_what_an_agent_that_was_asked_has_for_the_person_comes_too() -> None:
    boss = Agent(name="boss", agents=(ARTIST,))
    script = (call("artist", request="a chart"), call(), "It is drawn.", "Here.")
    async with FilingHouse(*script, agent=boss) as house:
        await house.says("draw")
        assert sent(house) == [("chart.png", PNG)]
        told = bytes(house.model.requests[-1].messages[-1].blocks)
        assert b"It is drawn." in told


async def test_after_an_approval_it_comes_as_well() -> None:
    careful = replace(chart, needs_approval=True)
    async with FilingHouse(call(), "Here.", agent=replace(ARTIST, tools=(careful,))) as house:
        await house.says("draw")
        await house.says("/approve")
        assert sent(house) == [("chart.png", PNG)]


def row(role: str, *blocks: dict[str, object]) -> Message:
    return Message(1, role, encode_blocks(blocks), 0)  # type: ignore[arg-type]


def result(*content: dict[str, object]) -> dict[str, object]:
    return {"type": "tool_result", "tool_use_id": "c", "content": list(content)}


def test_what_is_found_in_the_steps() -> None:
    block = to_send(ID, "a.png", "image/png")
    file = File("a.png", "image/png", blob=ID)
    assert files_of(()) == ()
    assert files_of([row("user", text_block("hi")), row("user", result(block, block))]) == (file,)
    assert files_of([row("assistant", result(block))]) == ()
    assert files_of([row("user", text_block(str(block)), {"type": "blob", "source": {}})]) == ()
    assert files_of([row("user", to_send("../x", "a", "b"))]) == ()
    plain: dict[str, object] = {"type": "tool_result", "tool_use_id": "c", "content": '"blob"'}
    assert files_of([row("user", plain)]) == ()
    many = [to_send(ID, f"{number}", "image/png") for number in range(30)]
    assert len(files_of([row("user", result(*many))])) == MAX_FILES


def test_a_file_that_is_kept_takes_little_room() -> None:
    part = Outbound("p", "", file=File("a.png", "image/png", blob=ID))
    assert named_by(replace(begun(), outbox=(part,))) == {ID}


def begun() -> Any:
    from core import changes

    return changes.begin(revision=1, epoch="e", now=FakeClock().now())
