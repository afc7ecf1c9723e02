"""The named points where a test may kill the process."""

from __future__ import annotations

import ast
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from core import failpoints

ROOT = Path(__file__).parents[2]

PROGRAM = """
from core.failpoints import failpoint
for passage in range(1, 5):
    for name in ("accepted", "committed"):
        failpoint(name)
        print(name, passage, flush=True)
"""


def run(armed: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "CHINWAG_FAILPOINT"}
    if armed is not None:
        environment["CHINWAG_FAILPOINT"] = armed
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    ("armed", "last"),
    [
        ("committed", "accepted 1"),
        ("committed:1", "accepted 1"),
        ("committed:3", "accepted 3"),
        ("accepted:2", "committed 1"),
    ],
)
def test_the_process_dies_at_the_passage_that_was_asked_for(armed: str, last: str) -> None:
    done = run(armed)
    assert done.returncode == -signal.SIGKILL
    assert done.stdout.splitlines()[-1:] == [last]


@pytest.mark.parametrize("armed", [None, "", "committed:9", "marked"])
def test_otherwise_nothing_happens(armed: str | None) -> None:
    done = run(armed)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 8
    assert done.stderr == ""


@pytest.mark.parametrize("armed", ["comitted", "commited:2", ":2x", "committed:0", "committed:x"])
def test_what_is_no_failpoint_is_refused(armed: str) -> None:
    done = run(armed)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("CHINWAG_FAILPOINT: ")


def loaded(armed: str) -> ModuleType:
    """The module once more, as a process with this environment has it."""
    assert failpoints.__spec__ is not None
    assert failpoints.__spec__.origin is not None
    spec = importlib.util.spec_from_file_location("armed", failpoints.__spec__.origin)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHINWAG_FAILPOINT", armed)
        spec.loader.exec_module(module)
    return module


def test_it_kills_this_very_process_and_only_once_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, how: killed.append((pid, how)))
    module = loaded("sent:2")
    for name in ("sent", "marked", "sent", "sent"):
        module.failpoint(name)
    assert killed == [(os.getpid(), signal.SIGKILL)]


@pytest.mark.parametrize("armed", ["comitted", "committed:0"])
def test_it_is_refused_at_once(armed: str) -> None:
    with pytest.raises(SystemExit, match="CHINWAG_FAILPOINT"):
        loaded(armed)


def used(folder: str) -> Iterator[str]:
    """Names of all failpoints in a package's source; each must be written out."""
    for file in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", None)
            if name == "failpoint":
                (argument,) = node.args
                assert isinstance(argument, ast.Constant), f"{file}:{node.lineno}"
                yield str(argument.value)


def test_every_failpoint_is_somewhere_and_no_other_is() -> None:
    in_core = set(used("core"))
    in_bots = set(used("bots"))
    assert in_core | in_bots == set(failpoints.NAMES)
    # Before the core hears of a message, and after the engine does, it is in an adapter's hands.
    assert in_bots <= {"received", "submitted"}


def test_no_failpoint_has_two_names() -> None:
    assert len(set(failpoints.NAMES)) == len(failpoints.NAMES) == 14
