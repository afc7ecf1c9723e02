"""SIGKILL while nothing is on the screen but what a tool does: that message becomes the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from core.history import INTERRUPTED
from tests.crash.slack_program import SlackWorld

CONFIG: Final = """\
[agent]
tools = ["slow.py:look_up"]
[access]
open = true
"""
SLOW: Final = '''\
import asyncio

async def look_up(text: str) -> str:
    """Look it up in the cellar."""
    await asyncio.sleep(2.0)
    return "found " + text
'''


@pytest.mark.parametrize(
    "noted",
    [
        pytest.param(False, id="as it appears"),
        pytest.param(True, id="while it stands", marks=pytest.mark.crash),
    ],
)
async def test_killed_while_a_card_is_all_there_is(tmp_path: Path, noted: bool) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    async with SlackWorld(tmp_path, CONFIG) as world:
        slack = world.slack
        alice, general = slack.person("Alice"), slack.channel("general")
        if not noted:
            world.kill_at("sent")
        await world.start("tools_done:1" if noted else None)
        await world.ready()
        slack.write(alice, 'use look_up with {"text": "milk"}', general, mention=True)
        await world.until(lambda: any(slack.texts(general)), "an answer")
        await world.quiet()
        assert await world.terminate() == 0
        assert world.deaths == 1
        (stream,) = slack.streams(general)
        assert [task["title"] for task in stream.tasks.values()] == ["Look it up in the cellar"]
        (sent,) = slack.sent(general)
        assert not sent.deleted and sent.ts == stream.ts
        assert sent.text == f"The tool failed: {INTERRUPTED}" and "milk" not in str(stream.tasks)
        assert [block["type"] for block in sent.raw["blocks"]] == ["markdown"]
