"""How long a turn waits for the rest of an album."""

from __future__ import annotations

from core.albums import MOST, QUIET, Albums, first_of, late_of
from core.messages import Inbound, Sender
from tests.core.fakes import FakeClock


def photo(id: str, album: str | None = "a") -> Inbound:
    return Inbound(id=id, key="k", kind="message", sender=Sender("t:1"), text="", album=album)


def test_without_an_album_nothing_waits() -> None:
    assert Albums(FakeClock()).wait("k", [photo("1", None)]) is None


def test_the_turn_waits_until_none_has_come_for_a_while() -> None:
    clock = FakeClock()
    albums = Albums(clock)
    assert albums.wait("k", [photo("1")]) == QUIET
    clock.advance(QUIET / 2)
    assert albums.wait("k", [photo("1")]) == QUIET / 2
    assert albums.wait("k", [photo("1"), photo("2")]) == QUIET, "another has come"
    clock.advance(QUIET)
    assert albums.wait("k", [photo("1"), photo("2")]) is None
    assert albums._since == {}, "nothing is kept of it"


def test_a_whole_one_waits_for_nothing() -> None:
    albums = Albums(FakeClock())
    members = [photo(str(index)) for index in range(MOST)]
    assert albums.wait("k", members[:-1]) == QUIET
    assert albums.wait("k", members) is None
    assert albums._since == {}


def test_one_album_waits_even_when_another_is_whole() -> None:
    albums = Albums(FakeClock())
    members = [photo(str(index)) for index in range(MOST)]
    assert albums.wait("k", [*members, photo("x", "b")]) == QUIET


def test_conversations_wait_apart() -> None:
    clock = FakeClock()
    albums = Albums(clock)
    assert albums.wait("k", [photo("1")]) == QUIET
    clock.advance(QUIET)
    assert albums.wait("other", [photo("1")]) == QUIET
    assert albums.wait("k", [photo("1")]) is None


def test_the_first_message_with_its_album() -> None:
    one, two, three = photo("1"), photo("2", None), photo("3")
    assert first_of([one, two, three]) == (one, three)
    assert first_of([two, one]) == (two,)


def test_what_came_late() -> None:
    one, two, three = photo("1"), photo("2", None), photo("3", "b")
    assert late_of([one, two, three], [photo("0")]) == (one,)
    assert late_of([one, two], [photo("0", None)]) == ()
