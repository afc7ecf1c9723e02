"""The methods of the Web API that the stand-in knows: each `world, grant, parameters -> result`.

The rate limit of each is one of Slack's tiers, in calls a minute (docs.slack.dev, reference of the
methods); `None` is none.
"""

from collections.abc import Callable
from dataclasses import dataclass

from playground import (
    slack_agents,
    slack_files,
    slack_messages,
    slack_oauth,
    slack_reading,
    slack_streams,
)
from playground.slack_chats import Json
from playground.slack_world import Grant, World

Call = Callable[[World, Grant, Json], Json]
TIER_1, TIER_2, TIER_3, TIER_4 = 1, 20, 50, 100
POSTING = 60  # one a second in each channel


@dataclass(frozen=True, slots=True)
class Method:
    """`kind` is the kind of token it wants, None for one that wants no token."""

    run: Call
    tier: int | None
    kind: str | None = "bot"


def connections_open(world: World, grant: Grant, given: Json) -> Json:
    return {"url": world.ticket()}


METHODS: dict[str, Method] = {
    "agents.sessions.rename": Method(slack_agents.rename_session, TIER_3),
    "agents.sessions.setStatus": Method(slack_agents.set_session_status, TIER_3),
    "api.test": Method(lambda world, grant, given: {"args": given}, TIER_4),
    "apps.uninstall": Method(slack_oauth.uninstall, TIER_1),
    "auth.revoke": Method(slack_oauth.revoke, TIER_3, "any"),
    "apps.connections.open": Method(connections_open, TIER_1, "app"),
    "assistant.threads.setStatus": Method(slack_agents.set_thread_status, 600),
    "assistant.threads.setSuggestedPrompts": Method(slack_agents.set_suggested_prompts, TIER_4),
    "assistant.threads.setTitle": Method(slack_agents.set_thread_title, TIER_4),
    "auth.test": Method(slack_reading.auth_test, 600, "any"),
    "bots.info": Method(slack_reading.bots_info, TIER_3),
    "chat.appendStream": Method(slack_streams.append, TIER_4),
    "chat.delete": Method(slack_messages.delete, TIER_3),
    "chat.getPermalink": Method(slack_messages.get_permalink, 600),
    "chat.postEphemeral": Method(slack_messages.post_ephemeral, TIER_4),
    "chat.postMessage": Method(slack_messages.post_message, POSTING),
    "chat.startStream": Method(slack_streams.start, TIER_2),
    "chat.stopStream": Method(slack_streams.stop, TIER_2),
    "chat.update": Method(slack_messages.update, TIER_3),
    "conversations.history": Method(slack_reading.history, TIER_3),
    "conversations.info": Method(slack_reading.info, TIER_3),
    "conversations.join": Method(slack_reading.join, TIER_3),
    "conversations.leave": Method(slack_reading.leave, TIER_3),
    "conversations.list": Method(slack_reading.list_channels, TIER_2),
    "conversations.members": Method(slack_reading.members, TIER_4),
    "conversations.open": Method(slack_reading.open_direct, TIER_3),
    "conversations.replies": Method(slack_reading.replies, TIER_3),
    "files.completeUploadExternal": Method(slack_files.complete_upload, TIER_4),
    "files.delete": Method(slack_files.delete, TIER_3),
    "files.getUploadURLExternal": Method(slack_files.get_upload_url, TIER_4),
    "files.info": Method(slack_files.info, TIER_4),
    "oauth.v2.access": Method(slack_oauth.access, None, None),
    "team.info": Method(slack_reading.team_info, TIER_3),
    "users.info": Method(slack_reading.users_info, TIER_4),
    "users.list": Method(slack_reading.users_list, TIER_2),
    "views.publish": Method(slack_agents.publish_view, TIER_4),
}
