"""What leaves for a chat of Telegram, each thing with the next best one where the server does not
know it.

An old Bot API server knows few methods. Which it lacks is learned from its answers, once: nothing
that it does not know is asked of it again. Whatever else goes wrong is raised as PTB raises it.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Final

import msgspec
from telegram import (
    Bot,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputFile,
    LinkPreviewOptions,
    Message,
    MessageEntity,
    ReplyParameters,
)
from telegram.error import BadRequest, InvalidToken

from bots.telegram import failures
from bots.telegram.failures import Lacks, failure, says, unknown, why
from bots.telegram.keys import Address
from bots.telegram.split import Page, Span, split
from core.adapter import Receipt
from core.errors import Gone
from core.events import emit

UPLOAD_SECONDS: Final = 120.0
MAX_PHOTO: Final = 10 * 1000 * 1000
# Others would lose what they are: a GIF its movement, a WebP its transparency.
_PHOTOS: Final = frozenset({"image/png", "image/jpeg"})
_NO_PREVIEW: Final = LinkPreviewOptions(is_disabled=True)
_TAKEN_BACK: Final = "…"


class Entity(msgspec.Struct, frozen=True):
    type: str
    offset: int
    length: int
    url: str | None = None
    language: str | None = None


class Button(msgspec.Struct, frozen=True):
    label: str
    data: str


class Body(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the adapter's `render` and `render_card` make.

    :param document: it is a file of this name, and `text` what is in it
    """

    text: str
    entities: tuple[Entity, ...] = ()
    buttons: tuple[Button, ...] = ()
    document: str = ""


decode_body: Final = msgspec.json.Decoder(Body).decode


class Sending:
    """All chats of one bot."""

    def __init__(self, bot: Bot) -> None:
        self._bot = bot
        self._lacking: set[str] = set()

    @property
    def files(self) -> bool:
        """Whether files can be sent, as far as is known."""
        return "sendDocument" not in self._lacking

    @property
    def edits(self) -> bool:
        """Whether a message can be changed, as far as is known."""
        return "editMessageText" not in self._lacking

    async def learn(self) -> None:
        """Whether messages can be edited must be known before the first one is to grow. Best
        effort: no message is named, so that nothing can come of it."""
        try:
            await self._bot.edit_message_text("?")
        except Exception as error:
            self._note("editMessageText", error)

    async def say(self, to: Address, body: Body, reply_to: int | None) -> Receipt:
        try:
            sent = await self._bot.send_message(
                to.chat_id,
                body.text,
                entities=_entities(body),
                reply_markup=_keyboard(body),
                message_thread_id=to.thread_id,
                reply_parameters=_reply(reply_to),
                link_preview_options=_NO_PREVIEW,
            )
        except Exception as error:
            if to.thread_id is not None and says(error, failures.NO_THREAD):
                # The topic was deleted. Its people are still in the chat.
                return await self.say(Address(to.chat_id), body, reply_to)
            if body.entities and says(error, failures.BAD_ENTITIES):
                return await self.say(to, _plain(body), reply_to)
            raise
        return _receipt(sent)

    async def file(
        self, to: Address, name: str, media_type: str, data: bytes, reply_to: int | None
    ) -> Receipt:
        """As a picture when Telegram shows it as one, else as a document.

        :raises Lacks: the server takes no files
        """
        if media_type in _PHOTOS and len(data) <= MAX_PHOTO and "sendPhoto" not in self._lacking:
            try:
                return await self._photo(to, name, data, reply_to)
            except BadRequest as error:
                # Too narrow, too large, none at all: as a document it comes as it is.
                if isinstance(failure(error, ""), Gone):
                    raise
                emit("telegram.no_photo", level=logging.DEBUG, why=why(error))
            except InvalidToken as error:
                if not self._note("sendPhoto", error):
                    raise
        if not self.files:
            raise Lacks("sendDocument")
        try:
            return await self.document(to, name, data, reply_to)
        except Exception as error:
            if self._note("sendDocument", error):
                raise Lacks("sendDocument") from error
            raise

    async def aside(self, to: Address, body: Body, reply_to: int | None) -> Receipt:
        """A file that is a part of the answer; where there are no files, its text."""
        data = body.text.encode()
        with contextlib.suppress(Lacks):
            return await self.file(to, body.document, "text/plain", data, reply_to)
        ids: tuple[str, ...] = ()
        for piece in split(Page(body.text, (Span("pre", 0, len(body.text)),))):
            ids += (await self.say(to, decode_body(piece), reply_to)).message_ids
        return Receipt(ids)

    async def _photo(self, to: Address, name: str, data: bytes, reply_to: int | None) -> Receipt:
        try:
            sent = await self._bot.send_photo(
                to.chat_id,
                InputFile(data, name),
                message_thread_id=to.thread_id,
                reply_parameters=_reply(reply_to),
                write_timeout=UPLOAD_SECONDS,
                read_timeout=UPLOAD_SECONDS,
            )
        except Exception as error:
            if to.thread_id is not None and says(error, failures.NO_THREAD):
                return await self._photo(Address(to.chat_id), name, data, reply_to)
            raise
        return _receipt(sent)

    async def document(self, to: Address, name: str, data: bytes, reply_to: int | None) -> Receipt:
        try:
            sent = await self._bot.send_document(
                to.chat_id,
                # Bytes only: PTB would read a path that exists here, whoever made it up.
                InputFile(data, name),
                message_thread_id=to.thread_id,
                reply_parameters=_reply(reply_to),
                disable_content_type_detection=True,
                write_timeout=UPLOAD_SECONDS,
                read_timeout=UPLOAD_SECONDS,
            )
        except Exception as error:
            if to.thread_id is not None and says(error, failures.NO_THREAD):
                return await self.document(Address(to.chat_id), name, data, reply_to)
            raise
        return _receipt(sent)

    async def edit(self, to: Address, message_id: int, body: Body, reply_to: int | None) -> Receipt:
        """The message becomes this; where it cannot, this stands in a new one."""
        if not self.edits:
            return await self._instead(to, message_id, body, reply_to)
        try:
            await self.change(to, message_id, body)
        except Exception as error:
            if not self.edits:
                return await self._instead(to, message_id, body, reply_to)
            if says(error, failures.NOTHING_TO_EDIT):
                return await self.say(to, body, reply_to)
            if body.entities and says(error, failures.BAD_ENTITIES):
                return await self.edit(to, message_id, _plain(body), reply_to)
            if not says(error, failures.NOT_MODIFIED):
                raise
        return Receipt((str(message_id),))

    async def change(self, to: Address, message_id: int, body: Body) -> None:
        try:
            await self._bot.edit_message_text(
                body.text,
                to.chat_id,
                message_id,
                entities=_entities(body),
                reply_markup=_keyboard(body),
                link_preview_options=_NO_PREVIEW,
            )
        except Exception as error:
            self._note("editMessageText", error)
            raise

    async def delete(self, to: Address, message_id: int) -> Receipt:
        """It goes; where that cannot be, it says nothing any more; else it stays."""
        if "deleteMessage" not in self._lacking:
            try:
                await self._bot.delete_message(to.chat_id, message_id)
            except Exception as error:
                if not self._note("deleteMessage", error):
                    if not says(error, failures.NOTHING_TO_DELETE):
                        raise
                    return Receipt(())
            else:
                return Receipt(())
        if self.edits:
            try:
                await self.change(to, message_id, Body(_TAKEN_BACK))
            except Exception as error:
                if self.edits and not says(error, failures.NOT_MODIFIED + failures.NOTHING_TO_EDIT):
                    raise
        return Receipt(())

    async def draft(self, to: Address, draft_id: int, body: Body) -> None:
        await self._bot.send_message_draft(
            to.chat_id,
            draft_id,
            body.text,
            message_thread_id=to.thread_id,
            entities=_entities(body),
            read_timeout=5,
            pool_timeout=1,
            # Telegram draws a button; pressing it comes as an update of its own.
            api_kwargs={"can_stop": True},
        )

    async def type(self, to: Address) -> None:
        """
        :raises Lacks: the server knows no such signs
        """
        if "sendChatAction" in self._lacking:
            raise Lacks("sendChatAction")
        try:
            await self._bot.send_chat_action(
                to.chat_id, "typing", to.thread_id, read_timeout=5, pool_timeout=1
            )
        except Exception as error:
            if self._note("sendChatAction", error):
                raise Lacks("sendChatAction") from error
            raise

    async def _instead(
        self, to: Address, message_id: int, body: Body, reply_to: int | None
    ) -> Receipt:
        """What stood there goes where it can; the answer comes in any case."""
        await self.delete(to, message_id)
        return await self.say(to, body, reply_to)

    def _note(self, method: str, error: Exception) -> bool:
        """Whether the server does not know the method."""
        if not unknown(error):
            return False
        if method not in self._lacking:
            emit("telegram.lacking", level=logging.INFO, method=method, why=why(error))
        self._lacking.add(method)
        return True


def _receipt(sent: Message) -> Receipt:
    return Receipt((str(sent.message_id),))


def _plain(body: Body) -> Body:
    return msgspec.structs.replace(body, entities=())


def _keyboard(body: Body) -> InlineKeyboardMarkup | None:
    if not body.buttons:
        return None
    return InlineKeyboardMarkup(
        [[InlineKeyboardButton(one.label, callback_data=one.data) for one in body.buttons]]
    )


def _entities(body: Body) -> list[MessageEntity] | None:
    return [
        MessageEntity(one.type, one.offset, one.length, url=one.url, language=one.language)
        for one in body.entities
    ] or None


def _reply(message_id: int | None) -> ReplyParameters | None:
    if message_id is None:
        return None
    # The question may be gone; the answer is still one.
    return ReplyParameters(message_id, allow_sending_without_reply=True)
