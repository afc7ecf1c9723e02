"""The table of commands, and those that are built in, as pure functions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from core import changes, phrases
from core.agent import Agent
from core.command import Backstage, Call, Command, Commands, Outcome, argument_of, command_of
from core.commands import BUILT_IN
from core.errors import StoreUnavailable
from core.memory import ConversationMemory
from core.messages import Inbound, Kind, Sender
from core.phrases import Wording
from core.scrubs import Scrubs
from core.snapshot import Snapshot
from core.snapshots import Snapshots
from core.spending import Spending
from core.store import SessionRef
from stores.memory import MemoryStore
from tests.core.fakes import FakeClock

EMPTY = changes.begin(revision=1, epoch="e1", now=0)


def said(text: str, kind: Kind = "command", id: str = "1") -> Inbound:
    return Inbound(id=id, key="telegram-chat:1", kind=kind, sender=Sender("t:42", "Ann"), text=text)


def name_of(text: str, kind: Kind = "command") -> str | None:
    command = BUILT_IN.of(said(text, kind))
    return command.name if command else None


def called(text: str, **fields: Any) -> Call:
    inbound = said(text)
    command = BUILT_IN.of(inbound)
    assert command is not None
    trusted = fields.get("trusted", False)
    call = Call(command.name, inbound, argument_of(inbound), epoch="e2")
    return replace(call, **{"commands": BUILT_IN.open_to(trusted), **fields})


def outcome(text: str, snapshot: Snapshot = EMPTY, **fields: Any) -> Outcome:
    command = BUILT_IN.of(said(text))
    assert command is not None
    return command.outcome(snapshot, called(text, **fields))


def backstage() -> Backstage:
    store, clock = MemoryStore(), FakeClock()
    return Backstage(
        store, ref, Snapshots(store, clock, ref), clock, Scrubs(clock), Spending(clock)
    )


def ref(key: str) -> SessionRef:
    return SessionRef(key=key)


def ping(snapshot: Snapshot, call: Call) -> Outcome:
    return Outcome("pong")


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
    assert name_of(text) == name
    assert argument_of(said(text)) == argument


@pytest.mark.parametrize("text", ["/weather", "/resets", "//reset", "/", "", "  ", "/ reset"])
def test_what_is_none_of_ours_is_an_ordinary_message(text: str) -> None:
    assert name_of(text) is None


def test_only_commands_are_commands() -> None:
    assert name_of("/reset", "message") is None
    assert name_of("/reset", "edit") is None


# ---------------------------------------------------------------------- the table


def test_two_commands_cannot_have_one_name() -> None:
    with pytest.raises(ValueError, match="/reset: there are two"):
        BUILT_IN.extended(Command("reset", "again", ping))


def test_one_more_command_is_known_and_the_table_itself_stays_as_it_was() -> None:
    more = BUILT_IN.extended(Command("ping", "see whether I am there", ping))
    found = more.of(said("/ping"))
    assert found is not None and found.outcome(EMPTY, Call("ping", said("/ping"))).text == "pong"
    assert BUILT_IN.of(said("/ping")) is None


@pytest.mark.parametrize("name", ["", "Reset", "re-set", "1st", "a" * 33, "two words", "ä"])
def test_a_name_that_no_platform_takes_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a command"):
        Command(name, "", ping)


def test_help_lists_every_command_with_its_arguments() -> None:
    own = Command("ping", "see whether I am there", ping, arguments="[host]")
    table = BUILT_IN.extended(own)
    text = outcome("/help", commands=table.open_to(False)).text
    for command in table:
        assert f"* /{command.name}" in text and command.help in text
    assert "* /ping [host] – see whether I am there" in text
    assert text.startswith(phrases.HELP)


def test_what_is_for_the_trusted_is_neither_shown_to_nor_done_for_others() -> None:
    def reset(snapshot: Snapshot, call: Call) -> Outcome:
        return Outcome("done", changes.reset(snapshot, "e2"))

    secret = Command("purge", "for few", reset, who="trusted")
    table = BUILT_IN.extended(secret)
    assert secret not in table.open_to(False) and secret in table.open_to(True)
    call = Call("purge", said("/purge"))
    assert secret.outcome(EMPTY, call) == Outcome(phrases.NOT_FOR_YOU)
    assert secret.outcome(EMPTY, replace(call, trusted=True)).text == "done"


def test_a_command_that_breaks_says_so_and_changes_nothing() -> None:
    def broken(snapshot: Snapshot, call: Call) -> Outcome:
        raise RuntimeError("secret")

    assert Command("ping", "", broken).outcome(EMPTY, called("/id")) == Outcome(
        phrases.COMMAND_FAILED
    )


# ---------------------------------------------------------------------- before the save


async def test_what_comes_first_is_found_by_what_comes_then() -> None:
    async def first(call: Call, backstage: Backstage) -> object:
        return await backstage.store.notes.get("n") or b"nothing"

    command = Command("ping", "", lambda _, call: Outcome(call.found.decode()), first=first)
    call = await command.prepare(called("/id"), backstage())
    assert command.outcome(EMPTY, call) == Outcome("nothing")


async def test_a_store_error_comes_first_and_travels_up() -> None:
    async def first(call: Call, backstage: Backstage) -> object:
        raise StoreUnavailable("full")

    with pytest.raises(StoreUnavailable):
        await Command("ping", "", ping, first=first).prepare(called("/id"), backstage())


async def test_any_other_error_is_told_plainly() -> None:
    async def first(call: Call, backstage: Backstage) -> object:
        raise RuntimeError("secret")

    command = Command("ping", "", ping, first=first)
    call = await command.prepare(called("/id"), backstage())
    assert command.outcome(EMPTY, call) == Outcome(phrases.COMMAND_FAILED)


async def test_nothing_is_done_first_for_those_whom_it_is_not_for() -> None:
    done = []

    async def first(call: Call, backstage: Backstage) -> object:
        done.append(call)
        return None

    command = Command("ping", "", ping, first=first, who="trusted")
    call = await command.prepare(called("/id"), backstage())
    assert done == [] and command.outcome(EMPTY, call) == Outcome(phrases.NOT_FOR_YOU)


# ---------------------------------------------------------------------- somebody's own


async def _said_by(function: Any) -> str:
    command = command_of(function, "mine")
    return command.outcome(EMPTY, await command.prepare(called("/id a b"), backstage())).text


async def test_a_function_is_a_command() -> None:
    def mine(call: Call) -> str:
        """say it again

        And more.
        """
        return f"{call.name} {call.argument} {call.inbound.sender.id}"

    async def waits(call: Call) -> str:
        return "later"

    class Object:
        async def __call__(self, call: Call) -> str:
            return "object"

    assert await _said_by(mine) == "id a b t:42"
    assert await _said_by(waits) == "later"
    assert await _said_by(Object()) == "object"
    assert command_of(mine, "mine").help == "say it again"
    assert command_of(waits, "waits").help == "waits"


async def test_a_function_that_breaks_or_returns_no_text_is_told_plainly() -> None:
    def broken(call: Call) -> str:
        raise RuntimeError("secret")

    def number(call: Call) -> int:
        return 5

    assert await _said_by(broken) == phrases.COMMAND_FAILED
    assert await _said_by(number) == phrases.COMMAND_FAILED


async def test_a_function_that_hangs_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.command.OWN_SECONDS", 0.01)

    async def hangs(call: Call) -> str:
        await asyncio.Event().wait()
        return ""

    assert await _said_by(hangs) == phrases.COMMAND_FAILED


# ---------------------------------------------------------------------- those that are built in


def test_what_only_speaks_changes_nothing() -> None:
    assert outcome("/start") == Outcome(phrases.WELCOME)
    assert outcome("/id") == Outcome("Your id is `t:42`. This conversation is `telegram-chat:1`.")
    assert outcome("/help").snapshot is None
    assert outcome("/stop") == Outcome(phrases.NOTHING_TO_STOP)


def test_stop_says_stopped_when_something_waits_or_runs() -> None:
    waiting = changes.accept(EMPTY, said("hello", kind="message"))
    running = changes.start(waiting, execution="x1", now=0, memory=ConversationMemory())
    assert outcome("/stop", waiting) == Outcome(phrases.STOPPED, changes.stop(waiting))
    assert outcome("/stop", running) == Outcome(phrases.STOPPED, changes.stop(running))


def test_reset_begins_anew() -> None:
    before = changes.accept(EMPTY, said("hello", kind="message"))
    assert outcome("/reset", before) == Outcome(phrases.RESET, changes.reset(before, "e2"))
    assert outcome("/reset quietly", before) == Outcome("", changes.reset(before, "e2"))


def test_undo_and_retry_say_what_they_cannot_do() -> None:
    assert outcome("/undo") == Outcome(phrases.NOTHING_TO_UNDO)
    assert outcome("/retry") == Outcome(phrases.NOTHING_TO_RETRY)
    waiting = changes.accept(EMPTY, said("hello", kind="message"))
    assert outcome("/retry", waiting) == Outcome(phrases.RETRY_WAITS)
    assert outcome("/undo", waiting).text == phrases.UNDONE
    stopped = changes.stop(waiting)
    assert outcome("/retry", stopped) == Outcome("", replace(waiting))


def test_where_nothing_was_asked_there_is_nothing_to_decide() -> None:
    assert outcome("/approve") == outcome("/decline") == Outcome(phrases.NOTHING_ASKED)


CHOICE = Agent(model="anthropic/sonnet", models=("anthropic/opus", "openai/Haiku", "other/haiku"))


@pytest.mark.parametrize("wanted", ["anthropic/opus", "OPUS", "`opus`", "opus"])
def test_a_model_is_chosen_by_its_name(wanted: str) -> None:
    before = replace(EMPTY, chosen={"effort": "low"})
    chosen = outcome(f"/model {wanted}", before, agent=CHOICE)
    assert chosen.snapshot is not None
    assert chosen.snapshot.chosen == {"effort": "low", "model": "anthropic/opus"}
    assert chosen.text == "From now on `anthropic/opus` answers here."
    shown = outcome("/model", chosen.snapshot, agent=CHOICE)
    assert shown.snapshot is None and shown.text.startswith("Here `anthropic/opus` answers.")
    assert changes.reset(chosen.snapshot, "e2").chosen == chosen.snapshot.chosen
    back = outcome("/model sonnet", chosen.snapshot, agent=CHOICE)
    assert back.snapshot is not None and back.snapshot.chosen == {"effort": "low"}


@pytest.mark.parametrize("wanted", ["gpt", "haiku", "anthropic", "*"])
def test_a_model_that_is_not_allowed_gives_the_list(wanted: str) -> None:
    answer = outcome(f"/model {wanted}", agent=CHOICE)
    assert answer.snapshot is None
    assert answer.text.splitlines() == [
        f"`{wanted}` cannot be chosen here. Send /model and one of these:",
        "",
        *(f"* `{name}`" for name in (CHOICE.model, *CHOICE.models)),
    ]


def test_a_choice_that_is_not_allowed_any_more_is_none() -> None:
    old = replace(EMPTY, chosen={"model": "retired"})
    assert outcome("/model", old, agent=CHOICE).text.startswith("Here `anthropic/sonnet` answers.")


def test_where_there_is_one_model_it_is_shown() -> None:
    text = outcome("/model", agent=Agent(model="anthropic/sonnet")).text
    assert text == "Here `anthropic/sonnet` answers; there is no other to choose."


def test_each_is_said_in_the_words_of_the_bot() -> None:
    own = Wording({"HELP": "Schreib mir.", "HELP_RESET": "alles vergessen", "IDS": "{id}, {key}"})
    text = outcome("/help", say=own).text
    assert text.startswith("Schreib mir.") and "* /reset – alles vergessen" in text
    assert outcome("/id", say=own).text == "t:42, telegram-chat:1"


def test_commands_are_tables_of_their_own() -> None:
    assert list(Commands()) == []
