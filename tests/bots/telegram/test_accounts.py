"""One of several bots: the same contract under an account's name, and side by side with another."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bots.contracts.adapter import Desk, running
from bots.telegram.adapter import TelegramAdapter
from core.adapter import Adapter
from core.messages import Outbound
from playground.telegram import Telegram
from tests.bots.telegram import test_adapter
from tests.bots.telegram.test_adapter import HELLO, make

OTHER = "654321:TEST-token_of_another_bot_0000000"


class TestAccountContract(test_adapter.TestContract):
    @pytest.fixture
    async def adapter(self) -> AsyncIterator[Adapter]:
        async with Telegram() as self.server:
            self.alice = self.server.person("Alice")
            adapter = make(self.server, account="support")
            yield adapter
            await adapter.close()


class TestAccountTopicContract(test_adapter.TestScopesContract):
    """In a topic, with a history for each person: the longest keys, which buttons carry too."""

    @pytest.fixture
    async def adapter(self) -> AsyncIterator[Adapter]:
        async with Telegram() as self.server:
            self.alice = self.server.person("Alice")
            self.place = self.server.supergroup("Friends", forum=True)
            self.thread = self.place.topic("Cats")
            adapter = make(self.server, account="support", scope="user")
            yield adapter
            await adapter.close()


async def test_two_bots_of_one_person() -> None:
    """The private chat has one number for both; each brings and sends only its own."""
    async with Telegram() as first, Telegram(OTHER, username="support_bot") as second:
        alice, same = first.person("Alice"), second.person("Alice")
        assert alice.id == same.id
        main, support = make(first), make(second, account="support")
        async with running(main, Desk()) as mine, running(support, Desk()) as theirs:
            first.write(alice, "hello main")
            second.write(same, "hello support")
            (said,), (asked,) = await mine.have(1), await theirs.have(1)
            assert (said.key, said.text) == (f"telegram-chat:{alice.id}", "hello main")
            assert (asked.key, asked.text) == (f"telegram-chat@support:{alice.id}", "hello support")
            for adapter, own, others in ((main, said, asked), (support, asked, said)):
                assert adapter.serves(own.key) and not adapter.serves(others.key)
            await support.send(asked.key, Outbound("part", HELLO), uncertain=False)
        assert (first.texts(alice), second.texts(same)) == ([], ["hello"])
        for adapter in (main, support):
            assert isinstance(adapter, TelegramAdapter)
            await adapter.close()
