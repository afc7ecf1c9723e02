"""What people can tell the bot itself: /start /help /reset /stop /id /usage. Pure functions.

Commands are answered when they are accepted: they never enter the inbox or a prompt.
"""

from __future__ import annotations

from typing import Final

from core import account, changes, phrases
from core.messages import Inbound
from core.snapshot import Snapshot

NAMES: Final = ("start", "help", "reset", "stop", "id", "usage")
INTERRUPTING: Final = ("reset", "stop")


def name_of(inbound: Inbound) -> str | None:
    """Which command this is; None when it is none of ours, so that it is an ordinary message."""
    if inbound.kind != "command":
        return None
    word = _words(inbound)[0].removeprefix("/").lower()
    return word if word in NAMES else None


def argument_of(inbound: Inbound) -> str:
    """What stands behind the command's name."""
    return _words(inbound)[1].strip()


def _words(inbound: Inbound) -> tuple[str, str]:
    """The first word and the rest, whatever white space parts them."""
    first, rest, *_ = *inbound.text.split(maxsplit=1), "", ""
    return first, rest


def effect(snapshot: Snapshot, name: str, epoch: str) -> Snapshot:
    """
    :param epoch: a new random one, should the command begin the conversation anew
    """
    if name == "reset":
        return changes.reset(snapshot, epoch)
    if name == "stop":
        return changes.stop(snapshot)
    return snapshot


def answer(
    snapshot: Snapshot, name: str, inbound: Inbound, used: account.Account | None = None
) -> str:
    """What the bot says to it, in markdown.

    :param snapshot: the conversation before the command took effect
    :param used: for /usage
    """
    if used is not None:
        return account.said(snapshot, used)
    if name == "id":
        return f"Your id is `{inbound.sender.id}`. This conversation is `{inbound.key}`."
    if name == "stop" and not (snapshot.turn or snapshot.inbox):
        return phrases.NOTHING_TO_STOP
    return {
        "start": phrases.WELCOME,
        "help": phrases.HELP,
        "reset": phrases.RESET,
        "stop": phrases.STOPPED,
    }[name]
