"""Who and where: people, chats, topics, and the messages in them, in the Bot API's JSON.

A chat keeps messages and knows what may be sent to it; it makes no updates and answers no requests.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

Json = dict[str, Any]

GENERAL = (
    1  # the thread of a forum that exists without being made, and must not be named when sending
)


class Refused(Exception):
    """The Bot API's answer is an error: HTTP status, description and `parameters`."""

    def __init__(self, status: int, description: str, parameters: Json | None = None) -> None:
        super().__init__(description)
        self.status = status
        self.description = description
        self.parameters = parameters


@dataclass(frozen=True, slots=True)
class Person:
    """A user. The id is also the id of the private chat with the bot."""

    id: int
    name: str
    username: str | None = None
    language: str = "en"

    def json(self) -> Json:
        user: Json = {
            "id": self.id,
            "is_bot": False,
            "first_name": self.name,
            "language_code": self.language,
        }
        return user | ({"username": self.username} if self.username else {})


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message of the bot as it stands now. `edits` are its earlier texts, oldest first."""

    chat_id: int
    message_id: int
    text: str
    entities: tuple[Json, ...]
    thread: int | None
    reply_to: int | None
    markup: Json | None
    at: float  # by the monotonic clock of the stand-in
    edits: tuple[str, ...] = ()
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Upload:
    """A file as it came."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Draft:
    """The preview that sendMessageDraft shows for 30 seconds."""

    draft_id: int
    text: str
    at: float  # by the monotonic clock of the stand-in
    can_stop: bool = False
    entities: tuple[Json, ...] = ()


@dataclass(eq=False, slots=True)
class Chat:
    """One chat. `kind` is the Bot API's type: private, group or supergroup."""

    id: int
    kind: str
    title: str
    person: Person | None = None
    owner: Person | None = None
    admins: tuple[Person, ...] = ()  # besides the owner
    forum: bool = False
    upgrade: Callable[["Chat"], "Chat"] | None = field(default=None, repr=False)
    moved_to: int | None = None
    closed: str | None = None  # why the bot may not write: the description of the 403
    topics: dict[int, str] = field(default_factory=dict, repr=False)
    messages: dict[int, Json] = field(default_factory=dict, repr=False)
    sent: dict[int, SentMessage] = field(default_factory=dict, repr=False)
    files: dict[int, Upload] = field(default_factory=dict, repr=False)
    drafts: dict[int | None, Draft] = field(default_factory=dict, repr=False)
    last_id: int = 0

    def topic(self, name: str) -> int:
        """Makes a topic and returns its thread id (above 1). The bot gets no update of it."""
        if self.kind != "private" and not self.forum:
            raise ValueError(f"{self.title!r} is no forum, so it has no topics")
        self.last_id = max(self.last_id, GENERAL)
        about = {"name": name, "icon_color": 7322096}
        made = self.add(self.person or self.owner, 0, {"forum_topic_created": about})
        thread: int = made["message_id"]
        made.update(message_thread_id=thread, is_topic_message=True)
        self.topics[thread] = name
        return thread

    def remove_topic(self, thread: int) -> None:
        """Later sends to that thread fail with "message thread not found"."""
        del self.topics[thread]

    def migrate(self) -> "Chat":
        """A group becomes a supergroup, the chat returned; both service messages are updates."""
        if self.kind != "group" or self.moved_to is not None or self.upgrade is None:
            raise ValueError(f"{self.title!r} is no group that could become a supergroup")
        return self.upgrade(self)

    def json(self) -> Json:
        if self.person is not None:
            who = self.person
            chat: Json = {"id": self.id, "type": self.kind, "first_name": who.name}
            return chat | ({"username": who.username} if who.username else {})
        chat = {"id": self.id, "type": self.kind, "title": self.title}
        return chat | ({"is_forum": True} if self.forum else {})

    def check_writable(self) -> None:
        """Raises `Refused` when nothing may be sent here."""
        if self.moved_to is not None:
            raise Refused(
                400,
                "Bad Request: group chat was upgraded to a supergroup chat",
                {"migrate_to_chat_id": self.moved_to},
            )
        if self.closed is not None:
            raise Refused(403, self.closed)

    def add(
        self,
        sender: Person | Json | None,
        date: int,
        content: Json,
        thread: int | None = None,
        reply_to: int | None = None,
    ) -> Json:
        """Appends a message and returns its JSON, which is also what the chat keeps."""
        self.last_id += 1
        message: Json = {"message_id": self.last_id}
        if sender is not None:
            message["from"] = sender.json() if isinstance(sender, Person) else sender
        message |= {"chat": self.json(), "date": date}
        replied = self.messages.get(reply_to) if reply_to is not None else None
        if thread is not None and thread in self.topics:
            message |= {"message_thread_id": thread, "is_topic_message": True}
            if replied is None and self.kind == "supergroup":
                # A message in a topic that answers nothing "answers" the topic's first message.
                replied = self.messages.get(thread)
        elif replied is not None and self.kind == "supergroup" and not self.forum:
            # Replies in an ordinary supergroup carry a thread id too, which is no topic.
            message["message_thread_id"] = replied.get("message_thread_id", replied["message_id"])
        if replied is not None:
            message["reply_to_message"] = {
                k: v for k, v in replied.items() if k != "reply_to_message"
            }
        message |= content
        self.messages[self.last_id] = message
        return message

    def record(
        self, message: Json, at: float, reply_to: int | None, thread: int | None
    ) -> SentMessage:
        """Notes a message that the bot sent."""
        sent = SentMessage(
            chat_id=self.id,
            message_id=message["message_id"],
            text=message.get("text") or message.get("caption", ""),
            entities=tuple(message.get("entities", ())),
            thread=thread,
            reply_to=reply_to,
            markup=message.get("reply_markup"),
            at=at,
        )
        self.sent[sent.message_id] = sent
        return sent

    def record_edit(self, message: Json) -> SentMessage:
        old = self.sent[message["message_id"]]
        new = replace(
            old,
            text=message["text"],
            entities=tuple(message.get("entities", ())),
            markup=message.get("reply_markup"),
            edits=(*old.edits, old.text),
        )
        self.sent[new.message_id] = new
        return new

    def delete(self, message_id: int) -> None:
        del self.messages[message_id]
        if message_id in self.sent:
            self.sent[message_id] = replace(self.sent[message_id], deleted=True)
