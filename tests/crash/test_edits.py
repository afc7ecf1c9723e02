"""SIGKILL around an edit and the press that has it answered again, at every failpoint.

The real program against the local servers; a person edits a real message. Whatever dies when:
the changed message is answered, the old one is history no more, and nothing is answered twice.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from core import failpoints, phrases
from playground.telegram import Person
from tests.crash.program import World, assert_valid, said

# Each is passed on the way from the edit, over the press, to the answer.
POINTS = [name for name in failpoints.NAMES if name not in ("before_tools", "tools_done")]


async def edit(world: World, person: Person, message: int, text: str) -> None:
    """It asks, and has noted that it did."""
    world.telegram.edit(person, message, text)
    await world.until(lambda: bool(world.telegram.buttons(person)), "a question with a button")
    await world.quiet()


@pytest.mark.parametrize("name", POINTS)
async def test_killed_around_the_press(name: str, tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        alice = world.telegram.person("Alice")
        await world.start()
        await world.ready()
        wrote = world.telegram.write(alice, "my name is Bob")
        await world.until(lambda: len(world.telegram.texts(alice)) == 1, "an answer")
        await world.quiet()
        await edit(world, alice, world.telegram.message_id(wrote), "my name is Alice")
        await world.kill()
        await world.start(f"{name}:1")
        pressed = world.telegram.choose(alice, phrases.ANSWER_AGAIN)
        again = world.telegram.choose(alice, phrases.ANSWER_AGAIN)
        nice = "Nice to meet you, Alice."
        await world.until(lambda: nice in world.telegram.texts(alice), "the new answer")
        await world.until(lambda: world.deaths == 1, "its death")
        await world.quiet()
        world.telegram.redeliver(pressed)
        world.telegram.redeliver(again)
        await world.say(alice, "what is my name?")
        assert await world.terminate() == 0
        snapshot = await world.snapshot(f"telegram-chat:{alice.id}")
        assert_valid(snapshot)
        assert said(snapshot.messages, "user") == ["my name is Alice", "what is my name?"]
        assert said(snapshot.messages, "assistant") == [nice, "Your name is Alice."]
        assert world.telegram.buttons(alice) == [] and snapshot.edited is None
        # But for the one window there is.
        assert world.telegram.texts(alice).count(nice) == 1 or name == "sent"


async def test_killed_before_the_edit_of_what_waits_is_kept(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        alice = world.telegram.person("Alice")
        group = world.telegram.group("Friends", owner=alice)
        await world.start("before_accept:2")
        await world.ready()
        wrote = world.telegram.write(alice, "my name is Bob", group, mention=True)
        # In the same answer of Telegram's, so before it is answered.
        edited = world.telegram.edit(
            alice, world.telegram.message_id(wrote), "my name is Alice", group
        )
        await world.until(lambda: world.deaths == 1, "its death")
        await world.quiet()
        world.telegram.redeliver(edited)
        if world.telegram.buttons(group):
            # It was answered before it was edited: the machine decides which comes first.
            world.telegram.choose(alice, phrases.ANSWER_AGAIN, group)
        nice = "Nice to meet you, Alice."
        await world.until(lambda: nice in world.telegram.texts(group), "the answer")
        await world.quiet()
        assert await world.terminate() == 0
        snapshot = await world.snapshot(f"telegram-chat:{group.id}")
        assert_valid(snapshot)
        assert said(snapshot.messages, "user") == ["<from>Alice</from>\nmy name is Alice"]
