"""What changes a conversation on Slack: saying, editing, deleting, and looking for what was said.

Each raises what slack_sdk and aiohttp raise; what that means is in `failures`. A message carries
the id of its part as metadata, so that it can be found when nobody knows whether it was sent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bots.slack.failures import NOTHING_THERE, STREAMING, says
from bots.slack.keys import Address, is_ts
from bots.slack.render import Body, blocks, fallback, inert
from bots.slack.rules import Me
from core.adapter import Doing

EVENT: Final = "chinwag_part"
PAGE: Final = 200
MOST_PAGES: Final = 25
MAX_TITLE: Final = 256  # of a task card, as Slack's reference says

Json = dict[str, Any]
Tasks = Sequence[Doing]

# How Slack calls what a call can be.
_STATUS: Final = {
    "running": "in_progress",
    "done": "complete",
    "failed": "error",
    "asks": "pending",
}


class Post:
    """One workspace's conversations, by its token.

    :param token: the bot's in the workspace
    """

    def __init__(self, web: AsyncWebClient, token: str, me: Me) -> None:
        self._web = web
        self.token = token
        self._me = me

    async def say(self, to: Address, key: str, body: Body, name: str) -> str:
        """Its ts.

        :param name: by which it can be found
        """
        answer = await self._web.chat_postMessage(
            channel=to.channel,
            thread_ts=to.thread,
            text=fallback(body),
            blocks=blocks(body, key),
            metadata=_named(name),
            parse="none",
            link_names=False,
            unfurl_links=False,
            unfurl_media=False,
            token=self.token,
        )
        return _ts(answer)

    async def whisper(self, to: Address, key: str, user: str, body: Body) -> None:
        """Only this person sees it."""
        await self._web.chat_postEphemeral(
            channel=to.channel,
            user=user,
            thread_ts=to.thread,
            text=fallback(body),
            blocks=blocks(body, key),
            token=self.token,
        )

    async def edit(self, to: Address, key: str, ts: str, body: Body, name: str) -> None:
        """
        :param name: by which it can be found from now on
        """
        await self._update(to, ts, fallback(body), blocks(body, key), name)

    async def take_buttons(self, to: Address, ts: str, message: object) -> None:
        """
        :param message: as Slack has shown it to us
        """
        if not isinstance(message, dict) or not isinstance(message.get("blocks"), list):
            return
        left = [one for one in message["blocks"] if one.get("type") != "actions"]
        await self._update(to, ts, str(message.get("text", "")), left, None)

    async def delete(self, to: Address, ts: str) -> None:
        try:
            await self._web.chat_delete(channel=to.channel, ts=ts, token=self.token)
        except Exception as error:
            if not says(error, NOTHING_THERE):
                raise

    async def find(self, to: Address, name: str, after: str | None) -> str | None:
        """The ts of the message of ours that carries this name; None: there is none.

        :param after: ts of a message that is older; None: nobody knows
        """
        async for message in self.own(to, after):
            if name_of(message) == name:
                return str(message["ts"])
        return None

    async def own(self, to: Address, after: str | None) -> AsyncIterator[Json]:
        """Our own messages there, with their metadata."""
        async for message in self._messages(to, after):
            if message.get("user") == self._me.user or message.get("bot_id") == self._me.bot:
                yield message

    async def _messages(self, to: Address, after: str | None) -> AsyncIterator[Json]:
        asked: Json = {
            "channel": to.channel,
            "limit": PAGE,
            "include_all_metadata": True,
            "token": self.token,
        }
        if is_ts(after):
            asked |= {"oldest": after, "inclusive": True}
        method: Callable[..., Any] = self._web.conversations_history
        if to.thread is not None:
            asked["ts"], method = to.thread, self._web.conversations_replies
        for _ in range(MOST_PAGES):
            answer = await method(**asked)
            for message in answer.get("messages") or ():
                yield message
            cursor = (answer.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                return
            asked["cursor"] = cursor

    async def _update(
        self, to: Address, ts: str, text: str, shown: list[Json], name: str | None
    ) -> None:
        async def ask() -> None:
            await self._web.chat_update(
                channel=to.channel,
                ts=ts,
                text=text,
                blocks=shown,
                metadata=None if name is None else _named(name),
                parse="none",
                link_names=False,
                token=self.token,
            )

        try:
            await ask()
        except Exception as error:
            if not says(error, STREAMING):
                raise
            # It was begun by a process that has died. It may be edited once it is over.
            await self.stop(to, ts, "", name or "")
            await ask()

    # ------------------------------------------------------------------ streams

    async def start(self, to: Address, markdown: str, tasks: Tasks, team: str, user: str) -> str:
        """A message that grows; its ts. It can carry no name yet.

        :param team: of who is answered
        :param user: who is answered
        """
        answer = await self._web.chat_startStream(
            channel=to.channel,
            thread_ts=to.thread or "",
            chunks=_chunks(markdown, tasks),
            recipient_team_id=team,
            recipient_user_id=user,
            token=self.token,
        )
        return _ts(answer)

    async def append(self, to: Address, ts: str, markdown: str, tasks: Tasks) -> None:
        await self._web.chat_appendStream(
            channel=to.channel, ts=ts, chunks=_chunks(markdown, tasks), token=self.token
        )

    async def stop(self, to: Address, ts: str, markdown: str, name: str, tasks: Tasks = ()) -> None:
        """It grows no more.

        :param markdown: what is still to be added
        """
        await self._web.chat_stopStream(
            channel=to.channel,
            ts=ts,
            chunks=_chunks(markdown, tasks) or None,
            metadata=_named(name),
            token=self.token,
        )

    async def status(self, to: Address, text: str) -> None:
        """What the bot is doing, below a thread, until it says something."""
        await self._web.assistant_threads_setStatus(
            channel_id=to.channel, thread_ts=to.thread or "", status=text, token=self.token
        )


def _ts(answer: AsyncSlackResponse) -> str:
    """
    :raises ValueError: it is none of Slack's answers, whatever it says
    """
    ts = answer.get("ts")
    if not is_ts(ts):
        raise ValueError("an answer without a ts")
    return ts


def _chunks(markdown: str, tasks: Tasks) -> list[Json]:
    """Slack takes either text or chunks in a stream, from its start to its end."""
    chunks: list[Json] = [
        {
            "type": "task_update",
            "id": each.id,
            "title": inert(each.title)[:MAX_TITLE] or each.id,
            "status": _STATUS[each.state],
        }
        for each in tasks
    ]
    said: list[Json] = [{"type": "markdown_text", "text": markdown}] if markdown else []
    return [*said, *chunks]


def _named(name: str) -> Json:
    return {"event_type": EVENT, "event_payload": {"id": name}}


def name_of(message: Json) -> str | None:
    """The name that a message of ours carries."""
    metadata = message.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("event_type") != EVENT:
        return None
    payload = metadata.get("event_payload")
    name = payload.get("id") if isinstance(payload, dict) else None
    return name if isinstance(name, str) else None
