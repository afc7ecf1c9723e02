"""What systemd hears of us, over a real socket."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bots.health import STORE_SILENT
from bots.service import STATUS_SECONDS, service
from tests.core.fakes import FakeClock, settle

DEPLOY = Path(__file__).parents[2] / "deploy"


class Manager:
    """systemd's end of the line."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(20)

    def heard(self) -> list[str]:
        return self.socket.recv(4096).decode().split("\n")

    def silent(self) -> bool:
        self.socket.setblocking(False)
        try:
            self.socket.recv(4096)
        except BlockingIOError:
            return True
        return False


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(str(tmp_path / "notify"))
    yield made
    made.socket.close()


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "120000000"}


class Look:
    def __init__(self) -> None:
        self.wrong: list[str] = []

    async def __call__(self) -> tuple[bool, Mapping[str, Any]]:
        return not self.wrong, {"wrong": self.wrong}


async def test_ready_alive_and_stopping(manager: Manager, environ: dict[str, str]) -> None:
    clock, look = FakeClock(manual=True), Look()
    async with service(look, clock, environ):
        assert manager.heard() == ["READY=1", "STATUS=running"]
        assert environ == {}, "programs that we start are not the service"
        await settle()
        for _ in range(2):
            clock.advance(40)
            await settle()
            assert manager.heard() == ["STATUS=all is well", "WATCHDOG=1"]
        look.wrong = ["telegram is deaf", "a message is not being answered"]
        clock.advance(40)
        await settle()
        assert manager.heard() == [
            "STATUS=telegram is deaf; a message is not being answered",
            "WATCHDOG=1",
        ]
        look.wrong = [STORE_SILENT]
        clock.advance(40)
        await settle()
        assert manager.heard() == [f"STATUS={STORE_SILENT}"]
    assert manager.heard()[0] == "STOPPING=1"
    assert manager.silent()


async def test_without_a_watchdog_there_is_a_status_line(
    manager: Manager, environ: dict[str, str]
) -> None:
    clock = FakeClock(manual=True)
    environ["WATCHDOG_PID"] = str(os.getpid() + 1)
    async with service(Look(), clock, environ):
        manager.heard()
        await settle()
        clock.advance(STATUS_SECONDS)
        await settle()
        assert manager.heard() == ["STATUS=all is well"]


async def test_nobody_wants_to_hear_it() -> None:
    clock = FakeClock(manual=True)
    async with service(Look(), clock, {}):
        assert len(asyncio.all_tasks()) == 1


async def test_nobody_listens(environ: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    async with service(Look(), FakeClock(manual=True), environ):
        assert "service.unheard" in caplog.text


async def test_an_address_that_is_in_no_folder(environ: dict[str, str]) -> None:
    name = f"chinwag-test-{os.getpid()}"
    manager = Manager(f"\0{name}")
    try:
        async with service(Look(), FakeClock(manual=True), {"NOTIFY_SOCKET": f"@{name}"}):
            assert manager.heard()[0] == "READY=1"
    finally:
        manager.socket.close()


def test_the_unit_is_one() -> None:
    """systemd itself reads it, where it is there."""
    text = (DEPLOY / "chinwag.service").read_text("utf-8")
    settings = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    assert settings["Type"] == "notify"
    assert int(settings["TimeoutStopSec"]) > 20, "longer than [engine] drain_seconds"
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd is not installed")
    done = subprocess.run(
        [program, "verify", "--recursive-errors=no", DEPLOY / "chinwag.service"],
        capture_output=True,
        text=True,
        check=False,
    )
    # That the program is not installed on this machine is no fault of the unit's.
    faults = [
        line
        for line in done.stderr.splitlines()
        if "chinwag.service:" in line and "is not executable" not in line
    ]
    assert faults == [], done.stderr


def test_the_health_check_of_the_image_is_a_program() -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    (code,) = re.findall(r'CMD \["python", "-c", "(.*)"\]', text)
    compile(code, "Dockerfile", "exec")
    refused = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert refused.returncode != 0, "nobody answers here"
    listed = (DEPLOY.parent / ".dockerignore").read_text("utf-8").split()
    for name in ("bots", "core", "stores", "playground", "requirements.lock"):
        assert f"!{name}" in listed
