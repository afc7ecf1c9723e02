"""A real MCP server, written with the mcp package: what the tests of `core.mcp` talk to.

``python -m tests.core.mcp_server stdio`` speaks on its standard input and output;
``python -m tests.core.mcp_server http PORT`` by streamable HTTP. Its tools do what servers do, and
what they should not.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from mcp.server.mcpserver import Image, MCPServer
from mcp_types import ToolAnnotations

PNG = b"\x89PNG\r\n\x1a\n"

server = MCPServer("things")


@server.tool(description="The sum.", annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> str:
    return str(a + b)


@server.tool(description="Who it is.")
def who() -> str:
    return f"{os.getpid()} {os.environ.get('THINGS_SECRET', 'nothing')} {'HOME' in os.environ}"


@server.tool(description="A picture.", structured_output=False)
def picture() -> list[Any]:
    return ["Look:", Image(data=PNG, format="png")]


@server.tool(description="Fails.")
def fail() -> str:
    raise ValueError("there is no such thing")


@server.tool(description="Never answers.")
async def hang() -> str:
    await asyncio.sleep(3600)
    return "at last"


@server.tool(description="Ends in the middle of a call.")
def die() -> str:
    os._exit(3)


@server.tool(description="Says far too much.")
def flood(megabytes: int) -> str:
    return "x" * (megabytes << 20)


@server.tool(name="weird.name/with signs", description="Has a name that no model may call.")
def weird() -> str:
    return "called all the same"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
