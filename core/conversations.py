"""Conversations: what a bot does with its messages. Accept, work, and nothing else in public.

The eight hops meet here: the gate admits, `accept` makes a message durable, `work` delivers what is
unsent, answers what waits, and delivers that. It holds no truth of its own: whatever is kept in
memory here can be lost at any moment, because all of it stands in the snapshots.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

import msgspec
from msgspec.structs import replace

from core import access, approvals, cards, changes, decisions, edits, export, phrases, rooms
from core.adapter import (
    Acceptance,
    Accepted,
    Adapter,
    Duplicate,
    KnowsMembers,
    Refused,
    SendsFiles,
)
from core.agent import Agent
from core.albums import Albums
from core.answering import Answering, WhenBusy
from core.attachments import Opens, OpensNothing
from core.clock import Clock
from core.command import Backstage, Call, Command, Commands, argument_of
from core.commands import BUILT_IN
from core.delivery import Delivery, OnUnknownOutcome
from core.engine import Again, Done
from core.entrance import Entrance
from core.errors import (
    Fatal,
    Fenced,
    SnapshotTooNew,
    SnapshotUnreadable,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
)
from core.events import emit, logger, trouble
from core.failpoints import failpoint
from core.gate import Admitted, Asks, Gate
from core.ledger import Ledger
from core.messages import ERASE, Inbound, clean, cut
from core.model import ModelClient
from core.moves import Moves, is_under
from core.pace import Pace
from core.phrases import ENGLISH, Wording
from core.scrubs import Scrubs
from core.snapshot import Snapshot
from core.snapshots import Snapshots, new_id
from core.spending import Spending
from core.store import BotStore, SessionRef
from core.tenure import READING, Tenure
from core.toolset import Lists
from core.untold import Untold

STORE_WAIT: Final = 5.0
TRIES: Final = 4  # to begin anew where nothing can be read, before the platform shall try again
LEFT_PAGE: Final = 200  # conversations of a place that are looked up at once

Submit = Callable[[str, str], Awaitable[None]]


class Options(msgspec.Struct, frozen=True):
    """
    :param when_busy: a message that comes during a turn waits with the others for the next one
        (`collect`), waits for one of its own (`queue`), or joins the turn, which begins again
        (`interrupt`)
    :param approvers: ids of those who may allow the calls that need it; none: who asked may
    :param say: how the bot words its fixed sentences
    :param tools: which of the agent's tools a chat may use
    :param opens: what reads the files that people send
    :param overheard: how many messages that were said in a room, but not to the bot, are
        remembered for its next turn there; 0: none, and no trace of them is kept
    :param shared: other processes take messages in, or work, on the same database
    """

    cwd: str = ""
    when_busy: WhenBusy = "collect"
    on_unknown_outcome: OnUnknownOutcome = "resend"
    approvers: tuple[str, ...] = ()
    say: Wording = ENGLISH
    tools: Lists = Lists()
    opens: Opens = OpensNothing()
    overheard: int = 0
    shared: bool = False


class _Busy:
    """A key that is worked on in this process now."""

    def __init__(self) -> None:
        self.woken = asyncio.get_running_loop().create_future()
        self.turn: asyncio.Task[Again | None] | None = None
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class _Unlooked(Exception):
    """Nothing is stored: what other processes know of that must be looked up first."""


class Conversations:
    """
    :param submit: the engine's: called for keys that have something to do after a move
    :param commands: what people can tell the bot itself
    :param spending: prices and budgets; None: the prices that come along, and no limit
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
        commands: Commands = BUILT_IN,
        spending: Spending | None = None,
    ) -> None:
        self._store = store
        self._agent = agent
        self._adapters = tuple(adapters)
        self._gate = gate
        self._clock = clock
        self._submit = submit
        self._options = options
        self._say = options.say
        self._commands = commands
        # Without the command nobody could say that it is to be off, nor take it back.
        self._mention = commands.named("mention")
        self._spending = spending or Spending(clock)
        if options.shared:
            self._spending.share(store.notes, store.usage)
            gate.share()
        self._snapshots = Snapshots(
            store, clock, self.ref, self._spending.rows, shared=options.shared
        )
        self._backstage = Backstage(
            store, self.ref, self._snapshots, clock, Scrubs(clock), self._spending
        )
        self._entrance = Entrance(
            gate, self._snapshots, self._adapters, self._begin, submit, options.say
        )
        self._pace = Pace(clock, store.notes, shared=options.shared)
        self._delivery = Delivery(
            self._snapshots,
            self._pace,
            clock,
            options.on_unknown_outcome,
            self._move,
            lambda key, file: export.made(store, self.ref(key), file),
            options.say,
        )
        self._answering = Answering(
            self._snapshots,
            self._pace,
            agent,
            client,
            clock,
            cwd=options.cwd,
            when_busy=options.when_busy,
            approvers=options.approvers,
            spending=self._spending,
            say=options.say,
            blobs=store.blobs,
            lists=options.tools,
            opens=options.opens,
            usage=store.usage,
        )
        self._albums = Albums(clock)
        self._busy: dict[str, _Busy] = {}
        self._asides: dict[str, int] = {}
        self._setting_aside = asyncio.Lock()
        self._moves = Moves(store.notes if options.shared else None)
        # Conversations that were set aside, and what to say of it when they have begun anew.
        self._untold = Untold(store.notes)

    def ref(self, key: str) -> SessionRef:
        return SessionRef(key=key, agent=self._agent.name, cwd=self._options.cwd)

    async def open(self) -> None:
        """Remember what an earlier process was told. Before anything else.

        :raises StoreError: what the store raises
        """
        await self._pace.open()
        await self._spending.open(self._store.usage)
        for key in await self._untold.open():
            await self._submit(key, "")

    async def update(self, key: str, change: Callable[[Snapshot], Snapshot]) -> Snapshot | None:
        """Change what is stored; None when nothing is."""
        snapshot, _ = await self._snapshots.update(key, lambda before: before and change(before))
        return snapshot

    def forget(self, key: str) -> None:
        """Somebody has changed it in the store, beside us: what is in memory is old."""
        self._snapshots.forget(key)

    # ------------------------------------------------------------------ hops 3 and 4

    async def accept(self, inbound: Inbound) -> Acceptance:
        """Durable when it returns `Accepted` or `Duplicate`.

        :raises StoreUnavailable: nothing may be confirmed; the platform shall send again
        """
        key = inbound.key if inbound.kind == "moved" else self._moves.now_at(inbound.key)
        try:
            if inbound.follows and not await self._knows(key):
                return Refused()
            text = cut(clean(inbound.text))
            accepted = await self._admit(replace(inbound, key=key, text=text, follows=False))
        except StoreCorrupt as error:
            # `work` meets the same, and may end the program; an adapter may not.
            await self._submit(key, inbound.id)
            raise StoreUnavailable(str(error)) from error
        if key != inbound.key:
            # Said again as it was before the chat moved; our caller knows the old key only.
            await self._submit(key, inbound.id)
        return accepted

    async def _knows(self, key: str) -> bool:
        """Whether there is such a conversation. Asked before the gate: what people say where we
        are not does not count against them.

        :raises StoreError: what the store raises, what concerns one conversation aside
        """
        try:
            return await self._snapshots.load(key) is not None
        except (SnapshotUnreadable, SnapshotTooNew):
            # There is one. Whoever accepts into it sets it aside.
            return True
        finally:
            if key not in self._busy:
                self._snapshots.forget(key)

    async def _admit(self, inbound: Inbound) -> Acceptance:
        began = self._clock.monotonic()
        await self._gate.refresh()
        if not inbound.addressed:
            if not await self._is_for_us(inbound):
                return await self._overhear(inbound)
            inbound = replace(inbound, addressed=True)
        admitted = await self._gate.admit(inbound)
        if isinstance(admitted, Refused):
            return admitted
        if isinstance(admitted, Asks):
            return await self._entrance.ask(inbound, admitted.asking)
        if inbound.kind == "moved":
            await self._move(inbound.key, inbound.text)
            return Accepted()
        if inbound.kind == "left":
            await self._leave(inbound.key, erase=inbound.text == ERASE)
            return Accepted()
        failpoint("before_accept")
        if inbound.kind == "edit":
            accepted = await self._edit(inbound)
        else:
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
        command = self._commands.of(inbound)
        if inbound.kind == "decision" and access.pressed(inbound.text):
            door = self._adapter(inbound.key)
            return await self._entrance.press(inbound, door) if door else Refused()
        if command is None and not (inbound.text.strip() or _brings_anything(inbound)):
            return Refused()
        adapter = self._adapter(inbound.key)
        if adapter is None:
            trouble("refused", inbound.key, why="no adapter serves this key")
            return Refused()
        trusted = self._gate.trusts(inbound.sender.id)
        call = await self._called(command, inbound, adapter, trusted) if command else None
        begun = done = looked = False
        refused: Refused | None = None

        def change(before: Snapshot | None) -> Snapshot | None:
            nonlocal begun, done, refused
            refused = None
            if inbound.kind == "decision" or (command and command.name in decisions.COMMANDS):
                decided = self._decided(before, inbound, command, adapter)
                refused = decided if isinstance(decided, Refused) else None
                return before if isinstance(decided, Refused) else decided
            begun = before is None
            if before is None and self._options.shared and not looked:
                raise _Unlooked
            if before is None and self._moves.is_leaving(inbound.key):
                # It moved while this was on its way in; under the old key it would be answered
                # before what came earlier.
                raise StoreUnavailable(f"{inbound.key}: the chat is moving; to be sent again")
            lost = self._lost(inbound.key, adapter)
            snapshot = before or changes.notice(self._begin(), lost)
            if command is None or call is None:
                after = changes.accept(snapshot, inbound)
                return decisions.go_on(snapshot, after, inbound, adapter, self._say)
            if inbound.id in snapshot.seen:
                return snapshot
            outcome = command.outcome(snapshot, call)
            done = outcome.snapshot is not None
            said = self._say(phrases.PAIRED) if admitted.paired else outcome.text
            after = outcome.snapshot or snapshot
            if before is None and not after.outbox:
                # A /reset has emptied it; but what was set aside is not forgotten.
                after = changes.notice(after, lost)
            after = cards.withdrawn(snapshot, after, adapter, self._say)
            return changes.reply(after, inbound, adapter.render(said), outcome.files)

        for _ in range(TRIES):
            asides = self._asides.get(inbound.key, 0)
            try:
                snapshot, applied = await self._snapshots.update(inbound.key, change)
                break
            except _Unlooked:
                await self._look(inbound.key)
            except (SnapshotUnreadable, SnapshotTooNew) as error:
                await self._set_aside(inbound.key, error, asides)
            looked = True
        else:
            raise StoreUnavailable(f"{inbound.key}: nothing there can be read; to be sent again")
        if begun:
            await self._untold.told(inbound.key)
        if not applied:
            if snapshot is not None and changes.knows(snapshot, inbound.id):
                return Duplicate()
            return refused or Refused(self._say(phrases.INBOX_FULL), private=True)
        if inbound.kind == "decision":
            interrupts = edits.is_press(inbound.text)
        elif command is None:
            interrupts = self._options.when_busy == "interrupt"
        else:
            interrupts = command.interrupts and done
        self._wake(inbound.key, interrupts or _is_late(snapshot, inbound))
        return Accepted()

    async def _is_for_us(self, inbound: Inbound) -> bool:
        """Whether all that is said in this room is said to the bot."""
        if self._mention is None or not self._gate.lets_in(inbound.sender.id):
            return False
        try:
            snapshot = await self._snapshots.load(inbound.key)
        except (SnapshotUnreadable, SnapshotTooNew):
            return False
        finally:
            if inbound.key not in self._busy:
                self._snapshots.forget(inbound.key)
        return snapshot is not None and snapshot.chosen.get("mention") == "off"

    async def _overhear(self, inbound: Inbound) -> Acceptance:
        """It is remembered for the next turn, where that is wanted. Nobody is told anything."""
        most = self._options.overheard
        if not most or not self._gate.lets_in(inbound.sender.id):
            return Refused()
        try:
            if self._options.shared and await self._snapshots.load(inbound.key) is None:
                await self._look(inbound.key)
            if self._adapter(inbound.key) is None or self._moves.is_leaving(inbound.key):
                return Refused()
            snapshot, applied = await self._snapshots.update(
                inbound.key, lambda before: changes.hear(before or self._begin(), inbound, most)
            )
        except (SnapshotUnreadable, SnapshotTooNew):
            return Refused()
        finally:
            if inbound.key not in self._busy:
                self._snapshots.forget(inbound.key)
        if applied:
            emit("overheard", inbound.key, id=inbound.id)
            return Accepted()
        known = snapshot is not None and changes.knows(snapshot, inbound.id)
        return Duplicate() if known else Refused()

    async def _edit(self, edit: Inbound) -> Acceptance:
        """It begins no conversation and no turn. One that changes nothing is not kept."""
        adapter = self._adapter(edit.key)
        if adapter is None:
            return Refused()

        def change(before: Snapshot | None) -> Snapshot | None:
            return before and edits.edit(before, edit, adapter, self._say)

        try:
            snapshot, applied = await self._snapshots.update(edit.key, change)
        except (SnapshotUnreadable, SnapshotTooNew):
            # Whoever says something next, or works on it, sets it aside.
            return Refused()
        if applied:
            self._wake(edit.key, interrupts=False)
            return Accepted()
        known = snapshot is not None and changes.knows(snapshot, edit.id)
        return Duplicate() if known else Refused()

    def _decided(
        self, before: Snapshot | None, inbound: Inbound, command: Command | None, adapter: Adapter
    ) -> Snapshot | Refused | None:
        """A button or a command about a call that waits. It begins no conversation."""
        if before is None or changes.knows(before, inbound.id):
            return before or Refused(self._say(phrases.NOT_OPEN), private=True, over=True)
        if command is None and edits.is_press(inbound.text):
            return edits.press(before, inbound, adapter, self._say)
        if command is None:
            return decisions.press(before, inbound, adapter, self._say)
        argument = argument_of(inbound)
        said = decisions.told(before, command.name, argument, inbound, adapter, self._say)
        if isinstance(said, Refused):
            return said
        after, reply = said
        return changes.reply(after, inbound, adapter.render(reply))

    async def _called(
        self, command: Command, inbound: Inbound, adapter: Adapter, trusted: bool
    ) -> Call:
        """What the command is told, after whatever it must do or look up first."""
        call = Call(
            name=command.name,
            inbound=inbound,
            argument=argument_of(inbound),
            agent=self._agent,
            commands=self._commands.open_to(trusted),
            trusted=trusted,
            admin=trusted or await self._is_admin(command, inbound, adapter),
            files=isinstance(adapter, SendsFiles),
            epoch=new_id(),
            now=self._clock.now(),
            say=self._say,
        )
        if command.first is None:
            return call
        try:
            snapshot = await self._snapshots.load(inbound.key)
        except (SnapshotUnreadable, SnapshotTooNew):
            # Met again where it can be set aside; it has seen nothing that could be a duplicate.
            snapshot = None
        if snapshot and changes.knows(snapshot, inbound.id):
            return call
        return await command.prepare(call, self._backstage)

    async def _is_admin(self, command: Command, inbound: Inbound, adapter: Adapter) -> bool | None:
        """Asked only where it matters: most who take something back have just said it."""
        argument = argument_of(inbound)
        if not (inbound.group and rooms.concerns(command.room, argument)):
            return True
        if not isinstance(adapter, KnowsMembers):
            return True
        if command.room == "last":
            try:
                snapshot = await self._snapshots.load(inbound.key)
            except (SnapshotUnreadable, SnapshotTooNew):
                snapshot = None
            if rooms.spoke_last(snapshot, inbound.sender.id):
                return None
        return await adapter.is_admin(inbound.key, inbound.sender.id)

    def _wake(self, key: str, interrupts: bool) -> None:
        """Tell whoever works on this key that it has changed."""
        busy = self._busy.get(key)
        if busy is None:
            return
        if not busy.woken.done():
            busy.woken.set_result(None)
        if busy.turn and interrupts:
            busy.turn.cancel()

    def _begin(self) -> Snapshot:
        return changes.begin(
            revision=0, epoch=new_id(), now=self._clock.now(), cwd=self._options.cwd
        )

    async def _set_aside(self, key: str, error: StoreError, asides: int) -> None:
        """Keep what cannot be read. The conversation that begins now says so, also when it takes
        several tries to begin it.

        :param asides: how often that had happened when what could not be read was read
        """
        async with self._setting_aside:
            if self._asides.get(key, 0) != asides:
                # Two have read it. What has begun anew since is not what they read.
                return
            logger.error("set_aside", extra={"event": {"key": key, "error": str(error)}})
            what = phrases.TOO_NEW if isinstance(error, SnapshotTooNew) else phrases.UNREADABLE
            # First: what was accepted there has no other trace once it is set aside.
            await self._untold.add(key, self._say(what))
            if not self._options.shared or await self._is_unreadable(key):
                await self._store.set_aside(self.ref(key))
            # Few are, and it must not be forgotten while somebody may still be reading.
            self._asides[key] = asides + 1
            self._snapshots.forget(key)

    async def _is_unreadable(self, key: str) -> bool:
        """Another process may have set it aside before us: what has begun anew since stays."""
        self._snapshots.forget(key)
        try:
            await self._snapshots.load(key)
        except (SnapshotUnreadable, SnapshotTooNew):
            return True
        return False

    async def _look(self, key: str) -> None:
        """Nothing is stored here: perhaps another process has moved it, or set it aside."""
        if moved := await self._moves.told(key):
            # It may have died before it was done.
            await self._move(*moved)
        await self._untold.refresh()

    def _lost(self, key: str, adapter: Adapter) -> tuple[str, ...]:
        sentence = self._untold.of(key)
        return adapter.render(sentence) if sentence else ()

    async def _move(self, old: str, new: str) -> None:
        """A chat goes on under another key. Twice is harmless."""
        if is_under(new, old):
            return
        # Until all of it is done: once nothing is stored under the old key, nothing is sent there
        # that could tell us again.
        self._moves.begin(old, new)
        try:
            await self._moves.tell(old, new)
            await self._store.move(old, new)
            self._moves.stored(old, new)
            self._spending.move(old, new)
            if self._spending.ledger is not None:
                await self._move_accounts(self._spending.ledger, old, new)
        finally:
            self._snapshots.forget_all(lambda key: is_under(key, old) or is_under(key, new))
        emit("moved", old, to=new)
        async for key in self._store.unfinished():
            if is_under(key, new):
                await self._submit(key, "")
        self._moves.end(old)

    async def _move_accounts(self, ledger: Ledger, old: str, new: str) -> None:
        after: str | None = None
        while page := [each.key async for each in self._store.summaries(new, after, LEFT_PAGE)]:
            for key in page:
                if is_under(key, new):
                    await ledger.move(old + key[len(new) :], key)
            after = page[-1]

    async def _leave(self, place: str, *, erase: bool) -> None:
        """Nothing can be sent to this place any more. Twice is harmless."""
        count, after = 0, ""
        while page := [
            each.key async for each in self._store.summaries(place, after or None, LEFT_PAGE)
        ]:
            for key in page:
                if is_under(key, place):
                    await self._leave_one(key, erase=erase)
                    count += 1
            after = page[-1]
        emit("left", place, conversations=count, erased=erase)

    async def _leave_one(self, key: str, *, erase: bool) -> None:
        with suppress(SnapshotUnreadable, SnapshotTooNew):
            # First: what clears it is not heard by a turn under way, this is.
            await self._snapshots.update(key, lambda before: before and changes.left(before))
        self._wake(key, interrupts=True)
        if erase:
            await self._store.clear(self.ref(key))
            self._snapshots.forget(key)

    # ------------------------------------------------------------------ hops 5 to 8

    async def work(self, key: str) -> Done | Again:
        """Deliver what is unsent, run one turn if somebody waits for it, deliver that.

        :raises Fatal: the program must end
        """
        adapter = self._adapter(key)
        if adapter is None:
            return Done()
        while (other := self._busy.get(key)) is not None:
            # A shared engine may hand us what we are at, when it had thought us dead.
            await asyncio.wait((other.over,))
        busy = self._busy[key] = _Busy()
        try:
            outcome = await self._work_or_begin_anew(key, adapter, busy)
        except StoreCorrupt as error:
            raise Fatal(3, str(error)) from error
        except StoreError as error:
            logger.error("store", extra={"event": {"key": key, "error": str(error)}})
            outcome = Again(STORE_WAIT)
        except Fenced as error:
            # Whoever has it now sees to it; and should that one die, we come again.
            emit("lost", key, why=str(error))
            outcome = Again(STORE_WAIT)
        finally:
            del self._busy[key]
            busy.over.set_result(None)
            self._snapshots.forget(key)
            if busy.turn and not busy.turn.done():
                busy.turn.cancel()
                await asyncio.gather(busy.turn, return_exceptions=True)
            elif busy.turn and not busy.turn.cancelled():
                busy.turn.exception()  # nobody else may be left to hear how it ended
        return outcome

    async def _work_or_begin_anew(self, key: str, adapter: Adapter, busy: _Busy) -> Done | Again:
        for old, new in self._moves.unfinished(key):
            await self._move(old, new)
        asides = self._asides.get(key, 0)
        try:
            if self._untold.of(key):
                return await self._begin_anew(key, adapter)
            return await self._work(key, adapter, busy)
        except (SnapshotUnreadable, SnapshotTooNew) as error:
            await self._set_aside(key, error, asides)
            return await self._begin_anew(key, adapter)

    async def _work(self, key: str, adapter: Adapter, busy: _Busy) -> Done | Again:
        tenure = await self._tenure(key) if self._options.shared else None
        if tenure is not None and self._untold.of(key):
            return await self._begin_anew(key, adapter)
        wait = await self._delivery.deliver(key, adapter, tenure)
        if wait is not None:
            return Again(wait)
        snapshot = await self._snapshots.load(key)
        if snapshot is None or not (snapshot.inbox or snapshot.turn):
            return Done()
        if wait := approvals.wait(snapshot, self._clock.now()):
            return Again(wait)
        # Another process may have waited for the rest of an album already.
        quiet = (self._clock.now() - snapshot.updated_at) / 1000 if tenure is not None else 0.0
        if wait := self._albums.wait(key, self._answering.next_ones(snapshot), max(0.0, quiet)):
            return Again(wait)
        answering = self._answering.answer(key, adapter, snapshot, tenure)
        busy.turn = asyncio.create_task(answering, name=f"turn {key}")
        again = await self._deliver_beside(key, adapter, busy, busy.turn, tenure)
        await self._answering.settle(key)
        wait = await self._delivery.deliver(key, adapter, tenure)
        if wait is not None:
            return Again(wait)
        if again is not None:
            return again
        snapshot = await self._snapshots.load(key)
        if not (snapshot and snapshot.unfinished):
            return Done()
        return Again(approvals.wait(snapshot, self._clock.now()) or 0.0)

    async def _tenure(self, key: str) -> Tenure:
        """What there is to be taken over."""
        found = await self._snapshots.refresh(key)
        await self._pace.refresh()
        if found is None:
            await self._look(key)
        return Tenure(self._clock, self._snapshots.process, found)

    async def _deliver_beside(
        self,
        key: str,
        adapter: Adapter,
        busy: _Busy,
        turn: asyncio.Task[Again | None],
        tenure: Tenure | None,
    ) -> Again | None:
        """Commands are answered while the turn runs."""
        reading = None if tenure is None else asyncio.create_task(self._clock.sleep(READING))
        try:
            while not turn.done():
                waiting = (turn, busy.woken) if reading is None else (turn, busy.woken, reading)
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if turn.done():
                    break
                if busy.woken.done():
                    busy.woken = asyncio.get_running_loop().create_future()
                elif tenure is not None:
                    reading = asyncio.create_task(self._clock.sleep(READING))
                    await self._read(key, turn, tenure)
                await self._delivery.deliver(key, adapter, tenure)
        finally:
            if reading is not None:
                reading.cancel()
        if turn.cancelled():
            return None
        return turn.result()

    async def _read(self, key: str, turn: asyncio.Task[Again | None], tenure: Tenure) -> None:
        """What other processes were told meanwhile may end the turn, as what is said to this one
        does at once."""
        try:
            snapshot = await self._snapshots.refresh(key)
        except StoreUnavailable as error:
            # Only asked: what the turn is about to save decides, and fails as well.
            trouble("reading.failed", key, error=str(error))
            return
        if tenure.execution is None:
            return
        if tenure.lost(snapshot):
            emit("lost", key, execution=tenure.execution)
            turn.cancel()
        elif snapshot is not None and self._answering.next_ones(snapshot):
            turn.cancel()
        else:
            tenure.looked()

    async def _begin_anew(self, key: str, adapter: Adapter) -> Again:
        """What was to be done here could not be read: the person is told so, unasked."""
        bodies = self._lost(key, adapter)
        await self._snapshots.update(
            key, lambda before: before or changes.notice(self._begin(), bodies)
        )
        await self._untold.told(key)
        return Again()

    # ------------------------------------------------------------------ the small print

    def _adapter(self, key: str) -> Adapter | None:
        for adapter in self._adapters:
            if adapter.serves(key):
                return adapter
        return None


def _brings_anything(inbound: Inbound) -> bool:
    return bool(inbound.attachments) or bytes(inbound.blocks) != b"[]"


def _is_late(snapshot: Snapshot | None, inbound: Inbound) -> bool:
    """Whether the rest of its album is being answered already: it joins that turn."""
    turn = snapshot.turn if snapshot else None
    if snapshot is None or turn is None or turn.suspended or inbound.album is None:
        return False
    return any(each.album == inbound.album and each.id in turn.taken for each in snapshot.inbox)
