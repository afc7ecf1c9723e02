"""When something may leave for a chat."""

from __future__ import annotations

import pytest

from core.pace import LONGEST_WAIT, Pace
from tests.core.fakes import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def pace(clock: FakeClock) -> Pace:
    return Pace(clock)


def test_nothing_waits_that_was_not_told_to(pace: Pace) -> None:
    assert pace.wait("a") == 0


def test_a_penalty_is_kept_until_it_is_over_and_only_for_its_chat(
    clock: FakeClock, pace: Pace
) -> None:
    pace.later("a", 30)
    assert pace.wait("a") == 30
    assert pace.wait("b") == 0
    clock.advance(29)
    assert pace.wait("a") == pytest.approx(1)
    clock.advance(1)
    assert pace.wait("a") == 0
    assert pace.wait("a") == 0


def test_the_wall_clock_may_jump(clock: FakeClock, pace: Pace) -> None:
    pace.later("a", 30)
    clock.jump(86_400_000)
    assert pace.wait("a") == 30


def test_a_shorter_penalty_does_not_end_a_longer_one(pace: Pace) -> None:
    pace.later("a", 30)
    pace.later("a", 5)
    assert pace.wait("a") == 30
    pace.failed("a")
    assert pace.wait("a") == 30
    pace.later("a", 60)
    assert pace.wait("a") == 60


def test_a_success_does_not_end_a_penalty_that_another_request_met(pace: Pace) -> None:
    pace.later("a", 30)
    pace.succeeded("a")
    assert pace.wait("a") == 30


def test_failures_wait_longer_each_time_and_a_success_begins_anew(
    clock: FakeClock, pace: Pace
) -> None:
    waits = []
    for _ in range(11):
        pace.failed("a")
        waits.append(pace.wait("a"))
        clock.advance(waits[-1])
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    pace.succeeded("a")
    pace.failed("a")
    assert pace.wait("a") == 1


def test_an_outage_of_days_does_not_overflow(clock: FakeClock, pace: Pace) -> None:
    for _ in range(2_000):
        pace.failed("a")
        clock.advance(LONGEST_WAIT)
    pace.failed("a")
    assert pace.wait("a") == LONGEST_WAIT


def test_a_time_that_is_over_already_is_now(pace: Pace) -> None:
    pace.later("a", -5)
    assert pace.wait("a") == 0
