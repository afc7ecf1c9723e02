"""Stores by name."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from bots.contracts.store import ref
from core.errors import ConfigError, StoreUnavailable
from stores import urls
from stores.disk import DiskStore
from stores.memory import MemoryStore
from stores.sqlite import SQLiteStore
from stores.urls import open_store


def test_a_path_is_relative_to_the_base_or_absolute(tmp_path: Path) -> None:
    for scheme, kind in (("sqlite", SQLiteStore), ("disk", DiskStore)):
        for rest in ("chats", str(tmp_path / "chats")):
            store = open_store(f"{scheme}:{rest}", tmp_path)
            assert isinstance(store, kind)
            assert store.path == tmp_path / "chats"
    assert list(tmp_path.iterdir()) == []


def test_memory() -> None:
    assert isinstance(open_store("memory:", Path()), MemoryStore)


@pytest.mark.parametrize("scheme", ["sqlite", "disk"])
async def test_read_only_makes_nothing(tmp_path: Path, scheme: str) -> None:
    with pytest.raises(StoreUnavailable):
        async with open_store(f"{scheme}:chats", tmp_path, read_only=True):
            pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:", "names no place; write sqlite:"),
        ("disk:", "names no place"),
        (
            "nosuch:x",
            "called 'nosuch'; there are sqlite:, disk:, memory:, postgresql: and redis:",
        ),
        ("", "no store is called ''"),
        ("chinwag.db", "no store is called 'chinwag.db'"),
    ],
)
def test_what_names_no_store_is_said(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"\[store\] url: .*{said}"):
        open_store(url, Path())


def mine(rest: str, base: Path, *, read_only: bool) -> MemoryStore:
    store = MemoryStore()
    store.asked = (rest, base, read_only)  # type: ignore[attr-defined]
    return store


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [
        EntryPoint("mine", f"{__name__}:mine", urls.GROUP),
        EntryPoint("broken", "no_such_module:store", urls.GROUP),
    ]

    def entry_points(*, group: str, name: str) -> list[EntryPoint]:
        return [entry for entry in known if (entry.group, entry.name) == (group, name)]

    monkeypatch.setattr(urls, "entry_points", entry_points)


async def test_an_installed_package_adds_a_store(registered: Any) -> None:
    async with open_store("mine:a:b", Path("base"), read_only=True) as store:
        assert store.asked == ("a:b", Path("base"), True)  # type: ignore[attr-defined]
        assert await store.load(ref("t:1")) is None


def test_one_that_cannot_be_loaded_is_said(registered: Any) -> None:
    with pytest.raises(ConfigError, match=r"broken: cannot be loaded from no_such_module:store"):
        open_store("broken:", Path())


def test_a_driver_is_imported_when_it_is_named() -> None:
    script = (
        "import sys; from pathlib import Path; from stores.urls import open_store;"
        "open_store('memory:', Path()); print('aiosqlite' in sys.modules);"
        "open_store('sqlite:x', Path()); print('aiosqlite' in sys.modules)"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    ).stdout
    assert said == "False\nTrue\n"


@pytest.mark.parametrize(
    ("driver", "extra", "url"),
    [
        ("psycopg", "postgres", "postgresql://host/db"),
        ("redis", "redis", "redis://host/0"),
        ("redis", "redis", "unix:///run/redis.sock"),
    ],
)
def test_a_driver_that_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str, extra: str, url: str
) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    for name in [name for name in sys.modules if name.startswith(f"stores.{extra}")]:
        monkeypatch.delitem(sys.modules, name)
    said = rf"{driver} is not installed: install chinwag\[{extra}\]"
    with pytest.raises(ConfigError, match=said):
        open_store(url, tmp_path)
