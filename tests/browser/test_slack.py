"""The same person on Slack: threads, streams, buttons, commands, and what is promised there."""

from __future__ import annotations

import pytest
from playwright.async_api import Locator, expect

from playground.claude_answers import Say
from tests.browser.chromium import Seen

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

SLACK = "slack"
LONG = " ".join(f"word{number}" for number in range(1, 61))


def column(seen: Seen) -> Locator:
    return seen.page.locator("#slack")


async def test_a_conversation_and_its_reset(seen: Seen) -> None:
    await seen.say("my name is Alice", SLACK)
    await seen.hears("Nice to meet you, Alice.", SLACK)
    await seen.say("what is my name?", SLACK)
    await seen.hears("Your name is Alice.", SLACK)
    await column(seen).get_by_role("button", name="/chinwag reset").click()
    await expect(column(seen).locator(".row.bot")).to_have_count(3)
    await seen.say("what is my name?", SLACK)
    await seen.hears("I do not know your name yet.", SLACK)


async def test_two_threads_do_not_mix(seen: Seen) -> None:
    await seen.open_chat("general", SLACK)
    await seen.say("my name is Rose", SLACK)
    await seen.hears("Nice to meet you, Rose.", SLACK)
    await seen.say("what is my name?", SLACK)
    await seen.hears("I do not know your name yet.", SLACK)
    first = column(seen).locator(".row.person").first
    await first.hover()
    await first.get_by_role("button", name="Reply").click()
    await seen.say("what is my name?", SLACK)
    await seen.hears("Your name is Rose.", SLACK)
    # What belongs to the first thread stands there, though it was said last.
    assert await seen.texts(SLACK) == [
        "Nice to meet you, Rose.",
        "Your name is Rose.",
        "I do not know your name yet.",
    ]


async def test_a_button_lets_a_tool_run(seen: Seen) -> None:
    await seen.say('use buy with {"thing": "a boat", "euros": 9000}', SLACK)
    keys = column(seen).locator(".key")
    await expect(keys.first).to_be_visible()
    await keys.first.click()
    await seen.hears("The tool says: Bought a boat for 9000 euros.", SLACK)
    await expect(keys).to_have_count(0)


async def test_killed_in_a_thread_the_same_message_is_finished(seen: Seen) -> None:
    seen.lab.claude.script(Say(LONG, pause=0.2), Say(LONG, pause=0.01))
    await seen.open_chat("general", SLACK)
    await seen.say("tell me", SLACK)
    growing = column(seen).locator(".row.bot.draft .text")
    await expect(growing).to_contain_text("word8")
    begun = (await growing.inner_text()).strip()
    assert LONG.startswith(begun) and begun != LONG
    number = await column(seen).locator(".row.bot").get_attribute("data-id")
    await seen.page.get_by_role("button", name="kill -9").click()
    await seen.hears(LONG, SLACK)
    assert await seen.texts(SLACK) == [LONG]
    assert await column(seen).locator(".row.bot").get_attribute("data-id") == number
    await expect(growing).to_have_count(0)


async def test_markdown_is_shown(seen: Seen) -> None:
    seen.lab.claude.script(Say("**bold** and `code`\n\n- one\n- two\n\n<script>no</script>"))
    await seen.say("tell me", SLACK)
    text = column(seen).locator(".row.bot .text")
    await expect(text.locator("strong")).to_have_text("bold")
    await expect(text.locator("li")).to_have_count(2)
    await expect(text).to_contain_text("<script>no</script>")
