"""A Bot API server that knows only the oldest methods: everything works, what is optional is left
out or becomes the next best thing, and nothing unknown is asked for twice.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest

from core.messages import Outbound
from playground.telegram import OLDEST, Answer, Chat, Person, Telegram
from tests.bots.telegram.rig import Rig
from tests.bots.telegram.test_adapter import key, make, send

LONG = "It was a dark and stormy night, and the rain fell in torrents. " * 20
ESSENTIAL = {"getMe", "getUpdates", "sendMessage"}


def place_of(rig: Rig, where: str) -> tuple[Person, Person | Chat]:
    alice = rig.telegram.person("Alice")
    return alice, (rig.telegram.group("Friends", owner=alice) if where == "group" else alice)


@pytest.mark.parametrize("streaming", ["auto", "edit", "off"])
@pytest.mark.parametrize("where", ["group", "private"])
async def test_a_conversation(where: str, streaming: str) -> None:
    texts = [f"{number}: {LONG}" for number in range(3)]
    async with Rig(*texts, seconds=8.0, streaming=streaming, oldest=True) as rig:
        alice, place = place_of(rig, where)
        for number in range(3):
            rig.telegram.write(alice, "go on", place, mention=where == "group")
            await rig.until(lambda upto=number: len(rig.telegram.texts(place)) > upto)  # type: ignore[misc]
        rig.telegram.write(alice, "/reset", place)
        await rig.until(lambda: len(rig.telegram.texts(place)) == 4)
        assert rig.telegram.texts(place)[:3] == [text.strip() for text in texts]
        asked = Counter(call.method for call in rig.telegram.calls if call.status == 404)
        assert not set(asked) & ESSENTIAL
        assert max(asked.values()) == 1, "what it does not know it is not asked for twice"


async def test_stop_in_the_middle() -> None:
    async with Rig(LONG * 20, "again", seconds=40.0, oldest=True) as rig:
        alice, place = place_of(rig, "group")
        rig.telegram.write(alice, "go on", place, mention=True)
        await rig.until(lambda: bool(rig.model.requests))
        rig.telegram.write(alice, "/stop", place)
        await rig.until(lambda: len(rig.telegram.texts(place)) == 1)
        rig.telegram.write(alice, "and?", place, mention=True)
        await rig.until(lambda: len(rig.telegram.texts(place)) == 2)
        assert rig.telegram.texts(place)[1] == "again"


async def test_a_server_that_learns_nothing_of_edits_before_the_first() -> None:
    """Nobody could ask it: what was begun to be shown goes where it can, and the answer comes."""
    async with Telegram() as telegram:
        telegram.knows(*OLDEST, "deleteMessage")
        adapter = make(telegram)
        group = telegram.group("Group")
        (first,) = await send(adapter, key(group))
        for _ in range(2):
            (new,) = await send(adapter, key(group), json.dumps({"text": "all"}), replaces=first)
            assert new != first
        assert telegram.texts(group) == ["all", "all"]
        assert [call.method for call in telegram.calls].count("editMessageText") == 1
        await adapter.close()


async def test_what_cannot_be_deleted_says_nothing_any_more() -> None:
    async with Telegram() as telegram:
        telegram.knows(*OLDEST, "editMessageText")
        adapter = make(telegram)
        alice = telegram.person("Alice")
        (first,) = await send(adapter, key(alice))
        for _ in range(2):
            assert await send(adapter, key(alice), None, replaces=first) == ()
        assert await send(adapter, key(alice), None, replaces="999") == ()
        assert telegram.texts(alice) == ["…"]
        assert [call.method for call in telegram.calls].count("deleteMessage") == 1
        await adapter.close()


async def test_what_can_be_neither_deleted_nor_edited_stays() -> None:
    async with Telegram() as telegram:
        telegram.knows(*OLDEST)
        adapter = make(telegram)
        alice = telegram.person("Alice")
        (first,) = await send(adapter, key(alice))
        assert await send(adapter, key(alice), None, replaces=first) == ()
        assert await send(adapter, key(alice), None, replaces=first) == ()
        assert telegram.texts(alice) == ["hello"]
        assert Counter(call.method for call in telegram.calls) == {
            "sendMessage": 1,
            "deleteMessage": 1,
            "editMessageText": 1,
        }
        await adapter.close()


@pytest.mark.parametrize(
    "answer",
    [
        Answer(401, "Unauthorized"),
        Answer(404, html=True),
        Answer(429, retry_after=3),
        Answer(400, "Bad Request: message can't be edited"),
    ],
    ids=str,
)
async def test_only_a_plain_answer_teaches_that_a_method_is_lacking(answer: Answer) -> None:
    async with Telegram() as telegram:
        adapter = make(telegram)
        alice = telegram.person("Alice")
        rule = telegram.fault("editMessageText", answer)
        await adapter._sending.learn()
        assert rule.hits == 1 and adapter._sending.edits
        (first,) = await send(adapter, key(alice))
        part = Outbound("p", json.dumps({"text": "good day"}), replaces=first)
        await adapter.send(key(alice), part, uncertain=False)
        assert telegram.texts(alice) == ["good day"]
        await adapter.close()
