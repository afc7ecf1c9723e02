"""What Slack tells an app, and how often: events, slash commands, presses.

Each is brought by a carrier (Socket Mode or HTTP) until it is acknowledged: an event up to four
times, the others once. Delays between the attempts are Slack's: at once, after a minute, after five
(docs.slack.dev, Events API, "Retries"). Not here: what the carriers write on the wire.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from playground.slack_chats import Json, Refused
from playground.slack_faults import Delay, DeliverTwice, Faults, Lost

ACK_SECONDS = 3.0
RETRY_SECONDS = (0.0, 60.0, 300.0)


@dataclass(eq=False, slots=True)
class Delivery:
    """One thing told. `kind` is Socket Mode's: events_api, slash_commands or interactive.

    `state` is waiting (for a carrier, or for the next attempt), sent, acknowledged or given up;
    `reasons` has why each attempt so far has failed, `answer` what came with the acknowledgement.
    """

    id: str
    kind: str
    name: str
    payload: Json
    attempts: int = 0
    state: str = "waiting"
    reasons: list[str] = field(default_factory=list)
    answer: Json | None = None
    settled: bool = False
    then: "Callable[[Json | None], None] | None" = field(default=None, repr=False)

    @property
    def event(self) -> Json:
        """The event in it, or the whole payload of what is none."""
        event: Json = self.payload.get("event", self.payload)
        return event


class Failed(Exception):
    """An attempt that was not acknowledged. `reason` is what the next attempt's header says;
    `final` when the app asked for no more of them."""

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.final = final


class Carrier(Protocol):
    """Brings one attempt to the app; returns what came with the acknowledgement."""

    async def carry(self, delivery: Delivery, ack_seconds: float) -> Json | None:
        """Waits until the app can be reached, then at most `ack_seconds`. Raises `Failed`."""
        ...


class Deliveries:
    """All of them, and the tasks that bring them."""

    def __init__(
        self,
        tell: Callable[[str, Json], None],
        faults: Faults,
        *,
        ack_seconds: float = ACK_SECONDS,
        retry_seconds: Sequence[float] = RETRY_SECONDS,
    ) -> None:
        self.all: list[Delivery] = []
        self.unsettled: dict[str, Delivery] = {}
        self.ack_seconds = ack_seconds
        self.retry_seconds = retry_seconds
        self.carrier: Carrier | None = None
        self._tell = tell
        self._faults = faults
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, delivery: Delivery) -> Delivery:
        """Told from now on, in the order of the calls as far as the carrier keeps it."""
        self.all.append(delivery)
        self.unsettled[delivery.id] = delivery
        self._tell("queued", _about(delivery))
        self._spawn(delivery)
        return delivery

    def again(self, delivery: Delivery) -> None:
        """Brings what may have been acknowledged long ago once more, as Slack sometimes does."""
        self._spawn(delivery, retries=())

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, delivery: Delivery, retries: Sequence[float] | None = None) -> None:
        if retries is None:
            retries = self.retry_seconds if delivery.kind == "events_api" else ()
        task = asyncio.get_running_loop().create_task(self._bring(delivery, retries))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _bring(self, delivery: Delivery, retries: Sequence[float]) -> None:
        rule = self._faults.strike(f"{_family(delivery)}/{delivery.name}".lower(), None)
        match None if rule is None else rule.fault:
            case Lost():
                self._give_up(delivery)
                return
            case Delay(seconds):
                await asyncio.sleep(seconds)
            case DeliverTwice():
                self._spawn(delivery, retries=())
        for wait in (None, *retries):
            if wait is not None:
                await asyncio.sleep(wait)
            if await self._attempt(delivery):
                break
        if delivery.state != "acknowledged":
            self._give_up(delivery)

    def _give_up(self, delivery: Delivery) -> None:
        delivery.state = "given up"
        self._settle(delivery)
        self._tell("given up", _about(delivery))

    def _settle(self, delivery: Delivery) -> None:
        delivery.settled = True
        self.unsettled.pop(delivery.id, None)

    async def _attempt(self, delivery: Delivery) -> bool:
        """Whether there is to be no other."""
        assert self.carrier is not None
        try:
            answer = await self.carrier.carry(delivery, self.ack_seconds)
        except Failed as failed:
            delivery.reasons.append(failed.reason)
            self._tell("unacknowledged", _about(delivery) | {"reason": failed.reason})
            return failed.final
        delivery.state = "acknowledged"
        self._settle(delivery)
        delivery.answer = answer or delivery.answer
        if delivery.then is not None:
            with suppress(Refused):  # what cannot be said is not: the person sees nothing
                delivery.then(answer)
        self._tell("acknowledged", _about(delivery) | {"answer": answer})
        return True


def _family(delivery: Delivery) -> str:
    return {"events_api": "events", "slash_commands": "commands"}.get(delivery.kind, delivery.kind)


def _about(delivery: Delivery) -> Json:
    return {"id": delivery.id, "kind": delivery.kind, "name": delivery.name}
