"""Files at the stand-in: what people have sent, what getFile says of it, and the bytes.

The limits and the words are those of Telegram's own server (telegram-bot-api/Client.cpp). Unlike
there a path is good for ever.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from playground.telegram_chats import Json, Refused
from playground.telegram_faults import (
    Answer,
    CutShort,
    Delay,
    Elsewhere,
    Faults,
    GarbageBody,
    Overflow,
    ResetAfter,
    ResetBefore,
)
from playground.telegram_http import HungUp, answer_fault, answer_refusal

MAX_DOWNLOAD = 20 << 20
FAULT = "download"  # what a fault of a download names as its method
PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class StoredFile:
    path: str
    data: bytes
    size: int  # what Telegram says of it


@dataclass(slots=True)
class StoredFiles:
    """By id. `local` plays a server that was started with --local: its paths are of its disk."""

    files: dict[str, StoredFile] = field(default_factory=dict)
    local: bool = False

    def keep(self, data: bytes, folder: str, suffix: str, size: int | None = None) -> Json:
        """The fields that every file has."""
        number = len(self.files) + 1
        file_id = f"AgACAgIAAxkBAAI{number:06}"
        size = len(data) if size is None else size
        self.files[file_id] = StoredFile(f"{folder}/file_{number}{suffix}", data, size)
        unique = hashlib.sha256(data).hexdigest()[:12]
        return {"file_id": file_id, "file_unique_id": f"AQAD{unique}", "file_size": size}

    def told(self, file_id: object) -> Json:
        """The answer to getFile."""
        file = self.files.get(file_id) if isinstance(file_id, str) else None
        if file is None:
            raise Refused(400, "Bad Request: wrong file_id or the file is temporarily unavailable")
        if file.size > MAX_DOWNLOAD and not self.local:
            raise Refused(400, "Bad Request: file is too big")
        unique = hashlib.sha256(file.data).hexdigest()[:12]
        return {
            "file_id": file_id,
            "file_unique_id": f"AQAD{unique}",
            "file_size": file.size,
            "file_path": f"/var/lib/bot/{file.path}" if self.local else file.path,
        }

    def at(self, path: str) -> StoredFile | None:
        return next((file for file in self.files.values() if file.path == path), None)


async def download(request: Request, files: StoredFiles, faults: Faults) -> Response:
    """A file, or what goes wrong with it."""
    rule = faults.strike(FAULT, None)
    fault = None if rule is None else rule.fault
    file = files.at(request.path_params["path"])
    if file is None and not isinstance(fault, Elsewhere):
        return answer_refusal(Refused(404, "Not Found"))
    data = file.data if file else b""
    match fault:
        case Answer():
            return answer_fault(fault)
        case Elsewhere(url):
            return Response(status_code=302, headers={"Location": url})
        case GarbageBody(text):
            return Response(text, media_type="text/html")
        case ResetBefore() | ResetAfter():
            return HungUp()
        case Delay(seconds):
            await asyncio.sleep(seconds)
        case Overflow(total):
            return StreamingResponse(_endless(total), media_type="application/octet-stream")
        case CutShort(sent):
            length = {"Content-Length": str(len(data))}
            return StreamingResponse(_broken(data[:sent]), headers=length)
    return Response(data, media_type="application/octet-stream")


async def _endless(total: int) -> AsyncIterator[bytes]:
    """Without a length; it goes on as long as somebody reads."""
    left = total
    while left > 0:
        yield bytes(min(left, PIECE))
        left -= PIECE
        await asyncio.sleep(0)


async def _broken(data: bytes) -> AsyncIterator[bytes]:
    yield data
    raise ConnectionAbortedError("the fault wants it")
