"""What makes a history valid: whole exchanges, and every tool call answered. Pure functions.

Not a window (that is `memory.py`) and not a store: nothing here decides what is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec.structs import replace

from core.messages import Message, are_one_text, decode_blocks, encode_blocks
from core.pairs import paired

INTERRUPTED: Final = "interrupted, outcome unknown"

Block = dict[str, Any]

_UNDERSCORE: Final = ord("_")


def _may_hold(message: Message, kind: bytes) -> bool:
    # Inside a JSON string a quote is escaped, so this matches block types, and seldom more.
    return b'"' + kind + b'"' in bytes(message.blocks)


def calls(message: Message) -> list[Block]:
    """The tool calls of an answer, in order."""
    if message.role != "assistant" or not _may_hold(message, b"tool_use"):
        return []
    return [block for block in decode_blocks(message.blocks) if block.get("type") == "tool_use"]


def used_tools(messages: Sequence[Message]) -> bool:
    """Whether there is a call or a result of one in them."""
    return any(
        _may_hold(each, b"tool_use") or _may_hold(each, b"tool_result")
        for each in messages
        if _UNDERSCORE in bytes(each.blocks)
    )


def result(call_id: str, content: object, *, error: bool = False) -> Block:
    """A tool_result block; `content` is text or a list of blocks."""
    block: Block = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    return {**block, "is_error": True} if error else block


def begins_exchange(message: Message) -> bool:
    """Whether a person speaks here: tool results belong to the exchange before them."""
    if message.role != "user":
        return False
    if not _may_hold(message, b"tool_result"):
        return True
    return all(block.get("type") != "tool_result" for block in decode_blocks(message.blocks))


def exchanges(messages: Sequence[Message]) -> Iterator[int]:
    """Indexes at which an exchange begins."""
    return (index for index, message in enumerate(messages) if begins_exchange(message))


def last_exchange(messages: Sequence[Message]) -> int | None:
    """The index at which the last exchange with a person begins; None: there is none.

    A message that joined a running turn belongs to the exchange of that turn.
    """
    for index in range(len(messages) - 1, -1, -1):
        if begins_after(messages[index - 1] if index else None, messages[index]):
            return None if _is_seed(messages[index]) else index
    return None


def begins_after(before: Message | None, message: Message) -> bool:
    """Whether an exchange begins with the second of two messages that follow one another.

    It does not when a user message is before it: of a person whom somebody joined, or of results
    that had come in.
    """
    joined = before is not None and before.role == "user" and not _is_seed(before)
    return begins_exchange(message) and not joined


def _is_seed(message: Message) -> bool:
    """What a conversation began with was said by nobody."""
    return message.sender is None and begins_exchange(message)


def is_only_text(messages: Sequence[Message]) -> bool:
    """Whether a person begins, and nobody says anything but text, seen at a glance: nothing is to
    be repaired, no tool was used, and no blob is named. It may say no all the same."""
    return bool(messages) and messages[0].role == "user" and are_one_text(messages)


def repair(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The same history, made valid; itself when it is. Idempotent.

    An unanswered call gets the result "interrupted, outcome unknown", a result without its call
    is removed, and so is an empty message and what precedes the first message of a person. Calls
    that the provider runs itself keep their results, see `pairs.py`.
    """
    if _is_plain(messages):
        return tuple(messages)
    messages = paired(messages, list(exchanges(messages)))
    repaired: list[Message] = []
    waiting: list[str] = []
    for message in messages:
        if message.role == "assistant":
            if waiting:
                repaired.append(_results_only(message, waiting))
            if not repaired or _is_empty(message):
                waiting = []
                continue
            waiting = [str(call.get("id")) for call in calls(message)]
            repaired.append(message)
            continue
        answered = _answer(message, waiting)
        waiting = []
        if answered is not None:
            repaired.append(answered)
    if waiting:
        repaired.append(_results_only(repaired[-1], waiting))
    return tuple(repaired)


def _is_plain(messages: Sequence[Message]) -> bool:
    """No calls, no results, nothing empty, a person first: most histories, seen at a glance, for
    each request looks at all of them."""
    if not messages or messages[0].role != "user":
        return False
    # One byte is found much faster than several, and most messages have not even that one.
    for blocks in map(bytes, [message.blocks for message in messages]):
        if len(blocks) < 8 or (_UNDERSCORE in blocks and b"tool_" in blocks):
            return False
    return True


def _is_empty(message: Message) -> bool:
    blocks = bytes(message.blocks)
    return len(blocks) < 8 and b"".join(blocks.split()) == b"[]"


def _results_only(beside: Message, waiting: Sequence[str]) -> Message:
    results = [result(call_id, INTERRUPTED, error=True) for call_id in waiting]
    return replace(beside, role="user", blocks=encode_blocks(results), sender=None, message_ids=())


def _answer(message: Message, waiting: Sequence[str]) -> Message | None:
    """The user message with exactly the results that are waited for, before all else. Those that
    are there keep their order: a request that need not change is one the prompt cache knows."""
    if not waiting and not _may_hold(message, b"tool_result"):
        return None if _is_empty(message) else message
    blocks = decode_blocks(message.blocks)
    given: dict[str, Block] = {}
    others: list[Block] = []
    for block in blocks:
        if block.get("type") != "tool_result":
            others.append(block)
        elif (call := str(block.get("tool_use_id"))) in waiting:
            given.setdefault(call, block)
    for call in waiting:
        given.setdefault(call, result(call, INTERRUPTED, error=True))
    fixed = [*given.values(), *others]
    if fixed == blocks:
        return message
    return replace(message, blocks=encode_blocks(fixed)) if fixed else None
