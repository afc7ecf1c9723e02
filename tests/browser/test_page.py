"""A person at the page, in a real browser: they talk, press, kill, and see what was promised."""

from __future__ import annotations

from io import BytesIO

import pytest
from PIL import Image
from playwright.async_api import FilePayload, expect

from playground.claude_answers import Say
from playground.troubles import TROUBLES
from tests.browser.chromium import Seen

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

LONG = " ".join(f"word{number}" for number in range(1, 61))


async def test_an_answer_is_seen_growing_before_it_is_there(seen: Seen) -> None:
    seen.lab.claude.script(Say(LONG, pause=0.06))
    await seen.say("tell me")
    draft = seen.telegram.locator(".draft .text")
    await draft.wait_for()
    first = (await draft.inner_text()).strip()
    assert first and LONG.startswith(first) and first != LONG
    await expect(draft).not_to_have_text(first)
    later = (await draft.inner_text()).strip()
    assert later.startswith(first) and len(later) > len(first)
    await seen.hears(LONG)
    await expect(draft).to_have_count(0)


async def test_it_knows_a_name_until_the_reset(seen: Seen) -> None:
    await seen.say("hello, my name is Alice")
    await seen.hears("Nice to meet you, Alice.")
    await seen.say("what is my name?")
    await seen.hears("Your name is Alice.")
    await seen.say("/reset")
    await expect(seen.telegram.locator(".row.bot")).to_have_count(3)
    await seen.say("what is my name?")
    await seen.hears("I do not know your name yet.")
    await seen.open_chat("Bob")
    await seen.say("what is my name?")
    await seen.hears("I do not know your name yet.")
    assert await seen.texts() == ["I do not know your name yet."]


async def test_two_topics_do_not_mix(seen: Seen) -> None:
    await seen.open_chat("Garden")
    await seen.say("my name is Rose")
    await seen.hears("Nice to meet you, Rose.")
    await seen.open_chat("Kitchen")
    assert await seen.texts() == []
    await seen.say("what is my name?")
    await seen.hears("I do not know your name yet.")
    await seen.open_chat("Garden")
    await seen.telegram.get_by_label("Write as").select_option("Bob")
    await seen.say("what is my name?")
    await seen.hears("Your name is Rose.")
    assert await seen.texts() == ["Nice to meet you, Rose.", "Your name is Rose."]


async def test_a_button_lets_a_tool_run(seen: Seen) -> None:
    await seen.say('use buy with {"thing": "a boat", "euros": 9000}')
    keys = seen.telegram.locator(".key")
    await expect(keys.first).to_be_visible()
    await keys.first.click()
    await seen.hears("The tool says: Bought a boat for 9000 euros.")
    await expect(keys).to_have_count(0)


async def test_stop_ends_what_grows(seen: Seen) -> None:
    seen.lab.claude.script(Say(LONG, pause=0.5))
    await seen.say("tell me")
    await seen.telegram.get_by_role("button", name="Stop").click()
    await expect(seen.telegram.locator(".draft")).to_have_count(0)
    await seen.say("what is my name?")
    await seen.hears("I do not know your name yet.")
    assert not any("word1" in text for text in await seen.texts())


async def test_killed_in_a_private_chat_one_message_comes(seen: Seen) -> None:
    seen.lab.claude.script(Say(LONG, pause=0.2), Say(LONG, pause=0.01))
    await seen.say("tell me")
    await seen.telegram.locator(".draft .text").wait_for()
    await seen.page.get_by_role("button", name="kill -9").click()
    await expect(seen.page.locator("#bot-state")).to_contain_text("killed 1×")
    await seen.hears(LONG)
    await expect(seen.telegram.locator(".draft")).to_have_count(0)
    assert await seen.texts() == [LONG]
    bad = seen.page.locator("#hops .hop.bad b")
    await expect(bad.get_by_text("bot.killed", exact=True)).to_have_count(1)


async def test_killed_in_a_group_the_same_message_is_finished(seen: Seen) -> None:
    seen.lab.claude.script(Say(LONG, pause=0.2), Say(LONG, pause=0.01))
    await seen.open_chat("Friends")
    await seen.say("tell me")
    message = seen.telegram.locator(".row.bot")
    # Once it has grown it is noted. Before, it could come twice: the one window there is.
    await expect(message.locator(".edits")).to_be_visible()
    number = await message.get_attribute("data-id")
    begun = (await message.locator(".text").inner_text()).strip()
    assert LONG.startswith(begun) and begun != LONG
    await seen.page.get_by_role("button", name="kill -9").click()
    await seen.hears(LONG)
    assert await seen.texts() == [LONG]
    assert await message.get_attribute("data-id") == number


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda each: each.name)
async def test_each_trouble_by_its_switch(seen: Seen, trouble: object) -> None:
    name = trouble.name  # type: ignore[attr-defined]
    times = trouble.times  # type: ignore[attr-defined]
    await seen.page.get_by_role("tab", name="Trouble").click()
    switch = seen.page.locator(f"#trouble-{name}")
    await switch.check()
    await expect(seen.page.locator("#trouble-count")).to_have_text("1")
    await seen.say("my name is Alice")
    promised = ["Nice to meet you, Alice."] * (2 if name == "cut" else 1)
    if name == "cut":
        await expect(seen.messages(promised[0])).to_have_count(2, timeout=20_000)
    await seen.hears(promised[0])
    if times is None:
        await switch.uncheck()
    await expect(switch).not_to_be_checked()
    await seen.say("what is my name?")
    await seen.hears("Your name is Alice.")
    assert await seen.texts() == [*promised, "Your name is Alice."]


async def test_the_inspector_tells_the_way_of_a_message(seen: Seen) -> None:
    await seen.say("my name is Alice")
    await seen.hears("Nice to meet you, Alice.")
    hops = seen.page.locator("#hops .hop b")
    await expect(hops.last).to_have_text("delivered")
    names = await hops.all_inner_texts()
    way = ["received", "accepted", "answered", "committed", "delivered"]
    assert [name for name in names if name in way] == way
    # The platform tells of it by itself, so it stands before or behind what the bot was doing.
    assert names.index("sendMessage") < names.index("delivered")
    await seen.page.locator("#hops .hop", has_text="asked").locator("summary").click()
    window = seen.page.locator("#hops .window li")
    await expect(window.last).to_contain_text("my name is Alice")
    await expect(window.last).to_contain_text("kept up to here")
    await seen.page.get_by_role("tab", name="Snapshot").click()
    snapshot = seen.page.locator("#snapshot")
    await expect(snapshot.locator(".json")).to_contain_text("Nice to meet you, Alice.")
    await expect(snapshot.locator(".changed li").first).to_be_visible()
    await seen.page.get_by_role("tab", name="Cost").click()
    await expect(seen.page.locator("#cost svg rect.money")).to_have_count(1)
    await expect(seen.page.locator("#cost svg").first).to_be_visible()


async def test_an_edit_and_a_reply(seen: Seen) -> None:
    await seen.open_chat("Friends")
    await seen.say("my name is Alice")
    await seen.hears("Nice to meet you, Alice.")
    mine = seen.telegram.locator(".row.person").first
    await mine.hover()
    await mine.get_by_role("button", name="Edit").click()
    await seen.say("my name is Alicia")
    await expect(mine.locator(".text")).to_have_text("my name is Alicia")
    await expect(mine.locator(".edits")).to_have_text("edited")
    theirs = seen.telegram.locator(".row.bot").first
    await theirs.hover()
    await theirs.get_by_role("button", name="Reply").click()
    await seen.say("how many messages?")
    await expect(seen.telegram.locator(".row.person").last.locator(".quote")).to_contain_text(
        "Nice to meet you, Alice."
    )


@pytest.mark.parametrize("platform", ["telegram", "slack"])
async def test_a_picture_is_sent_and_seen(seen: Seen, platform: str) -> None:
    column = seen.page.locator(f"#{platform}")
    await column.get_by_label("Message", exact=True).fill("look at this")
    picture = BytesIO()
    Image.new("RGB", (160, 90), "teal").save(picture, "PNG")
    await column.locator("input[type=file]").set_input_files(
        FilePayload(name="sea.png", mimeType="image/png", buffer=picture.getvalue())
    )
    image = column.locator(".row.person img")
    await expect(image).to_be_visible()
    assert await image.evaluate("each => each.decode().then(() => each.naturalWidth)") == 160
    await expect(column.locator(".row.person .text")).to_have_text("look at this")
    answer = column.locator(".row.bot")
    await expect(answer).to_contain_text("You said: “look at this")
    await expect(answer).to_contain_text("You sent 1 attachment.")


async def test_a_page_that_is_opened_anew_shows_the_same(seen: Seen) -> None:
    await seen.say("my name is Alice")
    await seen.hears("Nice to meet you, Alice.")
    await seen.page.reload()
    await seen.hears("Nice to meet you, Alice.")
    assert await seen.page.locator("#hops .hop").count() > 5
