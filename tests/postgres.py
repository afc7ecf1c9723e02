"""A PostgreSQL of the tests' own: a private folder, a Unix socket, ended with the process.

Found where Debian puts it, or on the PATH. Where there is none the tests that need it are left out,
unless ``CHINWAG_REQUIRE`` names it: then they fail.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import psycopg
import pytest

PATIENCE: Final = 30.0
# Nothing is to survive this machine's fall: what is tested is what the server promises, not that
# the disk keeps it.
SETTINGS: Final = (
    "fsync=off",
    "full_page_writes=off",
    "max_connections=200",
    "shared_buffers=32MB",
)


class Server:
    """:param folder: its data and its socket are there"""

    def __init__(self, folder: Path, programs: Path, settings: Sequence[str] = SETTINGS) -> None:
        self.folder = folder
        self._programs = programs
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, schema: str) -> str:
        return (
            f"postgresql:///postgres?host={self.folder}&user=chinwag"
            f"&options=-c%20search_path%3D{schema}"
        )

    def start(self) -> None:
        if not (self.folder / "data").exists():
            self._make()
        settings = [word for setting in self._settings for word in ("-c", setting)]
        command = [
            str(self._programs / "postgres"),
            *("-D", str(self.folder / "data"), "-k", str(self.folder), "-c", "listen_addresses="),
            *settings,
        ]
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(command, stderr=log, **_as_somebody())
        try:
            self._wait(self._process)
        except BaseException:
            self.stop()
            raise

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + PATIENCE
        while True:
            assert process.poll() is None, (self.folder / "log").read_text()
            try:
                psycopg.connect(self.url("public")).close()
                return
            except psycopg.OperationalError as error:
                assert time.monotonic() < until, f"PostgreSQL does not start: {error}"
            time.sleep(0.05)

    def stop(self, number: int = signal.SIGINT) -> None:
        """SIGINT ends it in order, at once; SIGQUIT as if it had crashed."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(PATIENCE)
            self._process = None

    def _make(self) -> None:
        words = ("--auth=trust", "--username=chinwag", "--encoding=UTF8", "--no-sync", "-D")
        command = [str(self._programs / "initdb"), *words, str(self.folder / "data")]
        done = subprocess.run(command, capture_output=True, check=False, **_as_somebody())
        assert done.returncode == 0, done.stderr.decode()


def _as_somebody() -> Mapping[str, Any]:
    """It refuses to run as root."""
    return {"user": "postgres", "group": "postgres"} if os.getuid() == 0 else {}


def _programs() -> Path | None:
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parts[-2]))
    if debian:
        return debian[-1]
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


@cache
def server() -> Server:
    """The one of this process, running."""
    return begin()


def begin(settings: Sequence[str] = SETTINGS) -> Server:
    """Another one, running; whoever began it stops it, and removes its folder."""
    programs = _programs()
    if programs is None:
        if "postgres" in os.environ.get("CHINWAG_REQUIRE", "").split(","):
            pytest.fail("CHINWAG_REQUIRE names postgres, and PostgreSQL is not installed")
        pytest.skip("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="chinwag-pg-"))
    if os.getuid() == 0:
        who = pwd.getpwnam("postgres")
        os.chown(folder, who.pw_uid, who.pw_gid)
    made = Server(folder, programs, settings)
    made.start()
    return made


def stop() -> None:
    """At the end of the tests."""
    if server.cache_info().currsize:
        server().stop()
        shutil.rmtree(server().folder)


def fresh_url() -> str:
    """Of a schema that nobody else has."""
    return server().url(f"t{uuid4().hex}")
