"""Delivery: send what is unsent, in order, and note it. One part at a time, one caller per key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Literal

from core import outbox, phrases
from core.adapter import Adapter, Receipt, SendsFiles
from core.clock import Clock
from core.errors import Gone, Moved, OutcomeUnknown, TryLater, Undeliverable
from core.events import emit, logger, trouble
from core.failpoints import failpoint
from core.messages import File, Outbound
from core.pace import Pace
from core.phrases import ENGLISH, Wording
from core.snapshot import Snapshot
from core.snapshots import Snapshots
from core.tenure import READING, Tenure

# A shorter wait is slept where it arises; a longer one frees the lane.
SHORT_WAIT: Final = 5.0

OnUnknownOutcome = Literal["resend", "hold"]


class Delivery:
    """
    :param on_unknown_outcome: what happens to a part that may have been sent already, where the
        platform cannot tell: sent again, or held for a person to look at
    :param moved: called when a chat goes on under another key
    :param made: makes a file that is to be sent, or raises `Undeliverable`
    :param say: how the fixed sentences are worded
    """

    def __init__(
        self,
        snapshots: Snapshots,
        pace: Pace,
        clock: Clock,
        on_unknown_outcome: OnUnknownOutcome,
        moved: Callable[[str, str], Awaitable[None]],
        made: Callable[[str, File], Awaitable[bytes]],
        say: Wording = ENGLISH,
    ) -> None:
        self._snapshots = snapshots
        self._pace = pace
        self._clock = clock
        self._on_unknown_outcome = on_unknown_outcome
        self._moved = moved
        self._made = made
        self._say = say

    async def deliver(
        self, key: str, adapter: Adapter, tenure: Tenure | None = None
    ) -> float | None:
        """Until nothing is unsent (None), or for so many seconds nothing may leave.

        :param tenure: of this work, where several processes share the database
        :raises Fenced: another process delivers here now
        """
        while True:
            snapshot = await self._snapshots.load(key)
            part = snapshot.next_part if snapshot else None
            if part is None:
                return None
            if tenure is not None and tenure.must_claim(part):
                await self._snapshots.update(key, self._claim(part.id), delivers=True)
                continue
            rate = adapter.limits.rate(key)
            await self._pace.refresh()
            wait = self._pace.wait(key, rate)
            if wait > SHORT_WAIT:
                return wait
            if wait > 0:
                await self._clock.sleep(wait)
                if tenure is not None:
                    # What has ended it meanwhile may have been said to another process.
                    await self._snapshots.refresh(key)
            elif part.state == "waiting":
                await self._change(key, outbox.sending, part)
            elif tenure is not None and not await self._is_still_ours(key, part):
                continue
            else:
                self._pace.take(key, rate)
                try:
                    await self._send(key, adapter, part)
                finally:
                    self._pace.left(key, rate)

    async def _send(self, key: str, adapter: Adapter, part: Outbound) -> None:
        # Before anything else is done for it: a store that fails here has sent nothing.
        try:
            data = await self._made(key, part.file) if part.file else b""
        except Undeliverable as error:
            await self._undeliverable(key, adapter, part, error)
            return
        uncertain = not self._snapshots.take_fresh(key, part.id)
        if uncertain and self._must_hold(adapter, part):
            trouble("send.held", key, part=part.id)
            await self._change(key, outbox.hold, part)
            return
        began = self._clock.monotonic()
        failpoint("before_send")
        try:
            if part.file is None:
                receipt = await adapter.send(key, part, uncertain=uncertain)
            elif isinstance(adapter, SendsFiles):
                receipt = await adapter.send_file(key, part, data, uncertain=uncertain)
            else:
                raise Undeliverable("no files can be sent here")
        except TryLater as error:
            emit("send.later", key, part=part.id, seconds=error.seconds)
            try:
                await self._pace.later(key, error.seconds, adapter.limits.rate(key))
            finally:
                await self._put_back(key, part, uncertain)
        except OutcomeUnknown as error:
            trouble("send.unknown", key, part=part.id, error=str(error))
            self._pace.failed(key)
        except Gone as error:
            trouble("send.gone", key, part=part.id, error=str(error))
            await self._change(key, lambda snapshot, _: outbox.gone(snapshot), part)
        except Moved as error:
            await self._put_back(key, part, uncertain)
            await self._moved(error.old, error.new)
        except Undeliverable as error:
            await self._undeliverable(key, adapter, part, error)
        except Exception as error:
            # A bug in an adapter, and it would come again: the part must not block its chat.
            logger.exception("send.broken", extra={"event": {"key": key, "part": part.id}})
            trouble("send.failed", key, part=part.id, error=type(error).__name__)
            await self._fail(key, part, f"an internal error: {type(error).__name__}")
        else:
            failpoint("sent")
            await self._mark(key, part, receipt, began)

    async def _mark(self, key: str, part: Outbound, receipt: Receipt, began: float) -> None:
        self._pace.succeeded(key)
        await self._change(
            key, lambda snapshot, id: outbox.delivered(snapshot, id, receipt.message_ids), part
        )
        failpoint("marked")
        emit(
            "delivered",
            key,
            part=part.id,
            messages=",".join(receipt.message_ids),
            ms=round((self._clock.monotonic() - began) * 1000, 1),
        )

    async def _put_back(self, key: str, part: Outbound, uncertain: bool) -> None:
        """This try has sent nothing; whether an earlier one had is as unknown as before."""
        if not uncertain:
            await self._change(key, outbox.put_back, part)

    async def _undeliverable(
        self, key: str, adapter: Adapter, part: Outbound, error: Undeliverable
    ) -> None:
        """Of a file a person is told that it cannot be had here."""
        trouble("send.failed", key, part=part.id, error=str(error))
        if part.file is None:
            await self._fail(key, part, str(error))
            return
        (body, *_) = adapter.render(self._say(phrases.FILE_NOT_SENT, name=part.file.name))
        await self._change(key, lambda snapshot, id: outbox.instead(snapshot, id, body), part)

    async def _fail(self, key: str, part: Outbound, why: str) -> None:
        await self._change(key, lambda snapshot, id: outbox.fail(snapshot, id, why[:200]), part)

    def _must_hold(self, adapter: Adapter, part: Outbound) -> bool:
        """An edit may always be repeated; so may what the platform can look up."""
        return (
            self._on_unknown_outcome == "hold"
            and not adapter.limits.can_look_up
            and part.replaces is None
        )

    async def _change(
        self, key: str, change: Callable[[Snapshot, str], Snapshot], part: Outbound
    ) -> None:
        """Of what another process has claimed since, nothing is noted here: it does that."""

        def of_ours(snapshot: Snapshot | None) -> Snapshot | None:
            if snapshot is None or self._is_claimed(snapshot, part.id):
                return snapshot
            return change(snapshot, part.id)

        await self._snapshots.update(key, of_ours, delivers=True)

    def _claim(self, part_id: str) -> Callable[[Snapshot | None], Snapshot | None]:
        process = self._snapshots.process
        return lambda snapshot: snapshot and outbox.claimed(snapshot, part_id, process)

    def _is_claimed(self, snapshot: Snapshot, part_id: str) -> bool:
        """Whether this part is another process's."""
        process = self._snapshots.process
        return bool(process) and any(
            part.id == part_id and part.state != "waiting" and part.by != process
            for part in snapshot.outbox
        )

    async def _is_still_ours(self, key: str, part: Outbound) -> bool:
        """What was marked just now is; what was marked a while ago, or tried before, may have been
        taken over by another process meanwhile."""
        if self._snapshots.is_fresh(key, part.id, within=READING):
            return True
        snapshot = await self._snapshots.refresh(key)
        return snapshot is not None and snapshot.next_part == part
