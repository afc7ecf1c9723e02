"""A history as a document for people or programs: Markdown, HTML, JSON. Pure: text from values.

Each form has a head, a piece for each row, and a foot: a document is written row by row. The HTML
stands alone: it loads nothing, runs nothing, follows the reader's light or dark, and prints.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from core.messages import Message, clean, decode_blocks
from core.store import Blob

Blobs = Mapping[str, Blob]

# What every browser shows, and none runs.
_SHOWN: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
# The line that `core.changes.said_by` puts first.
_SPEAKER: Final = re.compile(r"<from>([^<>\n]*)</from>\n")
_encode: Final = msgspec.json.Encoder().encode


class About(msgspec.Struct, frozen=True):
    """
    :param agent: who answers in it
    :param at: when it was exported, in ms since 1970, UTC
    """

    key: str
    agent: str
    at: int


class Form(NamedTuple):
    """
    :param row: of a message, and those of its blobs that are at hand
    :param between: stands between two rows
    :param foot: given all blobs of the document, when it keeps them
    :param keeps_blobs: until the end
    """

    suffix: str
    media_type: str
    head: Callable[[About], str]
    row: Callable[[Message, About, Blobs], str]
    between: str
    foot: Callable[[Blobs], str]
    keeps_blobs: bool = False


class _Piece(NamedTuple):
    """
    :param kind: said, called, given, image, other
    :param name: of a speaker, a tool, a blob, a type
    """

    kind: str
    name: str
    text: str = ""


def _pieces(message: Message) -> Iterator[_Piece]:
    """What a person would want to see of it. Thinking is not among that."""
    for block in decode_blocks(message.blocks):
        yield from _of(block)


def said_in(text: str) -> tuple[str, str]:
    """The name that stands before a text, if one does, and the text."""
    speaker = _SPEAKER.match(text)
    return (speaker[1], text[speaker.end() :]) if speaker else ("", text)


def _of(block: Mapping[str, Any]) -> Iterator[_Piece]:
    match block.get("type"):
        case "text":
            yield _Piece("said", *said_in(str(block.get("text", ""))))
        case "tool_use" | "server_tool_use":
            given = msgspec.json.format(_encode(block.get("input")), indent=2).decode()
            yield _Piece("called", str(block.get("name")), given)
        case "tool_result":
            content = block.get("content")
            if isinstance(content, list):
                for each in content:
                    if isinstance(each, dict) and each.get("type") != "text":
                        yield from _of(each)
                content = "\n".join(
                    str(each.get("text"))
                    for each in content
                    if isinstance(each, dict) and each.get("type") == "text"
                )
            yield _Piece("given", "", str(content or ""))
        case "image" | "document" as kind:
            source = block.get("source")
            named = source.get("id") if isinstance(source, dict) else None
            yield _Piece("image", str(named or ""), str(kind))
        case "thinking" | "redacted_thinking":
            return
        case kind:
            yield _Piece("other", str(kind))


def _who(message: Message, about: About) -> str:
    if message.role == "assistant":
        return about.agent
    if message.role == "summary":
        return "Summary"
    return message.sender or "…"


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


# ---------------------------------------------------------------------- Markdown


def _markdown_row(message: Message, about: About, blobs: Blobs) -> str:
    lines = [f"### {clean(_who(message, about))} · {_time(message.at)}"]
    for piece in _pieces(message):
        match piece.kind:
            case "said":
                name = f"**{piece.name}:** " if piece.name else ""
                lines.append(f"{name}{piece.text}")
            case "called":
                lines.append(f"`{piece.name}`\n\n{_fenced(piece.text)}")
            case "given":
                lines.append(_fenced(piece.text))
            case "image":
                lines.append(f"[{piece.text}]")
            case _:
                lines.append(f"[{piece.name}]")
    return clean("\n\n".join(lines))


def _fenced(text: str) -> str:
    """In a fence that is longer than any in the text."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`+", text)), 3)
    return f"{fence}\n{text}\n{fence}"


# ---------------------------------------------------------------------- HTML

_STYLE: Final = """\
:root{color-scheme:light dark;--line:#8884;--dim:#767676;--mine:#8881}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:0 auto;padding:1rem}
h1{font-size:1.2rem;margin:.5rem 0}
p.about,.head,summary{color:var(--dim);font-size:.85rem}
article{border-top:1px solid var(--line);padding:.6rem .4rem}
article.user{background:var(--mine)}
.head b{color:CanvasText}
.text,pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.3rem 0}
pre{font-size:.85rem;border-left:3px solid var(--line);padding-left:.6rem}
img{max-width:100%;height:auto}
@media print{body{max-width:none;padding:0}article{break-inside:avoid-page}
article.user{background:none}}
"""


def _html_head(about: About) -> str:
    title = html.escape(f"{about.agent} · {_time(about.at)}")
    return (
        '<!doctype html>\n<html lang="">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; img-src data:\">\n"
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{title}</title>\n<style>\n{_STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{html.escape(about.agent)}</h1>\n<p class="about">{html.escape(about.key)} · '
        f"{_time(about.at)}</p>\n<main>\n"
    )


def _html_row(message: Message, about: About, blobs: Blobs) -> str:
    when = datetime.fromtimestamp(message.at / 1000, UTC).isoformat()
    lines = [
        f'<article class="{message.role}"><div class="head"><b>'
        f"{html.escape(clean(_who(message, about)))}</b> "
        f'<time datetime="{when}">{_time(message.at)}</time></div>'
    ]
    for piece in _pieces(message):
        name, text = html.escape(clean(piece.name)), html.escape(clean(piece.text))
        match piece.kind:
            case "said":
                bold = f"<b>{name}</b>\n" if name else ""
                lines.append(f'<div class="text" dir="auto">{bold}{text}</div>')
            case "called":
                lines.append(f"<details><summary>{name}</summary><pre>{text}</pre></details>")
            case "given":
                lines.append(f"<details><summary>→</summary><pre>{text}</pre></details>")
            case "image":
                lines.append(_html_image(blobs.get(piece.name), text))
            case _:
                lines.append(f"<pre>[{name}]</pre>")
    return "\n".join([*lines, "</article>\n"])


def _html_image(blob: Blob | None, kind: str) -> str:
    if blob is None or blob.media_type not in _SHOWN:
        return f"<pre>[{kind}]</pre>"
    data = base64.b64encode(blob.data).decode()
    return f'<img alt="{kind}" src="data:{blob.media_type};base64,{data}">'


# ---------------------------------------------------------------------- JSON


def _json_head(about: About) -> str:
    return (
        f'{{"format":"chinwag conversation","version":1,"key":{_json(about.key)},'
        f'"agent":{_json(about.agent)},"exported_at":{about.at},"messages":[\n'
    )


def _json_row(message: Message, about: About, blobs: Blobs) -> str:
    return _encode(message).decode()


def _json_foot(blobs: Blobs) -> str:
    kept = {
        id: {"media_type": blob.media_type, "data": base64.b64encode(blob.data).decode()}
        for id, blob in blobs.items()
    }
    return f'\n],"blobs":{_json(kept)}}}\n'


def _json(value: object) -> str:
    return _encode(value).decode()


class Document(msgspec.Struct, frozen=True):
    """A JSON document, read again. `data` of a blob is base64."""

    format: str
    version: int
    key: str
    agent: str
    exported_at: int
    messages: tuple[Message, ...]
    blobs: dict[str, dict[str, str]] = {}


FORMS: Final[Mapping[str, Form]] = {
    "html": Form(
        "html",
        "text/html",
        _html_head,
        _html_row,
        "",
        lambda blobs: "</main>\n</body>\n</html>\n",
    ),
    "markdown": Form(
        "md",
        "text/markdown",
        lambda about: f"# {clean(about.agent)} · {_time(about.at)}\n\n",
        _markdown_row,
        "\n\n",
        lambda blobs: "\n",
    ),
    "json": Form("json", "application/json", _json_head, _json_row, ",\n", _json_foot, True),
}
