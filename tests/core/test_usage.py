"""Tokens and money, added up."""

from __future__ import annotations

from core.usage import QUARTER, Spent, Sum, Usage, add_up, newer

ROW = Spent("e1", 1, 7, "m", Usage(1, 2, 3, 4), cost=5, sender="t:42")


def test_usage_adds_up_field_by_field() -> None:
    one = Usage(1, 2, 3, 4, 5, 6)
    assert one + Usage() == one
    assert one + one == Usage(2, 4, 6, 8, 10, 12)
    assert (one.prompt, one.tokens) == (1 + 3 + 4, 1 + 2 + 3 + 4)


def test_sums_add_up_and_stay_what_they_are_of() -> None:
    one = Sum(key="a", calls=1, estimated=1, unpriced=1, usage=Usage(1), cost=2)
    assert one + Sum(key="b", calls=2, usage=Usage(3), cost=4) == Sum(
        key="a", calls=3, estimated=1, unpriced=1, usage=Usage(4), cost=6
    )


def test_what_was_said_is_never_taken_back_by_an_estimate() -> None:
    estimate = Spent("e1", 1, 9, "m", Usage(0, 99), cost=99, estimated=True)
    assert newer(None, estimate) is estimate
    assert newer(ROW, estimate) is ROW
    assert newer(estimate, ROW).cost == 5
    # When it was and for whom stays as it was first said.
    assert (newer(estimate, ROW).at, newer(estimate, ROW).sender) == (9, None)


def test_no_rows_have_no_sum() -> None:
    assert add_up([]) == []
    assert add_up([], ("key",)) == []


def test_groups_come_in_order_with_nobody_first() -> None:
    rows = [
        ("b", ROW),
        ("a", Spent("e2", 1, QUARTER, "m", Usage(1))),
        ("a", Spent("e2", 2, QUARTER, "m", Usage(1), estimated=True)),
    ]
    sums = add_up(rows, ("sender", "key"))
    assert [(each.sender, each.key, each.calls) for each in sums] == [
        (None, "a", 2),
        ("t:42", "b", 1),
    ]
    assert (sums[0].unpriced, sums[0].estimated, sums[0].cost) == (2, 1, 0)
    assert [each.quarter for each in add_up(rows, ("quarter",))] == [0, 1]
