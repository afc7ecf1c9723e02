"""The terminal as a platform: over pipes, over a pseudo-terminal, and as `chinwag chat`."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import pty
import subprocess
import sys
import tempfile
import termios
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from msgspec.structs import replace

from bots.console import OWNER, PROMPT, Console
from bots.contracts.adapter import AdapterContract, Desk, running
from bots.contracts.showing import Leave
from core import phrases
from core.adapter import Adapter, Doing, Refused, ShowsTools
from core.errors import ConfigError, TryLater
from core.messages import Inbound, Outbound, Sender
from playground.claude import Claude
from playground.claude_answers import Fail, Say
from tests.crash.program import KEY, PATIENCE, Ran


class Pipes:
    """A console, a pipe that leads to it, and a file that takes what it prints."""

    def __init__(self) -> None:
        inner, outer = os.pipe()
        self.keyboard = os.fdopen(outer, "wb", buffering=0)
        self._stdin = os.fdopen(inner)
        self._stdout = tempfile.TemporaryFile("w+", encoding="utf-8")
        self.console = Console(stdin=self._stdin, stdout=self._stdout)

    def say(self, text: str) -> None:
        self.keyboard.write(f"{text}\n".encode())

    def screen(self) -> str:
        return os.pread(self._stdout.fileno(), 1 << 24, 0).decode()

    def close(self) -> None:
        for stream in (self.keyboard, self._stdin, self._stdout):
            stream.close()


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    made = Pipes()
    yield made
    made.close()


def inbound(message_id: str = "m1") -> Inbound:
    return Inbound(
        message_id, "console:default", "message", Sender(OWNER), "hi", message_id=message_id
    )


def reply(console: Console, text: str, to: str | None = "m1") -> Outbound:
    return Outbound("part-1", console.render(text)[0], reply_to=to)


class TestContract(AdapterContract):
    redelivers = False  # who types a line that cannot be kept is told so

    @pytest.fixture
    async def adapter(self) -> AsyncIterator[Adapter]:
        self.pipes = Pipes()
        yield self.pipes.console
        self.pipes.close()

    async def say(self, text: str) -> None:
        self.pipes.say(text)

    async def screen(self) -> list[str]:
        return self.pipes.screen().splitlines()

    @pytest.fixture(autouse=True)
    def beside(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)

    async def files(self) -> dict[str, bytes]:
        found = {file.name: file.read_bytes() for file in Path.cwd().iterdir()}
        assert found.keys() <= set(await self.screen()), "they are named"
        return found


class TestLines:
    async def test_a_line_is_a_message_of_the_owner(self, pipes: Pipes) -> None:
        async with running(pipes.console, Desk()) as desk:
            pipes.keyboard.write("grüße\n\n   \n/reset\nnul\0 \x1b[31m\xff".encode("latin-1"))
            pipes.keyboard.close()
            first, second, third = await desk.have(3)
        assert (first.kind, second.kind, third.kind) == ("message", "command", "message")
        assert first.text == "gr\ufffd\ufffde"
        assert third.text == "nul\ufffd [31m\ufffd", "the last line needs no end"
        assert {each.sender.id for each in desk.accepted} == {OWNER}
        assert len({each.id for each in desk.accepted}) == 3

    async def test_a_letter_may_come_in_two_pieces(self, pipes: Pipes) -> None:
        async with running(pipes.console, Desk()) as desk:
            whole = "grüße\n".encode()
            pipes.keyboard.write(whole[:3])
            await asyncio.sleep(0.02)
            pipes.keyboard.write(whole[3:])
            await desk.have(1)
        assert desk.texts() == ["grüße"]

    async def test_no_more_is_read_than_is_taken(self, pipes: Pipes) -> None:
        """Whoever pipes a gigabyte in fills neither our memory nor a processor."""
        desk = Desk()
        desk.open.clear()
        os.set_blocking(pipes.keyboard.fileno(), False)
        async with running(pipes.console, desk):
            for _ in range(50):
                with contextlib.suppress(BlockingIOError):
                    while pipes.keyboard.write(b"y\n" * 2_000):
                        pass
                await asyncio.sleep(0)
            with pytest.raises(BlockingIOError):
                os.write(pipes.keyboard.fileno(), b"y\n" * 2_000)
            assert len(desk.asked) == 1

    async def test_a_plain_file_can_be_read_too(self, tmp_path: Path) -> None:
        file = tmp_path / "questions.txt"
        file.write_bytes(b"first\nsecond \xff\n" + b"x" * 100_000)
        with file.open() as stdin, (tmp_path / "answers.txt").open("w") as stdout:
            console = Console(stdin=stdin, stdout=stdout)
            desk = Desk()
            await asyncio.wait_for(console.run(desk.accept), PATIENCE)
        assert desk.texts() == ["first", "second \ufffd", "x" * 100_000]

    async def test_the_end_of_input_ends_it(self, pipes: Pipes) -> None:
        pipes.keyboard.close()
        await asyncio.wait_for(pipes.console.run(Desk().accept), PATIENCE)

    def test_without_input_or_output_it_does_not_begin(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "stdin", None)
        with pytest.raises(ConfigError, match="no standard input"):
            Console()


class TestScreen:
    async def test_what_was_shown_is_not_printed_again(self, pipes: Pipes) -> None:
        live = pipes.console.live(pipes.console.key, inbound(), (), Leave())
        for text in ("", "  ", "  Good", "  Good \n", "  Good \nmorning", "  Good \nmorning.\n\n"):
            assert live.show(text) == bool(text.strip())
        assert pipes.screen() == "Good \nmorning."
        assert await live.close() == ()
        whole = reply(pipes.console, "  Good \nmorning.\n\n And more")
        await pipes.console.send(pipes.console.key, whole, uncertain=False)
        assert pipes.screen() == "Good \nmorning.\n\n And more\n"

    async def test_after_a_restart_everything_is_printed(self, pipes: Pipes) -> None:
        await pipes.console.send(
            pipes.console.key, reply(pipes.console, "Good morning."), uncertain=True
        )
        assert pipes.screen() == "Good morning.\n"

    async def test_what_was_shown_and_is_not_the_answer_stays_a_line(self, pipes: Pipes) -> None:
        """An apology, the answer to a command, and an answer that is begun anew."""
        console = pipes.console
        live = console.live(console.key, inbound(), (), Leave())
        live.show("This will never be fin")
        await console.send(console.key, reply(console, "Stopped.", "m2"), uncertain=False)
        again = console.live(console.key, inbound("m3"), (), Leave())
        again.show("Half of")
        again.show("Quite another")
        await console.send(console.key, reply(console, "I am sorry.", "m3"), uncertain=False)
        assert pipes.screen().splitlines() == [
            "This will never be fin",
            "Stopped.",
            "Half of",
            "Quite another",
            "I am sorry.",
        ]

    async def test_no_text_takes_the_terminal_over(self, pipes: Pipes) -> None:
        evil = "\x1b]0;title\x07\x1b[2J\x9b1m \ud800 fine"
        live = pipes.console.live(pipes.console.key, inbound(), (), Leave())
        live.show(evil)
        await pipes.console.send(pipes.console.key, reply(pipes.console, evil), uncertain=False)
        assert pipes.screen() == "]0;title[2J1m \ufffd fine\n"

    async def test_a_terminal_that_knows_few_letters(self, tmp_path: Path) -> None:
        file = tmp_path / "screen"
        with open(os.devnull) as stdin, file.open("w", encoding="ascii") as stdout:
            console = Console(stdin=stdin, stdout=stdout)
            console.live(console.key, inbound(), (), Leave()).show("Gr")
            await console.send(console.key, reply(console, "Grüße 😀"), uncertain=False)
        assert file.read_text() == "Gr??e ?\n"

    async def test_what_nobody_can_read_is_kept(self) -> None:
        reading, writing = os.pipe()
        with open(os.devnull) as stdin, os.fdopen(writing, "w") as stdout:
            console = Console(stdin=stdin, stdout=stdout)
            os.close(reading)
            console.live(console.key, inbound(), (), Leave()).show("hello")
            for _ in range(2):
                with pytest.raises(TryLater):
                    await console.send(console.key, reply(console, "hello"), uncertain=False)

    async def test_a_refusal_is_printed(self, pipes: Pipes) -> None:
        desk = Desk(Refused("not so fast"))
        pipes.say("hello")
        pipes.keyboard.close()
        await asyncio.wait_for(pipes.console.run(desk.accept), PATIENCE)
        assert pipes.screen() == "not so fast\n"


# ---------------------------------------------------------------------- chinwag chat


@pytest.fixture
async def claude() -> AsyncIterator[Claude]:
    async with Claude() as server:
        yield server


def environ(claude: Claude, **more: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "PYTHONIOENCODING": "utf-8",
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": claude.url,
        **more,
    }


async def chat(
    folder: Path,
    claude: Claude,
    typed: bytes | IO[bytes],
    *arguments: str,
    **more: str,
) -> Ran:
    """`chinwag chat` to the end of its input."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bots", "chat", *arguments),
        cwd=folder,
        env=environ(claude, **more),
        stdin=subprocess.PIPE if isinstance(typed, bytes) else typed,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(
            process.communicate(typed if isinstance(typed, bytes) else None), PATIENCE
        )
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode())


async def test_the_end_of_input_waits_for_the_answer(tmp_path: Path, claude: Claude) -> None:
    claude.script(Say("", deltas=("All ", "in ", "good ", "time."), pause=0.1))
    ran = await chat(tmp_path, claude, b"my name is Alice\n")
    assert ran == Ran(0, "All in good time.\n", "")
    with (tmp_path / "questions.txt").open("wb") as file:
        file.write(b"what did I say first?")
    with (tmp_path / "questions.txt").open("rb") as file:
        ran = await chat(tmp_path, claude, file)
    assert ran == Ran(0, "You first said: “my name is Alice”\n", "")
    assert (tmp_path / "chinwag.db").stat().st_mode & 0o077 == 0


async def test_conversations_and_stores_of_ones_own(tmp_path: Path, claude: Claude) -> None:
    another, disk = await asyncio.gather(
        chat(tmp_path, claude, b"what is my name?\n", "--session", "other"),
        chat(tmp_path, claude, b"my name is Bob\n", CHINWAG_STORE__URL="disk:chats"),
    )
    assert another == Ran(0, "I do not know your name yet.\n", "")
    assert disk == Ran(0, "Nice to meet you, Bob.\n", "")
    nothing, disk = await asyncio.gather(
        chat(tmp_path, claude, b"", CHINWAG_STORE__URL="memory:"),
        chat(tmp_path, claude, b"what is my name?\n", CHINWAG_STORE__URL="disk:chats"),
    )
    assert nothing == Ran(0, "", "")
    assert disk == Ran(0, "Your name is Bob.\n", "")


async def test_a_model_that_fails_is_said_and_without_a_key_it_does_not_hang(
    tmp_path: Path, claude: Claude
) -> None:
    without, failing = tmp_path / "without", tmp_path / "failing"
    without.mkdir()
    failing.mkdir()
    claude.script(*(Fail(500, "api_error") for _ in range(3)))
    failed, ran = await asyncio.gather(
        chat(failing, claude, b"my name is Alice\n"),
        chat(without, claude, b"my name is Alice\n", ANTHROPIC_API_KEY=""),
    )
    assert failed == Ran(0, phrases.UNAVAILABLE + "\n", "")
    assert ran.code == 0
    assert ran.out == phrases.NO_MODEL + "\n"
    assert "at the next start" in ran.err
    assert "Traceback" not in ran.err
    # With a key it is answered without having to be asked again.
    ran = await chat(without, claude, b"")
    assert "Alice" in ran.out


async def test_input_and_output_that_are_not_there(tmp_path: Path, claude: Claude) -> None:
    closed = f'exec "{sys.executable}" -m bots chat'
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", f"{closed} <&-"),
        cwd=tmp_path,
        env=environ(claude),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    _, err = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 2
    assert err.decode() == "chinwag: there is no standard input to talk through\n"


class Terminal:
    """A pseudo-terminal with `chinwag chat` or another program in it."""

    def __init__(self, *command: str, cwd: Path, env: dict[str, str]) -> None:
        self._far, near = pty.openpty()
        quiet = termios.tcgetattr(near)
        quiet[3] &= ~termios.ECHO
        termios.tcsetattr(near, termios.TCSANOW, quiet)
        self.process = subprocess.Popen(
            (sys.executable, "-m", "bots", *command),
            cwd=cwd,
            env=env,
            stdin=near,
            stdout=near,
            stderr=near,
            start_new_session=True,
        )
        os.close(near)
        os.set_blocking(self._far, False)
        self.screen = ""

    def type(self, text: str) -> None:
        os.write(self._far, text.encode())

    async def until(self, reached: Callable[[str], bool]) -> str:
        """Wait for what is to be read there; gives all of it."""
        async with asyncio.timeout(PATIENCE):
            while not reached(self._read()):
                assert self.process.poll() is None or reached(self._read()), self.screen
                await asyncio.sleep(0.02)
        return self.screen

    async def ended(self) -> int:
        async with asyncio.timeout(PATIENCE):
            while self.process.poll() is None:
                self._read()
                await asyncio.sleep(0.02)
        self._read()
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._far)

    def _read(self) -> str:
        try:
            while chunk := os.read(self._far, 65_536):
                self.screen += chunk.decode().replace("\r\n", "\n")
        except BlockingIOError:
            pass
        except OSError as error:
            assert error.errno == errno.EIO
        return self.screen


async def test_in_a_terminal_there_is_a_prompt_and_a_way_out(
    tmp_path: Path, claude: Claude
) -> None:
    terminal = Terminal("chat", cwd=tmp_path, env=environ(claude))
    try:
        await terminal.until(lambda screen: screen.endswith(PROMPT))
        assert "/help says what I can do; Ctrl-D leaves." in terminal.screen
        terminal.type("my name is Alice\n")
        await terminal.until(lambda screen: screen.count(PROMPT) == 2)
        assert "Nice to meet you, Alice." in terminal.screen
        terminal.type("\x04")
        assert await terminal.ended() == 0
        assert terminal.screen.endswith(f"{PROMPT}\n")
        assert "Traceback" not in terminal.screen
    finally:
        terminal.close()


def test_what_tools_do_is_said_to_who_sits_in_front_of_it() -> None:
    far, near = pty.openpty()
    quiet = termios.tcgetattr(near)
    quiet[1] &= ~termios.OPOST
    termios.tcsetattr(near, termios.TCSANOW, quiet)
    call = Doing("c1", "Look it up\x1b[31m", "running")
    with (
        open(near, encoding="utf-8", closefd=False) as stdin,
        open(near, "w", encoding="utf-8") as stdout,
    ):
        console = Console(stdin=stdin, stdout=stdout)
        live = console.live(console.key, inbound(), (), Leave())
        assert isinstance(live, ShowsTools)
        live.show("Let me look.")
        live.doing((call,))
        live.doing((call, Doing("c2", "Wait", "asks")))
        live.doing((replace(call, state="done"), Doing("c2", "Wait", "failed")))
        live.show("Let me look.\n\nThere.")
        seen = b""
        while not seen.endswith(b"There."):
            seen += os.read(far, 10_000)
    os.close(far)
    assert seen.decode() == "Let me look.\n\x1b[2m· Look it up[31m\x1b[0m\n\n\nThere."
