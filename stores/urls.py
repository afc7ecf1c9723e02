"""Stores by name: ``sqlite:chinwag.db``, ``disk:folder``, ``memory:``, ``postgresql://host/db``,
``redis://host/0``, and what others register.

Not a cache of stores and not where they are opened: each call makes a new one, closed, and a
database's driver is imported only when its scheme is named.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from core.errors import ConfigError
from core.store import BotStore

# The group of entry points in which an installed package names its store. The name is the scheme;
# the object is called with the text behind the colon and the base folder, and read_only as a
# keyword, and gives a BotStore.
GROUP: Final = "chinwag.stores"


def open_store(url: str, base: Path, *, read_only: bool = False, shared: bool = False) -> BotStore:
    """The store that a URL names, still closed: its `async with` opens it.

    :param url: scheme, colon, and what the store makes of the rest; for the built-in ones a path,
        absolute or relative to `base`
    :param read_only: to look at it beside whoever writes: no lock is taken, nothing is created
    :param shared: other processes write to it, too; only a server's can be
    :raises ConfigError: there is no such store
    """
    scheme, _, rest = url.partition(":")
    if scheme in ("sqlite", "disk") and not rest:
        raise ConfigError(f"[store] url: {url!r} names no place; write {scheme}:chinwag.db, say")
    if scheme == "sqlite":
        from stores.sqlite import SQLiteStore

        return SQLiteStore(base / rest, read_only=read_only)
    if scheme == "disk":
        from stores.disk import DiskStore

        return DiskStore(base / rest, read_only=read_only)
    if scheme in ("postgresql", "postgres"):
        try:
            from stores.postgres import PostgresStore
        except ImportError as error:
            raise ConfigError(
                f"[store] url: {error.name} is not installed: install chinwag[postgres]"
            ) from None
        return PostgresStore(f"postgresql:{rest}", read_only=read_only, shared=shared)
    if scheme in ("redis", "rediss", "unix"):
        try:
            from stores.redis import RedisStore
        except ImportError as error:
            raise ConfigError(
                f"[store] url: {error.name} is not installed: install chinwag[redis]"
            ) from None
        return RedisStore(url, read_only=read_only, shared=shared)
    if scheme == "memory":
        from stores.memory import MemoryStore

        return MemoryStore()
    for entry in entry_points(group=GROUP, name=scheme):
        try:
            opener = entry.load()
        except Exception as error:  # whatever importing somebody else's package may raise
            raise ConfigError(
                f"[store] url: {scheme}: cannot be loaded from {entry.value} ({error}); "
                "install its package anew, or name another store"
            ) from error
        store: BotStore = opener(rest, base, read_only=read_only)
        return store
    raise ConfigError(
        f"[store] url: no store is called {scheme!r}; there are sqlite:, disk:, memory:, "
        f"postgresql: and redis:, and what installed packages register as {GROUP}"
    )
