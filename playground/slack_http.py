"""Requests and answers of the Web API on the wire: forms, JSON or a query in, `{"ok": ...}` out.

Knows the shapes and nothing of what the methods do.
"""

import base64
import json
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Receive, Scope, Send

from playground.serve import hang_up
from playground.slack_chats import Json, Refused
from playground.slack_faults import Answer

# Forms hold strings only. Which stand for more is a matter of the name: a text "12" stays a text.
_NUMBERS = frozenset("limit length".split())
_FLAGS = frozenset(
    "include_all_metadata inclusive link_names mrkdwn reply_broadcast unfurl_links unfurl_media "
    "include_locale include_num_members return_im replace_original delete_original".split()
)
_NESTED = frozenset(
    "attachments blocks chunks files loading_messages metadata prompts view "
    "suggested_prompts unfurls".split()
)


class HungUp(Response):
    """No answer: the TCP connection is aborted."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await hang_up(scope)


async def parameters(request: Request) -> Json:
    """The parameters of a call, decoded. Raises `Refused` for what cannot be read."""
    body = await request.body()
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    given: Json = _form(request.url.query)
    try:
        if kind == "application/x-www-form-urlencoded":
            given |= _form(body.decode())
        elif kind == "multipart/form-data":
            given |= _multipart(request.headers["content-type"], body)
        elif kind == "application/json":
            sent = json.loads(body or b"{}")
            if not isinstance(sent, dict):
                raise Refused("json_not_object")
            given |= sent
    except ValueError:
        raise Refused(
            "invalid_json" if kind == "application/json" else "invalid_form_data"
        ) from None
    return {name: _value(name, value) for name, value in given.items()}


def token_of(request: Request, given: Json) -> str:
    """The token of a call: in the header, or among its parameters, from which it is taken."""
    in_form = given.pop("token", "")
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else str(in_form)


def client_of(request: Request, given: Json) -> None:
    """Puts what stands in a Basic header among the parameters: client_id, client_secret."""
    kind, _, code = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "basic":
        try:
            name, _, secret = base64.b64decode(code, validate=True).decode().partition(":")
        except ValueError:
            return
        given |= {"client_id": name, "client_secret": secret}


def answer_result(result: Json, headers: dict[str, str] | None = None) -> Response:
    return _json({"ok": True} | result, 200, headers)


def answer_refusal(refused: Refused, headers: dict[str, str] | None = None) -> Response:
    headers = dict(headers or {})
    body = {"ok": False, "error": refused.error} | refused.more
    wait = body.pop("retry_after", None)
    if wait is not None:
        headers["Retry-After"] = str(wait)
    return _json(body, refused.status, headers)


def answer_fault(fault: Answer) -> Response:
    """429 is JSON; the others are the page of a proxy, or JSON when they say an error code."""
    if fault.html or (fault.status != 429 and fault.description is None):
        title = f"{fault.status} Something went wrong"
        return HTMLResponse(
            f"<html><head><title>{title}</title></head><body><h1>{title}</h1></body></html>",
            fault.status,
        )
    error = fault.description or "ratelimited"
    wait = {} if fault.retry_after is None else {"retry_after": fault.retry_after}
    return answer_refusal(Refused(error, fault.status, **wait))


def _json(value: Json, status: int, headers: dict[str, str] | None) -> Response:
    body = json.dumps(value, separators=(",", ":")).encode()
    return Response(body, status, headers, media_type="application/json")


def _form(text: str) -> Json:
    return dict(parse_qsl(text, keep_blank_values=True, errors="strict"))


def _multipart(content_type: str, body: bytes) -> Json:
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    given: Json = {}
    for part in BytesParser(policy=HTTP).parsebytes(head + body).iter_parts():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(content, bytes):
            file = part.get_filename()
            given[name] = content.decode() if file is None else (file, content)
    return given


def _value(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if name in _FLAGS:
        return value.lower() in ("true", "1")
    if name in _NUMBERS:
        try:
            return int(value)
        except ValueError:
            return value
    if name in _NESTED:
        try:
            return json.loads(value) if value else None
        except ValueError:
            return value  # a mistake for the method to refuse
    return value
