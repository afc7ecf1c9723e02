"""How often the program was killed: counted in each test, told at the end of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.crash.program import World


@pytest.fixture(autouse=True)
def _kills_are_counted(record_property: Callable[[str, object], None]) -> Iterator[None]:
    before = World.killed
    yield
    record_property("kills", World.killed - before)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # Properties come along with the reports, also from other processes.
    kills = sum(
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "teardown"
        for name, value in report.user_properties
        if name == "kills" and isinstance(value, int)
    )
    if kills:
        terminalreporter.write_line(f"the program was killed {kills} times")
