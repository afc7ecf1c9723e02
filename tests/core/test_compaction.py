"""The service compacts: its block is kept as it came and sent back as it came."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from core.agent import Agent
from core.claude import Claude
from core.errors import ModelRejected
from core.memory import ConversationMemory
from core.messages import decode_blocks
from core.session import Session
from playground.claude import Claude as StandIn
from playground.claude_answers import Compacted, Say
from tests.core.fakes import DictStore, FakeClock

LONG = "I have a great deal to say about trams. " * 1_000  # 10,000 tokens to the stand-in
MEMORY = ConversationMemory(strategy="server", compact_at=50_000)


@pytest_asyncio.fixture
async def service() -> AsyncIterator[StandIn]:
    async with StandIn(context_tokens=80_000) as stand_in:
        yield stand_in


@pytest_asyncio.fixture
async def client(service: StandIn) -> AsyncIterator[Claude]:
    client = Claude("any", service.url)
    yield client
    await client.close()


async def begin(client: Claude, store: DictStore, memory: ConversationMemory) -> Session:
    agent = Agent(memory=memory)
    return await Session.start(agent, store=store, key="k", client=client, clock=FakeClock())


async def test_a_long_conversation_goes_on_from_the_services_own_summary(
    service: StandIn, client: Claude
) -> None:
    store = DictStore()
    session = await begin(client, store, MEMORY)
    await session.run("My name is Alice.")
    replies = [await session.run(f"{number}: {LONG}") for number in range(14)]
    asked = service.requests
    assert all(
        request["context_management"]["edits"]
        == [
            {
                "type": "compact_20260112",
                "trigger": {"type": "input_tokens", "value": 50_000},
            }
        ]
        for request in asked
    )
    assert {headers["anthropic-beta"] for headers in service.headers} == {"compact-2026-01-12"}
    blocks = [
        block
        for message in asked[-1]["messages"]
        for block in message["content"]
        if block["type"] == "compaction"
    ]
    assert blocks
    # The window begins with the exchange that was compacted, and nothing is lost to the model.
    assert len(asked[-1]["messages"]) < 2 * len(asked)
    assert asked[-1]["messages"][1]["content"][0]["type"] == "compaction"
    assert "Alice" in (await session.run("What is my name?")).text
    # Its own cost is counted, and stands in no other number.
    assert max(reply.usage.input_tokens for reply in replies) > 50_000
    rows = [decode_blocks(row.blocks) for row in session.history if row.role == "assistant"]
    assert {"type": "compaction", "content": blocks[-1]["content"]} in [row[0] for row in rows]
    again = await begin(client, store, MEMORY)
    assert "Alice" in (await again.run("What is my name?")).text


async def test_one_that_failed_is_sent_back_and_hides_nothing(
    service: StandIn, client: Claude
) -> None:
    session = await begin(client, DictStore(), MEMORY)
    service.script(Compacted(None, Say("Nice to meet you.")))
    assert (await session.run("My name is Alice.")).text == "Nice to meet you."
    assert "Alice" in (await session.run("What is my name?")).text
    sent = service.requests[-1]["messages"]
    assert sent[1]["content"][0] == {"type": "compaction", "content": None}
    assert len(sent) == 3


async def test_without_it_such_a_conversation_is_shortened(client: Claude) -> None:
    """Never wedged: the service says that it is too long, and the last exchange is sent alone."""
    session = await begin(client, DictStore(), ConversationMemory())
    texts = [(await session.run(f"{number}: {LONG}")).text for number in range(12)]
    assert all(texts)
    assert len(session.history) < 24


async def test_one_message_that_is_too_long_alone_is_refused_and_forgotten(
    client: Claude,
) -> None:
    session = await begin(client, DictStore(), ConversationMemory())
    await session.run("My name is Alice.")
    with pytest.raises(ModelRejected, match="prompt is too long"):
        await session.run(LONG * 9)
    assert "Alice" in (await session.run("What is my name?")).text


async def test_a_bound_in_tokens_keeps_it_from_being_too_long(
    service: StandIn, client: Claude
) -> None:
    session = await begin(client, DictStore(), ConversationMemory(max_tokens=60_000))
    for number in range(20):
        await session.run(f"{number}: {LONG}")
    # None was refused, and the estimate is close to what the service counts.
    assert len(service.requests) == 20
    assert session.snapshot.fit.bytes_per_token == pytest.approx(4.0, abs=0.2)
    longest = max(len(str(request)) for request in service.requests) / 4
    assert 45_000 < longest < 62_000
