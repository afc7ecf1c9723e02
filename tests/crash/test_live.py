"""Killed in the middle of an answer that grows on the screen: it is finished in place where there
is a message to edit, and comes as one message where there was only a draft.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from playground.claude_answers import Say
from tests.crash.program import World, assert_valid, said

ANSWER = " ".join(f"word{number}" for number in range(1, 61))


async def test_in_a_group_the_same_message_is_finished(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        alice = world.telegram.person("Alice")
        group = world.telegram.group("Friends", owner=alice)
        world.claude.script(Say(ANSWER, pause=0.1), Say(ANSWER))
        await world.start()
        await world.ready()
        world.telegram.write(alice, "tell me", group, mention=True)
        # Once it has grown it is noted. Before, it could come twice: the one window there is.
        await world.until(lambda: any(each.edits for each in world.telegram.sent(group)), "grown")
        (begun,) = world.telegram.texts(group)
        assert ANSWER.startswith(begun.strip()) and begun.strip() != ANSWER
        await world.kill()
        await world.start()
        await world.until(lambda: world.telegram.texts(group) == [ANSWER], "it is finished")
        await world.quiet()
        await world.terminate()
        # One message, that was never deleted.
        (sent,) = world.telegram.sent(group)
        assert not sent.deleted and sent.edits
        snapshot = await world.snapshot(f"telegram-chat:{group.id}")
        assert said(snapshot.messages, "assistant") == [ANSWER]
        assert_valid(snapshot)


async def test_in_a_private_chat_one_message_comes(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        alice = world.telegram.person("Alice")
        world.claude.script(Say(ANSWER, pause=0.1), Say(ANSWER))
        await world.start()
        await world.ready()
        world.telegram.write(alice, "tell me")
        await world.until(lambda: world.telegram.draft(alice) is not None, "a draft")
        await world.kill()
        assert world.telegram.sent(alice) == []
        await world.start()
        await world.until(lambda: bool(world.telegram.sent(alice)), "an answer")
        await world.quiet()
        await world.terminate()
        assert world.telegram.texts(alice) == [ANSWER]
        assert world.telegram.draft(alice) is None
        assert_valid(await world.snapshot(f"telegram-chat:{alice.id}"))


@pytest.mark.parametrize("command", ["/stop", "/reset"])
async def test_what_was_shown_of_a_stopped_answer_goes(tmp_path: Path, command: str) -> None:
    async with World(tmp_path) as world:
        alice = world.telegram.person("Alice")
        group = world.telegram.group("Friends", owner=alice)
        world.claude.script(Say(ANSWER, pause=0.1))
        await world.start()
        await world.ready()
        world.telegram.write(alice, "tell me", group, mention=True)
        await world.until(lambda: bool(world.telegram.texts(group)), "the answer begins")
        world.telegram.write(alice, command, group)

        def only_the_reply() -> bool:
            texts = world.telegram.texts(group)
            return len(texts) == 1 and not texts[0].startswith("word")

        await world.until(only_the_reply, "what was shown is taken back")
        await world.quiet()
        await world.terminate()
        assert said((await world.snapshot(f"telegram-chat:{group.id}")).messages, "assistant") == []


async def test_the_button_under_a_draft_stops_it(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        alice = world.telegram.person("Alice")
        world.claude.script(Say(ANSWER, pause=0.1), Say("Well?"))
        await world.start()
        await world.ready()
        world.telegram.write(alice, "tell me")
        await world.until(lambda: world.telegram.draft(alice) is not None, "a draft")
        draft = world.telegram.draft(alice)
        assert draft is not None
        world.telegram.press_stop(alice)
        await world.until(lambda: world.telegram.texts(alice) == ["Stopped."], "it stops")
        await world.say(alice, "and now?")
        await world.terminate()
        assert world.telegram.texts(alice) == ["Stopped.", "Well?"]
