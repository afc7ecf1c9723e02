"""Conversations: what a bot does with its messages. Accept, work, and nothing else in public.

The eight hops meet here: the gate admits, `accept` makes a message durable, `work` delivers what is
unsent, answers what waits, and delivers that. It holds no truth of its own: whatever is kept in
memory here can be lost at any moment, because all of it stands in the snapshots.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from core import changes, commands, phrases
from core.adapter import Acceptance, Accepted, Adapter, Duplicate, Refused
from core.agent import Agent
from core.changes import Fence
from core.clock import Clock
from core.delivery import Delivery, OnUnknownOutcome
from core.engine import Again, Done
from core.errors import (
    Fatal,
    Fenced,
    ModelNotFound,
    ModelRefusedKey,
    ModelRejected,
    ModelUnavailable,
    SnapshotTooNew,
    SnapshotUnreadable,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
)
from core.events import emit, logger, trouble
from core.failpoints import failpoint
from core.gate import Admitted, Gate
from core.messages import Inbound, clean, cut
from core.model import ModelClient
from core.pace import Pace
from core.snapshot import Snapshot, Turn
from core.snapshots import Snapshots, new_id
from core.store import BotStore, SessionRef
from core.turn import Finished, Place, run_turn

MAX_ATTEMPTS: Final = 3
STORE_WAIT: Final = 5.0
NO_MODEL_WAIT: Final = 60.0
NO_MODEL_TOLD_EVERY: Final = 3_600.0
MAX_MODEL_WAIT: Final = 300.0
LONG_TEXT: Final = 10_000
MOVES_REMEMBERED: Final = 1_000

WhenBusy = Literal["collect", "queue", "interrupt"]
Submit = Callable[[str, str], Awaitable[None]]


class Options(msgspec.Struct, frozen=True):
    """
    :param when_busy: a message that comes during a turn waits with the others for the next one
        (`collect`), waits for one of its own (`queue`), or joins the turn, which begins again
        (`interrupt`)
    """

    cwd: str = ""
    when_busy: WhenBusy = "collect"
    on_unknown_outcome: OnUnknownOutcome = "resend"


class _Busy:
    """A key that is worked on in this process now."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.turn: asyncio.Task[Again | None] | None = None


class Conversations:
    """
    :param submit: the engine's: called for keys that have something to do after a move
    """

    def __init__(
        self,
        store: BotStore,
        agent: Agent,
        client: ModelClient,
        adapters: Sequence[Adapter],
        gate: Gate,
        clock: Clock,
        submit: Submit,
        options: Options = Options(),  # noqa: B008 (frozen)
    ) -> None:
        self._store = store
        self._agent = agent
        self._client = client
        self._adapters = tuple(adapters)
        self._gate = gate
        self._clock = clock
        self._submit = submit
        self._options = options
        self._snapshots = Snapshots(store, clock, self.ref)
        self._pace = Pace(clock, store.notes)
        self._delivery = Delivery(
            self._snapshots, self._pace, clock, options.on_unknown_outcome, self._move
        )
        self._busy: dict[str, _Busy] = {}
        self._last_attempt = asyncio.Lock()
        self._told_no_model: dict[str, float] = {}
        self._moved: dict[str, str] = {}
        # What a store error has left half done, until somebody tries again.
        self._moving: dict[str, str] = {}
        self._untold: dict[str, str] = {}

    def ref(self, key: str) -> SessionRef:
        return SessionRef(key=key, agent=self._agent.name, cwd=self._options.cwd)

    async def open(self) -> None:
        """Remember what an earlier process was told. Before anything else.

        :raises StoreError: what the store raises
        """
        await self._pace.open()

    async def update(self, key: str, change: Callable[[Snapshot], Snapshot]) -> Snapshot | None:
        """Change what is stored; None when nothing is."""
        snapshot, _ = await self._snapshots.update(key, lambda before: before and change(before))
        return snapshot

    # ------------------------------------------------------------------ hops 3 and 4

    async def accept(self, inbound: Inbound) -> Acceptance:
        """Durable when it returns `Accepted` or `Duplicate`.

        :raises StoreUnavailable: nothing may be confirmed; the platform shall send again
        """
        key = inbound.key if inbound.kind == "moved" else self._now_at(inbound.key)
        try:
            accepted = await self._admit(replace(inbound, key=key, text=cut(clean(inbound.text))))
        except StoreCorrupt as error:
            # `work` meets the same, and may end the program; an adapter may not.
            await self._submit(key, inbound.id)
            raise StoreUnavailable(str(error)) from error
        if key != inbound.key:
            # Said again as it was before the chat moved; our caller knows the old key only.
            await self._submit(key, inbound.id)
        return accepted

    async def _admit(self, inbound: Inbound) -> Acceptance:
        began = self._clock.monotonic()
        admitted = await self._gate.admit(inbound)
        if isinstance(admitted, Refused):
            return admitted
        if inbound.kind == "moved":
            await self._move(inbound.key, inbound.text)
            return Accepted()
        failpoint("before_accept")
        accepted = await self._accept(inbound, admitted)
        if isinstance(accepted, Accepted):
            failpoint("accepted")
        emit(
            type(accepted).__name__.lower(),
            inbound.key,
            id=inbound.id,
            kind=inbound.kind,
            characters=len(inbound.text),
            ms=round((self._clock.monotonic() - began) * 1000, 1),
        )
        if inbound.key not in self._busy:
            self._snapshots.forget(inbound.key)
        return accepted

    async def _accept(self, inbound: Inbound, admitted: Admitted) -> Acceptance:
        command = commands.name_of(inbound)
        if command is None and not inbound.text.strip() and bytes(inbound.blocks) == b"[]":
            return Refused()
        adapter = self._adapter(inbound.key)
        if adapter is None:
            trouble("refused", inbound.key, why="no adapter serves this key")
            return Refused()
        epoch = new_id()
        begun = False

        def change(before: Snapshot | None) -> Snapshot:
            nonlocal begun
            begun = before is None
            if before is None and self._is_leaving(inbound.key):
                # It moved while this was on its way in; under the old key it would be answered
                # before what came earlier.
                raise StoreUnavailable(f"{inbound.key}: the chat is moving; to be sent again")
            lost = self._lost(inbound.key, adapter)
            snapshot = before or changes.notice(self._begin(), lost)
            if command is None:
                return changes.accept(snapshot, inbound)
            if inbound.id in snapshot.seen:
                return snapshot
            said = commands.answer(snapshot, command, inbound)
            said = phrases.PAIRED if admitted.paired else said
            after = commands.effect(snapshot, command, epoch)
            if before is None and not after.outbox:
                # A /reset has emptied it; but what was set aside is not forgotten.
                after = changes.notice(after, lost)
            return changes.reply(after, inbound, adapter.render(said))

        try:
            snapshot, applied = await self._snapshots.update(inbound.key, change)
        except (SnapshotUnreadable, SnapshotTooNew) as error:
            await self._set_aside(inbound.key, error)
            snapshot, applied = await self._snapshots.update(inbound.key, change)
        if begun:
            self._untold.pop(inbound.key, None)
        if not applied:
            if snapshot is not None and changes.knows(snapshot, inbound.id):
                return Duplicate()
            return Refused(phrases.INBOX_FULL, private=True)
        self._interrupt(inbound.key, command)
        return Accepted()

    def _interrupt(self, key: str, command: str | None) -> None:
        """Tell whoever works on this key that it has changed."""
        busy = self._busy.get(key)
        if busy is None:
            return
        busy.wake.set()
        interrupts = command is None and self._options.when_busy == "interrupt"
        if busy.turn and (interrupts or command in commands.INTERRUPTING):
            busy.turn.cancel()

    def _begin(self) -> Snapshot:
        return changes.begin(
            revision=0, epoch=new_id(), now=self._clock.now(), cwd=self._options.cwd
        )

    async def _set_aside(self, key: str, error: StoreError) -> None:
        """Keep what cannot be read. The conversation that begins now says so, also when it takes
        several tries to begin it."""
        logger.error("set_aside", extra={"event": {"key": key, "error": str(error)}})
        too_new = isinstance(error, SnapshotTooNew)
        self._untold[key] = phrases.TOO_NEW if too_new else phrases.UNREADABLE
        await self._store.set_aside(self.ref(key))
        self._snapshots.forget(key)

    def _lost(self, key: str, adapter: Adapter) -> tuple[str, ...]:
        sentence = self._untold.get(key)
        return adapter.render(sentence) if sentence else ()

    async def _move(self, old: str, new: str) -> None:
        """A chat goes on under another key. Twice is harmless."""
        if _is_under(new, old):
            return
        # Until all of it is done: once nothing is stored under the old key, nothing is sent there
        # that could tell us again.
        self._moving[old] = new
        try:
            await self._store.move(old, new)
            self._remember_move(old, new)
        finally:
            self._snapshots.forget_all(lambda key: _is_under(key, old) or _is_under(key, new))
        emit("moved", old, to=new)
        async for key in self._store.unfinished():
            if _is_under(key, new):
                await self._submit(key, "")
        self._moving.pop(old, None)

    def _is_leaving(self, key: str) -> bool:
        """Whether nothing may begin under this key any more, from when its move begins."""
        return any(_is_under(key, old) for old in (*self._moving, *self._moved))

    def _remember_move(self, old: str, new: str) -> None:
        self._moved.pop(new, None)
        self._moved[old] = new
        if len(self._moved) > MOVES_REMEMBERED:
            del self._moved[next(iter(self._moved))]

    def _now_at(self, key: str) -> str:
        for old, new in self._moved.items():
            if _is_under(key, old):
                key = new + key[len(old) :]
        return key

    # ------------------------------------------------------------------ hops 5 to 8

    async def work(self, key: str) -> Done | Again:
        """Deliver what is unsent, run one turn if somebody waits for it, deliver that.

        :raises Fatal: the program must end
        """
        adapter = self._adapter(key)
        if adapter is None:
            return Done()
        busy = self._busy[key] = _Busy()
        try:
            outcome = await self._work_or_begin_anew(key, adapter, busy)
        except StoreCorrupt as error:
            raise Fatal(3, str(error)) from error
        except StoreError as error:
            logger.error("store", extra={"event": {"key": key, "error": str(error)}})
            outcome = Again(STORE_WAIT)
        finally:
            del self._busy[key]
            self._snapshots.forget(key)
            if busy.turn:
                # Done or not: nobody else may be left to hear how it ended.
                busy.turn.cancel()
                await asyncio.gather(busy.turn, return_exceptions=True)
        return outcome

    async def _work_or_begin_anew(self, key: str, adapter: Adapter, busy: _Busy) -> Done | Again:
        for old, new in tuple(self._moving.items()):
            if _is_under(key, old):
                await self._move(old, new)
        try:
            if key in self._untold:
                return await self._begin_anew(key, adapter)
            return await self._work(key, adapter, busy)
        except (SnapshotUnreadable, SnapshotTooNew) as error:
            await self._set_aside(key, error)
            return await self._begin_anew(key, adapter)

    async def _work(self, key: str, adapter: Adapter, busy: _Busy) -> Done | Again:
        wait = await self._delivery.deliver(key, adapter)
        if wait is not None:
            return Again(wait)
        snapshot = await self._snapshots.load(key)
        if snapshot is None or not (snapshot.inbox or snapshot.turn):
            return Done()
        busy.turn = asyncio.create_task(self._answer(key, adapter, snapshot), name=f"turn {key}")
        again = await self._deliver_beside(key, adapter, busy, busy.turn)
        wait = await self._delivery.deliver(key, adapter)
        if wait is not None:
            return Again(wait)
        if again is not None:
            return again
        snapshot = await self._snapshots.load(key)
        return Again() if snapshot and snapshot.unfinished else Done()

    async def _deliver_beside(
        self, key: str, adapter: Adapter, busy: _Busy, turn: asyncio.Task[Again | None]
    ) -> Again | None:
        """Commands are answered while the turn runs."""
        while not turn.done():
            waking = asyncio.create_task(busy.wake.wait())
            try:
                await asyncio.wait((turn, waking), return_when=asyncio.FIRST_COMPLETED)
            finally:
                waking.cancel()
            if busy.wake.is_set() and not turn.done():
                busy.wake.clear()
                await self._delivery.deliver(key, adapter)
        if turn.cancelled():
            return None
        return turn.result()

    async def _answer(self, key: str, adapter: Adapter, before: Snapshot) -> Again | None:
        """Hop 5 and 6: one run of a turn, and its commit.

        :param before: what the turn is about to start from
        """
        if before.turn is None or before.turn.attempt != MAX_ATTEMPTS - 1:
            return await self._run_once(key, adapter)
        # It was under way when the program died twice, and one message may have been the cause of
        # both. Were all of them begun a last time together, that one would take the others along.
        async with self._last_attempt:
            return await self._run_once(key, adapter)

    async def _run_once(self, key: str, adapter: Adapter) -> Again | None:
        execution = new_id()
        options = self._options

        def start(before: Snapshot | None) -> Snapshot | None:
            if before is None:
                return None
            after = changes.start(
                before,
                execution=execution,
                now=self._clock.now(),
                memory=self._agent.memory,
                one_by_one=options.when_busy == "queue",
                join=options.when_busy == "interrupt",
            )
            return after if after is before else self._with_options(after)

        snapshot, applied = await self._snapshots.update(key, start)
        if not applied or snapshot is None or snapshot.turn is None:
            return None
        turn = snapshot.turn
        fence = Fence(snapshot.epoch, execution)
        failpoint("started")
        emit("started", key, execution=execution, attempt=turn.attempt, messages=len(turn.taken))
        if turn.attempt > MAX_ATTEMPTS:
            await self._apologise(key, adapter, fence, phrases.GAVE_UP, "attempts")
            return None
        return await self._attempt(key, adapter, snapshot, turn, fence)

    async def _attempt(
        self, key: str, adapter: Adapter, snapshot: Snapshot, turn: Turn, fence: Fence
    ) -> Again | None:
        asked = [inbound for inbound in snapshot.inbox if inbound.id in turn.taken][-1]
        rate = adapter.limits.rate(key)
        on_screen: tuple[str, ...] = ()
        try:
            live = adapter.live(
                key, asked, turn.shown, lambda leaving: self._pace.may(key, rate, leaving)
            )
            try:
                finished = await self._run(key, snapshot, turn, fence, asked, live.show)
            finally:
                on_screen = await live.close()
            text = clean(finished.text)
            bodies = await _rendered(adapter, text) or adapter.render(phrases.INTERNAL)
        except Fenced:
            return None
        except (ModelRefusedKey, ModelNotFound) as error:
            return await self._postpone(key, adapter, fence, str(error))
        except ModelUnavailable as error:
            if error.retry_after is not None and error.retry_after <= MAX_MODEL_WAIT:
                trouble("model.later", key, execution=fence.execution, error=str(error))
                return Again(error.retry_after)
            await self._apologise(key, adapter, fence, phrases.UNAVAILABLE, str(error))
        except ModelRejected as error:
            await self._apologise(key, adapter, fence, phrases.REJECTED, str(error), anew=True)
        except StoreError:
            raise
        except Exception:
            logger.exception("turn.broken", extra={"event": {"key": key, **fence._asdict()}})
            await self._apologise(key, adapter, fence, phrases.INTERNAL, "internal")
        else:
            await self._commit(key, fence, finished, bodies, on_screen)
        return None

    async def _run(
        self,
        key: str,
        snapshot: Snapshot,
        turn: Turn,
        fence: Fence,
        asked: Inbound,
        show: Callable[[str], bool],
    ) -> Finished:
        """With the model that the chat chose; when that is gone, with the configured one."""
        agent = self._agent_for(snapshot)
        place = Place(session_key=key, execution=fence.execution, sender=asked.sender.id)
        journal = _Journal(self._snapshots, key, fence, self._clock)
        while True:
            try:
                return await run_turn(
                    agent,
                    self._client,
                    snapshot.messages,
                    turn.steps,
                    journal,
                    show,
                    started=turn.started,
                    place=place,
                    clock=self._clock,
                )
            except ModelNotFound as error:
                if agent.model == self._agent.model:
                    raise
                trouble("model.replaced", key, gone=agent.model, error=str(error))
                agent = replace(agent, model=self._agent.model)

    async def _commit(
        self,
        key: str,
        fence: Fence,
        finished: Finished,
        bodies: tuple[str, ...],
        on_screen: tuple[str, ...],
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
            )

        failpoint("before_commit")
        _, applied = await self._snapshots.update(key, change)
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
        *,
        anew: bool = False,
    ) -> None:
        bodies = adapter.render(sentence)
        trouble("apologised", key, execution=fence.execution, why=why)
        await self.update(
            key, lambda snapshot: changes.apologise(snapshot, fence, bodies, anew=anew)
        )

    async def _postpone(self, key: str, adapter: Adapter, fence: Fence, why: str) -> Again:
        """The operator must act. Said once an hour; the message is kept and tried again."""
        logger.error("model.refused", extra={"event": {"key": key, "error": why}})
        now = self._clock.monotonic()
        told = self._told_no_model.get(key)
        bodies: tuple[str, ...] = ()
        if told is None or now - told >= NO_MODEL_TOLD_EVERY:
            bodies = adapter.render(phrases.NO_MODEL)
        await self.update(key, lambda snapshot: changes.postpone(snapshot, fence, bodies))
        if bodies:
            self._told_no_model = {
                name: at
                for name, at in self._told_no_model.items()
                if now - at < NO_MODEL_TOLD_EVERY
            }
            self._told_no_model[key] = now
        return Again(NO_MODEL_WAIT)

    async def _begin_anew(self, key: str, adapter: Adapter) -> Again:
        """What was to be done here could not be read: the person is told so, unasked."""
        bodies = self._lost(key, adapter)
        await self._snapshots.update(
            key, lambda before: before or changes.notice(self._begin(), bodies)
        )
        self._untold.pop(key, None)
        return Again()

    # ------------------------------------------------------------------ the small print

    def _adapter(self, key: str) -> Adapter | None:
        for adapter in self._adapters:
            if adapter.serves(key):
                return adapter
        return None

    def _agent_for(self, snapshot: Snapshot) -> Agent:
        """What the chat chose, over what is configured."""
        chosen = snapshot.chosen
        return replace(
            self._agent,
            model=chosen.get("model", self._agent.model),
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
            cwd=self._options.cwd,
        )


async def _rendered(adapter: Adapter, text: str) -> tuple[str, ...]:
    if len(text) < LONG_TEXT:
        return adapter.render(text)
    # A long one takes long enough to hold up every other chat.
    return await asyncio.to_thread(adapter.render, text)


def _is_under(key: str, prefix: str) -> bool:
    return key == prefix or key.startswith(f"{prefix}/")


class _Journal:
    """The turn's journal in the snapshot: one save a call."""

    def __init__(self, snapshots: Snapshots, key: str, fence: Fence, clock: Clock) -> None:
        self._snapshots = snapshots
        self._key = key
        self._fence = fence
        self._clock = clock

    async def answered(self, blocks: Sequence[msgspec.Raw], started: tuple[str, ...]) -> None:
        now = self._clock.now()
        await self._save(lambda before: changes.answered(before, self._fence, blocks, started, now))

    async def results(self, blocks: msgspec.Raw) -> None:
        now = self._clock.now()
        await self._save(lambda before: changes.results(before, self._fence, blocks, now))

    async def _save(self, change: Callable[[Snapshot], Snapshot]) -> None:
        snapshot, _ = await self._snapshots.update(
            self._key, lambda before: before and change(before)
        )
        if not changes.holds(snapshot, self._fence):
            raise Fenced("another run has taken this turn over")
