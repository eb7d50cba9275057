"""Shares by weight, against fluid fair sharing and the bound of start-time fair queueing."""

from collections import defaultdict
from itertools import combinations
from typing import Any

import pytest
from fair_lab import Bench
from hypothesis import given
from hypothesis import strategies as st

from callboard.patterns.fairshare.settings import Tenant
from callboard.patterns.fairshare.stats import jain

WEIGHTS = st.sampled_from([0.5, 1.0, 2.0, 3.0, 10.0])
COSTS = st.integers(1, 20)


def fluid(totals: dict[Any, float], weights: dict[Any, float], time: float) -> dict[Any, float]:
    """What each has got at ``time`` if all that have something left share a server of speed 1 by weight."""
    got = dict.fromkeys(totals, 0.0)
    while time > 1e-9:
        active = [name for name in totals if totals[name] - got[name] > 1e-9]
        if not active:
            break
        speed = 1 / sum(weights[name] for name in active)
        first = min((totals[name] - got[name]) / (weights[name] * speed) for name in active)
        step = min(first, time)
        for name in active:
            got[name] += weights[name] * speed * step
        time -= step
    return got


def test_the_oracle() -> None:
    assert fluid({"a": 2, "b": 9}, {"a": 1, "b": 3}, 4) == pytest.approx({"a": 1, "b": 3})
    assert fluid({"a": 1, "b": 9}, {"a": 1, "b": 1}, 4) == pytest.approx({"a": 1, "b": 3})
    assert fluid({"a": 1}, {"a": 1}, 4) == pytest.approx({"a": 1})


@given(
    jobs=st.lists(st.tuples(WEIGHTS, st.lists(COSTS, min_size=1, max_size=15)), min_size=1, max_size=6),
    slots=st.integers(1, 3),
)
def test_it_follows_the_fluid_model(jobs: list[tuple[float, list[int]]], slots: int) -> None:
    """At every start: at most one item ahead of the fluid share, at most one item of each other behind it."""
    weights = {name: weight for name, (weight, _) in enumerate(jobs)}
    bench = Bench({name: Tenant(weight=weight) for name, weight in weights.items()})
    for name, (_, costs) in enumerate(jobs):
        for cost in costs:
            bench.add(name, cost)
    totals = {name: float(sum(costs)) for name, (_, costs) in enumerate(jobs)}
    largest = {name: max(costs) for name, (_, costs) in enumerate(jobs)}
    running: list[Any] = []
    while (entry := bench.take()) is not None:
        running.append(entry)
        if len(running) == slots:
            bench.finish(running.pop(0))
        ideal = fluid(totals, weights, sum(bench.served.values()))
        for name, got in ideal.items():
            ahead = bench.served[name] - got
            assert -sum(cost for other, cost in largest.items() if other != name) - 1e-6 <= ahead
            assert ahead <= largest[name] + 1e-6
    assert bench.served == totals


@given(
    weights=st.lists(WEIGHTS, min_size=2, max_size=5),
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 4), COSTS),
            st.tuples(st.just("cancel"), st.integers(0, 4), st.integers(0, 3)),
            st.tuples(st.just("take"), st.just(0), st.integers(1, 4)),
        ),
        max_size=120,
    ),
)
def test_two_that_wait_are_served_alike_whoever_comes_and_goes(
    weights: list[float], steps: list[tuple[str, int, int]]
) -> None:
    """|S_f / w_f - S_m / w_m| <= max_f / w_f + max_m / w_m while both have requests waiting."""
    bench = Bench({name: Tenant(weight=weight) for name, weight in enumerate(weights)})
    waiting: dict[int, list[Any]] = defaultdict(list)
    largest = dict.fromkeys(range(len(weights)), 0)
    since = dict.fromkeys(combinations(range(len(weights)), 2), (0.0, 0.0))  # served when both began to wait
    both: set[tuple[int, int]] = set()

    def look() -> None:
        for pair in since:
            f, m = pair
            if waiting[f] and waiting[m]:
                if pair not in both:
                    both.add(pair)
                    since[pair] = bench.served[f], bench.served[m]
                got = [
                    (bench.served[name] - start) / weights[name] for name, start in zip(pair, since[pair], strict=True)
                ]
                assert abs(got[0] - got[1]) <= sum(largest[name] / weights[name] for name in pair) + 1e-6
            else:
                both.discard(pair)

    for kind, name, number in steps:
        if kind == "add" and name < len(weights):
            largest[name] = max(largest[name], number)
            waiting[name].append(bench.add(name, number))
        elif kind == "cancel" and number < len(waiting[name]):
            bench.policy.remove(waiting[name].pop(number), bench.now)
        elif kind == "take":
            for _ in range(number):
                entry = bench.take()
                assert (entry is None) == (not any(waiting.values()))
                if entry is not None:
                    waiting[entry.item].remove(entry)
                    bench.finish(entry)
                    look()
        look()


@given(
    groups=st.lists(st.tuples(WEIGHTS, st.lists(WEIGHTS, min_size=1, max_size=3)), min_size=1, max_size=4),
    taken=st.integers(1, 150),
)
def test_groups_share_first_then_their_members(groups: list[tuple[float, list[float]]], taken: int) -> None:
    tenants: dict[Any, Tenant] = {}
    for group, (weight, members) in enumerate(groups):
        tenants[(group,)] = Tenant(weight=weight)
        tenants |= {(group, name): Tenant(weight=each) for name, each in enumerate(members)}
    bench = Bench(tenants)
    leaves = [path for path in tenants if len(path) == 2]
    for path in leaves:
        for _ in range(taken):
            bench.add(path, 1)
    bench.run(taken)
    of_group = [sum(bench.served[path] for path in leaves if path[0] == group) for group in range(len(groups))]
    level = [(served, weight) for served, (weight, _) in zip(of_group, groups, strict=True)]
    levels = [level] + [
        [(bench.served[(group, name)], each) for name, each in enumerate(members)]
        for group, (_, members) in enumerate(groups)
    ]
    for siblings in levels:
        for (a, w), (b, v) in combinations(siblings, 2):
            assert abs(a / w - b / v) <= 1 / w + 1 / v + 1e-6


def test_one_to_three() -> None:
    bench = Bench({"a": Tenant(1, max_queue=2000), "b": Tenant(3, max_queue=2000)})
    bench.fill("a", 2000)
    bench.fill("b", 2000)
    bench.run(1000)
    assert bench.served == {"a": 250, "b": 750}


def test_cost_counts_not_requests() -> None:
    bench = Bench()
    bench.fill("small", 2000, 1)
    bench.fill("large", 200, 10)
    bench.run(1100)
    assert bench.served["small"] / sum(bench.served.values()) == pytest.approx(0.5, abs=0.01)


def test_what_it_did_cost_replaces_what_was_expected() -> None:
    """Both declare 1; one takes 10: equal shares of what was used, also with several in flight."""
    bench = Bench()
    used = {"honest": 0.0, "liar": 0.0}
    bench.fill("honest", 5000)
    bench.fill("liar", 5000)
    running: list[Any] = []
    for _ in range(3000):
        running.append(bench.take())
        if len(running) == 4:
            entry = running.pop(0)
            cost = 10 if entry.item == "liar" else 1
            used[entry.item] += cost
            bench.finish(entry, cost)
    assert used["liar"] / sum(used.values()) == pytest.approx(0.5, abs=0.02)
    served = {leaf.path[0]: leaf.served for leaf in bench.policy.tree.leaves()}
    assert served == pytest.approx({name: used[name] for name in used}, abs=10)


def test_who_returns_has_saved_nothing_up() -> None:
    bench = Bench()
    bench.fill("busy", 3000)
    bench.fill("away", 1)
    bench.run(1000)
    bench.fill("away", 1000)
    bench.served.clear()
    for _ in range(100):
        bench.run()
        assert bench.served["away"] - bench.served["busy"] <= 1


def test_who_was_ahead_stays_ahead_over_a_pause() -> None:
    """Otherwise leaving and coming back would pay."""
    bench = Bench()
    bench.fill("other", 100)
    bench.add("greedy", 50)
    bench.run(2)
    assert bench.served["greedy"] == 50
    bench.fill("greedy", 10)
    assert "greedy" not in bench.run(40)


def test_weights_change_live() -> None:
    bench = Bench({"a": Tenant(1, max_queue=10_000), "b": Tenant(1, max_queue=10_000)})
    bench.fill("a", 5000)
    bench.fill("b", 5000)
    bench.run(100)
    bench.policy.tree.configure(("b",), Tenant(4), bench.now)
    bench.served.clear()
    bench.run(1000)
    assert bench.served["b"] == pytest.approx(800, abs=2)


@pytest.mark.parametrize(
    "values, index", [([], 1.0), ([0, 0], 1.0), ([3, 3, 3], 1.0), ([5, 0, 0, 0], 0.25), ([1, 3], 0.8)]
)
def test_jain(values: list[float], index: float) -> None:
    assert jain(values) == pytest.approx(index)
