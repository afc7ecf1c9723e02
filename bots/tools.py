"""The tools that the settings name: from files, installed packages, MCP servers and the provider.

Only put together here; what a tool is and how it runs is `core`'s affair.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bots.plugins import load_tools
from bots.sections import AdapterSection, SlackSection, TelegramSection
from bots.settings import Settings
from core.agent import Agent
from core.errors import ConfigError
from core.mcp import Server, Servers
from core.server_tools import name_of, server_tool
from core.tools import Tool
from core.toolset import Lists, unknown


def own_tools(settings: Settings) -> tuple[Tool, ...]:
    """Those of ``[agent] tools``, in their order.

    :raises ConfigError: one cannot be had
    """
    return tuple(tool for place in settings.agent.tools for tool in tools_at(place, settings))


def tools_at(place: str, settings: Settings) -> tuple[Tool, ...]:
    """
    :raises ConfigError: there is none
    """
    name = name_of(place)
    if name is None:
        return load_tools(place, settings.folder)
    try:
        return (server_tool(place, getattr(settings.tools, name)),)
    except ValueError as error:
        raise ConfigError(f"[tools] {error}") from error


def mcp_servers(settings: Settings) -> tuple[Server, ...]:
    """Those of the ``[mcp.NAME]`` tables, in their order."""
    return tuple(
        Server(
            name=name,
            command=section.command,
            args=section.args,
            env=section.env,
            cwd=str(settings.folder),
            url=section.url,
            headers=section.headers,
            tools=section.tools,
            timeout=section.timeout,
            start_timeout=section.start_timeout,
        )
        for name, section in settings.mcp.items()
    )


def tool_lists(settings: Settings) -> Lists:
    """What ``[telegram] tools`` and its like say."""
    sections: dict[str, TelegramSection | SlackSection | AdapterSection] = {
        "telegram": settings.telegram,
        "slack": settings.slack,
    }
    sections.update(settings.adapters)
    return Lists(
        platforms={
            name: section.tools for name, section in sections.items() if section.tools is not None
        },
        chats={name: section.chat_tools for name, section in sections.items()},
    )


def unknown_names(agent: Agent, settings: Settings) -> Iterator[tuple[str, str]]:
    """Places whose lists name what the agent has not: the place, the name."""
    sections: dict[str, TelegramSection | SlackSection | AdapterSection] = {
        "[telegram]": settings.telegram,
        "[slack]": settings.slack,
    }
    sections.update((f"[adapters.{name}]", each) for name, each in settings.adapters.items())
    for place, section in sections.items():
        for name in unknown(agent, section.tools or ()):
            yield f"{place} tools", name
        for chat, names in section.chat_tools.items():
            for name in unknown(agent, names):
                yield f"{place} chat_tools.{chat}", name


async def described(settings: Settings) -> list[str]:
    """`chinwag tools`: a line for each tool, then what is missing. Starts the MCP servers.

    :raises ConfigError: a tool cannot be had
    """
    own = own_tools(settings)
    async with Servers(mcp_servers(settings)) as servers:
        tools = (*own, *servers.tools)
        missing = servers.missing
    lines = list(_table(tools))
    lines += (f"[mcp.{name}] has not come up: {why}" for name, why in missing.items())
    lists = tool_lists(settings)
    for platform, names in lists.platforms.items():
        lines.append(f"{platform}: only {_listed(names)}")
    for platform, chats in lists.chats.items():
        lines += (f"{platform} chat {chat}: only {_listed(names)}" for chat, names in chats.items())
    return lines or ["The agent has no tools. [agent] tools names them; see docs/tools.md."]


def _table(tools: Iterable[Tool]) -> Iterator[str]:
    rows = [(tool.name, tool.origin) for tool in tools]
    width = max((len(name) for name, _ in rows), default=0)
    return (f"{name:<{width}}  {origin}" for name, origin in rows)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
