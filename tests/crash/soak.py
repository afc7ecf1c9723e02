"""Random kills under load: `python -m tests.crash.soak --seconds 600 --chats 200 --seed 1`.

People write in many chats at once, Telegram and Claude misbehave, and every few seconds the program
is killed: at a random moment, while it starts, or at a random failpoint. At the end all trouble
stops, the program may finish, and the history checker reads the log of everything. A finding makes
the exit code 1, and the log is kept.

The seed decides what is tried, not how the processes interleave: the same seed is the same kind of
run, not the same run. `--check FILE` reads a kept log once more.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from core import failpoints
from playground.claude_answers import Answer as ModelAnswer
from playground.claude_answers import Cut, Empty, EndEarly, ErrorEvent, Fail, Silence
from playground.telegram import (
    Answer,
    Chat,
    Delay,
    DeliverTwice,
    Fault,
    GarbageBody,
    Person,
    ResetAfter,
    ResetBefore,
    Rule,
)
from tests.crash.record import Recorded, Way
from tests.history_checker import APOLOGIES, check, tell
from tests.history_log import Edited, Finding, LogEvent, Sent, Unknown, Written, marks_of
from tests.history_screen import Screen

# For the program to finish, when the trouble is over: what was begun three times goes one by one.
END_SECONDS: Final = 180.0
STRANGERS: Final = 5
GROUP_EVERY: Final = 4  # so many chats
MOST_WAITING: Final = 5  # unanswered messages of a chat: fewer than an inbox holds
MOST_UNCONFIRMED: Final = 300
PER_SECOND: Final = 12.0
BAD_ANSWERS: Final = 0.08
FAULT_EVERY: Final = 0.4
FAULT_SECONDS: Final = 1.0
LIFE_SECONDS: Final = 10.0  # of a process, at most
PROGRESS_EVERY: Final = 5.0

Tell = Callable[[str], None]


class Summary(NamedTuple):
    """How a soak went."""

    seconds: float
    messages: int
    kills: int
    replies: int
    apologies: int
    duplicates: int
    grown: int
    left: int
    unknown: int
    faults: int
    findings: list[Finding]

    def __str__(self) -> str:
        return (
            f"{self.seconds:.0f} s, {self.messages} messages, {self.replies} replies "
            f"({self.apologies} apologies), {self.kills} kills, {self.faults} faults, "
            f"{self.grown} messages edited, {self.left} left behind at their beginning, "
            f"{self.unknown} sends of unknown outcome, {self.duplicates} duplicates inside the "
            f"window, {len(self.findings)} findings"
        )


class Soak:
    """
    :param seconds: until the trouble ends; the program then has END_SECONDS to finish
    """

    def __init__(self, folder: Path, seconds: float, chats: int, seed: int, tell: Tell) -> None:
        self.folder = folder
        self._seconds = seconds
        self._chance = random.Random(seed)
        self._tell = tell
        self._bad_answers = BAD_ANSWERS
        self.world = Recorded(folder, self._chance, self._bad_answer)
        people = [self.world.friend(f"P{number}") for number in range(chats)]
        self._strangers = [self.world.telegram.person(f"S{number}") for number in range(STRANGERS)]
        self._places: list[tuple[Person, Chat | None]] = [
            (person, self._group(person) if number % GROUP_EVERY == 0 else None)
            for number, person in enumerate(people)
        ]
        self._waiting: Counter[int] = Counter()
        self._rules: list[Rule] = []
        self._replies = 0

    def _group(self, owner: Person) -> Chat:
        return self.world.telegram.group(f"Friends of {owner.name}", owner=owner)

    async def run(self) -> Summary:
        began = time.monotonic()
        self.world.telegram.listeners.append(self._hear)
        async with self.world:
            await self._storm()
            self._tell("the trouble is over; what is unfinished is finished now")
            findings = await self._calm()
            return self._summary(time.monotonic() - began, findings)

    async def _storm(self) -> None:
        """Until the time is up. Whatever of it ends by an error ends all."""
        work: list[Coroutine[Any, Any, None]] = [
            self._people(),
            self._toxics(),
            self._killer(),
            self._progress(),
        ]
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds), asyncio.TaskGroup() as group:
                for each in work:
                    group.create_task(each)

    async def _calm(self) -> list[Finding]:
        self._bad_answers = 0.0
        for rule in self._rules:
            rule.cancel()
        # Killed once more: what it remembers of penalties is not worth waiting for.
        await self._kill()
        await self.world.start()
        quiet = True
        try:
            async with asyncio.timeout(END_SECONDS):
                while not await self._is_quiet():  # noqa: ASYNC110 (a database tells nobody)
                    await asyncio.sleep(0.2)
        except TimeoutError:
            quiet = False
        code = await self.world.terminate()
        findings = await self.world.judge()
        if not quiet:
            findings.append(Finding("lost", "", f"not finished after {END_SECONDS:.0f} s"))
        if code != 0:
            findings.append(Finding("damaged", "", f"the program ended with {code}"))
        return findings

    async def _is_quiet(self) -> bool:
        return not self.world.telegram.unconfirmed() and not await self.world.unfinished()

    def _alive(self) -> bool:
        return self.world.child is not None and self.world.child.returncode is None

    # ------------------------------------------------------------------ people

    async def _people(self) -> None:
        while True:
            await asyncio.sleep(self._chance.expovariate(PER_SECOND))
            person, chat = self._chance.choice(self._places)
            place = (chat or person).id
            if self._waiting[place] >= MOST_WAITING or self._is_behind():
                continue
            if self._chance.random() < 0.01:
                stranger = self._chance.choice(self._strangers)
                self.world.say_so(stranger, chat, "note")
                continue
            for _ in range(self._chance.choice((1, 1, 1, 1, 1, 1, 3))):
                self._waiting[place] += 1
                self.world.say_so(person, chat, self._way(chat))

    def _is_behind(self) -> bool:
        return len(self.world.telegram.unconfirmed()) > MOST_UNCONFIRMED

    def _way(self, chat: Chat | None) -> Way:
        # In a group an answer grows by edits, in a private chat as a draft, which is less of a
        # trap: no message could be left behind. What takes long is begun several times.
        ways: tuple[Way, ...] = ("plain", "note", "long", "slow", "grow", "reset", "stop")
        return self._chance.choices(ways, (68, 12, 4, 6, 20 if chat else 1, 3, 3))[0]

    def _hear(self, event: str, details: dict[str, Any]) -> None:
        # One reply may answer several messages: this is no more than a brake.
        if event == "sent":
            self._replies += 1
            self._waiting[details["chat_id"]] = 0

    # ------------------------------------------------------------------ trouble

    async def _toxics(self) -> None:
        while True:
            await asyncio.sleep(self._chance.expovariate(1 / FAULT_EVERY))
            method = self._chance.choices(
                ("sendMessage", "getUpdates", "sendChatAction", "get*", "*"), (14, 3, 2, 1, 1)
            )[0]
            times = self._chance.choice((1, 1, 1, 2, 3))
            rule = self.world.telegram.fault(method, self._fault(method), times=times)
            self._rules.append(rule)
            # What meets no call in its time is over; else all that was meant for a dead program
            # would fall upon the next one at once.
            asyncio.get_running_loop().call_later(FAULT_SECONDS, rule.cancel)

    def _fault(self, method: str) -> Fault:
        chance = self._chance
        faults: list[Fault] = [
            Delay(chance.uniform(0.05, 2.0)),
            Delay(chance.uniform(0.05, 2.0), before=True),
            Answer(429, "Too Many Requests: retry after 1", retry_after=chance.choice((1, 1, 2))),
            Answer(502, "Bad Gateway"),
            Answer(500, html=True),
            ResetBefore(),
            ResetAfter(),
            GarbageBody(),
            GarbageBody(done=True),
        ]
        if method == "getUpdates":
            faults += [DeliverTwice()] * 8
        return chance.choice(faults)

    def _bad_answer(self) -> ModelAnswer | None:
        chance = self._chance
        if chance.random() >= self._bad_answers:
            return None
        answers: tuple[ModelAnswer, ...] = (
            Fail(429, "rate_limit_error", retry_after=1),
            Fail(529, "overloaded_error"),
            Fail(500, "api_error"),
            ErrorEvent(),
            Cut(),
            Cut(None),
            EndEarly(),
            Empty(),
            Silence(chance.uniform(0.1, 2.0)),
            Silence(chance.uniform(0.1, 2.0), headers=True),
        )
        return chance.choice(answers)

    async def _killer(self) -> None:
        while True:
            way = self._chance.random()
            if way < 0.15:
                # While it starts.
                await self.world.start()
                await asyncio.sleep(self._chance.uniform(0.0, 1.5))
                await self._kill()
            elif way < 0.6:
                point = self._chance.choice(failpoints.NAMES)
                await self.world.start(f"{point}:{int(self._chance.triangular(1, 40, 1))}")
                await self._died(LIFE_SECONDS)
                await self._kill()
            # Every other life gets something done: a message that was begun three times without
            # success is given up, and from apologies nothing can be learned. It ends in the
            # moment of a reply, or a little after.
            await self.world.start()
            await self._has_replied(self._chance.randint(1, 80))
            await asyncio.sleep(self._chance.choice((0.0, 0.0, self._chance.uniform(0.0, 0.5))))
            await self._kill()

    async def _has_replied(self, often: int) -> None:
        enough = self._replies + often
        with suppress(TimeoutError):
            await self.world.telegram.until(lambda: self._replies >= enough, LIFE_SECONDS)

    async def _died(self, seconds: float) -> None:
        assert self.world.child is not None
        with suppress(TimeoutError):
            await asyncio.wait_for(self.world.child.wait(), seconds)

    async def _kill(self) -> None:
        assert self.world.child is not None
        if self._alive():
            await self.world.kill()
            return
        code = self.world.child.returncode
        if code != -signal.SIGKILL:
            raise AssertionError(f"the program ended by itself with {code}")
        self.world.died()

    # ------------------------------------------------------------------ how it goes

    async def _progress(self) -> None:
        began = time.monotonic()
        while True:
            await asyncio.sleep(PROGRESS_EVERY)
            self._tell(
                f"{time.monotonic() - began:4.0f} s  {self.world.kills:4} kills  "
                f"{self._count(Written):6} messages  {self._count(Sent):6} replies  "
                f"{len(self.world.telegram.unconfirmed()):4} not yet confirmed"
            )

    def _count(self, kind: type[LogEvent]) -> int:
        return sum(isinstance(event, kind) for event in self.world.events)

    def _summary(self, seconds: float, findings: list[Finding]) -> Summary:
        sent = [event for event in self.world.events if isinstance(event, Sent)]
        parts = Counter((event.chat, event.text) for event in sent if marks_of(event.text))
        return Summary(
            seconds=seconds,
            messages=self._count(Written),
            kills=self.world.kills,
            replies=len(sent),
            apologies=sum(event.text in APOLOGIES for event in sent),
            duplicates=sum(count - 1 for count in parts.values()),
            grown=len({(e.chat, e.message) for e in self.world.events if isinstance(e, Edited)}),
            left=len(Screen(self.world.events).left),
            unknown=self._count(Unknown),
            faults=sum(rule.hits for rule in self._rules),
            findings=findings,
        )


def run(seconds: float, chats: int, seed: int, folder: Path, tell_: Tell) -> Summary:
    """A whole soak in this folder; its log stays there as ``events.jsonl``."""
    soak = Soak(folder, seconds, chats, seed, tell_)
    try:
        return asyncio.run(soak.run())
    finally:
        soak.world.save(folder / "events.jsonl")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.soak")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--chats", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--check", type=Path, metavar="FILE", help="only read a kept log")
    given = parser.parse_args()
    if given.check:
        decode = msgspec.json.Decoder(LogEvent).decode
        findings = check([decode(line) for line in given.check.read_bytes().splitlines()])
        print(tell(findings))
        return 1 if findings else 0
    folder = Path(tempfile.mkdtemp(prefix="chinwag-soak-"))
    print(f"seed {given.seed}, {given.chats} chats, {given.seconds:.0f} s, in {folder}", flush=True)
    summary = run(given.seconds, given.chats, given.seed, folder, _print)
    print(summary)
    if summary.findings:
        print(tell(summary.findings))
        print(f"everything is kept in {folder}: events.jsonl, log.txt, chinwag.db")
        return 1
    shutil.rmtree(folder)
    return 0


def _print(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
