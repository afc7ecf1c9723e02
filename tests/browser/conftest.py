"""Without Chromium these tests are left out, in one line; CHINWAG_REQUIRE=chromium wants them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.browser.chromium import Seen, browsing, chromium, required, seeing

MISSING = "tests/browser is left out: there is no Chromium here (Debian: apt-get install chromium)"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    if chromium() is None:
        if required():
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    async with browsing() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def seen(browser: Browser, tmp_path: Path) -> AsyncIterator[Seen]:
    """The page, with a bot that speaks slowly enough to be seen."""
    async with seeing(browser, tmp_path, pace=0.02) as seen:
        yield seen


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if any(MISSING in str(each.longrepr) for each in terminalreporter.stats.get("skipped", ())):
        terminalreporter.write_line(MISSING)
