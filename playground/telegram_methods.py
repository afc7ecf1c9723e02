"""The methods of the Bot API that the stand-in knows: each `world, parameters -> result`.

They check what Telegram checks and raise `Refused` with Telegram's words
(telegram-bot-api/Client.cpp, 10.0). Where Telegram forgives, they may be stricter: a
`message_thread_id` for a chat without topics is an error here, for it is a mistake of the bot.
getUpdates is not among them, because it waits.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from playground.telegram_buttons import keyboard
from playground.telegram_chats import GENERAL, Chat, Draft, Json, Person, Refused, Upload
from playground.telegram_files import StoredFiles
from playground.telegram_text import fits, outgoing, units
from playground.telegram_updates import Updates
from playground.telegram_webhook import Webhook, delete_webhook, get_webhook_info, set_webhook

MAX_ANSWER = 200
NOT_MODIFIED = (
    "Bad Request: message is not modified: specified new message content and reply markup are "
    "exactly the same as a current content and reply markup of the message"
)
MAX_UPLOAD = 50 << 20
MAX_PHOTO = 10 << 20
PICTURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"RIFF")
ACTIONS = frozenset(
    "typing upload_photo record_video upload_video record_voice upload_voice upload_document "
    "choose_sticker find_location record_video_note upload_video_note".split()
)


RIGHTS = (
    "can_be_edited can_manage_chat can_delete_messages can_manage_video_chats can_restrict_members "
    "can_promote_members can_change_info can_invite_users can_post_stories can_edit_stories "
    "can_delete_stories"
).split()


@dataclass(slots=True)
class World:
    """Everything the server knows. `tell` reports each thing that happens in it."""

    bot: Json
    updates: Updates
    tell: Callable[[str, Json], None]
    clock: Callable[[], float]
    monotonic: Callable[[], float] = time.monotonic
    chats: dict[int, Chat] = field(default_factory=dict)
    queries: dict[str, str] = field(default_factory=dict)  # unanswered: id -> what was pressed
    answers: list[Json] = field(default_factory=list)
    commands: dict[tuple[str, str], list[Json]] = field(default_factory=dict)
    webhook: Webhook = field(default_factory=Webhook)
    files: StoredFiles = field(default_factory=StoredFiles)
    topics_in_private: bool = False

    def chat(self, identifier: object) -> Chat:
        if identifier in (None, ""):
            raise Refused(400, "Bad Request: chat_id is empty")
        chat = self.chats.get(identifier) if isinstance(identifier, int) else None
        if chat is None:
            raise Refused(400, "Bad Request: chat not found")
        return chat

    def writable(self, identifier: object) -> Chat:
        chat = self.chat(identifier)
        chat.check_writable()
        return chat

    def date(self) -> int:
        return int(self.clock())


def get_me(world: World, _: Json) -> Json:
    return world.bot | {
        "can_join_groups": True,
        "can_read_all_group_messages": True,
        "supports_inline_queries": False,
        "can_connect_to_business": False,
        "has_main_web_app": False,
        "has_topics_enabled": world.topics_in_private,
        "allows_users_to_create_topics": world.topics_in_private,
    }


def send_message(world: World, given: Json) -> Json:
    text, entities = outgoing(given.get("text"), given.get("entities"))
    chat = world.writable(given.get("chat_id"))
    thread = _thread(chat, given)
    reply_to = _reply(world, chat, given)
    fits(text)
    content: Json = {"text": text}
    if entities:
        content["entities"] = entities
    if given.get("reply_markup"):
        content["reply_markup"] = keyboard(given["reply_markup"])
    message = chat.add(world.bot, world.date(), content, thread, reply_to)
    chat.record(message, world.monotonic(), reply_to, thread)
    chat.drafts.pop(thread, None)
    world.tell("sent", _where(message) | {"thread": thread, "text": text})
    return message


def send_document(world: World, given: Json) -> Json:
    document = _upload(given, "document", MAX_UPLOAD)
    about = {"file_name": document.name, "file_size": len(document.data)}
    return _send_file(world, given, document, lambda id: {"document": id | about})


def send_photo(world: World, given: Json) -> Json:
    photo = _upload(given, "photo", MAX_PHOTO)
    if not photo.data.startswith(PICTURES):
        raise Refused(400, "Bad Request: IMAGE_PROCESS_FAILED")
    # Its size and the smaller copies of it are left out: nobody here decodes a picture.
    about = {"width": 90, "height": 90, "file_size": len(photo.data)}
    return _send_file(world, given, photo, lambda id: {"photo": [id | about]})


def _upload(given: Json, kind: str, most: int) -> Upload:
    upload = given.get(kind)
    if not isinstance(upload, Upload):
        raise Refused(400, f"Bad Request: there is no {kind} in the request")
    if not upload.data:
        raise Refused(400, "Bad Request: file must be non-empty")
    if len(upload.data) > most:
        if most == MAX_UPLOAD:
            raise Refused(413, "Request Entity Too Large")
        raise Refused(400, "Bad Request: too big for a photo")
    return upload


def _send_file(world: World, given: Json, file: Upload, content_of: Callable[[Json], Json]) -> Json:
    caption, entities = outgoing(
        given.get("caption"), given.get("caption_entities"), may_be_empty=True
    )
    chat = world.writable(given.get("chat_id"))
    thread = _thread(chat, given)
    reply_to = _reply(world, chat, given)
    number = f"{chat.id}.{chat.last_id + 1}"
    content = content_of({"file_id": f"file{number}", "file_unique_id": f"unique{number}"})
    content |= {"caption": caption} if caption else {}
    content |= {"caption_entities": entities} if entities else {}
    message = chat.add(world.bot, world.date(), content, thread, reply_to)
    chat.record(message, world.monotonic(), reply_to, thread)
    chat.files[message["message_id"]] = file
    chat.drafts.pop(thread, None)
    world.tell("sent", _where(message) | {"thread": thread, "file": file.name})
    return message


def edit_message_text(world: World, given: Json) -> Json:
    text, entities = outgoing(given.get("text"), given.get("entities"))
    chat, message = _editable(world, given)
    fits(text)
    content: Json = {"text": text}
    if entities:
        content["entities"] = entities
    if given.get("reply_markup"):
        content["reply_markup"] = keyboard(given["reply_markup"])
    return _edited(world, chat, message, content, ("text", "entities", "reply_markup"))


def edit_message_reply_markup(world: World, given: Json) -> Json:
    chat, message = _editable(world, given)
    markup = given.get("reply_markup")
    content = {"reply_markup": keyboard(markup)} if markup else {}
    return _edited(world, chat, message, content, ("reply_markup",))


def _editable(world: World, given: Json) -> tuple[Chat, Json]:
    message_id = _message_id(given)
    chat = world.writable(given.get("chat_id"))
    message = chat.messages.get(message_id)
    if message is None:
        raise Refused(400, "Bad Request: message to edit not found")
    if message_id not in chat.sent:
        raise Refused(400, "Bad Request: message can't be edited")
    return chat, message


def _edited(
    world: World, chat: Chat, message: Json, content: Json, changing: tuple[str, ...]
) -> Json:
    """What is not said anew of `changing` is gone: a text without buttons takes them away."""
    if content == {name: message[name] for name in changing if name in message}:
        raise Refused(400, NOT_MODIFIED)
    kept = {name: value for name, value in message.items() if name not in changing}
    message = kept | {"edit_date": world.date()} | content
    chat.messages[message["message_id"]] = message
    chat.record_edit(message)
    world.tell("edited", _where(message) | {"text": message["text"]})
    return message


def delete_message(world: World, given: Json) -> bool:
    message_id = _message_id(given)
    chat = world.writable(given.get("chat_id"))
    if message_id not in chat.messages:
        raise Refused(400, "Bad Request: message to delete not found")
    if message_id not in chat.sent and chat.kind != "private":
        raise Refused(400, "Bad Request: message can't be deleted")
    chat.delete(message_id)
    world.tell("deleted", {"chat_id": chat.id, "message_id": message_id})
    return True


def send_chat_action(world: World, given: Json) -> bool:
    if given.get("action") not in ACTIONS:
        raise Refused(400, "Bad Request: wrong parameter action in request")
    chat = world.writable(given.get("chat_id"))
    if not (chat.forum and given.get("message_thread_id") == GENERAL):
        # The one place where the General topic may be named.
        _thread(chat, given)
    about = {"chat_id": chat.id, "action": given["action"]}
    world.tell("action", about | {"thread": given.get("message_thread_id")})
    return True


def send_message_draft(world: World, given: Json) -> bool:
    text, entities = outgoing(given.get("text"), given.get("entities"), may_be_empty=True)
    chat = world.writable(given.get("chat_id"))
    if chat.kind != "private":
        raise Refused(400, "Bad Request: TEXTDRAFT_PEER_INVALID")
    thread = _thread(chat, given)
    draft_id = given.get("draft_id")
    if not isinstance(draft_id, int) or draft_id == 0:
        raise Refused(400, "Bad Request: RANDOM_ID_INVALID")
    fits(text)
    can_stop = given.get("can_stop") is True
    chat.drafts[thread] = Draft(draft_id, text, world.monotonic(), can_stop, tuple(entities))
    world.tell("draft", {"chat_id": chat.id, "draft_id": draft_id, "text": text})
    return True


def answer_callback_query(world: World, given: Json) -> bool:
    query = str(given.get("callback_query_id"))
    data = world.queries.pop(query, None)
    if data is None:
        raise Refused(
            400,
            "Bad Request: query is too old and response timeout expired or query ID is invalid",
        )
    answer: Json = {
        "callback_query_id": query,
        "data": data,
        "text": given.get("text"),
        "show_alert": bool(given.get("show_alert")),
    }
    if units(answer["text"] or "") > MAX_ANSWER:
        raise Refused(400, "Bad Request: MESSAGE_TOO_LONG")
    world.answers.append(answer)
    world.tell("answered", answer)
    return True


def set_my_commands(world: World, given: Json) -> bool:
    commands = given.get("commands")
    if not isinstance(commands, list):
        raise Refused(400, "Bad Request: can't parse commands JSON object")
    if len(commands) > 100:
        raise Refused(400, "Bad Request: BOT_COMMANDS_TOO_MUCH")
    world.commands[_scope(given)] = commands
    return True


def get_my_commands(world: World, given: Json) -> list[Json]:
    return world.commands.get(_scope(given), [])


def get_chat(world: World, given: Json) -> Json:
    gifts = ("unlimited_gifts", "limited_gifts", "unique_gifts")
    more = ("premium_subscription", "gifts_from_channels")
    return world.chat(given.get("chat_id")).json() | {
        "accent_color_id": 0,
        "max_reaction_count": 11,
        "accepted_gift_types": dict.fromkeys(gifts + more, False),
    }


def get_chat_administrators(world: World, given: Json) -> list[Json]:
    chat = world.writable(given.get("chat_id"))
    if chat.kind == "private":
        raise Refused(400, "Bad Request: there are no administrators in the private chat")
    owner: list[Json] = []
    if chat.owner is not None:
        owner = [{"status": "creator", "user": chat.owner.json(), "is_anonymous": False}]
    return owner + [_administrator(person) for person in chat.admins]


def _administrator(person: Person) -> Json:
    return {
        "status": "administrator",
        "user": person.json(),
        "is_anonymous": False,
        **dict.fromkeys(RIGHTS, False),
    }


def leave_chat(world: World, given: Json) -> bool:
    chat = world.chat(given.get("chat_id"))
    if chat.kind == "private":
        raise Refused(400, "Bad Request: chat member status can't be changed in private chats")
    chat.closed = f"Forbidden: bot is not a member of the {chat.kind} chat"
    world.tell("left", {"chat_id": chat.id})
    return True


def get_file(world: World, given: Json) -> Json:
    return world.files.told(given.get("file_id"))


METHODS: dict[str, Callable[[World, Json], Any]] = {
    "getme": get_me,
    "getfile": get_file,
    "sendmessage": send_message,
    "senddocument": send_document,
    "sendphoto": send_photo,
    "editmessagetext": edit_message_text,
    "editmessagereplymarkup": edit_message_reply_markup,
    "deletemessage": delete_message,
    "sendchataction": send_chat_action,
    "sendmessagedraft": send_message_draft,
    "answercallbackquery": answer_callback_query,
    "setmycommands": set_my_commands,
    "getmycommands": get_my_commands,
    "getchat": get_chat,
    "getchatadministrators": get_chat_administrators,
    "leavechat": leave_chat,
    "setwebhook": set_webhook,
    "deletewebhook": delete_webhook,
    "getwebhookinfo": get_webhook_info,
}


def _thread(chat: Chat, given: Json) -> int | None:
    thread = given.get("message_thread_id")
    if thread in (None, "", 0):
        return None
    # The General topic, 1, is never among them: to write there the thread must be left out.
    if not isinstance(thread, int) or thread not in chat.topics:
        raise Refused(400, "Bad Request: message thread not found")
    return thread


def _reply(world: World, chat: Chat, given: Json) -> int | None:
    reply = given.get("reply_parameters")
    if reply in (None, ""):
        return None
    if not isinstance(reply, dict) or not isinstance(reply.get("message_id"), int):
        raise Refused(400, "Bad Request: can't parse reply parameters JSON object")
    message_id: int = reply["message_id"]
    place = chat if reply.get("chat_id") is None else world.chat(reply["chat_id"])
    if message_id in place.messages:
        return message_id
    if reply.get("allow_sending_without_reply"):
        return None
    raise Refused(400, "Bad Request: message to be replied not found")


def _message_id(given: Json) -> int:
    message_id = given.get("message_id")
    if not isinstance(message_id, int) or message_id <= 0:
        raise Refused(400, "Bad Request: message identifier is not specified")
    return message_id


def _scope(given: Json) -> tuple[str, str]:
    scope = given.get("scope") or {"type": "default"}
    return repr(sorted(scope.items())), given.get("language_code") or ""


def _where(message: Json) -> Json:
    return {"chat_id": message["chat"]["id"], "message_id": message["message_id"]}
