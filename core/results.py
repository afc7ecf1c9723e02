"""What a tool gave, as the content of a tool_result: text, images, documents.

::

    @tool
    def chart(of: str) -> list[object]:
        return ["The last 30 days:", Image(png)]

Bounded before anything is copied: a tool may give more than fits into a history, a request or the
memory. A text too long is cut with a marker that says so, and kept whole beside the history when
there is a place for it. Anything else is JSON, or what `str` says of it.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from core.errors import ToolError
from core.messages import clean, text_block
from core.outgoing import to_send

MAX_CHARACTERS: Final = 100_000
MAX_KEPT: Final = 16 << 20  # bytes of a text that is kept whole
MAX_VALUES: Final = 1_000_000  # in lists and mappings, at any depth
MAX_IMAGE: Final = 3_750_000  # bytes; as base64 the 5 MB that the API takes
MAX_DOCUMENT: Final = 8 << 20
MAX_SENT: Final = 32 << 20  # what a blob may have
MAX_NAME: Final = 100  # characters
MAX_PARTS: Final = 20
_LARGE: Final = 64 << 10  # what takes long enough to hold up everything else

_UNKNOWN: Final = "application/octet-stream"

# The kinds of picture that the API takes, and how each begins.
_PICTURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
)

# Keeps bytes beside the history, and gives their id: `Blobs.put` of one conversation.
Keep = Callable[[bytes, str], Awaitable[str]]
Block = dict[str, Any]


class Image(msgspec.Struct, frozen=True):
    """A picture for the model: PNG, JPEG, GIF or WebP.

    :param media_type: need not be given: the bytes say it
    :param name: what it is called when it is sent
    :param send: the person is sent it, too, after the answer; see `core.outgoing`
    """

    data: bytes
    media_type: str = ""
    name: str = ""
    send: bool = False


class File(msgspec.Struct, frozen=True):
    """A file: the model reads PDFs and texts, of others it learns that they are there.

    :param send: the person is sent it after the answer; the model learns that, and does not read it
    """

    data: bytes
    name: str
    media_type: str = "application/octet-stream"
    send: bool = False


class Made(msgspec.Struct, frozen=True):
    """Blocks as they shall stand in the result."""

    blocks: list[Block]


class TooLarge(ToolError):
    """More than can be looked at, let alone kept."""

    def __init__(self) -> None:
        super().__init__("The result was far too large to be used. Ask for less of it.")


async def content_of(value: object, keep: Keep | None = None) -> str | list[Block]:
    """
    :param keep: None: there is no place beside the history; images are put into it
    :raises ToolError: what the model is told instead
    :raises StoreError: from `keep`
    """
    if isinstance(value, Image | File):
        return await _blocks([value], keep)
    if isinstance(value, list | tuple) and any(
        isinstance(each, Image | File | Made) for each in value
    ):
        return await _blocks(value, keep)
    return await _text(value, keep)


async def _blocks(values: Sequence[object], keep: Keep | None) -> list[Block]:
    if len(values) > MAX_PARTS:
        raise ToolError(f"The result had {len(values)} parts; {MAX_PARTS} are allowed.")
    blocks: list[Block] = []
    for value in values:
        if isinstance(value, Made):
            blocks += value.blocks
        elif isinstance(value, Image | File) and value.send:
            blocks += await _sent(value, keep)
        elif isinstance(value, Image):
            blocks.append(await _image(value, keep))
        elif isinstance(value, File):
            blocks += await _file(value, keep)
        else:
            text = await _text(value, keep)
            blocks += [text_block(text)] if isinstance(text, str) else text
    return blocks


async def _text(value: object, keep: Keep | None) -> str | list[Block]:
    if value is None:
        return "Done."
    size = size_of(value)
    if size > _LARGE:
        # Of the whole nothing is copied that is not going to be kept.
        text, cut, whole = await asyncio.to_thread(_bounded, value)
    else:
        text, cut, whole = _bounded(value)
    if not cut:
        return text if text.strip() else "Done; there is no output."
    if whole is None or keep is None:
        return f"{text}\n[… the result was longer; the rest was cut here]"
    id = await keep(whole, "text/plain")
    return [
        text_block(f"{text}\n[… {len(whole)} bytes in all; the rest was cut here, and is kept]"),
        kept_block(id, "text/plain"),
    ]


def _bounded(value: object) -> tuple[str, bool, bytes | None]:
    """Readable text, whether it is only the beginning, and then all of it unless that is too long
    to be kept."""
    text = value if isinstance(value, str) else _json(value)
    whole = clean(text) if len(text) <= MAX_KEPT else None
    if whole is None:
        return clean(text[:MAX_CHARACTERS]), True, None
    if len(whole) <= MAX_CHARACTERS:
        return whole, False, None
    encoded = whole.encode()
    return whole[:MAX_CHARACTERS], True, encoded if len(encoded) <= MAX_KEPT else None


def _json(value: object) -> str:
    # Not msgspec's own: a tool may give numbers and half characters that JSON proper has not.
    plain = msgspec.to_builtins(value, enc_hook=str, str_keys=True)
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def size_of(value: object) -> int:
    """About how many characters it will have. Looks at no more than it must.

    :raises TooLarge: more than can be turned into text at all
    """
    if isinstance(value, str):
        return len(value)  # of any length: it is cut first
    size = values = 0
    stack: list[object] = [value]
    while stack:
        each = stack.pop()
        values += 1
        size += len(each) if isinstance(each, str | bytes | bytearray | memoryview) else 8
        if values + len(stack) > MAX_VALUES or size > MAX_KEPT:
            raise TooLarge
        stack.extend(_inside(each))
    return size


def _inside(value: object) -> Sequence[object]:
    if isinstance(value, Mapping):
        inside: Any = (*value.keys(), *value.values()) if len(value) < MAX_VALUES else ()
    elif isinstance(value, list | tuple | set | frozenset):
        inside = value
    elif isinstance(value, msgspec.Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    else:
        return ()
    if len(value) >= MAX_VALUES:
        raise TooLarge
    return tuple(inside)


# ---------------------------------------------------------------------- images and files


async def _image(image: Image, keep: Keep | None) -> Block:
    media_type = picture_type(image.data)
    if media_type is None:
        raise ToolError("The result was an image of a kind that cannot be shown.")
    if len(image.data) > MAX_IMAGE:
        raise ToolError(
            f"The result was an image of {len(image.data)} bytes; {MAX_IMAGE} can be shown."
        )
    return {"type": "image", "source": await source_of(image.data, media_type, keep)}


def picture_type(data: bytes) -> str | None:
    for beginning, media_type in _PICTURES:
        if data.startswith(beginning):
            return media_type
    return None


async def _file(file: File, keep: Keep | None) -> list[Block]:
    name = clean(file.name)[:200] or "file"
    if file.media_type.startswith("image/") and picture_type(file.data):
        return [await _image(Image(file.data), keep)]
    if len(file.data) > MAX_DOCUMENT:
        raise ToolError(f"The file {name} has {len(file.data)} bytes: it is too large.")
    if file.data.startswith(b"%PDF-"):
        source = await source_of(file.data, "application/pdf", keep)
        return [{"type": "document", "source": source, "title": name}]
    if file.media_type.startswith("text/"):
        text = await _text(file.data.decode(errors="replace"), keep)
        blocks = [text_block(text)] if isinstance(text, str) else text
        return [text_block(f"{name}:"), *blocks]
    about = f"[the file {name}, {file.media_type}, {len(file.data)} bytes"
    if keep is None:
        return [text_block(f"{about}; it cannot be read here]")]
    id = await keep(file.data, file.media_type)
    return [
        text_block(f"{about}; it is kept, but cannot be read here]"),
        kept_block(id, file.media_type),
    ]


async def _sent(value: Image | File, keep: Keep | None) -> list[Block]:
    """For the person; a picture is for the model, too, when it takes it."""
    name = file_name(value.name)
    media_type = picture_type(value.data) or value.media_type or _UNKNOWN
    if isinstance(value, Image) and not value.name:
        name = f"image.{media_type.rpartition('/')[2]}"
    size = len(value.data)
    if not size:
        raise ToolError(f"The file {name} is empty: it cannot be sent.")
    if size > MAX_SENT:
        raise ToolError(f"The file {name} has {size} bytes; {MAX_SENT} can be sent.")
    about = f"[the file {name}, {media_type}, {size} bytes"
    if keep is None:
        return [text_block(f"{about}; it cannot be sent from here]")]
    blocks: list[Block] = [text_block(f"{about}: the person is sent it after your answer]")]
    if isinstance(value, Image) and picture_type(value.data) and size <= MAX_IMAGE:
        blocks.append(await _image(value, keep))
    return [*blocks, to_send(await keep(value.data, media_type), name, media_type)]


def file_name(name: str) -> str:
    """A name and nothing else: no folder, nothing that turns the reading direction round."""
    last = re.split(r"[/\\]", clean(name))[-1]
    plain = "".join(char for char in last if char.isprintable() and char != '"').strip(". ")
    if len(plain) > MAX_NAME:
        stem, dot, suffix = plain.rpartition(".")
        kept = suffix if dot and len(suffix) <= 10 else ""
        plain = f"{(stem or plain)[: MAX_NAME - len(kept) - 1]}{'.' if kept else ''}{kept}"
    return plain or "file"


async def source_of(data: bytes, media_type: str, keep: Keep | None) -> Block:
    """What a block says of where its bytes are: kept beside the history, or in the block."""
    if keep is None:
        text = base64.b64encode(data).decode()
        return {"type": "base64", "media_type": media_type, "data": text}
    id = await keep(data, media_type)
    # Its size, for whoever weighs a request without reading what is kept.
    return {"type": "blob", "id": id, "media_type": media_type, "size": len(data)}


def kept_block(id: str, media_type: str) -> Block:
    """For whoever looks at the history; no request ever has it."""
    return {"type": "blob", "source": {"type": "blob", "id": id, "media_type": media_type}}
