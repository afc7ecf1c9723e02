"""SIGKILL while people send pictures: each is answered once, and the model has seen it.

The real program against the local servers. What is fetched before a turn starts is nowhere but in
memory, or a blob that nothing names, when the program dies.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core import failpoints
from core.messages import decode_blocks
from playground.telegram import Delay, Person
from playground.telegram_media import Photo
from tests.bots.test_pictures import file, flag
from tests.crash.program import World, assert_valid

# Each is passed on the way from the message to the answer.
POINTS = [name for name in failpoints.NAMES if name not in ("before_tools", "tools_done")]
JPEG = file(flag(320, 240))


def pictures(world: World) -> list[int]:
    """How many each request has had."""
    return [json.dumps(request).count('"type": "image"') for request in world.claude.requests]


async def assert_seen(world: World, alice: Person, count: int) -> None:
    """One turn with so many pictures, answered once; each is named in the history, and kept."""
    assert set(pictures(world)) == {count}
    await world.ready()
    assert await world.terminate() == 0
    snapshot = await world.snapshot(f"telegram-chat:{alice.id}")
    assert_valid(snapshot)
    assert len(snapshot.messages) == 2
    sources = [
        block["source"]
        for block in decode_blocks(snapshot.messages[0].blocks)
        if block["type"] == "image"
    ]
    assert len(sources) == count
    assert all(isinstance(each, dict) and each["type"] == "blob" for each in sources)


@pytest.mark.parametrize("name", POINTS)
async def test_killed_around_a_photo(name: str, tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        alice = world.telegram.person("Alice")
        await world.start(f"{name}:1")
        await world.ready()
        world.telegram.send(alice, Photo(JPEG), caption="my name is Alice")
        nice = "Nice to meet you, Alice."
        await world.until(lambda: nice in world.telegram.texts(alice), "the answer")
        await world.until(lambda: world.deaths == 1, "its death")
        await world.quiet()
        # But for the one window there is.
        assert world.telegram.texts(alice).count(nice) == 1 or name == "sent"
        await assert_seen(world, alice, 1)


async def test_killed_while_a_photo_is_fetched(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        alice = world.telegram.person("Alice")
        world.telegram.fault("download", Delay(60))
        await world.start()
        await world.ready()
        world.telegram.send(alice, Photo(JPEG), caption="my name is Alice")

        def fetching() -> bool:
            return any(call.method == "download" for call in world.telegram.calls)

        await world.telegram.until(fetching, timeout=world.patience)
        await world.kill()
        assert world.telegram.texts(alice) == []
        await world.start()
        await world.until(lambda: len(world.telegram.texts(alice)) == 1, "the answer")
        await world.quiet()
        await assert_seen(world, alice, 1)


@pytest.mark.parametrize(("name", "hit"), [("accepted", 1), ("accepted", 4), ("submitted", 10)])
async def test_killed_in_the_middle_of_an_album(name: str, hit: int, tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        alice = world.telegram.person("Alice")
        await world.start(f"{name}:{hit}")
        await world.ready()
        several = [Photo(file(flag(100 + number, 100))) for number in range(10)]
        world.telegram.album(alice, several, caption="which is best?")
        await world.until(lambda: len(world.telegram.texts(alice)) == 1, "the answer")
        await world.quiet()
        assert world.deaths == 1
        assert len(world.telegram.texts(alice)) == 1
        await assert_seen(world, alice, 10)
