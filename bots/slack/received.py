"""What Slack sends, as far as it is read: one shape for events, slash commands and buttons.

Every field may be missing, for Slack adds kinds and leaves out what it once sent. A field of
another shape than here makes the whole none of our business. Pure.
"""

from __future__ import annotations

import msgspec


class File(msgspec.Struct):
    id: str | None = None
    name: str | None = None
    title: str | None = None
    mimetype: str | None = None
    subtype: str | None = None
    size: int | None = None
    duration_ms: int | None = None
    url_private: str | None = None
    url_private_download: str | None = None


class Profile(msgspec.Struct):
    display_name: str | None = None
    real_name: str | None = None


class Edited(msgspec.Struct):
    ts: str = ""


class Tokens(msgspec.Struct):
    """The users whose tokens have ended."""

    bot: list[str] | None = None


class AssistantThread(msgspec.Struct):
    """A thread of the older assistant view."""

    user_id: str | None = None
    channel_id: str | None = None
    thread_ts: str | None = None


class Message(msgspec.Struct):
    """A message, and also an event about one, or about the app."""

    type: str = ""
    subtype: str | None = None
    channel: str | None = None
    channel_type: str | None = None
    user: str | None = None
    text: str | None = None
    ts: str | None = None
    thread_ts: str | None = None
    bot_id: str | None = None
    team: str | None = None
    user_team: str | None = None
    source_team: str | None = None
    user_profile: Profile | None = None
    files: list[File] | None = None
    edited: Edited | None = None
    message: Message | None = None
    previous_message: Message | None = None
    deleted_ts: str | None = None
    event_ts: str | None = None
    channel_id: str | None = None
    user_id: str | None = None
    tokens: Tokens | None = None
    tab: str | None = None
    assistant_thread: AssistantThread | None = None


class Named(msgspec.Struct):
    """A user, a team, a channel, in what comes of buttons and shortcuts."""

    id: str | None = None
    name: str | None = None
    team_id: str | None = None


class Action(msgspec.Struct):
    action_id: str = ""
    action_ts: str | None = None
    value: str | None = None


class Container(msgspec.Struct):
    message_ts: str | None = None
    channel_id: str | None = None


class Authorization(msgspec.Struct):
    team_id: str | None = None
    enterprise_id: str | None = None


class Body(msgspec.Struct):
    type: str | None = None
    authorizations: list[Authorization] | None = None
    team_id: str | None = None
    enterprise_id: str | None = None
    context_team_id: str | None = None
    event: Message | None = None
    # Of a slash command
    command: str | None = None
    text: str | None = None
    channel_id: str | None = None
    user_id: str | None = None
    user_name: str | None = None
    trigger_id: str | None = None
    # Of a button or a shortcut
    workspace: Named | None = msgspec.field(default=None, name="team")
    user: Named | None = None
    channel: Named | None = None
    container: Container | None = None
    message: Message | None = None
    actions: list[Action] | None = None
    callback_id: str | None = None
    action_ts: str | None = None

    @property
    def team(self) -> str | None:
        """The workspace that it reached us through. An install of a whole organisation names none;
        then it is the one that the message was seen in."""
        if self.authorizations and self.authorizations[0].team_id:
            return self.authorizations[0].team_id
        named = self.workspace.id if self.workspace else None
        return (self.context_team_id if self.authorizations else None) or self.team_id or named

    @property
    def organisation(self) -> str | None:
        """What that workspace is a part of."""
        if self.authorizations:
            return self.authorizations[0].enterprise_id
        return self.enterprise_id


def read(body: object) -> Body | None:
    """
    :param body: decoded JSON, or the fields of a form, whatever it may be
    """
    if not isinstance(body, dict):
        return None
    try:
        return msgspec.convert(body, Body)
    except (msgspec.ValidationError, RecursionError):
        return None
