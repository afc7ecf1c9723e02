"""An app that shows as an agent: suggestions, titles and the status, in either view."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bots.slack.assistant import Prompt, title_of
from bots.slack.manifest import manifest
from core import phrases
from playground.slack import Error, Person, Slack
from tests.bots.slack.whole import Transport, bot
from tests.bots.slack.world import RULES
from tests.core.fakes import said

AGENT = replace(RULES, agent_view=True)
PROMPTS = (Prompt("What?", "What can you do?"), Prompt("Write", "Write something."))
SHOWN = [
    {"title": "What?", "message": "What can you do?"},
    {"title": "Write", "message": "Write something."},
]
LONG = "A question that is so long that it does not fit, " * 4
BOTH = pytest.mark.parametrize("transport", ["socket", "http"])


def agent(slack: Slack) -> None:
    """The app is what our manifest says."""
    events = manifest(AGENT, "Ada")["settings"]["event_subscriptions"]["bot_events"]
    slack.application.events = frozenset(events)
    slack.application.agent = True


def title(slack: Slack, alice: Person, thread: str) -> str:
    session = slack.session(alice, thread) or {}
    return str(session.get("title", ""))


@BOTH
async def test_the_agent_view(transport: Transport) -> None:
    async with Slack() as slack:
        agent(slack)
        alice = slack.person("Alice")
        script = ("one", "two", "three")
        async with bot(
            slack, *script, transport=transport, rules=AGENT, prompts=PROMPTS
        ) as running:
            slack.open_home(alice, "messages")
            await running.until(lambda: bool(slack.prompts(alice)))
            assert slack.prompts(alice) == SHOWN
            (told, *_) = slack.write(alice, f"  {LONG}\n<!channel>")
            thread = told.event["ts"]
            await running.until(lambda: title(slack, alice, thread) != "")
            assert title(slack, alice, thread) == title_of(LONG)
            await slack.wait_for(1, alice)
            slack.write(alice, "more", thread=thread)
            await slack.wait_for(2, alice)
            (other, *_) = slack.write(alice, "another")
            await running.until(lambda: title(slack, alice, other.event["ts"]) == "another")
            await slack.wait_for(3, alice)
            await running.quiet(slack)
            assert title(slack, alice, thread) == title_of(LONG), "once"
            assert len(slack.called("agents.sessions.setStatus")) == 2
            assert len(running.accepted) == 3, "a session that changes says nothing"


@BOTH
async def test_the_older_assistant_view(transport: Transport) -> None:
    async with Slack() as slack:
        alice, general = slack.person("Alice"), slack.channel("general")
        async with bot(
            slack, "one", "two", transport=transport, rules=AGENT, prompts=PROMPTS
        ) as running:
            thread = slack.open_assistant(alice, general)[0].event["ts"]
            await running.until(lambda: slack.prompts(alice, thread) == SHOWN)
            slack.write(alice, "first words", thread=thread)
            await running.until(lambda: slack.title(alice, thread) == "first words")
            await slack.wait_for(1, alice)
            slack.write(alice, "second words", thread=thread)
            await slack.wait_for(2, alice)
            changed = slack.inject(
                {
                    "type": "assistant_thread_context_changed",
                    "assistant_thread": {"user_id": alice.id, "thread_ts": thread},
                    "event_ts": "1700000000.000100",
                }
            )
            await running.quiet(slack)
            assert changed.state == "acknowledged"
            assert len(slack.called("assistant.threads.setTitle")) == 1
            assert len(slack.called("assistant.threads.setSuggestedPrompts")) == 1
            assert slack.called("agents.sessions.setStatus") == []
            assert {sent.thread for sent in slack.sent(alice)} == {thread}


@pytest.mark.parametrize("older", [False, True])
async def test_the_status_is_shown_in_both_views(older: bool) -> None:
    async with Slack() as slack:
        alice = slack.person("Alice")

        async def slowly(request: Any) -> Any:
            await running.until(lambda: slack.status(alice, where) == "is thinking…")
            return said("done")

        async with bot(slack, slowly, rules=AGENT) as running:
            thread = slack.open_assistant(alice)[0].event["ts"] if older else None
            (told, *_) = slack.write(alice, "hello", thread=thread)
            where = thread or told.event["ts"]
            await running.until(lambda: "done" in slack.texts(alice))
            assert slack.status(alice, where) == ""


async def test_whoever_may_not_speak_is_suggested_nothing() -> None:
    async with Slack() as slack:
        eve = slack.person("Eve")
        allow = [f"slack:{slack.team.id}/U0ALICE"]
        async with bot(slack, rules=AGENT, prompts=PROMPTS, allow=allow) as running:
            slack.open_home(eve, "messages")
            slack.open_assistant(eve)
            slack.write(eve, "let me in")
            await running.quiet(slack)
            for method in ("setSuggestedPrompts", "setTitle"):
                assert slack.called(f"assistant.threads.{method}") == []
            assert slack.called("agents.sessions.setStatus") == []


async def test_an_app_that_is_no_agent_suggests_nothing() -> None:
    async with Slack() as slack:
        alice = slack.person("Alice")
        async with bot(slack, "hi", prompts=PROMPTS) as running:
            slack.open_home(alice, "messages")
            slack.write(alice, "hello")
            await slack.wait_for(1, alice)
            await running.quiet(slack)
            assert slack.called("assistant.threads.setSuggestedPrompts") == []
            assert slack.called("agents.sessions.setStatus") == []


async def test_commands_files_alone_and_channels_make_no_title() -> None:
    async with Slack() as slack:
        alice, general = slack.person("Alice"), slack.channel("general")
        async with bot(slack, "a file", "in a channel", rules=AGENT) as running:
            slack.write(alice, "!help")
            await slack.wait_for(1, alice)
            slack.share(alice, "a.txt", b"words", "text/plain")
            await slack.wait_for(2, alice)
            slack.write(alice, "hello", general, mention=True)
            await slack.wait_for(1, general)
            await running.quiet(slack)
            assert slack.called("agents.sessions.setStatus") == []


async def test_without_suggestions_and_titles_it_answers_all_the_same() -> None:
    async with Slack() as slack:
        alice = slack.person("Alice")
        for method in ("assistant.threads.*", "agents.*"):
            slack.fault(method, Error("internal_error"), times=None)
        async with bot(slack, "hi", rules=AGENT, prompts=PROMPTS) as running:
            slack.open_home(alice, "messages")
            slack.open_assistant(alice)
            slack.write(alice, "hello")
            await slack.wait_for(1, alice)
            await running.quiet(slack)
            assert slack.texts(alice) == ["hi"]
            assert slack.called("agents.sessions.setStatus") != []


def test_a_title_is_one_short_line_that_calls_nobody() -> None:
    assert title_of("  hello\n\n world ") == "hello world"
    assert title_of("\n \t") == ""
    assert "<!channel>" not in title_of("<!channel> look") and "look" in title_of("<!channel> look")
    family = "👨‍👩‍👧‍👦"
    assert title_of(family * 80) == family * 80
    cut = title_of(f"{'word ' * 60}")
    assert len(cut) <= 80 and cut.endswith("word…")
    assert title_of(f"{phrases.HELP}\u202e") == phrases.HELP
