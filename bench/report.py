"""Goals, verdicts and tables, as Markdown that also reads well in a terminal."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Final, NamedTuple

from bench.measure import median
from bench.subject import Numbers

WIDTH: Final = 100
GOAL_COLUMNS: Final = ("what", "goal", "chinwag", "beside it", "ratio", "")


class Goal(NamedTuple):
    """One line with a verdict.

    :param beside: what was measured beside it, or what else there is to say
    :param met: None: reported only
    """

    what: str
    goal: str
    measured: str
    beside: str = ""
    ratio: str = ""
    met: bool | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        verdict = {True: "✓", False: "✗", None: ""}[self.met]
        return (*self[:5], verdict)


class Figure(NamedTuple):
    """
    :param text: what is measured, and how
    :param columns: of the table with everything that was measured
    """

    title: str
    text: str
    goals: Sequence[Goal]
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __str__(self) -> str:
        tables = [table(GOAL_COLUMNS, [goal.columns for goal in self.goals])] if self.goals else []
        text = textwrap.fill(self.text, WIDTH, break_on_hyphens=False)
        return "\n\n".join((f"## {self.title}", text, *tables, table(self.columns, self.rows)))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return f"| {' | '.join(padded)} |"

    return "\n".join((line(columns), line(["-" * width for width in widths]), *map(line, rows)))


# ---------------------------------------------------------------------- numbers


def middle(runs: Sequence[Numbers], name: str) -> float:
    """The median over the rounds."""
    return median([run.get(name, math.nan) for run in runs])


def ratio(ours: Sequence[Numbers], theirs: Sequence[Numbers], name: str) -> float:
    """The median of the ratios within each round."""
    return median([one[name] / other[name] for one, other in zip(ours, theirs, strict=False)])


def fixed(value: float, unit: str = "") -> str:
    """Three figures or so; a dash for what could not be measured."""
    if math.isnan(value):
        return "–"
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{min(digits, 3)}f}{unit}"


def ms(value: float) -> str:
    return fixed(value, " ms")


def size(value: float) -> str:
    """Bytes, in thousands or millions."""
    return fixed(value / 1e6, " MB") if value >= 1e6 else fixed(value / 1e3, " KB")


def times(value: float) -> str:
    return f"{value:.2f}x"


def at_most(value: float, bound: float) -> bool | None:
    return None if math.isnan(value) else value <= bound


def at_least(value: float, bound: float) -> bool | None:
    return None if math.isnan(value) else value >= bound
