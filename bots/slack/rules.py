"""Who the bot is in a workspace, what it goes by there, and what is a conversation of its own.

Pure values and functions, shared by what reads events (`parse`) and what reads commands and buttons
(`acts`).
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from bots.slack.keys import channel_key, dm_key, thread_key, user_key
from core.messages import clean

Scope = Literal["thread", "channel", "user"]

MAX_NAME: Final = 128

# Who writes without being anybody.
NOBODY: Final = ("USLACK", "USLACKBOT")
# Signs that turn the direction of what follows: a name must not rearrange the line it stands in.
_TURNS: Final = dict.fromkeys([0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])


class Me(msgspec.Struct, frozen=True):
    """The bot in one workspace. `user` and `bot` are the two ids that Slack gives one."""

    team: str
    user: str
    bot: str
    name: str = "bot"


class Rules(msgspec.Struct, frozen=True):
    """
    :param account: which of several bots of ours this is
    :param scope: what has a history of its own in a channel: a thread, the channel, or each person
    :param thread_follow: in a thread where the bot is, it is meant without being mentioned
    :param agent_view: each direct message at the top begins a conversation, its thread
    :param teams: those besides the bot's own whose people are taken for members
    :param words: names of commands
    :param command: the slash command that takes one of them behind it
    """

    account: str | None = None
    scope: Scope = "thread"
    thread_follow: bool = True
    agent_view: bool = False
    teams: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    command: str = "/chinwag"

    def key_of(self, team: str, channel: str, thread: str, user: str, *, direct: bool) -> str:
        """The session key of what this user says there. The only place where one is chosen.

        :param thread: ts of the message that the thread hangs on, or would
        """
        if direct:
            if self.agent_view:
                return thread_key(team, channel, thread, self.account)
            return dm_key(team, channel, self.account)
        match self.scope:
            case "channel":
                return channel_key(team, channel, self.account)
            case "user":
                return user_key(team, channel, user, self.account)
        return thread_key(team, channel, thread, self.account)

    def lets_in(self, team: str | None, me: Me) -> bool:
        """Whether people of this team are taken for members; None: nothing was said of it."""
        return team is None or team == me.team or team in self.teams


def readable_name(name: str | None) -> str:
    return " ".join(clean(name or "").translate(_TURNS).split())[:MAX_NAME]
