"""The program on Slack as docs/slack.md sets it up: with the scopes and events of its own manifest,
by either transport.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from pathlib import Path

import pytest

from bots.slack.acts import RESET
from bots.slack.manifest import PATH, manifest
from core import phrases
from playground.slack import Error
from playground.slack_deliveries import Failed
from tests.bots.slack.world import RULES
from tests.crash.slack_program import SlackWorld

CLOSED = "[store]\nurl = 'sqlite:chinwag.db'\n"


async def answers(world: SlackWorld) -> bool:
    """Whether it is reached where it says."""
    try:
        return await world.slack.verify()
    except Failed:
        return False


@pytest.mark.timeout(60)
@pytest.mark.parametrize("transport", ["socket", "http"])
async def test_from_the_manifest_to_an_answer(tmp_path: Path, transport: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    config = CLOSED
    if transport == "http":
        config += f"[slack]\ntransport = 'http'\n[http]\nport = {port}\npublic_url = '{url}'\n"
    async with SlackWorld(tmp_path, config) as world:
        slack = world.slack
        (tmp_path / ".env").write_text(f"SLACK_SIGNING_SECRET={slack.signing_secret}\n")
        ran = await world.command("slack", "manifest", "--name", "Ada")
        assert ran.code == 0, ran.err
        printed = json.loads(ran.out)
        assert printed == manifest(RULES, "Ada", url if transport == "http" else None)
        slack.configure(printed)
        # A token has the scopes that the app had when it was installed.
        slack.install(slack.team, slack.token)
        if transport == "http":
            slack.deliver_to(f"{url}{PATH}")
        checked = await world.command("check")
        assert "✓ slack     all scopes are there" in checked.out, checked.out + checked.err
        await world.start(None, "slack")
        if transport == "http":
            async with asyncio.timeout(20):
                while not await answers(world):  # noqa: ASYNC110 (another process)
                    await asyncio.sleep(0.1)
        else:
            await world.ready()

        alice, general = slack.person("Alice"), slack.channel("general")
        await world.until(lambda: "/start " in world.log(), "it invites")
        found = re.search(r"/start ([A-Z0-9]+)", world.log())
        assert found is not None
        await world.tell(alice, f"!start {found[1]}")
        assert slack.texts(alice)[-1] == phrases.PAIRED
        await world.tell(alice, "my name is Alice")
        assert slack.texts(alice)[-1].startswith("Nice to meet you, Alice")

        mallory = slack.person("Mallory")
        slack.write(mallory, "let me in", general, mention=True)
        thread = await world.tell(alice, "my name is Alice", general)
        await world.tell(alice, "what is my name?", general, thread)
        assert "Alice" in slack.texts(general)[-1]
        assert {sent.thread for sent in slack.sent(general)} == {thread}
        before = len(slack.texts(general))
        slack.shortcut(alice, RESET, thread, general)
        await world.until(lambda: len(slack.texts(general)) > before, "it is reset")
        assert slack.texts(general)[-1] == phrases.RESET
        await world.tell(alice, "what is my name?", general, thread)
        assert "Alice" not in slack.texts(general)[-1]

        hint = slack.command(alice, "/reset", general)
        await world.until(lambda: hint.answer is not None, "a hint")
        assert hint.answer is not None and "!reset" in str(hint.answer["text"])
        before = len(slack.texts(alice))
        slack.command(alice, "/chinwag reset")
        await world.until(lambda: len(slack.texts(alice)) > before, "it is reset")
        assert slack.texts(alice)[-1] == phrases.RESET
        await world.quiet()
        assert await world.terminate() == 0
        assert not [line for line in world.log().splitlines() if "WARNING" in line.upper()]


@pytest.mark.parametrize("method", ["auth.test", "apps.connections.open"])
async def test_a_token_that_is_refused_ends_the_program(tmp_path: Path, method: str) -> None:
    async with SlackWorld(tmp_path) as world:
        world.slack.fault(method, Error("invalid_auth"), times=None)
        await world.start()
        assert await world.exited() == 4
        assert "invalid_auth" in world.log()


async def test_a_missing_token_is_one_line(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path) as world:
        ran = await world.command("run", "slack", SLACK_APP_TOKEN="")
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert "SLACK_APP_TOKEN is missing" in ran.err
        ran = await world.command("run", "slack", SLACK_BOT_TOKEN="", SLACK_APP_TOKEN="")
        assert ran.code == 2 and "set SLACK_BOT_TOKEN" in ran.err
