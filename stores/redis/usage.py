"""What model calls used: a row a call, beside the conversations; only ever added, settled and
summed.

Redis has no sums of its own: rows are read, a page at a time, and added up here. A row names its
conversation by a number, so that a chat that moves takes along what it has used without a row being
touched.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import msgspec

from core.usage import By, Spent, Sum, Usage, add_up
from stores.redis import scripts
from stores.redis.server import Server

PAGE: Final = 500

_pack: Final = msgspec.json.Encoder().encode
# Model, the figures, cost.
_Rest = tuple[str, tuple[int, ...], int | None]
_unpack_rest: Final = msgspec.json.Decoder(_Rest).decode
_unpack: Final = msgspec.msgpack.Decoder(tuple[str, str, str | bool, bool, str]).decode


def pairs(spent: Sequence[Spent]) -> list[object]:
    """Name and row of each, as the scripts take them; of two of one call the later one."""
    rows = {_name(row): row for row in spent}
    return [each for name, row in rows.items() for each in (name, _row(row))]


def _name(row: Spent) -> str:
    return f"{row.execution}/{row.call}"


def _row(row: Spent) -> tuple[object, ...]:
    figures = msgspec.structs.astuple(row.usage)
    rest = _pack((row.model, figures, row.cost)).decode()
    return "", str(row.at), row.sender or False, row.estimated, rest


def _spent(name: bytes, packed: bytes) -> Spent:
    execution, _, call = name.decode().rpartition("/")
    _, at, sender, estimated, rest = _unpack(packed)
    model, figures, cost = _unpack_rest(rest)
    return Spent(
        execution,
        int(call),
        int(at),
        model,
        Usage(*figures),
        cost,
        estimated,
        sender if isinstance(sender, str) else None,
    )


class RedisUsage:
    """Keeps all of it, for as long as the server does."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def sums(
        self,
        by: Sequence[By] = (),
        *,
        since: int = 0,
        until: int | None = None,
        key: str | None = None,
        sender: str | None = None,
    ) -> list[Sum]:
        """Reads the rows of the time that is asked about, every one."""
        sums: list[Sum] = []
        async for page in self._pages(since, until):
            sums += add_up(
                (
                    (of, row)
                    for of, row in page
                    if key in (None, of) and sender in (None, row.sender)
                ),
                by,
            )
        return _together(sums, by)

    async def forget(self, sender: str) -> int:
        count = 0
        async for page in self._pages(0, None):
            names = [_name(row) for _, row in page if row.sender == sender]
            if names:
                (changed,) = await self._server.run(
                    scripts.FORGET_USAGE, names=names, sender=sender
                )
                count += changed
        return count

    async def erase(self, before: int) -> int:
        count, gone = 0, PAGE
        while gone == PAGE:
            (gone,) = await self._server.run(
                scripts.ERASE_USAGE, stop=f"({max(before, 0):015}", limit=PAGE
            )
            count += gone
        return count

    async def rows(self) -> AsyncIterator[tuple[str, Spent]]:
        async for page in self._pages(0, None):
            for row in page:
                yield row

    async def add(self, rows: Sequence[tuple[str, Spent]]) -> None:
        await self._server.run(
            scripts.ADD_USAGE, rows=[(key, _name(row), _row(row)) for key, row in rows]
        )

    async def _pages(self, since: int, until: int | None) -> AsyncIterator[list[tuple[str, Spent]]]:
        """In order of time."""
        start = f"[{max(since, 0):015}".encode()
        stop = "+" if until is None else f"({max(until, 0):015}"
        while True:
            found: list[Any] = await self._server.run(
                scripts.USAGE, start=start, stop=stop, limit=PAGE
            )
            last, rows = found
            if last is None:
                return
            yield [(key.decode(), _spent(name, row)) for name, key, row in rows]
            start = b"(" + last


def _together(sums: Sequence[Sum], by: Sequence[By]) -> list[Sum]:
    """Those of several pages, in order."""
    found: dict[tuple[tuple[bool, object], ...], Sum] = {}
    for each in sums:
        values = [getattr(each, name) for name in by]
        order = tuple((value is not None, value) for value in values)
        found[order] = found[order] + each if order in found else each
    return [found[order] for order in sorted(found, key=lambda order: order)]
