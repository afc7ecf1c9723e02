"""The home tab as Slack's blocks. Pure.

Only what a view may hold: no Markdown, so that what comes from elsewhere is made inert by escaping.
Limits are those of Slack's reference of blocks and views.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from bots.slack.keys import dm_key
from bots.slack.opened import RESET_DATA, RESET_DIRECT, Opened
from bots.slack.press import value_for
from core import phrases
from core.messages import clean
from core.pages import Page
from core.phrases import Wording

MAX_TEXT: Final = 3_000  # of a section
MAX_HEADER: Final = 150
MAX_BUTTON: Final = 75
MAX_TITLE: Final = 100  # of the question whether it is meant
MAX_ASKED: Final = 300
MAX_ANSWER: Final = 30
MAX_SECTIONS: Final = 40  # a view has 100 blocks

Json = dict[str, Any]


def member(
    page: Page, opened: Opened, account: str | None, text: str, say: Wording, note: str
) -> Json:
    """
    :param text: the owner's own, in Slack's marks; empty: a sentence of ours
    :param note: what became of a press; empty: nothing was pressed
    """
    shown = [
        _header(page.name),
        _section(text or _escaped(say(phrases.HELP))),
        *_listed(say(phrases.PAGE_COMMANDS), [_command(*each) for each in page.commands]),
        *_listed(say(phrases.PAGE_USED), [_escaped(line) for line in page.usage]),
        {"type": "divider"},
        {
            "type": "actions",
            "elements": [_reset(dm_key(opened.team, opened.channel, account), say)],
        },
    ]
    if note:
        shown.append({"type": "context", "elements": [_mrkdwn(_escaped(note))]})
    return {"type": "home", "blocks": shown}


def stranger(opened: Opened, say: Wording, *, owned: bool) -> Json:
    """How to get in, and nothing else.

    :param owned: there is somebody who can be asked
    """
    private = say(phrases.STRANGER, id=opened.sender)
    way = say(phrases.PAGE_GET_IN, start="!start") if owned else say(phrases.PAGE_NO_OWNER)
    return {"type": "home", "blocks": [_section(_escaped(f"{private}\n\n{way}"))]}


def _command(usage: str, help: str) -> str:
    return f"`!{_escaped(usage)}` – {_escaped(help)}"


def _listed(title: str, lines: Iterable[str]) -> list[Json]:
    """Lines below a title, in as many sections as that takes."""
    texts = [f"*{_escaped(title)}*"]
    for line in lines:
        item = _cut(f"• {line}", MAX_TEXT)
        if len(texts[-1]) + len(item) + 1 > MAX_TEXT:
            texts.append(item)
        else:
            texts[-1] += f"\n{item}"
    return [_section(text) for text in texts[:MAX_SECTIONS]] if len(texts[0]) > len(title) else []


def _reset(key: str, say: Wording) -> Json:
    return {
        "type": "button",
        "action_id": RESET_DIRECT,
        "style": "danger",
        "text": _plain(say(phrases.PAGE_RESET), MAX_BUTTON),
        "value": value_for(key, RESET_DATA),
        "confirm": {
            "title": _plain(say(phrases.PAGE_RESET), MAX_TITLE),
            "text": _plain(say(phrases.PAGE_RESET_ASK), MAX_ASKED),
            "confirm": _plain(say(phrases.PAGE_RESET_YES), MAX_ANSWER),
            "deny": _plain(say(phrases.PAGE_RESET_NO), MAX_ANSWER),
            "style": "danger",
        },
    }


def _header(text: str) -> Json:
    return {"type": "header", "text": _plain(text, MAX_HEADER)}


def _section(text: str) -> Json:
    return {"type": "section", "text": _mrkdwn(_cut(text, MAX_TEXT))}


def _mrkdwn(text: str) -> Json:
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _plain(text: str, most: int) -> Json:
    return {"type": "plain_text", "text": _cut(clean(text), most), "emoji": False}


def _escaped(text: str) -> str:
    return clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
