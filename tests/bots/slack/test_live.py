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
from bots.slack.live import ROLL_SECONDS
from core.adapter import Live, Standing
from core.errors import Fenced, StoreUnavailable
from core.messages import Inbound, Outbound
from playground.slack import Answer, Channel, Delay, Error, Person, ResetAfter, Slack
from tests.bots.slack.world import make, seen
from tests.core.fakes import FakeClock

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
