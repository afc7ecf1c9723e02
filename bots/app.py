"""The program: builds store, agent, adapters and engine from the settings, runs them, stops them.

The only place where everything meets. No logic of its own: what happens to a message is decided in
`core`, what a command line means in `cli.py`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from starlette.routing import BaseRoute

from bots import http
from bots.console import OWNER, Console
from bots.garbage import spare_what_stays
from bots.health import Health
from bots.media import Media
from bots.metrics import Metrics
from bots.models import build_client
from bots.pairing import invitation, links
from bots.plugins import load_adapter, load_command, load_transcriber
from bots.pressure import Pressure
from bots.refusals import Refusal, note
from bots.retention import build_rules
from bots.roles import HOLDER, answers, build_engine, is_shared, opened_store, takes_in, taking_in
from bots.service import service
from bots.settings import Settings
from bots.spending import build_spending
from bots.telegram_bots import telegram_bots
from bots.telemetry import telemetry
from bots.tools import mcp_servers, own_tools, tool_lists
from bots.wording import build_wording
from core.adapter import Acceptance, Adapter, Refused
from core.agent import Agent
from core.clock import Clock, SystemClock
from core.command import Commands
from core.commands import BUILT_IN
from core.conversations import Conversations, Options
from core.engine import EmbeddedEngine
from core.errors import ChinwagError, ConfigError, Fatal, PlatformRefused, StoreError
from core.events import emit, listening, logger, trouble
from core.failpoints import failpoint
from core.gate import Gate
from core.mcp import Servers
from core.messages import Inbound
from core.pages import Pages
from core.phrases import Wording
from core.retention import Retention
from core.seal import keys_of
from core.store import BotStore, Notes
from core.tools import Tool

if TYPE_CHECKING:
    from bots.slack.distribution import Distribution
    from bots.slack.rules import Rules

# Longer than the waits after which the core tries again by itself without being told to wait.
IDLE_SECONDS: Final = 8.0


@runtime_checkable
class Identified(Protocol):
    """An adapter that speaks as one certain bot."""

    async def identity(self) -> str:
        """The platform's id of the bot.

        :raises PlatformRefused: the token is wrong
        """
        ...


@runtime_checkable
class Keeping(Protocol):
    """An adapter that has something of its own to keep, beside the conversations."""

    def keep_in(self, notes: Notes) -> None:
        """Before anything else is asked of it."""
        ...


@runtime_checkable
class ShowsPages(Protocol):
    """An adapter whose platform has a page of the bot for each person."""

    def show_pages(self, pages: Pages) -> None:
        """Before `run`: this is what there is to be shown."""
        ...


@runtime_checkable
class Reachable(Protocol):
    """An engine that is not in this process."""

    async def look(self) -> None:
        """
        :raises StoreUnavailable: it cannot be reached
        """
        ...


@runtime_checkable
class Closable(Protocol):
    """An adapter that keeps connections."""

    async def close(self) -> None:
        """Nothing can be sent after this."""
        ...


@runtime_checkable
class ShowsMenu(Protocol):
    """An adapter whose platform offers people the bot's commands."""

    async def show_menu(self, commands: Commands, say: Wording) -> None:
        """Best effort: it waits for the platform as long as that takes, and raises nothing."""
        ...


def build_agent(settings: Settings, more: tuple[Tool, ...] = ()) -> Agent:
    """
    :param more: tools that the settings do not name one by one
    :raises ConfigError: a tool cannot be had, or two have one name
    """
    tools = (*own_tools(settings), *more)
    try:
        return _agent(settings, tools)
    except ValueError as error:
        raise ConfigError(f"[agent] tools: {error}") from error


def _agent(settings: Settings, tools: tuple[Tool, ...]) -> Agent:
    section = settings.agent
    return Agent(
        name=section.name,
        model=section.model,
        fallback=section.fallback,
        models=section.models,
        instructions=section.instructions,
        thinking=section.thinking,
        effort=section.effort,
        tell_time=section.tell_time,
        max_tokens=section.max_tokens,
        max_rounds=section.max_rounds,
        turn_timeout=section.turn_timeout,
        approval_timeout=section.approval_timeout,
        tools=tools,
        memory=settings.memory.memory(),
    )


def build_commands(settings: Settings) -> Commands:
    """
    :raises ConfigError: one of somebody's own cannot be loaded, or its name is taken
    """
    own = [load_command(*each, settings.folder) for each in settings.commands.items()]
    fixed = {"model", "mention"} - set(settings.agent.chat_settings)
    try:
        return BUILT_IN.without(*fixed).extended(*own)
    except ValueError as error:
        raise ConfigError(f"[commands] {error}") from None


def build_media(settings: Settings) -> Media:
    """
    :raises ConfigError: the transcriber cannot be had
    """
    place = settings.media.transcriber
    return Media(None if place is None else load_transcriber(place, settings.folder))


def build_adapters(settings: Settings, only: str | None, clock: Clock) -> tuple[Adapter, ...]:
    """
    :param only: the one platform to run; None: all that are configured
    :raises ConfigError: nothing is configured
    """
    adapters: list[Adapter] = []
    if only in (None, "telegram"):
        adapters += telegram_bots(settings, clock)
    if settings.slack.is_used and only in (None, "slack"):
        adapters.append(_slack(settings, clock))
    for name, section in settings.adapters.items():
        if only in (None, name):
            adapters.append(load_adapter(name, section.use, section.options, settings.folder))
    if not adapters:
        raise ConfigError(_nothing_to_run(settings, only))
    return tuple(adapters)


def slack_rules(settings: Settings) -> Rules:
    from bots.slack.rules import Rules

    section = settings.slack
    return Rules(
        account=section.account,
        scope=section.scope,
        thread_follow=section.thread_follow,
        agent_view=section.agent_view,
        teams=frozenset(section.teams),
        words=frozenset([*(each.name for each in BUILT_IN), *settings.commands]),
        command=section.command,
    )


def slack_distribution(settings: Settings) -> Distribution | None:
    """
    :raises ConfigError: something is missing with which others can install the app
    """
    section, keys = settings.slack, settings.encryption.keys
    if section.client_id is None:
        return None
    if section.bot_token is not None:
        raise ConfigError(
            "SLACK_CLIENT_ID and SLACK_BOT_TOKEN are both set: the first is for an app that others"
            " install, the second for one of your own workspace; take one away"
        )
    if section.client_secret is None:
        raise ConfigError(
            "SLACK_CLIENT_SECRET is missing beside SLACK_CLIENT_ID: from"
            " https://api.slack.com/apps, Basic Information"
        )
    if keys is None:
        raise ConfigError(
            "CHINWAG_ENCRYPTION_KEYS is missing: the tokens of workspaces are kept encrypted. Put"
            " CHINWAG_ENCRYPTION_KEYS=$(openssl rand -base64 32) into .env, and keep a copy of it"
        )
    if settings.http.public_url is None:
        raise ConfigError("[http] public_url is missing: people install the app by a browser")
    from bots.slack.distribution import Distribution

    return Distribution(
        section.client_id,
        section.client_secret.get_secret_value(),
        keys_of(keys.get_secret_value()),
        settings.http.public_url,
        erase=section.on_uninstall == "erase",
    )


def _slack(settings: Settings, clock: Clock) -> Adapter:
    """
    :raises ConfigError: a token is missing
    """
    from bots.slack.adapter import SlackAdapter
    from bots.slack.assistant import Prompt

    section = settings.slack
    by_http = section.transport == "http"
    secret = section.signing_secret if by_http else section.app_token
    if secret is None:
        raise ConfigError(_SECOND_SECRET[section.transport])
    return SlackAdapter(
        section.bot_token.get_secret_value() if section.bot_token else None,
        None if by_http else secret.get_secret_value(),
        distribution=slack_distribution(settings),
        signing_secret=secret.get_secret_value() if by_http else None,
        base_url=section.base_url,
        rules=slack_rules(settings),
        streaming=section.streaming,
        feedback=section.feedback,
        home=section.home,
        prompts=[Prompt(each.title, each.message) for each in section.prompts],
        on_unknown_outcome=section.on_unknown_outcome,
        clock=clock,
    )


_SECOND_SECRET: Final = {
    "socket": "SLACK_APP_TOKEN is missing: an app-level token with the scope"
    " connections:write, from https://api.slack.com/apps, Basic Information",
    "http": "SLACK_SIGNING_SECRET is missing: from https://api.slack.com/apps, Basic Information",
}
_TOKENS: Final = {"telegram": "TELEGRAM_BOT_TOKEN", "slack": "SLACK_BOT_TOKEN"}


def _nothing_to_run(settings: Settings, only: str | None) -> str:
    if only is not None and only not in _TOKENS:
        known = ", ".join([*_TOKENS, *settings.adapters])
        return f"{only}: no such platform; there is {known}, and [adapters.NAME] adds others"
    what = f"{only} is not configured" if only else "no platform is configured"
    tokens = _TOKENS[only] if only else " or ".join(_TOKENS.values())
    return (
        f"{what}: set {tokens} in .env, or add an [adapters.NAME] section; "
        "`chinwag init` writes the files"
    )


async def serve(settings: Settings, only: str | None = None) -> int:
    """`chinwag run`: until a signal, or until something ends it. The exit code."""
    clock = SystemClock()
    stop = _stop_on_signals()
    adapters = build_adapters(settings, only, clock)
    commands, say = build_commands(settings), build_wording(settings)
    async with (
        _listening(settings) as listener,
        _opened(settings, clock) as store,
        _closing(adapters),
    ):
        for adapter in adapters:
            if isinstance(adapter, Keeping):
                adapter.keep_in(store.notes)
        # It asks until the platform answers, and that may take days.
        if not await _unless(stop, _remember_identities(store.notes, adapters)):
            return 0
        access = settings.access
        gate = Gate(
            store.notes,
            clock,
            allow=access.allow,
            deny=access.deny,
            open_to_all=access.open,
            per_minute=access.messages_per_minute,
            commands=commands,
            say=say,
        )
        code = await gate.open()
        if code is not None:
            said = invitation(code, await links(adapters, code), terminal=sys.stderr.isatty())
            print(said, file=sys.stderr, flush=True)
        async with Servers(mcp_servers(settings), clock=clock) as servers:
            agent = build_agent(settings, servers.tools)
            program = _Program(
                settings, store, gate, adapters, clock, agent, commands, say, listener=listener
            )
            return await program.run(stop)


async def chat(settings: Settings, session: str) -> int:
    """`chinwag chat`: the agent in the terminal."""
    clock = SystemClock()
    console = Console(session, clock=clock)
    commands, say = build_commands(settings), build_wording(settings)
    async with _opened(settings, clock) as store:
        gate = Gate(
            store.notes, clock, allow=(OWNER,), per_minute=1_000_000, commands=commands, say=say
        )
        async with Servers(mcp_servers(settings), clock=clock) as servers:
            agent = build_agent(settings, servers.tools)
            program = _Program(
                settings, store, gate, (console,), clock, agent, commands, say, console=console
            )
            return await program.run(_stop_on_signals())


@asynccontextmanager
async def _listening(settings: Settings) -> AsyncIterator[socket.socket | None]:
    """The port of `[http]`, before anything else is begun: it may be somebody else's."""
    host, port = settings.http.host, settings.http.port
    if port is None:
        yield None
        return
    with http.listen(host, port) as listener:
        yield listener


@asynccontextmanager
async def _opened(settings: Settings, clock: Clock) -> AsyncIterator[BotStore]:
    async with opened_store(settings) as store:
        yield store


@asynccontextmanager
async def _closing(adapters: Sequence[Adapter]) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for adapter in adapters:
            if isinstance(adapter, Closable):
                stack.push_async_callback(adapter.close)
        yield


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Whether the work was done; it is given up when somebody stops the program."""
    working = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
            return True
        return False
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


async def _remember_identities(notes: Notes, adapters: Sequence[Adapter]) -> None:
    """A database belongs to the bots it has met: another bot under the same name would answer
    people out of conversations that they had with the first."""
    for adapter in adapters:
        if not isinstance(adapter, Identified):
            continue
        identity = (await adapter.identity()).encode()
        name = f"bot.{adapter.name}"
        if await notes.put(name, identity, was=None):
            continue
        known = await notes.get(name)
        if known != identity:
            raise ConfigError(
                f"{adapter.name}: the database belongs to bot {(known or b'').decode()}, this "
                f"token to bot {identity.decode()}; give this bot an account name or a database "
                "of its own ([telegram] account, [store] url)"
            )


class _Program:
    """One run of the program."""

    def __init__(
        self,
        settings: Settings,
        store: BotStore,
        gate: Gate,
        adapters: Sequence[Adapter],
        clock: Clock,
        agent: Agent,
        commands: Commands,
        say: Wording,
        *,
        console: Console | None = None,
        listener: socket.socket | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._listener = listener
        self._store = store
        self._adapters = adapters
        self._console = console
        self._agent = agent
        self._commands = commands
        self._say = say
        self._client = build_client(settings)
        spending = build_spending(settings, self._agent, clock)
        self._media = build_media(settings)
        # In the terminal somebody sits and waits: whatever runs elsewhere, they are answered here.
        self._engine = (
            EmbeddedEngine(clock, concurrency=settings.engine.concurrency)
            if console
            else build_engine(settings, clock)
        )
        self._pressure = Pressure(self._engine.depth, settings.engine.most_waiting, clock)
        self._conversations = Conversations(
            store,
            self._agent,
            self._client,
            adapters,
            gate,
            clock,
            self._engine.submit,
            Options(
                cwd=str(settings.folder),
                when_busy=settings.engine.when_busy,
                on_unknown_outcome=settings.telegram.on_unknown_outcome,
                say=say,
                tools=tool_lists(settings),
                approvers=settings.agent.approvers,
                overheard=settings.memory.unaddressed,
                shared=is_shared(settings),
                opens=self._media,
            ),
            commands,
            spending,
        )
        pages = Pages(store, gate, spending, commands, self._agent.name, say)
        for adapter in adapters:
            if isinstance(adapter, ShowsPages):
                adapter.show_pages(pages)
        rules = None if console else build_rules(settings)
        self._retention = rules and Retention(
            store, self._conversations.ref, clock, rules, forget=self._conversations.forget
        )
        self._health = Health(
            store,
            self._conversations.ref,
            adapters,
            clock,
            engine=self._engine.look if isinstance(self._engine, Reachable) else None,
            process=HOLDER,
        )
        self._metrics = (
            Metrics(
                self._engine.depth,
                self._health.look,
                spending.prices.currency,
                self._pressure.seconds,
            )
            if settings.http.metrics
            else None
        )

    async def run(self, stop: asyncio.Event) -> int:
        routes = self._routes()
        await self._conversations.open()
        if answers(self._settings):
            async for key in self._store.unfinished():
                await self._engine.submit(key, "")
        async with AsyncExitStack() as stack:
            stack.enter_context(telemetry(self._settings.telemetry))
            if self._metrics is not None:
                stack.enter_context(listening(self._metrics))
            stack.push_async_callback(self._client.close)
            stack.push_async_callback(self._media.close)
            engine = asyncio.create_task(self._engine.run(self._conversations.work), name="engine")
            intake = self._intake()
            if self._listener is not None:
                serving = http.serve(http.app_of(routes), self._listener)
                intake.append(asyncio.create_task(serving, name="http"))
            menus = [
                asyncio.create_task(adapter.show_menu(self._commands, self._say), name="menu")
                for adapter in self._adapters
                if isinstance(adapter, ShowsMenu) and takes_in(self._settings)
            ]
            warming = asyncio.create_task(self._client.warm(self._agent.provider), name="warming")
            warming.add_done_callback(lambda _: spare_what_stays())
            beside = [warming]
            if self._retention:
                beside.append(asyncio.create_task(self._retention.run(), name="retention"))
            stopping = asyncio.create_task(stop.wait(), name="stop")
            emit("running", adapters=",".join(adapter.name for adapter in self._adapters))
            try:
                # Left when we begin to stop: systemd shall not wait for signs of life meanwhile.
                async with service(self._health.look, self._clock):
                    await asyncio.wait(
                        (engine, stopping, *intake), return_when=asyncio.FIRST_COMPLETED
                    )
                self._health.leaving = True
                await self._finish_console(intake, stopping, engine)
                await self._note_refusals(intake)
                return self._exit_code(engine, intake, stop)
            finally:
                for task in (*intake, stopping, *beside, *menus):
                    task.cancel()
                await asyncio.gather(*intake, stopping, *beside, *menus, return_exceptions=True)
                await self._engine.drain(self._settings.engine.drain_seconds)
                await asyncio.gather(engine, return_exceptions=True)
                await self._health.close()
                emit("stopped")

    def _routes(self) -> list[BaseRoute]:
        """
        :raises ConfigError: an adapter wants to be reached, and there is no port
        """
        routes: list[BaseRoute] = [*self._health.routes()]
        if self._metrics is not None:
            if self._listener is None:
                raise ConfigError("[http] metrics: no port is open: set [http] port")
            routes.append(self._metrics.route())
        for adapter in self._adapters:
            if not (isinstance(adapter, http.Served) and takes_in(self._settings)):
                continue
            wanted = adapter.routes(self._accept)
            if wanted and self._listener is None:
                raise ConfigError(
                    f"{adapter.name}: its platform comes to us by HTTP, and no port is open: "
                    "set [http] port"
                )
            routes += wanted
        return routes

    def _intake(self) -> list[asyncio.Task[None]]:
        """One task an adapter that this process takes messages in from, or stands by for."""
        if not takes_in(self._settings):
            self._health.active |= {adapter.name: _never for adapter in self._adapters}
            return []
        intake: list[asyncio.Task[None]] = []
        for adapter in self._adapters:
            work, active = taking_in(
                adapter, self._accept, self._settings, self._store, self._clock
            )
            self._health.active[adapter.name] = active
            intake.append(asyncio.create_task(work, name=adapter.name))
        return intake

    async def _accept(self, inbound: Inbound) -> Acceptance:
        await self._pressure.ease()
        acceptance = await self._conversations.accept(inbound)
        if not isinstance(acceptance, Refused):
            await self._engine.submit(inbound.key, inbound.id)
            failpoint("submitted")
        return acceptance

    async def _finish_console(
        self,
        intake: Sequence[asyncio.Task[None]],
        stopping: asyncio.Task[bool],
        engine: asyncio.Task[None],
    ) -> None:
        """At the end of input what was asked is still answered; but what can only be answered
        later (no model key, a long limit) waits for the next start, not the person for that."""
        if self._console is None or not intake[0].done() or intake[0].exception():
            return
        idle_since: float | None = None
        while not (stopping.done() or engine.done()):
            if self._engine.depth() > 0:
                idle_since = None
            else:
                snapshot = await self._store.load(self._conversations.ref(self._console.key))
                if not (snapshot and snapshot.unfinished):
                    return
                if snapshot.turn and snapshot.turn.suspended:
                    # Nobody can say it here any more; at the next start they can.
                    print(
                        "A call waits for your /approve or /decline, at the next start too.",
                        file=sys.stderr,
                        flush=True,
                    )
                    return
                now = asyncio.get_running_loop().time()
                idle_since = now if idle_since is None else idle_since
                if now - idle_since > IDLE_SECONDS:
                    print(
                        "Something is still to be answered; I go on with it at the next start.",
                        file=sys.stderr,
                        flush=True,
                    )
                    return
            await asyncio.wait((stopping, engine), timeout=0.05)

    async def _note_refusals(self, intake: Sequence[asyncio.Task[None]]) -> None:
        """So that `chinwag check` can tell of a second process with the same token."""
        refused = {
            task.get_name(): Refusal(self._clock.now(), str(task.exception()))
            for task in intake
            if task.done()
            and not task.cancelled()
            and isinstance(task.exception(), PlatformRefused)
        }
        try:
            for adapter in self._adapters:
                await note(self._store.notes, adapter.name, refused.get(adapter.name))
        except StoreError as error:
            # The run ends with its own reason, which is logged as well.
            trouble("refusal.not_noted", why=type(error).__name__)

    def _exit_code(
        self, engine: asyncio.Task[None], intake: Sequence[asyncio.Task[None]], stop: asyncio.Event
    ) -> int:
        for task in (engine, *intake):
            if not task.done() or task.cancelled():
                continue
            error = task.exception()
            if isinstance(error, Fatal):
                logger.error("fatal", extra={"event": {"error": str(error)}})
                return error.exit_code
            if isinstance(error, PlatformRefused):
                logger.error("platform.refused", extra={"event": {"error": str(error)}})
                return 4
            if isinstance(error, ChinwagError):
                raise error
            if error is not None:
                # Through the log, which takes the secrets out of a traceback.
                logger.error("broken", exc_info=error, extra={"event": {"what": task.get_name()}})
                return 1
            if not (self._console or stop.is_set()):
                # An adapter returned although nobody told it to: we would be running, but deaf.
                logger.error("ended", extra={"event": {"what": task.get_name()}})
                return 1
        return 0


def _never() -> bool:
    return False


def _stop_on_signals() -> asyncio.Event:
    """Set by SIGTERM or Ctrl-C; a second one ends the program at once."""
    stop = asyncio.Event()

    def signalled() -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    return stop
