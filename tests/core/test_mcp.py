"""MCP: real servers of the mcp package, as a process and by HTTP, and whatever becomes of them."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import mcp_types
import pytest
from mcp import MCPError
from msgspec.structs import replace

from core.errors import ToolError
from core.history import Block
from core.mcp import EXTRA, Server, Servers, connection, stdio, translation
from core.model import ToolCall
from core.registry import Registry
from core.results import MAX_CHARACTERS, File, Image
from tests.core.fakes import FakeClock
from tests.core.mcp_server import PNG
from tests.core.test_tools import CONTEXT, done, failed, told

ROOT = Path(__file__).parents[2]
NAMES = ["add", "die", "fail", "flood", "hang", "picture", "weird_name_with_signs", "who"]


def by_stdio(*args: str, **more: Any) -> Server:
    given: dict[str, Any] = {
        "name": "things",
        "command": sys.executable,
        "args": args or ("-m", "tests.core.mcp_server", "stdio"),
        "cwd": str(ROOT),
        "timeout": 20.0,
        **more,
    }
    return Server(**given)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class ByHTTP:
    """A server that can be killed and started again at the same address."""

    def __init__(self) -> None:
        self.port = free_port()
        self.server = Server(
            name="things",
            url=f"http://127.0.0.1:{self.port}/mcp",
            headers={"Authorization": "Bearer secret"},
            timeout=20.0,
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.core.mcp_server", "http", str(self.port)],
            cwd=ROOT,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError("the server did not come up")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@pytest.fixture
def by_http() -> Iterator[ByHTTP]:
    made = ByHTTP()
    made.start()
    yield made
    made.stop()


@pytest.fixture(params=["stdio", "http"])
def server(request: pytest.FixtureRequest) -> Server:
    if request.param == "stdio":
        return by_stdio()
    made: ByHTTP = request.getfixturevalue("by_http")
    return made.server


async def call(servers: Servers, name: str, **arguments: Any) -> Block:
    registry = Registry(servers.tools)
    return await registry.run(ToolCall(id="c1", name=f"things__{name}", input=arguments), CONTEXT)


def pids() -> set[str]:
    """The processes that we have started and that still run."""
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(os.getpid())], capture_output=True, check=True
    )
    return {pid for pid in listed.stdout.decode().split() if _runs(pid)}


def _runs(pid: str) -> bool:
    try:
        return b"mcp_server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


# ---------------------------------------------------------------------- what it has


async def test_its_tools_have_its_name_before_their_own(server: Server) -> None:
    async with Servers([server]) as servers:
        assert servers.missing == {}
        assert [tool.name for tool in servers.tools] == [f"things__{name}" for name in NAMES]
        add, die = servers.tools[:2]
        about = told(add)
        assert about["description"] == "The sum."
        assert about["input_schema"]["type"] == "object"
        assert set(about["input_schema"]["properties"]) == {"a", "b"}
        assert (add.repeatable, die.repeatable) == (True, False)
        assert (add.timeout, add.origin) == (20.0, "mcp things")


async def test_what_its_tools_give(server: Server) -> None:
    async with Servers([server]) as servers:
        assert await call(servers, "add", a=1, b=2) == done("3")
        shown = (await call(servers, "picture"))["content"]
        assert [block["type"] for block in shown] == ["text", "image"]
        assert await call(servers, "weird_name_with_signs") == done("called all the same")
        gone = await call(servers, "fail")
        assert gone == failed("Error executing tool fail")
        wrong = await call(servers, "add", a="one")
        assert wrong["is_error"]
        assert "things__fail" not in str(await call(servers, "add", a=2, b=2))


async def test_only_what_is_wanted_of_it() -> None:
    async with Servers([by_stdio(tools=("w*", "add"))]) as servers:
        assert [tool.name for tool in servers.tools] == [
            "things__add",
            "things__weird_name_with_signs",
            "things__who",
        ]


async def test_it_has_the_variables_it_was_given_and_few_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("THINGS_SECRET", "ours")
    async with Servers([by_stdio()]) as servers:
        assert "nothing True" in (await call(servers, "who"))["content"]
    async with Servers([by_stdio(env={"THINGS_SECRET": "its own"})]) as servers:
        assert "its own" in (await call(servers, "who"))["content"]


async def test_nothing_is_left_behind(server: Server) -> None:
    before = asyncio.all_tasks()
    async with Servers([server, replace(server, name="others")]) as servers:
        assert len(servers.tools) == 2 * len(NAMES)
        assert len(pids()) >= 1
    assert asyncio.all_tasks() == before
    if server.command:
        assert pids() == set()


# ---------------------------------------------------------------------- what becomes of it


async def test_one_that_hangs_is_late_and_goes_on(server: Server) -> None:
    async with Servers([replace(server, timeout=0.3)]) as servers:
        assert await call(servers, "hang") == failed(
            "things__hang did not answer within 0.3 seconds."
        )
        assert await call(servers, "add", a=1, b=2) == done("3")


async def test_one_that_dies_in_the_middle_of_a_call_is_started_again() -> None:
    clock = FakeClock()
    async with Servers([by_stdio()], clock=clock) as servers:
        first = (await call(servers, "who"))["content"].split()[0]
        died, beside = await asyncio.gather(call(servers, "die"), call(servers, "hang"))
        assert died == beside == failed("things ended before it had answered.")
        second = (await call(servers, "who"))["content"].split()[0]
        assert first != second
        assert clock.slept == [connection.FIRST_WAIT]
        os.kill(int(second), signal.SIGKILL)
        await asyncio.sleep(0.1)  # until its end is heard of
        assert (await call(servers, "add", a=1, b=2)) == done("3")
        assert clock.slept == [1.0, 2.0]
    assert pids() == set()


async def test_one_that_dies_by_http_and_comes_back(
    by_http: ByHTTP, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FIRST_WAIT", 0.1)
    async with Servers([by_http.server]) as servers:
        assert await call(servers, "add", a=1, b=2) == done("3")
        assert await call(servers, "die") == failed("things ended before it had answered.")
        by_http.stop()
        gone = await call(servers, "add", a=1, b=2)
        assert gone["is_error"]
        by_http.start()
        for _ in range(100):
            again = await call(servers, "add", a=1, b=2)
            if again == done("3"):
                break
            await asyncio.sleep(0.05)
        assert again == done("3")


async def test_a_call_while_it_is_away_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "WAIT_FOR_IT", 0.05)
    clock = FakeClock(manual=True)
    async with Servers([by_stdio()], clock=clock) as servers:
        await call(servers, "die")
        assert await call(servers, "add", a=1, b=2) == failed(
            "things is not there at the moment. Try again later."
        )
        clock.advance(1)
        monkeypatch.setattr(connection, "WAIT_FOR_IT", 20)
        assert await call(servers, "add", a=1, b=2) == done("3")


async def test_one_that_lasted_is_started_again_soon() -> None:
    clock = FakeClock()
    async with Servers([by_stdio()], clock=clock) as servers:
        for _ in range(2):
            assert (await call(servers, "add", a=1, b=2)) == done("3")
            clock.advance(connection.LONGEST_WAIT + 1)
            await call(servers, "die")
        await call(servers, "add", a=1, b=2)
        assert clock.slept == [1.0, 1.0]


@pytest.mark.parametrize("megabytes", [1, 100])
async def test_a_flood_is_cut_or_ends_it(server: Server, megabytes: int) -> None:
    async with Servers([replace(server, timeout=40.0)], clock=FakeClock()) as servers:
        block = await call(servers, "flood", megabytes=megabytes)
        assert len(block["content"]) < MAX_CHARACTERS + 100
        if megabytes == 1:
            assert block["content"].endswith("the rest was cut here]")
        else:
            assert block["is_error"]
        assert await call(servers, "add", a=1, b=2) == done("3")


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (by_stdio(command="/nowhere/at-all"), "there is no such command"),
        (
            by_stdio("-c", "import sys; sys.exit('no key is set')"),
            "no key is set",
        ),
        (
            by_stdio("-c", "print('hello'); import time; time.sleep(60)", start_timeout=0.5),
            "no answer in 0.5 s",
        ),
        (Server(name="things", url="http://127.0.0.1:9/mcp", start_timeout=2.0), ""),
    ],
)
async def test_one_that_never_comes_up_is_missing(
    server: Server, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = asyncio.all_tasks()
    with caplog.at_level(logging.WARNING, "chinwag"):
        async with Servers([server, by_stdio(name="others")]) as servers:
            assert why in servers.missing["things"]
            assert servers.missing["things"]
            assert [tool.name for tool in servers.tools] == [f"others__{name}" for name in NAMES]
    assert "mcp.missing" in [record.message for record in caplog.records]
    assert asyncio.all_tasks() == before


async def test_without_the_package_all_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    async with Servers([by_stdio()]) as servers:
        assert (servers.tools, servers.missing) == ((), {"things": EXTRA})
    async with Servers([]) as servers:
        assert servers.missing == {}


async def test_a_start_that_is_given_up_leaves_nothing() -> None:
    before = asyncio.all_tasks()
    servers = Servers([by_stdio("-c", "import time; time.sleep(60)")])
    opening = asyncio.create_task(servers.__aenter__())
    await asyncio.sleep(0.5)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert asyncio.all_tasks() == before


async def test_one_that_will_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "GRACE_SECONDS", 0.1)
    deaf = (
        "import signal, threading; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "from tests.core.mcp_server import server;"
        "threading.Thread(target=threading.Event().wait).start(); server.run('stdio')"
    )
    async with Servers([by_stdio("-c", deaf)]) as servers:
        (pid, *_) = (await call(servers, "who"))["content"].split()
    assert not Path(f"/proc/{pid}").exists()


async def test_one_that_cannot_be_killed_is_heard_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stdio, "GRACE_SECONDS", 0.05)
    told: list[Any] = []
    monkeypatch.setattr(stdio, "_signal", lambda process, number: told.append(process))
    stays = (
        "import time; from tests.core.mcp_server import server as s; s.run('stdio'); time.sleep(60)"
    )
    with caplog.at_level(logging.WARNING, "chinwag"):
        async with Servers([by_stdio("-c", stays)]) as servers:
            await call(servers, "who")
    assert "mcp.alive" in [record.message for record in caplog.records]
    with suppress(ProcessLookupError):  # it has died of its closed pipes after all
        os.kill(told[0].pid, signal.SIGKILL)
    while told[0].returncode is None:  # noqa: ASYNC110 (a test looks from outside)
        await asyncio.sleep(0.01)


async def test_what_it_prints_beside_its_messages_is_passed_over() -> None:
    chatty = (
        "print('hello', flush=True); from tests.core.mcp_server import server; server.run('stdio')"
    )
    async with Servers([by_stdio("-c", chatty)]) as servers:
        assert await call(servers, "add", a=1, b=2) == done("3")


async def test_one_that_does_not_listen_is_missing() -> None:
    deaf = "import os, time; os.close(0); time.sleep(60)"
    async with Servers([by_stdio("-c", deaf, start_timeout=1.0)]) as servers:
        assert list(servers.missing) == ["things"]


class Failing:
    """A client whose calls fail."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def call_tool(self, name: str, arguments: object) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "said", "lost"),
    [
        (MCPError(-32602, "no such tool"), "things refused: no such tool", False),
        (MCPError(-32600, "Session terminated"), "things ended before it had answered.", True),
        (httpx2.ReadError("broken"), "things ended before it had answered.", True),
    ],
)
async def test_what_a_failure_of_a_call_means(error: Exception, said: str, lost: bool) -> None:
    made: Any = connection.Connection(by_stdio(), FakeClock())
    made._client = Failing(error)
    with pytest.raises(ToolError, match=said):
        await made._call("t", {})
    assert (made._client is None) == lost == made._lost.is_set()
    await made.close()  # it was never open


async def test_a_late_failure_does_not_cost_the_next_connection() -> None:
    made: Any = connection.Connection(by_stdio(), FakeClock())

    class Late(Failing):
        async def call_tool(self, name: str, arguments: object) -> None:
            made._client = newer
            raise self.error

    newer = Failing(httpx2.ReadError("later"))
    made._client = Late(httpx2.ReadError("broken"))
    with pytest.raises(ToolError):
        await made._call("t", {})
    assert made._client is newer


# ---------------------------------------------------------------------- what is said of it


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"name": "a b", "command": "x"}, "want a letter, then letters, digits or -"),
        ({"name": "a__b", "command": "x"}, "want a letter"),
        ({"name": "a"}, "either a command or a url"),
        ({"name": "a", "command": "x", "url": "http://x"}, "either a command or a url"),
    ],
)
def test_what_cannot_be_a_server(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Server(**options)


def test_a_server_shows_nothing_that_may_be_secret() -> None:
    server = Server(name="a", command="x", env={"K": "secret"}, args=("secret",))
    assert repr(server) == "Server(name='a')"


def tool(name: str = "t", **more: Any) -> mcp_types.Tool:
    return mcp_types.Tool(**{"name": name, "input_schema": {"type": "object"}, **more})


@pytest.mark.parametrize(
    ("about", "why"),
    [
        (tool(input_schema={"type": "array"}), "no object"),
        (tool(input_schema={"properties": []}), "schema is none"),
        (tool(input_schema={"properties": {"a b": {}}}), "cannot be given"),
        (tool(input_schema={"properties": {"a": {"type": "nonsense"}}}), "schema is none"),
        (tool(input_schema={"properties": {"a": {"description": "x" * 40_000}}}), "more than"),
        (tool("x" * 200), "128 at most"),
    ],
)
def test_a_tool_that_no_model_could_be_told_of(about: mcp_types.Tool, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        translation.tool_of(by_stdio(), about, lambda arguments: None)


def test_what_a_provider_refuses_is_left_out_of_a_schema() -> None:
    schema = {"$schema": "x", "oneOf": [{}], "properties": {"a": {"anyOf": [{"type": "string"}]}}}
    made = translation.tool_of(by_stdio(), tool(input_schema=schema, title="T"), lambda a: None)
    assert told(made) == {
        "name": "things__t",
        "description": "T",
        "input_schema": {
            "properties": {"a": {"anyOf": [{"type": "string"}]}},
            "type": "object",
        },
    }


def test_all_that_a_result_may_hold() -> None:
    t = mcp_types
    link = t.ResourceLink(type="resource_link", name="n", uri="file:///n")
    blob = t.BlobResourceContents(uri="file:///a/b.bin", blob="AAA=")
    content: list[Any] = [
        t.TextContent(type="text", text="a"),
        link,
        t.ImageContent(type="image", data="iVBORw0KGgo=", mime_type="image/png"),
        t.ImageContent(type="image", data="AAA=", mime_type="image/tiff"),
        t.AudioContent(type="audio", data="not base64", mime_type="audio/mpeg"),
        t.EmbeddedResource(
            type="resource", resource=t.TextResourceContents(uri="file:///t", text="inside")
        ),
        t.EmbeddedResource(type="resource", resource=blob),
    ]
    assert translation.values_of(t.CallToolResult(content=content)) == [
        "a\n[n: file:///n]",
        Image(PNG),
        File(b"\0\0", "image", "image/tiff"),
        File(b"", "audio", "audio/mpeg"),
        "inside",
        File(b"\0\0", "b.bin"),
    ]
    assert translation.values_of(t.CallToolResult(content=[])) == [""]
    assert "kind that cannot be shown: int" in translation._value(17)
    structured = t.CallToolResult(content=[], structured_content={"a": 1})
    assert translation.values_of(structured) == [{"a": 1}]


async def test_tools_that_are_left_out_are_heard_of(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = connection.Connection(by_stdio(), FakeClock())
    tools: dict[str, Any] = {}
    monkeypatch.setattr(connection, "MAX_TOOLS", 2)
    with caplog.at_level(logging.WARNING, "chinwag"):
        for about in (tool("a.b"), tool("a/b"), tool("b", input_schema={"type": "array"})):
            made._take(tools, about)
        made._take(tools, tool("c"))
        made._take(tools, tool("d"))
    assert list(tools) == ["things__a_b", "things__c"]
    assert [record.__dict__["event"]["error"] for record in caplog.records] == [
        "there twice",
        "its arguments are no object",
        "2 tools at most",
    ]
