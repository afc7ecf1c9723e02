"""`python -m playground`: stand-ins, a bot, and the page, until somebody ends it.

`chinwag playground` is this. It says what it does meanwhile, for a browser cannot yet.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import shutil
import signal
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from playground.feed import Feed
from playground.lab import Lab
from playground.serve import serving
from playground.show import Show
from playground.web import Web

PACE = 0.04  # seconds before each word of the stand-in for Claude: to be seen growing


class Refused(Exception):
    """One line for the person: what is wrong, and what to do."""


def people(lab: Lab) -> None:
    """Three people, a group of theirs, and a forum; the same three on Slack, and two channels."""
    alice = lab.telegram.person("Alice", "alice")
    lab.telegram.person("Bob", "bob")
    lab.telegram.person("Carol", "carol")
    lab.telegram.group("Friends", owner=alice)
    forum = lab.telegram.supergroup("Workshop", forum=True, owner=alice)
    forum.topic("Garden")
    forum.topic("Kitchen")
    three = [lab.slack.person(name) for name in ("Alice", "Bob", "Carol")]
    for name in ("general", "harbour"):
        lab.slack.channel(name, three)


async def run(
    folder: Path,
    config: Path | None,
    host: str,
    port: int,
    *,
    show_it: bool,
    say: Callable[[str], None],
    stop: asyncio.Event,
) -> None:
    """
    :param folder: an empty one, of this run
    :param show_it: open the page in the person's browser
    """
    real = _real_model()
    async with AsyncExitStack() as stack:
        say("Starting a local Telegram, a local Slack and a local Claude …")
        lab = await stack.enter_async_context(Lab(folder, config=config, pace=PACE))
        people(lab)
        feed = Feed()
        show = Show(lab, feed, real=real is not None)
        stack.callback(show.close)
        token = secrets.token_urlsafe(16)
        web = Web(lab, show, token, real)
        try:
            url = await stack.enter_async_context(serving(web.app, host=host, port=port))
        except ValueError as error:
            raise Refused(str(error)) from None
        except OSError as error:
            why = os.strerror(error.errno or 0)
            raise Refused(
                f"port {port} cannot be had ({why}): name another with --port, "
                "or none, and a free one is taken"
            ) from None
        say("Starting the bot as `chinwag run` does, pointed at them …")
        try:
            await lab.start()
        except (RuntimeError, TimeoutError) as error:
            raise Refused(str(error)) from None
        page = f"{url}/{token}/"
        say(f"\nThe playground is at\n\n    {page}\n")
        say("Write to the bot, and kill it while it answers. Ctrl-C ends everything.")
        if show_it and not await asyncio.to_thread(webbrowser.open, page):
            say("No browser was found here: open that address in one on this machine.")
        await stop.wait()
        say("Ending the bot …")


def _real_model() -> dict[str, str] | None:
    """What the bot needs to ask the real one; only when a person chooses it on the page."""
    names = ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
    given = {name: os.environ[name] for name in names if os.environ.get(name)}
    return given if "ANTHROPIC_API_KEY" in given else None


async def _until_stopped(options: argparse.Namespace, folder: Path) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)

    def say(line: str) -> None:
        try:
            print(line, flush=True)
        except OSError:  # whoever read it has gone; the page is still there
            sys.stdout = open(os.devnull, "w")

    running = asyncio.create_task(
        run(
            folder,
            options.config,
            options.host,
            options.port,
            show_it=options.open,
            say=say,
            stop=stop,
        )
    )
    # Ended before it is there, it does not go on to be there first.
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not running.done():
        done, _ = await asyncio.wait((running,), timeout=40)
        if not done:
            running.cancel()
    await running


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m playground")
    parser.add_argument("--folder", type=Path, default=Path(".playground"))
    parser.add_argument("--config", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--open", action="store_true")
    options = parser.parse_args(arguments)
    if options.config is not None:
        options.config = options.config.absolute()
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="page-", dir=options.folder))
    except OSError as error:
        print(f"chinwag: {options.folder}: cannot be made: {error.strerror}", file=sys.stderr)
        return 2
    try:
        asyncio.run(_until_stopped(options, folder))
    except Refused as error:
        print(f"chinwag: {error}", file=sys.stderr)
        return 2
    finally:
        # A page that is opened anew knows no old messages, so neither shall its bot.
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
