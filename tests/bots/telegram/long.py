"""An answer of 50,000 characters with everything that is hard to cut: tables, nested lists, links,
code, quotes, and characters outside of the plane that Python counts as one."""

from __future__ import annotations

import random
import re
from typing import Final

CHARACTERS: Final = 50_000


def long_answer(seed: int = 7, characters: int = CHARACTERS) -> str:
    """Every word in it is another one: `w12`, in order, so that what is missing or twice shows."""
    chance = random.Random(seed)
    count = iter(range(1, 1_000_000))

    def words(many: int) -> str:
        return " ".join(
            f"w{next(count)}{chance.choice(['', '', '', '😀', '…'])}" for _ in range(many)
        )

    def paragraph() -> str:
        return f"{words(20)} **{words(4)} *{words(3)}*** {words(30)} `{words(2)}` {words(9)}."

    def nested() -> str:
        return "\n".join(
            f"{'  ' * (level % 4)}* {words(5)} [{words(2)}](https://example.org/a{level}?b=1)"
            for level in range(12)
        )

    def table() -> str:
        head = f"| {words(1)} | {words(1)} |\n|---|---:|\n"
        return head + "\n".join(f"| {words(2)} | {words(1)} |" for _ in range(15))

    def code() -> str:
        lines = (f"{'    ' * (line % 3)}{words(1)} = '{words(3)}'" for line in range(25))
        return "```python\n" + "\n".join(lines) + "\n```"

    def long_code() -> str:
        lines = (f"{words(8)};" for _ in range(110))
        return "```c\n" + "\n".join(lines) + "\n```"

    def quote() -> str:
        return "\n".join(f"> {words(12)}" for _ in range(5))

    kinds = (paragraph, nested, table, code, quote, paragraph, long_code)
    pieces: list[str] = []
    size = 0
    while size < characters:
        piece = kinds[len(pieces) % len(kinds)]()
        pieces.append(piece)
        size += len(piece) + 2
    return "\n\n".join(pieces)


def words_of(text: str) -> list[str]:
    return re.findall(r"w\d+", text)
