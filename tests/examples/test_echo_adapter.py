"""The example adapter keeps the contract: all that a new platform has to show."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from bots.contracts.adapter import AdapterContract
from core.adapter import Adapter
from core.errors import TryLater
from core.messages import Outbound
from examples.echo_adapter import EchoAdapter, EchoSettings


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class TestEchoAdapter(AdapterContract):
    redelivers = False

    @pytest.fixture
    async def adapter(self) -> AsyncIterator[Adapter]:
        self.port = free_port()
        self.seen: list[str] = []
        self.writer: asyncio.StreamWriter | None = None
        self.listening: asyncio.Task[None] | None = None
        yield EchoAdapter(EchoSettings(port=self.port))
        await self.hang_up()

    async def say(self, text: str) -> None:
        if self.listening is None or self.listening.done():
            await self.connect()
        assert self.writer is not None
        self.writer.write(f"{text}\n".encode())

    async def screen(self) -> list[str]:
        await asyncio.sleep(0.01)
        return list(self.seen)

    async def connect(self) -> None:
        async with asyncio.timeout(5):
            while True:
                try:
                    reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
                    break
                except ConnectionRefusedError:
                    await asyncio.sleep(0.01)
        self.writer.write(b"Ada\n")
        self.listening = asyncio.create_task(self.listen(reader))

    async def listen(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            self.seen.append(line.decode().strip())

    async def hang_up(self) -> None:
        if self.writer is not None and self.listening is not None:
            self.writer.close()
            self.listening.cancel()
            await asyncio.gather(self.listening, return_exceptions=True)

    async def test_a_reply_to_somebody_who_left_waits(self, adapter: Adapter) -> None:
        part = Outbound("part-1", adapter.render("good morning")[0])
        with pytest.raises(TryLater):
            await adapter.send("echo-chat:Nobody", part, uncertain=False)
