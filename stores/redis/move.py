"""A chat that goes on under another key: its conversations follow, in one script.

What two conversations become when they meet is decided by `core.changes.move`. It is worked out
here from what was read before; the script does it only if nothing of that has changed since, or all
is read anew.
"""

from __future__ import annotations

from typing import Final

from core import changes
from core.errors import SnapshotTooNew, SnapshotUnreadable, StaleSnapshot, StoreUnavailable
from core.keys import check_key
from core.snapshot import Snapshot
from core.snapshot import stored as as_stored
from stores.redis import scripts
from stores.redis.load import fetch, rows_of
from stores.redis.rows import Stored, head_checksum, moved_row, put_together, take_apart
from stores.redis.save import Known, known_of, written
from stores.redis.server import Server

ATTEMPTS: Final = 20


async def move(server: Server, old: str, new: str, now: int) -> None:
    """Every key that is `old`, or begins with `old` and a slash, begins with `new` instead.

    :param now: ms since 1970, for what has to be set aside
    :raises InvalidKey: a key would become one that cannot be
    :raises StoreUnavailable: others save there all the time; nothing was moved
    """
    if old == new:
        return
    for _ in range(ATTEMPTS):
        keys, users = await server.run(scripts.INSIDE, old=old)
        plan = _Plan(server, old, new)
        # The longest first, so that none lands on one still to move.
        for key in reversed(keys):
            await plan.move(key.decode())
        names = [user.decode() for user in reversed(users)]
        uses = [(name, check_key(new + name[len(old) :])) for name in names]
        given = {"keys": keys, "users": users, "uses": uses, "seen": plan.seen, "steps": plan.steps}
        try:
            await server.run(scripts.MOVE, old=old, new=new, now=str(now), **given)
            return
        except StaleSnapshot:
            continue
    raise StoreUnavailable(f"{old}: it is written to all the time, and could not be moved")


class _Held:
    """A conversation as it will be when the steps so far are done."""

    def __init__(self, stored: Stored, snapshot: Snapshot | None) -> None:
        self.stored = stored
        self.snapshot = snapshot
        self.bodies = frozenset(stored.bodies)
        self.rows: dict[int, bytes] | None = None  # all of them, once they were needed


class _Plan:
    """What a script is to do.

    :ivar seen: what it must find, or do nothing
    """

    def __init__(self, server: Server, old: str, new: str) -> None:
        self.seen: list[dict[str, object]] = []
        self.steps: list[dict[str, object]] = []
        self._server = server
        self._old = old
        self._new = new
        self._there: dict[str, _Held | None] = {}

    async def move(self, old_key: str) -> None:
        new_key = check_key(self._new + old_key[len(self._old) :])
        old, new = await self._at(old_key), await self._at(new_key)
        if old is None:
            return  # gone since the keys were read: the script will see that, too
        if new is not None and new.snapshot is None:
            self._set_aside(new_key)
            new = None
        if old.snapshot is None and new is not None:
            self._set_aside(old_key)
            return
        if old.snapshot is None:
            crc = _moved_checksum(old.stored, old_key, new_key)
            old.stored = old.stored._replace(crc=crc)
            self._step("move", old_key, new=new_key, crc=crc)
        else:
            await self._merge(old_key, old, old.snapshot, new_key, new)
        self._there[old_key], self._there[new_key] = None, old

    async def _merge(
        self, old_key: str, old: _Held, value: Snapshot, new_key: str, new: _Held | None
    ) -> None:
        merged = changes.move(value, new.snapshot if new else None, new_key)
        parts = take_apart(new_key, merged)
        known = Known(old.stored.id, value.revision, value.next_seq, bodies=old.bodies)
        later: dict[int, bytes] = {}
        if new is not None and new.snapshot is not None:
            # The rows of the second follow those of the first; the rest of it goes.
            offset = value.next_seq - 1
            for seq, row in (await self._rows(new)).items():
                later[seq + offset] = moved_row(
                    row, new.stored.id, seq, old.stored.id, seq + offset
                )
            known = known._replace(next_seq=offset + new.snapshot.next_seq)
            self._step("drop", new_key)
        write = written(parts, merged, known)
        rows = [each for seq, row in later.items() for each in (str(seq), row)]
        crc = dict(zip(parts.fields[::2], parts.fields[1::2], strict=True))["crc"]
        self._step(
            "move",
            old_key,
            new=new_key,
            crc=crc,
            rows=rows,
            write=write,
            unfinished=merged.unfinished,
        )
        if old.rows is not None or later:
            old.rows = {**await self._rows(old), **later}
        old.snapshot = as_stored(merged)
        old.bodies = known_of(old.stored.id, merged, parts).bodies

    async def _at(self, key: str) -> _Held | None:
        if key not in self._there:
            stored = await fetch(self._server, key)
            self._there[key] = None if stored is None else _Held(stored, _readable(key, stored))
            seen: dict[str, object] = {"key": key, "id": ""}
            if stored is not None:
                seen |= {"id": stored.id, "revision": stored.revision, "crc": stored.crc}
            self.seen.append(seen)
        return self._there[key]

    async def _rows(self, held: _Held) -> dict[int, bytes]:
        if held.rows is None:
            held.rows = await rows_of(self._server, held.stored.id)
        return held.rows

    def _set_aside(self, key: str) -> None:
        self._step("aside", key)
        self._there[key] = None

    def _step(self, what: str, key: str, **more: object) -> None:
        self.steps.append({"what": what, "key": key, **more})


def _readable(key: str, stored: Stored) -> Snapshot | None:
    try:
        return put_together(key, stored)
    except (SnapshotUnreadable, SnapshotTooNew):
        return None


def _moved_checksum(stored: Stored, old_key: str, new_key: str) -> bytes:
    """Of a head that this version cannot read, and another one may. What is damaged stays damaged:
    its checksum is as wrong as it was."""
    try:
        seen, crc = int(stored.seen_crc), int(stored.crc)
    except ValueError:
        return stored.crc
    crc ^= head_checksum(old_key, stored.head, seen) ^ head_checksum(new_key, stored.head, seen)
    return str(crc).encode()
