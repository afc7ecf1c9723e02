"""Agent: what answers. Name, model, instructions, tools, memory; a value, nothing that runs."""

from __future__ import annotations

from typing import Final

import msgspec

from core.memory import ConversationMemory
from core.tools import Tool, check_name

MAX_DEPTH: Final = 5


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """
    :param description: what another agent's model is told of it, when it is one of its `agents`
    :param model: ``provider/name``, or the name alone
    :param fallback: the model that takes over when the first cannot answer, as long as nothing of
        the answer was shown; for the rest of that turn
    :param memory: what a conversation begins with, and how much of it is sent
    :param agents: other agents that it may ask, each as a tool of that agent's name
    :param models: those that a chat may choose instead of `model`
    :param session_id: runs that share it are one conversation
    :param stateful: what was said in earlier runs is remembered, and every run has tools of its own
    :param thinking: ``adaptive``, ``disabled``, or None for the model's own default
    :param effort: ``low`` ... ``max``, or None for the model's own default
    :param tell_time: each message of a person begins with the date and the time, in UTC
    :param max_tokens: of one answer
    :param max_rounds: how often tools may run in one turn
    :param turn_timeout: seconds for a whole turn, tools included
    :param approval_timeout: seconds after which a call that nobody has allowed is declined
    :raises ValueError: two tools or agents have the same name, an agent's name can be none of a
        tool, or agents ask agents more than `MAX_DEPTH` deep
    """

    name: str = "assistant"
    description: str = ""
    model: str = "anthropic/claude-sonnet-5-5"
    fallback: str | None = None
    models: tuple[str, ...] = ()
    instructions: str = "You are a helpful assistant."
    tools: tuple[Tool, ...] = ()
    agents: tuple[Agent, ...] = ()
    session_id: str | None = None
    stateful: bool = False
    memory: ConversationMemory = msgspec.field(default_factory=ConversationMemory)
    thinking: str | None = None
    effort: str | None = None
    tell_time: bool = False
    max_tokens: int = 4096
    max_rounds: int = 8
    turn_timeout: float = 120.0
    approval_timeout: float = 3600.0

    def __post_init__(self) -> None:
        names = [tool.name for tool in self.tools] + [check_name(each.name) for each in self.agents]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            # A model refuses such a request, and every conversation with it.
            raise ValueError(f"agent {self.name}: two tools are called {', '.join(twice)}")
        if self.depth > MAX_DEPTH:
            raise ValueError(f"agent {self.name}: agents ask agents, {MAX_DEPTH} deep at most")

    @property
    def depth(self) -> int:
        """How many agents stand above one another, this one included."""
        return 1 + max((each.depth for each in self.agents), default=0)

    @property
    def isolated(self) -> bool:
        """Whether a run shares no object with any other: it, or a tool or agent anywhere below it,
        is stateful."""
        return (
            self.stateful
            or any(tool.stateful for tool in self.tools)
            or any(each.isolated for each in self.agents)
        )

    @property
    def repeatable(self) -> bool:
        """Whether it can be asked again after a crash: all of its tools can be called again."""
        tools = all(tool.repeatable for tool in self.tools)
        return tools and all(each.repeatable for each in self.agents)

    @property
    def provider(self) -> str:
        """Empty when the model was named without one."""
        provider, slash, _ = self.model.partition("/")
        return provider if slash else ""

    @property
    def model_name(self) -> str:
        """The provider's own name of the model, which may hold slashes itself."""
        provider, slash, name = self.model.partition("/")
        return name if slash else provider
