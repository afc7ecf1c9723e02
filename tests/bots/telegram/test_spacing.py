"""How close together anything leaves for one chat of Telegram, by the stand-in's own time."""

from __future__ import annotations

import itertools

import pytest

from bots.telegram.adapter import TelegramAdapter
from playground.telegram import Answer
from tests.bots.telegram.rig import SECOND, Rig

WORDS = "It was a dark and stormy night, and the rain fell in torrents.\n\n"


async def test_the_first_leaves_at_once_and_the_rest_a_second_apart() -> None:
    async with Rig(WORDS * 300, streaming="off") as rig:
        alice = rig.telegram.person("Alice")
        began = rig.clock.monotonic()
        rig.telegram.write(alice, "tell me")
        await rig.until(lambda: len(rig.telegram.texts(alice)) == 5)
        times = [call.at for call in rig.leaving(alice)]
        assert times[0] == began
        assert [round(b - a, 6) for a, b in itertools.pairwise(times)] == [1.0] * 4


async def test_two_answers_are_a_second_apart_and_two_chats_are_not() -> None:
    async with Rig("one", "two", "three", streaming="off") as rig:
        alice, bob = rig.telegram.person("Alice"), rig.telegram.person("Bob")
        rig.telegram.write(alice, "hi")
        await rig.quiet(alice)
        rig.telegram.write(alice, "hi")
        rig.telegram.write(bob, "hi")
        await rig.until(lambda: len(rig.telegram.texts(alice)) == 2)
        await rig.until(lambda: len(rig.telegram.texts(bob)) == 1)
        first, second = (call.at for call in rig.leaving(alice))
        assert second - first >= SECOND
        (other,) = (call.at for call in rig.leaving(bob))
        assert other < second


async def test_all_topics_of_a_group_share_its_pace() -> None:
    async with Rig(*["hello"] * 27, streaming="off") as rig:
        alice = rig.telegram.person("Alice")
        forum = rig.telegram.supergroup("Forum", forum=True)
        threads = [forum.topic(name) for name in ("Cats", "Dogs", "Birds")]
        for number in range(27):
            rig.telegram.write(alice, "hi", forum, thread=threads[number % 3], mention=True)
            await rig.until(lambda upto=number: len(rig.telegram.texts(forum)) > upto)  # type: ignore[misc]
        rig.assert_paced(forum)
        times = [call.at for call in rig.leaving(forum)]
        assert times[-1] - times[0] <= 27 * 5, "and it is not slower than it must be"


async def test_a_flood_penalty_in_one_topic_holds_for_the_group() -> None:
    async with Rig("one", "two", streaming="off") as rig:
        alice = rig.telegram.person("Alice")
        forum = rig.telegram.supergroup("Forum", forum=True)
        cats, dogs = forum.topic("Cats"), forum.topic("Dogs")
        rig.telegram.fault("sendMessage", Answer(429, retry_after=40))
        rig.telegram.write(alice, "hi", forum, thread=cats, mention=True)
        await rig.until(lambda: bool(rig.leaving(forum)))
        refused = rig.leaving(forum)[0].at
        rig.telegram.write(alice, "hi", forum, thread=dogs, mention=True)
        await rig.until(lambda: len(rig.telegram.texts(forum)) == 2)
        assert [call.at - refused >= 40 for call in rig.leaving(forum)] == [False, True, True]
        rig.assert_paced(forum)


@pytest.mark.parametrize("account", [None, "support"])
async def test_what_shares_a_pace(account: str | None) -> None:
    adapter = TelegramAdapter("1:A", account=account)
    at = f"@{account}" if account else ""
    rates = [
        adapter.limits.rate(f"telegram-{key}")
        for key in (f"chat{at}:-5", f"topic{at}:-5/7", f"user{at}:-5/42", f"user{at}:-5/7/42")
    ]
    assert len(set(rates)) == 1 and rates[0] is not None and rates[0].place == f"telegram{at}:-5"
    private = adapter.limits.rate(f"telegram-chat{at}:5")
    assert private is not None and private.place == f"telegram{at}:5"
    assert adapter.limits.rate("no key at all") is not None
    await adapter.close()
