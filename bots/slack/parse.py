"""What Slack sends -> Inbound, or None. Pure; never raises, whatever JSON arrives.

Here are the events; slash commands, shortcuts and buttons are in `acts`. Who may speak is not
decided here, only whether the bot is meant; but people of another team, other bots and Slack itself
are nobody, unless they are named. Of what others wrote nothing is taken over.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from bots.slack.acts import Hint, opinion, pressed, shortcut, slash
from bots.slack.files import attachment_of
from bots.slack.keys import address, is_id, is_ts, padded
from bots.slack.opened import Opened, Reset, opened, wanted
from bots.slack.received import Message, read
from bots.slack.rules import NOBODY, Me, Rules, readable_name
from bots.slack.words import begins_with_another, names, own_words
from core.feedback import Opinion
from core.messages import Inbound, Sender

# Of a message that a person writes; all else is told by Slack.
_WRITTEN: Final = (None, "file_share", "thread_broadcast", "me_message")
_COMMAND: Final = re.compile(r"[!/]([A-Za-z][A-Za-z0-9_]{0,31})(?:\s+(.*))?", re.S)


def team_of(body: object) -> str | None:
    """The workspace that this reached us through: in a shared channel not always the sender's."""
    found = read(body)
    return found.team if found is not None and is_id(found.team) else None


def organisation_of(body: object) -> str | None:
    """What that workspace is a part of, where it is."""
    found = read(body)
    return found.organisation if found is not None and is_id(found.organisation) else None


Found = Inbound | Hint | Opinion | Opened | Reset


def parse(body: object, me: Me, rules: Rules) -> Found | None:
    """
    :param body: decoded JSON or form, whatever it may be; who sent it has been made sure of
    """
    what = read(body)
    if what is None or what.team != me.team:
        return None
    found: Found | None = None
    if what.type == "event_callback" and what.event is not None:
        found = _happened(what.event, me, rules) or opened(what.event, me)
    elif what.type == "block_actions":
        found = pressed(what, me, rules) or opinion(what, me, rules) or wanted(what, me, rules)
    elif what.type == "message_action":
        found = shortcut(what, me, rules)
    elif what.command:
        found = slash(what, me, rules)
    if isinstance(found, Inbound) and address(found.key, rules.account) is None:
        # Where no answer could go nothing is taken in.
        return None
    return found


def _happened(event: Message, me: Me, rules: Rules) -> Inbound | None:
    if event.type == "agent_session_stopped":
        return _stopped(event, me, rules)
    if event.type not in ("message", "app_mention"):
        return None
    if event.subtype == "message_changed":
        return _changed(event, me, rules)
    if event.subtype == "message_deleted" and event.previous_message is not None:
        return _edit(event, event.previous_message, "", me, rules)
    return _said(event, me, rules)


def _said(event: Message, me: Me, rules: Rules) -> Inbound | None:
    if event.subtype not in _WRITTEN or not _is_person(event, me, rules):
        return None
    text, direct = event.text or "", _is_direct(event)
    mentioned = names(text, me.user)
    follows = not (direct or mentioned)
    if follows and not (_in_thread(event) and rules.thread_follow and rules.scope == "thread"):
        return None
    if follows and begins_with_another(text, me.user):
        return None
    said = _inbound(event, me, rules)
    if said is None:
        return None
    own = own_words(text, me.user, me.name).strip()
    command = _command(own, mentioned, rules)
    files = tuple(attachment_of(file) for file in event.files or ())
    if not (own or files):
        return None
    if command:
        return msgspec.structs.replace(said, kind="command", text=command, follows=follows)
    return msgspec.structs.replace(said, text=own, attachments=files, follows=follows)


def _changed(event: Message, me: Me, rules: Rules) -> Inbound | None:
    """An edit. Slack says the same when it has only added a preview, or counted replies."""
    now, before = event.message, event.previous_message
    if now is None:
        return None
    if now.subtype == "tombstone":
        return _edit(event, before or now, "", me, rules)
    if now.edited is None or (before is not None and before.text == now.text):
        return None
    own = own_words(now.text or "", me.user, me.name).strip()
    return _edit(event, now, own, me, rules)


def _edit(event: Message, whose: Message, text: str, me: Me, rules: Rules) -> Inbound | None:
    """What a message says from now on; nothing, when it was deleted. Wherever it stands: whether
    it was said to us the core knows, for it has it or not."""
    if whose.subtype not in (*_WRITTEN, "tombstone") or not _is_person(whose, me, rules):
        return None
    there = msgspec.structs.replace(
        whose, channel=event.channel, channel_type=event.channel_type, type="message"
    )
    said = _inbound(there, me, rules)
    at = event.event_ts or event.ts
    if said is None or not is_ts(at):
        return None
    return msgspec.structs.replace(
        said, id=f"{said.id}/{padded(at)}", kind="edit", text=text, follows=True
    )


def _stopped(event: Message, me: Me, rules: Rules) -> Inbound | None:
    """The button beside a status of ours. Pressing it is saying /stop."""
    there = msgspec.structs.replace(
        event,
        channel=event.channel or event.channel_id,
        user=event.user or event.user_id,
        ts=event.event_ts,
    )
    if not is_ts(event.thread_ts) or not _is_person(there, me, rules):
        return None
    said = _inbound(there, me, rules)
    if said is None:
        return None
    return msgspec.structs.replace(said, id=f"{said.id}/stopped", kind="command", text="/stop")


def _inbound(event: Message, me: Me, rules: Rules) -> Inbound | None:
    """Who said something where, without what."""
    channel, user, ts = event.channel, event.user, event.ts
    if not (is_id(channel) and is_id(user) and is_ts(ts)):
        return None
    direct = _is_direct(event)
    thread = event.thread_ts if is_ts(event.thread_ts) else None
    return Inbound(
        id=f"{me.team}/{channel}/{padded(ts)}",
        key=rules.key_of(me.team, channel, thread or ts, user, direct=direct),
        kind="message",
        sender=Sender(f"slack:{_team_of_sender(event) or me.team}/{user}", _name(event)),
        text="",
        message_id=ts,
        group=not direct,
        at=int(ts.partition(".")[0]) * 1000,
    )


def _is_direct(event: Message) -> bool:
    return event.channel_type == "im" or (event.channel or "").startswith("D")


def _in_thread(event: Message) -> bool:
    return event.thread_ts is not None and event.thread_ts != event.ts


def _is_person(event: Message, me: Me, rules: Rules) -> bool:
    """Not a bot, not Slack, and of our team or one that is let in."""
    if event.bot_id or event.user in (*NOBODY, me.user):
        return False
    return rules.lets_in(_team_of_sender(event), me)


def _team_of_sender(event: Message) -> str | None:
    return event.user_team or event.source_team or event.team


def _command(own: str, mentioned: bool, rules: Rules) -> str | None:
    """``!reset``; and behind a mention the word alone. Slack keeps /reset out of threads."""
    found = _COMMAND.fullmatch(own)
    if found is not None and found[1].lower() in rules.words:
        return f"/{found[1].lower()} {found[2] or ''}".rstrip()
    if mentioned and own.lower() in rules.words:
        return f"/{own.lower()}"
    return None


def _name(event: Message) -> str:
    profile = event.user_profile
    return readable_name((profile.display_name or profile.real_name) if profile else None)
