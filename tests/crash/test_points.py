"""SIGKILL at each failpoint, with everything going on at once, and the history checker as judge.

The long form of `test_kill.py`: several chats, one of them a group, strangers, tools, answers of
several parts, a reset and a stop in the middle. The program dies up
to six times at the same place.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from core import failpoints
from tests.crash.record import Recorded, Way
from tests.history_checker import tell
from tests.history_log import Effect, Finding

HITS = (1, 2, 4, 7)
DEATHS = 6


@pytest.mark.crash
@pytest.mark.timeout(240)
@pytest.mark.parametrize("hit", HITS)
@pytest.mark.parametrize("name", failpoints.NAMES)
async def test_killed_amid_everything(name: str, hit: int, tmp_path: Path) -> None:
    async with Recorded(tmp_path, random.Random(f"{name}:{hit}")) as world:
        findings = await everything(world, f"{name}:{hit}")
        assert world.kills >= 1, "the failpoint was never passed"
        assert not findings, tell(findings)


async def test_nobody_is_killed(tmp_path: Path) -> None:
    """What the others are compared with, and a log that says all that the checker reads."""
    async with Recorded(tmp_path, random.Random(0)) as world:
        findings = await everything(world, None)
        assert not findings, tell(findings)
        kinds = {type(event).__name__ for event in world.events}
        assert kinds >= {"Written", "Delivered", "Confirmed", "Accepted", "Asked", "Answered"}
        assert kinds >= {"Committed", "Sent", "Marked", "Effect", "Stored"}
        assert sum(isinstance(event, Effect) for event in world.events) == 8


async def everything(world: Recorded, point: str | None) -> list[Finding]:
    people = [world.friend(name) for name in ("Alice", "Bob", "Carol")]
    alice, bob, carol = people
    group = world.telegram.group("Friends", owner=alice)
    stranger = world.telegram.person("Mallory")

    def all_say(way: Way) -> None:
        for person in people:
            world.say_so(person, way=way)
        world.say_so(bob, group, way)

    def interrupted() -> None:
        all_say("long")
        world.say_so(alice, group, "slow")
        world.say_so(bob, way="stop")
        world.say_so(carol, way="reset")
        world.say_so(carol)
        world.say_so(stranger, group)
        world.say_so(stranger, way="note")

    def again() -> None:
        update = world.say_so(alice)
        world.say_so(alice, way="plain")
        world.telegram.redeliver(update)
        all_say("plain")
        world.say_so(carol, group, "long")

    rounds: list[Callable[[], None]] = [
        lambda: all_say("plain"),
        lambda: all_say("note"),
        interrupted,
        again,
        lambda: all_say("note"),
        lambda: all_say("slow"),
    ]
    world.points.extend([point] * DEATHS if point else [])
    await world.start()
    for act in rounds:
        act()
        await world.quiet()
    assert await world.terminate() == 0
    return await world.judge()
