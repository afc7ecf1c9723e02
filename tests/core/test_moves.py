"""Which chats go on under another key."""

from __future__ import annotations

from core.moves import REMEMBERED, Moves, is_under


def test_a_key_is_under_itself_and_its_slashes_only() -> None:
    assert is_under("t:-1", "t:-1") and is_under("t:-1/7", "t:-1")
    assert not is_under("t:-12", "t:-1") and not is_under("t:-1", "t:-1/7")


def test_from_its_beginning_nothing_begins_under_the_old_key() -> None:
    moves = Moves()
    moves.begin("t:-1", "t:-9")
    assert moves.is_leaving("t:-1/7") and not moves.is_leaving("t:-9")
    assert moves.unfinished("t:-1/7") == [("t:-1", "t:-9")]
    assert moves.now_at("t:-1") == "t:-1"
    moves.stored("t:-1", "t:-9")
    moves.end("t:-1")
    assert moves.unfinished("t:-1") == []
    assert moves.is_leaving("t:-1")
    assert moves.now_at("t:-1/7") == "t:-9/7"
    assert moves.now_at("t:-2") == "t:-2"


def test_a_chat_that_moves_on_is_followed_and_one_that_comes_back_is_at_home() -> None:
    moves = Moves()
    moves.stored("a:1", "a:2")
    moves.stored("a:2", "a:3")
    assert moves.now_at("a:1") == "a:3"
    moves.stored("a:3", "a:1")
    assert moves.now_at("a:3") == "a:1"


def test_memory_is_bounded() -> None:
    moves = Moves()
    for number in range(REMEMBERED + 5):
        moves.stored(f"a:{number}", f"b:{number}")
    assert moves.now_at("a:4") == "a:4"
    assert moves.now_at("a:5") == "b:5"
