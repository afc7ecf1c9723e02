"""The program on a Redis: killed at each failpoint, and its server killed under it."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from core import failpoints
from stores.redis import RedisStore
from tests.crash.program import CONFIG, World, assert_valid, said
from tests.crash.test_kill import converse
from tests.redis import another, fresh_url

SOME = ("committed",)


class OnRedis(World):
    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, f'{CONFIG}[store]\nurl = "{url}"\n')
        self._url = url

    def stored(self) -> RedisStore:
        return RedisStore(self._url, read_only=True)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in SOME else pytest.mark.crash)
        for name in failpoints.NAMES
    ],
)
async def test_killed_at_the_first_passage(name: str, tmp_path: Path) -> None:
    """What is started again has the lock at once: who held it is seen to be gone."""
    async with OnRedis(tmp_path, fresh_url()) as world:
        await converse(world, f"{name}:1")


async def test_its_server_is_killed_and_comes_back(tmp_path: Path) -> None:
    """What is said meanwhile is confirmed to nobody, and answered when the server is back."""
    redis = another("--appendfsync", "always")
    redis.start()
    try:
        async with OnRedis(tmp_path, redis.url("x")) as world:
            alice = world.telegram.person("Alice")
            await world.start()
            await world.say(alice, "my name is Alice")
            redis.stop(signal.SIGKILL)
            world.telegram.write(alice, "what is my name?")
            await world.until(lambda: "store" in world.log(), "the store is missed")
            assert len(world.telegram.texts(alice)) == 1
            assert world.telegram.unconfirmed()
            redis.start()
            await world.until(lambda: len(world.telegram.texts(alice)) > 1, "it is answered")
            await world.say(alice, "what is my name again?")
            assert await world.terminate() == 0
            answers = world.telegram.texts(alice)
            assert len(answers) == 3 and "Alice" in answers[1] and "Alice" in answers[2]
            snapshot = await world.snapshot(f"telegram-chat:{alice.id}")
            assert_valid(snapshot)
            assert len(said(snapshot.messages, "user")) == 3
    finally:
        redis.stop(signal.SIGKILL)
        shutil.rmtree(redis.folder)


async def test_its_server_comes_back_empty(tmp_path: Path) -> None:
    """It ends, rather than beginning all conversations anew."""
    redis = another("--appendonly", "no")
    redis.start()
    try:
        async with OnRedis(tmp_path, redis.url("x")) as world:
            alice = world.telegram.person("Alice")
            await world.start()
            await world.say(alice, "my name is Alice")
            redis.stop(signal.SIGKILL)
            redis.start()
            world.telegram.write(alice, "what is my name?")
            assert await world.exited() == 3
            assert "what was stored is gone" in world.log()
            assert len(world.telegram.texts(alice)) == 1
            assert world.telegram.unconfirmed()
    finally:
        redis.stop(signal.SIGKILL)
        shutil.rmtree(redis.folder)
