"""The guard at start: are `core`, `stores` and `playground` ours, or does a stranger shadow them?

The names are common ones, so a package or a folder with the same name may come first on the path
(https://pypi.org/project/stores/ is one). This runs before anything else is imported, and so
imports nothing of ours at the top. It does not look for files that were changed in place.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import Final

PACKAGES: Final = ("bots", "core", "stores", "playground")
_HOME: Final = Path(__file__).resolve().parent.parent


def shadowed(names: Iterable[str] = PACKAGES, home: Path = _HOME) -> str | None:
    """A text about the first of our packages that Python would take from elsewhere; None: all
    is well.

    :param home: the folder in which they belong
    """
    for name in names:
        place = _place(name)
        if place is None:
            return f"the package {name!r} is missing beside {home / 'bots'}: install chinwag again"
        if place.resolve() != home / name:
            return (
                f"the package {name!r} would be taken from {place}{_owner(name, place)}, not from"
                f" chinwag. If that is a folder of yours, start chinwag from elsewhere; else"
                f" install chinwag into an environment of its own, as `uv tool install` does"
            )
    return None


def check_not_shadowed(names: Iterable[str] = PACKAGES, home: Path = _HOME) -> None:
    """
    :raises ConfigError: one of our packages is shadowed. When it is `core` itself, where the error
        would come from, SystemExit(2) after the same text
    """
    text = shadowed(names, home)
    if text is None:
        return
    try:
        from core.errors import ConfigError
    except ImportError:
        import sys

        print(f"chinwag: {text}", file=sys.stderr)
        raise SystemExit(2) from None
    raise ConfigError(text)


def _place(name: str) -> Path | None:
    """The folder (or the file) that `import name` reads."""
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # already imported, in a way that left no trace of where from
        return None
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin) if spec.origin else None


def _owner(name: str, place: Path) -> str:
    """Which distribution put it there, when one says so."""
    from importlib.metadata import distributions

    for found in distributions(path=[str(place.parent)]):
        files = found.files or ()
        if any(file.parts[0] in (name, place.name) for file in files):
            return f" ({found.name} {found.version})"
    return ""
