"""The app's home tab: what a member and a stranger see there, and the button that begins anew."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bots.contracts.adapter import Desk
from bots.contracts.adapter import running as taking
from bots.slack import home as home_module
from bots.slack.home_view import MAX_TEXT, member
from bots.slack.opened import RESET_DIRECT, Opened
from core import phrases
from core.clock import SystemClock
from core.errors import StoreUnavailable
from core.pages import Page
from core.phrases import ENGLISH, Wording
from core.snapshot import Usage
from core.store import SessionRef
from core.usage import UNIT, Spent
from playground.slack import Delay, Error, Person, Slack
from playground.slack_blocks import checked_view
from playground.slack_chats import Team
from stores.memory import MemoryStore
from tests.bots.slack.test_distribution import distributed, install
from tests.bots.slack.whole import Transport, bot
from tests.bots.slack.world import RULES, make
from tests.core.fakes import MemoryNotes
from tests.crash.slack_program import CONFIG, SlackWorld

# Of aiohttp, about how slack_sdk sends the app's secret.
pytestmark = pytest.mark.filterwarnings("ignore:BasicAuth is deprecated:DeprecationWarning")
AGENT = replace(RULES, agent_view=True)
BOTH = pytest.mark.parametrize("transport", ["socket", "http"])


def shown(slack: Slack, who: Person) -> str:
    """All that can be read there."""
    return "\n".join(slack.home_texts(who))


def member_id(slack: Slack, who: Person, team: Team | None = None) -> str:
    return f"slack:{(team or slack.team).id}/{who.id}"


async def used(store: MemoryStore, sender: str, tokens: int, cost: int) -> None:
    row = Spent(f"e{tokens}", 1, 1_700_000_000_000, "m", Usage(tokens), cost, sender=sender)
    now = SystemClock().now()
    await store.usage.add([("slack-dm:T/D", replace(row, at=now))])


@BOTH
async def test_a_member_sees_commands_and_what_they_have_used(transport: Transport) -> None:
    async with Slack() as slack:
        alice, ben = slack.person("Alice"), slack.person("Ben")
        mine = "Ask *me* about <https://example.org|the library>."
        async with bot(slack, transport=transport, home=mine) as running:
            await used(running.store, member_id(slack, alice), 1_234, UNIT // 2)
            await used(running.store, member_id(slack, ben), 777, UNIT)
            slack.open_home(alice)
            await running.quiet(slack)
            text = shown(slack, alice)
            assert text.startswith(f"Ada\n{mine}\n")
            assert f"• `!reset` – {phrases.HELP_RESET}" in text
            assert "• today: 0.5000 USD for 1,234 tokens (0 from a cache)" in text
            assert "• this month: 0.5000 USD for 1,234 tokens (0 from a cache)" in text
            assert "777" not in text and "`!mention" not in text
            assert slack.home(ben) is None
            assert (running.accepted, slack.sent(alice)) == ([], [])
            assert [key async for key in running.store.summaries()] == []


@BOTH
async def test_a_stranger_sees_how_to_get_in_and_leaves_no_trace(transport: Transport) -> None:
    async with Slack() as slack:
        alice, eve = slack.person("Alice"), slack.person("Eve")
        allow = [member_id(slack, alice)]
        async with bot(slack, transport=transport, allow=allow, home="Secret!") as running:
            await used(running.store, member_id(slack, eve), 1_234, UNIT)
            slack.open_home(eve)
            await running.quiet(slack)
            text = shown(slack, eve)
            assert member_id(slack, eve) in text and phrases.PAGE_NO_OWNER in text
            assert "1,234" not in text and "Secret" not in text and "!reset" not in text
            assert slack.buttons(eve) == []
            # With a client that still shows what they saw as a member.
            slack._world.homes[slack.team.id, eve.id]["blocks"] = member(
                Page("x"),
                Opened(slack.team.id, eve.id, slack.chat(eve).id, "home"),
                None,
                "",
                ENGLISH,
                "",
            )["blocks"]
            slack.choose_at_home(eve, phrases.PAGE_RESET)
            await running.quiet(slack)
            assert member_id(slack, eve) in shown(slack, eve)
            assert [key async for key in running.store.summaries()] == []
            assert slack.sent(eve) == []


async def test_with_an_owner_a_stranger_is_told_whom_to_ask() -> None:
    async with Slack() as slack:
        eve = slack.person("Eve")
        async with bot(slack, allow=[member_id(slack, slack.person("Alice"))]) as running:
            running.gate._owner = "slack:T/U"
            slack.open_home(eve)
            await running.quiet(slack)
            assert phrases.PAGE_GET_IN.format(start="`!start`").replace("`", "") in shown(
                slack, eve
            )


@BOTH
async def test_the_button_forgets_direct_messages_and_says_so(transport: Transport) -> None:
    async with Slack() as slack:
        alice, general = slack.person("Alice"), slack.channel("general")
        async with bot(slack, "one", "two", "three", transport=transport) as running:
            slack.write(alice, "remember me")
            await slack.wait_for(1, alice)
            slack.write(alice, "and me", general, mention=True)
            await slack.wait_for(1, general)
            slack.open_home(alice)
            await running.quiet(slack)
            pressed = slack.choose_at_home(alice, phrases.PAGE_RESET)
            await running.quiet(slack)
            assert pressed.state == "acknowledged"
            assert slack.texts(alice) == ["one", phrases.RESET]
            assert phrases.PAGE_WAS_RESET in shown(slack, alice)
            dm = f"slack-dm:{slack.team.id}/{slack.chat(alice).id}"
            direct = await running.store.load(SessionRef(dm, agent="Ada", cwd="/"))
            assert direct is not None and direct.messages == ()
            (thread,) = [
                each.key async for each in running.store.summaries("slack-thread:") if each.messages
            ]
            assert f"/{general.id}/" in thread, "what was said in a channel stays"
            if transport == "socket":  # by HTTP two within a second have one signature
                before = len(running.accepted)
                slack.redeliver(pressed)
                await running.until(lambda: len(running.accepted) == before + 1)
                await running.quiet(slack)
                assert slack.texts(alice) == ["one", phrases.RESET], "and was done once"
            slack.open_home(alice)
            await running.quiet(slack)
            assert phrases.PAGE_WAS_RESET not in shown(slack, alice)


async def test_in_the_agent_view_all_threads_are_forgotten_by_one_press(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(home_module, "MOST_RESET", 4)
    async with Slack() as slack:
        alice, ben = slack.person("Alice"), slack.person("Ben")
        script = ["yes"] * 7
        # One press is one message at the gate, however many threads it is about.
        async with bot(slack, *script, rules=AGENT, per_minute=7) as running:
            for number in range(6):
                slack.write(alice, f"question {number}")
                await slack.wait_for(number + 1, alice)
            slack.write(ben, "mine")
            await slack.wait_for(1, ben)
            running.gate._per_minute = 1
            slack.open_home(alice)
            await running.quiet(slack)
            slack.choose_at_home(alice, phrases.PAGE_RESET)
            await running.quiet(slack)
            assert phrases.PAGE_RESET_MORE in shown(slack, alice)
            left = [each.key async for each in running.store.summaries() if each.messages]
            assert len(left) == 3, "the newest four of hers went, two of hers and his are there"
            running.gate._per_minute = 10
            slack.choose_at_home(alice, phrases.PAGE_RESET)
            await running.quiet(slack)
            assert phrases.PAGE_WAS_RESET in shown(slack, alice)
            (his,) = [each.key async for each in running.store.summaries() if each.messages]
            assert f"/{slack.chat(ben).id}/" in his
            assert slack.texts(alice) == ["yes"] * 6, "no thread has a line more"


async def test_who_presses_too_often_is_told_on_the_page() -> None:
    async with Slack() as slack:
        alice = slack.person("Alice")
        async with bot(slack, per_minute=1) as running:
            slack.open_home(alice)
            await running.quiet(slack)
            for _ in range(2):
                slack.choose_at_home(alice, phrases.PAGE_RESET)
                await running.quiet(slack)
            assert phrases.TOO_FAST in shown(slack, alice)
            assert slack.texts(alice) == [phrases.RESET]


@pytest.mark.parametrize(
    ("user", "value"),
    [
        ("U0SOMEBODY", "reset@slack-dm:T0OTHER/D1"),
        ("U0SOMEBODY", "reset@slack-channel:{team}/C1"),
        ("U0SOMEBODY", "reset@slack-thread:{team}/D1/1700000000.000100"),
        ("U0SOMEBODY", "good@slack-dm:{team}/D1"),
        ("U0SOMEBODY", "reset"),
    ],
)
async def test_another_button_forgets_nothing(user: str, value: str) -> None:
    async with Slack() as slack:
        alice = slack.person("Alice")
        async with bot(slack) as running:
            button = {
                "type": "button",
                "action_id": RESET_DIRECT,
                "value": value.format(team=slack.team.id),
                "text": {"type": "plain_text", "text": "x"},
            }
            slack._world.homes[slack.team.id, alice.id] = {
                "id": "V1",
                "blocks": [{"type": "actions", "elements": [button]}],
            }
            slack.choose_at_home(alice, "x")
            await running.quiet(slack)
            assert running.accepted == []


async def test_what_cannot_be_stored_is_not_confirmed() -> None:
    async with Slack(ack_seconds=0.3) as slack:
        alice = slack.person("Alice")
        async with bot(slack, rules=AGENT) as running:
            slack.open_home(alice)
            await running.quiet(slack)
            assert running.adapter._pages is not None

            async def broken(place: str) -> list[str]:
                raise StoreUnavailable("full")

            running.adapter._pages.conversations = broken  # type: ignore[method-assign]
            pressed = slack.choose_at_home(alice, phrases.PAGE_RESET)
            await slack.settle()
            assert pressed.state != "acknowledged"
            assert phrases.PAGE_WAS_RESET not in shown(slack, alice)


@pytest.mark.parametrize(
    "fault", [Error("not_enabled"), Error("internal_error"), Delay(0.05)], ids=str
)
async def test_a_page_that_cannot_be_shown_holds_up_nothing(fault: Any) -> None:
    async with Slack() as slack:
        alice = slack.person("Alice")
        slack.fault("views.publish", fault, times=None)
        async with bot(slack, "hello") as running:
            for _ in range(5):
                (opened,) = slack.open_home(alice)
            slack.write(alice, "hi")
            await slack.wait_for(1, alice)
            await running.quiet(slack)
            assert opened.state == "acknowledged"
            assert slack.texts(alice) == ["hello"]
            assert len(slack.called("views.publish")) <= 5


async def test_of_one_person_one_page_is_made_at_a_time() -> None:
    async with Slack() as slack:
        alice = slack.person("Alice")
        slack.fault("views.publish", Delay(0.2))
        async with bot(slack) as running:
            slack.open_home(alice)
            await running.until(lambda: len(slack.called("views.publish")) == 1)
            for _ in range(10):
                slack.open_home(alice)
            await running.quiet(slack)
            assert len(slack.called("views.publish")) == 2, (
                "the first, and the last that was wanted"
            )


async def test_each_workspace_is_shown_its_own() -> None:
    async with Slack(distributed=True) as slack:
        one, two = slack.workspace("One"), slack.workspace("Two")
        adapter = distributed(slack, MemoryNotes())
        for team in (one, two):
            await install(slack, adapter, team)
        alice, bea = slack.person("Alice", one), slack.person("Bea", two)
        async with bot(slack, adapter=adapter) as running:
            await used(running.store, member_id(slack, alice, one), 1_234, UNIT)
            slack.open_home(alice)
            slack.open_home(bea)
            await running.quiet(slack)
            assert "1,234 tokens" in shown(slack, alice)
            assert "today: 0.0000 USD for 0 tokens" in shown(slack, bea)
            told = {call.team for call in slack.called("views.publish")}
            assert told == {one.id, two.id}, "each by its own token"
            slack.uninstall(two)
            await running.quiet(slack)
            before = len(slack.called("views.publish"))
            slack.open_home(bea)
            await running.quiet(slack)
            assert len(slack.called("views.publish")) == before


def test_the_view_stays_within_the_limits_of_slack() -> None:
    long = Wording({name: text + " x" * 400 for name, text in WORDED.items()})
    commands = tuple((f"command{n} [{'a' * 200}]", "<!channel> & <@U1> " * 40) for n in range(200))
    page = Page("A" * 400, commands, ("<usage>",) * 3)
    view = member(page, Opened("T1", "U1", "D1", "home"), "support", "", long, "<note>")
    blocks = checked_view(view["blocks"])
    assert all(len(each["text"]["text"]) <= MAX_TEXT for each in blocks if each.get("text"))
    said = str(blocks)
    assert "<!" not in said and "<@" not in said and "<note>" not in said


WORDED = {
    name: getattr(phrases, name)
    for name in ("PAGE_RESET", "PAGE_RESET_ASK", "PAGE_RESET_YES", "PAGE_RESET_NO", "HELP")
}


async def test_nothing_is_shown_before_there_is_anything() -> None:
    """An adapter that stands alone, as in its contract."""
    async with Slack() as slack:
        alice, adapter = slack.person("Alice"), make(slack)
        async with taking(adapter, Desk()):
            (opened,) = slack.open_home(alice)
            await slack.settle()
        assert opened.state == "acknowledged" and slack.called("views.publish") == []
        await adapter.close()


async def test_made_pages_end_with_the_adapter() -> None:
    async with Slack() as slack:
        alice = slack.person("Alice")
        slack.fault("views.publish", Delay(5.0))
        async with bot(slack) as running:
            slack.open_home(alice)
            await running.until(lambda: bool(slack.called("views.publish")))
            async with asyncio.timeout(2):
                await running.adapter._hearing.home.close()
            assert running.adapter._hearing.home._making == {}


@pytest.mark.timeout(60)
async def test_the_program_forgets_once_though_it_is_killed_before_it_says_so(
    tmp_path: Path,
) -> None:
    config = f"{CONFIG}[slack]\nhome = 'Hello, *you*.'\n[store]\nurl = 'sqlite:chinwag.db'\n"
    async with SlackWorld(tmp_path, config) as world:
        slack = world.slack
        # What is said is the first that is accepted, the press the second.
        await world.start("accepted:2", "slack")
        await world.ready()
        alice = slack.person("Alice")
        await world.tell(alice, "my name is Alice")
        slack.open_home(alice)
        await world.until(lambda: "Hello, *you*." in shown(slack, alice), "a page")
        assert "for 0 tokens" not in shown(slack, alice)
        # Slack brings no press a second time, and shows that this one has failed; but it is kept.
        slack.choose_at_home(alice, phrases.PAGE_RESET)
        await world.until(lambda: phrases.RESET in slack.texts(alice), "it says so")
        await world.quiet()
        assert world.deaths == 1
        assert slack.texts(alice)[1:] == [phrases.RESET]
        await world.tell(alice, "what is my name?")
        assert "Alice" not in slack.texts(alice)[-1]
        assert await world.terminate() == 0
