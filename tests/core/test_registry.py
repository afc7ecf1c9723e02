"""The tools of one execution: nothing of another one, and whatever they do, the turn goes on."""

from __future__ import annotations

import asyncio
import threading
import time
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from core import threads
from core.errors import StoreUnavailable
from core.history import Block
from core.model import ToolCall
from core.registry import Registry
from core.results import MAX_CHARACTERS, Image
from core.tools import ToolContext, tool
from tests.core.test_tools import CONTEXT, done, failed


async def run(registry: Registry, name: str, **arguments: Any) -> Block:
    return await registry.run(ToolCall(id="c1", name=name, input=arguments), CONTEXT)


async def test_a_tool_is_called_so_often_and_no_oftener() -> None:
    once, thrice = (
        tool(name=name, max_calls=limit)(lambda: "ran") for name, limit in (("once", 1), ("few", 3))
    )
    registry = Registry([once, thrice], used=["few", "other"])
    few = [await run(registry, "few") for _ in range(4)]
    assert few[:2] == [done("ran")] * 2
    assert few[2:] == [failed("few may be called 3 times in a turn, and has been.")] * 2
    both = await asyncio.gather(run(registry, "once"), run(registry, "once"))
    assert list(both) == [done("ran"), failed("once may be called once in a turn, and has been.")]


async def test_a_tool_that_takes_whatever_comes() -> None:
    got: list[Any] = []

    def take(arguments: dict[str, Any], context: ToolContext) -> None:
        got.append((arguments, context))

    made = replace(
        tool(name="take")(lambda: None),
        function=take,
        arguments=None,
        context_parameter="context",
    )
    await run(Registry([made]), "take", a=1, b=[2])
    assert got == [({"a": 1, "b": [2]}, CONTEXT)]


async def test_a_tool_of_the_provider_is_not_run_here() -> None:
    made = replace(tool(name="web_search")(lambda: "never"), server=True)
    registry = Registry([made])
    assert registry.get("web_search") is None
    assert (await run(registry, "web_search"))["is_error"]


# ---------------------------------------------------------------------- whatever they do


async def test_one_that_will_not_be_cancelled_is_left_to_itself() -> None:
    go_on = asyncio.Event()

    @tool(timeout=0.02)
    async def stubborn() -> None:
        while not go_on.is_set():
            with suppress(asyncio.CancelledError):
                await go_on.wait()
        raise ZeroDivisionError("nobody hears of it")

    began = time.monotonic()
    assert await run(Registry([stubborn]), "stubborn") == failed(
        "stubborn did not answer within 0.02 seconds."
    )
    assert time.monotonic() - began < 5
    go_on.set()
    await asyncio.sleep(0.01)  # it ends; asyncio has nothing to complain of


async def test_an_async_one_cannot_end_the_program() -> None:
    @tool
    async def leave() -> None:
        raise SystemExit("a secret")

    assert await run(Registry([leave]), "leave") == failed(
        "leave failed because of an internal error."
    )


async def test_threads_that_hang_are_bounded_and_hold_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also not asyncio's own pool, which others need."""
    monkeypatch.setattr(threads, "_free", threading.BoundedSemaphore(40))
    go_on = threading.Event()

    @tool(timeout=0.05)
    def hang() -> None:
        go_on.wait(30)

    registry = Registry([hang])
    try:
        results = await asyncio.gather(*(run(registry, "hang") for _ in range(50)))
        late = failed("hang did not answer within 0.05 seconds.")
        assert results.count(late) == 40
        assert results.count(failed("Too much is under way at the moment. Try again later.")) == 10
        assert await asyncio.to_thread(lambda: "free") == "free"
    finally:
        go_on.set()


async def test_no_thread_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    made = tool(name="plain")(lambda: "ran")
    registry = Registry([made])
    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", none)
        broken = failed("plain failed because of an internal error.")
        assert [await run(registry, "plain") for _ in range(300)] == [broken] * 300
    assert await run(registry, "plain") == done("ran")


FLOOD = 100 << 20


def _letters() -> object:
    return "x" * FLOOD


def _numbers() -> object:
    return list(range(FLOOD // 50))


def _lines() -> object:
    return {"lines": ["y" * 1000] * (FLOOD // 1000)}


@pytest.mark.parametrize("flood", [_letters, _numbers, _lines])
async def test_a_flood_is_cut_or_refused_and_not_copied(flood: Any) -> None:
    value = flood()

    @tool
    def pour() -> object:
        return value

    kept: list[bytes] = []

    async def keep(data: bytes, media_type: str) -> str:
        kept.append(data)
        return "sha256:" + "0" * 64

    tracemalloc.start()
    try:
        block = await Registry([pour], keep=keep).run(
            ToolCall(id="c1", name="pour", input={}), CONTEXT
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(block["content"]) < MAX_CHARACTERS + 100
    assert not kept
    assert peak < 64 << 20
    if block.get("is_error"):
        assert "too large" in block["content"]
    else:
        assert block["content"].endswith("[… the result was longer; the rest was cut here]")


async def test_what_the_store_says_is_no_affair_of_the_model() -> None:
    async def full(data: bytes, media_type: str) -> str:
        raise StoreUnavailable("the disk is full")

    @tool
    def picture() -> Image:
        return Image(b"\x89PNG\r\n\x1a\n")

    with pytest.raises(StoreUnavailable):
        await run(Registry([picture], keep=full), "picture")
