"""50,000 characters with everything in them, to a group and to one person: all of it is said, once,
at the pace that Telegram asks for, whatever Telegram says in the middle.

Sockets and SDK are real, the time is the rig's own; `make test-crash` runs the same by the clock on
the wall, with the program as it is started.
"""

from __future__ import annotations

import json

import pytest

from bots.telegram.render import render
from playground.telegram import Answer, Chat, Person
from tests.bots.telegram.long import CHARACTERS, long_answer, words_of
from tests.bots.telegram.rig import Rig

ANSWER = long_answer()


def test_the_answer_is_what_it_claims_to_be() -> None:
    assert len(ANSWER) >= CHARACTERS
    assert words_of(ANSWER) == [f"w{number}" for number in range(1, len(words_of(ANSWER)) + 1)]
    parts = [json.loads(body)["text"] for body in render(ANSWER)]
    assert words_of("\n".join(parts)) == words_of(ANSWER)
    assert len(parts) >= 10


@pytest.mark.parametrize("streaming", ["auto", "edit", "off"])
@pytest.mark.parametrize("where", ["group", "private"])
async def test_it_is_said_once_and_whole(where: str, streaming: str) -> None:
    async with Rig(ANSWER, seconds=60.0, streaming=streaming) as rig:
        alice = rig.telegram.person("Alice")
        place: Person | Chat = alice
        if where == "group":
            place = rig.telegram.group("Friends", owner=alice)
        for after, method in ((2, "sendMessage"), (4, "editMessageText"), (9, "sendMessage")):
            rig.telegram.fault(method, Answer(429, retry_after=3), after=after)
        rig.telegram.write(alice, "tell me", place, mention=where == "group")
        await rig.until(lambda: bool(rig.leaving(place)))
        await rig.quiet(place)
        texts = rig.telegram.texts(place)
        assert texts == [json.loads(body)["text"] for body in render(ANSWER)]
        assert words_of("\n".join(texts)) == words_of(ANSWER)
        rig.assert_paced(place)
        assert not [sent for sent in rig.telegram.sent(place) if sent.deleted]
        calls = rig.leaving(place)
        refused = [call.at for call in calls if call.status == 429]
        assert refused and all(
            not refusal < call.at < refusal + 3 for refusal in refused for call in calls
        )
