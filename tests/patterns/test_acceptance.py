"""Acceptance is exact: the law of the tokens is enumerated over small vocabularies, not sampled."""

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.patterns.speculative.acceptance import (
    Outcome,
    accept_probability,
    coupled,
    draw,
    greedy,
    race,
    rejection,
    residual,
    typical,
)
from callboard.patterns.speculative.sampling import Acceptance, Sampler

V = 3
PARTS = 4
CELLS = 12
"""Probabilities are quarters, so all thresholds are multiples of 1/12: the middles of 12 cells integrate exactly."""

MIDDLES = [(cell + 0.5) / CELLS for cell in range(CELLS)]

Row = tuple[int, ...]
Chain = list[Row]

quarters = st.sampled_from([c for c in itertools.product(range(PARTS + 1), repeat=V) if sum(c) == PARTS])
chains = st.lists(quarters, min_size=V + 1, max_size=V + 1)  # a distribution after each token, and one at the start


def law(chain: Chain, text: tuple[int, ...]) -> Fraction:
    """The probability of a text in a chain."""
    probability, last = Fraction(1), V
    for token in text:
        probability *= Fraction(chain[last][token], PARTS)
        last = token
    return probability


def rows(chain: Chain, text: tuple[int, ...], n: int) -> Any:
    return np.array([chain[last] for last in (V, *text)][:n], float) / PARTS


@settings(max_examples=12, deadline=None)
@given(target=chains, draft=chains, certain=st.booleans())
def test_rejection_gives_the_law_of_the_target(target: Chain, draft: Chain, certain: bool) -> None:
    """All drafts, all uniforms: the first two tokens, of a pass with k = 1 and of plain decoding after it."""
    found: dict[tuple[int, ...], Fraction] = dict.fromkeys(itertools.product(range(V), repeat=2), Fraction(0))
    for token in range(V):
        # A certain draft proposes one token, whatever the model is.
        weight = Fraction(token == 1) if certain else law(draft, (token,))
        if not weight:
            continue
        q = None if certain else rows(draft, (token,), 1)
        for uniforms in itertools.product(MIDDLES, repeat=2):
            outcome = rejection([token], q, rows(target, (token,), 2), uniforms)
            run = (token, outcome.token) if outcome.accepted else (outcome.token,)
            for rest in itertools.product(range(V), repeat=2 - len(run)):
                further = Fraction(target[run[-1]][rest[0]], PARTS) if rest else Fraction(1)
                found[run + rest] += weight * further / CELLS**2
    assert found == {text: law(target, text) for text in found}


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", [1, 2])
def test_rejection_with_two_proposed_tokens(seed: int) -> None:
    rng = np.random.default_rng(seed)
    options = [c for c in itertools.product(range(PARTS + 1), repeat=V) if sum(c) == PARTS]
    target, draft = ([options[i] for i in rng.integers(len(options), size=V + 1)] for _ in range(2))
    found: dict[tuple[int, ...], Fraction] = dict.fromkeys(itertools.product(range(V), repeat=3), Fraction(0))
    for proposed in itertools.product(range(V), repeat=2):
        weight = law(draft, proposed)
        if not weight:
            continue
        q, p = rows(draft, proposed, 2), rows(target, proposed, 3)
        for uniforms in itertools.product(MIDDLES, repeat=3):
            outcome = rejection(proposed, q, p, uniforms)
            run = (*proposed[: outcome.accepted], outcome.token)
            for rest in itertools.product(range(V), repeat=3 - len(run)):
                text = run + rest
                further = law(target, text) / law(target, run) if rest else Fraction(1)
                found[text] += weight * further / CELLS**3
    assert found == {text: law(target, text) for text in found}


@given(p=quarters, q=quarters)
def test_a_token_is_kept_with_the_largest_probability_that_is_exact(p: Row, q: Row) -> None:
    p_row, q_row = np.array(p) / PARTS, np.array(q) / PARTS
    kept = sum(q_row[x] * accept_probability(x, q_row, p_row) for x in range(V) if q[x])
    assert kept == pytest.approx(1 - abs(p_row - q_row).sum() / 2)  # 1 minus the distance in total variation


def test_the_residual_that_rounding_leaves_empty_is_the_target() -> None:
    p = np.array([0.5, 0.5])
    assert residual(0, p, p) is p
    assert residual(0, None, np.array([1.0, 0.0])).tolist() == [1.0, 0.0]
    assert residual(0, None, p).tolist() == [0.0, 0.5]


@given(weights=st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any))
def test_draw_gives_each_token_its_share(weights: list[int]) -> None:
    total = sum(weights)
    cells = [(i + 0.5) / total for i in range(total)]
    drawn = [draw(np.array(weights, float), u) for u in cells]
    assert [drawn.count(token) for token in range(len(weights))] == weights


def test_draw_never_gives_a_token_of_weight_zero() -> None:
    weights = np.array([0.0, 0.1, 0.2, 0.0])
    assert draw(weights, 0.0) == 1
    assert draw(weights, math.nextafter(1.0, 0.0)) == 2
    assert draw(weights, 1.0) == 2


def test_greedy_keeps_what_the_target_would_have_chosen() -> None:
    scores = np.eye(4)[[2, 0, 1]]
    assert greedy([2, 0], scores) == Outcome(2, 1)
    assert greedy([2, 3], scores) == Outcome(1, 0)
    assert greedy([0, 0], scores) == Outcome(0, 2)
    assert greedy([], scores[:1]) == Outcome(0, 2)


@pytest.mark.parametrize("p", [(0.5, 0.5), (0.25, 0.75), (0.9, 0.1)])
def test_a_race_has_the_law_of_its_rates(p: tuple[float, float]) -> None:
    """The noise runs over the middles of 256 equal shares of its law, in both dimensions: exact to within a share."""
    shares = 256
    noise = -np.log1p(-(np.arange(shares) + 0.5) / shares)
    row = np.array(p)
    first = sum(race(row, np.array([a, b])) == 0 for a in noise[::4] for b in noise[::4])
    assert first / (shares / 4) ** 2 == pytest.approx(p[0], abs=4 / shares)


def test_a_race_is_never_won_by_what_cannot_be() -> None:
    assert race(np.array([0.0, 0.3, 0.7]), np.array([0.0, 5.0, 9.0])) == 2


def test_coupled_tokens_do_not_depend_on_the_proposal() -> None:
    rng = np.random.default_rng(3)
    target, noise = rng.dirichlet(np.ones(V), size=3), rng.standard_exponential((3, V))
    own = [race(p, e) for p, e in zip(target, noise, strict=True)]
    for proposed in itertools.product(range(V), repeat=2):
        outcome = coupled(proposed, target, noise)
        assert [*proposed[: outcome.accepted], outcome.token] == own[: outcome.accepted + 1]
    assert coupled(own[:2], target, noise).accepted == 2


def test_typical_keeps_what_is_likely_for_its_entropy() -> None:
    flat = np.full((3, 4), 0.25)  # exp(-H) is 1/4: the limit is 0.075
    assert typical([3, 0], flat, 0.0) == Outcome(2, 0)
    steep = np.array([[0.97, 0.01, 0.01, 0.01]] * 2)  # the limit is 0.09
    assert typical([1], steep, 0.5) == Outcome(0, 0)
    assert typical([0], steep, 0.999) == Outcome(1, 3)


def test_typical_is_lossy() -> None:
    """It keeps a certain proposal always, where the exact rule keeps it as often as the target gives it."""
    target = np.array([[0.75, 0.25]] * 2)
    assert all(typical([1], target, u).accepted for u in MIDDLES)
    assert sum(rejection([1], None, target, (u, 0.0)).accepted for u in MIDDLES) == CELLS // 4


@pytest.mark.parametrize("acceptance", list(Acceptance))
def test_equal_seeds_give_equal_tokens(acceptance: Acceptance) -> None:
    logits = np.random.default_rng(5).standard_normal((3, 6))

    def tokens(seed: int) -> list[object]:
        sampler = Sampler(0.9, seed, acceptance)
        return [sampler.propose(logits[0], 7)[0], *(sampler.accept([2, 3], None, logits, 8) for _ in range(20))]

    assert tokens(11) == tokens(11)
    assert len({str(tokens(seed)) for seed in range(20)}) > 5


def test_a_draft_that_is_the_target_is_always_kept() -> None:
    logits = np.random.default_rng(5).standard_normal((40, 6))
    for acceptance in (Acceptance.REJECTION, Acceptance.COUPLED):
        sampler = Sampler(1.0, 3, acceptance)
        drawn = [sampler.propose(row, 10 + i) for i, row in enumerate(logits[:-1])]
        probs = np.stack([p for _, p in drawn if p is not None])
        assert sampler.accept([token for token, _ in drawn], probs, logits, 10).accepted == 39
