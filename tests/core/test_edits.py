"""What becomes of a message that its author changes: over the core, with buttons and without."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from core import changes, edits, phrases
from core.adapter import Accepted, Duplicate, Refused
from core.changes import Fence
from core.errors import SnapshotUnreadable
from core.memory import ConversationMemory
from core.messages import (
    Inbound,
    Message,
    Sender,
    decode_blocks,
    encode_blocks,
    text_block,
    time_block,
)
from core.phrases import ENGLISH
from core.snapshot import Snapshot, Suspension, Usage
from stores.memory import MemoryStore
from tests.core.fakes import calls, settle
from tests.core.test_approvals import ADA, BOB, Buttons, Office, delete
from tests.core.test_conversations import KEY, Faulty, Held, House, Screen, asked

EMPTY = changes.begin(revision=1, epoch="e1", now=0)


class Editing(House):
    """A bot in which people change what they wrote."""

    def new_screen(self) -> Screen:
        return Buttons()

    async def edits(self, message_id: str, text: str, id: str | None = None, **fields: Any) -> Any:
        inbound = self.inbound(text, id, kind="edit", **fields)
        accepted = await self.conversations.accept(replace(inbound, message_id=message_id))
        if not isinstance(accepted, Refused):
            await self.engine.submit(KEY, inbound.id)
        await settle(200)
        return accepted

    async def presses(
        self, data: str, sender: Sender = ADA, id: str | None = None, message_id: str | None = "m2"
    ) -> Any:
        inbound = self.inbound(data, id, kind="decision", sender=sender)
        accepted = await self.conversations.accept(replace(inbound, message_id=message_id))
        if not isinstance(accepted, Refused):
            await self.engine.submit(KEY, inbound.id)
        await settle(200)
        return accepted

    def button(self) -> str:
        """What the one open question says when its button is pressed."""
        assert isinstance(self.screen, Buttons)
        ((data,),) = self.screen.open().values()
        return data


# ---------------------------------------------------------------------- what waits


async def test_what_waits_is_replaced_where_it_waits() -> None:
    held = Held("one")
    async with Editing(held, "two") as house:
        await house.accept("first")
        await held.asked.wait()
        await house.says("secnod")
        assert await house.edits("q2", "second") == Accepted()
        held.open.set()
        await settle(200)
        assert [text for _, text in await house.history()] == ["first", "one", "second", "two"]
        assert house.screen.shown == ["one", "two"]


async def test_an_edit_comes_again_and_an_older_one_does_not_win() -> None:
    held = Held("one")
    async with Editing(held, "two") as house:
        await house.accept("first")
        await held.asked.wait()
        await house.says("a")
        assert await house.edits("q2", "b", "e1") == Accepted()
        assert await house.edits("q2", "c", "e2") == Accepted()
        assert await house.edits("q2", "b", "e1") == Duplicate()
        held.open.set()
        await settle(200)
        assert asked(house.model.requests[1]) == "c"


async def test_what_waits_and_is_deleted_is_not_answered() -> None:
    held = Held("one")
    async with Editing(held) as house:
        await house.accept("first")
        await held.asked.wait()
        await house.says("never mind")
        assert await house.edits("q2", "") == Accepted()
        held.open.set()
        await settle(200)
        assert house.screen.shown == ["one"] and not (await house.snapshot()).unfinished


async def test_nobody_changes_what_somebody_else_wrote() -> None:
    held = Held("one")
    async with Editing(held, "two") as house:
        await house.accept("first")
        await held.asked.wait()
        await house.says("second")
        assert await house.edits("q2", "evil", sender=BOB) == Refused()
        held.open.set()
        await settle(200)
        assert asked(house.model.requests[1]) == "second"
        assert await house.edits("q2", "evil", sender=BOB) == Refused()
        assert (await house.snapshot()).edited is None


# ---------------------------------------------------------------------- what was answered


async def test_what_was_answered_last_is_answered_again_when_its_author_wants_it() -> None:
    async with Editing("one", "two", "more") as house:
        await house.says("frist")
        assert await house.edits("q1", "first") == Accepted()
        assert len(house.model.requests) == 1
        assert house.screen.shown[1].startswith(phrases.EDITED)
        assert await house.presses(house.button()) == Accepted()
        assert [text for _, text in await house.history()] == ["first", "two"]
        assert asked(house.model.requests[1]) == "first"
        assert isinstance(house.screen, Buttons)
        assert house.screen.cards["m2"] == [phrases.EDIT_ANSWERED] and not house.screen.open()
        await house.says("and now?")
        assert [text for _, text in await house.history()][:3] == ["first", "two", "and now?"]


async def test_nothing_happens_without_a_press_and_nothing_twice() -> None:
    async with Editing("one", "two", "three") as house:
        await house.says("frist")
        await house.edits("q1", "first", "e1")
        assert await house.edits("q1", "first", "e1") == Duplicate()
        # A second edit needs no second question.
        assert await house.edits("q1", "first!", "e2") == Accepted()
        data = house.button()
        assert await house.presses(data, id="p1") == Accepted()
        assert asked(house.model.requests[1]) == "first!"
        assert await house.presses(data, id="p1") == Duplicate()
        assert await house.presses(data) == Refused(phrases.EDIT_OVER, private=True, over=True)
        assert len(house.model.requests) == 2
        # And changed once more it may be asked once more.
        await house.edits("q1", "first!!")
        await house.presses(house.button(), message_id=None)
        assert [text for _, text in await house.history()] == ["first!!", "three"]


async def test_only_its_author_may_press() -> None:
    async with Editing("one") as house:
        await house.says("frist")
        await house.edits("q1", "first")
        refused = await house.presses(house.button(), BOB)
        assert refused == Refused(phrases.EDIT_NOT_YOURS, private=True)
        assert len(house.model.requests) == 1


async def test_once_something_else_was_said_it_is_too_late() -> None:
    async with Editing("one", "two", "three") as house:
        await house.says("frist")
        await house.edits("q1", "first")
        data = house.button()
        await house.says("next")
        over = Refused(phrases.EDIT_OVER, private=True, over=True)
        assert await house.presses(data) == over
        # And an edit of what is not the last any more is no news.
        assert await house.edits("q1", "first!") == Refused()
        assert await house.presses("~" + "0" * 16) == over
        assert [text for _, text in await house.history()] == ["frist", "one", "next", "two"]


async def test_not_while_something_else_waits() -> None:
    held = Held("two")
    async with Editing("one", held, "three") as house:
        await house.says("frist")
        await house.edits("q1", "first")
        data = house.button()
        await house.accept("next")
        await held.asked.wait()
        await house.edits("q3", "next!")
        await house.accept("later")
        assert isinstance(await house.presses(data), Refused)
        held.open.set()
        await settle(200)
        assert len(house.model.requests) == 3


async def test_an_invisible_edit_is_no_news() -> None:
    async with Editing("one") as house:
        await house.says("first")
        assert await house.edits("q1", "first") == Accepted()
        assert house.screen.shown == ["one"] and (await house.snapshot()).edited is None
        # Changed and changed back.
        await house.edits("q1", "second")
        data = house.button()
        await house.edits("q1", "first")
        assert (await house.snapshot()).edited is None
        assert isinstance(await house.presses(data), Refused)
        assert len(house.model.requests) == 1


async def test_what_was_answered_and_is_deleted_stays() -> None:
    async with Editing("one") as house:
        await house.says("first")
        assert await house.edits("q1", "") == Accepted()
        assert [text for _, text in await house.history()] == ["first", "one"]
        assert house.screen.shown == ["one"]


async def test_an_edit_begins_no_conversation() -> None:
    async with Editing() as house:
        assert await house.edits("q1", "first") == Refused()
        assert await house.edits("q1", "first", key="other:1") == Refused()
        assert await house.store.load(house.conversations.ref(KEY)) is None


async def test_an_edit_in_what_cannot_be_read_is_left_alone() -> None:
    store = Faulty()
    async with Editing("one", store=store) as house:
        await house.says("first")
        store.loads = [SnapshotUnreadable("checksum")]
        assert await house.edits("q1", "changed") == Refused()
        assert [text for _, text in await house.history()] == ["first", "one"]


# ---------------------------------------------------------------------- what is being answered


async def test_what_is_being_answered_is_answered_again_by_a_press() -> None:
    held = Held("late")
    async with Editing(held, "two") as house:
        await house.accept("frist")
        await held.asked.wait()
        await house.edits("q1", "first")
        assert len(house.model.requests) == 1
        await house.presses(house.button(), message_id="m1")
        assert len(house.model.requests) == 2, "at once"
        held.open.set()
        await settle(200)
        assert [text for _, text in await house.history()] == ["first", "two"]
        assert "late" not in house.screen.shown


async def test_an_edit_of_what_got_no_answer() -> None:
    held = Held("late")
    async with Editing(held, "two") as house:
        await house.accept("frist")
        await held.asked.wait()
        await house.says("/stop")
        await house.edits("q1", "first")
        await house.presses(house.button())
        held.open.set()
        await settle(200)
        assert [text for _, text in await house.history()] == ["first", "two"]


async def test_pressed_while_a_call_waits_for_an_approval() -> None:
    async with Office(calls(delete()), "As you like.") as house:
        await house.says("delete a.txt")
        inbound = house.inbound("delete nothing", kind="edit")
        await house.conversations.accept(replace(inbound, message_id="q1"))
        await house.engine.submit(KEY, inbound.id)
        await settle(200)
        ((data,),) = [says for says in house.buttons.open().values() if len(says) == 1]
        await house.sends(data, "m2")
        assert house.desk.ran == [] and not house.buttons.open()
        assert phrases.NOT_OPEN in house.buttons.texts()
        assert [text for _, text in await house.history()] == ["delete nothing", "As you like."]


# ---------------------------------------------------------------------- commands, and no buttons


async def test_without_buttons_retry_answers_it_as_it_is_now() -> None:
    async with House("one", "two") as house:
        await house.says("frist")
        edit = replace(house.inbound("first", kind="edit"), message_id="q1")
        await house.conversations.accept(edit)
        await house.engine.submit(KEY, edit.id)
        await settle(200)
        assert house.screen.shown == ["one", phrases.EDITED_TEXT]
        await house.says("/retry")
        assert [text for _, text in await house.history()] == ["first", "two"]
        assert (await house.snapshot()).edited is None


@pytest.mark.parametrize("command", ["/undo", "/reset"])
async def test_what_is_taken_back_is_not_asked_again(command: str) -> None:
    async with Editing("one") as house:
        await house.says("frist")
        await house.edits("q1", "first")
        data = house.button()
        await house.says(command)
        assert isinstance(await house.presses(data), Refused)
        assert (await house.snapshot()).edited is None and len(house.model.requests) == 1


async def test_the_question_outlives_a_restart() -> None:
    store = MemoryStore()
    async with Editing("one", store=store) as house:
        await house.says("frist")
        await house.edits("q1", "first")
        data = house.button()
    async with Editing("two", store=store) as house:
        house.count = 10
        await house.presses(data)
        assert [text for _, text in await house.history()] == ["first", "two"]


# ---------------------------------------------------------------------- whose words are whose


def said(id: str, text: str = "", sender: Sender = ADA, **more: Any) -> Inbound:
    fields: dict[str, Any] = {"key": KEY, "kind": "message", "message_id": f"m{id}"} | more
    return Inbound(id=id, sender=sender, text=text or f"text {id}", **fields)


def edited(id: str, text: str, sender: Sender = ADA, **more: Any) -> Inbound:
    return said(f"e{id}", text, sender, kind="edit", message_id=f"m{id}", **more)


def answered(*many: Inbound, tell_time: bool = False) -> Snapshot:
    snapshot = EMPTY
    for each in many:
        snapshot = changes.accept(snapshot, each)
    memory = ConversationMemory()
    snapshot = changes.start(snapshot, execution="x", now=9, memory=memory, tell_time=tell_time)
    return changes.commit(snapshot, Fence("e1", "x"), [encode_blocks([])], ["b"], Usage(), 9)


def asks_again(snapshot: Snapshot, edit: Inbound) -> list[Any]:
    """The blocks that a press would have answered; [] when nobody is asked."""
    after = edits.edit(snapshot, edit, Buttons(), ENGLISH)
    if after.edited is None:
        return []
    again = edits.again(after, said("p", kind="decision"))
    assert again.edited is None
    return [block for inbound in again.inbox for block in decode_blocks(inbound.blocks)]


def test_of_several_messages_in_one_turn_the_right_one_changes() -> None:
    both = answered(said("1", group=True), said("2", sender=BOB, group=True))
    assert asks_again(both, edited("2", "new", BOB, group=True)) == [
        text_block("<from>Ada</from>\ntext 1"),
        text_block("<from>Bob</from>\nnew"),
    ]
    assert asks_again(both, edited("1", "text 1", group=True)) == []


def test_the_time_in_front_is_nobody_s_words() -> None:
    assert asks_again(answered(said("1"), tell_time=True), edited("1", "new")) == [
        time_block(9),
        text_block("new"),
    ]


def test_an_image_stays_and_may_get_words() -> None:
    image: dict[str, object] = {"type": "image"}
    shown = said("1", " ", blocks=encode_blocks([image]))
    assert asks_again(answered(shown), edited("1", "what is it?")) == [
        image,
        text_block("what is it?"),
    ]


def test_whose_words_cannot_be_told_apart_are_left_alone() -> None:
    image: dict[str, object] = {"type": "image"}
    both = answered(said("1", " ", blocks=encode_blocks([image])), said("2"))
    assert asks_again(both, edited("2", "new")) == []


def test_what_waits_to_be_asked_again_changes_among_its_blocks() -> None:
    row = encode_blocks([text_block("old"), {"type": "image"}])
    waiting = replace(said("1"), text="", blocks=row)
    after = edits.edit(changes.accept(EMPTY, waiting), edited("1", "new"), Screen(), ENGLISH)
    assert decode_blocks(after.inbox[0].blocks)[0] == text_block("new")
    bare = replace(said("1"), text="", blocks=encode_blocks([{"type": "image"}]))
    after = edits.edit(changes.accept(EMPTY, bare), edited("1", "new"), Screen(), ENGLISH)
    assert after.inbox[0].text == "new"
    two = replace(waiting, blocks=encode_blocks([text_block("a"), text_block("b")]))
    before = changes.accept(EMPTY, two)
    assert edits.edit(before, edited("1", "new"), Screen(), ENGLISH).inbox == before.inbox


def test_an_edit_is_forgotten_with_its_author() -> None:
    from core import forget

    asking = edits.edit(answered(said("1")), edited("1", "new"), Buttons(), ENGLISH)
    assert asking.edited is not None
    assert forget.without(asking, BOB.id, "-", forget.Found()).edited == asking.edited
    assert forget.without(asking, ADA.id, "-", forget.Found()).edited is None


def test_a_seed_is_nobody_s_message() -> None:
    seeded = replace(
        EMPTY,
        spans=((1, 1),),
        messages=(Message(seq=1, role="user", blocks=encode_blocks([text_block("x")]), at=1),),
    )
    assert edits.edit(seeded, edited("1", "new"), Screen(), ENGLISH) is seeded


def test_behind_what_waits_there_is_nothing_to_answer_again() -> None:
    asking = edits.edit(answered(said("1")), edited("1", "new"), Buttons(), ENGLISH)
    data = edits._data(asking, edited("1", "new"))
    waits = changes.accept(asking, said("2"))
    press = said("p", data, kind="decision")
    assert isinstance(edits.press(waits, press, Buttons(), ENGLISH), Refused)
    assert edits.edit(waits, replace(edited("1", "newer"), id="e9"), Buttons(), ENGLISH) is waits


def test_of_two_messages_each_is_asked_about() -> None:
    both = answered(said("1"), said("2"))
    one = edits.edit(both, edited("1", "new"), Buttons(), ENGLISH)
    two = edits.edit(one, edited("2", "newer"), Buttons(), ENGLISH)
    assert len(two.outbox) == len(one.outbox) + 1
    assert two.edited is not None and two.edited.text == "newer"


def test_without_an_edit_it_is_asked_again_as_it_was() -> None:
    again = edits.again(answered(said("1")), said("p", kind="command"))
    assert [decode_blocks(each.blocks) for each in again.inbox] == [[text_block("text 1")]]
    assert edits.again(EMPTY, said("p", kind="command")) is EMPTY


@pytest.mark.parametrize("why", ["another button", "it is not there", "another waits"])
def test_a_press_that_is_too_late_changes_nothing(why: str) -> None:
    asking = edits.edit(answered(said("1")), edited("1", "new"), Buttons(), ENGLISH)
    data = edits._data(asking, edited("1", "new"))
    if why == "another button":
        data = "~" + "0" * 16
    elif why == "it is not there":
        asking = replace(asking, messages=())
    else:
        running = changes.start(
            changes.accept(EMPTY, said("1")), execution="x", now=9, memory=ConversationMemory()
        )
        asking = edits.edit(running, edited("1", "new"), Buttons(), ENGLISH)
        asking = changes.accept(asking, said("2"))
    press = said("p", data, kind="decision")
    over = Refused(phrases.EDIT_OVER, private=True, over=True)
    assert edits.press(asking, press, Buttons(), ENGLISH) == over


@pytest.mark.parametrize("adapter", [Buttons(), Screen()])
def test_what_cannot_be_edited_is_left_as_it_is(adapter: Screen) -> None:
    asking = edits.edit(answered(said("1")), edited("1", "new"), Buttons(), ENGLISH)
    press = said("p", edits._data(asking, edited("1", "new")), kind="decision")
    if isinstance(adapter, Buttons):
        press = replace(press, message_id=None)
    after = edits.press(asking, press, adapter, ENGLISH)
    assert isinstance(after, Snapshot) and after.outbox == asking.outbox


def test_what_has_joined_a_turn_that_waits_for_people_is_being_answered() -> None:
    running = changes.start(
        changes.accept(EMPTY, said("1")), execution="x", now=9, memory=ConversationMemory()
    )
    assert running.turn is not None
    turn = replace(running.turn, suspended=Suspension("s", (), joined=("2",)))
    joined = replace(changes.accept(running, said("2")), turn=turn)
    after = edits.edit(joined, edited("2", "new"), Buttons(), ENGLISH)
    assert after.edited is not None and after.inbox == joined.inbox


def test_words_are_changed_and_what_came_with_them_is_not() -> None:
    file = encode_blocks([text_block("what stands in the file")])
    waiting = changes.accept(EMPTY, said("1", "read this", blocks=file))
    after = edits.edit(waiting, edited("1", "read that"), Buttons(), ENGLISH)
    assert (after.inbox[0].text, after.inbox[0].blocks) == ("read that", file)
