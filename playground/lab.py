"""Everything that a bot needs to be tried, on this machine: the platforms, the model, the bot.

    async with Lab(folder) as lab:
        await lab.start()
        alice = lab.telegram.person("Alice")
        lab.telegram.write(alice, "hello")
        await lab.kill()

The page (`playground.web`) shows one, and tests use one (`playground.botlab`). It tells its
listeners what happens, hop by hop; it decides nothing.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self

from playground.bot import Bot
from playground.claude import Claude
from playground.demo import write_demo
from playground.slack import Slack
from playground.telegram import Telegram
from playground.troubles import Troubles

Json = dict[str, Any]
Listener = Callable[[str, Json], None]

PATIENCE_SECONDS: Final = 30.0
# Only for this machine, and gone with the run; the form is that of real ones.
_BOT_ID: Final = 123456


class Lab:
    """
    :param folder: of the bot, where its database is
    :param config: the bot's config; None: the bot of `playground.demo`, written into the folder
    :param pace: seconds before each word that the stand-in for Claude says
    :param more: further variables of the bot, above all others
    """

    def __init__(
        self,
        folder: Path,
        *,
        config: Path | None = None,
        pace: float = 0.0,
        more: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.more = dict(more or {})
        # `what` is bot (a line of its log), trouble, or where something happened: telegram, slack,
        # claude.
        self.listeners: list[Listener] = []
        self.telegram = Telegram(f"{_BOT_ID}:{secrets.token_urlsafe(26)}")
        self.slack = Slack(
            f"xoxb-1000000000-2000000000-{secrets.token_hex(12)}",
            app_token=f"xapp-1-A0PLAYGRND1-3000000000-{secrets.token_hex(12)}",
        )
        self.claude = Claude(pace=pace)
        self.troubles = Troubles(
            self.telegram, self.slack, self.claude, lambda: self.tell("trouble", {})
        )
        # Set these to have the real model answer: see `web`.
        self.real_model: dict[str, str] | None = None
        self.bot = Bot(folder, self._environ, lambda event: self.tell("bot", event), config)
        self._has_config = config is not None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        if not self._has_config and not (self.folder / "config.toml").exists():
            write_demo(self.folder)
        await self._stack.enter_async_context(self.telegram)
        await self._stack.enter_async_context(self.slack)
        await self._stack.enter_async_context(self.claude)
        self.telegram.listeners.append(lambda *happened: self._heard("telegram", *happened))
        self.slack.listeners.append(lambda *happened: self._heard("slack", *happened))
        self.claude.listeners.append(lambda asked: self.tell("claude", {"asked": asked}))
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.bot.stop()
        except TimeoutError:
            await self.bot.kill()
        finally:
            await self._stack.aclose()

    @property
    def listens(self) -> bool:
        """The bot hears of whatever people do, on each platform."""
        return self.telegram.polled and self.slack.connected

    async def start(self, *arguments: str, failpoint: str | None = None) -> None:
        """The bot runs, and listens.

        :raises RuntimeError: it ended instead; the text has its last words
        """
        await self.bot.start(*arguments, failpoint=failpoint)
        await self.until(lambda: self.listens or self.bot.pid is None, "the bot listens")
        if self.bot.pid is None and failpoint is None:
            with suppress(TimeoutError):
                await self.bot.exited()
            raise RuntimeError(f"the bot ended with code {self.bot.code}:\n{self.bot.log()}")

    async def kill(self, *, restart: bool = True) -> None:
        """kill -9, and start it again."""
        await self.bot.kill()
        # Its last long poll is still noticed as open for a moment.
        await self.until(
            lambda: not (self.telegram.polled or self.slack.connected), "the lines break"
        )
        if restart:
            await self.start()

    async def until(
        self, done: Callable[[], bool], what: str, timeout: float = PATIENCE_SECONDS
    ) -> None:
        """Wait until it holds, asked anew whenever something happens.

        :raises TimeoutError: it never does; says `what`
        """
        changed = asyncio.Event()

        def happened(_: str, __: Json) -> None:
            changed.set()

        self.listeners.append(happened)
        try:
            async with asyncio.timeout(timeout):
                while not done():
                    # What ends a poll, or a process, may be no event of its own.
                    with suppress(TimeoutError):
                        await asyncio.wait_for(changed.wait(), 0.05)
                    changed.clear()
        except TimeoutError:
            raise TimeoutError(f"after {timeout:g} s, never: {what}") from None
        finally:
            self.listeners.remove(happened)

    def tell(self, what: str, event: Json) -> None:
        """Everybody who listens hears of it, with the time in seconds since 1970."""
        for listener in list(self.listeners):
            listener(what, {"at": time.time()} | event)

    def _heard(self, where: str, event: str, details: Json) -> None:
        if event == "fault":
            self.troubles.settle()
        self.tell(where, {"event": event} | details)

    def _environ(self) -> dict[str, str]:
        model = self.real_model or {
            "ANTHROPIC_API_KEY": "sk-ant-" + "of-the-playground",
            "ANTHROPIC_BASE_URL": self.claude.url,
        }
        return {
            "TELEGRAM_BOT_TOKEN": self.telegram.token,
            "CHINWAG_TELEGRAM__BASE_URL": self.telegram.url,
            "CHINWAG_TELEGRAM__MODE": "polling",  # whatever its config says: nobody comes to it
            "CHINWAG_TELEGRAM__POLL_TIMEOUT": "20",
            "SLACK_BOT_TOKEN": self.slack.token,
            "SLACK_APP_TOKEN": self.slack.app_token,
            "CHINWAG_SLACK__BASE_URL": f"{self.slack.url}/api",
            "CHINWAG_STORE__URL": f"sqlite:{(self.folder / 'playground.db').absolute()}",
            "CHINWAG_ACCESS__OPEN": "true",
            "CHINWAG_ACCESS__MESSAGES_PER_MINUTE": "10000",
            **model,
            **self.more,
        }
