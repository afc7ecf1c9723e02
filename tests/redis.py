"""A Redis of the tests' own: a private folder, a Unix socket, ended with the process.

Found on the PATH, as ``redis-server`` or ``valkey-server``. Where there is none the tests that need
it are left out, unless ``CHINWAG_REQUIRE`` names it: then they fail.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from redis import Redis
from redis.exceptions import RedisError

PATIENCE: Final = 30.0
# As Redis is delivered, but for a file that keeps what is said. Files are as they would be read, so
# that tests can look for a word in them.
SETTINGS: Final = (
    *("--port", "0", "--save", "", "--appendonly", "yes", "--appendfsync", "everysec"),
    *("--aof-use-rdb-preamble", "no", "--rdbcompression", "no", "--daemonize", "no"),
)


class Server:
    """:param folder: its data and its socket are there"""

    def __init__(self, folder: Path, program: str, *more: str) -> None:
        self.folder = folder
        self.socket = folder / "socket"
        self._command = [
            *(program, "--dir", str(folder), "--unixsocket", str(self.socket)),
            *SETTINGS,
            *more,
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, prefix: str) -> str:
        return f"unix://{self.socket}?prefix={prefix}"

    def client(self) -> Any:
        """A connection behind the store's back; to be closed."""
        return Redis(unix_socket_path=str(self.socket))

    def start(self) -> None:
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        try:
            self._wait(self._process)
        except BaseException:
            self.stop(signal.SIGKILL)
            raise

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + PATIENCE
        while True:
            assert process.poll() is None, (self.folder / "log").read_text()
            try:
                with self.client() as client:
                    client.ping()
                return
            except RedisError as error:
                assert time.monotonic() < until, f"Redis does not start: {error}"
            time.sleep(0.02)

    def tell(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """SIGTERM ends it in order; SIGKILL as if it had crashed."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(PATIENCE)
            self._process = None


@cache
def program() -> str:
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is None:
        if "redis" in os.environ.get("CHINWAG_REQUIRE", "").split(","):
            pytest.fail("CHINWAG_REQUIRE names redis, and Redis is not installed")
        pytest.skip("Redis is not installed")
    return found


def another(*settings: str) -> Server:
    """One more, not running; whoever asks for it ends it, and takes its folder away."""
    return Server(Path(tempfile.mkdtemp(prefix="chinwag-redis-")), program(), *settings)


@cache
def server() -> Server:
    """The one of this process, running."""
    made = another()
    made.start()
    return made


def stop() -> None:
    """At the end of the tests."""
    if server.cache_info().currsize:
        server().stop()
        shutil.rmtree(server().folder)


def fresh_url() -> str:
    """Of a prefix that nobody else has."""
    return server().url(f"t{uuid4().hex}")
