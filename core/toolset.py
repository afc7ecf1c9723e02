"""Which of an agent's tools a chat may use: settled by lists, before a turn begins. Pure functions.

Not what an agent has (that is its own `tools`), and not who may speak (`gate.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

import msgspec
from msgspec.structs import replace

from core.agent import Agent
from core.keys import SessionKey

Names = tuple[str, ...]  # of tools and agents; "*" stands for anything


class Lists(msgspec.Struct, frozen=True):
    """Where nothing is said, there is everything that the agent has.

    :param platforms: by the name of the adapter
    :param chats: by the name of the adapter, by chat: ``-1001234`` for a group with all its topics,
        ``-1001234/7`` for one of them. A chat's list stands in the place of its platform's
    """

    platforms: Mapping[str, Names] = {}
    chats: Mapping[str, Mapping[str, Names]] = {}


def settle(agent: Agent, lists: Lists, adapter: str, key: str) -> Agent:
    """The agent with those of its tools, and of the agents it may ask, that this chat may use; in
    their order. Itself when that is all of them.

    :param adapter: the adapter's name; what follows an @ is the account, for which no list differs
    """
    names = names_for(lists, adapter, key)
    if names is None:
        return agent
    tools = tuple(tool for tool in agent.tools if _listed(tool.name, names))
    agents = tuple(each for each in agent.agents if _listed(each.name, names))
    if (tools, agents) == (agent.tools, agent.agents):
        return agent
    return replace(agent, tools=tools, agents=agents)


def names_for(lists: Lists, adapter: str, key: str) -> Names | None:
    """The list that holds for this chat; None: none does."""
    if not (lists.platforms or lists.chats):
        return None
    platform = adapter.partition("@")[0]
    parsed = SessionKey.parse(key)
    chats = lists.chats.get(platform, {})
    parts = parsed.parts if parsed and chats else ()
    # The most exact one: a topic before its group.
    for length in range(len(parts), 0, -1):
        names = chats.get("/".join(parts[:length]))
        if names is not None:
            return names
    return lists.platforms.get(platform)


def unknown(agent: Agent, names: Iterable[str]) -> list[str]:
    """Those that fit nothing that the agent has: slips of the pen, mostly."""
    known = [tool.name for tool in agent.tools] + [each.name for each in agent.agents]
    return [name for name in names if not any(fnmatchcase(each, name) for each in known)]


def _listed(name: str, names: Names) -> bool:
    return any(fnmatchcase(name, each) for each in names)
