"""What a request sends of the blobs that its messages name: their bytes, as base64.

In a history a block only names its blob; it is filled in here, just before a request, and the same
history always gives the same bytes, so a prompt cache keeps what it knows. One that is gone, cannot
be read, or would make the request too large, is a line of text in its place: a turn never fails for
an old picture.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from core.errors import BlobUnreadable
from core.events import trouble
from core.messages import Message, decode_blocks, encode_blocks, text_block
from core.store import Blobs

MAX_BYTES: Final = 20 << 20  # of all blobs in a request, before they are encoded
MAX_TEXT: Final = 100_000

GONE: Final = "[{what} that was here is stored no longer]"
OLD: Final = "[{what} that was here is too old to be shown again]"

Block = dict[str, Any]


class Blobbed:
    """Fills in blobs, for one turn: what was read once is not read again.

    :param blobs: None: there are none, and those that a history names are gone
    """

    def __init__(self, blobs: Blobs | None, key: str) -> None:
        self._blobs = blobs
        self._key = key
        self._sizes: dict[str, int] = {}
        self._read: dict[str, str | None] = {}

    async def fill_in(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The same messages, when none names a blob.

        :raises StoreUnavailable: the store did not answer
        """
        # A list: it is looked through for each request, and mostly to its end.
        if not any([b'"blob"' in bytes(message.blocks) for message in messages]):
            return messages
        old = await self._too_old([id for message in messages for id in _shown(message)])
        return [
            replace(message, blocks=encode_blocks(self._filled(decode_blocks(message.blocks), old)))
            if _names_one(message)
            else message
            for message in messages
        ]

    async def _too_old(self, shown: Sequence[str]) -> set[str]:
        """Those that go when there are too many, oldest first; down to half of the bound, so that
        what is sent stays the same for many turns. The others are read.

        :param shown: in order
        """
        going = total = 0
        for index, id in enumerate(shown):
            if id not in self._sizes:
                await self._fetch(id)
            total += self._sizes[id]
            if total > MAX_BYTES:
                while total > MAX_BYTES // 2 and going < index:
                    total -= self._sizes[shown[going]]
                    # Not all of them are ever in memory.
                    self._read.pop(shown[going], None)
                    going += 1
        staying = set(shown[going:])
        for id in staying - self._read.keys():
            await self._fetch(id)
        return set(shown[:going]) - staying

    async def _fetch(self, id: str) -> None:
        data = self._read[id] = await self._encoded(id)
        self._sizes[id] = len(data or "") * 3 // 4

    async def _encoded(self, id: str) -> str | None:
        try:
            blob = await self._blobs.get(id) if self._blobs else None
        except BlobUnreadable as error:
            trouble("blob.unreadable", self._key, error=str(error))
            return None
        if blob is None:
            return None
        return (await asyncio.to_thread(base64.b64encode, blob.data)).decode()

    def _filled(self, blocks: Sequence[Block], old: set[str]) -> list[Block]:
        filled: list[Block] = []
        for block in blocks:
            if block.get("type") == "tool_result" and isinstance(block.get("content"), list):
                filled.append({**block, "content": self._filled(block["content"], old)})
            elif (id := _id_of(block)) is None:
                filled.append(block)
            elif block["type"] != "blob":
                filled.append(self._one(block, id, old))
        return filled

    def _one(self, block: Block, id: str, old: set[str]) -> Block:
        what = "An image" if block["type"] == "image" else "A document"
        data = self._read.get(id)
        if id in old or not data:
            return text_block((OLD if id in old else GONE).format(what=what))
        media_type = str(block["source"].get("media_type"))
        if media_type.startswith("text/"):
            text = base64.b64decode(data).decode(errors="replace")[:MAX_TEXT]
            source = {"type": "text", "media_type": "text/plain", "data": text}
        else:
            source = {"type": "base64", "media_type": media_type, "data": data}
        return {**block, "source": source}


def _names_one(message: Message) -> bool:
    return b'"blob"' in bytes(message.blocks)


def _id_of(block: Block) -> str | None:
    source = block.get("source")
    if isinstance(source, dict) and source.get("type") == "blob":
        return str(source.get("id"))
    return None


def _shown(message: Message) -> list[str]:
    """The blobs whose bytes a request sends, in order."""
    if not _names_one(message):
        return []
    ids: list[str] = []
    for block in decode_blocks(message.blocks):
        content = block.get("content")
        inner: list[Block] = content if isinstance(content, list) else []
        for each in (block, *inner):
            id = _id_of(each) if isinstance(each, dict) else None
            if id is not None and each["type"] != "blob":
                ids.append(id)
    return ids
