"""Spending: what each model call of a turn reserves, uses and costs, on its way into the store.

A `Purse` goes with one run of a turn, and the turn asks a client that pays from it (`Paid`): it
reserves before each call and settles after.
What that comes to are rows (`Spent`) which the next save of the conversation takes along, so that a
turn has no save of its own for them. Who may spend how much is the affair of `budget.py`; what is
said when it is too much, that of whoever runs the turn.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from msgspec.structs import replace

from core.agent import Agent
from core.budget import Budget, Crowded, Hold, Left
from core.clock import Clock
from core.delegation import agent_tool
from core.errors import BudgetReached, ModelError
from core.events import emit, trouble
from core.ledger import Ledger, Reservation
from core.messages import Message, decode_blocks
from core.model import Answer, ModelClient, OnText, Request
from core.prices import Prices, built_in
from core.store import Notes, UsageRows
from core.usage import Spent, Usage

# What an image and a document can come to in tokens: their bytes say nothing of it. The first is
# above what the largest image costs, the second what 60 dense pages do.
IMAGE_TOKENS: Final = 5_000
DOCUMENT_TOKENS: Final = 100_000
# What a request holds besides what we put into it: roles, and the provider's words about tools.
FRAME_TOKENS: Final = 1_000
MESSAGE_TOKENS: Final = 8

_NO_HOLD: Final = Hold(())
_NOBODY: Any = None  # whom a tool would ask that is only looked at


class UnsavedRows:
    """Rows that no save has taken along yet, by conversation."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[tuple[str, int], Spent]] = {}

    def add(self, key: str, row: Spent) -> None:
        self._rows.setdefault(key, {})[row.execution, row.call] = row

    def of(self, key: str) -> tuple[Spent, ...]:
        rows = self._rows.get(key)
        return tuple(rows.values()) if rows else ()

    def saved(self, key: str, rows: Iterable[Spent]) -> None:
        """These need not be saved again; what they became meanwhile must."""
        waiting = self._rows.get(key)
        if waiting is None:
            return
        for row in rows:
            if waiting.get((row.execution, row.call)) is row:
                del waiting[row.execution, row.call]
        if not waiting:
            self._rows.pop(key, None)

    def move(self, old: str, new: str) -> None:
        for key in [key for key in self._rows if key == old or key.startswith(f"{old}/")]:
            self._rows.setdefault(new + key[len(old) :], {}).update(self._rows.pop(key))


class Spending:
    """All that one process spends.

    :ivar ledger: where the budget is kept when other processes spend from it, too
    :param prices: None: those that come along
    :param budget: None: there is no limit
    :param quiet: a model without a price is nothing that a log must say
    """

    def __init__(
        self,
        clock: Clock,
        prices: Prices | None = None,
        budget: Budget | None = None,
        *,
        quiet: bool = False,
    ) -> None:
        self.prices: Final = prices or built_in()
        self.budget: Final = budget or Budget(clock)
        self.rows: Final = UnsavedRows()
        self.ledger: Ledger | None = None
        self._quiet = quiet
        self._unpriced: set[str] = set()

    def share(self, notes: Notes, rows: UsageRows) -> None:
        """Other processes on the same database spend from the same budget."""
        if self.budget.limits:
            self.ledger = Ledger(self.budget, notes, rows)

    async def open(self, rows: UsageRows) -> None:
        """Learn what was spent before.

        :raises StoreError: what the store raises
        """
        if self.ledger is not None:
            await self.ledger.open()
        else:
            await self.budget.open(rows)

    async def left(self, key: str, sender: str | None) -> Sequence[Left]:
        """How the limits stand that this person meets in this conversation.

        :raises StoreError: what the store raises
        """
        if self.ledger is not None:
            return await self.ledger.left(key, sender)
        return self.budget.left(key, sender)

    def settle(self, hold: Hold | Reservation, cost: int | None, tokens: int) -> None:
        """What a call came to."""
        if isinstance(hold, Hold):
            self.budget.settle(hold, cost, tokens)
        elif self.ledger is not None:
            self.ledger.settle(hold, cost, tokens)

    def purse(self, key: str, execution: str, sender: str | None = None) -> Purse:
        """For one run of a turn."""
        return Purse(self, key, execution, sender)

    def cost(self, key: str, row: Spent, usage: Usage) -> int | None:
        """Of a call that came to this; None: nobody knows, which is said once a model."""
        cost = self.prices.cost(row.model, usage, row.at)
        if cost is None and not (self._quiet or row.model in self._unpriced):
            self._unpriced.add(row.model)
            cure = "give its price in [budget] prices"
            trouble("usage.unpriced", key, execution=row.execution, model=row.model, cure=cure)
        return cost

    def move(self, old: str, new: str) -> None:
        """A chat goes on under another key."""
        self.rows.move(old, new)
        self.budget.move(old, new)


class Purse:
    """What one run of a turn spends. Agents that it asks spend from the same one, beside each
    other.

    :ivar sender: whom it answers, as soon as that is known
    :ivar save: makes the rows durable, where no other save is about to
    :ivar dead: the run before, when its process has died
    """

    def __init__(self, spending: Spending, key: str, execution: str, sender: str | None) -> None:
        self.sender = sender
        self.save: Callable[[], Awaitable[None]] | None = None
        self.dead: str | None = None
        self._spending = spending
        self._key = key
        self._execution = execution
        self._calls = 0
        self._tries = 0
        self._spare: Reserved | None = None
        self._rows: list[Spent] = []

    @property
    def cost(self) -> int | None:
        """Of all calls that have ended, in `UNIT`; None when nobody knows that of one."""
        costs = [row.cost for row in self._rows]
        return None if None in costs else sum(cost for cost in costs if cost is not None)

    def ahead(self, agent: Agent, messages: Sequence[Message]) -> None:
        """Reserve for the next call now, so that the save which is about to be made says so. When
        that cannot be, nothing happens: `reserve` will be asked. Twice is harmless.
        """
        if not self._spending.budget.limits or self._spare is not None:
            return
        if self._spending.ledger is not None:
            # What others must know is not known by a save of ours.
            return
        system = (agent.instructions, *agent.memory.system)
        most = most_sent(system, shown(agent), messages)
        with suppress(BudgetReached, Crowded):
            self._spare = self._reserved(agent.model_name, most, agent.max_tokens)

    async def reserve(self, request: Request) -> Reserved:
        """Room for this call. Durable when it returns, where there is a limit.

        :raises BudgetReached: there is none
        """
        if not self._spending.budget.limits:
            # What it could come to at most is of interest only when nobody says what it did.
            return self._made(request.model, Usage(), None, _NO_HOLD, request)
        most = _most(request)
        spare, self._spare = self._spare, None
        if spare is not None and spare.covers(request, most):
            return spare
        if spare is not None:
            spare.settle(Usage())
        while True:
            try:
                if self._spending.ledger is not None:
                    reserved = await self._from(self._spending.ledger, request, most)
                else:
                    reserved = self._reserved(request.model, most, request.max_tokens)
                break
            except Crowded:
                await (self._spending.ledger or self._spending.budget).room()
        try:
            if self.save is not None:
                await self.save()
        except BaseException:
            reserved.settle(Usage())
            raise
        return reserved

    def close(self) -> None:
        """The run has ended: what was reserved for a call that was never made is free again."""
        if self._spare is not None:
            self._spare.settle(Usage())
            self._spare = None

    def _reserved(self, model: str, prompt: int, output: int) -> Reserved:
        """
        :raises BudgetReached: there is no room
        :raises Crowded: there is none just now
        """
        spending = self._spending
        usage, cost = spending.prices.worst(model, prompt, output, spending.budget.now())
        hold = spending.budget.reserve(self._key, self.sender, cost, usage.tokens)
        return self._made(model, usage, cost, hold)

    async def _from(self, ledger: Ledger, request: Request, prompt: int) -> Reserved:
        """The same, from what several processes share.

        :raises StoreError: what the store raises
        """
        spending = self._spending
        at = spending.budget.now()
        usage, cost = spending.prices.worst(request.model, prompt, request.max_tokens, at)
        # Calls of agents beside each other are made while this waits: each has a number of its own.
        self._tries += 1
        call = f"{self._execution}/{self._tries}"
        hold = await ledger.reserve(
            call, self._key, self.sender, cost, usage.tokens, dead=self.dead
        )
        return self._made(request.model, usage, cost, hold)

    def _made(
        self,
        model: str,
        usage: Usage,
        cost: int | None,
        hold: Hold | Reservation,
        unknown: Request | None = None,
    ) -> Reserved:
        """
        :param unknown: what the call could come to has not been looked at yet
        """
        spending = self._spending
        self._calls += 1
        row = Spent(
            execution=self._execution,
            call=self._calls,
            at=spending.budget.now(),
            model=model,
            usage=usage,
            cost=cost,
            estimated=True,
            sender=self.sender,
        )
        if spending.budget.limits:
            spending.rows.add(self._key, row)
        return Reserved(spending, self._key, row, hold, self._rows, unknown)


class Paid:
    """A model client that pays: each question reserves from the purse, and settles."""

    def __init__(self, client: ModelClient, purse: Purse) -> None:
        self._client = client
        self._purse = purse

    async def answer(self, request: Request, on_text: OnText | None = None) -> Answer:
        """
        :raises BudgetReached: there is no room for this call
        """
        reserved = await self._purse.reserve(request)
        try:
            answer = await self._client.answer(request, on_text)
        except ModelError as error:
            reserved.settle(error.usage, estimated=bool(error.usage and error.usage.tokens))
            raise
        except BaseException:
            reserved.settle(None)
            raise
        reserved.settle(answer.usage)
        return answer

    async def close(self) -> None:
        """Its client is its owner's to close."""


class Reserved:
    """Room for one call, which is settled once."""

    def __init__(
        self,
        spending: Spending,
        key: str,
        row: Spent,
        hold: Hold | Reservation,
        ended: list[Spent],
        unknown: Request | None,
    ) -> None:
        self._spending = spending
        self._key = key
        self._row = row
        self._hold = hold
        self._ended = ended
        self._unknown = unknown

    def covers(self, request: Request, prompt: int) -> bool:
        """Whether it is enough for this request."""
        row = self._row
        return (
            row.model == request.model
            and row.usage.prompt >= prompt
            and row.usage.output_tokens >= request.max_tokens
        )

    def settle(self, usage: Usage | None, *, estimated: bool = False) -> None:
        """The call has ended.

        :param usage: what the provider counted; None: it has not said, and may bill all of it
        :param estimated: part of that is our own guess
        """
        spending, row = self._spending, self._row
        if usage is not None:
            cost = spending.cost(self._key, row, usage)
            row = replace(row, usage=usage, cost=cost, estimated=estimated)
        elif (request := self._unknown) is not None:
            most, cost = spending.prices.worst(
                row.model, _most(request), request.max_tokens, row.at
            )
            row = replace(row, usage=most, cost=cost)
        if usage is not None or not spending.budget.limits:
            # Else it stands there already as it is.
            spending.rows.add(self._key, row)
        self._ended.append(row)
        spending.settle(self._hold, row.cost, row.usage.tokens)
        emit(
            "spent",
            self._key,
            level=logging.DEBUG,
            execution=row.execution,
            model=row.model,
            cost=row.cost,
            estimated=row.estimated,
        )


def shown(agent: Agent) -> list[bytes]:
    """The tools that the model is shown."""

    tools = (*agent.tools, *(agent_tool(each, _NOBODY) for each in agent.agents))
    return [bytes(tool.json) for tool in tools]


def _most(request: Request) -> int:
    return most_sent(request.system, [bytes(tool) for tool in request.tools], request.messages)


def most_sent(system: Iterable[str], tools: Iterable[bytes], messages: Iterable[Message]) -> int:
    """The most tokens that a request can come to: no token is less than a byte of text."""
    total = FRAME_TOKENS + sum(len(text.encode()) for text in system) + sum(map(len, tools))
    for message in messages:
        total += MESSAGE_TOKENS + len(message.blocks)
        if b'"source"' in bytes(message.blocks):
            total += _files(decode_blocks(message.blocks))
    return total


def _files(blocks: object) -> int:
    """What images and documents in it come to, less what their bytes were counted for."""
    if isinstance(blocks, list):
        return sum(map(_files, blocks))
    if not isinstance(blocks, dict):
        return 0
    source = blocks.get("source")
    if not isinstance(source, dict):
        return sum(map(_files, blocks.values()))
    data = source.get("data")
    tokens = IMAGE_TOKENS if blocks.get("type") == "image" else DOCUMENT_TOKENS
    return tokens - (len(data) if isinstance(data, str) else 0)
