"""The manifest asks for what the code uses, and for nothing else."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Final

from click.testing import CliRunner
from msgspec.structs import replace

import bots.slack
from bots.cli import cli
from bots.slack.acts import RESET
from bots.slack.manifest import AGENT_EVENTS, EVENTS, NEEDED, SCOPES, manifest
from tests.bots.slack.world import RULES

# What Slack's reference of the methods says that each needs; of a token of the app, none of these.
METHODS: Final = {
    "apps_connections_open": set[str](),
    "agents_sessions_setStatus": {"chat:write"},
    "assistant_threads_setStatus": {"assistant:write"},
    "assistant_threads_setSuggestedPrompts": {"assistant:write"},
    "assistant_threads_setTitle": {"assistant:write"},
    "auth_test": set[str](),
    "chat_appendStream": {"chat:write"},
    "chat_delete": {"chat:write"},
    "chat_postEphemeral": {"chat:write"},
    "chat_postMessage": {"chat:write"},
    "chat_startStream": {"chat:write"},
    "chat_stopStream": {"chat:write"},
    "chat_update": {"chat:write"},
    "conversations_history": {
        "channels:history",
        "groups:history",
        "im:history",
        "mpim:history",
    },
    "conversations_replies": {
        "channels:history",
        "groups:history",
        "im:history",
        "mpim:history",
    },
    "files_completeUploadExternal": {"files:write"},
    "files_info": {"files:read"},
    "files_getUploadURLExternal": {"files:write"},
    "oauth_v2_access": set[str](),
    "users_info": {"users:read"},
    "views_publish": set[str](),
}
HEARD: Final[dict[str, str | None]] = {
    "app_home_opened": None,
    "app_mention": "app_mentions:read",
    "message.channels": "channels:history",
    "message.groups": "groups:history",
    "message.im": "im:history",
    "message.mpim": "mpim:history",
}
# Used without a method: downloads, and slash commands.
OTHERWISE: Final = {"files:read", "commands"}


def called() -> set[str]:
    """The methods of the Web API that the adapter calls."""
    (folder,) = bots.slack.__path__
    found = set()
    for file in Path(folder).glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
                owner = node.value
                name = owner.attr if isinstance(owner, ast.Attribute) else owner.id
                if name in ("_web", "web") and not node.attr.startswith("__"):
                    found.add(node.attr)
    return found


def test_every_call_is_known() -> None:
    assert called() <= set(METHODS), "look up what it needs, and say it here"


def test_the_scopes_are_those_that_are_used() -> None:
    heard = filter(None, HEARD.values())
    used = set().union(*(METHODS[name] for name in called()), heard, OTHERWISE)
    assert used == set(SCOPES)
    assert set(NEEDED) <= set(SCOPES)


def test_the_events_are_those_that_are_heard() -> None:
    assert set(EVENTS) == set(HEARD)
    assert set(filter(None, HEARD.values())) <= set(SCOPES)


def test_by_socket_mode() -> None:
    made = manifest(RULES, "Chinwag")
    assert made["settings"]["socket_mode_enabled"] is True
    assert made["settings"]["event_subscriptions"] == {"bot_events": sorted(EVENTS)}
    assert made["features"]["shortcuts"][0]["callback_id"] == RESET
    commands = [one["command"] for one in made["features"]["slash_commands"]]
    assert commands == ["/chinwag", "/reset"]
    assert "url" not in json.dumps(made)


def test_by_http_as_an_agent_with_another_name() -> None:
    rules = replace(RULES, agent_view=True, command="/ada")
    made = manifest(rules, "A" * 50, "https://bot.example.org/")
    url = "https://bot.example.org/slack/events"
    assert made["settings"]["socket_mode_enabled"] is False
    assert made["settings"]["event_subscriptions"]["request_url"] == url
    assert made["settings"]["interactivity"]["request_url"] == url
    assert (
        made["features"]["slash_commands"][0] | {"command": "/ada", "url": url}
        == (made["features"]["slash_commands"][0])
    )
    assert set(AGENT_EVENTS) <= set(made["settings"]["event_subscriptions"]["bot_events"])
    assert len(made["display_information"]["name"]) == 35


def test_the_command(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[slack]\ncommand = "/ada"\n')
    ran = CliRunner().invoke(cli, ["slack", "manifest", "--config", str(config)])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.output) == manifest(replace(RULES, command="/ada"), "Chinwag")


def test_an_app_that_others_install() -> None:
    redirect = "https://bot.example.org/slack/oauth_redirect"
    made = manifest(RULES, "Chinwag", redirect_url=redirect)
    assert made["oauth_config"]["redirect_urls"] == [redirect]
    events = made["settings"]["event_subscriptions"]["bot_events"]
    assert {"app_uninstalled", "tokens_revoked"} <= set(events)
    assert made["settings"]["org_deploy_enabled"] is True
    assert "redirect_urls" not in manifest(RULES, "Chinwag")["oauth_config"]
