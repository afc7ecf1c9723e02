"""The growing answer: Slack's streams in threads, edits elsewhere, and what becomes of both."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from bots.contracts.adapter import Desk, running
from bots.contracts.showing import Leave
from bots.slack.adapter import SlackAdapter
from bots.slack.live import ROLL_SECONDS, STATUS
from core.adapter import CallState, Doing, Live, ShowsTools, Standing
from core.errors import Fenced, StoreUnavailable
from core.messages import Inbound, Outbound
from core.model import ToolCall
from core.tools import tool
from playground.slack import Answer, Channel, Delay, Error, Person, ResetAfter, Slack
from tests.bots.slack.whole import bot
from tests.bots.slack.world import make, seen
from tests.core.fakes import FakeClock, calls

FIRST = "This is the beginning of an answer that goes on for a while."
WORDS = re.compile(r"\w+")


@pytest.fixture
async def slack() -> AsyncIterator[Slack]:
    async with Slack() as server:
        yield server


class Shown:
    """One answer on its way, in a thread or in a direct conversation."""

    def __init__(self, slack: Slack, *, thread: bool = True, **more: Any) -> None:
        self.slack = slack
        self.alice: Person = slack.person("Alice")
        self.place: Person | Channel = slack.channel("general") if thread else self.alice
        self.clock: FakeClock = more.setdefault("clock", FakeClock(manual=True))
        self.adapter: SlackAdapter = make(slack, **more)
        self.leave = Leave()

    async def ask(self, text: str = "hello") -> Inbound:
        async with running(self.adapter, Desk()) as desk:
            channel = self.place if isinstance(self.place, Channel) else None
            self.slack.write(self.alice, text, channel, mention=channel is not None)
            await desk.until(lambda: bool(desk.accepted))
        return desk.accepted[-1]

    def live(self, inbound: Inbound, *shown: str) -> Live:
        return self.adapter.live(inbound.key, inbound, shown, self.leave)

    async def finish(self, live: Live, inbound: Inbound, text: str) -> None:
        """As the core does it: the parts become what is shown, unless they are that already, and
        what is left over goes."""
        live.show(text)
        ids = await live.close()
        standing = live.standing() if isinstance(live, Standing) else {}
        bodies = self.adapter.render(text)
        for number, body in enumerate(bodies):
            replaces = ids[number] if number < len(ids) else None
            if replaces is not None and standing.get(replaces) == body:
                continue
            part = Outbound(f"part.{number}", body, replaces=replaces)
            await self.adapter.send(inbound.key, part, uncertain=False)
        for ts in ids[len(bodies) :]:
            part = Outbound(f"part.-{ts}", None, replaces=ts)
            await self.adapter.send(inbound.key, part, uncertain=False)

    def count(self, method: str) -> int:
        return len(self.slack.called(method))

    async def until(self, done: Callable[[], bool]) -> None:
        """Time passes until then."""
        async with asyncio.timeout(10):
            while not done():
                self.clock.advance(0.25)
                await asyncio.sleep(0.002)

    async def seen(self, live: Live, text: str = FIRST) -> None:
        """The answer has come so far, and somebody may have read some of it."""
        await self.until(lambda: live.show(text))

    def texts(self) -> list[str]:
        return self.slack.texts(self.place)


class TestStreams:
    async def test_an_answer_grows_and_is_not_edited_any_more(self, slack: Slack) -> None:
        shown = Shown(slack)
        inbound = await shown.ask()
        live = shown.live(inbound)
        await shown.seen(live)
        live.show(FIRST + " More of it.")
        await shown.until(lambda: shown.count("chat.appendStream") == 1)
        await shown.finish(live, inbound, f"{FIRST} More of it. And the end.")
        assert shown.texts() == [f"{FIRST} More of it. And the end."]
        assert shown.count("chat.update") == shown.count("chat.postMessage") == 0
        (message,) = slack.sent(shown.place)
        assert message.thread == inbound.message_id
        assert shown.leave.noted == [(message.ts,)]
        await shown.adapter.close()

    async def test_sixty_thousand_characters_stream_whole(self, slack: Slack) -> None:
        code = "\n".join(f"    line_{number} = 'a line of code'" for number in range(400))
        paragraph = "Some words that go on, and on, and on. " * 12
        pieces = [f"{number}. {paragraph}\n\n" for number in range(50)]
        text = "".join([*pieces, f"```python\n{code}\n```\n\n", *pieces]).rstrip()
        assert len(text) > 60_000
        shown = Shown(slack)
        inbound = await shown.ask()
        live = shown.live(inbound)
        for length in range(0, len(text), 1_777):
            live.show(text[:length])
            shown.clock.advance(1.0)
            await asyncio.sleep(0.004)
        await shown.finish(live, inbound, text)
        texts = shown.texts()
        assert len(texts) > 5
        assert all(len(each) <= 12_000 for each in texts)
        said = WORDS.findall("\n".join(texts).replace("```python", ""))
        assert said == WORDS.findall(text.replace("```python", ""))
        assert not any(each.count("```") % 2 for each in texts), "no fence is left open"
        streams = shown.count("chat.startStream")
        assert streams >= len(texts) - 1, "only what came last may not have begun to show"
        assert shown.count("chat.update") == 0, "each stream said exactly its part"
        assert shown.leave.noted[-1] == tuple(one.ts for one in slack.sent(shown.place)[:streams])
        await shown.adapter.close()

    async def test_a_stream_is_rolled_over_before_it_dies(self) -> None:
        clock = FakeClock(manual=True)
        async with Slack(clock=lambda: time.time() + clock.monotonic() - 1_000.0) as slack:
            shown = Shown(slack, clock=clock)
            inbound = await shown.ask()
            live = shown.live(inbound)
            await shown.seen(live)
            clock.advance(ROLL_SECONDS)
            live.show(f"{FIRST} Later.")
            await shown.until(lambda: shown.count("chat.stopStream") == 1)
            later = " And then a second message has to begin, for the first is too old."
            live.show(f"{FIRST} Later.{later}")
            await shown.until(lambda: shown.count("chat.startStream") == 2)
            before, after = shown.texts()
            assert f"{before} {after}" == f"{FIRST} Later.{later}"
            await shown.finish(live, inbound, f"{FIRST} Later.{later}")
            assert shown.texts() == [f"{FIRST} Later.{later}"]
            await shown.adapter.close()

    async def test_one_that_died_becomes_the_answer_by_an_edit(self) -> None:
        clock = FakeClock(manual=True)
        async with Slack(clock=lambda: time.time() + clock.monotonic() - 1_000.0) as slack:
            shown = Shown(slack, clock=clock)
            inbound = await shown.ask()
            live = shown.live(inbound)
            await shown.seen(live)
            clock.advance(1_000)
            await shown.finish(live, inbound, f"{FIRST} The end.")
            assert shown.texts() == [f"{FIRST} The end."]
            assert shown.count("chat.update") == 1
            await shown.adapter.close()

    async def test_a_short_answer_is_one_message_and_no_stream(self, slack: Slack) -> None:
        shown = Shown(slack)
        inbound = await shown.ask()
        live = shown.live(inbound)
        live.show("Yes.")
        shown.clock.advance(5)
        await asyncio.sleep(0.02)
        await shown.finish(live, inbound, "Yes.")
        assert shown.texts() == ["Yes."]
        assert shown.count("chat.startStream") == 0
        await shown.adapter.close()

    @pytest.mark.parametrize(
        ("error", "for_good"), [("unknown_method", True), ("channel_type_not_supported", False)]
    )
    async def test_without_streams_messages_grow_by_edits(
        self, slack: Slack, error: str, for_good: bool
    ) -> None:
        slack.fault("chat.startStream", Error(error), times=None)
        shown = Shown(slack)
        inbound = await shown.ask()
        live = shown.live(inbound)
        live.show(FIRST)
        await shown.until(lambda: shown.count("chat.postMessage") == 1)
        live.show(f"{FIRST} More.")
        await shown.until(lambda: shown.count("chat.update") == 1)
        await shown.finish(live, inbound, f"{FIRST} More.")
        assert shown.texts() == [f"{FIRST} More."]
        again = shown.live(await shown.ask("again"))
        again.show(FIRST)
        await shown.until(lambda: shown.count("chat.postMessage") == 2)
        assert shown.count("chat.startStream") == (1 if for_good else 2)
        await again.close()
        await shown.adapter.close()

    async def test_one_whose_start_was_not_answered_is_found(self, slack: Slack) -> None:
        slack.fault("chat.startStream", ResetAfter())
        shown = Shown(slack)
        inbound = await shown.ask()
        live = shown.live(inbound)
        live.show(FIRST)
        await shown.until(lambda: len(slack.sent(shown.place)) == 1)
        await shown.finish(live, inbound, f"{FIRST} The end.")
        assert shown.texts() == [f"{FIRST} The end."]
        await shown.adapter.close()

    async def test_one_that_an_earlier_process_left_unnoted_is_finished(self, slack: Slack) -> None:
        shown = Shown(slack)
        inbound = await shown.ask()
        dying = shown.live(inbound)
        dying.show(FIRST)
        await shown.until(lambda: shown.count("chat.startStream") == 1)
        another = make(slack)
        live = another.live(inbound.key, inbound, (), shown.leave)
        await shown.until(lambda: shown.count("conversations.replies") == 1)
        shown.adapter, first = another, shown.adapter
        await shown.finish(live, inbound, "Something else.")
        assert shown.texts() == ["Something else."]
        # The process that has died does nothing any more; here it still has to be put away.
        slack.fault("chat.*", Error("message_not_in_streaming_state"), times=None)
        await dying.close()
        await first.close()
        await another.close()

    async def test_what_answers_an_earlier_question_is_left_alone(self, slack: Slack) -> None:
        shown = Shown(slack)
        first = await shown.ask()
        live = shown.live(first)
        await shown.seen(live)
        # Asked while the first answer grows: all of that answer is newer than this question.
        assert isinstance(shown.place, Channel)
        thread = first.message_id
        slack.write(shown.alice, "and?", shown.place, thread=thread, mention=True)
        async with running(shown.adapter, Desk()) as desk:
            (second,) = await desk.have(1)
        await shown.finish(live, first, f"{FIRST} The end.")
        another = make(slack)
        again = another.live(second.key, second, (), shown.leave)
        shown.adapter, before = another, shown.adapter
        await shown.finish(again, second, "The second answer.")
        assert shown.texts() == [f"{FIRST} The end.", "The second answer."]
        await before.close()
        await another.close()

    async def test_one_that_nobody_wants_is_taken_back(self, slack: Slack) -> None:
        shown = Shown(slack)
        shown.leave = Leave(lambda leaving: True, Fenced("stopped"))
        live = shown.live(await shown.ask())
        live.show(FIRST)
        await shown.until(lambda: shown.count("chat.delete") == 1)
        assert await live.close() == ()
        assert shown.texts() == []
        await shown.adapter.close()

    async def test_one_that_cannot_be_noted_goes_on(self, slack: Slack) -> None:
        shown = Shown(slack)
        shown.leave = Leave(lambda leaving: True, StoreUnavailable("full"))
        inbound = await shown.ask()
        live = shown.live(inbound)
        await shown.seen(live)
        await shown.finish(live, inbound, f"{FIRST} The end.")
        assert shown.texts() == [f"{FIRST} The end."]
        await shown.adapter.close()

    @pytest.mark.parametrize("method", ["chat.startStream", "chat.appendStream"])
    async def test_a_limit_is_kept_to(self, slack: Slack, method: str) -> None:
        slack.fault(method, Answer(429, retry_after=7))
        shown = Shown(slack)
        inbound = await shown.ask()
        live = shown.live(inbound)
        await shown.seen(live)
        live.show(f"{FIRST} More.")
        await shown.until(lambda: shown.texts() == [f"{FIRST} More."])
        await shown.finish(live, inbound, f"{FIRST} More.")
        assert shown.texts() == [f"{FIRST} More."]
        assert shown.leave.waits == [8.0]
        await shown.adapter.close()

    async def test_an_append_under_way_is_not_said_twice(self, slack: Slack) -> None:
        shown = Shown(slack)
        inbound = await shown.ask()
        live = shown.live(inbound)
        await shown.seen(live)
        slack.fault("chat.appendStream", Delay(0.2))
        live.show(f"{FIRST} More.")
        await shown.until(lambda: shown.count("chat.appendStream") == 1)
        await shown.finish(live, inbound, f"{FIRST} More. The end.")
        assert shown.texts() == [f"{FIRST} More. The end."]
        await shown.adapter.close()

    async def test_text_that_begins_anew_is_edited_in_the_end(self, slack: Slack) -> None:
        shown = Shown(slack)
        inbound = await shown.ask()
        live = shown.live(inbound)
        await shown.seen(live)
        live.show("Something else altogether, which is not how it began at first.")
        shown.clock.advance(5)
        await asyncio.sleep(0.05)
        await shown.finish(live, inbound, "Something else altogether.")
        assert shown.texts() == ["Something else altogether."]
        await shown.adapter.close()

    async def test_nobody_is_called_however_it_is_cut(self, slack: Slack) -> None:
        text = f"{FIRST} <!channel> and <@U0AAAAAAAAA> and <!here|here>, all of them."
        shown = Shown(slack)
        inbound = await shown.ask()
        live = shown.live(inbound)
        for length in range(len(FIRST), len(text)):
            live.show(text[:length])
            shown.clock.advance(1.0)
            await asyncio.sleep(0.004)
        assert shown.count("chat.appendStream") > 5
        await shown.finish(live, inbound, text)
        (said,) = shown.texts()
        assert "<!" not in said and "<@" not in said and said.endswith("all of them.")
        assert shown.count("chat.update") == 0
        await shown.adapter.close()


class TestEdits:
    async def test_in_a_direct_conversation(self, slack: Slack) -> None:
        shown = Shown(slack, thread=False)
        inbound = await shown.ask()
        live = shown.live(inbound)
        live.show(FIRST)
        await shown.until(lambda: shown.count("chat.postMessage") == 1)
        live.show(f"{FIRST} **More**.")
        await shown.until(lambda: shown.count("chat.update") == 1)
        await shown.finish(live, inbound, f"{FIRST} **More**. The end.")
        assert seen(slack, shown.place) == [f"{FIRST} More. The end."]
        assert shown.count("chat.startStream") == 0
        await shown.adapter.close()

    async def test_what_an_earlier_attempt_has_shown_is_edited(self, slack: Slack) -> None:
        shown = Shown(slack)
        inbound = await shown.ask()
        live = shown.live(inbound)
        await shown.seen(live)
        ids = await live.close()
        again = shown.live(inbound, *ids)
        again.show("Another beginning, of another answer to the same question.")
        await shown.until(lambda: shown.count("chat.update") == 1)
        await shown.finish(again, inbound, "Another answer.")
        assert shown.texts() == ["Another answer."]
        await shown.adapter.close()

    async def test_one_that_was_said_and_not_noted_is_found(self, slack: Slack) -> None:
        slack.fault("chat.postMessage", ResetAfter())
        shown = Shown(slack, thread=False)
        inbound = await shown.ask()
        live = shown.live(inbound)
        live.show(FIRST)
        await shown.until(lambda: len(slack.sent(shown.place)) == 1)
        await shown.finish(live, inbound, f"{FIRST} The end.")
        assert shown.texts() == [f"{FIRST} The end."]
        await shown.adapter.close()

    async def test_off(self, slack: Slack) -> None:
        shown = Shown(slack, streaming="off")
        inbound = await shown.ask()
        live = shown.live(inbound)
        assert live.show(FIRST) is False
        await shown.until(lambda: shown.count("assistant.threads.setStatus") >= 1)
        assert await live.close() == ()
        assert shown.texts() == []
        await shown.adapter.close()


def doing(*states: CallState) -> tuple[Doing, ...]:
    return tuple(Doing(f"c{n}", f"Tool {n}", state) for n, state in enumerate(states))


class TestTools:
    """What tools are doing: cards in a stream, a status where there is none."""

    def cards(self, shown: Shown) -> list[dict[str, str]]:
        """Those of all messages, by their ids."""
        return [
            {id: task["status"] for id, task in stream.tasks.items()}
            for stream in shown.slack.streams(shown.place)
        ]

    async def test_a_long_call_is_a_card_before_there_is_text(self, slack: Slack) -> None:
        shown = Shown(slack)
        inbound = await shown.ask()
        live = shown.live(inbound)
        assert isinstance(live, ShowsTools)
        live.doing(doing("running"))
        await shown.until(lambda: self.cards(shown) == [{"c0": "in_progress"}])
        assert live.show("") is False, "nothing of the answer has been read"
        live.doing(doing("done", "running"))
        await shown.until(lambda: self.cards(shown) == [{"c0": "complete", "c1": "in_progress"}])
        live.doing(doing("done", "failed"))
        live.show(FIRST)
        await shown.until(lambda: shown.texts() == [FIRST])
        await shown.finish(live, inbound, f"{FIRST} The end.")
        assert shown.texts() == [f"{FIRST} The end."]
        assert self.cards(shown) == [{"c0": "complete", "c1": "error"}]
        assert shown.count("chat.update") == 0, "the cards stay, and the text is whole"
        (message,) = slack.sent(shown.place)
        assert shown.leave.noted == [(message.ts,)]
        titles = [block["title"] for block in message.raw["blocks"] if "title" in block]
        assert titles == ["Tool 0", "Tool 1"]
        await shown.adapter.close()

    async def test_cards_beside_text_that_stands_there(self, slack: Slack) -> None:
        shown = Shown(slack)
        inbound = await shown.ask()
        live = shown.live(inbound)
        await shown.seen(live)
        assert isinstance(live, ShowsTools)
        live.doing(doing("running"))
        await shown.until(lambda: self.cards(shown) == [{"c0": "in_progress"}])
        live.doing(doing("done"))
        await shown.finish(live, inbound, f"{FIRST}\n\nThe end.")
        assert shown.texts() == [f"{FIRST}\n\nThe end."]
        assert self.cards(shown) == [{"c0": "complete"}]
        assert shown.count("chat.update") == 0
        await shown.adapter.close()

    async def test_a_short_answer_after_a_card_is_said_by_its_end(self, slack: Slack) -> None:
        shown = Shown(slack)
        inbound = await shown.ask()
        live = shown.live(inbound)
        assert isinstance(live, ShowsTools)
        live.doing(doing("running"))
        await shown.until(lambda: bool(self.cards(shown)))
        live.doing(doing("done"))
        await shown.finish(live, inbound, "Yes.")
        assert (shown.texts(), self.cards(shown)) == (["Yes."], [{"c0": "complete"}])
        assert shown.count("chat.update") == shown.count("chat.postMessage") == 0
        await shown.adapter.close()

    async def test_a_quick_call_begins_no_stream(self, slack: Slack) -> None:
        shown = Shown(slack)
        inbound = await shown.ask()
        live = shown.live(inbound)
        assert isinstance(live, ShowsTools)
        live.doing(doing("running"))
        shown.clock.advance(0.2)
        live.doing(doing("done"))
        for _ in range(20):
            shown.clock.advance(0.25)
            await asyncio.sleep(0.002)
        await shown.finish(live, inbound, "Yes.")
        assert shown.texts() == ["Yes."] and shown.count("chat.startStream") == 0
        await shown.adapter.close()

    async def test_what_still_runs_at_the_end_has_come_to_nothing(self, slack: Slack) -> None:
        shown = Shown(slack)
        inbound = await shown.ask()
        live = shown.live(inbound)
        assert isinstance(live, ShowsTools)
        live.doing(doing("done", "running", "asks"))
        await shown.until(lambda: bool(self.cards(shown)))
        ids = await live.close()
        assert self.cards(shown) == [{"c0": "complete", "c1": "error", "c2": "pending"}]
        assert ids == tuple(one.ts for one in slack.sent(shown.place))
        assert not slack.streams(shown.place)[0].alive(time.time())
        await shown.adapter.close()

    @pytest.mark.parametrize(
        ("words", "count", "refused"),
        [("Some words that go on. ", 130, []), ("слова без конца и края. ", 40, ["msg_too_long"])],
        ids=["by streams", "by edits, for it weighs more than Slack says"],
    )
    async def test_a_long_answer_after_cards_is_whole(
        self, slack: Slack, words: str, count: int, refused: list[str]
    ) -> None:
        text = "".join(f"{n}. {words * 20}\n\n" for n in range(count)).rstrip()
        shown = Shown(slack)
        inbound = await shown.ask()
        live = shown.live(inbound)
        assert isinstance(live, ShowsTools)
        live.doing(doing("running"))
        await shown.until(lambda: bool(self.cards(shown)))
        live.doing(doing("done"))
        for length in range(0, len(text), 1_777):
            live.show(text[:length])
            shown.clock.advance(2.0)
            await asyncio.sleep(0.01)
        await shown.finish(live, inbound, text)
        texts = shown.texts()
        assert all(len(each) <= 12_000 for each in texts)
        assert WORDS.findall("\n".join(texts)) == WORDS.findall(text)
        assert [call.error for call in slack.calls if call.error] == refused
        assert (shown.count("chat.update") > 1) is bool(refused)
        assert self.cards(shown)[0] == {"c0": "complete"}
        await shown.adapter.close()

    async def test_many_calls_are_some_cards(self, slack: Slack) -> None:
        shown = Shown(slack)
        inbound = await shown.ask()
        live = shown.live(inbound)
        assert isinstance(live, ShowsTools)
        live.doing(tuple(Doing(f"c{n}", "Tool", "running") for n in range(60)))
        await shown.until(lambda: bool(self.cards(shown)))
        live.doing(tuple(Doing(f"c{n}", "Tool", "done") for n in range(60)))
        await shown.finish(live, inbound, f"{FIRST} The end.")
        (cards,) = self.cards(shown)
        assert set(cards.values()) == {"complete"} and len(cards) == 20
        assert shown.texts() == [f"{FIRST} The end."]
        await shown.adapter.close()

    async def test_a_call_that_outlives_a_stream_goes_on_by_edits(self) -> None:
        clock = FakeClock(manual=True)
        async with Slack(clock=lambda: time.time() + clock.monotonic() - 1_000.0) as slack:
            shown = Shown(slack, clock=clock)
            inbound = await shown.ask()
            live = shown.live(inbound)
            assert isinstance(live, ShowsTools)
            live.doing(doing("running"))
            await shown.until(lambda: bool(self.cards(shown)))
            clock.advance(ROLL_SECONDS)
            await shown.until(lambda: shown.count("chat.stopStream") == 1)
            live.doing(doing("done"))
            live.show(FIRST)
            await shown.until(lambda: shown.texts() == [FIRST])
            await shown.finish(live, inbound, f"{FIRST} The end.")
            assert shown.texts() == [f"{FIRST} The end."]
            assert shown.count("chat.startStream") == 1
            await shown.adapter.close()

    @pytest.mark.parametrize("streaming", ["edit", "off"])
    async def test_without_streams_a_status_says_it(self, slack: Slack, streaming: str) -> None:
        shown = Shown(slack, streaming=streaming)
        inbound = await shown.ask()
        thread = inbound.message_id or ""
        live = shown.live(inbound)
        assert isinstance(live, ShowsTools)
        live.doing((Doing("c1", "Look it up <!channel>", "running"),))
        await shown.until(lambda: "Look it up" in slack.status(shown.place, thread))
        assert "<!channel>" not in slack.status(shown.place, thread)
        live.doing((Doing("c1", "Look it up", "done"),))
        await shown.until(lambda: slack.status(shown.place, thread) == STATUS)
        await shown.finish(live, inbound, "Yes.")
        assert shown.texts() == ["Yes."]
        await shown.adapter.close()

    async def test_nothing_is_shown_to_a_person_that_no_card_says(self, slack: Slack) -> None:
        """The whole way: a tool is given a secret and gives one; neither is told of."""

        @tool
        async def look_up(password: str) -> str:
            """Look it up in the cellar. It is dark there."""
            await asyncio.sleep(1.5)
            return f"the treasure, for {password}"

        call = calls(ToolCall("c1", "look_up", {"password": "sesame"}))
        general = slack.channel("general")
        async with bot(slack, call, "It was there.", tools=[look_up]) as running:
            slack.write(slack.person("Alice"), "where is it?", general, mention=True)
            await slack.wait_for(lambda sent: [s.text for s in sent] == ["It was there."], general)
            await running.quiet(slack)
        (stream,) = slack.streams(general)
        assert stream.tasks == {
            "c1": {"id": "c1", "title": "Look it up in the cellar", "status": "complete"}
        }
        told = str([call.params for call in slack.calls])
        assert "sesame" not in told and "treasure" not in told


async def test_nothing_is_shown_without_leave(slack: Slack) -> None:
    shown = Shown(slack)
    shown.leave = Leave(lambda leaving: False)
    inbound = await shown.ask()
    live = shown.live(inbound)
    live.show(FIRST)
    for _ in range(10):
        shown.clock.advance(1)
        await asyncio.sleep(0.002)
    await shown.finish(live, inbound, FIRST)
    assert shown.count("chat.startStream") == shown.count("assistant.threads.setStatus") == 0
    assert shown.texts() == [FIRST]
    await shown.adapter.close()
