"""Killed around a file that a tool has for the person: it comes, once, after the answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from playground.claude_answers import Say, ToolUse, UseTools
from tests.crash.program import CONFIG, World, assert_valid

CHART = '''\
from core import Image, tool

@tool(repeatable=True)
def chart() -> list[object]:
    """Draw."""
    return ["Drawn.", Image(b"\\x89PNG\\r\\n\\x1a\\n a chart", name="chart.png", send=True)]
'''


@pytest.mark.parametrize(
    "point", ["before_tools", "tools_done", "before_commit", "committed", "before_send:2", "marked"]
)
async def test_it_comes_once(point: str, tmp_path: Path) -> None:
    config = CONFIG.replace('"effects.py:note"', '"chart.py:chart"')
    (tmp_path / "chart.py").write_text(CHART)
    async with World(tmp_path, config) as world:
        alice = world.telegram.person("Alice")
        call = UseTools((ToolUse("chart"),))
        world.claude.script(call, *([call] if point == "before_tools" else []), *[Say("Here.")] * 2)
        await world.start(point if ":" in point else f"{point}:1")
        world.telegram.write(alice, "draw")
        await world.until(lambda: bool(world.telegram.files(alice)), "the chart")
        await world.quiet()
        assert world.deaths == 1
        await world.terminate()
        assert world.telegram.texts(alice) == ["Here.", ""]
        assert world.telegram.files(alice) == {"chart.png": b"\x89PNG\r\n\x1a\n a chart"}
        assert_valid(await world.snapshot(f"telegram-chat:{alice.id}"))
