"""The Chromium that is installed, and a page of the playground in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from playwright.async_api import (
    Browser,
    BrowserContext,
    Locator,
    Page,
    async_playwright,
    expect,
)

from playground.__main__ import people
from playground.feed import Feed
from playground.lab import Lab
from playground.serve import serving
from playground.show import Show
from playground.web import Web

TOKEN: Final = "of-the-test"
ARGUMENTS: Final = (
    "--no-sandbox",  # as root, and in containers, there is none
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS: Final = 20_000

expect.set_options(timeout=PATIENCE_MS)


def chromium() -> str | None:
    """Where it is; None: nowhere."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found:
            return found
    return None


def required() -> bool:
    """Whether the suite may not go on without it."""
    return "chromium" in os.environ.get("CHINWAG_REQUIRE", "").split(",")


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            await browser.close()


class Seen(NamedTuple):
    """One who looks at the page. `errors`: what the browser complained of."""

    lab: Lab
    url: str
    page: Page
    context: BrowserContext
    errors: list[str]

    @property
    def telegram(self) -> Locator:
        return self.page.locator("#telegram")

    async def open_chat(self, title: str, platform: str = "telegram") -> None:
        await self.page.locator(f"#{platform}").get_by_role("tab", name=title).click()

    async def say(self, text: str, platform: str = "telegram") -> None:
        box = self.page.locator(f"#{platform}").get_by_label("Message", exact=True)
        await box.fill(text)
        await box.press("Enter")

    def messages(self, text: str, platform: str = "telegram") -> Locator:
        """The bot's messages that say exactly this, in the open conversation."""
        rows = self.page.locator(f"#{platform} .row.bot:not(.draft) .text")
        return rows.get_by_text(text, exact=True)

    async def hears(self, text: str, platform: str = "telegram") -> None:
        await self.messages(text, platform).first.wait_for(timeout=PATIENCE_MS)

    async def texts(self, platform: str = "telegram") -> list[str]:
        """What the bot has said in the open conversation."""
        rows = self.page.locator(f"#{platform} .row.bot:not(.draft) .text")
        return await rows.all_inner_texts()


@asynccontextmanager
async def seeing(
    browser: Browser,
    folder: Path,
    *,
    pace: float = 0.0,
    real: dict[str, str] | None = None,
    start: bool = True,
    **context: Any,
) -> AsyncIterator[Seen]:
    """The playground, and somebody who looks at it.

    :param start: the bot, too
    :param context: of the browser: the size of its window, its colours
    """
    async with AsyncExitStack() as stack:
        lab = await stack.enter_async_context(Lab(folder, pace=pace))
        people(lab)
        show = Show(lab, Feed(), real=real is not None)
        stack.callback(show.close)
        web = Web(lab, show, TOKEN, real)
        url = f"{await stack.enter_async_context(serving(web.app))}/{TOKEN}/"
        if start:
            await lab.start()
        seer = await browser.new_context(**{"viewport": {"width": 1280, "height": 800}} | context)
        stack.push_async_callback(seer.close)
        page = await seer.new_page()
        page.set_default_timeout(PATIENCE_MS)
        errors: list[str] = []
        page.on(
            "console",
            lambda told: errors.append(told.text) if told.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "request",
            lambda asked: (
                None if asked.url.startswith((url, "blob:")) else errors.append(asked.url)
            ),
        )
        await page.goto(url)
        await page.wait_for_selector("body[data-ready]")
        yield Seen(lab, url, page, seer, errors)
        assert errors == [], "the browser complains, or asked somebody else"
