"""How a history is made to fit: what goes first, how far, and how long it stays so."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from core import changes, history
from core.memory import ConversationMemory
from core.messages import Message, Role, decode_blocks, encode_blocks, text_block
from core.model import Request
from core.snapshot import Fit, Snapshot
from core.trimming import trimmed
from core.usage import Usage
from core.window import (
    FILE_LEFT,
    FILE_TOKENS,
    IMAGE_LEFT,
    IMAGE_TOKENS,
    RESULT_LEFT,
    Weight,
    bytes_per_token,
    compacted,
    learned,
    sent,
    weigh,
)
from tests.core.histories import FILE, IMAGE, PDF, PNG

Block = dict[str, Any]


def row(seq: int, role: Role, *blocks: Block) -> Message:
    return Message(seq=seq, role=role, blocks=encode_blocks(blocks), at=0)


def talk(count: int, asked: Block, first: int = 1) -> list[Message]:
    return [
        each
        for seq in range(first, first + 2 * count, 2)
        for each in (row(seq, "user", asked), row(seq + 1, "assistant", text_block("ok")))
    ]


def looked_up(first: int, result: object) -> list[Message]:
    """A question that is looked up, and its answer."""
    call: Block = {"type": "tool_use", "id": f"c{first}", "name": "look", "input": {}}
    return [
        row(first, "user", text_block("?")),
        row(first + 1, "assistant", call),
        row(first + 2, "user", history.result(f"c{first}", result)),
        row(first + 3, "assistant", text_block("so it is")),
    ]


def kinds(messages: tuple[Message, ...]) -> list[str]:
    """What each block is, markers by their text."""
    found: list[str] = []
    for message in messages:
        for block in decode_blocks(message.blocks):
            text = block.get("text") or block.get("content")
            marks = {IMAGE_LEFT: "-image", FILE_LEFT: "-file", RESULT_LEFT: "-result"}
            found.append(marks.get(str(text), str(block["type"])))
    return found


def newest(seq: int, *blocks: Block) -> list[Message]:
    return [row(seq, "user", *(blocks or (text_block("now"),)))]


# ---------------------------------------------------------------------- what goes first


def test_old_images_leave_before_anything_else() -> None:
    memory = ConversationMemory(max_images=4)
    rows = (*talk(4, IMAGE), *looked_up(9, "x" * 500))
    kept, fit = memory.kept(rows, newest(13, IMAGE))
    assert kept == rows
    # Five are too many; down to half of the bound, the newest message's included.
    assert fit == Fit(images=7)
    assert kinds(sent(kept, fit))[:8] == [*("-image", "text") * 3, "image", "text"]
    assert "-result" not in kinds(sent(kept, fit))


def test_then_old_results_are_cleared_and_only_then_exchanges_go() -> None:
    rows = (*talk(1, IMAGE), *looked_up(3, "x" * 6_000), *looked_up(7, "y" * 3_000))
    now = newest(11)

    def shown(tokens: int) -> list[str]:
        kept, fit = ConversationMemory(max_tokens=tokens).kept(rows, now)
        return kinds(sent(kept, fit))

    every = ["image", "text", *["text", "tool_use", "tool_result", "text"] * 2]
    first = [*every[:4], "-result", *every[5:]]
    assert shown(7_000) == every
    assert shown(4_700) == ["-image", *every[1:]]
    assert shown(3_100) == ["-image", *first[1:]]
    assert shown(2_300) == ["-image", *first[1:8], "-result", "text"]
    assert shown(180) == ["text", "tool_use", "-result", "text"]
    assert shown(1) == []


def test_the_newest_message_is_sent_whatever_it_weighs() -> None:
    rows = tuple(talk(3, text_block("hi")))
    big = newest(7, text_block("x" * 100_000))
    assert ConversationMemory(max_tokens=1_000).kept(rows, big)[0] == ()
    # But nobody's words go for images that are all in the newest message.
    many = newest(7, *[IMAGE] * 9)
    assert ConversationMemory(max_images=4).kept(rows, many)[0] == rows
    kept, fit = ConversationMemory(max_images=4).kept((*rows, *talk(1, IMAGE, 7)), many)
    assert len(kept) == 8
    assert fit == Fit(images=9)


def test_bytes_are_those_of_the_request() -> None:
    rows = tuple(talk(4, IMAGE))
    size = sum(len(bytes(each.blocks)) for each in rows)
    assert ConversationMemory(max_bytes=size + 100).kept(rows, newest(9)) == (rows, Fit())
    kept, fit = ConversationMemory(max_bytes=size).kept(rows, newest(9))
    assert kept == rows
    assert fit.images == 7  # one of four is less than half


def test_what_was_too_much_once_is_not_sent_again_when_there_is_room() -> None:
    """Else the beginning of the prompt would change from turn to turn."""
    rows = tuple(talk(3, IMAGE))
    memory = ConversationMemory(max_images=4)
    assert memory.kept(rows, newest(7), Fit(images=5)) == (rows, Fit(images=5))


@pytest.mark.parametrize(
    ("bounds", "most"),
    [({"max_tokens": 20_000}, 10), ({"max_bytes": 60_000}, 10), ({"max_images": 6}, 20)],
)
def test_the_beginning_of_the_prompt_stays_the_same_for_many_turns(
    bounds: dict[str, Any], most: int
) -> None:
    assert 1 <= _moves(ConversationMemory(**bounds)) <= most


def _moves(memory: ConversationMemory) -> int:
    """How many of 60 requests do not begin with the one before."""
    value = changes.begin(revision=1, epoch="e", now=0)
    before: list[bytes] = []
    moves = 0
    for number in range(60):
        turn = [IMAGE, text_block(f"question {number}")]
        started = trimmed(value, memory, [row(value.next_seq, "user", *turn)])
        shown = [bytes(each.blocks) for each in sent(started.messages, started.fit)]
        moves += shown[: len(before)] != before
        before = [*shown, bytes(encode_blocks(turn))]
        said: list[tuple[Role, msgspec.Raw]] = [
            ("user", encode_blocks(turn)),
            ("assistant", encode_blocks([text_block("z" * 100)])),
        ]
        value = changes.append(value, said, Usage(), 0, memory)
    return moves


# ---------------------------------------------------------------------- what it weighs


def test_what_messages_weigh() -> None:
    plain = row(1, "user", text_block("hello"))
    size = len(bytes(plain.blocks))
    assert weigh(plain) == Weight(size, 0, size, 0)
    quoting = row(1, "user", text_block('say "image" and "document"'))
    assert weigh(quoting).images == 0
    image = row(1, "user", IMAGE)
    size = len(bytes(image.blocks))
    assert weigh(image) == Weight(size - len(PNG), IMAGE_TOKENS, size, 1)
    file = row(1, "user", FILE)
    size = len(bytes(file.blocks))
    assert weigh(file) == Weight(size - len(PDF), FILE_TOKENS, size, 1)
    inside = row(1, "user", history.result("c", ["odd", text_block("see"), IMAGE]))
    assert weigh(inside).images == 1


def test_what_is_kept_elsewhere_weighs_what_it_will_be() -> None:
    def blob(kind: str, **more: object) -> Weight:
        source = {"type": "blob", "id": "sha256:0", "media_type": "x/y", **more}
        return weigh(row(1, "user", {"type": kind, "source": source}))

    assert blob("image").bytes > 500_000
    assert blob("document").bytes > 2_000_000
    assert 40_000 <= blob("image", size=30_000).bytes < 41_000
    assert blob("document", size=3_000_000).held == 100_000
    # The service fetches it itself.
    url: Block = {"type": "image", "source": {"type": "url", "url": "https://x"}}
    assert weigh(row(1, "user", url)).bytes < 100
    assert weigh(row(1, "user", {"type": "image"})).images == 1


def test_markers_take_the_place_of_images_files_and_long_results() -> None:
    rows = (
        row(1, "user", text_block("see"), IMAGE, FILE),
        row(2, "assistant", {"type": "tool_use", "id": "c", "name": "look", "input": {}}),
        row(3, "user", history.result("c", [text_block("so " * 200), IMAGE], error=True)),
        row(4, "user", history.result("d", "short")),
    )
    assert sent(rows, Fit()) == rows
    shown = sent(rows, Fit(images=9))
    assert kinds(shown[:1]) == ["text", "-image", "-file"]
    (result,) = decode_blocks(shown[2].blocks)
    assert [part["type"] for part in result["content"]] == ["text", "text"]  # type: ignore[attr-defined]
    shown = sent(rows, Fit(results=9))
    (result,) = decode_blocks(shown[2].blocks)
    assert result == history.result("c", RESULT_LEFT, error=True)
    assert shown[3] == rows[3]
    assert sent(rows, Fit(images=1, results=3)) == rows


# ---------------------------------------------------------------------- tokens, as they are told


def request(text: str) -> Request:
    return Request(model="m", system=("s" * 100,), messages=[row(1, "user", text_block(text))])


def test_an_answer_tells_how_many_bytes_a_token_has() -> None:
    asked = request("x" * 7_873)  # 8,000 with the rest
    told = bytes_per_token(asked, Usage(500, 9, 500, 1_000))
    assert told == pytest.approx(4.0, abs=0.01)
    assert bytes_per_token(request("x"), Usage(10, 9)) is None
    # What cannot be is not believed.
    assert bytes_per_token(asked, Usage(300)) == 8.0
    assert bytes_per_token(asked, Usage(50_000)) == 1.0


def test_an_image_tells_nothing_of_the_text() -> None:
    asked = request("x" * 7_873)
    asked = replace(asked, messages=[*asked.messages, row(3, "user", IMAGE)])
    told = bytes_per_token(asked, Usage(2_000 + IMAGE_TOKENS))
    assert told == pytest.approx(4.0, abs=0.1)


def test_what_is_told_is_learned_slowly_and_used() -> None:
    assert learned(Fit(images=3), None) == Fit(images=3)
    once = learned(Fit(images=3), 4.0)
    assert once == Fit(images=3, bytes_per_token=4.0)
    assert learned(once, 2.0).bytes_per_token == 3.5
    rows = tuple(talk(10, text_block("x" * 270)))
    memory = ConversationMemory(max_tokens=1_000)
    assert len(memory.kept(rows, newest(21), Fit(bytes_per_token=4.0))[0]) == 20
    assert len(memory.kept(rows, newest(21), Fit(bytes_per_token=2.0))[0]) < 20


# ---------------------------------------------------------------------- the service's own summary


def test_where_the_service_has_compacted_the_window_begins() -> None:
    block: Block = {"type": "compaction", "content": "so far"}
    rows = tuple(talk(4, text_block("hi")))
    assert compacted(rows) == 0
    told = (*rows[:5], row(6, "assistant", block, text_block("ok")), *rows[6:])
    assert compacted(told) == 4
    memory = ConversationMemory(strategy="server")
    assert memory.kept(told) == (told[4:], Fit())
    # One that failed stands for nothing, nor does one that somebody speaks of.
    failed = (*rows[:5], row(6, "assistant", {**block, "content": None}, text_block("ok")))
    assert compacted(failed) == 0
    assert compacted((*rows, row(9, "assistant", text_block('"compaction"')))) == 0
    assert compacted((row(1, "assistant", block),)) == 0
    assert ConversationMemory().kept(told) == (told, Fit())


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": 0},
        {"max_bytes": 0},
        {"max_images": -1},
        {"strategy": "forget"},
        {"compact_at": 49_999},
    ],
)
def test_bounds_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        ConversationMemory(**wrong)


def test_a_chat_that_moves_takes_along_what_it_does_not_send() -> None:
    old = changes.begin(revision=1, epoch="a", now=0)
    said: list[tuple[Role, msgspec.Raw]] = [
        ("user", encode_blocks([IMAGE])),
        ("assistant", encode_blocks([text_block("ok")])),
    ]
    memory = ConversationMemory(4)
    new: Snapshot = changes.begin(revision=1, epoch="b", now=0)
    for _ in range(5):
        old = changes.append(old, said, Usage(), 0, memory)
        new = changes.append(new, said, Usage(), 0, memory)
    new = replace(new, fit=Fit(images=7, bytes_per_token=3.3))
    moved = changes.move(old, new, "k")
    assert moved.fit == Fit(images=17, bytes_per_token=3.3)
    assert moved.messages[0].seq == new.messages[0].seq + 10
