"""How the page looks and behaves, whoever looks: sizes, colours, keys, and very many messages."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import Browser, expect

from playground.troubles import NAMES
from tests.browser.chromium import Seen, seeing

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

# Of every element with a text of its own: what is read, and how far it stands out (WCAG 1.4.3).
CONTRASTS = """
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parse = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => top.slice(0, 3).map((c, i) => c * top[3] + below[i] * (1 - top[3]));
  const ground = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) {
      layers.unshift(parse(getComputedStyle(each).backgroundColor));
    }
    return layers.reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((c) => {
      c /= 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    const style = getComputedStyle(element);
    if (!own || !element.checkVisibility({ opacityProperty: true })) continue;
    if (style.color === "transparent") continue;
    const svg = element instanceof SVGElement;
    const below = ground(element);
    const text = over(parse(svg ? style.fill : style.color), below);
    const [a, b] = [light(text), light(below)].sort((x, y) => y - x);
    const name = `${element.tagName}.${element.getAttribute("class") ?? ""}`;
    found.push([`${name}: ${element.textContent.trim().slice(0, 40)}`, (a + 0.05) / (b + 0.05)]);
  }
  return found;
}
"""


async def talked(seen: Seen) -> None:
    """Something of everything is to be seen."""
    await seen.say("my name is Alice")
    await seen.hears("Nice to meet you, Alice.")
    await seen.say('use buy with {"thing": "a boat", "euros": 9000}')
    await expect(seen.telegram.locator(".key").first).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_text_stands_out(
    browser: Browser, tmp_path: Path, scheme: Literal["light", "dark"]
) -> None:
    async with seeing(browser, tmp_path, color_scheme=scheme) as seen:
        await talked(seen)
        await seen.lab.kill()
        read = 0
        for tab in ("Hops", "Snapshot", "Cost", "Trouble"):
            await seen.page.get_by_role("tab", name=tab).click()
            if tab == "Trouble":
                await seen.page.locator(f"#trouble-{NAMES[0]}").check()
                await expect(seen.page.locator("#trouble-count")).to_be_visible()
            found = await seen.page.evaluate(CONTRASTS)
            read += len(found)
            assert [each for each in found if each[1] < 4.5] == []
        assert read > 150
        assert await seen.page.evaluate("getComputedStyle(document.body).colorScheme") != ""


@pytest.mark.parametrize("width", [1280, 390])
async def test_nothing_is_wider_than_the_window(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    async with seeing(browser, tmp_path, viewport={"width": width, "height": 740}) as seen:
        await talked(seen)
        await seen.page.get_by_role("button", name="kill -9").click()
        await expect(seen.page.locator("#bot-state")).to_contain_text("killed 1×")
        assert await seen.page.evaluate("document.documentElement.scrollWidth") == width
        send = await seen.telegram.get_by_role("button", name="Send").bounding_box()
        assert send is not None and send["x"] + send["width"] <= width
        inspector = seen.page.locator("#inspector")
        if width == 390:
            await expect(inspector).to_be_hidden()
            await seen.page.locator("nav.views").get_by_text("Inspector").click()
            await expect(seen.telegram).to_be_hidden()
        await expect(inspector).to_be_visible()
        assert await seen.page.evaluate("document.documentElement.scrollWidth") == width


async def test_all_by_keys(browser: Browser, tmp_path: Path) -> None:
    async with seeing(browser, tmp_path) as seen:
        page = seen.page

        async def tab_to(wanted: str) -> None:
            for _ in range(40):
                await page.keyboard.press("Tab")
                focused = await page.evaluate(
                    "document.activeElement.getAttribute('aria-label')"
                    " ?? document.activeElement.textContent"
                )
                if focused == wanted:
                    return
            raise AssertionError(f"{wanted!r} cannot be reached by Tab")

        await tab_to("Alice")
        await page.keyboard.press("ArrowRight")
        await expect(seen.telegram.get_by_role("tab", name="Bob")).to_be_focused()
        await tab_to("Message")
        await page.keyboard.type("my name is Bob")
        await page.keyboard.press("Enter")
        await seen.hears("Nice to meet you, Bob.")
        await tab_to("Hops")
        await page.keyboard.press("End")
        switch = page.locator(f"#trouble-{NAMES[0]}")
        await expect(page.get_by_role("tab", name="Trouble")).to_be_focused()
        while not await switch.evaluate("each => each === document.activeElement"):
            await page.keyboard.press("Tab")
        await page.keyboard.press("Space")
        await expect(switch).to_be_checked()
        # Whoever switches keeps their place, though the list is drawn anew.
        await expect(switch).to_be_focused()
        assert (
            await page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        )


@pytest.mark.timeout(180)
async def test_ten_thousand_messages(browser: Browser, tmp_path: Path) -> None:
    async with seeing(browser, tmp_path, start=False) as seen:
        telegram = seen.lab.telegram
        alice = telegram.chats[0].person
        assert alice is not None
        for number in range(10_000):
            telegram.write(alice, f"message {number}, with some words to fill a line or two of it")
        await seen.page.reload()
        await seen.page.wait_for_selector("body[data-ready]")
        log, rows = seen.telegram.locator(".log"), seen.telegram.locator(".row")
        # Somebody reads all of it, to the first.
        count = 0
        async with asyncio.timeout(90):
            while count < 10_000:
                await log.evaluate("each => { each.scrollTop = 0; }")
                await expect(rows).not_to_have_count(count)
                count = await rows.count()
        await expect(rows.first.locator(".text")).to_contain_text("message 0,")
        await log.evaluate("each => { each.scrollTop = each.scrollHeight; }")
        took = []
        for number in range(9):
            shown = asyncio.create_task(seen.page.evaluate(PAINTED, f"now {number}"))
            await seen.page.evaluate("window.watched")
            begun = time.time()
            telegram.write(alice, f"now {number}")
            took.append((await shown) / 1000 - begun)
        assert statistics.median(took) <= 0.1, took


# When a message of this text has been painted, in ms since 1970.
PAINTED = """
(text) => new Promise((resolve) => {
  const rows = document.querySelector("#telegram .rows");
  const watch = new MutationObserver(() => {
    if (!rows.lastElementChild.textContent.includes(text)) return;
    watch.disconnect();
    const now = () => performance.timeOrigin + performance.now();
    requestAnimationFrame(() => setTimeout(() => resolve(now())));
  });
  watch.observe(rows, { childList: true, subtree: true });
  window.watched = true;
})
"""
