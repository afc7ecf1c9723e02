"""Answering: one run of a turn, hops 5 and 6. Start, run, and a commit or an apology.

Decides what a person is told when no answer can be had, and whether to try again. Nothing is sent
here: what is to be said waits in the outbox.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Literal, TypeGuard

import msgspec
from msgspec.structs import replace

from core import approvals, cards, changes, phrases, suspending
from core.adapter import Adapter, AsksOpinions, Decoration, Live, Rate, ShowsTools, Standing
from core.agent import Agent
from core.attachments import ALL_AT_ONCE, Fetching, Opens, OpensNothing
from core.changes import Fence
from core.clock import Clock
from core.engine import Again
from core.errors import (
    BudgetReached,
    Fenced,
    ModelNotFound,
    ModelRefusedKey,
    ModelRejected,
    ModelUnavailable,
    StoreError,
)
from core.events import emit, logger, trouble
from core.failpoints import failpoint
from core.messages import Inbound, Outbound, clean
from core.model import ModelClient
from core.pace import Pace
from core.phrases import ENGLISH, Wording
from core.snapshot import Snapshot, Suspension, Turn
from core.snapshots import Snapshots, new_id
from core.spending import Paid, Purse, Spending
from core.store import Blobs, UsageRows
from core.summary import summary_of
from core.tenure import READING, Tenure
from core.toolset import Lists, settle
from core.trimming import NewSummary
from core.turn import Finished, Place, Suspended, run_turn
from core.window import sent

MAX_ATTEMPTS: Final = 3
NO_MODEL_WAIT: Final = 60.0
NO_MODEL_TOLD_EVERY: Final = 3_600.0
MAX_MODEL_WAIT: Final = 300.0
LONG_TEXT: Final = 10_000
TOLD: Final = 10_000  # conversations of which is known what they were told of their budget

WhenBusy = Literal["collect", "queue", "interrupt"]

_UNFETCHED: Final = Again()


class Answering:
    """
    :param cwd: the working directory, for the snapshot
    :param when_busy: how what waits is taken; see `core.conversations.Options`
    :param approvers: who may allow calls; see `core.conversations.Options`
    :param spending: where it is counted what the model calls use
    :param say: how the fixed sentences are worded
    :param lists: which tools a chat may use
    :param opens: what reads the files that people send
    :param usage: where it stands what was used in a conversation that is there no more
    """

    def __init__(
        self,
        snapshots: Snapshots,
        pace: Pace,
        agent: Agent,
        client: ModelClient,
        clock: Clock,
        *,
        cwd: str,
        when_busy: WhenBusy,
        spending: Spending,
        approvers: tuple[str, ...] = (),
        say: Wording = ENGLISH,
        blobs: Blobs | None = None,
        lists: Lists = Lists(),  # noqa: B008 (frozen)
        opens: Opens = OpensNothing(),  # noqa: B008 (without state)
        usage: UsageRows | None = None,
    ) -> None:
        self._snapshots = snapshots
        self._pace = pace
        self._agent = agent
        self._client = client
        self._clock = clock
        self._spending = spending
        self._cwd = cwd
        self._when_busy = when_busy
        self._approvers = approvers
        self._say = say
        self._blobs = blobs
        self._lists = lists
        self._opens = opens
        self._usage = usage
        self._files = asyncio.Semaphore(ALL_AT_ONCE)
        self._last_attempt = asyncio.Lock()
        self._told_no_model: dict[str, float] = {}
        self._told_budget: OrderedDict[str, str] = OrderedDict()

    async def answer(
        self, key: str, adapter: Adapter, before: Snapshot, tenure: Tenure | None = None
    ) -> Again | None:
        """
        :param before: what the turn is about to start from
        :param tenure: of this work, where several processes share the database
        :raises StoreError: what the store raises; the turn begins again
        :raises Fenced: another process has begun to answer here
        """
        if before.turn is None or before.turn.attempt != MAX_ATTEMPTS - 1:
            return await self._run_once(key, adapter, tenure)
        # It was under way when the program died twice, and one message may have been the cause of
        # both. Were all of them begun a last time together, that one would take the others along.
        async with self._last_attempt:
            return await self._run_once(key, adapter, tenure)

    def next_ones(self, snapshot: Snapshot) -> tuple[Inbound, ...]:
        """The messages that a run beginning now would take."""
        return changes.next_ones(
            snapshot,
            one_by_one=self._when_busy == "queue",
            join=self._when_busy == "interrupt",
        )

    async def settle(self, key: str) -> None:
        """What a call came to after its turn was over (it had been stopped, say) is saved now."""
        rows = self._spending.rows
        if self._spending.ledger is not None:
            await self._spending.ledger.settled()
        if rows.of(key):
            await self._change(key, replace)
        if left := rows.of(key):
            # The conversation is not there any more: it was cleared, or moved by another process.
            # Who was meant is not known any better now, but what was spent was spent.
            if self._usage is not None:
                await self._usage.add([("", replace(row, sender=None)) for row in left])
            rows.saved(key, left)

    async def _run_once(self, key: str, adapter: Adapter, tenure: Tenure | None) -> Again | None:
        execution = new_id()
        purse = self._spending.purse(key, execution)
        keep = partial(self._blobs.put, key) if self._blobs is not None else None
        fetching = Fetching(key, adapter, self._opens, keep, self._clock, self._files)
        try:
            while True:
                before = await self._snapshots.load(key)
                await fetching.fetch(self.next_ones(before) if before else ())
                summary = await self._summary(key, adapter, purse, fetching)
                again = await self._start(key, adapter, execution, purse, summary, fetching, tenure)
                if again is not _UNFETCHED:
                    return again
        finally:
            purse.close()

    async def _start(
        self,
        key: str,
        adapter: Adapter,
        execution: str,
        purse: Purse,
        summary: NewSummary | None,
        fetching: Fetching,
        tenure: Tenure | None,
    ) -> Again | None:
        unfetched = False

        def start(before: Snapshot | None) -> Snapshot | None:
            nonlocal unfetched
            if before is None:
                return None
            if tenure is not None:
                tenure.begin(before, execution)
                purse.dead = before.turn.execution if before.turn else None
            unfetched = fetching.lacks(self.next_ones(before))
            if unfetched:
                # It came while the files of those before it were fetched.
                return before
            after = self._started(before, adapter, execution, fetching, summary)
            if after is before or after.turn is None:
                return after
            if after.turn.attempt <= MAX_ATTEMPTS:
                purse.sender = _asked(after, after.turn).sender.id
                purse.ahead(self._agent_for(after), after.rows)
            return self._with_options(after)

        saving = self._clock.monotonic()
        snapshot, applied = await self._snapshots.update(key, start)
        if unfetched:
            return _UNFETCHED
        if not applied or snapshot is None or snapshot.turn is None:
            return None
        turn = snapshot.turn
        fence = Fence(snapshot.epoch, execution)
        if tenure is not None:
            tenure.began(execution)
            if not await self._is_still_ours(key, fence, saving):
                return None
        failpoint("started")
        emit(
            "started",
            key,
            execution=execution,
            agent=self._agent.name,
            attempt=turn.attempt,
            messages=len(turn.taken),
        )
        try:
            if turn.attempt > MAX_ATTEMPTS:
                _ends(tenure)
                await self._apologise(key, adapter, fence, phrases.GAVE_UP, "attempts")
                return None
            return await self._attempt(key, adapter, snapshot, turn, fence, purse, tenure)
        finally:
            # However it ended; cancelled, too.
            emit("ended", key, level=logging.DEBUG, execution=execution)

    def _started(
        self,
        before: Snapshot,
        adapter: Adapter,
        execution: str,
        fetching: Fetching,
        summary: NewSummary | None = None,
    ) -> Snapshot:
        waiting = changes.brought(self._expired(before, adapter), fetching.contents)
        return changes.start(
            changes.named(waiting, fetching.names),
            execution=execution,
            now=self._clock.now(),
            memory=self._agent.memory,
            one_by_one=self._when_busy == "queue",
            join=self._when_busy == "interrupt",
            summary=summary,
            tell_time=self._agent.tell_time,
        )

    async def _summary(
        self, key: str, adapter: Adapter, purse: Purse, fetching: Fetching
    ) -> NewSummary | None:
        """Of what will have no room when the turn starts. Stored by the save that starts it."""
        if self._agent.memory.strategy != "summary":
            return None
        before = await self._snapshots.load(key)
        if before is None or before.turn is not None:
            return None
        planned = self._started(before, adapter, "planned", fetching)
        if planned.turn is None:
            return None
        purse.sender = _asked(planned, planned.turn).sender.id
        client = Paid(self._client, purse)
        return await summary_of(self._agent, client, before, planned.turn.steps, key)

    async def _is_still_ours(self, key: str, fence: Fence, saving: float) -> bool:
        """A process that was stopped during a save looks again before it does anything."""
        if self._clock.monotonic() - saving <= READING:
            return True
        return changes.holds(await self._snapshots.refresh(key), fence)

    async def _attempt(
        self,
        key: str,
        adapter: Adapter,
        snapshot: Snapshot,
        turn: Turn,
        fence: Fence,
        purse: Purse,
        tenure: Tenure | None,
    ) -> Again | None:
        asked = _asked(snapshot, turn)
        rate = adapter.limits.rate(key)
        showing = _Showing(self._snapshots, self._pace, key, rate, fence, tenure)
        on_screen: tuple[str, ...] = ()
        standing: Mapping[str, str] = {}
        try:
            live = adapter.live(key, asked, turn.shown, showing)
            try:
                finished = await self._run(
                    key, adapter, snapshot, turn, fence, purse, asked, live, tenure
                )
                _ends(tenure)
            finally:
                on_screen = await live.close()
                standing = live.standing() if _stands(live) else standing
            if isinstance(finished, Suspended):
                await self._suspend(key, adapter, fence, finished, turn, asked, on_screen)
                return None
            text = clean(finished.text)
            bodies = await _rendered(adapter, text) or adapter.render(self._say(phrases.INTERNAL))
            if _asks_opinions(adapter):
                bodies = adapter.asking(bodies)
        except Fenced:
            return None
        except BudgetReached as error:
            await self._apologise(key, adapter, fence, self._unpaid(key, error), str(error))
        except (ModelRefusedKey, ModelNotFound) as error:
            return await self._postpone(key, adapter, fence, str(error))
        except ModelUnavailable as error:
            if error.retry_after is not None and error.retry_after <= MAX_MODEL_WAIT:
                trouble("model.later", key, execution=fence.execution, error=str(error))
                return Again(error.retry_after)
            await self._apologise(key, adapter, fence, phrases.UNAVAILABLE, str(error))
        except ModelRejected as error:
            await self._apologise(key, adapter, fence, phrases.REJECTED, str(error))
        except StoreError:
            raise
        except Exception:
            logger.exception("turn.broken", extra={"event": {"key": key, **fence._asdict()}})
            await self._apologise(key, adapter, fence, phrases.INTERNAL, "internal")
        else:
            await self._commit(key, fence, finished, bodies, on_screen, standing)
        return None

    async def _run(
        self,
        key: str,
        adapter: Adapter,
        snapshot: Snapshot,
        turn: Turn,
        fence: Fence,
        purse: Purse,
        asked: Inbound,
        live: Live,
        tenure: Tenure | None,
    ) -> Finished | Suspended:
        agent = self._agent_for(snapshot)
        journal = _Journal(self._snapshots, key, fence, self._clock, agent, purse, tenure)
        purse.save = journal.kept
        kept, fit = snapshot.messages, snapshot.fit
        if agent.memory.strategy == "summary":
            # A window that waits for its summary is wider than what is sent.
            kept, fit = agent.memory.kept(kept, (), fit)
        return await run_turn(
            settle(agent, self._lists, adapter.name, key),
            Paid(self._client, purse),
            sent(kept, fit),
            turn.steps,
            journal,
            live.show,
            started=turn.started,
            suspended=turn.suspended,
            joining=changes.joining(snapshot),
            configured=self._agent.model,
            doing=live.doing if _shows_tools(live) else None,
            place=Place(session_key=key, execution=fence.execution, sender=asked.sender.id),
            clock=self._clock,
            blobs=self._blobs,
            say=self._say,
        )

    def _expired(self, before: Snapshot, adapter: Adapter) -> Snapshot:
        """What nobody has decided in time is declined."""
        suspension = approvals.suspended(before)
        if suspension is None or suspension.expires > self._clock.now() or before.turn is None:
            return before
        left = approvals.undecided(suspension)
        declined = approvals.decided(suspension, left, "declined", approvals.EXPIRED)
        sentence = self._say(phrases.EXPIRED)
        bodies = cards.outcomes(adapter, before.turn, left, sentence, self._say)
        return suspending.decide(before, declined, bodies)

    async def _suspend(
        self,
        key: str,
        adapter: Adapter,
        fence: Fence,
        asking: Suspended,
        turn: Turn,
        asked: Inbound,
        on_screen: tuple[str, ...],
    ) -> None:
        """Ask people, and wait without a task of ours."""
        suspension = Suspension(
            id=fence.execution,
            calls=approvals.pending(asking.calls),
            results=asking.step,
            sender=asked.sender.id,
            approvers=self._approvers or (asked.sender.id,),
            expires=asking.expires,
            joined=turn.suspended.joined if turn.suspended else (),
        )
        if not asked.group and asked.sender.id not in suspension.approvers:
            everything = range(len(suspension.calls))
            why = approvals.NOBODY_HERE
            suspension = approvals.decided(suspension, everything, "declined", why)
            questions: tuple[Outbound, ...] = ()
        else:
            now = self._clock.now()
            questions = cards.questions(adapter, suspension, asking.calls, asked, now, self._say)
        failpoint("before_commit")
        await self._change(
            key,
            lambda before: suspending.suspend(
                changes.shown(before, fence, on_screen) if on_screen else before,
                fence,
                suspension,
                questions,
                asking.usage,
            ),
        )
        failpoint("committed")
        emit("suspended", key, execution=fence.execution, calls=len(asking.calls))

    async def _commit(
        self,
        key: str,
        fence: Fence,
        finished: Finished,
        bodies: tuple[str, ...],
        on_screen: tuple[str, ...],
        standing: Mapping[str, str],
    ) -> None:
        def change(before: Snapshot | None) -> Snapshot | None:
            if before is None:
                return None
            return changes.commit(
                changes.shown(before, fence, on_screen) if on_screen else before,
                fence,
                finished.blocks,
                bodies,
                finished.usage,
                self._clock.now(),
                finished.window,
                finished.bytes_per_token,
                standing,
            )

        failpoint("before_commit")
        _, applied = await self._snapshots.update(key, change, delivers=True)
        if not applied:
            emit("fenced", key, execution=fence.execution)
            return
        failpoint("committed")
        emit(
            "committed",
            key,
            execution=fence.execution,
            outcome=finished.outcome,
            parts=len(bodies),
            characters=len(finished.text),
        )

    async def _apologise(
        self,
        key: str,
        adapter: Adapter,
        fence: Fence,
        sentence: str,
        why: str,
    ) -> None:
        bodies = adapter.render(self._say(sentence))
        trouble("apologised", key, execution=fence.execution, why=why)
        await self._change(key, lambda snapshot: changes.apologise(snapshot, fence, bodies))

    async def _postpone(self, key: str, adapter: Adapter, fence: Fence, why: str) -> Again:
        """The operator must act. Said once an hour; the message is kept and tried again."""
        logger.error("model.refused", extra={"event": {"key": key, "error": why}})
        now = self._clock.monotonic()
        told = self._told_no_model.get(key)
        bodies: tuple[str, ...] = ()
        if told is None or now - told >= NO_MODEL_TOLD_EVERY:
            bodies = adapter.render(self._say(phrases.NO_MODEL))
        await self._change(key, lambda snapshot: changes.postpone(snapshot, fence, bodies))
        if bodies:
            self._told_no_model = {
                name: at
                for name, at in self._told_no_model.items()
                if now - at < NO_MODEL_TOLD_EVERY
            }
            self._told_no_model[key] = now
        return Again(NO_MODEL_WAIT)

    def _unpaid(self, key: str, reached: BudgetReached) -> str:
        """The whole sentence once, and again when another limit, or another period, is meant."""
        again = self._told_budget.get(key) == str((reached.scope, reached.period, reached.until))
        self._told_budget[key] = str((reached.scope, reached.period, reached.until))
        self._told_budget.move_to_end(key)
        if len(self._told_budget) > TOLD:
            self._told_budget.popitem(last=False)
        return phrases.budget_reached(reached, self._say, again=again)

    async def _change(self, key: str, change: Callable[[Snapshot], Snapshot]) -> None:
        await self._snapshots.update(key, lambda before: before and change(before), delivers=True)

    def _agent_for(self, snapshot: Snapshot) -> Agent:
        """What the chat chose, over what is configured."""
        chosen = snapshot.chosen
        if not chosen:
            return self._agent
        model = chosen.get("model", self._agent.model)
        return replace(
            self._agent,
            # What may be chosen can change after it was.
            model=model if model in self._agent.models else self._agent.model,
            thinking=chosen.get("thinking", self._agent.thinking),
            effort=chosen.get("effort", self._agent.effort),
        )

    def _with_options(self, snapshot: Snapshot) -> Snapshot:
        agent = self._agent_for(snapshot)
        return replace(
            snapshot,
            model=agent.model,
            system_prompt=agent.instructions,
            thinking=agent.thinking,
            effort=agent.effort,
            cwd=self._cwd,
        )


def _ends(tenure: Tenure | None) -> None:
    if tenure is not None:
        tenure.ends()


def _stands(live: Live) -> TypeGuard[Standing]:
    """What isinstance would say, which goes through the whole Protocol each time."""
    return hasattr(live, "standing")


def _asks_opinions(adapter: Adapter) -> TypeGuard[AsksOpinions]:
    """As above."""
    return hasattr(adapter, "asking")


def _shows_tools(live: Live) -> TypeGuard[ShowsTools]:
    return hasattr(live, "doing")


async def _rendered(adapter: Adapter, text: str) -> tuple[str, ...]:
    if len(text) < LONG_TEXT:
        return adapter.render(text)
    # A long one takes long enough to hold up every other chat.
    return await asyncio.to_thread(adapter.render, text)


def _asked(snapshot: Snapshot, turn: Turn) -> Inbound:
    """The last of the messages that this turn answers."""
    return [inbound for inbound in snapshot.inbox if inbound.id in turn.taken][-1]


class _Showing:
    """What a Live is given: leave of the pace, and a note in the snapshot."""

    def __init__(
        self,
        snapshots: Snapshots,
        pace: Pace,
        key: str,
        rate: Rate | None,
        fence: Fence,
        tenure: Tenure | None,
    ) -> None:
        self._snapshots = snapshots
        self._pace = pace
        self._key = key
        self._rate = rate
        self._fence = fence
        self._tenure = tenure

    def may(self, leaving: Decoration) -> bool:
        if self._tenure is not None and not self._tenure.trusted:
            return False
        return self._pace.may(self._key, self._rate, leaving)

    def left(self, leaving: Decoration) -> None:
        self._pace.left(self._key, self._rate, leaving)

    async def note(self, message_ids: tuple[str, ...]) -> None:
        snapshot, _ = await self._snapshots.update(
            self._key, lambda before: before and changes.shown(before, self._fence, message_ids)
        )
        if not changes.holds(snapshot, self._fence):
            raise Fenced("the answer that this message shows is not wanted any more")

    async def later(self, seconds: float) -> None:
        await self._pace.later(self._key, seconds, self._rate)


class _Journal:
    """The turn's journal in the snapshot: one save a call."""

    def __init__(
        self,
        snapshots: Snapshots,
        key: str,
        fence: Fence,
        clock: Clock,
        agent: Agent,
        purse: Purse,
        tenure: Tenure | None,
    ) -> None:
        self._shared = tenure is not None
        self._snapshots = snapshots
        self._key = key
        self._fence = fence
        self._clock = clock
        self._agent = agent
        self._purse = purse

    async def answered(self, blocks: Sequence[msgspec.Raw], started: tuple[str, ...]) -> None:
        now = self._clock.now()
        await self._save(lambda before: changes.answered(before, self._fence, blocks, started, now))

    async def results(self, blocks: msgspec.Raw) -> None:
        now = self._clock.now()

        def change(before: Snapshot) -> Snapshot:
            after = changes.results(before, self._fence, blocks, now)
            if after is not before:
                self._purse.ahead(self._agent, after.rows)
            return after

        await self._save(change)

    async def kept(self) -> None:
        """What the purse has reserved is durable."""
        await self._save(
            lambda before: replace(before) if changes.holds(before, self._fence) else before
        )

    async def _save(self, change: Callable[[Snapshot], Snapshot]) -> None:
        saving = self._clock.monotonic()
        snapshot, _ = await self._snapshots.update(
            self._key, lambda before: before and change(before)
        )
        if self._shared and self._clock.monotonic() - saving > READING:
            # Whoever was stopped meanwhile may have lost it after this was saved; and what comes
            # next is a request, or a tool.
            snapshot = await self._snapshots.refresh(self._key)
        if not changes.holds(snapshot, self._fence):
            raise Fenced("another run has taken this turn over")
