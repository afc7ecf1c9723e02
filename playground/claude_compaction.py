"""How the service compacts a conversation that has grown too long, as far as a client can see it.

By the documentation ("Compaction") and the official client's types: a request over its trigger is
answered with a `compaction` block in front of the answer; in later requests nothing before the
last such block is read, its text takes that place. What it costs stands in `usage.iterations` and
in no other number. The summary is no model's work: it is what people have said, cut short.
"""

from __future__ import annotations

from typing import Any

from playground.claude_wire import Json

BETA = "compact-2026-01-12"
EDIT = "compact_20260112"
LEAST_TRIGGER = 50_000
_PIECE = 200


def edit_of(request: Json) -> Json | None:
    """The edit that asks for it."""
    edits = (request.get("context_management") or {}).get("edits") or ()
    return next((edit for edit in edits if edit.get("type") == EDIT), None)


def due(request: Json, tokens: int) -> bool:
    edit = edit_of(request)
    trigger = (edit or {}).get("trigger") or {}
    return edit is not None and tokens > trigger.get("value", 150_000)


def read(request: Json) -> Json:
    """The request as the model reads it: nothing of what was compacted."""
    messages = request["messages"]
    for index in range(len(messages) - 1, -1, -1):
        content = messages[index].get("content")
        for number, block in enumerate(content if isinstance(content, list) else ()):
            if block.get("type") == "compaction" and block.get("content"):
                told = {"role": "user", "content": block["content"]}
                rest = {"role": "assistant", "content": content[number + 1 :]}
                kept = [told, *([rest] if rest["content"] else []), *messages[index + 1 :]]
                return {**request, "messages": kept}
    return request


def summary(request: Json) -> str:
    said = [text for message in request["messages"] if (text := _said(message))]
    return "A summary of what was said so far. " + " / ".join(text[:_PIECE] for text in said)


def _said(message: Json) -> str:
    content: Any = message["content"]
    if message["role"] != "user":
        return ""
    if isinstance(content, str):
        return content
    return " ".join(block["text"] for block in content if block.get("type") == "text")
