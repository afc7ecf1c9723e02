"""The examples that are programs, run as a newcomer runs them: no key, no network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(module: str, folder: Path) -> list[str]:
    """What it prints, in a folder of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", module],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, *said = done.stdout.splitlines()
    assert first.startswith("(No ANTHROPIC_API_KEY")
    return said


def test_library(tmp_path: Path) -> None:
    said = run("examples.library", tmp_path)
    assert said[0:3] == [
        "I do not know your name yet.",
        "I do not know your name yet.",
        "Nice to meet you, Alice.",
    ]
    assert said[3:5] == ["The tool says: tea: 3 EUR", "The tool says: tea: 3 EUR"]
    assert "You said: “Good tea”" in said[5]
    assert said[6] == " ".join(f"word{n}" for n in range(1, 13)) + " [answered]"
    assert said[7].startswith("14 messages")
    again = run("examples.library", tmp_path)
    assert again[:2] == ["I do not know your name yet.", "Your name is Alice."]


def test_own_store(tmp_path: Path) -> None:
    said = run("examples.own_store", tmp_path)
    assert said == ["Nice to meet you, Alice.", "Your name is Alice.", "Forgotten."]
    assert (tmp_path / "application.db").exists()
