"""The command line as a person meets it: what it teaches, what it says of mistakes, how it ends."""

from __future__ import annotations

import os
import re
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from bots import __version__
from bots.cli import cli, exit_code
from core.errors import (
    ChinwagError,
    ConfigError,
    Fatal,
    InvalidKey,
    ModelRefusedKey,
    PlatformRefused,
    StoreCorrupt,
    StoreInUse,
    StoreUnavailable,
)
from stores.sqlite import SQLiteStore

ROOT = Path(__file__).parents[2]
TOKEN = "123456:" + "AAH-a-token-that-nobody-may-read-000"
API_KEY = "sk-ant-" + "a-key-that-nobody-may-read"


def chinwag(
    *arguments: str, cwd: Path, typed: str = "", code: str | None = None, **environ: str
) -> subprocess.CompletedProcess[str]:
    """
    :param code: Python to run instead
    """
    what = ["-m", "bots", *arguments] if code is None else ["-c", code]
    return subprocess.run(
        [sys.executable, *what],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environ},
        input=typed,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


# ---------------------------------------------------------------------- at once


def test_the_version_is_said_at_once() -> None:
    def seconds(*command: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, *command], cwd=ROOT, check=True, capture_output=True)
        return time.perf_counter() - began

    pairs = [(seconds("-c", "pass"), seconds("-m", "bots", "--version")) for _ in range(9)]
    bare, ours = (statistics.median(side) for side in zip(*pairs, strict=True))
    assert ours - bare < 0.1, (bare, ours)


def test_the_version_loads_next_to_nothing(tmp_path: Path) -> None:
    ran = chinwag(
        cwd=tmp_path,
        code="import sys\n"
        "before = set(sys.modules)\n"
        "sys.argv = ['chinwag', '--version']\n"
        "from bots.__main__ import main\n"
        "main()\n"
        "print(*sorted(set(sys.modules) - before))",
    )
    version, modules = ran.stdout.splitlines()
    assert version == f"chinwag {__version__}"
    loaded = {name.partition(".")[0] for name in modules.split()} - set(sys.stdlib_module_names)
    assert loaded == {"bots"}, "not even click"
    assert "bots.cli" not in modules.split()
    assert "asyncio" not in modules.split()
    assert chinwag("--version", cwd=tmp_path).stdout == f"{version}\n"
    assert chinwag("--version", "run", cwd=tmp_path).stdout == f"{version}\n"


def test_the_command_line_loads_no_sdk(tmp_path: Path) -> None:
    """Help, a mistake in the config and a list of conversations need not wait for them."""
    ran = chinwag(
        cwd=tmp_path,
        code="import sys\n"
        "sys.argv = ['chinwag', 'sessions', 'list']\n"
        "from bots.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit: pass\n"
        "print(*(m for m in sys.modules if m in ('anthropic', 'telegram', 'uvicorn')))",
    )
    assert ran.stdout == "\n"


# ---------------------------------------------------------------------- help


def commands(group: click.Group, *above: str) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = [above]
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found += commands(command, *above, name)
        else:
            found.append((*above, name))
    return found


@pytest.mark.parametrize("command", commands(cli), ids=" ".join)
def test_help_teaches(command: tuple[str, ...]) -> None:
    from click.testing import CliRunner

    short, long = (CliRunner().invoke(cli, [*command, flag]) for flag in ("-h", "--help"))
    assert short.exit_code == long.exit_code == 0
    assert short.output == long.output
    assert "..." not in long.output.replace("COMMAND [ARGS]...", ""), "no sentence is cut off"
    found: click.Command = cli
    for name in command:
        assert isinstance(found, click.Group)
        found = found.commands[name]
    assert found.help
    for parameter in found.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{command} {parameter.name} is explained"


def test_help_names_every_command_and_the_exit_codes(tmp_path: Path) -> None:
    ran = chinwag("--help", cwd=tmp_path)
    assert ran.returncode == 0
    for word in ("init", "check", "run", "chat", "playground", "sessions", "2 usage or config"):
        assert word in ran.stdout
    assert chinwag(cwd=tmp_path).returncode == 2
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------- one clear line


def test_every_error_has_its_exit_code() -> None:
    codes: list[tuple[ChinwagError, int]] = [
        (ConfigError(""), 2),
        (InvalidKey(""), 2),
        (StoreInUse(""), 3),
        (StoreCorrupt(""), 3),
        (StoreUnavailable(""), 3),
        (PlatformRefused(""), 4),
        (ModelRefusedKey(""), 5),
        (Fatal(3, ""), 3),
        (Fatal(4, ""), 4),
    ]
    assert [exit_code(error) for error, _ in codes] == [code for _, code in codes]


def one_line(ran: subprocess.CompletedProcess[str], code: int) -> str:
    """What a mistake is answered with."""
    assert ran.returncode == code, ran
    assert "Traceback" not in ran.stderr
    assert ran.stderr.startswith("chinwag: "), ran.stderr
    assert ran.stderr.count("\n") == 1, ran.stderr
    return ran.stderr.removeprefix("chinwag: ").rstrip("\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[agent]\nmodle = 'x'", "config.toml: [agent] modle: no such key; did you mean model?"),
        ("[acess]\nopen = true", "config.toml: [acess] is not a section; did you mean [access]?"),
        ("[engine]\nconcurrency = 'many'", "[engine] concurrency: want a whole number"),
        ("[store]\nurl = 'nowhere:x'", "[store] url: no store is called 'nowhere'"),
        ("[agent", "config.toml: not TOML"),
        ("[agent]\ntools = ['tools.py:clock']", "tools.py: no such file"),
        ("[adapters.irc]\nuse = 'irc.py:IRC'", "irc.py: no such file"),
    ],
)
def test_a_mistake_in_the_config_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    environ = {} if "adapters" in text else {"TELEGRAM_BOT_TOKEN": TOKEN}
    base = f"http://127.0.0.1:{closed_port()}"
    command = "chat" if "tools" in text else "run"
    ran = chinwag(command, cwd=tmp_path, **environ, CHINWAG_TELEGRAM__BASE_URL=base)
    assert line in one_line(ran, 2)
    assert TOKEN not in ran.stdout + ran.stderr


@pytest.mark.parametrize(
    "command", [("run",), ("chat",), ("check",), ("sessions", "list"), ("sessions", "show", "x")]
)
def test_a_named_config_that_is_missing(tmp_path: Path, command: tuple[str, ...]) -> None:
    ran = chinwag(*command, "--config", "deploy/bot.toml", cwd=tmp_path)
    assert one_line(ran, 2) == "deploy/bot.toml: no such file; `chinwag init` writes one"
    ran = chinwag(*command, cwd=tmp_path, CHINWAG_CONFIG="bot.toml")
    assert "bot.toml (named by CHINWAG_CONFIG): no such file" in one_line(ran, 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("value", "home"), [(TOKEN, "TELEGRAM_BOT_TOKEN"), (API_KEY, "ANTHROPIC")])
def test_a_token_in_the_config_is_refused_and_not_repeated(
    tmp_path: Path, value: str, home: str
) -> None:
    (tmp_path / "config.toml").write_text(f'[agent]\ninstructions = "Use {value} to log in."\n')
    for command in (("run",), ("chat",), ("check",), ("sessions", "list")):
        ran = chinwag(*command, cwd=tmp_path)
        line = one_line(ran, 2)
        assert "[agent] instructions holds what looks like a secret" in line
        assert home in line
        assert value[-20:] not in ran.stdout + ran.stderr


def test_nothing_configured(tmp_path: Path) -> None:
    line = one_line(chinwag("run", cwd=tmp_path), 2)
    assert "no platform is configured" in line
    assert "chinwag init" in line
    line = one_line(chinwag("run", "slack", cwd=tmp_path, TELEGRAM_BOT_TOKEN=TOKEN), 2)
    assert "slack is not configured: set SLACK_BOT_TOKEN in .env" in line
    line = one_line(chinwag("run", "irc", cwd=tmp_path, TELEGRAM_BOT_TOKEN=TOKEN), 2)
    assert "irc: no such platform; there is telegram" in line
    assert list(tmp_path.iterdir()) == [], "and nothing was made"


def test_usage(tmp_path: Path) -> None:
    for arguments, said in (
        (("rnu",), "No such command 'rnu'"),
        (("run", "--log-level", "loud"), "'loud' is not one of"),
        (("sessions", "show"), "Missing argument 'KEY'"),
        (("chat", "--sesion", "x"), "No such option"),
    ):
        ran = chinwag(*arguments, cwd=tmp_path)
        assert ran.returncode == 2
        assert said in ran.stderr
        assert "Traceback" not in ran.stderr


def test_a_database_that_cannot_be_made(tmp_path: Path) -> None:
    ran = chinwag("chat", cwd=tmp_path, CHINWAG_STORE__URL="sqlite:no/such/folder/bot.db")
    assert "no/such/folder/bot.db" in one_line(ran, 3)
    ran = chinwag("sessions", "list", cwd=tmp_path)
    assert "chinwag.db: " in one_line(ran, 3)
    assert list(tmp_path.iterdir()) == []


def test_conversations_that_are_not_there(tmp_path: Path) -> None:
    import asyncio

    async def make() -> None:
        async with SQLiteStore(tmp_path / "chinwag.db"):
            pass

    asyncio.run(make())
    for command in ("show", "export", "reset"):
        more = ("--yes",) if command == "reset" else ()
        ran = chinwag("sessions", command, *more, "telegram-chat:9", cwd=tmp_path)
        assert one_line(ran, 2).startswith("telegram-chat:9: no such conversation")
        ran = chinwag("sessions", command, *more, "", cwd=tmp_path)
        one_line(ran, 2)
    ran = chinwag("sessions", "reset", "telegram-chat:9", cwd=tmp_path)
    assert ran.returncode == 130, "nobody answered the question"
    assert "Traceback" not in ran.stderr


def test_check_has_an_exit_code_per_kind(tmp_path: Path) -> None:
    base = f"http://127.0.0.1:{closed_port()}"
    ran = chinwag("check", cwd=tmp_path)
    assert ran.returncode == 5, "no model key"
    assert "there is no key" in ran.stdout
    environ = {
        "TELEGRAM_BOT_TOKEN": TOKEN,
        "CHINWAG_TELEGRAM__BASE_URL": base,
        "ANTHROPIC_API_KEY": API_KEY,
        "ANTHROPIC_BASE_URL": base,
    }
    ran = chinwag("check", cwd=tmp_path, **environ)
    assert ran.returncode == 4, "nobody answers there"
    (tmp_path / "chinwag.db").write_bytes(b"no database at all, not by a long way" * 100)
    ran = chinwag("check", cwd=tmp_path, **environ)
    assert ran.returncode == 3
    for secret in (TOKEN, TOKEN.partition(":")[2], API_KEY):
        assert secret not in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["chinwag.db"]


def test_a_mistake_of_ours_shows_no_secret(tmp_path: Path) -> None:
    (tmp_path / "boom.py").write_text(
        "import sys\n"
        "from bots import cli\n"
        "def broken(path):\n"
        f"    raise RuntimeError('http://x/bot{TOKEN}/getMe and {API_KEY}')\n"
        "cli.load_settings = broken\n"
        "sys.argv = ['chinwag', 'run']\n"
        "cli.run()\n"
    )
    ran = chinwag(cwd=tmp_path, code=(tmp_path / "boom.py").read_text())
    assert ran.returncode == 1
    assert "RuntimeError" in ran.stderr
    assert "[secret]" in ran.stderr
    assert TOKEN.partition(":")[2] not in ran.stderr
    assert API_KEY not in ran.stderr


BROKEN = f"""
TOKEN = "{TOKEN}"
from core.adapter import Limits

class Base:
    name = "mine"
    limits = Limits()
    def serves(self, key): return False
    def render(self, markdown): return ()
    async def send(self, key, part, *, uncertain): ...
    def live(self, key, inbound, shown, showing): ...

class Ends(Base):
    async def run(self, accept): pass

class Breaks(Base):
    async def run(self, accept): raise RuntimeError("no way to http://x/bot" + TOKEN + "/getMe")
"""


@pytest.mark.parametrize(("name", "event"), [("Ends", "ended"), ("Breaks", "broken")])
def test_an_adapter_that_ends_ends_the_program(tmp_path: Path, name: str, event: str) -> None:
    """Never running, but deaf."""
    (tmp_path / "mine.py").write_text(BROKEN)
    (tmp_path / "config.toml").write_text(f'[adapters.mine]\nuse = "mine.py:{name}"\n')
    ran = chinwag("run", cwd=tmp_path)
    assert ran.returncode == 1
    assert re.search(rf"ERROR {event} +what=mine", ran.stderr), ran.stderr
    assert ("Traceback" in ran.stderr) == (name == "Breaks")
    assert TOKEN not in ran.stderr


def test_a_listener_that_hangs_up_is_no_mistake(tmp_path: Path) -> None:
    """chinwag sessions list | head"""
    ran = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -m bots --help | true'],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "Traceback" not in ran.stderr
