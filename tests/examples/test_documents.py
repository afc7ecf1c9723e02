"""What README.md and docs/agents.md show is true: each program on them runs, and says what it says.

The programs of a page run one after the other in one namespace, as in one prompt. What a ``print``
gives stands behind it as a comment.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import re
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from playground.claude import Claude

ROOT = Path(__file__).parents[2]
PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXPECTED = re.compile(r"print\(.*\)  # (.+)$", re.MULTILINE)


def programs(page: str) -> list[str]:
    return PROGRAM.findall((ROOT / page).read_text(encoding="utf-8"))


async def run(source: str, name: str, namespace: dict[str, Any]) -> str:
    """What it prints."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(source, name, "exec", flags=flags)
    assert isinstance(code, CodeType)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        ran = FunctionType(code, namespace)()
        if inspect.isawaitable(ran):
            await ran
    return printed.getvalue()


@pytest.fixture
async def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    async with Claude() as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "any")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        yield server


@pytest.mark.parametrize(
    ("page", "least"), [("README.md", 1), ("docs/agents.md", 11), ("docs/tools.md", 2)]
)
async def test_the_programs_of_a_page(page: str, least: int, stand_in: Claude) -> None:
    found = programs(page)
    assert len(found) >= least
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, source in enumerate(found, start=1):
        printed = await run(source, f"{page} #{number}", namespace)
        expected = " ".join(EXPECTED.findall(source))
        assert " ".join(printed.split()) == expected or not expected, f"{page} #{number}"
        assert printed.strip() or "print(" not in source


def test_the_links_of_the_pages_lead_somewhere() -> None:
    for page in (ROOT / "README.md", ROOT / "docs" / "agents.md"):
        links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
        assert links
        for link in links:
            if not link.startswith("https://"):
                assert (page.parent / link).exists(), link
