"""pytest finds this by itself where chinwag is installed: the fixture `botlab`.

Nothing but pytest is imported until a test asks for it. See `playground.botlab`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# Whoever inherits a suite sees what an assertion in it has compared.
pytest.register_assert_rewrite("bots.contracts")

if TYPE_CHECKING:
    from playground.botlab import BotLab


@pytest.fixture
def botlab_config() -> Path | None:
    """The `config.toml` of the bot under test; override it. None: the bot of the playground."""
    return None


async def _botlab(tmp_path: Path, botlab_config: Path | None) -> AsyncIterator[BotLab]:
    """People who talk to a bot on local platforms; the bot runs."""
    from playground.botlab import BotLab

    async with BotLab(tmp_path, botlab_config) as botlab:
        yield botlab


def _without_asyncio() -> None:
    pytest.fail("botlab needs pytest-asyncio; or use `async with playground.botlab.BotLab(...)`")


try:
    import pytest_asyncio
except ModuleNotFoundError:
    botlab: Any = pytest.fixture(name="botlab")(_without_asyncio)
else:
    botlab = pytest_asyncio.fixture(name="botlab")(_botlab)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Below a test that failed stands what was said in it."""
    report = yield
    lab = getattr(item, "funcargs", {}).get("botlab")
    if lab is not None and report.when == "call" and report.failed:
        report.sections.append(("botlab: what was said", lab.told()))
    return report
