"""Live for Slack: a status until there is something to read, then the growing answer.

In threads it is a stream of Slack's, which is appended to, and shows beside the text what tools are
doing; elsewhere, and where streams do not
exist, messages that grow by edits. Both are the answer's own in the end. A stream lives five
minutes and holds 12,000 characters, so before that it is ended and another one begun. Best effort:
whatever goes wrong here goes unsaid, for the answer itself is sent by other means.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal, Protocol

from bots.slack.failures import code_of, failure, retry_after, why
from bots.slack.render import body_text, inert, render
from bots.slack.split import cut, fence_after, joined, next_start
from bots.slack.tasks import Tasks
from core.adapter import Doing, Showing
from core.clock import Clock
from core.errors import Fenced, OutcomeUnknown, StoreError
from core.events import emit, trouble

Streaming = Literal["auto", "edit", "off"]

STATUS: Final = "is thinking…"
FIRST_SECONDS: Final = 0.3  # quick answers need no status
STATUS_SECONDS: Final = 60.0  # Slack takes it away after two minutes
STREAM_SECONDS: Final = 1.0
EDIT_SECONDS: Final = 2.0
BUSY_SECONDS: Final = 1.0  # until the pace is asked again
ROLL_SECONDS: Final = 230.0  # Slack ends a stream after five minutes, however it flows
CLOSE_SECONDS: Final = 10.0
FIRST_CHARACTERS: Final = 40  # the first words of a message are what a notification shows
LONG_TEXT: Final = 10_000  # from here on rendering would hold up every other conversation

# What may still become something else: the beginning of a mention, half a line end.
_UNDECIDED: Final = re.compile(r"(?:<[^<>\s]{0,16}|\r)\Z")
# Not for this message alone: this app, or this server, has none.
_NEVER: Final = frozenset(
    {"unknown_method", "missing_scope", "not_allowed_token_type", "feature_not_enabled"}
)
# The text and the cards of one message together; Slack does not say how much that may be.
_TOO_LONG: Final = frozenset({"msg_too_long", "msg_blocks_too_long"})


class Surface(Protocol):
    """The conversation, for what is shown on the way. Each raises what slack_sdk raises."""

    async def status(self, text: str) -> None: ...

    async def start(self, markdown: str, tasks: list[Doing]) -> str:
        """A stream; its ts.

        :param tasks: those that are new, or stand otherwise now
        """
        ...

    async def append(self, ts: str, markdown: str, tasks: list[Doing]) -> None: ...

    async def stop(self, ts: str, markdown: str, tasks: list[Doing]) -> None:
        """
        :param markdown: what is still to be added
        """
        ...

    async def say(self, body: str, index: int) -> str:
        """A message; its ts."""
        ...

    async def edit(self, ts: str, body: str, index: int) -> None: ...

    async def delete(self, ts: str) -> None: ...

    async def left(self) -> list[str]:
        """What shows this answer already, begun by whoever could not note it any more."""
        ...


class Status:
    """
    :param act: tells Slack once what the bot does
    :param showing: says whether that may leave now
    """

    def __init__(
        self, act: Callable[[str], Awaitable[object]], clock: Clock, showing: Showing
    ) -> None:
        self._act = act
        self._clock = clock
        self._showing = showing
        self._text = STATUS
        self._task = asyncio.create_task(self._say())

    def show(self, text: str) -> bool:
        return False

    def doing(self, calls: tuple[Doing, ...]) -> None:
        running = next((each for each in calls if each.state == "running"), None)
        text = STATUS if running is None else f"is at work: {inert(running.title)}…"
        if text != self._text and not self._task.done():
            self._text = text
            self._task.cancel()
            self._task = asyncio.create_task(self._say())

    async def close(self) -> tuple[str, ...]:
        self._task.cancel()
        # Not awaited: if we are cancelled ourselves meanwhile, that must be heard.
        await asyncio.wait([self._task])
        return ()

    async def _say(self) -> None:
        await self._clock.sleep(FIRST_SECONDS)
        while True:
            if self._showing.may("typing"):
                try:
                    await self._act(self._text)
                except Exception as error:
                    # Nobody misses a status; and where there is none, none is asked for again.
                    emit("slack.status", level=logging.DEBUG, why=why(error))
                    return
            await self._clock.sleep(STATUS_SECONDS)


class Growing:
    """
    :param key: of the conversation, for events
    :param shown: ts of messages that an earlier attempt left on the screen
    :param streams: whether there may be streams here; else messages grow by edits
    :param unsure: an earlier process may have begun to show this answer without noting it
    :param no_streams: called when there are none at all
    """

    def __init__(
        self,
        key: str,
        surface: Surface,
        clock: Clock,
        showing: Showing,
        shown: tuple[str, ...],
        *,
        streams: bool,
        unsure: bool,
        no_streams: Callable[[], None],
    ) -> None:
        self._key = key
        self._surface = surface
        self._clock = clock
        self._showing = showing
        self._no_streams = no_streams
        # What an earlier attempt has left is finished as a message.
        self._streams = streams and not shown
        self._unsure = unsure
        self._ids = list(shown)
        self._standing: dict[str, str] = {}
        self._stream: _Stream | None = None
        self._at = 0  # where in the text the message that grows begins, and the fence open there
        self._fence = ""
        self._said = ""
        self._text = ""
        self._changed = asyncio.Event()
        self._closing = False
        self._visible = bool(shown)
        self._tasks = Tasks()
        self._step: asyncio.Task[float | None] | None = None
        self._status: Status | None = Status(surface.status, clock, showing)
        self._task = asyncio.create_task(self._grow(), name=f"live {key}")

    def show(self, text: str) -> bool:
        self._text = text
        self._changed.set()
        return self._visible

    def doing(self, calls: tuple[Doing, ...]) -> None:
        self._tasks.told(calls, self._clock.monotonic())
        if self._status is not None:
            self._status.doing(calls)
        self._changed.set()

    async def close(self) -> tuple[str, ...]:
        self._closing = True
        self._task.cancel()
        await asyncio.wait([self._task])
        if self._step is not None:
            # What has left has left, and may be on the screen: its ts must be known, or it would
            # stay there.
            await asyncio.wait([self._step])
        await self._stop_status()
        await self._end()
        return tuple(self._ids)

    def standing(self) -> Mapping[str, str]:
        return {ts: self._standing[ts] for ts in self._ids if ts in self._standing}

    # ------------------------------------------------------------------ by and by

    async def _grow(self) -> None:
        pause: float | None = STREAM_SECONDS if self._streams else EDIT_SECONDS
        await self._look()
        while pause is not None:
            await self._changed.wait()
            self._changed.clear()
            # Not stopped in the middle.
            self._step = asyncio.create_task(self._once())
            pause = await asyncio.shield(self._step)
            self._step = None
            if pause is not None:
                await self._clock.sleep(pause)

    async def _once(self) -> float | None:
        """Show the text as it is now. Seconds until the next time; None: no more."""
        try:
            return await (self._flow() if self._streams else self._rewrite())
        except Exception as error:
            seconds = retry_after(error)
            if seconds is not None:
                self._changed.set()
                await self._wait_as_told(seconds + BUSY_SECONDS)
                return seconds + BUSY_SECONDS
            # The send that follows meets the same, and is the one that is told.
            emit("slack.live", self._key, level=logging.DEBUG, why=why(error))
            if self._stream is not None and code_of(error) in _TOO_LONG:
                return await self._go_on_by_edits(self._stream)
            return None

    async def _look(self) -> None:
        """What was begun and not noted is ours to finish; by edits, for that stream is over."""
        if not self._unsure:
            return
        try:
            found = [ts for ts in await self._surface.left() if ts not in self._ids]
        except Exception as error:
            emit("slack.live", self._key, level=logging.DEBUG, why=why(error))
            return
        self._unsure = False
        for ts in found:
            emit("slack.found", self._key, message=ts)
            self._streams = False
            self._visible = await self._new(ts)

    # ------------------------------------------------------------------ streams

    async def _flow(self) -> float | None:
        text = inert(self._text)
        known = _UNDECIDED.sub("", text)
        if not known.startswith(self._said):
            # It was begun anew. What is on the screen becomes that by edits, in the end.
            return None
        while not self._closing:
            now = self._clock.monotonic()
            if self._stream is None:
                self._at = next_start(known, self._at, self._fence)
                short = len(known) - self._at < FIRST_CHARACTERS
                if short and not self._tasks.take_long(now):
                    return self._soon()
            elif self._stream.said is None and now - self._stream.began >= ROLL_SECONDS:
                # A second one would be the answer's first message, and this one go.
                return await self._go_on_by_edits(self._stream)
            end = cut(known, self._at, self._fence)
            # What may yet have to stand in the next message is not said in this one.
            until = end or cut(known, self._at, self._fence, growing=True) or len(known)
            if not self._showing.may("edit"):
                self._changed.set()
                return BUSY_SECONDS
            if not await self._flow_to(known, until):
                return None
            if not self._streams:
                return EDIT_SECONDS
            late = self._clock.monotonic() - self._stream.began if self._stream else 0.0
            if end is None and late < ROLL_SECONDS:
                return self._soon()
            if self._stream is not None and self._stream.said is not None:
                await self._finish(self._stream, known, until)
        return None

    def _soon(self) -> float:
        """While a call runs nothing tells us that it has run for long."""
        if self._tasks.running is not None:
            self._changed.set()
        return STREAM_SECONDS

    async def _flow_to(self, text: str, until: int) -> bool:
        """What is new, up to there. False: no more of this."""
        stream = self._stream
        tasks = self._tasks.news(stream.tasks if stream is not None else {})
        more = self._more(stream, text, until)
        if stream is not None and (more or tasks):
            await self._surface.append(stream.ts, more, tasks)
        elif stream is None:
            try:
                ts = await self._surface.start(more, tasks)
            except Exception as error:
                return self._not_started(error)
            stream = self._stream = _Stream(ts, self._clock.monotonic())
        self._tasks.said(tasks)
        stream.tasks |= {each.id: each for each in tasks}
        if more:
            stream.said, self._said = until, text[:until]
            self._visible = True
        if stream.ts in self._ids:
            return True
        await self._stop_status()
        return await self._new(stream.ts)

    def _more(self, stream: _Stream | None, text: str, until: int) -> str:
        """What a message has still to say, up to there."""
        if stream is not None and stream.said is not None:
            return text[stream.said : until]
        # Its first words. White space at their end stands before what comes next.
        self._at = next_start(text, self._at, self._fence)
        first = text[self._at : until]
        return f"{self._fence}\n{first}" if self._fence and first else first

    async def _go_on_by_edits(self, stream: _Stream) -> float:
        """This message is no stream any more, and neither is what follows."""
        self._stream = None
        self._streams = False
        self._changed.set()
        try:
            await self._surface.stop(stream.ts, "", self._tasks.news(stream.tasks))
        except Exception as error:
            # An edit ends it too.
            emit("slack.live", self._key, level=logging.DEBUG, why=why(error))
        return EDIT_SECONDS

    def _not_started(self, error: Exception) -> bool:
        if retry_after(error) is not None:
            raise error
        emit("slack.no_stream", self._key, level=logging.DEBUG, why=why(error))
        if isinstance(failure(error), OutcomeUnknown):
            # Perhaps there is one. Looked for when nothing is on its way any more.
            self._unsure = True
            return False
        if code_of(error) in _NEVER:
            self._no_streams()
        self._streams = False
        self._changed.set()
        return True

    async def _finish(
        self, stream: _Stream, text: str, until: int, tasks: list[Doing] | None = None
    ) -> None:
        """This message is complete; what follows is in the next one."""
        self._stream = None
        if tasks is None:
            tasks = self._tasks.news(stream.tasks)
            self._tasks.said(tasks)
        more = self._more(stream, text, until)
        after = fence_after(self._fence, text[self._at : until])
        whole = joined(self._fence, text[self._at : until], after)
        closing = f"{more}\n{re.match(r'[`~]*', after)[0]}" if after else more  # type: ignore[index]
        await self._surface.stop(stream.ts, closing, tasks)
        self._standing[stream.ts] = body_text(whole)
        self._at, self._fence = next_start(text, until, after), after

    async def _end(self) -> None:
        """Nothing grows any more."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                stream, text = self._stream, inert(self._text)
                if stream is not None:
                    tasks = self._tasks.ended(stream.tasks)
                    if text.startswith(self._said):
                        end = cut(text, self._at, self._fence)
                        await self._finish(stream, text, len(text) if end is None else end, tasks)
                    else:
                        await self._surface.stop(stream.ts, "", tasks)
                await self._look()
        except Exception as error:
            # It is edited into the answer, which ends it too.
            emit("slack.live", self._key, level=logging.DEBUG, why=why(error))

    # ------------------------------------------------------------------ edits

    async def _rewrite(self) -> float | None:
        text = self._text
        if not self._visible and len(text) < FIRST_CHARACTERS:
            return BUSY_SECONDS
        bodies = await asyncio.to_thread(render, text) if len(text) > LONG_TEXT else render(text)
        for index, body in enumerate(bodies):
            ts = self._ids[index] if index < len(self._ids) else None
            if ts is not None and self._standing.get(ts) == body:
                continue
            if self._closing or not self._showing.may("edit"):
                self._changed.set()
                return BUSY_SECONDS
            if ts is None:
                if not await self._say(index, body):
                    return None
                ts = self._ids[index]
            else:
                self._standing.pop(ts, None)
                await self._surface.edit(ts, body, index)
            self._standing[ts] = body
            self._visible = True
            await self._stop_status()
        return EDIT_SECONDS if bodies else BUSY_SECONDS

    async def _say(self, index: int, body: str) -> bool:
        try:
            ts = await self._surface.say(body, index)
        except Exception as error:
            if isinstance(failure(error), OutcomeUnknown):
                self._unsure = True
            raise
        return await self._new(ts)

    # ------------------------------------------------------------------ both

    async def _new(self, ts: str) -> bool:
        """A new message, and a note of it. False: nobody wants it."""
        self._ids.append(ts)
        if await self._note():
            return True
        # /stop or /reset came meanwhile, and knows nothing of this message.
        self._ids.remove(ts)
        self._stream = None
        try:
            await self._surface.delete(ts)
        except Exception as error:
            emit("slack.live", self._key, level=logging.DEBUG, why=why(error))
        return False

    async def _note(self) -> bool:
        try:
            await self._showing.note(tuple(self._ids))
        except Fenced:
            return False
        except StoreError as error:
            # The commit names it once more, with what `close` tells; a crash before that would not.
            trouble("slack.unnoted", self._key, why=str(error))
        return True

    async def _wait_as_told(self, seconds: float) -> None:
        try:
            await self._showing.later(seconds)
        except StoreError as error:
            # It holds in this process; only a restart would not know of it.
            trouble("slack.unnoted", self._key, why=str(error))

    async def _stop_status(self) -> None:
        status, self._status = self._status, None
        if status is not None:
            await status.close()


class _Stream:
    """A stream that grows.

    :ivar said: up to where in the text it says it; None: it says nothing yet
    :ivar tasks: the calls that it shows, as it shows them
    :param began: by the monotonic clock
    """

    def __init__(self, ts: str, began: float) -> None:
        self.ts = ts
        self.said: int | None = None
        self.tasks: dict[str, Doing] = {}
        self.began = began
