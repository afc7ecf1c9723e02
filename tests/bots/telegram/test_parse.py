"""Updates as Telegram sends them, and any JSON at all -> Inbound or None."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bots.telegram.hearing import Hearing
from bots.telegram.keys import Address, Scope, address, key_of, moved_prefixes
from bots.telegram.parse import parse
from bots.telegram.press import data_for
from bots.telegram.quoting import MAX_NAME
from bots.telegram.received import Me
from bots.telegram.writing import Called
from core.keys import SessionKey
from core.messages import Inbound, clean

BOT = Me(777, "Our_Bot")
ALICE: dict[str, Any] = {"id": 42, "is_bot": False, "first_name": "Alice", "last_name": "Doe"}
OURSELVES = {"id": 777, "is_bot": True, "first_name": "Bot", "username": "Our_Bot"}
PRIVATE = {"id": 42, "type": "private", "first_name": "Alice"}
GROUP = {"id": -5, "type": "group", "title": "Group"}
SUPERGROUP = {"id": -1001234, "type": "supergroup", "title": "Super"}
FORUM = SUPERGROUP | {"is_forum": True}
PHOTO = [{"file_id": "small", "file_size": 9}, {"file_id": "large", "file_size": 99}]
BERLIN = {"latitude": 52.52, "longitude": 13.405}


def update(chat: dict[str, Any] = PRIVATE, **message: Any) -> dict[str, Any]:
    base = {"message_id": 7, "date": 1_700_000_000, "chat": chat, "from": ALICE}
    return {"update_id": 900, "message": base | message}


def entity(kind: str, text: str, part: str, **more: Any) -> dict[str, Any]:
    """The entity that marks `part`, in UTF-16 units."""
    before = text[: text.index(part)]
    return {"type": kind, "offset": units(before), "length": units(part), **more}


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def mentioning(text: str, *parts: str) -> dict[str, Any]:
    return {"text": text, "entities": [entity("mention", text, part) for part in parts]}


def commanding(text: str) -> dict[str, Any]:
    return {"text": text, "entities": [entity("bot_command", text, text.split(maxsplit=1)[0])]}


def heard(raw: object, scope: Scope = "chat", account: str | None = None) -> Inbound:
    inbound = parse(raw, BOT, account, scope)
    assert inbound is not None
    return inbound


def said(chat: dict[str, Any] = GROUP, **message: Any) -> str | None:
    inbound = parse(update(chat, **message), BOT, None, "chat")
    return None if inbound is None else inbound.text


class TestPrivate:
    def test_text(self) -> None:
        assert heard(update(text="hello")) == Inbound(
            id="00000000000000000900",
            key="telegram-chat:42",
            kind="message",
            sender=heard(update(text="hello")).sender,
            text="hello",
            blocks=heard(update(text="x")).blocks,
            message_id="7",
            group=False,
            at=1_700_000_000_000,
        )

    def test_the_sender(self) -> None:
        sender = heard(update(text="hello")).sender
        assert (sender.id, sender.name) == ("telegram:42", "Alice Doe")

    @pytest.mark.parametrize(
        ("name", "shown"),
        [
            ("A\nb\r\n\tc", "A b c"),
            ("\u202eevil\u2066", "evil"),
            ("nul\0", "nul\ufffd"),
            ("\ud800", "\ufffd"),
            ("x" * 5_000, "x" * MAX_NAME),
            ("   ", ""),
        ],
    )
    def test_a_name_is_one_short_line(self, name: str, shown: str) -> None:
        raw = update(text="hello", **{"from": {"id": 42, "first_name": name}})
        assert heard(raw).sender.name == shown

    def test_text_is_cleaned(self) -> None:
        assert heard(update(text="a\r\nb\0\ud800\x07")).text == "a\nb\ufffd\ufffd"

    @pytest.mark.parametrize("scope", ["chat", "user"])
    def test_the_scope_is_for_groups(self, scope: Scope) -> None:
        assert heard(update(text="hello"), scope).key == "telegram-chat:42"

    def test_a_topic(self) -> None:
        raw = update(text="hello", is_topic_message=True, message_thread_id=9)
        assert heard(raw).key == "telegram-topic:42/9"

    def test_a_command(self) -> None:
        inbound = heard(update(**commanding("/start   CODE\n")))
        assert (inbound.kind, inbound.text) == ("command", "/start CODE")

    def test_a_command_elsewhere_is_text(self) -> None:
        text = "try /help"
        inbound = heard(update(text=text, entities=[entity("bot_command", text, "/help")]))
        assert (inbound.kind, inbound.text) == ("message", text)

    def test_a_slash_that_telegram_does_not_mark_is_text(self) -> None:
        assert heard(update(text="/etc/passwd")).kind == "message"

    def test_another_bots_command_is_text_here(self) -> None:
        inbound = heard(update(**commanding("/help@other_bot")))
        assert (inbound.kind, inbound.text) == ("message", "/help@other_bot")

    def test_a_caption_is_no_command(self) -> None:
        caption = "/reset now"
        marks = [entity("bot_command", caption, "/reset")]
        inbound = heard(update(photo=PHOTO, caption=caption, caption_entities=marks))
        assert (inbound.kind, inbound.text) == ("message", "/reset now")


class TestGroups:
    @pytest.mark.parametrize("chat", [GROUP, SUPERGROUP, FORUM])
    def test_only_when_meant(self, chat: dict[str, Any]) -> None:
        assert said(chat, text="hello") is None
        assert said(chat, **mentioning("hello @somebody", "@somebody")) is None
        assert said(chat, text="hello @our_bot") is None, "not marked by Telegram"
        assert said(chat, **mentioning("hello @our_bot", "@our_bot")) == "hello"

    @pytest.mark.parametrize(
        ("text", "mark", "left"),
        [
            ("@our_bot hello", "@our_bot", "hello"),
            ("@OUR_BOT, hello", "@OUR_BOT", "hello"),
            ("@our_bot :)", "@our_bot", ":)"),
            (" hello @our_bot ", "@our_bot", "hello"),
            ("😀👍 @our_bot", "@our_bot", "😀👍"),
            ("is @our_bot here?", "@our_bot", "is @our_bot here?"),
            ("@our_bot", "@our_bot", "@our_bot"),
        ],
    )
    def test_a_mention(self, text: str, mark: str, left: str) -> None:
        inbound = heard(update(GROUP, **mentioning(text, mark)))
        assert (inbound.text, inbound.kind, inbound.group) == (left, "message", True)

    def test_mentions_at_both_ends(self) -> None:
        text = "@our_bot hello @Our_Bot"
        marks = [entity("mention", text, "@our_bot"), entity("mention", text, "@Our_Bot")]
        assert said(text=text, entities=marks) == "hello"

    def test_a_mention_by_id(self) -> None:
        text = "Bot, hello"
        marks = [entity("text_mention", text, "Bot", user=OURSELVES)]
        assert said(text=text, entities=marks) == "hello"
        assert said(text=text, entities=[marks[0] | {"user": ALICE}]) is None
        assert said(text=text, entities=[entity("text_mention", text, "Bot")]) is None

    def test_a_bot_without_a_name_is_never_mentioned(self) -> None:
        raw = update(GROUP, **mentioning("@ hello", "@"))
        assert parse(raw, Me(777, ""), None, "chat") is not None
        raw = update(GROUP, **mentioning("@x hello", "@x"))
        assert parse(raw, Me(777, ""), None, "chat") is None

    @pytest.mark.parametrize(
        ("text", "left"),
        [
            ("/ask", "/ask"),
            ("/ask what now", "/ask what now"),
            ("/ask@our_bot what  now ", "/ask what  now"),
            ("/ask@OUR_BOT", "/ask"),
            ("/ask@other_bot what", None),
        ],
    )
    def test_a_command(self, text: str, left: str | None) -> None:
        inbound = parse(update(GROUP, **commanding(text)), BOT, None, "chat")
        assert (inbound and (inbound.kind, inbound.text)) == (left and ("command", left))

    def test_a_command_and_our_name_behind_it(self) -> None:
        text = "/ask this @our_bot"
        marks = [entity("bot_command", text, "/ask"), entity("mention", text, "@our_bot")]
        assert said(text=text, entities=marks) == "/ask this"

    def test_a_reply_to_us(self) -> None:
        mine = {"message_id": 3, "from": OURSELVES, "text": "secret of another"}
        theirs = {"message_id": 3, "from": ALICE, "text": "secret of another"}
        assert said(text="yes", reply_to_message=mine, quote={"text": "secret"}) == "yes"
        assert said(text="yes", reply_to_message=theirs) is None
        assert said(text="yes", reply_to_message={"message_id": 3}) is None
        assert said(reply_to_message=mine, **commanding("/ban@other_bot")) is None

    def test_in_our_own_topic_not_all_is_a_reply_to_us(self) -> None:
        first = {"message_id": 9, "from": OURSELVES, "forum_topic_created": {"name": "T"}}
        topic = {"is_topic_message": True, "message_thread_id": 9}
        assert said(FORUM, text="hi", reply_to_message=first, **topic) is None
        answer = first | {"message_id": 12}
        assert said(FORUM, text="hi", reply_to_message=answer, **topic) == "hi"

    @pytest.mark.parametrize(
        ("chat", "more", "by_chat", "by_user"),
        [
            (GROUP, {}, "telegram-chat:-5", "telegram-user:-5/42"),
            (SUPERGROUP, {}, "telegram-chat:-1001234", "telegram-user:-1001234/42"),
            (
                SUPERGROUP,
                {"message_thread_id": 7},
                "telegram-chat:-1001234",
                "telegram-user:-1001234/42",
            ),
            (
                FORUM,
                {"message_thread_id": 7, "is_topic_message": True},
                "telegram-topic:-1001234/7",
                "telegram-user:-1001234/7/42",
            ),
            (
                FORUM,
                {"message_thread_id": 1, "is_topic_message": True},
                "telegram-chat:-1001234",
                "telegram-user:-1001234/42",
            ),
            (
                FORUM,
                {"message_thread_id": 7},
                "telegram-chat:-1001234",
                "telegram-user:-1001234/42",
            ),
        ],
    )
    def test_keys(
        self, chat: dict[str, Any], more: dict[str, Any], by_chat: str, by_user: str
    ) -> None:
        raw = update(chat, **more, **mentioning("@our_bot hi", "@our_bot"))
        assert heard(raw).key == by_chat
        assert heard(raw, "user").key == by_user
        assert heard(raw, "user", "support").key == by_user.replace(":", "@support:")

    def test_media(self) -> None:
        assert said(photo=PHOTO) is None
        mine = {"message_id": 3, "from": OURSELVES}
        assert said(photo=PHOTO, reply_to_message=mine) == "", "it answers us, without words"
        caption = "@our_bot what is this?"
        marks = [entity("mention", caption, "@our_bot")]
        assert said(photo=PHOTO, caption=caption, caption_entities=marks) == "what is this?"

    def test_what_is_no_more_than_a_gesture_is_not_answered(self) -> None:
        mine = {"message_id": 3, "from": OURSELVES}
        assert said(sticker={"emoji": "👍"}, reply_to_message=mine) is None
        assert said(dice={"emoji": "🎲", "value": 4}, reply_to_message=mine) is None
        assert said(location=BERLIN, reply_to_message=mine) == "[location: 52.52, 13.405]"

    @pytest.mark.parametrize("scope", ["chat", "user"])
    def test_a_move(self, scope: Scope) -> None:
        old = heard(update(GROUP, migrate_to_chat_id=-1001234), scope)
        new = heard(update(SUPERGROUP, migrate_from_chat_id=-5) | {"update_id": 901}, scope)
        for inbound in (old, new):
            assert inbound.kind == "moved"
            assert inbound.key == f"telegram-{scope}:-5"
            assert inbound.text == f"telegram-{scope}:-1001234"
        assert old.id != new.id
        assert heard(update(GROUP, migrate_to_chat_id=-9), scope, "b").text == (
            f"telegram-{scope}@b:-9"
        )


MEANT = mentioning("@our_bot hi", "@our_bot")


@pytest.mark.parametrize(
    "raw",
    [
        update(),
        update(text=""),
        update(text=" \n\x07"),
        update(text="hi", **{"from": OURSELVES}),
        update(text="hi", **{"from": ALICE | {"is_bot": True}}),
        update(text="hi", **{"from": OURSELVES | {"is_bot": False}}),
        update(GROUP, **MEANT, sender_chat={"id": -9, "type": "channel"}),
        update({"id": -9, "type": "channel"}, **MEANT),
        update(SUPERGROUP | {"is_direct_messages": True}, **MEANT),
        update(GROUP, new_chat_members=[ALICE]),
        update(GROUP, forum_topic_created={"name": "T"}),
        update(PRIVATE, pinned_message={"message_id": 1}),
        {"update_id": 900, "edited_message": update(GROUP, new_chat_photo=[])["message"]},
        {"update_id": 900, "channel_post": update(text="hi")["message"]},
        {"update_id": 900, "my_chat_member": {"chat": PRIVATE, "from": ALICE}},
        {"update_id": 900, "callback_query": {"id": "1", "from": ALICE, "data": "x"}},
        {"update_id": 900, "stopped_message_generation": {"chat": GROUP, "draft_id": 1}},
        {"update_id": 900, "stopped_message_generation": {"draft_id": 1}},
        {"update_id": True, **{k: v for k, v in update(text="hi").items() if k == "message"}},
        {"update_id": -1, "message": update(text="hi")["message"]},
        {"message": update(text="hi")["message"]},
        update(text="hi", date=10**30),
        update(text="hi", message_id="7"),
        update(PRIVATE | {"id": 10**30}, text="hi"),
    ],
)
def test_what_says_nothing_to_us(raw: object) -> None:
    assert parse(raw, BOT, None, "chat") is None


NAMES = Called(("Chinny", "the bot", "C3"))


@pytest.mark.parametrize(
    "text",
    [
        "Chinny, what now?",
        "chinny what now",
        "what now, CHINNY?!",
        " 👋 Chinny!",
        "«Chinny» what now",
        "chinny",
        "The Bot: what now",
        "what now _the bot_",
        "c3?",
    ],
)
def test_a_name_in_front_or_at_the_end_calls_the_bot(text: str) -> None:
    inbound = parse(update(GROUP, text=text), BOT, None, "chat", called=NAMES)
    assert inbound is not None and inbound.addressed and inbound.text == clean(text).strip()
    assert parse(update(GROUP, text=text), BOT, None, "chat") is None


@pytest.mark.parametrize(
    "text",
    ["I like Chinny a lot", "Chinnys lunch", "xChinny", "the bottom", "bot", "c33", "Chinny1 hi"],
)
def test_a_name_elsewhere_or_in_another_word_does_not(text: str) -> None:
    assert parse(update(GROUP, text=text), BOT, None, "chat", called=NAMES) is None


def test_where_all_is_heard_it_is_said_what_was_not_for_us() -> None:
    def hear(raw: dict[str, Any]) -> Inbound | None:
        return parse(raw, BOT, None, "chat", called=Called(everything=True))

    lunch = hear(update(GROUP, text="lunch?"))
    assert lunch is not None and not lunch.addressed
    assert (lunch.kind, lunch.text, lunch.group) == ("message", "lunch?", True)
    for meant in (update(GROUP, **MEANT), update(text="lunch?"), edited(update(GROUP, text="x"))):
        inbound = hear(meant)
        assert inbound is not None and inbound.addressed
    # Said to another bot, by a bot, or without a word.
    assert hear(update(GROUP, **commanding("/ask@other_bot what"))) is None
    assert hear(update(GROUP, text="x", **{"from": ALICE | {"is_bot": True}})) is None
    assert hear(update(GROUP, new_chat_members=[ALICE])) is None


def test_an_album_that_was_not_for_us_makes_none_of_its_pictures_ours() -> None:
    hearing = Hearing(BOT, None, "chat", Called(everything=True))
    photo = [{"file_id": "f", "file_unique_id": "u", "width": 9, "height": 9, "file_size": 9}]
    for update_id in (1, 2):
        inbound = hearing(update(GROUP, photo=photo, media_group_id="a") | {"update_id": update_id})
        assert inbound is not None and not inbound.addressed and inbound.album == "a"


ANONYMOUS = {"id": 1087968824, "is_bot": True, "first_name": "Group"}


def test_an_anonymous_administrator_speaks_in_the_group_s_name() -> None:
    inbound = heard(update(SUPERGROUP, **MEANT, **{"from": ANONYMOUS, "sender_chat": SUPERGROUP}))
    assert (inbound.sender.id, inbound.sender.name) == ("telegram:-1001234", "Super")
    assert inbound.key == "telegram-chat:-1001234" and inbound.kind == "message"
    # A channel's post in the group that belongs to it is nobody's.
    channel = {"from": ANONYMOUS, "sender_chat": {"id": -1009, "type": "channel"}}
    assert parse(update(SUPERGROUP, **MEANT, **channel), BOT, None, "chat") is None


def edited(raw: dict[str, Any]) -> dict[str, Any]:
    return {"update_id": 901, "edited_message": raw["message"] | {"edit_date": 1_795_000_009}}


def test_an_edit_says_what_its_message_would_say_now() -> None:
    first, second = heard(update(text="frist")), heard(edited(update(text="first")))
    assert (second.kind, second.text, second.id) == ("edit", "first", f"{901:020}")
    assert (second.key, second.message_id, second.sender, second.at) == (
        first.key,
        first.message_id,
        first.sender,
        first.at,
    )


def test_in_a_group_every_edit_may_be_of_what_was_said_to_us() -> None:
    addressed = heard(edited(update(GROUP, **MEANT)))
    assert (addressed.kind, addressed.text) == ("edit", "hi")
    plain = heard(edited(update(GROUP, text="hi")))
    assert (plain.kind, plain.text, plain.group) == ("edit", "hi", True)
    command = {"text": "/reset", "entities": [{"type": "bot_command", "offset": 0, "length": 6}]}
    assert heard(edited(update(GROUP, **command))).kind == "edit"
    assert parse(edited(update(GROUP, text="x", **{"from": OURSELVES})), BOT, None, "chat") is None


@pytest.mark.parametrize(
    ("thread", "key"),
    [(None, "telegram-chat:42"), (1, "telegram-chat:42"), (7, "telegram-topic:42/7")],
)
def test_the_button_under_a_draft_is_stop(thread: int | None, key: str) -> None:
    pressed = {"chat": PRIVATE, "draft_id": 1}
    if thread is not None:
        pressed["message_thread_id"] = thread
    inbound = heard({"update_id": 900, "stopped_message_generation": pressed})
    assert (inbound.kind, inbound.text, inbound.key) == ("command", "/stop", key)
    assert inbound.sender.id == "telegram:42"


def test_a_message_without_a_sender_is_nobodys() -> None:
    raw = update(text="hi")
    del raw["message"]["from"]
    assert parse(raw, BOT, None, "chat") is None


@pytest.mark.parametrize("scope", ["chat", "user"])
def test_where_no_answer_could_go_nothing_is_taken_in(scope: Scope) -> None:
    assert parse(update(PRIVATE | {"id": 0}, text="hi"), BOT, None, scope) is None
    by_nobody = update(GROUP, **MEANT, **{"from": ALICE | {"id": 0}})
    assert (parse(by_nobody, BOT, None, scope) is None) == (scope == "user")


def test_a_megabyte() -> None:
    assert len(heard(update(text="😀" * 500_000)).text) == 500_000


IDS = st.integers(min_value=1, max_value=2**53)
CHATS = IDS | IDS.map(lambda number: -number)


@given(
    chat=CHATS,
    thread=st.none() | IDS,
    user=IDS,
    private=st.booleans(),
    account=st.sampled_from([None, "support"]),
    scope=st.sampled_from(["chat", "user"]),
)
def test_a_key_leads_back(
    chat: int, thread: int | None, user: int, private: bool, account: str | None, scope: Scope
) -> None:
    key = key_of(chat, private=private, thread=thread, user=user, account=account, scope=scope)
    assert address(key, account) == Address(chat, thread)
    assert address(key, "other") is None
    parsed = SessionKey.parse(key)
    assert parsed is not None
    assert str(parsed) == key
    old, new = moved_prefixes(key, -77)
    assert key == old or key.startswith(f"{old}/")
    assert new == str(SessionKey(parsed.scope, ("-77",), account))


@pytest.mark.parametrize(
    "key",
    [
        "",
        "free",
        "console:default",
        "telegram-chat:",
        "telegram-chat:0",
        "telegram-chat:007",
        "telegram-chat:+5",
        "telegram-chat:x",
        "telegram-chat:1/2",
        "telegram-chat:1" + "0" * 30,
        "telegram-chat:٣",
        "telegram-topic:1",
        "telegram-topic:1/-2",
        "telegram-user:1",
        "telegram-user:1/2/3/4",
        "telegram-other:1",
        "slack-dm:T1/D1",
    ],
)
def test_no_address(key: str) -> None:
    assert address(key, None) is None


def test_only_keys_move() -> None:
    with pytest.raises(ValueError, match="no adapter"):
        moved_prefixes("free", 1)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
# ---------------------------------------------------------------------- presses

SAID = "+0123456789abcdef.0.0123456789ab"


def press(data: object = SAID, chat: dict[str, Any] = PRIVATE, **more: Any) -> dict[str, Any]:
    query = {"id": "4382", "from": ALICE, "message": {"message_id": 8, "chat": chat, "date": 0}}
    return {"update_id": 901, "callback_query": query | {"data": data} | more}


def test_a_press() -> None:
    """Also under a message of which Telegram says nothing but where it is."""
    inbound = heard(press())
    assert inbound == Inbound(
        id="00000000000000000901",
        key="telegram-chat:42",
        kind="decision",
        sender=heard(update(text="x")).sender,
        text=SAID,
        message_id="8",
        reply_to="4382",
    )
    assert heard(press(chat=GROUP)).group


@pytest.mark.parametrize("account", [None, "support"])
@pytest.mark.parametrize("chat", [GROUP, SUPERGROUP, FORUM])
@pytest.mark.parametrize(
    ("thread", "scope"), [(None, "chat"), (7, "chat"), (None, "user"), (7, "user")]
)
def test_a_press_comes_back_to_the_conversation_of_its_button(
    account: str | None, chat: dict[str, Any], thread: int | None, scope: Scope
) -> None:
    key = key_of(chat["id"], private=False, thread=thread, user=42, account=account, scope=scope)
    data = data_for(key, SAID)
    assert data is not None and len(data) <= 64
    inbound = heard(press(data, chat), "chat", account)
    assert (inbound.key, inbound.text) == (key, SAID)


def test_the_longest_of_real_life_fits_and_what_does_not_is_said() -> None:
    key = f"telegram-user:-1009999999999/{2**31}/{2**53}"
    said = "+" + "f" * 16 + ".999." + "f" * 12
    data = data_for(key, said)
    assert data is not None and len(data) == 64 - 1
    assert data_for(key + "0" * 2, said) is None


@pytest.mark.parametrize(
    "raw",
    [
        press(f"{SAID}@"),
        press(f"{SAID}@x7"),
        press(f"{SAID}@t7/42"),
        press(f"{SAID}@t0"),
        press(f"{SAID}@u42/../7"),
        press(f"{SAID}@u42/7/8"),
        press("x" * 300),
        press(None),
        press(chat=PRIVATE | {"type": "channel"}),
        press(chat=PRIVATE | {"id": 0}),
        press(message=None, inline_message_id="5"),
        press(id=""),
        press(**{"from": OURSELVES}),
    ],
)
def test_a_press_that_is_none_of_our_buttons(raw: dict[str, Any]) -> None:
    assert parse(raw, BOT, None, "chat") is None


def test_whose_conversation_it_is_cannot_be_in_another_chat() -> None:
    """A client of somebody's own may send any data; the chat is Telegram's word."""
    inbound = heard(press(f"{SAID}@u777", GROUP))
    assert inbound.key == "telegram-user:-5/777"


REAL = [
    {"update_id": 900, "stopped_message_generation": {"chat": PRIVATE, "draft_id": 1}},
    update(text="hello"),
    update(GROUP, **MEANT),
    update(FORUM, is_topic_message=True, message_thread_id=7, **MEANT),
    update(GROUP, **commanding("/ask@our_bot x")),
    update(GROUP, text="yes", reply_to_message={"message_id": 3, "from": OURSELVES}),
    update(GROUP, migrate_to_chat_id=-1001234),
    update(SUPERGROUP, migrate_from_chat_id=-5),
    update(photo=[{}], caption="a", caption_entities=[entity("mention", "@our_bot", "@our_bot")]),
    update(GROUP, text="B", entities=[entity("text_mention", "B", "B", user=OURSELVES)]),
    press(),
    press(f"{SAID}@u7/42", FORUM),
]


def check(raw: object) -> None:
    for scope in ("chat", "user"):
        inbound = parse(raw, BOT, "a", scope)
        if inbound is not None:
            assert msgspec.json.decode(msgspec.json.encode(inbound), type=Inbound).id == inbound.id
            assert len(inbound.id) >= 20
            assert inbound.text.strip()
            assert inbound.text == clean(inbound.text)
            assert inbound.kind == "moved" or address(inbound.key, "a")


@settings(max_examples=300, deadline=None)
@given(JSON)
def test_any_json(raw: object) -> None:
    check(raw)
    check({"update_id": 1, "message": raw})


@settings(max_examples=600, deadline=None)
@given(st.data())
def test_any_part_of_an_update_may_be_anything(data: st.DataObject) -> None:
    raw = copy.deepcopy(data.draw(st.sampled_from(REAL)))
    for _ in range(data.draw(st.integers(1, 3))):
        parts = list(places(raw))
        if not parts:
            break
        holder, name = parts[data.draw(st.integers(0, len(parts) - 1))]
        if data.draw(st.booleans()):
            holder[name] = data.draw(JSON)
        elif isinstance(holder, dict):
            del holder[name]
    check(raw)


@settings(max_examples=300, deadline=None)
@given(
    st.text(st.characters(exclude_categories=())),
    st.lists(
        st.fixed_dictionaries(
            {
                "type": st.sampled_from(["mention", "bot_command", "text_mention"]),
                "offset": st.integers(0, 12),
                "length": st.integers(0, 12),
                "user": st.just(OURSELVES),
            }
        )
    ),
    st.sampled_from([PRIVATE, GROUP]),
)
def test_entities_may_lie_anywhere(
    text: str, entities: list[dict[str, Any]], chat: dict[str, Any]
) -> None:
    for place in ("/a@our_bot", "@our_bot", ""):
        check(update(chat, text=place + text, entities=entities))


def places(value: Any) -> Any:
    """(container, key) of everything inside."""
    pairs: Any = ()
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = list(enumerate(value))
    for name, inner in pairs:
        yield value, name
        yield from places(inner)
