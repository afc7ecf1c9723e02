"""Slash commands, presses of buttons, shortcuts: what the app is told of them, and `response_url`.

The shapes are those of captured payloads. A response_url takes five messages within 30 minutes
(docs.slack.dev, "Handling user interaction"); that it answers used_url and expired_url with 404 is
an assumption. What a command or a press is acknowledged with is said like what comes to its
response_url: to one person, unless it says `in_channel`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from playground.slack_blocks import checked
from playground.slack_chats import Channel, Json, Person, Refused, SentMessage, Team, Whisper
from playground.slack_deliveries import Delivery
from playground.slack_messages import rewrite, whisper, write
from playground.slack_text import MAX_TEXT
from playground.slack_world import World

RESPONSES = 5
RESPONSE_SECONDS = 30 * 60


@dataclass(eq=False, slots=True)
class Hook:
    """A response_url: who asked, where, and under which message."""

    team: str
    channel: str
    user: str
    at: float  # by the world's clock
    ts: str | None = None
    uses: int = 0
    said: list[Json] = field(default_factory=list)


def command(world: World, team: Team, channel: Channel, who: Person, line: str) -> Delivery:
    """A person types `/name and more`. Raises `ValueError` when there is no such command."""
    name, _, text = line.strip().partition(" ")
    known = world.app.commands
    if not name.startswith("/") or (known is not None and name not in known):
        raise ValueError(f"{name} is no command of {world.app.name}")
    hook = Hook(team.id, channel.id, who.id, world.clock())
    payload: Json = {
        "token": world.app.verification_token,
        "team_id": team.id,
        "team_domain": team.domain,
        "channel_id": channel.id,
        "channel_name": _spoken(channel),
        "user_id": who.id,
        "user_name": who.name.lower(),
        "command": name,
        "text": text.strip(),
        "api_app_id": world.app.id,
        "is_enterprise_install": "true" if world.org_wide(team) else "false",
        "response_url": _hooked(world, "commands", hook),
        "trigger_id": _trigger(world),
    }
    if team.enterprise:
        payload |= {"enterprise_id": team.enterprise, "enterprise_name": "Grid"}
    delivery = Delivery(world.name("Cm"), "slash_commands", name, payload)
    delivery.then = lambda answer: respond(world, hook, answer, counted=False)
    return world.deliveries.add(delivery)


def press(
    world: World,
    team: Team,
    channel: Channel,
    who: Person,
    under: SentMessage | Whisper,
    action: Json,
) -> Delivery:
    """A person presses a button under a message, or under one that only they see."""
    quiet = isinstance(under, Whisper)
    hook = Hook(team.id, channel.id, who.id, world.clock(), under.ts)
    container: Json = {
        "type": "message",
        "message_ts": under.ts,
        "channel_id": channel.id,
        "is_ephemeral": quiet,
    }
    if under.thread is not None:
        container["thread_ts"] = under.thread
    payload = _interaction(world, team, who, "block_actions") | {
        "container": container,
        "trigger_id": _trigger(world),
        "channel": {"id": channel.id, "name": _spoken(channel)},
        "state": {"values": {}},
        "response_url": _hooked(world, "actions", hook),
        "actions": [action | {"action_ts": world.ts()}],
    }
    if not quiet:
        payload["message"] = under.raw
    return _interact(world, payload, hook)


def press_home(world: World, team: Team, who: Person, action: Json) -> Delivery:
    """A person presses a button in the app's home."""
    view = world.homes[team.id, who.id]
    payload = _interaction(world, team, who, "block_actions") | {
        "container": {"type": "view", "view_id": view["id"]},
        "trigger_id": _trigger(world),
        "view": view
        | {"root_view_id": view["id"], "external_id": "", "app_installed_team_id": team.id},
        "actions": [action | {"action_ts": world.ts()}],
    }
    return _interact(world, payload, None)


def shortcut(
    world: World,
    team: Team,
    who: Person,
    callback_id: str,
    channel: Channel | None = None,
    ts: str | None = None,
) -> Delivery:
    """A person chooses a shortcut: of a message, or of the app."""
    kind = "shortcut" if ts is None else "message_action"
    payload = _interaction(world, team, who, kind) | {
        "action_ts": world.ts(),
        "callback_id": callback_id,
        "trigger_id": _trigger(world),
    }
    hook = None
    if channel is not None and ts is not None:
        hook = Hook(team.id, channel.id, who.id, world.clock(), ts)
        payload |= {
            "channel": {"id": channel.id, "name": _spoken(channel)},
            "response_url": _hooked(world, "app", hook),
            "message_ts": ts,
            "message": channel.messages[ts],
        }
    return _interact(world, payload, hook)


def elements(blocks: object) -> Iterator[tuple[str, Json]]:
    """What can be pressed in blocks: its label, and the action that a press makes."""
    for block in blocks if isinstance(blocks, list) else ():
        inner = [*(block.get("elements") or ()), block.get("accessory")]
        for element in inner:
            if not isinstance(element, dict):
                continue
            about: Json = {"block_id": block.get("block_id", "")}
            if element.get("type") == "button":
                yield str(element["text"]["text"]), element | about
            elif element.get("type") == "feedback_buttons":
                for side in ("positive_button", "negative_button"):
                    button = element.get(side) or {}
                    yield (
                        str(button.get("text", {}).get("text", side)),
                        {
                            "type": "feedback_buttons",
                            "action_id": element.get("action_id", ""),
                            "value": button.get("value"),
                        }
                        | about,
                    )


def respond(world: World, hook: Hook, said: Json | None, *, counted: bool = True) -> None:
    """Says what came as an answer. Raises `Refused`."""
    if counted:
        if world.clock() - hook.at > RESPONSE_SECONDS:
            raise Refused("expired_url", 404)
        if hook.uses >= RESPONSES:
            raise Refused("used_url", 404)
        hook.uses += 1
    if not said:
        return
    hook.said.append(said)
    team = world.teams[hook.team]
    channel = team.channels[hook.channel]
    if said.get("delete_original"):
        _delete_original(world, channel, hook)
        return
    content: Json = {"text": str(said.get("text") or "")}
    if said.get("blocks"):
        content["blocks"] = checked(said["blocks"])
    if not content["text"] and "blocks" not in content:
        raise Refused("no_text", 500)
    if len(content["text"]) > MAX_TEXT:
        raise Refused("msg_too_long", 500)
    if said.get("replace_original"):
        _replace_original(world, team, channel, hook, content)
    elif said.get("response_type") == "in_channel":
        write(world, team, channel, content, said.get("thread_ts"))
    else:
        whisper(world, channel, hook.user, content, said.get("thread_ts"))


def _replace_original(
    world: World, team: Team, channel: Channel, hook: Hook, content: Json
) -> None:
    if hook.ts in channel.sent:
        old = channel.messages[str(hook.ts)]
        rewrite(world, team, channel, old, {"blocks": []} | content, edited=True)
        return
    for number, old_whisper in enumerate(channel.whispers):
        if old_whisper.ts == hook.ts:
            channel.whispers[number] = old_whisper.saying(content)
            world.tell("edited", {"channel": channel.id, "ts": hook.ts, "text": content["text"]})


def _delete_original(world: World, channel: Channel, hook: Hook) -> None:
    if hook.ts in channel.sent:
        channel.delete(str(hook.ts))
    channel.whispers[:] = [w for w in channel.whispers if w.ts != hook.ts]
    world.tell("deleted", {"channel": channel.id, "ts": hook.ts})


def _interaction(world: World, team: Team, who: Person, kind: str) -> Json:
    name = who.name.lower()
    return {
        "type": kind,
        "user": {"id": who.id, "username": name, "name": name, "team_id": who.team},
        "api_app_id": world.app.id,
        "token": world.app.verification_token,
        "team": {"id": team.id, "domain": team.domain},
        "enterprise": {"id": team.enterprise, "name": "Grid"} if team.enterprise else None,
        "is_enterprise_install": world.org_wide(team),
    }


def _interact(world: World, payload: Json, hook: Hook | None) -> Delivery:
    delivery = Delivery(world.name("In"), "interactive", payload["type"], payload)
    if hook is not None:
        delivery.then = lambda answer: respond(world, hook, answer, counted=False)
    return world.deliveries.add(delivery)


def _hooked(world: World, kind: str, hook: Hook) -> str:
    path = f"/{kind}/{hook.team}/{world.dice.randrange(10**12, 10**13)}/{world.name('r', 24)}"
    world.hooks[path] = hook
    return f"{world.url}{path}"


def _trigger(world: World) -> str:
    numbers = [world.dice.randrange(10**12, 10**13) for _ in range(2)]
    return f"{numbers[0]}.{numbers[1]}.{world.dice.getrandbits(128):032x}"


def _spoken(channel: Channel) -> str:
    return {"im": "directmessage", "group": "privategroup"}.get(channel.kind, channel.name)
