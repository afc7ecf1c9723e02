"""How much of the benchmark is run, and what a figure asks of whoever runs it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from bench.subject import Numbers, Spec


class Effort(NamedTuple):
    """How much is run."""

    rounds: int
    turns: int
    each: int  # turns of each chat when all come at once
    loads: int
    stored: int
    peers: bool
    spare: float  # seconds that runs may take which met a busy machine and are run again


FULL: Final = Effort(
    rounds=3, turns=200, each=20, loads=100, stored=100_000, peers=True, spare=120.0
)
QUICK: Final = Effort(
    rounds=1, turns=100, each=10, loads=40, stored=20_000, peers=False, spare=15.0
)


class Bench(Protocol):
    effort: Effort

    def run(self, spec: Spec) -> Numbers:
        """In a process of its own.

        :raises Failed: it gave no numbers; the text says why
        """
        ...

    def beside(self, specs: Sequence[Spec]) -> list[Numbers]:
        """What is compared with each other: block by block in turns, or one right after the
        other. Once more when the machine was much busier than at its best, if there is time.

        :raises Failed: one of them
        """
        ...

    def folder(self, name: str) -> Path:
        """One that lasts for the whole benchmark."""
        ...


class Failed(Exception):
    """A run gave no numbers."""
