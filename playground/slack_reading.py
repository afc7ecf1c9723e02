"""conversations.*, users.*, bots.*, auth.*: what the bot asks about.

`history` is newest first and without replies, `replies` is oldest first and begins with the root on
every page; metadata comes only with `include_all_metadata`, as on Slack.
"""

from typing import Any

from playground.slack_chats import Bot, Channel, Json, Person, Refused
from playground.slack_world import Grant, World


def auth_test(world: World, grant: Grant, given: Json) -> Json:
    if grant.kind == "app":
        return {"app_id": world.app.id, "app_name": world.app.name}
    if grant.team is None:
        return _of_organisation(world, grant)
    team = world.caller_team(grant, given)
    user = team.people.get(grant.user)
    answer: Json = {
        "url": f"https://{team.domain}.slack.com/",
        "team": team.name,
        "user": user.name if user else "",
        "team_id": team.id,
        "user_id": grant.user,
        "is_enterprise_install": False,
    }
    if team.enterprise is not None:
        answer["enterprise_id"] = team.enterprise
    if isinstance(user, Bot):
        answer["bot_id"] = user.bot_id
    return answer


def _of_organisation(world: World, grant: Grant) -> Json:
    bots = [team.bot for team in world.teams.values() if team.bot and team.bot.id == grant.user]
    return {
        "url": "https://grid.enterprise.slack.com/",
        "team": "Grid",
        "user": world.app.name.lower(),
        "team_id": grant.enterprise,
        "user_id": grant.user,
        "enterprise_id": grant.enterprise,
        "is_enterprise_install": True,
    } | ({"bot_id": bots[0].bot_id} if bots else {})


def info(world: World, grant: Grant, given: Json) -> Json:
    channel = world.channel(grant, given)
    world.needs(grant, f"{channel.family}:read")
    return {"channel": channel.json(grant.user)}


def members(world: World, grant: Grant, given: Json) -> Json:
    channel = world.channel(grant, given)
    world.needs(grant, f"{channel.family}:read")
    page, more = _page(channel.members, given, 100)
    return {"members": page, "response_metadata": {"next_cursor": more}}


def list_channels(world: World, grant: Grant, given: Json) -> Json:
    team = world.caller_team(grant, given)
    kinds = {"public_channel": "channel", "private_channel": "group"}
    asked = str(given.get("types") or "public_channel").split(",")
    wanted = {kinds.get(kind.strip(), kind.strip()) for kind in asked}
    for kind in wanted:
        world.needs(grant, f"{ {'channel': 'channels', 'group': 'groups'}.get(kind, kind) }:read")
    all_of_them = [
        channel.json(grant.user)
        for channel in team.channels.values()
        if channel.kind in wanted and (channel.kind == "channel" or grant.user in channel.members)
    ]
    page, more = _page(all_of_them, given, 100)
    return {"channels": page, "response_metadata": {"next_cursor": more}}


def open_direct(world: World, grant: Grant, given: Json) -> Json:
    world.needs(grant, "im:write", "mpim:write")
    team = world.caller_team(grant, given)
    person = team.people.get(str(given.get("users")))
    if not isinstance(person, Person):
        raise Refused("user_not_found")
    return {"channel": {"id": world.direct(team, person).id}}


def join(world: World, grant: Grant, given: Json) -> Json:
    world.needs(grant, "channels:join")
    channel = world.channel(grant, given)
    if channel.kind != "channel":
        raise Refused("method_not_supported_for_channel_type")
    if grant.user not in channel.members:
        channel.members.append(grant.user)
    return {"channel": channel.json(grant.user)}


def leave(world: World, grant: Grant, given: Json) -> Json:
    channel = world.channel(grant, given)
    world.needs(grant, f"{channel.family}:write", "channels:manage")
    if grant.user not in channel.members:
        return {"not_in_channel": True}
    channel.members.remove(grant.user)
    return {}


def history(world: World, grant: Grant, given: Json) -> Json:
    channel = _readable(world, grant, given)
    lines = [
        message
        for message in reversed(channel.messages.values())
        if message.get("thread_ts", message["ts"]) == message["ts"]
        or message.get("subtype") == "thread_broadcast"
    ]
    page, more = _page([m for m in lines if _within(m, given)], given, 100, most=999)
    return {
        "messages": [_read(channel, message, given) for message in page],
        "has_more": bool(more),
        "pin_count": 0,
        "channel_actions_ts": None,
        "channel_actions_count": 0,
        "response_metadata": {"next_cursor": more},
    }


def replies(world: World, grant: Grant, given: Json) -> Json:
    channel = _readable(world, grant, given)
    if given.get("ts") in (None, ""):
        raise Refused("invalid_arguments")
    found = channel.thread_of(given["ts"])
    if not found:
        raise Refused("thread_not_found")
    root, rest = found[0], found[1:]
    page, more = _page([m for m in rest if _within(m, given)], given, 1000, most=1000)
    return {
        "messages": [_read(channel, message, given) for message in (root, *page)],
        "has_more": bool(more),
        "response_metadata": {"next_cursor": more},
    }


def users_info(world: World, grant: Grant, given: Json) -> Json:
    world.needs(grant, "users:read")
    return {"user": _user(world, grant, given).json()}


def users_list(world: World, grant: Grant, given: Json) -> Json:
    world.needs(grant, "users:read")
    team = world.caller_team(grant, given)
    page, more = _page([user.json() for user in team.people.values()], given, 1000)
    return {"members": page, "response_metadata": {"next_cursor": more}}


def bots_info(world: World, grant: Grant, given: Json) -> Json:
    world.needs(grant, "users:read")
    team = world.caller_team(grant, given)
    for bot in team.people.values():
        if isinstance(bot, Bot) and bot.bot_id == given.get("bot"):
            return {"bot": bot.profile()}
    raise Refused("bot_not_found")


def team_info(world: World, grant: Grant, given: Json) -> Json:
    world.needs(grant, "team:read")
    team = world.caller_team(grant, given)
    return {
        "team": {
            "id": team.id,
            "name": team.name,
            "domain": team.domain,
            "enterprise_id": team.enterprise or "",
        }
    }


def _user(world: World, grant: Grant, given: Json) -> Person | Bot:
    if given.get("user") in (None, ""):
        raise Refused("user_not_found")
    team = world.caller_team(grant, given)
    wanted = str(given["user"])
    found = team.people.get(wanted)
    if found is not None:
        return found
    for channel in team.channels.values():  # somebody of another workspace in a shared channel
        if channel.shared and wanted in channel.members:
            for other in channel.shared:
                stranger = world.teams[other].people.get(wanted)
                if stranger is not None:
                    return stranger
    raise Refused("user_not_found")


def _readable(world: World, grant: Grant, given: Json) -> Channel:
    channel = world.channel(grant, given)
    world.needs(grant, f"{channel.family}:history")
    if grant.user not in channel.members:
        raise Refused("not_in_channel")
    return channel


def _within(message: Json, given: Json) -> bool:
    at = message["ts"]
    inclusive = bool(given.get("inclusive"))
    oldest, latest = given.get("oldest"), given.get("latest")
    if oldest and (_moment(at) < _moment(oldest) or (at == oldest and not inclusive)):
        return False
    return not (latest and (_moment(at) > _moment(latest) or (at == latest and not inclusive)))


def _moment(ts: object) -> tuple[int, int]:
    """Compared as numbers, exactly: a float has too few digits."""
    whole, _, part = str(ts).partition(".")
    try:
        return int(whole or 0), int(part.ljust(6, "0") or 0)
    except ValueError:
        raise Refused("invalid_ts_oldest") from None


def _read(channel: Channel, message: Json, given: Json) -> Json:
    shown = dict(message)
    if not given.get("include_all_metadata"):
        shown.pop("metadata", None)
    return channel.counted(shown)


def _page(items: list[Any], given: Json, usual: int, most: int = 1000) -> tuple[list[Any], str]:
    """One page, and the cursor of the next, empty at the end."""
    limit = given.get("limit")
    limit = usual if limit in (None, "", 0) else limit
    if not isinstance(limit, int) or not 1 <= limit <= most:
        raise Refused("invalid_limit")
    cursor = str(given.get("cursor") or "")
    start = 0
    if cursor:
        head, _, number = cursor.partition(":")
        if head != "next" or not number.isdigit():
            raise Refused("invalid_cursor")
        start = int(number)
    end = start + limit
    return items[start:end], f"next:{end}" if end < len(items) else ""
