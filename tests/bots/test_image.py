"""`deploy/Dockerfile`: what it promises of the container, and the program run under just that.

No engine is needed: its entry point, its environment and its health check are read out of the file,
and run in namespaces of their own where nothing but the volume can be written. Not a build: that
wants the base image, and so a network.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bots.test_doctor import free_port

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0


class Image:
    """The last stage of the Dockerfile, an instruction a line."""

    def __init__(self) -> None:
        text = (ROOT / "deploy" / "Dockerfile").read_text().replace("\\\n", " ")
        lines = [line for line in text.splitlines() if line.strip() and line[0] != "#"]
        last = max(index for index, line in enumerate(lines) if line.startswith("FROM "))
        self.lines = [line.split(None, 1) for line in lines[last:]]

    def said(self, name: str) -> str:
        """What the last instruction of that name says."""
        return [rest for word, rest in self.lines if word == name][-1]

    def command(self, name: str) -> list[str]:
        words: list[str] = json.loads(self.said(name)[self.said(name).index("[") :])
        return words

    def environment(self) -> dict[str, str]:
        pairs = (word.partition("=") for word in shlex.split(self.said("ENV")))
        return {name: value for name, _, value in pairs}


@pytest.fixture(scope="module")
def image() -> Image:
    return Image()


def test_whoever_runs_it_is_nobody_special(image: Image) -> None:
    assert image.said("USER") == "chinwag"
    (made,) = [rest for word, rest in image.lines if word == "RUN"]
    assert "useradd --system --uid 10001" in made and "-m 0700 /data" in made
    assert (image.said("WORKDIR"), image.said("VOLUME")) == ("/data", "/data")
    # What the user may write is made before it is a volume, and before somebody is anybody.
    order = [word for word, _ in image.lines]
    assert order.index("RUN") < order.index("USER") < order.index("VOLUME")


def test_what_is_in_it_is_what_is_packaged(image: Image) -> None:
    """Nothing that is left out by .dockerignore is asked for, and no secret is brought in."""
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    brought = {line[1:] for line in ignored if line.startswith("!")}
    assert brought >= {
        "bots",
        "core",
        "stores",
        "playground",
        "pyproject.toml",
        "requirements.lock",
    }
    assert not any(".env" in name or "config" in name for name in brought)
    assert not any(
        re.search("TOKEN|KEY|SECRET|PASSW", rest) for word, rest in image.lines if word != "RUN"
    )


class Contained:
    """The program as a container has it: everything read only but `/data` and a small `/tmp`, a
    user that is not root, no capability, a process tree of its own."""

    def __init__(self, image: Image, volume: Path, port: int) -> None:
        self.volume = volume
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        given = image.environment() | {
            "PATH": path,
            "CHINWAG_HTTP__PORT": str(port),
            "CHINWAG_HTTP__HOST": "127.0.0.1",
            "CHINWAG_ACCESS__OPEN": "true",
        }
        # The venv is where it is, not in /venv; and the tree is there without a wheel.
        given["PYTHONPATH"] = str(ROOT)
        self._words = [
            *("bwrap", "--ro-bind", "/", "/", "--tmpfs", "/tmp", "--dev", "/dev"),
            *("--proc", "/proc", "--bind", str(volume), str(volume), "--chdir", str(volume)),
            *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--uid", "10001"),
            *(
                "--gid",
                "10001",
                "--cap-drop",
                "ALL",
                "--as-pid-1",
                "--die-with-parent",
                "--clearenv",
            ),
        ]
        # A checkout below /tmp would be hidden by the one of its own.
        for place in {str(ROOT), sys.prefix, sys.base_prefix}:
            self._words += ["--ro-bind", place, place]
        for name, value in given.items():
            self._words += ["--setenv", name, value]

    def words(self, *command: str) -> list[str]:
        return [*self._words, *command]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*command), capture_output=True, text=True, timeout=PATIENCE, check=False
        )


@pytest.fixture
def contained(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contained]:
    if shutil.which("bwrap") is None:
        if "bwrap" in os.environ.get("CHINWAG_REQUIRE", "").split(","):
            pytest.fail("CHINWAG_REQUIRE names bwrap, and bubblewrap is not installed")
        pytest.skip("bubblewrap is not installed")
    volume = tmp_path_factory.mktemp("data")
    volume.chmod(0o700)
    made = Contained(image, volume, free_port())
    able = made.run("true")
    if able.returncode:
        pytest.skip(f"no namespaces here: {able.stderr.strip()}")
    yield made


def test_the_program_needs_nothing_but_its_volume(image: Image, contained: Contained) -> None:
    """It starts, is healthy, is stopped as a container is, and has written nowhere else."""
    echo = ROOT / "examples" / "echo_adapter.py"
    (contained.volume / "config.toml").write_text(
        f'[adapters.echo]\nuse = "{echo}:EchoAdapter"\nport = {free_port()}\n'
    )
    probe = "import os; print(os.getuid()); open('/etc/chinwag', 'w')"
    tried = contained.run("python", "-c", probe)
    assert tried.stdout == "10001\n" and "Read-only file system" in tried.stderr
    # The file asks its own port; here it is another.
    port = image.environment()["CHINWAG_HTTP__PORT"]
    mine = contained._words[contained._words.index("CHINWAG_HTTP__PORT") + 1]
    health = [word.replace(f":{port}/", f":{mine}/") for word in image.command("HEALTHCHECK")]
    assert health != image.command("HEALTHCHECK")
    assert contained.run(*health).returncode == 1, "it is not up yet"
    entry = image.command("ENTRYPOINT")
    assert entry == ["chinwag"] and image.command("CMD") == ["run"]
    running = subprocess.Popen(
        contained.words(*entry, *image.command("CMD")),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until = time.monotonic() + PATIENCE
        while contained.run(*health).returncode:
            assert running.poll() is None and time.monotonic() < until
        child = _child_of(running.pid)
        os.kill(child, getattr(signal, image.said("STOPSIGNAL")))
        _, log = running.communicate(timeout=PATIENCE)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 0, log
    events = [json.loads(line) for line in log.splitlines()]
    assert [event["event"] for event in events][-1] == "stopped", "JSON, to the end"
    made = {file.name for file in contained.volume.iterdir()} - {"config.toml"}
    assert made and all(name.startswith("chinwag.db") for name in made)


def _child_of(pid: int) -> int:
    """The program itself, which is the first process of its namespace; bwrap is in front."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)
