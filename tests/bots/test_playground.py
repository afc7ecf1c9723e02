"""`chinwag playground`, as a newcomer meets it: no account, no key, no network."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from bots.console import PROMPT
from core import phrases
from tests.bots.test_console import Terminal

ROOT = Path(__file__).parents[2]
LEFTOVER = {
    # What a person may have in their environment; none of it may matter here.
    "ANTHROPIC_API_KEY": "sk-ant-" + "of-somebody-who-pays",
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
    "CHINWAG_STORE__URL": "sqlite:/nowhere/at/all.db",
    "TELEGRAM_BOT_TOKEN": "123456:" + "AAH-a-token-that-nobody-may-read-000",
}


def environ() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **LEFTOVER}


def running(mark: str) -> list[str]:
    """The command lines of the processes that have this mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if f"MARK={mark}".encode() in environment and line:
            found.append(line)
    return found


async def test_it_knows_the_name_after_a_new_start_and_forgets_it_at_a_reset(
    tmp_path: Path,
) -> None:
    async def talk(lines: list[str], *, leave: str) -> str:
        terminal = Terminal("playground", "--terminal", cwd=tmp_path, env=environ())
        try:
            await terminal.until(lambda screen: screen.endswith(PROMPT))
            for number, line in enumerate(lines, start=2):
                terminal.type(f"{line}\n")
                await terminal.until(lambda screen, n=number: screen.count(PROMPT) == n)  # type: ignore[misc]
            if leave == "Ctrl-C":
                os.killpg(terminal.process.pid, signal.SIGINT)
            else:
                terminal.type("\x04")
            assert await terminal.ended() == 0
            assert "Traceback" not in terminal.screen
            assert "Error" not in terminal.screen
            return terminal.screen
        finally:
            terminal.close()

    screen = await talk(["hello, my name is Alice"], leave="Ctrl-C")
    assert "A local stand-in answers instead of Claude." in screen
    assert "Nice to meet you, Alice." in screen
    screen = await talk(
        ["what is my name?", "/reset", "what is my name?"],
        leave="Ctrl-D",
    )
    answers = [line.removeprefix(PROMPT) for line in screen.splitlines()]
    assert [answer for answer in answers if answer][-3:] == [
        "Your name is Alice.",
        phrases.RESET,
        "I do not know your name yet.",
    ]
    files = [file for file in (tmp_path / ".playground").iterdir() if file.suffix != ".lock"]
    assert [file.name for file in files] == ["playground.db"]
    assert files[0].stat().st_mode & 0o077 == 0
    assert [file.name for file in tmp_path.iterdir()] == [".playground"]


def test_over_pipes(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "bots", "playground", "--terminal", "--folder", "here"],
        cwd=tmp_path,
        env=environ(),
        input="my name is Alice\n",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ran.returncode == 0, ran
    assert ran.stderr == ""
    assert ran.stdout.splitlines()[-1] == "Nice to meet you, Alice."
    assert (tmp_path / "here" / "playground.db").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_nothing_is_left_running(tmp_path: Path, number: signal.Signals) -> None:
    """Whoever closes the window, or ends it from elsewhere, has not left a server behind."""
    mark = str(tmp_path)
    terminal = Terminal("playground", "--terminal", cwd=tmp_path, env={**environ(), "MARK": mark})
    try:
        await terminal.until(lambda screen: screen.endswith(PROMPT))
        assert len(running(mark)) == 3
        terminal.process.send_signal(number)
        await terminal.ended()
        assert running(mark) == []
    finally:
        terminal.close()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = subprocess.run(
        [sys.executable, "-m", "bots", "playground", "--terminal", "--folder", "file/here"],
        cwd=tmp_path,
        env=environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ran.returncode == 2
    assert ran.stderr.startswith("chinwag: file/here: cannot be made: ")
    assert ran.stderr.count("\n") == 1


# ---------------------------------------------------------------------- the page


def page(tmp_path: Path, *arguments: str, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bots", "playground", *arguments],
        cwd=tmp_path,
        env={**environ(), **more},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_page_says_what_it_does_and_leaves_nothing_behind(
    tmp_path: Path, number: signal.Signals
) -> None:
    mark = str(tmp_path)
    with page(tmp_path, MARK=mark) as playground:
        assert playground.stdout is not None and playground.stderr is not None
        said: list[str] = []
        while not said or not said[-1].startswith("    http"):
            said.append(playground.stdout.readline())
            assert said[-1], playground.stderr.read()
        url = said[-1].strip()
        assert said[0].startswith("Starting a local Telegram")
        root, _, token = url.rstrip("/").rpartition("/")
        assert root.startswith("http://127.0.0.1:") and len(token) >= 20
        with urlopen(url, timeout=10) as answer:
            assert answer.status == 200
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"{root}/", timeout=10)
        assert len(running(mark)) == 2, "the page, and the bot"
        playground.send_signal(number)
        rest, errors = playground.communicate(timeout=30)
    assert (playground.returncode, errors) == (0, "")
    assert rest.endswith("Ending the bot …\n")
    assert running(mark) == []
    assert list((tmp_path / ".playground").iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_killed_it_leaves_no_bot_behind(tmp_path: Path) -> None:
    mark = str(tmp_path)
    with page(tmp_path, MARK=mark) as playground:
        assert playground.stdout is not None
        while not (said := playground.stdout.readline()).startswith("    http"):
            assert said
        assert len(running(mark)) == 2
        playground.kill()
    until = time.monotonic() + 20
    while running(mark) and time.monotonic() < until:
        time.sleep(0.05)
    assert running(mark) == []


def test_no_browser_to_open_it_with(tmp_path: Path) -> None:
    with page(tmp_path, "--open", PATH=str(tmp_path)) as playground:
        assert playground.stdout is not None
        said: list[str] = []
        while not (said and said[-1].startswith("No browser was found here")):
            said.append(playground.stdout.readline())
            assert said[-1]
        playground.terminate()
        playground.communicate(timeout=30)
    assert playground.returncode == 0
    assert any(line.startswith("    http://127.0.0.1:") for line in said)


def refused(tmp_path: Path, *arguments: str) -> str:
    with page(tmp_path, *arguments) as playground:
        _, errors = playground.communicate(timeout=30)
    assert playground.returncode == 2
    return errors


def test_a_busy_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        error = refused(tmp_path, "--port", str(port))
    assert error == (
        f"chinwag: port {port} cannot be had (Address already in use): name another with --port, "
        "or none, and a free one is taken\n"
    )


def test_an_address_that_others_reach(tmp_path: Path) -> None:
    error = refused(tmp_path, "--host", "0.0.0.0")
    assert error.startswith("chinwag: The playground protects nothing and so serves only this")
    assert error.count("\n") == 1


def test_a_config_that_is_not_there(tmp_path: Path) -> None:
    error = refused(tmp_path, "--config", "none.toml")
    assert "none.toml" in error and "Traceback" not in error


def test_no_folder_for_the_page(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    error = refused(tmp_path, "--folder", "file/here")
    assert error.startswith("chinwag: file/here: cannot be made: ") and error.count("\n") == 1
