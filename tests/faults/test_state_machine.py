"""Any order of things that people, the platform, the model, the disk and the operator may do.

Hypothesis looks for a short story after which a promise is broken. A story is told to `rig.py` step
by step; then everything heals and all time passes, and `verdict.py` says what is wrong. Always the
same stories, so that a red run is red again: a few hundred here, thousands of others in the long
form (`make test-crash`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from core.answering import WhenBusy
from core.delivery import OnUnknownOutcome
from core.errors import (
    Gone,
    ModelNotFound,
    ModelRefusedKey,
    ModelRejected,
    ModelUnavailable,
    OutcomeUnknown,
    TryLater,
    Undeliverable,
)
from core.messages import Inbound
from tests.faults.faulty_store import Call, Fault, Kind, Moment
from tests.faults.rig import Rig, SendFault
from tests.faults.verdict import findings

EXAMPLES: Final = 500
MORE_EXAMPLES: Final = 1_000
STEPS: Final = 30

SEND_ERRORS: Final[tuple[Callable[[], BaseException], ...]] = (
    lambda: TryLater(2),
    lambda: TryLater(120),
    lambda: Gone("blocked"),
    lambda: Undeliverable("too odd"),
    lambda: KeyError("a bug"),
)
MODEL_ERRORS: Final[tuple[Callable[[], BaseException], ...]] = (
    lambda: ModelUnavailable("529"),
    lambda: ModelUnavailable("429", 30.0),
    lambda: ModelUnavailable("429", 3600.0),
    lambda: ModelRefusedKey("401"),
    lambda: ModelNotFound("404"),
    lambda: ModelRejected("400"),
    lambda: ZeroDivisionError("a bug"),
)

chats = st.sampled_from(["test:1", "test:2"])
some_rounds = st.integers(0, 60)
soon = st.integers(1, 8)


class Story(RuleBasedStateMachine):
    """What may happen. The model of it is the log: who said what, and what came of it."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.rig = Rig()
        self.tokens = 0
        self.said: dict[str, list[Inbound]] = {"test:1": [], "test:2": []}

    @initialize(
        when_busy=st.sampled_from(["collect", "queue", "interrupt"]),
        on_unknown_outcome=st.sampled_from(["resend", "resend", "hold"]),
        seed=st.integers(0, 2**16),
    )
    def begin(self, when_busy: WhenBusy, on_unknown_outcome: OnUnknownOutcome, seed: int) -> None:
        chance = random.Random(seed)
        self.rig = Rig(
            rounds=lambda: chance.randrange(4),
            when_busy=when_busy,
            on_unknown_outcome=on_unknown_outcome,
        )

    def run(self, rounds: int) -> None:
        self.runner.run(self.rig.run(rounds))

    # ------------------------------------------------------------------ people and the platform

    @rule(chat=chats, more=st.sampled_from(["", "", " long", " tool"]), rounds=some_rounds)
    def message(self, chat: str, more: str, rounds: int) -> None:
        self.tokens += 1
        self.said[chat].append(self.rig.says(f"t{self.tokens}{more}", chat))
        self.run(rounds)

    @rule(chat=chats, more=st.sampled_from(["", " tool"]))
    def message_that_takes_long_to_answer(self, chat: str, more: str) -> None:
        self.rig.hold(f"t{self.tokens + 1}")
        self.message(chat, more, 60)

    @rule(first=chats, rounds=some_rounds)
    def messages_in_either_order(self, first: str, rounds: int) -> None:
        for chat in sorted(self.said, key=lambda chat: chat != first):
            self.message(chat, "", 0)
        self.run(rounds)

    @rule()
    def answers_come(self) -> None:
        self.rig.release()
        self.run(60)

    @rule(
        chat=chats,
        text=st.sampled_from(["/reset", "/reset", "/stop", "/stop", "/help"]),
        rounds=some_rounds,
    )
    def command(self, chat: str, text: str, rounds: int) -> None:
        self.said[chat].append(self.rig.says(text, chat))
        self.run(rounds)

    @rule(chat=chats, which=st.integers(0, 50), rounds=some_rounds)
    def said_again(self, chat: str, which: int, rounds: int) -> None:
        """0: the newest at once; else one of long ago."""
        if self.said[chat]:
            self.rig.says_again(self.said[chat][-1 - which % len(self.said[chat])])
        self.run(rounds)

    @rule(chat=chats)
    def edit(self, chat: str) -> None:
        self.rig.says("t99999 changed", chat, kind="edit")
        self.run(5)

    @rule(chat=chats, announced=st.booleans(), rounds=some_rounds)
    def chat_moves(self, chat: str, announced: bool, rounds: int) -> None:
        """Once: a group becomes a supergroup, and a supergroup stays one."""
        if chat not in self.rig.moves:
            self.rig.moves_to(chat.replace(":", ":9"), chat, announced=announced)
        self.run(rounds)

    @rule(chat=chats, rounds=some_rounds)
    def blocks_or_unblocks(self, chat: str, rounds: int) -> None:
        self.rig.blocked ^= {self.rig.now_at(chat)}
        self.run(rounds)

    # ------------------------------------------------------------------ life, death, time

    @rule(rounds=some_rounds)
    def restart(self, rounds: int) -> None:
        self.run(rounds)
        self.runner.run(self.rig.restart())

    @rule(rounds=some_rounds)
    def kill(self, rounds: int) -> None:
        self.run(rounds)
        self.runner.run(self.rig.kill())

    @rule(seconds=st.sampled_from([1.0, 6.0, 70.0, 400.0]))
    def time_passes(self, seconds: float) -> None:
        self.runner.run(self.rig.pass_time(seconds))

    @rule(hours=st.sampled_from([-30, -1, 1, 30]))
    def wall_clock_is_set(self, hours: int) -> None:
        self.rig.clock.jump(hours * 3_600_000)

    # ------------------------------------------------------------------ what fails

    @rule(
        kind=st.sampled_from(list(Kind)),
        moment=st.sampled_from(list(Moment)),
        soon=soon,
        times=st.sampled_from([1, 1, 3]),
        rounds=some_rounds,
    )
    def store_fails(self, kind: Kind, moment: Moment, soon: int, times: int, rounds: int) -> None:
        if kind is Kind.UNREADABLE:
            moment = Moment.BEFORE
        counts = iter(range(1, 10_000))

        def plan(call: Call) -> Fault | None:
            hit = call.can(kind) and soon <= next(counts) < soon + times
            return Fault(kind, moment) if hit else None

        self.rig.plan = plan
        self.run(rounds)

    @rule(make=st.sampled_from(SEND_ERRORS), soon=soon, rounds=some_rounds)
    def send_fails(self, make: Callable[[], BaseException], soon: int, rounds: int) -> None:
        self._next_send(soon, SendFault(make()), rounds)

    @rule(shown=st.booleans(), soon=soon, rounds=some_rounds)
    def send_has_an_unknown_outcome(self, shown: bool, soon: int, rounds: int) -> None:
        self._next_send(soon, SendFault(OutcomeUnknown("no answer"), shown), rounds)

    def _next_send(self, soon: int, fault: SendFault, rounds: int) -> None:
        hit = self.rig.sends + soon
        self.rig.send_plan = lambda number: fault if number == hit else None
        self.run(rounds)

    @rule(make=st.sampled_from(MODEL_ERRORS), soon=soon, times=st.sampled_from([1, 3, 6]))
    def model_fails(self, make: Callable[[], BaseException], soon: int, times: int) -> None:
        hits = range(self.rig.asked + soon, self.rig.asked + soon + times)
        self.rig.model_plan = lambda number: make() if number in hits else None

    # ------------------------------------------------------------------ the promises

    @rule()
    def all_time_passes(self) -> None:
        self.rig.plan = lambda call: None
        self.rig.send_plan = lambda number: None
        self.rig.model_plan = lambda number: None
        self.rig.blocked.clear()
        rested = self.runner.run(self.rig.rest())
        found = self.runner.run(findings(self.rig, apologies=True, refusals=True))
        if not rested:
            found.append("it never came to rest")
        assert not found, "\n".join([*found, "", *map(str, self.rig.log)])

    def teardown(self) -> None:
        # Closed whatever comes: a loop that is left open is a warning in somebody else's test.
        with self.runner:
            try:
                self.all_time_passes()
            finally:
                self.runner.run(self.rig.end())


def _stories(many: int) -> settings:
    return settings(
        database=None,
        max_examples=many,
        stateful_step_count=STEPS,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        # Not `explain`: it traces every line, which makes all of them ten times slower.
        phases=(Phase.generate, Phase.shrink),
    )


# Hundreds of stories, on a machine that may be busy.
TestStory = pytest.mark.timeout(300)(Story.TestCase)
TestStory.settings = settings(_stories(EXAMPLES), derandomize=True)


@pytest.mark.crash
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(1, 6))
def test_other_stories(number: int) -> None:
    run_state_machine_as_test(
        seed(number)(type(f"Story{number}", (Story,), {})), settings=_stories(MORE_EXAMPLES)
    )
