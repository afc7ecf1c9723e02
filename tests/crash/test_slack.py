"""SIGKILL at each failpoint of a bot on Slack: nothing lost, and nothing twice.

The one window that Telegram leaves is closed here, because Slack lets us look.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from core import failpoints, phrases
from core.history import INTERRUPTED
from playground.claude_answers import Say
from playground.slack import Answer
from tests.crash.program import assert_valid, said
from tests.crash.slack_program import CONFIG, InstalledWorld, SlackWorld

ONLY_WITH_TOOLS = ("before_tools", "tools_done")
LATER = [(name, hit) for name in failpoints.NAMES for hit in (2, 4)]
ANSWER = " ".join(f"word{number}" for number in range(1, 61))
QUESTIONS = (
    "my name is Alice",
    'use note with {"text": "milk"}',
    "what is my name?",
    'use note with {"text": "bread"}',
    "what is my name again?",
)


async def converse(world: SlackWorld, failpoint: str, *, in_thread: bool) -> None:
    """One conversation; its first message opens it, the others follow without a mention."""
    alice = world.slack.person("Alice")
    channel = world.slack.channel("general") if in_thread else None
    await world.start(failpoint)
    thread = None
    for question in QUESTIONS:
        asked = await world.tell(alice, question, channel, thread)
        thread = thread or (asked if in_thread else None)
    await world.quiet()
    assert await world.terminate() == 0
    assert world.deaths == 1, "the failpoint was never passed"

    answers = world.slack.texts(channel or alice)
    assert len(answers) == len(QUESTIONS), answers
    assert answers[0].startswith("Nice to meet you, Alice")
    assert "Alice" in answers[-1]
    team, place = world.slack.team.id, world.slack.chat(channel or alice).id
    key = f"slack-thread:{team}/{place}/{thread}" if in_thread else f"slack-dm:{team}/{place}"
    snapshot = await world.snapshot(key)
    assert_valid(snapshot)
    heard = said(snapshot.messages, "user")
    # Where several people speak the model is told who did.
    assert [text.rpartition("</from>\n")[2] for text in heard] == list(QUESTIONS)
    effects = world.effects()
    assert len(effects) == len(set(effects)), "a tool ran twice"
    name, _, _ = failpoint.partition(":")
    if name not in ONLY_WITH_TOOLS:
        assert effects == ["milk", "bread"]
    else:
        results = [bytes(m.blocks).decode() for m in snapshot.messages if m.role == "user"]
        assert sum(INTERRUPTED in result for result in results) == 1


@pytest.mark.parametrize("name", failpoints.NAMES)
async def test_killed_at_the_first_passage(name: str, tmp_path: Path) -> None:
    # By turns, so that each is seen and none costs two programs.
    in_thread = failpoints.NAMES.index(name) % 2 == 0
    async with SlackWorld(tmp_path) as world:
        await converse(world, f"{name}:1", in_thread=in_thread)


@pytest.mark.crash
@pytest.mark.timeout(120)
@pytest.mark.parametrize("in_thread", [True, False], ids=["thread", "direct"])
@pytest.mark.parametrize(("name", "hit"), LATER)
async def test_killed_at_a_later_passage(
    name: str, hit: int, in_thread: bool, tmp_path: Path
) -> None:
    if name in ONLY_WITH_TOOLS:
        hit = 2
    elif name not in ("before_model", "answered"):
        hit = min(hit, 4)
    async with SlackWorld(tmp_path) as world:
        await converse(world, f"{name}:{hit}", in_thread=in_thread)


async def test_killed_where_an_app_that_others_install_must_look(tmp_path: Path) -> None:
    async with InstalledWorld(tmp_path) as world:
        await converse(world, "sent:1", in_thread=False)


@pytest.mark.crash
@pytest.mark.timeout(180)
@pytest.mark.parametrize("in_thread", [True, False], ids=["thread", "direct"])
@pytest.mark.parametrize("name", failpoints.NAMES)
async def test_killed_as_an_app_that_others_install(
    name: str, in_thread: bool, tmp_path: Path
) -> None:
    async with InstalledWorld(tmp_path) as world:
        await converse(world, f"{name}:1", in_thread=in_thread)


async def test_who_may_not_look_yet_waits_and_sends_nothing(tmp_path: Path) -> None:
    async with InstalledWorld(tmp_path) as world:
        alice = world.slack.person("Alice")
        world.slack.fault("conversations.history", Answer(429, retry_after=2), times=1)
        world.kill_at("sent")
        await world.start()
        await world.tell(alice, "my name is Alice")
        assert await world.terminate() == 0
        assert world.deaths == 1
        (answer,) = world.slack.sent(alice)
        assert answer.text.startswith("Nice to meet you, Alice")
        first, second = world.slack.called("conversations.history")
        assert second.at - first.at >= 2.0


async def test_killed_as_the_message_appears(tmp_path: Path) -> None:
    """Slack has it, and we were never told: it is found, not sent again."""
    async with SlackWorld(tmp_path) as world:
        alice = world.slack.person("Alice")
        world.kill_at("sent")
        await world.start()
        await world.tell(alice, "my name is Alice")
        assert await world.terminate() == 0
        assert world.deaths == 1
        (answer,) = world.slack.sent(alice)
        assert answer.text.startswith("Nice to meet you, Alice")
        assert len(world.slack.called("conversations.history")) == 1


async def test_taken_out_of_the_workspace_in_the_middle_of_an_answer(tmp_path: Path) -> None:
    async with InstalledWorld(tmp_path) as world:
        slack = world.slack
        alice, general = slack.person("Alice"), slack.channel("general")
        world.claude.script(Say(ANSWER, pause=0.1))
        await world.start()
        await world.ready()
        slack.write(alice, "tell me", general, mention=True)
        await world.until(lambda: bool(slack.texts(general)), "the answer begins")
        slack.uninstall(slack.team)
        shown = slack.texts(general)
        await world.until(lambda: not slack.unacknowledged(), "the farewell is acknowledged")
        called = len(slack.calls)
        await world.quiet()
        assert await world.terminate() == 0
        assert world.deaths == 0
        assert slack.texts(general) == shown and shown != [ANSWER]
        # What was on its way just then is refused by Slack.
        later = [each for each in slack.calls[called:] if each.method.startswith("chat.")]
        assert all(each.error for each in later) and len(later) <= 1


@pytest.mark.parametrize("noted", [False, True], ids=["as it begins", "while it grows"])
async def test_killed_in_a_stream(tmp_path: Path, noted: bool) -> None:
    """The stream that was begun is finished by an edit; there is no second message."""
    async with SlackWorld(tmp_path) as world:
        alice, general = world.slack.person("Alice"), world.slack.channel("general")
        world.claude.script(Say(ANSWER, pause=0.1), Say(ANSWER))
        world.kill_at("grown" if noted else "sent")
        await world.start()
        await world.ready()
        await world.tell(alice, "tell me", general)
        await world.until(lambda: world.slack.texts(general) == [ANSWER], "it is finished")
        await world.quiet()
        assert await world.terminate() == 0
        assert world.deaths == 1
        (sent,) = world.slack.sent(general)
        assert not sent.deleted and sent.text == ANSWER
        assert len(world.slack.called("chat.startStream")) == 1


async def test_retries_while_it_is_worked_on_are_one_turn(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path) as world:
        alice, general = world.slack.person("Alice"), world.slack.channel("general")
        world.claude.script(Say(ANSWER, pause=0.05), Say("Well?"))
        await world.start()
        await world.ready()
        told = world.slack.write(alice, "tell me", general, mention=True)
        assert len(told) == 2, "one post is two events"
        await world.until(lambda: bool(world.slack.texts(general)), "the answer begins")
        for _ in range(3):
            world.slack.redeliver(told[0])
        await world.until(lambda: world.slack.texts(general) == [ANSWER], "the answer")
        await world.quiet()
        world.slack.redeliver(told[1])
        await world.tell(alice, "and now?", general, told[0].event["ts"])
        assert world.slack.texts(general) == [ANSWER, "Well?"]
        assert await world.terminate() == 0
        assert len(world.claude.requests) == 2


async def test_mentions_in_fifty_threads_at_once(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path) as world:
        people = [world.slack.person(f"P{number}") for number in range(50)]
        general = world.slack.channel("general")
        await world.start()
        await world.ready()
        threads = []
        for number, person in enumerate(people):
            text = f"my name is Name{number}"
            (told, *_) = world.slack.write(person, text, general, mention=True)
            threads.append(told.event["ts"])
        await world.until(lambda: len(world.slack.texts(general)) == 50, "fifty answers")
        for person, thread in zip(people, threads, strict=True):
            world.slack.write(person, "what is my name?", general, thread=thread)
        await world.until(lambda: len(world.slack.texts(general)) == 100, "fifty more")
        await world.quiet()
        assert await world.terminate() == 0
        said_in: dict[str | None, list[str]] = {}
        for sent in world.slack.sent(general):
            said_in.setdefault(sent.thread, []).append(sent.text)
        assert list(said_in) and set(said_in) == set(threads)
        for number, thread in enumerate(threads):
            first, second = said_in[thread]
            assert first.startswith(f"Nice to meet you, Name{number}")
            assert f"Name{number}" in second


AGENT: Final = CONFIG + "[slack]\nagent_view = true\n"


async def test_the_button_beside_an_answer_stops_it(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, AGENT) as world:
        alice = world.slack.person("Alice")
        world.claude.script(Say(ANSWER, pause=0.1), Say("Well?"))
        await world.start()
        await world.ready()
        (told,) = world.slack.write(alice, "tell me")
        thread = told.event["ts"]
        await world.until(lambda: bool(world.slack.texts(alice)), "the answer begins")
        world.slack.press_stop(alice, thread)
        await world.until(lambda: world.slack.texts(alice) == [phrases.STOPPED], "it stops")
        await world.quiet()
        await world.tell(alice, "and now?")
        assert await world.terminate() == 0
        texts = [(sent.thread, sent.text) for sent in world.slack.sent(alice) if not sent.deleted]
        # A message at the top of the agent's view begins a conversation of its own.
        assert texts[0] == (thread, phrases.STOPPED)
        assert texts[1][1] == "Well?" and texts[1][0] != thread


async def test_an_edit_and_a_deletion_of_what_waits(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path) as world:
        alice = world.slack.person("Alice")
        world.claude.script(Say(ANSWER, pause=0.05), Say("Both."))
        await world.start()
        await world.ready()
        world.slack.write(alice, "tell me")
        await world.until(lambda: bool(world.slack.texts(alice)), "the answer begins")
        (first,) = world.slack.write(alice, "my name is Bob")
        (second,) = world.slack.write(alice, "forget it")
        (third,) = world.slack.write(alice, "my name is Alice")
        world.slack.edit(alice, first.event["ts"], "my name is Robert")
        world.slack.delete(alice, second.event["ts"])
        await world.until(lambda: len(world.slack.texts(alice)) == 2, "both answers")
        await world.quiet()
        assert await world.terminate() == 0
        assert third.state == "acknowledged"
        asked = str(world.claude.requests[-1])
        assert "Robert" in asked and "my name is Alice" in asked
        assert "Bob" not in asked and "forget it" not in asked
