"""The way of a message, hop by hop, in words a page can show: from the bot's own log, from what the
platform and the model were asked, and from what was done to the bot.

Pure: events of a `Lab` in, hops out. It adds nothing that an event does not say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from playground.claude import Asked

Json = dict[str, Any]

# Fields of a log line that every hop has a place for, or that say nothing here.
_APART: Final = ("at", "time", "level", "event", "key", "agent")
# Calls that happen all the time, or have nothing to do with a message.
_UNSEEN: Final = frozenset(
    "getupdates getme deletewebhook setwebhook getwebhookinfo setmycommands getmycommands "
    "auth.test apps.connections.open users.info conversations.info bots.info".split()
)
_LONGEST: Final = 300


def of_bot(event: Json) -> Json:
    """A line of the bot's log, or what happened to the bot."""
    name = str(event["event"])
    fields = {each: value for each, value in event.items() if each not in _APART}
    if name in ("bot.killed", "bot.exited", "bot.starting"):
        fields = {each: value for each, value in fields.items() if value is not None}
    if isinstance(fields.get("cost"), int):
        # It is told in the billionths of a thousandth in which it is counted.
        fields["cost"] = f"{Decimal(fields['cost']).scaleb(-12):.6f}"
    bad = event.get("level") in ("warning", "error") or name in ("bot.killed", "output")
    return _hop(event["at"], "bot", name, event.get("key"), fields, bad)


def of_model(event: Json) -> Json:
    """A request that the stand-in for Claude answers."""
    asked: Asked = event["asked"]
    body = asked.body
    messages = body["messages"]
    fields: Json = {
        "request": asked.number,
        "model": body["model"],
        "window": len(messages),
        "marks": marks(body),
        "tools": len(body.get("tools") or ()),
        "input": asked.usage.get("input_tokens", 0),
        "cached": asked.usage.get("cache_read_input_tokens", 0),
        "cache_written": asked.usage.get("cache_creation_input_tokens", 0),
        "answer": type(asked.answer).__name__,
    }
    return _hop(event["at"], "model", "asked", None, fields, fields["answer"] in ("Fail", "Cut"))


def of_platform(event: Json) -> Json | None:
    """A call of the bot and its answer; None for those that have nothing to do with a message."""
    if event["event"] == "fault":
        fields = {"method": event["method"], "fault": _short(event["fault"])}
        return _hop(event["at"], "platform", "trouble", None, fields, True)
    if event["event"] != "returned" or str(event["method"]).lower() in _UNSEEN:
        return None
    params = event.get("params") or {}  # what is no method has none
    fields = {
        "status": event["status"],
        **{
            name: _short(params[name])
            for name in ("chat_id", "channel", "message_id", "ts", "text")
            if name in params
        },
    }
    # What belongs to no chat only asks whether the platform knows such a thing.
    bad = event["status"] != 200 and not {"chat_id", "channel"}.isdisjoint(params)
    return _hop(event["at"], "platform", str(event["method"]), None, fields, bad)


def marks(body: Mapping[str, Any]) -> list[str]:
    """Where a request asks for its beginning to be kept: ``system``, ``messages.3``, ..."""
    found = []
    if body.get("cache_control"):
        found.append("end")
    for name in ("tools", "system"):
        found += [
            f"{name}.{number}"
            for number, block in enumerate(_listed(body.get(name)))
            if _marked(block)
        ]
    for number, message in enumerate(body["messages"]):
        if any(_marked(block) for block in _listed(message["content"])):
            found.append(f"messages.{number}")
    return found


def changes(before: object, after: object, path: str = "") -> list[Json]:
    """What differs between two JSON values: ``path``, and ``was`` or ``is`` where there is one.

    Lists are told by what was taken from their front and put to their end, as a history changes;
    other lists as a whole.
    """
    if before == after:
        return []
    if isinstance(before, dict) and isinstance(after, dict):
        found: list[Json] = []
        for name in [*before, *(each for each in after if each not in before)]:
            below = f"{path}.{name}" if path else str(name)
            if name not in after:
                found.append({"path": below, "was": before[name]})
            elif name not in before:
                found.append({"path": below, "is": after[name]})
            else:
                found += changes(before[name], after[name], below)
        return found
    if isinstance(before, list) and isinstance(after, list):
        return _of_lists(before, after, path)
    return [{"path": path, "was": before, "is": after}]


def _of_lists(before: list[Any], after: list[Any], path: str) -> list[Json]:
    for gone in range(len(before) + 1):
        kept = before[gone:]
        if after[: len(kept)] == kept:
            return [
                *({"path": f"{path}[{number}]", "was": before[number]} for number in range(gone)),
                *(
                    {"path": f"{path}[{number}]", "is": after[number]}
                    for number in range(len(kept), len(after))
                ),
            ]
    return [{"path": path, "was": before, "is": after}]


def _hop(at: float, by: str, name: str, key: str | None, fields: Json, bad: bool) -> Json:
    return {"at": at, "by": by, "name": name, "key": key, "fields": fields, "bad": bad}


def _listed(content: Any) -> list[Any]:
    return content if isinstance(content, list) else []


def _marked(block: Any) -> bool:
    return isinstance(block, dict) and bool(block.get("cache_control"))


def _short(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
