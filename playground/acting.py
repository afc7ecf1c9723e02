"""What people do on the stand-ins, as a page asks for it: one class a platform, the same methods.

Each takes what the page sent, as JSON; what cannot be raises `KeyError` or `ValueError` with a
sentence for the person.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final, Protocol

from playground import slack_view, telegram_view
from playground.slack import Channel, Slack
from playground.slack import Person as SlackPerson
from playground.telegram import Chat, Person, Telegram
from playground.telegram_media import Document, Photo

Json = dict[str, Any]
LARGEST_PHOTO: Final = 10 << 20
Changed = Callable[[Any, Any], None]


class Acting(Protocol):
    """People of one platform."""

    def say(self, given: Json) -> None: ...

    def edit(self, given: Json) -> None: ...

    def press(self, given: Json) -> None: ...

    def stop(self, given: Json) -> None: ...

    def history(self, given: Json, limit: int) -> list[Json]: ...

    def file(self, chat: str, message: str) -> bytes: ...


class OnTelegram:
    """
    :param changed: told chat and message of what no event tells: the bot may not want to hear it
    """

    def __init__(self, telegram: Telegram, changed: Changed) -> None:
        self._telegram = telegram
        self._changed = changed

    def say(self, given: Json) -> None:
        person, chat, thread = self._who(given), self._chat(given), given.get("thread")
        reply_to = given.get("reply_to")
        text = str(given["text"])
        if given.get("file"):
            what = sendable(given["file"])
            self._telegram.send(person, what, chat, caption=text, thread=thread, reply_to=reply_to)
        else:
            self._telegram.write(person, text, chat, thread=thread, reply_to=reply_to)
        self._changed(chat.id, chat.last_id)

    def edit(self, given: Json) -> None:
        chat = self._chat(given)
        self._telegram.edit(self._who(given), given["message"], str(given["text"]), chat)
        self._changed(chat.id, given["message"])

    def press(self, given: Json) -> None:
        person, chat = self._who(given), self._chat(given)
        self._telegram.press(person, given["message"], str(given["data"]), chat)

    def stop(self, given: Json) -> None:
        self._telegram.press_stop(self._who(given), given.get("thread"))

    def history(self, given: Json, limit: int) -> list[Json]:
        thread = int(given["thread"]) if given.get("thread") else None
        return telegram_view.messages_json(
            self._telegram, self._chat(given), thread, before=int(given["before"]), limit=limit
        )

    def file(self, chat: str, message: str) -> bytes:
        place = self._telegram.chat(int(chat))
        data = telegram_view.file_of(self._telegram, place, int(message))
        if data is None:
            raise KeyError(message)
        return data

    def _chat(self, given: Json) -> Chat:
        return self._telegram.chat(int(given["chat"]))

    def _who(self, given: Json) -> Person:
        person = self._telegram.chat(int(given["person"])).person
        if person is None:
            raise ValueError(f"{given['person']} is no person")
        return person


class OnSlack:
    """
    :param changed: as above
    """

    def __init__(self, slack: Slack, changed: Changed) -> None:
        self._slack = slack
        self._changed = changed

    def say(self, given: Json) -> None:
        who, channel, text = self._who(given), self._channel(given), str(given["text"])
        if text.startswith("/"):
            self._slack.command(who, text, channel)
            return
        mention = text.startswith(f"@{self._slack.bot.name} ")
        if mention:
            text = text.partition(" ")[2]
        thread = given.get("thread")
        if given.get("file"):
            file, data = given["file"], decoded(given["file"])
            kind = str(file.get("type") or "application/octet-stream")
            self._slack.share(
                who,
                str(file["name"]),
                data,
                kind,
                channel,
                text=text,
                thread=thread,
                mention=mention,
            )
        else:
            self._slack.write(who, text, channel, thread=thread, mention=mention)

    def edit(self, given: Json) -> None:
        channel = self._channel(given)
        self._slack.edit(self._who(given), str(given["message"]), str(given["text"]), channel)
        self._changed(channel.id, str(given["message"]))

    def press(self, given: Json) -> None:
        channel, ts, data = self._channel(given), str(given["message"]), given["data"]
        whispers = {whisper.ts: whisper for whisper in channel.whispers}
        under = channel.sent.get(ts) or whispers[ts]
        self._slack.press(self._who(given), under, str(data["action"]), data.get("value"))

    def stop(self, given: Json) -> None:
        self._slack.press_stop(self._who(given), str(given["thread"]), self._channel(given))

    def history(self, given: Json, limit: int) -> list[Json]:
        channel = self._channel(given)
        return slack_view.messages_json(
            self._slack, channel, before=str(given["before"]), limit=limit
        )

    def file(self, chat: str, message: str) -> bytes:
        files: list[Json] = self._slack.team.channels[chat].messages[message].get("files") or []
        data = self._slack.file(str(files[0].get("id"))) if files else None
        if data is None:
            raise KeyError(message)
        return data

    def _channel(self, given: Json) -> Channel:
        return self._slack.team.channels[str(given["chat"])]

    def _who(self, given: Json) -> SlackPerson:
        who = self._slack.team.people.get(str(given["person"]))
        if not isinstance(who, SlackPerson):
            raise ValueError(f"{given['person']} is no person")
        return who


def sendable(file: Json) -> Photo | Document:
    """As Telegram's own client sends it: a picture that is not large as a photo."""
    data, name = decoded(file), str(file["name"])
    if picture(data) is not None and len(data) <= LARGEST_PHOTO:
        return Photo(data)
    return Document(data, name, str(file.get("type") or "application/octet-stream"))


def picture(data: bytes) -> str | None:
    """The media type of what a browser may show as a picture; None: it is something else."""
    for begins, kind in (
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"GIF8", "image/gif"),
    ):
        if data.startswith(begins):
            return kind
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def decoded(file: Json) -> bytes:
    """The bytes of a file as a page sends it.

    :raises ValueError: they are not base64
    """
    return base64.b64decode(file["data"], validate=True)
