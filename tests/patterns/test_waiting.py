"""The bounded queue: order, bounds and what happens beyond them, against a list."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.errors import ItemTooLarge, QueueFull
from callboard.patterns.requests.waiting import OverflowPolicy, QueueOptions, WaitingLine


def line_of(count: int = 3, cost: float | None = None, overflow: str = "reject", ageing: float | None = None) -> Any:
    return WaitingLine(count, QueueOptions(max_cost=cost, overflow=OverflowPolicy(overflow), ageing=ageing))


def entry(number: int, **fields: Any) -> Entry:
    return Entry(number, f"item {number}", fields.pop("arrived", float(number)), **fields)


def drain(line: WaitingLine) -> list[int]:
    order = []
    while line.count:
        order.append(line.pop(line.buckets()[0]).number)
    return order


def test_equal_priorities_are_first_in_first_out() -> None:
    line = line_of(8)
    for number in range(5):
        line.add(entry(number), may_block=False)
    assert drain(line) == [0, 1, 2, 3, 4]


def test_strict_priorities_ignore_how_long_others_wait() -> None:
    line = line_of(8)
    for number, priority in enumerate([0, 0, 5, 1]):
        line.add(entry(number, priority=priority), may_block=False)
    assert drain(line) == [2, 3, 0, 1]


@pytest.mark.parametrize("later, order", [(9.0, [1, 0]), (10.0, [0, 1]), (11.0, [0, 1])])
def test_a_level_of_priority_is_worth_so_many_seconds(later: float, order: list[int]) -> None:
    line = line_of(8, ageing=10.0)
    line.add(entry(0, arrived=0.0), may_block=False)
    line.add(entry(1, arrived=later, priority=1), may_block=False)
    assert drain(line) == order


def test_a_full_queue_says_how_full_it_is() -> None:
    line = line_of(2)
    line.add(entry(0), may_block=False)
    line.add(entry(1), may_block=False)
    with pytest.raises(QueueFull, match="2 of 2 requests") as caught:
        line.add(entry(2), may_block=True)
    assert (caught.value.limit, caught.value.depth) == (2, 2)
    assert drain(line) == [0, 1]


def test_a_full_queue_by_cost() -> None:
    line = line_of(9, cost=10.0)
    line.add(entry(0, cost=7.0), may_block=False)
    with pytest.raises(QueueFull, match="7 of 10 cost"):
        line.add(entry(1, cost=4.0), may_block=False)
    line.add(entry(2, cost=3.0), may_block=False)
    with pytest.raises(ItemTooLarge, match="costs 11, and max_cost of the queue is 10: split it"):
        line.add(entry(3, cost=11.0), may_block=False)
    assert (line.count, line.cost) == (2, 10.0)


def test_the_oldest_are_dropped_of_any_priority() -> None:
    line = line_of(9, cost=4.0, overflow="drop_oldest")
    for number, priority in enumerate([1, 0, 2, 0]):
        line.add(entry(number, priority=priority), may_block=False)
    dropped = line.add(entry(4, cost=2.5), may_block=False)
    assert [each.number for each in dropped] == [0, 1, 2]
    assert drain(line) == [3, 4]


def test_the_youngest_of_the_lowest_priority_are_dropped_but_none_of_the_own() -> None:
    line = line_of(4, overflow="drop_lowest_priority")
    for number, priority in enumerate([1, 0, 0, 2]):
        line.add(entry(number, priority=priority), may_block=False)
    assert [each.number for each in line.add(entry(4, priority=2), may_block=False)] == [2]
    assert [each.number for each in line.add(entry(5, priority=2), may_block=False)] == [1]
    with pytest.raises(QueueFull):
        line.add(entry(6, priority=1), may_block=False)
    assert drain(line) == [3, 4, 5, 0]


def test_none_is_dropped_where_that_makes_no_room() -> None:
    line = line_of(9, cost=10.0, overflow="drop_lowest_priority")
    line.add(entry(0, cost=1.0), may_block=False)
    line.add(entry(1, cost=9.0, priority=1), may_block=False)
    with pytest.raises(QueueFull):
        line.add(entry(2, cost=5.0, priority=1), may_block=False)
    assert drain(line) == [1, 0]


def test_who_waits_for_room_gets_it_in_order() -> None:
    line = line_of(2, overflow="block")
    entries = [entry(number) for number in range(5)]
    for each in entries:
        assert line.add(each, may_block=True) == []
    with pytest.raises(QueueFull):
        line.add(entry(5), may_block=False)
    assert [each.state for each in entries] == [State.QUEUED] * 2 + [State.BLOCKED] * 3
    line.remove(entries[0])
    line.remove(entries[3])  # a blocked one leaves as cheaply
    assert [each.number for each in line.admit_blocked()] == [2]
    assert (line.count, line.blocked) == (2, 1)
    assert drain(line) == [1, 2]
    assert line.admit_blocked() == [entries[4]]


def test_a_small_item_does_not_overtake_a_large_one_that_waits_for_room() -> None:
    line = line_of(9, cost=4.0, overflow="block")
    entries = [entry(number, cost=cost) for number, cost in enumerate([3, 3, 1])]
    for each in entries:
        line.add(each, may_block=True)
    assert [each.state for each in entries] == [State.QUEUED, State.BLOCKED, State.BLOCKED]
    line.remove(entries[0])
    assert line.admit_blocked() == entries[1:]


def test_restored_entries_stand_where_they_stood() -> None:
    line = line_of(3)
    for number in range(3):
        line.add(entry(number), may_block=False)
    taken = [line.pop(line.buckets()[0]) for _ in range(2)]
    line.add(entry(3), may_block=False)
    line.add(entry(4), may_block=False)
    line.restore(reversed(taken))  # beyond the bound: they were admitted
    assert drain(line) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("fields", [{"count": 0}, {"cost": 0.0}, {"cost": float("nan")}, {"ageing": 0.0}])
def test_bounds_that_hold_nothing_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        line_of(**fields)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 5))), st.sampled_from([None, 0.5, 2.0]))
def test_an_older_entry_of_the_same_priority_is_never_overtaken(
    arrivals: list[tuple[int, float]], ageing: float | None
) -> None:
    line = line_of(1000, ageing=ageing)
    now = 0.0
    for number, (priority, gap) in enumerate(arrivals):
        now += gap
        line.add(entry(number, arrived=now, priority=priority), may_block=False)
    order = drain(line)
    assert sorted(order) == list(range(len(arrivals)))
    for priority in range(4):
        of_level = [number for number in order if arrivals[number][0] == priority]
        assert of_level == sorted(of_level)


class LineMachine(RuleBasedStateMachine):
    """Adds, removals and takes in any order: sums and bounds hold, and the order is that of a sorted list."""

    @initialize(
        count=st.integers(1, 5), cost=st.sampled_from([None, 6.0]), overflow=st.sampled_from(list(OverflowPolicy))
    )
    def make(self, count: int, cost: float | None, overflow: OverflowPolicy) -> None:
        self.line = WaitingLine(count, QueueOptions(max_cost=cost, overflow=overflow, ageing=2.0))
        self.waiting: list[Entry] = []
        self.blocked: list[Entry] = []
        self.number = 0

    @rule(priority=st.integers(0, 2), cost=st.integers(1, 4), key=st.integers(0, 2), may_block=st.booleans())
    def add(self, priority: int, cost: int, key: int, may_block: bool) -> None:
        new = entry(self.number, priority=priority, cost=cost, key=key)
        self.number += 1
        before = list(self.waiting)
        try:
            dropped = self.line.add(new, may_block=may_block)
        except QueueFull:
            assert self.waiting == before
            assert new.state is State.NEW
            return
        assert all(each in self.waiting and each.state is State.NEW for each in dropped)
        self.waiting = [each for each in self.waiting if each not in dropped]
        (self.blocked if new.state is State.BLOCKED else self.waiting).append(new)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        candidates = self.waiting + self.blocked
        if candidates:
            leaver = data.draw(st.sampled_from(candidates))
            self.line.remove(leaver)
            self.line.remove(leaver)  # the second time nothing happens
            (self.waiting if leaver in self.waiting else self.blocked).remove(leaver)

    @rule()
    def admit(self) -> None:
        admitted = self.line.admit_blocked()
        assert admitted == self.blocked[: len(admitted)]
        del self.blocked[: len(admitted)]
        self.waiting += admitted

    @rule()
    def take(self) -> None:
        if self.waiting:
            best = min(self.waiting, key=self.line.rank)
            assert self.line.pop(self.line.buckets()[0]) is best
            self.waiting.remove(best)

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        buckets = self.line.buckets()
        if buckets:
            bucket = data.draw(st.sampled_from(buckets))
            taken = self.line.take(bucket, min(2, bucket.count))
            self.line.restore(taken)

    @invariant()
    def sums_and_bounds(self) -> None:
        assert self.line.count == len(self.waiting) <= self.line.max_queue
        assert self.line.cost == sum(each.cost for each in self.waiting)
        assert self.line.options.max_cost is None or self.line.cost <= self.line.options.max_cost
        assert self.line.blocked == len(self.blocked)
        assert {each.number for each in self.line.entries()} == {each.number for each in self.waiting}
        assert sum(bucket.count for bucket in self.line.buckets()) == len(self.waiting)


TestLine = LineMachine.TestCase
TestLine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
