"""What the Messages API refuses in a single content block, whatever stands around it.

`claude_rules` checks what the blocks and messages of a request must be to each other.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from typing import Any

from playground.claude_answers import SIGNATURE_PREFIX, sign
from playground.claude_images import HEAD, too_large

Json = dict[str, Any]


class Invalid(Exception):
    """The request is answered with 400 and `invalid_request_error`; the text says why."""


def names(text: str) -> frozenset[str]:
    """The words of a text, to keep long lists of field names readable."""
    return frozenset(text.split())


_FIELDS = {
    "text": names("text cache_control citations"),
    "image": names("source cache_control transformations"),
    "document": names("source cache_control citations context title"),
    "search_result": names("content source title cache_control citations"),
    "tool_use": names("id name input cache_control caller toolset_name"),
    "tool_result": names("tool_use_id content is_error cache_control toolset_name"),
    "thinking": names("thinking signature"),
    "redacted_thinking": names("data"),
    "compaction": names("content encrypted_content signature tool_changes cache_control"),
}
_REQUIRED = {
    "text": ("text",),
    "image": ("source",),
    "document": ("source",),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id",),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
}
_ASSISTANT_ONLY = frozenset({"tool_use", "thinking", "redacted_thinking", "compaction"})
_USER_ONLY = frozenset({"tool_result", "image", "document", "search_result"})
_MAGIC = {
    "image/jpeg": b"\xff\xd8\xff",
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}


def check_name(where: str, name: Any) -> None:
    if not isinstance(name, str) or not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", name):
        raise Invalid(f"{where}: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")


def check_text(where: str, text: Any) -> None:
    if not isinstance(text, str):
        raise Invalid(f"{where}: text should be a valid string")
    if not text:
        raise Invalid(f"{where}: text content blocks must be non-empty")
    if not text.strip():
        raise Invalid(f"{where}: text content blocks must contain non-whitespace text")


def check_block(where: str, block: Json, *, role: str) -> None:
    kind = block.get("type")
    if not isinstance(kind, str):
        raise Invalid(f"{where}.type: Field required")
    if (kind in _ASSISTANT_ONLY and role != "assistant") or (kind in _USER_ONLY and role != "user"):
        other = "assistant" if kind in _ASSISTANT_ONLY else "user"
        raise Invalid(f"{where}: `{kind}` blocks can only be in `{other}` messages")
    for name in _REQUIRED.get(kind, ()):
        if name not in block:
            raise Invalid(f"{where}.{kind}.{name}: Field required")
    for name in block:
        # Blocks of kinds not listed here (those of server tools) pass as they are.
        if kind in _FIELDS and name != "type" and name not in _FIELDS[kind]:
            raise Invalid(f"{where}.{kind}.{name}: Extra inputs are not permitted")
    match kind:
        case "text":
            check_text(where.partition(".")[0], block["text"])
        case "image" | "document":
            _check_source(f"{where}.{kind}.source", kind, block["source"])
        case "tool_use":
            check_name(f"{where}.tool_use.name", block["name"])
            _check_id(f"{where}.tool_use.id", block["id"])
            if not isinstance(block["input"], dict):
                raise Invalid(f"{where}.tool_use.input: Input should be a valid dictionary")
        case "tool_result":
            _check_id(f"{where}.tool_result.tool_use_id", block["tool_use_id"])
            _check_result(f"{where}.tool_result", block)
        case "thinking":
            good = sign(str(block["thinking"]))
            if not hmac.compare_digest(
                good.encode(), str(block["signature"]).encode("utf-8", "surrogatepass")
            ):
                raise Invalid(f"{where}: Invalid `signature` in `thinking` block")
        case "compaction":
            if block.get("content") == "":
                raise Invalid(f"{where}.compaction.content: must not be empty")
        case "redacted_thinking":
            if not str(block["data"]).startswith(SIGNATURE_PREFIX):
                raise Invalid(f"{where}: Invalid `data` in `redacted_thinking` block")


def _check_id(where: str, id: Any) -> None:
    if not isinstance(id, str) or not re.fullmatch(r"[a-zA-Z0-9_-]+", id):
        raise Invalid(f"{where}: String should match pattern '^[a-zA-Z0-9_-]+$'")


def _check_result(where: str, block: Json) -> None:
    content = block.get("content")
    if not isinstance(content, str | list | None):
        raise Invalid(f"{where}.content: Input should be a valid string or list")
    if block.get("is_error") and not content:
        raise Invalid(f"{where}: content cannot be empty if `is_error` is true")
    if isinstance(content, list):
        for number, part in enumerate(content):
            inner = f"{where}.content.{number}"
            if not isinstance(part, dict) or part.get("type") in ("tool_result", "tool_use"):
                raise Invalid(f"{inner}: not allowed inside a `tool_result`")
            if part.get("type") == "text":
                # A tool may well answer with white space; only nothing at all is refused.
                if not part.get("text"):
                    raise Invalid("messages: text content blocks must be non-empty")
            else:
                check_block(inner, part, role="user")


def _check_source(where: str, kind: str, source: Any) -> None:
    types = {
        "image": ("base64", "url", "file"),
        "document": ("base64", "text", "content", "url", "file"),
    }[kind]
    if not isinstance(source, dict) or source.get("type") not in types:
        raise Invalid(f"{where}: source type should be one of {', '.join(types)}")
    if source["type"] != "base64":
        return
    media_type, data = source.get("media_type"), source.get("data")
    allowed = tuple(_MAGIC) if kind == "image" else ("application/pdf",)
    if media_type not in allowed:
        raise Invalid(f"{where}.base64.media_type: Input should be {' or '.join(allowed)}")
    if not isinstance(data, str) or not data:
        raise Invalid(f"{where}.base64.data: Field required")
    try:
        # Enough for the head of a picture; the rest is not looked at.
        first = base64.b64decode(data[:HEAD], validate=True)
    except (binascii.Error, ValueError):
        raise Invalid(f"{where}.base64.data: Invalid base64 data") from None
    if kind == "image" and not first.startswith(_MAGIC[media_type]):
        raise Invalid(f"{where}.base64: The image does not match the media type {media_type}")
    if kind == "image" and (why := too_large(data, first)):
        raise Invalid(f"{where}.base64: {why}")
