"""Measurements: distributions, the fit of batch times, the gap between arrivals; and the heap of deadlines."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.patterns.batching.estimate import ArrivalGap, BatchTimes
from callboard.patterns.requests.deadlines import FEW, Deadlines
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.stats import Distribution, Histogram


@given(st.lists(st.floats(1e-7, 1e5), min_size=1, max_size=200))
def test_quantiles_are_close(values: list[float]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    found = histogram.snapshot()
    assert (found.count, found.max) == (len(values), max(values))
    assert found.mean == pytest.approx(sum(values) / len(values))
    for q, value in ((0.5, found.p50), (0.9, found.p90), (0.99, found.p99)):
        assert value == pytest.approx(sorted(values)[math.ceil(q * len(values)) - 1], rel=0.023)


@given(st.lists(st.floats(1e-7, 1e5), max_size=50), st.lists(st.floats(1e-7, 1e5), max_size=50))
def test_what_was_added_since(before: list[float], after: list[float]) -> None:
    histogram, earlier, added = Histogram(), Histogram(), Histogram()
    for value in before:
        histogram.add(value)
        earlier.add(value)
    for value in after:
        histogram.add(value)
        added.add(value)
    found, expected = histogram.since(earlier), added.snapshot()
    assert found.count == expected.count
    scale = sum(before) + sum(after)
    assert found.mean * found.count == pytest.approx(expected.mean * expected.count, abs=1e-9 * scale)
    for name in ("p50", "p90", "p99", "max"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=0.046)
    earlier.add_all(added)
    assert histogram.since(earlier).count == 0


def test_the_sum_of_whole_numbers_is_exact() -> None:
    histogram = Histogram()
    for _ in range(49):
        histogram.add(1)
    assert (1 / 49) * 49 != 1.0  # a mean times a count is not
    assert histogram.snapshot().sum == 49
    for size in (7, 3, 11):
        histogram.add(size)
    assert histogram.snapshot().sum == 70


def test_no_value_and_zero() -> None:
    histogram = Histogram()
    assert histogram.snapshot() == Distribution(0, 0.0, 0.0, 0.0, 0.0, 0.0)
    histogram.add(0.0)
    assert histogram.snapshot().max == 0.0


@given(st.floats(1e-5, 1e-2), st.floats(0, 1e-1), st.lists(st.integers(1, 64), min_size=1, max_size=60))
def test_the_fit_finds_the_line(per_item: float, fixed: float, sizes: list[int]) -> None:
    times = BatchTimes()
    for n in sizes:
        times.add(n, per_item * n + fixed)
    if len(set(sizes)) > 1:
        assert times.fit[0] == pytest.approx(per_item, rel=1e-3)
        assert times.fit[1] == pytest.approx(fixed, rel=1e-3, abs=1e-4 * per_item)
    else:
        assert times.fit[0] == pytest.approx(per_item + fixed / sizes[0])
        assert times.fit[1] == 0.0
    assert times.seconds(sizes[0]) == pytest.approx(per_item * sizes[0] + fixed, rel=1e-3)


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(0, 1)), max_size=40))
def test_neither_part_of_the_fit_is_negative(batches: list[tuple[int, float]]) -> None:
    times = BatchTimes()
    for n, seconds in batches:
        times.add(n, seconds)
    assert min(times.fit) >= 0
    assert times.known is bool(batches)


def test_the_fit_follows_a_model_that_has_become_slower() -> None:
    times = BatchTimes()
    for seconds in (0.001, 0.010):
        for n in np.tile([1, 2, 4, 8], 100).tolist():
            times.add(n, seconds * n)
    assert times.seconds(4) == pytest.approx(0.040, rel=0.05)


def test_one_slow_batch_hardly_moves_the_fit() -> None:
    times = BatchTimes()
    for n in np.tile([1, 2, 4, 8], 20).tolist():
        times.add(n, 0.001 * n + 0.010)
    times.add(4, 30.0)
    assert times.seconds(4) == pytest.approx(0.014, rel=0.1)


def test_the_gap_needs_two_batches() -> None:
    gap = ArrivalGap()
    assert (gap.seconds, gap.last) == (None, None)
    gap.arrived(1.0)
    gap.taken(1.0)
    assert (gap.seconds, gap.last) == (None, 1.0)
    gap.taken(1.5)
    assert gap.seconds is None  # nothing has arrived in between
    gap.arrived(1.6)
    gap.taken(2.0)
    assert gap.seconds == pytest.approx(0.99)


@pytest.mark.parametrize("burst", [1, 16, 128])
def test_the_gap_does_not_depend_on_bursts(burst: int) -> None:
    gap = ArrivalGap()
    for step in range(60):
        for _ in range(burst):
            gap.arrived(step * 0.0005 * burst)
        gap.taken(step * 0.0005 * burst)
    assert gap.seconds == pytest.approx(0.0005)
    gap.taken(1e6)  # idle since: for as long as that, it says no more than a second would
    assert gap.seconds is not None
    assert 0.0005 < gap.seconds < 1.0


# -- deadlines ---------------------------------------------------------------------------------------------------------


def entry(number: int, deadline: float | None, admit_by: float | None = None) -> Entry:
    made = Entry(number, None, 0.0, deadline=deadline)
    made.admit_by = admit_by
    made.state = State.QUEUED
    return made


def test_what_is_due_comes_out_and_no_more() -> None:
    deadlines = Deadlines()
    for number, when in enumerate([3.0, 1.0, None, 2.0]):
        deadlines.add(entry(number, when))
    assert deadlines.next == 1.0
    assert [each.number for each in deadlines.due(2.0)] == [1, 3]
    assert deadlines.next == 3.0
    assert deadlines.due(2.9) == []


def test_a_limit_of_room_is_only_for_those_that_have_none() -> None:
    deadlines = Deadlines()
    waiting, admitted = entry(0, 9.0, admit_by=1.0), entry(1, 9.0, admit_by=1.0)
    waiting.state = State.BLOCKED
    for each in (waiting, admitted):
        deadlines.add(each)
    assert deadlines.due(1.0) == [waiting]
    assert deadlines.due(9.0) == [waiting, admitted]  # each once more, at its deadline


def test_ended_entries_do_not_pile_up_until_their_deadlines() -> None:
    deadlines = Deadlines()
    open_ = [entry(number, 1e9, admit_by=1e8) for number in range(10)]
    for each in open_:
        deadlines.add(each)
    for number in range(10, 10_000):
        short = entry(number, 1e9, admit_by=1e8)
        deadlines.add(short)
        short.state = State.ENDED
        deadlines.ended(short)
    assert len(deadlines) <= 2 * len(open_) + 2 * FEW + 2
    assert {each.number for each in deadlines.due(1e9)} == set(range(10))
