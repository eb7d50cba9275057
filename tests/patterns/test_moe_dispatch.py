"""Dispatch and sum against a loop over tokens; capacity, rerouting, and experts that are left out."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import callboard as cb
from callboard.patterns.moe.dispatch import Capacity, Dispatch, combine, dispatch, without
from callboard.patterns.moe.gate import Choice, choose

DROP, REROUTE, DROPLESS = cb.CapacityPolicy.DROP, cb.CapacityPolicy.REROUTE, cb.CapacityPolicy.DROPLESS


@st.composite
def cases(draw: st.DrawFn) -> tuple[Choice, cb.TopK, Capacity]:
    experts = draw(st.integers(1, 8))
    rule = cb.TopK(
        draw(st.integers(1, experts)),
        score=draw(st.sampled_from(list(cb.Score))),
    )
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    logits = (
        rng.standard_normal((draw(st.integers(0, 20)), experts)) + draw(st.sampled_from([0, 3])) * np.eye(experts)[0]
    )
    capacity = Capacity(
        draw(st.sampled_from(list(cb.CapacityPolicy))), draw(st.sampled_from([0.1, 0.5, 1.0, 1.25, 3.0]))
    )
    return choose(logits, rule), rule, capacity


def placed(choice: Choice, capacity: Capacity) -> tuple[list[list[int | None]], int, int]:
    """Token by token and choice by choice: the expert that has room for it, and how many were dropped and rerouted."""
    tokens, experts = choice.logits.shape
    k = choice.experts.shape[1]
    most = capacity.rows(tokens, k, experts)
    found: list[list[int | None]] = [[None] * k for _ in range(tokens)]
    load = [0] * experts
    over = []
    for rank in range(k):
        for token in range(tokens):
            expert = int(choice.experts[token, rank])
            if most is None or load[expert] < most:
                found[token][rank] = expert
                load[expert] += 1
            else:
                over.append((token, rank))
    dropped = len(over)
    if capacity.policy is REROUTE:
        for token, rank in over:
            taken = {*choice.experts[token].tolist(), *found[token]}
            free = [e for e in range(experts) if e not in taken and load[e] < (most or 0)]
            if free:
                best = max(free, key=lambda e: (choice.scores[token, e], -e))
                found[token][rank] = best
                load[best] += 1
                dropped -= 1
    return found, dropped, len(over) - dropped


def expert(number: int, rows: np.ndarray) -> np.ndarray:
    return np.tanh(rows * (number + 1)) + number


@given(cases())
@settings(max_examples=200, deadline=None)
def test_the_sum_is_that_of_a_loop_over_tokens(case: tuple[Choice, cb.TopK, Capacity]) -> None:
    choice, rule, capacity = case
    tokens, experts = choice.logits.shape
    x = np.random.default_rng(1).standard_normal((tokens, 3))
    plan = dispatch(choice, rule, capacity)
    where, dropped, rerouted = placed(choice, capacity)
    assert (plan.dropped, plan.rerouted) == (dropped, rerouted)
    most = capacity.rows(tokens, rule.k, experts)
    assert most is None or plan.load.max(initial=0) <= most
    assert plan.load.sum() == tokens * rule.k - dropped
    rows = x[plan.tokens]
    results = {e: expert(e, rows[plan.of(e)]) for e in range(experts) if plan.load[e]}
    out = combine(plan, results, [], 3, x.dtype)
    expected = np.zeros((tokens, 3))
    for token, chosen in enumerate(where):
        # Weights as if the rerouted experts had been chosen; a dropped choice keeps its share, and is not summed.
        of = [int(choice.experts[token, rank]) if e is None else e for rank, e in enumerate(chosen)]
        raw = np.exp(choice.logits[token, of]) if rule.score == "topk_softmax" else choice.scores[token, of]
        for weight, e in zip(raw / raw.sum(), chosen, strict=True):
            if e is not None:
                expected[token] += weight * expert(e, x[token])
    assert np.abs(out - expected).max(initial=0) <= 1e-9


@given(cases(), st.sets(st.integers(0, 7), max_size=3))
@settings(max_examples=100, deadline=None)
def test_without_some_experts_the_others_take_over(case: tuple[Choice, cb.TopK, Capacity], failed: set[int]) -> None:
    choice, rule, capacity = case
    plan = dispatch(choice, rule, capacity)
    failed = {e for e in failed if e < len(plan.load) and plan.load[e]}
    rest, unassigned = without(plan, sorted(failed))
    of_expert = np.repeat(np.arange(len(plan.load)), plan.load)
    for token in range(plan.count):
        rows = np.flatnonzero(plan.tokens == token)
        alive = [row for row in rows if int(of_expert[row]) not in failed]
        if len(alive) == len(rows):
            assert np.array_equal(rest.weights[rows], plan.weights[rows])
        elif not alive:
            assert token in unassigned
        else:
            assert rest.weights[alive].sum() == pytest.approx(plan.weights[rows].sum())
            ratio = rest.weights[alive] / plan.weights[alive]
            assert np.allclose(ratio, ratio[0])
        assert (token in unassigned) == (len(rows) > 0 and not alive)


def plan_of(experts: list[list[int]], weights: Any, count: int) -> Dispatch:
    """A dispatch without a gate."""
    logits = np.full((len(experts), count), -1.0)
    choice = Choice(logits, logits, logits, np.array(experts), np.asarray(weights, np.float32))
    return dispatch(choice, cb.TopK(len(experts[0])), Capacity())


def test_rows_are_sorted_by_expert_then_token() -> None:
    plan = plan_of([[1, 0], [2, 1], [1, 2]], [[0.6, 0.4], [0.7, 0.3], [0.9, 0.1]], 4)
    assert plan.offsets.tolist() == [0, 1, 4, 6, 6]
    assert plan.tokens.tolist() == [0, 0, 1, 2, 1, 2]
    assert plan.weights == pytest.approx([0.4, 0.6, 0.3, 0.9, 0.7, 0.1])


def test_first_choices_come_before_second_ones() -> None:
    logits = np.array([[1.0, 2.0], [2.0, 1.0], [2.0, 1.0]])
    plan = dispatch(choose(logits, cb.TopK(2)), cb.TopK(2), Capacity(DROP, 0.6))
    assert plan.load.tolist() == [2, 2]
    assert plan.tokens.tolist() == [1, 2, 0, 1]  # token 0 has expert 0 as its second choice only, and 2 have it first
    assert plan.dropped == 2


def test_a_rerouted_token_stays_in_its_groups() -> None:
    logits = np.array([[3.0, 1.0, 2.9, 2.8]] * 2)
    rule = cb.TopK(1, groups=2, top_groups=1, group_best=1)
    choice = choose(logits, rule)
    plan = dispatch(choice, rule, Capacity(REROUTE, 2.0))
    assert plan.load.tolist() == [1, 1, 0, 0]
    assert plan.rerouted == 1
    plan = dispatch(choose(np.repeat(logits, 2, axis=0), rule), rule, Capacity(REROUTE, 1.0))
    assert (plan.load.tolist(), plan.rerouted, plan.dropped) == ([1, 1, 0, 0], 1, 2)


def test_an_infinite_row_does_not_reach_other_tokens() -> None:
    plan = plan_of([[0], [1]], [[1.0], [1.0]], 2)
    out = combine(plan, {0: np.array([[np.inf]]), 1: np.array([[2.0]])}, [], 1, np.dtype(float))
    assert out.tolist() == [[np.inf], [2.0]]


def test_the_dtype_of_the_sum_is_that_of_the_rows() -> None:
    plan = plan_of([[0], [1]], [[0.5], [0.25]], 2)
    for given_, expected in (("f4", "f4"), ("f8", "f8"), ("f2", "f2"), ("c8", "c8"), ("i4", "f8")):
        out = combine(plan, {0: np.ones((1, 2), given_), 1: np.ones((1, 2), given_)}, [], 2, np.dtype("f4"))
        assert out.dtype == np.dtype(expected)
        assert out[:, 0].tolist() == [0.5, 0.25]


def test_rows_of_different_widths_are_refused() -> None:
    plan = plan_of([[0], [1]], [[0.5], [0.25]], 2)
    with pytest.raises(cb.BadExpertResult, match="expert 1 returned rows of 3, expert 0 of 2"):
        combine(plan, {0: np.ones((1, 2)), 1: np.ones((1, 3))}, [], 2, np.dtype("f4"))
    with pytest.raises(cb.BadExpertResult, match="a shared expert returned rows of 3, expert 0 of 2"):
        combine(plan, {0: np.ones((1, 2))}, [np.ones((2, 3))], 2, np.dtype("f4"))


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_a_capacity_factor_is_positive(factor: float) -> None:
    with pytest.raises(ValueError, match="capacity_factor"):
        Capacity(DROPLESS, factor)
