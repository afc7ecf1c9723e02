"""The model's Markdown as Telegram messages: plain text, and entities that say how it looks.

There is no markup in what leaves, so no text of the model's can become markup of ours or fail to
parse. This is not an HTML renderer: ``<b>`` stays visible as it is. Every word of the source is in
the parts; only the signs that Markdown reads as markup go. The dialect is CommonMark with tables
and strikethrough, without reference definitions: those vanish from a page, here they stay readable.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.common.normalize_url import normalizeLink
from markdown_it.common.utils import mdTrim
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block.table import escapedSplit, getLine
from markdown_it.rules_block.table import table as gfm_table
from markdown_it.token import Token

from bots.telegram.split import TOGETHER, Page, Span, split, units, visible

__all__ = ["render", "units"]

_STYLES: Final = {"strong": "bold", "em": "italic", "s": "strikethrough"}
_INDENT: Final = "    "
_MAX_INDENTS: Final = 4  # telephones are narrow
_BULLET: Final = "• "
_RULE: Final = "———"
# A wider cell is shown whole, but its neighbours are not padded to its width.
_MAX_COLUMN: Final = 40

_LANGUAGE: Final = re.compile(r"[\w+#.-]{1,32}")
# No user name, whose look-alike hosts mislead, and nothing that two programs may read differently.
_WEB: Final = re.compile(r"https?://((?:[a-z0-9.-]+|\[[0-9a-f:.]+\]))(:\d+)?(?:[/?#].*)?", re.I)
_MAX_ADDRESS: Final = 2048
_HOSTS: Final = re.compile(r"[\w-]+(?:\.[\w-]+)+")

# The parser leaves out what lies deeper than its limit. That deep in quotes it is also slow.
_DEEP_QUOTE: Final = re.compile(r"^(?:[ \t]*>){8}", re.M)

_LINE_ENDS: Final = re.compile("\r\n|[\r\v\f\x85\u2028\u2029]")
# Other controls, and the signs that turn the direction of what follows, by which an address could
# be made to look like another.
_DROPPED: Final = re.compile("[\x01-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def render(markdown: str) -> tuple[str, ...]:
    """
    :return: for each message the JSON of ``text`` and, unless there are none, ``entities``, as
        sendMessage takes them: at most 4096 UTF-16 units and 100 entities. () when there is
        nothing to be seen. Never raises.
    """
    text = _clean(markdown)
    try:
        page = _page(text)
    except Exception:  # a paid answer is not lost to a parser's fault: it is sent as it stands
        page = Page(text)
    return split(page)


def _clean(text: str) -> str:
    """Only what can be encoded and seen: no lone surrogates, no NUL, no control characters."""
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _DROPPED.sub("", _LINE_ENDS.sub("\n", text.replace("\0", "\ufffd")))


def _page(text: str) -> Page:
    tokens = [] if _DEEP_QUOTE.search(text) else _PARSER.parse(text)
    if not tokens or _something_left_out(tokens):
        return Page(text)
    writer = _Writer()
    _blocks(writer, tokens)
    return writer.page()


# --- the parser ---


class _Parser(MarkdownIt):
    """Takes every address as it is written; which of them become links is decided here."""

    def validateLink(self, url: str) -> bool:
        return True

    def normalizeLink(self, url: str) -> str:
        return url

    def normalizeLinkText(self, link: str) -> str:
        return link


def _whole_table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """The table rule, and the cells beyond the header's columns, which the rule leaves out."""
    first = len(state.tokens)
    if not gfm_table(state, start, end, silent):
        return False
    if not silent:
        state.tokens[first:] = _with_all_cells(state, state.tokens[first:])
    return True


def _with_all_cells(state: StateBlock, tokens: Sequence[Token]) -> Iterator[Token]:
    cells = 0
    line = 0
    for token in tokens:
        if token.type == "tr_open":
            cells = 0
            line = token.map[0] if token.map else 0
        elif token.type in ("th_open", "td_open"):
            cells += 1
        elif token.type == "tr_close":
            for content in _cells(mdTrim(getLine(state, line)))[cells:]:
                yield Token("td_open", "td", 1)
                yield Token("inline", "", 0, content=mdTrim(content), children=[])
                yield Token("td_close", "td", -1)
        yield token


def _cells(line: str) -> list[str]:
    cells = escapedSplit(line)
    if cells and cells[0] == "":
        cells.pop(0)
    if cells and cells[-1] == "":
        cells.pop()
    return cells


def _parser() -> MarkdownIt:
    parser = _Parser("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.disable("reference")
    parser.block.ruler.at("table", _whole_table, {"alt": ["paragraph", "reference"]})
    return parser


_PARSER: Final = _parser()


def _something_left_out(tokens: Sequence[Token]) -> bool:
    deepest = _PARSER.options.maxNesting - 1
    return any(
        token.level >= deepest and token.type in ("blockquote_open", "list_item_open")
        for token in tokens
    )


# --- writing ---


class _Writer:
    """The page as it grows. Gaps and list markers wait until there is something to follow them."""

    def __init__(self) -> None:
        self.indent = ""
        self._pieces: list[str] = []
        self._length = 0
        self._spans: list[Span] = []
        self._gap = 0
        self._marker = ""
        self._styles: dict[str, tuple[int, int]] = {}  # kind: depth, start
        self._quotes = 0
        self._quote_start: int | None = None

    def page(self) -> Page:
        return Page("".join(self._pieces), tuple(self._spans))

    def gap(self, newlines: int) -> None:
        self._gap = max(self._gap, newlines)

    def marker(self, marker: str) -> None:
        if not self._marker:
            marker = self.indent + marker
        self._marker += marker

    def begin(self) -> int:
        """Write what waits; where the next text will stand."""
        if self._pieces and self._gap:
            self._put("\n" * self._gap)
        if self._marker:
            self._put(self._marker)
        elif self._gap or not self._pieces:
            self._put(self.indent)
        self._gap = 0
        self._marker = ""
        if self._quotes and self._quote_start is None:
            self._quote_start = self._length
        return self._length

    def settle(self) -> None:
        """Write a marker that waits for text, and let what follows begin on the next line."""
        if self._marker:
            self.begin()
            self.gap(1)

    def text(self, text: str) -> None:
        if text:
            self.begin()
            self._put(text)

    def span(self, kind: str, start: int, argument: str = "") -> None:
        self._spans.append(Span(kind, start, self._length, argument))

    def since(self, start: int) -> str:
        """What was written from ``start`` on."""
        kept: list[str] = []
        missing = self._length - start
        for piece in reversed(self._pieces):
            if missing <= 0:
                break
            kept.append(piece[-missing:])
            missing -= len(piece)
        return "".join(reversed(kept))

    def open(self, kind: str) -> None:
        depth, start = self._styles.get(kind, (0, 0))
        self._styles[kind] = (depth + 1, start if depth else self.begin())

    def close(self, kind: str) -> None:
        depth, start = self._styles.pop(kind)
        if depth > 1:
            self._styles[kind] = (depth - 1, start)
        else:
            self.span(kind, start)

    def code(self, kind: str, text: str, argument: str = "") -> None:
        """Code has no style but its own, so the styles around it end before and go on after."""
        start = self.begin()
        for style, (_, begun) in self._styles.items():
            self.span(style, begun)
        self._put(text)
        self.span(kind, start, argument)
        self._styles = {style: (depth, self._length) for style, (depth, _) in self._styles.items()}

    def open_quote(self) -> None:
        # Telegram has no quotes within quotes: the outermost takes it all.
        self.settle()
        self._quotes += 1

    def close_quote(self) -> None:
        self._quotes -= 1
        if not self._quotes and self._quote_start is not None:
            self.span("blockquote", self._quote_start)
            self._quote_start = None

    def _put(self, text: str) -> None:
        self._pieces.append(text)
        self._length += len(text)


# --- blocks ---


def _blocks(writer: _Writer, tokens: Sequence[Token]) -> None:
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
                _code(writer, token)
            case "table_open":
                writer.gap(1 if lists else 2)
                _table(writer, [*takewhile(lambda one: one.type != "table_close", stream)])
            case "hr":
                writer.gap(2)
                writer.text(_RULE)
            case _ if token.content:
                writer.gap(2)
                writer.text(token.content)


def _code(writer: _Writer, token: Token) -> None:
    code = token.content.rstrip()
    language, _, caption = token.info.strip().partition(" ")
    if not (code and _LANGUAGE.fullmatch(language)):
        language, caption = "", token.info.strip()
    _pre(writer, code, language, caption)


def _pre(writer: _Writer, code: str, language: str = "", caption: str = "") -> None:
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


class _Cell(NamedTuple):
    text: str
    align: str


def _table(writer: _Writer, tokens: Sequence[Token]) -> None:
    """Columns in monospace, and under them the links, which cannot be within."""
    rows: list[list[_Cell]] = []
    links: list[tuple[str, str]] = []
    align = ""
    for token in tokens:
        match token.type:
            case "tr_open":
                rows.append([])
            case "th_open" | "td_open":
                align = str(token.attrGet("style") or "").removeprefix("text-align:")
            case "inline":
                cell = _Writer()
                _inline(cell, token.children or ())
                page = cell.page()
                rows[-1].append(_Cell(page.text.replace("\n", " ").strip(), align))
                links += [
                    (page.text[span.start : span.end], span.argument)
                    for span in page.spans
                    if span.kind == "text_link"
                ]
    _pre(writer, "\n".join(_grid(rows)))
    for label, address in links:
        writer.gap(1)
        start = writer.begin()
        writer.text(label)
        _end_link(writer, start, address)


def _grid(rows: Sequence[Sequence[_Cell]]) -> Iterator[str]:
    widths = [0] * max(map(len, rows))
    for row in rows:
        for column, cell in enumerate(row):
            widths[column] = max(widths[column], min(_width(cell.text), _MAX_COLUMN))
    for number, row in enumerate(rows):
        # Empty cells at the end would only be a tail of bars.
        filled = max((column + 1 for column, cell in enumerate(row) if cell.text), default=0)
        yield " | ".join(map(_pad, row[:filled], widths)).rstrip()
        if number == 0:
            yield "-+-".join("-" * width for width in widths)


def _pad(cell: _Cell, width: int) -> str:
    missing = max(0, width - _width(cell.text))
    before = {"right": missing, "center": missing // 2}.get(cell.align, 0)
    return " " * before + cell.text + " " * (missing - before)


def _width(text: str) -> int:
    """Columns on a screen of equal widths, where CJK and emoji take two."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )


# --- within a line ---


def _inline(writer: _Writer, tokens: Sequence[Token], linked: bool = False) -> None:
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
    writer: _Writer, token: Token, attribute: str, label: Sequence[Token], linked: bool
) -> None:
    start = writer.begin()
    _inline(writer, label, linked=True)
    address, title = (str(token.attrGet(name) or "") for name in (attribute, "title"))
    _end_link(writer, start, address, title, linked)


def _end_link(
    writer: _Writer, start: int, address: str, title: str = "", linked: bool = False
) -> None:
    """What was written from ``start`` on leads to the address, and says to which host."""
    label = writer.since(start).strip()
    if not visible(label):
        writer.text(address)
        label = address
    web = None if linked else _web(address)
    notes = []
    if web is None:
        plain = re.sub(r"^(?:mailto|tel):", "", address)
        notes += [plain] if label not in (address, plain) else []
    elif label not in (address, web.url):
        writer.span("text_link", start, web.url)
        notes += [web.host] if not _names_only(label, web.host) else []
    notes = [note for note in (*notes, title) if note]
    if notes:
        writer.text(f" ({': '.join(notes)})")
    writer.span(TOGETHER, start)


@dataclass(frozen=True, slots=True)
class _Web:
    url: str
    host: str


def _web(address: str) -> _Web | None:
    """The address when it may be a link: http or https, and one host that every program reads."""
    if len(address) > _MAX_ADDRESS:
        return None
    url = normalizeLink(address)
    match = _WEB.fullmatch(url)
    return _Web(url, match[1].lower() + (match[2] or "")) if match else None


def _names_only(label: str, host: str) -> bool:
    """Whether the label names this host and no other; "good.org via evil.org" does not."""
    named = {one.removeprefix("www.") for one in _HOSTS.findall(label.lower())}
    return named == {host.partition(":")[0].removeprefix("www.")}
