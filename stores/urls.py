"""Stores by name: ``sqlite:chinwag.db``, ``disk:folder``, ``memory:``, and what others register."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

from core.errors import ConfigError
from core.store import BotStore

GROUP = "chinwag.stores"


def open_store(url: str, base: Path, *, read_only: bool = False) -> BotStore:
    """The store that a URL names, not opened yet: that is its `async with`.

    :param url: scheme, colon, and what the store makes of the rest; for the built-in ones a path
        relative to `base`, or absolute
    :param read_only: for looking, beside whoever writes; no lock is taken
    :raises ConfigError: nobody knows the scheme
    """
    scheme, _, rest = url.partition(":")
    if scheme == "memory":
        from stores.memory import MemoryStore

        return MemoryStore()
    if scheme == "sqlite":
        from stores.sqlite import SQLiteStore

        return SQLiteStore(base / rest, read_only=read_only)
    if scheme == "disk":
        from stores.disk import DiskStore

        return DiskStore(base / rest, read_only=read_only)
    for entry in entry_points(group=GROUP, name=scheme):
        store: BotStore = entry.load()(rest, read_only=read_only)
        return store
    raise ConfigError(
        f"[store] url: no store is called {scheme!r}; there are sqlite:, disk:, memory:, and what "
        f"installed packages add as entry points of {GROUP}"
    )
