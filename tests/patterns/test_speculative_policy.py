"""The number of proposed tokens: the best of all selections, off if none pays, and on again."""

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.patterns.speculative.adaptive import MARGIN, PROBE_FIRST, PROBE_LAST, KPolicy, Room
from callboard.patterns.speculative.rates import TRUSTED, KeptRates, SizeCosts

seconds = st.floats(0.001, 1.0)


class Fixed(KeptRates):
    """Rates that are known."""

    def __init__(self, *rates: float) -> None:
        super().__init__(len(rates), 1.0, 1.0)
        self._fixed = list(rates)

    def rates(self) -> list[float]:
        return self._fixed


@settings(max_examples=150, deadline=None)
@given(
    rates=st.lists(st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3), min_size=1, max_size=3),
    fixed=seconds,
    per_token=seconds,
    draft=st.floats(0.0, 1.0),
)
def test_no_selection_has_a_better_goodput(rates: Any, fixed: float, per_token: float, draft: float) -> None:
    policy = KPolicy(3)
    for size in (1, 1, 1, 12, 12, 12):
        policy.measured(size, fixed + per_token * size, 0, 0.0)
    for _ in range(TRUSTED):
        policy.measured(12, fixed + per_token * 12, 3, 3 * draft)
    rooms = [Room(Fixed(*each), 3) for each in rates]

    def goodput(ks: Any) -> float:
        tokens = len(ks) + sum(sum(room.rates.survival(k)) for room, k in zip(rooms, ks, strict=True))
        return tokens / (fixed + per_token * (len(ks) + sum(ks)) + draft * max(ks))

    best = max(goodput(ks) for ks in itertools.product(range(4), repeat=len(rooms)))
    chosen = policy.choose(rooms)
    if any(chosen):
        assert goodput(chosen) >= MARGIN * goodput([0] * len(rooms)) * (1 - 1e-9)
    assert goodput(chosen) >= best / MARGIN * (1 - 1e-9)


def run(policy: KPolicy, kept: float, passes: int, per_token: float = 0.5) -> list[int]:
    """Passes over one sequence, whose tokens are kept up to a share of each proposal; returns the ks."""
    rates = policy.rates()
    found = []
    for _ in range(passes):
        (k,) = policy.choose([Room(rates, policy.k)])
        found.append(k)
        if k:
            policy.verified(rates, k, range(int(kept * k)))
        policy.measured(1 + k, 1.0 + per_token * (1 + k), k, 0.1 * k)
    return found


def test_a_useless_draft_is_switched_off_and_tried_ever_less_often() -> None:
    policy = KPolicy(4)
    ks = run(policy, 0.0, 2000)
    off = ks.index(0, 10)
    assert sum(k > 0 for k in ks[:off]) <= 8
    probes = [i for i, k in enumerate(ks) if k and i > off]
    assert {ks[i] for i in probes} == {1}
    gaps = [b - a for a, b in itertools.pairwise(probes)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == PROBE_LAST + 1
    assert len(probes) < 14
    assert run(policy, 0.0, PROBE_FIRST) == [0] * PROBE_FIRST  # a new sequence starts from what is known of all


def test_a_draft_that_becomes_good_is_switched_on_again() -> None:
    policy = KPolicy(4)
    run(policy, 0.0, 300)
    assert run(policy, 1.0, 1200)[-100:] == [4] * 100


def test_a_slow_first_measurement_does_not_switch_a_good_draft_off_for_long() -> None:
    """A neighbour on the machine slows the first passes with proposals tenfold."""
    policy, ks = KPolicy(4), []
    rates = policy.rates()
    for _ in range(60):
        (k,) = policy.choose([Room(rates, 4)])
        ks.append(k)
        if k:
            policy.verified(rates, k, range(k))
        slow = 10.0 if k and sum(each > 0 for each in ks) <= TRUSTED else 1.0
        policy.measured(1 + k, slow, k, 0.1)
    assert ks[3:12].count(0) >= 8  # off, after two slow passes
    assert ks[-30:] == [4] * 30


def test_a_good_draft_is_used_to_the_full() -> None:
    ks = run(KPolicy(4), 1.0, 100)
    assert ks[:TRUSTED] == [0] * TRUSTED  # what a plain pass costs is measured first
    assert ks[10:] == [4] * 90


def test_a_pass_that_is_bound_by_its_tokens_is_not_worth_it() -> None:
    """A large batch on a busy device: each token costs as much as the first."""
    policy = KPolicy(4)
    rates = [policy.rates() for _ in range(16)]
    for _ in range(200):
        ks = policy.choose([Room(each, 4) for each in rates])
        for each, k in zip(rates, ks, strict=True):
            if k:
                policy.verified(each, k, range(k // 2))
        policy.measured(16 + sum(ks), 0.01 * (16 + sum(ks)), max(ks), 0.01 * max(ks))
    assert sum(ks) <= 1


def test_not_adaptive_is_always_k() -> None:
    policy = KPolicy(4, adaptive=False)
    assert policy.choose([Room(policy.rates(), 4), Room(policy.rates(), 2)]) == [4, 2]
    with pytest.raises(ValueError, match="k must be at least 0, but is -1"):
        KPolicy(-1)


def test_rates_are_conditional_and_start_from_those_of_all() -> None:
    pool = KeptRates(3, forget=1.0, weight=0.001)
    for _ in range(100):
        pool.add(3, 1)
    assert pool.rates() == pytest.approx([1.0, 0.0, 0.0], abs=1e-4)
    assert pool.tried == [100, 100, 0]  # the third was never decided
    own = KeptRates(3, forget=1.0, weight=4, pool=pool)
    assert own.rates() == pytest.approx(pool.rates())
    own.add(1, 0)
    assert own.rates()[0] == pytest.approx(4 / 5, abs=1e-4)
    assert own.survival(2) == pytest.approx([own.rates()[0], own.rates()[0] * own.rates()[1]])


def test_costs_lie_on_lines_between_what_was_measured_and_never_fall() -> None:
    costs = SizeCosts()
    assert not costs.known
    for seconds in (9.0, 4.0):  # the first pass is slow
        assert costs.line().at(4) == 0.0
        costs.add(4, seconds)
    assert costs.known
    assert [costs.covers(n) for n in (3, 4, 5)] == [False, True, True]
    assert [costs.line().at(n) for n in (1, 4, 9)] == [4.0, 4.0, 4.0]
    for _ in range(TRUSTED):
        costs.add(1, 9.0)
    assert costs.line().at(1) == 4.0
    for _ in range(20):
        costs.add(1, 1.0)
    assert [costs.line().at(n) for n in (1, 2, 4, 6)] == pytest.approx([1.0, 2.0, 4.0, 6.0], abs=1e-3)


def test_one_slow_pass_moves_a_cost_little() -> None:
    costs = SizeCosts()
    for seconds in (1.0, 1.0, 1.0, 100.0):
        costs.add(1, seconds)
    assert costs.line().at(1) == pytest.approx(1.1)
