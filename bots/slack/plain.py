"""Markdown as plain text, for notifications and for who cannot show more. Pure; it loses looks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

# Slack recommends 4,000; escaping makes it longer.
MAX_CHARACTERS: Final = 3_000

_PARSER: Final = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
_ENDS: Final = ("tr_close", "paragraph_close", "heading_close")


def plain(markdown: str) -> str:
    """The beginning of it, at most `MAX_CHARACTERS` long, escaped as Slack wants it. Never empty
    when there is something to be seen."""
    source = markdown[: 2 * MAX_CHARACTERS]
    try:
        text = "".join(_words(_PARSER.parse(source))).strip() or source
    except Exception:  # a paid answer is not lost to a parser's fault
        text = source
    if len(text) > MAX_CHARACTERS:
        text = text[: MAX_CHARACTERS - 1] + "…"
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _words(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type == "inline":
            yield from _inline(token.children or ())
        elif token.type in ("fence", "code_block"):
            yield f"{token.content.rstrip()}\n"
        elif token.type in _ENDS:
            yield "\n"
        elif token.type in ("th_close", "td_close"):
            yield " "
        elif token.type == "list_item_open":
            yield f"{token.info}. " if token.info else "• "


def _inline(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type in ("softbreak", "hardbreak"):
            yield "\n"
        elif token.children:
            yield from _inline(token.children)
        else:
            yield token.content
