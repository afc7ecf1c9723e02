"""Slash commands, shortcuts and pressed buttons -> Inbound. Pure.

All three are for us alone, so nobody has to be meant; but Slack gives them no place in a thread but
that of the message which they are about.
"""

from __future__ import annotations

from typing import Final

import msgspec

from bots.slack.keys import address, is_id, is_ts, padded
from bots.slack.press import key_and_data
from bots.slack.received import Body
from bots.slack.rules import NOBODY, Me, Rules, readable_name
from core.feedback import Opinion
from core.messages import Inbound, Sender, clean

RESET: Final = "chinwag_reset"  # the message shortcut's callback id
APPROVAL: Final = "chinwag_approval"  # what the action ids of a card's buttons begin with
FEEDBACK: Final = "chinwag_feedback"
GOOD: Final = "good"
BAD: Final = "bad"


class Hint(msgspec.Struct, frozen=True):
    """Nothing can be done there; whoever asked is told, and nobody else."""

    text: str


COMMANDS_IN_THREADS: Final = Hint(
    "Here each thread is a conversation of its own. Write the command in the thread, behind a"
    " mention of me or with an exclamation mark: `!reset`."
)


def slash(what: Body, me: Me, rules: Rules) -> Inbound | Hint | None:
    channel, user, trigger = what.channel_id, what.user_id, what.trigger_id
    if not (is_id(channel) and is_id(user) and trigger) or user in NOBODY:
        return None
    direct = channel.startswith("D")
    if rules.agent_view if direct else rules.scope == "thread":
        return COMMANDS_IN_THREADS
    text = clean(what.text or "").strip()
    said = text if what.command == rules.command else f"{what.command} {text}"
    return Inbound(
        id=f"{me.team}/{channel}/slash/{trigger[:128]}",
        key=rules.key_of(me.team, channel, "", user, direct=direct),
        kind="command",
        sender=Sender(f"slack:{me.team}/{user}", readable_name(what.user_name)),
        text=f"/{said.removeprefix('/') or 'help'}".rstrip(),
        group=not direct,
    )


def shortcut(what: Body, me: Me, rules: Rules) -> Inbound | None:
    """*Reset this conversation*, chosen at one of its messages."""
    message, channel = what.message, what.channel
    if what.callback_id != RESET or message is None or channel is None:
        return None
    sender = _who(what, me, rules)
    ts = message.thread_ts or message.ts
    if sender is None or not (is_id(channel.id) and is_ts(ts) and is_ts(what.action_ts)):
        return None
    direct = channel.id.startswith("D")
    user = sender.id.rpartition("/")[2]
    return Inbound(
        id=f"{me.team}/{channel.id}/{padded(what.action_ts)}/{user}",
        key=rules.key_of(me.team, channel.id, ts, user, direct=direct),
        kind="command",
        sender=sender,
        text="/reset",
        group=not direct,
        follows=True,
    )


def pressed(what: Body, me: Me, rules: Rules) -> Inbound | None:
    """Of a card of ours; whose conversation it belongs to stands in the button itself."""
    action = what.actions[0] if what.actions else None
    container, sender = what.container, _who(what, me, rules)
    if action is None or container is None or sender is None or not action.value:
        return None
    found = key_and_data(action.value)
    if found is None or not action.action_id.startswith(APPROVAL):
        return None
    key, data = found
    to = address(key, rules.account)
    ts, at = container.message_ts, action.action_ts
    if to is None or (to.team, to.channel) != (me.team, container.channel_id):
        return None
    if not (is_ts(ts) and is_ts(at)):
        return None
    return Inbound(
        id=f"{me.team}/{to.channel}/{padded(ts)}/{padded(at)}/{sender.id.rpartition('/')[2]}",
        key=key,
        kind="decision",
        sender=sender,
        text=clean(data),
        message_id=ts,
        group=not to.channel.startswith("D"),
    )


def opinion(what: Body, me: Me, rules: Rules) -> Opinion | None:
    """What somebody thinks of an answer of ours; without the time, which nobody knows here."""
    action = what.actions[0] if what.actions else None
    container, sender = what.container, _who(what, me, rules)
    if action is None or container is None or sender is None or action.action_id != FEEDBACK:
        return None
    found = key_and_data(action.value or "")
    if found is None or found[1] not in (GOOD, BAD) or not is_ts(container.message_ts):
        return None
    to = address(found[0], rules.account)
    if to is None or (to.team, to.channel) != (me.team, container.channel_id):
        return None
    return Opinion(sender.id, found[0], container.message_ts, good=found[1] == GOOD)


def _who(what: Body, me: Me, rules: Rules) -> Sender | None:
    user = what.user
    if user is None or not is_id(user.id) or user.id in (*NOBODY, me.user):
        return None
    team = user.team_id or me.team
    if not rules.lets_in(team, me):
        return None
    return Sender(f"slack:{team}/{user.id}", readable_name(user.name))
