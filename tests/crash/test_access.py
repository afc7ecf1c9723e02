"""SIGKILL while a stranger asks to be let in, and while the owner answers.

The real program against the local servers, with real buttons. Whatever dies when: the owner is
asked once, what was decided holds, and the stranger is told once.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from core import phrases
from playground.telegram import Person
from tests.crash.program import World

PRIVATE = "[telegram]\npoll_timeout = 5\n"
# On the way of a message that is answered without a turn.
POINTS = ("received", "accepted", "submitted", "before_send", "marked")


async def owned(world: World) -> Person:
    """The program runs, and has an owner."""
    alice = world.telegram.person("Alice")
    await world.start()
    await world.ready()
    (code,) = re.findall(r"/start ([A-Z0-9]{10})\b", world.log())
    assert f"https://t.me/{world.telegram.username}?start={code}" in world.log()
    world.telegram.write(alice, f"/start {code}")
    await world.until(lambda: phrases.PAIRED in world.telegram.texts(alice), "an owner")
    await world.quiet()
    return alice


@pytest.mark.parametrize("name", POINTS)
async def test_killed_between_question_and_answer(name: str, tmp_path: Path) -> None:
    async with World(tmp_path, PRIVATE) as world:
        telegram = world.telegram
        alice = await owned(world)
        await world.kill()
        await world.start(f"{name}:1")
        eve = telegram.person("Eve")
        asked = telegram.write(eve, "/start")
        await world.until(lambda: bool(telegram.buttons(alice)), "the owner is asked")
        await world.quiet()
        telegram.redeliver(asked)
        pressed = telegram.choose(alice, phrases.ACCESS_ALLOW)
        telegram.choose(alice, phrases.ACCESS_ALLOW)
        let_in = phrases.ACCESS_LET_IN
        await world.until(lambda: let_in in telegram.texts(eve), "she is told")
        await world.until(lambda: world.deaths == 1, "its death")
        await world.quiet()
        telegram.redeliver(pressed)
        await world.say(eve, "my name is Eve")
        assert await world.terminate() == 0
        cards = [text for text in telegram.texts(alice) if "Eve" in text]
        may = phrases.ACCESS_ALLOWED.format(person="Eve", id=f"telegram:{eve.id}").replace("`", "")
        # Of a card that may have come twice the one that was pressed says so.
        assert may in cards and len(cards) in (1, 2)
        # Its line in the log is written last, so a death may leave none; two would be two parts.
        assert len(set(re.findall(r"part=(\S+\.asks\.\S+)", world.log()))) <= 1
        # Killed while it leaves it may come twice: the one window there is. It is one part.
        assert telegram.texts(eve).count(let_in) in (1, 2)
        assert len(set(re.findall(r"part=(\S+\.let_in\.\S+)", world.log()))) <= 1
        assert telegram.texts(eve)[-1] == "Nice to meet you, Eve."


async def test_who_is_denied_is_heard_no_more(tmp_path: Path) -> None:
    async with World(tmp_path, PRIVATE) as world:
        telegram = world.telegram
        alice = await owned(world)
        eve = telegram.person("Eve")
        telegram.write(eve, "/start")
        await world.until(lambda: bool(telegram.buttons(alice)), "the owner is asked")
        telegram.choose(alice, phrases.ACCESS_DENY)
        await world.until(lambda: not telegram.buttons(alice), "answered")
        await world.quiet()
        await world.kill()
        await world.start()
        await world.ready()
        for text in ("/start", "/id", "hello"):
            telegram.write(eve, text)
        await world.quiet()
        assert len(telegram.texts(eve)) == 1 and world.claude.requests == []
        assert await world.terminate() == 0
        said = await world.command("access", "list")
        assert [line.split()[:2] for line in said.out.splitlines()] == [
            ["owner", f"telegram:{alice.id}"],
            ["deny", f"telegram:{eve.id}"],
        ]
