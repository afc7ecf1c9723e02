"""50,000 characters by the clock on the wall: the program as it is started, streamed to, refused
in the middle, and killed in the middle. `tests/bots/telegram/test_long_answers.py` is its short
form, in a time of its own.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from bots.telegram.render import render
from playground.claude_answers import Say
from playground.telegram import Answer, Call, Chat, Person
from tests.bots.telegram.long import long_answer, words_of
from tests.crash.program import World, assert_valid

ANSWER = long_answer()
SIZE = 50  # characters of a piece: 1,000 pieces
# Our own clock and the stand-in's are read in two processes.
NEARLY_A_SECOND = 0.98


@pytest.mark.crash
@pytest.mark.timeout(400)
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("where", ["group", "private"])
async def test_it_is_said_once_and_whole(where: str, killed: bool, tmp_path: Path) -> None:
    pieces = tuple(ANSWER[at : at + SIZE] for at in range(0, len(ANSWER), SIZE))
    expected = [json.loads(body)["text"] for body in render(ANSWER)]
    async with World(tmp_path) as world:
        world.patience = 200.0
        alice = world.telegram.person("Alice")
        group = world.telegram.group("Friends", owner=alice)
        place: Person | Chat = group if where == "group" else alice
        world.claude.script(Say("", deltas=pieces, pause=0.03))
        for after, method in ((2, "sendMessage"), (6, "editMessageText"), (8, "sendMessage")):
            world.telegram.fault(method, Answer(429, retry_after=3), after=after)
        # A message of it is noted as sent: beyond the one window in which a part may come twice.
        await world.start("marked:4" if killed else None)
        world.telegram.write(alice, "tell me", place, mention=where == "group")
        await world.until(lambda: world.telegram.texts(place) == expected, "all of it")
        await world.quiet()
        assert world.deaths == killed
        await world.terminate()
        assert words_of("\n".join(world.telegram.texts(place))) == words_of(ANSWER)
        times = [call.at for call in sends(world, place)]
        near = [b - a for a, b in itertools.pairwise(times) if b - a < NEARLY_A_SECOND]
        # A new process does not know when the last one has sent.
        assert len(near) <= killed, near
        if where == "group":
            most = max(sum(at <= each < at + 60 for each in times) for at in times)
            assert most <= (20 if not killed else 28), most
        key = f"telegram-chat:{place.id}"
        assert_valid(await world.snapshot(key))


def sends(world: World, place: Person | Chat) -> list[Call]:
    return [
        call
        for call in world.telegram.calls
        if call.method in ("sendMessage", "editMessageText")
        and call.params.get("chat_id") == place.id
    ]
