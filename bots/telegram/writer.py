"""The page as it grows: text, and spans that say how it looks. Knows no Markdown."""

from __future__ import annotations

from bots.telegram.split import Page, Span


class Writer:
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
