"""`chinwag check`: looks at everything a start depends on, and says what to do about each.

It reads the database without a lock, beside a running bot, and asks the platforms and the model a
cheap question each. It repairs nothing, sends no message, and never asks for updates: that would
take them away from the bot.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

from bots.models import build_client
from bots.plugins import load_adapter, load_transcriber
from bots.refusals import Refusal, read
from bots.retention import build_rules
from bots.roles import check_roles
from bots.secrets import redacting
from bots.sections import AnthropicSection, OpenAISection
from bots.settings import Settings
from bots.spending import budget_lines
from bots.stores import store_of
from bots.tools import mcp_servers, tools_at, unknown_names
from core import access
from core.agent import Agent
from core.errors import CannotUnseal, ConfigError, StoreEmpty, StoreError
from core.gate import OWNER
from core.mcp import Servers
from core.tools import Tool

CONFIG, STORE, PLATFORM, MODEL = 2, 3, 4, 5  # exit codes
_PATIENCE: Final = 10.0  # seconds for each question


class Finding(msgspec.Struct, frozen=True):
    """
    :param what: what was looked at, in a word
    :param exit_code: of a failure: 2 config, 3 database, 4 platform, 5 model; else 0
    :param cure: what to do: of a failure always, of what is well when it could be better
    """

    what: str
    ok: bool
    text: str
    exit_code: int = 0
    cure: str = ""


def _well(what: str, text: str, hint: str = "") -> Finding:
    return Finding(what, True, text, cure=hint)


def _wrong(what: str, text: str, code: int, cure: str) -> Finding:
    return Finding(what, False, text, code, cure)


async def check(
    settings: Settings, config_path: Path | None = None, only: str | None = None
) -> list[Finding]:
    """
    :param config_path: the config file, when one was named
    :param only: the one platform to look at, ``telegram`` or ``slack``; None: at everything
    """
    found = (
        await _everything(settings, config_path)
        if only is None
        else [
            *_config(settings, config_path),
            *[finding async for finding in _PLATFORMS[only](settings)],
        ]
    )
    redact = redacting(settings.secrets())
    return [
        msgspec.structs.replace(each, text=redact(each.text), cure=redact(each.cure))
        for each in found
    ]


async def _everything(settings: Settings, config_path: Path | None) -> list[Finding]:
    return [
        *_config(settings, config_path),
        *[finding async for finding in _tools(settings)],
        *[finding async for finding in _store(settings)],
        *[finding async for finding in _engine(settings)],
        *[finding async for finding in _telegram(settings)],
        *[finding async for finding in _slack(settings)],
        await _model(settings, settings.agent.model),
        *[await _model(settings, other) for other in (settings.agent.fallback,) if other],
    ]


def exit_code(findings: Iterable[Finding]) -> int:
    """The first kind that failed, in the order 2, 3, 4, 5; 0 when nothing did."""
    return min((finding.exit_code for finding in findings if not finding.ok), default=0)


def render(findings: Iterable[Finding]) -> str:
    """A table: a mark, what was looked at, what was found, and below it what to do."""
    lines = []
    for finding in findings:
        mark = "✗" if not finding.ok else "!" if finding.cure else "✓"
        lines.append(f"{mark} {finding.what:<9} {finding.text}")
        if finding.cure:
            lines.append(f"{'':<11} → {finding.cure}")
    return "\n".join(lines)


# --- config -----------------------------------------------------------------------------------


def _config(settings: Settings, config_path: Path | None) -> Iterator[Finding]:
    path = config_path or settings.path
    yield _well("config", str(path) if path else "no config.toml; defaults and variables hold")
    dotenv = settings.folder / ".env"
    with suppress(OSError):
        if dotenv.stat().st_mode & 0o077:
            yield _well("config", f"{dotenv} can be read by others", f"chmod 600 {dotenv}")
    for name, section in settings.adapters.items():
        try:
            load_adapter(name, section.use, section.options, settings.folder)
            yield _well("adapter", name)
        except ConfigError as error:
            yield _wrong("adapter", str(error), CONFIG, f"correct [adapters.{name}], or its file")
    if place := settings.media.transcriber:
        try:
            load_transcriber(place, settings.folder)
            yield _well("media", place)
        except ConfigError as error:
            yield _wrong("media", str(error), CONFIG, "correct [media] transcriber, or the file")
    yield from _budget(settings)
    yield from _retention(settings)
    if not (settings.telegram.each() or settings.slack.is_used or settings.adapters):
        hint = "set TELEGRAM_BOT_TOKEN in .env; `chinwag chat` works without"
        yield _well("config", "no platform is configured", hint)


def _budget(settings: Settings) -> Iterator[Finding]:
    try:
        lines = budget_lines(settings)
    except ConfigError as error:
        yield _wrong("budget", str(error), CONFIG, "correct [budget]; docs/budgets.md has it")
        return
    if lines:
        yield _well("budget", "; ".join(lines))


def _retention(settings: Settings) -> Iterator[Finding]:
    try:
        rules = build_rules(settings)
    except ConfigError as error:
        yield _wrong("retention", str(error), CONFIG, "docs/operations.md says what counts what")
        return
    if rules is not None:
        ages = {"days": rules.days, "megabytes": rules.megabytes, "usage_days": rules.usage_days}
        said = ", ".join(f"{name} {most:,}" for name, most in ages.items() if most is not None)
        yield _well("retention", said, "`chinwag sessions expire --dry-run` says what would go")


# --- tools ------------------------------------------------------------------------------------


async def _tools(settings: Settings) -> AsyncIterator[Finding]:
    """Starts the MCP servers, asks what they have, and ends them."""
    tools: list[Tool] = []
    for place in settings.agent.tools:
        try:
            tools += tools_at(place, settings)
            yield _well("tool", place)
        except ConfigError as error:
            yield _wrong("tool", str(error), CONFIG, "correct [agent] tools, or the file")
    async with Servers(mcp_servers(settings)) as servers:
        tools += servers.tools
        missing = servers.missing
    for name in settings.mcp:
        if name in missing:
            cure = "the bot runs without it; try its command, or its url, by hand"
            yield _well("mcp", f"{name} does not come up: {missing[name]}", cure)
        else:
            count = sum(tool.origin == f"mcp {name}" for tool in tools)
            yield _well("mcp", f"{name}: {count} tools")
    try:
        agent = Agent(name=settings.agent.name, tools=tuple(tools))
    except ValueError as error:
        yield _wrong("tool", str(error), CONFIG, "give one of them another name")
        return
    for place, name in unknown_names(agent, settings):
        yield _well("tool", f"{place}: there is no tool {name}", "`chinwag tools` lists them")


# --- database ---------------------------------------------------------------------------------


async def _store(settings: Settings) -> AsyncIterator[Finding]:
    url = settings.store.url
    owner: bytes | None = None
    lists = access.Lists()
    weak: list[str] = []
    try:
        store: Any = store_of(settings, read_only=True)
        if _is_new(store):
            yield _well("store", f"{url}: new; made at the first start")
        else:
            async with store as opened:
                # Not every store has a file of which something could be wrong.
                problems = await opened.check() if hasattr(opened, "check") else []
                # A server may be set up to forget.
                weak = await opened.weaknesses() if hasattr(opened, "weaknesses") else []
                owner = await opened.notes.get(OWNER)
                lists = await access.read(opened.notes)
            yield _sound(url, problems, is_file=hasattr(store, "path"))
    except ConfigError as error:
        yield _wrong("store", str(error), CONFIG, "correct [store]")
    except StoreEmpty as error:
        weak = list(error.weaknesses)
        yield _well("store", f"{url}: new; made at the first start")
    except CannotUnseal as error:
        cure = "put back the key that it was made with; without it nobody can read it"
        yield _wrong("store", f"{url}: {error}", STORE, cure)
    except StoreError as error:
        cure = "the file is as it was: restore a backup, or name another [store] url"
        if not hasattr(store, "path"):
            cure = "see whether the server runs, and what its own log says"
        yield _wrong("store", f"{url}: {error}", STORE, cure)
    for why in weak:
        yield _well("store", why, "docs/scaling.md has what each setting promises")
    yield _access(settings, owner.decode() if owner else None, lists)


def _is_new(store: Any) -> bool:
    # Only a store in a file can be missing.
    path = getattr(store, "path", None)
    return path is not None and not Path(path).exists()


def _sound(url: str, problems: list[str], *, is_file: bool) -> Finding:
    if not problems:
        return _well("store", f"{url}: sound")
    more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
    if not is_file:
        cure = "look at the server's settings and its own log; docs/scaling.md has what we need"
        return _wrong("store", f"{url}: {problems[0]}{more}", STORE, cure)
    text = f"{url} is damaged: {problems[0]}{more}"
    return _wrong("store", text, STORE, "stop the bot, keep a copy of the file, restore a backup")


def _access(settings: Settings, owner: str | None, lists: access.Lists) -> Finding:
    allowed = [f"owner {owner}"] if owner else []
    listed = [*settings.access.allow, *(each.id for each in lists.allow)]
    denied = {*settings.access.deny, *(each.id for each in lists.deny)}
    allowed += [id for id in dict.fromkeys(listed) if id != owner and id not in denied]
    limit = f"{settings.access.messages_per_minute} messages a minute each"
    if settings.access.open:
        return _well("access", f"everybody may speak, {limit}")
    if not allowed:
        hint = "`chinwag run` prints a code: who sends it to the bot is its owner"
        return _well("access", "nobody may speak yet", hint)
    shown = ", ".join(allowed[:5]) + (f" and {len(allowed) - 5} more" if len(allowed) > 5 else "")
    return _well("access", f"{shown}; {limit}")


# --- engine -----------------------------------------------------------------------------------


async def _engine(settings: Settings) -> AsyncIterator[Finding]:
    """Where several processes share their work. One alone has nothing to be looked at."""
    try:
        check_roles(settings)
    except ConfigError as error:
        yield _wrong("engine", str(error), CONFIG, "docs/scaling.md has what goes together")
        return
    url = settings.engine.url
    if url is None:
        return
    if find_spec("dbos") is None:
        cure = "pip install 'chinwag[dbos]'"
        yield _wrong("engine", "[engine] url needs a package that is missing", CONFIG, cure)
    elif url.startswith("sqlite:"):
        yield _well("engine", "in a file: for one process")
    else:
        yield await _engine_server(url, settings.engine.queue)


async def _engine_server(url: str, queue: str) -> Finding:
    """Asks for a connection and nothing else: the tables are made at the first start."""
    import psycopg

    try:
        async with asyncio.timeout(_PATIENCE):
            connection = await psycopg.AsyncConnection.connect(url)
            await connection.close()
    except (psycopg.Error, TimeoutError) as error:
        cure = "see whether the server runs, what its own log says, and [engine] url"
        # What libpq says may be many lines, and names no password.
        why = str(error).partition("\n")[0] or "it does not answer"
        return _wrong("engine", why, STORE, cure)
    return _well("engine", f"PostgreSQL answers; the queue is {queue}")


# --- Telegram ---------------------------------------------------------------------------------


async def _telegram(settings: Settings) -> AsyncIterator[Finding]:
    from bots.doctor_telegram import look

    async for finding in look(settings, await _refusals(settings)):
        yield finding


async def _refusals(settings: Settings) -> dict[str, Refusal]:
    """How the last runs were ended by their platforms."""
    names = [
        "telegram" if bot.account is None else f"telegram@{bot.account}"
        for bot in settings.telegram.each()
    ]
    # What is wrong with the store is said where it is looked at.
    with suppress(ConfigError, StoreError):
        store: Any = store_of(settings, read_only=True)
        if names and not _is_new(store):
            async with store as opened:
                return await read(opened.notes, names)
    return {}


# --- Slack ------------------------------------------------------------------------------------


async def _slack(settings: Settings) -> AsyncIterator[Finding]:
    from bots.doctor_slack import look

    async for finding in look(settings.slack):
        yield finding
    if settings.slack.client_id is not None:
        from bots.doctor_slack_app import look_at_app

        async for finding in look_at_app(settings):
            yield finding


_PLATFORMS: Final = {"telegram": _telegram, "slack": _slack}


# --- model ------------------------------------------------------------------------------------


async def _model(settings: Settings, model: str) -> Finding:
    provider, slash, name = model.partition("/")
    if not slash:
        provider, name = "anthropic", model
    try:
        build_client(settings)
    except ConfigError as error:
        return _wrong("model", str(error), CONFIG, "install it, or name another model")
    if provider == "anthropic":
        return await _anthropic(settings.anthropic, name)
    if provider == "openai":
        return await _openai(settings.openai, name)
    # Their clients can list no models.
    return _well("model", f"{model}: cannot be looked at; the first message will tell")


async def _openai(section: OpenAISection, name: str) -> Finding:
    if section.api_key is None and section.base_url is None:
        cure = "set OPENAI_API_KEY in .env; https://platform.openai.com has it"
        return _wrong("model", "there is no key", MODEL, cure)
    import openai

    client = openai.AsyncOpenAI(
        api_key=section.api_key.get_secret_value() if section.api_key else "none",
        base_url=section.base_url,
        timeout=_PATIENCE,
        max_retries=0,
    )
    try:
        async with client:
            known = [each.id async for each in client.models.list()]
    except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
        cure = "correct OPENAI_API_KEY, or what it may do"
        return _wrong("model", f"the key was refused ({error.status_code})", MODEL, cure)
    except openai.APIStatusError as error:
        return _wrong("model", f"answer {error.status_code}", MODEL, "try again later")
    except openai.APIError as error:
        text = f"no answer from {client.base_url} ({type(error).__name__})"
        return _wrong("model", text, MODEL, "try again; look at network and base_url")
    if name not in known:
        return _wrong("model", f"{client.base_url} has no {name}", MODEL, "correct [agent] model")
    return _well("model", f"{name} is there")


async def _anthropic(section: AnthropicSection, name: str) -> Finding:
    if section.api_key is None:
        cure = "set ANTHROPIC_API_KEY in .env; https://platform.claude.com has it"
        return _wrong("model", "there is no key", MODEL, cure)
    import anthropic

    client = anthropic.AsyncAnthropic(
        api_key=section.api_key.get_secret_value(),
        base_url=section.base_url,
        timeout=_PATIENCE,
        max_retries=0,
        open_telemetry=False,
    )
    try:
        async with client:
            info = await client.models.retrieve(name)
    except anthropic.NotFoundError:
        return _wrong("model", f"there is no {name}", MODEL, "correct [agent] model")
    except (anthropic.AuthenticationError, anthropic.PermissionDeniedError) as error:
        cure = "correct ANTHROPIC_API_KEY, or what it may do"
        return _wrong("model", f"the key was refused ({error.status_code})", MODEL, cure)
    except anthropic.APIStatusError as error:
        return _wrong("model", f"answer {error.status_code}", MODEL, "try again later")
    except anthropic.APIError as error:
        text = f"no answer from {client.base_url} ({type(error).__name__})"
        return _wrong("model", text, MODEL, "try again; look at network and base_url")
    newer = "set [agent] model to a newer one"
    if info.lifecycle == "retired":
        return _wrong("model", f"{info.id} is retired", MODEL, newer)
    hint = newer if info.lifecycle == "deprecated" else ""
    return _well("model", f"{info.id} is {info.lifecycle}; the key is good", hint)
