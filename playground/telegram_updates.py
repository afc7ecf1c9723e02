"""The queue of updates behind getUpdates, with the semantics of Telegram's own server.

An update is confirmed only when a later call asks with an offset above its id; until then it comes
again. The source is telegram-bot-api/Client.cpp, `do_get_updates`. Left out: the 24 hours after
which updates are lost, and what slows a client down that asks too often (same offset in quick
succession, a second poller).
"""

import asyncio
import json
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from playground.telegram_chats import Json, Refused

MAX_TIMEOUT = 50
NOT_BY_DEFAULT = frozenset({"chat_member", "message_reaction", "message_reaction_count"})
OTHER_POLL = (
    "Conflict: terminated by other getUpdates request; "
    "make sure that only one bot instance is running"
)


@dataclass(frozen=True, slots=True)
class Update:
    """An update and the JSON text in which it goes out, which may be anything when injected."""

    id: int
    text: str


@dataclass(eq=False, slots=True)
class _Poll:
    done: asyncio.Event = field(default_factory=asyncio.Event)
    error: Refused | None = None

    def end(self, error: Refused | None = None) -> None:
        self.error = self.error or error
        self.done.set()


class Updates:
    """The queue. `tell` hears of every update that is written, delivered, confirmed or dropped."""

    def __init__(self, tell: Callable[[str, Json], None], first_id: int) -> None:
        self.next_id = first_id
        self.delivered: list[int] = []
        self.confirmed: list[int] = []
        self.allowed: frozenset[str] | None = None
        self._tell = tell
        self._waiting: OrderedDict[int, Update] = OrderedDict()
        self._again: deque[Update] = deque()
        self._all: dict[int, Update] = {}
        self._poll: _Poll | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def polled(self) -> bool:
        """A long poll waits."""
        return self._poll is not None

    def waiting(self) -> list[int]:
        return list(self._waiting)

    def text(self, update_id: int) -> str:
        return self._all[update_id].text

    def wants(self, kind: str) -> bool:
        return kind not in NOT_BY_DEFAULT if self.allowed is None else kind in self.allowed

    def allow(self, kinds: object) -> None:
        """The filter from now on. None keeps the one before, an empty list is the default set."""
        if isinstance(kinds, list):
            self.allowed = frozenset(str(kind) for kind in kinds) or None

    def add(self, kind: str, payload: Json) -> int:
        """Queues an update; returns its id, or 0 when the bot did not ask for this kind."""
        if not self.wants(kind):
            return 0
        return self._queue(self.next_id, _dump({"update_id": self.next_id, kind: payload}))

    def inject(self, raw: Any, *, numbered: bool) -> int:
        """Queues anything, past the filter: text verbatim, else as JSON, a dict with an id.

        Returns the id under which the queue knows it, whatever the JSON says.
        """
        if isinstance(raw, str):
            return self._queue(self.next_id, raw)
        if isinstance(raw, dict):
            own = raw.get("update_id")
            if type(own) is int and own >= self.next_id:
                self.next_id = own
            if numbered:
                raw = {"update_id": self.next_id} | raw
        return self._queue(self.next_id, _dump(raw))

    def jump(self, to: int) -> None:
        if to < self.next_id and self._waiting:
            raise ValueError(
                "ids go back only when nothing is unconfirmed, as after a week of silence"
            )
        self.next_id = to

    def redeliver(self, ids: Iterable[int]) -> None:
        """These come once more with the next answer, whatever its offset."""
        self._again.extend(self._all[update_id] for update_id in ids)
        self._wake()
        self._tell("again", {"waiting": len(self._again)})

    def pending(self) -> list[Update]:
        return list(self._waiting.values())

    def take_again(self) -> list[Update]:
        """What `redeliver` asked for, once."""
        again = list(self._again)
        self._again.clear()
        return again

    def confirm(self, update_id: int) -> None:
        """A webhook has answered that it has it."""
        if self._waiting.pop(update_id, None) is not None:
            self.confirmed.append(update_id)
            self._tell("confirmed", {"update_id": update_id})

    def drop_all(self) -> None:
        self._drop(keep=0)

    def abort_poll(self, error: Refused) -> None:
        if self._poll is not None:
            self._poll.end(error)

    async def get(self, offset: int, limit: int, timeout: int) -> list[Update]:
        """One getUpdates call. Raises `Refused` (409) when another one ends its wait."""
        limit = min(max(limit, 1), 100)
        timeout = min(max(timeout, 0), MAX_TIMEOUT)
        if offset < 0:
            self._drop(keep=-offset)
            offset = 0
        batch = self._take(offset, limit)
        if batch or not timeout:
            return batch
        # Only a call that itself has to wait ends an earlier one. What arrives goes to the latest.
        self.abort_poll(Refused(409, OTHER_POLL))
        poll = self._poll = _Poll()
        self._tell("polling", {"offset": offset})
        try:
            await asyncio.wait_for(poll.done.wait(), timeout)
        except TimeoutError:
            return []
        finally:
            if self._poll is poll:
                self._poll = None
        if poll.error is not None:
            raise poll.error
        return self._take(offset, limit)

    def note_delivered(self, batch: list[Update]) -> None:
        """Called when an answer really goes out."""
        for update in batch:
            self.delivered.append(update.id)
            self._tell("delivered", {"update_id": update.id})

    def _queue(self, update_id: int, text: str) -> int:
        update = Update(update_id, text)
        self.next_id = update_id + 1
        self._waiting[update_id] = self._all[update_id] = update
        self._wake()
        self._tell("queued", {"update_id": update_id})
        return update_id

    def _wake(self) -> None:
        if self._poll is not None:
            self._poll.end()

    def _take(self, offset: int, limit: int) -> list[Update]:
        # An offset far in the future is taken for no offset at all: ids may have started anew.
        if offset <= self.next_id + 10:
            while self._waiting and next(iter(self._waiting)) < offset:
                update_id, _ = self._waiting.popitem(last=False)
                self.confirmed.append(update_id)
                self._tell("confirmed", {"update_id": update_id})
        batch: list[Update] = []
        while self._again and len(batch) < limit:
            update = self._again.popleft()
            if update.id not in self._waiting:
                batch.append(update)
        batch += islice(self._waiting.values(), limit - len(batch))
        return batch

    def _drop(self, keep: int) -> None:
        while len(self._waiting) > keep:
            update_id, _ = self._waiting.popitem(last=False)
            self._tell("dropped", {"update_id": update_id})


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
