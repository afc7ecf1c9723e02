"""Slack on loopback: workspaces with people in them, for an unmodified slack-bolt and slack_sdk.

    async with Slack() as slack:
        client = AsyncWebClient(slack.token, base_url=f"{slack.url}/api/")
        app = AsyncApp(token=slack.token, client=client)
        await AsyncSocketModeHandler(app, slack.app_token).connect_async()
        alice, general = slack.person("Alice"), slack.channel("general")
        slack.write(alice, "hello")                          # to the bot alone
        slack.write(alice, "hello", general, mention=True)   # two events, as on Slack
        await slack.wait_for(1, alice)

People write, the bot hears of it by Socket Mode (or by signed requests: `deliver_to`), and
everything it did is on record. It is not a client of Slack: nobody has to look at the messages.

`python -m playground.slack [--port N] [--token T] [--app-token T]` runs one alone until SIGINT or
SIGTERM.
"""

import argparse
import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self

from playground.serve import serving
from playground.slack_agents import status_of, stop_pressed
from playground.slack_chats import (
    Bot,
    Channel,
    Json,
    Person,
    Refused,
    SentMessage,
    Team,
    Whisper,
    abroad,
)
from playground.slack_deliveries import ACK_SECONDS, RETRY_SECONDS, Deliveries, Delivery
from playground.slack_events import changed, deleted, posted
from playground.slack_faults import (
    Answer,
    Delay,
    DeliverTwice,
    Error,
    Fault,
    Faults,
    GarbageBody,
    Lost,
    Redirect,
    ResetAfter,
    ResetBefore,
    Rule,
)
from playground.slack_server import Call, Server
from playground.slack_socket import Sockets
from playground.slack_streams import Stream
from playground.slack_text import pings, rich_text
from playground.slack_world import App, Grant, World

__all__ = [
    "Answer",
    "App",
    "Bot",
    "Call",
    "Channel",
    "Delay",
    "DeliverTwice",
    "Delivery",
    "Error",
    "Fault",
    "GarbageBody",
    "Lost",
    "Person",
    "Redirect",
    "Refused",
    "ResetAfter",
    "ResetBefore",
    "Rule",
    "SentMessage",
    "Slack",
    "Stream",
    "Team",
    "Whisper",
]

TOKEN = "xoxb-1000000000-2000000000-playground"
APP_TOKEN = "xapp-1-A0PLAYGRND1-3000000000-playground"
SIGNING_SECRET = "0123456789abcdef0123456789abcdef"
Place = Person | Channel


class Slack:
    """The servers, the people, and the record.

    `ack_seconds` and `retry_seconds` are how long Slack waits for an acknowledgement, and before
    each retry. `team`, `bot` and `token` are those of the workspace that is there from the start.
    """

    def __init__(
        self,
        token: str = TOKEN,
        *,
        app_token: str = APP_TOKEN,
        signing_secret: str = SIGNING_SECRET,
        port: int = 0,
        scopes: frozenset[str] | None = None,
        events: frozenset[str] | None = None,
        ack_seconds: float = ACK_SECONDS,
        retry_seconds: Sequence[float] = RETRY_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.url = ""
        self.listeners: list[Callable[[str, Json], None]] = []
        self.application = App(
            id="A0PLAYGRND1",
            name="Playground",
            app_token=app_token,
            signing_secret=signing_secret,
            verification_token="verification-of-the-playground",
            client_id="1000000000.4000000000",
            client_secret="client-secret-of-the-playground",
            scopes=scopes,
            events=events,
        )
        self._faults = Faults()
        self.sockets = Sockets(self.application.id, self._tell, self._faults)
        self._deliveries = Deliveries(
            self._tell, self._faults, ack_seconds=ack_seconds, retry_seconds=retry_seconds
        )
        self._deliveries.carrier = self.sockets
        self._world = World(
            self.application, self._tell, clock, self._deliveries, self.sockets.ticket
        )
        self._world.grants[app_token] = Grant(app_token, "app")
        self.team = self.workspace("Acme", token=token)
        self.token = token
        self._port = port
        self._stack = AsyncExitStack()
        self._changed = asyncio.Event()
        self._server = Server(self._world, self._faults)
        self.calls: list[Call] = self._server.calls
        self.app = self._server.app

    async def __aenter__(self) -> Self:
        self.url = await self._stack.enter_async_context(serving(self.app, port=self._port))
        self._world.url = self.url
        await self.sockets.start()
        self._stack.push_async_callback(self.sockets.stop)
        self._stack.push_async_callback(self._deliveries.close)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    # Who and where

    @property
    def bot(self) -> Bot:
        """The user of our app in the first workspace."""
        assert self.team.bot is not None
        return self.team.bot

    @property
    def app_token(self) -> str:
        return self.application.app_token

    @property
    def signing_secret(self) -> str:
        return self.application.signing_secret

    def workspace(
        self, name: str, *, token: str | None = None, enterprise: str | None = None
    ) -> Team:
        """Another workspace. With a `token` our app is installed there by it, without one it is
        not yet."""
        team = Team(self._world.name("T"), name, enterprise)
        self._world.teams[team.id] = team
        if token is not None:
            self.install(team, token)
        return team

    def install(self, team: Team, token: str) -> Bot:
        """Our app becomes part of a workspace, by hand of its owner: a bot user, and a token."""
        world, app = self._world, self.application
        bot = team.bot or Bot(world.name("U"), world.name("B"), app.name, team.id, app.id)
        team.bot = team.people[bot.id] = bot
        world.grants[token] = Grant(
            token, "bot", team.id, bot.id, app.scopes, enterprise=team.enterprise
        )
        return bot

    def revoke(self, token: str, error: str = "invalid_auth") -> None:
        """The token is no good from now on; `error` is what it gets: invalid_auth, token_revoked,
        account_inactive. The app hears nothing."""
        self._world.grants[token].dead = error

    def person(
        self, name: str, team: Team | None = None, *, guest: bool = False, admin: bool = False
    ) -> Person:
        team = team or self.team
        person = Person(self._world.name("U"), name, team.id, guest, admin)
        team.people[person.id] = person
        return person

    def other_bot(self, name: str, team: Team | None = None) -> Bot:
        """The user of somebody else's app."""
        team, world = team or self.team, self._world
        bot = Bot(world.name("U"), world.name("B"), name, team.id, world.name("A"))
        team.people[bot.id] = bot
        return bot

    def channel(
        self,
        name: str,
        members: Sequence[Person | Bot] = (),
        team: Team | None = None,
        *,
        private: bool = False,
        with_bot: bool = True,
        shared_with: Sequence[Team] = (),
        channel_id: str | None = None,
    ) -> Channel:
        """A channel, with our bot in it unless told otherwise. Who writes there joins it.

        `shared_with`: the workspaces that share it by Slack Connect. `channel_id` gives it the id
        of a channel of another workspace.
        """
        team = team or self.team
        kind = "group" if private else "channel"
        number = channel_id or self._world.name("C")
        channel = Channel(number, kind, name, team.id)
        channel.members = [member.id for member in members]
        channel.shared = tuple(other.id for other in shared_with)
        if with_bot and team.bot is not None:
            channel.members.append(team.bot.id)
        team.channels[channel.id] = channel
        return channel

    def group(self, members: Sequence[Person], team: Team | None = None) -> Channel:
        """A conversation of several people and the bot (mpim)."""
        channel = self.channel("mpdm-" + "--".join(p.name for p in members), members, team)
        channel.kind = "mpim"
        return channel

    def chat(self, place: Place) -> Channel:
        """The channel, or the conversation of a person with the bot."""
        if isinstance(place, Channel):
            return place
        return self._world.direct(self._world.teams[place.team], place)

    # What people do. Each returns what the app is told of it: none when it does not subscribe.

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
            subtype, more = "thread_broadcast", more | {"root": place.messages[thread]}
        if isinstance(who, Bot) and subtype is None and more.pop("classic", False):
            subtype = "bot_message"
        if who.team != team.id:
            more = abroad(who) | more
        message = self._world.message(place, who, text, thread=thread, subtype=subtype, **more)
        self._tell("written", {"channel": place.id, "ts": message["ts"], "text": text})
        return posted(self._world, team, place, message)

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
        home = self.home(who)
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

    def invite(self, channel: Channel) -> list[Delivery]:
        """Somebody brings the bot into a channel."""
        return self._membership(channel, "member_joined_channel")

    def kick(self, channel: Channel) -> list[Delivery]:
        """Somebody takes the bot out of a channel."""
        return self._membership(channel, "member_left_channel")

    # What else may arrive

    def inject(self, event: Json, team: Team | None = None, **around: Any) -> Delivery:
        """Any event, whatever the app subscribes to; `around` changes what stands around it."""
        team = team or self.team
        event_id = self._world.name("Ev")
        payload = self._world.envelope(team, event, event_id, None) | around
        return self._deliveries.add(
            Delivery(event_id, "events_api", str(event.get("type")), payload)
        )

    def redeliver(self, delivery: Delivery) -> None:
        """What was told already is told once more, as Slack itself sometimes does."""
        self._deliveries.again(delivery)

    def fault(
        self,
        name: str,
        fault: Fault,
        *,
        times: int | None = 1,
        chat: Place | None = None,
        after: int = 0,
    ) -> Rule:
        """Something goes wrong with the next call of `name`, a pattern like "chat.*": see
        slack_faults for what there is.

        `times=None` is always, `chat` limits it to one channel, `after` lets that many calls pass.
        When several faults match, the oldest takes the call. The rule that is returned counts
        `hits` and can `cancel()`.
        """
        where = None if chat is None else self.chat(chat).id
        rule = Rule(name, fault, times, where, after)
        self._faults.rules.append(rule)
        return rule

    # What happened

    @property
    def deliveries(self) -> list[Delivery]:
        """All that the app was told, in order."""
        return self._deliveries.all

    def unacknowledged(self) -> list[Delivery]:
        return [delivery for delivery in self.deliveries if not delivery.settled]

    @property
    def connected(self) -> bool:
        """The app has an open Socket Mode connection."""
        return bool(self.sockets.connections)

    def sent(self, chat: Place) -> list[SentMessage]:
        """What the bot sent there, oldest first, deleted messages included."""
        return list(self.chat(chat).sent.values())

    def texts(self, chat: Place) -> list[str]:
        """The texts of the bot that can be read there now."""
        return [message.text for message in self.sent(chat) if not message.deleted]

    def streams(self, chat: Place) -> list[Stream]:
        """The streams that the bot began there, oldest first."""
        place = self.chat(chat)
        every = self._world.streams.values()
        return [s for s in every if (s.team, s.channel) == (place.team, place.id)]

    def session(self, chat: Place, thread: str) -> Json | None:
        """The agent session of a thread: `status`, `title` and more."""
        session: Json | None = self.chat(chat).messages[thread].get("agent_session")
        return session

    def status(self, chat: Place, thread: str) -> str:
        """What the assistant shows in a thread now ("is thinking..."), empty when nothing."""
        return status_of(self._world, self.chat(chat), thread)

    def title(self, chat: Place, thread: str) -> str | None:
        place = self.chat(chat)
        return self._world.titles.get((place.team, place.id, thread))

    def prompts(self, chat: Place, thread: str | None = None) -> list[Json]:
        """The suggested prompts: of a thread, or of the whole conversation."""
        place = self.chat(chat)
        return self._world.prompts.get((place.team, place.id, thread), [])

    def home(self, who: Person) -> Json | None:
        """The view that the app has published to a person's home tab."""
        return self._world.homes.get((who.team, who.id))

    def whispers(self, chat: Place, person: Person | None = None) -> list[Whisper]:
        """What the bot said there to one person only."""
        said = self.chat(chat).whispers
        return [w for w in said if person is None or w.user == person.id]

    def pings(self, chat: Place) -> list[str]:
        """The crowds that the bot called there: channel, here, everyone."""
        return [crowd for message in self.sent(chat) for crowd in pings(message.raw)]

    def called(self, pattern: str) -> list[Call]:
        """The calls of a method."""
        return [call for call in self.calls if call.method == pattern]

    async def wait_for(
        self,
        what: int | Callable[[list[SentMessage]], bool],
        chat: Place,
        timeout: float = 5.0,
    ) -> list[SentMessage]:
        """Waits until the bot has sent that many messages, or `what(sent)` holds. Returns them.

        Raises `TimeoutError` with what there was instead.
        """
        place = self.chat(chat)
        if isinstance(what, int):
            count = what
            done: Callable[[], bool] = lambda: len(place.sent) >= count  # noqa: E731
        else:
            predicate = what
            done = lambda: predicate(list(place.sent.values()))  # noqa: E731
        try:
            await self.until(done, timeout)
        except TimeoutError:
            raise TimeoutError(f"after {timeout} s {place.id} has {self.texts(chat)}") from None
        return self.sent(chat)

    async def until(self, done: Callable[[], bool], timeout: float = 5.0) -> None:
        """Waits until `done()` holds, asked anew at every event. Raises `TimeoutError`."""
        async with asyncio.timeout(timeout):
            while not done():
                await self._changed.wait()

    async def settle(self, timeout: float = 5.0) -> None:
        """Waits until the app has acknowledged all that it was told, or Slack has given up."""
        await self.until(lambda: not self.unacknowledged(), timeout)

    # Inside

    def _tell(self, event: str, details: Json) -> None:
        for listener in self.listeners:
            listener(event, details)
        self._changed.set()
        self._changed = asyncio.Event()

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


async def _run(port: int, token: str, app_token: str) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop.set)
    async with Slack(token, app_token=app_token, port=port) as slack:
        print(slack.url, flush=True)
        await stop.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m playground.slack")
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--token", default=TOKEN, help="default: %(default)s")
    parser.add_argument("--app-token", default=APP_TOKEN, help="default: %(default)s")
    given = parser.parse_args()
    asyncio.run(_run(given.port, given.token, given.app_token))


if __name__ == "__main__":
    main()
