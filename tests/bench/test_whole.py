"""Whole bots, small: each says what it must, and nothing here is a figure. The peers are not
installed where chinwag is developed."""

import math
from pathlib import Path
from typing import Any

import pytest

from bench import whole_figures
from bench.effort import QUICK
from bench.outside import DELTAS, Order, Outside, pieces, stream
from bench.said import exchange
from bench.stacks import STACKS, Program
from bench.subject import Numbers, Spec, Wrong
from bench.whole import KINDS, whole
from core.sse import Assembly


@pytest.mark.parametrize("who", whole_figures.FLOORS)
async def test_a_whole_turn(tmp_path: Path, who: str) -> None:
    spec = Spec(kind="whole", who=who, folder=str(tmp_path), chats=3, history=4, turns=2)
    numbers = await whole(spec)
    assert numbers["turns"] == 6
    assert numbers["cpu"] > 0 and numbers["p99"] > 0


async def test_a_bot_that_forgets_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(Program):
        async def fill(self, said: Any) -> None:
            await super().fill(dict(list(said.items())[1:]))

    monkeypatch.setitem(STACKS, "forgetful", Forgetful)
    spec = Spec(kind="whole", who="forgetful", folder=str(tmp_path), chats=2, history=4, turns=1)
    with pytest.raises(Wrong, match="chat 0: asked with 1 messages, not 5"):
        await whole(spec)


@pytest.mark.parametrize("who", ["chinwag", "bare sockets", "Anthropic stream"])
async def test_the_first_text(tmp_path: Path, who: str) -> None:
    spec = Spec(kind="first", who=who, folder=str(tmp_path), history=6, turns=2)
    assert (await KINDS["first"](spec))["p50"] > 0


@pytest.mark.parametrize(
    ("kind", "who"),
    [("own", "core"), ("own", "edges"), ("idle", "chinwag"), ("command", "chinwag")],
)
async def test_what_lies_around_a_turn(tmp_path: Path, kind: str, who: str) -> None:
    spec = Spec(kind=kind, who=who, folder=str(tmp_path), chats=4, turns=1)
    numbers = await KINDS[kind](spec)
    assert all(math.isfinite(value) for value in numbers.values())
    assert numbers.get("tasks", 0) == 0


async def test_answers_under_way(tmp_path: Path) -> None:
    spec = Spec(kind="busy", who="chinwag", folder=str(tmp_path), chats=12, history=2)
    numbers = await KINDS["busy"](spec)
    # Each has a lane, a turn, and a connection.
    assert numbers["tasks"] >= 2
    assert numbers["descriptors"] > 0.3


async def test_the_outside_tells_what_is_wrong() -> None:
    outside = await Outside.begin()
    assert (await outside.order(Order())).wrong == ""
    await outside.end()
    said = exchange(7).answer
    assert len(pieces(said)) == DELTAS and "".join(pieces(said)) == said
    assembly = Assembly()
    assembly.feed(stream(said))
    assert assembly.answer().text == said


class _Bench:
    """Numbers that are all the same."""

    effort = QUICK

    def run(self, spec: Spec) -> Numbers:
        names = (
            "cpu per_core per_second p50 p99 memory history more tasks descriptors version nothing"
        )
        return dict.fromkeys(names.split(), 1.0)

    def beside(self, specs: Any) -> list[Numbers]:
        return [self.run(spec) for spec in specs]

    def folder(self, name: str) -> Path:
        raise NotImplementedError


@pytest.mark.parametrize("name", list(whole_figures.FIGURES))
@pytest.mark.parametrize("peers", [False, True])
def test_each_figure_has_its_goals(name: str, peers: bool) -> None:
    bench = _Bench()
    bench.effort = QUICK._replace(peers=peers)
    figure = whole_figures.FIGURES[name](bench)
    assert all(goal.met is not None for goal in figure.goals)
    assert f"## {figure.title}" in str(figure)
