"""What happens in a channel, told as Slack tells it: shapes taken from captured payloads
(vercel/chat, packages/adapter-slack/sample-messages.md, and the references of docs.slack.dev).

One post of a person that names the bot in a channel is two events, `message` and `app_mention`,
with event ids of their own and the same `ts`. What the bot itself does comes back to it as events
too. The app hears of channels only that its user is a member of.
"""

from playground.slack_chats import Channel, Json, Team
from playground.slack_deliveries import Delivery
from playground.slack_text import mentioned
from playground.slack_world import World

CHANNEL_TYPES = {"channel": "channel", "group": "group", "im": "im", "mpim": "mpim"}


def posted(world: World, team: Team, channel: Channel, message: Json) -> list[Delivery]:
    """Someone, the bot too, has posted."""
    if not hears(team, channel):
        return []
    inner = _public(message)
    deliveries = [_message(world, team, channel, inner | {"event_ts": message["ts"]})]
    named = team.bot is not None and team.bot.id in mentioned(str(message.get("text", "")))
    if named and channel.kind != "im" and message.get("subtype") in (None, "file_share"):
        mention = inner | {
            "type": "app_mention",
            "channel": channel.id,
            "event_ts": message["ts"],
        }
        mention.pop("subtype", None)
        deliveries.append(world.event(team, mention, "app_mention", channel=channel))
    told = [delivery for delivery in deliveries if delivery is not None]
    return told + _counted(world, team, channel, message)


def changed(
    world: World, team: Team, channel: Channel, message: Json, previous: Json
) -> list[Delivery]:
    """A message reads otherwise now. Hidden: a client shows no new line for it."""
    if not hears(team, channel):
        return []
    ts = world.ts()
    event: Json = {
        "type": "message",
        "subtype": "message_changed",
        "message": _public(message)
        | {"source_team": message.get("team", team.id), "user_team": message.get("team", team.id)},
        "previous_message": _public(previous),
        "hidden": True,
        "ts": ts,
        "event_ts": ts,
    }
    delivery = _message(world, team, channel, event)
    return [] if delivery is None else [delivery]


def deleted(world: World, team: Team, channel: Channel, previous: Json) -> list[Delivery]:
    """A message is gone. A root with replies has become a tombstone, which is a change."""
    now = channel.messages.get(previous["ts"])
    if now is not None:
        return changed(world, team, channel, now, previous)
    if not hears(team, channel):
        return []
    ts = world.ts()
    event: Json = {
        "type": "message",
        "subtype": "message_deleted",
        "previous_message": _public(previous),
        "hidden": True,
        "deleted_ts": previous["ts"],
        "ts": ts,
        "event_ts": ts,
    }
    delivery = _message(world, team, channel, event)
    return [] if delivery is None else [delivery]


def _counted(world: World, team: Team, channel: Channel, message: Json) -> list[Delivery]:
    """A reply in a thread with an agent session: its root has one more, and that is told too."""
    root = channel.messages.get(message.get("thread_ts", ""))
    if root is None or root["ts"] == message["ts"] or "agent_session" not in root:
        return []
    now = channel.counted(root)
    return changed(world, team, channel, now, now | {"reply_count": now["reply_count"] - 1})


def hears(team: Team, channel: Channel) -> bool:
    return team.bot is not None and team.bot.id in channel.members


def _message(world: World, team: Team, channel: Channel, event: Json) -> Delivery | None:
    event = event | {"channel": channel.id, "channel_type": CHANNEL_TYPES[channel.kind]}
    return world.event(team, event, f"message.{channel.family}", channel=channel)


def _public(message: Json) -> Json:
    """A message as events show it: its metadata is for those who ask for it."""
    return {n: value for n, value in message.items() if n != "metadata" and value is not None}
