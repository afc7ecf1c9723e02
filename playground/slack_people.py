"""What people do on the local Slack: write, change, press, type commands, open pages.

Each returns what the app is told of it, which is nothing when it does not subscribe to such events
or is not a member of the channel.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from playground import slack_actions, slack_files, slack_oauth
from playground.slack_actions import elements
from playground.slack_agents import stop_pressed
from playground.slack_chats import Bot, Channel, Json, Person, SentMessage, Team, Whisper, abroad
from playground.slack_deliveries import Delivery
from playground.slack_events import changed, deleted, posted
from playground.slack_places import Place, Places
from playground.slack_text import rich_text


class People(Places):
    """The part of `Slack` in which they act."""

    _tell: Callable[[str, Json], None]

    def write(
        self,
        who: Person | Bot,
        text: str,
        channel: Place | None = None,
        *,
        thread: str | None = None,
        mention: bool = False,
        broadcast: bool = False,
        subtype: str | None = None,
        **more: Any,
    ) -> list[Delivery]:
        """Somebody writes: to the bot, or into a channel. `mention` puts the bot in front.

        `broadcast` shows a reply in the channel too, `subtype` is me_message and the like, `more`
        are any other fields of the message.
        """
        if channel is None and isinstance(who, Bot):
            raise ValueError("another bot writes into a channel")
        place = self.chat(who if channel is None else channel)  # type: ignore[arg-type]
        team = self._world.teams[place.team]
        if thread is not None and thread not in place.messages:
            raise ValueError(f"no message {thread} in {place.id}")
        if who.id not in place.members:
            place.members.append(who.id)
        if mention and team.bot is not None:
            text = f"<@{team.bot.id}> {text}"
        if broadcast and thread is not None:
            subtype = "thread_broadcast"
        if isinstance(who, Bot) and subtype is None and more.pop("classic", False):
            subtype = "bot_message"
        if who.team != team.id:
            more = abroad(who) | more
        message = self._world.message(place, who, text, thread=thread, subtype=subtype, **more)
        self._tell("written", {"channel": place.id, "ts": message["ts"], "text": text})
        return posted(self._world, team, place, message)

    def share(
        self,
        who: Person,
        name: str,
        data: bytes,
        media_type: str,
        channel: Place | None = None,
        *,
        text: str = "",
        thread: str | None = None,
        mention: bool = False,
        stub: bool = False,
        **more: Any,
    ) -> list[Delivery]:
        """A person shares a file. `stub`: the event says only its id, as in channels that are
        shared with others; `more` are other fields of the file (`subtype="slack_audio"`)."""
        place = self.chat(who if channel is None else channel)
        world, team = self._world, self._world.teams[place.team]
        file = slack_files.make(world, team, who.id, name, media_type, data, more)
        parts = slack_files.message_parts(world, place, [file], stubs=stub)
        return self.write(who, text, place, thread=thread, mention=mention, **parts)

    def edit(self, who: Person, ts: str, text: str, channel: Place | None = None) -> list[Delivery]:
        """A person changes what they wrote."""
        place, old = self._theirs(who, ts, channel)
        message = old | {
            "text": text,
            "blocks": rich_text(text, self._world.name("b", 5)),
            "edited": {"user": who.id, "ts": f"{int(self._world.clock())}.000000"},
        }
        place.messages[ts] = message
        return changed(self._world, self._world.teams[place.team], place, message, old)

    def delete(self, who: Person, ts: str, channel: Place | None = None) -> list[Delivery]:
        """A person takes back what they wrote."""
        place, old = self._theirs(who, ts, channel)
        place.delete(ts)
        return deleted(self._world, self._world.teams[place.team], place, old)

    def system(self, text: str, person: Person) -> list[Delivery]:
        """Slack itself writes into the conversation of a person with the bot (USLACK)."""
        place, team = self.chat(person), self._world.teams[person.team]
        message: Json = {"type": "message", "user": "USLACK", "text": text, "ts": self._world.ts()}
        place.messages[message["ts"]] = message
        return posted(self._world, team, place, message)

    def command(self, who: Person, line: str, channel: Place | None = None) -> Delivery:
        """A person types `/name and more`: to the bot, or in a channel. Never in a thread, where
        Slack has no commands; and the app need not be a member of the channel."""
        place = self.chat(who if channel is None else channel)
        team = self._world.teams[place.team]
        self._tell("commanded", {"channel": place.id, "line": line})
        return slack_actions.command(self._world, team, place, who, line)

    def press(
        self,
        who: Person,
        under: SentMessage | Whisper,
        action_id: str,
        value: str | None = None,
    ) -> Delivery:
        """A person presses the button with this `action_id` under a message of the bot; with a
        client that is not up to date, also a button that is not there any more. See `choose`."""
        actions = [action for _, action in elements(under.raw.get("blocks"))]
        found = [a for a in actions if a.get("action_id") == action_id]
        found = [a for a in found if value is None or a.get("value") == value]
        made: Json = {"type": "button", "action_id": action_id, "block_id": "", "value": value}
        return self._pressed(who, under, found[0] if found else made)

    def choose(self, who: Person, label: str, channel: Place | None = None) -> Delivery:
        """A person presses the button that says this: of the newest message that has one."""
        place = self.chat(who if channel is None else channel)
        theirs = [whisper for whisper in place.whispers if whisper.user == who.id]
        shown: list[SentMessage | Whisper] = [s for s in place.sent.values() if not s.deleted]
        for under in sorted([*shown, *theirs], key=lambda each: each.ts, reverse=True):
            for text, action in elements(under.raw.get("blocks")):
                if text == label:
                    return self._pressed(who, under, action)
        raise ValueError(f"no button {label!r} in {place.id}")

    def choose_at_home(self, who: Person, label: str) -> Delivery:
        """A person presses the button that says this, on the home tab of the app."""
        home = self._world.homes.get((who.team, who.id), {})
        for text, action in elements(home.get("blocks")):
            if text == label:
                team = self._world.teams[who.team]
                return slack_actions.press_home(self._world, team, who, action)
        raise ValueError(f"no button {label!r} on the home of {who.name}")

    def shortcut(
        self, who: Person, callback_id: str, ts: str | None = None, channel: Place | None = None
    ) -> Delivery:
        """A person chooses a shortcut: of the message `ts`, or of the app."""
        place = self.chat(who if channel is None else channel)
        team = self._world.teams[place.team]
        return slack_actions.shortcut(self._world, team, who, callback_id, place, ts)

    def press_stop(self, who: Person, thread: str, channel: Place | None = None) -> list[Delivery]:
        """A person presses the Stop button of a thread whose session is processing."""
        place = self.chat(who if channel is None else channel)
        team = self._world.teams[place.team]
        event = stop_pressed(self._world, team, place, thread, who)
        self._tell("stopped", {"channel": place.id, "thread": thread})
        return _some(self._world.event(team, event, "agent_session_stopped", channel=place))

    def open_home(self, who: Person, tab: str = "home") -> list[Delivery]:
        """A person opens the page of the app: its home, or the messages tab (`messages`)."""
        event: Json = {
            "type": "app_home_opened",
            "user": who.id,
            "channel": self.chat(who).id,
            "tab": tab,
            "event_ts": self._world.ts(),
        }
        if tab == "messages":
            event["context"] = {"entities": []}
        home = self._world.homes.get((who.team, who.id))
        if tab == "home" and home is not None:
            event["view"] = home
        team = self._world.teams[who.team]
        return _some(self._world.event(team, event, "app_home_opened"))

    def open_assistant(self, who: Person, beside: Channel | None = None) -> list[Delivery]:
        """A person starts a thread in the older assistant view, with a channel open beside it."""
        place, team = self.chat(who), self._world.teams[who.team]
        assert team.bot is not None
        title = {"title": "New Assistant Thread", "title_blocks": [], "artifacts": []}
        root = self._world.message(
            place,
            team.bot,
            "New Assistant Thread",
            blocks=None,
            subtype="assistant_app_thread",
            assistant_app_thread=title,
        )
        context: Json = {} if beside is None else {"channel_id": beside.id, "team_id": team.id}
        about: Json = {
            "user_id": who.id,
            "context": context | {"enterprise_id": team.enterprise},
            "channel_id": place.id,
            "thread_ts": root["ts"],
        }
        event = {
            "type": "assistant_thread_started",
            "assistant_thread": about,
            "event_ts": self._world.ts(),
        }
        told = posted(self._world, team, place, root)
        return told + _some(self._world.event(team, event, "assistant_thread_started"))

    def authorize(
        self, who: Person, url: str, team: Team | None = None, *, org: bool = False
    ) -> str:
        """A person has followed a link to /oauth/v2/authorize and agrees: for a workspace, their
        own unless another is named, or for the whole organisation of it. Returns the address that
        their browser is sent to. Raises `Refused` where Slack shows an error instead."""
        asked = dict(parse_qsl(urlsplit(url).query))
        team = team or self._world.teams[who.team]
        return slack_oauth.agreed(self._world, asked, team, who.id, org=org)

    def uninstall(self, team: Team) -> None:
        """Somebody takes the app out of a workspace."""
        slack_oauth.uninstalled(self._world, team)

    def revoke_tokens(self, team: Team, *users: Person) -> None:
        """Slack takes tokens back: of the bot, or of these people."""
        ids = {user.id for user in users}
        every = [g for g in self._world.grants.values() if g.team == team.id and g.dead is None]
        taken = [g for g in every if (g.user in ids if ids else g.kind == "bot")]
        slack_oauth.revoked(self._world, taken)

    def invite(self, channel: Channel) -> list[Delivery]:
        """Somebody brings the bot into a channel."""
        return self._membership(channel, "member_joined_channel")

    def kick(self, channel: Channel) -> list[Delivery]:
        """Somebody takes the bot out of a channel."""
        return self._membership(channel, "member_left_channel")

    def _pressed(self, who: Person, under: SentMessage | Whisper, action: Json) -> Delivery:
        team = self._world.teams[under.team]
        place = team.channels[under.channel]
        self._tell("pressed", {"channel": place.id, "ts": under.ts})
        return slack_actions.press(self._world, team, place, who, under, action)

    def _theirs(self, who: Person, ts: str, channel: Place | None) -> tuple[Channel, Json]:
        place = self.chat(who if channel is None else channel)
        message = place.messages[ts]
        if message.get("user") != who.id:
            raise ValueError(f"message {ts} is not from {who.name}")
        return place, message

    def _membership(self, channel: Channel, kind: str) -> list[Delivery]:
        team = self._world.teams[channel.team]
        assert team.bot is not None
        joined = kind == "member_joined_channel"
        if joined == (team.bot.id in channel.members):
            raise ValueError(f"the bot is {'already' if joined else 'not'} in {channel.id}")
        (channel.members.append if joined else channel.members.remove)(team.bot.id)
        event: Json = {
            "type": kind,
            "user": team.bot.id,
            "channel": channel.id,
            "channel_type": "G" if channel.kind == "group" else "C",
            "team": team.id,
            "event_ts": self._world.ts(),
        }
        if joined and len(channel.members) > 1:
            event["inviter"] = channel.members[0]
        return _some(self._world.event(team, event, kind, channel=channel))


def _some(delivery: Delivery | None) -> list[Delivery]:
    return [] if delivery is None else [delivery]
