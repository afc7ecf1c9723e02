"""What Slack must know of the app before it can do anything: scopes, events, commands. Pure.

Printed by ``chinwag slack manifest``, to be pasted at https://api.slack.com/apps. It asks for what
the code uses, and for nothing else.
"""

from __future__ import annotations

from typing import Any, Final

from bots.slack.acts import RESET
from bots.slack.rules import Rules

# What the bot cannot do without: to hear, and to answer.
NEEDED: Final = (
    "app_mentions:read",
    "channels:history",
    "chat:write",
    "groups:history",
    "im:history",
    "mpim:history",
)
# Beside that: to read and send files, the slash commands, a status while it is at work, and what
# people are called and who of them runs the workspace.
_MORE: Final = ("assistant:write", "commands", "files:read", "files:write", "users:read")
SCOPES: Final = tuple(sorted((*NEEDED, *_MORE)))
EVENTS: Final = (
    "app_home_opened",
    "app_mention",
    "message.channels",
    "message.groups",
    "message.im",
    "message.mpim",
)
AGENT_EVENTS: Final = ("agent_session_stopped",)
# Of an app that others install: that one of them takes it out.
END_EVENTS: Final = ("app_uninstalled", "tokens_revoked")
PATH: Final = "/slack/events"

Json = dict[str, Any]


def manifest(
    rules: Rules, name: str, public_url: str | None = None, redirect_url: str | None = None
) -> Json:
    """
    :param name: how the app is called; at most 35 characters
    :param public_url: where Slack reaches us by HTTP; None: it is Socket Mode
    :param redirect_url: where a browser comes back to when somebody installs the app; None: it is
        for one workspace
    """
    events = [*EVENTS, *(AGENT_EVENTS if rules.agent_view else ())]
    oauth: Json = {"scopes": {"bot": list(SCOPES)}}
    if redirect_url is not None:
        events += END_EVENTS
        oauth["redirect_urls"] = [redirect_url]
    url = None if public_url is None else f"{public_url.rstrip('/')}{PATH}"
    at: Json = {} if url is None else {"url": url}
    request: Json = {} if url is None else {"request_url": url}
    features: Json = {
        "app_home": {
            "home_tab_enabled": True,
            "messages_tab_enabled": True,
            "messages_tab_read_only_enabled": False,
        },
        "bot_user": {"display_name": name[:80], "always_online": True},
        "shortcuts": [
            {
                "name": "Reset this conversation",
                "type": "message",
                "callback_id": RESET,
                "description": "Forget what was said in it",
            }
        ],
        "slash_commands": [
            {
                "command": rules.command,
                "description": "Talk to the bot itself",
                "usage_hint": "reset, stop, retry, undo, usage or help",
                "should_escape": False,
                **at,
            },
            {
                "command": "/reset",
                "description": "Forget this conversation",
                "should_escape": False,
                **at,
            },
        ],
    }
    if rules.agent_view:
        features["agent_view"] = {"agent_description": f"{name[:35]} answers here"}
    return {
        "display_information": {"name": name[:35]},
        "features": features,
        "oauth_config": oauth,
        "settings": {
            "event_subscriptions": {
                "bot_events": sorted(events),
                **request,
            },
            "interactivity": {"is_enabled": True, **request},
            "org_deploy_enabled": redirect_url is not None,
            "socket_mode_enabled": url is None,
            # It cannot be taken back, so it is for whoever wants it to say yes on the app's page.
            "token_rotation_enabled": False,
        },
    }
