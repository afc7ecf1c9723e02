"""What one file of a DiskStore holds, and how it is written so that no crash spoils it.

Not where files are: that is `files.py`.
"""

from __future__ import annotations

import os
import zlib
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from core import snapshot as snapshots
from core.errors import SnapshotTooNew, SnapshotUnreadable
from core.snapshot import Snapshot

NEW: Final = ".new"  # ends the name of a file that is being written


class Envelope(msgspec.Struct, frozen=True):
    """What a file holds.

    :param checksum: of the key and the snapshot
    """

    key: str
    checksum: int
    snapshot: msgspec.Raw


class _Revision(msgspec.Struct, frozen=True):
    """As much of a snapshot as a compare-and-set reads."""

    revision: int


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Envelope).decode
_decode_revision: Final = msgspec.json.Decoder(_Revision).decode


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _checksum(key: str, snapshot: bytes) -> int:
    return zlib.crc32(snapshot, zlib.crc32(key.encode()))


def enclose(key: str, snapshot: bytes) -> bytes:
    return _encode(Envelope(key, _checksum(key, snapshot), msgspec.Raw(snapshot)))


def open_envelope(data: bytes, key: str | None = None) -> Envelope:
    """
    :param key: the key that must be inside; None: any
    :raises SnapshotUnreadable: not an envelope, the checksum is wrong, or it has another key
    """
    try:
        envelope = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotUnreadable(
            f"{key or 'a file'}: the stored file is damaged: {error}"
        ) from error
    if _checksum(envelope.key, bytes(envelope.snapshot)) != envelope.checksum:
        raise SnapshotUnreadable(f"{envelope.key}: the checksum of the stored file is wrong")
    if key is not None and envelope.key != key:
        raise SnapshotUnreadable(f"{key}: the stored file belongs to {envelope.key}")
    return envelope


def snapshot_in(data: bytes, key: str | None) -> Snapshot:
    """
    :raises SnapshotUnreadable: see `open_envelope`, or it is not a snapshot
    :raises SnapshotTooNew: of a newer version
    """
    return snapshots.decode(bytes(open_envelope(data, key).snapshot))


def revision_in(data: bytes, key: str | None) -> int:
    """
    :raises SnapshotUnreadable: see `open_envelope`, or there is no revision inside
    """
    try:
        return _decode_revision(open_envelope(data, key).snapshot).revision
    except msgspec.DecodeError as error:
        raise SnapshotUnreadable(f"there is no revision: {error}") from error


def readable(data: bytes | None, key: str) -> Snapshot | None:
    try:
        return snapshot_in(data, key) if data is not None else None
    except (SnapshotUnreadable, SnapshotTooNew):
        return None


def readdress(data: bytes, key: str) -> bytes:
    """What cannot be understood goes on under another key: a newer version will read it there."""
    try:
        return enclose(key, bytes(open_envelope(data).snapshot))
    except SnapshotUnreadable:
        return data


def read_file(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None


def write_file(file: Path, data: bytes) -> None:
    """Durable when it returns; after a crash at any moment the file is as before, or as now."""
    new = file.with_name(file.name + NEW)
    try:
        with open(new, "wb", opener=for_the_owner) as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        os.replace(new, file)
    except OSError:
        new.unlink(missing_ok=True)
        raise
    sync_folder(file.parent)


def for_the_owner(name: str, flags: int) -> int:
    file = os.open(name, flags | os.O_CLOEXEC, 0o600)
    os.fchmod(file, 0o600)
    return file


def sync_folder(folder: Path) -> None:
    """A name is durable when its folder is."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
