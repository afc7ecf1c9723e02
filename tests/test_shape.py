"""Every implementation of a seam is proved by the contract suite of that seam: no store, platform
or model client without a test class that inherits it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def stores() -> Iterator[str]:
    """Each file or folder of stores/ is a database, but for the one that knows them by name."""
    for path in (ROOT / "stores").iterdir():
        if path.stem not in ("__init__", "__pycache__", "urls"):
            yield path.stem


def platforms() -> Iterator[str]:
    """Each folder of bots/ but that of the suites is a platform; and what has a method `live` in a
    file of its own."""
    for path in (ROOT / "bots").iterdir():
        if path.is_dir() and path.name not in ("__pycache__", "contracts"):
            yield path.name
        elif path.suffix == ".py" and "live" in methods(path):
            yield path.stem


def model_clients() -> Iterator[str]:
    """What imports an SDK to ask a model."""
    for path in (ROOT / "core").glob("*.py"):
        if {"answer", "warm", "_open"} <= methods(path):
            yield path.stem


def methods(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return {
        each.name
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def proved_by(folder: str, name: str) -> set[str]:
    """The bases of the test classes for this name: in its own file, or its own folder."""
    here = ROOT / "tests" / folder
    files = [here / f"test_{name}.py", *(here / name).glob("test_*.py")]
    trees = [ast.parse(file.read_text("utf-8")) for file in files if file.exists()]
    return {
        base.id
        for tree in trees
        for each in ast.walk(tree)
        if isinstance(each, ast.ClassDef) and each.name.startswith("Test")
        for base in each.bases
        if isinstance(base, ast.Name)
    }


def test_all_are_found() -> None:
    assert {"memory", "disk", "sqlite", "postgres", "redis"} <= set(stores())
    assert {"telegram", "console"} <= set(platforms())
    assert {"claude", "openai"} <= set(model_clients())


@pytest.mark.parametrize("name", sorted(stores()))
def test_a_store_has_its_contract(name: str) -> None:
    assert proved_by("stores", name) & {"StoreContract"}, (
        f"stores/{name}: tests/stores/test_{name}.py needs a class that inherits the store contract"
    )


@pytest.mark.parametrize("name", sorted(platforms()))
def test_a_platform_has_its_contract(name: str) -> None:
    assert "AdapterContract" in proved_by("bots", name), (
        f"bots/{name}: tests/bots needs a class that inherits AdapterContract"
    )


@pytest.mark.parametrize("name", sorted(model_clients()))
def test_a_model_client_has_its_contract(name: str) -> None:
    assert "ModelClientContract" in proved_by("core", name), (
        f"core/{name}.py: tests/core/test_{name}.py needs a class that inherits ModelClientContract"
    )
