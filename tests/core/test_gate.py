"""The gate: who is let in, who is answered, and that neither costs anything."""

from __future__ import annotations

import itertools
import logging
import sys
from typing import Any

import pytest
from msgspec.structs import replace

from core import phrases
from core.access import ASKED
from core.adapter import Refused
from core.errors import StoreUnavailable
from core.gate import (
    _REMEMBERED,
    CODE,
    DAY,
    HOUR,
    OWNER,
    WRONG_CODES_PER_HOUR,
    Admitted,
    Asks,
    Gate,
)
from core.messages import Inbound, Kind, Sender
from tests.core.fakes import FakeClock, MemoryNotes

_numbers = itertools.count()
ALICE, EVE = "telegram:1", "telegram:666"


def says(text: str, sender: str = EVE, *, id: str = "", kind: Kind | None = None) -> Inbound:
    """A message; each has an id of its own."""
    return Inbound(
        id=id or f"u{next(_numbers)}",
        key=f"telegram-chat:{sender}",
        kind=kind or ("command" if text.startswith("/") else "message"),
        sender=Sender(sender, name="Eve"),
        text=text,
    )


class Watched(MemoryNotes):
    """Counts what is asked of it.

    :param failing: raised by the next `put` after it has happened
    """

    def __init__(self) -> None:
        super().__init__()
        self.gets = self.puts = 0
        self.failing: Exception | None = None

    async def get(self, name: str) -> bytes | None:
        self.gets += 1
        return await super().get(name)

    async def put(self, name: str, value: bytes | None, *, was: bytes | None) -> bool:
        self.puts += 1
        done = await super().put(name, value, was=was)
        if self.failing:
            failing, self.failing = self.failing, None
            raise failing
        return done


async def private(**more: Any) -> Gate:
    """A gate that lets Alice in."""
    gate = Gate(MemoryNotes(), FakeClock(), **{"allow": [ALICE], **more})
    assert await gate.open() is None
    return gate


# ---------------------------------------------------------------------- strangers


async def test_who_is_on_the_list_is_let_in_and_nobody_else() -> None:
    gate = await private()
    assert await gate.admit(says("hello", ALICE)) == Admitted()
    for sender in (EVE, "", "telegram:11", "telegram:1 ", "slack:1", "TELEGRAM:1"):
        assert await gate.admit(says("hello", sender)) == Refused()


async def test_a_name_decides_nothing() -> None:
    gate = await private()
    named = replace(says("hello"), sender=Sender(EVE, name=ALICE))
    assert await gate.admit(named) == Refused()


@pytest.mark.parametrize("text", ["/reset", "/stop", "/help", "/unknown", "hello", "", "start"])
async def test_a_stranger_is_not_answered(text: str) -> None:
    gate = await private()
    assert await gate.admit(says(text)) == Refused()


@pytest.mark.parametrize("text", ["/start", "/id", "/START", "/start WRONGCODE", "/start\nx"])
async def test_a_stranger_who_asks_is_told_their_id(text: str) -> None:
    gate = await private()
    told = await gate.admit(says(text))
    assert told == Refused(phrases.STRANGER.format(id=EVE), private=True)


async def test_a_stranger_is_answered_once_a_day() -> None:
    clock = FakeClock()
    gate = Gate(MemoryNotes(), clock, allow=[ALICE])
    answered = []
    for hour in range(50):
        asked = await gate.admit(says("/start" if hour % 2 else "/id"))
        assert isinstance(asked, Refused)
        answered.append(asked.reply is not None)
        clock.advance(HOUR)
    assert [hour for hour, told in enumerate(answered) if told] == [0, 24, 48]
    other = await gate.admit(says("/id", "telegram:667"))
    assert isinstance(other, Refused)
    assert other.reply


async def test_a_wall_clock_that_jumps_changes_nothing() -> None:
    clock = FakeClock()
    gate = Gate(MemoryNotes(), clock, allow=[ALICE])
    await gate.admit(says("/id"))
    clock.jump(round(DAY * 2000))
    assert await gate.admit(says("/id")) == Refused()


async def test_strangers_cost_nothing() -> None:
    notes = Watched()
    gate = Gate(notes, FakeClock(), allow=[ALICE])
    await gate.open()
    before = notes.gets
    for text in ("hello", "/id", "/start", "/start CODE"):
        await gate.admit(says(text))
    assert (notes.gets, notes.puts) == (before, 0)


async def test_one_line_in_the_log_for_a_stranger_and_an_hour(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    gate = Gate(MemoryNotes(), clock, allow=[ALICE])
    with caplog.at_level(logging.INFO, "chinwag"):
        for _ in range(10):
            await gate.admit(says("a secret"))
        clock.advance(HOUR)
        await gate.admit(says("a secret"))
    events = [record.__dict__["event"] for record in caplog.records]
    assert events == [{"key": f"telegram-chat:{EVE}", "why": "stranger", "sender": EVE}] * 2
    assert "secret" not in caplog.text


async def test_open_to_all() -> None:
    gate = Gate(MemoryNotes(), FakeClock(), open_to_all=True)
    assert await gate.open() is None
    assert await gate.admit(says("hello")) == Admitted()
    assert await gate.admit(says("/start CODE")) == Admitted()


async def test_a_platforms_own_event_is_let_in() -> None:
    gate = await private()
    assert await gate.admit(says("telegram-chat:-100", kind="moved")) == Admitted()


# ---------------------------------------------------------------------- pairing


async def test_the_first_who_knows_the_code_becomes_the_owner() -> None:
    notes, clock = MemoryNotes(), FakeClock()
    gate = Gate(notes, clock)
    code = await gate.open()
    assert code is not None
    assert len(code) == 10
    assert not set(code) & set("01IO")
    assert await gate.admit(says("hello", ALICE)) == Refused()
    assert await gate.admit(says(f"/start {code}", ALICE)) == Admitted(paired=True)
    assert notes.kept == {OWNER: ALICE.encode()}
    assert await gate.admit(says("hello", ALICE)) == Admitted()
    # It opens nothing any more.
    assert isinstance(await gate.admit(says(f"/start {code}")), Asks)
    # Nor after a restart, which knows the owner.
    again = Gate(notes, clock)
    assert await again.open() is None
    assert await again.admit(says("hello", ALICE)) == Admitted()
    assert await again.admit(says(f"/start {code} ", "telegram:667")) != Admitted(paired=True)


@pytest.mark.parametrize("given", ["lower", "spaces", "line"])
async def test_a_code_may_be_typed_in_small_letters(given: str) -> None:
    gate = Gate(MemoryNotes(), FakeClock())
    code = str(await gate.open())
    text = {"lower": code.lower(), "spaces": f"  {code} ", "line": f"{code}\n"}[given]
    assert await gate.admit(says(f"/start {text}", ALICE)) == Admitted(paired=True)


async def test_the_code_stays_the_same_until_somebody_has_used_it() -> None:
    notes = MemoryNotes()
    codes = {await Gate(notes, FakeClock()).open() for _ in range(3)}
    assert len(codes) == 1
    assert await Gate(MemoryNotes(), FakeClock()).open() not in codes


async def test_a_code_that_was_used_between_two_looks() -> None:
    """Another process: what is told opens nothing, and does no harm."""

    class Racing(MemoryNotes):
        async def put(self, name: str, value: bytes | None, *, was: bytes | None) -> bool:
            return False

    assert await Gate(Racing(), FakeClock()).open()


@pytest.mark.parametrize(
    "text", ["{code}", "start {code}", "/id {code}", "/start", "/start x{code}"]
)
async def test_only_start_with_the_code_pairs(text: str) -> None:
    gate = Gate(MemoryNotes(), FakeClock())
    code = await gate.open()
    admitted = await gate.admit(says(text.format(code=code)))
    assert isinstance(admitted, Refused)


async def test_with_a_list_there_is_no_code() -> None:
    """Not even an old one."""
    notes = MemoryNotes()
    code = await Gate(notes, FakeClock()).open()
    gate = Gate(notes, FakeClock(), allow=[ALICE])
    assert await gate.open() is None
    assert isinstance(await gate.admit(says(f"/start {code}")), Refused)
    assert OWNER not in notes.kept


@pytest.mark.parametrize("sender", [ALICE, EVE])
async def test_killed_between_the_two_notes(sender: str) -> None:
    """The owner is written, the code is not yet removed: it opens nothing any more."""
    notes = Watched()
    gate = Gate(notes, FakeClock())
    code = await gate.open()
    notes.failing = StoreUnavailable("no answer")
    with pytest.raises(StoreUnavailable):
        await gate.admit(says(f"/start {code}", ALICE))
    assert notes.kept == {OWNER: ALICE.encode(), CODE: str(code).encode()}
    restarted = Gate(notes, FakeClock())
    assert await restarted.open() is None
    admitted = await restarted.admit(says(f"/start {code}", sender))
    assert admitted == Admitted() if sender == ALICE else isinstance(admitted, Asks)
    assert notes.kept[OWNER] == ALICE.encode()


@pytest.mark.parametrize("sender", [ALICE, EVE])
async def test_the_platform_sends_again_what_could_not_be_noted(sender: str) -> None:
    """The same process, which has not heard that it was."""
    notes = Watched()
    gate = Gate(notes, FakeClock())
    code = await gate.open()
    notes.failing = StoreUnavailable("no answer")
    with pytest.raises(StoreUnavailable):
        await gate.admit(says(f"/start {code}", ALICE))
    admitted = await gate.admit(says(f"/start {code}", sender))
    assert (admitted == Admitted(paired=True)) == (sender == ALICE)
    notes.kept.pop(ASKED, None)  # Eve is a stranger who asks
    assert notes.kept == {OWNER: ALICE.encode()}
    assert await gate.admit(says("hello", ALICE)) == Admitted()


async def test_a_flood_does_not_hold_up_what_stops_it() -> None:
    gate = Gate(MemoryNotes(), FakeClock(), open_to_all=True, per_minute=2)
    for _ in range(10):
        await gate.admit(says("hello"))
    assert await gate.admit(says("hello")) == Refused()
    assert await gate.admit(says("/stop")) == Admitted()
    assert await gate.admit(says("/reset")) == Admitted()
    assert isinstance(await gate.admit(says("/reset")), Refused)


async def test_somebodys_wrong_codes_do_not_keep_the_owner_out() -> None:
    gate = Gate(MemoryNotes(), FakeClock())
    code = await gate.open()
    for _ in range(WRONG_CODES_PER_HOUR + 5):
        await gate.admit(says("/start WRONG", EVE))
    assert await gate.admit(says(f"/start {code}", ALICE)) == Admitted(paired=True)


async def test_wrong_codes_come_to_an_end() -> None:
    clock = FakeClock()
    notes = Watched()
    gate = Gate(notes, clock)
    code = await gate.open()
    for number in range(WRONG_CODES_PER_HOUR):
        assert isinstance(await gate.admit(says(f"/start GUESS{number}")), Refused)
    assert isinstance(await gate.admit(says(f"/start {code}")), Refused)
    clock.advance(HOUR)
    assert await gate.admit(says(f"/start {code}")) == Admitted(paired=True)


@pytest.mark.parametrize("guess", ["\ud800", "ÄÖÜ", "", "x" * 16_000, "\0"])
async def test_a_code_may_be_any_text(guess: str) -> None:
    gate = Gate(MemoryNotes(), FakeClock())
    await gate.open()
    assert isinstance(await gate.admit(says(f"/start {guess}")), Refused)


async def test_without_a_code_nobody_pairs() -> None:
    gate = Gate(MemoryNotes(), FakeClock())
    assert isinstance(await gate.admit(says("/start NONE")), Refused)


# ---------------------------------------------------------------------- how often


async def test_so_many_messages_a_minute() -> None:
    clock = FakeClock()
    gate = Gate(MemoryNotes(), clock, allow=[ALICE, "telegram:2"], per_minute=3)
    answers = [await gate.admit(says("hello", ALICE)) for _ in range(6)]
    assert answers[:3] == [Admitted()] * 3
    assert answers[3] == Refused(phrases.TOO_FAST, private=True)
    assert answers[4:] == [Refused()] * 2
    # Others are let in.
    assert await gate.admit(says("hello", "telegram:2")) == Admitted()
    clock.advance(59)
    assert await gate.admit(says("hello", ALICE)) == Refused()
    clock.advance(1)
    assert await gate.admit(says("hello", ALICE)) == Admitted()


async def test_being_too_fast_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    gate = await private(per_minute=1)
    with caplog.at_level(logging.INFO, "chinwag"):
        for _ in range(5):
            await gate.admit(says("a secret", ALICE))
    (record,) = caplog.records
    assert record.__dict__["event"]["why"] == "too fast"
    assert record.levelno == logging.WARNING


async def test_who_is_silent_is_forgotten() -> None:
    clock = FakeClock()
    gate = Gate(MemoryNotes(), clock, open_to_all=True)
    for number in range(100):
        await gate.admit(says("hello", f"telegram:{number}"))
    assert (len(gate._messages._count), len(gate._let_in._count)) == (100, 100)
    clock.advance(HOUR)
    for number in range(100):
        await gate.admit(says("hello", f"telegram:{number % 3}"))
    assert set(gate._messages._count) == {f"telegram:{number}" for number in range(3)}
    assert len(gate._let_in._count) == 60


async def test_a_message_that_comes_again_is_not_counted_again() -> None:
    """It could not be kept, because the disk was full: refused, it would be lost for good."""
    clock = FakeClock()
    gate = Gate(MemoryNotes(), clock, allow=[ALICE], per_minute=3)
    for _ in range(20):
        for id in ("u-a", "u-b", "u-c"):
            assert await gate.admit(says("hello", ALICE, id=id)) == Admitted()
    assert await gate.admit(says("hello", ALICE)) == Refused(phrases.TOO_FAST, private=True)
    # What was refused was counted, and is refused again.
    assert await gate.admit(says("hello", ALICE, id="u-d")) == Refused()
    assert await gate.admit(says("hello", ALICE, id="u-d")) == Refused()
    clock.advance(HOUR)
    assert await gate.admit(says("hello", ALICE, id="u-a")) == Admitted()


async def test_the_same_id_in_another_chat_is_another_message() -> None:
    gate = await private(per_minute=1)
    first = says("hello", ALICE, id="1")
    assert await gate.admit(first) == Admitted()
    other = replace(first, key="telegram-chat:-100")
    assert await gate.admit(other) == Refused(phrases.TOO_FAST, private=True)


async def test_memory_is_bounded() -> None:
    gate = Gate(MemoryNotes(), FakeClock(), open_to_all=True)
    strict = await private()

    def kept() -> list[int]:
        tables = (gate._messages, gate._let_in, strict._answered, strict._logged, strict._wrong)
        return [len(table._count) for table in tables]

    for number in range(_REMEMBERED + 500):
        await gate.admit(says("hello", f"telegram:{number}"))
        await strict.admit(says("/id", f"telegram:{number + 10}"))
    assert kept() == [_REMEMBERED] * 4 + [0]
    assert sys.getsizeof(gate._messages._count) < 2_000_000
    # The newest are known, and who was forgotten begins anew.
    newest = await strict.admit(says("/id", f"telegram:{_REMEMBERED + 509}"))
    assert newest == Refused()
    oldest = await strict.admit(says("/id", "telegram:10"))
    assert isinstance(oldest, Refused)
    assert oldest.reply


async def test_edits_have_a_budget_of_their_own_and_are_refused_without_a_word() -> None:
    gate = await private(per_minute=2)
    for _ in range(2):
        assert isinstance(await gate.admit(says("x", ALICE, kind="edit")), Admitted)
    for _ in range(2):
        assert await gate.admit(says("x", ALICE, kind="edit")) == Refused()
    assert isinstance(await gate.admit(says("hi", ALICE)), Admitted)
    assert await gate.admit(says("x", EVE, kind="edit")) == Refused()
