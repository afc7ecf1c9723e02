"""The Slack adapter, against Slack on loopback: what it takes in, sends, and makes of errors."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from bots.contracts.adapter import AdapterContract
from core.adapter import Adapter
from playground.slack import Slack
from tests.bots.slack.world import RULES, labels, make, seen


class TestContract(AdapterContract):
    """In a direct conversation."""

    @pytest.fixture
    async def adapter(self) -> AsyncIterator[Adapter]:
        async with Slack() as self.server:
            self.alice = self.server.person("Alice")
            adapter = make(self.server)
            yield adapter
            await adapter.close()

    async def say(self, text: str) -> None:
        self.server.write(self.alice, text)

    async def screen(self) -> list[str]:
        return seen(self.server, self.alice)

    async def press(self, label: str) -> None:
        self.server.choose(self.alice, label)

    async def labels(self) -> list[str]:
        return labels(self.server, self.alice)

    async def files(self) -> dict[str, bytes]:
        return self.server.files(self.alice)


class TestThreadContract(AdapterContract):
    """In a thread of a channel, which a mention has begun."""

    @pytest.fixture
    async def adapter(self) -> AsyncIterator[Adapter]:
        async with Slack() as self.server:
            self.alice = self.server.person("Alice")
            self.place = self.server.channel("general")
            (root, *_) = self.server.write(self.alice, "everybody, look here", self.place)
            self.thread = root.event["ts"]
            adapter = make(self.server)
            yield adapter
            await adapter.close()

    async def say(self, text: str) -> None:
        self.server.write(self.alice, text, self.place, thread=self.thread, mention=True)

    async def screen(self) -> list[str]:
        return seen(self.server, self.place)

    async def press(self, label: str) -> None:
        self.server.choose(self.alice, label, self.place)

    async def labels(self) -> list[str]:
        return labels(self.server, self.place)

    async def files(self) -> dict[str, bytes]:
        return self.server.files(self.place)


class TestUserContract(TestThreadContract):
    """In a channel where each person has a conversation of their own."""

    @pytest.fixture
    async def adapter(self) -> AsyncIterator[Adapter]:
        async with Slack() as self.server:
            self.alice = self.server.person("Alice")
            self.place = self.server.channel("general")
            adapter = make(self.server, replace(RULES, scope="user", account="support"))
            yield adapter
            await adapter.close()

    async def say(self, text: str) -> None:
        self.server.write(self.alice, text, self.place, mention=True)
