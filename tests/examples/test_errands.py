"""The example with an approval, as its config.toml says to try it: from a clone, without keys."""

from __future__ import annotations

from pathlib import Path

from bots.console import PROMPT
from core import approvals
from tests.bots.test_console import Terminal
from tests.bots.test_playground import ROOT, environ

CONFIG = ROOT / "examples" / "errands" / "config.toml"


async def test_what_is_dear_is_bought_by_leave_only(tmp_path: Path) -> None:
    command = ("playground", "--terminal", "--config", str(CONFIG))
    terminal = Terminal(*command, cwd=tmp_path, env=environ())
    try:
        await terminal.until(lambda screen: screen.endswith(PROMPT))

        async def say(line: str, answer: str) -> None:
            before = len(terminal.screen)
            terminal.type(f"{line}\n")
            await terminal.until(
                lambda screen: answer in screen[before:] and screen.endswith(PROMPT)
            )

        await say(
            'use buy with {"thing": "milk", "euros": 3}', "The tool says: Bought milk for 3 €."
        )
        await say('use buy with {"thing": "a boat", "euros": 9000}', "May I use **buy**?")
        assert '"thing": "a boat"' in terminal.screen and "/approve" in terminal.screen
        await say("use look", "The tool says: milk for 3 €")
        await say('use buy with {"thing": "a boat", "euros": 9000}', "May I use **buy**?")
        await say("my name is Alice", f"The tool failed: This call was {approvals.WENT_ON}.")
        assert "Nice to meet you, Alice." in terminal.screen
        await say('use buy with {"thing": "a boat", "euros": 9000}', "May I use **buy**?")
        reason = approvals.DECLINED_BECAUSE.format(reason="too much")
        await say("/decline too much", f"The tool failed: {reason}")
        await say('use buy with {"thing": "a boat", "euros": 8999}', "May I use **buy**?")
        await say("/approve", "The tool says: Bought a boat for 8999 €.")
        await say("use look", "milk for 3 €, a boat for 8999 €")
        await say("/approve", "Nothing waits for an approval here.")
        terminal.type("\x04")
        assert await terminal.ended() == 0
        assert "Traceback" not in terminal.screen
    finally:
        terminal.close()


def test_it_says_itself_how_to_try_it() -> None:
    words = CONFIG.read_text()
    assert "chinwag playground --terminal --config examples/errands/config.toml" in words
    for line in ('use buy with {"thing": "a boat", "euros": 9000}', "/approve", "/decline"):
        assert line in words
