"""SIGKILL in the middle of a model call: what it may have cost is spent, and no more than that."""

from __future__ import annotations

import json
from pathlib import Path

from tests.crash.program import CONFIG, World

BUDGET = '\n[budget]\nper_day = "{} tokens"\n'


async def used(world: World) -> dict[str, int]:
    """What an operator sees of it, beside the running bot."""
    ran = await world.command("usage", "--json", "--since", "2d")
    assert ran.code == 0, ran.err
    [day] = [json.loads(line) for line in ran.out.splitlines()]
    return {name: day[name] for name in ("calls", "estimated_calls", "output_tokens")}


async def test_a_call_that_a_kill_cut_off_counts_as_the_most_it_can_have_used(
    tmp_path: Path,
) -> None:
    async with World(tmp_path, CONFIG + BUDGET.format(1_000_000)) as world:
        alice = world.telegram.person("Alice")
        await world.start("before_model:1")
        await world.say(alice, "my name is Alice")
        assert world.deaths == 1
        after = await used(world)
        assert (after["calls"], after["estimated_calls"]) == (2, 1)
        # The one that was cut off, with all the output that it was allowed.
        assert after["output_tokens"] > 4096
        assert await world.terminate() == 0


async def test_crashing_in_a_circle_does_not_pass_a_budget(tmp_path: Path) -> None:
    async with World(tmp_path, CONFIG + BUDGET.format(11_000)) as world:
        alice = world.telegram.person("Alice")
        world.telegram.write(alice, "my name is Alice")
        for _ in range(2):
            # Killed when the answer is there: it was asked for, and paid.
            await world.start("answered:1")
            assert await world.exited() == -9
            world.died()
        paid = len(world.claude.requests)
        assert paid == 2
        await world.start()
        await world.until(lambda: bool(world.telegram.texts(alice)), "the budget is used up")
        await world.quiet()
        assert "I have used up what I may spend today" in world.telegram.texts(alice)[0]
        assert len(world.claude.requests) == paid
        assert (await used(world))["estimated_calls"] == paid
        assert await world.terminate() == 0
