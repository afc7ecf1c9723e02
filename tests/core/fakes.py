"""Stand-ins for what the core is given from outside: time, a model, notes, a store.

Small on purpose: they play a script and record what was asked of them, and nothing waits for real.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import itertools
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from core.errors import StaleSnapshot
from core.messages import encode_blocks, text_block
from core.model import Answer, OnText, Request, ToolCall
from core.snapshot import Snapshot, Usage, decode, encode, stored
from core.store import SessionRef

NOON: Final = 1_800_000_000_000
USAGE: Final = Usage(10, 5, 2, 1)

Item = str | Answer | BaseException
Script = Item | Callable[[Request], Item | Awaitable[Item]]


class FakeClock:
    """Implements core.clock.Clock. A sleep moves the time and is over at once; with
    `manual=True` it is over when `advance` has moved the time far enough.

    :param slept: how long each sleep was asked to be
    """

    def __init__(self, *, manual: bool = False) -> None:
        self.slept: list[float] = []
        self._manual = manual
        self._monotonic = 1_000.0
        self._wall = NOON
        self._count = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> int:
        return self._wall

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if not self._manual:
            self.advance(seconds)
            await asyncio.sleep(0)
            return
        due = self._monotonic + seconds
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (due, next(self._count), over))
        await over

    def advance(self, seconds: float) -> None:
        """Time passes; who has slept long enough goes on in the next rounds of the loop."""
        self._monotonic += seconds
        self._wall += round(seconds * 1000)
        while self._sleepers and self._sleepers[0][0] <= self._monotonic:
            over = heapq.heappop(self._sleepers)[2]
            if not over.done():
                over.set_result(None)

    def next_due(self) -> float | None:
        """When the next sleeper has slept long enough; None: nobody sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def jump(self, milliseconds: int) -> None:
        """Somebody sets the wall clock."""
        self._wall += milliseconds


async def settle(rounds: int = 30) -> None:
    """Everything that can go on without time or network has gone on."""
    for _ in range(rounds):
        await asyncio.sleep(0)


def said(text: str, stop_reason: str = "end_turn", usage: Usage = USAGE) -> Answer:
    """An answer with one text block; with none when there is nothing but white space."""
    blocks = encode_blocks([text_block(text)] if text.strip() else [])
    return Answer(blocks=blocks, text=text, calls=(), stop_reason=stop_reason, usage=usage)


def calls(*wanted: ToolCall, text: str = "", stop_reason: str = "tool_use") -> Answer:
    """An answer that calls tools."""
    spoken = [text_block(text)] if text.strip() else []
    called: list[dict[str, object]] = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.input}
        for call in wanted
    ]
    return Answer(
        blocks=encode_blocks(spoken + called),
        text=text,
        calls=wanted,
        stop_reason=stop_reason,
        usage=USAGE,
    )


class ScriptedModel:
    """A ModelClient that plays its script, an item a request: a text, an Answer, an exception to
    raise, or a function of the request (async or not) that gives one of these.

    :param requests: all that it was asked
    """

    def __init__(self, *script: Script) -> None:
        self.script = list(script)
        self.requests: list[Request] = []
        self.closed = False

    async def answer(self, request: Request, on_text: OnText | None = None) -> Answer:
        self.requests.append(request)
        if not self.script:
            raise AssertionError(f"the script ended before request {len(self.requests)}")
        item = self.script.pop(0)
        if callable(item):
            result = item(request)
            item = await result if inspect.isawaitable(result) else result
        if isinstance(item, BaseException):
            raise item
        answer = said(item) if isinstance(item, str) else item
        for piece in re.findall(r"\s*\S+\s*$|\s*\S+|\s+", answer.text) if on_text else ():
            assert on_text is not None
            on_text(piece)
            await asyncio.sleep(0)
        return answer

    async def close(self) -> None:
        self.closed = True


class MemoryNotes:
    """core.store.Notes over a dict."""

    def __init__(self, **notes: bytes) -> None:
        self.kept: dict[str, bytes] = dict(notes)

    async def get(self, name: str) -> bytes | None:
        return self.kept.get(name)

    async def put(self, name: str, value: bytes | None, *, was: bytes | None) -> bool:
        if self.kept.get(name) != was:
            return False
        if value is None:
            self.kept.pop(name, None)
        else:
            self.kept[name] = value
        return True

    async def names(self) -> AsyncIterator[str]:
        for name in sorted(self.kept):
            yield name


class DictStore:
    """A SessionStore over a dict: bytes by key, the revision compared.

    :param saves: every snapshot that was saved, oldest first
    :param failing: raised once each, in order, by the next calls
    """

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.saves: list[Snapshot] = []
        self.refs: list[SessionRef] = []
        self.failing: list[Exception] = []

    async def load(self, ref: SessionRef) -> Snapshot | None:
        self._asked(ref)
        data = self.kept.get(ref.key)
        return None if data is None else decode(data)

    async def save(self, ref: SessionRef, snapshot: Snapshot, *, replaces: int | None) -> None:
        self._asked(ref)
        await asyncio.sleep(0)
        data = self.kept.get(ref.key)
        if (None if data is None else decode(data).revision) != replaces:
            raise StaleSnapshot(ref.key)
        self.kept[ref.key] = encode(snapshot)
        self.saves.append(stored(snapshot))

    async def clear(self, ref: SessionRef) -> None:
        self._asked(ref)
        self.kept.pop(ref.key, None)

    def _asked(self, ref: SessionRef) -> None:
        self.refs.append(ref)
        if self.failing:
            raise self.failing.pop(0)
