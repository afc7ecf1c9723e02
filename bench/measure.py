"""Clocks and counters: what a piece of work took, and what machine it ran on.

Counts come from ``/proc`` and are NaN where there is none. Nothing here names a host or a path.
"""

from __future__ import annotations

import asyncio
import math
import os
import platform
import re
import resource
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

PROC: Final = Path("/proc/self")
BEAT: Final = 0.005  # seconds between two looks at how late the loop is


def percentile(values: Sequence[float], percent: float) -> float:
    """The value at this rank; NaN of nothing."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(percent / 100 * (len(ordered) - 1)))]


def median(values: Sequence[float]) -> float:
    return percentile([value for value in values if not math.isnan(value)], 50)


def resident() -> float:
    """MiB of memory in use now."""
    try:
        lines = (PROC / "status").read_text().splitlines()
    except OSError:
        return math.nan
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


def descriptors() -> float:
    """Files, sockets and pipes that are open in this process."""
    try:
        return float(len(os.listdir(PROC / "fd")))
    except OSError:
        return math.nan


def bind(files: int) -> None:
    """No more than so many files may be open, as after ``ulimit -n``."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))


def unbind() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def size_of(folder: Path) -> int:
    """Bytes of all files in it."""
    return sum(file.stat().st_size for file in folder.iterdir())


def evict(path: Path) -> None:
    """Ask the kernel to read this file from the disk the next time, as after a restart."""
    if not hasattr(os, "posix_fadvise"):
        return
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


class Meter:
    """``with Meter() as meter: ...`` and then its seconds, CPU seconds and bytes written."""

    wall = cpu = written = math.nan

    def __enter__(self) -> Self:
        try:
            # Kept open: at the end there may be no descriptor left to open it with.
            self._counts: int | None = os.open(PROC / "io", os.O_RDONLY)
        except OSError:
            self._counts = None
        self._written = self._written_so_far()
        self._cpu = time.process_time()
        self._wall = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        self.wall = time.perf_counter() - self._wall
        self.cpu = time.process_time() - self._cpu
        self.written = self._written_so_far() - self._written
        if self._counts is not None:
            os.close(self._counts)

    def _written_so_far(self) -> float:
        """Bytes that this process has given to write(2)."""
        if self._counts is None:
            return math.nan
        lines = os.pread(self._counts, 1_000, 0).decode().splitlines()
        return float(dict(line.split(": ") for line in lines)["wchar"])


class Heartbeat:
    """How late the event loop was, at worst, while this was open."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _beat(self) -> None:
        began = time.perf_counter()
        try:
            while True:
                await asyncio.sleep(BEAT)
                self.longest = max(self.longest, time.perf_counter() - began - BEAT)
                began = time.perf_counter()
        finally:
            self.longest = max(self.longest, time.perf_counter() - began - BEAT)


# macOS has no fdatasync.
_sync: Final = getattr(os, "fdatasync", os.fsync)


class Calibration(NamedTuple):
    """Microseconds: a fixed piece of Python, and a 4 KiB write with its sync. How busy the machine
    is right now, and how fast its disk."""

    spin: float
    sync: float


def calibrate(folder: Path) -> Calibration:
    spins: list[float] = []
    for _ in range(15):
        began = time.perf_counter()
        total = 0
        for number in range(20_000):
            total += number * number
        spins.append(time.perf_counter() - began)
    syncs: list[float] = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for place in range(40):
            os.pwrite(file.fileno(), b"x" * 4096, place * 4096)
            began = time.perf_counter()
            _sync(file.fileno())
            syncs.append(time.perf_counter() - began)
    return Calibration(median(spins) * 1e6, median(syncs) * 1e6)


def machine(folder: Path) -> list[str]:
    """What this machine is, one fact a line."""
    kernel = re.match(r"[\d.]*\d", platform.release())
    calibration = calibrate(folder)
    return [
        f"{os.cpu_count()} cores, {_processor()}, {_memory()}",
        f"{platform.system()} {kernel.group() if kernel else ''}, "
        f"{_file_system(folder)} file system",
        f"{platform.python_implementation()} {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}",
        f"4 KiB write and fdatasync: {calibration.sync:.0f} us; "
        f"20,000 turns of a Python loop: {calibration.spin:.0f} us",
    ]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _memory() -> str:
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return f"{pages * size / 2**30:.0f} GiB of memory"


def _file_system(folder: Path) -> str:
    """The type of the one that holds the folder."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    above = {str(folder.resolve()), *map(str, folder.resolve().parents)}
    holding = [(len(place), kind) for _, place, kind, *_ in mounts if place in above]
    return max(holding)[1] if holding else "unknown"
