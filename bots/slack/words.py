"""What a person wrote, as they saw it: Slack's marks for people, channels and links become words.

Pure. Of other people only what Slack puts into the text is taken over; nobody is looked up.
"""

from __future__ import annotations

import re
from typing import Final

from core.messages import clean

_MARK: Final = re.compile(r"<([^<>]*)>")
_GROUPS: Final = ("here", "channel", "everyone")
# A person's mark, perhaps with their name; with it a message may begin or end.
_SOMEBODY: Final = re.compile(r"\s*<@([A-Z0-9]+)(?:\|[^<>]*)?>[,:]?(?=\s|\Z|<)\s*")
_AT_END: Final = re.compile(r"\s*<@([A-Z0-9]+)(?:\|[^<>]*)?>\s*\Z")


def names(text: str, user: str) -> bool:
    """Whether this user is mentioned."""
    return re.search(rf"<@{re.escape(user)}(?:\|[^<>]*)?>", text) is not None


def begins_with_another(text: str, user: str) -> bool:
    """Whether it is said to somebody else."""
    found = _SOMEBODY.match(text)
    return found is not None and found[1] != user


def own_words(text: str, bot: str, name: str) -> str:
    """The text without the bot's mention where that only addresses it: in front and at the end.

    :param bot: user id of the bot
    :param name: what it is called where it is mentioned within
    """
    rest = text
    while (found := _SOMEBODY.match(rest)) is not None and found[1] == bot:
        rest = rest[found.end() :]
    while (found := _AT_END.search(rest)) is not None and found[1] == bot:
        rest = rest[: found.start()]
    # Who says nothing but our name still wants an answer.
    return readable(rest if rest.strip() else text, {bot: name})


def readable(text: str, known: dict[str, str]) -> str:
    """
    :param known: names of people, by their ids
    """
    words = _MARK.sub(lambda found: _mark(found[1], known), text)
    for escaped, char in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        words = words.replace(escaped, char)
    return clean(words)


def _mark(inside: str, known: dict[str, str]) -> str:
    target, _, label = inside.partition("|")
    match target[:1]:
        case "@":
            return f"@{label or known.get(target[1:]) or target[1:]}"
        case "#":
            return f"#{label or target[1:]}"
        case "!":
            return _special(target[1:], label)
    url = target.removeprefix("mailto:").removeprefix("tel:")
    return target if not label else label if label in (target, url) else f"{label} ({url})"


def _special(what: str, label: str) -> str:
    """<!here>, <!subteam^S1|@team>, <!date^...|yesterday>"""
    if what in _GROUPS:
        return f"@{what}"
    return label or f"@{what.partition('^')[2] or what}"
