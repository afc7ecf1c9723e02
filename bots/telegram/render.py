"""The model's Markdown as Telegram messages: plain text, and entities that say how it looks.

There is no markup in what leaves, so no text of the model's can become markup of ours or fail to
parse. This is not an HTML renderer: ``<b>`` stays visible as it is. Every word of the source is in
the parts; only the signs that Markdown reads as markup go.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from markdown_it.token import Token

from bots.telegram.aside import Aside
from bots.telegram.dialect import tokens_of
from bots.telegram.grid import Cell, grid
from bots.telegram.links import names_only, web
from bots.telegram.split import TOGETHER, Page, split, units, visible
from bots.telegram.writer import Writer

__all__ = ["render", "units"]

_STYLES: Final = {"strong": "bold", "em": "italic", "s": "strikethrough"}
_INDENT: Final = "    "
_MAX_INDENTS: Final = 4  # telephones are narrow
_BULLET: Final = "• "
_RULE: Final = "———"
_FILE: Final = "📄 "

_LANGUAGE: Final = re.compile(r"[\w+#.-]{1,32}")

_LINE_ENDS: Final = re.compile("\r\n|[\r\v\f\x85\u2028\u2029]")
# Other controls, and the signs that turn the direction of what follows, by which an address could
# be made to look like another.
_DROPPED: Final = re.compile("[\x01-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def render(markdown: str, file_above: int = 0) -> tuple[str, ...]:
    """
    :param file_above: code that would take more parts than this is a file beside the text; 0: none
    :return: for each message the JSON of ``text`` and, unless there are none, ``entities``, as
        sendMessage takes them: at most 4096 UTF-16 units and 100 entities. () when there is
        nothing to be seen. Behind them stand the files, see `bots.telegram.aside`. Never raises.
    """
    text = _clean(markdown)
    aside = Aside(file_above)
    try:
        page = _page(text, aside)
    except Exception:  # a paid answer is not lost to a parser's fault: it is sent as it stands
        return split(Page(text))
    return split(page) + aside.bodies()


def _clean(text: str) -> str:
    """Only what can be encoded and seen: no lone surrogates, no NUL, no control characters."""
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _DROPPED.sub("", _LINE_ENDS.sub("\n", text.replace("\0", "\ufffd")))


def _page(text: str, aside: Aside) -> Page:
    tokens = tokens_of(text)
    if not tokens:
        return Page(text)
    writer = Writer()
    _blocks(writer, tokens, aside)
    return writer.page()


def _blocks(writer: Writer, tokens: Sequence[Token], aside: Aside) -> None:
    indents: list[str] = []  # to go back to, one per open list item or quote
    lists = 0
    heading = False
    stream = iter(tokens)
    for token in stream:
        match token.type:
            case "bullet_list_open" | "ordered_list_open":
                writer.gap(1 if lists else 2)
                lists += 1
            case "bullet_list_close" | "ordered_list_close":
                lists -= 1
            case "list_item_open":
                writer.gap(1)
                writer.marker(f"{token.info}{token.markup} " if token.info else _BULLET)
                indents.append(writer.indent)
                writer.indent = _INDENT * min(_MAX_INDENTS, len(writer.indent) // len(_INDENT) + 1)
            case "list_item_close":
                writer.settle()  # an item without text still shows its number
                writer.indent = indents.pop()
            case "blockquote_open":
                writer.open_quote()
                indents.append(writer.indent)
                writer.indent = ""
            case "blockquote_close":
                writer.close_quote()
                writer.indent = indents.pop()
            case "paragraph_open" | "heading_open":
                writer.gap(1 if token.hidden else 2)
                heading = token.type == "heading_open"
            case "inline" if heading and token.children:
                writer.open("bold")
                _inline(writer, token.children)
                writer.close("bold")
            case "inline":
                _inline(writer, token.children or ())
            case "fence" | "code_block":
                writer.gap(1 if lists else 2)
                _code(writer, token, aside)
            case "table_open":
                writer.gap(1 if lists else 2)
                _table(writer, [*takewhile(lambda one: one.type != "table_close", stream)])
            case "hr":
                writer.gap(2)
                writer.text(_RULE)
            case _ if token.content:
                writer.gap(2)
                writer.text(token.content)


def _code(writer: Writer, token: Token, aside: Aside) -> None:
    code = token.content.rstrip()
    language, _, caption = token.info.strip().partition(" ")
    if not (code and _LANGUAGE.fullmatch(language)):
        language, caption = "", token.info.strip()
    name = aside.take(code, language)
    if name is not None:
        writer.text(f"{caption}\n" if caption else "")
        writer.text(_FILE)
        writer.code("code", name)
        return
    _pre(writer, code, language, caption)


def _pre(writer: Writer, code: str, language: str = "", caption: str = "") -> None:
    """A block of its own lines, not indented: the indentation would become part of the code."""
    writer.settle()
    indent, writer.indent = writer.indent, ""
    if caption:
        writer.text(caption)
        writer.gap(1)
    if code:
        writer.code("pre", code, language)
    writer.indent = indent


# --- tables ---


def _table(writer: Writer, tokens: Sequence[Token]) -> None:
    """Columns in monospace, and under them the links, which cannot be within."""
    rows: list[list[Cell]] = []
    links: list[tuple[str, str]] = []
    align = ""
    for token in tokens:
        match token.type:
            case "tr_open":
                rows.append([])
            case "th_open" | "td_open":
                align = str(token.attrGet("style") or "").removeprefix("text-align:")
            case "inline":
                cell = Writer()
                _inline(cell, token.children or ())
                page = cell.page()
                rows[-1].append(Cell(page.text.replace("\n", " ").strip(), align))
                links += [
                    (page.text[span.start : span.end], span.argument)
                    for span in page.spans
                    if span.kind == "text_link"
                ]
    _pre(writer, "\n".join(grid(rows)))
    for label, address in links:
        writer.gap(1)
        start = writer.begin()
        writer.text(label)
        _end_link(writer, start, address)


# --- within a line ---


def _inline(writer: Writer, tokens: Sequence[Token], linked: bool = False) -> None:
    """:param linked: within a link, which can hold neither another one nor code"""
    stream = iter(tokens)
    for token in stream:
        kind, _, edge = token.type.partition("_")
        if kind in _STYLES and edge == "open":
            writer.open(_STYLES[kind])
        elif kind in _STYLES:
            writer.close(_STYLES[kind])
        elif token.type == "link_open":
            label = [*takewhile(lambda one: one.type != "link_close", stream)]
            _link(writer, token, "href", label, linked)
        elif token.type == "image":
            _link(writer, token, "src", token.children or (), linked)
        elif token.type in ("softbreak", "hardbreak"):
            writer.text("\n" + writer.indent)
        elif token.type == "code_inline" and not linked:
            writer.code("code", token.content)
        else:
            writer.text(token.content)


def _link(
    writer: Writer, token: Token, attribute: str, label: Sequence[Token], linked: bool
) -> None:
    start = writer.begin()
    _inline(writer, label, linked=True)
    address, title = (str(token.attrGet(name) or "") for name in (attribute, "title"))
    _end_link(writer, start, address, title, linked)


def _end_link(
    writer: Writer, start: int, address: str, title: str = "", linked: bool = False
) -> None:
    """What was written from ``start`` on leads to the address, and says to which host."""
    label = writer.since(start).strip()
    if not visible(label):
        writer.text(address)
        label = address
    found = None if linked else web(address)
    notes = []
    if found is None:
        plain = re.sub(r"^(?:mailto|tel):", "", address)
        notes += [plain] if label not in (address, plain) else []
    elif label not in (address, found.url):
        writer.span("text_link", start, found.url)
        notes += [found.host] if not names_only(label, found.host) else []
    notes = [note for note in (*notes, title) if note]
    if notes:
        writer.text(f" ({': '.join(notes)})")
    writer.span(TOGETHER, start)
