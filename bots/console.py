"""An adapter for the terminal: one line is one message, and its sender is the owner.

Not a user interface: no colours, no history of lines, no cursor. Reads standard input, writes
standard output, serves one conversation.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
from collections.abc import AsyncIterator
from typing import Final, TextIO

import msgspec

from core.adapter import Accept, Limits, Live, Receipt, Refused
from core.clock import Clock, SystemClock
from core.keys import SessionKey
from core.messages import Inbound, Outbound, Sender, clean

OWNER: Final = "console:owner"
PROMPT: Final = "› "


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
        self._stdin = stdin or sys.stdin
        self._stdout = stdout or sys.stdout
        self._clock = clock or SystemClock()
        self._prompts = self._stdin.isatty() and self._stdout.isatty()
        self._shown: dict[str, str] = {}
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
                self._write("\n")

    async def _read(self, accept: Accept) -> None:
        self._prompt()
        async for line in _lines(self._stdin):
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
                    self._write(acceptance.reply + "\n")
                self._answered(message_id)

    def render(self, markdown: str) -> tuple[str, ...]:
        """Markdown is for reading as it is."""
        text = clean(markdown).strip()
        return (msgspec.json.encode(text).decode(),) if text else ()

    async def send(self, key: str, part: Outbound, *, uncertain: bool) -> Receipt:
        """Print what this process has not shown already."""
        text = msgspec.json.decode(part.body, type=str) if part.body is not None else ""
        shown = self._shown.pop(part.reply_to or "", "")
        if shown and not text.startswith(shown):
            self._write("\n")
            shown = ""
        self._write(text[len(shown) :] + "\n")
        self._answered(part.reply_to)
        return Receipt((part.id,))

    def live(self, key: str, inbound: Inbound, shown: tuple[str, ...]) -> Live:
        return _Printing(self, inbound.message_id or "")

    def show(self, message_id: str, text: str) -> None:
        """Print what is new of a growing answer."""
        shown = self._shown.get(message_id, "")
        if text.startswith(shown):
            self._write(text[len(shown) :])
        else:
            self._write("\n" + text)
        self._shown[message_id] = text

    def _answered(self, message_id: str | None) -> None:
        # All that waited is answered together, by a reply to the last of them.
        if message_id in self._open:
            self._open.clear()
            self._prompt()

    def _prompt(self) -> None:
        if self._prompts:
            self._write(PROMPT)

    def _write(self, text: str) -> None:
        self._stdout.write(text)
        self._stdout.flush()


class _Printing:
    def __init__(self, console: Console, message_id: str) -> None:
        self._console = console
        self._message_id = message_id

    def show(self, text: str) -> bool:
        self._console.show(self._message_id, text.lstrip())
        return bool(text.strip())

    async def close(self) -> tuple[str, ...]:
        return ()


async def _lines(stdin: TextIO) -> AsyncIterator[str]:
    """Lines as they come, without a thread that a stopped program would have to wait for."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[bytes] = asyncio.Queue()
    descriptor = stdin.fileno()

    def read() -> None:
        arrived.put_nowait(os.read(descriptor, 65_536))

    try:
        loop.add_reader(descriptor, read)
    except PermissionError:
        # A plain file cannot be waited for, and need not be.
        for line in await asyncio.to_thread(stdin.readlines):
            yield line
        return
    try:
        rest = b""
        while chunk := await arrived.get():
            *lines, rest = (rest + chunk).split(b"\n")
            for each in lines:
                yield each.decode(errors="replace")
        if rest:
            yield rest.decode(errors="replace")
    finally:
        with contextlib.suppress(ValueError, OSError):
            loop.remove_reader(descriptor)
