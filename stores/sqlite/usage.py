"""Rows of what model calls used: one a call, beside the conversations. Sync, and inside a
transaction that is open already.

Not what a save must know of a conversation: rows are only ever added, settled and summed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from core.usage import QUARTER, By, Spent, Sum, Usage

# What was said of a call stays: an estimate that comes late changes nothing.
ADD: Final = (
    "INSERT INTO usage(at, execution, call, key, sender, model, input, output, written, "
    "written_1h, read, searches, cost, estimated) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT DO UPDATE SET model = excluded.model, input = excluded.input, "
    "output = excluded.output, written = excluded.written, written_1h = excluded.written_1h, "
    "read = excluded.read, searches = excluded.searches, cost = excluded.cost, "
    "estimated = excluded.estimated WHERE estimated >= excluded.estimated"
)

_COLUMNS: Final = (
    "key, execution, call, at, model, input, output, written, read, written_1h, searches, cost, "
    "estimated, sender"
)

_GROUPS: Final = {
    "quarter": f"at / {QUARTER}",
    "key": "key",
    "sender": "sender",
    "model": "model",
}
# SQLite sums in 64 bits, and that is 9.2 million of any currency: in two halves it is enough.
_HALF: Final = 10**9


def rows(key: str, spent: Sequence[Spent]) -> list[tuple[object, ...]]:
    """As `ADD` takes them."""
    return [
        (
            row.at,
            row.execution,
            row.call,
            key,
            row.sender,
            row.model,
            row.usage.input_tokens,
            row.usage.output_tokens,
            row.usage.cache_creation_input_tokens,
            row.usage.cache_creation_1h_input_tokens,
            row.usage.cache_read_input_tokens,
            row.usage.web_searches,
            row.cost,
            row.estimated,
        )
        for row in spent
    ]


def page(
    database: sqlite3.Connection, after: tuple[int, str, int], limit: int
) -> list[tuple[str, Spent]]:
    """The next rows, in the order of the table.

    :param after: time, execution and call of the last one before
    """
    rows = database.execute(
        f"SELECT {_COLUMNS} FROM usage WHERE (at, execution, call) > (?, ?, ?) "
        "ORDER BY at, execution, call LIMIT ?",
        (*after, limit),
    ).fetchall()
    return [
        (key, Spent(execution, call, at, model, Usage(*used), cost, bool(estimated), sender))
        for key, execution, call, at, model, *used, cost, estimated, sender in rows
    ]


def add_missing(database: sqlite3.Connection, added: Sequence[tuple[str, Spent]]) -> None:
    """Those that are there stay."""
    add = ADD.partition(" ON CONFLICT")[0] + " ON CONFLICT DO NOTHING"
    database.executemany(add, [row for key, spent in added for row in rows(key, [spent])])


def sums(
    database: sqlite3.Connection,
    by: Sequence[By],
    since: int,
    until: int | None,
    key: str | None,
    sender: str | None,
) -> list[Sum]:
    columns = [_GROUPS[name] for name in by]
    grouped = f"GROUP BY {', '.join(columns)} ORDER BY {', '.join(columns)}" if by else ""
    rows = database.execute(
        f"SELECT {''.join(f'{column}, ' for column in columns)} count(*), sum(estimated), "
        f"sum(cost IS NULL), sum(input), sum(output), sum(written), sum(read), sum(written_1h), "
        f"sum(searches), sum(cost / {_HALF}), sum(cost % {_HALF}) FROM usage "
        "WHERE at >= ?1 AND (?2 IS NULL OR at < ?2) AND (?3 IS NULL OR key = ?3) "
        f"AND (?4 IS NULL OR sender = ?4) {grouped}",
        (since, until, key, sender),
    ).fetchall()
    found: list[Sum] = []
    for *group, calls, estimated, unpriced, i, o, w, r, h, searches, high, low in rows:
        if calls:
            found.append(
                Sum(
                    calls=calls,
                    estimated=estimated,
                    unpriced=unpriced,
                    usage=Usage(i, o, w, r, h, searches),
                    cost=(high or 0) * _HALF + (low or 0),
                    **dict(zip(by, group, strict=True)),
                )
            )
    return found


def erase(database: sqlite3.Connection, before: int, limit: int) -> int:
    """The oldest ones, as many of them as that. How many went."""
    return database.execute(
        "DELETE FROM usage WHERE (at, execution, call) IN (SELECT at, execution, call FROM usage "
        "WHERE at < ? ORDER BY at, execution, call LIMIT ?)",
        (before, limit),
    ).rowcount


def forget(database: sqlite3.Connection, sender: str) -> int:
    return database.execute(
        "UPDATE usage SET sender = NULL, key = '' WHERE sender = ?", (sender,)
    ).rowcount


def move(database: sqlite3.Connection, old: str, new: str) -> None:
    """See `stores.sqlite.move`. Reads all rows, once in the life of a chat."""
    database.execute(
        "UPDATE usage SET key = ?1 || substr(key, ?2) WHERE key = ?3 OR (key > ?4 AND key < ?5)",
        (new, len(old) + 1, old, f"{old}/", f"{old}0"),
    )
