"""The lists of who may speak, and the table of who asks: two notes, changed by compare-and-set."""

from __future__ import annotations

import pytest

from core import access
from core.access import (
    ASKED,
    ASKED_MS,
    LISTS,
    MOST_AN_HOUR,
    MOST_ASKED,
    Asking,
    Listed,
    Lists,
    data,
    pressed,
)
from core.errors import StoreCorrupt
from core.messages import Sender
from tests.core.fakes import FakeClock, MemoryNotes

EVE = Sender("telegram:666", "Eve")


class Busy(MemoryNotes):
    """Somebody else is always faster, once."""

    def __init__(self, name: str, value: bytes) -> None:
        super().__init__()
        self._meanwhile = (name, value)
        self.puts = 0

    async def put(self, name: str, value: bytes | None, *, was: bytes | None) -> bool:
        self.puts += 1
        if self.puts == 1:
            self.kept[self._meanwhile[0]] = self._meanwhile[1]
        return await super().put(name, value, was=was)


async def test_a_stranger_asks_once_until_it_expires() -> None:
    notes, clock = MemoryNotes(), FakeClock()
    first = await access.ask(notes, clock, EVE)
    assert first is not None and await access.ask(notes, clock, EVE) == first
    assert await access.waiting(notes, clock) == (first,)
    clock.advance(ASKED_MS / 1000)
    assert await access.waiting(notes, clock) == ()
    assert await access.decide(notes, clock, first.token, "allow") is None
    second = await access.ask(notes, clock, EVE)
    assert second is not None and second.token != first.token


async def test_not_many_ask_at_once() -> None:
    notes, clock = MemoryNotes(), FakeClock()
    asked = 0
    for number in range(400):
        if await access.ask(notes, clock, Sender(f"telegram:{number}")):
            asked += 1
        if number == 50:
            assert asked == MOST_AN_HOUR
        clock.advance(60 if number < 60 else 3600)
    assert len(await access.waiting(notes, clock)) <= MOST_ASKED < asked
    assert len(notes.kept[ASKED]) < 10_000


async def test_what_the_owner_answers_holds() -> None:
    notes, clock = MemoryNotes(), FakeClock()
    asking = await access.ask(notes, clock, EVE)
    assert asking is not None
    decided = await access.decide(notes, clock, asking.token, "deny")
    assert decided == (Listed(EVE.id, "Eve", clock.now(), asking.token), "deny")
    # Answered again it is as it was answered first.
    assert await access.decide(notes, clock, asking.token, "allow") == decided
    assert await access.waiting(notes, clock) == ()
    assert (await access.read(notes)).deny == (decided[0],)
    assert await access.decide(notes, clock, "0" * 16, "allow") is None


async def test_an_answer_that_somebody_gave_meanwhile_wins() -> None:
    asking = Asking(EVE.id, "Eve", FakeClock().now(), "0" * 16)
    listed = Listed(EVE.id, "Eve", 1, asking.token)
    notes = Busy(LISTS, access._encode(Lists(deny=(listed,))))
    notes.kept[ASKED] = access._encode((asking,))
    assert await access.decide(notes, FakeClock(), asking.token, "allow") == (listed, "deny")


async def test_who_asks_while_another_does() -> None:
    other = Asking("telegram:7", "Bob", FakeClock().now(), "1" * 16)
    notes = Busy(ASKED, access._encode((other,)))
    asking = await access.ask(notes, FakeClock(), EVE)
    assert await access.waiting(notes, FakeClock()) == (other, asking)
    notes = Busy(ASKED, access._encode((other, Asking(EVE.id, "", 1, "2" * 16))))
    notes.kept[ASKED] = access._encode((Asking(EVE.id, "", 1, "2" * 16),))
    await access.forget(notes, EVE.id)
    assert notes.kept[ASKED] == access._encode((other,))


async def test_nobody_is_on_both_lists() -> None:
    notes = MemoryNotes()
    one = Listed("telegram:1")
    await access.change(notes, lambda lists: lists.having(one, "allow"))
    after = await access.change(notes, lambda lists: lists.having(one, "deny"))
    assert after == Lists(deny=(one,)) == await access.read(notes)
    assert await access.change(notes, lambda lists: lists.without("telegram:1")) == Lists()
    assert LISTS not in notes.kept
    await access.change(notes, lambda lists: lists)
    assert LISTS not in notes.kept


@pytest.mark.parametrize("note", [b"", b"{", b'{"allow":7}', b"\xff", b'{"deny":[{"id":1}]}'])
async def test_lists_that_are_none_let_nobody_in(note: bytes) -> None:
    with pytest.raises(StoreCorrupt, match="access lists"):
        await access.read(MemoryNotes(**{LISTS: note}))


async def test_a_table_that_is_none_is_begun_anew() -> None:
    notes = MemoryNotes(**{ASKED: b"{"})
    assert await access.waiting(notes, FakeClock()) == ()
    assert await access.ask(notes, FakeClock(), EVE) is not None


def test_what_a_button_says_is_short_and_comes_back() -> None:
    asking = Asking(EVE.id, "Eve", 1, "0f" * 8)
    for verdict in ("allow", "deny"):
        said = data(asking, verdict)
        assert len(said) <= 34 and said.isascii() and pressed(said) == (asking.token, verdict)
    for other in ("", "+0f0f0f0f0f0f0f0f.0.0123456789ab", "!+", "!*" + asking.token):
        assert pressed(other) is None
