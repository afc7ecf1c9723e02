"""What a worker was at when it died is taken over by another; one that only slept says nothing."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
import pytest

from core import phrases
from core.adapter import Accepted
from core.events import listening
from core.messages import Inbound, Sender
from tests import postgres
from tests.crash.worker import Place, Worker, worker

ROOT: Final = Path(__file__).parents[2]
PATIENCE: Final = 45.0
TAKEOVER: Final = 15.0  # seconds, as the program runs


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(postgres.fresh_url(), f"e{uuid4().hex}", tmp_path)


@contextmanager
def child(place: Place, name: str) -> Iterator[subprocess.Popen[bytes]]:
    words = (place.url, place.schema, place.folder, name, place.beat, place.dead)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.worker", *map(str, words)], cwd=ROOT
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def until(true: Callable[[], bool], seconds: float = PATIENCE) -> float:
    """How long it took."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds, "it does not come"
        await asyncio.sleep(0.01)
    return time.monotonic() - began


async def say(intake: Worker, key: str, number: int, text: str) -> None:
    inbound = Inbound(
        id=f"{number:020}",
        key=key,
        kind="message",
        sender=Sender("telegram:42", "Alice"),
        text=text,
        message_id=str(number),
        at=1_800_000_000_000,
    )
    assert isinstance(await intake.conversations.accept(inbound), Accepted)
    await intake.engine.submit(key, inbound.id)


def asked(place: Place, text: str) -> list[str]:
    return [each["by"] for each in place.noted("asked") if each["text"] == text]


def sent(place: Place) -> list[str]:
    return [each["text"] for each in place.noted("sent")]


async def killed(place: Place) -> float:
    """Seconds from the death of a worker that was at a turn until another one is."""
    async with worker(place, "intake", works=False) as intake:
        with child(place, "a") as a:
            await say(intake, "telegram-chat:1", 1, "hold")
            await until(lambda: asked(place, "hold") == ["a"])
            (place.folder / "go.b").touch()
            async with worker(place, "b"):
                a.send_signal(signal.SIGKILL)
                took = await until(lambda: asked(place, "hold") == ["a", "b"])
                await until(lambda: sent(place) == ["hold by b"])
                await say(intake, "telegram-chat:1", 2, "more")
                await until(lambda: sent(place) == ["hold by b", "more by b"])
    return took


@pytest.mark.timeout(120)
async def test_what_a_dead_worker_was_at_is_taken_over(place: Place) -> None:
    await killed(place)


@pytest.mark.crash
@pytest.mark.timeout(120)
async def test_it_is_taken_over_within_fifteen_seconds(place: Place) -> None:
    assert await killed(replace(place, beat=2.0, dead=8.0)) <= TAKEOVER


async def slept(place: Place, seconds: float) -> None:
    """A worker stands still in the middle of a turn, and goes on when it has lost it."""
    async with worker(place, "intake", works=False) as intake:
        with child(place, "a") as a:
            await say(intake, "telegram-chat:1", 1, "hold")
            await until(lambda: asked(place, "hold") == ["a"])
            (place.folder / "go.b").touch()
            a.send_signal(signal.SIGSTOP)
            async with worker(place, "b") as b:
                await until(lambda: sent(place) == ["hold by b"])
                await asyncio.sleep(seconds)
                (place.folder / "go.a").touch()
                a.send_signal(signal.SIGCONT)
                await until(lambda: {"by": "a", "text": "hold"} in place.noted("left"))
                # It is alive: it beats, and nothing is taken from it.
                await until(lambda: a.poll() is None and len(_alive(b)) == 2)
                snapshot = await b.store.load(b.conversations.ref("telegram-chat:1"))
                # What it had is over; what comes now, either may have.
                for number in range(2, 6):
                    await say(intake, f"telegram-chat:{number}", number, f"m{number}")
                await until(lambda: len(sent(place)) == 5)
                after = await b.store.load(b.conversations.ref("telegram-chat:1"))
                # What it had used is known all the same: a save, and nothing else.
                assert after and snapshot
                same = msgspec.structs.replace(
                    after, revision=snapshot.revision, updated_at=snapshot.updated_at
                )
                assert same == snapshot
                assert asked(place, "hold") == ["a", "b"]
    assert sorted(text.partition(" by ")[0] for text in sent(place)) == [
        "hold",
        *(f"m{number}" for number in range(2, 6)),
    ]
    assert sent(place)[0] == "hold by b"


def _alive(one: Worker) -> set[str]:
    assert one.engine._asking is not None
    return one.engine._asking.beats.alive(1.0)


@pytest.mark.timeout(120)
async def test_a_worker_that_only_slept_says_nothing_of_what_it_lost(place: Place) -> None:
    await slept(place, 0.0)


@pytest.mark.crash
@pytest.mark.timeout(200)
async def test_nor_does_one_that_slept_for_a_minute(place: Place) -> None:
    await slept(replace(place, beat=2.0, dead=8.0), 60.0)


@pytest.mark.crash
@pytest.mark.timeout(300)
async def test_a_message_that_kills_its_workers_does_so_three_times(place: Place) -> None:
    """DBOS counts anew whenever something is taken over: the snapshot does not."""
    key = "telegram-chat:1"
    async with worker(place, "intake", works=False) as intake:
        await say(intake, key, 1, "die")
        for number in range(3):
            with child(place, f"a{number}") as each:
                await until(lambda each=each: each.poll() is not None)  # type: ignore[misc]
                assert each.returncode == -signal.SIGKILL
        assert asked(place, "die") == ["a0", "a1", "a2"]
        with child(place, "last") as last:
            await until(lambda: len(sent(place)) == 1)
            assert sent(place) == [phrases.GAVE_UP]
            await say(intake, key, 2, "hello")
            await until(lambda: len(sent(place)) == 2)
            assert sent(place)[1] == "hello by last"
            assert last.poll() is None
        assert len(asked(place, "die")) == 3


class Heard:
    """Events, by name."""

    wants_content = False

    def __init__(self) -> None:
        self.names: list[str] = []

    def heard(self, name: str, key: str | None, fields: Mapping[str, object]) -> None:
        self.names.append(name)

    def said(self, execution: str, asked: object, answered: object) -> None:
        raise NotImplementedError


async def restarted(place: Place, server: postgres.Server, chats: int, seconds: float) -> Heard:
    """The server is away for so long while all chats have said something."""
    heard = Heard()
    async with worker(place, "intake", works=False) as intake, worker(place, "b"):
        with listening(heard):
            for number in range(chats):
                await say(intake, f"telegram-chat:{number}", number, f"hold {number}")
            await until(lambda: len(place.noted("asked")) == chats)
            server.stop(signal.SIGQUIT)
            try:
                (place.folder / "go.b").touch()
                await asyncio.sleep(seconds)
            finally:
                server.start()
            await until(lambda: len({each["key"] for each in place.noted("sent")}) == chats, 90)
            await say(intake, "telegram-chat:0", chats, "more")
            await until(lambda: "more by b" in sent(place))
    return heard


@pytest.fixture
def server() -> Iterator[postgres.Server]:
    """One that may die."""
    made = postgres.begin()
    try:
        yield made
    finally:
        made.stop()
        shutil.rmtree(made.folder)


@pytest.mark.parametrize(
    ("chats", "seconds"), [(8, 0.0), pytest.param(60, 20.0, marks=pytest.mark.crash)]
)
@pytest.mark.timeout(240)
async def test_a_server_that_starts_anew_under_load_costs_nothing(
    tmp_path: Path, server: postgres.Server, chats: int, seconds: float
) -> None:
    """Nothing is lost or said twice, nobody is taken for dead, and all goes on by itself."""
    place = Place(server.url("public"), "engine", tmp_path, beat=0.5, dead=2.0)
    heard = await restarted(place, server, chats, seconds)
    said = Counter(each["text"] for each in place.noted("sent"))
    assert said == Counter([*(f"hold {number} by b" for number in range(chats)), "more by b"])
    assert "engine.taken_over" not in heard.names
    # Each that waits asks once a second, not as fast as it can.
    assert heard.names.count("engine.unavailable") <= (chats + 4) * (seconds + 10)
