"""The Markdown that is understood: CommonMark with tables and strikethrough, as tokens.

Without reference definitions: those vanish from a page, here they stay readable. Which addresses
become links is not decided here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.common.utils import mdTrim
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block.table import escapedSplit, getLine
from markdown_it.rules_block.table import table as gfm_table
from markdown_it.token import Token

# The parser leaves out what lies deeper than its limit. That deep in quotes it is also slow.
_DEEP_QUOTE: Final = re.compile(r"^(?:[ \t]*>){8}", re.M)


def tokens_of(text: str) -> list[Token]:
    """None at all when some of the words would be left out."""
    tokens = [] if _DEEP_QUOTE.search(text) else _PARSER.parse(text)
    return [] if _something_left_out(tokens) else tokens


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
