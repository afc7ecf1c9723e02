"""Who and where: workspaces, people, channels, and the messages in them, in Slack's JSON.

A channel keeps messages and knows what may be sent to it; it makes no events and answers no
requests. The same channel id may exist in several workspaces, as on Slack.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from playground.slack_text import shown

Json = dict[str, Any]

FAMILIES = {"channel": "channels", "group": "groups", "im": "im", "mpim": "mpim"}


class Refused(Exception):
    """The Web API's answer is an error: its code, what else stands beside it, and the HTTP status,
    which is 200 for nearly all of them."""

    def __init__(self, error: str, status: int = 200, **more: Any) -> None:
        super().__init__(error)
        self.error = error
        self.status = status
        self.more = more


@dataclass(frozen=True, slots=True)
class Person:
    """A user. `team` is the id of the workspace they belong to."""

    id: str
    name: str
    team: str
    guest: bool = False
    admin: bool = False

    def json(self) -> Json:
        return {
            "id": self.id,
            "team_id": self.team,
            "name": self.name.lower().replace(" ", "."),
            "deleted": False,
            "real_name": self.name,
            "tz": "Europe/Berlin",
            "profile": {
                "real_name": self.name,
                "display_name": self.name,
                "team": self.team,
            },
            "is_admin": self.admin,
            "is_owner": False,
            "is_restricted": self.guest,
            "is_ultra_restricted": False,
            "is_bot": False,
            "is_app_user": False,
            "updated": 1_766_400_000,
        }


@dataclass(frozen=True, slots=True)
class Bot:
    """The user of an app, ours or another's. `id` is that of the user, `bot_id` that of the bot."""

    id: str
    bot_id: str
    name: str
    team: str
    app_id: str

    def json(self) -> Json:
        return {
            "id": self.id,
            "team_id": self.team,
            "name": self.name.lower().replace(" ", ""),
            "deleted": False,
            "real_name": self.name,
            "profile": {
                "real_name": self.name,
                "display_name": "",
                "bot_id": self.bot_id,
                "api_app_id": self.app_id,
                "team": self.team,
            },
            "is_admin": False,
            "is_restricted": False,
            "is_ultra_restricted": False,
            "is_bot": True,
            "is_app_user": False,
            "updated": 1_766_400_000,
        }

    def profile(self) -> Json:
        """What stands in messages and in the answer of bots.info."""
        size = "https://a.slack-edge.com/80588/img/plugins/app/bot_{}.png"
        return {
            "id": self.bot_id,
            "app_id": self.app_id,
            "user_id": self.id,
            "name": self.name,
            "icons": {f"image_{n}": size.format(n) for n in (36, 48, 72)},
            "deleted": False,
            "updated": 1_766_422_444,
            "team_id": self.team,
        }


def abroad(who: Person | Bot) -> Json:
    """What stands in a message of somebody from another workspace."""
    profile: Json = {
        "avatar_hash": "g0",
        "image_72": "https://secure.gravatar.com/avatar/0",
        "first_name": who.name.partition(" ")[0],
        "real_name": who.name,
        "display_name": who.name.lower(),
        "team": who.team,
        "name": who.name.lower(),
        "is_restricted": isinstance(who, Person) and who.guest,
        "is_ultra_restricted": False,
    }
    return {"user_team": who.team, "source_team": who.team, "user_profile": profile}


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message of the bot as it stands now. `text` is what a person reads, of blocks too; `raw` is
    Slack's JSON of it. `edits` are the earlier texts, oldest first."""

    team: str
    channel: str
    ts: str
    text: str
    raw: Json
    at: float  # time.monotonic()
    edits: tuple[str, ...] = ()
    deleted: bool = False

    @property
    def thread(self) -> str | None:
        thread: str | None = self.raw.get("thread_ts")
        return thread

    @property
    def blocks(self) -> list[Json]:
        return list(self.raw.get("blocks") or ())

    @property
    def metadata(self) -> Json | None:
        metadata: Json | None = self.raw.get("metadata")
        return metadata


@dataclass(frozen=True, slots=True)
class Whisper:
    """A message that only one person sees, and that nobody can find again."""

    team: str
    channel: str
    user: str
    ts: str
    text: str
    raw: Json
    thread: str | None = None

    def saying(self, content: Json) -> "Whisper":
        """The same, replaced by something else."""
        return replace(self, text=shown(content), raw=content)


@dataclass(eq=False, slots=True)
class Channel:
    """One conversation. `kind`: channel, group (a private channel), im or mpim.

    `members` are ids of users, the bot's among them when it is in there. `shared` are the ids of
    other workspaces that share it (Slack Connect).
    """

    id: str
    kind: str
    name: str
    team: str
    person: Person | None = None
    members: list[str] = field(default_factory=list)
    shared: tuple[str, ...] = ()
    archived: bool = False
    messages: dict[str, Json] = field(default_factory=dict, repr=False)
    replies: dict[str, list[str]] = field(default_factory=dict, repr=False)  # by their root
    sent: dict[str, SentMessage] = field(default_factory=dict, repr=False)
    whispers: list[Whisper] = field(default_factory=list, repr=False)

    @property
    def family(self) -> str:
        """The first word of the scopes that read it: channels, groups, im, mpim."""
        return FAMILIES[self.kind]

    def json(self, bot: str) -> Json:
        """As conversations.info has it for the user `bot`."""
        about: Json = {
            "id": self.id,
            "created": 1_766_400_000,
            "is_archived": self.archived,
            "is_im": self.kind == "im",
            "is_mpim": self.kind == "mpim",
            "is_org_shared": False,
            "context_team_id": self.team,
        }
        if self.person is not None:
            return about | {"user": self.person.id, "is_user_deleted": False}
        return about | {
            "name": self.name,
            "name_normalized": self.name,
            "is_channel": self.kind == "channel",
            "is_group": self.kind == "group",
            "is_private": self.kind != "channel",
            "is_general": False,
            "is_member": bot in self.members,
            "is_shared": bool(self.shared),
            "is_ext_shared": bool(self.shared),
            "shared_team_ids": [self.team, *self.shared],
            "creator": self.members[0] if self.members else "",
            "topic": {"value": "", "creator": "", "last_set": 0},
            "purpose": {"value": "", "creator": "", "last_set": 0},
            "num_members": len(self.members),
        }

    def add(self, message: Json) -> None:
        """Keeps a message, and counts it in its thread."""
        self.messages[message["ts"]] = message
        root = str(message.get("thread_ts", message["ts"]))
        if root != message["ts"]:
            self.replies.setdefault(root, []).append(message["ts"])

    def thread_of(self, ts: object) -> list[Json]:
        """The message `ts` and its replies, oldest first; those of the whole thread when it is a
        reply itself. Empty when there is no such message."""
        message = self.messages.get(ts) if isinstance(ts, str) else None
        if message is None:
            return []
        root = message.get("thread_ts", ts)
        every = [root, *self.replies.get(root, ())]
        return [self.messages[each] for each in every if each in self.messages]

    def counted(self, message: Json) -> Json:
        """A message as those see it who read: a root says how many replies it has."""
        replies = [self.messages[ts] for ts in self.replies.get(message["ts"], ())]
        if not replies:
            return message
        people = list(dict.fromkeys(reply.get("user", "") for reply in replies))
        return message | {
            "thread_ts": message["ts"],
            "reply_count": len(replies),
            "reply_users_count": len(people),
            "latest_reply": replies[-1]["ts"],
            "reply_users": people,
            "is_locked": False,
        }

    def record(self, message: Json, at: float) -> SentMessage:
        """Notes a message that the bot sent."""
        sent = SentMessage(self.team, self.id, message["ts"], shown(message), message, at)
        self.sent[sent.ts] = sent
        return sent

    def record_edit(self, message: Json) -> SentMessage:
        old = self.sent[message["ts"]]
        new = replace(old, text=shown(message), raw=message, edits=(*old.edits, old.text))
        self.sent[new.ts] = new
        return new

    def record_growth(self, message: Json) -> SentMessage:
        """A stream has more to show: no edit, it is still being said."""
        new = replace(self.sent[message["ts"]], text=shown(message), raw=message)
        self.sent[new.ts] = new
        return new

    def delete(self, ts: str) -> Json:
        """Takes a message away; returns it. A root with replies stays as a tombstone."""
        message = self.messages[ts]
        if ts in self.sent:
            self.sent[ts] = replace(self.sent[ts], deleted=True)
        if self.replies.get(ts):
            self.messages[ts] = {
                "type": "message",
                "subtype": "tombstone",
                "text": "This message was deleted.",
                "user": "USLACKBOT",
                "hidden": True,
                "ts": ts,
                "thread_ts": ts,
            }
        else:
            del self.messages[ts]
            if message.get("thread_ts", ts) != ts:
                self.replies[message["thread_ts"]].remove(ts)
        return message


@dataclass(eq=False, slots=True)
class Team:
    """A workspace. `bot` is our app's user in it, None while it is not installed."""

    id: str
    name: str
    enterprise: str | None = None
    bot: Bot | None = None
    people: dict[str, Person | Bot] = field(default_factory=dict, repr=False)
    # The same id may stand for another channel in another workspace.
    channels: dict[str, Channel] = field(default_factory=dict, repr=False)
    directs: dict[str, Channel] = field(default_factory=dict, repr=False)  # by person

    @property
    def domain(self) -> str:
        """The first part of its address."""
        return self.name.lower().replace(" ", "-")
