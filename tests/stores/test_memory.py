"""MemoryStore: the contract, and its one process-wide table."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from bots.contracts.store import StoreContract, begun, ref
from core.store import BotStore
from stores.memory import MemoryStore


class TestMemoryStore(StoreContract):
    durable: ClassVar[bool] = False

    def open(self, place: Path) -> BotStore:
        return MemoryStore()


async def test_each_has_a_table_of_its_own() -> None:
    await MemoryStore().save(ref("t:1"), begun(), replaces=None)
    assert await MemoryStore().load(ref("t:1")) is None


async def test_the_shared_one_is_one() -> None:
    key = ref("test:shared")
    await MemoryStore.shared().save(key, begun(), replaces=None)
    try:
        assert await MemoryStore.shared().load(key) == begun()
        assert await MemoryStore().load(key) is None
    finally:
        await MemoryStore.shared().clear(key)
