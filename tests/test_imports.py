"""What an import costs: `import core` loads msgspec and the standard library, nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# What the interpreter itself has loaded when it starts (an editable install may bring its finder)
# is not the doing of the import.
PROGRAM = """
import sys
before = set(sys.modules)
import {module}
new = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print("\\n".join(sorted(new - set(sys.stdlib_module_names))))
"""


def loaded_by(module: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(module=module)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def msgspec() -> set[str]:
    """msgspec itself, and what it takes along when that happens to be installed."""
    return loaded_by("msgspec")


def test_msgspec_is_small(msgspec: set[str]) -> None:
    assert msgspec <= {"msgspec", "typing_extensions"}


def test_core_loads_nothing_but_msgspec(msgspec: set[str]) -> None:
    assert loaded_by("core") == {"core"} | msgspec


@pytest.mark.parametrize(
    "module", sorted(f"core.{path.stem}" for path in (ROOT / "core").glob("[!_]*.py"))
)
def test_nor_does_any_module_of_it(module: str, msgspec: set[str]) -> None:
    """Each can be imported first: none needs another to have been imported before it. The SDKs
    that a module stands for are loaded when they are used."""
    assert loaded_by(module) == {"core"} | msgspec
