"""What has yet to be said is remembered over a restart, and until it is said."""

from __future__ import annotations

import asyncio

from core.untold import NAME, Untold
from tests.core.fakes import MemoryNotes


async def test_it_is_remembered_until_it_is_told() -> None:
    notes = MemoryNotes()
    untold = Untold(notes)
    assert await untold.open() == ()
    await untold.add("a", "sorry")
    await untold.add("b", "too")
    assert (untold.of("a"), untold.of("c")) == ("sorry", None)
    again = Untold(notes)
    assert await again.open() == ("a", "b")
    await again.told("a")
    await again.told("c")
    assert again.of("a") is None
    await again.told("b")
    assert notes.kept == {}


async def test_two_that_add_lose_nothing() -> None:
    notes = MemoryNotes()
    one, two = Untold(notes), Untold(notes)
    put = notes.put

    async def slowly(name: str, value: bytes | None, *, was: bytes | None) -> bool:
        await asyncio.sleep(0)
        return await put(name, value, was=was)

    notes.put = slowly  # type: ignore[method-assign]
    await asyncio.gather(
        *(each.add(f"{number}", "s") for number in range(5) for each in (one, two))
    )
    assert await Untold(notes).open() == ("0", "1", "2", "3", "4")
    assert NAME in notes.kept
