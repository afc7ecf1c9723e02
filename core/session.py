"""Session: the library's face. One conversation with an agent, kept in any store.

::

    session = await Session.start(agent, store=store, key="telegram-chat:123")
    reply = await session.run("hello")
    await session.clear()

Not how a bot works: there is no inbox and no outbox here. Saved after every completed turn, and
only then counted as history; a run that fails, is cancelled or times out leaves it as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from decimal import Decimal
from types import TracebackType
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from core import approvals, changes
from core.agent import Agent
from core.clock import Clock, SystemClock
from core.errors import Cleared, SessionBusy, StaleSnapshot
from core.line import Line
from core.messages import Message, Role, clean, encode_blocks, text_block, time_block
from core.model import ModelClient
from core.opening import StoreChoice, claude, opened, parted, reference
from core.reply import Reply, Show, Stream
from core.snapshot import Snapshot
from core.snapshots import first_revision, new_id
from core.spending import Paid, Spending
from core.store import SessionRef, SessionStore
from core.summary import summary_of
from core.trimming import NewSummary, from_row, summarised
from core.turn import Approve, Finished, Place, run_turn
from core.window import learned, sent


class Session:
    """Made by `start`; safe to use from several tasks: runs wait for each other in order."""

    def __init__(
        self,
        agent: Agent,
        store: SessionStore | None,
        ref: SessionRef,
        client: ModelClient,
        clock: Clock,
        line: Line,
        approve: Approve | None = None,
    ) -> None:
        """Nothing is loaded yet: the first run does, and then the agent's own options hold."""
        self._agent = agent
        self._store = store
        self._ref = ref
        self._client = client
        self._clock = clock
        self._approve = approve or approvals.nobody
        self._closing = AsyncExitStack()
        self._stored = False
        self._unsure = False
        self._snapshot = replace(
            self._empty(),
            model=agent.model,
            system_prompt=agent.instructions,
            thinking=agent.thinking,
            effort=agent.effort,
        )
        self._line = line
        self._known = -1
        self._spending = Spending(clock, quiet=True)
        self._storing = asyncio.Lock()

    @classmethod
    async def start(
        cls,
        agent: Agent,
        *,
        store: StoreChoice | None = None,
        key: str | None = None,
        id: str | None = None,
        cwd: str | None = None,
        store_options: Mapping[str, Any] | None = None,
        model: str | None = None,
        system_prompt: str | None = None,
        thinking: str | None = None,
        effort: str | None = None,
        client: ModelClient | None = None,
        approve: Approve | None = None,
        clock: Clock | None = None,
    ) -> Self:
        """Load what the store has, or begin.

        For the options an explicit argument wins over the snapshot, the snapshot over the agent's
        own. For what a store is told the order is, lowest first: `store_options`, agent and cwd,
        `id`, `key`, and the options of a tuple, which may override even the key.

        :param store: an instance, a class, or a tuple of either and options; None: memory, for
            this object's life
        :param key: None: derived from the agent's name and `id`, else from its name and `cwd`
        :param id: None: the agent's `session_id`
        :param client: None: Claude, with the environment's key
        :param approve: asked before a call runs that needs an approval; a `ToolError` that it
            raises tells the model why not. None: such calls are declined
        :raises StoreError: what the store raises
        """
        chosen, own_options = parted(store)
        ref = reference(
            agent, key=key, id=id, cwd=cwd, store_options=store_options, own_options=own_options
        )
        async with AsyncExitStack() as stack:
            session = cls(
                agent,
                await opened(chosen, stack),
                ref,
                client or claude(stack),
                clock or SystemClock(),
                Line(),
                approve,
            )
            await session.restore(
                model=model,
                system_prompt=system_prompt,
                thinking=thinking,
                effort=effort,
                cwd=cwd,
            )
            session.owns(stack.pop_all())
        return session

    def owns(self, opened: AsyncExitStack) -> None:
        """What `close` closes."""
        self._closing = opened

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close what `start` opened."""
        await self._closing.aclose()

    @property
    def history(self) -> tuple[Message, ...]:
        """What requests read: completed turns in the window."""
        return self._snapshot.messages

    @property
    def snapshot(self) -> Snapshot:
        """The conversation as it was last saved."""
        return self._snapshot

    async def run(self, text: str, *, sender: str | None = None) -> Reply:
        """One turn. A second run waits for the first, up to a bound.

        :param sender: who speaks (``telegram:42``), for tools and for the history
        :raises ValueError: there is nothing in the text
        :raises SessionBusy: too many runs wait already, or a bot answers in this conversation
        :raises Cleared: the session was cleared meanwhile; nothing was saved
        :raises ModelError: no answer could be had; nothing was saved
        :raises StoreError: the turn could not be saved, and is not in the history
        """
        return await self.shown_run(text, sender, None)

    def stream(self, text: str, *, sender: str | None = None) -> Stream:
        """The same as `run`, piece by piece. A refusal comes as a last paragraph."""
        return Stream(lambda show: self.shown_run(text, sender, show))

    async def shown_run(self, text: str, sender: str | None, show: Show | None) -> Reply:
        """`run`, with somebody who looks on.

        :param show: called with all that was said so far, again and again
        """
        text = clean(text)
        if not text.strip():
            raise ValueError("there is nothing to answer")
        async with self._line.front():
            return await self._one_turn(text, sender, show)

    async def clear(self) -> None:
        """Nothing was ever said. A run under way ends with `Cleared`.

        :raises StoreError: the store could not be cleared, and nothing has changed
        """
        # Not beside a save, which could otherwise come last and undo this.
        async with self._storing:
            if self._store is not None:
                with self._unsure_if_it_fails():
                    await self._store.clear(self._ref)
            self._stored = self._unsure = False
            self._snapshot = self._with_options(self._empty(), self._snapshot)
            self._line.moved += 1
            self._known = self._line.moved

    # ------------------------------------------------------------------ one turn

    async def _one_turn(self, text: str, sender: str | None, show: Show | None) -> Reply:
        behind = self._store is not None and self._known != self._line.moved
        if behind or self._unsure or self._snapshot.turn is not None:
            async with self._storing:
                await self._reload()
        try:
            return await self._answered(text, sender, show)
        finally:
            # Whoever comes next looks again, unless it is this session and nobody came between.
            up_to_date = self._known == self._line.moved
            self._line.moved += 1
            if up_to_date:
                self._known = self._line.moved

    async def _answered(self, text: str, sender: str | None, show: Show | None) -> Reply:
        before = self._snapshot
        agent = self._agent
        now = self._clock.now()
        execution = new_id()
        purse = self._spending.purse(self._ref.key, execution, sender)
        client = Paid(self._client, purse)
        asked = _asked(before, agent, text, sender, now)
        summary = None
        if agent.memory.strategy == "summary":
            summary = await summary_of(agent, client, before, asked, self._ref.key)
            told = summarised(before, summary, now)
            asked = _asked(told, agent, text, sender, now)
        else:
            told = before
        journal = _Journal()
        kept, fit = agent.memory.kept(told.messages, asked, told.fit)
        finished = await run_turn(
            self._agent_for(before),
            client,
            sent(kept, fit),
            asked,
            journal,
            show,
            approve=self._approve,
            place=Place(session_key=self._ref.key, execution=execution, sender=sender),
            clock=self._clock,
            # A store of somebody's own need not have them.
            blobs=getattr(self._store, "blobs", None),
        )
        assert isinstance(finished, Finished), "who is asked at once suspends nothing"
        said: list[tuple[Role, msgspec.Raw]] = [(step.role, step.blocks) for step in asked]
        said += journal.said
        said += [("assistant", blocks) for blocks in finished.blocks]
        seeds = len(asked) - 1
        after = await self._append(before.epoch, said, seeds, sender, finished, summary)
        return Reply(
            text=finished.text,
            messages=after.messages[seeds - len(said) :],
            usage=finished.usage + summary.usage if summary else finished.usage,
            outcome=finished.outcome,
            execution_id=execution,
            cost=None if purse.cost is None else Decimal(purse.cost).scaleb(-12),
        )

    async def _append(
        self,
        epoch: str,
        said: Sequence[tuple[Role, msgspec.Raw]],
        seeds: int,
        sender: str | None,
        finished: Finished,
        summary: NewSummary | None,
    ) -> Snapshot:
        """One save. Who lost a race appends after what the other has saved.

        :param seeds: how many at the beginning of `said` are for an empty conversation only
        """
        async with self._storing:
            while True:
                before = self._snapshot
                if before.epoch != epoch:
                    raise Cleared("the session was cleared while its answer was made")
                new = said[seeds:] if before.spans else said
                after = self._appended(before, new, sender, finished, summary)
                try:
                    if self._store is not None:
                        replaces = before.revision if self._stored else None
                        with self._unsure_if_it_fails():
                            await self._store.save(self._ref, after, replaces=replaces)
                except StaleSnapshot:
                    epoch = await self._catch_up(epoch)
                    continue
                self._spending.rows.saved(self._ref.key, after.spent)
                self._stored = self._store is not None
                self._snapshot = replace(after, spent=())
                return after

    def _appended(
        self,
        before: Snapshot,
        said: Sequence[tuple[Role, msgspec.Raw]],
        sender: str | None,
        finished: Finished,
        summary: NewSummary | None,
    ) -> Snapshot:
        now = self._clock.now()
        memory = self._agent.memory
        after = changes.append(before, said, finished.usage, now, memory, sender, summary)
        if finished.window is not None:
            kept = from_row(after.messages, finished.window)
            after = replace(after, window=finished.window, messages=kept)
        revision = before.revision + 1 if self._stored else first_revision()
        # Runs that failed have used something, too: the next one that is saved takes it along.
        spent = self._spending.rows.of(self._ref.key)
        fit = learned(after.fit, finished.bytes_per_token)
        return replace(after, revision=revision, updated_at=now, fit=fit, spent=spent)

    async def _catch_up(self, epoch: str) -> str:
        """Go on with what others have saved; the epoch of that."""
        known = self._stored
        stored = await self._reload()
        if stored is None or (known and stored.epoch != epoch):
            raise Cleared("the session was cleared elsewhere while its answer was made")
        return stored.epoch

    async def _reload(self) -> Snapshot | None:
        assert self._store is not None
        moved = self._line.moved
        stored = await self._store.load(self._ref)
        self._known = moved
        self._stored, self._unsure = stored is not None, False
        self._snapshot = self._with_options(stored or self._empty(), self._snapshot)
        if self._snapshot.turn is not None:
            raise SessionBusy("a bot is answering in this conversation")
        return stored

    @contextmanager
    def _unsure_if_it_fails(self) -> Iterator[None]:
        """Whatever ends a call of the store early, it may have happened: before anything else the
        next run asks what is stored."""
        try:
            yield
        except BaseException:
            self._unsure = True
            raise

    # ------------------------------------------------------------------ the small print

    def _empty(self) -> Snapshot:
        return changes.begin(revision=0, epoch=new_id(), now=self._clock.now(), cwd=self._ref.cwd)

    async def restore(self, **explicit: str | None) -> None:
        """Load what the store has, now. What is explicit wins over it, it over the agent's own."""
        moved = self._line.moved
        stored = await self._store.load(self._ref) if self._store is not None else None
        self._known = moved
        self._stored = stored is not None
        snapshot = stored or self._empty()
        agent = self._agent
        defaults = {
            "model": agent.model,
            "system_prompt": agent.instructions,
            "thinking": agent.thinking,
            "effort": agent.effort,
            "cwd": self._ref.cwd,
        }
        options = {
            name: next(
                (value for value in (explicit[name], getattr(snapshot, name)) if value is not None),
                default,
            )
            for name, default in defaults.items()
        }
        self._snapshot = replace(snapshot, **options)

    def _with_options(self, snapshot: Snapshot, old: Snapshot) -> Snapshot:
        return replace(
            snapshot,
            model=old.model,
            system_prompt=old.system_prompt,
            thinking=old.thinking,
            effort=old.effort,
            cwd=old.cwd,
        )

    def _agent_for(self, snapshot: Snapshot) -> Agent:
        return replace(
            self._agent,
            model=snapshot.model or self._agent.model,
            instructions=(
                self._agent.instructions
                if snapshot.system_prompt is None
                else snapshot.system_prompt
            ),
            thinking=snapshot.thinking,
            effort=snapshot.effort,
        )


class _Journal:
    """In memory: after a crash a Session's turn is simply not in the history."""

    def __init__(self) -> None:
        self.said: list[tuple[Role, msgspec.Raw]] = []

    async def answered(self, blocks: Sequence[msgspec.Raw], started: tuple[str, ...]) -> None:
        self.said += [("assistant", each) for each in blocks]

    async def results(self, blocks: msgspec.Raw) -> None:
        self.said.append(("user", blocks))


def _asked(
    snapshot: Snapshot, agent: Agent, text: str, sender: str | None, now: int
) -> list[Message]:
    spoken: list[tuple[Role, str, str | None]] = []
    if not snapshot.spans:
        spoken += [(seed.role, seed.message, None) for seed in agent.memory.spoken]
    spoken.append(("user", text, sender))
    return [
        Message(
            seq=snapshot.next_seq + index,
            role=role,
            blocks=encode_blocks(
                [time_block(now), text_block(said)]
                if agent.tell_time and index == len(spoken) - 1
                else [text_block(said)]
            ),
            at=now,
            sender=who,
        )
        for index, (role, said, who) in enumerate(spoken)
    ]
