"""The Telegram adapter, against the Bot API on loopback: what it sends, and what an error means."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Final
from unittest.mock import Mock

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
    TimedOut,
)

from bots.contracts.adapter import AdapterContract, Desk, running
from bots.contracts.showing import Leave
from bots.telegram.adapter import MAX_DECLINES, TelegramAdapter
from bots.telegram.failures import failure, why
from bots.telegram.live import Typing
from bots.telegram.received import Me
from core.adapter import Adapter, Refused
from core.errors import (
    Gone,
    Moved,
    OutcomeUnknown,
    PlatformRefused,
    SendError,
    TryLater,
    Undeliverable,
)
from core.messages import Inbound, Outbound, Sender
from playground.telegram import (
    Answer,
    Chat,
    Delay,
    Fault,
    GarbageBody,
    Person,
    ResetAfter,
    ResetBefore,
    Telegram,
)
from tests.core.fakes import FakeClock, settle

_KEY: Final = ConnectionKey("127.0.0.1", 1, False, True, None, None, None)
HELLO = json.dumps({"text": "hello"})
BOLD = json.dumps({"text": "hello", "entities": [{"type": "bold", "offset": 0, "length": 5}]})


@pytest.fixture
async def telegram() -> AsyncIterator[Telegram]:
    async with Telegram() as server:
        yield server


@pytest.fixture
async def adapter(telegram: Telegram) -> AsyncIterator[TelegramAdapter]:
    adapter = make(telegram)
    yield adapter
    await adapter.close()


def make(telegram: Telegram, **more: Any) -> TelegramAdapter:
    settings: dict[str, Any] = {"base_url": telegram.url, "clock": FakeClock(), "poll_timeout": 5}
    return TelegramAdapter(telegram.token, **settings | more)


def key(place: Person | Chat, thread: int | None = None) -> str:
    if thread is None:
        return f"telegram-chat:{place.id}"
    return f"telegram-topic:{place.id}/{thread}"


async def send(adapter: TelegramAdapter, to: str, body: str | None = HELLO, **more: Any) -> Any:
    receipt = await adapter.send(to, Outbound("part", body, **more), uncertain=False)
    return receipt.message_ids


class TestContract(AdapterContract):
    @pytest.fixture
    async def adapter(self) -> AsyncIterator[Adapter]:
        async with Telegram() as self.server:
            self.alice = self.server.person("Alice")
            adapter = make(self.server)
            yield adapter
            await adapter.close()

    async def say(self, text: str) -> None:
        self.server.write(self.alice, text)

    async def screen(self) -> list[str]:
        return self.server.texts(self.alice)

    async def files(self) -> dict[str, bytes]:
        return self.server.files(self.alice)

    async def press(self, label: str) -> None:
        assert self.server.choose(self.alice, label), "the bot does not ask for presses"

    async def labels(self) -> list[str]:
        return [label for _, labels in self.server.buttons(self.alice) for label in labels]


class TestScopesContract(TestContract):
    """The same in a topic of a group where each person has a conversation of their own."""

    @pytest.fixture
    async def adapter(self) -> AsyncIterator[Adapter]:
        async with Telegram() as self.server:
            self.alice = self.server.person("Alice")
            self.place = self.server.supergroup("Friends", forum=True)
            self.thread = self.place.topic("Cats")
            adapter = make(self.server, scope="user")
            yield adapter
            await adapter.close()

    async def say(self, text: str) -> None:
        self.server.write(self.alice, text, self.place, thread=self.thread, mention=True)

    async def screen(self) -> list[str]:
        return self.server.texts(self.place)

    async def press(self, label: str) -> None:
        assert self.server.choose(self.alice, label, self.place)

    async def labels(self) -> list[str]:
        return [label for _, labels in self.server.buttons(self.place) for label in labels]

    async def files(self) -> dict[str, bytes]:
        return self.server.files(self.place)


class TestSending:
    async def test_entities_and_no_preview(
        self, telegram: Telegram, adapter: TelegramAdapter
    ) -> None:
        alice = telegram.person("Alice")
        (body,) = adapter.render("see **this**, [here](https://example.org)")
        await send(adapter, key(alice), body)
        (sent,) = telegram.sent(alice)
        assert [entity["type"] for entity in sent.entities][:2] == ["bold", "text_link"]
        assert telegram.calls[-1].params["link_preview_options"] == {"is_disabled": True}

    async def test_a_reply_even_to_what_is_gone(
        self, telegram: Telegram, adapter: TelegramAdapter
    ) -> None:
        alice, group = telegram.person("Alice"), telegram.group("Group")
        asked = telegram.message_id(telegram.write(alice, "question", group))
        await send(adapter, key(group), reply_to=str(asked))
        await send(adapter, key(group), reply_to="999999")
        await send(adapter, key(group), reply_to="not a number")
        assert [message.reply_to for message in telegram.sent(group)] == [asked, None, None]

    async def test_in_a_private_chat_nothing_is_marked_as_a_reply(
        self, telegram: Telegram, adapter: TelegramAdapter
    ) -> None:
        alice = telegram.person("Alice")
        asked = telegram.message_id(telegram.write(alice, "question"))
        await send(adapter, key(alice), reply_to=str(asked))
        await send(adapter, key(alice), reply_to=str(asked), replaces="999999")
        assert [message.reply_to for message in telegram.sent(alice)] == [None, None]

    async def test_a_topic(self, telegram: Telegram, adapter: TelegramAdapter) -> None:
        forum = telegram.supergroup("Forum", forum=True)
        thread = forum.topic("Cats")
        await send(adapter, key(forum, thread))
        await send(adapter, f"telegram-user:{forum.id}/{thread}/42")
        await send(adapter, key(forum))
        assert [message.thread for message in telegram.sent(forum)] == [thread, thread, None]

    async def test_a_topic_that_is_gone_then_the_chat(
        self, telegram: Telegram, adapter: TelegramAdapter
    ) -> None:
        forum = telegram.supergroup("Forum", forum=True)
        thread = forum.topic("Cats")
        forum.remove_topic(thread)
        await send(adapter, key(forum, thread), BOLD)
        (sent,) = telegram.sent(forum)
        assert (sent.thread, len(sent.entities)) == (None, 1)

    async def test_entities_that_are_refused_go(
        self, telegram: Telegram, adapter: TelegramAdapter
    ) -> None:
        alice = telegram.person("Alice")
        telegram.fault("sendMessage", Answer(400, "Bad Request: can't parse entities: oh"))
        await send(adapter, key(alice), BOLD)
        (sent,) = telegram.sent(alice)
        assert (sent.text, sent.entities) == ("hello", ())

    async def test_edit(self, telegram: Telegram, adapter: TelegramAdapter) -> None:
        alice = telegram.person("Alice")
        (first,) = await send(adapter, key(alice))
        changed = json.dumps({"text": "good day"})
        assert await send(adapter, key(alice), changed, replaces=first) == (first,)
        assert await send(adapter, key(alice), changed, replaces=first) == (first,)
        telegram.fault("editMessageText", Answer(400, "Bad Request: can't parse entities"))
        assert await send(adapter, key(alice), BOLD, replaces=first) == (first,)
        assert telegram.texts(alice) == ["hello"]

    async def test_what_cannot_be_edited_is_sent(
        self, telegram: Telegram, adapter: TelegramAdapter
    ) -> None:
        alice = telegram.person("Alice")
        foreign = telegram.message_id(telegram.write(alice, "mine"))
        for replaces in ("999999", str(foreign)):
            (new,) = await send(adapter, key(alice), replaces=replaces)
            assert new != replaces
        assert telegram.texts(alice) == ["hello", "hello"]

    async def test_delete(self, telegram: Telegram, adapter: TelegramAdapter) -> None:
        alice = telegram.person("Alice")
        (first,) = await send(adapter, key(alice))
        assert await send(adapter, key(alice), None, replaces=first) == ()
        assert await send(adapter, key(alice), None, replaces=first) == ()
        assert await send(adapter, key(alice), None) == ()
        assert telegram.texts(alice) == []

    async def test_another_account_is_another_bot(self, telegram: Telegram) -> None:
        adapter = make(telegram, account="support")
        alice = telegram.person("Alice")
        assert adapter.name == "telegram@support"
        assert not adapter.serves(key(alice))
        with pytest.raises(Undeliverable):
            await send(adapter, key(alice))
        await send(adapter, f"telegram-chat@support:{alice.id}")
        assert telegram.texts(alice) == ["hello"]
        await adapter.close()

    @pytest.mark.parametrize(
        "body", ["", "no json", "[]", '{"text": 1}', '{"text":"a","entities":[{}]}']
    )
    async def test_a_body_that_is_none(
        self, telegram: Telegram, adapter: TelegramAdapter, body: str
    ) -> None:
        with pytest.raises(Undeliverable):
            await send(adapter, key(telegram.person("Alice")), body)
        assert telegram.calls == []

    async def test_200_chats_at_once(self, telegram: Telegram, adapter: TelegramAdapter) -> None:
        people = [telegram.person(f"P{number}") for number in range(200)]
        await asyncio.gather(*(send(adapter, key(person)) for person in people))
        assert all(telegram.texts(person) == ["hello"] for person in people)


FAULTS: list[tuple[Fault, type[SendError], float | None]] = [
    (Answer(429, "Too Many Requests: retry after 7", retry_after=7), TryLater, 7.5),
    (Answer(429), TryLater, 5),
    (Answer(403, "Forbidden: bot was blocked by the user"), Gone, None),
    (Answer(403, "Forbidden: user is deactivated"), Gone, None),
    (Answer(400, "Bad Request: chat not found"), Gone, None),
    (Answer(400, "Bad Request: user is deactivated"), Gone, None),
    (Answer(400, "Bad Request: CHAT_WRITE_FORBIDDEN"), Gone, None),
    (Answer(400, "Bad Request: not enough rights to send text messages to the chat"), Gone, None),
    (Answer(400, "Bad Request: bot was kicked from the group chat"), Gone, None),
    (Answer(400, "Bad Request: message thread not found"), Gone, None),
    (Answer(400, "Bad Request: TOPIC_DELETED"), Gone, None),
    (Answer(400, "Bad Request: message is too long"), Undeliverable, None),
    (Answer(400, "Bad Request: can't parse entities: oh"), Undeliverable, None),
    (Answer(413, "Request Entity Too Large"), Undeliverable, None),
    (Answer(401, "Unauthorized"), TryLater, 30),
    (Answer(404, "Not Found"), TryLater, 30),
    (Answer(409, "Conflict: something"), TryLater, 30),
    (Answer(500, "Internal Server Error"), OutcomeUnknown, None),
    (Answer(502, html=True), OutcomeUnknown, None),
    (Answer(503), OutcomeUnknown, None),
    (Answer(504, html=True), OutcomeUnknown, None),
    (ResetBefore(), OutcomeUnknown, None),
    (ResetAfter(), OutcomeUnknown, None),
    (GarbageBody(), OutcomeUnknown, None),
    (GarbageBody("{}"), OutcomeUnknown, None),
    (GarbageBody('{"ok":true,"result":"what"}'), OutcomeUnknown, None),
    (GarbageBody("[" * 100_000), OutcomeUnknown, None),
    (Delay(30.0, before=True), OutcomeUnknown, None),
]


class TestErrors:
    @pytest.mark.parametrize(
        ("fault", "expected", "seconds"), FAULTS, ids=lambda value: str(value)[:70]
    )
    async def test_what_a_fault_means(
        self,
        telegram: Telegram,
        fault: Fault,
        expected: type[SendError],
        seconds: float | None,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        adapter = make(telegram, send_timeout=0.1)
        alice = telegram.person("Alice")
        telegram.fault("sendMessage", fault, times=None)
        with pytest.raises(SendError) as caught:
            await send(adapter, key(alice), BOLD)
        assert type(caught.value) is expected
        if isinstance(caught.value, TryLater):
            assert caught.value.seconds == seconds
        assert telegram.token not in str(caught.value)
        assert "hello" not in str(caught.value) + caplog.text
        await adapter.close()

    async def test_a_server_that_is_not_there(self, telegram: Telegram) -> None:
        adapter = make(telegram, base_url="http://127.0.0.1:9")
        with pytest.raises(TryLater) as caught:
            await send(adapter, "telegram-chat:1")
        assert caught.value.seconds == 1
        await adapter.close()

    async def test_text_that_no_encoder_takes(
        self, telegram: Telegram, adapter: TelegramAdapter
    ) -> None:
        with pytest.raises(Undeliverable):
            await send(adapter, key(telegram.person("Alice")), '{"text": "secret \\ud800"}')

    async def test_blocked(self, telegram: Telegram, adapter: TelegramAdapter) -> None:
        alice = telegram.person("Alice")
        telegram.block(alice)
        with pytest.raises(Gone):
            await send(adapter, key(alice))

    @pytest.mark.parametrize("scope", ["chat", "user"])
    async def test_migrated(self, telegram: Telegram, adapter: TelegramAdapter, scope: str) -> None:
        group = telegram.group("Group")
        new = group.migrate()
        with pytest.raises(Moved) as caught:
            await send(adapter, f"telegram-{scope}:{group.id}" + ("/42" if scope == "user" else ""))
        assert caught.value.old == f"telegram-{scope}:{group.id}"
        assert caught.value.new == f"telegram-{scope}:{new.id}"

    @pytest.mark.parametrize(
        ("cause", "expected"),
        [
            (aiohttp.ConnectionTimeoutError(), TryLater),
            (aiohttp.ClientConnectorError(_KEY, OSError()), TryLater),
            (aiohttp.ClientConnectorDNSError(_KEY, OSError()), TryLater),
            (aiohttp.ClientProxyConnectionError(_KEY, OSError()), TryLater),
            (aiohttp.ClientHttpProxyError(Mock(), ()), TryLater),
            (aiohttp.SocketTimeoutError(), OutcomeUnknown),
            (aiohttp.ServerDisconnectedError(), OutcomeUnknown),
            (aiohttp.ClientOSError(), OutcomeUnknown),
            (aiohttp.ClientPayloadError(), OutcomeUnknown),
            (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no"), Undeliverable),
            (RuntimeError("what"), OutcomeUnknown),
        ],
        ids=lambda value: getattr(value, "__name__", type(value).__name__),
    )
    def test_whether_it_left(self, cause: Exception, expected: type[SendError]) -> None:
        error = TimedOut() if isinstance(cause, TimeoutError) else NetworkError("oh")
        error.__cause__ = cause
        assert type(failure(error, "telegram-chat:1")) is expected

    @pytest.mark.parametrize(
        ("error", "expected"),
        [
            (ChatMigrated(-100), Moved),
            (RetryAfter(timedelta(seconds=2)), TryLater),
            (Forbidden("oh"), Gone),
            (BadRequest("oh"), Undeliverable),
            (InvalidToken(), TryLater),
            (Conflict("oh"), TryLater),
            (NetworkError("oh"), OutcomeUnknown),
            (TelegramError("Invalid server response"), OutcomeUnknown),
            (KeyError("result"), OutcomeUnknown),
        ],
    )
    def test_by_type(self, error: Exception, expected: type[SendError]) -> None:
        assert type(failure(error, "telegram-chat:-5")) is expected

    @pytest.mark.parametrize("setting", ["0", "1"])
    @pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
    def test_a_flood_penalty_in_both_forms(
        self, monkeypatch: pytest.MonkeyPatch, setting: str
    ) -> None:
        monkeypatch.setitem(os.environ, "PTB_TIMEDELTA", setting)
        later = failure(RetryAfter(3), "telegram-chat:1")
        assert isinstance(later, TryLater)
        assert later.seconds == 3.5

    def test_why_quotes_no_answer(self) -> None:
        error = NetworkError("Bad Gateway (502). Parsing the server response b'/bot1:A' failed")
        error.__cause__ = TelegramError("Invalid server response")
        assert "bot1:A" not in why(error)
        assert len(why(BadRequest("x" * 5_000))) == 200
        assert why(ValueError()) == "ValueError"


class TestConnecting:
    async def test_who_we_are(self, telegram: Telegram, adapter: TelegramAdapter) -> None:
        me = await adapter.connect()
        assert me == Me(int(telegram.token.partition(":")[0]), telegram.username)
        assert await adapter.connect() is me
        assert await adapter.identity() == str(me.id)
        assert [call.method for call in telegram.calls] == ["getMe"]

    @pytest.mark.parametrize("status", [401, 404])
    async def test_a_wrong_token(
        self, telegram: Telegram, adapter: TelegramAdapter, status: int
    ) -> None:
        telegram.fault("getMe", Answer(status, "Unauthorized"))
        with pytest.raises(PlatformRefused) as caught:
            await adapter.run(Desk().accept)
        assert telegram.token not in str(caught.value)

    @pytest.mark.parametrize(
        "fault",
        [
            ResetBefore(),
            Answer(500),
            Answer(502, html=True),
            Answer(429, retry_after=9),
            GarbageBody(),
            GarbageBody("[1]"),
            GarbageBody('{"ok":true,"result":[]}'),
        ],
        ids=str,
    )
    async def test_it_insists(self, telegram: Telegram, fault: Fault) -> None:
        clock = FakeClock()
        adapter = make(telegram, clock=clock)
        telegram.fault("getMe", fault, times=3)
        assert (await adapter.connect()).username == telegram.username
        assert len(clock.slept) == 3
        assert clock.slept[0] >= (9 if isinstance(fault, Answer) and fault.retry_after else 1)
        await adapter.close()

    @pytest.mark.parametrize("token", ["", "1:a b", "1:a/../x", "1:\n", "1:é", "1:a?x"])
    def test_what_cannot_be_a_token(self, token: str) -> None:
        with pytest.raises(PlatformRefused) as caught:
            TelegramAdapter(token)
        assert not token or token not in str(caught.value)

    def test_it_does_not_show_the_token(self) -> None:
        adapter = TelegramAdapter("123456:SECRET")
        assert "SECRET" not in repr(adapter) + str(adapter)


class TestRunning:
    async def test_group_mention_command_and_topic(
        self, telegram: Telegram, adapter: TelegramAdapter
    ) -> None:
        alice, forum = telegram.person("Alice"), telegram.supergroup("Forum", forum=True)
        thread = forum.topic("Cats")
        async with running(adapter, Desk()) as desk:
            telegram.write(alice, "nobody meant", forum)
            telegram.write(alice, "hello", forum, mention=True)
            telegram.write(alice, f"/reset@{telegram.username} now", forum, thread=thread)
            telegram.write(alice, "/reset@another_bot", forum)
            await desk.have(2)
        got = {inbound.key: (inbound.kind, inbound.text) for inbound in desk.accepted}
        assert got == {
            key(forum): ("message", "hello"),
            key(forum, thread): ("command", "/reset now"),
        }

    async def test_both_messages_of_a_move(self, telegram: Telegram) -> None:
        adapter = make(telegram, scope="user")
        group = telegram.group("Group")
        async with running(adapter, Desk()) as desk:
            await telegram.until(lambda: any(c.method == "getUpdates" for c in telegram.calls))
            new = group.migrate()
            first, second = await desk.have(2)
        assert first.id != second.id
        for inbound in (first, second):
            assert inbound.kind == "moved"
            assert inbound.key == f"telegram-user:{group.id}"
            assert inbound.text == f"telegram-user:{new.id}"
        await adapter.close()

    async def test_a_refusal_that_cannot_be_said_disturbs_nobody(
        self, telegram: Telegram, adapter: TelegramAdapter
    ) -> None:
        alice = telegram.person("Alice")
        telegram.fault("sendMessage", Answer(403))
        async with running(adapter, Desk(Refused("no"))) as desk:
            telegram.write(alice, "one")
            await telegram.until(lambda: any(c.method == "sendMessage" for c in telegram.calls))
            telegram.write(alice, "two")
            await desk.have(2)
            await telegram.wait_for(1, alice)

    async def test_closing_does_not_wait_for_refusals(self, telegram: Telegram) -> None:
        adapter = make(telegram)
        alice = telegram.person("Alice")
        telegram.fault("sendMessage", Delay(30.0, before=True))
        async with running(adapter, Desk(Refused("no"))) as desk:
            telegram.write(alice, "one")
            await desk.have(1)
            await telegram.until(lambda: any(c.method == "sendMessage" for c in telegram.calls))
        async with asyncio.timeout(2):
            await adapter.close()

    async def test_a_refusal_in_a_group_answers_the_message(
        self, telegram: Telegram, adapter: TelegramAdapter
    ) -> None:
        alice, group = telegram.person("Alice"), telegram.group("Group")
        async with running(adapter, Desk(Refused("no **way**"))):
            asked = telegram.message_id(telegram.write(alice, "hi", group, mention=True))
            (sent,) = await telegram.wait_for(1, group)
        assert (sent.text, sent.reply_to) == ("no way", asked)


class TestButtons:
    BODY = json.dumps({"text": "May I?", "buttons": [{"label": "Yes", "data": "+" + "a" * 33}]})

    async def test_somebody_elses_press_is_of_the_conversation_that_was_asked(
        self, telegram: Telegram
    ) -> None:
        alice, bob = telegram.person("Alice"), telegram.person("Bob")
        group = telegram.group("Group")
        adapter = make(telegram, scope="user")
        asked = f"telegram-user:{group.id}/{alice.id}"
        await send(adapter, asked, self.BODY)
        async with running(adapter, Desk(Refused("not yours", private=True))) as desk:
            telegram.choose(bob, "Yes", group)
            (pressed,) = await desk.have(1)
            await telegram.until(lambda: bool(telegram.answers))
        assert (pressed.key, pressed.sender.id) == (asked, f"telegram:{bob.id}")
        (answer,) = telegram.answers
        assert (answer["text"], answer["show_alert"]) == ("not yours", True)
        assert len(telegram.sent(group)) == 1, "nobody else hears it"
        await adapter.close()

    async def test_an_accepted_press_ends_its_wait_without_a_word(
        self, telegram: Telegram, adapter: TelegramAdapter
    ) -> None:
        alice = telegram.person("Alice")
        await send(adapter, key(alice), self.BODY)
        async with running(adapter, Desk()):
            telegram.choose(alice, "Yes")
            await telegram.until(lambda: bool(telegram.answers))
        assert telegram.answers[0]["text"] is None

    async def test_a_press_that_is_too_old_to_answer_disturbs_nobody(
        self, telegram: Telegram, adapter: TelegramAdapter
    ) -> None:
        alice = telegram.person("Alice")
        await send(adapter, key(alice), self.BODY)
        too_old = "Bad Request: query is too old and response timeout expired"
        telegram.fault("answerCallbackQuery", Answer(400, too_old))
        async with running(adapter, Desk()) as desk:
            telegram.choose(alice, "Yes")
            telegram.write(alice, "hello")
            assert [inbound.kind for inbound in await desk.have(2)] == ["decision", "message"]

    async def test_a_key_too_long_for_a_button(
        self, telegram: Telegram, adapter: TelegramAdapter
    ) -> None:
        with pytest.raises(Undeliverable, match="too long for a button"):
            await send(adapter, f"telegram-user:-100{'1' * 10}/{'2' * 19}/{'3' * 19}", self.BODY)

    async def test_at_most_so_many_are_told_at_a_time(
        self, telegram: Telegram, adapter: TelegramAdapter
    ) -> None:
        alice = telegram.person("Alice")
        telegram.fault("sendMessage", Delay(5), times=None)
        async with running(adapter, Desk(Refused("no"))) as desk:
            for number in range(MAX_DECLINES + 5):
                telegram.write(alice, f"message {number}")
            await desk.have(MAX_DECLINES + 5)
        assert len(adapter._declining) == MAX_DECLINES


class TestTyping:
    def inbound(self, to: str) -> Inbound:
        return Inbound(id="1", key=to, kind="message", sender=Sender("telegram:1"), text="hi")

    async def test_at_once_but_not_for_quick_answers(self, telegram: Telegram) -> None:
        clock = FakeClock(manual=True)
        adapter = make(telegram, clock=clock, streaming="off")
        forum = telegram.supergroup("Forum", forum=True)
        to = key(forum, forum.topic("Cats"))
        live = adapter.live(to, self.inbound(to), (), Leave())
        await settle()
        clock.advance(0.2)
        await settle()
        assert telegram.calls == []
        for count, seconds in ((1, 0.1), (2, 4.0), (3, 4.0)):
            clock.advance(seconds)
            await telegram.until(lambda c=count: len(telegram.calls) == c)  # type: ignore[misc]
            await self.asleep(clock, count + 1)
        assert live.show("the answer so far") is False
        assert await live.close() == ()
        assert await live.close() == ()
        clock.advance(100)
        await settle()
        assert len(telegram.calls) == 3
        assert telegram.calls[0].params["message_thread_id"] == int(to.rpartition("/")[2])
        await adapter.close()

    async def asleep(self, clock: FakeClock, times: int) -> None:
        async with asyncio.timeout(5):
            while len(clock.slept) < times:  # noqa: ASYNC110 - the clock has no event
                await asyncio.sleep(0.001)

    @pytest.mark.parametrize(
        ("fault", "slept"),
        [
            (Answer(429, retry_after=9), [0.3, 13.0]),
            (Answer(500), [0.3, 4.0]),
            (GarbageBody(), [0.3, 4.0]),
            (GarbageBody('{"ok":true}'), [0.3, 4.0]),
            (ResetBefore(), [0.3, 4.0]),
        ],
        ids=str,
    )
    async def test_it_bears_faults(
        self, telegram: Telegram, fault: Fault, slept: list[float]
    ) -> None:
        clock = FakeClock(manual=True)
        adapter = make(telegram, clock=clock, streaming="off")
        to = key(telegram.person("Alice"))
        telegram.fault("sendChatAction", fault)
        live = adapter.live(to, self.inbound(to), (), Leave())
        await settle()
        clock.advance(0.3)
        await self.asleep(clock, 2)
        assert clock.slept == slept
        await live.close()
        await adapter.close()

    async def test_it_is_left_out_when_the_chats_budget_is_needed(self) -> None:
        tries = []

        async def act() -> None:
            tries.append(1)

        clock = FakeClock(manual=True)
        allowed = [False, True]
        live = Typing(act, clock, Leave(lambda leaving: leaving == "typing" and allowed.pop(0)))
        for seconds in (0.3, 4.0):
            await settle()
            clock.advance(seconds)
        await settle()
        assert tries == [1]
        await live.close()

    async def test_nobody_is_there(self) -> None:
        tries = []

        async def act() -> None:
            tries.append(1)
            raise Forbidden("bot was blocked by the user")

        clock = FakeClock()
        live = Typing(act, clock, Leave())
        await settle()
        assert (tries, clock.slept) == ([1], [0.3])
        await live.close()

    async def test_a_foreign_key_harms_nobody(
        self, telegram: Telegram, adapter: TelegramAdapter
    ) -> None:
        live = adapter.live("console:default", self.inbound("console:default"), (), Leave())
        await settle()
        await live.close()
        assert telegram.calls == []


def test_importing_sets_the_form_of_flood_penalties() -> None:
    assert os.environ["PTB_TIMEDELTA"] == "1"
