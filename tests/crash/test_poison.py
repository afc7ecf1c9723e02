"""A message that kills the program whenever it is asked about hurts nobody but its sender."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from core import phrases
from playground.claude_answers import Answer, Silence
from tests.crash.record import Recorded
from tests.history_checker import tell


@pytest.mark.timeout(180)
async def test_a_poison_message_costs_its_neighbours_nothing(tmp_path: Path) -> None:
    async with Recorded(tmp_path, random.Random(0)) as world:
        people = [world.friend(f"P{number}") for number in range(6)]
        think = world.claude.brain

        def poisoned(body: dict[str, Any]) -> Answer:
            answer = think(body)
            if "poison" not in json.dumps(body["messages"][-1]):
                return answer
            assert world.child is not None
            world.child.kill()
            return Silence(1.0)

        world.claude.brain = poisoned
        await world.start()
        world.say_so(people[0], way="poison")
        for person in people[1:]:
            world.say_so(person, way="slow")
        await world.quiet()
        assert await world.terminate() == 0
        findings = await world.judge()
        assert not findings, tell(findings)
        assert world.kills == 3
        assert world.telegram.texts(people[0]) == [phrases.GAVE_UP]
        for person in people[1:]:
            (answer,) = world.telegram.texts(person)
            assert answer.startswith("#"), answer
