"""Telegram on loopback: a Bot API server with people in it, for an unmodified client.

    async with Telegram() as telegram:
        bot = Bot(telegram.token, base_url=f"{telegram.url}/bot")
        alice = telegram.person("Alice")
        telegram.write(alice, "hello")
        ...
        await telegram.wait_for(1, alice)

People write, the bot asks for updates and answers, and everything it did is on record. It is not
Telegram's limits of speed (a `fault` plays those), and not the privacy mode of groups. What people
can send besides words is in `playground.telegram_media`; a fault of "download" is one of a file.

`python -m playground.telegram [--port N] [--token T]` runs one alone until SIGINT or SIGTERM.
"""

import argparse
import asyncio
import json
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self

from playground.serve import serving
from playground.telegram_buttons import buttons_of
from playground.telegram_chats import Chat, Draft, Json, Person, Refused, SentMessage
from playground.telegram_faults import (
    Answer,
    CutShort,
    Delay,
    DeliverTwice,
    Elsewhere,
    Fault,
    Faults,
    GarbageBody,
    Overflow,
    ResetAfter,
    ResetBefore,
    Rule,
)
from playground.telegram_files import StoredFiles
from playground.telegram_media import Author, External, Sendable, origin
from playground.telegram_methods import World
from playground.telegram_server import Call, Server
from playground.telegram_text import MAX_TEXT, marks, units
from playground.telegram_updates import Updates
from playground.telegram_webhook import Delivery, Sender, Webhook

__all__ = [
    "OLDEST",
    "Answer",
    "Call",
    "Chat",
    "CutShort",
    "Delay",
    "DeliverTwice",
    "Delivery",
    "Draft",
    "Elsewhere",
    "Fault",
    "GarbageBody",
    "Overflow",
    "Person",
    "Refused",
    "ResetAfter",
    "ResetBefore",
    "Rule",
    "SentMessage",
    "Telegram",
]

TOKEN = "123456:TEST-token_of_the_playground_000000"
Place = Person | Chat | int
# What the first servers knew that a bot cannot do without. See `Telegram.knows`.
OLDEST = frozenset({"getMe", "getUpdates", "sendMessage", "sendDocument"})


class Telegram:
    """The server, the people, and the record. Change `token` to revoke it.

    `second` is how long a second of a webhook's delays takes here, `proxy` says where a webhook's
    public URL leads to: {"https://bot.example.org": "http://127.0.0.1:8080"}.
    """

    def __init__(
        self,
        token: str = TOKEN,
        *,
        username: str = "playground_bot",
        port: int = 0,
        first_update_id: int = 914_066_117,
        clock: Callable[[], float] = time.time,
        second: float = 1.0,
        proxy: Mapping[str, str] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.username = username
        self.url = ""
        self.listeners: list[Callable[[str, Json], None]] = []
        self._updates = Updates(self._tell, first_update_id)
        self._world = World(
            bot={
                "id": int(token.partition(":")[0]),
                "is_bot": True,
                "first_name": "Playground",
                "username": username,
            },
            updates=self._updates,
            tell=self._tell,
            clock=clock,
            monotonic=monotonic,
        )
        self._faults = Faults()
        self._sender = Sender(self._world, self._faults, second, proxy or {})
        self._port = port
        self._stack = AsyncExitStack()
        self._changed = asyncio.Event()
        self._server = Server(token, self._world, self._faults)
        self.calls: list[Call] = self._server.calls
        self.app = self._server.app

    async def __aenter__(self) -> Self:
        self.url = await self._stack.enter_async_context(serving(self.app, port=self._port))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._sender.close()
        await self._stack.aclose()

    @property
    def token(self) -> str:
        return self._server.token

    @token.setter
    def token(self, token: str) -> None:
        self._server.token = token

    def knows(self, *methods: str) -> None:
        """From now on it is an old server with only these methods: others are answered 404."""
        self._server.knows = frozenset(method.lower() for method in methods)

    # Who and where

    def person(self, name: str, username: str | None = None, language: str = "en") -> Person:
        """Somebody who has started the bot: the private chat exists."""
        person = Person(710_000_001 + len(self._world.chats), name, username, language)
        self._world.chats[person.id] = Chat(person.id, "private", name, person=person)
        return person

    def group(self, title: str, owner: Person | None = None) -> Chat:
        return self._new_chat(-4_100_000_001, "group", title, owner, False)

    def supergroup(self, title: str, forum: bool = False, owner: Person | None = None) -> Chat:
        return self._new_chat(-1_001_700_000_001, "supergroup", title, owner, forum)

    @property
    def chats(self) -> list[Chat]:
        """All there are, the private ones of people included, in the order they were made."""
        return list(self._world.chats.values())

    def chat(self, place: Place) -> Chat:
        """The chat of a person, or the one with that id. Raises `KeyError`."""
        if isinstance(place, Chat):
            return place
        return self._world.chats[place.id if isinstance(place, Person) else place]

    def topic_in(self, place: Place, name: str) -> int:
        """Makes a topic, in a private chat too; returns its thread id. The bot hears nothing."""
        chat = self.chat(place)
        self._world.topics_in_private |= chat.kind == "private"
        return chat.topic(name)

    # What people do. Each returns the id of the update, or 0 when the bot asked for no such kind.

    def write(
        self,
        person: Person,
        text: str,
        chat: Place | None = None,
        *,
        thread: int | None = None,
        reply_to: int | None = None,
        mention: bool = False,
    ) -> int:
        """A person writes: to the bot, or into a group. `mention` puts the bot's name in front."""
        place = self._open(person if chat is None else chat)
        if thread is not None and thread not in place.topics:
            raise ValueError(f"no topic {thread} in {place.title!r}")
        if reply_to is not None and reply_to not in place.messages:
            raise ValueError(f"no message {reply_to} in {place.title!r}")
        content = self._content(f"@{self.username} {text}" if mention else text)
        message = place.add(person, self._world.date(), content, thread, reply_to)
        return self._updates.add("message", message)

    def send(
        self,
        person: Person,
        what: Sendable,
        chat: Place | None = None,
        *,
        caption: str = "",
        mention: bool = False,
        thread: int | None = None,
        reply_to: int | None = None,
        quote: str = "",
        external: External | None = None,
        forwarded: Author | None = None,
        album: str | None = None,
    ) -> int:
        """A person sends anything: see `playground.telegram_media`.

        `quote` is what they have picked of the message that they reply to, `external` a message of
        another chat that they do, `forwarded` who has said it.
        """
        place = self._open(person if chat is None else chat)
        content = what.content(self._world.files)
        if words := f"@{self.username} {caption}".strip() if mention else caption:
            content |= {"caption": words}
            content |= {"caption_entities": found} if (found := marks(words)) else {}
        if quote:
            content["quote"] = {"text": quote, "position": 0, "is_manual": True}
        date = self._world.date()
        if external is not None:
            content["external_reply"] = external.content(self._world.files, date)
        if forwarded is not None:
            content["forward_origin"] = origin(forwarded, date)
        if album is not None:
            content["media_group_id"] = album
        message = place.add(person, date, content, thread, reply_to)
        return self._updates.add("message", message)

    def album(
        self,
        person: Person,
        several: Sequence[Sendable],
        chat: Place | None = None,
        *,
        caption: str = "",
        mention: bool = False,
        forwarded: Author | None = None,
    ) -> list[int]:
        """Two to ten of them as one: a message each, the caption under the first."""
        name = str(13_000_000_000_000_000 + self._updates.next_id)
        return [
            self.send(
                person,
                what,
                chat,
                caption="" if number else caption,
                mention=mention and not number,
                forwarded=forwarded,
                album=name,
            )
            for number, what in enumerate(several)
        ]

    @property
    def stored(self) -> StoredFiles:
        """What people have sent."""
        return self._world.files

    def edit(self, person: Person, message_id: int, text: str, chat: Place | None = None) -> int:
        """A person changes what they wrote."""
        place = self._open(person if chat is None else chat)
        old = place.messages[message_id]
        if old.get("from", {}).get("id") != person.id:
            raise ValueError(f"message {message_id} is not from {person.name}")
        kept = {name: value for name, value in old.items() if name not in ("text", "entities")}
        message = kept | {"edit_date": self._world.date()} | self._content(text)
        place.messages[message_id] = message
        return self._updates.add("edited_message", message)

    def press(self, person: Person, message_id: int, data: str, chat: Place | None = None) -> int:
        """A person presses a button under a message of the bot; with a client of their own, or one
        that is not up to date, also a button that is not there. See `choose`."""
        place = self._open(person if chat is None else chat)
        query = str(4_382_000_000_000_000 + self._updates.next_id)
        self._world.queries[query] = data
        payload: Json = {
            "id": query,
            "from": person.json(),
            "message": place.messages[message_id],
            "chat_instance": str(place.id),
            "data": data,
        }
        return self._updates.add("callback_query", payload)

    def choose(self, person: Person, label: str, chat: Place | None = None) -> int:
        """A person presses the button with this label: of the newest message that has one."""
        place = self._open(person if chat is None else chat)
        for message in reversed(place.sent.values()):
            data = buttons_of(message.markup).get(label)
            if data is not None and not message.deleted:
                return self.press(person, message.message_id, data, place)
        raise ValueError(f"no button {label!r} in {place.title!r}")

    def buttons(self, chat: Place) -> list[tuple[int, dict[str, str]]]:
        """The messages with buttons, oldest first: id, and what each says, by its label."""
        return [
            (message.message_id, buttons_of(message.markup))
            for message in self.sent(chat)
            if message.markup and not message.deleted
        ]

    @property
    def answers(self) -> list[Json]:
        """What the bot has answered to presses: `data`, `text`, `show_alert`."""
        return self._world.answers

    def press_stop(self, person: Person, thread: int | None = None) -> int:
        """A person presses the button under a draft that `can_stop`: the preview goes away."""
        place = self._open(person)
        draft = place.drafts.pop(thread, None)
        if draft is None or not draft.can_stop:
            raise ValueError(f"{person.name} sees no draft that can be stopped")
        payload: Json = {"chat": place.json(), "draft_id": draft.draft_id}
        if thread is not None:
            payload["message_thread_id"] = thread
        return self._updates.add("stopped_message_generation", payload)

    def block(self, place: Place, *, quiet: bool = False) -> int:
        """A person blocks the bot, or a group throws it out. `quiet`: no my_chat_member update."""
        chat = self.chat(place)
        chat.closed = "Forbidden: bot was blocked by the user"
        if chat.kind != "private":
            chat.closed = f"Forbidden: bot was kicked from the {chat.kind} chat"
        return 0 if quiet else self._membership(chat, "member", "kicked")

    def unblock(self, place: Place, *, quiet: bool = False) -> int:
        chat = self.chat(place)
        chat.closed = None
        return 0 if quiet else self._membership(chat, "kicked", "member")

    # What else may arrive

    def inject(self, raw: Any, *, numbered: bool = True) -> int:
        """Anything as an update: a str is taken as JSON text verbatim, other values are encoded.

        A dict without `update_id` gets one unless `numbered` is false. Not filtered by
        allowed_updates. Returns the id by which the queue counts it, for its JSON may have none: an
        offset above that id confirms it.
        """
        return self._updates.inject(raw, numbered=numbered)

    def redeliver(self, update_id: int) -> None:
        """An update that was confirmed comes once more, as Telegram itself sometimes does."""
        self._updates.redeliver([update_id])

    def jump_update_ids(self, to: int) -> None:
        """The next update has this id. Lower than before only when nothing is unconfirmed."""
        self._updates.jump(to)

    def fault(
        self,
        method: str,
        fault: Fault,
        *,
        times: int | None = 1,
        chat: Place | None = None,
        after: int = 0,
    ) -> Rule:
        """Something goes wrong with the next call of `method`: a pattern like "send*", in any case.

        `times=None` is always, `chat` limits it to one chat, `after` lets that many calls pass.
        When several faults match, the oldest takes the call. The rule that is returned counts
        `hits` and can `cancel()`.
        """
        where = None if chat is None else self.chat(chat).id
        rule = Rule(method, fault, times, where, after)
        self._faults.rules.append(rule)
        return rule

    # What happened

    @property
    def delivered(self) -> list[int]:
        """Ids of the updates that went out, in order, as often as they did."""
        return self._updates.delivered

    @property
    def confirmed(self) -> list[int]:
        """Ids of the updates the bot has confirmed, in that order."""
        return self._updates.confirmed

    @property
    def deliveries(self) -> list[Delivery]:
        """The requests to the webhook, in the order in which they ended."""
        return self._sender.deliveries

    @property
    def webhook(self) -> Webhook:
        return self._world.webhook

    @property
    def second(self) -> float:
        """How long a second of a webhook's delays takes."""
        return self._sender.second

    @second.setter
    def second(self, seconds: float) -> None:
        self._sender.second = seconds

    def unconfirmed(self) -> list[int]:
        return self._updates.waiting()

    @property
    def polled(self) -> bool:
        """The bot waits in getUpdates for something to arrive."""
        return self._updates.polled

    def update(self, update_id: int) -> Any:
        """The JSON of an update."""
        return json.loads(self._updates.text(update_id))

    def update_text(self, update_id: int) -> str:
        """An update as it went out, which may be no JSON when it was injected."""
        return self._updates.text(update_id)

    def message_id(self, update_id: int) -> int:
        """The id of the message in an update made by `write` or `edit`."""
        update = self.update(update_id)
        message = update.get("message") or update["edited_message"]
        message_id: int = message["message_id"]
        return message_id

    def sent(self, chat: Place) -> list[SentMessage]:
        """What the bot sent there, oldest first, deleted messages included."""
        return list(self.chat(chat).sent.values())

    def texts(self, chat: Place) -> list[str]:
        """The texts of the bot that can be read there now."""
        return [message.text for message in self.sent(chat) if not message.deleted]

    def files(self, chat: Place) -> dict[str, bytes]:
        """The files that the bot sent there, by name."""
        return {file.name: file.data for file in self.chat(chat).files.values()}

    def draft(self, chat: Place, thread: int | None = None) -> Draft | None:
        """The preview shown now: until the bot sends a message there, for at most 30 seconds."""
        draft = self.chat(chat).drafts.get(thread)
        return draft if draft and self._world.monotonic() - draft.at < 30 else None

    async def wait_for(
        self,
        what: int | Callable[[list[SentMessage]], bool],
        chat: Place,
        timeout: float = 5.0,
    ) -> list[SentMessage]:
        """Waits until the bot has sent that many messages, or `what(sent)` holds. Returns them.

        Raises `TimeoutError` with what there was instead.
        """
        place = self.chat(chat)
        if isinstance(what, int):
            count = what
            done: Callable[[], bool] = lambda: len(place.sent) >= count  # noqa: E731
        else:
            predicate = what
            done = lambda: predicate(list(place.sent.values()))  # noqa: E731
        try:
            await self.until(done, timeout)
        except TimeoutError:
            raise TimeoutError(
                f"after {timeout} s {place.title!r} has {self.texts(chat)}"
            ) from None
        return self.sent(chat)

    async def until(self, done: Callable[[], bool], timeout: float = 5.0) -> None:
        """Waits until `done()` holds, asked anew at every event. Raises `TimeoutError`."""
        async with asyncio.timeout(timeout):
            while not done():
                await self._changed.wait()

    # Inside

    def _tell(self, event: str, details: Json) -> None:
        for listener in self.listeners:
            listener(event, details)
        if event in ("queued", "again", "webhook"):
            self._sender.stir(anew=event == "webhook")
        self._changed.set()
        self._changed = asyncio.Event()

    def _new_chat(
        self, first: int, kind: str, title: str, owner: Person | None, forum: bool
    ) -> Chat:
        chat = Chat(first - len(self._world.chats), kind, title, owner=owner, forum=forum)
        chat.upgrade = self._migrate
        self._world.chats[chat.id] = chat
        return chat

    def _migrate(self, old: Chat) -> Chat:
        new = self.supergroup(old.title, owner=old.owner)
        old.moved_to = new.id
        date = self._world.date()
        # The order in which Telegram sends them is not promised; this is the usual one.
        self._updates.add("message", old.add(old.owner, date, {"migrate_to_chat_id": new.id}))
        self._updates.add("message", new.add(old.owner, date, {"migrate_from_chat_id": old.id}))
        return new

    def _open(self, place: Place) -> Chat:
        chat = self.chat(place)
        if chat.moved_to is not None or chat.closed is not None:
            raise ValueError(f"nobody can write to the bot in {chat.title!r}: moved or blocked")
        return chat

    def _content(self, text: str) -> Json:
        if not text.strip() or units(text) > MAX_TEXT:
            raise ValueError("people write 1 to 4096 UTF-16 units; use inject for anything else")
        found = marks(text)
        return {"text": text} | ({"entities": found} if found else {})

    def _membership(self, chat: Chat, before: str, after: str) -> int:
        bot = self._world.bot

        def member(status: str) -> Json:
            return {"user": bot, "status": status} | (
                {"until_date": 0} if status == "kicked" else {}
            )

        who = chat.person or chat.owner or Person(777_000, "Somebody")
        payload: Json = {
            "chat": chat.json(),
            "from": who.json(),
            "date": self._world.date(),
            "old_chat_member": member(before),
            "new_chat_member": member(after),
        }
        return self._updates.add("my_chat_member", payload)


async def _run(port: int, token: str) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop.set)
    async with Telegram(token, port=port) as telegram:
        print(telegram.url, flush=True)
        await stop.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m playground.telegram")
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--token", default=TOKEN, help="default: %(default)s")
    given = parser.parse_args()
    asyncio.run(_run(given.port, given.token))


if __name__ == "__main__":
    main()
