"""Delegation: an agent asks another one, as if it were a tool.

The other has a turn of its own inside the same execution: no history, no words of its own on the
screen; what comes back is its answer. What it spends is added to the turn's usage. Its failure is
an error result, and the one who asked goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from core.agent import Agent
from core.errors import ModelError, ToolError
from core.events import trouble
from core.messages import Message, Role, decode_blocks, encode_blocks, text_block
from core.outgoing import blocks_to_send
from core.results import Block, Made
from core.tools import Tool, ToolContext


class _Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    request: str


_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "request": {
            "type": "string",
            "description": "All that it needs to know: it sees nothing of this conversation.",
        }
    },
    "required": ["request"],
    "additionalProperties": False,
}


Asked = str | list[str | Made]


def agent_tool(agent: Agent, ask: Callable[[Agent, str], Awaitable[Asked]]) -> Tool:
    """The tool by which another agent asks this one."""

    async def call(request: str, context: ToolContext) -> Asked:
        if not request.strip():
            raise ToolError("The request is empty.")
        try:
            return await ask(agent, request)
        except ModelError as error:
            trouble(
                "agent.failed",
                context.session_key,
                execution=context.execution_id,
                agent=agent.name,
                error=str(error),
            )
            raise ToolError(f"{agent.name} could not answer.") from error

    described = {
        "name": agent.name,
        "description": agent.description or f"Ask the agent {agent.name}.",
        "input_schema": _SCHEMA,
    }
    return Tool(
        name=agent.name,
        function=call,
        arguments=_Question,
        context_parameter="context",
        repeatable=agent.repeatable,
        timeout=agent.turn_timeout,
        json=msgspec.Raw(msgspec.json.encode(described)),
    )


def question(agent: Agent, request: str) -> list[Message]:
    """The messages that its turn begins with: its memory's, and the request."""
    spoken: list[tuple[Role, str]] = [(seed.role, seed.message) for seed in agent.memory.spoken]
    spoken.append(("user", request))
    return [
        Message(seq=seq, role=role, blocks=encode_blocks([text_block(text)]), at=0)
        for seq, (role, text) in enumerate(spoken, start=1)
    ]


def answer(text: str, outcome: str, journal: Unkept) -> Asked:
    """What the one who asked is told, and what the other's tools have for the person.

    :raises ToolError: it has not answered
    """
    if outcome in ("refused", "empty"):
        raise ToolError(text)
    return [text, Made(journal.sending)] if journal.sending else text


class Unkept:
    """The journal of such a turn. A crash in its middle is one in the middle of the call."""

    def __init__(self) -> None:
        self.sending: list[Block] = []

    async def answered(self, blocks: Sequence[msgspec.Raw], started: tuple[str, ...]) -> None:
        """Nothing to keep."""

    async def results(self, blocks: msgspec.Raw) -> None:
        """Nothing to keep but what is to be sent."""
        if b'"blob"' in bytes(blocks):
            self.sending += blocks_to_send(decode_blocks(blocks))
