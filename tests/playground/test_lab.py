"""The stand-ins and the bot as a child: it starts, dies, and starts again; troubles strike."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from playground.claude_answers import Say
from playground.lab import Lab
from playground.telegram import Chat, Person
from playground.troubles import NAMES, TROUBLES


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async with Lab(tmp_path) as lab:
        yield lab


async def answered(lab: Lab, place: Person | Chat, text: str, times: int = 1) -> None:
    await lab.until(lambda: lab.telegram.texts(place) == [text] * times, f"{text!r} {times} times")


async def test_killed_before_it_has_answered(lab: Lab) -> None:
    happened: list[tuple[str, dict[str, Any]]] = []
    lab.listeners.append(lambda what, event: happened.append((what, event)))
    alice = lab.telegram.person("Alice")
    lab.claude.script(Say("a b c d e f g h", pause=0.2), Say("at last"))
    await lab.start()
    first = lab.bot.pid
    lab.telegram.write(alice, "hello")
    await lab.until(lambda: bool(lab.claude.requests), "the model is asked")
    await lab.kill()
    assert lab.bot.pid not in (None, first)
    await answered(lab, alice, "at last")
    assert lab.bot.kills == 1
    # It may stand on the screen before it is stored: it grows there.
    stored = ("bot", "committed")
    await lab.until(
        lambda: stored in [(what, event.get("event")) for what, event in happened], "it is stored"
    )
    names = [event["event"] for what, event in happened if what == "bot"]
    assert names.count("bot.killed") == 1
    assert names.index("accepted") < names.index("bot.killed") < names.index("committed")
    assert [event["asked"].number for what, event in happened if what == "claude"] == [1, 2]
    ran = await lab.bot.command("sessions", "list")
    assert ran.code == 0 and f"telegram-chat:{alice.id}" in ran.out
    assert await lab.bot.stop() == 0
    assert lab.bot.state == "stopped"


async def test_one_that_cannot_start_says_why(tmp_path: Path) -> None:
    async with Lab(tmp_path, config=tmp_path / "none.toml") as lab:
        with pytest.raises(RuntimeError, match=r"code 2:\nchinwag: .*none\.toml"):
            await lab.start()
        assert lab.bot.state == "dead"


async def test_what_is_private_stays_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of somebody who pays")
    monkeypatch.setenv("CHINWAG_AGENT__NAME", "somebody else")
    async with Lab(tmp_path) as lab:
        environ = lab.bot.environ()
        assert environ["ANTHROPIC_API_KEY"] != "of somebody who pays"
        assert environ["ANTHROPIC_BASE_URL"] == lab.claude.url
        assert "CHINWAG_AGENT__NAME" not in environ
        lab.real_model = {"ANTHROPIC_API_KEY": "of somebody who pays"}
        environ = lab.bot.environ()
        assert environ["ANTHROPIC_API_KEY"] == "of somebody who pays"
        assert "ANTHROPIC_BASE_URL" not in environ


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("overloaded", "stream")])
async def test_each_trouble_of_a_platform_keeps_its_promise_on_slack(lab: Lab, name: str) -> None:
    alice = lab.slack.person("Alice")
    await lab.start()
    lab.troubles.set(name)
    lab.slack.write(alice, "my name is Alice")
    said = ["Nice to meet you, Alice."]
    await lab.until(lambda: lab.slack.texts(alice) == said, "the answer")
    lab.troubles.clear(name)
    lab.slack.write(alice, "what is my name?")
    # Even what was cut off came once: Slack can be asked what has arrived.
    said.append("Your name is Alice.")
    await lab.until(lambda: lab.slack.texts(alice) == said, "the next answer, and nothing else")


@pytest.mark.parametrize("name", NAMES)
async def test_each_trouble_keeps_its_promise(lab: Lab, name: str) -> None:
    alice = lab.telegram.person("Alice")
    await lab.start()
    lab.troubles.set(name)
    lab.telegram.write(alice, "my name is Alice")
    if name == "cut":
        # The one window: Telegram has it, the bot cannot know, and sends it again.
        await answered(lab, alice, "Nice to meet you, Alice.", times=2)
    else:
        await answered(lab, alice, "Nice to meet you, Alice.")
    trouble = next(each for each in TROUBLES if each.name == name)
    assert lab.troubles.left(name) == (None if trouble.times is None else 0)
    # Whatever was left of it would come now, and nothing does: what was said came once.
    lab.troubles.clear(name)
    lab.telegram.write(alice, "what is my name?")
    await lab.until(lambda: "Your name is Alice." in lab.telegram.texts(alice), "the next answer")
    assert len(lab.telegram.texts(alice)) == (3 if name == "cut" else 2)


async def test_a_trouble_that_is_taken_back_does_not_strike(lab: Lab) -> None:
    lab.claude.script(Say("mine"))
    for name in NAMES:
        lab.troubles.set(name)
    assert all(each["on"] for each in lab.troubles.json())
    for name in NAMES:
        lab.troubles.clear(name)
    assert not any(each["on"] for each in lab.troubles.json())
    assert list(lab.claude.scripted) == [Say("mine")]
    with pytest.raises(KeyError, match="no trouble 'fire'"):
        lab.troubles.set("fire")
