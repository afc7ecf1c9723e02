"""The blobs of a DiskStore: a file for each one's bytes, and one for each use that is made of it.

Synchronous, like `files.py`. When a conversation is done with a blob is decided in `core.blobs`.
A crash between the two files of a `put` leaves bytes that nobody uses, never a use without bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from core import blobs
from core.errors import BlobUnreadable
from core.store import Blob
from stores.disk.envelope import NEW, digest, read_file, sync_folder, write_file

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(tuple[str, int]).decode


class BlobFiles:
    """
    :param blobs: the folder of the bytes
    :param uses: that of the uses; a name is the digest of a key, a dot, the digits of a blob
    """

    def __init__(self, blobs: Path, uses: Path) -> None:
        self._blobs = blobs
        self._uses = uses

    def put(self, key: str, data: bytes, media_type: str, now: int) -> str:
        id = blobs.id_of(data)
        file = self._file(id)
        if not file.exists():
            write_file(file, media_type.encode() + b"\n" + data)
        write_file(self._use(key, id), _encode((key, now)))
        return id

    def get(self, id: str) -> Blob | None:
        data = read_file(self._file(id)) if blobs.is_id(id) else None
        if data is None:
            return None
        media_type, _, rest = data.partition(b"\n")
        checked = blobs.checked(id, rest)
        try:
            return Blob(media_type.decode(), checked)
        except UnicodeDecodeError as error:
            raise BlobUnreadable(f"{id[:19]}…: its type is damaged") from error

    def end_unused(self, key: str, was: bytes, data: bytes, erases: bool, now: int) -> None:
        """Of those that only the value of before has named. What left the window is not kept, so
        its blobs go, too.

        :param was: the file before the save
        :param data: the snapshot after it
        """
        named = blobs.named_in(data)
        going = blobs.named_in(was) - named
        if going or erases:
            uses = self._uses_of(key)
            # A part to send has its ids inside of a text, with escapes.
            named |= {id for id in uses if id.encode() in data}
            self._end(key, blobs.unused(uses, going, named, now))

    def end_all(self, key: str) -> None:
        self._end(key, set(self._uses_of(key)))

    def end_old(self, key: str, before: int) -> int:
        """Those put before then. How many they were."""
        old = {id for id, at in self._uses_of(key).items() if at < before}
        self._end(key, old)
        return len(old)

    def size(self, key: str) -> int:
        """Of the bytes that nobody else uses."""
        names = [file.name.partition(".") for file in self._files("")]
        others = {digits for user, _, digits in names if user != digest(key)}
        mine = {digits for user, _, digits in names if user == digest(key)} - others
        files = [self._blobs / digits for digits in mine]
        return sum(file.stat().st_size for file in files if file.exists())

    def copy(self, key: str, name: str) -> None:
        for id, at in self._uses_of(key).items():
            write_file(self._use(name, id), _encode((name, at)))

    def users(self) -> set[str]:
        """Who uses any. A damaged use is nobody's."""
        return {use[0] for file in self._files("") if (use := self._read(file))}

    def plan_move(self, old: str, new: str) -> dict[str, bytes | None]:
        """By file, relative to the store's folder, its new content; None: it goes."""
        plan: dict[str, bytes | None] = {}
        for id, at in self._uses_of(old).items():
            plan[self._name(old, id)] = None
            plan[self._name(new, id)] = _encode((new, at))
        return plan

    def _end(self, key: str, ids: set[str]) -> None:
        for id in sorted(ids):
            self._use(key, id).unlink(missing_ok=True)
        if ids:
            sync_folder(self._uses)
            used = {file.name.rpartition(".")[2] for file in self._files("")}
            for id in sorted(ids):
                if id.removeprefix("sha256:") not in used:
                    self._file(id).unlink(missing_ok=True)
            sync_folder(self._blobs)

    def _uses_of(self, key: str) -> dict[str, int]:
        """When the conversation has put each of its blobs. A damaged use is one of long ago."""
        uses: dict[str, int] = {}
        for file in self._files(f"{digest(key)}."):
            use = self._read(file)
            uses["sha256:" + file.name.rpartition(".")[2]] = use[1] if use else 0
        return uses

    def _read(self, file: Path) -> tuple[str, int] | None:
        try:
            return _decode(file.read_bytes())
        except msgspec.MsgspecError:
            return None

    def _files(self, prefix: str) -> list[Path]:
        if not self._uses.is_dir():
            return []
        return [
            file
            for file in sorted(self._uses.iterdir())
            if file.name.startswith(prefix) and file.suffix != NEW
        ]

    def _file(self, id: str) -> Path:
        return self._blobs / id.removeprefix("sha256:")

    def _use(self, key: str, id: str) -> Path:
        return self._uses.parent / self._name(key, id)

    def _name(self, key: str, id: str) -> str:
        return f"{self._uses.name}/{digest(key)}.{id.removeprefix('sha256:')}"
