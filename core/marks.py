"""Where a request is marked for the provider's prompt cache. Pure functions on stored JSON.

A mark says "keep all up to here"; a later request that begins with the same bytes reads it. The
rules that decide the places are Anthropic's: at most four marks a request; what is kept is kept at
marks only; and the service looks back at most 20 blocks from a mark for what an earlier request
has kept there. Nothing is kept below a length that depends on the model, and marks cost nothing.

So one mark stands behind what no turn changes (tools, then system), and one on each of the last
three messages of the user's side: the last for the request that comes next, the one before it
because there the request before this one ended, however many blocks an answer with many calls and
their results has brought since, and one more for messages that came without an answer in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from core.messages import Message

MARK: Final = {"type": "ephemeral"}
IN_MESSAGES: Final = 3

_MARK: Final = b',"cache_control":{"type":"ephemeral"}'


def marked_rows(messages: Sequence[Message]) -> frozenset[int]:
    """Indexes of the messages whose last block bears a mark."""
    users = (i for i in range(len(messages) - 1, -1, -1) if messages[i].role == "user")
    return frozenset(index for index, _ in zip(users, range(IN_MESSAGES), strict=False))


def marked(blocks: msgspec.Raw) -> msgspec.Raw:
    """The blocks with a mark on the last one; as they are when they have one already."""
    raw = bytes(blocks)
    last = raw.rstrip(b" \t\r\n]")
    if b'"cache_control"' in raw or not last.endswith(b"}"):
        return blocks
    # All in front of the mark stays byte for byte as it was stored.
    return msgspec.Raw(last[:-1] + _MARK + b"}]")


def marked_tools(tools: Sequence[msgspec.Raw]) -> list[msgspec.Raw]:
    """The same tools, with a mark on the last one."""
    last = bytes(tools[-1]).rstrip()
    return [*tools[:-1], msgspec.Raw(last[:-1] + _MARK + b"}")]
