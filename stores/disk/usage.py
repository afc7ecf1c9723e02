"""What model calls used, in a DiskStore: a file a month, to which each save adds its lines.

Synchronous, like `files.py`: it runs in the store's one thread. A line written later takes the
place of an earlier one of the same call. What a crash cut off in the middle is no line: its save
had not been acknowledged, and nothing else is lost by it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from core.usage import By, Spent, Sum, add_up, newer
from stores.disk.envelope import for_the_owner, read_file, sync_folder, write_file


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was used, and in which conversation."""

    key: str
    spent: Spent


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Line).decode

Rows = dict[tuple[str, int], Line]


class UsageFiles:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, key: str, spent: Sequence[Spent]) -> None:
        """Durable when it returns."""
        for row in spent:
            file = self.folder / f"{_month(row.at)}.jsonl"
            new = not file.exists()
            with open(file, "ab", opener=for_the_owner) as out:
                # A line of its own, whatever a crash has left behind.
                out.write(b"\n" + _encode(Line(key, row)) + b"\n")
                out.flush()
                os.fsync(out.fileno())
            if new:
                sync_folder(self.folder)

    def add_missing(self, rows: Sequence[tuple[str, Spent]]) -> None:
        """Those that are there stay. A file is written once for all of its rows."""
        months: dict[Path, list[Line]] = {}
        for key, row in rows:
            months.setdefault(self.folder / f"{_month(row.at)}.jsonl", []).append(Line(key, row))
        for file, lines in months.items():
            there = _rows(file)
            new = {(line.spent.execution, line.spent.call): line for line in lines}
            write_file(file, _written(new | there))

    def months(self) -> list[Path]:
        return self._files()

    def rows(self, month: Path) -> list[tuple[str, Spent]]:
        return [(line.key, line.spent) for line in _rows(month).values()]

    def sums(
        self, by: Sequence[By], since: int, until: int | None, key: str | None, sender: str | None
    ) -> list[Sum]:
        return add_up(
            (
                (line.key, line.spent)
                for file in self._files()
                if file.stem >= _month(since)
                for line in _rows(file).values()
                if since <= line.spent.at
                and (until is None or line.spent.at < until)
                and key in (None, line.key)
                and sender in (None, line.spent.sender)
            ),
            by,
        )

    def forget(self, sender: str) -> int:
        count = 0
        for file in self._files():
            rows = _rows(file)
            theirs = {name: line for name, line in rows.items() if line.spent.sender == sender}
            if theirs:
                # Lines that another one has replaced name the person, too: the file is made anew.
                rows |= {
                    name: Line("", replace(line.spent, sender=None))
                    for name, line in theirs.items()
                }
                write_file(file, _written(rows))
                count += len(theirs)
        return count

    def erase(self, file: Path, before: int) -> int:
        """Of one month's, those of calls before then."""
        rows = _rows(file)
        left = {name: line for name, line in rows.items() if line.spent.at >= before}
        if len(left) == len(rows):
            return 0
        if left:
            write_file(file, _written(left))
        else:
            file.unlink()
            sync_folder(self.folder)
        return len(rows) - len(left)

    def moved(self, old: str, new: str) -> Iterator[tuple[Path, bytes]]:
        """Each file that names a conversation that moves, and what it holds afterwards."""
        for file in self._files():
            rows = _rows(file)
            theirs = {
                name: Line(new + line.key[len(old) :], line.spent)
                for name, line in rows.items()
                if line.key == old or line.key.startswith(f"{old}/")
            }
            if theirs:
                yield file, _written(rows | theirs)

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.jsonl"))


def _month(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m")


def _rows(file: Path) -> Rows:
    rows: Rows = {}
    for text in (read_file(file) or b"").splitlines():
        try:
            line = _decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # empty, or cut off by a crash
        name = (line.spent.execution, line.spent.call)
        before = rows.get(name)
        key = before.key if before else line.key
        rows[name] = Line(key, newer(before.spent if before else None, line.spent))
    return rows


def _written(rows: Rows) -> bytes:
    return b"".join(_encode(line) + b"\n" for line in rows.values())
