"""Feedback buttons: below the last message of an answer; a press is kept, and begins nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from bots.slack.adapter import SlackAdapter
from core import feedback
from core.adapter import Acceptance, Accepted
from core.errors import StoreUnavailable
from core.messages import Inbound, Outbound
from playground.slack import Person, Slack
from tests.bots.slack.world import labels, make, seen
from tests.core.fakes import MemoryNotes
from tests.crash.slack_program import CONFIG, SlackWorld

BOTH = ["Good answer", "Bad answer"]


class Full(MemoryNotes):
    async def put(self, name: str, value: bytes | None, *, was: bytes | None) -> bool:
        raise StoreUnavailable("full")


async def answer(slack: Slack, adapter: SlackAdapter, alice: Person) -> str:
    """Its key; the answer takes two messages."""
    key = f"slack-dm:{slack.team.id}/{slack.chat(alice).id}"
    bodies = adapter.asking((*adapter.render("first"), *adapter.render("last")))
    for number, body in enumerate(bodies):
        await adapter.send(key, Outbound(f"e1.{number}", body), uncertain=False)
    return key


def heard(adapter: SlackAdapter) -> tuple[asyncio.Task[None], list[Inbound]]:
    told: list[Inbound] = []

    async def accept(inbound: Inbound) -> Acceptance:
        told.append(inbound)
        return Accepted()

    return asyncio.create_task(adapter.run(accept)), told


async def ended(running: asyncio.Task[None], adapter: SlackAdapter) -> None:
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await adapter.close()


async def test_without_the_setting_there_are_none() -> None:
    async with Slack() as slack:
        alice, adapter = slack.person("Alice"), make(slack)
        await answer(slack, adapter, alice)
        assert (seen(slack, alice), labels(slack, alice)) == (["first", "last"], [])
        await adapter.close()


async def test_a_press_is_kept_once_and_begins_nothing() -> None:
    async with Slack() as slack:
        alice, notes = slack.person("Alice"), MemoryNotes()
        adapter = make(slack, feedback=True)
        adapter.keep_in(notes)
        running, told = heard(adapter)
        key = await answer(slack, adapter, alice)
        assert seen(slack, alice) == ["first", "last"]
        first, last = slack.sent(alice)
        assert labels(slack, alice) == BOTH
        assert [block["type"] for block in first.raw["blocks"]] == ["markdown"]
        assert last.raw["blocks"][-1]["type"] == "context_actions"
        for label in ("Good answer", "Bad answer", "Bad answer"):
            slack.choose(alice, label)
            await slack.settle()
        (kept,) = [each async for each in feedback.opinions(notes)]
        assert (kept.sender, kept.key) == (f"slack:{slack.team.id}/{alice.id}", key)
        assert (kept.message_id, kept.good) == (last.ts, False)
        assert kept.at > 0
        assert (told, len(slack.sent(alice))) == ([], 2)
        # Of another conversation, and nothing that we have said: not ours.
        for value in (f"good@slack-dm:{slack.team.id}/D0OTHER", f"fine@{key}", "good"):
            slack.press(alice, first, "chinwag_feedback", value)
            await slack.settle()
        assert [each async for each in feedback.opinions(notes)] == [kept]
        assert told == []
        await ended(running, adapter)


async def test_what_cannot_be_kept_is_not_confirmed() -> None:
    async with Slack(ack_seconds=0.3) as slack:
        alice, adapter = slack.person("Alice"), make(slack, feedback=True)
        adapter.keep_in(Full())
        running, _ = heard(adapter)
        await answer(slack, adapter, alice)
        pressed = slack.choose(alice, "Good answer")
        await slack.settle()
        assert pressed.state != "acknowledged"
        await ended(running, adapter)


async def test_an_edit_without_the_buttons_takes_them_away() -> None:
    async with Slack() as slack:
        alice, adapter = slack.person("Alice"), make(slack, feedback=True)
        key = await answer(slack, adapter, alice)
        ts = slack.sent(alice)[-1].ts
        (body,) = adapter.render("anew")
        assert msgspec.json.decode(body) == {"markdown": "anew"}
        await adapter.send(key, Outbound("e2.0", body, replaces=ts), uncertain=False)
        assert (seen(slack, alice)[-1], labels(slack, alice)) == ("anew", [])
        await adapter.close()


@pytest.mark.timeout(60)
async def test_the_program_keeps_them_over_a_restart_and_lists_them(tmp_path: Path) -> None:
    config = f"{CONFIG}[slack]\nfeedback = true\n[store]\nurl = 'sqlite:chinwag.db'\n"
    async with SlackWorld(tmp_path, config) as world:
        slack = world.slack
        await world.start(None, "slack")
        await world.ready()
        alice, general = slack.person("Alice"), slack.channel("general")
        await world.tell(alice, "my name is Alice", general)
        await world.quiet()
        assert labels(slack, general) == BOTH
        await world.tell(alice, "!id")
        assert labels(slack, alice) == []
        slack.choose(alice, "Good answer", general)
        await slack.settle()
        before = len(slack.texts(general))
        assert await world.terminate() == 0
        ran = await world.command("sessions", "feedback", "--json")
        (kept,) = [json.loads(line) for line in ran.out.splitlines()]
        assert kept["good"] is True
        assert kept["message_id"] == slack.sent(general)[-1].ts
        ran = await world.command("sessions", "feedback")
        assert f"good  slack:{slack.team.id}/{alice.id}  slack-thread:" in ran.out
        ran = await world.command("sessions", "feedback", "--prefix", "slack-dm:")
        assert ran.out.startswith("Nobody has said")
        assert len(slack.texts(general)) == before
