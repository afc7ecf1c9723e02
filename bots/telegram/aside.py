"""Long code that stands beside an answer as a file, for it would fill too many messages.

Pure: what becomes a file, and what it is called. The text names the file where the code would be;
the file has all of the code.
"""

from __future__ import annotations

import json
import re
from typing import Final

from bots.telegram.split import MAX_UNITS, units

_SUFFIXES: Final = {
    "bash": "sh",
    "c#": "cs",
    "c++": "cpp",
    "csharp": "cs",
    "golang": "go",
    "haskell": "hs",
    "javascript": "js",
    "kotlin": "kt",
    "latex": "tex",
    "markdown": "md",
    "perl": "pl",
    "powershell": "ps1",
    "python": "py",
    "python3": "py",
    "ruby": "rb",
    "rust": "rs",
    "shell": "sh",
    "text": "txt",
    "typescript": "ts",
    "yaml": "yml",
    "zsh": "sh",
}
# A language that is short is mostly its own suffix: c, go, js, json, sql, html, toml.
_SUFFIX: Final = re.compile(r"[a-z][a-z0-9]{0,4}")


class Aside:
    """
    :param above: code that would take more messages than this is a file; 0: none is
    """

    def __init__(self, above: int) -> None:
        self._above = above
        self._files: list[tuple[str, str]] = []

    def take(self, code: str, language: str) -> str | None:
        """The name of the file that it becomes, or None: it stays in the text."""
        if not self._above or units(code) <= self._above * MAX_UNITS:
            return None
        name = f"code-{len(self._files) + 1}.{suffix_of(language)}"
        self._files.append((name, code))
        return name

    def bodies(self) -> tuple[str, ...]:
        """For `send`, in order: the JSON of ``document``, a name, and ``text``, what is in it."""
        return tuple(
            json.dumps({"document": name, "text": code + "\n"}, ensure_ascii=False)
            for name, code in self._files
        )


def suffix_of(language: str) -> str:
    known = language.lower()
    return _SUFFIXES.get(known) or (known if _SUFFIX.fullmatch(known) else "txt")
