"""The part of `chinwag check` that looks at Telegram: token, privacy, webhook, clock, our door.

It never asks for updates. Of two who do, the one that asked first is turned away, so a look for a
second poller in that way would end the bot that runs, or somebody else's. That there is one is
known from a run that it has ended, which left a note.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from bots.doctor import CONFIG, PLATFORM, Finding
from bots.refusals import Refusal
from bots.sections import TelegramKeys
from bots.settings import Settings
from bots.telegram_bots import webhook_of
from core.errors import ConfigError

if TYPE_CHECKING:
    from telegram import User, WebhookInfo

    from bots.telegram.webhook import Webhook

PATIENCE: Final = 10.0  # seconds for each question
MOST_APART: Final = 60.0  # seconds; tokens of TLS and dates of messages bear no more
RECENT: Final = timedelta(days=1)
PORTS: Final = (None, 80, 88, 443, 8443)  # that Telegram brings updates to
OFFICIAL: Final = "api.telegram.org"


async def look(settings: Settings, refusals: dict[str, Refusal]) -> AsyncIterator[Finding]:
    """
    :param refusals: how the last runs were ended, by the names of their adapters
    """
    for bot in settings.telegram.each():
        name = "telegram" if bot.account is None else f"telegram@{bot.account}"
        try:
            webhook = webhook_of(bot, settings)
        except ConfigError as error:
            yield _wrong(str(error), CONFIG, "set it; docs/telegram.md has an example")
            webhook = None
        async for finding in _bot(bot, webhook):
            yield finding
        if refusal := refusals.get(name):
            yield _refusal(refusal)
        if webhook is not None:
            for problem in _address(webhook, bot.base_url):
                yield problem
            yield await _door(webhook)


async def _bot(section: TelegramKeys, webhook: Webhook | None) -> AsyncIterator[Finding]:
    from telegram import Bot
    from telegram.error import InvalidToken, TelegramError
    from telegram.request import HTTPXRequest

    dates: list[str | None] = []

    async def note(response: Any) -> None:
        dates.append(response.headers.get("date"))

    assert section.token is not None
    bot = Bot(
        section.token.get_secret_value(),
        base_url=f"{section.base_url}/bot",
        request=HTTPXRequest(
            connect_timeout=PATIENCE,
            read_timeout=PATIENCE,
            httpx_kwargs={"event_hooks": {"response": [note]}},
        ),
    )
    try:
        async with bot:  # asks who the bot is
            yield _who(bot.bot, section.account)
            info = await bot.get_webhook_info()
            yield _polling(info) if webhook is None else _webhook(info, webhook)
    # Their texts are left out: one of them holds the token.
    except InvalidToken:
        cure = "copy it anew from @BotFather (/mybots, API Token) into TELEGRAM_BOT_TOKEN"
        if section.account is not None:
            cure = cure.replace("TELEGRAM_BOT_TOKEN", f"the token_env of {section.account}")
        yield _wrong("the token is not valid", PLATFORM, cure)
    except TelegramError as error:
        text = f"no answer from {section.base_url} ({type(error).__name__})"
        yield _wrong(text, PLATFORM, "try again; look at network and base_url")
    apart = _apart(dates[-1] if dates else None)
    if apart is not None and abs(apart) > MOST_APART:
        text = f"this machine's clock is {abs(apart):.0f} s {'fast' if apart > 0 else 'slow'}"
        yield _wrong(text, PLATFORM, "set the clock, and keep it set (NTP)")


def _well(text: str, hint: str = "") -> Finding:
    return Finding("telegram", True, text, cure=hint)


def _wrong(text: str, code: int, cure: str) -> Finding:
    return Finding("telegram", False, text, code, cure)


def _who(me: User, account: str | None) -> Finding:
    hears = (
        "reads every message of its groups"
        if me.can_read_all_group_messages
        else "in groups hears commands, replies and mentions alone (privacy mode: docs/telegram.md)"
    )
    joins = "" if me.can_join_groups else "; cannot be added to groups (/setjoingroups)"
    named = f"{account}: " if account else ""
    return _well(f"{named}@{me.username}, id {me.id}; {hears}{joins}")


def _polling(info: WebhookInfo) -> Finding:
    if not info.url:
        return _well(f"no webhook in the way{_waiting(info)}")
    # Some put the token into the path.
    text = f"a webhook is set, to {urlsplit(info.url).hostname}: it gets the messages, not we"
    cure = "`chinwag run` takes it away; is it in use: stop that, or set [telegram] mode"
    return _wrong(text, PLATFORM, cure)


def _webhook(info: WebhookInfo, ours: Webhook) -> Finding:
    host = urlsplit(ours.url).hostname
    if not info.url:
        return _well(f"no webhook is set{_waiting(info)}", "`chinwag run` sets it")
    if info.url != ours.url:
        text = f"the webhook is another one, to {urlsplit(info.url).hostname}"
        cure = "`chinwag run` replaces it; whoever uses it now must be stopped"
        return _wrong(text, PLATFORM, cure)
    failed = info.last_error_date
    if failed is not None and (info.pending_update_count or _is_recent(failed)):
        text = f"Telegram could not reach {host} at {failed:%H:%M} UTC: {info.last_error_message}"
        return _wrong(text + _waiting(info), PLATFORM, _cure_of(info.last_error_message or ""))
    return _well(f"the webhook is set, to {host}{_waiting(info)}")


def _cure_of(message: str) -> str:
    """What to look at, by what Telegram says."""
    for sign, cure in _CURES.items():
        if sign in message.lower():
            return cure
    return "is the bot running? docs/telegram.md has how a proxy is set up"


_CURES: Final = {
    "403": "the bot was started with another TELEGRAM_WEBHOOK_SECRET: start it again",
    "404": "the proxy must pass the path of [http] public_url on to [http] port",
    "405": "the proxy must pass POST on",
    "503": "the bot could not store it, and gets it again: look into its log",
    "502": "the proxy does not reach [http] port: is the bot running?",
    "ssl": "the certificate must be valid, with all that lies between it and its root",
    "certificate": "the certificate must be valid, with all that lies between it and its root",
    "resolve": "the name of [http] public_url must be known to the world",
}


def _waiting(info: WebhookInfo) -> str:
    count = info.pending_update_count
    return f"; {count} update{'' if count == 1 else 's'} waiting at Telegram" if count else ""


def _is_recent(at: datetime) -> bool:
    return datetime.now(UTC) - at < timedelta(hours=1)


def _refusal(refusal: Refusal) -> Finding:
    at = datetime.fromtimestamp(refusal.at / 1000, UTC)
    if datetime.now(UTC) - at > RECENT:
        return _well(f"Telegram ended a run on {at:%d %B}, not since")
    text = f"the last run was ended at {at:%H:%M} UTC: {refusal.why}"
    return _wrong(text, PLATFORM, "only one process may use a token; stop the other one")


def _apart(date: str | None) -> float | None:
    """Seconds that our clock is before theirs; None when they do not say."""
    try:
        theirs = parsedate_to_datetime(date or "")
    except ValueError:
        return None
    return (datetime.now(UTC) - theirs.replace(tzinfo=UTC)).total_seconds()


def _address(webhook: Webhook, base_url: str) -> Iterator[Finding]:
    """What Telegram itself would refuse; a Bot API server of one's own takes more."""
    if urlsplit(base_url).hostname != OFFICIAL:
        return
    parts = urlsplit(webhook.url)
    if parts.scheme != "https":
        cure = "set it to https://...; a reverse proxy does TLS"
        yield _wrong("[http] public_url: Telegram comes by https alone", CONFIG, cure)
    if parts.port not in PORTS:
        cure = "put it behind one of these; 443 needs not be named"
        yield _wrong(
            f"[http] public_url: Telegram comes to 443, 80, 88 and 8443, not to {parts.port}",
            CONFIG,
            cure,
        )


async def _door(webhook: Webhook) -> Finding:
    """Asks the public URL as Telegram does, but for its being no update: a bot that runs says 405
    to that, and takes no note of it."""
    import aiohttp

    host = urlsplit(webhook.url).netloc
    timeout = aiohttp.ClientTimeout(PATIENCE)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
            session.get(webhook.url, allow_redirects=False) as answer,
        ):
            status = answer.status
    except aiohttp.ClientSSLError as error:
        text = f"{host}: its certificate is not valid ({type(error).__name__})"
        return _wrong(text, PLATFORM, _CURES["certificate"])
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        text = f"{host} does not answer from here ({type(error).__name__})"
        return _well(text, "right while neither bot nor proxy runs")
    if status == 405:
        return _well(f"{host} leads to a bot that runs")
    text = f"{host} answers {status} where the webhook is to be"
    return _well(text, "right while the bot does not run; docs/telegram.md has the proxy")
