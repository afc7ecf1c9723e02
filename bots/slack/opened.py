"""What happens at the app's own page and in its assistant: events and presses -> values. Pure.

None of it is said to the bot: nothing of this becomes a message, and nothing is kept of it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from bots.slack.keys import address, is_id, is_ts
from bots.slack.press import key_and_data
from bots.slack.received import Body, Message
from bots.slack.rules import NOBODY, Me, Rules, readable_name
from core.messages import Sender

HOME: Final = "home"
MESSAGES: Final = "messages"
RESET_DIRECT: Final = "chinwag_reset_direct"  # the action id of the button
RESET_DATA: Final = "reset"


class Opened(msgspec.Struct, frozen=True):
    """Somebody looks at the page, or begins a thread of the older assistant view.

    :param channel: where they and the bot are alone
    :param tab: `HOME` or `MESSAGES`
    :param thread: of the older view: the one that was begun
    """

    team: str
    user: str
    channel: str
    tab: str
    thread: str | None = None

    @property
    def sender(self) -> str:
        return f"slack:{self.team}/{self.user}"


class Reset(msgspec.Struct, frozen=True):
    """They want their direct messages forgotten.

    :param at: when they pressed: always the same for one press
    """

    opened: Opened
    sender: Sender
    at: str


def opened(event: Message, me: Me) -> Opened | None:
    if event.type == "app_home_opened" and event.tab in (HOME, MESSAGES):
        return _opened(me, event.user, event.channel, event.tab, None)
    begun = event.assistant_thread
    if event.type == "assistant_thread_started" and begun is not None and is_ts(begun.thread_ts):
        return _opened(me, begun.user_id, begun.channel_id, MESSAGES, begun.thread_ts)
    return None


def wanted(what: Body, me: Me, rules: Rules) -> Reset | None:
    """The button on the page; which direct messages are theirs stands in it."""
    action = what.actions[0] if what.actions else None
    user = what.user
    if action is None or user is None or action.action_id != RESET_DIRECT:
        return None
    found = key_and_data(action.value or "")
    to = address(found[0], rules.account) if found and found[1] == RESET_DATA else None
    if to is None or to.team != me.team or to.thread is not None or not is_ts(action.action_ts):
        return None
    there = _opened(me, user.id, to.channel, HOME, None)
    # Of a page that is shown in another team than the person's they are nobody.
    if there is None or user.team_id not in (None, me.team):
        return None
    return Reset(there, Sender(there.sender, readable_name(user.name)), action.action_ts)


def _opened(
    me: Me, user: str | None, channel: str | None, tab: str, thread: str | None
) -> Opened | None:
    if not (is_id(user) and is_id(channel) and channel.startswith("D")):
        return None
    if user in (*NOBODY, me.user):
        return None
    return Opened(me.team, user, channel, tab, thread)
