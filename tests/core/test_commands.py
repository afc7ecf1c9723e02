"""/start /help /reset /stop /id."""

from __future__ import annotations

import pytest

from core import changes, commands, phrases
from core.memory import ConversationMemory
from core.messages import Inbound, Kind, Sender


def said(text: str, kind: Kind = "command", id: str = "1") -> Inbound:
    return Inbound(id=id, key="telegram-chat:1", kind=kind, sender=Sender("t:42", "Ann"), text=text)


@pytest.mark.parametrize(
    ("text", "name", "argument"),
    [
        ("/start", "start", ""),
        ("/START", "start", ""),
        ("start", "start", ""),
        ("/start CODE", "start", "CODE"),
        ("/start   CODE  ", "start", "CODE"),
        ("/start\tCODE", "start", "CODE"),
        ("/start\nCODE", "start", "CODE"),
        ("/start\nfirst second", "start", "first second"),
        ("/reset please\nnow", "reset", "please\nnow"),
        ("/help", "help", ""),
        ("/stop", "stop", ""),
        ("/id", "id", ""),
    ],
)
def test_a_command_has_a_name_and_an_argument(text: str, name: str, argument: str) -> None:
    assert commands.name_of(said(text)) == name
    assert commands.argument_of(said(text)) == argument


@pytest.mark.parametrize("text", ["/weather", "/resets", "//reset", "/", "", "  ", "/ reset"])
def test_what_is_none_of_ours_is_an_ordinary_message(text: str) -> None:
    assert commands.name_of(said(text)) is None


def test_only_commands_are_commands() -> None:
    assert commands.name_of(said("/reset", kind="message")) is None
    assert commands.name_of(said("/reset", kind="edit")) is None


def test_every_command_has_an_answer() -> None:
    empty = changes.begin(revision=1, epoch="e1", now=0)
    answers = {
        name: commands.answer(empty, name, said(f"/{name}"))
        for name in commands.NAMES
        if name != "usage"
    }
    assert answers == {
        "start": phrases.WELCOME,
        "help": phrases.HELP,
        "reset": phrases.RESET,
        "stop": phrases.NOTHING_TO_STOP,
        "id": "Your id is `t:42`. This conversation is `telegram-chat:1`.",
    }


def test_stop_says_stopped_when_something_waits_or_runs() -> None:
    waiting = changes.accept(
        changes.begin(revision=1, epoch="e1", now=0), said("hello", kind="message")
    )
    running = changes.start(waiting, execution="x1", now=0, memory=ConversationMemory())
    assert commands.answer(waiting, "stop", said("/stop")) == phrases.STOPPED
    assert commands.answer(running, "stop", said("/stop")) == phrases.STOPPED


def test_effects() -> None:
    before = changes.accept(
        changes.begin(revision=1, epoch="e1", now=0), said("hello", kind="message")
    )
    assert commands.effect(before, "reset", "e2") == changes.reset(before, "e2")
    assert commands.effect(before, "stop", "e2") == changes.stop(before)
    for name in ("start", "help", "id"):
        assert commands.effect(before, name, "e2") is before


def test_those_that_interrupt_are_commands() -> None:
    assert set(commands.INTERRUPTING) <= set(commands.NAMES)
