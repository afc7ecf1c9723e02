"""Files that people send -> what a model can read. All platforms share it.

What a file is, its bytes decide; what its name and its platform say is only told on. Pictures are
made to fit (`pictures.py`), PDFs go as they are, text is decoded, speech is written down by a
transcriber, if there is one. Of all else the model learns that it is there, and that it cannot be
read. Where files come from and where they are kept is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import codecs
import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from core.adapter import Fetched
from core.attachments import described
from core.errors import NotFetched
from core.events import trouble
from core.messages import Attachment, cut
from core.results import MAX_CHARACTERS, MAX_DOCUMENT, File, Image, picture_type

# Given a recording and its media type, the words that are spoken in it.
Transcribe = Callable[[bytes, str], str | Awaitable[str]]

AT_ONCE: Final = 2  # pictures that are in memory, decoded, at the same time

DEAF: Final = "this bot cannot hear it"
BLIND: Final = "this bot cannot watch it"
SILENT: Final = "no words could be heard in it"
UNHEARD: Final = "its words could not be written down"
LOCKED: Final = "it is locked with a password"
EMPTY: Final = "it is empty"
TOO_LARGE: Final = f"it is larger than the {MAX_DOCUMENT >> 20} MB that can be read"
UNREADABLE: Final = "this bot cannot read files of this kind"

_SPOKEN: Final = ("voice", "audio", "video_note")
# What texts are made of: neither NUL nor other control characters but those for lines and columns.
_NO_TEXT: Final = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_ENCRYPTED: Final = re.compile(rb"/Encrypt\s+\d+\s+\d+\s+R")
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    # The longer first: it begins with the shorter.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Media:
    """Implements `core.attachments.Opens`.

    :param transcribe: None: what was spoken is not heard
    """

    def __init__(self, transcribe: Transcribe | None = None) -> None:
        self._transcribe = transcribe
        # Threads of its own: a bound, and nobody else waits behind a picture.
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="media")

    def declines(self, attachment: Attachment) -> str | None:
        if _is_spoken(attachment):
            return None if self._transcribe else DEAF
        plays = attachment.media_type.startswith("video/")
        return BLIND if plays or attachment.kind in ("video", "animation") else None

    async def open(self, attachment: Attachment, file: Fetched) -> Sequence[str | Image | File]:
        if not file.data:
            raise NotFetched(EMPTY)
        if _is_spoken(attachment):
            return (await self._written_down(attachment, file),)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _opened, attachment, file)

    async def close(self) -> None:
        """Nothing can be opened after this."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _written_down(self, attachment: Attachment, file: Fetched) -> str:
        assert self._transcribe is not None
        media_type = file.media_type or attachment.media_type
        try:
            if inspect.iscoroutinefunction(self._transcribe):
                words = await self._transcribe(file.data, media_type)
            else:
                words = await asyncio.to_thread(self._transcribe, file.data, media_type)
                words = await words if inspect.isawaitable(words) else words
        except Exception as error:
            # Somebody else's code, and its texts may hold anything.
            trouble("media.unheard", "", kind=attachment.kind, why=type(error).__name__)
            raise NotFetched(UNHEARD) from None
        if not str(words).strip():
            raise NotFetched(SILENT)
        return f"[{described(attachment)}, written down:]\n{str(words).strip()}"


def _is_spoken(attachment: Attachment) -> bool:
    return attachment.kind in _SPOKEN or attachment.media_type.startswith("audio/")


def _opened(attachment: Attachment, file: Fetched) -> tuple[str | Image | File, ...]:
    name = file.name or attachment.name
    if picture_type(file.data) or file.data.startswith(b"BM"):
        return (_picture(file.data),)
    if file.data.startswith(b"%PDF-"):
        if len(file.data) > MAX_DOCUMENT:
            raise NotFetched(TOO_LARGE)
        if _ENCRYPTED.search(file.data):
            raise NotFetched(LOCKED)
        return (File(file.data, name, "application/pdf"),)
    media_type = file.media_type or attachment.media_type
    text = _text(file.data, surely=media_type.startswith("text/"))
    if text is None:
        raise NotFetched(UNREADABLE)
    if not text.strip():
        raise NotFetched(EMPTY)
    return (File(cut(text, MAX_CHARACTERS).encode(), name, "text/plain"),)


def _picture(data: bytes) -> Image:
    # Only those who are sent a picture wait for the library.
    from bots.pictures import NoPicture, fitted

    try:
        return Image(fitted(data))
    except NoPicture as error:
        raise NotFetched(str(error)) from None


def _text(data: bytes, *, surely: bool) -> str | None:
    """None: these bytes are no text.

    :param surely: somebody says that they are: then even in an encoding that cannot be known
    """
    # What is longer is cut anyway; a sign has four bytes at most.
    data = data[: 4 * MAX_CHARACTERS + 8]
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    try:
        # The last sign may be cut in two.
        text = codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace") if surely and b"\0" not in data else None
    return text if surely or not _NO_TEXT.search(text) else None
