"""Order, caps, bounds and memory of the fair policy."""

from typing import Any

import pytest
from fair_lab import Bench
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from callboard.patterns.fairshare.settings import FairOverflow, Tenant, UnknownTenant, path_of
from callboard.patterns.requests.entries import State
from callboard.patterns.requests.errors import ItemTooLarge, QueueFull

# -- order -------------------------------------------------------------------------------------------------------------


def test_priorities_come_before_fairness() -> None:
    bench = Bench()
    bench.fill("a", 3)
    bench.fill("b", 1)
    bench.fill("a", 2, priority=1)
    bench.fill("c", 1, priority=-1)
    assert bench.run(9) == ["a", "a", "a", "b", "a", "a", "c"]


def test_at_each_priority_shares_are_fair() -> None:
    bench = Bench()
    bench.fill("a", 100)
    bench.run(50)
    bench.fill("a", 10, priority=1)
    bench.fill("b", 10, priority=1)
    assert sorted(bench.run(10)) == ["a"] * 5 + ["b"] * 5


def test_the_earliest_deadline_first_inside_a_tenant() -> None:
    bench = Bench()
    entries = [bench.add("a", deadline=deadline) for deadline in (None, 9.0, 5.0, None, 5.0)]
    assert [bench.take() for _ in entries] == [entries[n] for n in (2, 4, 1, 0, 3)]


def test_one_that_left_is_not_taken() -> None:
    bench = Bench()
    entries = bench.fill("a", 200)
    for entry in entries[1:]:
        bench.policy.remove(entry, bench.now)
        bench.policy.remove(entry, bench.now)  # harmless
    assert bench.take() is entries[0]
    assert bench.take() is None
    bench.finish(entries[0])
    assert bench.names() == set()


# -- caps --------------------------------------------------------------------------------------------------------------


def test_a_cap_in_flight_leaves_the_slots_to_others() -> None:
    bench = Bench({"a": Tenant(weight=100, max_in_flight=2)})
    bench.fill("a", 10)
    bench.fill("b", 3)
    assert [bench.take().item for _ in range(5)] == ["a", "b", "a", "b", "b"]  # type: ignore[union-attr]


def test_nothing_idles_for_a_cap() -> None:
    bench = Bench({"a": Tenant(max_in_flight=1)})
    entries = bench.fill("a", 4)
    taken = [bench.take() for _ in range(3)]
    assert taken == entries[:3]
    bench.fill("b", 2)
    assert bench.run(2) == ["b", "b"]
    assert bench.take() is entries[3]


def test_a_hard_cap_holds_always() -> None:
    bench = Bench({"a": Tenant(max_in_flight=2, hard=True)})
    entries = bench.fill("a", 4)
    assert [bench.take() for _ in range(3)] == [*entries[:2], None]
    assert bench.policy.tree.ready_at(bench.now) is None
    bench.finish(entries[0])
    assert bench.policy.tree.ready_at(bench.now) == bench.now
    assert bench.take() is entries[2]


def test_a_cap_of_a_group_is_that_of_its_members_together() -> None:
    bench = Bench({("g",): Tenant(max_in_flight=2, hard=True)})
    for name in "xyz":
        bench.add(("g", name))
    bench.add("h")
    taken = [bench.take() for _ in range(3)]
    assert {entry.item for entry in taken if entry} >= {"h"}
    assert bench.take() is None
    bench.finish(next(entry for entry in taken if entry and entry.item != "h"))
    assert bench.take() is not None


def test_a_capped_urgent_tenant_waits_for_others_within_their_caps() -> None:
    bench = Bench({"a": Tenant(max_in_flight=1)})
    bench.fill("a", 2, priority=5)
    bench.add("b")
    assert [bench.take().item for _ in range(3)] == ["a", "b", "a"]  # type: ignore[union-attr]


@pytest.mark.parametrize("cost", [1, 3])
def test_a_hard_rate(cost: float) -> None:
    bench = Bench({"a": Tenant(rate=2, burst=4, hard=True, max_queue=1000)})
    bench.fill("a", 200, cost)
    moments = []
    while bench.now < 60:
        while (entry := bench.take()) is not None:
            bench.finish(entry)
            moments.append(bench.now)
        at = bench.policy.tree.ready_at(bench.now)
        assert at is not None
        assert at > bench.now
        bench.now = at
    for n, start in enumerate(moments):
        for m in range(n, len(moments)):
            assert (m - n + 1) * cost <= 4 + cost + 2 * (moments[m] - start) + 1e-6
    assert len(moments) * cost == pytest.approx(2 * 60 + 4, abs=2 * cost)  # and it uses all that it may


def test_a_rate_counts_what_it_did_cost() -> None:
    bench = Bench({"a": Tenant(rate=1, burst=1, hard=True)})
    first, second, third = bench.fill("a", 3)
    assert bench.take() is first
    bench.finish(first, 5)
    assert bench.policy.tree.ready_at(bench.now) == pytest.approx(4)
    bench.now = 4.0
    assert bench.take() is second
    bench.finish(second, 0)
    assert bench.take() is third


def test_a_soft_rate_matters_beside_others_only() -> None:
    bench = Bench({"a": Tenant(rate=1)})
    bench.fill("a", 50)
    assert bench.run(10) == ["a"] * 10
    bench.fill("b", 20)
    assert set(bench.run(20)) == {"b"}
    bench.now = 30.0
    bench.fill("b", 2)
    assert "a" in bench.run(2)


def test_a_cap_that_is_lifted_frees_what_waited() -> None:
    bench = Bench({"a": Tenant(rate=0.001, hard=True)})
    bench.fill("a", 4)
    assert len(bench.run(9)) < 4
    bench.policy.tree.configure(("a",), Tenant(), bench.now)
    assert len(bench.run(9)) >= 2
    assert bench.policy.tree.queued == 0


# -- tenants -----------------------------------------------------------------------------------------------------------


def test_an_unknown_tenant() -> None:
    bench = Bench({"a": Tenant()}, default=None)
    bench.add("a")
    bench.add(("a",))  # the same one
    with pytest.raises(UnknownTenant, match="there is no tenant 'x'") as caught:
        bench.add("x")
    assert caught.value.tenant == "x"
    with pytest.raises(UnknownTenant, match=r"\('a', 'x'\)"):
        bench.add(("a", "x"))
    with pytest.raises(UnknownTenant, match="'x'"):
        bench.policy.tree.settings_of(("x",))
    assert bench.names() == {("a",)}
    assert bench.run(9) == ["a", ("a",)]


def test_idle_tenants_are_forgotten() -> None:
    bench = Bench({"kept": Tenant(max_queue=10_000)})
    bench.fill("kept", 3000)
    for number in range(1000):
        bench.add(("group", number % 7, number))
        bench.run(2)
    assert len(bench.names()) < 10
    assert len(bench.policy.tree._groups) < 12
    bench.run(3000)
    assert bench.names() == {("kept",)}
    assert set(bench.policy.tree._groups) == {()}


def test_a_tenant_refused_at_once_is_forgotten() -> None:
    bench = Bench(max_queue=1)
    bench.add("a")
    for name in range(100):
        with pytest.raises(QueueFull):
            bench.add(name)
    assert bench.names() == {("a",)}


def test_what_a_rate_has_lent_is_not_forgotten() -> None:
    bench = Bench(default=Tenant(rate=1, hard=True))
    bench.add("a", 10)
    bench.run()
    bench.add("a")
    assert bench.take() is None
    bench.now = 9.5
    assert bench.run() == ["a"]
    bench.now = 30.0
    assert bench.policy.tree.ready_at(bench.now) is None
    assert bench.take() is None
    assert bench.names() == set()


@pytest.mark.parametrize(
    "wrong, says",
    [
        ({"weight": 0}, "weight must be a positive number, but is 0"),
        ({"weight": float("inf")}, "weight"),
        ({"max_queue": 0}, "max_queue must be at least 1"),
        ({"max_in_flight": 0}, "max_in_flight must be at least 1"),
        ({"max_queue_cost": 0}, "max_queue_cost must be positive"),
        ({"rate": -1}, "rate must be positive"),
        ({"rate": 1, "burst": 0}, "burst must be positive"),
        ({"burst": 1}, "there is no rate"),
    ],
)
def test_settings_are_checked(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Tenant(**wrong)


def test_a_name_has_a_part() -> None:
    assert path_of("a") == path_of(("a",)) == ("a",)
    with pytest.raises(ValueError, match="empty tuple"):
        path_of(())


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_a_full_tenant_refuses_its_own_only() -> None:
    bench = Bench({"a": Tenant(max_queue=2), "b": Tenant(max_queue_cost=5)})
    bench.fill("a", 2)
    with pytest.raises(QueueFull, match=r"tenant 'a' is full: 2 of 2 requests \(reject\)") as caught:
        bench.add("a")
    assert (caught.value.limit, caught.value.depth) == (2, 2)
    bench.add("b", 4)
    with pytest.raises(QueueFull, match="tenant 'b' is full: 4 of 5 cost"):
        bench.add("b", 2)
    with pytest.raises(ItemTooLarge, match=r"costs 6, and tenant 'b' may queue 5 \(max_queue_cost\)"):
        bench.add("b", 6)
    bench.add("b", 1)
    assert len(bench.run(9)) == 4


def test_the_newest_of_the_largest_makes_room() -> None:
    bench = Bench(max_queue=5, overflow=FairOverflow.DROP_NEWEST_OF_LARGEST)
    flood = bench.fill("flood", 4)
    bench.add("a")
    assert bench.dropped == []
    bench.add("a")
    assert bench.dropped == [flood[3]]
    with pytest.raises(QueueFull, match="all tenants is full: 5 of 5"):
        bench.add("flood")
    bench.add("b")
    assert bench.dropped == [flood[2]]
    with pytest.raises(QueueFull):  # no one has more than it
        bench.add("a")
    bench.run(2)
    bench.fill("b", 2)
    assert bench.dropped == []


def test_blocked_requests_are_admitted_one_of_each_tenant_in_turn() -> None:
    bench = Bench({"a": Tenant(max_queue=2)}, max_queue=3, overflow=FairOverflow.BLOCK)
    a = [bench.add("a", may_block=True) for _ in range(4)]
    b = [bench.add("b", may_block=True) for _ in range(3)]
    assert [entry.state for entry in [*a, *b]] == [State.QUEUED] * 2 + [State.BLOCKED] * 2 + [State.QUEUED] + [
        State.BLOCKED
    ] * 2
    assert bench.policy.admit_blocked() == 0
    with pytest.raises(QueueFull):
        bench.add("c")  # it may not wait
    assert bench.run(2) == ["a", "b"]
    assert bench.policy.admit_blocked() == 2
    assert (a[2].state, b[1].state) == (State.QUEUED, State.QUEUED)
    bench.policy.remove(a[3], bench.now)
    bench.policy.remove(b[2], bench.now)
    assert bench.policy.blocked == 0
    assert sorted(bench.run(9)) == ["a", "a", "b"]
    assert bench.policy.admit_blocked() == 0


def test_a_smaller_one_behind_a_blocked_one_that_left_is_admitted() -> None:
    bench = Bench({"a": Tenant(max_queue_cost=5)}, overflow=FairOverflow.BLOCK)
    bench.add("a", 4)
    big = bench.add("a", 3, may_block=True)
    small = bench.add("a", 1, may_block=True)
    assert bench.policy.admit_blocked() == 0
    bench.policy.remove(big, bench.now)
    assert bench.policy.admit_blocked() == 1
    assert small.state is State.QUEUED


# -- all together ------------------------------------------------------------------------------------------------------

PATHS: list[Any] = ["a", "b", ("g", "x"), ("g", "y"), ("g", "h", "z")]


class Machine(RuleBasedStateMachine):
    """Caps hold, nothing that may run waits while a slot is free, and nothing is left behind."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(
            {
                "a": Tenant(max_in_flight=1, hard=True, max_queue=3),
                "b": Tenant(rate=1, burst=2),
                ("g",): Tenant(weight=2, max_in_flight=2, hard=True),
                ("g", "x"): Tenant(rate=0.5, hard=True),
            },
            max_queue=8,
            overflow=FairOverflow.DROP_NEWEST_OF_LARGEST,
        )
        self.waiting: list[Any] = []
        self.running: list[Any] = []

    @rule(path=st.sampled_from(PATHS), cost=st.integers(0, 3), priority=st.integers(0, 1))
    def add(self, path: Any, cost: int, priority: int) -> None:
        try:
            entry = self.bench.add(path, cost, priority=priority)
        except QueueFull:
            assert len(self.waiting) >= 8 or sum(each.item == path for each in self.waiting) >= 3  # put back: beyond it
            return
        self.waiting.append(entry)
        for dropped in self.bench.dropped:
            self.waiting.remove(dropped)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(entry)
        self.bench.policy.remove(entry, self.bench.now)

    @rule()
    def take(self) -> None:
        entry = self.bench.take()
        if entry is not None:
            self.waiting.remove(entry)
            self.running.append(entry)
            return
        group = sum(each.item[0] == "g" for each in self.running)
        for each in self.waiting:  # only hard caps hold up
            assert (each.item == "a" and any(other.item == "a" for other in self.running)) or (
                each.item[0] == "g" and (group == 2 or each.item == ("g", "x"))
            )

    @precondition(lambda self: self.running)
    @rule(data=st.data(), cost=st.integers(0, 5))
    def finish(self, data: st.DataObject, cost: int) -> None:
        entry = data.draw(st.sampled_from(self.running))
        self.running.remove(entry)
        self.bench.finish(entry, cost)

    @rule(seconds=st.sampled_from([0.1, 1.0, 7.0]))
    def wait(self, seconds: float) -> None:
        self.bench.now += seconds

    @invariant()
    def caps_hold(self) -> None:
        assert sum(each.item == "a" for each in self.running) <= 1
        assert sum(each.item[0] == "g" for each in self.running) <= 2
        tree = self.bench.policy.tree
        assert (tree.queued, tree.running) == (len(self.waiting), len(self.running))
        assert sum(leaf.cost for leaf in tree.leaves()) == sum(each.cost for each in self.waiting)

    def teardown(self) -> None:
        bench = self.bench
        for entry in self.running:
            bench.finish(entry)
        while self.waiting:
            entry = bench.take()
            if entry is None:
                at = bench.policy.tree.ready_at(bench.now)
                assert at is not None
                bench.now = at
            else:
                self.waiting.remove(entry)
                bench.finish(entry)
        bench.now += 1000
        assert bench.take() is None
        assert bench.names() <= {("a",), ("b",), ("g", "x")}


TestMachine = Machine.TestCase
TestMachine.settings = settings(stateful_step_count=40, deadline=None)
