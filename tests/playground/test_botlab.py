"""The test kit, used as somebody would who builds a bot; and what it says when a test fails."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from playground.botlab import BotLab
from playground.claude_answers import Say

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[2]
LONG = " ".join(f"word{number}" for number in range(1, 41))


async def test_a_conversation_over_a_kill(botlab: BotLab) -> None:
    alice, bob = botlab.telegram.person("Alice"), botlab.telegram.person("Bob")
    await alice.says("hello, I am Alice")
    await alice.hears("Nice to meet you, Alice.")
    await botlab.kill()
    await alice.says("what is my name?")
    await alice.hears("Your name is Alice.")
    await bob.says("what is my name?")
    assert await bob.hears(re.compile("do not know")) == "I do not know your name yet."
    await botlab.quiet()
    assert alice.sees()[-1] == "Your name is Alice." and len(bob.sees()) == 1


async def test_topics_a_group_and_a_button(botlab: BotLab) -> None:
    alice = botlab.telegram.person("Alice")
    forum = botlab.telegram.forum("Workshop", alice)
    garden, kitchen = forum.topic("Garden"), forum.topic("Kitchen")
    await alice.says("my name is Rose", forum, topic=garden)
    await alice.hears("Nice to meet you, Rose.", forum, topic=garden)
    await alice.says("what is my name?", forum, topic=kitchen)
    await alice.hears("I do not know your name yet.", forum, topic=kitchen)
    group = botlab.telegram.group("Friends", alice)
    await alice.says('use buy with {"thing": "a boat", "euros": 9000}', group)
    await alice.presses("Approve", group)
    await alice.hears(lambda text: text.endswith("Bought a boat for 9000 euros."), group)


async def test_slack_and_troubles_by_name(botlab: BotLab) -> None:
    alice = botlab.slack.person("Alice")
    general = botlab.slack.channel("general")
    botlab.trouble("cut")
    await alice.says("my name is Alice")
    await alice.hears("Nice to meet you, Alice.")
    botlab.trouble("none")
    thread = await alice.says("what is my name?", general)
    await alice.hears("I do not know your name yet.", general, thread=thread)
    botlab.claude.script(Say("As you like it."))
    await alice.says("and now?", general, thread=thread)
    await alice.hears("As you like it.", general, thread=thread)
    await botlab.quiet()
    assert alice.sees() == ["Nice to meet you, Alice."], "what was cut off came once"
    await alice.opens_home()
    assert "!reset" in await alice.reads_at_home(re.compile("What you can tell me"))
    await alice.presses_at_home("Reset direct messages")
    await alice.hears(re.compile("begin anew"))
    await alice.reads_at_home(re.compile("forgotten what we said in direct messages"))
    with pytest.raises(KeyError, match="no trouble 'fire'"):
        botlab.trouble("fire")


async def test_what_never_comes_is_told_with_all_that_was_said(botlab: BotLab) -> None:
    alice = botlab.telegram.person("Alice")
    await alice.says("my name is Alice")
    await alice.hears("Nice to meet you, Alice.")
    with pytest.raises(AssertionError) as failed:
        await alice.hears("Nice to meet you, Alice.", within=0.3)
    told = str(failed.value)
    assert told.startswith("never within 0.3 s: Alice hears 'Nice to meet you, Alice.'")
    assert "  Alice: my name is Alice\n" in told
    assert told.endswith("  bot in Alice: Nice to meet you, Alice.")
    await botlab.stop()
    assert "The bot is not running. Its last words:" in botlab.told()


async def test_a_bot_of_ones_own(tmp_path: Path) -> None:
    config = tmp_path / "mine.toml"
    config.write_text('[agent]\nname = "mine"\ninstructions = "You are mine."\n')
    async with BotLab(tmp_path, config, {"CHINWAG_ENGINE__WHEN_BUSY": "queue"}) as botlab:
        alice = botlab.telegram.person("Alice")
        await alice.says("hello")
        await alice.hears(re.compile("You said: “hello”"))
        (system,) = botlab.claude.requests[0]["system"]
        assert system["text"].startswith("You are mine.")


def test_below_a_failed_test_stands_what_was_said(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        async def test_it(botlab):
            alice = botlab.telegram.person("Alice")
            await alice.says("my name is Alice")
            await alice.hears("Nice to meet you, Alice.")
            assert 1 == 2
        """
    )
    options = ("asyncio_mode=auto", "asyncio_default_fixture_loop_scope=function")
    ran = pytester.runpytest_subprocess("-W", "error", *(f"-o{each}" for each in options))
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(
        ["*botlab: what was said*", "*Alice: my name is Alice", "*bot in Alice: Nice to meet you*"]
    )


def test_it_costs_nothing_where_it_is_not_used() -> None:
    program = (
        "import pytest, pytest_asyncio, sys; before = set(sys.modules); import playground.plugin;"
        "print(*sorted(set(sys.modules) - before))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert set(ran.stdout.split()) == {"playground", "playground.plugin"}
