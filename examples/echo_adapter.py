"""A whole adapter in one file: people connect with `nc 127.0.0.1 7070`, say their name, and chat.

Run it by `chinwag run` with this in config.toml:

    [access]
    open = true

    [adapters.echo]
    use = "examples/echo_adapter.py:EchoAdapter"
    port = 7070

Its proof is `tests/examples/test_echo_adapter.py`, twenty lines over the contract suite. It is an
example and no service: it believes whatever name it is told, so it listens on loopback only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time

import msgspec

from core.adapter import Accept, Limits, Live, Receipt, Refused, Showing
from core.errors import PlatformRefused, StoreUnavailable, TryLater
from core.keys import SessionKey
from core.messages import Inbound, Outbound, Sender, clean

SCOPE = "echo-chat"
LONGEST_LINE = 1_000_000
AWAY_SECONDS = 10


class EchoSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of [adapters.echo] besides `use`."""

    port: int = 7070


class Silent:
    """A platform that can show neither typing nor a growing answer."""

    def show(self, text: str) -> bool:
        return False

    async def close(self) -> tuple[str, ...]:
        return ()


class EchoAdapter:
    """One connection is one person; the name they give is their chat."""

    name = "echo"
    limits = Limits()
    Settings = EchoSettings

    def __init__(self, settings: EchoSettings) -> None:
        self._settings = settings
        self._connected: dict[str, asyncio.StreamWriter] = {}

    def serves(self, key: str) -> bool:
        parsed = SessionKey.parse(key)
        return parsed is not None and parsed.scope == SCOPE and parsed.account is None

    async def run(self, accept: Accept) -> None:
        try:
            server = await asyncio.start_server(
                lambda reader, writer: self._converse(accept, reader, writer),
                "127.0.0.1",
                self._settings.port,
                limit=LONGEST_LINE,
            )
        except OSError as error:
            raise PlatformRefused(f"port {self._settings.port}: {error.strerror}") from error
        async with server:
            try:
                await server.serve_forever()
            finally:
                for writer in self._connected.values():
                    writer.close()

    def render(self, markdown: str) -> tuple[str, ...]:
        text = clean(markdown).strip()
        return (json.dumps(text),) if text else ()

    async def send(self, key: str, part: Outbound, *, uncertain: bool) -> Receipt:
        writer = self._connected.get(key)
        if writer is None:
            # The reply waits in the outbox until they are here again.
            raise TryLater(AWAY_SECONDS)
        if part.body is not None:
            writer.write(f"{json.loads(part.body)}\n".encode())
            try:
                await writer.drain()
            except ConnectionError as error:
                raise TryLater(AWAY_SECONDS) from error
        return Receipt((part.id,))

    def live(self, key: str, inbound: Inbound, shown: tuple[str, ...], showing: Showing) -> Live:
        return Silent()

    async def _converse(
        self, accept: Accept, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(ConnectionError, ValueError):
            name = _line(await reader.readline())
            if name:
                key = str(SessionKey(SCOPE, (name,)))
                self._connected[key] = writer
                try:
                    while line := await reader.readline():
                        if text := _line(line):
                            await self._take(accept, key, name, text, writer)
                finally:
                    if self._connected.get(key) is writer:
                        del self._connected[key]
        writer.close()

    async def _take(
        self, accept: Accept, key: str, name: str, text: str, writer: asyncio.StreamWriter
    ) -> None:
        """Nobody sends a line again: so it is held here until it is durable."""
        inbound = Inbound(
            id=secrets.token_hex(16),
            key=key,
            kind="command" if text.startswith("/") else "message",
            sender=Sender(f"echo:{name}", name),
            text=text,
            at=time.time_ns() // 1_000_000,
        )
        while True:
            try:
                acceptance = await accept(inbound)
                break
            except StoreUnavailable:
                await asyncio.sleep(1)
        if isinstance(acceptance, Refused) and acceptance.reply:
            writer.write(f"{acceptance.reply}\n".encode())


def _line(raw: bytes) -> str:
    return clean(raw.decode(errors="replace")).strip()
