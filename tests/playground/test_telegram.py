"""The local Telegram, driven by the unmodified python-telegram-bot over a real socket."""

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from telegram import (
    Bot,
    BotCommand,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputFile,
    MessageEntity,
    ReplyParameters,
    Update,
)
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    EndPointNotFound,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
    TimedOut,
)
from telegram.request import HTTPXRequest

from playground.telegram import (
    Answer,
    Chat,
    Delay,
    DeliverTwice,
    GarbageBody,
    ResetAfter,
    ResetBefore,
    Telegram,
)
from playground.telegram_chats import Upload

NOT_FOUND = "Message thread not found"


@pytest.fixture
async def telegram() -> AsyncIterator[Telegram]:
    async with Telegram() as running:
        yield running


@pytest.fixture
async def bot(telegram: Telegram) -> AsyncIterator[Bot]:
    async with client(telegram) as bot:
        yield bot


def client(telegram: Telegram, token: str | None = None) -> Bot:
    return Bot(
        token or telegram.token,
        base_url=f"{telegram.url}/bot",
        base_file_url=f"{telegram.url}/file/bot",
        get_updates_request=HTTPXRequest(connection_pool_size=8),
    )


async def updates(bot: Bot, offset: int | None = None, **more: Any) -> list[Update]:
    more.setdefault("timeout", 0)
    return list(await bot.get_updates(offset=offset, **more))


def ids(batch: list[Update]) -> list[int]:
    return [update.update_id for update in batch]


async def raw(telegram: Telegram, method: str, **how: Any) -> httpx.Response:
    async with httpx.AsyncClient() as http:
        return await http.post(f"{telegram.url}/bot{telegram.token}/{method}", **how)


# Receiving


async def test_the_bot_knows_itself(telegram: Telegram, bot: Bot) -> None:
    me = await bot.get_me()
    assert (me.id, me.username, me.is_bot) == (123456, "playground_bot", True)


async def test_what_people_write_arrives_as_telegram_writes_it(
    telegram: Telegram, bot: Bot
) -> None:
    alice = telegram.person("Alice", username="alice")
    written = telegram.write(alice, "😀 /start@playground_bot and @alice, not a@b.c")
    (update,) = await updates(bot)
    message = update.message
    assert message is not None and message.from_user is not None
    assert update.update_id == written
    assert message.message_id == telegram.message_id(written) == 1
    assert (message.chat.id, message.chat.type) == (alice.id, "private")
    assert message.from_user.username == "alice"
    assert abs(message.date.timestamp() - time.time()) < 60
    assert message.parse_entities() == {
        MessageEntity("bot_command", 3, 21): "/start@playground_bot",
        MessageEntity("mention", 29, 6): "@alice",
    }


async def test_in_a_group_people_mention_reply_and_edit(telegram: Telegram, bot: Bot) -> None:
    alice, bob, group = telegram.person("Alice"), telegram.person("Bob"), telegram.group("Family")
    first = telegram.message_id(telegram.write(alice, "supper?", group, mention=True))
    telegram.write(bob, "yes", group, reply_to=first)
    telegram.edit(alice, first, "lunch?", group)
    asked, replied, edited = await updates(bot)
    assert asked.message and replied.message and edited.edited_message
    assert asked.message.text == "@playground_bot supper?"
    assert asked.message.parse_entities(["mention"])
    assert replied.message.reply_to_message is not None
    assert replied.message.reply_to_message.text == "@playground_bot supper?"
    assert replied.message.message_thread_id is None
    assert edited.edited_message.message_id == first
    assert edited.edited_message.text == "lunch?"
    assert edited.edited_message.edit_date is not None


async def test_topics(telegram: Telegram, bot: Bot) -> None:
    alice, town = telegram.person("Alice"), telegram.supergroup("Town", forum=True)
    cooking, home = town.topic("Cooking"), telegram.topic_in(alice, "Home")
    assert cooking > 1 and home > 1
    telegram.write(alice, "soup", town, thread=cooking)
    telegram.write(alice, "anything", town)
    telegram.write(alice, "rent", thread=home)
    soup, general, rent = (update.message for update in await updates(bot))
    assert soup and general and rent
    assert (soup.message_thread_id, soup.is_topic_message) == (cooking, True)
    # Known to catch adapters that take every reply_to_message for a reply.
    assert soup.reply_to_message and soup.reply_to_message.forum_topic_created
    assert (general.message_thread_id, general.is_topic_message) == (None, None)
    assert (rent.message_thread_id, rent.is_topic_message) == (home, True)
    assert (await bot.get_me()).has_topics_enabled

    await bot.send_message(town.id, "salt", message_thread_id=cooking)
    await bot.send_message(alice.id, "paid", message_thread_id=home)
    assert [m.thread for m in telegram.sent(town) + telegram.sent(alice)] == [cooking, home]
    plain = telegram.supergroup("Plain")
    for place, thread in ((town, 1), (town, 999), (plain, 5), (alice, 999)):
        with pytest.raises(BadRequest, match=NOT_FOUND):
            await bot.send_message(place.id, "?", message_thread_id=thread)
    town.remove_topic(cooking)
    with pytest.raises(BadRequest, match=NOT_FOUND):
        await bot.send_message(town.id, "pepper", message_thread_id=cooking)
    await bot.send_chat_action(town.id, "typing", message_thread_id=1)


async def test_replies_in_a_plain_supergroup_carry_a_thread_that_is_no_topic(
    telegram: Telegram, bot: Bot
) -> None:
    alice, plain = telegram.person("Alice"), telegram.supergroup("Plain")
    root = telegram.message_id(telegram.write(alice, "a", plain))
    reply = telegram.message_id(telegram.write(alice, "b", plain, reply_to=root))
    telegram.write(alice, "c", plain, reply_to=reply)
    message = (await updates(bot))[2].message
    assert message and message.message_thread_id == root
    assert not message.is_topic_message


# Offsets


async def test_only_a_higher_offset_confirms(telegram: Telegram, bot: Bot) -> None:
    alice = telegram.person("Alice")
    written = [telegram.write(alice, str(n)) for n in range(5)]
    assert written == list(range(written[0], written[0] + 5))
    assert ids(await updates(bot)) == written
    assert ids(await updates(bot, written[0])) == written
    assert telegram.confirmed == []
    assert ids(await updates(bot, written[2], limit=2)) == written[2:4]
    assert telegram.confirmed == written[:2]
    assert ids(await updates(bot)) == written[2:]  # no offset: from the oldest unconfirmed
    assert ids(await updates(bot, written[0])) == written[2:]
    assert await updates(bot, written[-1] + 1) == []
    assert telegram.confirmed == written
    assert telegram.unconfirmed() == []
    assert telegram.delivered.count(written[0]) == 2


async def test_a_negative_offset_deletes_the_older_ones(telegram: Telegram, bot: Bot) -> None:
    alice = telegram.person("Alice")
    written = [telegram.write(alice, str(n)) for n in range(5)]
    assert ids(await updates(bot, -2)) == written[-2:]
    assert telegram.unconfirmed() == written[-2:]
    assert telegram.confirmed == []


async def test_update_ids_may_start_anew(telegram: Telegram, bot: Bot) -> None:
    alice = telegram.person("Alice")
    old = telegram.write(alice, "long ago")
    with pytest.raises(ValueError, match="unconfirmed"):
        telegram.jump_update_ids(17)
    assert await updates(bot, old + 1) == []
    telegram.jump_update_ids(17)
    assert telegram.write(alice, "a week later") == 17
    assert ids(await updates(bot, old + 1)) == [17]
    assert telegram.unconfirmed() == [17]


async def test_a_long_poll_wakes_at_once(telegram: Telegram, bot: Bot) -> None:
    alice = telegram.person("Alice")
    poll = asyncio.create_task(updates(bot, timeout=50))
    await telegram.until(lambda: telegram.polled)
    begin = time.monotonic()
    written = telegram.write(alice, "hello")
    assert ids(await poll) == [written]
    assert time.monotonic() - begin < 1


async def test_the_earlier_of_two_polls_gets_a_conflict(telegram: Telegram, bot: Bot) -> None:
    alice = telegram.person("Alice")
    async with client(telegram) as other:
        first = asyncio.create_task(updates(bot, timeout=50))
        await telegram.until(lambda: telegram.polled)
        await updates(other)  # one that does not wait disturbs nobody
        second = asyncio.create_task(updates(other, timeout=50))
        with pytest.raises(Conflict, match="terminated by other getUpdates request"):
            await first
        written = telegram.write(alice, "hello")
        assert ids(await second) == [written]


async def test_a_poll_whose_client_left_is_over(telegram: Telegram, bot: Bot) -> None:
    poll = asyncio.create_task(updates(bot, timeout=50))
    await telegram.until(lambda: telegram.polled)
    poll.cancel()
    await telegram.until(lambda: telegram.calls[-1].status == 0)
    written = telegram.write(telegram.person("Alice"), "hello")
    assert ids(await updates(bot, timeout=50)) == [written]
    assert telegram.delivered == [written]


async def test_allowed_updates_hold_for_what_comes_later(telegram: Telegram, bot: Bot) -> None:
    alice = telegram.person("Alice")
    message = telegram.message_id(telegram.write(alice, "a"))
    await updates(bot, allowed_updates=["edited_message"])
    assert telegram.write(alice, "b") == 0
    await updates(bot)  # absent: stays as it was
    assert telegram.write(alice, "c") == 0
    edited = telegram.edit(alice, message, "A")
    assert ids(await updates(bot, edited)) == [edited]
    await updates(bot, allowed_updates=[])
    assert telegram.write(alice, "d") == edited + 1


async def test_a_webhook_and_polling_exclude_each_other(telegram: Telegram, bot: Bot) -> None:
    telegram.write(telegram.person("Alice"), "a")
    poll = asyncio.create_task(updates(bot, telegram.unconfirmed()[0] + 1, timeout=50))
    await telegram.until(lambda: telegram.polled)
    await bot.set_webhook("https://example.org/hook", allowed_updates=["message"])
    with pytest.raises(Conflict, match="terminated by setWebhook"):
        await poll
    with pytest.raises(Conflict, match="webhook is active"):
        await updates(bot)
    telegram.write(telegram.person("Bob"), "b")
    info = await bot.get_webhook_info()
    assert (info.url, info.pending_update_count) == ("https://example.org/hook", 1)
    assert info.allowed_updates == ("message",)
    await bot.delete_webhook(drop_pending_updates=True)
    assert (await bot.get_webhook_info()).url == ""
    assert telegram.unconfirmed() == []


async def test_poison_goes_out_as_it_is(telegram: Telegram, bot: Bot) -> None:
    first = telegram.inject({"message": {"text": "nobody, nowhere"}}, numbered=False)
    telegram.inject("[1, 2]")
    telegram.inject('"a string"')
    telegram.inject({"poll_of_the_future": {}})
    got = (await raw(telegram, "getUpdates")).json()["result"]
    assert got == [
        {"message": {"text": "nobody, nowhere"}},
        [1, 2],
        "a string",
        {"update_id": first + 3, "poll_of_the_future": {}},
    ]
    assert telegram.inject({"update_id": first + 9}) == first + 9
    assert telegram.write(telegram.person("Alice"), "b") == first + 10
    # This is what a poison update does to the client: it cannot get past it.
    with pytest.raises(Exception, match="update_id"):
        await updates(bot)
    (update,) = await updates(bot, first + 10)
    assert telegram.confirmed == [*range(first, first + 4), first + 9]
    assert update.update_id == first + 10


async def test_a_confirmed_update_can_come_again(telegram: Telegram, bot: Bot) -> None:
    alice = telegram.person("Alice")
    old, new = telegram.write(alice, "a"), telegram.write(alice, "b")
    await updates(bot, new + 1)
    telegram.redeliver(old)
    assert ids(await updates(bot, new + 1)) == [old]
    assert await updates(bot, new + 1) == []
    poll = asyncio.create_task(updates(bot, new + 1, timeout=50))
    await telegram.until(lambda: telegram.polled)
    telegram.redeliver(new)
    assert ids(await poll) == [new]
    assert telegram.confirmed == [old, new]


# Sending


async def test_what_the_bot_sends_is_on_record(telegram: Telegram, bot: Bot) -> None:
    alice = telegram.person("Alice")
    asked = telegram.message_id(telegram.write(alice, "hello"))
    message = await bot.send_message(
        alice.id,
        "  hello Alice\n ",
        entities=[MessageEntity("bold", 8, 6)],
        reply_parameters=ReplyParameters(asked, allow_sending_without_reply=True),
    )
    assert message.text == "hello Alice"
    assert message.entities == (MessageEntity("bold", 6, 5),)
    assert message.reply_to_message is not None
    edited = await message.edit_text("good day")
    assert isinstance(edited, type(message)) and edited.text == "good day"
    (sent,) = telegram.sent(alice)
    assert (sent.message_id, sent.text, sent.edits) == (2, "good day", ("hello Alice",))
    assert (sent.reply_to, sent.thread, sent.entities) == (asked, None, ())
    assert await message.delete()
    assert telegram.texts(alice) == []
    assert telegram.sent(alice)[0].deleted
    call = telegram.calls[1]
    assert (call.method, call.status) == ("sendMessage", 200)
    assert call.params["chat_id"] == alice.id
    assert call.params["entities"] == [{"type": "bold", "offset": 8, "length": 6}]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("😀" * 2048, None),
        ("😀" * 2048 + "!", "Message is too long"),
        (" \n ", "Message text is empty"),
        ("12", None),
    ],
)
async def test_the_length_counts_utf_16_units(
    telegram: Telegram, bot: Bot, text: str, error: str | None
) -> None:
    alice = telegram.person("Alice")
    if error is None:
        await bot.send_message(alice.id, text)
        assert telegram.texts(alice) == [text]
    else:
        with pytest.raises(BadRequest, match=error):
            await bot.send_message(alice.id, text)


@pytest.mark.parametrize(
    ("offset", "length", "error"),
    [
        (0, 2, None),
        (2, 3, None),
        (1, 2, "begins in a middle"),
        (0, 1, "ends in a middle"),
        (2, 4, "after the end"),
        (-1, 2, "incorrect offset"),
    ],
)
async def test_entities_keep_to_whole_characters(
    telegram: Telegram, bot: Bot, offset: int, length: int, error: str | None
) -> None:
    alice = telegram.person("Alice")
    sending = bot.send_message(alice.id, "😀abc", entities=[MessageEntity("bold", offset, length)])
    if error is None:
        assert (await sending).entities == (MessageEntity("bold", offset, length),)
    else:
        with pytest.raises(BadRequest, match=error):
            await sending


async def test_entities_after_the_hundredth_are_lost_in_silence(
    telegram: Telegram, bot: Bot
) -> None:
    alice = telegram.person("Alice")
    many = [MessageEntity("bold", n, 1) for n in range(101)]
    assert len((await bot.send_message(alice.id, "x" * 101, entities=many)).entities) == 100


async def test_replies_to_what_is_gone(telegram: Telegram, bot: Bot) -> None:
    alice = telegram.person("Alice")
    with pytest.raises(BadRequest, match="Message to be replied not found"):
        await bot.send_message(alice.id, "a", reply_parameters=ReplyParameters(7))
    lenient = ReplyParameters(7, allow_sending_without_reply=True)
    assert (
        await bot.send_message(alice.id, "a", reply_parameters=lenient)
    ).reply_to_message is None


async def test_edits_that_telegram_refuses(telegram: Telegram, bot: Bot) -> None:
    alice = telegram.person("Alice")
    theirs = telegram.message_id(telegram.write(alice, "mine"))
    message = await bot.send_message(alice.id, "a")
    with pytest.raises(BadRequest, match="Message is not modified: specified new message"):
        await message.edit_text("a ")
    with pytest.raises(BadRequest, match="Message to edit not found"):
        await bot.edit_message_text("b", alice.id, 99)
    with pytest.raises(BadRequest, match="Message can't be edited"):
        await bot.edit_message_text("b", alice.id, theirs)
    with pytest.raises(BadRequest, match="Message to delete not found"):
        await bot.delete_message(alice.id, 99)
    await message.edit_text("a", entities=[MessageEntity("bold", 0, 1)])
    assert telegram.sent(alice)[0].edits == ("a",)


async def test_places_where_nothing_can_be_sent(telegram: Telegram, bot: Bot) -> None:
    alice, group = telegram.person("Alice"), telegram.group("Family")
    with pytest.raises(BadRequest, match="Chat not found"):
        await bot.send_message(4711, "a")
    telegram.block(alice)
    telegram.block(group)
    with pytest.raises(Forbidden, match="bot was blocked by the user"):
        await bot.send_message(alice.id, "a")
    with pytest.raises(Forbidden, match="bot was kicked from the group chat"):
        await bot.send_message(group.id, "a")
    with pytest.raises(ValueError, match="blocked"):
        telegram.write(alice, "a")
    telegram.unblock(alice)
    assert (await bot.send_message(alice.id, "a")).text == "a"
    changes = [update.my_chat_member for update in await updates(bot)]
    assert [c.new_chat_member.status for c in changes if c] == ["kicked", "kicked", "member"]
    plain = telegram.supergroup("Plain")
    await bot.leave_chat(plain.id)
    with pytest.raises(Forbidden, match="not a member of the supergroup chat"):
        await bot.send_message(plain.id, "a")


async def test_a_group_becomes_a_supergroup(telegram: Telegram, bot: Bot) -> None:
    alice = telegram.person("Alice")
    group = telegram.group("Family", owner=alice)
    telegram.write(alice, "before", group)
    message = await bot.send_message(group.id, "answer")
    town = group.migrate()
    telegram.write(alice, "after", town)
    for call in (
        bot.send_message(group.id, "late"),
        bot.edit_message_text("later", group.id, message.message_id),
        bot.send_chat_action(group.id, "typing"),
    ):
        with pytest.raises(ChatMigrated) as migrated:
            await call
        assert migrated.value.new_chat_id == town.id
    _, leaving, arriving, after = (update.message for update in await updates(bot))
    assert leaving and arriving and after
    assert (leaving.chat.id, leaving.migrate_to_chat_id) == (group.id, town.id)
    assert (arriving.chat.id, arriving.migrate_from_chat_id) == (town.id, group.id)
    assert (after.chat.type, after.message_id) == ("supergroup", 2)
    await bot.send_message(town.id, "here")
    assert telegram.texts(town) == ["here"]
    with pytest.raises(ValueError, match="moved"):
        telegram.write(alice, "?", group)


async def test_drafts(telegram: Telegram, bot: Bot) -> None:
    alice, group = telegram.person("Alice"), telegram.group("Family")
    await bot.send_message_draft(alice.id, 7, "")
    await bot.send_message_draft(alice.id, 7, "so f")
    draft = telegram.draft(alice)
    assert draft is not None and (draft.draft_id, draft.text) == (7, "so f")
    await bot.send_message(alice.id, "so far")
    assert telegram.draft(alice) is None
    with pytest.raises(BadRequest, match=r"(?i)textdraft_peer_invalid"):
        await bot.send_message_draft(group.id, 7, "so f")
    with pytest.raises(BadRequest):
        await bot.send_message_draft(alice.id, 0, "so f")


async def test_buttons(telegram: Telegram, bot: Bot) -> None:
    alice = telegram.person("Alice")
    message = await bot.send_message(alice.id, "sure?")
    telegram.press(alice, message.message_id, "yes")
    query = (await updates(bot))[0].callback_query
    assert query is not None and query.data == "yes"
    assert await query.answer("fine")
    assert telegram.answers[0]["data"] == "yes" and telegram.answers[0]["text"] == "fine"
    with pytest.raises(BadRequest, match="Query is too old"):
        await query.answer("again")
    telegram.press(alice, message.message_id, "no")
    query = (await updates(bot))[-1].callback_query
    assert query is not None
    with pytest.raises(BadRequest, match=r"(?i)message_too_long"):
        await query.answer("x" * 201)


async def test_keyboards(telegram: Telegram, bot: Bot) -> None:
    alice = telegram.person("Alice")
    markup = InlineKeyboardMarkup([[InlineKeyboardButton("Yes", callback_data="y" * 64)]])
    message = await bot.send_message(alice.id, "sure?", reply_markup=markup)
    await bot.send_message(alice.id, "and now?")
    assert telegram.buttons(alice) == [(message.message_id, {"Yes": "y" * 64})]
    assert telegram.choose(alice, "Yes")
    query = (await updates(bot))[0].callback_query
    assert query is not None and query.data == "y" * 64
    assert query.message is not None and query.message.message_id == message.message_id
    with pytest.raises(ValueError, match="no button 'No'"):
        telegram.choose(alice, "No")
    other = InlineKeyboardMarkup([[InlineKeyboardButton("No", callback_data="n")]])
    await bot.edit_message_reply_markup(alice.id, message.message_id, reply_markup=other)
    assert telegram.buttons(alice) == [(message.message_id, {"No": "n"})]
    with pytest.raises(BadRequest, match="not modified"):
        await bot.edit_message_reply_markup(alice.id, message.message_id, reply_markup=other)
    await bot.edit_message_text("no", alice.id, message.message_id)
    assert telegram.buttons(alice) == []
    await bot.edit_message_text("so?", alice.id, message.message_id, reply_markup=other)
    await bot.edit_message_reply_markup(alice.id, message.message_id)
    assert telegram.buttons(alice) == [] and telegram.texts(alice)[0] == "so?"
    mine = telegram.message_id(telegram.write(alice, "mine"))
    for missing, why in ((mine, "can't be edited"), (999, "to edit not found")):
        with pytest.raises(BadRequest, match=why):
            await bot.edit_message_reply_markup(alice.id, missing)


@pytest.mark.parametrize(
    "markup",
    [
        {"inline_keyboard": [[{"text": "x", "callback_data": "y" * 65}]]},
        {"inline_keyboard": [[{"text": "x", "callback_data": ""}]]},
        {"inline_keyboard": [[{"callback_data": "x"}]]},
        {"inline_keyboard": [[{"text": "x", "callback_data": "y"}] * 8] * 13},
        {"inline_keyboard": [{"text": "x"}]},
        {"keyboard": []},
    ],
)
async def test_keyboards_that_are_none(telegram: Telegram, bot: Bot, markup: Any) -> None:
    alice = telegram.person("Alice")
    with pytest.raises(BadRequest):
        await bot.send_message(alice.id, "sure?", api_kwargs={"reply_markup": markup})
    assert telegram.texts(alice) == []


async def test_chats_and_commands(telegram: Telegram, bot: Bot) -> None:
    alice = telegram.person("Alice")
    group = telegram.group("Family", owner=alice)
    assert (await bot.get_chat(alice.id)).first_name == "Alice"
    assert (await bot.get_chat(group.id)).title == "Family"
    (admin,) = await bot.get_chat_administrators(group.id)
    assert admin.user.id == alice.id
    assert await bot.get_chat_administrators(telegram.supergroup("Plain").id) == ()
    with pytest.raises(BadRequest, match="no administrators in the private chat"):
        await bot.get_chat_administrators(alice.id)
    assert await bot.get_my_commands() == ()
    await bot.set_my_commands([BotCommand("reset", "Start anew")])
    assert await bot.get_my_commands() == (BotCommand("reset", "Start anew"),)
    assert await bot.get_my_commands(language_code="de") == ()


async def test_a_document_is_a_file_with_a_caption(telegram: Telegram, bot: Bot) -> None:
    alice = telegram.person("Alice")
    sent = await bot.send_document(alice.id, InputFile(b"\xff\x00", "a.bin"), caption=" all ")
    assert sent.document is not None and sent.caption == "all"
    assert (sent.document.file_name, sent.document.file_size) == ("a.bin", 2)
    assert telegram.files(alice) == {"a.bin": b"\xff\x00"}
    with pytest.raises(BadRequest, match="File must be non-empty"):
        await bot.send_document(alice.id, InputFile(b"", "a.bin"))
    answer = await raw(telegram, "sendDocument", data={"chat_id": str(alice.id), "document": "x"})
    assert answer.json()["description"] == "Bad Request: there is no document in the request"
    entity = json.dumps([{"type": "bold", "offset": 0, "length": 1}])
    form = {"chat_id": str(alice.id), "caption": "all", "caption_entities": entity}
    answer = await raw(telegram, "sendDocument", data=form, files={"document": ("b", b"1")})
    assert answer.json()["result"]["caption_entities"][0]["type"] == "bold"


async def test_a_document_may_be_too_large(
    telegram: Telegram, bot: Bot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("playground.telegram_methods.MAX_UPLOAD", 10)
    with pytest.raises(NetworkError, match=r"(?i)request entity too large"):
        await bot.send_document(telegram.person("Alice").id, InputFile(b"x" * 11, "a"))


# The wire


async def test_tokens_and_methods(telegram: Telegram, bot: Bot) -> None:
    with pytest.raises(EndPointNotFound):
        await bot.do_api_request("sendTelepathy")
    assert (await raw(telegram, "sendTelepathy")).json() == {
        "ok": False,
        "error_code": 404,
        "description": "Not Found",
    }
    stranger = client(telegram, "123456:another")
    with pytest.raises(InvalidToken):
        await stranger.initialize()
    await stranger.shutdown()
    telegram.token = "123456:revoked"
    with pytest.raises(InvalidToken):
        await bot.get_me()
    assert telegram.calls[-1].status == 401


async def test_every_kind_of_request_is_understood(telegram: Telegram, bot: Bot) -> None:
    alice = telegram.person("Alice")
    bold = [{"type": "bold", "offset": 0, "length": 1}]
    form = {"chat_id": str(alice.id), "text": "[1]", "entities": json.dumps(bold)}
    answers = [
        await raw(telegram, "sendMessage", data=form),
        await raw(telegram, "SENDMESSAGE", json={**form, "chat_id": alice.id, "entities": bold}),
        await raw(telegram, "sendMessage", params=form),
        await raw(telegram, "sendMessage", data=form, files={"file": ("a.txt", b"\xff\x00")}),
    ]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert [m.text for m in telegram.sent(alice)] == ["[1]"] * 4
    assert telegram.calls[-1].params["file"] == Upload("a.txt", b"\xff\x00")
    with pytest.raises(InvalidToken):  # what the client makes of 404; such a method is left out
        await bot.send_audio(alice.id, InputFile(b"abc", "a.mp3"))
    for body in (b"text=%ff", b"text=\xff"):
        head = {"content-type": "application/x-www-form-urlencoded"}
        answer = await raw(telegram, "sendMessage", content=body, headers=head)
        assert "UTF-8" in answer.json()["description"]
    answer = await raw(
        telegram, "sendMessage", content=b"[", headers={"content-type": "application/json"}
    )
    assert answer.status_code == 400


# Faults


async def test_answers_with_errors(telegram: Telegram, bot: Bot) -> None:
    alice, bob = telegram.person("Alice"), telegram.person("Bob")
    rule = telegram.fault("send*", Answer(429, retry_after=3), chat=alice, times=2)
    await bot.send_message(bob.id, "a")
    for _ in range(2):
        with pytest.raises(RetryAfter) as flood:
            await bot.send_message(alice.id, "a")
        assert getattr(flood.value.retry_after, "seconds", None) == 3
    await bot.send_message(alice.id, "b")
    assert (rule.hits, telegram.texts(alice)) == (2, ["b"])

    always = telegram.fault("sendMessage", Answer(502, html=True), times=None, after=1)
    await bot.send_message(alice.id, "c")
    for _ in range(3):
        with pytest.raises(NetworkError, match="502"):
            await bot.send_message(alice.id, "d")
    always.cancel()
    telegram.fault("sendmessage", Answer(500, "Internal Server Error: restart"))
    with pytest.raises(NetworkError, match="restart"):
        await bot.send_message(alice.id, "d")
    assert telegram.texts(alice) == ["b", "c"]


async def test_resets(telegram: Telegram, bot: Bot) -> None:
    alice = telegram.person("Alice")
    telegram.fault("sendMessage", ResetBefore())
    telegram.fault("sendMessage", ResetAfter())
    for text in ("never", "unknown"):
        with pytest.raises(NetworkError) as error:
            await bot.send_message(alice.id, text)
        assert isinstance(error.value.__cause__, httpx.ReadError | httpx.RemoteProtocolError)
    await bot.send_message(alice.id, "fine")
    assert telegram.texts(alice) == ["unknown", "fine"]
    assert [call.status for call in telegram.calls[1:]] == [0, 0, 200]


async def test_a_reset_poll_confirms_but_delivers_nothing(telegram: Telegram, bot: Bot) -> None:
    alice = telegram.person("Alice")
    first, second = telegram.write(alice, "a"), telegram.write(alice, "b")
    telegram.fault("getUpdates", ResetAfter())
    with pytest.raises(NetworkError):
        await updates(bot, second)
    assert (telegram.confirmed, telegram.delivered) == ([first], [])
    assert ids(await updates(bot)) == [second]


@pytest.mark.parametrize("before", [False, True])
async def test_late_answers(telegram: Telegram, bot: Bot, before: bool) -> None:
    alice = telegram.person("Alice")
    telegram.fault("sendMessage", Delay(0.15, before=before))
    with pytest.raises(TimedOut) as error:
        await bot.send_message(alice.id, "a", read_timeout=0.05)
    assert isinstance(error.value.__cause__, httpx.ReadTimeout)
    assert len(telegram.sent(alice)) == (0 if before else 1)
    await telegram.wait_for(1, alice)


async def test_garbage(telegram: Telegram, bot: Bot) -> None:
    alice = telegram.person("Alice")
    telegram.fault("sendMessage", GarbageBody("<html>"))
    telegram.fault("sendMessage", GarbageBody('{"ok":tr', done=True))
    for text in ("a", "b"):
        with pytest.raises(TelegramError, match="Invalid server response"):
            await bot.send_message(alice.id, text)
    assert telegram.texts(alice) == ["b"]


async def test_a_batch_that_comes_twice(telegram: Telegram, bot: Bot) -> None:
    alice = telegram.person("Alice")
    telegram.fault("getUpdates", DeliverTwice())
    assert await updates(bot) == []  # nothing to repeat yet
    written = [telegram.write(alice, "a"), telegram.write(alice, "b")]
    assert ids(await updates(bot)) == written
    more = telegram.write(alice, "c")
    assert ids(await updates(bot, written[1] + 1)) == [*written, more]
    assert ids(await updates(bot, written[1] + 1)) == [more]
    assert telegram.confirmed == written


# Watching


async def test_waiting(telegram: Telegram, bot: Bot) -> None:
    alice = telegram.person("Alice")
    counted = asyncio.create_task(telegram.wait_for(2, alice))
    found = asyncio.create_task(
        telegram.wait_for(lambda sent: any(m.text == "c" for m in sent), alice)
    )
    await bot.send_message(alice.id, "a")
    message = await bot.send_message(alice.id, "b")
    assert [m.text for m in await counted] == ["a", "b"]
    await message.edit_text("c")
    assert [m.text for m in await found] == ["a", "c"]
    with pytest.raises(TimeoutError, match=r"'Alice' has \['a', 'c'\]"):
        await telegram.wait_for(3, alice, timeout=0.01)


async def test_listeners_hear_of_everything(telegram: Telegram, bot: Bot) -> None:
    heard: list[str] = []
    telegram.listeners.append(lambda event, details: heard.append(event))
    alice = telegram.person("Alice")
    written = telegram.write(alice, "a")
    await updates(bot)
    message = await bot.send_message(alice.id, "b")
    await message.edit_text("c")
    await message.delete()
    telegram.fault("*", Answer(500))
    with pytest.raises(NetworkError):
        await bot.get_me()
    await updates(bot, written + 1)
    assert heard.count("called") == heard.count("returned") == 6
    happened = [event for event in heard if event not in ("called", "returned")]
    assert happened == ["queued", "delivered", "sent", "edited", "deleted", "fault", "confirmed"]


async def test_hundreds_of_chats_are_quick(telegram: Telegram, bot: Bot) -> None:
    people = [telegram.person(f"P{n}") for n in range(200)]
    # Of this process alone: what else the machine does is not measured here.
    begin = time.process_time()
    for n in range(25):
        for person in people:
            telegram.write(person, f"message {n}")
    offset, got = 0, 0
    while batch := (await raw(telegram, "getUpdates", data={"offset": offset})).json()["result"]:
        got += len(batch)
        offset = batch[-1]["update_id"] + 1
    assert got == len(telegram.confirmed) == 5000
    assert time.process_time() - begin < 5


def test_people_cannot_do_what_telegram_forbids() -> None:
    telegram = Telegram()
    alice, bob = telegram.person("Alice"), telegram.person("Bob")
    group: Chat = telegram.group("Family")
    mine = telegram.message_id(telegram.write(alice, "a", group))
    for refused in (
        lambda: telegram.write(alice, " "),
        lambda: telegram.write(alice, "😀" * 2049),
        lambda: telegram.write(alice, "a", thread=5),
        lambda: telegram.write(alice, "a", reply_to=99),
        lambda: telegram.edit(bob, mine, "b", group),
        lambda: group.topic("Cooking"),
        lambda: telegram.supergroup("Town").migrate(),
    ):
        with pytest.raises(ValueError):
            refused()


async def test_it_ends_at_once_though_somebody_waits() -> None:
    telegram = Telegram()
    alice = telegram.person("Alice")
    telegram.fault("sendMessage", Delay(50))
    async with telegram:
        bot = client(telegram)
        await bot.initialize()
        poll = asyncio.create_task(updates(bot, timeout=50))
        slow = asyncio.create_task(bot.send_message(alice.id, "a", read_timeout=50))
        await telegram.until(lambda: telegram.polled)
        await telegram.wait_for(1, alice)
        begin = time.monotonic()
    assert time.monotonic() - begin < 2
    for broken in (poll, slow):
        with pytest.raises(NetworkError):
            await broken
    await bot.shutdown()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
async def test_it_runs_alone(end: signal.Signals) -> None:
    command = (sys.executable, "-m", "playground.telegram", "--token", "1:x")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().strip()
    async with httpx.AsyncClient() as http:
        assert (await http.get(f"{url}/bot1:x/getMe")).json()["result"]["id"] == 1
    process.send_signal(end)
    _, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")
