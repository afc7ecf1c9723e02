"""Text on Slack: what a person reads of a message, who it mentions, and the rich text that Slack's
own clients send with each message.

Not a renderer of mrkdwn; it takes apart what the stand-in has to know.
"""

import re
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

MAX_TEXT = 40_000
MAX_MARKDOWN = 12_000

_MARK = re.compile(r"<(@[UW][A-Z0-9]+|#[CG][A-Z0-9]+|![a-z]+|https?://[^>|]+)(?:\|([^>]*))?>")
_PING = re.compile(r"<!(channel|here|everyone)(?:\|[^>]*)?>")


def mentioned(text: str) -> set[str]:
    """The ids of the users that a text names."""
    return {mark[1:] for mark, _ in _MARK.findall(text) if mark.startswith("@")}


def pings(message: Json) -> list[str]:
    """The crowds that a message calls: channel, here, everyone."""
    found = _PING.findall(str(message.get("text") or "")) if not message.get("blocks") else []
    for part in _parts(message.get("blocks")):
        if part.get("type") == "broadcast":
            found.append(str(part.get("range")))
        elif part.get("type") in ("markdown", "mrkdwn"):
            found += _PING.findall(str(part.get("text", "")))
    return found


def shown(message: Json) -> str:
    """What a person reads: the blocks when there are any, else the text."""
    blocks = message.get("blocks")
    if isinstance(blocks, list) and blocks:
        said = [part for block in blocks if (part := _of_block(block))]
        if said:
            return "\n".join(said)
    text = message.get("text")
    return text if isinstance(text, str) else ""


def rich_text(text: str, block_id: str) -> list[Json]:
    """The blocks that Slack's own clients send for a text."""
    elements: list[Json] = []
    at = 0
    for mark in _MARK.finditer(text):
        if before := text[at : mark.start()]:
            elements.append({"type": "text", "text": unescaped(before)})
        what = mark[1]
        if what.startswith("@"):
            elements.append({"type": "user", "user_id": what[1:]})
        elif what.startswith("#"):
            elements.append({"type": "channel", "channel_id": what[1:]})
        elif what.startswith("!"):
            elements.append({"type": "broadcast", "range": what[1:]})
        else:
            elements.append({"type": "link", "url": what} | ({"text": mark[2]} if mark[2] else {}))
        at = mark.end()
    if rest := text[at:]:
        elements.append({"type": "text", "text": unescaped(rest)})
    section: Json = {"type": "rich_text_section", "elements": elements}
    return [{"type": "rich_text", "block_id": block_id, "elements": [section]}]


def unescaped(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _of_block(block: object) -> str:
    if not isinstance(block, dict):
        return ""
    match block.get("type"):
        case "markdown":
            return str(block.get("text", ""))
        case "section":
            fields = block.get("fields") or ()
            texts = [block.get("text"), *fields]
            return "\n".join(str(t.get("text", "")) for t in texts if isinstance(t, dict))
        case "header":
            text = block.get("text")
            return str(text.get("text", "")) if isinstance(text, dict) else ""
        case "context":
            elements = block.get("elements") or ()
            return " ".join(str(e["text"]) for e in elements if isinstance(e, dict) and "text" in e)
        case "rich_text":
            return "".join(_of_rich(element) for element in block.get("elements") or ())
        case "table":
            return "\n".join(" | ".join(map(_of_cell, row)) for row in block.get("rows") or ())
    return ""


def _of_cell(cell: object) -> str:
    if not isinstance(cell, dict):
        return ""
    return _of_block(cell) or str(cell.get("text", cell.get("value", "")))


def _of_rich(element: object) -> str:
    if not isinstance(element, dict):
        return ""
    match element.get("type"):
        case "text":
            return str(element.get("text", ""))
        case "user":
            return f"<@{element.get('user_id')}>"
        case "channel":
            return f"<#{element.get('channel_id')}>"
        case "broadcast":
            return f"<!{element.get('range')}>"
        case "link":
            return str(element.get("text") or element.get("url", ""))
        case "emoji":
            return f":{element.get('name')}:"
    return "".join(_of_rich(inner) for inner in element.get("elements") or ())


def _parts(value: object) -> Iterator[Json]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _parts(inner)
