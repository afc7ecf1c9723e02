"""What `chinwag run` prints while nobody may speak yet: the one-time code, and ways to send it.

Text always; on a terminal a picture too, which a phone's camera opens. Never in a log: whoever has
the code becomes the owner.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import segno


@runtime_checkable
class PairsByLink(Protocol):
    """An adapter whose platform opens a chat with the bot by a link that brings the code along."""

    async def pairing_link(self, code: str) -> str:
        """
        :raises PlatformRefused: the token is wrong
        """
        ...


async def links(adapters: Iterable[object], code: str) -> list[str]:
    """
    :raises PlatformRefused: a token is wrong
    """
    return [
        await adapter.pairing_link(code) for adapter in adapters if isinstance(adapter, PairsByLink)
    ]


def invitation(code: str, links: Iterable[str], *, terminal: bool) -> str:
    """What is printed.

    :param terminal: a person looks at it, so that pictures can be drawn
    """
    lines = [f"Nobody may speak to this bot yet. Send it  /start {code}  to become its owner."]
    for link in links:
        lines += [f"Or open  {link}", *([_picture(link)] if terminal else [])]
    return "\n".join(lines)


def _picture(link: str) -> str:
    """A QR code of half blocks: two rows a line, so that it fits a terminal."""
    out = io.StringIO()
    segno.make(link, micro=False).terminal(out, compact=True)
    return out.getvalue().rstrip("\n")
