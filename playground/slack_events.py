"""What happens in a channel, told as Slack tells it: shapes taken from captured payloads
(vercel/chat, packages/adapter-slack/sample-messages.md, and the references of docs.slack.dev).

One post of a person that names the bot in a channel is two events, `message` and `app_mention`,
with event ids of their own and the same `ts`. What the bot itself does comes back to it as events
too. The app hears of channels only that its user is a member of. When a person edits a message that
names the bot, or so that it does, `app_mention` comes once more beside the message_changed: with an
id of its own, the old `ts`, and `edited` (slackapi/bolt-js issue 960, PostHog/posthog 59517).
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
    deliveries.append(_mention(world, team, channel, inner, message["ts"]))
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
    deliveries = [_message(world, team, channel, event)]
    if message.get("edited") not in (None, previous.get("edited")):
        deliveries.append(_mention(world, team, channel, _public(message), ts))
    return [delivery for delivery in deliveries if delivery is not None]


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


def _mention(
    world: World, team: Team, channel: Channel, message: Json, event_ts: str
) -> Delivery | None:
    """The twin of a message that names the bot, unless it is the bot's own."""
    bot = team.bot
    if bot is None or bot.id not in mentioned(str(message.get("text", ""))):
        return None
    plain = message.get("subtype") in (None, "file_share")
    if channel.kind == "im" or message.get("user") == bot.id or not plain:
        return None
    mention = message | {"type": "app_mention", "channel": channel.id, "event_ts": event_ts}
    mention.pop("subtype", None)
    return world.event(team, mention, "app_mention", channel=channel)


def _message(world: World, team: Team, channel: Channel, event: Json) -> Delivery | None:
    event = event | {"channel": channel.id, "channel_type": CHANNEL_TYPES[channel.kind]}
    return world.event(team, event, f"message.{channel.family}", channel=channel)


def _public(message: Json) -> Json:
    """A message as events show it: its metadata is for those who ask for it."""
    return {n: value for n, value in message.items() if n != "metadata" and value is not None}
