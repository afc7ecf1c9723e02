"""What people send besides words, as the Bot API's JSON: photos, files, places, and whose they are.

telegram.send(alice, Photo(png), caption="what is this?")
telegram.send(alice, Words("buy now"), forwarded=bob)
telegram.album(alice, [Photo(one), Photo(two)], caption="which?")
"""

from dataclasses import dataclass
from typing import Protocol

from playground.telegram_chats import Chat, Json, Person
from playground.telegram_files import StoredFiles
from playground.telegram_text import marks

# Who is named as the author of what is forwarded; a text for one who hides behind a name.
Author = Person | Chat | str


class Sendable(Protocol):
    def content(self, files: StoredFiles) -> Json:
        """The field of a message that it is."""
        ...


@dataclass(frozen=True, slots=True)
class Words:
    text: str

    def content(self, files: StoredFiles) -> Json:
        found = marks(self.text)
        return {"text": self.text} | ({"entities": found} if found else {})


@dataclass(frozen=True, slots=True)
class Photo:
    """Telegram makes several sizes of a photo, the largest last. `size`: what it says that it is"""

    data: bytes
    size: int | None = None

    def content(self, files: StoredFiles) -> Json:
        small = files.keep(self.data[:200], "photos", ".jpg") | {"width": 90, "height": 67}
        large = files.keep(self.data, "photos", ".jpg", self.size)
        return {"photo": [small, large | {"width": 1280, "height": 960}]}


@dataclass(frozen=True, slots=True)
class Document:
    data: bytes
    name: str = "notes.txt"
    media_type: str = "text/plain"
    size: int | None = None

    def content(self, files: StoredFiles) -> Json:
        suffix = self.name[self.name.rfind(".") :] if "." in self.name else ""
        named = {"file_name": self.name, "mime_type": self.media_type}
        return {"document": named | files.keep(self.data, "documents", suffix, self.size)}


@dataclass(frozen=True, slots=True)
class Voice:
    data: bytes
    seconds: int = 3

    def content(self, files: StoredFiles) -> Json:
        about = {"duration": self.seconds, "mime_type": "audio/ogg"}
        return {"voice": about | files.keep(self.data, "voice", ".oga")}


@dataclass(frozen=True, slots=True)
class Video:
    data: bytes
    seconds: int = 3
    note: bool = False  # a round one

    def content(self, files: StoredFiles) -> Json:
        kept = files.keep(self.data, "videos", ".mp4") | {"duration": self.seconds}
        if self.note:
            return {"video_note": kept | {"length": 240}}
        return {"video": kept | {"width": 320, "height": 240, "mime_type": "video/mp4"}}


@dataclass(frozen=True, slots=True)
class Sticker:
    emoji: str = "👍"

    def content(self, files: StoredFiles) -> Json:
        about = {"emoji": self.emoji, "set_name": "Hands", "type": "regular"}
        shape = {"width": 512, "height": 512, "is_animated": False, "is_video": False}
        return {"sticker": about | shape | files.keep(b"RIFF", "stickers", ".webp")}


@dataclass(frozen=True, slots=True)
class Place:
    latitude: float
    longitude: float
    title: str = ""
    address: str = ""

    def content(self, files: StoredFiles) -> Json:
        where = {"latitude": self.latitude, "longitude": self.longitude}
        if not self.title:
            return {"location": where}
        venue = {"location": where, "title": self.title, "address": self.address}
        return {"location": where, "venue": venue}


@dataclass(frozen=True, slots=True)
class Contact:
    phone: str
    name: str

    def content(self, files: StoredFiles) -> Json:
        return {"contact": {"phone_number": self.phone, "first_name": self.name}}


@dataclass(frozen=True, slots=True)
class Poll:
    question: str
    options: tuple[str, ...]

    def content(self, files: StoredFiles) -> Json:
        options = [
            {"persistent_id": str(number), "text": text, "voter_count": 0}
            for number, text in enumerate(self.options)
        ]
        about: Json = {"id": "5", "question": self.question, "options": options, "type": "regular"}
        about |= {"allows_multiple_answers": False, "allows_revoting": True, "members_only": False}
        return {"poll": about | {"total_voter_count": 0, "is_closed": False, "is_anonymous": True}}


@dataclass(frozen=True, slots=True)
class External:
    """A message of another chat that is replied to: it comes along without its text."""

    author: Author
    what: Sendable | None = None

    def content(self, files: StoredFiles, date: int) -> Json:
        more = self.what.content(files) if self.what else {}
        return {"origin": origin(self.author, date), "message_id": 9} | more


def origin(author: Author, date: int) -> Json:
    """Of what is forwarded."""
    if isinstance(author, Person):
        return {"type": "user", "sender_user": author.json(), "date": date}
    if isinstance(author, str):
        return {"type": "hidden_user", "sender_user_name": author, "date": date}
    return {"type": "chat", "sender_chat": author.json(), "date": date}
