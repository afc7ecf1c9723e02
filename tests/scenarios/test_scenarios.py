"""Days of a bot, told with the test kit: two platforms at once, and the worst in the middle."""

from __future__ import annotations

import asyncio
import re

import pytest

from playground.botlab import BotLab
from playground.claude_answers import Say
from playground.troubles import NAMES

LONG = " ".join(f"word{number}" for number in range(1, 61))
GROWING = re.compile(r"^word1 (?!.*word60)")


async def test_one_bot_on_two_platforms_and_nobody_hears_what_others_said(botlab: BotLab) -> None:
    ada, bob = botlab.telegram.person("Ada"), botlab.slack.person("Bob")
    group = botlab.telegram.group("Friends", ada)
    general = botlab.slack.channel("general")
    await ada.says("my name is Ada")
    await bob.says("my name is Bob")
    await ada.hears("Nice to meet you, Ada.")
    await bob.hears("Nice to meet you, Bob.")
    await ada.says("what is my name?", group)
    thread = await bob.says("what is my name?", general)
    await ada.hears("I do not know your name yet.", group)
    await bob.hears("I do not know your name yet.", general, thread=thread)
    await ada.says("what is my name?")
    await bob.says("what is my name?")
    await ada.hears("Your name is Ada.")
    await bob.hears("Your name is Bob.")
    await botlab.quiet()
    asked = [str(request["messages"]) for request in botlab.claude.requests]
    assert not [each for each in asked if "Ada" in each and "Bob" in each]


async def test_a_reset_is_for_one_conversation_and_for_good(botlab: BotLab) -> None:
    ada = botlab.telegram.person("Ada")
    group = botlab.telegram.group("Friends", ada)
    for place in (None, group):
        await ada.says("my name is Ada", place)
        await ada.hears("Nice to meet you, Ada.", place)
    await ada.says("/reset")
    await ada.hears(re.compile("forgotten|anew|fresh", re.IGNORECASE))
    await botlab.kill()
    await ada.says("what is my name?")
    await ada.hears("I do not know your name yet.")
    await ada.says("what is my name?", group)
    await ada.hears("Your name is Ada.", group)


async def test_killed_again_and_again_while_it_speaks(botlab: BotLab) -> None:
    """In a group and in a thread the message that is there is finished; nothing comes twice."""
    ada, bob = botlab.telegram.person("Ada"), botlab.slack.person("Bob")
    group, general = botlab.telegram.group("Friends", ada), botlab.slack.channel("general")
    for _ in range(2 * 3):
        botlab.claude.script(Say(LONG, pause=0.08))
    await ada.says("tell me", group)
    thread = await bob.says("tell me", general)
    # Telegram cannot be asked what stands there: a message that nobody has noted yet comes twice.
    # One that grows has been noted.
    await ada.hears(GROWING, group)
    for _ in range(2):
        await ada.hears(GROWING, group)
        await bob.hears(GROWING, general, thread=thread)
        await botlab.kill()
    await ada.hears(LONG, group)
    await bob.hears(LONG, general, thread=thread)
    await botlab.quiet()
    assert ada.sees(group) == [LONG]
    assert bob.sees(general) == [LONG]


async def test_what_is_edited_while_it_waits_is_answered_as_it_reads(botlab: BotLab) -> None:
    ada = botlab.telegram.person("Ada")
    botlab.claude.script(Say(LONG, pause=0.03))
    await ada.says("tell me")
    async with asyncio.timeout(10):
        while not botlab.claude.requests:  # noqa: ASYNC110 (another process asks)
            await asyncio.sleep(0.01)
    waiting = await ada.says("my name is Eda")
    await ada.edits(waiting, "my name is Ada")
    await ada.hears(LONG)
    await ada.hears("Nice to meet you, Ada.")
    await botlab.quiet()
    assert len(ada.sees()) == 2


@pytest.mark.parametrize("name", NAMES)
async def test_each_trouble_and_its_promise(botlab: BotLab, name: str) -> None:
    """Whatever goes wrong on the way, it is answered, and once."""
    ada, bob = botlab.telegram.person("Ada"), botlab.slack.person("Bob")
    botlab.trouble(name)
    await ada.says("my name is Ada")
    await ada.hears("Nice to meet you, Ada.", within=40)
    botlab.trouble(name)
    await bob.says("my name is Bob")
    await bob.hears("Nice to meet you, Bob.", within=40)
    botlab.trouble("none")
    await botlab.quiet()
    # What left and was cut off may have arrived: on Telegram nobody can look.
    most = 2 if name == "cut" else 1
    assert 1 <= ada.sees().count("Nice to meet you, Ada.") <= most
    assert bob.sees().count("Nice to meet you, Bob.") == 1
