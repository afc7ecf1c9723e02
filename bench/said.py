"""What is said in every run: exchanges of 200 and 800 bytes on average, and how long the window is.

Deterministic, and no two exchanges are equal: their number stands in front.
"""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Final, NamedTuple

from core.memory import BOT_MEMORY

WORDS: Final = (
    "the of to and a in is it you that he was for on are with as his they be at one have this "
    "from or had by hot but some what there we can out other were all your when up use word how "
    "said an each she which do their time if will way about many then them would write like so "
    "these her long make thing see him two has look more day could go come did my sound no most "
    "number who over know water than call first people may down side been now find any new work "
    "part take get place made live where after back little only round man year came show every "
    "good me give our under name very through just form much great think say help low line before "
    "turn cause same mean differ move right boy old too does tell sentence set three want air well"
).split()
POOL: Final = 256
SPREAD: Final = 0.6


class Exchange(NamedTuple):
    """What a person said and what was answered; blocks and body as they are stored."""

    number: int
    user: str
    answer: str

    @property
    def user_blocks(self) -> bytes:
        return _blocks(self.user)

    @property
    def answer_blocks(self) -> bytes:
        return _blocks(self.answer)

    @property
    def body(self) -> str:
        """The reply as its platform takes it."""
        return json.dumps({"text": self.answer, "entities": []}, separators=(",", ":"))

    @property
    def user_message(self) -> bytes:
        return b'{"role":"user","content":%b}' % self.user_blocks

    @property
    def answer_message(self) -> bytes:
        return b'{"role":"assistant","content":%b}' % self.answer_blocks

    @property
    def payload(self) -> int:
        """Bytes of the two messages as a request carries them."""
        return len(self.user_message) + len(self.answer_message)


def exchange(number: int) -> Exchange:
    user, answer = _pool()[number % POOL]
    return Exchange(number, f"{number}: {user}", f"{number}: {answer}")


def exchanges(count: int, first: int = 0) -> list[Exchange]:
    return [exchange(first + index) for index in range(count)]


def in_window(messages: int) -> int:
    """How many of a chat's messages the next load must see, when it grew by exchanges of two."""
    bound, kept = BOT_MEMORY.max_messages, BOT_MEMORY.trim_to
    assert bound is not None
    if messages <= bound:
        return messages
    # With the new message no more than `trim_to` stay, in whole exchanges; then its answer joins.
    smallest = (kept - 1) // 2 * 2 + 2
    return smallest + (messages - bound - 2) % (bound - smallest + 2)


@cache
def _pool() -> tuple[tuple[str, str], ...]:
    generator = random.Random(1)
    weights = [1 / (rank + 1) ** 0.7 for rank in range(len(WORDS))]

    def text(mean: float) -> str:
        # Of varying length, as people write: else all rows would fit a page well, or all badly.
        length = round(mean * generator.lognormvariate(-SPREAD * SPREAD / 2, SPREAD))
        return " ".join(generator.choices(WORDS, weights, k=length))[:length]

    return tuple((text(140), text(735)) for _ in range(POOL))


def _blocks(text: str) -> bytes:
    return json.dumps([{"type": "text", "text": text}], separators=(",", ":")).encode()
