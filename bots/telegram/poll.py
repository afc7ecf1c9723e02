"""Our own long poll: an update is confirmed to Telegram only when it was accepted.

Confirming is asking for what comes after it. So the offset moves only up to the first update that
was not accepted; the ones behind that come again, and the core knows them by their ids. It is not
kept anywhere: after a start we ask without one. Ids are never compared with older ones, for after
a quiet week Telegram begins at a random one.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from telegram import Bot
from telegram.error import Conflict, InvalidToken, RetryAfter

from bots.telegram.failures import seconds_of, unknown, why
from bots.telegram.insist import Backoff, insist, refuse_token
from bots.telegram.line import Line
from bots.telegram.updates import Update, read
from bots.telegram.wire import UpdatesRequest
from core.adapter import Accept
from core.clock import Clock
from core.errors import PlatformRefused, PlatformTaken
from core.events import emit, trouble
from core.failpoints import failpoint
from core.messages import Inbound

# The kinds that `parse` understands.
ASKED: Final = (
    "message",
    "edited_message",
    "callback_query",
    "stopped_message_generation",
)
PATIENCE_SECONDS: Final = 20.0  # beyond the time of the poll itself; then the connection is dead
GOODBYE_SECONDS: Final = 2.0
TWINS: Final = 3  # a killed predecessor's poll may linger
TWIN_SECONDS: Final = 30.0


class Batch:
    """The updates of one answer, on their way to be accepted."""

    def __init__(self, updates: Sequence[Update], hear: Callable[[object], Inbound | None]) -> None:
        self.updates = updates
        self.failure: Exception | None = None
        self._inbounds = [heard(hear, update) for update in updates]
        # What says nothing to us needs nobody's acceptance.
        self._passed = [inbound is None for inbound in self._inbounds]
        self.ignored = sum(self._passed)

    async def accept(self, accept: Accept) -> None:
        """In order within a chat, chats side by side. Ends early at a failure, and notes it."""
        for chains in self._stretches():
            async with asyncio.TaskGroup() as group:
                for chain in chains:
                    group.create_task(self._accept_chain(chain, accept))
            if self.failure is not None:
                return

    def offset(self) -> int | None:
        """That confirms everything before the first failure; None when that is nothing."""
        confirmed = None
        for update, passed in zip(self.updates, self._passed, strict=True):
            if not passed:
                break
            if update.id is not None:
                confirmed = max(update.id + 1, confirmed or 0)
        return confirmed

    @property
    def nameless(self) -> bool:
        """Nothing in it can be confirmed, so all of it comes again at once."""
        return bool(self.updates) and all(update.id is None for update in self.updates)

    async def _accept_chain(self, chain: list[int], accept: Accept) -> None:
        for index in chain:
            inbound = self._inbounds[index]
            assert inbound is not None
            try:
                await accept(inbound)
            except Exception as error:
                # Not lost: unconfirmed, it comes again. The poller logs it and waits.
                self.failure = error
                return
            self._passed[index] = True

    def _stretches(self) -> Iterator[list[list[int]]]:
        """Indexes of one chat's messages in order, chat by chat. A move is a stretch of its own:
        what was said before it belongs to the old chat, what follows to the new one."""
        chains: dict[str, list[int]] = {}
        for index, inbound in enumerate(self._inbounds):
            if inbound is None:
                continue
            if inbound.kind == "moved":
                yield list(chains.values())
                yield [[index]]
                chains = {}
            else:
                chains.setdefault(inbound.key, []).append(index)
        yield list(chains.values())


def heard(hear: Callable[[object], Inbound | None], update: Update) -> Inbound | None:
    """What an update says; None when it says nothing to us."""
    failpoint("received")
    try:
        inbound = hear(update.value)
    except Exception as error:
        # A mistake of ours, and loud. To fail here would make the bot deaf until the update dies.
        trouble("telegram.unparsed", update=update.id, why=type(error).__name__)
        return None
    kind = "ignored" if inbound is None else inbound.kind
    key = None if inbound is None else inbound.key
    emit("received", key, level=logging.DEBUG, update=update.id, kind=kind)
    return inbound


class Poller:
    """Asks, has it accepted, asks on.

    :param hear: update -> Inbound, or None when it says nothing to us
    :param timeout: seconds that Telegram holds a request while there is nothing; at most 50
    :param patience: seconds beyond that after which a request is given up as dead
    """

    def __init__(
        self,
        bot: Bot,
        wire: UpdatesRequest,
        hear: Callable[[object], Inbound | None],
        accept: Accept,
        *,
        clock: Clock,
        timeout: int = 30,
        patience: float = PATIENCE_SECONDS,
        chance: Callable[[], float] = random.random,
        line: Line | None = None,
    ) -> None:
        self.ignored = 0
        self._line = line or Line(clock)
        self._bot = bot
        self._wire = wire
        self._hear = hear
        self._accept = accept
        self._clock = clock
        self._timeout = timeout
        self._patience = patience
        self._chance = chance
        self._offset: int | None = None
        self._asked: int | None = None
        self._twins = 0
        self._started = clock.monotonic()
        self._unreachable = Backoff("telegram.unreachable", clock, chance)
        self._refused = Backoff("telegram.not_accepted", clock, chance)
        # Short: good updates may come behind the one that cannot be confirmed.
        self._nameless = Backoff("telegram.nameless_update", clock, chance, most=4.0)

    async def run(self) -> None:
        """Until cancelled.

        :raises PlatformRefused: the token is refused, or another process polls with it
        """
        try:
            # A webhook that is still set would get everything. What waits is kept.
            await insist(self._no_webhook, self._unreachable)
            self._line.answered()
            self._line.state = "polling"
            self._started = self._clock.monotonic()
            while True:
                await self._take(await self._ask())
        except asyncio.CancelledError:
            await self._confirm()
            raise

    async def _take(self, updates: list[Update]) -> None:
        batch = Batch(updates, self._hear)
        if updates:
            self._line.brought()
        self.ignored += batch.ignored
        try:
            await batch.accept(self._accept)
        finally:
            offset, before = batch.offset(), self._offset
            self._offset = self._offset if offset is None else offset
        self._line.refusing = batch.failure is not None
        if batch.failure is not None:
            await self._refused.wait(type(batch.failure).__name__)
        elif batch.nameless:
            await self._nameless.wait("an update without an id")
        elif updates and self._offset == before:
            # What comes again although it was confirmed would be asked for in a circle.
            await self._clock.sleep(1.0)
        elif updates:
            self._refused.over()
            self._nameless.over()

    async def _ask(self) -> list[Update]:
        while True:
            began = self._clock.monotonic()
            try:
                updates = await self._request()
            except InvalidToken as error:
                refuse_token(error)
            except Conflict as error:
                await self._bear_twin(error)
            except RetryAfter as error:
                self._line.state = "unreachable"
                await self._unreachable.wait(why(error), at_least=seconds_of(error))
            except TimeoutError:
                self._line.state = "unreachable"
                await self._rebuild()
            except Exception as error:
                # Any: an answer that is none of Telegram's comes out of PTB as anything.
                self._line.state = "unreachable"
                await self._unreachable.wait(why(error))
            else:
                self._line.answered()
                self._line.state = "polling"
                self._unreachable.over()
                if not updates and self._clock.monotonic() - began < min(0.5, self._timeout):
                    # Somebody on the way does not hold the request: it would be asked in a circle.
                    await self._clock.sleep(1.0)
                return updates

    async def _request(self) -> list[Update]:
        offset = self._offset
        async with asyncio.timeout(self._timeout + self._patience):
            await self._bot.get_updates(
                offset=offset, timeout=self._timeout, allowed_updates=ASKED, read_timeout=10
            )
        self._asked = offset
        return read(self._wire.body)

    async def _bear_twin(self, error: Conflict) -> None:
        """
        :raises PlatformRefused: it is not a predecessor that is about to vanish
        :raises PlatformTaken: nor a webhook
        """
        self._twins += 1
        self._line.state = "another one is heard"
        webhook = "webhook" in str(error).lower()
        age = self._clock.monotonic() - self._started
        if self._twins > TWINS or age > TWIN_SECONDS:
            if webhook:
                raise PlatformRefused(
                    "another process has set a webhook for this Telegram token, so that nothing can"
                    ' be polled: end it, or set [telegram] mode = "webhook" here'
                ) from error
            raise PlatformTaken("another process uses this Telegram token: it polls too") from error
        trouble("telegram.twin", why=why(error), times=self._twins)
        await self._clock.sleep(3.0 + self._chance())
        if webhook:
            await insist(self._no_webhook, self._unreachable)

    async def _no_webhook(self) -> None:
        """A server that knows of no webhooks has none."""
        try:
            await self._bot.delete_webhook()
        except InvalidToken as error:
            if not unknown(error):
                raise

    async def _rebuild(self) -> None:
        """The request hangs beyond all limits: so does its connection, and who knows what else."""
        try:
            async with asyncio.timeout(self._patience):
                await self._wire.shutdown()
        except TimeoutError:
            # It is replaced in any case.
            pass
        await self._wire.initialize()
        await self._unreachable.wait("the poll hung")

    async def _confirm(self) -> None:
        """Tells Telegram, best effort, what was accepted since we last asked.

        Without it all that comes again at the next start; what this call returns does so anyway.
        """
        if self._offset == self._asked:
            return
        try:
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self._bot.get_updates(
                    offset=self._offset, limit=1, timeout=0, allowed_updates=ASKED
                )
        except Exception as error:
            emit("telegram.unconfirmed", level=logging.DEBUG, why=why(error))
