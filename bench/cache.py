"""How much of what is sent comes from the provider's prompt cache: ``python bench/cache.py``.

50 turns, every other one with a tool, against the stand-in for Claude, which works out from each
request's bytes what the service would read from its cache, by the rules of its documentation
(marks, 20 blocks of lookback, 1,024 tokens at least). Nothing here is a measure of time, so one
run is enough, and it is the same on each machine.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.report import Figure, Goal
from core.agent import Agent
from core.claude import Claude
from core.memory import ConversationMemory
from core.model import Answer, ModelClient, OnText, Request
from core.session import Session
from core.snapshot import Usage
from core.tools import Tool, tool
from playground.claude import Claude as StandIn
from playground.claude_answers import Say, ToolUse, UseTools
from playground.claude_usage import Block, blocks_of

TURNS: Final = 50
FIXED: Final = 2_000  # tokens of system text and tools
EACH: Final = 100  # tokens of a message
TOKEN: Final = 4  # characters, to the stand-in
GOAL: Final = 0.9


class Sums(NamedTuple):
    """Tokens, over all requests but the first.

    :param sent: input
    :param read: of that, from the cache
    :param shared: the longest beginning that each request has in common with the one before
    :param before: all of the request before, which each would begin with if nothing ever left
    """

    requests: int
    sent: int
    read: int
    shared: int
    before: int


@tool
async def look_up(topic: str) -> str:
    """Look something up."""
    return text(f"What is known of {topic}.")


class Counting:
    """A client that notes what each of its answers cost.

    :param clock: do what others do: put the time of day into the system prompt
    """

    def __init__(self, client: ModelClient, clock: bool) -> None:
        self._client = client
        self._clock = clock
        self.usages: list[Usage] = []

    async def answer(self, request: Request, on_text: OnText | None = None) -> Answer:
        if self._clock:
            now = f"It is 12:{len(self.usages) // 60:02}:{len(self.usages) % 60:02}."
            request = replace(request, system=(now, *request.system))
        answer = await self._client.answer(request, on_text)
        self.usages.append(answer.usage)
        return answer

    async def close(self) -> None:
        await self._client.close()


def text(beginning: str, tokens: int = EACH) -> str:
    return (beginning + " and so on" * tokens)[: tokens * TOKEN]


def answer(request: dict[str, Any]) -> Say | UseTools:
    """A question with an odd number is looked up first."""
    last = request["messages"][-1]["content"][-1]
    if last["type"] == "text" and int(last["text"].split()[1]) % 2:
        return UseTools((ToolUse("look_up", {"topic": text("trams")}),))
    return Say(text("So it is"))


async def run(memory: ConversationMemory, *, clock: bool = False) -> Sums:
    tools: tuple[Tool, ...] = (look_up,)
    fixed = FIXED - sum(len(bytes(each.json)) for each in tools) // TOKEN
    agent = Agent(instructions=text("Be kind", fixed), tools=tools, memory=memory)
    async with StandIn() as stand_in:
        stand_in.brain = answer
        client = Counting(Claude("any", stand_in.url), clock)
        async with await Session.start(agent, client=client) as session:
            for turn in range(TURNS):
                await session.run(text(f"Question {turn} :"))
        await client.close()
        return _summed([blocks_of(each) for each in stand_in.requests], client.usages)


def _summed(requests: Sequence[Sequence[Block]], usages: Sequence[Usage]) -> Sums:
    sent = [
        usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens
        for usage in usages
    ]
    pairs = list(pairwise(requests))
    return Sums(
        requests=len(pairs),
        sent=sum(sent[1:]),
        read=sum(usage.cache_read_input_tokens for usage in usages[1:]),
        shared=sum(_shared(one, other) for one, other in pairs),
        before=sum(sent[:-1]),
    )


def _shared(one: Sequence[Block], other: Sequence[Block]) -> int:
    length = 0
    for a, b in zip(one, other, strict=False):
        if a.digest != b.digest:
            break
        length += len(a.text)
    return length // TOKEN


VARIANTS: Final = {
    "no cap": (ConversationMemory(), False),
    "cap 20, trim_to 10": (ConversationMemory(20, 10), False),
    "cap 40, trim_to 20 (a bot's)": (ConversationMemory(40, 20), False),
    "cap 20, one exchange at a time": (ConversationMemory(20, 20), False),
    "no cap, a clock in the prompt": (ConversationMemory(), True),
}
HELD: Final = ("no cap", "cap 20, trim_to 10", "cap 40, trim_to 20 (a bot's)")


async def figure() -> Figure:
    sums = {name: await run(memory, clock=clock) for name, (memory, clock) in VARIANTS.items()}
    goals = [
        Goal(
            f"read from the cache, {name}",
            f">= {GOAL:.0%} of {whole}",
            percent(each.read, of),
            f"{percent(each.read, each.sent)} of all input",
            met=each.read >= GOAL * of,
        )
        for name, each in sums.items()
        if name in HELD
        for whole, of in (("shared", each.shared), ("untrimmed", each.before))
    ]
    columns = ("what", "requests", "input", "from cache", "of input", "of shared", "of untrimmed")
    rows = [
        (
            name,
            f"{each.requests}",
            f"{each.sent:,}",
            f"{each.read:,}",
            percent(each.read, each.sent),
            percent(each.read, each.shared),
            percent(each.read, each.before),
        )
        for name, each in sums.items()
    ]
    explained = (
        f"{TURNS} turns, every other one with a tool, {FIXED:,} tokens of system text and tools, "
        f"{EACH} per message; tokens of all requests but the first. *Shared* is the longest "
        "beginning that a request has in common with the one before, *untrimmed* what it would "
        "have in common if nothing had left the window. The stand-in works the reads out from the "
        "bytes of each request, by the rules of the service's documentation."
    )
    return Figure("What the prompt cache serves", explained, goals, columns, rows)


def percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"


def main() -> int:
    found = asyncio.run(figure())
    print(found)
    return 0 if all(goal.met for goal in found.goals) else 1


if __name__ == "__main__":
    sys.exit(main())
