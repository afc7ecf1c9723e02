"""What a request to the stand-in for Claude costs, in tokens, and what of it comes from the cache.

By the rules of the API's documentation ("Prompt caching"): the prompt is a row of blocks (tools,
system, messages); what is kept is kept at a mark, up to and with its block; from each mark the
service looks back at most 20 blocks for what an earlier request has kept; nothing shorter than a
length that depends on the model is kept. A client whose requests do not share their beginnings, or
that marks them badly, so sees it in the numbers. Not a tokenizer, and nothing kept ever grows old.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from playground.claude_wire import Json, tokens

LOOKBACK = 20
SHORTEST = 1024  # tokens; of the current models, Haiku wants more
# The real service never counts 0 tokens behind the last cache mark.
_UNCACHED_TAIL = 3
_MOST_KEPT = 20_000
# What stands in front of the messages in the cache, though it is no text of the prompt: another
# value is another conversation to the service, with the same tools and system.
_BEFORE_MESSAGES = ("tool_choice", "thinking")


@dataclass(frozen=True)
class Block:
    """One block of a prompt.

    :param text: what the model reads of it
    :param digest: of this block and all before it
    """

    text: str
    digest: str
    marked: bool = False


class Cache:
    """What was kept, told by model and by all that stands before its mark."""

    def __init__(self, shortest: int = SHORTEST) -> None:
        self._shortest = shortest
        self._kept: dict[str, None] = {}

    def usage(self, request: Json, prompt: str) -> dict[str, int]:
        """Input tokens: read from what was kept, newly kept, and the rest.

        :param prompt: the whole as one text; see `prompt_of`
        """
        total = tokens(prompt)
        blocks = blocks_of(request)
        ends = _ends(blocks, total)
        marks = [index for index, block in enumerate(blocks) if block.marked]
        read = max((self._found(mark, blocks, ends) for mark in marks), default=0)
        kept = 0
        for mark in marks:
            if ends[mark] >= self._shortest:
                kept = ends[mark]
                self._kept.pop(blocks[mark].digest, None)
                self._kept[blocks[mark].digest] = None
        while len(self._kept) > _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        kept = max(read, kept)
        return {
            "input_tokens": total - kept,
            "cache_creation_input_tokens": kept - read,
            "cache_read_input_tokens": read,
        }

    def _found(self, mark: int, blocks: list[Block], ends: list[int]) -> int:
        for index in range(mark, max(-1, mark - LOOKBACK), -1):
            if blocks[index].digest in self._kept:
                return ends[index]
        return 0


def blocks_of(request: Json) -> list[Block]:
    """The prompt's blocks in the order in which the service builds its cache."""
    digest = hashlib.sha256(str(request["model"]).encode())
    blocks: list[Block] = []

    def add(around: str, value: Any, mark: bool) -> None:
        text = f"{around},{_dump(_plain(value))}"
        digest.update(f"\0{text}".encode("utf-8", "surrogatepass"))
        blocks.append(Block(text, digest.copy().hexdigest(), mark))

    for tool in request.get("tools") or ():
        add("", tool, _has_mark(tool))
    digest.update(b"\0system")
    for block in _listed(request.get("system")):
        add("", block, _has_mark(block))
    before = [request.get(name) for name in _BEFORE_MESSAGES]
    if any(before):
        digest.update(_dump(before).encode("utf-8", "surrogatepass"))
    for message in request["messages"]:
        for number, block in enumerate(_listed(message["content"])):
            # What a message has around its blocks is counted with the first of them.
            role = f'{{"role":"{message["role"]}","content":[],' if number == 0 else ""
            add(role, block, _has_mark(block))
    if request.get("cache_control") and blocks:
        last = blocks.pop()
        blocks.append(Block(last.text, last.digest, True))
    return blocks


def prompt_of(request: Json) -> str:
    """The request as one text, in the order in which the real service builds its cache."""
    return _dump([_plain(request.get(name)) for name in ("tools", "system", "messages")])


def _ends(blocks: list[Block], total: int) -> list[int]:
    """How many tokens there are up to the end of each block."""
    ends: list[int] = []
    length = 0
    for block in blocks:
        length += len(block.text)
        ends.append(min(length // 4, max(0, total - _UNCACHED_TAIL)))
    return ends


def _listed(content: Any) -> list[Any]:
    if not content:
        return []
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _plain(value: Any) -> Any:
    """Without cache marks, which move from request to request, and with files made small."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        kept = {key: _plain(item) for key, item in value.items() if key != "cache_control"}
        if kept.get("type") == "base64" and isinstance(kept.get("data"), str):
            kept["data"] = _digest(kept["data"])
        return kept
    return value


def _has_mark(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_has_mark, value))
    if isinstance(value, dict):
        return bool(value.get("cache_control")) or any(map(_has_mark, value.values()))
    return False


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]
