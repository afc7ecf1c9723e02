"""What is said: Message (history), Inbound (from a person), Outbound (a part of a reply).

Frozen values without behaviour. They know no platform: ids are text, bodies are the platform's
JSON as text, blocks are the model provider's JSON, kept byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec

MAX_INBOUND_CHARACTERS: Final = 16_000
CUT_NOTE: Final = "\n[… the message was longer; the rest was cut here]"

Role = Literal["user", "assistant", "summary"]
Kind = Literal["message", "command", "edit", "decision", "moved", "left"]

ERASE: Final = "erase"  # the text of a ``left`` after which nothing is to be kept

_CONTROLS: Final = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_encode: Final = msgspec.json.Encoder().encode
_decode_blocks: Final = msgspec.json.Decoder(list[dict[str, object]]).decode

NO_BLOCKS: Final = msgspec.Raw(b"[]")


class Message(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    """One row of a history.

    :param seq: when it was written; monotonic, never reused
    :param role: ``summary`` stands for what was said before it; a model is told it by the user's
        side, see `core.window.sent`
    :param blocks: a JSON array of the provider's content blocks, verbatim
    :param at: milliseconds since 1970, UTC
    :param sender: platform and id of the person, when it was a person
    :param message_ids: the platform's ids of the messages it was made of
    :param senders: whose each block is, when they are several people's; of ours, ""
    """

    seq: int
    role: Role
    blocks: msgspec.Raw
    at: int
    sender: str | None = None
    message_ids: tuple[str, ...] = ()
    senders: tuple[str, ...] = ()


class Sender(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Who speaks. `id` (``telegram:42``) decides; `name` is data for the model, never for us."""

    id: str
    name: str = ""


Within = Literal["", "quoted", "forwarded"]


class Attachment(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    """A file that came with a message, still at its platform; see `core.attachments`.

    :param kind: ``photo``, ``document``, ``voice``, ``audio``, ``video``, ``video_note``, or what
        else a platform has
    :param id: all that the adapter needs to fetch it
    :param name: as who sent it has called it
    :param media_type: as the platform has it
    :param size: bytes; 0: not told
    :param seconds: how long it plays
    :param within: it came with the message that was quoted or forwarded
    :param author: whose message that was
    """

    kind: str
    id: str
    name: str = ""
    media_type: str = ""
    size: int = 0
    seconds: int = 0
    within: Within = ""
    author: str = ""


class Inbound(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    """One message from a person.

    :param id: the same event always has the same id; unique within its key's platform
    :param key: text of the session key; also the address of the reply
    :param kind: for ``moved`` the text is the key prefix under which the chat goes on; with
        ``left`` the bot was taken out of all that is under the key, and nothing that was said
        there is kept if the text is `ERASE`; for
        ``decision`` it is the `data` of the button that was pressed, `message_id` the card with
        it, and `reply_to` what its platform needs to answer the press
    :param blocks: further content blocks (words of others, see `core.quoted`; files, once they
        are fetched); a JSON array
    :param message_id: what a reply can refer to
    :param group: whether several people speak in this conversation
    :param at: milliseconds since 1970, UTC
    :param attachments: files that are fetched when the turn starts; then they are `blocks`
    :param album: what the messages of one album have in common; they are answered together
    :param addressed: whether it was said to the bot; else in the room where it is
    :param follows: it is for us only if we are in this conversation already; where there is none,
        nobody has asked for one, and it leaves no trace
    """

    id: str
    key: str
    kind: Kind
    sender: Sender
    text: str
    blocks: msgspec.Raw = NO_BLOCKS
    message_id: str | None = None
    reply_to: str | None = None
    group: bool = False
    at: int = 0
    attachments: tuple[Attachment, ...] = ()
    album: str | None = None
    addressed: bool = True
    follows: bool = False


class File(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A file of a reply: made of a history when it leaves, see `core.export`; or one that is kept,
    see `core.outgoing`.

    :param form: a name in `core.transcript.FORMS`
    :param first: the rows from this seq
    :param last: to this one
    :param at: when it was asked for, in ms since 1970, UTC
    :param blob: the id of its bytes, when they are kept; there are no rows then
    """

    name: str
    media_type: str
    form: str = ""
    first: int = 0
    last: int = 0
    at: int = 0
    blob: str = ""


class Outbound(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    """One part of a reply, ready for its platform.

    :param id: unique in all conversations, and the same however often the part is made
    :param body: the platform's JSON as text; None deletes the message named by `replaces`
    :param state: `waiting` until it is next, `sending` from the save before its request leaves;
        `held` and `failed` parts stay for people to look at and block nothing
    :param replaces: id of the message on screen that this part becomes by an edit; while that
        message is still leaving, the id of its part
    :param reply_to: id of the message that it answers; whether that is shown is the adapter's
        affair: between two people it is plain
    :param file: it is sent as this file; `body` is empty then
    :param why: what keeps it from leaving, when it is held or has failed; for people
    :param by: which process has marked it as sending, when several share a database
    """

    id: str
    body: str | None
    state: Literal["waiting", "sending", "held", "failed"] = "waiting"
    replaces: str | None = None
    reply_to: str | None = None
    file: File | None = None
    why: str | None = None
    by: str = ""


def clean(text: str) -> str:
    """Text that every encoder takes: split surrogate pairs joined, lone halves, NUL and control
    characters replaced or dropped; line ends are ``\\n``."""
    if text.isprintable():  # one line of ordinary words, as most are
        return text
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    return _CONTROLS.sub("", text)


def cut(text: str, limit: int = MAX_INBOUND_CHARACTERS) -> str:
    """The text, or its beginning with a note that says so."""
    return text if len(text) <= limit else text[:limit] + CUT_NOTE


def text_block(text: str) -> dict[str, object]:
    return {"type": "text", "text": text}


def time_block(now: int) -> dict[str, object]:
    """The time, for the model; in the newest message, since nothing before that may change.

    :param now: ms since 1970
    """
    at = datetime.fromtimestamp(now / 1000, UTC)
    return text_block(f"<time>{at:%A, %d %B %Y, %H:%M} UTC</time>")


def encode_blocks(blocks: Iterable[dict[str, object]]) -> msgspec.Raw:
    return msgspec.Raw(_encode(list(blocks)))


def decode_blocks(blocks: msgspec.Raw) -> list[dict[str, object]]:
    """
    :raises msgspec.DecodeError: not a JSON array of objects
    """
    return _decode_blocks(blocks)


def text_of(blocks: msgspec.Raw) -> str:
    """What a person would read: the text blocks, joined."""
    return "".join(
        str(block.get("text", "")) for block in decode_blocks(blocks) if block.get("type") == "text"
    )


_ONE_TEXT: Final = b'[{"type":"text"'
_BRACE: Final = ord("{")


def is_one_text(blocks: bytes) -> bool:
    """Whether there is nothing but one block of text, as in most rows, seen at a glance: a history
    is looked through several times a turn. It may say no of one that has braces in its words.

    :param blocks: as `encode_blocks` writes them
    """
    # One byte is found much faster than several.
    return blocks.startswith(_ONE_TEXT) and blocks.find(_BRACE, 2) < 0


def are_one_text(messages: Iterable[Message]) -> bool:
    """Whether each of them is."""
    # In a list, with no call for each: done for every request.
    return all(
        [
            blocks.startswith(_ONE_TEXT) and blocks.find(_BRACE, 2) < 0
            for blocks in map(bytes, [message.blocks for message in messages])
        ]
    )
