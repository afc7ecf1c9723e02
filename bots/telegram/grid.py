"""A table as lines of equal widths."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

# A wider cell is shown whole, but its neighbours are not padded to its width.
_MAX_COLUMN: Final = 40


class Cell(NamedTuple):
    text: str
    align: str


def grid(rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
    widths = [0] * max(map(len, rows))
    for row in rows:
        for column, cell in enumerate(row):
            widths[column] = max(widths[column], min(_width(cell.text), _MAX_COLUMN))
    for number, row in enumerate(rows):
        # Empty cells at the end would only be a tail of bars.
        filled = max((column + 1 for column, cell in enumerate(row) if cell.text), default=0)
        yield " | ".join(map(_pad, row[:filled], widths)).rstrip()
        if number == 0:
            yield "-+-".join("-" * width for width in widths)


def _pad(cell: Cell, width: int) -> str:
    missing = max(0, width - _width(cell.text))
    before = {"right": missing, "center": missing // 2}.get(cell.align, 0)
    return " " * before + cell.text + " " * (missing - before)


def _width(text: str) -> int:
    """Columns on a screen of equal widths, where CJK and emoji take two."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )
