"""What leaves the window is summarised first: once, by another model, and never at the cost of
what was said."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from core import changes, history, phrases
from core.agent import Agent
from core.errors import ModelUnavailable, StoreUnavailable
from core.memory import ConversationMemory
from core.messages import Message, Role, encode_blocks, text_block, text_of
from core.model import Request
from core.session import Session
from core.snapshot import Snapshot
from core.store import SessionRef
from core.summary import LEAD, transcript
from core.trimming import NewSummary, from_row, leaving, read_from, summarised, trimmed
from core.usage import Usage
from stores.memory import MemoryStore
from tests.core.fakes import USAGE, DictStore, FakeClock, ScriptedModel, said, settle
from tests.core.test_conversations import KEY, House

MEMORY = ConversationMemory(6, 4, strategy="summary", summary_model="anthropic/small")
AGENT = Agent(memory=MEMORY)


class Talk:
    """A model whose answers, and whose summaries, are numbered."""

    def __init__(self) -> None:
        self.answers = 0
        self.summaries: list[Any] = []
        self.asked: list[str] = []

    def __call__(self, request: Request) -> Any:
        if request.model == "small":
            self.asked.append(text_of(request.messages[0].blocks))
            item = self.summaries.pop(0) if self.summaries else f"S{len(self.asked)}"
            return item() if callable(item) else item
        self.answers += 1
        return f"a{self.answers}"


def texts(messages: Any) -> list[str]:
    return [text_of(message.blocks).removeprefix(LEAD) for message in messages]


def house(talk: Talk, store: MemoryStore | None = None, agent: Agent = AGENT) -> House:
    return House(*[talk] * 60, agent=agent, store=store)


async def test_the_oldest_exchanges_become_one_message() -> None:
    talk = Talk()
    async with house(talk) as bot:
        for number in range(1, 8):
            await bot.says(f"q{number}")
        last = [texts(r.messages) for r in bot.model.requests if r.model != "small"]
        assert last[2] == ["q1", "a1", "q2", "a2", "q3"]
        assert last[3] == ["S1", "q3", "a3", "q4"]
        assert last[4] == ["S1", "q3", "a3", "q4", "a4", "q5"]
        assert last[5] == ["S2", "q5", "a5", "q6"]
        stored = await bot.snapshot()
        assert [row.role for row in stored.messages][:2] == ["summary", "user"]
        # Nothing is deleted; each summary is a row of its own.
        rows = [row async for row in bot.store.archive(SessionRef(key=KEY))]
        kept = sorted(texts(rows))
        assert kept == sorted([f"{c}{n}" for n in range(1, 8) for c in "qa"] + ["S1", "S2"])
        assert bot.screen.shown == [f"a{number}" for number in range(1, 8)]


async def test_a_summary_is_made_of_what_leaves_and_of_the_one_before() -> None:
    talk = Talk()
    async with house(talk) as bot:
        for number in range(1, 7):
            await bot.says(f"q{number}")
        first, second = talk.asked
        assert "Person: q1\nAssistant: a1\nPerson: q2\nAssistant: a2\n" in first
        assert "q3" not in first
        assert "Summary of what was before: " in second
        assert "S1\nPerson: q3\nAssistant: a3\nPerson: q4\nAssistant: a4" in second
        request = next(r for r in bot.model.requests if r.model == "small")
        assert request.tools == ()
        assert len(request.system) == 1
        assert request.max_tokens <= 2_000


async def test_its_tokens_are_counted_and_it_needs_no_save_of_its_own() -> None:
    talk = Talk()
    async with house(talk) as bot:
        for number in range(1, 4):
            await bot.says(f"q{number}")
        before = await bot.snapshot()
        await bot.says("q4")
        after = await bot.snapshot()
        assert after.usage == before.usage + USAGE + USAGE
        assert after.revision == before.revision + 4
        sums = await bot.store.usage.sums(by=("model",))
        assert {each.model: each.calls for each in sums} == {"claude-sonnet-5-5": 4, "small": 1}


@pytest.mark.parametrize(
    "failure",
    [
        lambda: ModelUnavailable("529"),
        TimeoutError,
        lambda: said(" "),
        lambda: said("no", "refusal"),
    ],
)
async def test_without_a_summary_the_turn_goes_on_and_the_next_one_asks_again(
    failure: Any, caplog: pytest.LogCaptureFixture
) -> None:
    talk = Talk()
    talk.summaries = [failure]
    async with house(talk) as bot:
        for number in range(1, 6):
            await bot.says(f"q{number}")
        answers = [texts(r.messages) for r in bot.model.requests if r.model != "small"]
        # Trimmed for this turn only.
        assert answers[3] == ["q3", "a3", "q4"]
        assert answers[4] == ["S2", "q4", "a4", "q5"]
        assert "Person: q1" in talk.asked[1]
        assert "Person: q3" in talk.asked[1]
        assert bot.screen.shown == ["a1", "a2", "a3", "a4", "a5"]
    assert "summary.failed" in [record.message for record in caplog.records]


async def test_a_summary_that_can_never_be_had_is_not_waited_for_for_ever() -> None:
    talk = Talk()
    talk.summaries = [lambda: ModelUnavailable("529")] * 50
    async with house(talk) as bot:
        for number in range(1, 21):
            await bot.says(f"q{number}")
            assert len((await bot.snapshot()).messages) <= 2 * 6 + 1
        answers = [r.messages for r in bot.model.requests if r.model != "small"]
        assert all(len(messages) <= 6 for messages in answers)
        assert len(bot.screen.shown) == 20


async def test_killed_between_the_summary_and_its_save_it_is_asked_for_again() -> None:
    talk = Talk()
    store = MemoryStore()
    async with house(talk, store) as bot:
        for number in range(1, 4):
            await bot.says(f"q{number}")
        await bot.accept("q4")
        before = await bot.snapshot()

        async def dies(*_: Any, **__: Any) -> None:
            raise StoreUnavailable("killed")

        save, store.save = store.save, dies  # type: ignore[method-assign]
        await settle(200)
        assert len(talk.asked) == 1
        assert await bot.snapshot() == before
    store.save = save  # type: ignore[method-assign]
    async with house(talk, store) as bot:
        await settle(200)
        assert len(talk.asked) == 2
        assert bot.screen.shown == ["a4"]
        assert texts((await bot.snapshot()).messages) == ["S2", "q3", "a3", "q4", "a4"]


async def test_a_reset_while_it_is_made_wins() -> None:
    talk = Talk()
    async with house(talk) as bot:

        async def reset() -> str:
            await bot.conversations.accept(bot.inbound("/reset"))
            return "too late"

        talk.summaries = [reset]
        for number in range(1, 5):
            await bot.says(f"q{number}")
        await bot.says("q5")
        assert texts((await bot.snapshot()).messages) == ["q5", "a4"]
        assert phrases.RESET in bot.screen.shown


# ---------------------------------------------------------------------- in a library


async def session(talk: Talk, store: DictStore, agent: Agent = AGENT) -> Session:
    model = ScriptedModel(*[talk] * 60)
    return await Session.start(agent, store=store, key="k", client=model, clock=FakeClock())


async def test_a_session_has_summaries_too() -> None:
    talk, store = Talk(), DictStore()
    one = await session(talk, store)
    replies = [await one.run(f"q{number}") for number in range(1, 8)]
    assert texts(one.history) == ["S2", "q5", "a5", "q6", "a6", "q7", "a7"]
    assert [row.seq for row in one.history] == [12, 10, 11, 13, 14, 15, 16]
    assert replies[3].usage == USAGE + USAGE
    assert replies[4].usage == USAGE
    assert texts(replies[3].messages) == ["q4", "a4"]
    assert len(store.saves) == 7
    again = await session(talk, store)
    assert texts(again.history) == texts(one.history)


async def test_a_session_whose_window_somebody_else_has_moved() -> None:
    """The summary stands for what is not there any more, so it is not kept; the answer is."""
    talk, store = Talk(), DictStore()
    one, other = await session(talk, store), await session(talk, store)
    for number in range(1, 4):
        await one.run(f"q{number}")
    await other.run("q4")

    async def meanwhile() -> str:
        # Another process, which this one cannot wait for.
        third = await session(Talk(), store)
        third._line = type(third._line)()
        await third.run("q5")
        await third.run("q6")
        return "late"

    talk.summaries = [meanwhile]
    await one.run("q7")
    kept = texts(one.history)
    assert "late" not in kept
    assert kept[-2] == "q7"


# ---------------------------------------------------------------------- the parts


def row(seq: int, role: Role, *blocks: dict[str, Any]) -> Message:
    return Message(seq=seq, role=role, blocks=encode_blocks(blocks), at=0)


def talked(count: int, memory: ConversationMemory = ConversationMemory()) -> Snapshot:  # noqa: B008
    value = changes.begin(revision=1, epoch="e", now=0)
    for number in range(1, count + 1):
        turn: list[tuple[Role, Any]] = [
            ("user", encode_blocks([text_block(f"q{number}")])),
            ("assistant", encode_blocks([text_block(f"a{number}")])),
        ]
        value = changes.append(value, turn, Usage(), 0, memory)
    return value


NEWEST = [row(99, "user", text_block("now"))]


def test_what_leaves_makes_room_for_the_summary_too() -> None:
    value = talked(3)
    assert leaving(value, ConversationMemory(7, 7), NEWEST) == ()
    assert len(leaving(value, ConversationMemory(6, 6), NEWEST)) == 2
    # Without the summary, five and the newest would do.
    assert len(leaving(value, ConversationMemory(6, 5), NEWEST)) == 4
    assert leaving(value, ConversationMemory(1), NEWEST) == ()
    assert len(leaving(value, ConversationMemory(2), NEWEST)) == 6


def test_a_summary_that_fits_nothing_changes_nothing_but_what_it_cost() -> None:
    value = talked(3)
    assert summarised(value, None, 0) is value
    covers = tuple(row.seq for row in value.messages[:2])
    for other in (
        NewSummary("e", covers, None, Usage(1)),
        NewSummary("e", (), "x", Usage(1)),
        NewSummary("e", (2, 3), "x", Usage(1)),
        NewSummary("other", covers, "x", Usage(1)),
    ):
        assert summarised(value, other, 0) == replace(value, usage=Usage(1))
    after = summarised(value, NewSummary("e", covers, "x", Usage(1)), 5)
    assert texts(after.messages) == ["x", "q2", "a2", "q3", "a3"]
    assert (after.window, after.next_seq, after.spans) == (7, 8, ((1, 2), (7, 7), (3, 6)))


def test_the_order_of_reading() -> None:
    told = row(20, "summary")
    assert read_from([(1, 20)], [told, row(15, "user")]) == ((1, 14), (20, 20), (15, 19))
    assert read_from([(1, 20)], [told]) == ((1, 19), (20, 20))
    # What is behind the window is in order of writing, so that spans do not become more and more.
    spans = [(1, 4), (9, 9), (5, 8), (10, 20)]
    assert read_from(spans, [told, row(15, "user")]) == ((1, 14), (20, 20), (15, 19))
    assert read_from([(1, 4), (7, 20)], [told, row(9, "user")]) == (
        *((1, 4), (7, 8)),
        *((20, 20), (9, 19)),
    )


def test_from_a_row_on_in_reading_order() -> None:
    rows = [row(20, "summary"), row(15, "user"), row(16, "assistant")]
    assert from_row(rows, 20) == tuple(rows)
    assert from_row(rows, 16) == (rows[2],)
    # Numbered anew meanwhile.
    assert from_row(rows, 17) == (rows[0],)


def test_a_summary_stays_when_exchanges_go_without_one() -> None:
    value = talked(4)
    covers = tuple(row.seq for row in value.messages[:2])
    value = summarised(value, NewSummary("e", covers, "x"), 0)
    after = trimmed(value, ConversationMemory(5, 5, strategy="summary"), NEWEST)
    assert texts(after.messages) == ["x", "q4", "a4"]
    assert after.spans == ((1, 6), (9, 9), (7, 8))
    after = trimmed(value, ConversationMemory(2, strategy="summary"), NEWEST)
    assert texts(after.messages) == ["x"]
    after = trimmed(value, ConversationMemory(1), NEWEST)
    assert after.messages == ()
    assert after.window == 99


def test_a_transcript_says_all_that_was_said() -> None:
    rows = [
        row(9, "summary", text_block("before")),
        row(1, "user", text_block("see </conversation>"), {"type": "image"}, {"type": "document"}),
        row(
            2,
            "assistant",
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "tool_use", "id": "c", "name": "look", "input": {"at": "it"}},
        ),
        row(
            3,
            "user",
            history.result("c", [text_block("a cat"), {"type": "image"}]),
            history.result("d", "x" * 9_000),
            history.result("e", None),
        ),
    ]
    lines = transcript(rows).split("\n")
    assert lines[:5] == [
        "Summary of what was before: before",
        "Person: see \u2039/conversation\u203a",
        "Person: [sent an image]",
        "Person: [sent a file]",
        'Assistant uses look: {"at":"it"}',
    ]
    assert lines[5] == "Result: a cat [image]"
    assert len(lines[6]) < 4_100
    assert lines[6].startswith("Result: xxx")
    assert lines[7] == "Result: null"
    long = [row(1, "user", text_block("y" * 3_900))] * 200
    assert len(transcript(long)) < 400_100
