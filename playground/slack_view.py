"""The stand-in for Slack as a page shows it, in the shapes of `telegram_view`.

Reads the stand-in and changes nothing. Markdown blocks become a tree of elements here, so that the
page builds them one by one and never takes text for HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from playground.slack import Channel, Slack, Whisper
from playground.slack_actions import elements
from playground.slack_chats import Bot, Person
from playground.slack_text import shown, unescaped

Json = dict[str, Any]
Node = str | Json

_MARKDOWN: Final = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
_MENTION: Final = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^>]*)?>")
_LINK: Final = re.compile(r"<(https?://[^>|]+)(?:\|([^>]*))?>")
# What markdown has, and what it is in a page.
_TAGS: Final = {
    "paragraph": "p",
    "strong": "strong",
    "em": "em",
    "s": "s",
    "bullet_list": "ul",
    "ordered_list": "ol",
    "list_item": "li",
    "blockquote": "blockquote",
    "table": "table",
    "thead": "thead",
    "tbody": "tbody",
    "tr": "tr",
    "th": "th",
    "td": "td",
    "hr": "hr",
}
# How a task stands.
_SIGNS: Final = {"pending": "?", "in_progress": "…", "complete": "✓", "error": "✗"}


def place(channel: str) -> str:
    """The page's name of a conversation."""
    return f"slack:{channel}"


def chat_json(channel: Channel) -> Json:
    person = channel.person
    return {
        "platform": "slack",
        "id": place(channel.id),
        "chat": channel.id,
        "thread": None,
        "title": channel.name if person is None else person.name,
        "of": None,
        "kind": "private" if person is not None else "channel",
        "person": None if person is None else person.id,
    }


def message_json(slack: Slack, channel: Channel, ts: str) -> Json | None:
    """One message as it stands; None: it is not to be seen."""
    raw = channel.messages.get(ts)
    if raw is None or raw.get("subtype") in ("channel_join", "channel_leave"):
        return None
    sent = channel.sent.get(ts)
    who = slack.team.people.get(str(raw.get("user")))
    growing = raw.get("streaming_state") == "in_progress"
    thread = raw.get("thread_ts")
    return _content(slack, raw) | {
        "place": place(channel.id),
        "id": ts,
        "thread": thread if thread != ts else None,
        "from": raw.get("user"),
        "name": who.name if isinstance(who, Person | Bot) else "",
        "bot": isinstance(who, Bot),
        "at": float(ts),
        "edited": "edited" in raw,
        "edits": 0 if sent is None else len(sent.edits),
        "growing": growing,
        "stop": thread if growing and _processing(slack, channel, thread) else None,
        "replies": 0 if thread not in (None, ts) else len(channel.thread_of(ts)) - 1,
    }


def whisper_json(slack: Slack, whisper: Whisper) -> Json:
    """What one person alone is told."""
    who = slack.team.people.get(whisper.user)
    thread = whisper.thread
    return _content(slack, whisper.raw) | {
        "place": place(whisper.channel),
        "id": whisper.ts,
        "thread": thread,
        "from": slack.bot.id,
        "name": slack.bot.name,
        "bot": True,
        "at": float(whisper.ts),
        "edited": False,
        "edits": 0,
        "only": who.name if who is not None else whisper.user,
    }


def messages_json(
    slack: Slack, channel: Channel, *, before: str | None = None, limit: int
) -> list[Json]:
    """The newest messages, threads together below what began them, oldest first.

    :param before: only those that were written before it
    """
    found = [
        message
        for ts in channel.messages
        if (before is None or ts < before)
        and (message := message_json(slack, channel, ts)) is not None
    ]
    if before is None:
        found += [whisper_json(slack, each) for each in channel.whispers]
    found.sort(key=lambda each: each["id"])
    return sorted(found[-limit:], key=lambda each: (each["thread"] or each["id"], each["id"]))


def state(slack: Slack, limit: int) -> Json:
    """All of it, to begin with."""
    team = slack.team
    people = [each for each in team.people.values() if isinstance(each, Person)]
    channels = [*(slack.chat(each) for each in people)]
    channels += [each for each in team.channels.values() if each not in channels]
    return {
        "chats": [chat_json(channel) for channel in channels],
        "people": [{"id": each.id, "name": each.name} for each in people],
        "messages": [
            message for each in channels for message in messages_json(slack, each, limit=limit)
        ],
        "drafts": [],
        "bot": slack.bot.name,
    }


def _processing(slack: Slack, channel: Channel, thread: str | None) -> bool:
    if thread is None or thread not in channel.messages:
        return False
    return (slack.session(channel, thread) or {}).get("status") == "processing"


def _content(slack: Slack, raw: Json) -> Json:
    """Text as a tree, and the buttons below."""
    nodes: list[Node] = []
    blocks = raw.get("blocks") or ()
    for block in blocks:
        if block.get("type") == "markdown":
            nodes += tree(_named(slack, str(block.get("text", ""))))
        elif block.get("type") == "task_card":
            sign = _SIGNS.get(str(block.get("status")), "")
            card = {"tag": "em", "children": [f"{sign} {block.get('title', '')}"]}
            nodes.append({"tag": "p", "children": [card]})
        elif block.get("type") not in ("actions", "rich_text"):
            nodes += _plain(slack, shown({"blocks": [block]}))
    if not nodes:
        nodes = _plain(slack, str(raw.get("text") or shown(raw)))
    found: Json = {"text": _words(nodes), "nodes": nodes}
    buttons = [
        {"label": label, "data": {"action": each["action_id"], "value": each.get("value")}}
        for label, each in elements(blocks)
    ]
    for file in raw.get("files") or ():
        there = slack.file(str(file.get("id"))) is not None
        about = {"kind": "document", "name": file.get("name", "a file"), "there": there}
        found["file"] = about | {"size": file.get("size", 0)}
        break
    return found | ({"buttons": [buttons]} if buttons else {})


def _named(slack: Slack, text: str) -> str:
    def name(found: re.Match[str]) -> str:
        who = slack.team.people.get(found[1])
        return f"@{who.name}" if who is not None else found[0]

    return _MENTION.sub(name, text)


def _plain(slack: Slack, text: str) -> list[Node]:
    """Text with Slack's own marks: who is mentioned, and links."""
    nodes: list[Node] = []
    at = 0
    text = _named(slack, text)
    for found in _LINK.finditer(text):
        nodes.append(unescaped(text[at : found.start()]))
        nodes.append({"tag": "a", "href": found[1], "children": [found[2] or found[1]]})
        at = found.end()
    nodes.append(unescaped(text[at:]))
    return [node for node in nodes if node != ""]


def tree(markdown: str) -> list[Node]:
    """Markdown as elements: ``{"tag", "children"}``, of links also ``href``, and texts."""
    return _children(SyntaxTreeNode(_MARKDOWN.parse(markdown)).children)


def _children(nodes: Iterable[SyntaxTreeNode]) -> list[Node]:
    return [made for node in nodes for made in _node(node)]


def _node(node: SyntaxTreeNode) -> list[Node]:
    match node.type:
        case "text":
            return [node.content] if node.content else []
        case "inline":
            return _children(node.children)
        case "softbreak" | "hardbreak":
            return ["\n"]
        case "code_inline":
            return [{"tag": "code", "children": [node.content]}]
        case "fence" | "code_block":
            code = {"tag": "code", "children": [node.content.rstrip("\n")]}
            return [{"tag": "pre", "children": [code]}]
        case "heading":
            return [{"tag": "p", "children": [{"tag": "strong", "children": _below(node)}]}]
        case "link":
            return [{"tag": "a", "href": str(node.attrs.get("href", "")), "children": _below(node)}]
        case "image":
            return [node.content]
        case kind if kind in _TAGS:
            return [{"tag": _TAGS[kind], "children": _below(node)}]
    return _below(node) or ([node.content] if node.content else [])


def _below(node: SyntaxTreeNode) -> list[Node]:
    return _children(node.children)


def _words(nodes: Iterable[Node]) -> str:
    return "".join(
        node if isinstance(node, str) else _words(node["children"]) for node in nodes
    ).strip()
