"""`chinwag init`: writes a config.toml to go on from, and .env with the tokens.

Nothing is overwritten, tried out or sent anywhere; that is what `chinwag check` is for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from core.errors import ConfigError

CONFIG: Final = """\
# The settings of chinwag. config.example.toml lists all of them; tokens are in .env.

[agent]
model = "anthropic/claude-sonnet-5-5"
# instructions = "You are a helpful assistant in a chat."
# tools = ["tools.py:weather"]

# Who may speak. Without a list, the first who sends the code that `chinwag run` prints becomes the
# owner, and nobody else may.
[access]
allow = []  # "telegram:42"

[store]
url = "sqlite:chinwag.db"  # beside this file
"""

DOTENV: Final = """\
# Secrets of chinwag. Never show this file, and keep it out of git.

# From @BotFather in Telegram: /newbot
TELEGRAM_BOT_TOKEN={TELEGRAM_BOT_TOKEN}

# From https://api.slack.com/apps, for a bot on Slack: docs/slack.md says how
SLACK_BOT_TOKEN=
SLACK_APP_TOKEN=

# From https://platform.claude.com
ANTHROPIC_API_KEY={ANTHROPIC_API_KEY}
"""

Ask = Callable[..., Any]


def init(
    folder: Path,
    *,
    yes: bool = False,
    ask: Ask = click.prompt,
    environ: Mapping[str, str] = os.environ,
) -> Iterator[str]:
    """What has been done and what to do next, line by line, as it happens.

    :param yes: ask nothing; the tokens stay empty
    :param ask: called as `click.prompt` is
    :raises ConfigError: a file cannot be written
    """
    config, dotenv = folder / "config.toml", folder / ".env"
    yield _write(config, CONFIG, mode=0o644)
    # What is there already is not asked for.
    if os.path.lexists(dotenv):
        yield _left(dotenv)
        missing: list[str] = []
    else:
        tokens = {name: "" if yes else _token(name, ask, environ) for name in _QUESTIONS}
        yield _write(dotenv, DOTENV.format(**tokens), mode=0o600)
        missing = [name for name, token in tokens.items() if not (token or environ.get(name))]
    yield ""
    yield "Next:"
    where = "" if folder == Path(".") else f" --config {config}"
    if missing:
        yield f"  put {' and '.join(missing)} into {dotenv}"
    yield f"  chinwag check{where}"
    yield f"  chinwag run{where}"
    yield "  send your bot the code that it prints, and it is yours"


_QUESTIONS: Final = {
    "TELEGRAM_BOT_TOKEN": "Telegram token, from @BotFather (Enter: later)",
    "ANTHROPIC_API_KEY": "Anthropic API key (Enter: later)",
}
_SHAPES: Final = {
    "TELEGRAM_BOT_TOKEN": re.compile(r"\d+:[A-Za-z0-9_-]+"),
    # No quotes and no "#": it is written into .env as it is.
    "ANTHROPIC_API_KEY": re.compile(r"[A-Za-z0-9._~+/=-]+"),
}


def _token(name: str, ask: Ask, environ: Mapping[str, str]) -> str:
    if environ.get(name):
        return ""

    def check(text: str) -> str:
        token = text.strip()
        if token and not _SHAPES[name].fullmatch(token):
            # Click says so without the text, because the input is hidden.
            raise click.BadParameter("not a token")
        return token

    answer: str = ask(
        _QUESTIONS[name], default="", show_default=False, hide_input=True, value_proc=check
    )
    return answer


def _write(file: Path, text: str, *, mode: int) -> str:
    """:param mode: the most that it may have; the umask takes away from it"""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # O_EXCL: nothing that is there is overwritten, and no link is followed.
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as out:
            out.write(text)
    except FileExistsError:
        return _left(file)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error.strerror}") from None
    return f"{file} written" + (", readable by you alone" if mode == 0o600 else "")


def _left(file: Path) -> str:
    return f"{file} is there already and stays as it is"
