"""SIGKILL at each failpoint: nothing lost, nothing twice, history whole and in order.

The short form kills at the first passage of each point; the long one (`make test-crash`) at later
passages too, and many chats at once.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from core import failpoints, phrases
from core.history import INTERRUPTED
from tests.crash.program import World, assert_valid, said
from tests.crash.record import Recorded
from tests.history_checker import tell

LATER = [(name, hit) for name in failpoints.NAMES for hit in (2, 4, 7)]
# Passed once per tool call only, so that a short conversation does not come to the seventh.
ONLY_WITH_TOOLS = ("before_tools", "tools_done")


async def converse(world: World, failpoint: str) -> None:
    """One conversation, message by message; every claim about it is checked at the end."""
    alice = world.telegram.person("Alice")
    await world.start(failpoint)
    questions = [
        "my name is Alice",
        'use note with {"text": "milk"}',
        "what is my name?",
        'use note with {"text": "bread"}',
        "what is my name again?",
    ]
    for question in questions:
        await world.say(alice, question)
    await world.quiet()
    assert await world.terminate() == 0
    assert world.deaths == 1, "the failpoint was never passed"

    answers = world.telegram.texts(alice)
    name, _, _ = failpoint.partition(":")
    if name == "sent":
        # The one window: sent, and killed before that could be noted.
        assert len(answers) == len(questions) + 1
        assert any(a == b for a, b in itertools.pairwise(answers))
    else:
        assert len(answers) == len(questions), answers
    assert answers[0].startswith("Nice to meet you, Alice")
    assert "Alice" in answers[-1]

    snapshot = await world.snapshot(f"telegram-chat:{alice.id}")
    assert_valid(snapshot)
    assert said(snapshot.messages, "user") == questions
    effects = world.effects()
    assert len(effects) == len(set(effects)), "a tool ran twice"
    results = [bytes(m.blocks).decode() for m in snapshot.messages if m.role == "user"]
    interrupted = sum(INTERRUPTED in result for result in results)
    if name not in ONLY_WITH_TOOLS:
        assert effects == ["milk", "bread"]
        assert interrupted == 0
    else:
        assert interrupted == 1
        assert len(effects) == (2 if name == "tools_done" else 1)


@pytest.mark.parametrize("name", failpoints.NAMES)
async def test_killed_at_the_first_passage(name: str, tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await converse(world, f"{name}:1")


@pytest.mark.crash
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("name", "hit"), LATER)
async def test_killed_at_a_later_passage(name: str, hit: int, tmp_path: Path) -> None:
    if name in ONLY_WITH_TOOLS:
        hit = 2
    elif name == "marked":
        # At the last mark nothing is left to do, and nobody would wait for the death.
        hit = min(hit, 4)
    elif name not in ("before_model", "answered"):
        hit = min(hit, 5)
    async with World(tmp_path) as world:
        await converse(world, f"{name}:{hit}")


@pytest.mark.parametrize("name", ["accepted", "started", "before_commit", "committed"])
async def test_killed_at_a_reset(name: str, tmp_path: Path) -> None:
    """The old answer comes back neither in the chat nor in the history; /reset comes twice."""
    async with World(tmp_path) as world:
        alice = world.telegram.person("Alice")
        await world.start()
        await world.say(alice, "my name is Alice")
        assert await world.terminate() == 0
        await world.start(f"{name}:1")
        reset = world.telegram.write(alice, "/reset")
        await world.until(
            lambda: phrases.RESET in world.telegram.texts(alice), "the reset is confirmed"
        )
        await world.quiet()
        world.telegram.redeliver(reset)
        await world.say(alice, "what is my name?")
        world.telegram.redeliver(reset)
        await world.say(alice, "what did I say first?")
        await world.quiet()
        assert await world.terminate() == 0
        answers = world.telegram.texts(alice)
        assert answers.count(phrases.RESET) == 1
        assert "Alice" not in " ".join(answers[2:])
        snapshot = await world.snapshot(f"telegram-chat:{alice.id}")
        assert_valid(snapshot)
        assert said(snapshot.messages, "user") == ["what is my name?", "what did I say first?"]


@pytest.mark.crash
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(6))
async def test_killed_again_and_again_with_many_chats(seed: int, tmp_path: Path) -> None:
    """40 chats at once, six kills and more at random points."""
    chance = random.Random(seed)
    async with Recorded(tmp_path, chance) as world:
        people = [world.friend(f"P{number}") for number in range(40)]
        for _ in range(6):
            await world.start(f"{chance.choice(failpoints.NAMES)}:{chance.randint(1, 60)}")
            for person in people:
                world.say_so(person)
            await world.until(lambda: not world.telegram.unconfirmed(), "all updates confirmed")
            await world.kill()
        await world.start()
        for person in people:
            world.say_so(person)
        await world.quiet()
        assert await world.terminate() == 0
        findings = await world.judge()
        assert not findings, tell(findings)
