"""Ledger: what a budget has seen, where several processes spend from it. A note for each limit and
whom it is for, changed by compare-and-set: what was spent in this period, and what is held by calls
that are being made.

A reservation is in the database before its call is made, so that all processes together cannot
spend what each of them alone could. One that nobody settles, because its process died, counts as
spent: when its turn is taken over, or else some minutes later. A call that comes to its end after
that is put right. Who is meant stands in a note's name as a hash only: what somebody has used
outlives `/forget` until its period is over, or that would be a way round every limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from core.budget import Budget, Crowded, Left, Limit, Period, Scope, Unit
from core.errors import BudgetReached, StoreError
from core.events import trouble
from core.store import Notes, UsageRows

PREFIX: Final = "budget."
# Longer than a call takes; should one take longer still, it counts as what was reserved meanwhile.
TERM_MS: Final = 5 * 60_000
# How often somebody who waits for room looks whether there is any.
LOOK: Final = 1.0


class _Account(msgspec.Struct, frozen=True):
    """
    :param start: of the period, in ms since 1970
    :param held: by the call's name, how much, and until when that is not yet spent
    """

    start: int
    spent: int = 0
    held: dict[str, tuple[int, int]] = {}

    @property
    def total(self) -> int:
        return self.spent + sum(amount for amount, _ in self.held.values())


class _Line(NamedTuple):
    """One note, and the limits that are looked at in it."""

    note: str
    scope: Scope
    period: Period
    unit: Unit
    whose: str
    limits: tuple[Limit, ...]


class Reservation(NamedTuple):
    """What a call holds: of each note the amount, and the start of the period."""

    call: str
    parts: tuple[tuple[_Line, int, int], ...]


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Account).decode


class Ledger:
    """
    :param budget: whose limits hold
    :param rows: what was used before there was a note
    """

    def __init__(self, budget: Budget, notes: Notes, rows: UsageRows) -> None:
        self._budget = budget
        self._notes = notes
        self._rows = rows
        self._one_by_one = asyncio.Lock()
        self._due: list[tuple[_Line, Callable[[_Account], _Account]]] = []
        self._settling: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Periods that are over are forgotten.

        :raises StoreError: what the store raises
        """
        names = [name async for name in self._notes.names() if name.startswith(PREFIX)]
        for name in names:
            was = await self._notes.get(name)
            period = name.split(".")[2]
            if was and _decode(was).start < self._budget.start_of(period):  # type: ignore[arg-type]
                await self._notes.put(name, None, was=was)

    async def reserve(
        self,
        call: str,
        key: str,
        sender: str | None,
        cost: int | None,
        tokens: int,
        dead: str | None = None,
    ) -> Reservation:
        """
        :param call: execution and number, with a slash between; nobody else's
        :param cost: the most that it can cost; None: nobody knows the price
        :param tokens: the most that it can use, sent and received
        :param dead: an execution whose calls nobody will settle any more
        :raises BudgetReached: a limit has no room for it, or is in money and there is no price
        :raises Crowded: no limit has room for it as long as other calls are being made
        :raises StoreError: what the store raises
        """
        lines = self._lines(key, sender)
        for line in lines:
            if line.unit == "money" and cost is None:
                raise BudgetReached(line.scope, line.period, None, unpriced=True)
        await self.settled()
        parts: list[tuple[_Line, int, int]] = []
        try:
            for line in lines:
                if dead is not None:
                    await self._change(line, _ended(dead))
                amount = tokens if line.unit == "tokens" else cost or 0
                account = await self._change(line, self._holding(line, call, amount))
                parts.append((line, amount, account.start))
        except BaseException:
            self._later((line, _released(call)) for line in lines)
            raise
        return Reservation(call, tuple(parts))

    def settle(self, reservation: Reservation, cost: int | None, tokens: int) -> None:
        """What it came to. Written soon; what cannot be is tried again before the next one."""
        changes: list[tuple[_Line, Callable[[_Account], _Account]]] = []
        for line, amount, start in reservation.parts:
            came_to = tokens if line.unit == "tokens" else cost
            spent = amount if came_to is None else came_to
            changes.append((line, _settling(reservation.call, amount, spent, start)))
        self._later(changes)

    async def settled(self) -> None:
        """Until all that has ended is written, as far as the store takes it."""
        self._later(())
        if self._settling is not None:
            await asyncio.wait((self._settling,))

    async def room(self) -> None:
        """Until there may be some: another process need not tell."""
        await self._budget.clock.sleep(LOOK)

    async def left(self, key: str, sender: str | None) -> Sequence[Left]:
        """How the limits stand that this person meets in this conversation.

        :raises StoreError: what the store raises
        """
        lines = {limit: line for line in self._lines(key, sender) for limit in line.limits}
        return [
            Left(limit, (await self._read(lines[limit]))[1].total)
            for limit in self._budget.limits
            if limit in lines
        ]

    async def move(self, old: str, new: str) -> None:
        """A conversation goes on under another key, and what it has spent with it. Twice is
        harmless.

        :raises StoreError: what the store raises
        """
        for line, later in zip(self._lines(old, None), self._lines(new, None), strict=True):
            if line.scope != "chat":
                continue
            was, account = await self._read(line)
            if was is None or not await self._notes.put(line.note, None, was=was):
                continue
            # What is held just now is settled where nobody looks any more. Where there was no note
            # yet, what is read are the rows, which have moved already: the same money.
            await self._change(
                later,
                _spending(account.total, account.start),
                anew=_at_least(account.total, account.start),
            )

    # ------------------------------------------------------------------ the small print

    def _lines(self, key: str, sender: str | None) -> list[_Line]:
        names = {"sender": sender, "chat": key, "all": ""}
        found: dict[str, _Line] = {}
        for limit in self._budget.limits:
            whose = names[limit.scope]
            if whose is None:
                continue
            hashed = sha256(whose.encode()).hexdigest()[:32]
            note = f"{PREFIX}{limit.scope}.{limit.period}.{limit.unit}.{hashed}"
            line = _Line(note, limit.scope, limit.period, limit.unit, whose, ())
            before = found.get(note, line)
            found[note] = before._replace(limits=(*before.limits, limit))
        return list(found.values())

    def _holding(self, line: _Line, call: str, amount: int) -> Callable[[_Account], _Account]:
        def held(account: _Account) -> _Account:
            # Reserved by ourselves already, and the store did not say so.
            others = {name: each for name, each in account.held.items() if name != call}
            account = msgspec.structs.replace(account, held=others)
            for limit in line.limits:
                if account.spent + amount > limit.amount:
                    end = self._budget.end_of(limit.period)
                    raise BudgetReached(limit.scope, limit.period, end)
            if any(account.total + amount > limit.amount for limit in line.limits):
                raise Crowded
            until = self._budget.now() + TERM_MS
            return msgspec.structs.replace(account, held={**others, call: (amount, until)})

        return held

    def _later(self, changes: Iterable[tuple[_Line, Callable[[_Account], _Account]]]) -> None:
        self._due += changes
        if self._due and (self._settling is None or self._settling.done()):
            self._settling = asyncio.create_task(self._settle(), name="ledger")

    async def _settle(self) -> None:
        while self._due:
            try:
                await self._change(*self._due[0])
            except StoreError as error:
                # Until the next one ends, or is about to begin; at the worst it counts in full.
                trouble("budget.unsettled", error=str(error))
                return
            del self._due[0]

    async def _change(
        self,
        line: _Line,
        how: Callable[[_Account], _Account],
        *,
        anew: Callable[[_Account], _Account] | None = None,
    ) -> _Account:
        """
        :param anew: what is done instead where there is no note yet
        """
        # One at a time: we need not compete with ourselves.
        async with self._one_by_one:
            while True:
                was, account = await self._read(line)
                after = (anew if anew and was is None else how)(account)
                if after is account:
                    return account
                if await self._notes.put(line.note, _encode(after), was=was):
                    return after

    async def _read(self, line: _Line) -> tuple[bytes | None, _Account]:
        """The note as it is, and what it says now."""
        was = await self._notes.get(line.note)
        start = self._budget.start_of(line.period)
        if was is None:
            return None, _Account(start, await self._used(line, start))
        account = _decode(was)
        if account.start < start:
            return was, _Account(start)
        now = self._budget.now()
        over = [name for name, (_, until) in account.held.items() if until <= now]
        return was, _spent(account, over)

    async def _used(self, line: _Line, start: int) -> int:
        """In this period, as far as it stands in rows."""
        sums = await self._rows.sums(
            (),
            since=start,
            key=line.whose if line.scope == "chat" else None,
            sender=line.whose if line.scope == "sender" else None,
        )
        return sum(each.cost if line.unit == "money" else each.usage.tokens for each in sums)


def _spent(account: _Account, calls: Iterable[str]) -> _Account:
    """Nobody will say what these came to."""
    gone = list(calls)
    if not gone:
        return account
    held = {name: each for name, each in account.held.items() if name not in gone}
    spent = account.spent + sum(account.held[name][0] for name in gone)
    return msgspec.structs.replace(account, spent=spent, held=held)


def _ended(dead: str) -> Callable[[_Account], _Account]:
    return lambda account: _spent(
        account, [name for name in account.held if name.startswith(f"{dead}/")]
    )


def _released(call: str) -> Callable[[_Account], _Account]:
    def released(account: _Account) -> _Account:
        if call not in account.held:
            return account
        held = {name: each for name, each in account.held.items() if name != call}
        return msgspec.structs.replace(account, held=held)

    return released


def _settling(call: str, amount: int, spent: int, start: int) -> Callable[[_Account], _Account]:
    def settled(account: _Account) -> _Account:
        if account.start != start:
            return account
        held = {name: each for name, each in account.held.items() if name != call}
        # It may count in full already.
        more = spent if call in account.held else spent - amount
        return msgspec.structs.replace(account, spent=account.spent + more, held=held)

    return settled


def _spending(amount: int, start: int) -> Callable[[_Account], _Account]:
    def spending(account: _Account) -> _Account:
        if account.start != start or not amount:
            return account
        return msgspec.structs.replace(account, spent=account.spent + amount)

    return spending


def _at_least(amount: int, start: int) -> Callable[[_Account], _Account]:
    def at_least(account: _Account) -> _Account:
        if account.start != start:
            return account
        return msgspec.structs.replace(account, spent=max(account.spent, amount))

    return at_least
