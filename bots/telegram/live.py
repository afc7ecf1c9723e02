"""Live for Telegram: "typing" until there is something to read, then the growing answer.

In private chats it is a draft, which vanishes by itself when the answer comes; in groups, and where
drafts do not exist, messages that grow by edits and are in the end the answer's own. Best effort:
whatever goes wrong here goes unsaid, for the answer itself is sent by other means.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal, Protocol

from telegram.error import BadRequest, Forbidden, InvalidToken, RetryAfter

from bots.telegram.failures import Lacks, failure, seconds_of, why
from bots.telegram.unfinished import closed
from core.adapter import Showing
from core.clock import Clock
from core.errors import Fenced, StoreError, TryLater
from core.events import emit, trouble

Streaming = Literal["auto", "edit", "off"]

FIRST_SECONDS: Final = 0.3  # quick answers need no typing
AGAIN_SECONDS: Final = 4.0  # Telegram shows it for five

DRAFT_SECONDS: Final = 1.0
EDIT_SECONDS: Final = 1.5
BUSY_SECONDS: Final = 1.0  # until the pace is asked again
KEEP_SECONDS: Final = 20.0  # a draft fades after thirty
FIRST_CHARACTERS: Final = 40  # the first words of a message are what a notification shows
LONG_TEXT: Final = 10_000  # from here on rendering would hold up every other chat


class Typing:
    """
    :param act: tells Telegram once that the bot is typing
    :param showing: says whether that may leave now
    """

    def __init__(
        self, act: Callable[[], Awaitable[object]], clock: Clock, showing: Showing
    ) -> None:
        self._act = act
        self._showing = showing
        self._clock = clock
        self._task = asyncio.create_task(self._type())

    def show(self, text: str) -> bool:
        return False

    async def close(self) -> tuple[str, ...]:
        self._task.cancel()
        # Not awaited: if we are cancelled ourselves meanwhile, that must be heard.
        await asyncio.wait([self._task])
        return ()

    async def _type(self) -> None:
        await self._clock.sleep(FIRST_SECONDS)
        pause: float | None = AGAIN_SECONDS
        while pause is not None:
            pause = await self._once()
            if pause is not None:
                await self._clock.sleep(pause)

    async def _once(self) -> float | None:
        """Seconds until the next; None when there is nobody to show it to."""
        if not self._showing.may("typing"):
            return AGAIN_SECONDS
        try:
            await self._act()
        except RetryAfter as error:
            return seconds_of(error) + AGAIN_SECONDS
        except (BadRequest, Forbidden, Lacks) as error:
            # The send that follows meets the same, and is the one that is told.
            emit("telegram.typing", level=logging.DEBUG, why=why(error))
            return None
        except Exception as error:
            # Any: what PTB cannot read comes out as anything. Nobody misses one sign of typing.
            emit("telegram.typing", level=logging.DEBUG, why=why(error))
        return AGAIN_SECONDS


class Surface(Protocol):
    """The chat, for what is shown on the way. Each raises what PTB raises, or `Lacks`."""

    @property
    def edits(self) -> bool:
        """Whether messages can be edited, as far as is known."""
        ...

    async def type(self) -> None: ...

    async def draft(self, body: str) -> None:
        """The preview becomes this."""
        ...

    async def say(self, body: str) -> str:
        """A new message; its id."""
        ...

    async def edit(self, message_id: str, body: str) -> None: ...

    async def delete(self, message_id: str) -> None: ...


class Growing:
    """
    :param key: of the conversation, for events
    :param shown: ids of messages that an earlier attempt left on the screen
    :param drafts: whether the chat may have them; else messages grow by edits
    :param no_drafts: called when Telegram does not know drafts at all
    :param render: the texts that a Markdown becomes
    """

    def __init__(
        self,
        key: str,
        surface: Surface,
        clock: Clock,
        showing: Showing,
        shown: tuple[str, ...],
        *,
        drafts: bool,
        no_drafts: Callable[[], None],
        render: Callable[[str], tuple[str, ...]],
    ) -> None:
        self._key = key
        self._surface = surface
        self._clock = clock
        self._showing = showing
        self._no_drafts = no_drafts
        self._render = render
        # What an earlier attempt has left as messages is finished as messages.
        self._drafts = drafts and not shown
        self._ids = list(shown)
        self._bodies: dict[int, str] = {}
        self._text = ""
        self._changed = asyncio.Event()
        self._visible = bool(shown)
        self._making: asyncio.Task[float | None] | None = None
        self._typing: Typing | None = Typing(surface.type, clock, showing)
        self._task = asyncio.create_task(self._grow(), name=f"live {key}")

    def show(self, text: str) -> bool:
        self._text = text
        self._changed.set()
        return self._visible

    async def close(self) -> tuple[str, ...]:
        self._task.cancel()
        await asyncio.wait([self._task])
        if self._making is not None:
            # It has left, and may be on the screen: its id must be known, or it would stay there.
            await asyncio.wait([self._making])
        await self._stop_typing()
        return tuple(self._ids)

    def standing(self) -> Mapping[str, str]:
        return {id: self._bodies[at] for at, id in enumerate(self._ids) if at in self._bodies}

    async def _grow(self) -> None:
        pause: float | None = DRAFT_SECONDS if self._drafts else EDIT_SECONDS
        while pause is not None:
            await self._something_new()
            try:
                pause = await self._step()
            except RetryAfter as error:
                self._changed.set()
                pause = seconds_of(error) + BUSY_SECONDS
                await self._wait_as_told(pause)
            except Exception as error:
                # The send that follows meets the same, and is the one that is told.
                emit("telegram.live", self._key, level=logging.DEBUG, why=why(error))
                return
            if pause is not None:
                await self._clock.sleep(pause)

    async def _something_new(self) -> None:
        """New text, or time to keep a draft from fading."""
        if self._drafts and self._visible:
            waiting = asyncio.create_task(self._changed.wait())
            fading = asyncio.create_task(self._clock.sleep(KEEP_SECONDS))
            try:
                await asyncio.wait((waiting, fading), return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()
                fading.cancel()
            # Said again as it is, when nothing is new.
            self._bodies.clear()
        else:
            await self._changed.wait()
        self._changed.clear()

    async def _step(self) -> float | None:
        """Show the text as it is now. Seconds until the next time; None: no more."""
        text = self._text
        if not self._visible and len(text) < FIRST_CHARACTERS:
            return BUSY_SECONDS
        whole = closed(text)
        long = len(text) > LONG_TEXT
        bodies = await asyncio.to_thread(self._render, whole) if long else self._render(whole)
        if not bodies:
            return BUSY_SECONDS
        if self._drafts:
            return await self._draft(bodies[-1])
        if not self._surface.edits:
            # A message that cannot grow would stay beside the answer.
            return None
        for index, body in enumerate(bodies):
            if self._bodies.get(index) == body:
                continue
            if not self._showing.may("edit"):
                self._changed.set()
                return BUSY_SECONDS
            if index < len(self._ids):
                # Until it is answered nobody knows what the message says.
                self._bodies.pop(index, None)
                try:
                    await self._surface.edit(self._ids[index], body)
                finally:
                    self._showing.left("edit")
                self._bodies[index] = body
            else:
                stalled = await self._say(index, body)
                if stalled is None:
                    return None
                if stalled:
                    self._changed.set()
                    return stalled
            self._visible = True
            await self._stop_typing()
        return EDIT_SECONDS

    async def _draft(self, body: str) -> float | None:
        if self._bodies.get(0) == body:
            return BUSY_SECONDS
        if not self._showing.may("draft"):
            self._changed.set()
            return BUSY_SECONDS
        try:
            await self._surface.draft(body)
        except InvalidToken:
            # That is what PTB makes of a 404: this server has no such method.
            self._no_drafts()
            self._use_edits()
            return 0.0
        except BadRequest as error:
            emit("telegram.no_draft", self._key, level=logging.DEBUG, why=why(error))
            self._use_edits()
            return 0.0
        self._bodies[0] = body
        self._visible = True
        await self._stop_typing()
        return DRAFT_SECONDS

    def _use_edits(self) -> None:
        self._drafts = False
        self._bodies.clear()
        self._changed.set()

    async def _say(self, index: int, body: str) -> float | None:
        """A new message, and a note of it. Not stopped in the middle: what has left has left.

        :return: 0 when it is there, seconds until it may be tried again, None: it may not
        """
        said = asyncio.create_task(self._make(index, body))
        self._making = said
        stalled = await asyncio.shield(said)
        self._making = None
        return stalled

    async def _make(self, index: int, body: str) -> float | None:
        try:
            message_id = await self._surface.say(body)
        except Exception as error:
            emit("telegram.live", self._key, level=logging.DEBUG, why=why(error))
            told = failure(error, self._key)
            if not isinstance(told, TryLater):
                return None
            await self._wait_as_told(told.seconds)
            return told.seconds
        finally:
            self._showing.left("edit")
        self._ids.append(message_id)
        self._bodies[index] = body
        try:
            await self._showing.note(tuple(self._ids))
        except Fenced:
            # /stop or /reset came meanwhile, and knows nothing of this message.
            self._ids.pop()
            await self._take_back(message_id)
            return None
        except StoreError as error:
            # The commit names it once more, with what `close` tells; a crash before that would not.
            trouble("telegram.unnoted", self._key, why=str(error))
        return 0.0

    async def _wait_as_told(self, seconds: float) -> None:
        try:
            await self._showing.later(seconds)
        except StoreError as error:
            # It holds in this process; only a restart would not know of it.
            trouble("telegram.unnoted", self._key, why=str(error))

    async def _take_back(self, message_id: str) -> None:
        try:
            await self._surface.delete(message_id)
        except Exception as error:
            emit("telegram.live", self._key, level=logging.DEBUG, why=why(error))

    async def _stop_typing(self) -> None:
        typing, self._typing = self._typing, None
        if typing is not None:
            await typing.close()
