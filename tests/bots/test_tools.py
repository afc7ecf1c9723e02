"""The tools that the settings name, and what people are told of them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from bots.app import build_agent
from bots.doctor import check
from bots.settings import Settings, load_settings
from bots.tools import described, mcp_servers, own_tools, tool_lists
from core.errors import ConfigError
from core.server_tools import NAMES
from tests.bots.test_cli import chinwag

ROOT = Path(__file__).parents[2]

FILE = """
from core.tools import tool

@tool
def clock() -> str:
    \"\"\"What time it is.\"\"\"
    return "noon"
"""
MCP = f"""
[mcp.things]
command = '{sys.executable}'
args = ["-m", "tests.core.mcp_server", "stdio"]
env = {{ PYTHONPATH = '{ROOT}' }}
tools = ["add", "w*"]
"""
LOST = """
[mcp.lost]
command = "/nowhere/at-all"
"""


def settings(folder: Path, text: str) -> Settings:
    (folder / "tools.py").write_text(FILE)
    (folder / "config.toml").write_text(text)
    return load_settings(folder / "config.toml", {})


async def test_all_of_them_and_where_they_are_from(tmp_path: Path) -> None:
    text = (
        "[agent]\ntools = ['web_search', 'tools.py:clock', 'web_fetch_20250910']\n"
        "[tools]\nweb_search = { max_uses = 2 }\n"
        "[telegram]\ntools = ['clock']\nchat_tools = { '-100' = [] }\n"
    )
    made = settings(tmp_path, text + MCP + LOST)
    assert await described(made) == [
        "web_search                     run by Anthropic (web_search_20260318)",
        "clock                          tools.py:clock",
        "web_fetch                      run by Anthropic (web_fetch_20250910)",
        "things__add                    mcp things",
        "things__weird_name_with_signs  mcp things",
        "things__who                    mcp things",
        "[mcp.lost] has not come up: there is no such command",
        "telegram: only clock",
        "telegram chat -100: only none",
    ]
    search, _, _ = own_tools(made)
    assert b'"max_uses":2' in bytes(search.json)
    lists = tool_lists(made)
    assert lists.platforms == {"telegram": ("clock",)}
    assert lists.chats == {"telegram": {"-100": ()}, "slack": {}}


async def test_none_at_all(tmp_path: Path) -> None:
    (line,) = await described(settings(tmp_path, ""))
    assert "docs/tools.md" in line


def test_the_command(tmp_path: Path) -> None:
    settings(tmp_path, "[agent]\ntools = ['tools.py:clock']\n" + LOST)
    done = chinwag("tools", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "clock  tools.py:clock",
        "[mcp.lost] has not come up: there is no such command",
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[agent]\ntools = ['tools.py:clock', 'tools.py:clock']", "two tools are called clock"),
        ("[agent]\ntools = ['tools.py:watch']", "there is no 'watch' in it"),
        ("[agent]\ntools = ['watch']", "an entry point of chinwag.tools"),
        (
            "[agent]\ntools = ['web_search']\n[tools]\nweb_search = { max_use = 1 }",
            r"\[tools\] web_search: no such option: max_use",
        ),
    ],
)
def test_what_cannot_be_had(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        build_agent(settings(tmp_path, text))


def test_a_server_runs_beside_the_config_file(tmp_path: Path) -> None:
    (server,) = mcp_servers(settings(tmp_path, MCP))
    assert (server.name, server.cwd, server.tools) == ("things", str(tmp_path), ("add", "w*"))


async def test_what_check_says_of_them(tmp_path: Path) -> None:
    text = (
        "[agent]\ntools = ['tools.py:clock', 'tools.py:clock']\n"
        "[telegram]\ntools = ['clok']\nchat_tools = { '-100' = ['things__*', 'x'] }\n"
    )
    findings = await check(settings(tmp_path, text + MCP + LOST))
    said = {(each.ok, each.text) for each in findings if each.what in ("tool", "mcp")}
    assert (True, "things: 3 tools") in said
    assert (True, "lost does not come up: there is no such command") in said
    assert (False, "agent assistant: two tools are called clock") in said
    findings = await check(settings(tmp_path, text.replace(", 'tools.py:clock']", "]") + MCP))
    said = {(each.ok, each.text) for each in findings if each.what == "tool"}
    assert (True, "[telegram] tools: there is no tool clok") in said
    assert (True, "[telegram] chat_tools.-100: there is no tool x") in said
    assert len(said) == 3


def test_what_the_documentation_shows_is_right(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tools.md").read_text()
    # One stands in a list, and further in.
    python = "\n".join(map(dedent, re.findall(r"```python\n(.*?)^ *```", page, re.DOTALL | re.M)))
    (tmp_path / "tools.py").write_text(python)
    blocks = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 5
    found: list[str] = []
    for block in blocks:
        (tmp_path / "config.toml").write_text(block)
        made = load_settings(tmp_path / "config.toml", {"TRACKER_TOKEN": "a secret"})
        found += [tool.name for tool in own_tools(made)]
        found += [server.name for server in mcp_servers(made)]
    assert found == ["weather", "Notebook", "files", "tracker", *NAMES]
