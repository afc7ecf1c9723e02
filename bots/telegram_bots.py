"""The Telegram bots that the settings name, as adapters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from bots.sections import TelegramKeys
from bots.settings import Settings
from core.clock import Clock
from core.errors import ConfigError

if TYPE_CHECKING:
    from bots.telegram.adapter import TelegramAdapter
    from bots.telegram.webhook import Webhook

PATH: Final = "/telegram"  # of the one bot; of others with their account behind it
A_SECRET: Final = 'python3 -c "import secrets; print(secrets.token_urlsafe(32))"'


def telegram_bots(settings: Settings, clock: Clock) -> Iterator[TelegramAdapter]:
    """
    :raises ConfigError: a bot is to have a webhook, and something that it needs is not set
    """
    bots = settings.telegram.each()
    if not bots:
        return
    from bots.telegram.adapter import TelegramAdapter
    from bots.telegram.writing import Called

    for bot in bots:
        assert bot.token is not None
        yield TelegramAdapter(
            bot.token.get_secret_value(),
            base_url=bot.base_url,
            account=bot.account,
            scope=bot.scope,
            called=Called(bot.names, hears_all(settings)),
            streaming=bot.streaming,
            file_above=bot.file_above_parts if bot.long_answers == "file" else 0,
            webhook=webhook_of(bot, settings),
            poll_timeout=bot.poll_timeout,
            max_file_bytes=bot.max_file_mb << 20,
            clock=clock,
        )


def hears_all(settings: Settings) -> bool:
    """Whether what is not said to a bot is of any use to it."""
    return settings.memory.unaddressed > 0 or "mention" in settings.agent.chat_settings


def path_of(bot: TelegramKeys) -> str:
    return PATH if bot.account is None else f"{PATH}/{bot.account}"


def webhook_of(bot: TelegramKeys, settings: Settings) -> Webhook | None:
    """None: it polls.

    :raises ConfigError: something that a webhook needs is not set
    """
    if bot.mode == "polling":
        return None
    from bots.telegram.webhook import Webhook

    needs = '[telegram] mode = "webhook" needs'
    if settings.http.port is None or settings.http.public_url is None:
        raise ConfigError(f"{needs} [http] port and public_url; docs/telegram.md has it")
    if settings.telegram.webhook_secret is None:
        raise ConfigError(
            f"{needs} TELEGRAM_WEBHOOK_SECRET in .env or the environment; {A_SECRET} makes one"
        )
    return Webhook(
        public_url=settings.http.public_url,
        path=path_of(bot),
        secret=settings.telegram.webhook_secret.get_secret_value(),
        max_connections=bot.max_connections,
    )
