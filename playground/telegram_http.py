"""Requests and answers of the Bot API on the wire: forms or JSON in, `{"ok": ...}` out.

Knows the shapes and nothing of what the methods do.
"""

import json
import re
from email.message import Message
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Receive, Scope, Send

from playground.serve import hang_up
from playground.telegram_chats import Json, Refused, Upload
from playground.telegram_faults import Answer

# Forms hold strings only. Which stand for more is a matter of the name: a text "12" stays a text.
_NUMBERS = frozenset(
    "chat_id draft_id limit max_connections message_id message_thread_id offset timeout".split()
)
_FLAGS = frozenset(
    "can_stop disable_content_type_detection disable_notification drop_pending_updates "
    "protect_content show_alert".split()
)
_NESTED = frozenset(
    "allowed_updates caption_entities commands entities link_preview_options "
    "reply_markup reply_parameters scope".split()
)


class HungUp(Response):
    """No answer: the TCP connection is aborted."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await hang_up(scope)


async def parameters(request: Request) -> Json:
    """The parameters of a call, decoded. Raises `Refused` (400) for what cannot be read."""
    body = await request.body()
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        given = _form(request.url.query)
        if kind == "application/x-www-form-urlencoded":
            given |= _form(body.decode())
        elif kind == "multipart/form-data":
            given |= _multipart(request.headers["content-type"], body)
        elif kind == "application/json":
            sent = json.loads(body or b"{}")
            if not isinstance(sent, dict):
                raise Refused(400, "Bad Request: object expected as JSON body")
            given |= sent
    except UnicodeDecodeError:
        raise Refused(400, "Bad Request: strings must be encoded in UTF-8") from None
    except json.JSONDecodeError:
        raise Refused(400, "Bad Request: can't parse JSON body") from None
    return {name: _value(name, value) for name, value in given.items()}


def answer_result(result: object) -> Response:
    return _json({"ok": True, "result": result}, 200)


def answer_updates(texts: list[str]) -> Response:
    """The updates go out as the texts they are: they may be anything, even no JSON."""
    body = '{"ok":true,"result":[' + ",\n".join(texts) + "]}"
    return Response(body.encode("utf-8", "surrogatepass"), media_type="application/json")


def answer_refusal(refused: Refused) -> Response:
    body: Json = {
        "ok": False,
        "error_code": refused.status,
        "description": refused.description,
    }
    if refused.parameters:
        body["parameters"] = refused.parameters
    return _json(body, refused.status)


def answer_fault(fault: Answer) -> Response:
    words = {
        400: "Bad Request",
        401: "Unauthorized",
        403: "Forbidden",
        404: "Not Found",
        409: "Conflict",
        429: "Too Many Requests",
        500: "Internal Server Error",
        502: "Bad Gateway",
        503: "Service Unavailable",
        504: "Gateway Timeout",
    }
    phrase = words.get(fault.status, "Error")
    if fault.html:
        title = f"{fault.status} {phrase}"
        return HTMLResponse(
            f"<html><head><title>{title}</title></head><body><h1>{title}</h1></body></html>",
            fault.status,
        )
    wait = fault.retry_after
    description = phrase if wait is None else f"{phrase}: retry after {wait}"
    limits = None if wait is None else {"retry_after": wait}
    return answer_refusal(Refused(fault.status, fault.description or description, limits))


def _json(value: Json, status: int) -> Response:
    body = json.dumps(value, separators=(",", ":")).encode()
    return Response(body, status, media_type="application/json")


def _form(text: str) -> Json:
    return dict(parse_qsl(text, keep_blank_values=True, errors="strict"))


def _multipart(content_type: str, body: bytes) -> Json:
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    given: Json = {}
    for part in BytesParser(policy=HTTP).parsebytes(head + body).iter_parts():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if not isinstance(name, str) or not isinstance(content, bytes):
            continue
        file = _file_name(part)
        given[name] = content.decode() if file is None else Upload(file, content)
    return given


def _file_name(part: Message) -> str | None:
    """As it came, in UTF-8: nothing in it is unquoted but a sign behind a backslash."""
    for header, value in part.raw_items():
        if header.lower() == "content-disposition":
            raw = str(value).encode("ascii", "surrogateescape")
            found = re.search(rb';\s*filename="((?:[^"\\]|\\.)*)"', raw)
            return None if found is None else re.sub(rb"\\(.)", rb"\1", found[1]).decode()
    return None


def _value(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if name in _FLAGS:
        return value.lower() in ("true", "yes", "1")
    if name in _NUMBERS:
        try:
            return int(value)
        except ValueError:
            return value  # "@name" as a chat, or a mistake for the method to refuse
    if name in _NESTED:
        try:
            return json.loads(value) if value else None
        except ValueError:
            return value  # likewise
    return value
