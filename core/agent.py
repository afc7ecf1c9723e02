"""Agent: what answers. Name, model, instructions, tools, memory; a value, nothing that runs."""

from __future__ import annotations

import msgspec

from core.memory import ConversationMemory
from core.tools import Tool


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """
    :param model: ``provider/name``, or the name alone
    :param memory: what a conversation begins with, and how much of it is sent
    :param session_id: runs that share it are one conversation
    :param stateful: what was said in earlier runs is remembered, and every run has tools of its own
    :param thinking: ``adaptive``, ``disabled``, or None for the model's own default
    :param effort: ``low`` ... ``max``, or None for the model's own default
    :param max_tokens: of one answer
    :param max_rounds: how often tools may run in one turn
    :param turn_timeout: seconds for a whole turn, tools included
    :raises ValueError: two tools have the same name
    """

    name: str = "assistant"
    model: str = "anthropic/claude-sonnet-5-5"
    instructions: str = "You are a helpful assistant."
    tools: tuple[Tool, ...] = ()
    session_id: str | None = None
    stateful: bool = False
    memory: ConversationMemory = msgspec.field(default_factory=ConversationMemory)
    thinking: str | None = None
    effort: str | None = None
    max_tokens: int = 4096
    max_rounds: int = 8
    turn_timeout: float = 120.0

    def __post_init__(self) -> None:
        names = [tool.name for tool in self.tools]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            # A model refuses such a request, and every conversation with it.
            raise ValueError(f"agent {self.name}: two tools are called {', '.join(twice)}")

    @property
    def model_name(self) -> str:
        """The provider's own name of the model, which may hold slashes itself."""
        provider, slash, name = self.model.partition("/")
        return name if slash else provider
