"""What a request to the stand-in for Claude costs, in tokens, and what of it comes from the cache.

Deterministic and roughly right, so that a client whose requests do not share their beginnings shows
it in the numbers. Not a tokenizer, and no cache entry ever grows old.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from playground.claude_wire import Json, tokens

# The real service never counts 0 tokens behind the last cache mark.
_UNCACHED_TAIL = 3
_MOST_CONVERSATIONS = 256


class Cache:
    """The last prompt of each conversation, which is told by its first message."""

    def __init__(self) -> None:
        self._prompts: dict[str, str] = {}

    def usage(self, request: Json, prompt: str) -> dict[str, int]:
        """Input tokens. With a cache mark anywhere in the request, what it has in common with the
        previous one that began with the same message is read, and the rest is written."""
        first = _digest(_dump([request["model"], _plain(request["messages"][0])]))
        before = self._prompts.pop(first, "")
        self._prompts[first] = prompt
        if len(self._prompts) > _MOST_CONVERSATIONS:
            del self._prompts[next(iter(self._prompts))]
        total, read, written = tokens(prompt), 0, 0
        if _has_mark(request):
            cached = max(0, total - _UNCACHED_TAIL)
            read = min(cached, _common(before, prompt) // 4)
            written = cached - read
        return {
            "input_tokens": total - read - written,
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": read,
        }


def prompt_of(request: Json) -> str:
    """The request as one text, in the order in which the real service builds its cache."""
    return _dump([_plain(request.get(name)) for name in ("tools", "system", "messages")])


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


def _common(one: str, other: str) -> int:
    """The length of the longest common beginning, by halving: the texts may be megabytes long."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]
