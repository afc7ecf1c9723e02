"""Rows of what model calls used: one a call, beside the conversations; only ever added, settled and
summed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import psycopg

from core.usage import QUARTER, By, Spent, Sum, Usage

_COLUMNS: Final = (
    ("execution", "text"),
    ("call", "integer"),
    ("at", "bigint"),
    ("sender", "text"),
    ("model", "text"),
    ("input", "bigint"),
    ("output", "bigint"),
    ("written", "bigint"),
    ("written_1h", "bigint"),
    ("read", "bigint"),
    ("searches", "bigint"),
    ("cost", "bigint"),
    ("estimated", "boolean"),
)
_NAMES: Final = ", ".join(name for name, _ in _COLUMNS)
_ARRAYS: Final = ", ".join(f"%(usage_{name})s::{kind}[]" for name, kind in _COLUMNS)
_SETTLED: Final = ("model", "input", "output", "written", "written_1h", "read", "searches", "cost")
# What was said of a call stays: an estimate that comes late changes nothing.
ADD: Final = f"""
    INSERT INTO usage(key, {_NAMES})
    SELECT %(key)s, u.* FROM s, unnest({_ARRAYS}) AS u({_NAMES})
    ON CONFLICT(execution, call) DO UPDATE
    SET {", ".join(f"{name} = excluded.{name}" for name in (*_SETTLED, "estimated"))}
    WHERE usage.estimated OR NOT excluded.estimated
"""

_GROUPS: Final = {
    "quarter": f"at / {QUARTER}",
    "key": "key",
    "sender": "sender",
    "model": "model",
}


def arrays(spent: Sequence[Spent]) -> dict[str, object]:
    """As `ADD` takes them; of two rows of one call the later one."""
    rows = list({(row.execution, row.call): row for row in spent}.values())
    values = [
        (
            row.execution,
            row.call,
            row.at,
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
        for row in rows
    ]
    return {
        f"usage_{name}": [value[place] for value in values]
        for place, (name, _) in enumerate(_COLUMNS)
    }


async def page(
    connection: psycopg.AsyncConnection[Any], after: tuple[str, int], limit: int
) -> list[tuple[str, Spent]]:
    """The next rows, in the order of the table.

    :param after: execution and call of the last one before
    """
    found = await connection.execute(
        "SELECT key, execution, call, at, model, input, output, written, read, written_1h, "
        "searches, cost, estimated, sender FROM usage WHERE (execution, call) > (%s, %s) "
        "ORDER BY execution, call LIMIT %s",
        (*after, limit),
    )
    rows = await found.fetchall()
    return [
        (key, Spent(execution, call, at, model, Usage(*used), cost, estimated, sender))
        for key, execution, call, at, model, *used, cost, estimated, sender in rows
    ]


async def add_missing(connection: psycopg.AsyncConnection[Any], key: str, row: Spent) -> None:
    """One that is there stays."""
    await connection.execute(
        f"WITH s AS (SELECT 1) {ADD.partition('DO UPDATE')[0]} DO NOTHING",
        {"key": key, **arrays([row])},
    )


async def sums(
    connection: psycopg.AsyncConnection[Any],
    by: Sequence[By],
    since: int,
    until: int | None,
    key: str | None,
    sender: str | None,
) -> list[Sum]:
    groups = [_GROUPS[name] for name in by]
    order = [
        f'{group} COLLATE "C" NULLS FIRST' if name != "quarter" else group
        for name, group in zip(by, groups, strict=True)
    ]
    grouped = f"GROUP BY {', '.join(groups)} ORDER BY {', '.join(order)}" if by else ""
    found = await connection.execute(
        f"SELECT {''.join(f'{group}, ' for group in groups)} count(*), "
        "count(*) FILTER (WHERE estimated), count(*) FILTER (WHERE cost IS NULL), "
        "sum(input)::bigint, sum(output)::bigint, sum(written)::bigint, sum(read)::bigint, "
        "sum(written_1h)::bigint, sum(searches)::bigint, coalesce(sum(cost), 0)::text "
        "FROM usage WHERE at >= %(since)s AND (%(until)s::bigint IS NULL OR at < %(until)s) "
        "AND (%(key)s::text IS NULL OR key = %(key)s) "
        f"AND (%(sender)s::text IS NULL OR sender = %(sender)s) {grouped}",
        {"since": since, "until": until, "key": key, "sender": sender},
    )
    made: list[Sum] = []
    for *group, calls, estimated, unpriced, i, o, w, r, h, searches, cost in await found.fetchall():
        if calls:
            made.append(
                Sum(
                    calls=calls,
                    estimated=estimated,
                    unpriced=unpriced,
                    usage=Usage(i, o, w, r, h, searches),
                    cost=int(cost),
                    **dict(zip(by, group, strict=True)),
                )
            )
    return made


async def erase(connection: psycopg.AsyncConnection[Any], before: int) -> int:
    changed = await connection.execute("DELETE FROM usage WHERE at < %s", (before,))
    return changed.rowcount


async def forget(connection: psycopg.AsyncConnection[Any], sender: str) -> int:
    changed = await connection.execute(
        "UPDATE usage SET sender = NULL, key = '' WHERE sender = %s", (sender,)
    )
    return changed.rowcount


async def move(connection: psycopg.AsyncConnection[Any], old: str, new: str) -> None:
    await connection.execute(
        "UPDATE usage SET key = %s || substr(key, %s) WHERE key = %s OR (key > %s AND key < %s)",
        (new, len(old) + 1, old, f"{old}/", f"{old}0"),
    )
