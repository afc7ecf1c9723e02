"""Telegram behind the seam of `core.adapter`: takes messages in, sends parts out.

It keeps no conversation, and of what it sends it knows only what Telegram answered. Pace, order and
repeats are the core's: a request that failed is told, not tried again, but for the two cases where
Telegram takes the same words in another form.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import zlib
from collections.abc import Coroutine, Sequence
from functools import lru_cache, partial
from itertools import takewhile
from typing import Final

import msgspec
from starlette.routing import BaseRoute

from bots.telegram import failures
from bots.telegram.failures import Lacks, failure, says, why
from bots.telegram.files import MAX_BYTES, Files
from bots.telegram.hearing import Hearing
from bots.telegram.insist import Backoff, insist
from bots.telegram.keys import Address, Scope, address, is_theirs, private_key
from bots.telegram.line import Line
from bots.telegram.live import Growing, Streaming, Typing
from bots.telegram.members import Members
from bots.telegram.menu import publish
from bots.telegram.poll import Poller
from bots.telegram.press import data_for
from bots.telegram.received import Me
from bots.telegram.render import render
from bots.telegram.sending import Body, Button, Sending, decode_body
from bots.telegram.webhook import Webhook, WebhookListener
from bots.telegram.wire import bot_at
from bots.telegram.writing import BY_NAME_ONLY, Called
from core.adapter import (
    Accept,
    Acceptance,
    Card,
    Fetched,
    Limits,
    Live,
    Pulse,
    Rate,
    Receipt,
    Refused,
    Showing,
)
from core.clock import Clock, SystemClock
from core.command import Commands
from core.errors import PlatformRefused, Undeliverable
from core.events import emit
from core.keys import SessionKey
from core.messages import Attachment, Inbound, Outbound
from core.phrases import Wording

BASE_URL: Final = "https://api.telegram.org"
SEND_SECONDS: Final = 20.0
DECLINE_SECONDS: Final = 20.0
MAX_DECLINES: Final = 64
MAX_ANSWER: Final = 200  # characters that the answer to a press may have

# What would change the address that the token becomes a part of is no token.
_TOKEN: Final = re.compile(r"[A-Za-z0-9:_-]+")
_MESSAGE_ID: Final = re.compile(r"[1-9][0-9]{0,15}")


# Telegram asks for no more than one message a second in a chat, and takes twenty a minute of a
# group: a few at once, and what is left after that goes on at a pace which never comes to more.
_SPACING: Final = 1.0
_PRIVATE: Final = Rate(burst=20, per_second=1.0, spacing=_SPACING)
_GROUP: Final = Rate(burst=8, per_second=0.2, spacing=_SPACING)


@lru_cache(maxsize=1_000)
def _rate_of(key: str) -> Rate:
    parsed = SessionKey.parse(key)
    if parsed is None:
        return _PRIVATE
    # Topics, and people with a conversation of their own, are all in one chat.
    account, chat = parsed.account, parsed.parts[0]
    place = f"telegram@{account}:{chat}" if account else f"telegram:{chat}"
    return msgspec.structs.replace(_GROUP if chat.startswith("-") else _PRIVATE, place=place)


_LIMITS: Final = Limits(can_look_up=False, rate_of=_rate_of)


class TelegramAdapter:
    """One bot.

    :param account: which of several bots of ours it is; a part of its keys
    :param scope: whether a group has one history, or each person in it their own
    :param called: what reaches us in a group, besides our user name
    :param streaming: whether an answer is shown while it grows: by drafts where they exist, else
        by edits (`auto`), by edits only (`edit`), or not at all (`off`)
    :param webhook: where Telegram brings updates to; None: we ask it for them
    :param file_above: code that would take more messages than this is sent as a file; 0: none is
    :param poll_timeout: seconds that Telegram holds a request while there is nothing; at most 50
    :param send_timeout: seconds to wait for Telegram's answer to a message of ours
    :param max_file_bytes: of a file that somebody sends
    :raises PlatformRefused: this cannot be a token
    """

    def __init__(
        self,
        token: str,
        *,
        base_url: str = BASE_URL,
        account: str | None = None,
        scope: Scope = "chat",
        called: Called = BY_NAME_ONLY,
        streaming: Streaming = "auto",
        file_above: int = 0,
        webhook: Webhook | None = None,
        poll_timeout: int = 30,
        send_timeout: float = SEND_SECONDS,
        max_file_bytes: int = MAX_BYTES,
        clock: Clock | None = None,
    ) -> None:
        if not _TOKEN.fullmatch(token):
            raise PlatformRefused("the Telegram token is empty, or has signs that no token has")
        self._account = account
        self._scope: Scope = scope
        self._called = called
        self._streaming: Streaming = streaming
        self._file_above = file_above
        self._drafts = streaming == "auto"
        self._poll_timeout = poll_timeout
        self._clock: Clock = clock or SystemClock()
        self._bot, self._wire = bot_at(base_url, token, timeout=send_timeout)
        self._sending = Sending(self._bot)
        self._members = Members(self._bot, self._clock)
        self._files = Files(self._bot, max_bytes=max_file_bytes)
        self._me: Me | None = None
        self._hearing: Hearing | None = None
        self._line = Line(self._clock)
        self._webhook = (
            WebhookListener(self._bot, webhook, self._hear, clock=self._clock, line=self._line)
            if webhook is not None
            else None
        )
        self._declining: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<TelegramAdapter {self.name}>"

    @property
    def name(self) -> str:
        return "telegram" if self._account is None else f"telegram@{self._account}"

    @property
    def limits(self) -> Limits:
        return _LIMITS

    def serves(self, key: str) -> bool:
        return address(key, self._account) is not None

    def render(self, markdown: str) -> tuple[str, ...]:
        return render(markdown, self._file_above if self._sending.files else 0)

    def render_card(self, card: Card) -> str:
        # A card is short, so that it is one message.
        body = decode_body(render(card.text)[0])
        buttons = tuple(Button(choice.label, choice.data) for choice in card.choices)
        return msgspec.json.encode(msgspec.structs.replace(body, buttons=buttons)).decode()

    async def connect(self) -> Me:
        """Who we are. Asks until Telegram answers; knows it afterwards.

        :raises PlatformRefused: Telegram does not know the token
        """
        if self._me is None:
            backoff = Backoff("telegram.unreachable", self._clock)
            user = await insist(self._bot.get_me, backoff)
            self._me = Me(user.id, user.username or "")
            self._hearing = Hearing(self._me, self._account, self._scope, self._called)
        return self._me

    async def identity(self) -> str:
        """The bot's id: a database remembers which bot it belongs to.

        :raises PlatformRefused: Telegram does not know the token
        """
        return str((await self.connect()).id)

    def pulse(self) -> Pulse:
        return self._line.pulse()

    @property
    def anywhere(self) -> bool:
        """Whether Telegram comes to us, to whichever process it reaches."""
        return self._webhook is not None

    def routes(self, accept: Accept) -> Sequence[BaseRoute]:
        return self._webhook.routes(partial(self._accept, accept)) if self._webhook else ()

    async def run(self, accept: Accept) -> None:
        await self.connect()
        if self._webhook is not None:
            await self._webhook.run()
            return
        await Poller(
            self._bot,
            self._wire,
            self._hear,
            partial(self._accept, accept),
            clock=self._clock,
            timeout=self._poll_timeout,
            line=self._line,
        ).run()

    async def close(self) -> None:
        """Hangs up. Nothing can be sent after this."""
        declining = list(self._declining)
        for task in declining:
            task.cancel()
        await asyncio.gather(*declining, return_exceptions=True)
        await self._wire.shutdown()
        await self._bot.request.shutdown()

    async def send(self, key: str, part: Outbound, *, uncertain: bool) -> Receipt:
        to = address(key, self._account)
        if to is None:
            raise Undeliverable("not a key of this bot's")
        try:
            body = None if part.body is None else decode_body(part.body)
        except msgspec.DecodeError as error:
            raise Undeliverable("not a body that this adapter has rendered") from error
        if body is not None and body.buttons:
            body = _for_this_chat(body, key)
        replaces = _number(part.replaces)
        # In a private chat it is plain what is being answered.
        reply_to = _number(part.reply_to) if to.chat_id < 0 else None
        try:
            if body is None:
                return Receipt(()) if replaces is None else await self._sending.delete(to, replaces)
            if body.document:
                # No text becomes a file: what stood there goes first.
                if replaces is not None:
                    await self._sending.delete(to, replaces)
                return await self._sending.aside(to, body, reply_to)
            if replaces is not None:
                return await self._sending.edit(to, replaces, body, reply_to)
            return await self._sending.say(to, body, reply_to)
        except Exception as error:
            # Any: an answer that is none of Telegram's comes out of PTB as anything.
            raise failure(error, key) from error

    async def send_file(self, key: str, part: Outbound, data: bytes, *, uncertain: bool) -> Receipt:
        to = address(key, self._account)
        if to is None or part.file is None:
            raise Undeliverable("not a key of this bot's, or no file")
        reply_to = _number(part.reply_to) if to.chat_id < 0 else None
        try:
            return await self._sending.file(
                to, part.file.name, part.file.media_type, data, reply_to
            )
        except Lacks as error:
            raise Undeliverable("this server takes no files") from error
        except Exception as error:
            raise failure(error, key) from error

    def private_key(self, sender_id: str) -> str | None:
        return private_key(sender_id, self._account)

    async def pairing_link(self, code: str) -> str:
        """Opens our chat; its button sends ``/start`` and the code.

        :raises PlatformRefused: Telegram does not know the token
        """
        return f"https://t.me/{(await self.connect()).username}?start={code}"

    async def show_menu(self, commands: Commands, say: Wording) -> None:
        """The commands, where Telegram offers them. Best effort."""
        with contextlib.suppress(PlatformRefused):  # `run` says so
            await self.connect()
            await self._sending.learn()
            await publish(self._bot, commands, say, self._scope)

    async def is_admin(self, key: str, sender_id: str) -> bool | None:
        to = address(key, self._account)
        if to is None:
            return None
        return is_theirs(key) or await self._members.is_admin(to.chat_id, sender_id)

    async def fetch(self, key: str, attachment: Attachment) -> Fetched:
        return await self._files.fetch(attachment)

    def live(self, key: str, inbound: Inbound, shown: tuple[str, ...], showing: Showing) -> Live:
        to = address(key, self._account)
        if to is None:
            return Typing(_nothing, self._clock, showing)
        reply_to = _number(inbound.message_id) if to.chat_id < 0 else None
        surface = _Chat(self._sending, to, _draft_id(inbound), reply_to)
        if self._streaming == "off":
            return Typing(surface.type, self._clock, showing)
        return Growing(
            key,
            surface,
            self._clock,
            showing,
            tuple(one for one in shown if _number(one) is not None),
            drafts=self._drafts and to.chat_id > 0,
            no_drafts=self._without_drafts,
            render=self._render_texts,
        )

    def _render_texts(self, markdown: str) -> tuple[str, ...]:
        """Without files, which cannot grow on the screen: they stand behind the texts."""
        bodies = self.render(markdown)
        return tuple(takewhile(lambda body: not decode_body(body).document, bodies))

    def _without_drafts(self) -> None:
        self._drafts = False

    def _hear(self, update: object) -> Inbound | None:
        assert self._hearing is not None
        return self._hearing(update)

    async def _accept(self, accept: Accept, inbound: Inbound) -> Acceptance:
        acceptance = await accept(inbound)
        refused = acceptance if isinstance(acceptance, Refused) else None
        if inbound.kind == "decision":
            self._beside(self._answer(inbound, refused))
        elif refused and refused.reply:
            self._beside(self._decline(inbound, refused.reply))
        return acceptance

    def _beside(self, saying: Coroutine[None, None, None]) -> None:
        """Best effort, and nobody waits for it."""
        if len(self._declining) >= MAX_DECLINES:
            saying.close()
            return
        task = asyncio.create_task(saying)
        self._declining.add(task)
        task.add_done_callback(self._declining.discard)

    async def _answer(self, press: Inbound, refused: Refused | None) -> None:
        """Ends the wait of who pressed; only they see why it did nothing."""
        said = refused.reply if refused else None
        try:
            async with asyncio.timeout(DECLINE_SECONDS):
                await self._bot.answer_callback_query(
                    press.reply_to or "", said and said[:MAX_ANSWER], show_alert=bool(said)
                )
                if refused and refused.over:
                    await self._take_buttons(press)
        except Exception as error:
            # Telegram forgets a press within a minute. What it did is done.
            emit("telegram.not_answered", press.key, level=logging.DEBUG, why=why(error))

    async def _take_buttons(self, press: Inbound) -> None:
        to, message_id = address(press.key, self._account), _number(press.message_id)
        if to is not None and message_id is not None:
            await self._bot.edit_message_reply_markup(to.chat_id, message_id)

    async def _decline(self, inbound: Inbound, reply: str) -> None:
        """Says once, best effort, why a message was refused."""
        to = address(inbound.key, self._account)
        if to is None:
            return
        reply_to = _number(inbound.message_id) if inbound.group else None
        try:
            async with asyncio.timeout(DECLINE_SECONDS):
                for body in render(reply):
                    await self._sending.say(to, decode_body(body), reply_to)
        except Exception as error:
            # Nothing was kept of the message, so nobody waits for this.
            emit("telegram.not_declined", inbound.key, level=logging.DEBUG, why=why(error))


def _for_this_chat(body: Body, key: str) -> Body:
    """The buttons know whose conversation they belong to.

    :raises Undeliverable: that does not fit into a button
    """
    data = [data_for(key, button.data) for button in body.buttons]
    buttons = tuple(
        Button(button.label, said)
        for button, said in zip(body.buttons, data, strict=True)
        if said is not None
    )
    if len(buttons) < len(data):
        raise Undeliverable("the key is too long for a button")
    return msgspec.structs.replace(body, buttons=buttons)


class _Chat:
    """One chat, as `Growing` needs it."""

    def __init__(self, sending: Sending, to: Address, draft_id: int, reply_to: int | None) -> None:
        self._sending = sending
        self._to = to
        self._draft_id = draft_id
        self._reply_to = reply_to

    @property
    def edits(self) -> bool:
        return self._sending.edits

    async def type(self) -> None:
        await self._sending.type(self._to)

    async def draft(self, body: str) -> None:
        await self._sending.draft(self._to, self._draft_id, decode_body(body))

    async def say(self, body: str) -> str:
        # Only the first message of an answer says what it answers.
        reply_to, self._reply_to = self._reply_to, None
        receipt = await self._sending.say(self._to, decode_body(body), reply_to)
        return receipt.message_ids[0]

    async def edit(self, message_id: str, body: str) -> None:
        try:
            await self._sending.change(self._to, int(message_id), decode_body(body))
        except Exception as error:
            if not says(error, failures.NOT_MODIFIED):
                raise

    async def delete(self, message_id: str) -> None:
        await self._sending.delete(self._to, int(message_id))


def _draft_id(inbound: Inbound) -> int:
    """Not zero, and the same for the same question: after a restart its draft goes on."""
    return zlib.crc32(inbound.id.encode()) or 1


def _number(message_id: str | None) -> int | None:
    return int(message_id) if message_id and _MESSAGE_ID.fullmatch(message_id) else None


async def _nothing() -> None:
    pass
