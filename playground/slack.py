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
import json
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self

from playground.serve import serving
from playground.slack_calls import Call
from playground.slack_chats import (
    Bot,
    Channel,
    Json,
    Person,
    Refused,
    SentMessage,
    Team,
    Whisper,
)
from playground.slack_deliveries import ACK_SECONDS, RETRY_SECONDS, Deliveries, Delivery
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
from playground.slack_limits import Limits
from playground.slack_people import People
from playground.slack_places import Place
from playground.slack_posts import FORM, Posts
from playground.slack_record import Record
from playground.slack_server import Server
from playground.slack_socket import Sockets
from playground.slack_streams import Stream
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


class Slack(People, Record):
    """The servers, the people, and the record.

    `ack_seconds` and `retry_seconds` are how long Slack waits for an acknowledgement, and before
    each retry. With `limited` there are Slack's rate limits, with `distributed` those of an app
    that others install, and with `rotation` the tokens of OAuth expire. `team`, `bot` and `token`
    are those of the workspace that is there from the start.
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
        limited: bool = False,
        distributed: bool = False,
        rotation: bool = False,
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
            rotation=rotation,
        )
        self._faults = Faults()
        self._posts: Posts | None = None
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
        limits = Limits(clock, limited, distributed)
        self._server = Server(self._world, self._faults, limits)
        self.calls = self._server.calls
        self.app = self._server.app

    async def __aenter__(self) -> Self:
        self.url = await self._stack.enter_async_context(serving(self.app, port=self._port))
        self._world.url = self.url
        await self.sockets.start()
        self._stack.push_async_callback(self.sockets.stop)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._deliveries.close()
        await self._stack.aclose()

    @property
    def app_token(self) -> str:
        return self.application.app_token

    @property
    def signing_secret(self) -> str:
        return self.application.signing_secret

    @property
    def ack_seconds(self) -> float:
        """How long Slack waits for an acknowledgement."""
        return self._deliveries.ack_seconds

    @ack_seconds.setter
    def ack_seconds(self, seconds: float) -> None:
        self._deliveries.ack_seconds = seconds

    def configure(self, manifest: Json) -> None:
        """The app is as its manifest says from now on: scopes, events, commands, rotation, where
        OAuth may go back to, and Socket Mode or an address (which takes what `deliver_to` does)."""
        app, settings = self.application, manifest.get("settings", {})
        oauth = manifest.get("oauth_config", {})
        app.name = manifest.get("display_information", {}).get("name", app.name)
        app.scopes = frozenset(oauth.get("scopes", {}).get("bot", ()))
        app.redirect_urls = tuple(oauth.get("redirect_urls", ()))
        app.rotation = bool(settings.get("token_rotation_enabled"))
        app.events = frozenset(settings.get("event_subscriptions", {}).get("bot_events", ()))
        commands = manifest.get("features", {}).get("slash_commands", ())
        app.commands = frozenset(each["command"] for each in commands)
        features = manifest.get("features", {})
        app.home = bool(features.get("app_home", {}).get("home_tab_enabled"))
        app.agent = "agent_view" in features
        for grant in self._world.grants.values():
            if grant.kind == "bot":
                grant.scopes = app.scopes
        url = settings.get("event_subscriptions", {}).get("request_url")
        self.deliver_to(None if settings.get("socket_mode_enabled") or not url else url)

    def deliver_to(self, url: str | None) -> Posts | None:
        """From now on the app is told by signed requests to this address, as its page says when
        Socket Mode is off; None switches it on again."""
        if url is None:
            self._posts = None
            self._deliveries.carrier = self.sockets
        else:
            self._posts = Posts(url, lambda: self.signing_secret, self._world.clock)
            self._stack.push_async_callback(self._posts.close)
            self._deliveries.carrier = self._posts
        return self._posts

    async def verify(self) -> bool:
        """What Slack does when the address is given: it wants its challenge back."""
        challenge = self._world.name("x", 52)
        body = json.dumps(
            {
                "token": self.application.verification_token,
                "challenge": challenge,
                "type": "url_verification",
            }
        ).encode()
        status, answer = await self.knock(body, "application/json")
        return status == 200 and challenge in answer

    async def check_ssl(self) -> int:
        """What Slack does now and then to see whether the certificate is good. Not signed."""
        body = f"ssl_check=1&token={self.application.verification_token}".encode()
        return (await self.knock(body, FORM, {}))[0]

    async def knock(
        self,
        body: bytes,
        kind: str = "application/json",
        headers: dict[str, str] | None = None,
        *,
        timestamp: int | None = None,
    ) -> tuple[int, str]:
        """Any request to the app's address, signed by Slack unless `headers` are given: for those
        that are old, forged or come twice. Returns status and body."""
        if self._posts is None:
            raise ValueError("there is no address: see deliver_to")
        if headers is None:
            headers = self._posts.headers(body, kind, timestamp)
        return await self._posts.send(body, {"Content-Type": kind} | headers)

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

    def _tell(self, event: str, details: Json) -> None:
        for listener in self.listeners:
            listener(event, details)
        self._changed.set()
        self._changed = asyncio.Event()


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
