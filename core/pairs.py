"""Calls of server tools and their results: blocks of an answer that must stay together.

The provider runs such a call while it answers, so its result stands in the answer itself, or, after
a pause, in what follows of it. Pure functions; calls that we run are the affair of `history.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from core.messages import Message, decode_blocks, encode_blocks

Block = dict[str, Any]


def paired(messages: Sequence[Message], beginnings: Sequence[int]) -> Sequence[Message]:
    """The same history, each such call in it with its result; itself when that is so. A call whose
    answer was cut off goes, and so does a result without its call. In the last exchange calls may
    wait: that answer is still being made.

    :param beginnings: where exchanges begin
    """
    if not any(_may_hold(message) for message in messages):
        return messages
    whole: list[Message] = []
    bounds = [0, *(index for index in beginnings if index), len(messages)]
    for first, last in itertools.pairwise(bounds):
        exchange = messages[first:last]
        if any(_may_hold(message) for message in exchange):
            exchange = _exchange(exchange, goes_on=last == len(messages))
        whole += exchange
    return whole


def _may_hold(message: Message) -> bool:
    blocks = bytes(message.blocks)
    return message.role == "assistant" and (
        b'"server_tool_use"' in blocks or b'_tool_result"' in blocks
    )


def _exchange(messages: Sequence[Message], *, goes_on: bool) -> list[Message]:
    blocks = [decode_blocks(message.blocks) if _may_hold(message) else [] for message in messages]
    every = [block for each in blocks for block in each]
    going: list[Block] = []
    waiting: dict[str, Block] = {}
    for block in every:
        if block.get("type") == "server_tool_use":
            id = str(block.get("id"))
            going += [waiting.pop(id)] if id in waiting else []
            waiting[id] = block
        elif _is_result(block) and waiting.pop(str(block.get("tool_use_id")), None) is None:
            going.append(block)
    going += [] if goes_on else waiting.values()
    kept: list[Message] = []
    for message, its in zip(messages, blocks, strict=True):
        left = [block for block in its if not any(block is each for each in going)]
        if len(left) == len(its):
            kept.append(message)
        elif left:
            kept.append(replace(message, blocks=encode_blocks(left)))
    return kept


def _is_result(block: Block) -> bool:
    return str(block.get("type", "")).endswith("_tool_result")
