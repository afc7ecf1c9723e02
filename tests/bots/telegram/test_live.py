"""A growing answer on Telegram: drafts in private chats, messages that grow in groups."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bots.contracts.adapter import Desk, running
from bots.contracts.showing import Leave
from bots.telegram.adapter import TelegramAdapter
from bots.telegram.live import Growing
from core.adapter import Showing
from core.errors import Fenced, StoreUnavailable
from core.messages import Inbound, Outbound, Sender
from playground.telegram import Answer, Chat, Delay, Fault, Person, ResetAfter, Telegram
from tests.bots.telegram.test_adapter import key, make
from tests.core.fakes import FakeClock, settle

LONG = "It was a dark and stormy night, and the rain fell in torrents. "


@pytest.fixture
async def telegram() -> AsyncIterator[Telegram]:
    async with Telegram() as server:
        yield server


class Stage:
    """An adapter, and one live answer after the other."""

    def __init__(self, telegram: Telegram, adapter: TelegramAdapter, clock: FakeClock) -> None:
        self.telegram = telegram
        self.adapter = adapter
        self.clock = clock
        self.leave = Leave()
        self.busy = 0
        request = adapter._bot.request
        request.do_request = self._counted(request.do_request)  # type: ignore[method-assign]

    def _counted(self, function: Any) -> Any:
        async def counted(*arguments: Any, **keywords: Any) -> Any:
            self.busy += 1
            try:
                return await function(*arguments, **keywords)
            finally:
                self.busy -= 1

        return counted

    def live(
        self, place: Person | Chat, shown: tuple[str, ...] = (), showing: Showing | None = None
    ) -> Growing:
        to = key(place)
        inbound = Inbound("7", to, "message", Sender("telegram:1"), "hi", message_id=None)
        live = self.adapter.live(to, inbound, shown, showing or self.leave)
        assert isinstance(live, Growing)
        return live

    async def until(self, done: Any, *, answered: bool = True) -> None:
        """Let time pass until it is so.

        :param answered: and until the adapter has heard what became of its requests
        """
        async with asyncio.timeout(10):
            while not done():
                await settle()
                self.clock.advance(0.1)
                await asyncio.sleep(0.002)
            while answered and self.busy:  # noqa: ASYNC110 (nobody tells)
                await asyncio.sleep(0.002)
            await settle()

    async def passes(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            await settle()
            self.clock.advance(0.1)
            await asyncio.sleep(0.001)

    def methods(self) -> list[str]:
        calls = [call.method for call in self.telegram.calls]
        return [method for method in calls if method != "sendChatAction"]


@asynccontextmanager
async def stage(telegram: Telegram, **more: Any) -> AsyncIterator[Stage]:
    clock = FakeClock(manual=True)
    adapter = make(telegram, clock=clock, **more)
    yield Stage(telegram, adapter, clock)
    await adapter.close()


@pytest.fixture
async def on(telegram: Telegram) -> AsyncIterator[Stage]:
    async with stage(telegram) as found:
        yield found


# ---------------------------------------------------------------------- private chats


async def test_a_draft_grows_and_vanishes(on: Stage) -> None:
    alice = on.telegram.person("Alice")
    live = on.live(alice)
    assert live.show(LONG + "**bo") is False
    await on.until(lambda: on.telegram.draft(alice))
    first = on.telegram.draft(alice)
    assert first is not None and first.text == LONG + "bo"
    assert live.show(LONG + "**bold** and more") is True
    await on.until(lambda: on.methods() == ["sendMessageDraft"] * 2)
    second = on.telegram.draft(alice)
    assert second is not None and second.text == LONG + "bold and more"
    assert second.draft_id == first.draft_id != 0
    assert await live.close() == ()
    assert on.telegram.sent(alice) == []
    assert on.leave.noted == []
    body = on.adapter.render("The end.")[0]
    await on.adapter.send(key(alice), Outbound("p", body), uncertain=False)
    assert on.telegram.draft(alice) is None
    assert on.telegram.texts(alice) == ["The end."]


async def test_the_first_words_wait_for_some_more(on: Stage) -> None:
    alice = on.telegram.person("Alice")
    live = on.live(alice)
    live.show("Hm")
    await on.passes(3)
    assert on.methods() == []
    await live.close()


async def test_nothing_is_sent_twice_but_to_keep_it_from_fading(on: Stage) -> None:
    alice = on.telegram.person("Alice")
    live = on.live(alice)
    live.show(LONG)
    await on.until(lambda: len(on.methods()) == 1)
    live.show(LONG)
    await on.passes(15)
    assert len(on.methods()) <= 2
    before = len(on.methods())
    await on.passes(25)
    assert len(on.methods()) > before
    await live.close()


async def test_of_a_long_answer_its_end_is_seen(on: Stage) -> None:
    alice = on.telegram.person("Alice")
    live = on.live(alice)
    live.show(LONG * 200 + "the very end")
    await on.until(lambda: on.telegram.draft(alice))
    draft = on.telegram.draft(alice)
    assert draft is not None and draft.text.endswith("the very end")
    await live.close()


async def test_a_server_without_drafts_gets_edits_from_then_on(on: Stage) -> None:
    alice, bob = on.telegram.person("Alice"), on.telegram.person("Bob")
    rule = on.telegram.fault("sendMessageDraft", Answer(404, "Not Found"), times=None)
    live = on.live(alice)
    live.show(LONG)
    await on.until(lambda: on.telegram.texts(alice) == [LONG.strip()])
    assert len(await live.close()) == 1
    live = on.live(bob)
    live.show(LONG)
    await on.until(lambda: on.telegram.texts(bob))
    await live.close()
    assert rule.hits == 1


async def test_a_chat_without_drafts_gets_edits_this_time(on: Stage) -> None:
    alice = on.telegram.person("Alice")
    on.telegram.fault("sendMessageDraft", Answer(400, "Bad Request: TEXTDRAFT_PEER_INVALID"))
    live = on.live(alice)
    live.show(LONG)
    await on.until(lambda: on.telegram.texts(alice))
    await live.close()
    live = on.live(alice)
    live.show(LONG)
    await on.until(lambda: on.telegram.draft(alice))
    await live.close()


async def test_what_was_left_as_a_message_is_finished_as_one(on: Stage) -> None:
    alice = on.telegram.person("Alice")
    left = await on.adapter._bot.send_message(alice.id, "It was a da")
    live = on.live(alice, (str(left.message_id),))
    assert live.show(LONG) is True
    await on.until(lambda: on.telegram.texts(alice) == [LONG.strip()])
    assert await live.close() == (str(left.message_id),)
    assert on.leave.noted == []


# ---------------------------------------------------------------------- groups


async def test_a_message_grows_and_is_noted_before_it_does(on: Stage) -> None:
    group = on.telegram.group("Friends")
    live = on.live(group)
    live.show(LONG + "**bo")
    await on.until(lambda: on.telegram.sent(group))
    (sent,) = on.telegram.sent(group)
    assert on.leave.noted == [(str(sent.message_id),)]
    live.show(LONG + "**bold** and more")
    await on.until(lambda: on.telegram.texts(group) == [LONG + "bold and more"])
    assert on.methods() == ["sendMessage", "editMessageText"]
    assert on.leave.lefts == ["edit", "edit"]
    assert await live.close() == (str(sent.message_id),)


async def test_it_rolls_over(on: Stage) -> None:
    group = on.telegram.group("Friends")
    live = on.live(group)
    live.show(LONG * 60)
    await on.until(lambda: len(on.telegram.texts(group)) == 1)
    live.show(LONG * 100)
    await on.until(lambda: len(on.telegram.texts(group)) == 2)
    ids = tuple(str(sent.message_id) for sent in on.telegram.sent(group))
    assert await live.close() == ids
    assert on.leave.noted == [ids[:1], ids]
    assert " ".join(on.telegram.texts(group)) == (LONG * 100).strip()


async def test_nothing_leaves_without_leave(on: Stage) -> None:
    group = on.telegram.group("Friends")
    allowed = False
    live = on.live(group, showing=Leave(lambda leaving: allowed))
    live.show(LONG)
    await on.passes(5)
    assert on.telegram.calls == []
    allowed = True
    await on.until(lambda: on.telegram.texts(group))
    await live.close()


async def test_a_flood_wait_is_told_and_sat_out(on: Stage) -> None:
    group = on.telegram.group("Friends")
    live = on.live(group)
    live.show(LONG)
    await on.until(lambda: on.telegram.texts(group))
    on.telegram.fault("editMessageText", Answer(429, retry_after=9))
    live.show(LONG * 2)
    await on.until(lambda: on.leave.waits)
    assert on.leave.waits == [10.0]
    await on.until(lambda: on.telegram.texts(group) == [(LONG * 2).strip()])
    await live.close()


async def test_a_flood_wait_for_a_new_message(on: Stage) -> None:
    group = on.telegram.group("Friends")
    on.telegram.fault("sendMessage", Answer(429, retry_after=9))
    live = on.live(group)
    live.show(LONG)
    await on.until(lambda: on.leave.waits)
    assert on.telegram.sent(group) == []
    asked = on.clock.monotonic()
    await on.until(lambda: on.telegram.texts(group) == [LONG.strip()])
    assert on.clock.monotonic() - asked >= 9
    assert len(await live.close()) == 1


async def test_closing_in_a_flood_wait(on: Stage) -> None:
    group = on.telegram.group("Friends")
    on.telegram.fault("sendMessage", Answer(429, retry_after=9))
    live = on.live(group)
    live.show(LONG)
    await on.until(lambda: on.leave.waits)
    assert await live.close() == ()
    assert on.telegram.sent(group) == [] and live.standing() == {}


async def test_what_stands_there_is_known_to_the_letter(on: Stage) -> None:
    group = on.telegram.group("Friends")
    live = on.live(group)
    live.show(LONG * 100)
    await on.until(lambda: len(on.telegram.texts(group)) == 2)
    ids = await live.close()
    assert live.standing() == dict(zip(ids, on.adapter.render(LONG * 100), strict=True))


@pytest.mark.parametrize("fault", [ResetAfter(), Delay(0.3), Answer(502, html=True)])
async def test_after_an_edit_of_unknown_outcome_nobody_knows_what_it_says(
    on: Stage, fault: Fault
) -> None:
    group = on.telegram.group("Friends")
    live = on.live(group)
    live.show(LONG)
    await on.until(lambda: on.telegram.texts(group))
    on.telegram.fault("editMessageText", fault)
    live.show(LONG * 2)
    await on.until(lambda: "editMessageText" in on.methods(), answered=False)
    assert len(await live.close()) == 1
    assert live.standing() == {}


async def test_after_an_unknown_outcome_no_more_is_shown(on: Stage) -> None:
    """A second one would be certain, the first only may be there."""
    group = on.telegram.group("Friends")
    on.telegram.fault("sendMessage", ResetAfter())
    live = on.live(group)
    live.show(LONG)
    await on.until(lambda: on.telegram.sent(group))
    live.show(LONG * 2)
    await on.passes(5)
    assert on.methods() == ["sendMessage"]
    assert await live.close() == ()
    assert on.leave.noted == []


async def test_what_is_not_wanted_any_more_is_taken_back(on: Stage) -> None:
    group = on.telegram.group("Friends")
    live = on.live(group, showing=Leave(lambda leaving: True, Fenced("stopped")))
    live.show(LONG)
    await on.until(lambda: on.telegram.sent(group) and not on.telegram.texts(group))
    assert await live.close() == ()


async def test_or_stays_when_it_cannot_be(on: Stage) -> None:
    group = on.telegram.group("Friends")
    on.telegram.fault("deleteMessage", Answer(400, "Bad Request: message can't be deleted"))
    live = on.live(group, showing=Leave(lambda leaving: True, Fenced("stopped")))
    live.show(LONG)
    await on.until(lambda: on.methods() == ["sendMessage", "deleteMessage"])
    assert await live.close() == ()


async def test_what_could_not_be_noted_is_told_at_the_end(
    on: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    group = on.telegram.group("Friends")
    live = on.live(group, showing=Leave(lambda leaving: True, StoreUnavailable("disk full")))
    live.show(LONG)
    await on.until(lambda: on.telegram.texts(group))
    await settle()
    (sent,) = on.telegram.sent(group)
    assert await live.close() == (str(sent.message_id),)
    loud = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert loud == ["telegram.unnoted"]


async def test_closing_waits_for_what_has_left(on: Stage) -> None:
    group = on.telegram.group("Friends")
    on.telegram.fault("sendMessage", Delay(0.3))
    live = on.live(group)
    live.show(LONG)
    await on.until(lambda: on.telegram.calls, answered=False)
    left = await live.close()
    (sent,) = on.telegram.sent(group)
    assert left == (str(sent.message_id),)
    assert on.leave.noted == [left]


async def test_a_penalty_that_cannot_be_noted_holds_all_the_same(on: Stage) -> None:
    class Full(Leave):
        async def later(self, seconds: float) -> None:
            await super().later(seconds)
            raise StoreUnavailable("disk full")

    group = on.telegram.group("Friends")
    live = on.live(group, showing=(leave := Full()))
    live.show(LONG)
    await on.until(lambda: on.telegram.texts(group))
    on.telegram.fault("editMessageText", Answer(429, retry_after=3))
    live.show(LONG * 2)
    await on.until(lambda: on.telegram.texts(group) == [(LONG * 2).strip()])
    assert leave.waits == [4.0]
    await live.close()


async def test_an_edit_that_changes_nothing_is_one(on: Stage) -> None:
    group = on.telegram.group("Friends")
    left = await on.adapter._bot.send_message(group.id, LONG.strip())
    live = on.live(group, (str(left.message_id),))
    live.show(LONG)
    await on.until(lambda: "editMessageText" in on.methods())
    live.show(LONG * 2)
    await on.until(lambda: on.telegram.texts(group) == [(LONG * 2).strip()])
    await live.close()


async def test_only_the_first_message_says_what_it_answers(on: Stage) -> None:
    group, alice = on.telegram.group("Friends"), on.telegram.person("Alice")
    async with running(on.adapter, Desk()):
        await on.telegram.until(lambda: on.telegram.polled)
        asked = on.telegram.message_id(on.telegram.write(alice, "hi", group, mention=True))
    to = key(group)
    inbound = Inbound("7", to, "message", Sender("telegram:1"), "hi", message_id=str(asked))
    live = on.adapter.live(to, inbound, (), on.leave)
    live.show(LONG * 100)
    await on.until(lambda: len(on.telegram.texts(group)) == 2)
    await live.close()
    assert [sent.reply_to for sent in on.telegram.sent(group)] == [asked, None]


# ---------------------------------------------------------------------- as it is wanted


async def test_edits_only(telegram: Telegram) -> None:
    async with stage(telegram, streaming="edit") as on:
        alice = telegram.person("Alice")
        live = on.live(alice)
        live.show(LONG)
        await on.until(lambda: telegram.texts(alice) == [LONG.strip()])
        await live.close()


async def test_typing_until_there_is_something_to_read(on: Stage) -> None:
    alice = on.telegram.person("Alice")
    live = on.live(alice)
    await on.until(lambda: [call.method for call in on.telegram.calls] == ["sendChatAction"])
    live.show(LONG)
    await on.until(lambda: on.telegram.draft(alice))
    before = len(on.telegram.calls)
    await on.passes(10)
    assert [call.method for call in on.telegram.calls[before:]] == []
    await live.close()
