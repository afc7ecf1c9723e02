"""A group with the real program in it: who may do what, what is heard, and what goes again."""

from __future__ import annotations

import json
from pathlib import Path

from core import phrases
from playground.telegram import Chat, Person
from tests.crash.program import CONFIG, World, said

NAMED = CONFIG + 'names = ["Chinny"]\n'
REMEMBERING = NAMED + "[memory]\nunaddressed = 5\n"


class Club(World):
    """A group of three, one of whom runs it."""

    def __init__(self, folder: Path, config: str = NAMED) -> None:
        super().__init__(folder, config)
        telegram = self.telegram
        self.alice, self.bob, self.cleo = (telegram.person(n) for n in ("Alice", "Bob", "Cleo"))
        self.room = self.new_room()

    def new_room(self) -> Chat:
        return self.telegram.supergroup("Club", owner=self.alice)

    async def answers(self, person: Person, text: str, *, mention: bool = False) -> str:
        """The next thing that the bot says there."""
        before = len(self.telegram.sent(self.room))
        self.telegram.write(person, text, self.room, mention=mention)
        await self.until(
            lambda: len(self.telegram.sent(self.room)) > before, f"an answer to {text!r}"
        )
        await self.quiet()
        return self.telegram.texts(self.room)[-1]

    async def ignores(self, person: Person, text: str) -> None:
        before = len(self.telegram.sent(self.room))
        self.telegram.write(person, text, self.room)
        await self.quiet()
        assert len(self.telegram.sent(self.room)) == before


async def test_who_may_what(tmp_path: Path) -> None:
    async with Club(tmp_path) as club:
        await club.start()
        await club.ready()
        nice = "Nice to meet you, Bob."
        assert await club.answers(club.bob, "my name is Bob", mention=True) == nice
        assert await club.answers(club.cleo, "/reset") == phrases.ADMIN_ONLY
        assert await club.answers(club.cleo, "/undo") == phrases.ADMIN_OR_LAST
        assert await club.answers(club.cleo, "/mention off") == phrases.ADMIN_ONLY
        assert await club.answers(club.bob, "/undo") == phrases.UNDONE
        # The answer that was taken back is gone from the screen.
        assert nice not in club.telegram.texts(club.room)
        assert [each.text for each in club.telegram.sent(club.room) if each.deleted] == [nice]
        assert await club.answers(club.alice, "/reset") == phrases.RESET
        asked = [call.method for call in club.telegram.calls]
        assert asked.count("getChatAdministrators") == 1
        assert await club.terminate() == 0


async def test_names_and_mention_off(tmp_path: Path) -> None:
    async with Club(tmp_path) as club:
        await club.start()
        await club.ready()
        await club.ignores(club.bob, "I wonder whether Chinny knows me")
        assert await club.answers(club.bob, "Chinny, my name is Bob") == "Nice to meet you, Bob."
        assert await club.answers(club.alice, "/mention off") == phrases.MENTION_OFF
        assert await club.answers(club.bob, "what is my name?") == "Your name is Bob."
        assert await club.answers(club.alice, "/mention on") == phrases.MENTION_ON
        await club.ignores(club.bob, "what is my name?")
        assert await club.terminate() == 0
        texts = json.dumps(club.claude.requests)
        assert "I wonder" not in texts
        assert b"I wonder" not in (tmp_path / "chinwag.db").read_bytes()


async def test_what_was_said_around_it_is_in_front_of_the_next_turn(tmp_path: Path) -> None:
    async with Club(tmp_path, REMEMBERING) as club:
        await club.start()
        await club.ready()
        await club.ignores(club.bob, "lunch at noon?")
        await club.kill()
        await club.start()
        await club.ready()
        await club.ignores(club.cleo, "rather at one")
        await club.answers(club.alice, "so when?", mention=True)
        assert await club.terminate() == 0
        snapshot = await club.snapshot(f"telegram-chat:{club.room.id}")
        assert said(snapshot.messages, "user") == [
            '<overheard from="Bob">\nlunch at noon?\n</overheard>'
            '<overheard from="Cleo">\nrather at one\n</overheard>'
            "<from>Alice</from>\nso when?"
        ]
        assert snapshot.heard == () and len(club.claude.requests) == 1


class Forum(Club):
    def new_room(self) -> Chat:
        return self.telegram.supergroup("Forum", forum=True, owner=self.alice)


async def test_topics_are_conversations_and_the_general_one_is_the_group(tmp_path: Path) -> None:
    async with Forum(tmp_path) as club:
        telegram = club.telegram
        garden = telegram.topic_in(club.room, "Garden")
        await club.start()
        await club.ready()
        # Both at once: each is answered in its place, and knows nothing of the other.
        telegram.write(club.bob, "my name is Bob", club.room, mention=True)
        telegram.write(club.cleo, "my name is Cleo", club.room, thread=garden, mention=True)
        await club.until(lambda: len(telegram.sent(club.room)) == 2, "two answers")
        await club.quiet()
        places = {each.text: each.thread for each in telegram.sent(club.room)}
        assert places == {"Nice to meet you, Bob.": None, "Nice to meet you, Cleo.": garden}
        assert await club.terminate() == 0
        for key, name in (
            (f"telegram-chat:{club.room.id}", "Bob"),
            (f"telegram-topic:{club.room.id}/{garden}", "Cleo"),
        ):
            messages = (await club.snapshot(key)).messages
            assert said(messages, "user") == [f"<from>{name}</from>\nmy name is {name}"]


async def test_a_thread_of_replies_in_a_plain_supergroup_is_no_topic(tmp_path: Path) -> None:
    async with Club(tmp_path) as club:
        telegram = club.telegram
        await club.start()
        await club.ready()
        await club.answers(club.bob, "my name is Bob", mention=True)
        (answer,) = telegram.sent(club.room)
        update = telegram.write(club.bob, "what is my name?", club.room, reply_to=answer.message_id)
        assert "message_thread_id" in telegram.update(update)["message"]
        await club.until(lambda: len(telegram.sent(club.room)) == 2, "an answer")
        assert telegram.texts(club.room)[-1] == "Your name is Bob."
        assert telegram.sent(club.room)[-1].thread is None
        await club.quiet()
        assert await club.terminate() == 0


async def test_with_a_history_of_their_own_everybody_decides(tmp_path: Path) -> None:
    async with Club(tmp_path, NAMED + 'scope = "user"\n') as club:
        await club.start()
        await club.ready()
        await club.answers(club.bob, "my name is Bob", mention=True)
        assert await club.answers(club.bob, "/reset") == phrases.RESET
        asked = [call.method for call in club.telegram.calls]
        assert "getChatAdministrators" not in asked
        assert await club.terminate() == 0
