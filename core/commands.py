"""The commands that are built in: a table, from which `/help`, menus and dispatch are derived.

Pure functions. A command that needs more than a few lines has a file of its own, and an entry here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from core import account, branches, changes, edits, export, forget, phrases
from core.command import Backstage, Call, Command, Commands, Outcome
from core.snapshot import Snapshot

# Behind /reset: nothing is said to it, for who resets many at once is told elsewhere.
QUIETLY: Final = "quietly"


def _start(snapshot: Snapshot, call: Call) -> Outcome:
    return Outcome(call.say(phrases.WELCOME))


def _help(snapshot: Snapshot, call: Call) -> Outcome:
    lines = [call.say(phrases.HELP), ""]
    for each in call.commands:
        usage = f"/{each.name} {each.arguments}".rstrip()
        lines.append(f"* {usage} – {call.say(each.help)}")
    return Outcome("\n".join(lines))


def _id(snapshot: Snapshot, call: Call) -> Outcome:
    inbound = call.inbound
    return Outcome(call.say(phrases.IDS, id=inbound.sender.id, key=inbound.key))


def _stop(snapshot: Snapshot, call: Call) -> Outcome:
    if not (snapshot.turn or snapshot.inbox):
        return Outcome(call.say(phrases.NOTHING_TO_STOP))
    return Outcome(call.say(phrases.STOPPED), changes.stop(snapshot))


def _reset(snapshot: Snapshot, call: Call) -> Outcome:
    said = "" if call.argument == QUIETLY else call.say(phrases.RESET)
    return Outcome(said, changes.reset(snapshot, call.epoch))


def _undo(snapshot: Snapshot, call: Call) -> Outcome:
    after = branches.undo(snapshot)
    if after is snapshot:
        return Outcome(call.say(phrases.NOTHING_TO_UNDO))
    return Outcome(call.say(phrases.UNDONE), after)


def _retry(snapshot: Snapshot, call: Call) -> Outcome:
    """The answer that comes is the reply."""
    after = edits.again(snapshot, call.inbound)
    if after is not snapshot:
        return Outcome("", after)
    waits = phrases.RETRY_WAITS if snapshot.inbox else phrases.NOTHING_TO_RETRY
    return Outcome(call.say(waits))


def _asked_nothing(snapshot: Snapshot, call: Call) -> Outcome:
    """Where something was asked, `core.decisions` answers."""
    return Outcome(call.say(phrases.NOTHING_ASKED))


async def _account(call: Call, backstage: Backstage) -> object:
    rows, inbound = backstage.store.usage, call.inbound
    return await account.account(rows, backstage.spending, inbound.key, inbound.sender.id)


def _usage(snapshot: Snapshot, call: Call) -> Outcome:
    return Outcome(account.said(snapshot, call.found, call.say))


def _model(snapshot: Snapshot, call: Call) -> Outcome:
    configured = call.agent.model
    allowed = list(dict.fromkeys((configured, *call.agent.models)))
    chosen = snapshot.chosen.get("model", configured)
    now = chosen if chosen in allowed else configured
    if not call.argument and len(allowed) == 1:
        return Outcome(call.say(phrases.MODEL_ONLY, model=now))
    names = "\n".join(f"* `{name}`" for name in allowed)
    if not call.argument:
        return Outcome(f"{call.say(phrases.MODEL_NOW, model=now)}\n\n{names}")
    wanted = _meant(call.argument, allowed)
    if wanted is None:
        shown = call.argument.replace("`", "'")[:100]
        return Outcome(f"{call.say(phrases.MODEL_UNKNOWN, wanted=shown)}\n\n{names}")
    others = {name: value for name, value in snapshot.chosen.items() if name != "model"}
    after = others if wanted == configured else {**others, "model": wanted}
    return Outcome(call.say(phrases.MODEL_CHOSEN, model=wanted), replace(snapshot, chosen=after))


def _mention(snapshot: Snapshot, call: Call) -> Outcome:
    if not call.inbound.group:
        return Outcome(call.say(phrases.MENTION_NOT_HERE))
    wanted = call.argument.lower()
    if wanted not in ("on", "off"):
        off = snapshot.chosen.get("mention") == "off"
        return Outcome(call.say(phrases.MENTION_IS_OFF if off else phrases.MENTION_IS_ON))
    others = {name: value for name, value in snapshot.chosen.items() if name != "mention"}
    after = replace(snapshot, chosen={**others, "mention": "off"} if wanted == "off" else others)
    return Outcome(call.say(phrases.MENTION_OFF if wanted == "off" else phrases.MENTION_ON), after)


def _meant(wanted: str, allowed: Sequence[str]) -> str | None:
    """The one of this name, or the only one that is called so behind its provider."""
    wanted = wanted.strip("`").lower()
    found = [name for name in allowed if name.lower() == wanted]
    found = found or [name for name in allowed if name.lower().partition("/")[2] == wanted]
    return found[0] if len(found) == 1 else None


BUILT_IN: Final = Commands(
    (
        Command("reset", phrases.HELP_RESET, _reset, interrupts=True, control=True, room="admins"),
        Command("stop", phrases.HELP_STOP, _stop, interrupts=True, control=True),
        Command("undo", phrases.HELP_UNDO, _undo, interrupts=True, room="last"),
        Command("retry", phrases.HELP_RETRY, _retry, interrupts=True, room="last"),
        Command("model", phrases.HELP_MODEL, _model, arguments="[name]", room="setting"),
        Command(
            "mention",
            phrases.HELP_MENTION,
            _mention,
            arguments="[on or off]",
            room="setting",
            groups=True,
        ),
        Command("usage", phrases.HELP_USAGE, _usage, first=_account),
        Command(
            "export",
            phrases.HELP_EXPORT,
            export.run,
            arguments="[html, markdown or json]",
            first=export.first,
        ),
        Command(
            "forget",
            phrases.HELP_FORGET,
            forget.run,
            first=forget.first,
            interrupts=False,
        ),
        Command("approve", phrases.HELP_APPROVE, _asked_nothing, arguments="[number or all]"),
        Command("decline", phrases.HELP_DECLINE, _asked_nothing, arguments="[number] [why]"),
        Command("id", phrases.HELP_ID, _id),
        Command("help", phrases.HELP_HELP, _help),
        Command("start", phrases.HELP_START, _start),
    )
)
