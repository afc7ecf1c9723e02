"""One minute of `make soak`: random kills under load, with the history checker as judge."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.soak import Soak
from tests.history_checker import tell


@pytest.mark.crash
@pytest.mark.timeout(300)
async def test_a_minute_of_soak(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    soak = Soak(tmp_path, 60.0, 200, seed, print)
    try:
        summary = await soak.run()
    finally:
        soak.world.save(tmp_path / "events.jsonl")
    print(summary)
    assert summary.kills >= 5
    assert not summary.findings, f"seed {seed}: {tell(summary.findings)}"
