"""The store that the settings name, encrypted or not. Not which kinds there are: `stores.urls`."""

from __future__ import annotations

from collections.abc import Sequence

from bots.settings import Settings
from core.seal import keys_of
from stores.sealed import Guarded, guard
from stores.urls import open_store


def store_of(settings: Settings, *, read_only: bool = False, shared: bool = False) -> Guarded:
    """Still closed: its `async with` gives the store.

    :raises ConfigError: there is no such store; or, when it is opened, it is not encrypted as the
        settings say
    """
    store = open_store(settings.store.url, settings.folder, read_only=read_only, shared=shared)
    return guard(store, keys_in(settings), encrypted=settings.store.encrypted, read_only=read_only)


def keys_in(settings: Settings) -> Sequence[bytes] | None:
    keys = settings.encryption.keys
    return None if keys is None else keys_of(keys.get_secret_value())
