"""Several processes, of which any may die at any step: nothing is lost, nothing comes twice but in
the one window that Telegram leaves, and another takes over within seconds."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from core import failpoints
from playground.claude_answers import Say
from playground.serve import serving
from playground.telegram import Person
from tests import postgres
from tests.cluster.world import CONCURRENCY, Cluster
from tests.crash.program import assert_valid, said
from tests.examples.test_echo_adapter import free_port

TAKEN_OVER: Final = 15.0
MINUTE: Final = 60.0
AWAY: Final = 5.0  # seconds that a database takes to come back
LINES_AWAY: Final = 60  # in the log, for each conversation
# What happens in a process that works; the others are passed by one that takes messages in.
TAKING_IN: Final = ("received", "before_accept", "accepted", "submitted")
WORKING: Final = tuple(name for name in failpoints.NAMES if name not in TAKING_IN)
TOOLS: Final = ("before_tools", "tools_done")
# As many conversations as a worker is at when it dies.
ON_THEIR_WAY: Final = CONCURRENCY


async def killed(folder: Path, name: str, chats: int, beside: tuple[str, ...]) -> None:
    """One worker dies at this step of one conversation; the others go on with it.

    :param beside: who works already when it dies; nobody: another begins then
    """
    async with Cluster(folder) as world:
        people = [world.telegram.person(f"Name{number}") for number in range(chats)]
        await world.begin("intake", "intake")
        await world.begin("one", "worker", f"{name}:1")
        for other in beside:
            await world.begin(other, "worker")
        await world.ready()
        await world.running(2 + len(beside))
        tools = name in TOOLS
        questions = {
            person.id: 'use note with {"text": "milk"}' if tools else f"my name is {person.name}"
            for person in people
        }
        for person in people:
            world.telegram.write(person, questions[person.id])
        await world.dead("one")
        if not beside:
            await world.begin("two", "worker")
        for person in people:
            world.telegram.write(person, "what is my name?")
        took = await world.reached(lambda: world.taken_over() >= 1, "its turns are handed over")
        assert took <= TAKEN_OVER, "a start of the program included"
        await world.reached(lambda: all(last(world, each) for each in people), "all are answered")
        await world.at_rest()
        await world.end()
        twice = 0
        for person in people:
            texts = world.telegram.texts(person)
            snapshot = await world.snapshot(f"telegram-chat:{person.id}")
            assert_valid(snapshot)
            asked = said(snapshot.messages, "user")
            assert asked == [questions[person.id], "what is my name?"]
            # What was on its way when the worker died comes once more, and nothing else does.
            once = list(dict.fromkeys(texts))
            assert len(once) == 2, texts
            assert texts == sorted(texts, key=once.index), "in their order"
            twice += len(texts) - len(once)
        assert twice <= ON_THEIR_WAY
        assert world.noted_twice() == []
        # Nobody does a thing again of which it is not known whether it was done.
        effects = len(world.effects())
        assert (chats - ON_THEIR_WAY if tools else 0) <= effects <= (chats if tools else 0)


def last(world: Cluster, person: Person) -> bool:
    """Whether its second question is answered."""
    return len(set(world.telegram.texts(person))) == 2


@pytest.mark.timeout(120)
async def test_a_worker_dies_in_the_middle_of_an_answer(tmp_path: Path) -> None:
    await killed(tmp_path, "before_commit", 3, beside=())


@pytest.mark.crash
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", WORKING)
async def test_a_worker_dies_at_each_step(name: str, tmp_path: Path) -> None:
    await killed(tmp_path, name, 200, beside=("two", "three"))


@pytest.mark.crash
@pytest.mark.timeout(300)
async def test_two_hundred_chats_while_workers_die(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as world:
        people = [world.telegram.person(f"Name{number}") for number in range(200)]
        await world.begin("intake", "intake")
        for number in range(3):
            await world.begin(f"worker {number}", "worker")
        await world.ready()
        for person in people:
            world.telegram.write(person, f"my name is {person.name}")
        for number in range(3):
            answered = len(people) * (number + 1) // 5
            await world.reached(
                lambda n=answered: sum(bool(world.telegram.texts(p)) for p in people) >= n,  # type: ignore[misc]
                "some are answered",
            )
            await world.slay(f"worker {number}")
            await world.begin(f"worker {number + 3}", "worker")
        await world.reached(lambda: all(world.telegram.texts(p) for p in people), "all are")
        await world.at_rest()
        await world.asked(people, "what is my name?")
        await world.at_rest()
        await world.end()
        twice = 0
        for person in people:
            first, *_, last = texts = world.telegram.texts(person)
            twice += len(texts) - 2
            assert first.startswith("Nice to meet you") and person.name in last
            assert len(texts) == len(set(texts)) or len(set(texts)) == 2
            snapshot = await world.snapshot(f"telegram-chat:{person.id}")
            assert_valid(snapshot)
            assert [text.split()[0] for text in said(snapshot.messages, "user")] == ["my", "what"]
        assert twice <= 3 * ON_THEIR_WAY
        assert world.noted_twice() == []


@pytest.mark.crash
@pytest.mark.timeout(300)
async def test_a_worker_that_is_taken_for_dead_says_nothing_when_it_wakes(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path) as world:
        alice = world.telegram.person("Alice")
        await world.begin("intake", "intake")
        await world.begin("one", "worker")
        await world.ready()
        world.claude.script(Say("One two three four five six.", pause=1.0), Say("Well."))
        world.telegram.write(alice, "tell me")
        await world.reached(lambda: len(world.claude.requests) == 1, "the model is asked")
        world.send("one", signal.SIGSTOP)
        await world.begin("two", "worker")
        stopped = time.monotonic()
        took = await world.reached(
            lambda: world.telegram.texts(alice) == ["Well."], "the other answers"
        )
        assert took <= TAKEN_OVER + 10.0, "a start of the program takes some of it"
        await world.at_rest()
        before = await world.snapshot(f"telegram-chat:{alice.id}")
        await asyncio.sleep(MINUTE - (time.monotonic() - stopped))
        world.send("one", signal.SIGCONT)
        await world.reached(lambda: "lost" in world.log(), "it finds out")
        after = await world.snapshot(f"telegram-chat:{alice.id}")
        assert after.messages == before.messages and after.outbox == before.outbox
        await world.asked([alice], "and now?")
        await world.at_rest()
        await world.end()
        assert world.telegram.texts(alice)[0] == "Well."
        assert len(world.telegram.texts(alice)) == 2
        assert_valid(await world.snapshot(f"telegram-chat:{alice.id}"))


@pytest.mark.timeout(120)
async def test_who_takes_in_dies_and_the_one_who_stands_by_does(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as world:
        alice = world.telegram.person("Alice")
        await world.begin("one", "all")
        await world.ready()
        await world.asked([alice], "my name is Alice")
        await world.begin("two", "all")
        await world.at_rest()
        await world.slay("one")
        took = await world.asked([alice], "what is my name?")
        assert took < 2 * TAKEN_OVER
        await world.at_rest()
        await world.end()
        first, second = world.telegram.texts(alice)
        assert first.startswith("Nice to meet you") and "Alice" in second
        assert "409" not in world.log()


@pytest.mark.crash
@pytest.mark.timeout(300)
async def test_who_takes_in_sleeps_and_wakes_when_another_does(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as world:
        alice = world.telegram.person("Alice")
        await world.begin("one", "all")
        await world.ready()
        await world.asked([alice], "my name is Alice")
        await world.at_rest()
        world.send("one", signal.SIGSTOP)
        await world.begin("two", "all")
        took = await world.asked([alice], "what is my name?")
        assert took < 2 * TAKEN_OVER
        world.send("one", signal.SIGCONT)
        await world.reached(lambda: "lease.lost" in world.log(), "it finds out")
        await world.asked([alice], "what is my name?")
        await world.at_rest()
        await world.end()
        first, second, third = world.telegram.texts(alice)
        assert first.startswith("Nice to meet you") and "Alice" in second and second == third
        assert_valid(await world.snapshot(f"telegram-chat:{alice.id}"))


@pytest.mark.crash
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", TAKING_IN)
async def test_who_takes_in_dies_at_each_step(name: str, tmp_path: Path) -> None:
    async with Cluster(tmp_path) as world:
        people = [world.telegram.person(f"Name{number}") for number in range(50)]
        await world.begin("one", "intake", f"{name}:20")
        await world.ready()
        await world.begin("two", "intake")
        await world.begin("worker", "worker")
        for person in people:
            world.telegram.write(person, f"my name is {person.name}")
        await world.dead("one")
        await world.asked(people, "what is my name?")
        await world.reached(lambda: all(last(world, each) for each in people), "all are answered")
        await world.at_rest()
        await world.end()
        for person in people:
            first, second = world.telegram.texts(person)
            assert first.startswith("Nice to meet you") and person.name in second
        assert len(world.claude.requests) == 2 * len(people)


@pytest.mark.timeout(120)
async def test_what_could_not_be_sent_is_sent_after_all_by_a_worker_that_runs(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path) as world:
        alice = world.telegram.person("Alice")
        world.claude.script(Say("Well.", pause=1.0))
        await world.begin("one", "all")
        await world.ready()
        world.telegram.write(alice, "tell me")
        await world.reached(lambda: len(world.claude.requests) == 1, "the model is asked")
        world.telegram.block(alice, quiet=True)
        await world.at_rest()
        assert world.telegram.texts(alice) == []
        world.telegram.unblock(alice, quiet=True)
        key = f"telegram-chat:{alice.id}"
        ran = await world.command("sessions", "undelivered", "--retry", key)
        assert (ran.code, ran.out) == (
            0,
            f"{key}: a worker sends it now, or the next one to start.\n",
        ), ran.err
        await world.reached(lambda: world.telegram.texts(alice) == ["Well."], "it is sent")
        await world.end()


@pytest.mark.timeout(180)
async def test_a_message_that_kills_its_worker_is_given_up_and_the_chat_goes_on(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path) as world:
        alice = world.telegram.person("Alice")
        await world.begin("intake", "intake")
        await world.ready()
        world.telegram.write(alice, "my name is Alice")
        for number in range(3):
            await world.begin(f"worker {number}", "worker", "before_commit:1")
            await world.dead(f"worker {number}")
        await world.begin("last", "worker")
        await world.reached(lambda: bool(world.telegram.texts(alice)), "an apology")
        assert len(world.claude.requests) == 3
        await world.asked([alice], "what is my name?")
        await world.at_rest()
        await world.end()
        sorry, answer = world.telegram.texts(alice)
        assert sorry.startswith("I am sorry")
        # What killed them is shown to no model again.
        assert answer == "I do not know your name yet."
        assert_valid(await world.snapshot(f"telegram-chat:{alice.id}"))


async def database_away(folder: Path, chats: int, how: int) -> None:
    """PostgreSQL is restarted while everybody is at work: conversations and queue are there."""
    server = postgres.begin()
    try:
        async with Cluster(folder, server) as world:
            people = [world.telegram.person(f"Name{number}") for number in range(chats)]
            await world.begin("intake", "intake")
            await world.begin("one", "worker")
            await world.begin("two", "worker")
            await world.ready()
            await world.running(3)
            for person in people:
                world.telegram.write(person, f"my name is {person.name}")
            await world.reached(
                lambda: sum(bool(world.telegram.texts(p)) for p in people) >= chats // 5,
                "some are answered",
            )
            server.stop(how)
            for person in people:
                world.telegram.write(person, "what is my name?")
            await asyncio.sleep(AWAY)
            lines = world.log().count("\n")
            server.start()
            await world.reached(lambda: all(last(world, each) for each in people), "all are")
            await world.at_rest()
            await world.end()
            for person in people:
                texts = world.telegram.texts(person)
                first, second = once = list(dict.fromkeys(texts))
                assert first.startswith("Nice to meet you") and person.name in second
                assert texts == sorted(texts, key=once.index), "in their order"
                snapshot = await world.snapshot(f"telegram-chat:{person.id}")
                assert_valid(snapshot)
                assert said(snapshot.messages, "user") == [
                    f"my name is {person.name}",
                    "what is my name?",
                ]
            assert world.noted_twice() == []
            # No storm: what failed is tried again after a pause, and a model is not paid again.
            assert len(world.claude.requests) <= 2 * chats + 2 * CONCURRENCY
            assert lines <= LINES_AWAY * chats
    finally:
        server.stop()
        shutil.rmtree(server.folder)


@pytest.mark.timeout(180)
async def test_the_database_is_restarted_under_load(tmp_path: Path) -> None:
    await database_away(tmp_path, 10, signal.SIGINT)


@pytest.mark.crash
@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
async def test_the_database_is_restarted_under_much_load(how: int, tmp_path: Path) -> None:
    await database_away(tmp_path, 200, how)


@pytest.mark.crash
@pytest.mark.timeout(180)
async def test_what_is_brought_to_two_at_once_is_answered_once(tmp_path: Path) -> None:
    """Between Telegram and the two stands something that brings each update to both."""
    ports = [free_port(), free_port()]
    async with Cluster(tmp_path) as world, aiohttp.ClientSession() as wire:

        async def both(request: Request) -> Response:
            body, headers = await request.body(), {"content-type": "application/json"}
            name = "x-telegram-bot-api-secret-token"
            headers[name] = request.headers[name]

            async def bring(port: int) -> int:
                url = f"http://127.0.0.1:{port}{request.url.path}"
                async with wire.post(url, data=body, headers=headers) as response:
                    return response.status

            statuses = await asyncio.gather(*map(bring, ports))
            return Response(status_code=max(statuses))

        door = Starlette(routes=[Route("/{path:path}", both, methods=["POST"])])
        async with serving(door) as url:
            secret = "the-webhook-secret-of-the-playground_1"
            (tmp_path / ".env").write_text(f"TELEGRAM_WEBHOOK_SECRET={secret}\n")
            for number, port in enumerate(ports):
                await world.begin(
                    f"intake {number}",
                    "intake",
                    CHINWAG_TELEGRAM__MODE="webhook",
                    CHINWAG_HTTP__PORT=str(port),
                    CHINWAG_HTTP__PUBLIC_URL=url,
                )
            await world.begin("worker", "worker")
            for port in ports:
                await answers_at(port, wire)
            await world.reached(lambda: bool(world.telegram.webhook.url), "the webhook is set")
            people = [world.telegram.person(f"Name{number}") for number in range(50)]
            for person in people:
                world.telegram.write(person, f"my name is {person.name}")
            await world.reached(lambda: all(world.telegram.texts(p) for p in people), "answers")
            await world.asked(people, "what is my name?")
            await world.at_rest()
            await world.end()
        for person in people:
            first, second = world.telegram.texts(person)
            assert first.startswith("Nice to meet you") and person.name in second
        assert len(world.claude.requests) == 2 * len(people)
        assert world.log().count(" duplicate ") >= len(people), "each came twice"


async def answers_at(port: int, wire: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(30):
        while True:
            with suppress(aiohttp.ClientError):
                async with wire.get(f"http://127.0.0.1:{port}/readyz") as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.1)
