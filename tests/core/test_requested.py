"""What is sent of the blobs that a history names."""

from __future__ import annotations

import base64
import logging
from typing import Any

import pytest
from msgspec import Raw

from core import requested
from core.errors import BlobUnreadable, StoreUnavailable
from core.history import result
from core.messages import Message, decode_blocks, encode_blocks, text_block
from core.requested import Blobbed
from core.store import Blob
from stores.memory import MemoryStore

Block = dict[str, Any]


class Watched:
    """Blobs that note what was asked for.

    :param broken: what comes instead of the blob
    """

    def __init__(self, broken: Exception | None = None) -> None:
        self.inside = MemoryStore().blobs
        self.asked: list[str] = []
        self.broken = broken

    async def put(self, key: str, data: bytes, media_type: str) -> str:
        return await self.inside.put(key, data, media_type)

    async def get(self, id: str) -> Blob | None:
        self.asked.append(id)
        if self.broken:
            raise self.broken
        return await self.inside.get(id)

    async def sweep(self, before: int) -> int:
        return await self.inside.sweep(before)


def block(id: str, kind: str = "image", media_type: str = "image/png") -> Block:
    return {"type": kind, "source": {"type": "blob", "id": id, "media_type": media_type}}


def message(*blocks: Block, seq: int = 1) -> Message:
    return Message(seq=seq, role="user", blocks=encode_blocks(blocks), at=0)


def base64_of(data: bytes, kind: str = "image", media_type: str = "image/png") -> Block:
    text = base64.b64encode(data).decode()
    return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": text}}


async def sent(blobs: Watched | None, *messages: Message) -> list[list[Block]]:
    filled = await Blobbed(blobs, "t:1").fill_in(messages)
    return [decode_blocks(each.blocks) for each in filled]


async def test_a_history_without_blobs_is_sent_as_it_is() -> None:
    verbatim = Message(seq=1, role="user", blocks=Raw(b'[ {"type" : "text", "text":"a"} ]'), at=0)
    messages = (verbatim,)
    blobs = Watched()
    assert await Blobbed(blobs, "t:1").fill_in(messages) is messages
    assert blobs.asked == []


async def test_blobs_become_base64_wherever_they_are() -> None:
    blobs = Watched()
    ids = [await blobs.put("t:1", data, "image/png") for data in (b"one", b"two", b"three")]
    pdf = {**block(ids[1], "document", "application/pdf"), "title": "a.pdf"}
    messages = (
        message(text_block("look"), block(ids[0]), pdf),
        message(result("c1", [block(ids[2]), text_block("that")]), result("c2", "text"), seq=2),
        message(text_block('the word "blob" alone'), seq=3),
    )
    assert await sent(blobs, *messages) == [
        [
            text_block("look"),
            base64_of(b"one"),
            {**base64_of(b"two", "document", "application/pdf"), "title": "a.pdf"},
        ],
        [result("c1", [base64_of(b"three"), text_block("that")]), result("c2", "text")],
        [text_block('the word "blob" alone')],
    ]


async def test_the_same_history_gives_the_same_bytes_and_is_read_once() -> None:
    blobs = Watched()
    id = await blobs.put("t:1", b"one", "image/png")
    one = message(block(id), block(id))
    filling = Blobbed(blobs, "t:1")
    first = await filling.fill_in((one,))
    second = await filling.fill_in((one, message(text_block("more"), seq=2)))
    assert bytes(first[0].blocks) == bytes(second[0].blocks)
    assert blobs.asked == [id]


async def test_a_text_is_sent_as_text() -> None:
    blobs = Watched()
    id = await blobs.put("t:1", "grün".encode() + b"\xff", "text/csv")
    ((filled,),) = await sent(blobs, message(block(id, "document", "text/csv")))
    assert filled["source"] == {"type": "text", "media_type": "text/plain", "data": "grün\ufffd"}


async def test_what_is_only_kept_is_never_sent() -> None:
    blobs = Watched()
    id = await blobs.put("t:1", b"all of it", "text/plain")
    content = [text_block("the beginning"), block(id, "blob")]
    assert await sent(blobs, message(result("c1", content))) == [
        [result("c1", [text_block("the beginning")])]
    ]
    assert blobs.asked == []


@pytest.mark.parametrize("blobs", [None, Watched(), Watched(BlobUnreadable("damaged"))])
async def test_one_that_is_not_there_is_a_sentence(
    blobs: Watched | None, caplog: pytest.LogCaptureFixture
) -> None:
    gone = "sha256:" + "0" * 64
    with caplog.at_level(logging.WARNING, "chinwag"):
        filled = await sent(blobs, message(block(gone), block(gone, "document")))
    assert filled == [
        [
            text_block("[An image that was here is stored no longer]"),
            text_block("[A document that was here is stored no longer]"),
        ]
    ]
    broken = blobs is not None and blobs.broken is not None
    assert [record.message for record in caplog.records] == ["blob.unreadable"] * broken


async def test_a_store_that_does_not_answer_is_heard_of() -> None:
    with pytest.raises(StoreUnavailable):
        await sent(Watched(StoreUnavailable("locked")), message(block("sha256:" + "0" * 64)))


async def test_the_oldest_go_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the bound at once: most turns find what the turn before them has sent."""
    monkeypatch.setattr(requested, "MAX_BYTES", 40)
    blobs = Watched()
    ids = [await blobs.put("t:1", b"%9d" % number, "image/png") for number in range(12)]
    old = text_block("[An image that was here is too old to be shown again]")
    sizes: list[int] = []
    for count in range(1, 13):
        messages = [message(block(id), seq=seq) for seq, id in enumerate(ids[:count])]
        filled = await sent(blobs, *messages)
        gone = [each == [old] for each in filled]
        assert gone == sorted(gone, reverse=True)
        assert filled[-1] != [old]
        sizes.append(gone.count(True))
    assert sizes == [0, 0, 0, 0, 3, 3, 3, 6, 6, 6, 9, 9]


async def test_one_that_is_shown_again_is_not_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requested, "MAX_BYTES", 40)
    blobs = Watched()
    ids = [await blobs.put("t:1", b"%9d" % number, "image/png") for number in range(5)]
    filling = Blobbed(blobs, "t:1")
    shown = [message(block(id), seq=seq) for seq, id in enumerate([*ids, ids[0]])]
    for _ in range(2):
        filled = [decode_blocks(each.blocks) for each in await filling.fill_in(shown)]
        assert filled[-1] == filled[0] == [base64_of(b"%9d" % 0)]
        assert filled[1][0]["type"] == "text"
