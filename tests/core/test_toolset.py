"""Which tools a chat may use: a table."""

from __future__ import annotations

import pytest

from core.agent import Agent
from core.tools import tool
from core.toolset import Lists, settle, unknown

TOOLS = tuple(tool(name=name)(lambda: None) for name in ("weather", "files__read", "files__write"))
AGENT = Agent(tools=TOOLS, agents=(Agent(name="expert"),))
ALL = ["weather", "files__read", "files__write", "expert"]

CHATS = {
    "-100": ("files__*",),
    "-100/7": ("files__read",),
    "-100/8": (),
    "42": ("*",),
    "T1/C1": ("weather",),
}
LISTS = Lists(
    platforms={"telegram": ("weather", "expert"), "mute": ()},
    chats={"telegram": CHATS, "slack": {"T1/C1": ("weather",)}},
)


@pytest.mark.parametrize(
    ("adapter", "key", "names"),
    [
        ("console", "console:default", ALL),
        ("telegram", "telegram-chat:1", ["weather", "expert"]),
        ("telegram@support", "telegram-chat@support:1", ["weather", "expert"]),
        ("telegram", "telegram-chat:-100", ["files__read", "files__write"]),
        ("telegram", "telegram-topic:-100/9", ["files__read", "files__write"]),
        ("telegram", "telegram-topic:-100/7", ["files__read"]),
        ("telegram", "telegram-user:-100/7/42", ["files__read"]),
        ("telegram", "telegram-topic:-100/8", []),
        ("telegram", "telegram-chat:-1001", ["weather", "expert"]),
        ("telegram", "telegram-chat:42", ALL),
        ("telegram", "no key of an adapter", ["weather", "expert"]),
        ("mute", "mute:42", []),
        ("slack", "slack-thread:T1/C1/17.5", ["weather"]),
        ("slack", "slack-thread:T1/C2/17.5", ALL),
    ],
)
def test_the_most_exact_list_holds(adapter: str, key: str, names: list[str]) -> None:
    settled = settle(AGENT, LISTS, adapter, key)
    assert [tool.name for tool in settled.tools] + [each.name for each in settled.agents] == names
    assert (settled is AGENT) == (names == ALL)


def test_without_lists_there_is_everything() -> None:
    assert settle(AGENT, Lists(), "telegram", "telegram-chat:1") is AGENT


def test_names_that_fit_nothing() -> None:
    assert unknown(AGENT, ["weather", "file__*", "*", "exp?rt", "wether"]) == ["file__*", "wether"]
