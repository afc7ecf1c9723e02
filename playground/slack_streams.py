"""chat.startStream, appendStream and stopStream: one message that grows.

The checks and their words are those of docs.slack.dev (reference of the methods): `markdown_text`
and `chunks` never in one call, and never one after the other in one stream; a stream in a channel
names its recipient; a stream that the person stopped takes no more. Five minutes after its start a
stream is dead, though text still flows (slackapi/python-slack-sdk issue 1859): what comes then is
message_not_in_streaming_state, and only chat.update can still change the message. A start is an
event with an empty text and `streaming_state`, a stop is a message_changed (captured on the wire by
others). Assumed: the 12,000 characters of one call also bound the whole message. Text and task
cards of one message together are bounded too, by something that others have measured to lie between
10,600 and 11,300 bytes, once there is text (openclaw/openclaw pull request 143882): msg_too_long.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from playground.slack_agents import STATES, processing, settled
from playground.slack_blocks import MAX_BLOCKS, checked
from playground.slack_chats import Channel, Json, Refused, Team
from playground.slack_events import posted
from playground.slack_messages import metadata_of, own, place, rewrite, thread_of
from playground.slack_text import MAX_MARKDOWN, shown
from playground.slack_world import Grant, World

STREAM_SECONDS = 300.0
MAX_WITH_TASKS = 11_000  # bytes
TASK_STATES = frozenset(("pending", "in_progress", "complete", "error"))
DISPLAY_MODES = frozenset(("timeline", "plan", "dense"))


@dataclass(eq=False, slots=True)
class Stream:
    """A stream, and what it has brought so far. `state`: in_progress, completed, or stopped by the
    person; one that has died is in_progress all the same, and `alive` says so."""

    team: str
    channel: str
    ts: str
    thread: str | None
    recipient: str | None
    started: float  # by the world's clock
    state: str = "in_progress"
    mode: str | None = None
    text: str = ""
    plan: str = ""
    tasks: dict[str, Json] = field(default_factory=dict)
    blocks: list[Json] = field(default_factory=list)
    appends: int = 0

    def alive(self, now: float) -> bool:
        return self.state == "in_progress" and now - self.started < STREAM_SECONDS

    def shown(self, below: list[Json] | None = None) -> list[Json]:
        """The blocks of the message now."""
        blocks: list[Json] = []
        if self.text:
            blocks.append({"type": "markdown", "text": self.text})
        for task in self.tasks.values():
            blocks.append({"type": "task_card", "task_id": task["id"], **_without_id(task)})
        return blocks + self.blocks + (below or [])


def start(world: World, grant: Grant, given: Json) -> Json:
    world.needs(grant, "chat:write")
    team, channel = place(world, grant, given)
    thread = thread_of(channel, given)
    if thread is None and channel.kind == "im":
        raise Refused("invalid_arguments")
    if channel.kind != "im":
        _recipient(world, channel, given)
    if given.get("task_display_mode", "timeline") not in DISPLAY_MODES:
        raise Refused("invalid_arguments")
    stream = Stream(team.id, channel.id, "", thread, given.get("recipient_user_id"), world.clock())
    _take(stream, given, needed=False)
    assert team.bot is not None
    message = world.message(
        channel,
        team.bot,
        stream.text,
        thread=thread,
        blocks=stream.shown() or None,
        streaming_state="in_progress",
    )
    stream.ts = message["ts"]
    world.streams[team.id, channel.id, stream.ts] = stream
    sent = channel.record(message, time.monotonic())
    world.tell("sent", _where(stream) | {"thread": thread, "text": sent.text})
    posted(world, team, channel, message | {"text": "", "blocks": None})
    processing(world, team, channel, thread)
    return {"channel": channel.id, "ts": stream.ts}


def append(world: World, grant: Grant, given: Json) -> Json:
    world.needs(grant, "chat:write")
    team, channel, stream = _open(world, grant, given)
    if stream.state == "stopped by the person":
        raise Refused("stopped_by_user")
    if not stream.alive(world.clock()):
        raise Refused("message_not_in_streaming_state")
    _take(stream, given, needed=True)
    stream.appends += 1
    _show(world, team, channel, stream)
    return {"channel": channel.id, "ts": stream.ts}


def stop(world: World, grant: Grant, given: Json) -> Json:
    world.needs(grant, "chat:write")
    team, channel, stream = _open(world, grant, given)
    if not stream.alive(world.clock()):
        raise Refused("message_not_in_streaming_state")
    below = checked(given["blocks"]) if given.get("blocks") else []
    metadata = metadata_of(given)
    status = str(given.get("session_status") or "active")
    if status not in STATES:
        raise Refused("invalid_status")
    _take(stream, given, needed=False)
    stream.state = "completed"
    previous = channel.messages[stream.ts]
    content: dict[str, Any] = {
        "text": stream.text,
        "blocks": stream.shown(below),
        "streaming_state": "completed",
    }
    if metadata is not None:
        content["metadata"] = metadata
    quiet = {"text": "", "blocks": None, "streaming_state": "in_progress"}
    rewrite(world, team, channel, previous, content, edited=False, told_as=previous | quiet)
    settled(world, team, channel, stream.thread, status)
    message = channel.messages[stream.ts]
    return {"channel": channel.id, "ts": stream.ts, "message": message}


def _recipient(world: World, channel: Channel, given: Json) -> None:
    for name in ("recipient_team_id", "recipient_user_id"):
        if not given.get(name):
            raise Refused(f"missing_{name}")
    if given["recipient_team_id"] not in (channel.team, *channel.shared):
        raise Refused("team_not_found")
    if given["recipient_user_id"] not in world.teams[given["recipient_team_id"]].people:
        raise Refused("user_not_found")


def _open(world: World, grant: Grant, given: Json) -> tuple[Team, Channel, Stream]:
    channel = world.channel(grant, given)
    message = own(channel, given, "message_not_owned_by_app")
    stream = world.streams.get((channel.team, channel.id, message["ts"]))
    if stream is None:
        raise Refused("message_not_in_streaming_state")
    return world.teams[channel.team], channel, stream


def _take(stream: Stream, given: Json, *, needed: bool) -> None:
    """What a call brings, all of it or, when a part is refused, nothing."""
    text, chunks = given.get("markdown_text"), given.get("chunks")
    if text and chunks:
        raise Refused("cannot_provide_both_markdown_text_and_chunks")
    if not text and not chunks:
        if needed:
            raise Refused("markdown_text_or_chunks_required")
        return
    mode = "markdown_text" if text else "chunks"
    if stream.mode not in (None, mode):
        raise Refused("streaming_mode_mismatch")
    if text:
        if not isinstance(text, str):
            raise Refused("invalid_arguments")
        parts: list[Json] = [{"type": "markdown_text", "text": text}]
    elif isinstance(chunks, list):
        parts = [_chunk(chunk) for chunk in chunks]
    else:
        raise Refused("invalid_chunks")
    more = "".join(part["text"] for part in parts if part["type"] == "markdown_text")
    blocks = [block for part in parts if part["type"] == "blocks" for block in part["blocks"]]
    if len(stream.text) + len(more) > MAX_MARKDOWN:
        raise Refused("msg_blocks_too_long")
    if len(stream.blocks) + len(blocks) > MAX_BLOCKS:
        raise Refused("msg_blocks_too_many")
    titles = {task["id"]: task["title"] for task in stream.tasks.values()}
    titles |= {part["id"]: part["title"] for part in parts if part["type"] == "task_update"}
    weight = len((stream.text + more + "".join(titles.values())).encode())
    if titles and stream.text + more and weight > MAX_WITH_TASKS:
        raise Refused("msg_too_long")
    stream.mode = mode
    stream.text += more
    stream.blocks += blocks
    for part in parts:
        if part["type"] == "task_update":
            stream.tasks[part["id"]] = stream.tasks.get(part["id"], {}) | _without_type(part)
        elif part["type"] == "plan_update":
            stream.plan = part["title"]


def _chunk(chunk: object) -> Json:
    """A chunk that is one. Raises `Refused`."""
    if not isinstance(chunk, dict):
        raise Refused("invalid_chunks")
    match chunk:
        case {"type": "markdown_text", "text": str()}:
            return chunk
        case {"type": "plan_update", "title": str()}:
            return chunk
        case {"type": "task_update", "id": str(), "title": str()}:
            if chunk.get("status", "pending") in TASK_STATES:
                return chunk
        case {"type": "blocks", "blocks": blocks}:
            checked(blocks)
            return chunk
    raise Refused("invalid_chunks")


def _show(world: World, team: Team, channel: Channel, stream: Stream) -> None:
    """The message grows before the eyes of who looks; no event tells of it."""
    message = channel.messages[stream.ts] | {"text": stream.text, "blocks": stream.shown()}
    channel.messages[stream.ts] = message
    channel.record_growth(message)
    world.tell("grown", _where(stream) | {"text": shown(message)})


def _where(stream: Stream) -> Json:
    return {"team": stream.team, "channel": stream.channel, "ts": stream.ts}


def _without_id(task: Json) -> Json:
    return {name: value for name, value in task.items() if name != "id"}


def _without_type(part: Json) -> Json:
    return {name: value for name, value in part.items() if name != "type"}
