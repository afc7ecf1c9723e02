"""Markdown cut into parts that Slack takes, each of them whole Markdown.

A part ends at the first good place behind a certain length, not at the last before the limit: so
where a growing text is cut does not change while it grows, and what was shown of it stays. An open
code fence is closed where a part ends and opened again in the next. What may go is white space
where two parts meet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import regex

# Slack takes 12,000 characters; in UTF-16, to be on the safe side. The rest is for fences.
MAX_UNITS: Final = 11_700
# Behind this a part ends at a paragraph, a line, a word, as shares of what it may hold.
_PARAGRAPH: Final = 0.77
_LINE: Final = 0.89
_WORD: Final = 0.96
_MAX_FENCE: Final = 64  # of what stands behind the signs of a fence, so much is said again

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
# What means something only as a whole.
_WHOLE: Final = re.compile(
    r"!?\[[^\[\]]{0,1000}\]\([^()\s]{0,2000}(?:\s[^()]{0,200})?\)"
    r"|(?<!`)(`{1,2})(?!`)[^`\n]{1,1000}\1|<[^<>\s]{1,2000}>|https?://[^\s<>]{1,2000}"
)
_GRAPHEME: Final = regex.compile(r"\X")


def split(text: str) -> tuple[str, ...]:
    """The parts, in order; () when there is nothing but white space."""
    return tuple(part for part, _ in pieces(text))


def pieces(text: str) -> Iterator[tuple[str, int]]:
    """Each part, and where in the text it ends."""
    at, fence = 0, ""
    while at < len(text):
        end = cut(text, at, fence)
        stop = len(text) if end is None else end
        after = fence_after(fence, text[at:stop])
        body = joined(fence, text[at:stop], "" if end is None else after)
        if body.strip():
            yield body, stop
        at, fence = next_start(text, stop, after), after


def joined(before: str, chunk: str, after: str) -> str:
    """A piece of text as Markdown of its own.

    :param before: the fence that is open where it begins, as `fence_after` names it
    :param after: the one that is open where it ends
    """
    head = f"{before}\n" if before else ""
    tail = f"\n{_signs(after)}" if after else ""
    return head + (chunk.rstrip("\n") if after else chunk.rstrip()) + tail


def cut(text: str, at: int, fence: str, *, growing: bool = False) -> int | None:
    """Where the part that begins at `at` ends; None when all the rest fits into it.

    :param fence: the fence that is open there
    :param growing: more may come: where it would end, should that become too much; None: not yet
    """
    limit = _reach(text, at)
    fits = limit == len(text)
    if fits and not growing:
        return None
    paragraph, line = _reach(text, at, _PARAGRAPH), _reach(text, at, _LINE)
    wholes = [found.span() for found in _WHOLE.finditer(text, at, min(len(text), limit + 3_000))]
    for end, inside, blank in _lines(text, at, limit, fence):
        within = any(first < end < last for first, last in wholes)
        if end >= line and not within:
            return end
        if end >= paragraph and blank and not inside and not within:
            return end
    for index in range(_reach(text, at, _WORD), limit):
        if text[index] in " \t\n" and not any(a < index < b for a, b in wholes):
            return index
    return None if fits else _anywhere(text, at, limit, wholes)


def fence_after(fence: str, chunk: str) -> str:
    """The line that has opened the fence which is open behind this chunk; empty: none is.

    :param fence: the one that was open before it
    """
    for line in chunk.split("\n"):
        fence = _fence_after_line(fence, line)
    return fence


def _fence_after_line(fence: str, line: str) -> str:
    found = _FENCE.match(line)
    if found is None:
        return fence
    signs, info = found[1], found[2].strip()
    if not fence:
        # A backtick behind it makes it code within a line.
        return "" if signs[0] == "`" and "`" in info else signs + info[:_MAX_FENCE]
    opened = _signs(fence)
    return "" if signs.startswith(opened) and not info else fence


def _signs(fence: str) -> str:
    found = _FENCE.match(fence)
    return found[1] if found else ""


def _lines(text: str, at: int, limit: int, fence: str) -> Iterator[tuple[int, bool, bool]]:
    """For each line: where it ends, whether that is within a fence, whether a blank one follows."""
    start = at
    while (end := text.find("\n", start, limit)) != -1:
        fence = _fence_after_line(fence, text[start:end])
        following = text.find("\n", end + 1)
        blank = not text[end + 1 : len(text) if following == -1 else following].strip()
        yield end, bool(fence), blank and following != -1
        start = end + 1


def _anywhere(text: str, at: int, limit: int, wholes: list[tuple[int, int]]) -> int:
    # A link that reaches beyond the limit goes into the next part, unless it fits into none.
    for start, last in wholes:
        if start < limit < last and start > at and last - start < limit - at:
            return start
    end = limit
    for found in _GRAPHEME.finditer(text, max(at, limit - 256)):
        if found.end() > limit:
            end = found.start()
            break
    return end if end > at else limit


def _reach(text: str, at: int, share: float = 1.0) -> int:
    """The furthest end of a part that begins at `at` and is as long as may be, or a share of it."""
    most = int(MAX_UNITS * share)
    window = text[at : at + most]
    # "ignore": half a pair at the end is left out.
    kept = window.encode("utf-16-le", "surrogatepass")[: 2 * most]
    return at + len(kept.decode("utf-16-le", "ignore"))


def next_start(text: str, at: int, fence: str) -> int:
    """Where the next part begins: in code only the end of a line is left out."""
    if fence:
        return at + 1 if text[at : at + 1] == "\n" else at
    rest = text[at:]
    blank = len(rest) - len(rest.lstrip())
    # An indented line stays so.
    return at + rest.rfind("\n", 0, blank) + 1 if "\n" in rest[:blank] else at + blank
