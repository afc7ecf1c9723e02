"""Calls that wait for a person, in a whole bot: over the real core, with buttons and without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest
from msgspec.structs import replace

from core import approvals, phrases
from core.adapter import Accepted, Card, Duplicate, Refused
from core.agent import Agent
from core.answering import WhenBusy
from core.engine import Again, Done
from core.errors import StoreUnavailable, Undeliverable
from core.history import INTERRUPTED
from core.memory import BOT_MEMORY
from core.messages import Outbound, Sender, decode_blocks
from core.model import Request, ToolCall
from core.phrases import ENGLISH, Wording
from core.snapshot import Suspension
from core.tools import Tool, ToolContext, tool
from stores.memory import MemoryStore
from tests.core.fakes import FakeClock, calls, settle
from tests.core.test_conversations import KEY, House, Screen

ADA: Final = Sender("test:ada", "Ada")
BOB: Final = Sender("test:bob", "Bob")
HOUR: Final = 3_600


class Buttons(Screen):
    """A screen whose messages may have buttons and can be edited.

    :param cards: by the message's id, what it says and what its buttons say when pressed
    """

    def __init__(self) -> None:
        super().__init__()
        self.cards: dict[str, list[str]] = {}

    def render_card(self, card: Card) -> str:
        return "¦".join([card.text, *(choice.data for choice in card.choices)])

    async def send(self, key: str, part: Outbound, *, uncertain: bool) -> Any:
        receipt = await super().send(key, part, uncertain=uncertain)
        if "¦" not in (part.body or "") and part.replaces not in self.cards:
            return receipt
        message_id = part.replaces or receipt.message_ids[0]
        self.cards[message_id] = (part.body or "").split("¦")
        return replace(receipt, message_ids=(message_id,))

    def open(self) -> dict[str, list[str]]:
        return {id: card[1:] for id, card in self.cards.items() if len(card) > 1}

    def texts(self) -> list[str]:
        return [card[0] for card in self.cards.values()]


class Desk:
    """Tools that note what they are called with."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, str | None]] = []

        @tool(needs_approval=True)
        async def delete(path: str, context: ToolContext) -> str:
            """Deletes a file."""
            self.ran.append((path, context.sender))
            return f"deleted {path}"

        @tool
        async def look(path: str) -> str:
            """Looks at a file."""
            self.ran.append((path, None))
            return f"saw {path}"

        self.tools: tuple[Tool, ...] = (delete, look)


def delete(path: str = "a.txt", id: str = "c1") -> ToolCall:
    return ToolCall(id, "delete", {"path": path})


def look(path: str = "b.txt", id: str = "c9") -> ToolCall:
    return ToolCall(id, "look", {"path": path})


class Office(House):
    """A bot with tools that need an approval."""

    def __init__(
        self,
        *script: Any,
        buttons: bool = True,
        store: MemoryStore | None = None,
        clock: FakeClock | None = None,
        desk: Desk | None = None,
        when_busy: WhenBusy = "collect",
        approvers: tuple[str, ...] = (),
        tools: Sequence[Tool] = (),
        say: Wording = ENGLISH,
    ) -> None:
        self.desk = desk or Desk()
        super().__init__(
            *script,
            store=store,
            clock=clock,
            when_busy=when_busy,
            agent=Agent(memory=BOT_MEMORY, tools=(*self.desk.tools, *tools)),
            screen=Buttons() if buttons else Screen(),
            approvers=approvers,
            say=say,
        )

    @property
    def buttons(self) -> Buttons:
        assert isinstance(self.screen, Buttons)
        return self.screen

    async def presses(
        self, verb: str = "approve", which: int = 0, sender: Sender = ADA, **fields: Any
    ) -> Any:
        """A button of a card that is still open."""
        message_id, data = list(self.buttons.open().items())[which]
        return await self.sends(data[verb != "approve"], message_id, sender, **fields)

    async def sends(
        self, data: str, message_id: str = "m1", sender: Sender = ADA, **fields: Any
    ) -> Any:
        inbound = self.inbound(data, kind="decision", sender=sender, **fields)
        accepted = await self.conversations.accept(replace(inbound, message_id=message_id))
        if not isinstance(accepted, Refused):
            await self.engine.submit(KEY, inbound.id)
        await settle(200)
        return accepted

    async def suspension(self) -> Suspension | None:
        return approvals.suspended(await self.snapshot())

    def results(self, request: int = -1) -> list[tuple[str, object]]:
        """What the model was told of its calls: the id, and what was said."""
        blocks = decode_blocks(self.model.requests[request].messages[-1].blocks)
        return [
            (str(block["tool_use_id"]), block["content"])
            for block in blocks
            if block["type"] == "tool_result"
        ]


# ---------------------------------------------------------------------- asked and answered


async def test_a_call_waits_for_its_approval_and_runs_once() -> None:
    async with Office(calls(delete()), "It is gone.") as house:
        await house.says("delete a.txt")
        assert house.desk.ran == []
        (card,) = house.buttons.texts()
        assert "**delete**" in card and '"path": "a.txt"' in card
        assert await house.presses() == Accepted()
        assert house.desk.ran == [("a.txt", "test:ada")]
        assert house.results() == [("c1", "deleted a.txt")]
        assert house.screen.shown[-1] == "It is gone."
        assert house.buttons.open() == {}
        assert house.buttons.texts()[0].endswith("Approved by Ada.")
        assert '"path": "a.txt"' in house.buttons.texts()[0]
        snapshot = await house.snapshot()
        assert not snapshot.unfinished and snapshot.usage.input_tokens == 20


async def test_a_declined_call_does_not_run_and_the_model_hears_it() -> None:
    async with Office(calls(delete()), "As you like.") as house:
        await house.says("delete a.txt")
        await house.presses("decline")
        assert house.desk.ran == []
        assert house.results() == [("c1", approvals.DECLINED)]
        assert house.buttons.texts()[0].endswith("Declined by Ada.")
        assert house.screen.shown[-1] == "As you like."


async def test_calls_that_need_nobody_run_first_and_once() -> None:
    async with Office(calls(delete(), look()), "Done.") as house:
        await house.says("go")
        assert house.desk.ran == [("b.txt", None)]
        await house.presses()
        assert house.desk.ran == [("b.txt", None), ("a.txt", "test:ada")]
        assert house.results() == [("c1", "deleted a.txt"), ("c9", "saw b.txt")]


async def test_each_of_several_calls_has_a_card_and_all_are_waited_for() -> None:
    async with Office(calls(delete("a", "c1"), delete("b", "c2")), "Done.") as house:
        await house.says("delete both")
        assert len(house.buttons.open()) == 2
        await house.presses("decline", 1)
        assert len(house.model.requests) == 1
        await house.presses()
        assert house.desk.ran == [("a", "test:ada")]
        assert house.results() == [("c1", "deleted a"), ("c2", approvals.DECLINED)]


async def test_what_follows_may_need_an_approval_again() -> None:
    script = calls(delete("a", "c1")), calls(delete("b", "c2")), "Done."
    async with Office(*script) as house:
        await house.says("delete both")
        await house.presses()
        await house.presses()
        assert [path for path, _ in house.desk.ran] == ["a", "b"]
        assert house.screen.shown[-1] == "Done."


async def test_while_it_waits_nothing_runs_and_nothing_is_asked() -> None:
    async with Office(calls(delete()), "Done.") as house:
        await house.says("go")
        saved = (await house.snapshot()).revision
        assert not house.conversations._busy and house.engine.depth() == 0
        assert await house.conversations.work(KEY) == Again(HOUR)
        house.clock.advance(HOUR / 2)
        await settle(100)
        assert await house.conversations.work(KEY) == Again(HOUR / 2)
        assert (await house.snapshot()).revision == saved
        assert len(house.model.requests) == 1


async def test_an_approval_that_nobody_gives_is_declined_in_the_end() -> None:
    async with Office(calls(delete()), "Too late.") as house:
        await house.says("go")
        house.clock.advance(HOUR)
        await settle(200)
        assert house.desk.ran == []
        assert house.results() == [
            ("c1", "This call was not run, because nobody approved it in time.")
        ]
        assert house.buttons.texts()[0].endswith(phrases.EXPIRED)
        assert house.screen.shown[-1] == "Too late."
        assert await house.conversations.work(KEY) == Done()


async def test_the_bot_asks_in_its_own_words() -> None:
    say = Wording(
        {
            "MAY_I": "Darf ich **{tool}**?",
            "OPEN_FOR": "Noch {time}.",
            "ONE_HOUR": "eine Stunde",
            "APPROVE": "Ja",
            "APPROVED": "Erlaubt von {person}.",
            "NOT_YOURS": "Das ist nicht deine Sache.",
            "NOT_OPEN": "Vorbei.",
        }
    )
    async with Office(calls(delete()), "Done.", say=say) as house:
        await house.says("delete a.txt")
        (card,) = house.buttons.texts()
        assert card.startswith("Darf ich **delete**?") and card.endswith("Noch eine Stunde.")
        assert await house.presses(sender=BOB) == Refused(
            "Das ist nicht deine Sache.", private=True
        )
        data = next(iter(house.buttons.open().values()))[0]
        await house.presses()
        assert house.buttons.texts()[0].endswith("Erlaubt von Ada.")
        assert await house.sends(data) == Refused("Vorbei.", private=True, over=True)


# ---------------------------------------------------------------------- who decides


async def test_somebody_else_cannot_decide_and_only_they_hear_it() -> None:
    async with Office(calls(delete()), "Done.") as house:
        await house.says("go", group=True)
        assert "Only Ada may decide." in house.buttons.texts()[0]
        shown = list(house.screen.shown)
        assert await house.presses(sender=BOB) == Refused(phrases.NOT_YOURS, private=True)
        assert house.screen.shown == shown and house.desk.ran == []
        assert await house.suspension() is not None
        await house.presses()
        assert house.desk.ran == [("a.txt", "test:ada")]


async def test_whoever_is_named_may_decide_and_nobody_else() -> None:
    async with Office(calls(delete()), "Done.", approvers=("test:bob",)) as house:
        await house.says("go", group=True)
        assert "Only" not in house.buttons.texts()[0]
        assert await house.presses() == Refused(phrases.NOT_YOURS, private=True)
        assert await house.presses(sender=BOB) == Accepted()
        # It runs for who asked, not for who allowed it.
        assert house.desk.ran == [("a.txt", "test:ada")]


async def test_where_nobody_is_who_may_decide_nothing_is_asked() -> None:
    async with Office(calls(delete()), "I may not.", approvers=("test:bob",)) as house:
        await house.says("go")
        assert house.buttons.cards == {}
        assert house.results() == [("c1", f"This call was {approvals.NOBODY_HERE}.")]
        assert house.screen.shown == ["I may not."]


# ---------------------------------------------------------------------- once only


async def test_pressed_twice_runs_once() -> None:
    async with Office(calls(delete()), "Done.") as house:
        await house.says("go")
        (data,) = house.buttons.open().values()
        await house.sends(data[0])
        assert await house.sends(data[0]) == Refused(phrases.NOT_OPEN, private=True, over=True)
        assert await house.sends(data[1]) == Refused(phrases.NOT_OPEN, private=True, over=True)
        assert len(house.desk.ran) == 1 and house.screen.shown[-1] == "Done."


async def test_delivered_twice_is_known() -> None:
    async with Office(calls(delete()), "Done.") as house:
        await house.says("go")
        (data,) = house.buttons.open().values()
        assert await house.sends(data[0], id="u9") == Accepted()
        assert await house.sends(data[0], id="u9") == Duplicate()
        assert len(house.desk.ran) == 1


async def test_pressed_after_it_expired_does_nothing() -> None:
    async with Office(calls(delete()), "Too late.") as house:
        await house.says("go")
        (data,) = house.buttons.open().values()
        house.clock.advance(HOUR)
        await settle(200)
        refused = await house.sends(data[0])
        assert isinstance(refused, Refused) and refused.over
        assert house.desk.ran == []


@pytest.mark.parametrize("data", ["", "+", "+xyz.0.1", f"+{'0' * 16}.0.{'0' * 12}"])
async def test_a_button_that_is_none_of_ours_does_nothing(data: str) -> None:
    async with Office(calls(delete())) as house:
        assert isinstance(await house.sends(data), Refused)
        assert house.store._table.sessions == {}
        await house.says("go")
        assert isinstance(await house.sends(data), Refused)
        assert house.desk.ran == []


async def test_it_is_good_for_the_arguments_that_were_shown() -> None:
    async with Office(calls(delete()), "Done.") as house:
        await house.says("go")
        (data,) = house.buttons.open().values()
        suspension, index, digest = data[0][1:].split(".")
        for forged in (
            f"+{suspension}.{index}.{'0' * 12}",
            f"+{suspension}.1.{digest}",
            f"+{'f' * 16}.{index}.{digest}",
        ):
            assert isinstance(await house.sends(forged), Refused)
        assert house.desk.ran == []


# ---------------------------------------------------------------------- something else comes


async def test_who_goes_on_declines_and_their_message_joins_the_turn() -> None:
    async with Office(calls(delete(), look()), "Then not.") as house:
        await house.says("delete it")
        await house.says("no, wait, what is in it?")
        assert house.desk.ran == [("b.txt", None)]
        assert house.results() == [
            ("c1", f"This call was {approvals.WENT_ON}."),
            ("c9", "saw b.txt"),
        ]
        last = decode_blocks(house.model.requests[-1].messages[-1].blocks)
        assert last[-1] == {"type": "text", "text": "no, wait, what is in it?"}
        assert house.buttons.texts()[0].endswith("Not run: Ada went on.")
        assert house.screen.shown[-1] == "Then not."
        snapshot = await house.snapshot()
        assert not snapshot.unfinished
        assert snapshot.messages[-2].sender == "test:ada"
        assert snapshot.messages[-2].message_ids == ("q2",)


async def test_others_wait_until_it_is_decided() -> None:
    async with Office(calls(delete()), "Done.", "Hello Bob.") as house:
        await house.says("go", group=True)
        await house.says("hello", group=True, sender=BOB)
        assert len(house.model.requests) == 1
        assert await house.suspension() is not None
        await house.presses()
        assert house.screen.shown[-2:] == ["Done.", "Hello Bob."]


@pytest.mark.parametrize("when_busy", ["collect", "queue", "interrupt"])
async def test_others_wait_whatever_is_done_with_a_busy_chat(when_busy: WhenBusy) -> None:
    async with Office(calls(delete()), "Done.", "Hello Bob.", when_busy=when_busy) as house:
        await house.says("go", group=True)
        await house.says("hello", group=True, sender=BOB)
        assert await house.suspension() is not None and len(house.model.requests) == 1
        await house.presses()
        assert len(house.desk.ran) == 1
        assert not (await house.snapshot()).unfinished


async def test_what_was_allowed_before_somebody_went_on_runs() -> None:
    async with Office(calls(delete("a", "c1"), delete("b", "c2")), "Done.") as house:
        await house.says("delete both")
        await house.presses()
        await house.says("and the other one stays")
        assert [path for path, _ in house.desk.ran] == ["a"]
        assert house.results() == [
            ("c1", "deleted a"),
            ("c2", f"This call was {approvals.WENT_ON}."),
        ]


@pytest.mark.parametrize("command", ["/reset", "/stop"])
async def test_a_command_that_ends_it_voids_the_question(command: str) -> None:
    async with Office(calls(delete()), "New.") as house:
        await house.says("go")
        (data,) = house.buttons.open().values()
        await house.says(command)
        assert house.buttons.texts() == [phrases.NOT_OPEN]
        assert not (await house.snapshot()).unfinished
        assert isinstance(await house.sends(data[0]), Refused)
        assert house.desk.ran == []
        assert await house.conversations.work(KEY) == Done()


async def test_a_reset_voids_a_card_whose_outcome_was_still_to_be_shown() -> None:
    async with Office(calls(delete("a", "c1"), delete("b", "c2")), "New.") as house:
        await house.says("delete both")
        assert house.running is not None
        house.running.cancel()
        await settle()
        await house.presses()
        await house.accept("/reset")
        await house.__aenter__()
        await settle(200)
        assert house.buttons.texts() == [phrases.NOT_OPEN] * 2


async def test_a_command_that_ends_nothing_leaves_the_question_open() -> None:
    async with Office(calls(delete()), "Done.") as house:
        await house.says("go")
        await house.says("/help")
        assert len(house.buttons.open()) == 1
        await house.presses()
        assert len(house.desk.ran) == 1


# ---------------------------------------------------------------------- cards and their sending


async def test_a_question_that_cannot_be_shown_is_declined() -> None:
    async with Office(calls(delete()), "I could not ask.") as house:
        house.screen.script = [Undeliverable("too odd")]
        await house.says("go")
        assert house.results() == [("c1", f"This call was {approvals.NOT_SHOWN}.")]
        assert house.screen.shown == ["I could not ask."]


async def test_a_card_that_has_not_left_is_not_sent_any_more() -> None:
    script = calls(delete("a", "c1"), delete("b", "c2")), "Then not."
    async with Office(*script) as house:

        async def before_the_second() -> None:
            await house.accept("forget it")

        house.screen.script = [before_the_second]
        await house.says("delete both")
        assert [card for card in house.buttons.texts()] == [house.buttons.texts()[0]], (
            "the second card was not sent"
        )
        assert house.buttons.texts()[0].endswith("Not run: Ada went on."), "edited when it had left"
        assert house.screen.shown[-1] == "Then not." and house.desk.ran == []


async def test_a_card_that_came_twice_is_edited_where_it_was_pressed() -> None:
    async with Office(calls(delete()), "Done.") as house:
        await house.says("go")
        (data,) = house.buttons.open().values()
        house.buttons.cards["m99"] = ["the same once more", *data]
        await house.sends(data[0], "m99")
        assert house.buttons.open() == {}
        assert len(house.desk.ran) == 1


# ---------------------------------------------------------------------- text only


async def test_without_buttons_it_is_asked_and_answered_in_words() -> None:
    async with Office(calls(delete()), "Done.", buttons=False) as house:
        await house.says("go")
        assert house.screen.shown[0].endswith(phrases.BY_TEXT)
        await house.says("/approve")
        assert house.screen.shown[1:] == ["Approved by Ada.", "Done."]
        assert house.desk.ran == [("a.txt", "test:ada")]


async def test_a_reason_reaches_the_model() -> None:
    async with Office(calls(delete()), "I see.", buttons=False) as house:
        await house.says("go")
        await house.says("/decline 2 reasons: it is mine, and I like it")
        reason = "2 reasons: it is mine, and I like it"
        assert house.results() == [("c1", approvals.DECLINED_BECAUSE.format(reason=reason))]


async def test_what_is_brought_again_while_it_is_asked_decides_nothing() -> None:
    async with Office(calls(delete()), "Done.") as house:
        await house.says("go", "u77")
        assert await house.says("go", "u77") == Duplicate()
        assert house.buttons.open() and await house.suspension() is not None
        await house.presses()
        assert house.desk.ran == [("a.txt", "test:ada")]


async def test_without_a_reason_the_model_is_told_just_that() -> None:
    async with Office(calls(delete()), "I see.", buttons=False) as house:
        await house.says("go")
        await house.says("/decline")
        assert house.results() == [("c1", approvals.said_of(None))]


@pytest.mark.parametrize("said", ["/decline 2", "/decline"])
async def test_of_several_none_needs_a_reason(said: str) -> None:
    script = calls(delete("a", "c1"), delete("b", "c2")), "Done."
    async with Office(*script, buttons=False) as house:
        await house.says("go")
        await house.says("/approve 1")
        await house.says(said)
        assert house.results()[1] == ("c2", approvals.said_of(None))


async def test_the_last_of_several_needs_no_number_and_may_have_a_reason() -> None:
    script = calls(delete("a", "c1"), delete("b", "c2")), "Done."
    async with Office(*script, buttons=False) as house:
        await house.says("go")
        await house.says("/approve 1")
        await house.says("/decline keep it")
        because = approvals.DECLINED_BECAUSE.format(reason="keep it")
        assert house.results()[1] == ("c2", because)


async def test_of_several_one_says_which() -> None:
    script = calls(delete("a", "c1"), delete("b", "c2"), delete("c", "c3")), "Done."
    async with Office(*script, buttons=False) as house:
        await house.says("go")
        assert phrases.BY_NUMBER.format(number=2) in house.screen.shown[1]
        await house.says("/approve")
        assert house.screen.shown[-1] == phrases.WHICH.format(count=3)
        await house.says("/approve 2")
        await house.says("/approve 2")
        assert house.screen.shown[-1] == phrases.WHICH.format(count=2)
        await house.says("/decline 1 keep it")
        await house.says("/approve")
        assert [path for path, _ in house.desk.ran] == ["b", "c"]
        assert house.results()[0] == ("c1", approvals.DECLINED_BECAUSE.format(reason="keep it"))


@pytest.mark.parametrize(("said", "ran"), [("/approve all", ["a", "b"]), ("/decline no", [])])
async def test_all_at_once(said: str, ran: list[str]) -> None:
    async with Office(calls(delete("a", "c1"), delete("b", "c2")), "Done.", buttons=False) as house:
        await house.says("go")
        await house.says(said)
        assert [path for path, _ in house.desk.ran] == ran
        assert house.screen.shown[-1] == "Done."


async def test_a_command_edits_the_card_too() -> None:
    async with Office(calls(delete()), "Done.") as house:
        await house.says("go")
        await house.says("/approve")
        assert house.buttons.texts()[0].endswith("Approved by Ada.")
        assert house.screen.shown[-2:] == ["Approved by Ada.", "Done."]


async def test_commands_about_nothing_say_so() -> None:
    async with Office("Hi.", buttons=False) as house:
        assert await house.says("/approve") == Refused(phrases.NOT_OPEN, private=True, over=True)
        await house.says("hello")
        await house.says("/decline")
        assert house.screen.shown[-1] == phrases.NOTHING_ASKED


async def test_a_command_of_somebody_else_is_refused() -> None:
    async with Office(calls(delete()), "Done.", buttons=False) as house:
        await house.says("go", group=True)
        said = await house.says("/approve", sender=BOB, group=True)
        assert said == Refused(phrases.NOT_YOURS, private=True)
        assert house.desk.ran == []


# ---------------------------------------------------------------------- after a restart


async def test_after_a_restart_it_waits_on_and_the_press_runs_it_once() -> None:
    store, clock = MemoryStore(), FakeClock(manual=True)
    async with Office(calls(delete(), look()), store=store, clock=clock) as first:
        await first.says("go")
        (data,) = first.buttons.open().values()
    async with Office("Done.", store=store, clock=clock) as second:
        await settle(200)
        assert second.model.requests == [] and second.screen.shown == []
        assert await second.sends(data[0], "m1", id="u50") == Accepted()
        assert second.desk.ran == [("a.txt", "test:ada")]
        assert second.results() == [("c1", "deleted a.txt"), ("c9", "saw b.txt")]
        assert second.screen.shown[-1] == "Done."


async def test_after_a_restart_it_expires_when_it_would_have() -> None:
    store, clock = MemoryStore(), FakeClock(manual=True)
    async with Office(calls(delete()), store=store, clock=clock) as first:
        await first.says("go")
    clock.advance(HOUR - 10)
    async with Office("Too late.", store=store, clock=clock) as second:
        await settle(200)
        assert second.model.requests == []
        clock.advance(10)
        await settle(200)
        assert second.screen.shown[-1] == "Too late." and second.desk.ran == []


@pytest.mark.parametrize("repeatable", [False, True])
async def test_a_call_that_had_started_when_we_died_is_told_as_any_other(repeatable: bool) -> None:
    ran: list[str] = []

    class Killed(BaseException):
        """The process is gone, before the result is saved."""

    @tool(needs_approval=True, repeatable=repeatable)
    async def send(to: str) -> str:
        """Sends."""
        ran.append(to)
        if len(ran) == 1:
            raise Killed
        return "sent"

    store = MemoryStore()
    asking = calls(ToolCall("c1", "send", {"to": "x"}))
    async with Office(asking, store=store, tools=(send,)) as first:
        await first.says("go")
        (data,) = first.buttons.open().values()
        await first.sends(data[0])
        assert first.running is not None
        with pytest.raises(Killed):
            await first.running
    async with Office("Done.", store=store, tools=(send,)) as second:
        await settle(300)
        assert ran == (["x", "x"] if repeatable else ["x"])
        assert second.results() == [("c1", "sent" if repeatable else INTERRUPTED)]
        assert second.screen.shown[-1] == "Done."


@pytest.mark.parametrize("after", [False, True])
async def test_whichever_save_fails_it_runs_once_at_most(after: bool) -> None:
    """Before the save took effect, or after."""

    def answer(request: Request) -> Any:
        told = b"tool_result" in bytes(request.messages[-1].blocks)
        return "Done." if told else calls(delete(), look())

    for number in range(1, 40):
        store = Failing(number, after)
        async with Office(*[answer] * 9, store=store) as house:
            await _insist(house, house.inbound("go"))
            await _until(house, lambda: bool(house.buttons.open()))
            data = list(house.buttons.open().values())[-1]
            pressed = replace(house.inbound(data[0], kind="decision"), message_id="m1")
            await _insist(house, pressed)
            await _until(house, lambda: house.screen.shown[-1] == "Done.")
            told = dict(house.results())
            ran = house.desk.ran.count(("a.txt", "test:ada"))
            # Interrupted: it may have run, but nobody knows what came of it.
            assert (told["c1"], ran) in {("deleted a.txt", 1), (INTERRUPTED, 1), (INTERRUPTED, 0)}
            await _until(house, lambda: not house.store._table.unfinished)
        if store.left > 0:
            assert number > 8
            return
    raise AssertionError("there is no end of it")


async def _until(house: Office, reached: Callable[[], bool]) -> None:
    for _ in range(20):
        await settle(60)
        if reached():
            return
        house.clock.advance(6)
    raise AssertionError("never")


class Failing(MemoryStore):
    """Its save number so many fails once."""

    def __init__(self, number: int, after: bool) -> None:
        super().__init__()
        self.left = number
        self._after = after

    async def save(self, ref: Any, snapshot: Any, *, replaces: int | None) -> None:
        self.left -= 1
        if self.left == 0 and not self._after:
            raise StoreUnavailable("full")
        await super().save(ref, snapshot, replaces=replaces)
        if self.left == 0:
            raise StoreUnavailable("full")


async def _insist(house: Office, inbound: Any) -> None:
    """As a platform does: again until it is taken."""
    while True:
        try:
            await house.conversations.accept(inbound)
        except StoreUnavailable:
            continue
        await house.engine.submit(KEY, inbound.id)
        await settle(100)
        return


@pytest.mark.parametrize(
    ("needs", "asked"), [(True, True), (lambda given: given["path"] == "/", True), (False, False)]
)
def test_a_tool_that_checks_its_arguments_itself_is_asked_about_all_the_same(
    needs: Any, asked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """An MCP server's, say."""
    made = replace(tool(name="erase")(lambda: None), arguments=None, needs_approval=needs)
    call = ToolCall(id="c1", name="erase", input={"path": "/"})
    assert approvals.needed(made, call) is asked
    assert "unclear" not in caplog.text
