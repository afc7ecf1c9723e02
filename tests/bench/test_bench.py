"""The benchmark's own checks, small: no peers, and nothing here is a figure."""

import math
from functools import partial
from pathlib import Path

import pytest

from bench.floors import Append, Floor, Group
from bench.loads import build, load, start
from bench.measure import median, percentile
from bench.ours import Chinwag
from bench.report import Goal, fixed, ratio, table
from bench.said import in_window
from bench.subject import Spec, Wrong
from bench.turns import Make, crowd, turns


@pytest.mark.parametrize("store", [Chinwag, Floor, Append])
@pytest.mark.parametrize("history", [0, 50])
async def test_turns_see_what_was_said_and_leave_it_there(
    tmp_path: Path, store: type[Chinwag | Floor | Append], history: int
) -> None:
    make: Make = partial(store, tmp_path / "db")
    spec = Spec(kind="turns", who="", folder=str(tmp_path), chats=2, history=history, turns=6)
    numbers = await turns(spec, make)
    assert numbers["turns"] == 6
    assert numbers["size"] > 0


@pytest.mark.parametrize("store", [Chinwag, Group])
@pytest.mark.parametrize("keeps", [False, True])
async def test_all_at_once(tmp_path: Path, store: type[Chinwag | Group], keeps: bool) -> None:
    make: Make = partial(store, tmp_path / "db", keeps=keeps)
    spec = Spec(kind="crowd", who="", folder=str(tmp_path), chats=5, turns=3)
    numbers = await crowd(spec, make)
    assert (numbers["turns"], numbers["failed"], numbers["lost"]) == (15, 0, 0)


@pytest.mark.parametrize("who", ["chinwag", "floor", "bare floor"])
async def test_a_whole_history_and_a_start(tmp_path: Path, who: str) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    whole = Spec(kind="load", who=who, folder=str(one), history=60, turns=2)
    assert (await load(whole))["cold"] > 0
    full = Spec(kind="build", who=who, folder=str(other), chats=1_000)
    await build(full)
    assert (await start(full))["p99"] > 0


async def test_a_message_that_is_not_there_is_wrong(tmp_path: Path) -> None:
    class Forgetful(Append):
        async def count(self, key: str) -> int:
            return await super().count(key) - 1

    spec = Spec(kind="turns", who="", folder=str(tmp_path), turns=1)
    with pytest.raises(Wrong, match="after it was opened again"):
        await turns(spec, lambda: Forgetful(tmp_path / "db"))


def test_the_window_that_a_turn_must_see() -> None:
    assert [in_window(total) for total in (0, 2, 40, 42, 62, 64)] == [0, 2, 40, 20, 40, 20]


def test_numbers_and_tables() -> None:
    assert percentile([3, 1, 2], 50) == 2
    assert median([math.nan, 1.0]) == 1
    assert ratio([{"p50": 4}, {"p50": 9}], [{"p50": 2}, {"p50": 3}], "p50") in (2, 3)
    assert [fixed(value) for value in (0, 0.1234, 12.34, 12_345, math.nan)] == [
        "0",
        "0.123",
        "12.3",
        "12,345",
        "–",
    ]
    goal = Goal("what", "<= 1", "2", met=False)
    assert goal.columns[-1] == "✗"
    assert table(("a", "b"), [("1", "22")]) == "| a | b  |\n| - | -- |\n| 1 | 22 |"
