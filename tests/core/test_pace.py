"""When something may leave for a chat."""

from __future__ import annotations

import pytest

from core.adapter import Rate
from core.pace import LONGEST_PENALTY, LONGEST_WAIT, NOTE, Pace
from tests.core.fakes import FakeClock, MemoryNotes

RATE = Rate(burst=4, per_second=0.5)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def pace(clock: FakeClock) -> Pace:
    return Pace(clock)


def test_nothing_waits_that_was_not_told_to(pace: Pace) -> None:
    assert pace.wait("a") == 0


async def test_a_penalty_is_kept_until_it_is_over_and_only_for_its_chat(
    clock: FakeClock, pace: Pace
) -> None:
    await pace.later("a", 30)
    assert pace.wait("a") == 30
    assert pace.wait("b") == 0
    clock.advance(29)
    assert pace.wait("a") == pytest.approx(1)
    clock.advance(1)
    assert pace.wait("a") == 0
    assert pace.wait("a") == 0


async def test_the_wall_clock_may_jump(clock: FakeClock, pace: Pace) -> None:
    await pace.later("a", 30)
    clock.jump(86_400_000)
    assert pace.wait("a") == 30


async def test_a_shorter_penalty_does_not_end_a_longer_one(pace: Pace) -> None:
    await pace.later("a", 30)
    await pace.later("a", 5)
    assert pace.wait("a") == 30
    pace.failed("a")
    assert pace.wait("a") == 30
    await pace.later("a", 60)
    assert pace.wait("a") == 60


async def test_a_success_does_not_end_a_penalty_that_another_request_met(pace: Pace) -> None:
    await pace.later("a", 30)
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


async def test_a_time_that_is_over_already_is_now(pace: Pace) -> None:
    await pace.later("a", -5)
    assert pace.wait("a") == 0


def test_a_burst_leaves_at_once_and_the_rest_at_the_rate(clock: FakeClock, pace: Pace) -> None:
    left = 0
    while pace.wait("a", RATE) == 0:
        pace.take("a", RATE)
        left += 1
    assert left == 4
    assert pace.wait("a", RATE) == 2
    assert pace.wait("b", RATE) == 0
    clock.advance(2)
    assert pace.wait("a", RATE) == 0
    clock.advance(3_600)
    for _ in range(4):
        pace.take("a", RATE)
    assert pace.wait("a", RATE) == 2


def test_what_matters_less_leaves_room_for_what_matters_more(pace: Pace) -> None:
    assert pace.may("a", RATE, "typing")
    assert pace.may("a", RATE, "typing")
    assert not pace.may("a", RATE, "typing")
    assert pace.may("a", RATE, "edit")
    assert not pace.may("a", RATE, "edit")
    assert pace.may("a", RATE, "approval")
    assert not pace.may("a", RATE, "final")


def test_a_budget_of_one_is_for_everything(pace: Pace) -> None:
    assert pace.may("a", Rate(1, 1.0), "typing")
    assert not pace.may("a", Rate(1, 1.0), "final")


def test_without_a_rate_only_penalties_count(clock: FakeClock, pace: Pace) -> None:
    assert all(pace.may("a", None, "typing") for _ in range(1_000))
    pace.failed("a")
    assert not pace.may("a", None, "typing")
    assert pace.wait("a", None) == 1


def test_silent_chats_cost_nothing(clock: FakeClock, pace: Pace) -> None:
    for number in range(5_000):
        pace.take(f"chat {number}", RATE)
        clock.advance(0.1)
    assert len(pace._buckets) <= 1_001


async def test_a_penalty_outlives_the_process(clock: FakeClock) -> None:
    notes = MemoryNotes()
    await Pace(clock, notes).later("a", 600)
    await Pace(clock, notes).later("b", 60)
    clock.advance(30)
    restarted = Pace(clock, notes)
    await restarted.open()
    assert restarted.wait("a") == pytest.approx(570)
    assert restarted.wait("b") == pytest.approx(30)
    clock.advance(40)
    await restarted.later("a", 6)
    assert b'"b"' not in (await notes.get(NOTE) or b"")
    assert restarted.wait("a") == pytest.approx(530)


async def test_a_short_penalty_is_not_written(clock: FakeClock) -> None:
    notes = MemoryNotes()
    await Pace(clock, notes).later("a", 3)
    assert notes.kept == {}


async def test_nobody_is_punished_for_longer_than_a_day(clock: FakeClock) -> None:
    notes = MemoryNotes()
    await Pace(clock, notes).later("a", 10 * 86_400)
    restarted = Pace(clock, notes)
    await restarted.open()
    assert restarted.wait("a") == LONGEST_PENALTY


@pytest.mark.parametrize("note", [b"nonsense", b"[]", b'{"a": "b"}'])
async def test_a_note_that_cannot_be_read_is_none(clock: FakeClock, note: bytes) -> None:
    notes = MemoryNotes(**{NOTE: note})
    pace = Pace(clock, notes)
    await pace.open()
    assert pace.wait("a") == 0
    await pace.later("a", 60)
    assert b'"a"' in (await notes.get(NOTE) or b"")


async def test_a_clock_that_was_set_back_makes_no_penalty_longer(clock: FakeClock) -> None:
    notes = MemoryNotes()
    await Pace(clock, notes).later("a", 120)
    clock.jump(-30 * 3_600_000)
    again = Pace(clock, notes, shared=True)
    await again.open()
    assert again.wait("a") == 120
    clock.advance(60)
    await again.refresh()
    assert again.wait("a") == 60, "it does not begin anew"


async def test_another_process_may_write_at_the_same_time(clock: FakeClock) -> None:
    class Contended(MemoryNotes):
        async def put(self, name: str, value: bytes | None, *, was: bytes | None) -> bool:
            if not self.kept:
                now = clock.now()
                self.kept[name] = b'{"theirs": [%d, %d]}' % (now, now + 60_000)
            return await super().put(name, value, was=was)

    notes = Contended()
    await Pace(clock, notes).later("ours", 60)
    kept = await notes.get(NOTE) or b""
    assert b"ours" in kept and b"theirs" in kept


# ---------------------------------------------------------------------- spacing

SPACED = Rate(burst=4, per_second=1.0, spacing=2.0)


def test_two_that_stay_are_apart_however_much_the_budget_has(clock: FakeClock, pace: Pace) -> None:
    assert pace.may("a", SPACED, "final")
    for leaving in ("final", "approval", "edit"):
        assert pace.wait("a", SPACED, leaving) == 2
    clock.advance(1.5)
    assert not pace.may("a", SPACED, "edit")
    clock.advance(0.5)
    assert pace.may("a", SPACED, "edit")
    assert pace.wait("a", SPACED) == 2
    assert pace.wait("b", SPACED) == 0


def test_what_vanishes_is_not_held_to_it_and_holds_nobody_up(pace: Pace) -> None:
    assert pace.may("a", SPACED, "typing")
    assert pace.may("a", SPACED, "draft")
    assert pace.may("a", SPACED, "final")
    assert pace.wait("a", SPACED, "draft") == 1, "of the budget, which is what is short"


def test_the_distance_is_counted_from_when_the_last_one_was_over(
    clock: FakeClock, pace: Pace
) -> None:
    pace.take("a", SPACED)
    clock.advance(1.5)
    pace.left("a", SPACED)
    assert pace.wait("a", SPACED) == 2
    pace.left("a", SPACED, "typing")
    clock.advance(2)
    pace.left("a", SPACED, "draft")
    assert pace.wait("a", SPACED) == 0
    pace.left("a", None)
    pace.left("a", RATE)


async def test_those_who_share_a_place_share_its_rate_and_its_penalties(
    clock: FakeClock, pace: Pace
) -> None:
    rate = Rate(burst=2, per_second=0.5, spacing=1.0, place="hall")
    pace.take("a", rate)
    assert pace.wait("b", rate) == 1
    clock.advance(1)
    pace.take("b", rate)
    assert pace.wait("a", rate) == pytest.approx(1)
    await pace.later("a", 30, rate)
    assert pace.wait("b", rate) == 30
    assert pace.wait("a", RATE) == 0
    pace.failed("a")
    assert pace.wait("a", rate) == 30 and pace.wait("b", rate) == 30


def test_a_long_spacing_is_remembered(clock: FakeClock, pace: Pace) -> None:
    rare = Rate(burst=1, per_second=1.0, spacing=3_600.0)
    pace.take("a", rare)
    for number in range(2_000):
        clock.advance(1)
        pace.take(f"chat {number}", rare)
    assert pace.wait("a", rare) == 1_600
