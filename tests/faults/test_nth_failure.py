"""The n-th call fails, for n = 1, 2, ... until a run meets no failure: of the store, of the
platform, of the model. After all time has passed nothing may be lost, doubled, out of order or
half.

Each run is a scenario of a few messages in milliseconds. What is checked is in `verdict.py`, how
the world behaves in `rig.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from core import phrases
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
from core.gate import CODE
from tests.faults.faulty_store import Call, Fault, Kind, Moment
from tests.faults.rig import CHAT, Rig, SendFault
from tests.faults.verdict import findings

MOST_CALLS = 400

Scenario = Callable[[Rig], Awaitable[None]]


async def ordinary(rig: Rig) -> None:
    rig.says("t1")
    await rig.run()
    rig.says("t2")


async def tool_turn(rig: Rig) -> None:
    rig.says("t1 tool")
    await rig.run()
    rig.says("t2")


async def three_parts(rig: Rig) -> None:
    rig.says("t1 long")
    await rig.run()
    rig.says("t2")


async def reset_during_a_turn(rig: Rig) -> None:
    rig.says("t1")
    await rig.run()
    rig.hold("t2")
    rig.says("t2 tool")
    await rig.run()
    rig.says("/reset")
    await rig.run()
    rig.release()
    rig.says("t3")


async def reset_of_a_long_answer(rig: Rig) -> None:
    rig.says("t1 long")
    await rig.run(25)
    rig.says("/reset")
    rig.says("t2 long")


async def stop(rig: Rig) -> None:
    rig.says("t1")
    await rig.run()
    rig.hold("t2")
    rig.says("t2")
    await rig.run()
    rig.says("/stop")
    await rig.run()
    rig.release()
    rig.says("t3")


async def collect_of_three(rig: Rig) -> None:
    rig.hold("t1")
    rig.says("t1")
    await rig.run()
    for text in ("t2", "t3", "t4"):
        rig.says(text)
        await rig.run(5)
    rig.release()


async def move(rig: Rig) -> None:
    rig.says("t1")
    await rig.run()
    rig.hold("t2")
    rig.says("t2 long")
    await rig.run()
    rig.moves_to("test:9")
    await rig.run(10)
    rig.release()
    await rig.run()
    rig.says("t3")


async def unannounced_move(rig: Rig) -> None:
    """The platform says it when something is sent there."""
    rig.says("t1")
    await rig.run()
    rig.hold("t2")
    rig.says("t2 long")
    await rig.run()
    rig.moves_to("test:9", announced=False)
    rig.release()


async def first_message(rig: Rig) -> None:
    rig.says("t1")


async def two_chats(rig: Rig) -> None:
    for text in ("t1", "t3"):
        rig.says(text)
        rig.says(text.replace("t", "t10"), "test:2")
        await rig.run(12)


async def commands(rig: Rig) -> None:
    rig.says("/start")
    rig.hold("t1")
    rig.says("t1")
    await rig.run()
    rig.says("/help")
    await rig.run()
    rig.release()
    rig.says("/id")


async def undo(rig: Rig) -> None:
    rig.says("t1")
    await rig.run()
    rig.hold("t2")
    rig.says("t2")
    await rig.run()
    rig.says("/undo")
    await rig.run()
    rig.release()
    rig.says("t3")
    await rig.run()
    rig.says("/undo")


async def retry(rig: Rig) -> None:
    rig.says("t1 tool")
    await rig.run()
    rig.says("/retry")
    await rig.run()
    rig.hold("t2")
    rig.says("t2")
    await rig.run()
    rig.says("/retry")
    await rig.run()
    rig.release()


async def export(rig: Rig) -> None:
    rig.says("t1")
    await rig.run()
    rig.hold("t2")
    rig.says("t2")
    await rig.run()
    rig.says("/export json")
    await rig.run()
    rig.release()


async def forget(rig: Rig) -> None:
    rig.says("t1")
    await rig.run()
    rig.hold("t2")
    rig.says("t2")
    await rig.run()
    rig.says("/forget yes")
    await rig.run()
    rig.release()
    rig.says("t3")


async def approved(rig: Rig) -> None:
    rig.presses = "+"
    rig.says("t1 ask")
    await rig.run()
    rig.says("t2")


async def declined(rig: Rig) -> None:
    rig.presses = "-"
    rig.says("t1 ask")
    await rig.run()
    rig.says("t2 tool")


async def went_on(rig: Rig) -> None:
    rig.says("t1 ask")
    await rig.run()
    rig.says("t2")


async def never_decided(rig: Rig) -> None:
    rig.says("t1 ask")


async def reset_while_asked(rig: Rig) -> None:
    rig.says("t1 ask")
    await rig.run()
    rig.says("/reset")
    rig.says("t2")


async def stop_while_asked(rig: Rig) -> None:
    rig.says("t1 ask")
    await rig.run()
    rig.says("/stop")
    await rig.run()
    rig.says("t2")


SCENARIOS: tuple[Scenario, ...] = (
    ordinary,
    tool_turn,
    three_parts,
    reset_during_a_turn,
    reset_of_a_long_answer,
    stop,
    collect_of_three,
    move,
    unannounced_move,
    first_message,
    two_chats,
    commands,
    undo,
    retry,
    export,
    forget,
    approved,
    declined,
    went_on,
    never_decided,
    reset_while_asked,
    stop_while_asked,
)
scenarios = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)


async def judged(
    rig: Rig, scenario: Scenario, which: str, *, apologies: bool = False, refusals: bool = False
) -> None:
    """One run, from the first message until nothing happens any more."""
    try:
        await scenario(rig)
        rested = await rig.rest()
        found = await findings(rig, apologies=apologies, refusals=refusals)
        if not rested:
            found.append("it never came to rest")
    finally:
        await rig.end()
    assert not found, "\n".join([which, *found, "", *map(str, rig.log)])


@scenarios
async def test_nothing_fails(scenario: Scenario) -> None:
    rig = Rig()
    await judged(rig, scenario, "nothing fails")
    assert rig.restarts == 0 and not rig.may_repeat
    ran = [event.name for event in rig.log if event.what == "tool"]
    expected = {
        **{"approved": ["t1"], "declined": ["t2"], "went_on": [], "never_decided": []},
        **{"reset_while_asked": [], "stop_while_asked": []},
    }
    assert ran == expected.get(scenario.__name__, ran)


# ---------------------------------------------------------------------- the store


class Nth:
    """Fails the n-th call that can fail in this way, and the next ones.

    :param times: how many in a row
    """

    def __init__(self, number: int, fault: Fault, times: int = 1) -> None:
        self.left = times
        self._skip = number - 1
        self._fault = fault

    def __call__(self, call: Call) -> Fault | None:
        if not self.left or not call.can(self._fault.kind):
            return None
        if self._skip:
            self._skip -= 1
            return None
        self.left -= 1
        return self._fault


STORE_FAULTS = {
    "full, before": (Fault(Kind.FULL), 1),
    "full, after": (Fault(Kind.FULL, Moment.AFTER), 1),
    "full, three times": (Fault(Kind.FULL), 3),
    "full, three times after": (Fault(Kind.FULL, Moment.AFTER), 3),
    "cancelled, before": (Fault(Kind.CANCELLED), 1),
    "cancelled, after": (Fault(Kind.CANCELLED, Moment.AFTER), 1),
    "cancelled, later": (Fault(Kind.CANCELLED, Moment.LATER), 1),
    "corrupt, before": (Fault(Kind.CORRUPT), 1),
    "corrupt, after": (Fault(Kind.CORRUPT, Moment.AFTER), 1),
    "unreadable": (Fault(Kind.UNREADABLE), 1),
}
store_faults = pytest.mark.parametrize(("fault", "times"), STORE_FAULTS.values(), ids=STORE_FAULTS)


@scenarios
@store_faults
async def test_nth_store_call_fails(scenario: Scenario, fault: Fault, times: int) -> None:
    for number in range(1, MOST_CALLS):
        plan = Nth(number, fault, times)
        await judged(
            Rig(plan=plan),
            scenario,
            f"call {number}: {fault}",
            apologies=fault.kind is Kind.UNREADABLE,
        )
        if plan.left == times:
            return
    raise AssertionError("there is no end of it")


async def pairing(rig: Rig) -> None:
    await rig.disk.notes.put(CODE, b"SESAME", was=None)
    rig.says("/start SESAME")
    await rig.run()
    rig.says("t1")


@store_faults
async def test_nth_store_call_of_a_pairing_fails(fault: Fault, times: int) -> None:
    for number in range(1, MOST_CALLS):
        plan = Nth(number, fault, times)
        rig = Rig(plan=plan, owner=False)
        await judged(
            rig, pairing, f"call {number}: {fault}", apologies=fault.kind is Kind.UNREADABLE
        )
        assert await rig.disk.notes.get(CODE) is None
        if plan.left == times:
            return
    raise AssertionError("there is no end of it")


# ---------------------------------------------------------------------- the platform


def _nothing(rig: Rig) -> None: ...


def _migrated(rig: Rig) -> None:
    """The chat has another name from this send on."""
    if CHAT not in rig.moves:
        rig.moves_to("test:9", announced=False)


SEND_FAULTS: dict[str, tuple[Callable[[], BaseException | None], bool, Callable[[Rig], None]]] = {
    "wait a little": (lambda: TryLater(2), False, _nothing),
    "wait long": (lambda: TryLater(300), False, _nothing),
    "unknown, not sent": (lambda: OutcomeUnknown("no answer"), False, _nothing),
    "unknown, sent": (lambda: OutcomeUnknown("no answer"), True, _nothing),
    "gone": (lambda: Gone("blocked"), False, _nothing),
    "moved": (lambda: None, True, _migrated),
    "undeliverable": (lambda: Undeliverable("too odd"), False, _nothing),
    "a bug": (lambda: KeyError("a bug"), False, _nothing),
    "a bug, sent": (lambda: KeyError("a bug"), True, _nothing),
    "cancelled, not sent": (asyncio.CancelledError, False, _nothing),
    "cancelled, sent": (asyncio.CancelledError, True, _nothing),
}


@scenarios
@pytest.mark.parametrize("how", SEND_FAULTS)
async def test_nth_send_fails(scenario: Scenario, how: str) -> None:
    make, shown, before = SEND_FAULTS[how]
    for number in range(1, MOST_CALLS):
        rig = Rig()
        met = False

        def plan(call: int, rig: Rig = rig, number: int = number) -> SendFault | None:
            nonlocal met
            if call != number:
                return None
            met = True
            return SendFault(make(), shown, lambda: before(rig))

        rig.send_plan = plan
        await judged(rig, scenario, f"send {number}: {how}")
        if not met:
            return
    raise AssertionError("there is no end of it")


# ---------------------------------------------------------------------- the model


MODEL_FAULTS: dict[str, Callable[[], BaseException]] = {
    "overloaded": lambda: ModelUnavailable("529"),
    "later": lambda: ModelUnavailable("429", 2.0),
    "much later": lambda: ModelUnavailable("429", 30.0),
    "in an hour": lambda: ModelUnavailable("429", 3600.0),
    "no key": lambda: ModelRefusedKey("401"),
    "no such model": lambda: ModelNotFound("404"),
    "rejected": lambda: ModelRejected("400"),
    "a bug": lambda: ZeroDivisionError("a bug"),
    "time-out": lambda: TimeoutError("a bug"),
    "cancelled": asyncio.CancelledError,
}


@scenarios
@pytest.mark.parametrize("how", MODEL_FAULTS)
@pytest.mark.parametrize("times", [1, 3, 5])
async def test_nth_model_call_fails(scenario: Scenario, how: str, times: int) -> None:
    for number in range(1, MOST_CALLS):
        rig = Rig()
        met = False

        def plan(call: int, number: int = number) -> BaseException | None:
            nonlocal met
            if not number <= call < number + times:
                return None
            met = True
            return MODEL_FAULTS[how]()

        rig.model_plan = plan
        await judged(rig, scenario, f"model call {number}: {how}", apologies=True)
        if times == 1 and how in ("overloaded", "later", "much later", "cancelled"):
            said = [event.text for event in rig.log if event.what == "shown"]
            assert phrases.UNAVAILABLE not in said and phrases.GAVE_UP not in said
        if not met:
            return
    raise AssertionError("there is no end of it")
