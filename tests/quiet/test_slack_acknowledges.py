"""Slack waits three seconds for an acknowledgement; ours comes within half of one, and is durable
before that, also when two hundred people speak at once."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bots.slack.manifest import PATH
from playground.slack_deliveries import Failed
from tests.crash.slack_program import CONFIG, SlackWorld

EVENTS = 200
LIMIT = 0.5
TRIES = 3  # another process may have the machine just then; a bot that is slow is slow each time


@pytest.mark.timeout(120)
@pytest.mark.parametrize("transport", ["socket", "http"])
async def test_two_hundred_at_once(tmp_path: Path, transport: str) -> None:
    config = CONFIG
    url = ""
    if transport == "http":
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        config += f"[slack]\ntransport = 'http'\n[http]\nport = {port}\n"
    async with SlackWorld(tmp_path, config) as world:
        (tmp_path / ".env").write_text(f"SLACK_SIGNING_SECRET={world.slack.signing_secret}\n")
        if transport == "http":
            world.slack.deliver_to(f"{url}{PATH}")
        await world.start()
        await (_reached(world) if transport == "http" else world.ready())
        took = [await _burst(world, number) for number in range(TRIES)]
        assert await world.terminate() == 0
    best = min(_p99(seconds) for seconds in took)
    assert best < LIMIT, [f"p99 {_p99(each):.3f} s, median {_median(each):.3f} s" for each in took]


async def _reached(world: SlackWorld) -> None:
    async with asyncio.timeout(20):
        while True:
            with suppress(Failed):
                if await world.slack.verify():
                    return
            await asyncio.sleep(0.05)


async def _burst(world: SlackWorld, number: int) -> list[float]:
    """Seconds until each of the events was acknowledged."""
    slack = world.slack
    people = [slack.person(f"P{number}-{each}") for each in range(EVENTS)]
    acknowledged: dict[str, float] = {}

    def happened(name: str, what: dict[str, Any]) -> None:
        if name == "acknowledged":
            acknowledged.setdefault(what["id"], time.monotonic())

    slack.listeners.append(happened)
    began = time.monotonic()
    told = [slack.write(person, "hello")[0] for person in people]
    await world.until(lambda: all(each.id in acknowledged for each in told), "acknowledgements")
    slack.listeners.remove(happened)
    assert [each.attempts for each in told] == [1] * EVENTS
    await world.quiet()
    return sorted(acknowledged[each.id] - began for each in told)


def _p99(seconds: list[float]) -> float:
    return seconds[int(len(seconds) * 0.99) - 1]


def _median(seconds: list[float]) -> float:
    return seconds[len(seconds) // 2]
