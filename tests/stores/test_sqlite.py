"""SQLiteStore: the contract."""

from __future__ import annotations

import sqlite3
import zlib
from pathlib import Path

from core.store import BotStore
from stores.sqlite import SQLiteStore
from tests.stores.contract import StoreContract


def edit(database: Path, sql: str, *values: object) -> None:
    """Behind the store's back."""
    connection = sqlite3.connect(database, isolation_level=None)
    try:
        assert connection.execute(sql, values).rowcount
    finally:
        connection.close()


class TestSQLiteStore(StoreContract):
    def open(self, place: Path) -> BotStore:
        return SQLiteStore(place / "chats.db")

    async def spoil(self, store: BotStore, place: Path, key: str) -> None:
        edit(place / "chats.db", "UPDATE sessions SET head = head || ' ' WHERE key = ?", key)

    async def age(self, store: BotStore, place: Path, key: str) -> None:
        connection = sqlite3.connect(place / "chats.db", isolation_level=None)
        connection.create_function("crc32", 1, zlib.crc32)
        connection.execute(
            "UPDATE sessions SET head = CAST(replace(head, ?, ?) AS BLOB) WHERE key = ?",
            ('"version":1', '"version":99', key),
        )
        connection.execute("UPDATE sessions SET crc = crc32(head) WHERE key = ?", (key,))
        connection.close()
