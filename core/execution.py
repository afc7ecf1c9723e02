"""Execution: what one run of a turn has to itself, the agents that it asks included.

Its tools and their state; both are gone with it. An execution never sees another's, even when
their tools have the same name. It runs nothing: that is the turn's affair.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, Final

from msgspec.structs import replace

from core.agent import Agent
from core.delegation import Asked, agent_tool
from core.registry import called
from core.threads import in_thread
from core.tools import Tool

Ask = Callable[[Agent, str], Awaitable[Asked]]


class Execution:
    """
    :param agent: the one at the top: whether anything in its tree is stateful counts for all
    :param state: what `ToolContext.state` gives to all of its tools
    """

    def __init__(self, agent: Agent) -> None:
        self.state: dict[str, Any] = {}
        self._isolated = agent.isolated
        self._objects: dict[int, Any] = {}
        self._building = asyncio.Lock()

    def tools(self, agent: Agent, ask: Ask) -> list[Tool]:
        """The agent's tools, and the agents that it may ask, ready to be called.

        :param ask: puts a question to another agent
        """
        tools = [self._bound(tool) if tool.made_by else tool for tool in agent.tools]
        return tools + [agent_tool(each, ask) for each in agent.agents]

    def _bound(self, tool: Tool) -> Tool:
        """The object is built by the first call: what goes wrong then is that call's error, and
        what is never called costs nothing."""

        async def call(**arguments: Any) -> Any:
            return await called((await self._object(tool)).__call__, arguments)

        return replace(tool, function=call)

    async def _object(self, tool: Tool) -> Any:
        assert tool.made_by is not None
        if not self._isolated:
            return await in_thread(_shared, {"made_by": tool.made_by})
        async with self._building:
            # The same tool in an agent and in one that it asks is one object.
            if id(tool) not in self._objects:
                self._objects[id(tool)] = await in_thread(tool.made_by, {})
            return self._objects[id(tool)]


_building: Final = threading.Lock()


def _shared(made_by: type) -> Any:
    with _building:
        return _built(made_by)


@cache
def _built(made_by: type) -> Any:
    return made_by()
