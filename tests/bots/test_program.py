"""`chinwag run` as people and operators meet it: the real program as a child, and what must hold.

Each test is one run of the program or a few, with several claims that do not disturb each other.
What a kill does is in `tests/crash`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from core import phrases
from core.messages import CUT_NOTE
from core.store import SessionRef
from playground import claude_brain
from playground.claude_answers import Answer, Fail, Say, ToolUse, UseTools, Whitespace
from playground.telegram import Answer as Status
from playground.telegram import GarbageBody, Person, ResetAfter, Telegram
from playground.telegram_media import Document, Photo, Sendable, Voice, Words
from stores.sqlite import SQLiteStore
from stores.sqlite.encode import head_checksum
from tests.bots.test_pictures import bomb, file, flag
from tests.crash.program import KEY, PATIENCE, World, assert_valid, said
from tests.examples.test_echo_adapter import free_port

PRIVATE = """\
[telegram]
poll_timeout = 5
"""
JFIF = b"\xff\xd8\xff\xe0\x00\x10JFIF"  # how each picture begins that we have made to fit
OPEN = PRIVATE + "[access]\nopen = true\n"

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


class Slow:
    """A brain that takes its time over what is asked `slowly`, and says when it has begun.

    :param seconds: how long such an answer takes
    """

    def __init__(self, seconds: float) -> None:
        self.begun = asyncio.Event()
        self._seconds = seconds

    def __call__(self, request: dict[str, Any]) -> Answer:
        if "slowly" not in json.dumps(request["messages"][-1]):
            return claude_brain.answer(request)
        self.begun.set()
        words = tuple(f"tale{number} " for number in range(20))
        return Say("", deltas=words, pause=self._seconds / len(words))


async def say_at_once(world: World, person: Person, text: str) -> str:
    """Write, and wait for one more message there; what it says. Others may be busy meanwhile."""
    before = len(world.telegram.texts(person))
    world.telegram.write(person, text)
    await world.until(lambda: len(world.telegram.texts(person)) > before, f"an answer to {text!r}")
    return world.telegram.texts(person)[before]


def last(telegram: Telegram, place: Any) -> str:
    return telegram.texts(place)[-1]


def asked(world: World) -> str:
    """All that the model has been told, as JSON."""
    return json.dumps(world.claude.requests, ensure_ascii=False)


def stored_bytes(folder: Path) -> bytes:
    """The database as it lies on the disk."""
    return b"".join(file.read_bytes() for file in sorted(folder.glob("chinwag.db*")))


def listening(pid: int) -> list[str]:
    """The sockets of this process that wait for connections."""
    fds = Path(f"/proc/{pid}/fd")
    links = {os.readlink(fd) for fd in fds.iterdir()}
    own = {link.removeprefix("socket:[").removesuffix("]") for link in links}
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    ]
    return [row[1] for row in rows if row[3] == "0A" and row[9] in own]


# ---------------------------------------------------------------------- an ordinary day


@linux
async def test_an_ordinary_day(tmp_path: Path) -> None:
    """Private chat, group, topics; no open door, no readable file, and no secret anywhere."""
    async with World(tmp_path) as world:
        telegram = world.telegram
        alice, bob = telegram.person("Alice"), telegram.person("Bob")
        club = telegram.supergroup("Club")
        forum = telegram.supergroup("Forum", forum=True)
        plans, food = telegram.topic_in(forum, "Plans"), telegram.topic_in(forum, "Food")
        work = telegram.topic_in(alice, "Work")
        # The moments in which programs tell their logs everything.
        telegram.fault("getUpdates", GarbageBody())
        telegram.fault("sendMessage", Status(502, html=True))
        world.claude.script(Fail(500, "api_error"))
        await world.start(None, "telegram", "--log-level", "debug")

        await world.say(alice, "my name is Alice")
        await world.say(alice, "what is my name?")
        assert last(telegram, alice) == "Your name is Alice."

        # In a group: chatter is not for us; a mention, a reply and a command are.
        telegram.write(bob, "nobody asks the bot about the hedgehog", club)
        telegram.write(bob, "/start@another_bot", club)
        telegram.write(bob, "@another_bot what about the hedgehog?", club)
        telegram.write(bob, "my name is Bob", club, mention=True)
        await world.until(lambda: len(telegram.texts(club)) == 1, "the mention is answered")
        first = telegram.sent(club)[0]
        assert first.text.startswith("Nice to meet you, Bob")
        telegram.write(alice, "what is my name?", club, reply_to=first.message_id)
        await world.until(lambda: len(telegram.texts(club)) == 2, "the reply is answered")
        assert last(telegram, club) == "Your name is Bob.", "one history for the group"
        assert telegram.sent(club)[1].reply_to is not None
        telegram.write(bob, f"/id@{telegram.username}", club)
        await world.until(lambda: len(telegram.texts(club)) == 3, "the command is answered")
        assert f"telegram-chat:{club.id}" in last(telegram, club)
        assert "hedgehog" not in asked(world)
        assert "<from>Bob</from>" in asked(world), "the model knows who speaks"

        # Topics are conversations of their own.
        for place, thread, name in (
            (forum, plans, "Paula"),
            (forum, food, "Fred"),
            (alice, work, "Worker"),
        ):
            before = len(telegram.texts(place))
            telegram.write(
                alice, f"my name is {name}", place, thread=thread, mention=place is forum
            )
            await world.until(lambda b=before, p=place: len(telegram.texts(p)) > b, name)  # type: ignore[misc]
            assert telegram.sent(place)[-1].thread == thread
        telegram.write(alice, "what is my name?", forum, thread=plans, mention=True)
        await world.until(lambda: "Paula." in last(telegram, forum), "the topic has its own name")
        assert telegram.sent(forum)[-1].thread == plans
        await world.say(alice, "what is my name?")
        assert last(telegram, alice) == "Your name is Alice."
        await world.quiet()

        assert world.child is not None
        assert listening(world.child.pid) == []
        files = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.glob("chinwag.db*")}
        assert {"chinwag.db", "chinwag.db.lock"} <= files.keys()
        assert set(files.values()) == {0o600}, files
        assert await world.terminate() == 0

        log = world.log()
        everything = "\n".join(
            (
                log,
                stored_bytes(tmp_path).decode("latin-1"),
                asked(world),
                *(text for place in (alice, bob, club, forum) for text in telegram.texts(place)),
            )
        )
        for secret in (telegram.token, telegram.token.partition(":")[2], KEY):
            assert secret not in everything
        assert "hedgehog" not in log
        assert "my name" not in log, "the log has no message text"
        for hop in ("received", "accepted", "started", "committed", "delivered"):
            assert re.search(rf"{hop} +telegram-chat:{alice.id}\b", log), hop


async def test_200_chats_at_once_and_one_of_them_slow(tmp_path: Path) -> None:
    """Order is kept in each chat, and no chat waits for another."""
    async with World(tmp_path) as world:
        telegram, slow = world.telegram, Slow(90)
        world.claude.brain = slow
        people = [telegram.person(f"P{number}") for number in range(200)]
        tortoise = telegram.person("Tortoise")
        await world.start()
        await world.ready()
        telegram.write(tortoise, "tell me slowly")
        await asyncio.wait_for(slow.begun.wait(), PATIENCE)
        for person in people:
            telegram.write(person, f"my name is {person.name}")
            telegram.write(person, "what is my name?")
        await world.until(
            lambda: all(
                telegram.texts(person)[-1:] == [f"Your name is {person.name}."] for person in people
            ),
            "everybody is answered",
        )
        assert telegram.texts(tortoise) == [], "the others did not wait for the slow one"
        assert await say_at_once(world, tortoise, "/stop") == phrases.STOPPED
        await world.quiet()
        assert await world.terminate() == 0
        for person in people:
            snapshot = await world.snapshot(f"telegram-chat:{person.id}")
            assert_valid(snapshot)
            users = "\n".join(said(snapshot.messages, "user"))
            assert users.split("\n") == [f"my name is {person.name}", "what is my name?"] or (
                users == f"my name is {person.name}what is my name?"
            )
            assert 1 <= len(telegram.texts(person)) <= 2


async def test_a_group_becomes_a_supergroup_in_the_middle_of_a_turn(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        telegram, slow = world.telegram, Slow(1.5)
        world.claude.brain = slow
        alice = telegram.person("Alice")
        group = telegram.group("Club", owner=alice)
        await world.start()
        telegram.write(alice, "my name is Alice", group, mention=True)
        await world.until(lambda: len(telegram.texts(group)) == 1, "the first answer")
        telegram.write(alice, "tell me slowly", group, mention=True)
        await asyncio.wait_for(slow.begun.wait(), PATIENCE)
        club = group.migrate()
        await world.until(
            lambda: "tale19" in " ".join(telegram.texts(club)), "the answer goes to the new chat"
        )
        assert len(telegram.texts(club)) == 1
        telegram.write(alice, "what is my name?", club, mention=True)
        await world.until(lambda: len(telegram.texts(club)) == 2, "it is known there")
        assert last(telegram, club) == "Your name is Alice."
        await world.quiet()
        assert len(telegram.texts(group)) == 1
        assert await world.terminate() == 0
        snapshot = await world.snapshot(f"telegram-chat:{club.id}")
        assert_valid(snapshot)
        assert len(said(snapshot.messages, "user")) == 3
        async with SQLiteStore(tmp_path / "chinwag.db", read_only=True) as store:
            assert await store.load(SessionRef(key=f"telegram-chat:{group.id}")) is None


# ---------------------------------------------------------------------- who may speak


async def test_strangers_leave_no_trace_and_a_code_makes_the_owner(tmp_path: Path) -> None:
    async with World(tmp_path, PRIVATE) as world:
        telegram = world.telegram
        alice, bob, mallory = (telegram.person(name) for name in ("Alice", "Bob", "Mallory"))
        club = telegram.supergroup("Club")
        await world.start()
        await world.ready()
        (code,) = re.findall(r"/start ([A-Z0-9]{10})\b", world.log())
        before = stored_bytes(tmp_path)
        for text in (
            "hello",
            "/reset",
            "/start",
            "/start",
            "/id",
            "/start WRONG",
            "/stop",
            "/help",
        ):
            telegram.write(mallory, text)
        telegram.write(mallory, "hello", club, mention=True)
        telegram.write(mallory, "/reset", club)
        telegram.write(bob, f"my code is {code}")
        await world.until(lambda: not telegram.unconfirmed(), "all is confirmed")
        stranger = phrases.STRANGER.format(id=f"telegram:{mallory.id}")
        assert telegram.texts(mallory) == [stranger]
        assert telegram.texts(bob) == telegram.texts(club) == []
        assert stored_bytes(tmp_path) == before, "not a byte was written"
        assert world.claude.requests == []

        assert await say_at_once(world, alice, f"/start {code.lower()}") == phrases.PAIRED
        await world.say(alice, "my name is Alice")
        # The code was for once.
        assert (await say_at_once(world, bob, f"/start {code}")).startswith("This bot is private")
        telegram.write(bob, "hello")
        telegram.write(bob, "/id")
        # In a group the owner is heard, and nobody else, whoever they speak to.
        telegram.write(bob, "what about the hedgehog?", club, mention=True)
        telegram.write(alice, "my name is Alice", club, mention=True)
        await world.until(lambda: len(telegram.texts(club)) == 1, "the owner is answered")
        answer = telegram.sent(club)[0].message_id
        telegram.write(bob, "and the hedgehog?", club, reply_to=answer)
        telegram.write(bob, "/reset", club)
        telegram.write(alice, "what is my name?", club, mention=True)
        await world.until(lambda: len(telegram.texts(club)) == 2, "nothing was reset")
        assert last(telegram, club) == "Your name is Alice."
        assert "hedgehog" not in asked(world)
        await world.quiet()
        assert len(telegram.texts(bob)) == 1
        assert await world.terminate() == 0

        printed = world.log().count(code)
        await world.start()
        await world.say(alice, "what is my name?")
        assert last(telegram, alice) == "Your name is Alice."
        telegram.write(bob, f"/start {code}")
        telegram.write(bob, "hello")
        await world.quiet()
        assert await world.terminate() == 0
        assert len(telegram.texts(bob)) == 2, "a day begins anew with the program, no more"
        assert world.log().count(code) == printed, "who has an owner needs no code"
        assert str(mallory.id) not in asked(world)
        async with SQLiteStore(tmp_path / "chinwag.db", read_only=True) as store:
            keys = [each.key async for each in store.summaries()]
        assert set(keys) == {f"telegram-chat:{alice.id}", f"telegram-chat:{club.id}"}


# ---------------------------------------------------------------------- /reset


async def test_a_reset_during_a_turn_ends_it_for_good(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        telegram, slow = world.telegram, Slow(10)
        world.claude.brain = slow
        alice = telegram.person("Alice")
        await world.start()
        await world.say(alice, "my name is Alice")
        telegram.write(alice, "tell me slowly")
        await asyncio.wait_for(slow.begun.wait(), PATIENCE)
        began = time.monotonic()
        reset = telegram.write(alice, "/reset")
        await world.until(lambda: last(telegram, alice) == phrases.RESET, "the reset is confirmed")
        assert time.monotonic() - began < 5, "it did not wait for the answer"
        await world.say(alice, "what is my name?")
        assert last(telegram, alice) == "I do not know your name yet."
        telegram.redeliver(reset)
        await world.say(alice, "what did I say first?")
        assert "what is my name?" in last(telegram, alice), "a /reset that comes again does nothing"

        slow.begun.clear()
        telegram.write(alice, "once more, slowly")
        await asyncio.wait_for(slow.begun.wait(), PATIENCE)
        assert await say_at_once(world, alice, "/stop") == phrases.STOPPED
        assert await say_at_once(world, alice, "/stop") == phrases.NOTHING_TO_STOP
        await world.quiet()
        assert await world.terminate() == 0
        assert "tale" not in " ".join(telegram.texts(alice))
        assert telegram.texts(alice).count(phrases.RESET) == 1
        snapshot = await world.snapshot(f"telegram-chat:{alice.id}")
        assert_valid(snapshot)
        assert said(snapshot.messages, "user") == ["what is my name?", "what did I say first?"]


# ---------------------------------------------------------------------- starting and stopping


async def test_one_database_one_program(tmp_path: Path) -> None:
    """The second is told who holds it, reading goes on beside it, the first is undisturbed."""
    async with World(tmp_path) as world:
        telegram = world.telegram
        alice = telegram.person("Alice")
        key = f"telegram-chat:{alice.id}"
        await world.start()
        await world.say(alice, "my name is Alice")
        assert world.child is not None
        held = re.compile(
            rf"chinwag: \S*chinwag\.db: chinwag run \(pid {world.child.pid}\) holds it: "
            r"stop it, or send /reset in the chat\n"
        )
        second, chat, reset, listed = await asyncio.gather(
            world.command("run"),
            world.command("chat"),
            world.command("sessions", "reset", "--yes", key),
            world.command("sessions", "list"),
        )
        for refused in (second, chat, reset):
            assert refused.code == 3, refused
            assert held.fullmatch(refused.err), refused
        assert listed.code == 0
        assert key in listed.out
        await world.say(alice, "what is my name?")
        assert last(telegram, alice) == "Your name is Alice."
        assert await world.terminate() == 0


async def test_a_signal_lets_a_running_answer_end_and_a_second_does_not_wait(
    tmp_path: Path,
) -> None:
    async with World(tmp_path) as world:
        telegram, slow = world.telegram, Slow(1.5)
        world.claude.brain = slow
        alice = telegram.person("Alice")
        await world.start()
        await world.ready()
        telegram.write(alice, "tell me slowly")
        await asyncio.wait_for(slow.begun.wait(), PATIENCE)
        assert await world.terminate() == 0
        assert "tale19" in last(telegram, alice), "the running answer was delivered"

        slow = world.claude.brain = Slow(60)
        await world.start()
        await world.ready()
        telegram.write(alice, "again, slowly")
        await asyncio.wait_for(slow.begun.wait(), PATIENCE)
        assert world.child is not None
        world.child.terminate()
        # Its intake ends first; the answer would take a minute.
        await world.until(lambda: not telegram.polled, "it asks for nothing more")
        began = time.monotonic()
        world.child.terminate()
        assert await world.exited() == 1
        assert time.monotonic() - began < 2
        world.claude.brain = Slow(0)
        await world.start()
        await world.until(lambda: len(telegram.texts(alice)) == 2, "it is answered after the start")
        await world.quiet()
        assert await world.terminate() == 0
        assert len(telegram.texts(alice)) == 2


async def test_who_is_refused_by_telegram_ends(tmp_path: Path) -> None:
    """A wrong token, a twin, another bot's database: an exit code, and one line that says why."""
    twin, wrong, other = (tmp_path / name for name in ("twin", "wrong", "other"))
    for folder in (twin, wrong, other):
        folder.mkdir()

    async def with_a_twin() -> None:
        async with World(twin) as world:
            conflict = "Conflict: terminated by other getUpdates request"
            world.telegram.fault("getUpdates", Status(409, conflict), times=None)
            await world.start()
            assert await world.exited() == 4
            assert "another process uses this Telegram token" in world.log()
            assert "Traceback" not in world.log()
            assert world.telegram.token not in world.log()

    async def with_a_wrong_token() -> None:
        async with World(wrong) as world:
            token = "654321:" + "this-token-was-revoked-long-ago-000"
            ran = await world.command("run", TELEGRAM_BOT_TOKEN=token)
            assert ran.code == 4
            assert ran.err.startswith("chinwag: Telegram refuses the bot's token")
            assert ran.err.count("\n") == 1
            assert token.partition(":")[2] not in ran.out + ran.err

    async def with_another_bots_database() -> None:
        async with World(other) as world:
            await world.start()
            await world.ready()
            # And a token that is revoked while the program runs.
            mine = world.telegram.token
            world.telegram.token = "revoked"
            world.telegram.inject({"poll": "ends"})
            assert await world.exited() == 4
            assert "Telegram refuses the bot's token" in world.log()
            world.telegram.token = mine
        async with World(other) as world:
            theirs = Telegram("987654:" + "the-token-of-quite-another-bot-000")
            async with theirs:
                ran = await world.command(
                    "run",
                    TELEGRAM_BOT_TOKEN=theirs.token,
                    CHINWAG_TELEGRAM__BASE_URL=theirs.url,
                )
            assert ran.code == 2
            assert "the database belongs to bot 123456" in ran.err
            assert ran.err.count("\n") == 1

    await asyncio.gather(with_a_twin(), with_a_wrong_token(), with_another_bots_database())


async def test_a_telegram_that_is_not_there_is_waited_for(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        nobody = f"http://127.0.0.1:{free_port()}"
        await world.start(CHINWAG_TELEGRAM__BASE_URL=nobody)
        await logged(world, "WARNING telegram.unreachable")
        assert await world.terminate() == 0, "and it can be stopped meanwhile"
        alice = world.telegram.person("Alice")
        world.telegram.fault("getMe", Status(502, html=True), times=2)
        await world.start()
        await world.say(alice, "my name is Alice")
        assert await world.terminate() == 0
        assert "Traceback" not in world.log()


async def test_without_a_model_key_people_are_told_and_nothing_is_lost(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        telegram = world.telegram
        alice, bob = telegram.person("Alice"), telegram.person("Bob")
        await world.start(ANTHROPIC_API_KEY="")
        await world.ready()
        assert await say_at_once(world, alice, "my name is Alice") == phrases.NO_MODEL
        telegram.write(alice, "and I like hedgehogs")
        assert "/reset" in await say_at_once(world, alice, "/help"), "commands need no model"
        assert telegram.texts(alice).count(phrases.NO_MODEL) == 1, "said once, not each time"
        assert await world.terminate() == 0

        await world.start(ANTHROPIC_API_KEY="wrong")
        await world.ready()
        assert await say_at_once(world, bob, "my name is Bob") == phrases.NO_MODEL
        assert await world.terminate() == 0

        await world.start()
        await world.until(lambda: "Alice" in last(telegram, alice), "Alice is answered, unasked")
        await world.until(lambda: "Bob" in last(telegram, bob), "and Bob")
        await world.quiet()
        assert await world.terminate() == 0
        snapshot = await world.snapshot(f"telegram-chat:{alice.id}")
        assert_valid(snapshot)
        assert "hedgehogs" in "".join(said(snapshot.messages, "user"))


# ---------------------------------------------------------------------- disk and database


class DiskOf:
    """Lets the disk be full for one process: no file of it may grow beyond the size of this one.

    :param log: the database's write-ahead log
    """

    def __init__(self, pid: int, log: Path) -> None:
        self._pid = pid
        self._log = log

    def size(self) -> int:
        return self._log.stat().st_size

    def fill(self) -> None:
        self._limit(self.size())

    def make_room(self) -> None:
        self._limit(resource.RLIM_INFINITY)

    def _limit(self, size: int) -> None:
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


async def logged(world: World, line: str) -> None:
    """The program has logged this since it was last started."""
    async with asyncio.timeout(PATIENCE):
        # Nobody tells us when it writes.
        while line not in world.log().rpartition("--- start")[2]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@linux
async def test_a_full_disk_confirms_nothing_and_loses_nothing(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        telegram = world.telegram
        alice, bob = telegram.person("Alice"), telegram.person("Bob")
        await world.start()
        await world.say(alice, "my name is Alice")
        for number in range(10):
            await world.say(alice, f"the log of the database grows beyond our own: {number}")
        assert world.child is not None
        full = DiskOf(world.child.pid, tmp_path / "chinwag.db-wal")
        assert full.size() > 2 * len(world.log()), "the program can still write its log"
        full.fill()
        calls = len(world.claude.requests)
        telegram.write(alice, "what is my name?")
        telegram.write(bob, "my name is Bob")
        await logged(world, "WARNING telegram.not_accepted")
        polls = len(telegram.calls)
        await world.until(lambda: len(telegram.calls) > polls, "it tries again")
        assert len(telegram.unconfirmed()) == 2, "nothing is confirmed"
        assert len(world.claude.requests) == calls
        assert telegram.texts(bob) == []
        full.make_room()
        await world.until(lambda: last(telegram, alice) == "Your name is Alice.", "Alice goes on")
        await world.until(lambda: len(telegram.texts(bob)) == 1, "and Bob")
        await world.quiet()
        assert len(telegram.texts(alice)) == 12

        # Full at the commit: an answer is not said before it is kept.
        slow = world.claude.brain = Slow(1)
        telegram.write(alice, "tell me slowly")
        await asyncio.wait_for(slow.begun.wait(), PATIENCE)
        full.fill()
        await logged(world, "ERROR store")
        assert len(telegram.texts(alice)) == 12
        full.make_room()
        await world.until(lambda: "tale19" in last(telegram, alice), "it is said in the end")
        await world.quiet()
        assert len(telegram.texts(alice)) == 13
        assert await world.terminate() == 0
        snapshot = await world.snapshot(f"telegram-chat:{alice.id}")
        assert_valid(snapshot)


def foreign() -> bytes:
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE recipes(name TEXT)")
        return database.serialize()


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"these are the notes of a person, and no database\n" * 200, "not a SQLite database"),
        (foreign(), "not one of chinwag"),
    ],
    ids=["text", "foreign"],
)
async def test_what_is_no_database_of_ours_stays_as_it_is(
    tmp_path: Path, content: bytes, line: str
) -> None:
    async with World(tmp_path) as world:
        file = tmp_path / "chinwag.db"
        file.write_bytes(content)
        commands = (
            ("run",),
            ("chat",),
            ("sessions", "list"),
            ("sessions", "reset", "--yes", "telegram-chat:1"),
        )
        for ran in await asyncio.gather(*(world.command(*command) for command in commands)):
            assert ran.code == 3, ran
            assert line in ran.err
            assert ran.err.count("\n") == 1, "one clear line"
        assert file.read_bytes() == content
        assert world.telegram.calls == []
        assert not (tmp_path / "chinwag.db-wal").exists()


async def test_one_conversation_that_cannot_be_read_hurts_only_itself(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        telegram = world.telegram
        alice, bob, carol, dave = (telegram.person(n) for n in ("Alice", "Bob", "Carol", "Dave"))
        await world.start()
        for person in (alice, bob, carol, dave):
            await world.say(person, f"my name is {person.name}")
        assert await world.terminate() == 0

        def key(person: Person) -> str:
            return f"telegram-chat:{person.id}"

        with sqlite3.connect(tmp_path / "chinwag.db") as database:
            # Of a newer version, and correct in all else.
            (head,) = database.execute(
                "SELECT head FROM sessions WHERE key = ?", (key(alice),)
            ).fetchone()
            newer = head.replace(b'"version":1', b'"version":99', 1)
            assert newer != head
            database.execute(
                "UPDATE sessions SET head = ?, crc = ? WHERE key = ?",
                (newer, head_checksum(key(alice), newer), key(alice)),
            )
            # A flipped bit in what was said; and something that never was JSON.
            database.execute(
                "UPDATE messages SET blocks = CAST(replace(blocks, 'Bob', 'Rob') AS BLOB) "
                "WHERE session = (SELECT id FROM sessions WHERE key = ?)",
                (key(bob),),
            )
            database.execute(
                "UPDATE sessions SET head = ?, crc = ? WHERE key = ?",
                (b"no JSON", head_checksum(key(dave), b"no JSON"), key(dave)),
            )
        database.close()
        listed = await world.command("sessions", "list")
        assert listed.code == 0
        assert key(carol) in listed.out
        for person in (alice, bob, dave):
            shown = await world.command("sessions", "show", key(person))
            assert shown.code == 3, shown
            assert shown.err.count("\n") == 1

        await world.start()
        await world.ready()
        for person in (alice, bob, carol):
            telegram.write(person, "what is my name?")
        telegram.write(dave, "/reset")
        await world.until(
            lambda: (
                len(telegram.texts(alice)) == 3
                and len(telegram.texts(bob)) == 3
                and len(telegram.texts(carol)) == 2
                and len(telegram.texts(dave)) == 3
            ),
            "everybody is answered",
        )
        unknown = "I do not know your name yet."
        assert telegram.texts(alice)[1:] == [phrases.TOO_NEW, unknown]
        assert telegram.texts(bob)[1:] == [phrases.UNREADABLE, unknown]
        assert telegram.texts(carol)[1:] == ["Your name is Carol."]
        assert telegram.texts(dave)[1:] == [phrases.UNREADABLE, phrases.RESET]
        for person in (alice, dave):
            await world.say(person, "/reset")
            assert last(telegram, person) == phrases.RESET
            await world.say(person, "what is my name?")
            assert last(telegram, person) == unknown
        await world.quiet()
        assert await world.terminate() == 0
        with sqlite3.connect(tmp_path / "chinwag.db") as database:
            aside = dict(database.execute("SELECT key, head FROM sessions WHERE aside IS NOT NULL"))
        database.close()
        assert aside.keys() == {key(alice), key(bob), key(dave)}, "nothing was written over"
        assert aside[key(alice)] == newer
        assert aside[key(dave)] == b"no JSON"


# ---------------------------------------------------------------------- what comes in


def message_of(person: Person, text: str, **more: Any) -> dict[str, Any]:
    """An update as Telegram never writes it."""
    message = {
        "message_id": 900_000,
        "from": person.json(),
        "chat": {"id": person.id, "type": "private"},
        "date": 1_800_000_000,
        "text": text,
    }
    return {"message": message | more}


async def test_any_json_and_any_text_as_an_update(tmp_path: Path) -> None:
    """What is no message is ignored, what is one is answered, whatever stands beside it."""
    async with World(tmp_path) as world:
        telegram = world.telegram
        people = [telegram.person(f"P{number}") for number in range(12)]
        alice = telegram.person("Alice")
        await world.start()
        await world.ready()
        deep = "[" * 100_000 + "]" * 100_000
        number = telegram.inject({"poll": {}}) + 1
        telegram.inject(f'{{"update_id": {number}, "message": {deep}}}')
        odd: list[Any] = [
            [],
            [1, 2],
            "text",
            17,
            True,
            None,
            -1e308,
            {},
            {"message": None},
            {"message": []},
            {"message": {"message_id": {}, "chat": "no", "text": []}},
            {"message": {"chat": {"id": 1, "type": "private"}, "text": "from nobody"}},
            message_of(alice, ""),
            message_of(alice, "hello", chat={"id": 2**70, "type": "private"}),
            message_of(alice, "hello", entities=[{"type": "bot_command", "offset": -1}]),
            message_of(alice, "hello", **{"from": {"id": "alice"}}),
            {"update_id": "x", "message": {}},
            {"edited_message": message_of(alice, "changed")["message"]},
            {"callback_query": {"id": "1", "data": "x"}},
        ]
        for index, each in enumerate(odd):
            telegram.inject(json.dumps(each) if not isinstance(each, dict) else each)
            if index < len(people):
                telegram.write(people[index], f"my name is {people[index].name}")
        for person in people:
            await world.until(
                lambda p=person: telegram.texts(p) == [f"Nice to meet you, {p.name}."],  # type: ignore[misc]
                f"{person.name} is answered",
            )
        await world.until(lambda: not telegram.unconfirmed(), "what cannot be read is passed over")

        # Texts that no keyboard makes.
        huge = "a1 " * 350_000
        telegram.inject(message_of(alice, huge))
        await world.until(lambda: len(telegram.texts(alice)) == 1, "1 MB is answered")
        assert len(asked(world)) < 200_000, "but not all of it was sent to the model"
        assert CUT_NOTE.strip() in asked(world)
        odd_texts = (
            "my name is Al\ud800ice",
            "nul \0 and \x1b[31m red \u202e turned",
            "\ud83d\ude00" * 3000,
            "\udc00\ud800",
        )
        for count, text in enumerate(odd_texts, start=2):
            telegram.inject(message_of(alice, text))
            await world.until(lambda c=count: len(telegram.texts(alice)) == c, repr(text[:20]))  # type: ignore[misc]
        await world.quiet()
        assert await world.terminate() == 0
        assert "\0" not in asked(world)
        assert "\x1b" not in asked(world)
        assert "\x1b" not in world.log()
        assert "Traceback" not in world.log()
        snapshot = await world.snapshot(f"telegram-chat:{alice.id}")
        assert_valid(snapshot)
        assert len(said(snapshot.messages, "user")) == 5


async def test_10000_messages_in_a_minute_from_one_sender(tmp_path: Path) -> None:
    async with World(tmp_path, OPEN) as world:
        telegram = world.telegram
        flood, alice = telegram.person("Flood"), telegram.person("Alice")
        await world.start()
        await world.ready()
        for number in range(5_000):
            telegram.write(flood, f"flood {number}")
        telegram.write(alice, "my name is Alice")
        for number in range(5_000, 10_000):
            telegram.write(flood, f"flood {number}")
        telegram.write(alice, "what is my name?")
        began = time.monotonic()
        await world.until(lambda: not telegram.unconfirmed(), "all is confirmed")
        await world.until(lambda: "Your name is Alice." in telegram.texts(alice), "Alice is served")
        await world.quiet()
        assert time.monotonic() - began < 25
        assert await world.terminate() == 0
        floods = [r for r in world.claude.requests if "flood" in json.dumps(r["messages"])]
        assert 1 <= len(floods) <= 20
        assert telegram.texts(flood).count(phrases.TOO_FAST) == 1, "one clear refusal"
        assert len(telegram.texts(flood)) <= 21
        snapshot = await world.snapshot(f"telegram-chat:{flood.id}")
        users = "".join(said(snapshot.messages, "user"))
        assert users.count("flood") == 20, "what was let in is kept, and nothing else"
        assert len(world.log()) < 200_000


# ---------------------------------------------------------------------- what goes out


async def test_what_is_hard_to_say_is_said(tmp_path: Path) -> None:
    """Long and empty answers, tools that do not fit, and a Telegram that refuses or hangs up."""
    async with World(tmp_path) as world:
        telegram, claude = world.telegram, world.claude
        alice, bob = telegram.person("Alice"), telegram.person("Bob")
        await world.start()
        await world.say(alice, "my name is Alice")

        words = [f"w{number:06}" for number in range(12_500)]
        text = " ".join(words)
        assert len(text) >= 99_999
        claude.script(
            Say(text, deltas=tuple(text[at : at + 500] for at in range(0, len(text), 500)))
        )
        before = len(telegram.texts(alice))
        telegram.write(alice, "say very much")
        await world.until(lambda: words[-1] in last(telegram, alice), "the last word")
        parts = telegram.texts(alice)[before:]
        assert " ".join(parts).split() == words
        assert all(len(part) <= 4096 for part in parts)
        await world.quiet()

        claude.script(Whitespace(), Whitespace())
        await world.say(alice, "say nothing")
        assert last(telegram, alice).strip() == last(telegram, alice) != ""

        claude.script(
            UseTools((ToolUse("note", {"txt": 5}), ToolUse("no_such_tool", {"a": ["b"]}))),
            Say("They did not fit."),
        )
        await world.say(alice, "use tools badly")
        assert last(telegram, alice) == "They did not fit."
        results = claude.requests[-1]["messages"][-1]["content"]
        assert [result["is_error"] for result in results] == [True, True]
        assert world.effects() == []

        # Asked to wait, it waits, and nothing is lost or doubled.
        telegram.fault("sendMessage", Status(429, retry_after=1))
        await world.say(alice, "what is my name?")
        assert last(telegram, alice) == "Your name is Alice."

        # Done, but we cannot know: the one place where the same words may come twice.
        telegram.fault("sendMessage", ResetAfter())
        count, requests = len(telegram.texts(alice)), len(claude.requests)
        telegram.write(alice, "what did I say first?")
        await world.until(lambda: len(telegram.texts(alice)) == count + 2, "it is sent again")
        assert telegram.texts(alice)[-1] == telegram.texts(alice)[-2]
        assert len(claude.requests) == requests + 1, "and the model was not asked again"
        await world.quiet()

        # Who blocks the bot in the middle of an answer can come back.
        slow = world.claude.brain = Slow(1)
        telegram.write(bob, "my name is Bob")
        await world.until(lambda: len(telegram.texts(bob)) == 1, "Bob is answered")
        telegram.write(bob, "tell me slowly")
        await asyncio.wait_for(slow.begun.wait(), PATIENCE)
        telegram.block(bob)
        await world.until(lambda: "send.gone" in world.log(), "it is seen")
        await world.quiet()
        telegram.unblock(bob)
        await world.say(bob, "what is my name?")
        assert telegram.texts(bob)[1:] == ["Your name is Bob."]
        await world.quiet()
        assert await world.terminate() == 0
        for person in (alice, bob):
            assert_valid(await world.snapshot(f"telegram-chat:{person.id}"))


# ---------------------------------------------------------------------- what others bring along


async def test_an_adapter_of_somebody_else_in_one_file(tmp_path: Path) -> None:
    """The example adapter, beside Telegram, out of its file."""
    port = free_port()
    example = Path(__file__).parents[2] / "examples" / "echo_adapter.py"
    section = f'[adapters.echo]\nuse = "{example}:EchoAdapter"\nport = {port}\n'
    async with World(tmp_path, OPEN + section) as world:
        alice = world.telegram.person("Alice")
        await world.start()
        await world.ready()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"Ada\nmy name is Ada\n")
        async with asyncio.timeout(PATIENCE):
            assert b"Nice to meet you, Ada" in await reader.readline()
            for line, answer in (
                ("what is my name?", "Your name is Ada."),
                ("/reset", phrases.RESET),
                ("what is my name?", "I do not know your name yet."),
            ):
                writer.write(f"{line}\n".encode())
                assert (await reader.readline()).decode() == f"{answer}\n"
        await world.say(alice, "what is my name?")
        assert last(world.telegram, alice) == "I do not know your name yet."
        writer.close()
        await writer.wait_closed()
        assert await world.terminate() == 0


# ---------------------------------------------------------------------- what is no text


async def test_pictures_files_and_voices(tmp_path: Path) -> None:
    """Whatever somebody sends, the next message is answered."""
    (tmp_path / "ears.py").write_text("def hear(data, media_type): return 'my name is Bob'\n")
    media = '[media]\ntranscriber = "ears.py:hear"\n'
    async with World(tmp_path, OPEN + media) as world:
        telegram, alice = world.telegram, world.telegram.person("Alice")

        async def send(what: Sendable, **how: Any) -> str:
            before = len(telegram.texts(alice))
            telegram.send(alice, what, **how)
            await world.until(lambda: len(telegram.texts(alice)) > before, "an answer")
            await world.quiet()
            return last(telegram, alice)

        await world.start()
        await world.ready()
        photo = file(flag(4000, 3000))
        for _ in range(2):
            assert "You sent 1 attachment." in await send(Photo(photo), caption="look")
        await send(Document(bomb(100_000, 100_000), "a.png", "image/png"))
        assert "it has more than 40 million pixels" in asked(world)
        assert await send(Voice(b"OggS")) == "Nice to meet you, Bob."
        # A document that the service refuses: this exchange is given up, the next goes on.
        locked = Fail(400, "invalid_request_error", "The PDF is password protected.")
        world.claude.script(*[locked] * 4)
        refused = await send(Document(b"%PDF-1.7", "a.pdf", "application/pdf"), caption="read")
        assert refused == phrases.REJECTED
        world.claude.scripted.clear()
        await world.say(alice, "what is my name?")
        assert last(telegram, alice) == "Your name is Bob."
        telegram.send(alice, Words("my name is Mallory"), forwarded="Mallory")
        await world.until(lambda: "Mallory" in asked(world), "it is asked")
        await world.quiet()
        assert '<forwarded from=\\"Mallory\\">' in asked(world)
        assert await world.terminate() == 0
        assert stored_bytes(tmp_path).count(JFIF) == 1, "the same picture is stored once"


# ---------------------------------------------------------------------- our own port


async def test_our_own_port(tmp_path: Path) -> None:
    """It is where it was asked for, tells how we are, and ends with the program; one that somebody
    else has is one clear line."""
    port = free_port()
    async with World(tmp_path, OPEN + f"[http]\nport = {port}\nmetrics = true\n") as world:
        await world.start()
        await world.ready()
        assert world.child is not None
        alice = world.telegram.person("Alice")
        await world.say(alice, "hello")
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
                assert answer.status == 200
                told = await answer.json()
            async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                assert answer.status == 200
                counted = await answer.text()
        assert 'chinwag_turns_total{outcome="answered"} 1.0' in counted
        assert 'chinwag_sends_total{outcome="delivered",platform="telegram"} 1.0' in counted
        assert "chinwag_healthy 1.0" in counted
        assert told["healthy"] is True and told["oldest_inbox_seconds"] is None
        taken = await world.command("run")
        assert (taken.code, taken.err) == (
            2,
            f"chinwag: [http] 127.0.0.1:{port}: Address already in use; set another host or port\n",
        )
        assert await world.terminate() == 0
