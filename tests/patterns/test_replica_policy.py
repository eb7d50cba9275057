"""The routing of a replica pool: policies beside oracles, ejection and probing, hedging, the shape of the tail."""

import math
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_lab import p99, simulate

from callboard.patterns.replicas.ejection import Ejection, Outcome
from callboard.patterns.replicas.hedging import Hedger, Hedging
from callboard.patterns.replicas.member import Member, Phase
from callboard.patterns.replicas.picking import (
    POINTS,
    ConsistentHash,
    LeastOutstanding,
    PeakEwmaChoices,
    Picker,
    ReplicaLoad,
    RoundRobin,
    UserPolicy,
    picker_of,
    stable_hash,
)
from callboard.patterns.replicas.router import Router

NONE: frozenset[Member] = frozenset()


def router_of(picker: Picker, n: int = 4, limit: int = 4, ejection: Ejection | None = None) -> Router:
    router = Router(picker, ejection)
    for number in range(n):
        router.add(Member(f"replica-{number}", number, limit))
    return router


def pick(router: Router, key: Any = None, now: float = 0.0) -> Member | None:
    """Pick a member and run a request on it."""
    member = router.pick(None, key, NONE, now)
    if member is not None:
        router.begin(member)
    return member


# -- policies beside oracles -------------------------------------------------------------------------------------------


def ring_oracle(members: list[Member], free: list[Member], key: Any, bound: float) -> Member:
    """Clockwise from the key, by looking at every point of every member."""
    most = math.ceil(bound * (sum(each.ongoing for each in members) + 1) / len(members))
    able = [each for each in free if each.ongoing < most] or free
    home = stable_hash(key)

    def distance(member: Member) -> int:
        points = [stable_hash(f"{member.name}#{point}") for point in range(POINTS)]
        return min((point - home) % 2**64 or 2**64 for point in points)

    return min(able, key=distance)


@given(
    policy=st.sampled_from(["round_robin", "least_outstanding", "consistent_hash"]),
    n=st.integers(1, 5),
    limit=st.integers(1, 3),
    steps=st.lists(
        st.one_of(st.integers(0, 9).map(lambda key: ("pick", key)), st.tuples(st.just("end"), st.integers(0, 99)))
    ),
)
def test_policies_pick_what_an_oracle_picks(policy: str, n: int, limit: int, steps: list[tuple[str, int]]) -> None:
    router = router_of(picker_of(policy, None, 1.25), n, limit)
    running: list[Member] = []
    last, history = -1, []
    for what, value in steps:
        if what == "end":
            if running:
                router.end(running.pop(value % len(running)), Outcome.OK, 0.01, 0.0)
            continue
        counts = Counter(member.number for member in running)
        assert [member.ongoing for member in router.members] == [counts[number] for number in range(n)]
        free = [member for member in router.members if counts[member.number] < limit]
        if not free:
            assert pick(router, value) is None
            continue
        if policy == "round_robin":
            want = next((member for member in free if member.number > last), free[0])
        elif policy == "least_outstanding":
            idle_for = {number: index for index, number in enumerate(history)}
            want = min(free, key=lambda each: (counts[each.number], idle_for.get(each.number, -1)))
        else:
            want = ring_oracle(router.members, free, value, 1.25)
        found = pick(router, value)
        if policy == "least_outstanding" and want.number not in history:
            assert found is not None
            assert (counts[found.number], found.number in history) == (counts[want.number], False)
        else:
            assert found is want
        assert found is not None
        last = found.number
        history.append(found.number)
        running.append(found)


def test_least_outstanding_counts_ends() -> None:
    """The original never decremented: a replica that answers keeps its share, one that does not gets no more."""
    router = router_of(LeastOutstanding(), n=2, limit=10)
    assert pick(router) is router.members[0]  # and never answers
    shares = Counter[str]()
    for _ in range(20):
        member = pick(router)
        assert member is not None
        shares[member.name] += 1
        router.end(member, Outcome.OK, 0.01, 0.0)
    assert shares == {"replica-1": 20}


@pytest.mark.parametrize("choices, share", [(1, (0.40, 0.53)), (2, (0.14, 0.20)), (4, (0.0, 0.02))])
def test_more_choices_find_the_fast_ones(choices: int, share: tuple[float, float]) -> None:
    """Two of four are ten times slower: how much of the load they still get. Of two, both are slow in 1/6 of draws."""
    picker = PeakEwmaChoices(choices, random.Random(1).random)
    _, router = simulate([1, 1, 10, 10], 0.2, picker=picker, ejection=None, max_ongoing=64)
    started = [member.started for member in router.members]
    assert share[0] <= sum(started[2:]) / sum(started) <= share[1]


def test_a_latency_rises_at_once_and_falls_slowly() -> None:
    member = Member("a", 0, 1)
    assert member.cost(0.0) == 0.0
    member.observe(0.1, 0.0)
    member.observe(1.0, 0.0)
    assert member.cost(0.0) == pytest.approx(1.0)
    member.observe(0.1, 1.0)
    assert member.cost(1.0) == pytest.approx(0.1 + 0.9 * math.exp(-0.1))
    assert member.cost(101.0) < 1e-4  # forgotten: it is tried again


def test_one_that_has_not_answered_gets_one_request() -> None:
    router = router_of(PeakEwmaChoices(None), n=2)
    first, second = pick(router), pick(router)
    assert first is not None
    assert second is not None
    assert first is not second
    router.end(first, Outcome.OK, 0.01, 0.0)
    assert {pick(router), pick(router), pick(router)} == {first}


@pytest.mark.parametrize("n", [3, 8])
def test_a_replica_that_goes_moves_its_own_keys_only(n: int) -> None:
    router = router_of(ConsistentHash(1000.0), n, limit=10_000)
    before = {key: router.pick(None, key, NONE, 0.0) for key in range(500)}
    gone = router.members[1]
    router.remove(gone)
    after = {key: router.pick(None, key, NONE, 0.0) for key in range(500)}
    moved = {key for key in before if before[key] is not after[key]}
    assert moved == {key for key in before if before[key] is gone}
    assert 0.3 / n < len(moved) / 500 < 2.5 / n


def test_places_of_keys_are_remembered_within_a_bound_and_forgotten_with_the_ring(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("callboard.patterns.replicas.picking.KEYS", 8)
    keys = [*range(20), "1", b"1", (1,), True, 1.0]
    router, fresh = router_of(ConsistentHash(1000.0), 3, 99), router_of(ConsistentHash(1000.0), 3, 99)
    for _ in range(2):
        fresh.remove(fresh.members[0])  # so that nothing is remembered
        fresh.add(Member("replica-0", 0, 99))
        fresh.members.sort(key=lambda each: each.number)
        for key in keys:
            found, want = router.pick(None, key, NONE, 0.0), fresh.pick(None, key, NONE, 0.0)
            assert found is not None
            assert want is not None
            assert found.name == want.name


def test_one_hot_key_is_spread_within_the_bound() -> None:
    router = router_of(ConsistentHash(1.25), n=4, limit=100)
    for _ in range(100):
        assert pick(router, "hot") is not None
        most = max(member.ongoing for member in router.members)
        assert most <= math.ceil(1.25 * sum(member.ongoing for member in router.members) / 4)


def test_hashes_are_the_same_in_every_process() -> None:
    assert stable_hash("session") == 0x30C4AAD656C0132B
    assert stable_hash("1") != stable_hash(1)


def test_a_policy_of_the_callers() -> None:
    seen: list[list[ReplicaLoad]] = []

    def last(item: Any, loads: list[ReplicaLoad]) -> ReplicaLoad:
        seen.append(loads)
        return loads[-1]

    router = router_of(UserPolicy(last), n=2, limit=1)
    assert [member.name for member in (pick(router), pick(router)) if member] == ["replica-1", "replica-0"]
    assert pick(router) is None
    assert seen[0] == [ReplicaLoad("replica-0", 0, 1, None), ReplicaLoad("replica-1", 0, 1, None)]
    with pytest.raises(TypeError, match="policy is 5"):
        picker_of(5, None, 2.0)
    wrong = router_of(UserPolicy(lambda item, loads: "nobody"), n=2)
    with pytest.raises(TypeError, match=r"'nobody'.*replica-0, replica-1"):
        pick(wrong)


def test_where_a_request_failed_it_does_not_run_again_if_it_can_be_helped() -> None:
    router = router_of(RoundRobin(), n=2, limit=1)
    first, second = router.members
    assert router.pick(None, None, frozenset({first}), 0.0) is second
    router.begin(second)
    assert router.pick(None, None, frozenset({first}), 0.0) is None  # it waits for the other
    assert router.has_room
    second.enter(Phase.AWAY)
    assert router.pick(None, None, frozenset({first}), 0.0) is first


# -- ejection ----------------------------------------------------------------------------------------------------------


def run(
    router: Router, member: Member, outcome: Outcome, seconds: float = 0.01, now: float = 0.0, times: int = 1
) -> None:
    for _ in range(times):
        router.begin(member)
        router.end(member, outcome, seconds, now)


def test_consecutive_errors_eject_and_one_success_starts_the_count_again() -> None:
    router = router_of(RoundRobin(), ejection=Ejection(errors=3, slower=None))
    bad = router.members[1]
    run(router, bad, Outcome.FAULT, times=2)
    run(router, bad, Outcome.OK)
    run(router, bad, Outcome.FAULT, times=2)
    run(router, bad, Outcome.UNKNOWN)  # an item of its own fault says nothing
    assert bad.phase is Phase.READY
    run(router, bad, Outcome.FAULT)
    assert (bad.phase, bad.ejections, router.next_probe) == (Phase.EJECTED, 1, 1.0)
    picked = {member.name for member in (pick(router, now=0.5) for _ in range(8)) if member}
    assert picked == {"replica-0", "replica-2", "replica-3"}


def test_a_probe_decides_and_the_back_off_doubles() -> None:
    router = router_of(RoundRobin(), ejection=Ejection(errors=1, slower=None, backoff=1.0, max_backoff=3.0))
    bad = router.members[0]
    run(router, bad, Outcome.FAULT)
    now = 0.0
    for pause in (1.0, 2.0, 3.0, 3.0):
        assert router.next_probe == pytest.approx(now + pause)
        assert router.pick(None, None, NONE, now + pause - 0.1) is not bad
        now += pause
        assert pick(router, now=now) is bad  # at once, whatever the policy says
        assert router.pick(None, None, NONE, now) is not bad  # and only one
        router.end(bad, Outcome.FAULT, 0.01, now)
        assert bad.phase is Phase.EJECTED
    now += 3.0
    assert pick(router, now=now) is bad
    router.end(bad, Outcome.UNKNOWN, 0.01, now)  # says nothing: the next one probes
    assert pick(router, now=now) is bad
    router.end(bad, Outcome.OK, 0.01, now)
    assert (bad.phase, bad.room, bad.ejections, router.next_probe) == (Phase.READY, 4, 5, None)
    run(router, bad, Outcome.OK, times=5)
    run(router, bad, Outcome.FAULT, now=now)
    assert router.next_probe == pytest.approx(now + 1.0)  # it was healthy for a while


def test_a_slow_replica_is_ejected_and_comes_back_when_it_is_fast_again() -> None:
    router = router_of(RoundRobin(), ejection=Ejection(samples=5))
    for member in router.members[1:]:
        run(router, member, Outcome.OK, times=10)
    slow = router.members[0]
    run(router, slow, Outcome.OK, seconds=0.1, times=5)
    assert slow.phase is Phase.EJECTED
    assert pick(router, now=1.0) is slow
    router.end(slow, Outcome.OK, 0.1, 1.1)
    assert slow.phase is Phase.EJECTED
    assert pick(router, now=3.2) is slow
    router.end(slow, Outcome.OK, 0.01, 3.21)
    assert slow.phase is Phase.READY


def test_one_that_was_given_up_is_slow_too() -> None:
    """All its requests are rescued by hedges or expire, and none of them ends: it is found all the same."""
    router = router_of(RoundRobin(), ejection=Ejection(samples=3))
    for member in router.members[1:]:
        run(router, member, Outcome.OK, times=5)
    slow = router.members[0]
    run(router, slow, Outcome.OK)
    run(router, slow, Outcome.UNKNOWN, seconds=0.005, times=20)  # sooner than it would have ended: says nothing
    assert slow.mean == pytest.approx(0.01)
    run(router, slow, Outcome.UNKNOWN, seconds=0.2, times=5)
    assert slow.phase is Phase.EJECTED


def test_a_single_long_request_ejects_no_replica() -> None:
    router = router_of(RoundRobin(), ejection=Ejection(samples=5))
    for member in router.members:
        run(router, member, Outcome.OK, times=10)
    long = router.members[0]
    run(router, long, Outcome.OK, seconds=100.0)
    assert long.phase is Phase.READY
    assert long.mean == pytest.approx(0.01 + (0.08 - 0.01) / 8)
    run(router, long, Outcome.OK, seconds=100.0, times=4)
    assert long.phase is Phase.EJECTED


def test_microseconds_are_not_outliers() -> None:
    router = router_of(RoundRobin(), ejection=Ejection())
    for member in router.members[1:]:
        run(router, member, Outcome.OK, seconds=20e-6, times=10)
    run(router, router.members[0], Outcome.OK, seconds=500e-6, times=10)
    assert router.members[0].phase is Phase.READY


@pytest.mark.parametrize("n, most, out", [(1, 0.5, 0), (2, 0.5, 1), (4, 0.5, 2), (4, 1.0, 3), (4, 0.0, 0)])
def test_some_always_stay_in_service(n: int, most: float, out: int) -> None:
    router = router_of(RoundRobin(), n, ejection=Ejection(errors=1, slower=None, most=most))
    for member in router.members:
        run(router, member, Outcome.FAULT, times=3)
    assert sum(member.phase is Phase.EJECTED for member in router.members) == out


@given(
    steps=st.lists(st.tuples(st.sampled_from(["pick", "ok", "fault", "unknown"]), st.floats(0, 2), st.integers(0, 9))),
    errors=st.integers(1, 3),
)
def test_whatever_happens_half_serves_and_probes_come_alone(steps: list[Any], errors: int) -> None:
    router = router_of(LeastOutstanding(), n=4, limit=2, ejection=Ejection(errors=errors))
    running: list[tuple[Member, float]] = []
    now = 0.0
    for what, seconds, which in steps:
        now += seconds
        if what == "pick":
            before = {member: member.phase for member in router.members}
            ejected_until = {member: member.until for member in router.members}
            member = pick(router, now=now)
            if member is not None:
                assert before[member] is not Phase.EJECTED or ejected_until[member] <= now
                assert member.phase is not Phase.PROBING or member.ongoing == 1 or before[member] is Phase.READY
                running.append((member, now))
        elif running:
            member, begun = running.pop(which % len(running))
            router.end(member, Outcome(what), now - begun, now)
        assert all(0 <= member.ongoing <= 2 for member in router.members)
        assert sum(member.phase is Phase.READY for member in router.members) >= 2
        waiting = [member.until for member in router.members if member.phase is Phase.EJECTED]
        assert router.next_probe == min(waiting, default=None)


@pytest.mark.parametrize("policy", ["round_robin", "least_outstanding", "p2c"])
@pytest.mark.parametrize("max_ongoing", [1, 4])
def test_one_replica_ten_times_slower_does_not_show_in_the_tail(policy: str, max_ongoing: int) -> None:
    """70 % of what the replicas can do together; the bar is 1.3 times the tail of a pool of four healthy ones."""
    healthy, _ = simulate([1, 1, 1, 1], 0.7, picker=picker_of(policy, None, 1.25), max_ongoing=max_ongoing)
    found, router = simulate([1, 1, 1, 10], 0.7, picker=picker_of(policy, None, 1.25), max_ongoing=max_ongoing)
    assert p99(found) <= 1.3 * p99(healthy)
    assert router.members[3].started < 40
    blind, _ = simulate(
        [1, 1, 1, 10], 0.7, picker=picker_of(policy, None, 1.25), max_ongoing=max_ongoing, ejection=None
    )
    assert p99(blind) >= 4 * p99(healthy)


# -- hedging -----------------------------------------------------------------------------------------------------------


def test_a_hedge_is_due_after_the_quantile() -> None:
    hedger: Hedger[str] = Hedger(Hedging(quantile=0.9, budget=1.0, samples=10))
    assert (hedger.due, hedger.oldest()) == (None, None)
    hedger.started("a", 1.0)
    assert hedger.due is None  # too little is known
    for step in range(10):
        hedger.finished(0.01 * (step + 1))
    assert (hedger.delay, hedger.due, hedger.oldest()) == (0.1, 1.1, "a")
    hedger.started("b", 2.0)
    hedger.started("a", 3.0)  # again, after a failure
    assert (hedger.oldest(), hedger.due) == ("b", 2.1)
    hedger.ended("b")
    assert hedger.oldest() == "a"


@given(hedges=st.lists(st.booleans(), max_size=400), budget=st.sampled_from([0.05, 0.2, 1.0]))
def test_the_budget_holds_over_any_prefix(hedges: list[bool], budget: float) -> None:
    hedger: Hedger[int] = Hedger(Hedging(budget=budget))
    spent = 0
    for count, wanted in enumerate(hedges, 1):
        hedger.started(count, 0.0)
        if wanted and hedger.affordable:
            hedger.spend()
            spent += 1
        assert spent <= budget * count + 1e-9


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: Ejection(errors=0), "errors"),
        (lambda: Ejection(slower=1.0), "slower"),
        (lambda: Ejection(margin=-1.0), "margin"),
        (lambda: Ejection(samples=0), "samples"),
        (lambda: Ejection(backoff=2.0, max_backoff=1.0), "backoff"),
        (lambda: Ejection(most=1.5), "most"),
        (lambda: Hedging(quantile=1.0), "quantile"),
        (lambda: Hedging(budget=0.0), "budget"),
        (lambda: Hedging(samples=0), "samples"),
        (lambda: PeakEwmaChoices(0), "choices"),
        (lambda: ConsistentHash(1.0), "bound"),
        (lambda: picker_of("best", None, 2.0), "best"),
    ],
)
def test_settings_are_checked(make: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()
