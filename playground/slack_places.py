"""Who is there and where they may speak: workspaces, people, other bots, channels."""

from collections.abc import Sequence

from playground.slack_chats import Bot, Channel, Person, Team
from playground.slack_world import App, Grant, World

Place = Person | Channel


class Places:
    """The part of `Slack` that makes them. Ids are Slack's; names are for people."""

    application: App
    team: Team
    _world: World

    @property
    def bot(self) -> Bot:
        """The user of our app in the first workspace."""
        assert self.team.bot is not None
        return self.team.bot

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
