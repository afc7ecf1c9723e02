"""Files that people send, on their way into a prompt: fetched, opened, kept as blobs.

Done when the turn starts and not before a message is accepted, for that must be quick. The blocks
are written by the save that starts the turn; killed before it, the files are fetched again. What
cannot be had is a plain sentence in its place, for the model to tell: no file ever keeps a message
from being answered.

Not how a file comes from a platform (`core.adapter.Fetches`), and not what its bytes mean
(`Opens`, which `bots.media` implements).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Protocol

from core.adapter import Adapter, Fetched, Fetches
from core.changes import wordless
from core.clock import Clock
from core.errors import NotFetched, TryLater
from core.events import emit, trouble
from core.messages import Attachment, Inbound, clean, cut, decode_blocks, text_block
from core.names import names_of
from core.quoted import closing, inert, opening
from core.results import (
    MAX_CHARACTERS,
    MAX_DOCUMENT,
    MAX_IMAGE,
    File,
    Image,
    Keep,
    picture_type,
    source_of,
)

MOST: Final = 20  # files in a turn
MOST_BYTES: Final = 16 << 20  # of them all, once they are opened; more makes a request too large
AT_ONCE: Final = 3  # in a turn
ALL_AT_ONCE: Final = 8  # in all turns of this process: each may be in memory as a whole
PATIENCE: Final = 20.0  # seconds that a platform may ask us to wait, in all
FILE_SECONDS: Final = 60.0
TURN_SECONDS: Final = 180.0

Block = dict[str, Any]

_KINDS: Final = {
    "document": "file",
    "voice": "voice message",
    "audio": "audio file",
    "video_note": "video message",
}

TOO_MANY: Final = f"left out, for more than {MOST} came at once"
TOO_MUCH: Final = f"left out, for what came with it has more than {MOST_BYTES >> 20} MB in all"
TOO_SLOW: Final = "it could not be fetched in time"
FAILED: Final = "it could not be fetched"
TOO_LARGE: Final = "it is too large"
UNKNOWN: Final = "it is of a kind that cannot be shown"
NO_FILES: Final = "this bot cannot open files here"


class Opens(Protocol):
    """Makes of a file what a model can read."""

    def declines(self, attachment: Attachment) -> str | None:
        """Why it need not even be fetched, in plain words; None: it is to be."""
        ...

    async def open(self, attachment: Attachment, file: Fetched) -> Sequence[str | Image | File]:
        """Texts, pictures that fit into a request, PDFs and text files.

        :raises NotFetched: nothing can be made of it
        """
        ...


class OpensNothing:
    """For a bot that reads no files."""

    def declines(self, attachment: Attachment) -> str | None:
        return NO_FILES

    async def open(self, attachment: Attachment, file: Fetched) -> Sequence[str | Image | File]:
        raise NotFetched(NO_FILES)


class Fetching:
    """Fetches what the messages of one turn bring, and what those who wrote them are called.

    :param keep: keeps bytes beside the history; None: they stay in the blocks
    :param everybody: shared by all turns: how many files are in memory at the same time
    """

    def __init__(
        self,
        key: str,
        adapter: Adapter,
        opens: Opens,
        keep: Keep | None,
        clock: Clock,
        everybody: asyncio.Semaphore | None = None,
        *,
        file_seconds: float = FILE_SECONDS,
        turn_seconds: float = TURN_SECONDS,
    ) -> None:
        self._key = key
        self._adapter = adapter
        self._opens = opens
        self._keep = keep
        self._clock = clock
        self._file_seconds = file_seconds
        self._ends = clock.monotonic() + turn_seconds
        self._patience = PATIENCE
        self._left = MOST
        self._room = MOST_BYTES
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._everybody = everybody or asyncio.Semaphore(ALL_AT_ONCE)
        self.contents: dict[str, Sequence[Block]] = {}
        self.names: dict[str, str] = {}

    async def fetch(self, messages: Sequence[Inbound]) -> None:
        """Those that are not in `contents` yet are, afterwards; in `names` those that can be had.

        :raises StoreError: they could not be kept
        """
        self.names |= await names_of(self._key, self._adapter, messages)
        new = [each for each in messages if each.attachments and each.id not in self.contents]
        if not new:  # as in most turns
            return
        files = [self._blocks(attachment) for each in new for attachment in each.attachments]
        fetched: list[Sequence[Block]] = []
        # All of them end before an error of one is raised: none goes on unseen.
        for outcome in await asyncio.gather(*files, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
            fetched.append(outcome)
        parts = iter(fetched)
        for message in new:
            own = [next(parts) for _ in message.attachments]
            self.contents[message.id] = _together(message, own, named=_is_named(message, messages))

    def lacks(self, messages: Sequence[Inbound]) -> bool:
        """Whether one of them has files that were not fetched."""
        return any(each.attachments and each.id not in self.contents for each in messages)

    async def _blocks(self, attachment: Attachment) -> Sequence[Block]:
        self._left -= 1
        try:
            if self._left < 0:
                raise NotFetched(TOO_MANY)
            fetches = isinstance(self._adapter, Fetches)
            declined = self._opens.declines(attachment) if fetches else NO_FILES
            if declined:
                raise NotFetched(declined)
            return await self._opened(attachment)
        except NotFetched as error:
            return [text_block(f"[{described(attachment)}: {error.sentence}]")]

    async def _opened(self, attachment: Attachment) -> Sequence[Block]:
        assert isinstance(self._adapter, Fetches)
        while True:
            try:
                async with self._turns, self._everybody:
                    return await self._tried(attachment, self._adapter)
            except TryLater as later:
                # At least a moment, or asking again and again would use up no patience.
                wait = max(0.5, later.seconds)
                self._patience -= wait
                if self._patience < 0:
                    raise NotFetched(TOO_SLOW) from None
            await self._clock.sleep(wait)

    async def _tried(self, attachment: Attachment, fetches: Fetches) -> Sequence[Block]:
        seconds = min(self._file_seconds, self._ends - self._clock.monotonic())
        try:
            async with asyncio.timeout(seconds):
                file = await fetches.fetch(self._key, attachment)
                parts = await self._opens.open(attachment, file)
        except TimeoutError:
            emit("file.slow", self._key, kind=attachment.kind)
            raise NotFetched(TOO_SLOW) from None
        except (TryLater, NotFetched):
            raise
        except Exception as error:
            # Of whatever kind: a message is not left unanswered for a file.
            trouble("file.failed", self._key, kind=attachment.kind, why=type(error).__name__)
            raise NotFetched(FAILED) from None
        emit("file.fetched", self._key, kind=attachment.kind, bytes=len(file.data))
        return [block for part in parts for block in await self._block(part, attachment)]

    async def _block(self, part: str | Image | File, attachment: Attachment) -> Sequence[Block]:
        if isinstance(part, str):
            text = inert(cut(clean(part), MAX_CHARACTERS))
            return [text_block(text)] if text.strip() else []
        size = len(part.data)
        if size > (MAX_IMAGE if isinstance(part, Image) else MAX_DOCUMENT):
            raise NotFetched(TOO_LARGE)
        if size > self._room:
            raise NotFetched(TOO_MUCH)
        self._room -= size
        if isinstance(part, Image):
            media_type = picture_type(part.data)
            if media_type is None:
                raise NotFetched(UNKNOWN)
            return [{"type": "image", "source": await source_of(part.data, media_type, self._keep)}]
        data = part.data
        if attachment.within and part.media_type.startswith("text/"):
            # Not every service keeps a document apart from the words around it.
            data = inert(data.decode(errors="replace")).encode()
        source = await source_of(data, part.media_type, self._keep)
        name = inert(clean(part.name))[:200].strip() or "file"
        return [{"type": "document", "source": source, "title": name}]


def described(attachment: Attachment) -> str:
    """What it is, for the model: ``file report.pdf``, ``voice message, 12 s``."""
    kind = _KINDS.get(attachment.kind, attachment.kind)
    name = " ".join(inert(clean(attachment.name)).split())[:200]
    words = f"{kind} {name}" if name else kind
    return f"{words}, {attachment.seconds} s" if attachment.seconds else words


def _is_named(message: Inbound, messages: Sequence[Inbound]) -> bool:
    """Whether it is plain who has sent it: from its own words, or from the album that it is of."""
    if not message.group or message.text.strip():
        return True
    at = messages.index(message)
    return at > 0 and message.album is not None and messages[at - 1].album == message.album


def _together(
    message: Inbound, parts: Sequence[Sequence[Block]], *, named: bool
) -> Sequence[Block]:
    """All blocks of a message's files, what came with words of others between their marks."""
    blocks: list[Block] = []
    if not named:
        blocks.append(text_block(wordless(message)))
    blocks += decode_blocks(message.blocks)
    for attachment, part in zip(message.attachments, parts, strict=True):
        if attachment.within == "" or not part:
            blocks += part
            continue
        blocks.append(text_block(opening(attachment.within, attachment.author).rstrip()))
        blocks += part
        blocks.append(text_block(closing(attachment.within).strip()))
    return blocks
