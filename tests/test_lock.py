"""requirements.lock is what pyproject.toml asks for, hashed, and names no place it was made at."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
LOCK = (ROOT / "requirements.lock").read_text("utf-8")
HASH = re.compile(r"\s--hash=sha256:[0-9a-f]{64}(?=\s|$)")


def entries() -> list[str]:
    """One string per locked package: `name==version ; marker --hash=... --hash=...`."""
    text = re.sub(r"^\s*#.*$", "", LOCK, flags=re.MULTILINE).replace("\\\n", " ")
    return [line for line in text.splitlines() if line.strip()]


def locked() -> dict[str, list[Version]]:
    versions: dict[str, list[Version]] = {}
    for entry in entries():
        requirement = Requirement(HASH.sub("", entry))
        (pin,) = requirement.specifier
        assert pin.operator == "==", entry
        versions.setdefault(canonicalize_name(requirement.name), []).append(Version(pin.version))
    return versions


def wanted() -> list[str]:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project = pyproject["project"]
    found: list[str] = [*project["dependencies"], *pyproject["build-system"]["requires"]]
    for extra in project["optional-dependencies"].values():
        found += extra
    return found


@pytest.mark.parametrize("text", wanted())
def test_a_requirement_is_locked_at_a_version_it_admits(text: str) -> None:
    requirement = Requirement(text)
    versions = locked().get(canonicalize_name(requirement.name), [])
    assert versions, f"{text} is not in requirements.lock: run make lock"
    for version in versions:
        assert requirement.specifier.contains(version, prereleases=True), (
            f"{text} does not admit the locked {version}: run make lock"
        )


def test_every_entry_has_hashes() -> None:
    assert entries()
    assert [entry for entry in entries() if not HASH.search(entry)] == []


def test_the_lock_names_no_host_and_no_path() -> None:
    for line in LOCK.splitlines():
        assert "://" not in line
        assert not re.search(r"(^|[\s=@])[.~]*/", line), line
        assert not re.search(r"\b[a-z][a-z0-9-]*\.(com|dev|io|net|org)\b", line), line
        assert not re.match(r"\s*-(-index-url|-extra-index-url|-find-links|i|f)\b", line), line
