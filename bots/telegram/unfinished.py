"""Markdown that is still being written, made whole: what is open is closed, so that a growing
answer looks on its way as it will look in the end.

A guess by eye, not a parser: what it adds is marks, never words, and the finished answer is
rendered without it.
"""

from __future__ import annotations

import re
from typing import Final

_FENCE: Final = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_LAST_BLOCK: Final = re.compile(r"\n[ \t]*\n")
_TICKS: Final = re.compile(r"(?<!\\)`+")
# A link whose address is still coming, and an image the same.
_HALF_LINK: Final = re.compile(r"!?\[([^\[\]]*)\]\([^)\s]*$")
_RUN: Final = re.compile(r"(?<!\\)(\*+|_+|~~+)")
_BARE_END: Final = re.compile(r"(?:(?<=\s)|(?<![\s\S]))(?:[*_~]+|`+|#+|[-+]|\d+[.)]|>)\Z")


def closed(markdown: str) -> str:
    """The same text, with its open fence, code and marks closed, and without what only begins at
    its very end."""
    fence = _open_fence(markdown)
    if fence is not None:
        # The beginning of the closing fence is none of the code.
        return re.sub(r"\n[`~]{1,2}$", "", markdown) + "\n" + fence
    head, tail = _parted(markdown)
    tail = _BARE_END.sub("", tail.rstrip(" "))
    tail = _HALF_LINK.sub(r"\1", tail)
    ticks = _open_ticks(tail)
    if ticks:
        return head + tail + ticks
    return head + tail.rstrip(" ") + "".join(reversed(_open_marks(tail)))


def _open_fence(text: str) -> str | None:
    fence: str | None = None
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if found is None:
            continue
        if fence is None:
            fence = found[1]
        elif found[1].startswith(fence) and not line.strip().strip(fence[0]):
            fence = None
    return fence


def _parted(text: str) -> tuple[str, str]:
    """What is complete, and the block that grows: marks do not reach beyond one."""
    blocks = list(_LAST_BLOCK.finditer(text))
    at = blocks[-1].end() if blocks else 0
    return text[:at], text[at:]


def _open_ticks(text: str) -> str:
    """The run of backticks that has begun code and not ended it."""
    ticks = ""
    for found in _TICKS.finditer(text):
        if not ticks:
            ticks = found[0]
        elif found[0] == ticks:
            ticks = ""
    return ticks


def _open_marks(text: str) -> list[str]:
    """Marks of emphasis that still wait for their other half, outer first."""
    without_code = re.sub(r"(`+).*?\1", lambda found: "x" * len(found[0]), text, flags=re.S)
    waiting: list[str] = []
    for found in _RUN.finditer(without_code):
        sign, left = found[1][0], len(found[1])
        before = without_code[: found.start()][-1:]
        after = without_code[found.end() :][:1]
        if before and not before.isspace():
            left = _close(waiting, sign, left)
        if left and after and not after.isspace() and not (sign == "_" and before.isalnum()):
            # Three are bold and italic at once; of more than that nobody knows what they are.
            waiting += {1: [sign], 2: [sign * 2], 3: [sign * 2, sign]}.get(left, [])
    return waiting


def _close(waiting: list[str], sign: str, count: int) -> int:
    """Take out what a run of so many signs ends, from the inside. How many of them are left."""
    while waiting and waiting[-1][0] == sign and len(waiting[-1]) <= count:
        count -= len(waiting.pop())
    if count and sign * count in waiting:
        # What was opened after it will never be closed.
        del waiting[waiting.index(sign * count) :]
        return 0
    return count
