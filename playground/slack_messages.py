"""chat.*: what the bot writes, changes and takes back.

The checks and their words are those of docs.slack.dev (reference of the methods). Stricter than
Slack where a mistake of the bot would pass in silence: a text above 40,000 characters, which Slack
cuts, is msg_too_long; a `thread_ts` that is no message is thread_not_found, and one that is itself
a reply cannot_reply_to_message. Names in place of channel ids are not taken.
"""

import time
from typing import Any

from playground.slack_blocks import checked
from playground.slack_chats import Channel, Json, Person, Refused, Team, Whisper
from playground.slack_events import changed, deleted, posted
from playground.slack_text import MAX_MARKDOWN, MAX_TEXT, rich_text, shown
from playground.slack_world import Grant, World

MAX_UPDATE = 4_000
MAX_METADATA = 16_000


def post_message(world: World, grant: Grant, given: Json) -> Json:
    world.needs(grant, "chat:write")
    team, channel = place(world, grant, given)
    content = _content(given)
    thread = thread_of(channel, given)
    if thread is not None and given.get("reply_broadcast"):
        content |= {"subtype": "thread_broadcast"}
    metadata = metadata_of(given)
    message = write(world, team, channel, content, thread, metadata)
    return {"channel": channel.id, "ts": message["ts"], "message": message}


def write(
    world: World,
    team: Team,
    channel: Channel,
    content: Json,
    thread: str | None = None,
    metadata: Json | None = None,
) -> Json:
    """The bot posts: the message is in the channel, on record, and an event."""
    assert team.bot is not None
    content = dict(content)
    text = content.pop("text")
    message = world.message(channel, team.bot, text, thread=thread, metadata=metadata, **content)
    sent = channel.record(message, time.monotonic())
    world.tell("sent", _where(channel, message) | {"thread": thread, "text": sent.text})
    posted(world, team, channel, message)
    return message


def update(world: World, grant: Grant, given: Json) -> Json:
    world.needs(grant, "chat:write")
    channel = world.channel(grant, given)
    team = world.teams[channel.team]
    message = own(channel, given, "cant_update_message")
    if channel.archived:
        raise Refused("is_inactive")
    stream = world.streams.get((team.id, channel.id, message["ts"]))
    if stream is not None and stream.alive(world.clock()):
        raise Refused("streaming_state_conflict")
    content = _content(given, update=True)
    if len(content["text"]) > MAX_UPDATE and given.get("text"):
        raise Refused("msg_too_long")
    metadata = metadata_of(given)
    if metadata is not None:
        content["metadata"] = metadata
    if "blocks" not in content:
        content["blocks"] = rich_text(content["text"], world.name("b", 5))
    rewrite(world, team, channel, message, content, edited=True)
    message = channel.messages[message["ts"]]
    return {
        "channel": channel.id,
        "ts": message["ts"],
        "text": message["text"],
        "message": message,
    }


def rewrite(
    world: World,
    team: Team,
    channel: Channel,
    previous: Json,
    content: Json,
    *,
    edited: bool,
    told_as: Json | None = None,
) -> None:
    """The message of the bot now has this content, and that is an event: from `told_as` when the
    app was told something else before than what is shown."""
    message = previous | content
    if message.get("metadata") == {}:
        del message["metadata"]  # that is how it is taken away
    if edited and team.bot is not None:
        message["edited"] = {"user": team.bot.bot_id, "ts": f"{int(world.clock())}.000000"}
    channel.messages[message["ts"]] = message
    sent = channel.record_edit(message) if edited else channel.record_growth(message)
    world.tell("edited", _where(channel, message) | {"text": sent.text})
    changed(world, team, channel, message, told_as or previous)


def delete(world: World, grant: Grant, given: Json) -> Json:
    world.needs(grant, "chat:write")
    channel = world.channel(grant, given)
    message = own(channel, given, "cant_delete_message")
    channel.delete(message["ts"])
    world.tell("deleted", _where(channel, message))
    deleted(world, world.teams[channel.team], channel, message)
    return {"channel": channel.id, "ts": message["ts"]}


def post_ephemeral(world: World, grant: Grant, given: Json) -> Json:
    world.needs(grant, "chat:write")
    _, channel = place(world, grant, given)
    content = _content(given)
    user = given.get("user")
    if user in (None, ""):
        raise Refused("invalid_arguments")
    if user not in channel.members:
        raise Refused("user_not_in_channel")
    thread = thread_of(channel, given)
    ts = whisper(world, channel, str(user), content, thread)
    return {"message_ts": ts}


def whisper(
    world: World, channel: Channel, user: str, content: Json, thread: str | None = None
) -> str:
    """Says something to one person only; returns its time stamp."""
    ts = world.ts()
    said = Whisper(channel.team, channel.id, user, ts, shown(content), content, thread)
    channel.whispers.append(said)
    world.tell("whispered", {"channel": channel.id, "ts": ts, "user": user, "text": said.text})
    return ts


def get_permalink(world: World, grant: Grant, given: Json) -> Json:
    channel = world.channel(grant, given)
    ts = str(given.get("message_ts"))
    if ts not in channel.messages:
        raise Refused("message_not_found")
    host = world.teams[channel.team].domain
    link = f"https://{host}.slack.com/archives/{channel.id}/p{ts.replace('.', '')}"
    return {"channel": channel.id, "permalink": link}


# What more than one of them asks


def place(world: World, grant: Grant, given: Json) -> tuple[Team, Channel]:
    """Where to write: a channel, or the conversation with a person by their id."""
    wanted = given.get("channel")
    if isinstance(wanted, str) and wanted.startswith("U"):
        team = world.caller_team(grant, given)
        person = team.people.get(wanted)
        if not isinstance(person, Person):
            raise Refused("channel_not_found")
        channel = world.direct(team, person)
    else:
        channel = world.channel(grant, given)
        team = world.teams[channel.team]
    if channel.archived:
        raise Refused("is_archived")
    inside = team.bot is not None and team.bot.id in channel.members
    if not inside and not (channel.kind == "channel" and _may_anywhere(grant)):
        raise Refused("not_in_channel")
    return team, channel


def thread_of(channel: Channel, given: Json) -> str | None:
    thread = given.get("thread_ts")
    if thread in (None, ""):
        return None
    root = channel.messages.get(str(thread))
    if root is None:
        raise Refused("thread_not_found")
    if root.get("thread_ts", root["ts"]) != root["ts"]:
        raise Refused("cannot_reply_to_message")
    return str(thread)


def own(channel: Channel, given: Json, refusal: str) -> Json:
    """A message of the bot, by `ts`."""
    message = channel.messages.get(str(given.get("ts")))
    if message is None:
        raise Refused("message_not_found")
    if message["ts"] not in channel.sent:
        raise Refused(refusal)
    return message


def text_of(given: Json, name: str = "markdown_text") -> str:
    """A Markdown text of at most 12,000 characters; empty when there is none."""
    text = given.get(name)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise Refused("invalid_arguments")
    if len(text) > MAX_MARKDOWN:
        raise Refused("msg_too_long")
    return text


def _content(given: Json, *, update: bool = False) -> Json:
    text, markdown = given.get("text"), text_of(given)
    blocks, attachments = given.get("blocks"), given.get("attachments")
    if text is not None and not isinstance(text, str):
        raise Refused("invalid_arguments")
    if markdown and (text or blocks):
        raise Refused("markdown_text_conflict")
    if not (text or "").strip() and not markdown.strip() and not blocks and not attachments:
        raise Refused("no_text")
    if len(text or "") > MAX_TEXT:
        raise Refused("msg_too_long")
    content: dict[str, Any] = {"text": text or markdown}
    if blocks:
        content["blocks"] = checked(blocks)
    elif markdown:
        content["blocks"] = [{"type": "markdown", "text": markdown}]
    if attachments:
        if not isinstance(attachments, list):
            raise Refused("invalid_attachments")
        content["attachments"] = attachments
    for name in ("unfurl_links", "unfurl_media"):
        if not update and name in given:
            content[name] = given[name]
    return content


def metadata_of(given: Json) -> Json | None:
    metadata = given.get("metadata")
    if metadata in (None, ""):
        return None
    if not isinstance(metadata, dict):
        raise Refused("invalid_metadata_format")
    if metadata and not (
        isinstance(metadata.get("event_type"), str)
        and isinstance(metadata.get("event_payload"), dict)
    ):
        raise Refused("invalid_metadata_schema")
    if len(str(metadata)) > MAX_METADATA:
        raise Refused("metadata_too_large")
    return metadata


def _may_anywhere(grant: Grant) -> bool:
    return grant.scopes is not None and "chat:write.public" in grant.scopes


def _where(channel: Channel, message: Json) -> Json:
    return {"team": channel.team, "channel": channel.id, "ts": message["ts"]}
