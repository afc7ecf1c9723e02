"""DiskStore: the contract, with what it leaves out, and its files."""

from __future__ import annotations

import zlib
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from core.store import BotStore
from stores.disk import DiskStore
from tests.stores.contract import StoreContract


def file_of(folder: Path, key: str) -> Path:
    return folder / f"{sha256(key.encode()).hexdigest()}.json"


class TestDiskStore(StoreContract):
    keeps_archive: ClassVar[bool] = False

    def open(self, place: Path) -> BotStore:
        return DiskStore(place / "chats")

    async def spoil(self, store: BotStore, place: Path, key: str) -> None:
        file = file_of(place / "chats", key)
        file.write_bytes(file.read_bytes().replace(b'"epoch"', b'"epocH"'))

    async def age(self, store: BotStore, place: Path, key: str) -> None:
        file = file_of(place / "chats", key)
        envelope: dict[str, Any] = msgspec.json.decode(file.read_bytes())
        envelope["snapshot"]["version"] = 99
        snapshot = msgspec.json.encode(envelope["snapshot"])
        envelope["checksum"] = zlib.crc32(snapshot, zlib.crc32(key.encode()))
        file.write_bytes(msgspec.json.encode({**envelope, "snapshot": msgspec.Raw(snapshot)}))
