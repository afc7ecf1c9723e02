"""A text with marked spans, cut into the parts that Telegram takes.

Everything here counts in code points until the last step, where a part is written down in
Telegram's unit, UTF-16. It knows nothing of Markdown and adds no words; what may go is white space
where two parts meet, and characters that Telegram shows as nothing.
"""

from __future__ import annotations

import json
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import regex

MAX_UNITS: Final = 4096
# Not documented; what lies beyond the hundredth is not shown.
MAX_ENTITIES: Final = 100

# Not an entity: what belongs together and should not meet the end of a part, such as the label of
# a link and the host it leads to.
TOGETHER: Final = "together"
# Alone in that it may be cut although it fits into a part: a quote reads well on both sides.
_QUOTE: Final = "blockquote"
_BLOCKS: Final = frozenset({"pre", _QUOTE})

_JOINS: Final = r"[\p{GCB=Extend}\p{GCB=SpacingMark}\p{GCB=ZWJ}]"
# White space that carries a combining mark is the base of a grapheme, not a gap.
_BLANK: Final = rf"(?:\n|\s(?!{_JOINS}))"
_FREE: Final = r"(?<!\p{GCB=Prepend})"
_LEADING: Final = regex.compile(rf"{_BLANK}*")
_NEWLINES: Final = regex.compile(r"\n*")
# Where to cut, best first. A cut is where the match starts.
_BREAKS: Final = (
    regex.compile(r"(?<!\n)\n(?=[ \t]*\n)"),
    regex.compile(r"\n"),
    regex.compile(
        rf"(?<=[.!?…]['\"’”»)\]]{{0,3}}){_FREE}{_BLANK}|(?<=[。！？][」』”’）]{{0,3}})(?!\p{{P}}|{_JOINS})"
    ),
    regex.compile(rf"{_FREE}(?<!\s){_BLANK}"),
)
_GRAPHEME: Final = regex.compile(r"\X")


@dataclass(frozen=True, slots=True)
class Span:
    """``text[start:end]`` is of this ``kind``: an entity type of Telegram's, or TOGETHER.

    ``argument`` is the address of a text_link, the language of a pre, else empty.
    """

    kind: str
    start: int
    end: int
    argument: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """What is to be said. Spans lie within the text and are nested, never crossed."""

    text: str
    spans: tuple[Span, ...] = ()


def units(text: str) -> int:
    """How long Telegram takes the text to be: UTF-16 code units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def visible(text: str) -> bool:
    """Whether anything is to be seen. Telegram refuses a message of which that is not so."""
    return any(
        not (char.isspace() or char in "\u2800\ufffc" or unicodedata.category(char) == "Cf")
        for char in text
    )


def split(page: Page) -> tuple[str, ...]:
    """The parts as Telegram's JSON, in order; () when there is nothing to be seen."""
    spans = _tidy(page)
    return tuple(
        _encode(page.text[start:end], _clip(page.text, open_spans, start, end))
        for start, end, open_spans in _parts(page.text, spans)
        if visible(page.text[start:end])
    )


def _tidy(page: Page) -> list[Span]:
    """The spans without white space at their edges, outer before inner."""
    trimmed = (_trim(page.text, span) for span in page.spans)
    return sorted(
        (span for span in trimmed if span.start < span.end),
        key=lambda span: (span.start, -span.end),
    )


def _trim(text: str, span: Span) -> Span:
    body = text[span.start : span.end]
    end = span.start + len(body.rstrip())
    # The first line of code may be indented, in a quote too, and Telegram leaves that in place.
    start = span.end - len(body.lstrip("\n") if span.kind in _BLOCKS else body.lstrip())
    return Span(span.kind, start, max(start, end), span.argument)


def _parts(text: str, spans: Sequence[Span]) -> Iterator[tuple[int, int, list[Span]]]:
    """(start, end, the spans that may lie between), without white space around."""
    zones = _zones(text, spans)
    zone_starts = [zone.start for zone in zones]
    current: list[Span] = []
    coming = 0
    at = 0
    while True:
        current = [span for span in current if span.end > at]
        while coming < len(spans) and spans[coming].start <= at:
            current.append(spans[coming])
            coming += 1
        at = _skip_blank(text, at, current, spans[coming] if coming < len(spans) else None)
        if at >= len(text):
            return
        limit = _fewer_entities(spans, coming, current, _reach(text, at))
        end = len(text) if limit == len(text) else _cut(text, at, limit, zones, zone_starts)
        while coming < len(spans) and spans[coming].start < end:
            current.append(spans[coming])
            coming += 1
        shown = len(text[at:end].rstrip())
        yield at, at + shown, current
        at = end


def _zones(text: str, spans: Sequence[Span]) -> list[Span]:
    """The outermost spans that fit into a part and must not be cut: apart, in order."""
    zones: list[Span] = []
    last = 0
    for span in spans:
        if span.start < last or span.kind == _QUOTE or span.end - span.start > MAX_UNITS:
            continue
        if units(text[span.start : span.end]) <= MAX_UNITS:
            zones.append(span)
            last = span.end
    return zones


def _skip_blank(text: str, at: int, current: Sequence[Span], following: Span | None) -> int:
    """Where the next part begins. Within code only line ends are skipped, indentation stays."""
    if any(span.kind == "pre" and span.start <= at < span.end for span in current):
        return _end(_NEWLINES, text, at)
    end = _end(_LEADING, text, at)
    return end if following is None else min(end, following.start)


def _end(pattern: regex.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return at if match is None else match.end()


def _reach(text: str, at: int) -> int:
    """The furthest end of a part that starts at ``at``, by length alone."""
    window = text[at : at + MAX_UNITS]
    # "ignore": half a pair at the end is left out.
    kept = window.encode("utf-16-le")[: 2 * MAX_UNITS].decode("utf-16-le", "ignore")
    return at + len(kept)


def _fewer_entities(spans: Sequence[Span], coming: int, current: Sequence[Span], limit: int) -> int:
    """The limit, drawn in to where one entity too many would begin."""
    room = MAX_ENTITIES - sum(span.kind != TOGETHER for span in current)
    for index in range(coming, len(spans)):
        span = spans[index]
        if span.start >= limit:
            break
        room -= span.kind != TOGETHER
        if room < 0:
            return span.start
    return limit


def _cut(text: str, at: int, limit: int, zones: Sequence[Span], starts: Sequence[int]) -> int:
    """Where to end the part that starts at ``at``: at < cut <= limit.

    The latest good place in the second half of the part is taken before a better one in the first
    half, so that parts are few; a span that fits into a part is cut only when nothing else is left.
    """

    def whole(cut: int) -> bool:
        index = bisect_left(starts, cut) - 1
        return index < 0 or cut >= zones[index].end

    middle = at + (limit - at) // 2
    places = [list(_places(pattern, text, at, limit)) for pattern in _BREAKS]
    for floor in (middle, at):
        for found in places:
            for cut in reversed(found):
                if cut <= floor:
                    break
                if whole(cut):
                    return cut
    graphemes = list(_graphemes(text, at, limit))
    for cut in reversed(graphemes):
        if whole(cut):
            return cut
    for found in (*places, graphemes):
        if found:
            return found[-1]
    return limit


def _places(pattern: regex.Pattern[str], text: str, at: int, limit: int) -> Iterator[int]:
    # Two more, for the patterns look one character beyond what they match.
    for match in pattern.finditer(text, at + 1, min(len(text), limit + 2)):
        if match.start() <= limit:
            yield match.start()


def _graphemes(text: str, at: int, limit: int) -> Iterator[int]:
    """The ends of the graphemes; ``at`` is the start of one."""
    # One more: whether a grapheme ends at the limit is for the character behind it to say.
    for match in _GRAPHEME.finditer(text, at, min(len(text), limit + 1)):
        if match.start() > at:
            yield match.start()


def _clip(text: str, spans: Sequence[Span], start: int, end: int) -> list[Span]:
    """The entities of one part, counted from its start; a span that was cut is closed here."""
    clipped = (
        _trim(text, Span(span.kind, max(span.start, start), min(span.end, end), span.argument))
        for span in spans
        if span.kind != TOGETHER and span.start < end and span.end > start
    )
    shifted = (
        Span(span.kind, span.start - start, span.end - start, span.argument)
        for span in clipped
        if span.start < span.end
    )
    return sorted(shifted, key=lambda span: (span.start, -span.end, span.kind != _QUOTE))


def _encode(text: str, spans: Sequence[Span]) -> str:
    message: dict[str, object] = {"text": text}
    if spans:
        offsets = list(accumulate((1 + (char > "\uffff") for char in text), initial=0))
        message["entities"] = [_entity(span, offsets) for span in spans]
    return json.dumps(message, ensure_ascii=False, separators=(",", ":"))


def _entity(span: Span, offsets: Sequence[int]) -> dict[str, str | int]:
    offset = offsets[span.start]
    entity: dict[str, str | int] = {
        "type": span.kind,
        "offset": offset,
        "length": offsets[span.end] - offset,
    }
    if span.argument:
        entity["language" if span.kind == "pre" else "url"] = span.argument
    return entity
