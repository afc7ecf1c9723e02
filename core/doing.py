"""What a turn's tools are doing, for whoever shows it: which calls there are, and how each stands.

Of a call nothing is told but what its tool is for: not what it was given, nor what it gave, for
either may hold what is for nobody's eyes. Best effort: who shows it may fail, and the turn goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from core.adapter import CallState, Doing
from core.events import trouble
from core.model import ToolCall
from core.tools import Tool

MAX_TITLE: Final = 72
# Not behind "e.g.": what follows there is no new sentence.
_SENTENCE: Final = re.compile(r"(?<!\.[A-Za-z])\. +(?=[A-Z])")

Tell = Callable[[tuple[Doing, ...]], None]


class Progress:
    """
    :param tell: None: nobody wants to know
    """

    def __init__(self, tell: Tell | None = None) -> None:
        self._tell = tell
        self._calls: dict[str, Doing] = {}

    def add(self, calls: Iterable[tuple[ToolCall, Tool | None, CallState]]) -> None:
        """These begin, or are known to have ended."""
        if self._tell is None:
            return
        for call, tool, state in calls:
            self._calls[call.id] = Doing(call.id, title_of(tool, call.name), state)
        self._say()

    def note(self, state: CallState, *ids: str) -> None:
        """How calls that were added stand now."""
        if self._tell is None:
            return
        for each in ids:
            self._calls[each] = replace(self._calls[each], state=state)
        self._say()

    def _say(self) -> None:
        if self._tell is None:
            return
        try:
            self._tell(tuple(self._calls.values()))
        except Exception as error:
            # It is decoration, and is let be.
            self._tell = None
            trouble("live.broken", why=type(error).__name__)


def title_of(tool: Tool | None, name: str) -> str:
    """What the tool is for: the first sentence of its description, shortened, else its name."""
    about = msgspec.json.decode(tool.json, type=_About).description if tool is not None else ""
    said = about.strip().partition("\n")[0]
    said = _SENTENCE.split(said, maxsplit=1)[0].rstrip(" .:")
    said = said or name.replace("_", " ").replace("-", " ")
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in said).split())
    return line if len(line) <= MAX_TITLE else f"{line[: MAX_TITLE - 1].rstrip()}…"


class _About(msgspec.Struct):
    description: str = ""
