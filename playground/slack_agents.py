"""What an app shows as an agent: agents.sessions.*, assistant.threads.*, its home (views.publish).

A session belongs to a thread. A stream makes one and sets it to processing, its end releases it;
while it is processing the person sees a Stop button. Each change of it changes the root of the
thread too, and the app is told so by a message_changed in which nothing that was said has changed:
who takes it for an edit answers twice. That is how Slack behaves (captured on the wire by others);
the fields of `agent_session` are from there.
"""

import time
from typing import Any

from playground.slack_blocks import checked_view
from playground.slack_chats import Channel, Json, Person, Refused, Team
from playground.slack_events import changed
from playground.slack_world import Grant, World

STATES = frozenset(("active", "processing", "suspended", "closed"))
PROCESSING_SECONDS = 3_600
STATUS_SECONDS = 120.0
MAX_PROMPTS = 4
MAX_VIEW = 250_000


def set_session_status(world: World, grant: Grant, given: Json) -> Json:
    world.needs(grant, "chat:write")
    team, channel = _channel(world, grant, given)
    thread = _root(channel, given, "thread_ts_required", "thread_ts_required")
    status = given.get("status")
    if status not in STATES:
        raise Refused("invalid_status")
    if len(str(given.get("title") or "")) > 200:
        raise Refused("invalid_arguments")
    starter = given.get("initiator_user_id")
    if starter is not None and starter not in channel.members:
        raise Refused("user_not_found")
    _set(world, team, channel, thread, str(status), given.get("title"))
    if status == "processing" and not world.subscribed(("agent_session_stopped",)):
        return {"warning": "missing_agent_session_stopped_event_subscription"}
    return {}


def rename_session(world: World, grant: Grant, given: Json) -> Json:
    world.needs(grant, "chat:write")
    team, channel = _channel(world, grant, given)
    thread = _root(channel, given, "thread_ts_required", "thread_ts_required")
    session = channel.messages[thread].get("agent_session")
    if session is None:
        raise Refused("session_not_found")
    _set(world, team, channel, thread, session["status"], given.get("title"), rename=True)
    return {}


def processing(world: World, team: Team, channel: Channel, thread: str | None) -> None:
    """A stream has started."""
    if thread is not None:
        _set(world, team, channel, thread, "processing")


def settled(world: World, team: Team, channel: Channel, thread: str | None, status: str) -> None:
    """A stream has ended."""
    if thread is not None:
        _set(world, team, channel, thread, status)


def stop_pressed(world: World, team: Team, channel: Channel, thread: str, who: Person) -> Json:
    """The event that a press of Stop makes; the streams in that thread are at an end.

    Raises `ValueError` when there is no such button.
    """
    session = channel.messages[thread].get("agent_session") or {}
    if session.get("status") != "processing":
        raise ValueError(f"no session is processing in thread {thread}")
    stopped = []
    for (team_id, channel_id, ts), stream in world.streams.items():
        here = (team_id, channel_id, stream.thread) == (team.id, channel.id, thread)
        if here and stream.alive(world.clock()):
            stream.state = "stopped by the person"
            stopped.append(ts)
    return {
        "type": "agent_session_stopped",
        "channel": channel.id,
        "thread_ts": thread,
        "user": who.id,
        "streaming_message_ts": stopped,
        "event_ts": world.ts(),
    }


def set_thread_status(world: World, grant: Grant, given: Json) -> Json:
    world.needs(grant, "chat:write", "assistant:write")
    team, channel = _channel(world, grant, given)
    thread = _root(channel, given, "invalid_arguments", "invalid_thread_ts")
    status, loading = given.get("status"), given.get("loading_messages") or []
    if not isinstance(status, str) or not isinstance(loading, list) or len(loading) > 10:
        raise Refused("invalid_arguments")
    world.statuses[team.id, channel.id, thread] = (status, time.monotonic())
    world.tell("status", {"channel": channel.id, "thread": thread, "status": status})
    return {}


def set_thread_title(world: World, grant: Grant, given: Json) -> Json:
    world.needs(grant, "assistant:write")
    team, channel = _channel(world, grant, given)
    thread = _root(channel, given, "invalid_arguments", "invalid_thread_ts")
    if not isinstance(given.get("title"), str):
        raise Refused("invalid_arguments")
    world.titles[team.id, channel.id, thread] = given["title"]
    return {}


def set_suggested_prompts(world: World, grant: Grant, given: Json) -> Json:
    world.needs(grant, "assistant:write")
    team, channel = _channel(world, grant, given)
    prompts = given.get("prompts")
    if given.get("thread_ts"):
        _root(channel, given, "missing_thread_ts", "invalid_thread_ts")
    if not isinstance(prompts, list) or not 1 <= len(prompts) <= MAX_PROMPTS:
        raise Refused("invalid_arguments")
    if not all(isinstance(p, dict) and p.get("title") and p.get("message") for p in prompts):
        raise Refused("invalid_arguments")
    if given.get("thread_ts") and world.app.agent:
        return {}  # of an agent that is not shown, and not said to be wrong
    world.prompts[team.id, channel.id, given.get("thread_ts")] = prompts
    world.tell("prompts", {"channel": channel.id, "prompts": prompts})
    return {}


def publish_view(world: World, grant: Grant, given: Json) -> Json:
    team = world.caller_team(grant, given)
    view, user = given.get("view"), str(given.get("user_id"))
    if not isinstance(team.people.get(user), Person):
        raise Refused("user_not_found")
    if not isinstance(view, dict) or view.get("type") != "home":
        raise Refused("invalid_arguments")
    if len(str(view)) > MAX_VIEW:
        raise Refused("view_too_large")
    if not world.app.home:
        raise Refused("not_enabled")
    checked_view(view.get("blocks"))
    old = world.homes.get((team.id, user))
    if given.get("hash") and (old is None or given["hash"] != old["hash"]):
        raise Refused("hash_conflict")
    about: dict[str, Any] = {
        "id": old["id"] if old else world.name("V"),
        "team_id": team.id,
        "private_metadata": "",
        "callback_id": "",
        "state": {"values": {}},
        "hash": f"{int(world.clock())}.{world.name('h', 8)}",
        "app_id": world.app.id,
        "bot_id": team.bot.bot_id if team.bot else "",
    }
    world.homes[team.id, user] = view | about
    world.tell("home", {"team": team.id, "user": user})
    return {"view": world.homes[team.id, user]}


def status_of(world: World, channel: Channel, thread: str) -> str:
    """What is shown now: for two minutes at most, until the bot says something there."""
    status, at = world.statuses.get((channel.team, channel.id, thread), ("", 0.0))
    spoken = any(sent.thread == thread and sent.at >= at for sent in channel.sent.values())
    return "" if spoken or time.monotonic() - at > STATUS_SECONDS else status


def _channel(world: World, grant: Grant, given: Json) -> tuple[Team, Channel]:
    channel = world.channel(grant, given, "channel_id")
    if grant.user not in channel.members:
        raise Refused("not_authorized")
    return world.teams[channel.team], channel


def _root(channel: Channel, given: Json, missing: str, unknown: str) -> str:
    thread = given.get("thread_ts")
    if not thread:
        raise Refused(missing)
    if thread not in channel.messages:
        raise Refused(unknown)
    return str(thread)


def _set(
    world: World,
    team: Team,
    channel: Channel,
    thread: str,
    status: str,
    title: object = None,
    *,
    rename: bool = False,
) -> None:
    assert team.bot is not None
    old = channel.messages[thread]
    before = old.get("agent_session") or {"title": title or "", "status": ""}
    expires = int(world.clock()) + PROCESSING_SECONDS
    one: Json = {
        "agent_bot_user_id": team.bot.id,
        "status": status,
        "date_status_processing_expire": expires,
        "is_stoppable": world.subscribed(("agent_session_stopped",)),
    }
    session: Json = {
        "status": status,
        "agent_bot_user_ids": [team.bot.id],
        "title": title if rename else before["title"],
        "date_status_processing_expire": expires,
        "agent_statuses": [one],
    }
    if (session["status"], session["title"]) == (before["status"], before["title"]):
        return
    message = old | {"agent_session": session}
    channel.messages[thread] = message
    about = {"channel": channel.id, "thread": thread, "status": status}
    world.tell("session", about | {"title": session["title"]})
    changed(world, team, channel, message, old)
