"""The example store keeps the contract: all that a store for the library has to show."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from bots.contracts.store import SessionStoreContract, begun
from core.errors import SnapshotUnreadable, StoreUnavailable
from core.store import SessionRef, SessionStore
from examples.own_store import OwnStore


class TestOwnStore(SessionStoreContract):
    def open(self, place: Path) -> SessionStore:
        return OwnStore(str(place / "application.db"))


async def test_a_database_that_cannot_be_opened_is_no_empty_conversation(tmp_path: Path) -> None:
    store = OwnStore(str(tmp_path / "no" / "such" / "folder.db"))
    with pytest.raises(StoreUnavailable, match="unable to open"):
        await store.load(SessionRef("t:1"))


async def test_nor_is_what_cannot_be_read(tmp_path: Path) -> None:
    path = str(tmp_path / "application.db")
    ref = SessionRef("t:1", options={"path": path})
    await OwnStore().save(ref, begun(), replaces=None)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE conversations SET snapshot = x'00'")
    database.close()
    with pytest.raises(SnapshotUnreadable):
        await OwnStore().load(ref)
