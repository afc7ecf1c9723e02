"""The suites come with the package: they run where nothing of this repository's tests is."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

STORE = """
import sys
from bots.contracts.store import SessionStoreContract
from stores.memory import MemoryStore


class TestMine(SessionStoreContract):
    def open(self, place):
        return MemoryStore()


def test_alone():
    assert not any(name.partition(".")[0] == "tests" for name in sys.modules)
"""

ADAPTER = """
from bots.contracts.adapter import AdapterContract, Desk, running


class TestMine(AdapterContract):
    pass


def test_what_fails_is_shown():
    desk = Desk()
    assert desk.texts() == ["hello"]
"""


def run(pytester: pytest.Pytester, text: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(text)
    options = ("asyncio_mode=auto", "asyncio_default_fixture_loop_scope=function")
    return pytester.runpytest_subprocess(
        "-W", "error", *(f"-o{each}" for each in options), *arguments
    )


def test_a_store_is_proved_elsewhere(pytester: pytest.Pytester) -> None:
    outcomes = run(pytester, STORE).parseoutcomes()
    assert outcomes["passed"] > 10
    assert not {"failed", "errors", "warnings"} & set(outcomes)


def test_an_adapters_suite_is_there_too(pytester: pytest.Pytester) -> None:
    ran = run(pytester, ADAPTER, "-k", "what_fails")
    ran.assert_outcomes(failed=1, deselected=ran.parseoutcomes()["deselected"])
    assert ran.parseoutcomes()["deselected"] > 10
    ran.stdout.fnmatch_lines(["*assert [[]] == [[]'hello'[]]*"])
