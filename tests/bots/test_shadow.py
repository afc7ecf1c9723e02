"""Strangers with our packages' names: refused with a text, before anything of theirs runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bots.shadow import check_not_shadowed, shadowed
from core.errors import ConfigError

HOME = Path(__file__).parents[2]


def package(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("raise SystemExit('the stranger ran')\n")
    return folder / name


def run(code: str, *first: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(map(str, (*first, HOME)))
    return subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def test_all_is_well_here() -> None:
    assert shadowed() is None
    check_not_shadowed()


def test_the_guard_imports_nothing_of_ours() -> None:
    code = (
        "import sys, bots.shadow; bots.shadow.check_not_shadowed();"
        " print(sorted(name for name in sys.modules if name.split('.')[0] in bots.shadow.PACKAGES))"
    )
    assert run(code).stdout.strip() == "['bots', 'bots.shadow']"


@pytest.mark.parametrize("name", ["stores", "playground"])
def test_a_stranger_is_named(tmp_path: Path, name: str) -> None:
    folder = package(tmp_path, name)
    info = tmp_path / "stranger-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.2\n")
    (info / "RECORD").write_text(f"{name}/__init__.py,,\n")
    code = (
        "import bots.shadow\n"
        "from core.errors import ConfigError\n"
        "try: bots.shadow.check_not_shadowed()\n"
        "except ConfigError as error: print(error)"
    )
    result = run(code, tmp_path)
    assert result.stderr == ""
    assert result.stdout.startswith(
        f"the package {name!r} would be taken from {folder} (stranger 1.2), not from chinwag. If"
    )


def test_a_stranger_in_the_place_of_core_ends_the_program(tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "__init__.py").write_text("")
    result = run("import bots.shadow; bots.shadow.check_not_shadowed()", tmp_path)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"chinwag: the package 'core' would be taken from {tmp_path}")


def test_a_file_is_a_stranger_too(tmp_path: Path) -> None:
    (tmp_path / "stores.py").write_text("")
    result = run("import bots.shadow; print(bots.shadow.shadowed())", tmp_path)
    assert f"taken from {tmp_path / 'stores.py'}, not" in result.stdout


def test_a_folder_without_a_package_in_it_shadows_nothing(tmp_path: Path) -> None:
    (tmp_path / "stores").mkdir()
    assert run("import bots.shadow; print(bots.shadow.shadowed())", tmp_path).stdout == "None\n"


def test_a_package_that_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"'no_such_thing' is missing beside .*: install chinwag"):
        check_not_shadowed(("bots", "no_such_thing"))


def test_where_they_belong_is_a_matter_of_the_folder(tmp_path: Path) -> None:
    text = shadowed(("core",), tmp_path)
    assert text is not None
    assert str(HOME / "core") in text


def test_a_module_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "traceless", type(sys)("traceless"))
    text = shadowed(("traceless",))
    assert text is not None
    assert "is missing" in text
