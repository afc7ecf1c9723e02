"""An adapter for the terminal: one line is one message, and its sender is the owner.

Not a user interface: no history of lines, no cursor, and nothing but what tools do meanwhile is not
in the terminal's own colour. Reads standard input, writes
standard output, serves one conversation.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, TextIO

import msgspec
from msgspec.structs import replace

from core.adapter import Accept, Doing, Limits, Live, Receipt, Refused, Showing
from core.clock import Clock, SystemClock
from core.errors import ConfigError, TryLater, Undeliverable
from core.keys import SessionKey
from core.messages import Inbound, Outbound, Sender, clean

OWNER: Final = "console:owner"
PROMPT: Final = "› "
CHUNK: Final = 65_536
DIM: Final = "\x1b[2m"
PLAIN: Final = "\x1b[0m"


class Console:
    """
    :param session: which conversation, the default one when not given
    """

    name = "console"
    limits = Limits()

    def __init__(
        self,
        session: str = "default",
        *,
        stdin: TextIO | None = None,
        stdout: TextIO | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.key = str(SessionKey("console", (session,)))
        self._stdin = _there(stdin or sys.stdin, "input")
        self._stdout = _there(stdout or sys.stdout, "output")
        self._clock = clock or SystemClock()
        self._prompts = self._stdin.isatty() and self._stdout.isatty()
        self._shown: dict[str, str] = {}
        # The cursor stands behind a text of ours, not at the beginning of a line.
        self._in_line = False
        # Nobody can read what we write any more.
        self._gone = False
        # Lines on their way to an answer: the prompt comes back when there are none.
        self._open: set[str] = set()

    def serves(self, key: str) -> bool:
        return key == self.key

    async def run(self, accept: Accept) -> None:
        """Until the end of input."""
        try:
            await self._read(accept)
        finally:
            # What the shell says next begins a line.
            if self._prompts:
                with contextlib.suppress(OSError):
                    self._start_line()

    async def _read(self, accept: Accept) -> None:
        self._prompt()
        async for line in _lines(self._stdin.fileno()):
            self._in_line = False
            text = clean(line).strip()
            if not text:
                self._prompt()
                continue
            message_id = secrets.token_hex(8)
            self._open.add(message_id)
            acceptance = await accept(
                Inbound(
                    id=message_id,
                    key=self.key,
                    kind="command" if text.startswith("/") else "message",
                    sender=Sender(OWNER),
                    text=text,
                    message_id=message_id,
                    at=self._clock.now(),
                )
            )
            if isinstance(acceptance, Refused):
                if acceptance.reply:
                    with contextlib.suppress(OSError):
                        self._write_line(acceptance.reply)
                self._answered(message_id)

    def render(self, markdown: str) -> tuple[str, ...]:
        """Markdown is for reading as it is."""
        text = clean(markdown).strip()
        return (msgspec.json.encode(text).decode(),) if text else ()

    async def send(self, key: str, part: Outbound, *, uncertain: bool) -> Receipt:
        """Print what this process has not shown already.

        :raises TryLater: nobody can read it any more; it is printed at the next start
        """
        text = msgspec.json.decode(part.body, type=str) if part.body is not None else ""
        shown = self._shown.pop(part.reply_to or "", "")
        try:
            if shown and text.startswith(shown):
                self._write(text[len(shown) :] + "\n")
            else:
                self._write_line(text)
        except OSError as error:
            raise TryLater(60, f"standard output: {error.strerror}") from error
        self._answered(part.reply_to)
        return Receipt((part.id,))

    async def send_file(self, key: str, part: Outbound, data: bytes, *, uncertain: bool) -> Receipt:
        """Write it beside, where the program was started, and say what it is called.

        :raises TryLater: nobody can read it any more
        :raises Undeliverable: it cannot be written there
        """
        if part.file is None:
            raise Undeliverable("there is no file to be sent")
        try:
            path = _write_beside(Path(part.file.name), data)
        except OSError as error:
            raise Undeliverable(f"{part.file.name}: {error.strerror}") from error
        return await self.send(
            key, replace(part, body=msgspec.json.encode(str(path)).decode()), uncertain=uncertain
        )

    def live(self, key: str, inbound: Inbound, shown: tuple[str, ...], showing: Showing) -> Live:
        return _Printing(self, inbound.message_id or "")

    def show(self, message_id: str, text: str) -> None:
        """Print what is new of a growing answer. White space at its end waits for what follows."""
        text = clean(text).strip()
        shown = self._shown.get(message_id, "")
        # An output that is gone is met again by `send`, which can say so.
        with contextlib.suppress(OSError):
            if shown and text.startswith(shown):
                self._write(text[len(shown) :])
            elif text:
                self._start_line()
                self._write(text)
        self._shown[message_id] = text

    def begun(self, title: str) -> None:
        """Say what is being done meanwhile; only to somebody who sits in front of it."""
        if self._prompts:
            with contextlib.suppress(OSError):
                self._write_line(f"{DIM}· {title}{PLAIN}")

    def _answered(self, message_id: str | None) -> None:
        # All that waited is answered together, by a reply to the last of them.
        if message_id in self._open:
            self._open.clear()
        # What comes without a line that asked for it (after /approve, say) leaves none behind.
        if not self._open:
            self._prompt()

    def _prompt(self) -> None:
        if self._prompts:
            with contextlib.suppress(OSError):
                self._write(PROMPT)

    def _write_line(self, text: str) -> None:
        self._start_line()
        self._write(text + "\n")

    def _start_line(self) -> None:
        if self._in_line:
            self._write("\n")

    def _write(self, text: str) -> None:
        if not text:
            return
        if self._gone:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        encoding = self._stdout.encoding or "utf-8"
        try:
            self._stdout.write(text.encode(encoding, "replace").decode(encoding))
            self._stdout.flush()
        except OSError:
            self._gone = True
            # Python tries once more at the end, and would then complain about it.
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), self._stdout.fileno())
            raise
        self._in_line = not text.endswith("\n")


class _Printing:
    def __init__(self, console: Console, message_id: str) -> None:
        self._console = console
        self._message_id = message_id
        self._told: set[str] = set()

    def doing(self, calls: tuple[Doing, ...]) -> None:
        for call in calls:
            if call.state == "running" and call.id not in self._told:
                self._told.add(call.id)
                self._console.begun(clean(call.title))

    def show(self, text: str) -> bool:
        self._console.show(self._message_id, text)
        return bool(text.strip())

    async def close(self) -> tuple[str, ...]:
        return ()


def _there(stream: TextIO | None, what: str) -> TextIO:
    # Python says None for one that was closed before the start.
    if stream is None:
        raise ConfigError(f"there is no standard {what} to talk through")
    return stream


def _write_beside(path: Path, data: bytes) -> Path:
    """A new file, for its owner's eyes; a number in its name when there is one of that name."""
    file, number = path, 1
    while True:
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            number += 1
            file = path.with_stem(f"{path.stem}-{number}")
            continue
        with open(descriptor, "wb") as opened:
            opened.write(data)
        return file


async def _lines(descriptor: int) -> AsyncIterator[str]:
    """Lines as they come, and no faster than they are taken; without a thread that a stopped
    program would have to wait for."""
    rest = b""
    while chunk := await _read(descriptor):
        *lines, rest = (rest + chunk).split(b"\n")
        for each in lines:
            yield each.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")


async def _read(descriptor: int) -> bytes:
    """What there is; b"": the end."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:
        # A plain file cannot be waited for, and need not be.
        return os.read(descriptor, CHUNK)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
    try:
        return os.read(descriptor, CHUNK)
    except OSError as error:
        # How a terminal says that it has been closed.
        if error.errno == errno.EIO:
            return b""
        raise
