"""The pictures of docs/images, made anew: python -m tests.browser.shots (make images).

Not a test: whoever changes the page looks at them.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.async_api import Browser, expect

from playground.claude_answers import Say
from tests.browser.chromium import Seen, browsing, seeing

FOLDER: Final = Path(__file__).parents[2] / "docs" / "images"
STORY: Final = (
    "The tide comes in twice a day because the moon pulls the water on **both** sides of the "
    "earth: it tugs the near ocean towards itself, and tugs the earth away from the far one. As "
    "the earth turns below, a coast passes through each of the two bulges, about *twelve and a "
    "half hours* apart. The sun pulls too, half as strongly; when both pull along one line, at "
    "new and at full moon, the tide is highest, and we call it a spring tide."
)


async def killed_while_it_speaks(seen: Seen) -> None:
    """A bot that was killed in a group and in a thread, and finishes what had begun in both."""
    seen.lab.claude.script(*[Say(STORY, pause=0.09)] * 2, *[Say(STORY, pause=0.035)] * 2)
    narrow = not await seen.page.locator("#slack").is_visible()
    places = ["telegram"] if narrow else ["slack", "telegram"]
    for platform in places:
        await seen.open_chat("Friends" if platform == "telegram" else "general", platform)
        await seen.say("Why does the tide come in twice a day?", platform)
    await expect(seen.telegram.locator(".row.bot .edits")).to_be_visible()
    await seen.page.get_by_role("button", name="kill -9").click()
    await expect(seen.page.locator("#bot-state")).to_contain_text("running")
    for platform in places:
        said = seen.page.locator(f"#{platform} .row.bot .text")
        await expect(said).to_contain_text("spring tide")
        await expect(seen.page.locator(f"#{platform} .row.bot.draft")).to_have_count(0)
    await expect(seen.page.locator("#hops .hop b").last).to_have_text("delivered")
    killed = seen.page.locator("#hops .hop", has_text="bot.killed")
    await killed.evaluate("each => each.scrollIntoView({ block: 'center' })")


async def picture(browser: Browser, name: str, scheme: str, width: int, height: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        size = {"width": width, "height": height}
        async with seeing(
            browser, Path(folder), color_scheme=scheme, viewport=size, pace=0.02
        ) as seen:
            await killed_while_it_speaks(seen)
            await seen.page.mouse.move(5, 5)
            await shot(seen, name)
            if width > 1000 and scheme == "light":
                for tab in ("Cost", "Trouble", "Snapshot"):
                    await seen.page.get_by_role("tab", name=tab).click()
                    await shot(seen, f"{name}-{tab.lower()}")


async def shot(seen: Seen, name: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / f"{name}.png"
    await seen.page.screenshot(path=file)
    # A page has few colours: with so many the file is a third as large.
    Image.open(file).convert("RGB").quantize(200, Image.Quantize.MAXCOVERAGE).save(
        file, optimize=True
    )


async def main() -> None:
    async with browsing() as browser:
        await picture(browser, "playground", "light", 1280, 760)
        await picture(browser, "playground-dark", "dark", 1280, 760)
        await picture(browser, "playground-narrow", "light", 390, 760)


if __name__ == "__main__":
    asyncio.run(main())
