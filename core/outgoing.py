"""Files that a tool has for the person: noted in the tool's result, sent after the answer.

::

    @tool
    def chart(of: str) -> list[object]:
        return ["The last 30 days:", Image(png, name="chart.png", send=True)]

The bytes are a blob of the conversation; a block of the result names it and says that it is to be
sent. The block is kept with the step, so a crash loses nothing, and no request has it. What the
commit finds in its turn's steps becomes parts of the reply. Nothing is sent here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from core.blobs import is_id
from core.messages import File, Message, decode_blocks

MAX_FILES: Final = 10  # of one answer

_KEY: Final = "send"


def to_send(id: str, name: str, media_type: str) -> dict[str, object]:
    """The block that says so."""
    source = {"type": "blob", "id": id, "media_type": media_type}
    return {"type": "blob", "source": source, _KEY: name}


def blocks_to_send(blocks: Iterable[dict[str, object]]) -> list[dict[str, object]]:
    """Those among the blocks, and in the results among them."""
    found: list[dict[str, object]] = []
    for block in blocks:
        content = block.get("content")
        if block.get("type") == "tool_result" and isinstance(content, list):
            found += blocks_to_send(content)
        elif block.get("type") == "blob" and block.get(_KEY):
            found.append(block)
    return found


def files_of(steps: Sequence[Message]) -> tuple[File, ...]:
    """What is to be sent of a turn, in order, each once."""
    files: dict[File, None] = {}
    for step in steps:
        # Nothing that a person or a model writes is such a block, and nothing else is decoded.
        if step.role != "user" or b'"blob"' not in bytes(step.blocks):
            continue
        for block in blocks_to_send(decode_blocks(step.blocks)):
            source = block["source"]
            assert isinstance(source, dict)
            if is_id(source.get("id")):
                file = File(str(block[_KEY]), str(source["media_type"]), blob=str(source["id"]))
                files[file] = None
    return tuple(files)[:MAX_FILES]
