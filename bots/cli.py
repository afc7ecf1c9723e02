"""The commands: thin, no logic of their own. What they do is in the modules they call."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

import click

from bots import __version__
from bots.sections import check_sender
from bots.settings import VARIABLES, Settings, load_settings
from core.errors import (
    ChinwagError,
    ConfigError,
    Fatal,
    ModelRefusedKey,
    PlatformRefused,
    StoreError,
)

EPILOG = "Exit codes: 0 ok, 2 usage or config, 3 database, 4 a platform refused us, 5 model."


def _sender(context: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        return check_sender(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


config_option = click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    help="The config file; without it ./config.toml, which may be absent.",
)

log_level_option = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="How much is logged to standard error.",
)


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="chinwag %(version)s")
def cli() -> None:
    """Puts an LLM agent behind a chat.

    \b
    Try it, without an account or a key:    chinwag playground
    Make a Telegram bot of it:              chinwag init, then chinwag run
    """


@cli.command()
@click.option("--yes", is_flag=True, help="Ask nothing; write the files with empty tokens.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=".",
    help="Where to write them; this folder by default.",
)
def init(yes: bool, folder: Path) -> None:
    """Write config.toml and .env, and say what to do next. Nothing is overwritten."""
    from bots.init import init as write

    for line in write(folder, yes=yes):
        click.echo(line)


@cli.command()
@click.argument("platform", required=False, type=click.Choice(["telegram", "slack"]))
@config_option
def check(platform: str | None, config_path: Path | None) -> None:
    """Check config, tokens, database and model key before a start.

    With PLATFORM it looks at that one alone. For Telegram also at privacy mode, the webhook and the
    way to it, a second process with the same token, and the clock. Each trouble comes with its
    cure; the exit code is that of the first kind. It changes nothing, and may run beside the bot.
    """
    from bots.doctor import check as examine
    from bots.doctor import render

    settings = _settings(config_path, level="error")
    findings = asyncio.run(examine(settings, config_path, platform))
    click.echo(render(findings))
    codes = sorted(finding.exit_code for finding in findings if not finding.ok)
    raise SystemExit(codes[0] if codes else 0)


@cli.command()
@config_option
def tools(config_path: Path | None) -> None:
    """List the tools that the agent has, and where each is from.

    It starts the MCP servers to ask them, and ends them again. A server that does not come up, and
    a list that leaves tools out on a platform or in a chat, has a line of its own.
    """
    from bots.tools import described

    settings = _settings(config_path, level="error")
    for line in asyncio.run(described(settings)):
        click.echo(line)


@cli.command("run")
@click.argument("platform", required=False)
@config_option
@click.option("--log-json", is_flag=True, help="One JSON object a line.")
@log_level_option
@click.option(
    "--role",
    type=click.Choice(["all", "intake", "worker"]),
    help="What this process does, when several share the work ([engine] url): take messages in,"
    " answer them, or both. Without it: [engine] role.",
)
def run_bot(
    platform: str | None,
    config_path: Path | None,
    log_json: bool,
    log_level: str | None,
    role: Literal["all", "intake", "worker"] | None,
) -> None:
    """Run the bot: all that is configured, or the one PLATFORM.

    Ctrl-C or SIGTERM finishes what is being answered and keeps the rest for the next start; a
    second one stops at once.
    """
    from bots.app import serve

    settings = _settings(config_path, json=log_json, level=log_level)
    if role is not None:
        engine = settings.engine.model_copy(update={"role": role})
        settings = settings.model_copy(update={"engine": engine})
    _finish(lambda: serve(settings, platform))


@cli.group()
def slack() -> None:
    """What concerns Slack alone."""


@slack.command()
@click.option("--name", default="Chinwag", help="How the app is called there.")
@config_option
def manifest(name: str, config_path: Path | None) -> None:
    """Print the app's manifest.

    It is to be pasted at https://api.slack.com/apps, asks for the scopes and events that the bot
    uses as it is configured, and for no others.
    """
    import json

    from bots.app import slack_rules
    from bots.slack.manifest import manifest as make
    from bots.slack.oauth import REDIRECT_PATH

    settings = _settings(config_path, level="error")
    by_http = settings.slack.transport == "http"
    host = settings.http.public_url or "https://YOUR-HOST"
    redirect_url = f"{host}{REDIRECT_PATH}" if settings.slack.client_id else None
    made = make(slack_rules(settings), name, host if by_http else None, redirect_url)
    click.echo(json.dumps(made, indent=2))


@slack.command()
@click.option("--remove", metavar="ID", help="Take the app out of this one.")
@click.option("--erase", is_flag=True, help="With --remove: delete what was said there, too.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@config_option
def installs(remove: str | None, erase: bool, yes: bool, config_path: Path | None) -> None:
    """List the workspaces that have installed the app.

    --remove wants the id of a workspace (T0123456789), or of an organisation that has the app
    everywhere (E0123456789), and the bot to be stopped.
    """
    from bots.slack_installs import installs as list_installs
    from bots.slack_installs import remove_install

    settings = _settings(config_path)
    if remove is None:
        _print(settings, list_installs)
        return
    if not yes:
        click.confirm(f"Take the app out of {remove}?", abort=True)
    _print(settings, lambda settings: remove_install(settings, remove, erase=erase))


@cli.command()
@click.option("--session", default="default", help="Which conversation to go on with.")
@config_option
@log_level_option
def chat(session: str, config_path: Path | None, log_level: str | None) -> None:
    """Talk to the agent here, in the terminal. Same agent, same database as the bot's."""
    from bots.app import chat as talk

    settings = _settings(config_path, level=log_level or "error")
    _greet(settings)
    _finish(lambda: talk(settings, session))


@cli.command()
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=".playground",
    help="Where its conversations are kept.",
)
@click.option("--terminal", is_flag=True, help="No page: the agent here, in the terminal.")
@click.option("--host", default="127.0.0.1", help="An address of this machine only.")
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="A free one when not given.")
@click.option("--open", "open_it", is_flag=True, help="Open the page in the browser.")
@config_option
def playground(
    folder: Path, terminal: bool, host: str, port: int, open_it: bool, config_path: Path | None
) -> None:
    """Try the bot here: no account, no key, no network.

    A page on which you write as several people on a local Telegram, and see each hop of a message;
    kill the bot while it answers. A local stand-in for Claude answers from what it is really sent.
    """
    from bots.playground import play, show_page

    if terminal:
        raise SystemExit(play(folder, config_path))
    show_page(folder, config_path, host=host, port=port, open_it=open_it)


@cli.group()
def access() -> None:
    """Who may speak to the bot, besides what the config says.

    While it runs its owner lets people in by a button: they send /start, the owner is asked.
    """


@access.command("list")
@config_option
def list_access(config_path: Path | None) -> None:
    """The owner, who is let in, who is not, and who asks. Works beside a running bot."""
    from bots.access import list_access as lines

    _print(_settings(config_path), lines)


@access.command()
@click.argument("id", callback=_sender)
@config_option
def allow(id: str, config_path: Path | None) -> None:
    """Let somebody in: ID is such as telegram:42. The bot must not be running."""
    from bots.access import decide

    _print(_settings(config_path), lambda settings: decide(settings, id, "allow"))


@access.command()
@click.argument("id", callback=_sender)
@config_option
def deny(id: str, config_path: Path | None) -> None:
    """Let somebody in no more, whatever else says so. The bot must not be running."""
    from bots.access import decide

    _print(_settings(config_path), lambda settings: decide(settings, id, "deny"))


@access.command()
@click.argument("id", callback=_sender)
@config_option
def remove(id: str, config_path: Path | None) -> None:
    """Take somebody off both lists. The bot must not be running."""
    from bots.access import remove as take_off

    _print(_settings(config_path), lambda settings: take_off(settings, id))


@cli.group()
def sessions() -> None:
    """Look at the stored conversations, or delete one. Reading works beside a running bot."""


@sessions.command("list")
@click.option("--prefix", default="", help="Only keys that begin so, such as telegram-chat:")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@config_option
def list_(prefix: str, as_json: bool, config_path: Path | None) -> None:
    """All conversations, with how much was said and when."""
    from bots.sessions import list_sessions

    _print(_settings(config_path), lambda settings: list_sessions(settings, prefix, as_json))


@sessions.command()
@click.option("--prefix", default="", help="Only of keys that begin so, such as slack-thread:")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@config_option
def feedback(prefix: str, as_json: bool, config_path: Path | None) -> None:
    """What people think of answers, by the buttons below them."""
    from bots.sessions import list_feedback

    _print(_settings(config_path), lambda settings: list_feedback(settings, prefix, as_json))


@sessions.command()
@click.argument("key")
@click.option("--json", "as_json", is_flag=True, help="Its snapshot, as it is stored.")
@config_option
def show(key: str, as_json: bool, config_path: Path | None) -> None:
    """One conversation as a person reads it.

    What is in its window, what waits, and what it has used.
    """
    from bots.sessions import show_session

    _print(_settings(config_path), lambda settings: show_session(settings, key, as_json))


@sessions.command()
@click.option("--prefix", default="", help="Only keys that begin so, such as telegram-chat:")
@click.option("--retry", metavar="KEY", help="Have that conversation's parts sent after all.")
@config_option
def undelivered(prefix: str, retry: str | None, config_path: Path | None) -> None:
    """What could not be sent, and why.

    Held because it may have been sent already, or refused by the platform. --retry wants a bot
    of one process to be stopped: it changes the conversation. Of several, one sends it at once.
    """
    from bots.sessions import retry_undelivered
    from bots.sessions import undelivered as list_undelivered

    settings = _settings(config_path)
    if retry:
        _print(settings, lambda settings: retry_undelivered(settings, retry))
    else:
        _print(settings, lambda settings: list_undelivered(settings, prefix))


@sessions.command()
@click.argument("key")
@click.option(
    "--format",
    "form",
    type=click.Choice(["lines", "html", "markdown", "json"]),
    default="lines",
    help="lines: one JSON object a message. The others are documents.",
)
@click.option("--output", type=click.Path(path_type=Path), help="A file; standard output without.")
@config_option
def export(key: str, form: str, output: Path | None, config_path: Path | None) -> None:
    """All of one conversation, as JSON or for people to read.

    Oldest first; messages that the model does not see any more are included.
    """
    from bots.sessions import export_session

    _print(_settings(config_path), lambda settings: export_session(settings, key, form), output)


@sessions.command()
@click.argument("key")
@click.option("--yes", is_flag=True, help="Do not ask.")
@config_option
def reset(key: str, yes: bool, config_path: Path | None) -> None:
    """Forget one conversation. The bot must not be running; in its chat, send /reset instead."""
    from bots.sessions import reset_session

    settings = _settings(config_path)
    if not yes:
        click.confirm(f"Delete what was said in {key}?", abort=True)
    _print(settings, lambda settings: reset_session(settings, key))


@sessions.command("copy")
@click.option("--from", "source", metavar="URL", help="[store] url when not given.")
@click.option("--to", "target", metavar="URL", required=True, help="Such as postgresql://host/db.")
@config_option
def copy_(source: str | None, target: str, config_path: Path | None) -> None:
    """Copy everything from one store to another.

    Conversations with their history, images and files, what calls used, owners and lists. Stop the
    bot first, or what is said meanwhile is missing in the copy. Begun again after it was ended, it
    goes on; nothing is written over. The copy is encrypted if [store] encrypted says so.
    """
    from bots.copying import copy_sessions
    from bots.stores import keys_in

    with _progress("Copying") as progress:
        _print(
            _settings(config_path),
            lambda settings: copy_sessions(
                source or settings.store.url,
                target,
                settings.folder,
                progress,
                keys=keys_in(settings),
                encrypted=settings.store.encrypted,
            ),
        )


@sessions.command()
@click.argument("key", required=False)
@click.option("--sender", metavar="ID", help="A person instead, such as telegram:42.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@config_option
def forget(key: str | None, sender: str | None, yes: bool, config_path: Path | None) -> None:
    """Delete everything of a conversation or a person.

    Also what was set aside, and what is left in the free space of the file. Of a person's
    conversations with others, the exchanges that they began go, and their words elsewhere become a
    marker. The bot must not be running; in its chat, send /forget instead.
    """
    from bots.sessions import forget as forget_it

    if (key is None) == (sender is None):
        raise click.UsageError("want a KEY, or --sender with the id of a person")
    settings = _settings(config_path)
    if not yes:
        click.confirm(f"Delete everything of {key or sender}?", abort=True)
    _print(settings, lambda settings: forget_it(settings, key, sender))


@sessions.command()
@click.option("--dry-run", is_flag=True, help="Say what would go; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@config_option
def expire(dry_run: bool, yes: bool, config_path: Path | None) -> None:
    """Delete what is older than [retention] says, or has no room.

    The bot does it by itself, once a day. Here it is done at once, and also in the free space of
    the file; the bot must not be running. --dry-run works beside it.
    """
    from bots.retention import expire as expire_old

    settings = _settings(config_path)
    if not (dry_run or yes):
        click.confirm("Delete what is old? --dry-run says what that is.", abort=True)
    _print(settings, lambda settings: expire_old(settings, dry=dry_run))


@cli.command()
@click.option(
    "--by",
    type=click.Choice(["day", "sender", "chat", "model"]),
    multiple=True,
    help="What to sum apart; may be given again. By day when not given.",
)
@click.option(
    "--since",
    metavar="DAY",
    help="A day (2026-11-01) or a number of days (7d); 30d when not given.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--csv", "as_csv", is_flag=True, help="For a spreadsheet.")
@config_option
def usage(
    by: tuple[Any, ...], since: str | None, as_json: bool, as_csv: bool, config_path: Path | None
) -> None:
    """Tokens and money: by day, sender, conversation or model.

    Works beside a running bot. Calls that were cut off count as the most that they can have cost.
    """
    from bots.usage import report

    if as_json and as_csv:
        raise click.UsageError("--json and --csv are two ways to say the same; give one")
    how: Any = "json" if as_json else "csv" if as_csv else "table"
    _print(_settings(config_path), lambda settings: report(settings, by or ("day",), since, how))


@cli.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@config_option
def backup(file: Path | None, config_path: Path | None) -> None:
    """Copy the database to FILE, beside a running bot.

    The copy is read through before the command says that it is done. Without FILE it is put
    beside the database, with the time in its name. It holds all that was said: keep it where only
    you can read it.
    """
    from bots.backup import back_up

    with _progress("Copying") as progress:
        _print(_settings(config_path), lambda settings: back_up(settings, file, progress))


@cli.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--check", "only_check", is_flag=True, help="Read all of it; change nothing.")
@click.option("--replace", "replacing", is_flag=True, help="Keep the database under another name.")
@click.option(
    "--unfinished",
    type=click.Choice(["resume", "drop"]),
    default="resume",
    show_default=True,
    help="What the backup has not answered or sent: go on with it, or leave it out.",
)
@config_option
def restore(
    file: Path, only_check: bool, replacing: bool, unfinished: Any, config_path: Path | None
) -> None:
    """Put a backup in the place of the database, or --check it.

    The bot must not be running. A damaged backup changes nothing.
    """
    from bots.backup import check_backup
    from bots.backup import restore as put_back

    settings = _settings(config_path)
    if only_check:
        _print(settings, lambda settings: check_backup(file))
    else:
        _print(settings, lambda settings: put_back(settings, file, unfinished, replacing=replacing))


@cli.command()
@click.option("--check", is_flag=True, help="Say what would happen; change nothing.")
@click.option("--no-backup", is_flag=True, help="You have one: make none.")
@config_option
def migrate(check: bool, no_backup: bool, config_path: Path | None) -> None:
    """Bring the database of an older chinwag up, after a backup.

    The bot must not be running. A newer chinwag's database is refused. With --check the exit code
    is 3 when there is something to do.
    """
    from bots.migrate import migrate as bring_up

    with _progress("Copying") as progress:
        _print(
            _settings(config_path),
            lambda settings: bring_up(settings, progress, check=check, backing_up=not no_backup),
        )


# ---------------------------------------------------------------------- what they share


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar for whoever looks on; nothing in a pipe, and nothing for what takes no time."""
    shown = False

    def done(count: int, of: int) -> None:
        nonlocal shown
        if sys.stderr.isatty() and (shown or count < of):
            shown = True
            click.echo(f"\r{what}: {100 * count // max(of, 1):3} %", err=True, nl=False)

    try:
        yield done
    finally:
        if shown:
            click.echo("", err=True)


def _settings(path: Path | None, *, json: bool = False, level: str | None = None) -> Settings:
    from bots.logs import setup_logging

    settings = load_settings(path)
    setup_logging(
        json=json or settings.log.json_lines,
        level=level or settings.log.level,
        secrets=settings.secrets(),
    )
    return settings


def _finish(start: Callable[[], Awaitable[int]]) -> None:
    async def main() -> int:
        return await start()

    raise SystemExit(asyncio.run(main()))


def _print(
    settings: Settings,
    lines: Callable[[Settings], Any],
    output: Path | None = None,
) -> None:
    async def main() -> None:
        if output is None:
            async for line in lines(settings):
                click.echo(line)
            return
        with _new_file(output) as file:
            async for line in lines(settings):
                file.write(f"{line}\n")

    try:
        asyncio.run(main())
    except FileExistsError:
        raise ConfigError(f"{output}: exists already; name another file") from None
    except OSError as error:
        if output is None:
            raise
        raise ConfigError(f"{output}: cannot be written: {error.strerror}") from None


@contextmanager
def _new_file(output: Path) -> Iterator[IO[str]]:
    """Conversations are for their owner's eyes. What fails leaves no file behind."""
    with open(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        try:
            yield file
        except BaseException:
            output.unlink()
            raise


def _greet(settings: Settings) -> None:
    # Python says None for one that was closed.
    if sys.stdin and sys.stdin.isatty():
        model = settings.agent.model.rpartition("/")[2]
        click.echo(f"chinwag {__version__}, {model}. /help says what I can do; Ctrl-D leaves.")


def run() -> None:
    """The whole program: every error of ours is one clear line and an exit code."""
    from bots.secrets import redacting

    try:
        cli.main(standalone_mode=False)
    except click.Abort:
        raise SystemExit(130) from None
    except click.ClickException as error:
        error.show()
        raise SystemExit(2) from None
    except ChinwagError as error:
        click.echo(f"chinwag: {redacting()(str(error))}", err=True)
        raise SystemExit(exit_code(error)) from None
    except Exception as error:
        # A mistake of ours: whoever reports it needs all of it but the secrets.
        secrets = [os.environ.get(name, "") for name in VARIABLES]
        click.echo(redacting(secrets)("".join(traceback.format_exception(error))), err=True)
        raise SystemExit(1) from None


def exit_code(error: ChinwagError) -> int:
    if isinstance(error, Fatal):
        return error.exit_code
    if isinstance(error, StoreError):
        return 3
    if isinstance(error, PlatformRefused):
        return 4
    if isinstance(error, ModelRefusedKey):
        return 5
    return 2
