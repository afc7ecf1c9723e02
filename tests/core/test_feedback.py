"""Feedback is kept once a person and answer, bounded, and goes with the person."""

from __future__ import annotations

from msgspec.structs import replace

from core import feedback
from core.feedback import KEPT, Opinion
from tests.core.fakes import MemoryNotes, said
from tests.core.test_conversations import House, Screen

ADA = Opinion("test:ada", "test:1", "7", good=True, at=1)


class Contested(MemoryNotes):
    """Somebody else is quicker, once."""

    def __init__(self, theirs: bytes) -> None:
        super().__init__()
        self.theirs: bytes | None = theirs

    async def put(self, name: str, value: bytes | None, *, was: bytes | None) -> bool:
        theirs, self.theirs = self.theirs, None
        if theirs is not None:
            await super().put(name, theirs, was=was)
        return await super().put(name, value, was=was)


async def kept(notes: MemoryNotes) -> list[Opinion]:
    return [each async for each in feedback.opinions(notes)]


async def test_the_last_of_one_person_and_answer_counts() -> None:
    notes = MemoryNotes(owner=b"x")
    bad = replace(ADA, good=False, at=2)
    bob = replace(ADA, sender="test:bob")
    for each in (ADA, bad, bad, bob):
        await feedback.keep(notes, each)
    assert await kept(notes) == [bad, bob]


async def test_it_is_bounded() -> None:
    notes = MemoryNotes()
    for number in range(KEPT + 5):
        await feedback.keep(notes, replace(ADA, message_id=str(number)))
    left = await kept(notes)
    assert (len(left), left[0].message_id) == (KEPT, "5")


async def test_two_at_once_are_both_kept() -> None:
    other = replace(ADA, message_id="8")
    scratch = MemoryNotes()
    await feedback.keep(scratch, other)
    notes = Contested(await scratch.get("feedback.test:ada") or b"")
    await feedback.keep(notes, ADA)
    assert await kept(notes) == [other, ADA]
    notes.theirs = await scratch.get("feedback.test:ada")
    await feedback.forget(notes, "test:ada")
    assert await kept(notes) == []


async def test_it_goes_with_the_person_or_with_all_of_a_place() -> None:
    notes = MemoryNotes(owner=b"x")
    for sender in ("test:ada", "test:bob", "other:ada"):
        await feedback.keep(notes, replace(ADA, sender=sender))
    await feedback.forget(notes, "test:ada")
    await feedback.forget(notes, "test:ada")
    assert [each.sender for each in await kept(notes)] == ["other:ada", "test:bob"]
    await feedback.forget_all(notes, "test:")
    assert [each.sender for each in await kept(notes)] == ["other:ada"]
    assert await notes.get("owner") == b"x"


class Asking(Screen):
    def asking(self, bodies: tuple[str, ...]) -> tuple[str, ...]:
        *others, last = bodies
        return (*others, f"{last} (well?)")


async def test_people_are_asked_below_answers_and_nothing_else() -> None:
    async with House(said("hello"), screen=Asking()) as house:
        await house.says("hi")
        await house.says("/id")
        texts = list(house.screen.shown)
    assert [text.endswith("(well?)") for text in texts] == [True, False], texts
