"""Everything that the server knows: the app and its settings, workspaces, tokens, messages.

The events of what happens in it are made in slack_events; the methods of the Web API change it.
"""

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from playground.slack_chats import Bot, Channel, Json, Person, Refused, Team
from playground.slack_deliveries import Deliveries, Delivery
from playground.slack_text import rich_text

if TYPE_CHECKING:
    from playground.slack_actions import Hook
    from playground.slack_files import File
    from playground.slack_oauth import Code
    from playground.slack_streams import Stream

# What a token needs for an event to be told (docs.slack.dev, reference of the events).
EVENT_SCOPES = {
    "app_mention": ("app_mentions:read",),
    "assistant_thread_started": ("assistant:write",),
    "member_joined_channel": ("channels:read", "groups:read"),
    "member_left_channel": ("channels:read", "groups:read"),
    "message.channels": ("channels:history",),
    "message.groups": ("groups:history",),
    "message.im": ("im:history",),
    "message.mpim": ("mpim:history",),
}
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(eq=False, slots=True)
class App:
    """The app as its page on api.slack.com has it.

    `scopes` are those that its bot tokens get, None for all there are; `events` those that it
    subscribes to, by the names of a manifest (`message.im`, `app_mention`), None for all.
    `commands` are the slash commands that exist, None for any. `home`: it has a home tab.
    `agent`: it has the agent view, not the older one of assistants.
    """

    id: str
    name: str
    app_token: str
    signing_secret: str
    verification_token: str
    client_id: str
    client_secret: str
    scopes: frozenset[str] | None = None
    events: frozenset[str] | None = None
    commands: frozenset[str] | None = None
    redirect_urls: tuple[str, ...] = ()
    rotation: bool = False
    home: bool = True
    agent: bool = False


@dataclass(eq=False, slots=True)
class Grant:
    """A token. `kind`: bot, user or app. `dead` is the error that it gets once it is no good."""

    token: str
    kind: str
    team: str | None = None
    user: str = ""
    scopes: frozenset[str] | None = None
    enterprise: str | None = None
    dead: str | None = None
    expires: float | None = None  # by the world's clock
    refresh: str | None = None


@dataclass(eq=False, slots=True)
class World:
    """`tell` reports each thing that happens."""

    app: App
    tell: Callable[[str, Json], None]
    clock: Callable[[], float]
    deliveries: Deliveries
    ticket: Callable[[], str]
    teams: dict[str, Team] = field(default_factory=dict)
    grants: dict[str, Grant] = field(default_factory=dict)
    url: str = ""
    # By workspace, channel and time stamp; what follows, by workspace, channel and thread.
    streams: "dict[tuple[str, str, str], Stream]" = field(default_factory=dict)
    statuses: dict[tuple[str, str, str], tuple[str, float]] = field(default_factory=dict)
    titles: dict[tuple[str, str, str], str] = field(default_factory=dict)
    prompts: dict[tuple[str, str, str | None], list[Json]] = field(default_factory=dict)
    files: "dict[str, File]" = field(default_factory=dict)
    uploads: dict[str, str] = field(default_factory=dict)  # ticket -> id of the file
    codes: "dict[str, Code]" = field(default_factory=dict)
    hooks: "dict[str, Hook]" = field(default_factory=dict)  # by the path of the response_url
    homes: dict[tuple[str, str], Json] = field(default_factory=dict)  # by workspace and person
    # Numbers without meaning that are the same in each run.
    dice: random.Random = field(default_factory=lambda: random.Random(20_261_130))
    _last_ts: int = 0

    # Names

    def name(self, prefix: str, length: int = 11) -> str:
        """A new id such as Slack gives: a letter, 0, and capitals and digits."""
        rest = "".join(self.dice.choices(ALPHABET, k=length - len(prefix) - 1))
        return f"{prefix}0{rest}"

    def ts(self) -> str:
        """The next time stamp: the clock's, never the same twice, never going back."""
        now = max(int(self.clock() * 1_000_000), self._last_ts + 1)
        self._last_ts = now
        return f"{now // 1_000_000}.{now % 1_000_000:06d}"

    def message_id(self) -> str:
        digits = f"{self.dice.getrandbits(128):032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    # Finding

    def caller_team(self, grant: Grant, given: Json) -> Team:
        """The workspace that a call is about. A token for a whole organisation has to name it."""
        named = given.get("team_id")
        team = self.teams.get(str(grant.team or named))
        if team is None:
            raise Refused("missing_argument" if named is None else "team_not_found")
        return team

    def needs(self, grant: Grant, *scopes: str) -> None:
        """Raises `Refused` when the token has none of these."""
        if grant.scopes is not None and not grant.scopes.intersection(scopes):
            raise Refused(
                "missing_scope",
                needed=",".join(scopes),
                provided=",".join(sorted(grant.scopes)),
            )

    def channel(self, grant: Grant, given: Json, name: str = "channel") -> Channel:
        """The conversation that a call is about, by its id."""
        wanted = given.get(name)
        if wanted in (None, ""):
            raise Refused(
                "invalid_arguments",
                response_metadata={"messages": [f"[ERROR] missing required field: {name}"]},
            )
        if grant.team is None and given.get("team_id") is None:
            found = [t.channels[str(wanted)] for t in self.teams.values() if wanted in t.channels]
            if found:
                return found[0]
            raise Refused("channel_not_found")
        team = self.caller_team(grant, given)
        channel = team.channels.get(str(wanted))
        if channel is None:
            raise Refused("channel_not_found")
        if channel.kind != "channel" and grant.user not in channel.members:
            raise Refused("channel_not_found")  # what one is not in, one does not hear of
        return channel

    def direct(self, team: Team, person: Person) -> Channel:
        """The conversation of a person with the bot; made when it is first needed."""
        if person.id in team.directs:
            return team.directs[person.id]
        channel = Channel(self.name("D"), "im", "", team.id, person=person)
        channel.members = [person.id] + ([team.bot.id] if team.bot else [])
        team.channels[channel.id] = team.directs[person.id] = channel
        return channel

    # Messages

    def message(
        self,
        channel: Channel,
        author: Person | Bot,
        text: str,
        *,
        thread: str | None = None,
        **more: object,
    ) -> Json:
        """Appends a message to a channel; returns its JSON, which the channel keeps too."""
        ts = self.ts()
        message: Json = {"user": author.id, "type": "message", "ts": ts}
        if isinstance(author, Bot):
            message |= {"bot_id": author.bot_id, "app_id": author.app_id}
        else:
            message["client_msg_id"] = self.message_id()
        message |= {"text": text, "team": author.team}
        if isinstance(author, Bot):
            message["bot_profile"] = author.profile()
        if thread is not None:
            root = channel.messages.get(thread, {})
            message["thread_ts"] = thread
            if more.get("subtype") != "thread_broadcast":
                message["parent_user_id"] = root.get("user", author.id)
        if text and "blocks" not in more:
            message["blocks"] = rich_text(text, self.name("b", 5))
        message |= {name: value for name, value in more.items() if value is not None}
        channel.add(message)
        if thread is not None and message.get("subtype") == "thread_broadcast":
            message["root"] = channel.counted(channel.messages[thread])
        return message

    # Events

    def event(
        self,
        team: Team,
        event: Json,
        *names: str,
        channel: Channel | None = None,
    ) -> Delivery | None:
        """Tells the app; returns None when it does not subscribe to any of `names`, or its token
        has no scope for them."""
        heard = [name for name in names if self.subscribed((name,)) and self._scoped(team, name)]
        if team.bot is None or not heard:
            return None
        delivery = Delivery(self.name("Ev"), "events_api", str(event["type"]), {})
        delivery.payload = self.envelope(team, event, delivery.id, channel)
        return self.deliveries.add(delivery)

    def _scoped(self, team: Team, name: str) -> bool:
        wanted = EVENT_SCOPES.get(name)
        live = [
            grant.scopes
            for grant in self.grants.values()
            if grant.kind == "bot"
            and grant.dead is None
            and (grant.team == team.id or (grant.team is None and grant.enterprise))
        ]
        if wanted is None or not live:
            return True
        return any(scopes is None or scopes.intersection(wanted) for scopes in live)

    def envelope(self, team: Team, event: Json, event_id: str, channel: Channel | None) -> Json:
        """What stands around an event. `team_id` is the workspace of who did it, which in a shared
        channel may be another than ours; `authorizations` has ours."""
        installed = self.org_wide(team)
        about: Json = {
            "enterprise_id": team.enterprise,
            "team_id": None if installed else team.id,
            "user_id": team.bot.id if team.bot else "",
            "is_bot": True,
            "is_enterprise_install": installed,
        }
        outer: Json = {
            "token": self.app.verification_token,
            "team_id": event.get("user_team", team.id),
            **({"enterprise_id": team.enterprise} if team.enterprise else {}),
            "api_app_id": self.app.id,
            "event": event,
            "type": "event_callback",
            "event_id": event_id,
            "event_time": int(self.clock()),
            "authorizations": [about],
            "is_ext_shared_channel": bool(channel and channel.shared),
        }
        if event["type"] == "message":
            outer |= {"context_team_id": team.id, "context_enterprise_id": team.enterprise}
        if channel is not None:
            outer["event_context"] = f"4-{self.name('x', 24)}"
        return outer

    def org_wide(self, team: Team) -> bool:
        return any(
            g.team is None and g.enterprise == team.enterprise and g.kind == "bot" and not g.dead
            for g in self.grants.values()
            if team.enterprise is not None
        )

    def subscribed(self, names: Collection[str]) -> bool:
        return self.app.events is None or bool(self.app.events.intersection(names))
