"""`chinwag playground`: the page, or the agent in the terminal against a local stand-in for Claude.

The page is a program of its own, `python -m playground`, which takes this one's place. In the
terminal `chinwag chat` is started exactly as a person would, pointed at the stand-in by its base
URL; nothing in the agent knows. No key, no network; the conversations are kept in a folder of
their own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from core.errors import ConfigError


def show_page(
    folder: Path, config: Path | None = None, *, host: str, port: int, open_it: bool
) -> NoReturn:
    """The page instead of this program; its exit code is ours.

    :param port: 0: a free one
    """
    command = ["--folder", str(folder), "--host", host, "--port", str(port)]
    if config is not None:
        command += ["--config", str(config)]
    if open_it:
        command.append("--open")
    os.execv(sys.executable, [sys.executable, "-P", "-m", "playground", *command])


def play(folder: Path, config: Path | None = None) -> int:
    """Until the person leaves. The exit code of the chat.

    :param config: what the agent is; its tokens and its database stay out of this
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be made: {error.strerror}") from None
    with _ending_in_order(), _claude() as url:
        environ = {name: value for name, value in os.environ.items() if _is_harmless(name)}
        environ |= {
            "ANTHROPIC_API_KEY": "playground",
            "ANTHROPIC_BASE_URL": url,
            "CHINWAG_STORE__URL": f"sqlite:{(folder / 'playground.db').absolute()}",
        }
        print(
            "A local stand-in answers instead of Claude. Tell it your name; /reset; Ctrl-C.",
            flush=True,
        )
        command = [sys.executable, "-m", "bots", "chat"]
        if config is not None:
            command += ["--config", str(config.absolute())]
        chat = subprocess.Popen(command, env=environ, cwd=folder)
        return _wait(chat)


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Whoever ends us, or closes the window, ends the children too: they would go on for ever."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _claude() -> Iterator[str]:
    """The stand-in while the block runs; gives its address."""
    # The child is in a group of its own, so that Ctrl-C reaches the chat first: it finishes what
    # it is answering, and for that it needs the model.
    with subprocess.Popen(
        [sys.executable, "-m", "playground.claude", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as claude:
        try:
            assert claude.stdout is not None
            url = claude.stdout.readline().strip()
            if not url.startswith("http://127.0.0.1:"):
                raise ConfigError("the local Claude did not start; its error stands above")
            yield url
        finally:
            claude.terminate()


def _is_harmless(name: str) -> bool:
    """A person's own tokens and settings stay out of the playground."""
    return not name.startswith(("CHINWAG_", "ANTHROPIC_", "TELEGRAM_", "SLACK_"))


def _wait(child: subprocess.Popen[bytes]) -> int:
    # Ctrl-C goes to the whole group: the chat ends by itself, and this must outlive it.
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return child.wait()
    except SystemExit:
        child.terminate()
        child.wait()
        raise
    finally:
        signal.signal(signal.SIGINT, previous)
