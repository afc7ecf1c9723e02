"""The lock file by which one process at a time writes to a store. Not a lock between tasks.

The system gives it back when the process ends, however it ends, so there is no stale lock; the
number in the file only tells people who holds it.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from core.errors import StoreInUse, StoreUnavailable


def take_lock(lock: Path, store: Path) -> int:
    """A descriptor; closing it gives the lock back.

    :param lock: the lock file; made when it is not there, never removed
    :param store: what the errors talk about
    :raises StoreInUse: another process has it, or this one, a second time
    :raises StoreUnavailable: the lock file cannot be made
    """
    try:
        file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreUnavailable(f"{lock}: it cannot be opened: {error.strerror}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.fchmod(file, 0o600)
        # Of one length, and never cut: on a full disk it still fits where the last one stood.
        os.pwrite(file, f"{os.getpid():<10}\n".encode(), 0)
    except OSError as error:
        holder = os.pread(file, 20, 0).decode(errors="replace").strip() or "unknown"
        os.close(file)
        if isinstance(error, BlockingIOError):
            raise StoreInUse(
                f"{store}: chinwag run (pid {holder}) holds it: stop it, or send /reset in the chat"
            ) from error
        raise StoreUnavailable(f"{lock}: it cannot be locked: {error.strerror}") from error
    return file
