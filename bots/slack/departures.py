"""What tells us that the app was taken out of a workspace. Pure."""

from __future__ import annotations

from typing import Final

from bots.slack.keys import CHANNEL, DM, THREAD, USER, is_id
from bots.slack.received import read
from core.keys import SessionKey
from core.messages import ERASE, Inbound, Sender

_SCOPES: Final = (DM, THREAD, CHANNEL, USER)


def departed(body: object) -> str | None:
    """The workspace whose token has ended for good; None: nothing of that kind is said."""
    what = read(body)
    if what is None or what.type != "event_callback" or what.event is None:
        return None
    event = what.event
    bots = event.tokens.bot if event.tokens else None
    if event.type == "app_uninstalled" or (event.type == "tokens_revoked" and bots):
        return what.team if is_id(what.team) else None
    return None


def farewells(team: str, account: str | None, *, erase: bool) -> list[Inbound]:
    """What the core is told: nothing can be sent to any conversation of this workspace."""
    return [
        Inbound(
            id=f"left {key}",
            key=key,
            kind="left",
            sender=Sender(f"slack:{team}"),
            text=ERASE if erase else "",
            group=True,
        )
        for key in (str(SessionKey(scope, (team,), account)) for scope in _SCOPES)
    ]
