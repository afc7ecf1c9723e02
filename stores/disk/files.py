"""The conversations of a DiskStore as files in its folder. See the package for the layout.

Synchronous: it runs in the store's one thread, one call at a time.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from core import changes
from core import snapshot as snapshots
from core.errors import (
    SnapshotTooNew,
    SnapshotUnreadable,
    StaleSnapshot,
    StoreCorrupt,
    StoreUnavailable,
)
from core.keys import check_key
from core.snapshot import Snapshot
from core.store import SessionRef, Summary
from core.usage import Spent
from stores.disk.blobs import BlobFiles
from stores.disk.envelope import (
    NEW,
    digest,
    enclose,
    open_envelope,
    read_file,
    readable,
    readdress,
    revision_in,
    snapshot_in,
    sync_folder,
    write_file,
)
from stores.disk.usage import UsageFiles

_FOLDERS: Final = ("unfinished", "aside", "notes", "blobs", "uses", "usage")
_SESSION_FILE: Final = re.compile(r"[0-9a-f]{64}\.json")

# What a move does: by file, its new content, or None: it goes.
_Move = dict[str, bytes | None]

_encode: Final = msgspec.json.Encoder().encode
_decode_name: Final = msgspec.json.Decoder(str).decode
_decode_move: Final = msgspec.json.Decoder(_Move).decode


class Files:
    """The files, seen from the thread: nothing here waits for anything but the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._move = folder / ".move"
        self.blobs = BlobFiles(folder / "blobs", folder / "uses")
        self.usage = UsageFiles(folder / "usage")

    def create(self) -> None:
        """
        :raises StoreUnavailable: a folder cannot be made
        """
        try:
            for folder in (self._folder, *(self._folder / name for name in _FOLDERS)):
                with suppress(FileExistsError):  # somebody may make it at the same time
                    folder.mkdir()
                    folder.chmod(0o700)
                if not folder.is_dir():
                    raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(folder))
        except OSError as error:
            raise StoreUnavailable(
                f"{error.filename}: it cannot be created: {error.strerror}"
            ) from error

    @contextmanager
    def alone(self, ref: SessionRef | None, *, writes: bool) -> Iterator[None]:
        """Nobody else, of whatever process, works in the same folder meanwhile; a move that a crash
        cut short is done first."""
        own = _own(ref)
        if own is None and writes:
            self.create()
        try:
            folder = os.open(own.parent if own else self._folder, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            yield  # nothing is there to be read, and nothing can be written
            return
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            if own is None:
                self._finish_move()
            yield
        finally:
            os.close(folder)

    def load(self, ref: SessionRef) -> Snapshot | None:
        data = read_file(self._file(ref))
        return snapshot_in(data, self._key_inside(ref)) if data is not None else None

    def save(
        self,
        ref: SessionRef,
        data: bytes,
        replaces: int | None,
        unfinished: bool,
        erases: bool,
        now: int,
        spent: Sequence[Spent] = (),
    ) -> None:
        """
        :param erases: some of what was stored is not to be kept
        """
        file, marker = self._file(ref), self._marker(ref)
        was = read_file(file)
        stored = self._revision(ref, was)
        if stored != replaces:
            raise StaleSnapshot(f"{ref.key}: revision {stored} is stored, not {replaces}")
        if spent and marker:
            # First: after a crash in between the call is counted, though it has to be made anew.
            self.usage.add(ref.key, spent)
        # At any moment there is a marker for whatever is unfinished, after a crash also for more.
        if unfinished and marker and not marker.exists():
            write_file(marker, ref.key.encode())
        write_file(file, enclose(ref.key, data))
        if marker and not unfinished:
            marker.unlink(missing_ok=True)
        if marker and was is not None:
            self.blobs.end_unused(ref.key, was, data, erases, now)

    def clear(self, ref: SessionRef) -> None:
        file, marker = self._file(ref), self._marker(ref)
        if file.exists():
            file.unlink()
            sync_folder(file.parent)
        if marker:
            marker.unlink(missing_ok=True)

    def set_aside(self, ref: SessionRef, now: int) -> None:
        file, marker = self._file(ref), self._marker(ref)
        if file.exists():
            aside = self._aside(file, now) if marker else _unused(file, now)
            file.rename(aside)
            sync_folder(aside.parent)
            sync_folder(file.parent)
            if marker:
                # Under a name that is no key: what was set aside keeps its own.
                self.blobs.copy(ref.key, f"{ref.key}\0{aside.name}")
        if marker:
            marker.unlink(missing_ok=True)

    def spoken_by(self, sender: str) -> list[str]:
        # As JSON has it; in a text that a person wrote, the quotes would be escaped.
        name = _encode(sender)
        return [key for key in self._keys() if name in self._file(SessionRef(key)).read_bytes()]

    def remove(self, ref: SessionRef, replaces: int) -> None:
        """
        :raises StaleSnapshot: another revision is stored, or none, or what cannot be read
        """
        stored = self._revision(ref, read_file(self._file(ref)))
        if stored != replaces:
            raise StaleSnapshot(f"{ref.key}: revision {stored} is stored, not {replaces}")
        self.clear(ref)
        self.blobs.end_all(ref.key)

    def size(self, key: str | None) -> int:
        if key is not None:
            file = self._file(SessionRef(key))
            return (file.stat().st_size if file.exists() else 0) + self.blobs.size(key)
        folders = (self._folder, *(self._folder / name for name in _FOLDERS))
        files = (file for folder in folders for file in _entries(folder) if file.is_file())
        return sum(file.stat().st_size for file in files)

    def sweep(self, before: int) -> int:
        """Uses of blobs by conversations that are not there."""
        ended = 0
        for key in self.blobs.users():
            # What was set aside has a NUL in its name.
            if "\0" not in key and not self._file(SessionRef(key)).exists():
                ended += self.blobs.end_old(key, before)
        return ended

    def clear_aside(self, key: str | None, sender: str | None, before: int | None) -> int:
        going = 0
        for file in _entries(self._folder / "aside"):
            data = file.read_bytes()
            theirs = sender is not None and _encode(sender) in data
            if before is not None and _set_aside_at(file) < before:
                theirs = True
            if theirs or (key is not None and file.name.startswith(f"{digest(key)}.")):
                with suppress(SnapshotUnreadable):
                    self.blobs.end_all(f"{open_envelope(data).key}\0{file.name}")
                file.unlink()
                going += 1
        if going:
            sync_folder(self._folder / "aside")
        return going

    def unfinished(self) -> list[str]:
        return [
            marker.read_bytes().decode(errors="replace")
            for marker in sorted(_entries(self._folder / "unfinished"))
            if marker.suffix != NEW
        ]

    def summaries(self, prefix: str, after: str | None, limit: int) -> list[Summary]:
        found: list[Summary] = []
        for key in sorted(self._keys()):
            if len(found) >= limit:
                break
            if key.startswith(prefix) and key > (after or ""):
                try:
                    value = self.load(SessionRef(key))
                except (SnapshotUnreadable, SnapshotTooNew):
                    continue
                if value:
                    found.append(
                        Summary(key, len(value.messages), value.unfinished, value.updated_at)
                    )
        return found

    def check(self) -> list[str]:
        problems: list[str] = []
        for file in self._session_files():
            try:
                snapshot_in(file.read_bytes(), None)
            except (SnapshotUnreadable, SnapshotTooNew) as error:
                problems.append(f"{file}: {error}")
        return problems

    def note(self, name: str) -> bytes | None:
        data = read_file(self._note(name))
        # Its first line is its name: the file's own is a digest of that.
        return None if data is None else data.partition(b"\n")[2]

    def put_note(self, name: str, value: bytes | None, was: bytes | None) -> bool:
        file = self._note(name)
        if self.note(name) != was:
            return False
        if value is not None:
            write_file(file, _encode(name) + b"\n" + value)
        elif was is not None:
            file.unlink()
            sync_folder(file.parent)
        return True

    def notes(self) -> list[str]:
        """
        :raises StoreCorrupt: one cannot be read
        """
        names: list[str] = []
        for file in sorted((self._folder / "notes").glob("[!.]*")):
            data = read_file(file)
            if data is None or file.suffix:
                continue  # gone meanwhile, or half written
            try:
                names.append(_decode_name(data.partition(b"\n")[0]))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise StoreCorrupt(f"{file}: it is damaged ({error})") from error
        return sorted(names)

    # ------------------------------------------------------------------ move

    def move(self, old: str, new: str, now: int) -> None:
        if old == new:
            return
        keys = {key for key in self._keys() if key.startswith(f"{old}/")}
        # A damaged file does not tell its key; that of `old` itself is known by its name.
        if self._file(SessionRef(old)).exists():
            keys.add(old)
        plan: _Move = {}
        # The longest first, so that none lands on one still to move.
        for key in sorted(keys, reverse=True):
            self._plan(plan, SessionRef(key), SessionRef(new + key[len(old) :]), now)
        used = {key for key in self.blobs.users() if key == old or key.startswith(f"{old}/")}
        for key in used:
            plan |= self.blobs.plan_move(key, check_key(new + key[len(old) :]))
        plan |= {self._name(file): data for file, data in self.usage.moved(old, new)}
        if plan:
            write_file(self._move, _encode(plan))
            self._finish_move()

    def _finish_move(self) -> None:
        """Do what the plan says, from its beginning: doing it twice is the same as once.

        :raises StoreCorrupt: the plan cannot be read
        """
        data = read_file(self._move)
        if data is None:
            return
        try:
            plan = _decode_move(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise StoreCorrupt(f"{self._move}: it is damaged ({error})") from error
        for name, content in plan.items():
            if content is None:
                (self._folder / name).unlink(missing_ok=True)
            else:
                write_file(self._folder / name, content)
        sync_folder(self._folder)
        self._move.unlink()
        sync_folder(self._folder)

    def _plan(self, plan: _Move, old: SessionRef, new: SessionRef, now: int) -> None:
        old_data, new_data = self._planned(plan, old), self._planned(plan, new)
        assert old_data is not None
        old_value, new_value = readable(old_data, old.key), readable(new_data, new.key)
        plan[self._name(self._file(old))] = None
        plan[f"unfinished/{digest(old.key)}"] = None
        if new_data is not None and new_value is None:
            plan[self._name(self._aside(self._file(new), now))] = new_data
        if old_value is None and new_value is not None:
            plan[self._name(self._aside(self._file(old), now))] = old_data
            return
        unfinished = True  # for all that we know
        if old_value is not None:
            value = changes.move(old_value, new_value, new.key)
            moved, unfinished = enclose(new.key, snapshots.encode(value)), value.unfinished
        else:
            moved = readdress(old_data, new.key)
        plan[self._name(self._file(new))] = moved
        plan[f"unfinished/{digest(new.key)}"] = new.key.encode() if unfinished else None

    def _planned(self, plan: _Move, ref: SessionRef) -> bytes | None:
        file = self._file(ref)
        name = self._name(file)
        return plan[name] if name in plan else read_file(file)

    # ------------------------------------------------------------------ names

    def _file(self, ref: SessionRef) -> Path:
        return _own(ref) or self._folder / f"{digest(ref.key)}.json"

    def _key_inside(self, ref: SessionRef) -> str | None:
        """None: in a file of its own, the key is whatever it was when it was saved."""
        return None if _own(ref) else ref.key

    def _marker(self, ref: SessionRef) -> Path | None:
        return None if _own(ref) else self._folder / "unfinished" / digest(ref.key)

    def _note(self, name: str) -> Path:
        return self._folder / "notes" / digest(name)

    def _aside(self, file: Path, now: int) -> Path:
        return _unused(self._folder / "aside" / file.name, now)

    def _name(self, file: Path) -> str:
        return str(file.relative_to(self._folder))

    def _session_files(self) -> Iterator[Path]:
        return (file for file in _entries(self._folder) if _SESSION_FILE.fullmatch(file.name))

    def _keys(self) -> Iterator[str]:
        for file in self._session_files():
            try:
                envelope = open_envelope(file.read_bytes())
            except SnapshotUnreadable:
                continue
            if file.name == f"{digest(envelope.key)}.json":
                yield envelope.key

    def _revision(self, ref: SessionRef, data: bytes | None) -> int | None:
        """None: nothing is stored.

        :raises StaleSnapshot: something is, and it cannot be read
        """
        if data is None:
            return None
        try:
            return revision_in(data, self._key_inside(ref))
        except SnapshotUnreadable as error:
            raise StaleSnapshot(f"{ref.key}: what is stored cannot be read") from error


def _own(ref: SessionRef | None) -> Path | None:
    """The file that the reference itself names."""
    path = ref.options.get("path") if ref else None
    return None if path is None else Path(path).absolute()


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _set_aside_at(file: Path) -> int:
    """As `_unused` has put it into the name, in ms."""
    at = file.suffixes[0].removeprefix(".") if file.suffixes else ""
    return int(at) if at.isdecimal() else 0


def _unused(file: Path, now: int) -> Path:
    """A name of this time that is not taken."""
    while (aside := file.with_name(f"{file.stem}.{now}{file.suffix}")).exists():
        now += 1
    return aside
