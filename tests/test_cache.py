"""How much the prompt cache serves is worked out from bytes, so a test can hold it."""

from __future__ import annotations

from bench.cache import GOAL, figure


async def test_what_the_prompt_cache_serves() -> None:
    found = await figure()
    assert len(found.goals) == 6
    assert [goal.what for goal in found.goals if not goal.met] == []
    # What is measured can tell a bad client from a good one.
    served = {row[0]: float(row[5].rstrip("%")) / 100 for row in found.rows}
    assert served["no cap, a clock in the prompt"] == 0
    assert served["cap 20, trim_to 10"] >= GOAL
